"""read_tfrecords: Ray Data tasks read ranges of records.

::

    files -> indexes on the driver -> ranges of about equal bytes -> read tasks -> blocks

A read task has the offsets of its records, so workers need no index. It reads only these
records, and decodes only the selected columns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, FileShuffleConfig, ReadTask

from fastrec.arrow.reader import RecordBatchReader
from fastrec.dataset.adapted import has_functions, reading_columns
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.features.infer import name_of
from fastrec.features.schema import Features
from fastrec.hints import did_you_mean
from fastrec.loader.loader import Loader
from fastrec.options import BATCH_BYTES, rows_per_batch
from fastrec.ray.blocks import block_schema, blocks_of
from fastrec.ray.ranges import Range, divided
from fastrec.sources.source import Source
from fastrec.storage.paths import Paths
from fastrec.transforms.transform import CheckedTransform

Shuffle: TypeAlias = "Literal['files'] | FileShuffleConfig | None"


def read_tfrecords(
    source: Dataset | Paths,
    *,
    features: Features | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    text: Collection[str] = (),
    optional: Collection[str] = (),
    shuffle: Shuffle = None,
    **ray_options: Any,
) -> ray.data.Dataset:
    """Return a Ray Data dataset of TFRecord files.

    Each read task reads a range of records. Ranges have about equal bytes, so several
    tasks share a large file, and one task reads many small files. The driver builds
    missing indexes; ``fastrec index --ray ADDRESS`` builds them on the cluster.

    Parameters
    ----------
    source : Dataset, or path-like, or iterable of path-like
        Paths, or a dataset that was opened with other options:
        ``fr.ray.read_tfrecords(fr.open(paths, on_error="skip"))``. The dataset's
        transforms run in the read tasks. All nodes must see the files under the same
        paths.
    features : mapping of str to specs, or list of str, optional
        See `fastrec.open`.
    columns : sequence of str, optional
        Read only these columns. Ray's ``ds.select_columns`` has the same effect: the
        read tasks do not decode other features.
    text, optional : collection of str, default ()
        See `fastrec.arrow.RecordBatch`: `text` columns are string, not binary;
        `optional` columns contain a value or null, not lists.
    shuffle : {"files"} or ray.data.FileShuffleConfig, optional
        Read the ranges in random order, as Ray's readers do with files. Records keep
        their order within a range.
    **ray_options
        Options of ``ray.data.read_datasource``: ``override_num_blocks``,
        ``concurrency``, ``num_cpus``, ``memory``, ``ray_remote_args`` and others.

    Returns
    -------
    ray.data.Dataset
        Ray knows the row count unless rows may be skipped or files are compressed.
        Rows of one shape are tensors: batches have arrays ``(n, *shape)``. Other columns
        have the types of `fastrec.arrow.RecordBatch`: lists for rows of any length, and
        binary for byte strings.

    Raises
    ------
    SchemaError, TypeError, ValueError
        If an argument is invalid, or Arrow does not support a column.
    fastrec.Error, OSError
        If a file cannot be opened or indexed. Errors of read tasks are raised where Ray
        executes the dataset: as a ``ray.exceptions.RayTaskError`` that is also an
        instance of the original class, with the same `code`, `path` and `record`.

    Notes
    -----
    A pickled read task has no credentials. Workers read credentials from environment
    variables, which ``runtime_env={"env_vars": {...}}`` sets.

    Examples
    --------
    >>> ds = fr.ray.read_tfrecords("s3://bucket/train-*", columns=["image", "label"])
    ... # doctest: +SKIP
    >>> for batch in ds.iter_torch_batches(batch_size=256):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """
    known = [
        *inspect.signature(read_tfrecords).parameters,
        *inspect.signature(ray.data.read_datasource).parameters,
    ]
    for name in ray_options.keys() - {*known}:  # Ray would ignore them
        hint = did_you_mean(name, known, "{}=")
        raise TypeError(f"read_tfrecords() has no option {name!r}{hint}")
    given: object = source
    if isinstance(given, Loader):
        raise TypeError("source must be a Dataset or paths, got a Loader")
    if not isinstance(source, Dataset):
        dataset = open_dataset(source, features=features)
    else:
        dataset = source if features is None else source.with_features(features)
    if columns is not None:
        dataset = dataset.select_columns(columns)
    if shuffle not in (None, "files") and not isinstance(shuffle, FileShuffleConfig):
        raise ValueError(
            f'shuffle must be None, "files" or a FileShuffleConfig, got {shuffle!r}'
        )
    files = dataset._source.files.with_absolute_paths()
    located = replace(dataset._source, files=files)
    known_source = located.with_schema(lambda schema: schema)  # infers the schema once
    num_cpus = ray_options.get("num_cpus") or 1  # Ray's default for tasks
    datasource = TFRecordsDatasource(
        Dataset(known_source, dataset._transforms),
        {"text": frozenset(text), "optional": frozenset(optional)},
        shuffle,
        num_threads=max(1, int(num_cpus)),
    )
    return ray.data.read_datasource(datasource, **ray_options)


class TFRecordsDatasource(Datasource):
    """Ray datasource that reads a dataset; Ray names its tasks ReadTFRecords.

    `types` maps "text" and "optional" to the names of such columns.
    """

    def __init__(
        self,
        dataset: Dataset,
        types: dict[str, Any],
        shuffle: Shuffle,
        num_threads: int,
    ) -> None:
        super().__init__()
        self._projection_map: dict[str, str] | None = None
        self._shuffle, self._num_threads = shuffle, num_threads
        files = dataset._source.files
        if not files.is_streamed:
            files.indexes()
        # Whether each record yields exactly one row.
        self._is_counted = dataset.on_error in ("raise", "mask")
        self._is_counted &= not has_functions(dataset)
        self._read(dataset, types)

    def _read(self, dataset: Dataset, types: dict[str, Any]) -> None:
        """Set the dataset to read, the schema of its blocks, and its bytes per row."""
        self._dataset, self._types, self._schema = dataset, types, None
        if not has_functions(dataset):
            reader = RecordBatchReader(dataset, batch_size=1, **types)
            self._schema = block_schema(reader)
        self._row_bytes = max(1.0, dataset._row_bytes())

    def supports_projection_pushdown(self) -> bool:
        """Return whether Ray may select columns with `apply_projection`."""
        return self._is_counted and self._dataset.on_error == "raise"

    def apply_projection(self, projection_map: dict[str, str] | None) -> Datasource:
        """Return a datasource that reads only the columns in `projection_map`."""
        clone = super().apply_projection(projection_map)
        names: Any = clone._get_data_columns()
        if names is not None:
            # Read at least one column: a block without columns has no rows.
            names = names or [name_of(name) for name in self._dataset.schema][:1]
            types = {kind: chosen & {*names} for kind, chosen in self._types.items()}
            clone._read(reading_columns(self._dataset, names), types)
        return clone

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the approximate bytes of all blocks, or None if they are unknown."""
        source = self._dataset._source
        return self._n_bytes(
            source.n_known_records() if source.files.is_streamed else len(source)
        )

    def _n_bytes(self, n_records: int | None) -> int | None:
        return None if n_records is None else int(n_records * self._row_bytes)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        """Return at most `parallelism` read tasks, for ranges of about equal size."""
        ranges = divided(self._dataset._source, parallelism)
        if self._shuffle is not None:
            seed = None
            if self._shuffle != "files":
                seed = self._shuffle.get_seed(
                    getattr(data_context, "_execution_idx", 0)
                )
            order = np.random.default_rng(seed).permutation(len(ranges))
            ranges = [ranges[i] for i in order]
        context = data_context or ray.data.DataContext.get_current()
        block_bytes = context.target_max_block_size or BATCH_BYTES
        n_rows = rows_per_batch(self._row_bytes * max(1, BATCH_BYTES / block_bytes))
        return [self._task(records, n_rows, per_task_row_limit) for records in ranges]

    def _task(self, records: Range, batch_size: int, row_limit: int | None) -> ReadTask:
        task = functools.partial(
            _blocks,
            records,
            self._dataset._transforms,
            self._schema,
            batch_size=batch_size,
            _num_threads=self._num_threads,
            **self._types,
        )
        functools.update_wrapper(task, _blocks)  # Ray uses the name in warnings
        n_records = records.n_records
        metadata = BlockMetadata(
            num_rows=n_records if self._is_counted else None,
            size_bytes=self._n_bytes(n_records),
            exec_stats=None,
            input_files=records.paths,
        )
        return ReadTask(task, metadata, self._schema, row_limit)


def _blocks(
    records: Callable[[], Source],
    transforms: tuple[CheckedTransform, ...],
    schema: pa.Schema | None,
    **options: Any,
) -> Iterator[pa.Table]:
    """Yield the blocks of a read task; if there are none, one empty block."""
    is_empty = True
    reader = RecordBatchReader(Dataset(records(), transforms), **options)
    for block in blocks_of(reader):
        yield block
        is_empty = False
    if is_empty and schema is not None:
        yield schema.empty_table()
