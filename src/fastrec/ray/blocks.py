"""Record batches of a dataset -> blocks of Ray Data, which are Arrow tables.

====================================  =================================================
ndarray ``(n, k, ...)`` of numbers    Ray's tensor extension: NumPy batches have the
                                      array ``(n, k, ...)``
any other column                      as in `fastrec.arrow.RecordBatch`
====================================  =================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
from ray.data.extensions import ArrowTensorArray, create_arrow_fixed_shape_tensor_type

from fastrec.arrow.reader import RecordBatchReader
from fastrec.arrow.record_batch import RecordBatch
from fastrec.dataset.dataset import Dataset
from fastrec.errors import Error


def block_schema(
    dataset: Dataset, text: Collection[str], optional: Collection[str]
) -> pa.Schema | None:
    """Return the schema of blocks; None if the first image cannot be decoded."""
    reader = RecordBatchReader(dataset, batch_size=1, text=text, optional=optional)
    try:
        schema = pa.schema(reader)
    except Error as error:
        if error.record is None:
            raise
        return None  # a read task raises it
    return pa.schema([field.with_type(_block_type(field.type)) for field in schema])


def blocks_of(
    dataset: Dataset,
    batch_size: int,
    text: Collection[str] = (),
    optional: Collection[str] = (),
    num_threads: int = 0,
) -> Iterator[pa.Table]:
    """Yield blocks of `batch_size` rows, of at least one row each."""
    reader = RecordBatchReader(
        dataset,
        batch_size=batch_size,
        text=text,
        optional=optional,
        _num_threads=num_threads,
    )
    yield from map(_block, reader)


def _block(batch: RecordBatch) -> pa.Table:
    table = pa.record_batch(batch)
    columns = [_tensors(column) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _shape_of(kind: pa.DataType) -> tuple[tuple[int, ...], pa.DataType]:
    """Return the shape of the rows of a column, and the type of their items."""
    shape = []
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    return tuple(shape), kind


def _is_tensor(kind: pa.DataType) -> bool:
    shape, item = _shape_of(kind)
    return bool(shape) and (pa.types.is_primitive(item))


def _block_type(kind: pa.DataType) -> pa.DataType:
    if not _is_tensor(kind):
        return kind
    return create_arrow_fixed_shape_tensor_type(*_shape_of(kind))


def _tensors(column: pa.Array) -> pa.Array:
    """Return a column of numbers of one shape as tensors, and others unchanged."""
    # Rows of optional columns may be null, which tensors cannot.
    if not _is_tensor(column.type) or column.null_count:
        return column
    shape, _ = _shape_of(column.type)
    n_rows = len(column)
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    is_bool = pa.types.is_boolean(column.type)
    values = column.to_numpy(zero_copy_only=not is_bool)
    return ArrowTensorArray.from_numpy(values.reshape(n_rows, *shape))
