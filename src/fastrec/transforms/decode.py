"""DecodeStrings: byte strings of images and stored arrays -> arrays, row by row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray
from fastrec.errors import Error
from fastrec.features.base import Spec, numpy_dtype
from fastrec.features.encoded import Encoded, List, encoded_of
from fastrec.features.fixed import Raw
from fastrec.features.image import Image
from fastrec.options import Limits
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.images import ImageDecoder
from fastrec.transforms.row_transform import RowTransform
from fastrec.transforms.stored_arrays import decode_array

__all__ = ["DecodeStrings"]

# The stream of a row's random numbers: transforms draw from another one.
_STREAM = 1


class DecodeStrings(RowTransform):
    """Decodes the columns of `encoded_of` of a batch."""

    _parts_per_thread = 16  # an image takes longer than a task

    def __init__(self, features: Mapping[Any, Spec], limits: Limits) -> None:
        self._specs = encoded_of(features)
        self._images: ImageDecoder | None = None
        if any(isinstance(_item(spec), Image) for spec in self._specs.values()):
            self._images = ImageDecoder(limits)

    @property
    def name(self) -> str:
        """Empty, because errors contain their place."""
        return ""

    def n_bytes(self, batch: Batch) -> int:
        """Return the size of the decoded columns of a batch."""
        encoded: Mapping[Any, Any] = batch
        return sum(
            _n_strings(encoded[name]) * math.prod(shape) * dtype.itemsize
            for name, spec in self._specs.items()
            for shape, dtype in [_shape_and_dtype(_item(spec))]
        )

    def _columns(
        self,
        batch: Batch,
        n_rows: int,  # noqa: ARG002
        info: BatchInfo,
    ) -> Mapping[Any, Any]:
        columns: dict[Any, npt.NDArray[Any] | RaggedArray] = {}
        encoded: Mapping[Any, Any] = batch
        for name, spec in self._specs.items():
            strings = encoded[name]
            inner, dtype = _shape_and_dtype(_item(spec))
            is_ragged = isinstance(strings, RaggedArray)
            outer = (len(strings.values),) if is_ragged else strings.shape
            values = _empty((*outer, *inner), dtype, info)
            columns[name] = (
                RaggedArray._wrap(values, strings.row_splits) if is_ragged else values
            )
        return columns

    def _fill_row(
        self,
        batch: Batch,
        info: BatchInfo,
        columns: Mapping[Any, Any],
        i: int,
    ) -> None:
        encoded: Mapping[Any, Any] = batch
        for name, spec in self._specs.items():
            column, strings, key = columns[name], encoded[name], spec._key_of(name)
            if not isinstance(spec, List):
                row = column[i, ...]  # a view, even of a scalar
                self._decode(strings, i, spec, info, i, row, key, "")
                continue
            first = i * (spec.length or 0)
            if isinstance(strings, RaggedArray):
                first = int(strings.row_splits[i])
                strings = strings.values
            rows = column[i]
            for number in range(len(rows)):
                place, row = f"value {number} of ", rows[number, ...]
                self._decode(
                    *(strings, first + number, spec.spec, info, i, row, key, place)
                )

    def _decode(
        self,
        strings: BytesArray,
        number: int,
        spec: Image | Raw,
        info: BatchInfo,
        i: int,
        row: npt.NDArray[Any],
        key: bytes,
        place: str,
    ) -> None:
        """Decode string `number`, of row `i`, into `row`."""
        data = strings.data[strings.offsets[number] : strings.offsets[number + 1]]
        try:
            if isinstance(spec, Raw):
                decode_array(data, spec, row)
                return
            assert self._images is not None
            # The images of a row are cropped alike.
            rng = info._rng(i, _STREAM) if spec.is_random else None
            self._images.decode(data, spec, rng, row)
        except Error as error:
            raise _located(error, key, place, info, i) from None


def _item(spec: Encoded) -> Image | Raw:
    """Return the spec of one byte string."""
    return spec.spec if isinstance(spec, List) else spec


def _shape_and_dtype(spec: Image | Raw) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return those of a decoded byte string."""
    if isinstance(spec, Image):
        return spec.row_shape, np.dtype(np.uint8)
    return spec.shape, numpy_dtype(spec.dtype)


def _n_strings(strings: BytesArray | RaggedArray) -> int:
    if isinstance(strings, RaggedArray):
        return len(strings.values)
    return math.prod(strings.shape)


def _empty(
    shape: tuple[int, ...], dtype: np.dtype[Any], info: BatchInfo
) -> npt.NDArray[Any]:
    """Return an uninitialized array, in memory of the batch's pool if it has one."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if info._pool is None or not n_bytes:
        return np.empty(shape, dtype)
    block: Any = info._pool.take(n_bytes)
    return np.frombuffer(block, np.uint8, n_bytes).view(dtype).reshape(shape)


def _located(error: Error, key: bytes, place: str, info: BatchInfo, i: int) -> Error:
    """Return the error with file, record, byte and feature."""
    feature = key.decode(errors="backslashreplace")
    path, record, begin = None, i, None
    if info._places is not None:
        file, record, begin, _ = info._places.numbers[i].tolist()
        path = info._places.files[file]
    reason = f"{place}feature {feature!r} {error.reason}"
    return type(error)(reason, path, record, begin, feature, code=error.code)
