"""Sources: files of another format -> batches of columns, for `fastrec.Writer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from fastrec.features.base import Spec

__all__ = ["Columns", "Source", "chosen"]

# What `Writer.write_batch` takes: arrays and lists of one length, by name.
Columns: TypeAlias = dict[str, Any]

Kind = TypeVar("Kind")


class Source(ABC):
    """Files of another format, as batches of columns; made by `open_source`.

    Attributes
    ----------
    features : dict of str to spec
        Those columns that need a spec to be written (arrays of three or more dimensions
        are written as `fastrec.Raw`), and to be read as they were. Give it to
        ``fastrec.Writer(features=)``, and to ``fastrec.open(features=)`` with the specs
        of the others.
    n_rows : int
        Rows that `batches` has yielded so far.
    n_skipped : int
        Inputs that could not be read and were skipped so far, if `open_source` was
        called with ``on_error="skip"``.
    n_done, n_total : int
        How far it has come, for progress bars.
    unit : {"", "bytes"}
        What these count: rows or what else can be counted before, or bytes.
    """

    features: dict[str, Spec]
    n_done: int
    n_total: int
    unit = ""

    def __init__(self) -> None:
        self.features = {}
        self.n_rows = self.n_skipped = self.n_done = self.n_total = 0

    def batches(self) -> Iterator[Columns]:
        """Yield all rows from the beginning, batch by batch.

        Yields
        ------
        dict of str to column
            What ``Writer.write_batch`` takes: ndarrays, BytesArrays, RaggedArrays, or
            lists and masked arrays where values are missing; all of one length, which
            is at least 1. About 16 MiB, unless a single row is larger.

        Raises
        ------
        CorruptionError
            If a file is damaged, or is not what its name says.
        SchemaError
            If values cannot be written as features.
        OSError
            If a file cannot be read.
        """
        self.n_rows = self.n_skipped = self.n_done = 0
        for columns in self._batches():
            self.n_rows += len(next(iter(columns.values())))
            yield columns

    @abstractmethod
    def _batches(self) -> Iterator[Columns]:
        """Yield as `batches` does, and count `n_done` from 0 to `n_total`."""


def chosen(
    columns: Sequence[str] | None, there: Iterable[tuple[str, Kind]]
) -> dict[str, Kind]:
    """Return what is there by its name: of all columns, or of those asked for.

    Raises
    ------
    ValueError
        If a column that is asked for is not there, or is asked for twice; if two of
        those that are left have one name.
    """
    asked = None if columns is None else set(columns)
    by_name: dict[str, Kind] = {}
    for name, kind in there:
        if asked is not None and name not in asked:
            continue
        if name in by_name:
            raise ValueError(f"two columns are named {name!r}")
        by_name[name] = kind
    if columns is None:
        return by_name
    for name in columns:
        if name not in by_name:
            listed = ", ".join(repr(other) for other, _ in there)
            raise ValueError(f"there is no column {name!r}, only {listed}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns= (--column) names a column twice: {list(columns)!r}")
    return {name: by_name[name] for name in columns}
