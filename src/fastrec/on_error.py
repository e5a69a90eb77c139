"""Damage: what cannot be read, who decides what becomes of it, and what was lost.

Damage to the framing of a file decides which records there are, so it belongs to the
dataset. Damage to a record, or a record that does not fit its spec, belongs to a row.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fastrec.arrays.batch import take
from fastrec.errors import Error, add_note
from fastrec.printable import printable

if TYPE_CHECKING:
    from fastrec.loader.collate import Parts
    from fastrec.loader.transforms import BatchOrigin

__all__ = [
    "Damage",
    "Finding",
    "Gap",
    "Loss",
    "Losses",
    "OnError",
    "Region",
    "Report",
    "RowJudge",
    "check_on_error",
    "decision",
    "log_gaps",
    "recovery_of",
    "region_of",
]

_log = logging.getLogger("fastrec")

OnError: TypeAlias = Literal["raise", "skip", "resync", "mask"] | Callable[[Error], str]

# As the core tells of them: where a gap in the framing begins and ends, and why; which
# row of a batch cannot be read, where its frame begins and ends, and why.
Gap: TypeAlias = "tuple[int, int | None, Error]"
Damage: TypeAlias = "tuple[int, int, int, Error]"

# What an examination finds: where it begins and ends, how many records it is, the bit of
# a header that was flipped and is repaired, and what is wrong.
Finding: TypeAlias = "tuple[int, int, int | None, int | None, Error]"

_CHOICES = ("raise", "skip", "resync", "mask")

_MOST_REGIONS = 10_000  # in the report of a loader


@dataclass(frozen=True)
class Region:
    """Bytes of a file that were left out.

    Attributes
    ----------
    path : str
        The file.
    begin, end : int
        The bytes ``[begin, end)`` of the file; of the content where a compressed file is
        read as it is. There, `end` is None for an end that nobody has seen.
    reason : str
        What is wrong, as the error says it that ``on_error="raise"`` would raise.
    records : int or None
        How many records were lost; None if that is unknown.
    """

    path: str
    begin: int
    end: int | None
    reason: str
    records: int | None

    def __str__(self) -> str:
        lost = "records unknown"
        if self.records is not None:
            lost = _counted(self.records, "record")
        end = "the end" if self.end is None else self.end
        return f"{printable(self.path)}, bytes {self.begin} to {end}, {lost}: {self.reason}"


@dataclass(frozen=True, repr=False)
class Report:
    """What was left out: a sequence of regions, which ``print`` lists.

    A report does not change; ask again for a newer one. One without regions is false.

    Attributes
    ----------
    regions : tuple of Region
        In the order of the files, or of delivery.
    unlisted : int
        Records that were lost and are in no region: a loader lists the first 10,000, so
        that memory does not grow where nothing can be read.
    """

    regions: tuple[Region, ...] = ()
    unlisted: int = 0

    @property
    def records_lost(self) -> int:
        """How many records are known to be lost."""
        return sum(region.records or 0 for region in self.regions) + self.unlisted

    @property
    def is_complete(self) -> bool:
        """Whether `records_lost` are all: no region lost an unknown number of them."""
        return all(region.records is not None for region in self.regions)

    @property
    def bytes_lost(self) -> int:
        """How many bytes the regions have whose ends are known."""
        return sum(
            region.end - region.begin
            for region in self.regions
            if region.end is not None
        )

    def __len__(self) -> int:
        return len(self.regions)

    def __iter__(self) -> Iterator[Region]:
        return iter(self.regions)

    def __getitem__(self, index: int) -> Region:
        return self.regions[index]

    def __repr__(self) -> str:
        more = "" if self.is_complete else " and an unknown number"
        unlisted = (
            f", {_counted(self.unlisted, 'record')} not listed" if self.unlisted else ""
        )
        return (
            f"<fastrec.Report of {_counted(len(self), 'region')}: "
            f"{_counted(self.records_lost, 'record')}{more} lost, "
            f"{_counted(self.bytes_lost, 'byte')}{unlisted}>"
        )

    def __str__(self) -> str:
        return "\n".join([repr(self), *map(str, self.regions)])


class Loss(NamedTuple):
    """A row that is skipped or masked, and the error that ``"raise"`` would raise."""

    region: Region
    error: Exception
    note: str = ""  # where it happened, if the error does not say so


class Losses:
    """The rows of one epoch that were skipped or masked, in the order of delivery."""

    def __init__(self) -> None:
        self._regions: list[Region] = []
        self._n_unlisted = 0

    def __len__(self) -> int:
        return len(self._regions) + self._n_unlisted

    def report(self) -> Report:
        """Return what was lost so far."""
        return Report(tuple(self._regions), self._n_unlisted)

    def add(self, losses: Sequence[Loss]) -> None:
        """Add the rows that a batch lacks."""
        if not losses:
            return
        regions = [loss.region for loss in losses]
        if not self._regions:
            _log.warning(
                "a row is passed over, as others will be (see loader.report): %s",
                regions[0],
            )
        room = _MOST_REGIONS - len(self._regions)
        self._regions += regions[:room]
        self._n_unlisted += len(regions[room:])

    def back_to(self, n_losses: int) -> None:
        """Leave the first `n_losses`: the batch of the others was not delivered."""
        self._n_unlisted = max(0, n_losses - _MOST_REGIONS)
        del self._regions[n_losses:]

    def check(self, losses: Sequence[Loss], max_errors: int | None) -> None:
        """Raise the error of the first of `losses` that exceeds `max_errors`."""
        room = len(losses) if max_errors is None else max_errors - len(self)
        if len(losses) <= room:
            return
        _, error, note = losses[max(0, room)]
        limit = f"max_errors={max_errors} allows no more rows to be skipped or masked"
        if isinstance(error, Error):
            raise type(error)(
                f"{error.reason}; {limit}",
                *(error.path, error.record, error.offset, error.feature),
                code=error.code,
            )
        if note:
            add_note(error, note)
        add_note(error, limit)
        raise error

    def log(self, epoch: int) -> None:
        """Say at the end of an epoch how many there are."""
        if self._regions:
            _log.warning(
                "skipped %s in epoch %d (see loader.report)",
                _counted(len(self), "record"),
                epoch,
            )


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def check_on_error(value: object) -> OnError:
    """Return `value` if it is what ``on_error=`` takes, or raise."""
    if isinstance(value, str) and value in _CHOICES:
        return value  # type: ignore[return-value]
    if callable(value):
        return value
    names = ", ".join(map(repr, _CHOICES))
    kind = ValueError if isinstance(value, str) else TypeError
    msg = f"on_error must be one of {names}, or a function of an error, not {value!r}"
    raise kind(msg)


def recovery_of(on_error: OnError) -> Literal["raise", "skip", "resync"]:
    """Return what is done where the framing of a file is broken.

    Where a function decides, all that can be found is found first.
    """
    if callable(on_error) or on_error == "resync":
        return "resync"
    return "raise" if on_error == "raise" else "skip"


# The functions that each thread is asking, as locks.
_asking = threading.local()


def decision(on_error: Callable[[Error], str], error: Error) -> str:
    """Return what `on_error` says about `error`.

    Raises
    ------
    RuntimeError
        If `on_error` asks for data that wait for its own answer.
    ValueError
        If it says something else than it may.
    """
    # The lock of a thread knows whether it is held; a flag could be stale after a signal.
    lock = vars(_asking).setdefault(str(id(on_error)), threading.RLock())
    if lock._is_owned():
        msg = (
            "the function on_error= must not read the dataset it decides about: its "
            "records, indexes and counts wait for the answer. Use the error that it gets"
        )
        raise RuntimeError(msg)
    with lock:
        said = on_error(error)
    if said in _CHOICES:
        return said
    names = ", ".join(map(repr, _CHOICES))
    msg = f"the function on_error= must return one of {names}, not {said!r}"
    raise ValueError(msg)


def region_of(gap: Gap) -> Region:
    """Return a gap in the framing of a file as a region."""
    begin, end, error = gap
    return Region(error.path or "", begin, end, error.reason, None)


def log_gaps(gaps: Iterable[Gap]) -> None:
    """Say what is left out of files: nothing is, silently."""
    for gap in gaps:
        _log.warning("left out: %s", region_of(gap))


class RowJudge:
    """Decides about rows whose records cannot be read.

    Parameters
    ----------
    on_error
        As `fastrec.open` has it.
    keeps_shape : bool
        Whether batches must stay full: then rows are masked instead of left out.
    """

    def __init__(self, on_error: OnError, *, keeps_shape: bool) -> None:
        self._on_error = on_error
        self._keeps_shape = keeps_shape

    @property
    def on_damage(self) -> str:
        """What the core does with such rows: "raise", "skip" or "mask"."""
        if self._on_error == "raise":
            return "raise"
        is_skipped = self._on_error in ("skip", "resync") and not self._keeps_shape
        return "skip" if is_skipped else "mask"

    def judge(self, parts: Parts, damages: Sequence[Damage]) -> tuple[Parts, Verdict]:
        """Return the parts of the batch that is delivered, and what was decided.

        Raises
        ------
        Error
            That of a row which is not to be skipped.
        """
        left_out, masked = [], []
        for row, _, _, error in damages:
            if self._decided(error) == "mask":
                masked.append(row)
            else:
                left_out.append(row)
        losses = [
            Loss(Region(error.path or "", begin, end, error.reason, 1), error)
            for _, begin, end, error in damages
        ]
        if left_out and self.on_damage == "mask":
            parts = _without(parts, np.array(left_out))
        return parts, Verdict(left_out, masked, losses)

    def _decided(self, error: Error) -> str:
        decided = self.on_damage
        if callable(self._on_error):
            decided = decision(self._on_error, error)
            if decided == "raise":
                raise error
        return "mask" if self._keeps_shape else decided


@dataclass(frozen=True)
class Verdict:
    """What was decided about the rows of a batch.

    Attributes
    ----------
    left_out, masked : list of int
        Rows, as they would stand if all could be read.
    losses : list of Loss
    """

    left_out: list[int]
    masked: list[int]
    losses: list[Loss]

    def applied_to(self, info: BatchOrigin) -> BatchOrigin:
        """Return where the rows come from that are delivered; masked ones are padding."""
        if self.masked:
            info = info._masked(self.masked)
        if self.left_out:
            rows = np.arange(len(info.positions))
            info = info._of_rows(np.delete(rows, self.left_out))
        return info


def _without(parts: Parts, left_out: np.ndarray[Any, Any]) -> Parts:
    """Return the parts of a batch without some of its rows."""
    kept: Parts = []
    for reading, columns, rows in parts:
        if rows is None:
            n = next(len(column) for column in columns.values())
            rows = np.arange(n)
        stays = ~np.isin(rows, left_out)
        moved = rows[stays] - np.searchsorted(left_out, rows[stays])
        kept.append((reading, take(columns, np.flatnonzero(stays)), moved))
    kept = [part for part in kept if len(part[2] if part[2] is not None else ())] or [
        kept[0]
    ]
    if len(kept) == 1:
        ((reading, columns, _),) = kept
        return [(reading, columns, None)]
    return kept
