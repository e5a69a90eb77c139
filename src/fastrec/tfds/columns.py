"""Convert features.json of TFDS to stored columns, and stored columns to specs.

TFDS flattens nested dicts to keys joined by "/". Each leaf of the feature tree is
stored as one or more features of a tf.train.Example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fastrec.arrays.batch import Array, RaggedArray
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    RowRule,
    Spec,
    checked_shape,
    numpy_dtype,
)
from fastrec.features.fixed import FixedLen, Raw, VarLen
from fastrec.features.image import Image, List
from fastrec.features.ragged import Ragged
from fastrec.features.schema import Schema

# Sizes of dimensions; None means that the size differs between records.
Shape: TypeAlias = "tuple[int | None, ...]"

_PACKAGE = "tensorflow_datasets."
_N_NAMES_SHOWN = 5


@dataclass(frozen=True)
class StoredColumn:
    """A column that TFDS stores: one leaf of the feature tree.

    `connector` is the class name of the feature. `lengths` are the lengths of the
    sequences that contain the feature, from the outermost to the innermost.
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
    unsupported: str = ""  # why the column cannot be read


def columns_of(tree: object) -> dict[str, StoredColumn]:
    """Return columns by name; `tree` is the content of features.json.

    Raises a SchemaError if the file has an unexpected structure.
    """
    columns: dict[str, StoredColumn] = {}
    try:
        leaves = list(_leaves(tree, StoredColumn("", "")))
    except SchemaError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        reason = f"malformed ({type(error).__name__}: {error})"
        raise SchemaError(f"cannot read features.json: it is {reason}") from None
    for column in leaves:
        if not column.name:
            raise SchemaError(
                f"features.json must describe a FeaturesDict, got {column.connector}"
            )
        if column.name in columns:
            raise SchemaError(f"features.json has column {column.name!r} twice")
        columns[column.name] = column
    return columns


def _leaves(node: object, at: StoredColumn) -> Iterator[StoredColumn]:
    """Yield the columns below a node; `at` has the node's name and sequences."""
    path, content = _class_and_content(node)
    name = path.rpartition(".")[2]
    at = replace(at, connector=name)
    if not path.startswith(_PACKAGE):
        yield replace(at, connector=path, unsupported="another package")
    elif name == "FeaturesDict":
        for key, child in proto_field(content, "features", content).items():
            yield from _leaves(child, _below(at, key))
    elif name in ("Sequence", "Dataset"):
        within = _repeated(at, content.get("length", 0))
        yield from _leaves(proto_field(content, "feature", {}), within)
    elif name == "Translation":
        for key in proto_field(content, "languages", ()):
            yield replace(_below(at, key), connector="Text")
    elif name == "TranslationVariableLanguages":
        for key in ("language", "translation"):
            yield replace(_repeated(_below(at, key), None), connector="Text")
    else:
        yield _leaf(at, content)


def _leaf(at: StoredColumn, content: Mapping[str, Any]) -> StoredColumn:
    """Return the column of a leaf; `content` has the arguments of its connector."""
    connector = at.connector
    is_optional = bool(proto_field(content, "optional", False))
    if connector == "Text":
        if "use_encoder" in content:
            return replace(at, unsupported="integers of a TextEncoder")
        return replace(at, is_optional=is_optional)
    if connector == "BBoxFeature":
        return replace(at, shape=(4,), dtype="float32")
    if connector == "ClassLabel":
        return replace(at, dtype="int64", n_classes=_n_classes(content))
    if connector in ("Tensor", "Scalar", "Audio"):
        is_audio = connector == "Audio"
        if is_audio and proto_field(content, "lazy_decode", False):
            return at  # the bytes of a file
        return replace(
            at,
            shape=_shape(content, (None,) if is_audio else ()),
            dtype=str(proto_field(content, "dtype", "int64" if is_audio else "string")),
            encoding=str(proto_field(content, "encoding", "") or "none").lower(),
            is_optional=is_optional,
        )
    if connector not in ("Image", "LabeledImage", "Video"):
        return replace(at, unsupported="unknown connector")
    shape = _shape(content, ())
    if connector == "Video":
        n_frames, *frame = shape or (None,)
        at, shape = _repeated(at, n_frames), tuple(frame)
    return replace(
        at,
        shape=shape or (None, None, 1 if connector == "LabeledImage" else 3),
        dtype=str(proto_field(content, "dtype", "uint8")),
        encoding="image",
        n_classes=_n_classes(proto_field(content, "label", {})),
    )


def _class_and_content(node: object) -> tuple[str, Mapping[str, Any]]:
    """Return the class name and the arguments of a connector.

    The JSON depends on the TFDS version: a Feature proto, a class name with arguments,
    or the keys type, content and proto_cls. The arguments may be a string of JSON.
    """
    if not isinstance(node, Mapping):
        raise SchemaError(f"features.json must consist of dicts, got {node!r}")
    if "type" in node:
        path, content = node["type"], node.get("content", {})
    else:
        path = node.get("pythonClassName", node.get("python_class_name"))
        content = next((v for v in node.values() if isinstance(v, Mapping)), {})
        content = content.get("json", content)  # of a JsonFeature
    if isinstance(content, str):
        content = json.loads(content)
    if not isinstance(path, str) or not isinstance(content, Mapping):
        raise SchemaError(
            f"features.json must name the class of each feature, got {node!r}"
        )
    return path, content


def proto_field(content: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return the proto field `name`, in snake_case or camelCase, or `default`."""
    first, *words = name.split("_")
    as_json = first + "".join(word.capitalize() for word in words)
    value = content.get(name, content.get(as_json))
    return default if value is None else value


def _below(at: StoredColumn, key: str) -> StoredColumn:
    """Return the column `at`, with `key` of a FeaturesDict appended to its name."""
    file, part = at.names_file, key.replace("/", ".")
    return replace(
        at,
        name=f"{at.name}/{key}" if at.name else key,
        names_file=f"{file}-{part}" if file else part,
    )


def _repeated(at: StoredColumn, length: object) -> StoredColumn:
    return replace(at, lengths=(*at.lengths, _size(length)))


def _size(size: Any) -> int | None:
    return None if size is None or int(size) == -1 else int(size)


def _shape(content: Mapping[str, Any], default: Shape) -> Shape:
    given = proto_field(content, "shape", default)
    sizes = given.get("dimensions", ()) if isinstance(given, Mapping) else given
    return tuple(map(_size, sizes))


def _n_classes(content: object) -> int | None:
    if not isinstance(content, Mapping):
        return None
    found = proto_field(content, "num_classes", None)
    return None if found is None else int(found)


# Specs.


def schema_of(
    columns: Mapping[str, StoredColumn],
    names: Sequence[str],
    images: Mapping[str, Image],
    class_names: Mapping[str, Sequence[str]],
    source: str,
) -> Schema:
    """Return the schema of the columns `names`.

    `images` contains specs that replace the image specs of features.json. `class_names`
    contains the class names by column. `source` names the dataset in the repr and in
    errors. Raises a SchemaError if a column cannot be read, or if a key of `images` is
    not an image column.
    """
    for name in images:
        if name not in columns or columns[name].encoding != "image":
            listed = [each for each in columns if columns[each].encoding == "image"]
            having = ", ".join(map(repr, listed)) or "none"
            raise SchemaError(
                f"images= must name image columns, got {name!r}; there are {having}"
            )
    specs = {name: _spec(columns[name], images.get(name)) for name in names}
    notes = {name: _note(columns[name], class_names.get(name, ())) for name in names}
    return Schema(
        specs,
        notes={name: note for name, note in notes.items() if note},
        source=source,
        class_names={name: class_names[name] for name in names if name in class_names},
    )


def _spec(column: StoredColumn, image: Image | None) -> Spec:
    """Return the spec of a column, or raise a SchemaError that names the column."""
    try:
        if column.unsupported:
            raise SchemaError(column.unsupported)
        if column.encoding == "image":
            return _image(column, image)
        if column.encoding != "none":
            return _encoded(column)
        if column.dtype == "uint64":
            return _Uint64(spec=_stored(column, column.shape, "int64"))
        return _stored(column, column.shape, column.dtype)
    except SchemaError as error:
        raise SchemaError(
            f"cannot read column {column.name!r}, a {column.connector}: {error.reason}; "
            "pass features= with other columns, or with a spec of the stored feature"
        ) from None


def _stored(column: StoredColumn, shape: Shape, dtype: str) -> Spec:
    """Return the spec of values as TFDS's ``example_serializer.py`` stores them."""
    name, rank, sizes = column.name, len(column.lengths), column.lengths + shape
    n_unknown = sizes.count(None)
    if None in shape and (rank > 1 or n_unknown > 1):
        raise SchemaError(f"several unknown sizes {sizes}")
    key = f"{name}/ragged_flat_values" if rank > 1 else None
    if not n_unknown:
        default = _default(dtype, sizes) if column.is_optional and not rank else None
        return FixedLen(_known(sizes), dtype, default, key=key)
    last = max(i for i, size in enumerate(sizes) if size is None)
    item = _known(sizes[last + 1 :])
    if last >= max(rank, 1):
        raise SchemaError(f"an unknown size after the first, in {sizes}")
    if not last and (dtype != "string" or not item):
        return VarLen(dtype, item, key=key)
    lengths = [
        Ragged.RowLengths(f"{name}/ragged_row_lengths_{level}") for level in range(last)
    ]
    return Ragged(dtype, [*lengths, *map(Ragged.UniformRowLength, item)], key=key)


def _known(sizes: Shape) -> tuple[int, ...]:
    return checked_shape([size for size in sizes if size is not None])


def _default(dtype: str, shape: Shape) -> object:
    """Return TFDS's value for a missing optional feature, or None if there is none."""
    if dtype == "string":
        return np.full(_known(shape), b"", object)
    kind = numpy_dtype(dtype)
    if kind.kind not in "biuf":
        return None
    limits = np.finfo if kind.kind == "f" else np.iinfo
    return np.full(_known(shape), kind.kind != "b" and limits(kind).min, kind)


def _encoded(column: StoredColumn) -> Spec:
    """Return the spec of a column whose arrays are stored as byte strings."""
    if column.encoding not in ("bytes", "zlib"):
        raise SchemaError(f"encoding {column.encoding!r}")
    if None in column.shape:
        raise SchemaError(f"unknown sizes {column.shape} of encoded arrays")
    compression: Any = "ZLIB" if column.encoding == "zlib" else None
    array = Raw(_known(column.shape), column.dtype, compression=compression)
    return _listed(column, array)


def _image(column: StoredColumn, image: Image | None) -> Spec:
    """Return a spec that decodes images if possible, else a spec of encoded bytes."""
    *sizes, n_channels = column.shape
    is_fixed = len(sizes) == 2 and None not in sizes
    is_readable = is_fixed and n_channels in (1, 3, 4) and len(column.lengths) < 2
    if image is None and is_readable:
        dtype: Any = column.dtype
        image = Image(_known(tuple(sizes)), channels=int(n_channels or 0), dtype=dtype)
    return _stored(column, (), "string") if image is None else _listed(column, image)


def _listed(column: StoredColumn, item: Image | Raw) -> Spec:
    """Return the spec `item`, or a `List` of it if the column is a sequence."""
    if not column.lengths:
        return item
    if len(column.lengths) > 1:
        raise SchemaError("encoded values in nested sequences")
    return List(item, column.lengths[0])


def _note(column: StoredColumn, class_names: Sequence[str]) -> str:
    note = "" if column.connector in ("Tensor", "Scalar") else column.connector
    if column.dtype == "uint64" and column.encoding == "none":
        note = "bits of uint64"
    if column.encoding == "image" and column.dtype != "uint8":
        note += f" of {column.dtype}"
    if class_names:
        shown = ", ".join(map(repr, class_names[:_N_NAMES_SHOWN]))
        more = ", ..." if len(class_names) > _N_NAMES_SHOWN else ""
        note += f", {len(class_names):,} classes: {shown}{more}"
    return note


@dataclass(frozen=True, repr=False)
class _Uint64(Spec):
    """Spec of uint64 values that are stored as int64 with the same bits."""

    spec: Any
    _is_plain = False

    def _text(self, module: str = "") -> str:
        return str(self.spec._text(module))

    def _columns(self, name: str | bytes) -> list[Column]:
        return [*self.spec._columns(name)]

    def _rules(self) -> list[RowRule]:
        return [*self.spec._rules()]

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        array: Any = arrays[0]
        if not self.spec._is_plain:
            ((_, array),) = self.spec._compose(name, arrays)
        return [(name, _as_uint64(array))]

    def _windowed(self, length: int | None) -> Spec | None:
        spec = self.spec._windowed(length)
        return None if spec is None else _Uint64(spec=spec)

    def _row_type(self) -> str:
        return f"uint64 bits of {self.spec._row_type()}"


def _as_uint64(array: Any) -> Any:
    if isinstance(array, RaggedArray):
        return RaggedArray._wrap(_as_uint64(array.values), array.row_splits)
    return array.view(np.uint64)
