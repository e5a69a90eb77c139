"""DecodeStrings: decode images and arrays that are stored as byte strings."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray
from fastrec.errors import Error, SchemaError
from fastrec.features.base import Spec, numpy_dtype
from fastrec.features.fixed import Raw
from fastrec.features.image import Image, List, encoded_of
from fastrec.options import Limits
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.calls import share
from fastrec.transforms.images import ImageDecoder

# The stream of a row's random numbers; transforms draw from stream 0.
_STREAM = 1
_PARTS_PER_THREAD = 16  # decoding an image costs more than starting a task


class _Column(NamedTuple):
    """A column to decode: its byte strings, and the decoded arrays."""

    key: bytes
    item: Image | Raw
    is_list: bool
    strings: BytesArray  # of all rows, flat
    begins: npt.NDArray[np.int64]  # the first string of each row, and the end
    arrays: npt.NDArray[Any]  # one for each string
    result: npt.NDArray[Any] | RaggedArray
    is_value: npt.NDArray[np.bool_] | None = None  # False for zeros


class DecodeStrings:
    """A transform that decodes the columns of images and stored arrays.

    Threads share the strings of a batch, because a row may have many strings, such as the
    frames of an episode. `masks` are columns that are False for strings to read as zeros.
    """

    name = ""  # errors contain their location

    def __init__(
        self,
        features: Mapping[Any, Spec],
        limits: Limits,
        masks: Mapping[Any, Any] | None = None,
    ) -> None:
        self._masks = masks or {}
        self._items: dict[Any, tuple[bytes, Image | Raw, bool]] = {
            name: (
                spec._key_of(name),
                spec.spec if isinstance(spec, List) else spec,
                isinstance(spec, List),
            )
            for name, spec in encoded_of(features).items()
        }
        items = [item for _, item, _ in self._items.values()]
        if images := [item for item in items if isinstance(item, Image)]:
            self._images = ImageDecoder(limits, images)

    def n_bytes(self, batch: Batch) -> int:
        """Return the size in bytes that the columns of `batch` have after decoding."""
        encoded: Mapping[Any, Any] = batch
        return sum(
            _n_strings(encoded[name]) * math.prod(shape) * dtype.itemsize
            for name, (_, item, _) in self._items.items()
            for shape, dtype in [_shape_and_dtype(item)]
        )

    def __call__(self, batch: Batch, info: BatchInfo) -> Batch:
        """Return `batch` with its image and array columns decoded."""
        n_rows = len(info.positions)
        encoded: Mapping[Any, Any] = batch
        columns = {
            name: _column(*item, encoded[name], n_rows, info)
            for name, item in self._items.items()
        }
        for name, mask in self._masks.items():
            if name in columns:
                is_value = np.ravel(encoded[mask])
                columns[name].arrays[~is_value] = 0
                columns[name] = columns[name]._replace(is_value=is_value)
        failed: list[tuple[int, int, Exception]] = []
        functions = [
            (
                functools.partial(self._decode, column, i, info, failed),
                len(column.arrays),
            )
            for i, column in enumerate(columns.values())
        ]
        share(functions, info._threads, _PARTS_PER_THREAD)
        errors: dict[int, Exception] = {}
        for row, _, error in sorted(failed, key=lambda each: each[:2]):
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
        failed: list[tuple[int, int, Exception]],
        begin: int,
        end: int,
    ) -> None:
        """Decode strings `begin` to `end` of a column, and add errors to `failed`."""
        strings, begins, item = column.strings, column.begins, column.item
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
                else:  # all images of a row have the same crop
                    rng = info._rng(row, _STREAM) if item.is_random else None
                    self._images.decode(data, item, rng, column.arrays[i, ...])
            except Error as error:
                place = f"value {i - begins[row]} of " if column.is_list else ""
                failed.append((row, number, _located(error, column, place, info, row)))


def _column(
    key: bytes,
    item: Image | Raw,
    is_list: bool,
    encoded: BytesArray | RaggedArray,
    n_rows: int,
    info: BatchInfo,
) -> _Column:
    """Return a column to decode, with newly allocated arrays for the results."""
    inner, dtype = _shape_and_dtype(item)
    n_strings = _n_strings(encoded)
    arrays = _empty((n_strings, *inner), dtype, info)
    if isinstance(encoded, RaggedArray):
        strings: Any = encoded.values
        begins = np.asarray(encoded.row_splits, np.int64)
        result: Any = RaggedArray._wrap(arrays, encoded.row_splits)
    else:
        strings = BytesArray._wrap(encoded.data, encoded.offsets, (n_strings,))
        begins = np.arange(n_rows + 1) * math.prod(encoded.shape[1:])
        result = arrays.reshape((*encoded.shape, *inner))
    return _Column(key, item, is_list, strings, begins, arrays, result)


def _shape_and_dtype(item: Image | Raw) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of a decoded byte string."""
    if isinstance(item, Image):
        return item.row_shape, np.dtype(item.dtype)
    return item.shape, numpy_dtype(item.dtype)


def _n_strings(strings: BytesArray | RaggedArray) -> int:
    if isinstance(strings, RaggedArray):
        return len(strings.values)
    return math.prod(strings.shape)


def _empty(
    shape: tuple[int, ...], dtype: np.dtype[Any], info: BatchInfo
) -> npt.NDArray[Any]:
    """Return an uninitialized array, from the batch's memory pool if it has one."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if info._pool is None or not n_bytes:
        return np.empty(shape, dtype)
    block: Any = info._pool.take(n_bytes)
    return np.frombuffer(block, np.uint8, n_bytes).view(dtype).reshape(shape)


def _located(
    error: Error, column: _Column, place: str, info: BatchInfo, row: int
) -> Error:
    """Return a copy of `error` with the file, record, byte and feature of the value."""
    feature = column.key.decode(errors="backslashreplace")
    path, record, begin = None, row, None
    if info._places is not None:
        file, record, begin, _ = info._places.numbers[row].tolist()
        path = info._places.files[file]
    reason = f"{place}feature {feature!r} {error.reason}"
    return type(error)(reason, path, record, begin, feature, code=error.code)


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
