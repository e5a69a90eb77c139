"""Other ways to iterate a loader: batches as tuples, and consecutive epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

B = TypeVar("B")


class TupleBatches:
    """The batches of a loader as tuples of columns; returned by `Loader.tuples`.

    Each ``for`` over it is a ``for`` over the loader, with the loader's state, report
    and statistics.
    """

    def __init__(self, loader: Any, names: tuple[str | bytes, ...]) -> None:
        self._loader = loader
        self._names = names

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        iterator: Iterator[tuple[Any, ...]] = self._loader._iterate(self._names)
        return iterator

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<tuples {self._names} of {self._loader!r}>"


class RepeatedEpochs(Iterator[B]):
    """The batches of consecutive epochs; returned by `Loader.repeat`.

    After an interrupt, the next call continues with the next batch.
    """

    def __init__(self, loader: Iterable[B], n_epochs: int | None) -> None:
        self._loader = loader
        self._is_endless = n_epochs is None
        self._n_left = n_epochs
        self._epoch: Iterator[B] | None = None
        self._is_empty = True

    def __next__(self) -> B:
        while self._n_left != 0:
            if self._epoch is None:
                self._is_empty = True
                self._epoch = iter(self._loader)
            for batch in self._epoch:
                # Python handles signals at calls and jumps. There are none between
                # taking the batch and returning it, so no batch is lost.
                self._is_empty = False
                return batch
            if self._is_empty and self._is_endless:
                raise ValueError(
                    "cannot repeat an epoch that has no batches; pass epochs="
                )
            self._n_left = None if self._n_left is None else self._n_left - 1
            self._epoch = None
        raise StopIteration
