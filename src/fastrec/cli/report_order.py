"""How well the records of a sample are mixed in their files, and after a shuffle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec import _core
from fastrec.cli.report_sample import Sample, flat_values
from fastrec.cli.shuffle_metrics import Draws, LabelMetrics, label_metrics
from fastrec.loader.order import shuffled

__all__ = ["ColumnOrder", "LabelOrder", "correlations", "label_name", "label_orders"]

_LABEL_NAMES = ("label", "labels", "class", "classes", "target", "category", "y")
_MAX_LABELS = 1000
_MAX_SHOWN = 12  # labels of a heat map
_N_TIMES = 40  # columns of a heat map
_WINDOW_PART = 7  # the part of the records in the shuffle buffer
_FIRST_PART = 5  # the part of the epoch in which labels are counted


@dataclass(frozen=True)
class LabelOrder:
    """Where the labels of an order are."""

    name: str
    metrics: LabelMetrics
    same_next: float  # share of records whose successor has the same label; or NaN
    same_at_random: float  # the mean of `same_next` over all orders
    shares: npt.NDArray[np.float64]  # of each shown label in each part of the epoch


@dataclass(frozen=True)
class ColumnOrder:
    """Rank correlations of the numbers of a column, 0 in a random order."""

    name: Any  # str or bytes
    place: float  # with the place in the files
    following: float  # with the next record; 0 if unknown

    @property
    def largest(self) -> float:
        """The larger absolute value."""
        return max(abs(self.place), abs(self.following))


def label_name(sample: Sample) -> Any:  # noqa: ANN401 (str, bytes or None)
    """Return the column that seems to be the label, or None."""
    names: list[Any] = list(sample.schema)
    for wanted in _LABEL_NAMES:
        for name in names:
            text = name if isinstance(name, str) else name.decode("utf-8", "replace")
            if text.lower().replace("_", "/").split("/")[-1] != wanted:
                continue
            codes = _codes(sample, name)
            if codes is not None and 2 <= codes.max() + 1 <= _MAX_LABELS:
                return name
    return None


def label_orders(sample: Sample, name: Any) -> tuple[int, list[LabelOrder]]:  # noqa: ANN401
    """Return the number of first draws, and the labels in three orders of the sample.

    Raises
    ------
    SchemaError
        If `name` is not a column with one integer or string in each record.
    """
    codes = _codes(sample, name) if name in sample.batch else None
    if codes is None:
        msg = f"a label must be one integer or string per record, got {name!r}"
        raise fr.SchemaError(msg)
    n = sample.n_records
    buffer = max(1, n // _WINDOW_PART)
    begins, counts = np.array([0], np.int64), np.array([n], np.int64)
    window = _core.Order.window(begins, counts, buffer, 0, 0)
    in_files = np.arange(n)
    orders: dict[str, Draws] = {
        "order of the files": in_files,
        f"shuffle buffer of 1/{_WINDOW_PART}": window.records(in_files),
        "shuffle=True": shuffled(n, seed=0),
    }
    n_first = max(1, n // _FIRST_PART)
    totals = np.bincount(codes)
    common = np.argsort(-totals, kind="stable")[:_MAX_SHOWN]
    same_at_random = float(totals @ (totals - 1)) / max(1, n * (n - 1))
    return n_first, [
        LabelOrder(
            title,
            label_metrics(draws, codes, n_first),
            _same_next(sample, name) if draws is in_files else _same(codes[draws]),
            same_at_random,
            _over_time(codes[draws], common),
        )
        for title, draws in orders.items()
    ]


def correlations(sample: Sample) -> list[ColumnOrder]:
    """Return Spearman's rank correlations of the columns, the largest first.

    Only of columns that have one number in each record, and not always the same.
    """
    found = []
    for name in sample.schema:
        if name not in sample.batch:
            continue
        values, per_record = flat_values(sample.batch[name])
        if isinstance(values, fr.BytesArray) or not (per_record == 1).all():
            continue
        ranks = _ranks(values)
        if len(ranks) > 2 and ranks.std() > 0:
            place = np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]
            found.append(ColumnOrder(name, float(place), _following(sample, name)))
    return sorted(found, key=lambda order: -order.largest)


def _pairs(sample: Sample, name: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return single values of records and of the next ones; empty if some have others."""
    values, per_record = flat_values(sample.batch[name])
    following, per_next = flat_values(sample.following[name])
    if not ((per_record == 1).all() and (per_next == 1).all()):
        return values[:0], following[:0]
    return values[: len(following)], following


def _same_next(sample: Sample, name: Any) -> float:  # noqa: ANN401
    values, following = _pairs(sample, name)
    return float((values == following).mean()) if len(following) else math.nan


def _same(codes: npt.NDArray[np.int64]) -> float:
    return float((np.diff(codes) == 0).mean()) if len(codes) > 1 else math.nan


def _following(sample: Sample, name: Any) -> float:  # noqa: ANN401
    values, following = _pairs(sample, name)
    ranks = _ranks(np.concatenate([values, following])).reshape(2, -1)
    if ranks.shape[1] < 3 or not ranks.std(axis=1).all():
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _codes(sample: Sample, name: Any) -> npt.NDArray[np.int64] | None:  # noqa: ANN401
    """Return the label of each record as a number from 0; None if it has no label."""
    values, per_record = flat_values(sample.batch[name])
    if not len(values) or not (per_record == 1).all():
        return None
    if isinstance(values, fr.BytesArray):
        numbers: dict[bytes, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
        return np.array(codes, np.int64)
    if values.dtype.kind not in "iub":
        return None
    codes_of: npt.NDArray[np.int64] = np.unique(values, return_inverse=True)[1]
    return codes_of.reshape(-1)


def _ranks(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return ranks; equal values share the mean of theirs."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: npt.NDArray[np.float64] = np.cumsum(counts) - (counts + 1) / 2
    return ranks[codes.reshape(-1)]


def _over_time(
    drawn: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the share of each label in each part of the draws."""
    parts = np.array_split(drawn, min(_N_TIMES, len(drawn)))
    return np.array(
        [[float((part == label).mean()) for part in parts] for label in labels]
    )
