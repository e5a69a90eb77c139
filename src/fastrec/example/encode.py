"""Encode rows as serialized tf.train.Examples and SequenceExamples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastrec import _core
from fastrec.example.columns import row_of_lists
from fastrec.features.schema import Features, as_schema


def encode_example(
    row: Mapping[Any, Any], /, *, features: Features | None = None
) -> bytes:
    r"""Serialize one row as a tf.train.Example.

    Parameters
    ----------
    row : mapping of str or bytes to values
        The features, encoded in this order. The type of a value determines its kind:

        ==========================================  ===============================
        bool, int, IntEnum; NumPy bool and int      int64
        float; NumPy float16, float32, float64      float (float32)
        str (as UTF-8), bytes, bytearray,           bytes
        memoryview (of bytes)
        ndarray of 0 or 1 dimensions                a list of int64 or float
        list or tuple of the above scalars          a list; int and float do not mix
        `BytesArray` of 1 dimension                 a list of bytes
        ==========================================  ===============================

    features : mapping of str or bytes to specs, optional
        Specs as for `Writer`, for arrays with two or more dimensions (`Raw`,
        `FixedLen`, `SerializedTensor`) and empty lists (`VarLen`). Pass a
        `fastrec.Schema` to validate the specs only once.

    Returns
    -------
    bytes
        The message, in protobuf's canonical form.

    Raises
    ------
    ValueError
        If an integer is out of range of int64 (``.view("int64")`` writes the bits of a
        uint64), an array has two or more dimensions (use ``.tobytes()`` or a spec), a
        list is empty (use an empty array or ``BytesArray.from_list([])``) or mixes
        kinds, a value does not fit its spec, a feature without a default is missing, or
        the message reaches 2 GiB, protobuf's limit.
    TypeError
        If a value or key has an unsupported type.
    SchemaError
        If `features` is invalid.

    Warns
    -----
    RuntimeWarning
        If a float is out of range of float32. It is written as inf.

    Notes
    -----
    Source of the format: ``tensorflow/core/example/{example,feature}.proto``. Source of
    the conversions: TensorFlow's guide "TFRecord and tf.train.Example".

    Examples
    --------
    >>> import fastrec as fr
    >>> fr.encode_example({"label": 3})
    b'\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x03'
    >>> import numpy as np
    >>> spec = {"image": fr.Raw((2, 2), "uint8")}
    >>> record = fr.encode_example({"image": np.eye(2, dtype="uint8")}, features=spec)
    >>> fr.parse_example([record], spec)["image"].tolist()
    [[[1, 0], [0, 1]]]
    """
    if features is not None:
        row = row_of_lists(row, as_schema(features))
    return _core.encode_example(row)


def encode_sequence_example(
    *,
    context: Mapping[Any, Any] | None = None,
    feature_lists: Mapping[Any, Iterable[Any]] | None = None,
) -> bytes:
    r"""Serialize one row as a tf.train.SequenceExample.

    Parameters
    ----------
    context : mapping of str or bytes to values, optional
        As for `encode_example`.
    feature_lists : mapping of str or bytes to iterables of values, optional
        The steps of each feature list. A step is a value as for `encode_example`. All
        steps of a list must have the same kind.

    Returns
    -------
    bytes
        The message, in protobuf's canonical form.

    Raises
    ------
    ValueError, TypeError
        As for `encode_example`.

    Notes
    -----
    Source of the format: ``tensorflow/core/example/example.proto``.

    Examples
    --------
    >>> import fastrec as fr
    >>> record = fr.encode_sequence_example(
    ...     context={"length": 3}, feature_lists={"words": ["a", "b", "c"]}
    ... )
    >>> words = {"words": fr.FixedLenSequence((), "bytes")}
    >>> _, lists, _ = fr.parse_sequence_example([record], sequence_features=words)
    >>> lists["words"].tolist()
    [[b'a', b'b', b'c']]
    """
    return _core.encode_sequence_example(
        {} if context is None else context,
        {} if feature_lists is None else feature_lists,
    )
