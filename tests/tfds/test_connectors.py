"""features.json of every version of TFDS, and the columns that it describes.

Goal
    The three forms in which TFDS has written features.json give the same columns. A
    connector that cannot be read is found when its column is asked for.
Method
    Trees in the form of today, rewritten in the others; the columns are listed here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

import fastrec as fr
from columns import Untyped
from fastrec.tfds.columns import columns_of, schema_of
from tfds_directory import (
    class_label,
    dataset,
    features_dict,
    image,
    node,
    sequence,
    shape_of,
    tensor,
)

STEPS = {
    "action": tensor("float32", 7),
    "is_first": node("Scalar", "tensor", {"dtype": "bool", "shape": {}}),
    "observation": features_dict(
        {
            "image": image(16, 24, 3, encodingFormat="jpeg"),
            "depth": tensor("float32", 4, 5, 1, encoding="zlib"),
        }
    ),
    "tokens": sequence(tensor("int32")),
}
TREE = features_dict(
    {
        "steps": dataset(features_dict(STEPS)),
        "label": class_label(10),
        "box": node("BBoxFeature", "tensor", {"dtype": "float32"}),
        "clip": node(
            "Video", "video", {"shape": shape_of(4, 6, 7, 1), "dtype": "uint8"}
        ),
        "picture": image(None, None, 3),
        "sound": node("Audio", "audio", {"shape": shape_of(None), "dtype": "int64"}),
        "text": node("Text", "text"),
        "pair": node("Translation", "translation", {"languages": ["de", "en"]}),
        "pairs": node("TranslationVariableLanguages", "translation"),
        "points": sequence(sequence(tensor("float64", 2))),
        "grid": sequence(sequence(tensor("uint8")), length=3),
        "rows": tensor("int16", None, 3),
        "maybe": tensor("int32", optional=True),
    }
)

SPECS = {
    "steps/action": fr.VarLen("float32", (7,)),
    "steps/is_first": fr.VarLen("bool"),
    "steps/observation/image": fr.List(fr.Image((16, 24))),
    "steps/observation/depth": fr.List(
        fr.Raw((4, 5, 1), "float32", compression="ZLIB")
    ),
    "steps/tokens": fr.Ragged(
        "int32",
        [fr.Ragged.RowLengths("steps/tokens/ragged_row_lengths_0")],
        key="steps/tokens/ragged_flat_values",
    ),
    "label": fr.FixedLen((), "int64"),
    "box": fr.FixedLen((4,), "float32"),
    "clip": fr.List(fr.Image((6, 7), channels=1), 4),
    "picture": fr.FixedLen((), "bytes"),
    "sound": fr.VarLen("int64"),
    "text": fr.FixedLen((), "bytes"),
    "pair/de": fr.FixedLen((), "bytes"),
    "pair/en": fr.FixedLen((), "bytes"),
    "pairs/language": fr.VarLen("bytes"),
    "pairs/translation": fr.VarLen("bytes"),
    "points": fr.Ragged(
        "float64",
        [
            fr.Ragged.RowLengths("points/ragged_row_lengths_0"),
            fr.Ragged.UniformRowLength(2),
        ],
        key="points/ragged_flat_values",
    ),
    "grid": fr.Ragged(
        "uint8",
        [fr.Ragged.RowLengths("grid/ragged_row_lengths_0")],
        key="grid/ragged_flat_values",
    ),
    "rows": fr.VarLen("int16", (3,)),
    "maybe": fr.FixedLen((), "int32", default=-(2**31)),
}


def with_type(tree: Untyped, *, as_text: bool) -> Any:
    """Rewrite a tree with type, content and proto_cls."""
    ((_, content),) = ((k, v) for k, v in tree.items() if k != "pythonClassName")
    return {
        "type": tree["pythonClassName"],
        "content": json.dumps(content) if as_text else content,
        "proto_cls": "tensorflow_datasets.Any",
    }


def as_arguments(tree: Untyped) -> Any:
    """Rewrite a tree with the arguments of classes, as the first versions did."""
    ((_, content),) = ((k, v) for k, v in tree.items() if k != "pythonClassName")
    name = tree["pythonClassName"].rpartition(".")[2]
    if name == "FeaturesDict":
        content = {k: as_arguments(v) for k, v in content["features"].items()}
    elif "feature" in content:
        length = int(content["length"])
        content = {
            "feature": as_arguments(content["feature"]),
            "length": None if length == -1 else length,
        }
    else:
        snake = {"numClasses": "num_classes", "encodingFormat": "encoding_format"}
        content = {snake.get(key, key): value for key, value in content.items()}
        if "shape" in content:
            sizes = [int(size) for size in content["shape"].get("dimensions", [])]
            content["shape"] = [None if size == -1 else size for size in sizes]
        if "num_classes" in content:
            content["num_classes"] = int(content["num_classes"])
    return {"type": tree["pythonClassName"], "content": content}


FORMS = {
    "today": TREE,
    "content": with_type(TREE, as_text=False),
    "text": with_type(TREE, as_text=True),
    "arguments": as_arguments(TREE),
    "as text": json.loads(json.dumps(TREE)),
}


@pytest.mark.parametrize("tree", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_columns(tree: Untyped) -> None:
    columns = columns_of(tree)
    schema = schema_of(columns, list(columns), {}, {}, "TFDS")
    assert dict(schema) == SPECS
    assert {name: eval(repr(spec), vars(fr)) for name, spec in SPECS.items()} == SPECS


def test_names_of_files_with_labels() -> None:
    tree = features_dict(
        {
            "label": class_label(2),
            "a/b": class_label(2),
            "objects": sequence(features_dict({"kind": class_label(2)})),
            "mask": node(
                "LabeledImage",
                "image",
                {"shape": shape_of(4, 4, 1), "label": {"numClasses": "2"}},
            ),
        }
    )
    columns = columns_of(tree)
    assert {name: column.names_file for name, column in columns.items()} == {
        "label": "label",
        "a/b": "a.b",
        "objects/kind": "objects-kind",
        "mask": "mask",
    }
    assert all(column.n_classes == 2 for column in columns.values())


UNSUPPORTED = {
    "a connector of another package": (
        {"pythonClassName": "mine.features.Graph", "tensor": {}},
        r"cannot read column 'x', a mine\.features\.Graph: another package; pass features=",
    ),
    "an unknown connector": (node("Mesh"), "a Mesh: unknown connector"),
    "a text encoder": (
        {"type": node("Text")["pythonClassName"], "content": {"use_encoder": True}},
        "a Text: integers of a TextEncoder",
    ),
    "two unknown sizes": (
        sequence(tensor("int64", None)),
        r"a Tensor: several unknown sizes \(None, None\)",
    ),
    "an unknown size after the first": (
        tensor("int64", 2, None),
        r"an unknown size after the first, in \(2, None\)",
    ),
    "an encoded array in two sequences": (
        sequence(sequence(tensor("int64", 2, encoding="zlib"))),
        "encoded values in nested sequences",
    ),
    "an encoding": (tensor("int64", 2, encoding="gzip"), "encoding 'gzip'"),
    "a dtype": (tensor("complex64", 2), "dtype must be an integer, bool or float"),
}


@pytest.mark.parametrize(("tree", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_an_unsupported_connector_is_named(tree: Untyped, message: str) -> None:
    columns = columns_of(features_dict({"x": tree, "y": tensor("int64")}))
    assert list(schema_of(columns, ["y"], {}, {}, "")) == ["y"]
    with pytest.raises(fr.SchemaError, match=message):
        schema_of(columns, ["x"], {}, {}, "")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (tensor("int64"), "must describe a FeaturesDict, got Tensor"),
        ([], "must consist of dicts, got \\[\\]"),
        ({"features": {}}, "must name the class of each feature"),
        (
            features_dict(
                {"a/b": tensor("int64"), "a": features_dict({"b": tensor("int8")})}
            ),
            "has column 'a/b' twice",
        ),
    ],
)
def test_another_structure_is_refused(tree: Untyped, message: str) -> None:
    with pytest.raises(fr.SchemaError, match=message):
        columns_of(tree)


JUNK: list[Any] = [None, -2, "x", [], {}, [None], {"a": 1}, True, 1.5, ["-3"], "7"]


def replaced(value: Untyped) -> Iterator[Any]:
    """Yield copies of nested dicts and lists, each with one value replaced by junk."""
    yield from JUNK
    if isinstance(value, (dict, list)):
        for key, inner in (
            value.items() if isinstance(value, dict) else enumerate(value)
        ):
            for other in replaced(inner):
                copy = value.copy()
                copy[key] = other
                yield copy


def test_damaged_trees_are_errors_of_the_schema() -> None:
    n_refused = n_read = 0
    for tree in (TREE, as_arguments(TREE)):
        for damaged in replaced(tree):
            try:
                columns = columns_of(damaged)
                for name in columns:
                    with contextlib.suppress(fr.SchemaError):
                        schema_of(columns, [name], {}, {}, "")
                n_read += 1
            except fr.SchemaError:
                n_refused += 1
    assert n_refused > 500
    assert n_read > 500
