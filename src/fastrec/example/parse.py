"""Parse serialized examples in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, BytesArray, Row, n_rows, row_of
from fastrec.arrays.layout import run_positions
from fastrec.errors import DecodeError, Error, SchemaError
from fastrec.example.schema_cache import SchemaCache
from fastrec.features.base import numpy_dtype
from fastrec.features.schema import Features, Schema, as_schema
from fastrec.features.sequence_schema import ParsedSequences
from fastrec.features.tensor import SerializedTensor
from fastrec.options import Limits
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.decode import DecodeStrings

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "decode_example",
    "decode_raw",
    "decode_sequence_example",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
]

Strings: TypeAlias = "Sequence[bytes] | BytesArray | npt.NDArray[Any]"

# Memory that is recycled for later batches.
_IDLE_BYTES = 16 << 20

_TENSOR = "tensor"  # the feature that `parse_tensor` reads

_MAX_FEATURES = Limits().max_features

_pool = _core.BlockPool(_IDLE_BYTES)

_schema_of_dict = SchemaCache(as_schema)
_sequences_of = SchemaCache(ParsedSequences)


def parse_example(serialized: Strings, features: Features) -> Batch:
    """Decode serialized tf.train.Examples as a batch.

    Parameters
    ----------
    serialized : sequence of bytes, BytesArray, or 1-D object array of bytes
        One record each.
    features : mapping of str to specs
        As for `fastrec.open`. A dict is validated again only if it has changed.

    Returns
    -------
    dict of str to array
        A batch with one row for each record, like ``ds[0:n]``.

    Raises
    ------
    DecodeError, SchemaError
        If a record is unreadable or does not fit its spec. The error's `record` is its
        index.

    Examples
    --------
    >>> from fastrec import FixedLen, encode_example
    >>> records = [encode_example({"x": n}) for n in (3, 4)]
    >>> parse_example(records, {"x": FixedLen((), "int64")})
    {'x': array([3, 4])}
    """
    schema = _schema_of(features)
    batch = _core.parse_examples(schema._bind(), _pool, _memory_of(serialized))
    if not schema._has_encoded:
        return batch
    numbers = np.arange(n_rows(batch), dtype=np.int64)
    decode = DecodeStrings(schema, Limits())
    return decode(batch, BatchInfo(0, 0, 0, numbers, numbers, _pool=_pool))


def parse_single_example(serialized: bytes, features: Features) -> Row:
    """Decode one serialized tf.train.Example as a row.

    Parameters
    ----------
    serialized : bytes-like
    features : mapping of str to specs
        As for `parse_example`.

    Returns
    -------
    dict of str to scalar, bytes or array
        The row, like ``ds[i]``.

    Raises
    ------
    DecodeError, SchemaError
        If the record is unreadable or does not fit its spec.
    """
    _check_one(serialized)
    schema = _schema_of(features)
    if schema._has_encoded:
        return row_of(parse_example([serialized], schema), 0)
    return schema._bind().parse_row(_pool, serialized)


def parse_sequence_example(
    serialized: Strings,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
) -> tuple[Batch, Batch, dict[str | bytes, npt.NDArray[np.int64]]]:
    """Decode serialized tf.train.SequenceExamples as a batch.

    Parameters
    ----------
    serialized : sequence of bytes, BytesArray, or 1-D object array of bytes
        One record each.
    context_features, sequence_features : mapping of str to specs, optional
        As for `fastrec.open`.

    Returns
    -------
    context, sequence : dict of str to array
        The columns of both sections, with one row for each record.
    lengths : dict of str to ndarray of int64, shape (batch,)
        The number of steps in each row, for lists read with `FixedLenSequence`.

    Raises
    ------
    DecodeError, SchemaError
        If a record is unreadable or does not fit its spec. The error's `record` is its
        index.
    """
    schema = _sequences_of(context_features, sequence_features)
    parsed: Any = _core.parse_examples(schema._bind(), _pool, _memory_of(serialized))
    context, sequence, lengths = parsed
    return context, sequence, lengths


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
) -> tuple[Row, Row]:
    """Decode one serialized tf.train.SequenceExample as two rows.

    Parameters
    ----------
    serialized : bytes-like
    context_features, sequence_features : mapping of str to specs, optional
        As for `fastrec.open`.

    Returns
    -------
    context, sequence : dict of str to scalar, bytes or array
        The rows of both sections.

    Raises
    ------
    DecodeError, SchemaError
        If the record is unreadable or does not fit its spec.
    """
    _check_one(serialized)
    context, sequence, _ = parse_sequence_example(
        [serialized], context_features, sequence_features
    )
    return row_of(context, 0), row_of(sequence, 0)


def decode_example(serialized: bytes) -> dict[str | bytes, Any]:
    """Decode all features of a serialized tf.train.Example, without specs.

    Parameters
    ----------
    serialized : bytes-like

    Returns
    -------
    dict of str to ndarray, BytesArray or None
        The int64, float32 or bytes values of each feature as a 1-D array; None for a
        feature without a kind. Sorted by name; names that are not UTF-8 are ``bytes``.

    Raises
    ------
    DecodeError
        If the record is unreadable, or is another message.
    SchemaError
        If the record is a tf.train.SequenceExample with feature lists.
    LimitError
        If the record has more than 100,000 features. Use `parse_single_example`.

    Examples
    --------
    >>> from fastrec import encode_example
    >>> decode_example(encode_example({"label": 3, "name": "cat"}))
    {'label': array([3]), 'name': BytesArray([b'cat'], shape=(1,))}
    """
    _check_one(serialized)
    if _core.has_feature_lists(serialized):
        msg = (
            "the record must be a tf.train.Example, got a SequenceExample with feature "
            "lists; call fastrec.decode_sequence_example()"
        )
        raise SchemaError(msg)
    try:
        features, _ = _core.decode_message(serialized, False, _MAX_FEATURES)
    except Error as error:
        error.record = 0
        raise
    _check_example(serialized, features.values())
    return features


def decode_sequence_example(
    serialized: bytes,
) -> tuple[dict[str | bytes, Any], dict[str | bytes, list[Any]]]:
    """Decode all of a serialized tf.train.SequenceExample, without specs.

    Parameters
    ----------
    serialized : bytes-like

    Returns
    -------
    context : dict of str to ndarray, BytesArray or None
        The context features, in the form of `decode_example`.
    sequences : dict of str to list of ndarray, BytesArray or None
        The steps of each feature list, in the form of `decode_example`. Empty for a
        tf.train.Example.

    Raises
    ------
    DecodeError
        If the record is unreadable, or is another message.
    LimitError
        If there are more than 100,000 features or feature lists. Use
        `parse_single_sequence_example`.

    Examples
    --------
    >>> from fastrec import encode_sequence_example
    >>> record = encode_sequence_example(
    ...     context={"label": 3}, feature_lists={"tokens": [[1, 2], [3]]}
    ... )
    >>> context, sequences = decode_sequence_example(record)
    >>> context
    {'label': array([3])}
    >>> sequences
    {'tokens': [array([1, 2]), array([3])]}
    """
    _check_one(serialized)
    context, lists = _core.decode_message(serialized, True, _MAX_FEATURES)
    if not any(lists.values()):
        _check_example(serialized, context.values())
    return context, lists


def parse_tensor(
    serialized: bytes, dtype: npt.DTypeLike | None = None
) -> npt.NDArray[Any]:
    """Parse one serialized tensor, like tf.io.parse_tensor.

    Parameters
    ----------
    serialized : bytes-like
        A result of `serialize_tensor` or ``tf.io.serialize_tensor``.
    dtype : dtype-like, optional
        The required dtype; ``"bytes"`` for strings. Nothing is converted.

    Returns
    -------
    ndarray
        A new array. Strings are an object array of bytes; bfloat16 values are their
        bits (uint16) unless ml_dtypes is imported.

    Raises
    ------
    DecodeError
        If `serialized` is malformed.
    SchemaError
        If it is not a tensor of a supported dtype, or not of `dtype`.

    Examples
    --------
    >>> from fastrec import serialize_tensor
    >>> parse_tensor(serialize_tensor([[1.5, 2.0]]), "float64")
    array([[1.5, 2. ]])
    """
    _check_one(serialized)
    required = None if dtype is None else SerializedTensor((), dtype).dtype
    record = _core.encode_example({_TENSOR: serialized})
    try:
        row = parse_single_example(record, {_TENSOR: SerializedTensor()})
    except (DecodeError, SchemaError) as error:
        # Without the place: the record exists only here.
        msg = f"cannot parse the tensor: {error.reason}"
        raise type(error)(msg, code=error.code) from None
    tensor = row[_TENSOR]
    is_strings = isinstance(tensor, (bytes, BytesArray))
    array = np.asarray(tensor, object if is_strings else None)
    actual = "bytes" if is_strings else array.dtype.name
    if required not in (None, actual):
        raise SchemaError(f"the tensor must have dtype {required}, got {actual}")
    return array


def decode_raw(
    values: bytes | Strings,
    dtype: npt.DTypeLike,
    *,
    little_endian: bool = True,
    fixed_length: int | None = None,
) -> npt.NDArray[Any]:
    r"""Decode byte strings as raw array memory, like tf.io.decode_raw.

    Parameters
    ----------
    values : bytes, sequence of bytes, BytesArray, or object array of bytes
    dtype : dtype-like
        Any NumPy dtype of a fixed size.
    little_endian : bool, default True
        The byte order in the strings.
    fixed_length : int, optional
        Truncate or zero-pad strings to this many bytes.

    Returns
    -------
    ndarray of shape (\*values.shape, n)
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
    native = numpy_dtype(dtype)
    if native.hasobject or native.itemsize == 0:
        raise SchemaError(f"dtype must have a fixed size, got {dtype!r}")
    is_one = isinstance(values, (bytes, bytearray, memoryview))
    strings = _as_strings([values] if is_one else values)
    shape = () if is_one else strings.shape
    size = fixed_length
    if size is None:
        size = _equal_size(strings)
    elif size <= 0:
        raise ValueError(f"fixed_length must be at least 1, got {fixed_length}")
    if size % native.itemsize:
        raise ValueError(
            f"string length {size} is not a multiple of the {native.name} item size "
            f"({native.itemsize})"
        )
    memory = _memory_of_size(strings, size)
    if native == np.bool_:
        decoded: npt.NDArray[Any] = memory != 0
    else:
        decoded = memory.view(native.newbyteorder("<" if little_endian else ">"))
        decoded = decoded.astype(native, copy=False)
    return decoded.reshape((*shape, size // native.itemsize))


def _schema_of(features: Features) -> Schema:
    if isinstance(features, Schema) and features._features:
        return features
    return _schema_of_dict(features)


def _equal_size(strings: BytesArray) -> int:
    lengths = strings.lengths.ravel()
    differ = np.flatnonzero(lengths != lengths[:1])
    if differ.size:
        i = int(differ[0])
        raise ValueError(
            f"strings must have equal lengths, got {lengths[0]} bytes in string 0 and "
            f"{lengths[i]} in string {i}; pass fixed_length to truncate or pad them"
        )
    return int(lengths[0]) if lengths.size else 0


def _memory_of_size(strings: BytesArray, size: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of all strings, truncated or zero-padded to `size`."""
    kept = np.minimum(strings.lengths.ravel(), size)
    memory = np.zeros((strings.size, size), np.uint8)
    positions = run_positions(strings.offsets[:-1], kept)
    memory[np.arange(size) < kept[:, np.newaxis]] = strings.data[positions]
    return memory


def _as_strings(values: object) -> BytesArray:
    if isinstance(values, BytesArray):
        return values
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(
            f"values must be bytes, or a list or array of bytes, got {values!r}"
        )
    return BytesArray.from_list(values)


def _memory_of(serialized: object) -> Any:  # noqa: ANN401
    """Return serialized records in the form that the core accepts."""
    if isinstance(serialized, BytesArray):
        if serialized.ndim != 1:
            raise ValueError(f"records must be 1-D, got {serialized.ndim}-D")
        return serialized.data, serialized.offsets
    if isinstance(serialized, np.ndarray):
        if serialized.ndim != 1 or serialized.dtype != object:
            raise ValueError(
                "records must be a 1-D object array of bytes, got "
                f"{serialized.ndim}-D {serialized.dtype}"
            )
        return serialized.tolist()
    is_one = isinstance(serialized, (str, bytes, bytearray, memoryview))
    if is_one or not isinstance(serialized, Sequence):
        raise TypeError(
            "parse_example() requires a list of serialized records, got "
            f"{type(serialized).__name__}; call parse_single_example() for one record"
        )
    return list(serialized)


def _check_example(serialized: Buffer, features: Iterable[object]) -> None:
    """Raise a DecodeError if no feature has values because the record is another message."""
    if any(values is not None for values in features):
        return
    if looks := _core.describe_foreign(serialized):
        raise DecodeError(
            f"the record is not a tf.train.Example but looks like {looks}",
            record=0,
            code="not_example",
        )


def _check_one(serialized: object) -> None:
    if not isinstance(serialized, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"a serialized record must be bytes, got {type(serialized).__name__}"
        )
