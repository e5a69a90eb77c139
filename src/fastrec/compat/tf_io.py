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
from typing import Any, NamedTuple

import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, Row
from fastrec.dataset.open import read_records
from fastrec.example import parse
from fastrec.example.parse import Strings
from fastrec.features import tensor as tensors
from fastrec.features.ragged import Partition, Ragged
from fastrec.storage.paths import Paths
from fastrec.writer.writer import Writer

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "SparseFeature",
    "TFRecordDataset",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_raw",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "serialize_tensor",
    "tf_record_iterator",
]


class FixedLenFeature(NamedTuple):
    """Same as `fastrec.FixedLen`."""

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """Same as `fastrec.FixedLenSequence`; `allow_missing` must be True for features."""

    shape: Sequence[int]
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """Same as `fastrec.VarLen`."""

    dtype: Any


class RaggedFeature(NamedTuple):
    """Same as `fastrec.Ragged`; partitions are checked whatever `validate` is."""

    dtype: Any
    value_key: str | bytes | None = None
    partitions: Sequence[Partition] = ()
    row_splits_dtype: Any = "int32"
    validate: bool = False


for _partition in (
    *(Ragged.RowSplits, Ragged.RowLengths, Ragged.RowStarts, Ragged.RowLimits),
    *(Ragged.ValueRowIds, Ragged.UniformRowLength),
):
    setattr(RaggedFeature, _partition.__name__, _partition)


class SparseFeature(NamedTuple):
    """Same as `fastrec.Sparse`."""

    index_key: str | bytes | Sequence[str | bytes]
    value_key: str | bytes
    dtype: Any
    size: int | Sequence[int]
    already_sorted: bool = False


def parse_example(
    serialized: Strings,
    features: Mapping[str, Any],
    example_names: object = None,  # noqa: ARG001 (errors name the record by its index)
    name: str | None = None,  # noqa: ARG001
) -> Batch:
    """Same as `fastrec.parse_example`."""
    return parse.parse_example(serialized, features)


def parse_single_example(
    serialized: bytes,
    features: Mapping[str, Any],
    example_names: object = None,  # noqa: ARG001 (as above)
    name: str | None = None,  # noqa: ARG001
) -> Row:
    """Same as `fastrec.parse_single_example`."""
    return parse.parse_single_example(serialized, features)


def parse_sequence_example(
    serialized: Strings,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_names: object = None,  # noqa: ARG001 (as above)
    name: str | None = None,  # noqa: ARG001
) -> tuple[Batch, Batch, dict[str | bytes, npt.NDArray[Any]]]:
    """Same as `fastrec.parse_sequence_example`."""
    return parse.parse_sequence_example(serialized, context_features, sequence_features)


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_name: object = None,  # noqa: ARG001 (as above)
    name: str | None = None,  # noqa: ARG001
) -> tuple[Row, Row]:
    """Same as `fastrec.parse_single_sequence_example`."""
    return parse.parse_single_sequence_example(
        serialized, context_features, sequence_features
    )


def decode_raw(
    input_bytes: bytes | Strings,
    out_type: Any,  # noqa: ANN401 (NumPy's dtype, or TensorFlow's)
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> npt.NDArray[Any]:
    """Same as `fastrec.decode_raw`."""
    dtype = getattr(out_type, "as_numpy_dtype", out_type)
    return parse.decode_raw(
        input_bytes, dtype, little_endian=little_endian, fixed_length=fixed_length
    )


def parse_tensor(
    serialized: bytes,
    out_type: Any,  # noqa: ANN401 (NumPy's dtype, or TensorFlow's)
    name: str | None = None,  # noqa: ARG001
) -> npt.NDArray[Any]:
    """Same as `fastrec.parse_tensor`."""
    return parse.parse_tensor(serialized, getattr(out_type, "name", out_type))


def serialize_tensor(
    tensor: npt.ArrayLike | BytesArray | str | bytes,
    name: str | None = None,  # noqa: ARG001
) -> bytes:
    """Same as `fastrec.serialize_tensor`."""
    return tensors.serialize_tensor(tensor)


def _compression_of(options: object) -> Any:  # noqa: ANN401
    """Return the compression of a `TFRecordOptions`, or of a name."""
    return getattr(options, "compression_type", options) or None


def tf_record_iterator(path: Paths, options: object = None) -> Iterator[bytes]:
    """Yield the serialized records of a file, like `fastrec.read_records`.

    Without `options`, compression is detected.
    """
    return read_records(path, compression=_compression_of(options) or "auto")


class TFRecordDataset:
    """An iterable of the serialized records of files, in file order.

    Each ``for`` reads the files from the start. Without `compression_type`, compression
    is detected. `buffer_size` and `num_parallel_reads` are ignored. The methods of
    ``tf.data.Dataset``, such as ``map`` and ``batch``, are not available; use
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
        buffer_size: int | None = None,  # noqa: ARG002
        num_parallel_reads: int | None = None,  # noqa: ARG002
        name: str | None = None,  # noqa: ARG002
    ) -> None:
        self._filenames = filenames
        if not isinstance(filenames, (str, bytes, os.PathLike)):
            self._filenames = list(filenames)
        self._compression = _compression_of(compression_type)

    def __iter__(self) -> Iterator[bytes]:
        return read_records(self._filenames, compression=self._compression or "auto")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        msg = (
            f"TFRecordDataset has no attribute {name!r}: it only yields serialized "
            "records; use fastrec.open(filenames, features=...).loader(batch_size), see "
            "docs/migration.md"
        )
        raise AttributeError(msg)


class TFRecordWriter(Writer):
    """A `fastrec.Writer` of serialized records that replaces an existing file."""

    def __init__(self, path: str | os.PathLike[str], options: object = None) -> None:
        super().__init__(
            path,
            overwrite=True,
            compression=_compression_of(options),
            compression_level=getattr(options, "compression_level", None),
        )

    def write(self, record: Any) -> None:  # noqa: ANN401
        """Write a serialized record, or a mapping like `fastrec.Writer.write`."""
        if isinstance(record, Mapping):
            super().write(record)
        else:
            self.write_record(record)
