"""Transforms of batches, with validation of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastrec.arrays.batch import Batch
from fastrec.errors import add_note
from fastrec.hints import no_column
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.calls import argument_style, name_of
from fastrec.transforms.decode import DecodeStrings
from fastrec.transforms.per_row import PerRow
from fastrec.transforms.windows import Windows

Transform: TypeAlias = Callable[..., Mapping[str, Any]]


class CheckedTransform:
    """A caller's transform, with validation of its result."""

    def __init__(self, transform: Any, cache_key: str | None = None) -> None:
        if not callable(transform):
            raise TypeError(f"transform must be callable, got {transform!r}")
        if cache_key is not None and not isinstance(cache_key, str):
            raise TypeError(f"cache_key must be a str, got {cache_key!r}")
        self.cache_key = cache_key
        self._transform = transform
        self._info = argument_style(transform, "info")
        # Whether it is part of reading, so `on_error` applies, not `on_transform_error`.
        self.is_reading = isinstance(transform, (DecodeStrings, Windows))
        # Whether threads may share the rows of a batch.
        self.is_per_row = self.is_reading or isinstance(transform, PerRow)
        self.name: str = f"{name_of(transform)}()"  # for errors
        if self.is_per_row:
            self.name = self._transform.name

    @property
    def varies_with(self) -> str | None:
        """The argument with which results may vary by epoch: "rng", "info" or None."""
        if isinstance(self._transform, PerRow):
            return "rng" if self._transform.is_random else None
        return "info" if self.needs_info else None

    @property
    def needs_info(self) -> bool:
        """Whether the transform accepts a BatchInfo."""
        return self._info is not None

    def __call__(self, batch: Batch, info: BatchInfo | None) -> Batch:
        """Return the transformed batch; `info` may be None unless `needs_info`."""
        result: Any
        try:
            if self._info is None:
                result = self._transform(batch)
            elif self._info == "positional":
                result = self._transform(batch, info)
            else:
                result = self._transform(batch, info=info)
        except StopIteration as error:
            # Reraising the StopIteration would silently end the epoch.
            msg = f"{self.name} raised StopIteration"
            raised = RuntimeError(msg)
            if info is not None and info._places is not None:
                info._places.note_batch(raised, self.name)
            raise raised from error
        except Exception as error:
            if info is not None and info._places is not None and not self.is_per_row:
                info._places.note_batch(error, self.name)  # PerRow adds its own note
            key = error.args[0] if isinstance(error, KeyError) and error.args else None
            # An error of `no_column` lists the columns itself.
            if isinstance(key, str) and key not in batch and "no column" not in key:
                add_note(error, no_column(key, batch, "the batch"))
            raise
        if type(result) is not dict and not isinstance(result, Mapping):
            hint = "; loader.tuples() makes tuples" if isinstance(result, tuple) else ""
            raise TypeError(
                "transform must return a dict or another mapping, got "
                f"{type(result).__name__}{hint}"
            )
        columns: Batch = result if isinstance(result, dict) else dict(result)
        # Columns may be arrays of any library; other values have no length to check.
        lengths: dict[str, int] = {}
        for name, column in columns.items():
            if getattr(column, "shape", ()):
                lengths[name] = len(column)
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"transform must return columns of equal length, got {lengths}"
            )
        return columns
