"""Rows of tables or images, as batches of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fastrec.features.base import Spec
from fastrec.hints import no_column

# Argument of `Writer.write_batch`: arrays and lists of the same length, by name.
Columns: TypeAlias = dict[str, Any]

# The fields of an image, audio or video of a Hugging Face dataset.
MEDIA = {"bytes", "path"}

NO_ROWS = "data must have at least one row, got none; use fastrec.Writer to write an empty file"


def media_bytes(value: Mapping[str, Any] | None) -> bytes | None:
    """Return the bytes in a media value or of the file at its path; None if missing."""
    if value is None:
        return None
    data: bytes | None = value["bytes"]
    if data is None and value["path"] is not None:
        return Path(value["path"]).read_bytes()
    return data


class Source(NamedTuple):
    """Rows of tables or images, to be read once.

    Attributes
    ----------
    batches : iterator of dict of str to column
        Arguments of `Writer.write_batch`: ndarrays, BytesArrays, RaggedArrays, or lists
        and masked arrays if values are missing. A batch has at least one row, and takes
        about 16 MiB unless one row is larger.
    features : dict of str to spec
        A `fastrec.Raw` spec for each column of tensors of two or more dimensions.
    n_total : int
        Number of rows, including skipped images; 0 if unknown before reading.
    """

    batches: Iterator[Columns]
    features: Mapping[str, Spec] = {}
    n_total: int = 0


def selected(columns: Sequence[str] | None, available: Sequence[str]) -> list[str]:
    """Return `columns`, by default all `available`; raise a ValueError if invalid."""
    names = list(available if columns is None else columns)
    if not names:
        raise ValueError("the data must have at least one column, got none")
    n_available, n_selected = Counter(available), Counter(names)
    for name in names:
        if name not in n_available:
            raise ValueError(no_column(name, available, "the data"))
        if n_available[name] > 1:
            raise ValueError(f"column names must be unique, got {name!r} twice")
        if n_selected[name] > 1:
            raise ValueError(
                f"columns= (--columns) must not repeat a name, got {columns!r}"
            )
    return names
