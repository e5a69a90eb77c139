"""DecodeStrings: decode images and arrays that are stored as byte strings."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, BytesArray, RaggedArray
from fastrec.errors import Error, SchemaError
from fastrec.features.base import Spec, numpy_dtype
from fastrec.features.fixed import Raw
from fastrec.features.image import Image, Item, List
from fastrec.features.schema import Schema
from fastrec.features.steps import Steps
from fastrec.features.tensor import SerializedTensor, tensor_prefix
from fastrec.options import Limits
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.calls import share
from fastrec.transforms.images import ImageDecoder

Splits: TypeAlias = "npt.NDArray[np.int64]"

# The stream of a row's random numbers; transforms draw from stream 0.
_STREAM = 1
_PARTS_PER_THREAD = 16  # decoding an image costs more than starting a task

_pool = _core.BlockPool(0)  # for single tensors


class _Column(NamedTuple):
    """A column to decode: its byte strings, and the decoded arrays."""

    key: bytes
    is_feature_list: bool
    item: Item
    strings: BytesArray  # of all rows, flat
    splits: list[Splits]  # of rows, and of the items of each further level
    begins: Splits  # the first string of each row, and the end
    arrays: npt.NDArray[Any]  # one for each string
    result: npt.NDArray[Any] | RaggedArray
    is_value: npt.NDArray[np.bool_] | None  # False for zeros; None: all are values
    offsets: npt.NDArray[np.int64] | None  # of a window, for errors


class DecodeStrings:
    """A transform that decodes the columns of images and stored arrays.

    Threads share the strings of a batch, because a row may have many strings, such as the
    frames of an episode. `masks` are columns that are False for strings to read as zeros.
    """

    name = ""  # errors contain their location

    def __init__(
        self,
        schema: Schema,
        limits: Limits,
        steps: Steps | None = None,
    ) -> None:
        self._windows = {} if steps is None else steps.windows
        self._masks = {} if steps is None else steps.masks
        self._schema = schema
        self._items: dict[Any, Item] = schema._encoded
        items = self._items.values()
        if images := [item for item in items if isinstance(item, Image)]:
            self._images = ImageDecoder(limits, images)

    def n_bytes(self, batch: Batch, n_rows: int) -> int:
        """Return the size in bytes that the columns of `batch` have after decoding.

        If `batch` has records, `n_rows` is the number of rows of their windows.
        """
        encoded: Mapping[Any, Any] = batch
        n_bytes = 0
        for name, item in self._items.items():
            n_strings = math.prod(_flat_of(encoded[name]).shape)
            if name in self._windows:
                n_strings = n_rows * _n_in_window(self._schema[name])
            shape, dtype = _shape_and_dtype(item)
            n_bytes += n_strings * math.prod(shape) * dtype.itemsize
        return n_bytes

    def __call__(self, batch: Batch, info: BatchInfo) -> Batch:
        """Return `batch` with its image and array columns decoded."""
        columns = {name: self._column(name, batch, info) for name in self._items}
        failed: list[tuple[int, int, int, Exception]] = []  # row, column, string
        functions = [
            (
                functools.partial(self._decode, column, i, info, failed),
                len(column.arrays),
            )
            for i, column in enumerate(columns.values())
        ]
        share(functions, info._threads, _PARTS_PER_THREAD)
        errors: dict[int, Exception] = {}
        for row, _, _, error in sorted(failed, key=lambda each: each[:3]):
            errors.setdefault(row, error)
        if errors and info._failed is None:
            raise next(iter(errors.values()))
        for column in columns.values():  # padding and failed rows are zero
            for row in [*np.flatnonzero(info.positions < 0).tolist(), *errors]:
                column.arrays[column.begins[row] : column.begins[row + 1]] = 0
        if info._failed is not None:
            info._failed.extend(errors.items())
        return {**batch, **{name: column.result for name, column in columns.items()}}

    def _decode(
        self,
        column: _Column,
        number: int,
        info: BatchInfo,
        failed: list[tuple[int, int, int, Exception]],
        begin: int,
        end: int,
    ) -> None:
        """Decode strings `begin` to `end` of a column, and add errors to `failed`."""
        strings, begins, item = column.strings, column.begins, column.item
        if _decode_equal_sizes(strings, item, column.arrays, begin, end):
            return
        row = int(np.searchsorted(begins, begin, side="right")) - 1
        for i in range(begin, end):
            while begins[row + 1] <= i:
                row += 1
            is_value = column.is_value
            if info.positions[row] < 0 or (is_value is not None and not is_value[i]):
                continue
            data = strings.data[strings.offsets[i] : strings.offsets[i + 1]]
            try:
                if isinstance(item, Raw):
                    _decode_array(data, item, column.arrays[i, ...])
                elif isinstance(item, SerializedTensor):
                    column.arrays[i] = _tensor(data, item)
                else:
                    value = int(i - begins[row]) if item.per == "image" else 0
                    rng = info._rng(row, _STREAM, value) if item.is_random else None
                    self._images.decode(data, item, rng, column.arrays[i, ...])
            except Error as error:
                failed.append((row, number, i, _located(error, column, i, info, row)))

    def _column(self, name: Any, batch: Mapping[Any, Any], info: BatchInfo) -> _Column:
        """Return a column to decode, with newly allocated arrays for the results."""
        item, encoded = self._items[name], batch[name]
        inner, dtype = _shape_and_dtype(item)
        flat = _flat_of(encoded)
        n_strings = math.prod(flat.shape)
        strings = BytesArray._wrap(flat.data, flat.offsets, (n_strings,))
        splits = _splits_of(encoded)
        begins: Splits = np.arange(n_strings + 1)
        for each in reversed(splits):
            begins = begins[each]
        arrays = _empty((n_strings, *inner), dtype, info)
        is_value = None
        if name in self._masks:
            mask = np.ravel(batch[self._masks[name]])
            is_value = np.repeat(mask, n_strings // max(1, len(mask)))
            arrays[~is_value] = 0
        key, is_list = self._schema[name]._key_of(name), self._schema._is_list(name)
        result = _nested(arrays, encoded)
        offsets = self._windows.get(name)
        return _Column(
            *(key, is_list, item, strings, splits, begins, arrays, result, is_value),
            offsets=None if offsets is None else np.atleast_1d(offsets),
        )


def _shape_and_dtype(item: Item) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of a decoded byte string."""
    if isinstance(item, Image):
        return item.row_shape, np.dtype(item.dtype)
    assert item.shape is not None
    return item.shape, numpy_dtype(item.dtype)


def _n_in_window(spec: Spec) -> int:
    """Return the number of strings in a window."""
    n = 1
    while isinstance(spec, List):
        n *= spec.length or 0
        spec = spec.spec
    return n


def _flat_of(encoded: Any) -> BytesArray:
    """Return the strings of a column, without its ragged levels."""
    is_ragged = isinstance(encoded, RaggedArray)
    flat: BytesArray = encoded._flat_values if is_ragged else encoded
    return flat


def _splits_of(encoded: Any) -> list[Splits]:
    """Return the row splits of every level of a column, ragged or not."""
    if isinstance(encoded, RaggedArray):
        return [np.asarray(encoded.row_splits, np.int64), *_splits_of(encoded.values)]
    shape = encoded.shape
    return [
        np.arange(math.prod(shape[:axis]) + 1) * shape[axis]
        for axis in range(1, len(shape))
    ]


def _nested(arrays: npt.NDArray[Any], encoded: Any) -> Any:
    """Return `arrays` with the levels of the strings in `encoded`."""
    if isinstance(encoded, RaggedArray):
        inner = _nested(arrays, encoded.values)
        return RaggedArray._wrap(inner, encoded.row_splits)
    return arrays.reshape((*encoded.shape, *arrays.shape[1:]))


def _empty(
    shape: tuple[int, ...], dtype: np.dtype[Any], info: BatchInfo
) -> npt.NDArray[Any]:
    """Return an uninitialized array, from the batch's memory pool if it has one."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if info._pool is None or not n_bytes:
        return np.empty(shape, dtype)
    block: Any = info._pool.take(n_bytes)
    return np.frombuffer(block, np.uint8, n_bytes).view(dtype).reshape(shape)


def _located(error: Error, column: _Column, i: int, info: BatchInfo, row: int) -> Error:
    """Return a copy of `error` with the file, record and feature of string `i`."""
    place, words = "", ["value"] * len(column.splits)
    if column.is_feature_list:
        words[0] = "step"
    if column.offsets is not None and info.steps is not None:
        first, last = column.begins[row : row + 2]
        offset = column.offsets[(i - first) * len(column.offsets) // (last - first)]
        place, words = f"offset {offset} from step {info.steps[row, 1]} of ", []
    for splits, word in zip(reversed(column.splits), reversed(words), strict=False):
        item = int(np.searchsorted(splits, i, side="right")) - 1
        place += f"{word} {i - splits[item]} of "
        i = item
    place += "feature list" if column.is_feature_list else "feature"
    feature = column.key.decode(errors="backslashreplace")
    reason = f"{place} {feature!r} {error.reason}"
    return type(error)(reason, *info._place_of(row), feature, code=error.code)


def _decode_equal_sizes(
    strings: BytesArray, item: Item, arrays: npt.NDArray[Any], begin: int, end: int
) -> bool:
    """Decode strings `begin` to `end` at once if all are intact, uncompressed arrays.

    Otherwise, return False.
    """
    dtype, shape = arrays.dtype, arrays.shape[1:]
    head, raw = b"", item
    if isinstance(item, SerializedTensor):
        head, raw = tensor_prefix(dtype, shape), Raw(shape, dtype)
    if not isinstance(raw, Raw) or raw.compression is not None:
        return False
    offsets = strings.offsets[begin : end + 1]
    n_bytes = len(head) + math.prod(shape) * dtype.itemsize
    if (np.diff(offsets) != n_bytes).any():
        return False
    rows = strings.data[offsets[0] : offsets[-1]].reshape(end - begin, n_bytes)
    if (rows[:, : len(head)] != np.frombuffer(head, np.uint8)).any():
        return False
    memory = np.ascontiguousarray(rows[:, len(head) :])
    _decode_array(memory, raw, arrays[begin:end])
    return True


@functools.cache
def _tensor_schema(item: SerializedTensor) -> _core.Schema:
    spec = SerializedTensor(item.shape, item.dtype)
    return Schema({"tensor": spec})._bind()


def _tensor(data: npt.NDArray[np.uint8], item: SerializedTensor) -> Any:
    """Parse a tensor of any encoding, or raise an Error without a location."""
    record = _core.encode_example({"tensor": data.tobytes()})
    try:
        return _tensor_schema(item).parse_row(_pool, record)["tensor"]
    except Error as error:
        error.reason = error.reason.removeprefix("feature 'tensor' ")
        raise


def _decode_array(
    data: npt.NDArray[np.uint8], spec: Raw, row: npt.NDArray[Any]
) -> None:
    """Decode `data` into `row`, or raise a SchemaError without a location."""
    if not data.size and spec.default is not None:
        row[...] = spec.default
        return
    memory: Any = data
    if spec.compression is not None:
        memory = _inflated(data, row.nbytes)
    elif data.size != row.nbytes:
        raise SchemaError(
            f"must be a string of {row.nbytes} bytes, got {data.size}",
            code="value_size",
        )
    if row.dtype == np.bool_:
        row[...] = np.frombuffer(memory, np.uint8).reshape(row.shape) != 0
        return
    dtype = numpy_dtype(spec.dtype)
    values = np.frombuffer(memory, dtype).reshape(row.shape)
    row[...] = values.byteswap() if spec._swap_bytes() else values


def _inflated(data: npt.NDArray[np.uint8], n_bytes: int) -> bytes:
    """Return decompressed `data`; raise a SchemaError unless it has `n_bytes` bytes."""
    inflater = zlib.decompressobj()
    try:
        memory = inflater.decompress(data.data, n_bytes + 1)
    except zlib.error as error:
        raise SchemaError(
            f"must be ZLIB data of {n_bytes} bytes, got damaged data ({error})",
            code="zlib",
        ) from None
    if len(memory) != n_bytes or not inflater.eof or inflater.unused_data:
        found = f"{len(memory)}" if inflater.eof else "truncated data"
        if len(memory) > n_bytes:
            found = f"more than {n_bytes}"
        elif inflater.unused_data:
            found += " and trailing data"
        raise SchemaError(
            f"must be ZLIB data of {n_bytes} bytes, got {found}", code="zlib"
        )
    return memory
