"""Schemas: the features to read, in column order.

A feature list of a tf.train.SequenceExample becomes one row. Its steps are padded, or
nested in a RaggedArray. Context features are read like the features of an Example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Array, Batch, RaggedArray
from fastrec.arrays.layout import offsets_from
from fastrec.display import as_text, table
from fastrec.errors import SchemaError
from fastrec.features.base import Column, ComposedColumns, RowRule, Spec, checked_keys
from fastrec.features.fixed import FixedLen, FixedLenSequence, Raw, VarLen
from fastrec.features.image import Image, Item, List, item_fault
from fastrec.features.ragged import Keyed, Ragged, Sparse, as_splits
from fastrec.features.tensor import SerializedTensor

# Mappings are invariant in the key type, so each key type is listed. Values are specs,
# tf.io specs or dtype names.
Features: TypeAlias = (
    "Mapping[str, Any] | Mapping[bytes, Any] | Mapping[str | bytes, Any]"
)
_Name: TypeAlias = "str | bytes"


class ArrowOptions(TypedDict):
    """Keyword arguments of `fastrec.arrow.RecordBatchReader`."""

    text: list[str]
    optional: list[str]


class Note(str):
    """A comment on an inferred column, and the Arrow options that suit the column."""

    options: tuple[str, ...] = ()


class Schema(Mapping["str | bytes", Spec]):
    """The specs of the columns to read: an immutable mapping from name to spec.

    The `repr` is a dict to paste into a program, with comments on inferred features.

    Parameters
    ----------
    features : mapping of str or bytes to specs
        The specs by column name, in column order.
    notes : mapping of str or bytes to str, optional
        Comments for the repr, on columns or on features that are not read.
    source : str, optional
        The origin of the features, for the repr and for error messages.
    class_names : mapping of str or bytes to sequence of str, optional
        The names of classes 0, 1, ... for each column of class labels.

    Attributes
    ----------
    class_names : dict of str or bytes to tuple of str
        The class names of this schema's columns. `fastrec.open_tfds` sets them.

    Raises
    ------
    SchemaError
        If `features` is not a mapping of names to specs.

    Examples
    --------
    >>> import fastrec as fr
    >>> schema = fr.Schema({"label": fr.FixedLen((), "int64")}, source="mnist")
    >>> schema
    {  # mnist
        'label': fr.FixedLen((), 'int64'),
    }
    >>> schema["label"].dtype
    'int64'
    """

    def __init__(
        self,
        features: Features,
        *,
        notes: Mapping[str | bytes, str] | None = None,
        source: str = "",
        class_names: Mapping[Any, Sequence[str]] | None = None,
    ) -> None:
        self._features = _checked(features)
        for name, spec in self._features.items():
            if self._is_list(name):
                _check_list_spec(name, spec)
            elif isinstance(spec, FixedLenSequence) and not spec.allow_missing:
                raise SchemaError(
                    f"feature {name!r}: allow_missing must be True; False is for feature "
                    "lists of a SequenceExample"
                )
        self._notes = dict(notes or {})
        self._source = source
        self.class_names: dict[Any, tuple[str, ...]] = {
            name: tuple(names)
            for name, names in (class_names or {}).items()
            if name in self._features
        }
        self._bound: _core.Schema | None = None

    _list_names: frozenset[_Name] | None = None  # of a SequenceExample

    @classmethod
    def _of(
        cls, features: Features, list_names: frozenset[_Name] | None, **options: Any
    ) -> Schema:
        """Return a schema; `list_names` are its feature lists, or None for Examples."""
        schema = cls.__new__(cls)
        schema._list_names = list_names
        cls.__init__(schema, features, **options)
        return schema

    def _with(self, features: Mapping[_Name, Spec]) -> Schema:
        """Return a schema of `features` with this schema's notes and class names."""
        lists = self._list_names
        return Schema._of(
            features,
            lists and lists.intersection(features),
            notes={k: note for k, note in self._notes.items() if k in features},
            source=self._source,
            class_names=self.class_names,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_bound": None}

    def _is_list(self, name: _Name) -> bool:
        return self._list_names is not None and name in self._list_names

    def __getitem__(self, name: str | bytes) -> Spec:
        return self._features[name]

    def __iter__(self) -> Iterator[str | bytes]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    @property
    def sections(self) -> dict[str, dict[str | bytes, Spec]]:
        """The specs as keyword arguments of `fastrec.open`: one dict per argument."""
        if self._list_names is None:
            return {"features": dict(self)}
        return {
            argument: {k: self[k] for k in self if self._is_list(k) is is_list}
            for argument, is_list in _SECTIONS.items()
        }

    @property
    def arrow_options(self) -> ArrowOptions:
        """Keyword arguments of `fastrec.arrow.RecordBatchReader` for inferred columns.

        ``text`` lists the columns of UTF-8 text. ``optional`` lists the columns with at
        most one value in each record. Only the sampled records were checked.
        """

        def noted(option: str) -> list[str]:
            return [
                name
                for name, note in self._notes.items()
                if isinstance(name, str) and name in self
                if isinstance(note, Note) and option in note.options
            ]

        return {"text": noted("text"), "optional": noted("optional")}

    def __repr__(self) -> str:
        lines = ["{" + (f"  # {self._source}" if self._source else "")]
        if self._list_names is None:
            lines += self._lines(self, 4)
        else:
            for argument, names in self.sections.items():
                lines += [f'    "{argument}": {{', *self._lines(names, 8), "    },"]
        unread = [f"    # {k!r}: {v}" for k, v in self._notes.items() if k not in self]
        return "\n".join([*lines, *unread, "}"])

    def _lines(self, names: Iterable[_Name], indent: int) -> list[str]:
        """Return the repr's lines for the columns `names`, indented by `indent`."""
        entries = [
            (" " * indent + f"{name!r}: {self[name]._text('fr.')},", name)
            for name in names
        ]
        width = max((len(entry) for entry, _ in entries), default=0)
        return [
            f"{entry:<{width}}  # {self._notes[name]}" if name in self._notes else entry
            for entry, name in entries
        ]

    def _repr_html_(self) -> str:
        """Return the specs as an HTML table, for notebooks."""
        specs = {name: spec._text("fr.") for name, spec in self.items()}
        rows = [
            [as_text(name), specs.get(name, "not read"), self._notes.get(name, "")]
            for name in dict.fromkeys([*self, *self._notes])
        ]
        title = f"Schema, {self._source}" if self._source else "Schema"
        return table(["column", "spec", "found"], rows, title=title)

    @functools.cached_property
    def _encoded(self) -> dict[_Name, Item]:
        """The columns that Python code decodes, with the spec of each byte string."""
        encoded: dict[_Name, Item] = {}
        for name, spec in self.items():
            item, is_item = spec, spec._is_item or self._is_list(name)
            while isinstance(item, List):  # windows of lists are lists of lists
                item, is_item = item.spec, True
            is_zipped = isinstance(item, Raw) and item.compression is not None
            if isinstance(item, Image) or (
                isinstance(item, (Raw, SerializedTensor)) and (is_item or is_zipped)
            ):
                encoded[name] = item
        return encoded

    @property
    def _is_random(self) -> bool:
        """Whether any image is cropped at random."""
        items = self._encoded.values()
        return any(isinstance(item, Image) and item.is_random for item in items)

    def _requests(self) -> list[_Request]:
        """Return one request to the core for each feature."""
        section = "features" if self._list_names is None else "context"
        requests = [
            _list_request(name, spec)
            if self._is_list(name)
            else _request(name, spec, section)
            for name, spec in self.items()
        ]
        return [
            _with_extents(request, spec._reach) if spec._reach else request
            for request, spec in zip(requests, self.values(), strict=True)
        ]

    def _columns(self) -> list[Column]:
        return [column for request in self._requests() for column in request.columns]

    def _row_type(self, name: _Name) -> str:
        return ("list of " if self._is_list(name) else "") + self[name]._row_type()

    def _column_names(self) -> list[_Name]:
        """Return the names of a batch's columns, in order."""
        return _column_names(self._features)

    def _bind(self) -> _core.Schema:
        """Return the core's schema; create it on the first call."""
        if self._bound is None:
            requests = self._requests()
            is_plain = all(request.compose is None for request in requests)
            compose = None if is_plain else _composition(requests)
            self._bound = _bound(requests, compose, self._source)
        return self._bound


class _Request(NamedTuple):
    """The columns that a spec requests, and how to compose a batch column from them."""

    name: _Name
    columns: list[Column]
    rules: list[RowRule]  # with column numbers from 0
    compose: Callable[[_Name, Sequence[Array]], ComposedColumns] | None

    @property
    def n_arrays(self) -> int:
        """Number of arrays that the core returns for this request."""
        columns = [column for column in self.columns if column.slot == 0]
        more = [(column.has_lengths, column.reach is not None) for column in columns]
        return len(columns) + sum(map(sum, more))


def _request(name: _Name, spec: Spec, section: str = "features") -> _Request:
    columns = [column._replace(section=section) for column in spec._columns(name)]
    compose = None if spec._is_plain else spec._compose
    return _Request(name, columns, spec._rules(), compose)


def extents_of(name: _Name) -> tuple[_Name, str]:
    """Return the key of a column's extents in a batch of records."""
    return name, "extents"


def _with_extents(request: _Request, reach: tuple[int, int, int, int]) -> _Request:
    """Return a request for the items in `reach` only, and their extents."""
    before = request.compose

    def compose(name: _Name, arrays: Sequence[Array]) -> ComposedColumns:
        items, extents = arrays[:-1], arrays[-1]
        columns = [(name, items[0])] if before is None else before(name, items)
        key: Any = extents_of(name)
        return [*columns, (key, extents)]

    columns = [column._replace(reach=reach) for column in request.columns]
    return request._replace(columns=columns, compose=compose)


def _list_request(name: _Name, spec: Spec, *, has_lengths: bool = False) -> _Request:
    text = repr(spec)
    if isinstance(spec, _DECODED):
        spec = _strings_of(spec)
    request = _request(name, spec, "lists")
    of_values = [column._replace(text=text) for column in request.columns]
    if isinstance(spec, FixedLenSequence):  # all steps have one shape
        (column,) = of_values
        has_lengths = has_lengths or column.has_lengths
        is_required = not spec.allow_missing
        column = column._replace(is_required=is_required, has_lengths=has_lengths)
        return _Request(name, [column], [], spec._compose if has_lengths else None)
    # A column of step sizes follows the column of each list.
    sizes: dict[str, Any] = {"kind": "int64", "dtype": np.dtype(np.int64), "shape": ()}
    columns: list[Column] = []
    for column in of_values:
        columns += [column, column._replace(section="step_sizes", **sizes)]
    rules = [rule.placed(0, 2) for rule in request.rules]
    return _Request(name, columns, rules, functools.partial(_composed_list, spec))


_DECODED = (Image, List, Raw, SerializedTensor)  # also in feature lists


def _strings_of(spec: Image | List | Raw | SerializedTensor) -> Spec:
    """Return a spec that reads the byte strings in the steps of a feature list."""
    length = spec.length if isinstance(spec, List) else 1
    if length is None:
        return VarLen("bytes", key=spec.key)
    shape = (length,) if isinstance(spec, List) else ()
    strings = FixedLenSequence(shape, "bytes", key=spec.key)
    strings._set(_is_padded=False)
    return strings


def _composed_list(spec: Spec, name: _Name, arrays: Sequence[Array]) -> ComposedColumns:
    """Compose the steps of all records, then group them by record in a RaggedArray."""
    lists: list[Any] = list(arrays)
    steps = [
        RaggedArray._wrap(values.values, offsets_from(np.asarray(sizes.values)))
        for values, sizes in zip(lists[::2], lists[1::2], strict=True)
    ]
    inner: Any = steps[0]
    if isinstance(spec, Ragged):
        [(_, inner)] = spec._compose(name, steps)
    dtype = getattr(spec, "row_splits_dtype", "int64")
    splits = as_splits(np.asarray(lists[1].row_splits), dtype)
    return [(name, RaggedArray._wrap(inner, splits))]


def _bound(
    requests: Sequence[_Request], compose: Callable[..., Any] | None, source: str = ""
) -> _core.Schema:
    columns: list[Column] = []
    rules: list[RowRule] = []
    for request in requests:
        rules += [rule.placed(len(columns)) for rule in request.rules]
        columns += request.columns
    return _core.Schema(columns, rules, compose, source)


def _composition(
    requests: Sequence[_Request],
) -> Callable[[Sequence[Array]], Batch]:
    """Return a function that composes a batch from the core's arrays."""
    parts = [(request.compose, request.name, request.n_arrays) for request in requests]

    def composed(arrays: Sequence[Array]) -> Batch:
        batch: dict[Any, Array] = {}
        first = 0
        for compose, name, n_arrays in parts:
            if compose is None:
                batch[name] = arrays[first]
            else:
                batch.update(compose(name, arrays[first : first + n_arrays]))
            first += n_arrays
        return batch

    return composed


def bind_sequences(
    context_features: Features | None, sequence_features: Features | None
) -> tuple[_core.Schema, Schema, Schema]:
    """Return a core schema, and the schemas of the context and of the lists.

    The core schema's batches are (context, lists, list lengths) tuples. Only padded
    lists have lengths. The context and the lists may share names.
    """
    of_context, of_lists = _checked_sections(context_features, sequence_features)
    context_schema = Schema._of(of_context, frozenset())
    list_schema = Schema._of(of_lists, frozenset(of_lists))
    context = context_schema._requests()
    lists = [
        _list_request(name, spec, has_lengths=True)
        for name, spec in list_schema.items()
    ]
    compose_context, compose_lists = _composition(context), _composition(lists)
    n_of_context = sum(request.n_arrays for request in context)
    lengths_at: dict[Any, int] = {}
    first = n_of_context
    for request in lists:
        if isinstance(list_schema[request.name], FixedLenSequence):
            lengths_at[request.name] = first + 1
        first += request.n_arrays

    def composed(arrays: Sequence[Array]) -> tuple[Batch, Batch, Batch]:
        lengths = {name: arrays[at] for name, at in lengths_at.items()}
        in_context, in_lists = arrays[:n_of_context], arrays[n_of_context:]
        return compose_context(in_context), compose_lists(in_lists), lengths

    return _bound([*context, *lists], composed), context_schema, list_schema


_SECTIONS = {"context_features": False, "sequence_features": True}


def _check_list_spec(name: _Name, spec: Spec) -> None:
    kind, reason = type(spec).__name__, ""
    if isinstance(spec, (Image, Raw, SerializedTensor)):
        reason = item_fault(spec)
    elif not isinstance(spec, (FixedLenSequence, VarLen, Ragged, List)):
        reason = (
            "spec must be FixedLenSequence, VarLen, Ragged, Image, Raw, SerializedTensor "
            f"or List, got {kind}"
        )
    elif isinstance(spec, FixedLenSequence) and spec.default is not None:
        reason = "default must be None; feature lists are padded with zeros"
    if reason:
        raise SchemaError(f"sequence feature {name!r}: {reason}")


def _checked_sections(*sections: Features | None) -> list[Mapping[Any, Any]]:
    """Return both sections as mappings, with {} for None, or raise a SchemaError."""
    for argument, features in zip(_SECTIONS, sections, strict=True):
        if features is not None and not isinstance(features, Mapping):
            raise SchemaError(
                f"{argument} must be a dict from feature name to spec, "
                f"got {type(features).__name__}"
            )
    if not any(sections):
        raise SchemaError(
            "context_features and sequence_features must not both be empty"
        )
    return [features or {} for features in sections]


def schema_or_names(
    features: object,
    context_features: Features | None,
    sequence_features: Features | None,
) -> tuple[Schema | None, tuple[str | bytes, ...] | None]:
    """Return (schema, None) for specs, (None, names) for names, else (None, None)."""
    if context_features is None and sequence_features is None:
        return (None, None) if features is None else as_schema_or_names(features)
    if features is not None:
        raise SchemaError(
            "pass either features, or context_features and sequence_features"
        )
    context, lists = _checked_sections(context_features, sequence_features)
    for name in context:
        if name in lists:
            raise SchemaError(
                "context_features and sequence_features must not share names, got "
                f"{name!r} in both; rename one and pass key={name!r}"
            )
    features = {**context, **lists}
    return Schema._of(features, frozenset(lists)), None


def as_schema_or_names(
    features: object,
) -> tuple[Schema | None, tuple[str | bytes, ...] | None]:
    """Return (schema, None) for specs, or (None, names) for a list of names."""
    is_list = isinstance(features, Sequence) and not isinstance(features, (str, bytes))
    if not is_list:
        return as_schema(features), None
    names = checked_keys("features", features)
    if len(set(names)) < len(names):
        raise SchemaError(f"features must not have duplicates, got {list(names)!r}")
    return None, names


def expanded(names: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """Return `names`; a prefix of columns "prefix/..." becomes these columns, in order.

    A name that is a column stays, like a name that is neither.
    """
    known, found = dict.fromkeys(columns), dict[Any, None]()
    for name in names:
        below = [name]
        if isinstance(name, str) and name not in known:
            prefix = f"{name}/"
            below = [c for c in known if isinstance(c, str) and c.startswith(prefix)]
        found |= dict.fromkeys(below or [name])
    return list(found)


def as_schema(features: object) -> Schema:
    """Return `features` as a nonempty Schema, or raise a SchemaError."""
    schema = features if isinstance(features, Schema) else Schema(_checked(features))
    if not schema:
        raise SchemaError("features must not be empty; omit it to read all features")
    return schema


def check_columns(first: Mapping[Any, str], other: Mapping[Any, str]) -> None:
    """Raise a SchemaError if two datasets differ in column names or row types."""
    differences = [
        f"{name!r} is {first.get(name, 'missing')} in one and "
        f"{other.get(name, 'missing')} in another"
        for name in dict.fromkeys([*first, *other])
        if first.get(name) != other.get(name)
    ]
    if differences:
        raise SchemaError(
            "joined datasets must have equal columns: "
            + "; ".join(differences)
            + ". Choose columns with features=, or convert them with with_transform()"
        )


def _checked(features: object) -> dict[str | bytes, Spec]:
    if not isinstance(features, Mapping):
        raise SchemaError(
            "features must be a dict from feature name to spec, such as "
            f'{{"label": fr.FixedLen((), "int64")}}, got {type(features).__name__}'
        )
    for name in features:
        if not isinstance(name, (str, bytes)):
            raise SchemaError(f"feature names must be str or bytes, got {name!r}")
    specs = {name: as_spec(name, spec) for name, spec in features.items()}
    seen: set[str | bytes] = set()
    for name in _column_names(specs):
        if name in seen:
            raise SchemaError(f"column names must be unique, got {name!r} twice")
        seen.add(name)
    return specs


def _column_names(features: Mapping[str | bytes, Spec]) -> list[str | bytes]:
    return [column for name, spec in features.items() for column in spec._names(name)]


# tf.io specs and dtype names. Classes are recognized by name, without an import of
# TensorFlow.

# The tfrecord package's dtype names. NumPy's "byte" and "float" mean other dtypes.
_TFRECORD_DTYPES = {"byte": "bytes", "int": "int64", "float": "float32"}

# Name of a tf.io class -> spec class, and attributes to pass as arguments.
_OF_TF: dict[str, tuple[Any, list[str]]] = {
    "FixedLenFeature": (FixedLen, ["shape", "dtype", "default_value"]),
    "FixedLenSequenceFeature": (
        FixedLenSequence,
        ["shape", "dtype", "default_value", "allow_missing"],
    ),
    "VarLenFeature": (VarLen, ["dtype"]),
    "RaggedFeature": (Ragged, ["dtype", "partitions", "row_splits_dtype"]),
    "SparseFeature": (
        Sparse,
        ["index_key", "value_key", "dtype", "size", "already_sorted"],
    ),
}


def as_spec(name: str | bytes, feature: object) -> Spec:
    """Convert a tf.io spec or a dtype name to a Spec; return a Spec unchanged."""
    if isinstance(feature, Spec):
        return feature
    kind = type(feature).__name__
    try:
        if isinstance(feature, str):
            return FixedLen((), _TFRECORD_DTYPES.get(feature, feature))
        if kind in _OF_TF:
            of_tf: Any = feature
            cls, names = _OF_TF[kind]
            values = [_argument(getattr(of_tf, each)) for each in names]
            key = {"key": of_tf.value_key} if cls is Ragged else {}
            spec: Spec = cls(*values, **key)
            return spec
    except SchemaError as error:
        reason = f"feature {name!r}: {error.reason}"
        raise SchemaError(reason, code=error.code) from None
    except AttributeError:
        pass  # an unrelated class with the same name
    if kind == "Feature" and "dali" in type(feature).__module__:
        raise SchemaError(
            f"feature {name!r}: cannot read the fields of DALI's Feature; import "
            "fastrec.compat.dali_tfrecord as tfrec and use its Feature"
        )
    raise SchemaError(
        f"feature {name!r} must be a spec such as fr.FixedLen or fr.VarLen, a tf.io "
        f'spec, or a dtype name such as "int64", got {feature!r}'
    )


def _argument(value: Any) -> Any:
    """Convert a TensorFlow shape, tensor, dtype or partition to a spec's argument."""
    kind = type(value).__name__
    if kind == "UniformRowLength":
        return Ragged.UniformRowLength(value.length)
    partition = getattr(Ragged, kind, None)
    if isinstance(partition, type) and issubclass(partition, Keyed):
        return partition(value.key)  # of TensorFlow, a named tuple
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    if hasattr(value, "as_list"):
        return value.as_list()
    if hasattr(value, "numpy"):
        return value.numpy()
    name = getattr(value, "name", None)
    is_dtype = isinstance(name, str) and not isinstance(value, np.dtype)
    return name if is_dtype else value
