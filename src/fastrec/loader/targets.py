"""Targets: divide a batch into inputs, labels and weights for ``model.fit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from fastrec.arrays.batch import Batch
from fastrec.loader.collate import VALID
from fastrec.loader.iterator import check_columns
from fastrec.sources.source import SOURCE

NO_BATCHES = "cannot determine the shapes of batches: an epoch has no batches"

Key: TypeAlias = "str | bytes"
Keys: TypeAlias = "Key | Sequence[Key]"


class Targets:
    """Divides a batch into inputs x, labels y and sample weights.

    If `label_key` is a list, y is a dict of columns.
    """

    def __init__(self, label_key: Keys | None, weight_key: Key | None) -> None:
        is_one = label_key is None or isinstance(label_key, (str, bytes))
        self._label_key = label_key if is_one else None
        labels = [label_key] if is_one else list(label_key or ())
        self._labels: list[Any] = [key for key in labels if key is not None]
        if not is_one and not self._labels:
            raise ValueError(
                "label_key must name at least one column, got none; omit it without labels"
            )
        if weight_key is not None and not self._labels:
            raise ValueError("weight_key= requires label_key=")
        for key in [*self._labels, *([] if weight_key is None else [weight_key])]:
            if not isinstance(key, (str, bytes)):
                raise TypeError(f"a key must be the name of a column, got {key!r}")
        self._weight_key: Any = weight_key

    def check(self, names: Sequence[Key]) -> None:
        """Raise an error if a key is not in `names`, or no input column is left."""
        weights = () if self._weight_key is None else (self._weight_key,)
        check_columns((*self._labels, *weights), names)
        if not self._inputs(names):
            raise ValueError("no input column: every column is a label or weight")

    def _inputs(self, names: Sequence[Key]) -> list[Any]:
        others = [*self._labels, self._weight_key, VALID, SOURCE]
        return [name for name in names if name not in others]

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        """Return ``(x,)`` without labels, else ``(x, y)`` or ``(x, y, weights)``."""
        columns: dict[Any, Any] = dict(batch)
        inputs = self._inputs(list(columns))
        x = _one_or_all(columns, inputs, is_one=len(inputs) == 1)
        if not self._labels:
            return (x,)
        y = _one_or_all(columns, self._labels, is_one=self._label_key is not None)
        weights = self._weights(columns)
        return (x, y) if weights is None else (x, y, weights)

    def _weights(self, columns: dict[Any, Any]) -> Any:
        weights: Any = columns.get(self._weight_key)
        is_record: Any = columns.get(VALID)
        if is_record is None or self._weight_key == VALID:
            is_bool = weights is not None and weights.dtype == np.bool_
            return weights.astype(np.float32) if is_bool else weights
        # Padding has weight 0.
        if weights is None:
            return is_record.astype(np.float32)
        shape = (len(is_record), *(1 for _ in weights.shape[1:]))
        return weights * is_record.reshape(shape)


def _one_or_all(columns: dict[Any, Any], names: Sequence[Any], *, is_one: bool) -> Any:
    return columns[names[0]] if is_one else {name: columns[name] for name in names}
