"""Source: files of another format as batches of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fastrec.features.base import Spec
from fastrec.hints import no_column

# The argument of `Writer.write_batch`: arrays and lists of the same length, by name.
Columns: TypeAlias = dict[str, Any]

T = TypeVar("T")


# The fields of an image, audio or video of a Hugging Face dataset.
MEDIA = {"bytes", "path"}


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
            or lists and masked arrays if values are missing. All have the same length, at
            least 1, and together about 16 MiB, unless one row is larger.

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


def select_columns(
    columns: Sequence[str] | None, available: Iterable[tuple[str, T]]
) -> dict[str, T]:
    """Return the available columns by name, or only `columns`, in that order."""
    selected: dict[str, T] = {}
    names = [name for name, _ in available]
    for name, column in available:
        if columns is not None and name not in columns:
            continue
        if name in selected:
            raise ValueError(f"column names must be unique, got {name!r} twice")
        selected[name] = column
    for name in columns or ():
        if name not in selected:
            raise ValueError(no_column(name, names, "the data"))
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(
            f"columns= (--columns) must not repeat a name, got {columns!r}"
        )
    if not selected:
        raise ValueError("the data must have at least one column, got none")
    return selected if columns is None else {name: selected[name] for name in columns}
