"""Base class of sources, which read tables or images as batches of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

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


class Source(ABC):
    """Reader that yields tables or images as batches of columns; see `open_source`.

    Attributes
    ----------
    features : dict of str to spec
        A `fastrec.Raw` spec for each column of tensors of two or more dimensions. Pass
        `features` to ``fastrec.Writer(features=)`` and, with the specs of the other
        columns, to ``fastrec.open(features=)``.
    n_rows : int
        Number of rows that `batches` has yielded so far.
    n_skipped : int
        Number of images skipped so far, with ``on_error="skip"``.
    n_total : int
        Total number of rows, including skipped images; 0 if unknown before reading.
    """

    def __init__(self) -> None:
        self.features: dict[str, Spec] = {}
        self.n_rows = self.n_skipped = self.n_total = 0

    @property
    def n_done(self) -> int:
        """Number of rows yielded and images skipped so far."""
        return self.n_rows + self.n_skipped

    def batches(self) -> Iterator[Columns]:
        """Yield all rows, as batches of columns.

        Yields
        ------
        dict of str to column
            The argument of ``Writer.write_batch``: ndarrays, BytesArrays, RaggedArrays,
            or lists and masked arrays if values are missing. All columns have the same
            length, at least 1. A batch takes about 16 MiB, unless one row is larger.

        Raises
        ------
        CorruptionError
            If a file is damaged or does not have the format of its suffix.
        SchemaError
            If values cannot be written as features.
        OSError
            If a file cannot be read.
        """
        self.n_rows = self.n_skipped = 0
        for columns in self._batches():
            self.n_rows += len(next(iter(columns.values())))
            yield columns

    @abstractmethod
    def _batches(self) -> Iterator[Columns]:
        """Yield batches of columns; add skipped images to `n_skipped`."""


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
