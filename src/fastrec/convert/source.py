"""Source: files of another format as batches of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fastrec.features.base import Spec
from fastrec.hints import no_column

# The argument of `Writer.write_batch`: arrays and lists of the same length, by name.
Columns: TypeAlias = dict[str, Any]

# The fields of an image, audio or video of a Hugging Face dataset.
MEDIA = {"bytes", "path"}

NO_ROWS = "data must have at least one row, got none; use fastrec.Writer to write an empty file"


def media_bytes(value: Mapping[str, Any] | None) -> bytes | None:
    """Return the bytes of an image, audio or video, or of the file that it names."""
    if value is None:
        return None
    data: bytes | None = value["bytes"]
    if data is None and value["path"] is not None:
        return Path(value["path"]).read_bytes()
    return data


class Source(ABC):
    """Files of another format as batches of columns; returned by `open_source`.

    Attributes
    ----------
    features : dict of str to spec
        Specs of columns that need one: `fastrec.Raw` for tensors of two or more
        dimensions. Pass it to ``fastrec.Writer(features=)``, and to
        ``fastrec.open(features=)`` with the specs of the other columns.
    n_rows : int
        Rows that `batches` has yielded so far.
    n_skipped : int
        Images skipped so far, with ``on_error="skip"``.
    n_total : int
        The total of rows and skipped images; 0 if it is unknown in advance.
    """

    def __init__(self) -> None:
        self.features: dict[str, Spec] = {}
        self.n_rows = self.n_skipped = self.n_total = 0

    @property
    def n_done(self) -> int:
        """Rows and skipped images so far."""
        return self.n_rows + self.n_skipped

    def batches(self) -> Iterator[Columns]:
        """Yield all rows, batch by batch.

        Yields
        ------
        dict of str to column
            The argument of ``Writer.write_batch``: ndarrays, BytesArrays, RaggedArrays,
            or lists and masked arrays if values are missing. All have the same length,
            at least 1. Together they take about 16 MiB, unless one row is larger.

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
        """Yield the batches, and count `n_skipped`."""


def selected(columns: Sequence[str] | None, available: Sequence[str]) -> list[str]:
    """Return the names of all available columns, or `columns` if these are available."""
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
