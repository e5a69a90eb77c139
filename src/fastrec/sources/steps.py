"""Rows that are steps: count the steps of records, and keep the counts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.ragged import RaggedArray
from fastrec.features.schema import Schema
from fastrec.features.steps import Edge, Offsets, steps_of, unpadded
from fastrec.sources.source import Source
from fastrec.storage.index_files import IndexPlace
from fastrec.storage.kept_counts import Counts, KeptCounts
from fastrec.storage.parallel import run_in_threads

_TASK_BYTES = 16 << 20  # of the records that one task decodes
_N_REMOTE_THREADS = 16  # they wait for the network


def with_steps(
    source: Source,
    windows: Mapping[Any, Offsets],
    every: int,
    edge: Edge,
    keep: Sequence[Any] | None,
) -> Source:
    """Return a source whose rows are the steps of the records of `source`."""
    readings = [
        (reading, steps_of(reading.schema, windows, every, edge, keep))
        for reading in source.readings_of_files()
    ]
    counts = count_steps(source, [*windows], source.files.index_place)
    ends = np.cumsum([0, *source.files.n_records_by_file()])
    given, first = [], 0
    for reading, steps in readings:
        last = first + reading.n_files
        steps = replace(steps, counts=counts[ends[first] : ends[last]])
        features = steps.features(reading.schema)
        given.append(replace(reading, features=features, steps=steps))
        first = last
    of_steps = replace(source, given=tuple(given), pieces=None, n_before=None)
    if source.is_whole:
        return of_steps
    table = of_steps.step_table
    assert table is not None
    return of_steps.with_records(table.rows_of(source.records()))


def count_steps(source: Source, names: Sequence[Any], place: IndexPlace) -> Counts:
    """Return the length of a list in each record of the files; -1 if it is unreadable.

    `names` are columns whose lists have equal lengths; one of them is counted.
    """
    source = replace(source.without_transforms(), pieces=None, n_before=None)
    schema = source.schema
    found = None
    for name in names:
        kept = KeptCounts(place, source.files.paths, _key(source, name))
        if (found := kept.load(source.files.n_records)) is not None:
            break
    if found is None:
        name = min(names, key=functools.partial(_item_bytes, schema))
        found = _counted(source, name)
        KeptCounts(place, source.files.paths, _key(source, name)).save(found)
    # Counts are kept by values, because an inferred schema does not know the items.
    n_values = 1 if schema._is_list(name) else math.prod(_item_shape(schema, name))
    is_whole = (found >= 0) & (found % n_values == 0)
    return np.where(is_whole, found // n_values, np.int32(-1)).astype(np.int32)


def _key(source: Source, name: Any) -> str:
    """Return a hash of the records and of the feature with a list."""
    import hashlib  # slow to import

    schema = source.schema
    column = schema[name]._columns(name)[0]
    digest = hashlib.blake2b(digest_size=16)
    source.files.add_to(digest)
    digest.update(repr((column.key, column.kind, schema._is_list(name))).encode())
    return digest.hexdigest()


def _item_shape(schema: Schema, name: Any) -> tuple[int, ...]:
    column = schema[name]._columns(name)[0]
    return column.shape[1:] if column.layout == "dense" else column.shape


def _item_bytes(schema: Schema, name: Any) -> float:
    """Return the size of a decoded item; byte strings are larger than all others."""
    column = schema[name]._columns(name)[0]
    if column.kind == "bytes":
        return math.inf
    return math.prod(_item_shape(schema, name)) * column.dtype.itemsize


def _counted(source: Source, name: Any) -> Counts:
    """Count the values of a list in each record, or its steps in a feature list."""
    one = source.with_schema(lambda s: s._with({name: unpadded(s, name)}))
    n_values = math.prod(_item_shape(one.schema, name))
    n_values = 1 if one.schema._is_list(name) else n_values
    files, core, pool = one.files, one.to_core(), _core.BlockPool(_TASK_BYTES)
    catalog = one.catalog()
    n_records = len(catalog)
    n_each = max(1, _TASK_BYTES * n_records // max(1, files.n_bytes))
    is_stopped: list[bool] = []

    def count(first: int) -> Counts:
        numbers = np.arange(first, min(first + n_each, n_records), dtype=np.int64)
        counts: Counts = np.full(len(numbers), -1, np.int32)
        if is_stopped:
            return counts
        parts, unreadable = _core.decode_records(
            core, catalog, pool, numbers, 0, "mask"
        )
        for _, columns, rows in parts:
            lengths = _lengths(columns[name]) * n_values
            counts[slice(None) if rows is None else rows] = lengths
        for span in unreadable:
            counts[span.row] = -1
        return counts

    with files.renewing():
        counted = run_in_threads(
            [functools.partial(count, i) for i in range(0, n_records, n_each)],
            cancel=functools.partial(is_stopped.append, True),
            progress_text=lambda n_done, _: (
                f"counting the steps of {n_records:,} records in {name!r}: "
                f"{min(n_done * n_each, n_records):,} so far"
            ),
            n_threads=_N_REMOTE_THREADS if files.is_remote else None,
        )
    return np.concatenate([np.empty(0, np.int32), *counted])


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    if isinstance(column, RaggedArray):
        return column.lengths
    return np.full(len(column), column.shape[1])
