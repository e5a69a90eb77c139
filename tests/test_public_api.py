"""The public names: a list for each object, which no move of code changes unnoticed.

Goal
    The package, its classes and its adapters have exactly the public names listed here.
    A change that adds or removes a name amends its list and CHANGELOG.md.
Method
    ``__all__`` of modules; of classes, the names without an underscore that classes of
    fastrec define. An adapter is imported in another process, if its framework is
    installed.
"""

from __future__ import annotations

import importlib.util
import inspect
import os

import pytest

import fastrec as fr
from children import run_python

PACKAGE = [
    "Batch",
    "BatchInfo",
    "Blocks",
    "BytesArray",
    "CorruptionError",
    "Dataset",
    "DecodeError",
    "Error",
    "FixedLen",
    "FixedLenSequence",
    "Image",
    "LimitError",
    "Limits",
    "List",
    "Loader",
    "LoaderStats",
    "MissingFeatureWarning",
    "Ragged",
    "RaggedArray",
    "Raw",
    "Record",
    "Report",
    "Schema",
    "SchemaError",
    "SerializedTensor",
    "Sparse",
    "SparseArray",
    "Stack",
    "VarLen",
    "Window",
    "Writer",
    "__version__",
    "build_index",
    "concat",
    "concat_batches",
    "decode_example",
    "decode_image",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "mix",
    "open",
    "open_tfds",
    "pack_columns",
    "parse_example",
    "parse_sequence_example",
    "per_row",
    "read_records",
    "take_rows",
    "write",
]

MEMBERS = {
    fr.BytesArray: [
        "as_array",
        "data",
        "dtype",
        "equals",
        "from_list",
        "lengths",
        "nbytes",
        "ndim",
        "offsets",
        "shape",
        "size",
        "tolist",
        "view",
    ],
    fr.Dataset: [
        "cache",
        "column",
        "column_names",
        "files",
        "filter",
        "head",
        "infer_schema",
        "is_streamed",
        "loader",
        "nbytes",
        "on_error",
        "records",
        "report",
        "schema",
        "select",
        "select_columns",
        "shard",
        "split",
        "statistics",
        "steps",
        "with_features",
        "with_transform",
    ],
    fr.Loader: [
        "batch",
        "batch_sampler",
        "batch_size",
        "close",
        "dataset",
        "drop_last",
        "epoch",
        "load_state_dict",
        "pad_last",
        "peek",
        "rank",
        "records_at",
        "repeat",
        "report",
        "seed",
        "seek",
        "set_epoch",
        "state_dict",
        "stats",
        "step",
        "tuples",
        "world_size",
    ],
    fr.RaggedArray: [
        "dtype",
        "equals",
        "from_list",
        "lengths",
        "mask",
        "nbytes",
        "ndim",
        "row_splits",
        "shape",
        "to_padded",
        "to_sparse",
        "tolist",
        "values",
    ],
    fr.SparseArray: [
        "dense_shape",
        "dtype",
        "equals",
        "indices",
        "nbytes",
        "ndim",
        "shape",
        "to_dense",
        "tolist",
        "values",
    ],
    fr.Writer: [
        "close",
        "closed",
        "discard",
        "files",
        "n_bytes",
        "n_records",
        "path",
        "write",
        "write_batch",
        "write_record",
        "write_sequence_example",
    ],
}

ERROR = [
    "code",
    "feature",
    "hint",
    "offset",
    "path",
    "reason",
    "record",
]

SUBMODULES = {
    "arrow": [
        "RecordBatch",
        "RecordBatchReader",
    ],
    "compat": [
        "dali_tfrecord",
        "tf_io",
        "tf_train",
    ],
    "compat.dali_tfrecord": [
        "FixedLenFeature",
        "VarLenFeature",
        "float32",
        "int64",
        "string",
    ],
    "compat.tf_io": [
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
    ],
    "compat.tf_train": [
        "BytesList",
        "Example",
        "Feature",
        "FeatureList",
        "FeatureLists",
        "Features",
        "FloatList",
        "Int64List",
        "SequenceExample",
    ],
    "convert": [
        "write_images",
        "write_table",
        "write_tfrecords",
    ],
    "grain": [
        "DataSource",
    ],
    "jax": [
        "loader",
    ],
    "keras": [
        "PyDataset",
    ],
    "polars": [
        "scan",
    ],
    "ray": [
        "read_tfrecords",
        "write_tfrecords",
    ],
    "samplers": [
        "balanced",
        "bucket_by_length",
        "pack",
        "weighted",
    ],
    "tf": [
        "dataset",
    ],
    "torch": [
        "Dataset",
        "IterableDataset",
        "Jagged",
        "as_nested",
        "as_ragged",
        "collate",
        "loader",
        "tensors",
    ],
}

# The package without which a submodule cannot be imported.
FRAMEWORKS = {
    "grain": "grain",
    "jax": "jax",
    "keras": "keras",
    "polars": "polars",
    "ray": "ray",
    "tf": "tensorflow",
    "torch": "torch",
}


def defined_in(kind: type) -> set[str]:
    """The public names that a class has from fastrec, not from Python or a framework."""
    own = [
        base for base in inspect.getmro(kind) if base.__module__.startswith("fastrec")
    ]
    return {name for base in own for name in vars(base) if not name.startswith("_")}


def test_the_package_has_these_names() -> None:
    assert sorted(fr.__all__) == PACKAGE
    assert all(hasattr(fr, name) for name in PACKAGE)
    assert len([name for name in dir(fr) if not name.startswith("_")]) <= 60


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_a_class_has_these_members(kind: type) -> None:
    assert sorted(defined_in(kind)) == MEMBERS[kind]


@pytest.mark.parametrize(
    "kind",
    [fr.Error, fr.CorruptionError, fr.DecodeError, fr.LimitError, fr.SchemaError],
)
def test_an_error_has_these_members(kind: type[fr.Error]) -> None:
    assert sorted(defined_in(kind) | set(vars(kind("reason")))) == ERROR


@pytest.mark.parametrize("name", sorted(set(SUBMODULES) - set(FRAMEWORKS)))
def test_a_submodule_has_these_names(name: str) -> None:
    module = importlib.import_module(f"fastrec.{name}")
    assert sorted(module.__all__) == SUBMODULES[name]


NAMES = (
    "import fastrec.{0} as m; print(*(name for name in m.__all__ if hasattr(m, name)))"
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.oracle if name == "tf" else pytest.mark.frameworks,
        )
        for name in FRAMEWORKS
    ],
)
def test_an_adapter_has_these_names(name: str) -> None:
    if importlib.util.find_spec(FRAMEWORKS[name]) is None:
        pytest.skip(f"fastrec.{name} needs {FRAMEWORKS[name]}")
    # In another process: JAX and TensorFlow change the one that imports them.
    said = run_python(NAMES.format(name), env=os.environ | {"KERAS_BACKEND": "numpy"})
    assert sorted(said.stdout.split()) == SUBMODULES[name]
