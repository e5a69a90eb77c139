"""Schemas of tf.train.SequenceExample: context features and feature lists.

Context features are read like those of an Example. A feature list is read as one row of
steps: padded, or as a nested RaggedArray.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Array, Batch, RaggedArray
from fastrec.arrays.layout import offsets_from
from fastrec.errors import SchemaError
from fastrec.features.base import Column, ComposedColumns, RowRule, Spec
from fastrec.features.fixed import VarLen
from fastrec.features.image import Image
from fastrec.features.padded import FixedLenSequence
from fastrec.features.ragged import Ragged, as_splits
from fastrec.features.schema import (
    Composition,
    Features,
    Schema,
    as_schema_or_names,
    n_arrays,
    requested,
)


@dataclass(frozen=True)
class _SectionSpec(Spec):
    """A spec of an Example, applied to a section of a SequenceExample."""

    spec: Any

    @property
    def _is_plain(self) -> bool:
        return bool(self.spec._is_plain)

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        composed: ComposedColumns = self.spec._compose(name, arrays)
        return composed

    def _row_type(self) -> str:
        return f"list of {self.spec._row_type()}"


@dataclass(frozen=True)
class _RecordSpec(_SectionSpec):
    """The spec of a context feature."""

    def _columns(self, name: str | bytes) -> list[Column]:
        columns = self.spec._columns(name)
        return [column._replace(section="context") for column in columns]

    def _rules(self, first: int) -> list[RowRule]:
        rules: list[RowRule] = self.spec._rules(first)
        return rules

    def _row_type(self) -> str:
        return str(self.spec._row_type())


@dataclass(frozen=True)
class _PaddedListSpec(_SectionSpec):
    """The spec of a feature list whose steps have one shape."""

    has_lengths: bool

    def _columns(self, name: str | bytes) -> list[Column]:
        [column] = self.spec._columns(name)
        is_required = not self.spec.allow_missing
        changes = {"is_required": is_required, "has_lengths": self.has_lengths}
        return [column._replace(section="lists", **changes)]

    @property
    def _is_plain(self) -> bool:
        return not self.has_lengths


@dataclass(frozen=True)
class _RaggedListSpec(_SectionSpec):
    """The spec of a feature list whose steps have a variable number of values."""

    def _columns(self, name: str | bytes) -> list[Column]:
        # The column of each list is followed by a column of its step sizes.
        int64 = {"kind": "int64", "dtype": np.dtype(np.int64), "shape": ()}
        columns: list[Column] = []
        for column in self.spec._columns(name):
            values = column._replace(section="lists")
            columns += [values, values._replace(section="step_sizes", **int64)]
        return columns

    def _rules(self, first: int) -> list[RowRule]:
        def place(column: int) -> int:
            return first + 2 * (column - first)

        return [
            RowRule(
                place(rule.values),
                [(kind, place(at), length) for kind, at, length in rule.partitions],
            )
            for rule in self.spec._rules(first)
        ]

    @property
    def _is_plain(self) -> bool:
        return False

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        # Compose steps instead of records; then group the steps by record.
        steps = [_steps(*arrays[i : i + 2]) for i in range(0, len(arrays), 2)]
        inner: Any = steps[0]
        if isinstance(self.spec, Ragged):
            [(_, inner)] = self.spec._compose(name, steps)
        sizes = arrays[1]
        assert isinstance(sizes, RaggedArray)
        splits = as_splits(
            np.asarray(sizes.row_splits),
            getattr(self.spec, "row_splits_dtype", "int64"),
        )
        return [(name, RaggedArray._wrap(inner, splits))]


def _steps(values: Array, sizes: Array) -> RaggedArray:
    """Return all steps as rows of one RaggedArray."""
    assert isinstance(values, RaggedArray)
    assert isinstance(sizes, RaggedArray)
    return RaggedArray._wrap(values.values, offsets_from(np.asarray(sizes.values)))


class SequenceSchema(Schema):
    """The specs of context features and feature lists of SequenceExamples.

    As a mapping, it has the columns of both. Its `repr` shows the arguments of
    `fastrec.open`.
    """

    def __init__(
        self,
        features: Features,
        list_names: frozenset[str | bytes],
        *,
        notes: Mapping[str | bytes, str] | None = None,
        source: str = "",
    ) -> None:
        self._list_names = list_names
        super().__init__(features, notes=notes, source=source)

    @classmethod
    def of(
        cls, context_features: Features | None, sequence_features: Features | None
    ) -> SequenceSchema:
        """Return the schema of both sections, or raise a SchemaError."""
        context, lists = _checked_sections(context_features, sequence_features)
        for name in context:
            if name in lists:
                raise SchemaError(
                    "context_features and sequence_features must not share names, got "
                    f"{name!r} in both; rename one and pass key={name!r}"
                )
        return cls({**context, **lists}, frozenset(lists))

    def _check_spec(self, name: str | bytes, spec: Spec) -> None:
        if name not in self._list_names:
            super()._check_spec(name, spec)
            return
        reason = ""
        if isinstance(spec, FixedLenSequence):
            if spec.default is not None:
                reason = "default must be None; feature lists are padded with zeros"
        elif not isinstance(spec, (VarLen, Ragged)):
            reason = (
                "spec must be FixedLenSequence, VarLen or Ragged, got "
                f"{type(spec).__name__}"
            )
            if isinstance(spec, Image):
                reason += (
                    '; read the files with fr.FixedLenSequence((), "bytes"), and decode those '
                    "of a row in transform=fr.per_row(...)"
                )
        if reason:
            raise SchemaError(f"sequence feature {name!r}: {reason}")

    @property
    def sections(self) -> dict[str, dict[str | bytes, Spec]]:
        """The specs by the argument of `fastrec.open` that has them."""
        lists = self._list_names
        return {
            "context_features": {k: self[k] for k in self if k not in lists},
            "sequence_features": {k: self[k] for k in self if k in lists},
        }

    def __repr__(self) -> str:
        lines = [self._head()]
        for argument, names in self.sections.items():
            lines += [f'    "{argument}": {{', *self._lines(names, 8), "    },"]
        return "\n".join([*lines, *self._unread_lines(), "}"])

    def _core_specs(self) -> Mapping[str | bytes, Spec]:
        return {
            name: self._list_spec(spec)
            if name in self._list_names
            else _RecordSpec(spec)
            for name, spec in self.items()
        }

    def _list_spec(self, spec: Spec) -> Spec:
        if isinstance(spec, FixedLenSequence):
            return _PaddedListSpec(spec, has_lengths=not spec._is_plain)
        return _RaggedListSpec(spec)

    def _with(self, features: Mapping[str | bytes, Spec]) -> SequenceSchema:
        return type(self)(
            features,
            self._list_names.intersection(features),
            notes=self._notes_on(features),
            source=self._source,
        )

    def __reduce__(self) -> tuple[object, ...]:
        make = functools.partial(type(self), notes=self._notes, source=self._source)
        return make, (self._features, self._list_names)


class ParsedSequences:
    """A schema whose batches are (context, lists, lengths of the padded lists).

    The two sections may share names.
    """

    def __init__(
        self, context_features: Features | None, sequence_features: Features | None
    ) -> None:
        context, lists = _checked_sections(context_features, sequence_features)
        of_context = SequenceSchema(context, frozenset())._core_specs()
        of_lists: dict[str | bytes, Spec] = {
            name: _PaddedListSpec(spec.spec, has_lengths=True)
            if isinstance(spec, _PaddedListSpec)
            else spec
            for name, spec in SequenceSchema(lists, frozenset(lists))
            ._core_specs()
            .items()
        }
        specs = (*of_context.items(), *of_lists.items())
        compose = _section_composition(of_context, of_lists)
        self._bound = _core.Schema(*requested(specs), compose)

    def _bind(self) -> _core.Schema:
        return self._bound


def _section_composition(
    of_context: Mapping[str | bytes, Spec], of_lists: Mapping[str | bytes, Spec]
) -> Callable[[Sequence[Array]], Any]:
    """Return a function from the core's arrays to (context, lists, lengths)."""
    n_of_context = sum(n_arrays(spec, name) for name, spec in of_context.items())
    compose_context, compose_lists = Composition(of_context), Composition(of_lists)
    lengths_at: dict[str | bytes, int] = {}
    first = n_of_context
    for name, spec in of_lists.items():
        if isinstance(spec, _PaddedListSpec):
            lengths_at[name] = first + 1
        first += n_arrays(spec, name)

    def compose(arrays: Sequence[Array]) -> tuple[Batch, Batch, Batch]:
        lengths: dict[Any, Array] = {
            name: arrays[at] for name, at in lengths_at.items()
        }
        context = compose_context(arrays[:n_of_context])
        return context, compose_lists(arrays[n_of_context:]), lengths

    return compose


def _checked_sections(
    context_features: Features | None, sequence_features: Features | None
) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
    given: dict[str, object] = {
        "context_features": context_features,
        "sequence_features": sequence_features,
    }
    for argument, features in given.items():
        if features is not None and not isinstance(features, Mapping):
            raise SchemaError(
                f"{argument} must be a dict from feature name to spec, "
                f"got {type(features).__name__}"
            )
    context: Mapping[Any, Any] = context_features or {}
    lists: Mapping[Any, Any] = sequence_features or {}
    if not context and not lists:
        raise SchemaError(
            "context_features and sequence_features must not both be empty"
        )
    return context, lists


def schema_or_names(
    features: object,
    context_features: Features | None,
    sequence_features: Features | None,
) -> tuple[Schema | None, tuple[str | bytes, ...] | None]:
    """Return the caller's schema, or names of features to infer, or (None, None)."""
    if context_features is not None or sequence_features is not None:
        if features is not None:
            raise SchemaError(
                "pass either features, or context_features and sequence_features"
            )
        return SequenceSchema.of(context_features, sequence_features), None
    return (None, None) if features is None else as_schema_or_names(features)
