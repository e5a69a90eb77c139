"""Parse serialized examples in memory."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, BytesArray, Row, n_rows, row_of
from fastrec.errors import DecodeError, Error, SchemaError
from fastrec.features.base import Spec
from fastrec.features.schema import Features, Schema, as_schema, bind_sequences
from fastrec.options import Limits
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.decode import DecodeStrings

if TYPE_CHECKING:
    from typing_extensions import Buffer

Strings: TypeAlias = "Sequence[bytes] | BytesArray | npt.NDArray[Any]"

# Maximum size of the idle buffers that are kept for later batches.
_IDLE_BYTES = 16 << 20

_MAX_FEATURES = Limits().max_features

_pool = _core.BlockPool(_IDLE_BYTES)

_MAX_ENTRIES = 64  # maximum size of a schema cache

T = TypeVar("T")


def _cached(create: Callable[..., T]) -> Callable[..., T]:
    """Return a wrapper of `create` that caches schemas by the contents of dicts.

    ``create(*sections)`` returns a schema. Each section is a dict or None.
    Specs are immutable and compared by identity, because equal specs may differ in the
    sign of a zero. Mutable values, such as tf.io specs, are also compared with a copy.
    """
    entries: dict[tuple[int, ...], tuple[list[Any], T]] = {}

    def schema_of(*sections: Any) -> T:
        key = tuple(map(id, sections))
        entry = entries.get(key)
        if entry is not None and all(map(_is_equal, entry[0], sections)):
            return entry[1]
        schema = create(*sections)
        if all(section is None or type(section) is dict for section in sections):
            contents = list(map(_contents, sections))
            # Do not cache a value that is not equal to its own copy.
            if all(map(_is_equal, contents, sections)):
                if len(entries) >= _MAX_ENTRIES:
                    entries.clear()
                entries[key] = contents, schema
        return schema

    return schema_of


def _contents(section: Mapping[Any, Any] | None) -> Any:
    """Return a dict's names, its specs, and pairs of a mutable spec and its copy."""
    if section is None:
        return None
    mutable = [
        spec
        for spec in section.values()
        if not isinstance(spec, Spec) and type(spec) is not str
    ]
    return [*section], [*section.values()], [(s, copy.deepcopy(s)) for s in mutable]


def _is_equal(contents: Any, section: Mapping[Any, Any] | None) -> bool:
    """Return whether `section` still has the contents that `_contents` returned."""
    if section is None or contents is None:
        return section is contents
    names, specs, copies = contents
    try:
        return (
            len(section) == len(names)
            and all(map(operator.is_, section, names))
            and all(map(operator.is_, section.values(), specs))
            and (not copies or all(value == copied for value, copied in copies))
        )
    except ValueError:  # values with arrays
        return False


_schema_of_dict = _cached(as_schema)
_sequences_of = _cached(bind_sequences)


def parse_example(serialized: Strings, features: Features) -> Batch:
    """Decode serialized tf.train.Examples as a batch.

    Parameters
    ----------
    serialized : sequence of bytes, BytesArray, or 1-D object array of bytes
        The serialized records.
    features : mapping of str to specs
        As for `fastrec.open`. A dict is validated again only if it has changed.

    Returns
    -------
    dict of str to array
        A batch with one row for each record, like ``ds[0:n]``.

    Raises
    ------
    DecodeError, SchemaError
        If a record is unreadable or does not fit its spec. The error's `record` is the
        index of that record.

    Examples
    --------
    >>> from fastrec import FixedLen, encode_example
    >>> records = [encode_example({"x": n}) for n in (3, 4)]
    >>> parse_example(records, {"x": FixedLen((), "int64")})
    {'x': array([3, 4])}
    """
    schema = _schema_of(features)
    batch = _core.parse_examples(schema._bind(), _pool, _memory_of(serialized))
    return _decoded(batch, schema)


def _decoded(batch: Batch, schema: Schema) -> Batch:
    """Return `batch` with its images and stored arrays decoded."""
    if not schema._encoded:
        return batch
    numbers = np.arange(n_rows(batch), dtype=np.int64)
    decode = DecodeStrings(schema, Limits())
    return decode(batch, BatchInfo(0, 0, 0, numbers, numbers, _pool=_pool))


def parse_row(serialized: bytes, features: Features) -> Row:
    """Decode one serialized tf.train.Example as a row."""
    check_record(serialized)
    schema = _schema_of(features)
    if schema._encoded:
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
        The serialized records.
    context_features, sequence_features : mapping of str to specs, optional
        As for `fastrec.open`.

    Returns
    -------
    context, sequence : dict of str to array
        The columns of both sections, with one row for each record, as in a loader.
    lengths : dict of str to ndarray of int64, shape (batch,)
        The number of steps in each row, for lists read with `FixedLenSequence`.

    Raises
    ------
    DecodeError, SchemaError
        If a record is unreadable or does not fit its spec. The error's `record` is the
        index of that record.
    """
    schema, *sections = _sequences_of(context_features, sequence_features)
    parsed: Any = _core.parse_examples(schema, _pool, _memory_of(serialized))
    context, sequence = map(_decoded, parsed[:2], sections)
    return context, sequence, parsed[2]


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
        If the record is unreadable, or is a different protobuf message.
    SchemaError
        If the record is a tf.train.SequenceExample with feature lists.
    LimitError
        If the record has more than 100,000 features. Use `parse_example`.

    Examples
    --------
    >>> from fastrec import encode_example
    >>> decode_example(encode_example({"label": 3, "name": "cat"}))
    {'label': array([3]), 'name': BytesArray([b'cat'], shape=(1,))}
    """
    check_record(serialized)
    if _core.has_feature_lists(serialized):
        raise SchemaError(
            "the record must be a tf.train.Example, got a SequenceExample with feature "
            "lists; call fastrec.decode_sequence_example()"
        )
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
    """Decode all features of a serialized tf.train.SequenceExample, without specs.

    Parameters
    ----------
    serialized : bytes-like

    Returns
    -------
    context : dict of str to ndarray, BytesArray or None
        The context features, as `decode_example` returns features.
    sequences : dict of str to list of ndarray, BytesArray or None
        The steps of each feature list, each step as `decode_example` returns a feature.
        Empty for a tf.train.Example.

    Raises
    ------
    DecodeError
        If the record is unreadable, or is a different protobuf message.
    LimitError
        If there are more than 100,000 features or feature lists. Use
        `parse_sequence_example`.

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
    check_record(serialized)
    context, lists = _core.decode_message(serialized, True, _MAX_FEATURES)
    if not any(lists.values()):
        _check_example(serialized, context.values())
    return context, lists


def _schema_of(features: Features) -> Schema:
    if isinstance(features, Schema) and features._features:
        return features
    return _schema_of_dict(features)


def _memory_of(serialized: object) -> Any:
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
            f"{type(serialized).__name__}; pass a list of one record"
        )
    return list(serialized)


def _check_example(serialized: Buffer, features: Iterable[object]) -> None:
    """Raise a DecodeError if a record without values looks like another format."""
    if any(values is not None for values in features):
        return
    if looks := _core.describe_foreign(serialized):
        raise DecodeError(
            f"the record is not a tf.train.Example but looks like {looks}",
            record=0,
            code="not_example",
        )


def check_record(serialized: object) -> None:
    """Raise a TypeError if `serialized` is not bytes-like."""
    if not isinstance(serialized, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"a serialized record must be bytes, got {type(serialized).__name__}"
        )
