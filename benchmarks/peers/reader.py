"""What every peer can do: go through an epoch, and show what it delivered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from truth import Columns
from workloads import Prepared

__all__ = ["MissingPeerError", "Reader", "Setup"]


class MissingPeerError(Exception):
    """The peer is not installed here, or cannot do what is asked."""


@dataclass(frozen=True)
class Setup:
    """A request to a peer; `form` is one of its forms, "" the best one found."""

    prepared: Prepared
    threads: int
    batch_size: int
    form: str = ""
    is_shuffled: bool = False

    def refuse(
        self,
        *,
        forms: Iterable[str] = (),
        threads: str = "",
        shuffled: str = "",
        gzip: str = "",
        sequence: str = "",
    ) -> None:
        """Raise for a form that is not in `forms`, and where a reason is given why not."""
        if self.form not in ("", *forms):
            raise MissingPeerError(f"no form {self.form!r}; there are {[*forms]}")
        workload = self.prepared.workload
        for is_asked, reason in (
            (self.threads > 1, threads),
            (self.is_shuffled, shuffled),
            (workload.is_gzip, gzip),
            (workload.is_sequence, sequence),
        ):
            if is_asked and reason:
                raise MissingPeerError(reason)

    @property
    def shuffle_buffer(self) -> int:
        """Records in the buffer of peers that shuffle through one."""
        return 10_000 if self.prepared.workload.record_bytes < 100_000 else 1_000


class Reader(ABC):
    """One peer, set up for one workload, order and number of threads.

    A reader too slow to go through all files many times reads the first ones only:
    `n_files` of them, and its rates are those of the records it read.
    """

    checks: str  # Which checksums it verifies: "both", "none", or "-" if not a reader.
    form: str  # The configuration, in the words of its API.
    versions: dict[str, str]

    def __init__(self, setup: Setup) -> None:
        self.workload = setup.prepared.workload
        self.truth = setup.prepared.truth
        self.files = [str(file) for file in setup.prepared.files]
        self.threads = setup.threads
        self.batch_size = setup.batch_size
        self.in_order = not setup.is_shuffled  # The first batch has the first records.

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
        """Bytes of file that an epoch reads; of compressed files, their content."""
        return self.truth.nbytes[self.n_files - 1]

    @abstractmethod
    def epoch(self) -> Iterable[Any]:
        """Batches as a user of this peer gets them: what is timed, and nothing more."""

    @abstractmethod
    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`; never timed."""

    def verify(self) -> int:
        """Raise unless an epoch is what was written; count its batches."""
        batches = map(self.columns, self.epoch())
        return self.truth.verify(batches, self.n_files, in_order=self.in_order)
