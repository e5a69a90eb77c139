"""features.json -> the columns that a TFDS data set stores.

TFDS flattens nested dicts to keys joined by "/", and stores each leaf of the tree as one
feature of a tf.train.Example.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastrec.errors import SchemaError

# Sizes, with None for those that differ between records.
Shape: TypeAlias = "tuple[int | None, ...]"

_PACKAGE = "tensorflow_datasets."


@dataclass(frozen=True)
class StoredColumn:
    """A leaf of the tree of features.

    `connector` is the name of its class, and `lengths` are those of the sequences that
    contain it, from the outermost to the innermost.
    """

    name: str
    connector: str
    lengths: Shape = ()
    shape: Shape = ()
    dtype: str = "string"
    encoding: str = "none"
    is_optional: bool = False
    n_classes: int | None = None
    names_file: str = ""
    unsupported: str = ""  # why it cannot be read


def columns_of(tree: object) -> dict[str, StoredColumn]:
    """Return the columns of a features.json, in its order.

    Raises
    ------
    SchemaError
        If it has another structure.
    """
    columns: dict[str, StoredColumn] = {}
    try:
        leaves = list(_leaves(tree, StoredColumn("", "")))
    except SchemaError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        reason = f"another structure ({type(error).__name__}: {error})"
        raise SchemaError(f"cannot read features.json: it has {reason}") from None
    for column in leaves:
        if column.name in columns:
            raise SchemaError(
                f"features.json must not have column {column.name!r} twice"
            )
        columns[column.name] = column
    if "" in columns:
        raise SchemaError(
            f"features.json must describe a FeaturesDict, got {columns[''].connector}"
        )
    return columns


def _leaves(node: object, at: StoredColumn) -> Iterator[StoredColumn]:
    """Yield the columns below a node, which is in the sequences of `at`."""
    path, content = _class_and_content(node)
    name = path.rpartition(".")[2]
    at = dataclasses.replace(at, connector=name)
    if not path.startswith(_PACKAGE):
        yield dataclasses.replace(at, connector=path, unsupported="another package")
    elif name == "FeaturesDict":
        for key, child in proto_field(content, "features", content).items():
            yield from _leaves(child, _below(at, key))
    elif name == "Translation":
        for key in proto_field(content, "languages", ()):
            yield dataclasses.replace(_below(at, key), connector="Text")
    elif name == "TranslationVariableLanguages":
        for key in ("language", "translation"):
            within = _repeated(_below(at, key), None)
            yield dataclasses.replace(within, connector="Text")
    elif name in ("Sequence", "Dataset"):
        length = proto_field(content, "length", 0)
        within = _repeated(at, None if length is None else int(length))
        yield from _leaves(proto_field(content, "feature", {}), within)
    elif name in _LEAVES:
        yield _LEAVES[name](at, content)
    else:
        yield dataclasses.replace(at, unsupported="unknown connector")


def _class_and_content(node: object) -> tuple[str, Mapping[str, Any]]:
    """Return the class of a connector and its arguments.

    Versions of TFDS write a Feature proto as JSON; or type, content and proto_cls, where
    the content may be JSON in a string; or arguments of the class.
    """
    if not isinstance(node, Mapping):
        raise SchemaError(f"features.json must consist of dicts, got {node!r}")
    if "type" in node:
        path, content = node["type"], node.get("content", {})
    else:
        path = node.get("pythonClassName", node.get("python_class_name"))
        contents = [value for value in node.values() if isinstance(value, Mapping)]
        content = contents[0] if contents else {}
        content = content.get("json", content)  # of a JsonFeature
    if isinstance(content, str):
        content = json.loads(content)
    if not isinstance(path, str) or not isinstance(content, Mapping):
        raise SchemaError(
            f"features.json must name the class of each feature, got {node!r}"
        )
    return path, content


def proto_field(content: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a field by its name in protos, or by that of protos as JSON."""
    first, *words = name.split("_")
    as_json = first + "".join(word.capitalize() for word in words)
    value = content.get(name, content.get(as_json, default))
    return default if value is None and name != "length" else value


def _below(at: StoredColumn, key: str) -> StoredColumn:
    """Return the column of a key of a dict."""
    file, part = at.names_file, key.replace("/", ".")
    return dataclasses.replace(
        at,
        name=f"{at.name}/{key}" if at.name else key,
        names_file=f"{file}-{part}" if file else part,
    )


def _repeated(at: StoredColumn, length: int | None) -> StoredColumn:
    length = None if length == -1 else length
    return dataclasses.replace(at, lengths=(*at.lengths, length))


def _shape(content: Mapping[str, Any], default: Shape) -> Shape:
    given = proto_field(content, "shape", default)
    if isinstance(given, Mapping):
        given = given.get("dimensions", ())
    sizes = [None if size is None else int(size) for size in given]
    return tuple(None if size == -1 else size for size in sizes)


def _tensor(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    return dataclasses.replace(
        at,
        shape=_shape(content, ()),
        dtype=str(proto_field(content, "dtype", "string")),
        encoding=str(proto_field(content, "encoding", "") or "none").lower(),
        is_optional=bool(proto_field(content, "optional", False)),
    )


def _audio(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    if proto_field(content, "lazy_decode", False):
        return dataclasses.replace(at, dtype="string")  # the bytes of a file
    column = _tensor(at, {"dtype": "int64", **content})
    return dataclasses.replace(column, shape=_shape(content, (None,)))


def _box(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:  # noqa: ARG001
    return dataclasses.replace(at, shape=(4,), dtype="float32")


def _class_label(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    n_classes = proto_field(content, "num_classes", None)
    return dataclasses.replace(
        at, dtype="int64", n_classes=None if n_classes is None else int(n_classes)
    )


def _image(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    label = proto_field(content, "label", {})
    n_classes = (
        proto_field(label, "num_classes", None) if isinstance(label, Mapping) else None
    )
    n_channels = 1 if at.connector == "LabeledImage" else 3
    return dataclasses.replace(
        at,
        shape=_shape(content, ()) or (None, None, n_channels),
        dtype=str(proto_field(content, "dtype", "uint8")),
        encoding="image",
        n_classes=None if n_classes is None else int(n_classes),
    )


def _text(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    if "use_encoder" in content:
        return dataclasses.replace(at, unsupported="integers of a TextEncoder")
    is_optional = bool(proto_field(content, "optional", False))
    return dataclasses.replace(at, is_optional=is_optional)


def _video(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    n_frames, *frame = _shape(content, ()) or (None, None, None, 3)
    frames = {**content, "shape": frame}
    return _image(_repeated(at, n_frames), frames)


_LEAVES = {
    "Audio": _audio,
    "BBoxFeature": _box,
    "ClassLabel": _class_label,
    "Image": _image,
    "LabeledImage": _image,
    "Scalar": _tensor,
    "Tensor": _tensor,
    "Text": _text,
    "Video": _video,
}
