"""What every peer can do: go through an epoch, and show what it delivered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from truth import Columns
from workloads import Prepared

__all__ = ["Reader"]


class Reader(ABC):
    """One peer, set up for one workload and number of threads.

    A reader too slow to go through all files many times reads the first ones only:
    `n_files` of them, and its rates are those of the records it read.
    """

    checks: str  # Which checksums it verifies: "both", "none", or "-" if not a reader.
    form: str  # The configuration, in the words of its own API.
    versions: dict[str, str]
    in_order = True  # Whether the first batch holds the first records.

    def __init__(self, prepared: Prepared, threads: int, batch_size: int) -> None:
        self.workload = prepared.workload
        self.truth = prepared.truth
        self.files = [str(file) for file in prepared.files]
        self.threads = threads
        self.batch_size = batch_size

    @property
    def n_files(self) -> int:
        """How many files an epoch reads."""
        return len(self.files)

    @property
    def n_records(self) -> int:
        """Records in an epoch."""
        return self.truth.records[self.n_files - 1]

    @property
    def nbytes(self) -> int:
        """Bytes of file that an epoch reads; of compressed files, what comes out."""
        return self.truth.nbytes[self.n_files - 1]

    @abstractmethod
    def epoch(self) -> Iterable[Any]:
        """Batches as a user of this peer gets them: what is timed, and nothing more."""

    @abstractmethod
    def columns(self, batch: Any) -> Columns:  # noqa: ANN401
        """A batch in the words of `truth`; never timed."""

    def verify(self) -> int:
        """Raise unless an epoch is what was written; count its batches."""
        batches = map(self.columns, self.epoch())
        return self.truth.verify(batches, self.n_files, in_order=self.in_order)
