"""Rows that are steps: count the steps of records, and keep the counts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.features.fixed import VarLen
from fastrec.features.schema import Schema
from fastrec.features.steps import Edge, Offsets, steps_of
from fastrec.sources.selection import Numbers
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

    `names` are columns whose lists have equal lengths. The first of numbers is counted,
    or else the first, so that all processes count the same.
    """
    source = replace(source.without_transforms(), pieces=None, n_before=None)
    schema = source.schema
    numbers = [n for n in names if schema[n]._columns(n)[0].kind != "bytes"]
    name = (numbers or names)[0]
    kept = KeptCounts(place, source.files.paths, _key(source, name))
    n_records = source.files.n_records
    found = kept.load(n_records)
    values = np.full(n_records, -1, np.int32) if found is None else found
    # Records may have been unreadable for a reason that is gone.
    if len(unknown := np.flatnonzero(values < 0)):
        values[unknown] = _counted(source, name, unknown)
    if found is None or (values[unknown] >= 0).any():
        kept.save(values)
    if schema._is_list(name):
        return values
    column = schema[name]._columns(name)[0]
    n_values = math.prod(column.shape)  # of an item
    is_whole = (values >= 0) & (values % n_values == 0)
    if column.layout == "dense":  # another number of values is an error
        n_values, is_whole = n_values // column.shape[0], values == n_values
    counts: Counts = np.where(is_whole, values // n_values, -1).astype(np.int32)
    return counts


def _key(source: Source, name: Any) -> str:
    """Return a hash of the records and of the feature with a list."""
    import hashlib  # slow to import

    digest = hashlib.blake2b(digest_size=16)
    source.files.add_to(digest)
    for reading in source.readings_of_files():
        schema = reading.schema
        column = schema[name]._columns(name)[0]
        of_file = (reading.n_files, column.key, column.kind, schema._is_list(name))
        digest.update(repr(of_file).encode())
    return digest.hexdigest()


def _counted(source: Source, name: Any, numbers: Numbers) -> Counts:
    """Count the values of a feature in records, or the steps of a feature list.

    The result is -1 for records that cannot be read.
    """

    def counting(schema: Schema) -> Schema:
        column = schema[name]._columns(name)[0]
        dtype = {"float": "float32"}.get(column.kind, column.kind)
        return schema._with({name: VarLen(dtype, key=column.key)})

    one = source.with_schema(counting)
    files, core, pool = one.files, one.to_core(), _core.BlockPool(_TASK_BYTES)
    catalog = one.catalog()
    n_each = max(1, _TASK_BYTES * files.n_records // max(1, files.n_bytes))
    is_stopped: list[bool] = []

    def count(first: int) -> Counts:
        here = numbers[first : first + n_each]
        counts: Counts = np.full(len(here), -1, np.int32)
        if is_stopped:
            return counts
        parts, unreadable = _core.decode_records(core, catalog, pool, here, 0, "mask")
        for _, columns, rows in parts:
            lists: Any = columns[name]
            counts[slice(None) if rows is None else rows] = lists.lengths
        for span in unreadable:
            counts[span.row] = -1
        return counts

    with files.renewing():
        counted = run_in_threads(
            [functools.partial(count, i) for i in range(0, len(numbers), n_each)],
            cancel=functools.partial(is_stopped.append, True),
            progress_text=lambda n_done, _: (
                f"counting the steps of {len(numbers):,} records in {name!r}: "
                f"{min(n_done * n_each, len(numbers)):,} so far"
            ),
            n_threads=_N_REMOTE_THREADS if files.is_remote else None,
        )
    return np.concatenate([np.empty(0, np.int32), *counted])
