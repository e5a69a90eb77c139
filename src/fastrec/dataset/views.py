"""Dataset views: datasets that share files and select columns or records."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch
from fastrec.dataset.indexing import record_numbers, record_range
from fastrec.display import as_text, table
from fastrec.errors import Error, SchemaError
from fastrec.features.schema import Features, Schema
from fastrec.features.sequence_schema import schema_or_names
from fastrec.hints import no_column
from fastrec.loader.loader import Loader
from fastrec.on_error import ErrorPolicy, check_on_error
from fastrec.options import non_negative_int, positive_int
from fastrec.sources.random_split import check_fractions, divided, even_bounds
from fastrec.sources.view import View
from fastrec.transforms.transform import CheckedTransform, Transform

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DatasetViews"]

_NAMES_SHOWN = 10
_ROWS_SHOWN = 3
_FILTERED_AT_ONCE = 1024  # rows in a call of the filter function


class DatasetViews(ABC):
    """Base class of `Dataset`: the methods that return views."""

    def __init__(
        self, view: View, transforms: tuple[CheckedTransform, ...] = ()
    ) -> None:
        self._view = view
        self._transforms = transforms

    @abstractmethod
    def loader(self, *args: Any, **options: Any) -> Loader:  # noqa: ANN401
        """Return an iterable of batches."""

    # Display: never builds an index.

    def __repr__(self) -> str:
        return f"<fastrec.Dataset of {self._described()}>"

    def _repr_html_(self) -> str:
        """Return the schema and the first rows as a table, for notebooks.

        Only the beginning of the first file is read.
        """
        from fastrec.dataset.first_rows import first_rows

        title = f"Dataset of {self._view!r}"
        try:
            schema, rows = first_rows(self._view, _ROWS_SHOWN)
        except (Error, OSError) as error:
            return table([], [], title=f"{title}; cannot read its first rows: {error}")
        if not rows and not self._view.is_mixed:
            title += "; no records"
        elif schema._source:
            title += f"; {schema._source}"
        header = ["column", "spec", *(f"row {i}" for i in range(len(rows)))]
        names: list[Any] = list(schema)
        cells = [
            [as_text(name), schema[name]._text("fr."), *(row.get(name) for row in rows)]
            for name in names
        ]
        return table(header, cells, title=title)

    def _described(self) -> str:
        schema = self._view.source.known_schema()
        if schema is None:
            return repr(self._view)
        names = list(schema)
        more = f" and {len(names) - _NAMES_SHOWN:,} more" * (len(names) > _NAMES_SHOWN)
        listed = ", ".join(map(repr, names[:_NAMES_SHOWN]))
        noun = "column" if len(names) == 1 else "columns"
        return f"{self._view!r}, {noun} {listed}{more}"

    # Columns.

    def with_features(
        self,
        features: Features | Sequence[str] | None = None,
        *,
        context_features: Features | None = None,
        sequence_features: Features | None = None,
    ) -> Self:
        """Return a dataset of the same records that reads other features.

        Parameters
        ----------
        features, context_features, sequence_features
            As for `fastrec.open`.

        Raises
        ------
        SchemaError
            If they are invalid, or all are None.
        """
        schema, names = schema_or_names(features, context_features, sequence_features)
        if schema is None and names is None:
            msg = (
                "with_features() requires features=, or context_features= and "
                "sequence_features="
            )
            raise SchemaError(msg)
        source = self._view.source.changed(
            lambda reading: dataclasses.replace(reading, features=schema, names=names)
        )
        return type(self)(self._view.of(source), self._transforms)

    def select_columns(self, names: Sequence[str]) -> Self:
        """Return a dataset of the same records with only the columns `names`.

        Other columns are not decoded, and transforms do not receive them.

        Raises
        ------
        KeyError
            If the schema has no such column.
        """
        if isinstance(names, (str, bytes)):
            msg = f"select_columns() requires a list of names, got {names!r}"
            raise TypeError(msg)
        if not len(names):
            msg = "select_columns() requires at least one name"
            raise ValueError(msg)

        def selected(schema: Schema) -> Schema:
            missing = [name for name in names if name not in schema]
            if missing:
                raise KeyError(no_column(missing[0], schema, "the dataset"))
            return schema._chosen(names)

        source = self._view.source.with_schema(selected)
        return type(self)(self._view.of(source), self._transforms)

    def with_transform(self, transform: Transform) -> Self:
        """Return a dataset that calls `transform` on every batch it reads.

        Parameters
        ----------
        transform : callable
            ``transform(batch)`` or ``transform(batch, info)``, as for `loader`. It runs
            after the dataset's earlier transforms and before the loader's. Reading single
            rows calls it with batches of one or a few rows.
        """
        return type(self)(self._view, (*self._transforms, CheckedTransform(transform)))

    # Records.

    def select(
        self, indices: range | slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Self:
        """Return a dataset of the records at `indices`, in that order.

        Parameters
        ----------
        indices : range, slice, or 1-D array of integers or bool
            Record numbers, or a mask. Numbers may repeat, and negative ones count from
            the end. A range or slice takes no memory, an array 8 bytes per record.

        Raises
        ------
        IndexError
            If a number is out of range.
        TypeError
            If `indices` has another type.
        """
        n_records = len(self._view)
        if isinstance(indices, slice):
            indices = range(*indices.indices(n_records))
        numbers = (
            record_range(indices, n_records)
            if isinstance(indices, range)
            else record_numbers(indices, n_records)
        )
        return type(self)(self._view.selected(numbers), self._transforms)

    def filter(
        self,
        keep: Callable[[Batch], npt.ArrayLike],
        *,
        columns: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Self:
        """Return a dataset of the records for which `keep` returns True.

        Reads all records once, in parallel.

        Parameters
        ----------
        keep : callable
            ``keep(batch)`` receives a dict of columns and returns a bool array of shape
            ``(rows,)``.
        columns : sequence of str, optional
            The columns to decode for `keep`; the dataset's transforms are not called. By
            default `keep` receives all columns, after the transforms.
        key : str, optional
            A name for `keep` and the transforms before it. The result is cached for the
            same records, columns and key. Records are identified by their stored
            checksums, which are read again only when a file has changed.

        Raises
        ------
        TypeError, ValueError
            If `keep` returns anything else.
        """
        from fastrec.dataset.filter import kept_records

        self._view.files.check_random_access("filter()")
        self._view.check_selectable()
        read = self
        if columns is not None:
            read = type(self)(self._view).select_columns(columns)._without_transforms()

        # `keep` runs in this thread, because it may use objects that belong to it. A
        # masked row has no values to filter by, so unreadable rows are skipped.
        def loader_with(transform: Transform) -> Loader:
            return read.loader(
                _FILTERED_AT_ONCE,
                rank=0,
                world_size=1,
                transform=transform,
                transform_threads=0,
                on_error="skip" if read._view.files.on_error == "mask" else None,
            )

        return self.select(kept_records(read._view, loader_with, keep, key))

    def split(self, fractions: Sequence[float], *, seed: int = 0) -> tuple[Self, ...]:
        """Split the records at random into one dataset per fraction.

        The parts are disjoint and keep the order of the records. The split depends only
        on `seed` and the number of records.

        Parameters
        ----------
        fractions : sequence of float
            Fractions of the records, such as ``[0.9, 0.1]``; their sum is at most 1.
        seed : int, default 0

        Raises
        ------
        ValueError
            If a fraction is negative or their sum exceeds 1.
        """
        check_fractions(fractions)
        seed = non_negative_int("seed", seed, 2**64 - 1)
        self._view.check_selectable()
        part_of = divided(len(self._view), fractions, seed)
        return tuple(
            self.select(np.flatnonzero(part_of == part))
            for part in range(len(fractions))
        )

    def shard(self, *, num_shards: int, index: int) -> Self:
        """Return shard `index` of `num_shards` contiguous shards.

        Sizes differ by one record at most. Distributed training does not need this:
        `loader` divides every batch among the ranks.

        Raises
        ------
        ValueError
            If `index` is not below `num_shards`.
        """
        num_shards = positive_int("num_shards", num_shards)
        index = non_negative_int("index", index)
        if index >= num_shards:
            msg = f"index must be less than num_shards={num_shards}, got {index}"
            raise ValueError(msg)
        bounds = even_bounds(len(self._view), num_shards)
        return self.select(range(bounds[index], bounds[index + 1]))

    # For adapters.

    @property
    def _has_transforms(self) -> bool:
        source = self._view.source
        return bool(source.transforms or source.is_decoding or self._transforms)

    def _with_on_error(self, on_error: ErrorPolicy) -> Self:
        view = self._view.with_on_error(check_on_error(on_error))
        return type(self)(view, self._transforms)

    def _without_transforms(self) -> Self:
        return type(self)(self._view.of(self._view.source.without_transforms()))
