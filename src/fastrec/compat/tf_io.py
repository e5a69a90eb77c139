"""Drop-in replacement for tf.io and parts of tf.data, without TensorFlow.

>>> import fastrec.compat.tf_io as tf_io
>>> features = {"label": tf_io.FixedLenFeature([], "int64", default_value=0)}
>>> tf_io.parse_example([b""], features)
{'label': array([0])}

Results are NumPy arrays, `fastrec.BytesArray` for strings, `fastrec.RaggedArray` for
`VarLenFeature` (``.to_sparse()`` returns TensorFlow's indices) and `RaggedFeature`, and
`fastrec.SparseArray` for `SparseFeature`. Dtypes are names (``"int64"``, ``"float32"``,
``"string"``) or TensorFlow's dtypes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, BytesArray, Row, row_of
from fastrec.arrays.bytes import reshaped
from fastrec.dataset.open import read_records
from fastrec.errors import DecodeError, SchemaError
from fastrec.example import parse
from fastrec.example.parse import Strings
from fastrec.features.base import numpy_dtype
from fastrec.features.ragged import Keyed, Ragged
from fastrec.features.tensor import SerializedTensor, serialized_rows
from fastrec.storage.paths import Paths
from fastrec.writer.writer import Writer

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "SparseFeature",
    "TFRecordDataset",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_raw",
    "masked_crc32c",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "serialize_tensor",
    "tf_record_iterator",
]


class FixedLenFeature(NamedTuple):
    """Spec of a feature with a fixed shape, equivalent to `fastrec.FixedLen`."""

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """Spec of a sequence of fixed-shape items, like `fastrec.FixedLenSequence`."""

    shape: Sequence[int]
    dtype: Any
    allow_missing: bool = False  # must be True except for feature lists
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """Spec of a feature with any number of values, equivalent to `fastrec.VarLen`."""

    dtype: Any


class RaggedFeature(NamedTuple):
    """Spec of a ragged feature, like `fastrec.Ragged`; validation is always on."""

    dtype: Any
    value_key: str | bytes | None = None
    partitions: Sequence[Keyed | Ragged.UniformRowLength] = ()
    row_splits_dtype: Any = "int32"
    validate: bool = False


for _partition in (
    *(Ragged.RowSplits, Ragged.RowLengths, Ragged.RowStarts, Ragged.RowLimits),
    *(Ragged.ValueRowIds, Ragged.UniformRowLength),
):
    setattr(RaggedFeature, _partition.__name__, _partition)


class SparseFeature(NamedTuple):
    """Spec of a sparse feature, equivalent to `fastrec.Sparse`."""

    index_key: str | bytes | Sequence[str | bytes]
    value_key: str | bytes
    dtype: Any
    size: int | Sequence[int]
    already_sorted: bool = False


def parse_example(
    serialized: Strings,
    features: Mapping[str, Any],
    example_names: object = None,
    name: str | None = None,
) -> Batch:
    """Decode serialized tf.train.Examples, like `fastrec.parse_example`."""
    return parse.parse_example(serialized, features)


def parse_single_example(
    serialized: bytes,
    features: Mapping[str, Any],
    example_names: object = None,
    name: str | None = None,
) -> Row:
    """Decode one serialized tf.train.Example as a row, like ``dataset[i]``.

    Arguments and errors are those of `fastrec.parse_example`, but for one record.
    """
    return parse.parse_row(serialized, features)


def parse_sequence_example(
    serialized: Strings,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_names: object = None,
    name: str | None = None,
) -> tuple[Batch, Batch, dict[str | bytes, npt.NDArray[Any]]]:
    """Decode SequenceExamples, like `fastrec.parse_sequence_example`."""
    return parse.parse_sequence_example(serialized, context_features, sequence_features)


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_name: object = None,
    name: str | None = None,
) -> tuple[Row, Row]:
    """Decode one serialized SequenceExample as two rows: context and sequence.

    Arguments and errors are those of `fastrec.parse_sequence_example`, for one record.
    """
    parse.check_record(serialized)
    context, sequence, _ = parse.parse_sequence_example(
        [serialized], context_features, sequence_features
    )
    return row_of(context, 0), row_of(sequence, 0)


def parse_tensor(
    serialized: bytes,
    out_type: Any = None,
    name: str | None = None,
) -> npt.NDArray[Any]:
    """Parse one serialized tensor, like tf.io.parse_tensor.

    Parameters
    ----------
    serialized : bytes-like
        A result of ``tf.io.serialize_tensor``.
    out_type : dtype-like, optional
        The required dtype; ``"bytes"`` for strings. Values are never converted.

    Returns
    -------
    ndarray
        A new array; for strings, an object array of bytes. If ml_dtypes is not
        imported, bfloat16 values are returned as bit patterns of dtype uint16.

    Raises
    ------
    DecodeError
        If `serialized` is malformed.
    SchemaError
        If the dtype is not supported or differs from `out_type`.

    Examples
    --------
    >>> parse_tensor(serialize_tensor([[1.5, 2.0]]), "float64")
    array([[1.5, 2. ]])
    """
    parse.check_record(serialized)
    dtype = getattr(out_type, "name", out_type)
    required = None if dtype is None else SerializedTensor((), dtype).dtype
    record = _core.encode_example({"tensor": serialized})
    try:
        row = parse.parse_row(record, {"tensor": SerializedTensor()})
    except (DecodeError, SchemaError) as error:
        # Omit the location: this record exists only in memory.
        reason = f"cannot parse the tensor: {error.reason}"
        raise type(error)(reason, code=error.code) from None
    tensor = row["tensor"]
    is_strings = isinstance(tensor, (bytes, BytesArray))
    array = np.asarray(tensor, object if is_strings else None)
    actual = "bytes" if is_strings else array.dtype.name
    if required not in (None, actual):
        raise SchemaError(f"the tensor must have dtype {required}, got {actual}")
    return array


def decode_raw(
    input_bytes: bytes | Strings,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> npt.NDArray[Any]:
    r"""Decode byte strings as raw array memory, like tf.io.decode_raw.

    Parameters
    ----------
    input_bytes : bytes, sequence of bytes, BytesArray, or object array of bytes
    out_type : dtype-like
        Any NumPy dtype of a fixed size.
    little_endian : bool, default True
        True if the strings are little-endian, False if big-endian.
    fixed_length : int, optional
        Truncate or zero-pad strings to this many bytes.

    Returns
    -------
    ndarray of shape (\*input_bytes.shape, n)
        A new array with n values for each string, in native byte order.

    Raises
    ------
    ValueError
        If strings differ in length without `fixed_length`, or their length is not a
        multiple of the item size.

    Examples
    --------
    >>> decode_raw([b"\x01\x00", b"\x02\x00"], "int16")
    array([[1],
           [2]], dtype=int16)
    """
    dtype = numpy_dtype(getattr(out_type, "as_numpy_dtype", out_type))
    if dtype.itemsize == 0:
        raise SchemaError(f"out_type must have a fixed size, got {out_type!r}")
    if isinstance(input_bytes, str):
        raise TypeError(f"input_bytes must be bytes or a list, got {input_bytes!r}")
    is_one = isinstance(input_bytes, (bytes, bytearray, memoryview))
    strings: Any = [input_bytes] if is_one else input_bytes
    if not isinstance(strings, BytesArray):
        is_array = isinstance(strings, np.ndarray)
        strings = BytesArray.from_list(strings.tolist() if is_array else strings)
    length = int(strings.lengths.flat[0]) if strings.size else 0
    if fixed_length is not None:
        length = fixed_length
        if length <= 0 or length % dtype.itemsize:
            raise ValueError(
                f"fixed_length must be a positive multiple of {dtype.itemsize}, the size "
                f"of {dtype}, got {fixed_length}"
            )
        flat = reshaped(strings, (strings.size,)).tolist()
        padded = [string[:length].ljust(length, b"\0") for string in flat]
        strings = reshaped(BytesArray.from_list(padded), strings.shape)
    stored = np.dtype(np.uint8) if dtype == np.bool_ else dtype
    stored = stored.newbyteorder("<" if little_endian else ">")
    arrays: npt.NDArray[Any] = strings.as_array(
        stored, length // dtype.itemsize
    ).astype(dtype)
    return arrays[0] if is_one else arrays


def serialize_tensor(
    tensor: npt.ArrayLike | BytesArray | str | bytes,
    name: str | None = None,
) -> bytes:
    r"""Serialize an array, like tf.io.serialize_tensor.

    Parameters
    ----------
    tensor : array-like, BytesArray, str or bytes
        An array of any shape, with a dtype that `SerializedTensor` supports. ``str`` is
        encoded as UTF-8.

    Returns
    -------
    bytes
        A serialized ``tensorflow.TensorProto``, for `SerializedTensor` and
        ``tf.io.parse_tensor``.

    Raises
    ------
    TypeError
        If the dtype is not supported, or is NumPy's ``S``, which strips trailing NULs.

    Notes
    -----
    Source: ``tensorflow/core/framework/{tensor,tensor_shape,types}.proto``.

    Examples
    --------
    >>> serialize_tensor(np.array([1, 2], "int8"))
    b'\x08\x06\x12\x04\x12\x02\x08\x02"\x02\x01\x02'
    """
    if not isinstance(tensor, (BytesArray, np.ndarray)):
        array = np.asarray(tensor)
        tensor = np.asarray(tensor, object) if array.dtype.kind in "SU" else array
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "S":
        raise TypeError(
            f"cannot serialize dtype {tensor.dtype}: NumPy strips trailing NUL bytes "
            "from it; pass a list of bytes or an object array"
        )
    rows = tensor
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind in "UO":
        rows = BytesArray.from_list(tensor.ravel().tolist())
    return serialized_rows(reshaped(rows, (1, *tensor.shape))).tobytes()


def masked_crc32c(data: Buffer) -> int:
    """Compute the masked CRC-32C checksum of TFRecord files.

    Parameters
    ----------
    data : bytes-like

    Returns
    -------
    int
        The CRC-32C of `data`, rotated right by 15 bits, plus 0xa282ead8 modulo 2**32.

    Notes
    -----
    Source: ``tensorflow/core/lib/hash/crc32c.h``.

    Examples
    --------
    >>> f"{masked_crc32c(b'123456789'):#010x}"
    '0xc78ab0e5'
    """
    return _core.masked_crc32c(data)


def _compression_of(options: object) -> Any:
    """Return the compression in TensorFlow's options or in a string; None if empty."""
    return getattr(options, "compression_type", options) or None


def tf_record_iterator(path: Paths, options: object = None) -> Iterator[bytes]:
    """Yield the serialized records of files, like `fastrec.read_records`.

    Without `options`, the compression of each file is detected.
    """
    return read_records(path, compression=_compression_of(options) or "auto")


class TFRecordDataset:
    """Iterable over the serialized records of files, in file order.

    Each iteration reads the files from the start. Without `compression_type`, the
    compression is detected. `buffer_size` and `num_parallel_reads` are ignored. The
    methods of ``tf.data.Dataset``, such as ``map`` and ``batch``, are missing; use
    `fastrec.open` and `fastrec.Dataset.loader`.

    Raises
    ------
    CorruptionError
        At a damaged record, after yielding the records before it.
    """

    def __init__(
        self,
        filenames: Paths,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        self._filenames = filenames
        if not isinstance(filenames, (str, bytes, os.PathLike)):
            self._filenames = list(filenames)
        self._compression = _compression_of(compression_type)

    def __iter__(self) -> Iterator[bytes]:
        return read_records(self._filenames, compression=self._compression or "auto")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"TFRecordDataset has no attribute {name!r}: it only yields serialized "
            "records; use fastrec.open(filenames, features=...).loader(batch_size), see "
            "docs/migration.md"
        )


class TFRecordWriter(Writer):
    """A `fastrec.Writer` for serialized records; it replaces an existing file."""

    def __init__(self, path: str | os.PathLike[str], options: object = None) -> None:
        super().__init__(
            path,
            overwrite=True,
            compression=_compression_of(options),
            compression_level=getattr(options, "compression_level", None),
        )

    def write(self, record: Any) -> None:
        """Write a serialized record or, like `fastrec.Writer.write`, a mapping."""
        if isinstance(record, Mapping):
            super().write(record)
        else:
            self.write_record(record)
