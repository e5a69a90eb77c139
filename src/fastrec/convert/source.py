"""Sources: files of another format as batches of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from fastrec.features.base import Spec

__all__ = ["Columns", "Source", "chosen"]

# The argument of `Writer.write_batch`: arrays and lists of one length, by name.
Columns: TypeAlias = dict[str, Any]

T = TypeVar("T")


class Source(ABC):
    """Files of another format, as batches of columns; made by `open_source`.

    Attributes
    ----------
    features : dict of str to spec
        Columns that need a spec to be written and read: arrays of three or more
        dimensions, as `fastrec.Raw`. Pass it to ``fastrec.Writer(features=)``, and to
        ``fastrec.open(features=)`` with the specs of the other columns.
    n_rows : int
        Rows that `batches` has yielded so far.
    n_skipped : int
        Images that were skipped so far, with ``on_error="skip"``.
    n_total : int
        Rows and skipped images at the end; 0 if that is not known in advance.
    """

    def __init__(self) -> None:
        self.features: dict[str, Spec] = {}
        self.n_rows = self.n_skipped = self.n_total = 0

    @property
    def n_done(self) -> int:
        """Rows and skipped images so far."""
        return self.n_rows + self.n_skipped

    def batches(self) -> Iterator[Columns]:
        """Yield all rows from the beginning, batch by batch.

        Yields
        ------
        dict of str to column
            The argument of ``Writer.write_batch``: ndarrays, BytesArrays, RaggedArrays,
            or lists and masked arrays where values are missing; all of one length, at
            least 1. About 16 MiB, unless one row is larger.

        Raises
        ------
        CorruptionError
            If a file is damaged, or is not what its name says.
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


def chosen(
    columns: Sequence[str] | None, available: Iterable[tuple[str, T]]
) -> dict[str, T]:
    """Return the available columns by name, or those in `columns`, in that order."""
    found: dict[str, T] = {}
    names = [name for name, _ in available]
    for name, column in available:
        if columns is not None and name not in columns:
            continue
        if name in found:
            raise ValueError(f"two columns are named {name!r}")
        found[name] = column
    for name in columns or ():
        if name not in found:
            listed = ", ".join(map(repr, names))
            raise ValueError(f"there is no column {name!r}, only {listed}")
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"columns= (--column) must not repeat a name, got {columns!r}")
    if not found:
        msg = "the data must have at least one column, got none"
        raise ValueError(msg)
    return found if columns is None else {name: found[name] for name in columns}
