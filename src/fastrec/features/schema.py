"""Schemas: the features to read, in the order of the columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from fastrec import _core
from fastrec.arrays.batch import Array, Batch
from fastrec.display import as_text, table
from fastrec.errors import SchemaError
from fastrec.features.base import Column, RowRule, Spec, checked_keys
from fastrec.features.encoded import encoded_of
from fastrec.features.padded import FixedLenSequence
from fastrec.features.tf_specs import as_spec

# Mappings are invariant in their keys, so each key type is listed. Values are specs,
# specs of tf.io, or dtype names.
Features: TypeAlias = (
    "Mapping[str, Any] | Mapping[bytes, Any] | Mapping[str | bytes, Any]"
)


class ArrowOptions(TypedDict):
    """Arguments of `fastrec.arrow.RecordBatchReader`."""

    text: list[str]
    optional: list[str]


class Note(str):
    """A comment on an inferred column, with the options of a table that fit its values."""

    options: tuple[str, ...] = ()


class Schema(Mapping["str | bytes", Spec]):
    """The specs of the columns to read: an immutable mapping from name to spec.

    Its `repr` is a dict to paste into a program, with comments on inferred features.

    Parameters
    ----------
    features : mapping of str or bytes to specs
        The specs by column name, in the order of the columns.
    notes : mapping of str or bytes to str, optional
        Comments in the repr, for columns or for features that are not read.
    source : str, optional
        The origin of the features, for the repr and for errors.
    class_names : mapping of str or bytes to sequence of str, optional
        The names of the classes 0, 1, ... in columns of class labels.

    Attributes
    ----------
    class_names : dict of str or bytes to tuple of str
        Those of the columns in this schema. `fastrec.open_tfds` finds them.

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
            self._check_spec(name, spec)
        self._notes = dict(notes or {})
        self._source = source
        self.class_names: dict[Any, tuple[str, ...]] = {
            name: tuple(names)
            for name, names in (class_names or {}).items()
            if name in self._features
        }
        self._bound: _core.Schema | None = None

    def _check_spec(self, name: str | bytes, spec: Spec) -> None:
        if isinstance(spec, FixedLenSequence) and not spec.allow_missing:
            raise SchemaError(
                f"feature {name!r}: allow_missing must be True; False is for feature "
                "lists of a SequenceExample"
            )

    def __getitem__(self, name: str | bytes) -> Spec:
        return self._features[name]

    def __iter__(self) -> Iterator[str | bytes]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    @property
    def sections(self) -> dict[str, dict[str | bytes, Spec]]:
        """The specs by the argument of `fastrec.open` that has them."""
        return {"features": dict(self)}

    @property
    def arrow_options(self) -> ArrowOptions:
        """Arguments of `fastrec.arrow.RecordBatchReader` for inferred columns.

        ``text`` are the columns of UTF-8 text, and ``optional`` those with at most one
        value in each record, as far as the sample of the inferred schema says.
        """
        return {"text": self._noted("text"), "optional": self._noted("optional")}

    def _noted(self, option: str) -> list[str]:
        return [
            name
            for name, note in self._notes.items()
            if isinstance(name, str) and name in self
            if isinstance(note, Note) and option in note.options
        ]

    def __repr__(self) -> str:
        return "\n".join(
            [self._head(), *self._lines(self, 4), *self._unread_lines(), "}"]
        )

    def _repr_html_(self) -> str:
        """Return the specs as a table, for notebooks."""
        rows = [
            [as_text(name), self[name]._text("fr."), self._notes.get(name, "")]
            for name in self
        ]
        rows += [
            [as_text(name), "not read", note]
            for name, note in self._notes.items()
            if name not in self
        ]
        title = f"Schema, {self._source}" if self._source else "Schema"
        return table(["column", "spec", "found"], rows, title=title)

    def _head(self) -> str:
        return "{" + (f"  # {self._source}" if self._source else "")

    def _lines(self, names: Iterable[str | bytes], indent: int) -> list[str]:
        """Return the repr's lines for some features."""
        entries = [
            (" " * indent + f"{name!r}: {self[name]._text('fr.')},", name)
            for name in names
        ]
        width = max((len(entry) for entry, _ in entries), default=0)
        return [
            f"{entry:<{width}}  # {self._notes[name]}" if name in self._notes else entry
            for entry, name in entries
        ]

    def _unread_lines(self) -> list[str]:
        """Return the repr's comments on features that are not read."""
        return [
            f"    # {name!r}: {note}"
            for name, note in self._notes.items()
            if name not in self
        ]

    def _core_specs(self) -> Mapping[str | bytes, Spec]:
        """Return the specs that request columns from the core."""
        return self._features

    def _chosen(self, names: Sequence[str | bytes]) -> Schema:
        """Return a schema of some of the features."""
        return self._with({name: self[name] for name in names})

    def _with(self, features: Mapping[str | bytes, Spec]) -> Schema:
        """Return a schema of some of the features, with other specs."""
        return Schema(
            features,
            notes=self._notes_on(features),
            source=self._source,
            class_names=self.class_names,
        )

    def _notes_on(self, names: Iterable[str | bytes]) -> dict[str | bytes, str]:
        return {name: self._notes[name] for name in names if name in self._notes}

    @functools.cached_property
    def _has_encoded(self) -> bool:
        return bool(encoded_of(self))

    def _columns(self) -> list[Column]:
        specs = self._core_specs()
        return [column for name in specs for column in specs[name]._columns(name)]

    def _row_type(self, name: str | bytes) -> str:
        return self._core_specs()[name]._row_type()

    def _column_names(self) -> list[str | bytes]:
        """Return the names of the columns of a batch."""
        return _column_names(self._features)

    def _bind(self) -> _core.Schema:
        """Return the core's schema; create it on the first call."""
        if self._bound is None:
            columns, rules = requested(self._core_specs().items())
            self._bound = _core.Schema(
                columns, rules, self._composition(), self._source
            )
        return self._bound

    def _composition(self) -> Callable[[Sequence[Array]], Any] | None:
        """Return a function from the core's arrays to a batch, or None."""
        specs = self._core_specs()
        is_plain = all(spec._is_plain for spec in specs.values())
        return None if is_plain else Composition(specs)

    def __reduce__(self) -> tuple[object, ...]:
        make = functools.partial(
            Schema,
            notes=self._notes,
            source=self._source,
            class_names=self.class_names,
        )
        return make, (self._features,)


def requested(
    specs: Iterable[tuple[str | bytes, Spec]],
) -> tuple[list[Column], list[RowRule]]:
    """Return the columns and row rules that specs request from the core."""
    columns: list[Column] = []
    rules: list[RowRule] = []
    for name, spec in specs:
        rules += spec._rules(len(columns))
        columns += spec._columns(name)
    return columns, rules


class Composition:
    """Composes the columns of a batch from the core's arrays."""

    def __init__(self, specs: Mapping[str | bytes, Spec]) -> None:
        self._specs = [
            (spec._compose if not spec._is_plain else None, name, n_arrays(spec, name))
            for name, spec in specs.items()
        ]

    def __call__(self, arrays: Sequence[Array]) -> Batch:
        """Return the batch."""
        batch: dict[Any, Array] = {}
        first = 0
        for compose, name, n_arrays in self._specs:
            if compose is None:
                batch[name] = arrays[first]
            else:
                batch.update(compose(name, arrays[first : first + n_arrays]))
            first += n_arrays
        return batch


def n_arrays(spec: Spec, name: str | bytes) -> int:
    """Return the number of arrays that the core returns for a spec."""
    columns = [column for column in spec._columns(name) if column.slot == 0]
    return len(columns) + sum(column.has_lengths for column in columns)


def as_schema_or_names(
    features: object,
) -> tuple[Schema | None, tuple[str | bytes, ...] | None]:
    """Return `features` as a Schema, or as names of features to infer."""
    is_list = isinstance(features, Sequence) and not isinstance(features, (str, bytes))
    if not is_list:
        return as_schema(features), None
    names = checked_keys("features", features)
    if len(set(names)) < len(names):
        raise SchemaError(f"features must not have duplicates, got {list(names)!r}")
    return None, names


def as_schema(features: object) -> Schema:
    """Return `features` as a Schema, or raise a SchemaError if it is empty."""
    schema = features if isinstance(features, Schema) else Schema(_checked(features))
    if not schema:
        raise SchemaError("features must not be empty; omit it to read all features")
    return schema


def check_columns(first: Mapping[Any, str], other: Mapping[Any, str]) -> None:
    """Raise a SchemaError that lists the columns whose row types differ."""
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
