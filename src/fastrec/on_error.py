"""Error policies (``on_error=``), and reports of skipped regions.

A dataset applies the policy to broken framing, because framing determines which records
exist. A loader applies it to single records that are damaged or do not fit their spec.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from fastrec.errors import Error
from fastrec.printable import counted, printable

_log = logging.getLogger("fastrec")

ErrorPolicy: TypeAlias = Literal["raise", "skip", "resync", "mask"]

_CHOICES = ("raise", "skip", "resync", "mask")


class SkippedSpan(NamedTuple):
    """Unreadable bytes ``[begin, end)`` of the file that `error` names."""

    begin: int
    end: int | None  # None if unknown
    error: Error
    records: int | None = None  # number of lost records; None if unknown
    row: int | None = None  # index of the row in a batch
    bit: int | None = None  # index of a flipped header bit that can be restored

    @property
    def region(self) -> SkippedRegion:
        """The span as a `SkippedRegion`, the type that reports contain."""
        path, reason = self.error.path or "", self.error.reason
        return SkippedRegion(path, self.begin, self.end, reason, self.records)


@dataclass(frozen=True)
class SkippedRegion:
    """A byte range that fastrec skipped in a file.

    Attributes
    ----------
    path : str
        Path of the file.
    begin, end : int
        The byte range ``[begin, end)`` in the file, or in the decompressed content of
        a compressed file. `end` is None if unknown.
    reason : str
        The `reason` of the error that ``on_error="raise"`` would raise.
    records : int or None
        Number of lost records; None if unknown.
    """

    path: str
    begin: int
    end: int | None
    reason: str
    records: int | None

    def __str__(self) -> str:
        lost = "an unknown number of records"
        if self.records is not None:
            lost = counted(self.records, "record")
        end = "the end" if self.end is None else self.end
        return f"{printable(self.path)}, bytes {self.begin} to {end}, {lost}: {self.reason}"


@dataclass(frozen=True, repr=False)
class Report:
    """Sequence of skipped regions; ``print(report)`` lists them.

    A report is a snapshot, which does not change later. An empty report is false.

    Attributes
    ----------
    regions : tuple of SkippedRegion
        Skipped regions: in file order for a dataset, in delivery order for a loader.
    unlisted : int
        Number of lost records that are not in `regions`. A loader lists only the first
        10,000 regions, to bound its memory.
    """

    regions: tuple[SkippedRegion, ...] = ()
    unlisted: int = 0

    @property
    def records_lost(self) -> int:
        """Number of records that are known to be lost."""
        return sum(region.records or 0 for region in self.regions) + self.unlisted

    @property
    def is_complete(self) -> bool:
        """Whether `records_lost` is exact: the number is known for every region."""
        return all(region.records is not None for region in self.regions)

    @property
    def bytes_lost(self) -> int:
        """Number of skipped bytes in the regions whose end is known."""
        return sum(r.end - r.begin for r in self.regions if r.end is not None)

    def __len__(self) -> int:
        return len(self.regions)

    def __iter__(self) -> Iterator[SkippedRegion]:
        return iter(self.regions)

    def __getitem__(self, index: int) -> SkippedRegion:
        return self.regions[index]

    def __repr__(self) -> str:
        unlisted = (
            f", {counted(self.unlisted, 'record')} not listed" if self.unlisted else ""
        )
        return (
            f"<fastrec.Report of {counted(len(self), 'region')}: "
            f"{lost(self.records_lost, is_known=self.is_complete)}, "
            f"{counted(self.bytes_lost, 'byte')}{unlisted}>"
        )

    def __str__(self) -> str:
        return "\n".join([repr(self), *map(str, self.regions)])


def lost(n_records: int, *, is_known: bool) -> str:
    """Return ``2 records lost``; ``at least 2 records lost`` if `is_known` is false."""
    if is_known:
        return f"{counted(n_records, 'record')} lost"
    if n_records:
        return f"at least {counted(n_records, 'record')} lost"
    return "an unknown number of records lost"


def check_on_error(value: object) -> ErrorPolicy:
    """Return `value` if it is an error policy, else raise a ValueError or TypeError."""
    if isinstance(value, str) and value in _CHOICES:
        return value  # type: ignore[return-value]
    kind = ValueError if isinstance(value, str) else TypeError
    names = ", ".join(f'"{choice}"' for choice in _CHOICES[:-1])
    raise kind(f'on_error must be {names} or "{_CHOICES[-1]}", got {value!r}')


def log_gaps(gaps: Iterable[SkippedSpan]) -> None:
    """Log a warning for each skipped region."""
    for gap in gaps:
        _log.warning("skipping %s", gap.region)
