"""Schemas of tf.train.SequenceExample: a context, and lists of features.

The context is read as the features of an Example are. Each list is a row whose items are
its features, the steps: padded, or as rows of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastrec.arrays import Array, Batch, RaggedArray
from fastrec.errors import SchemaError
from fastrec.features import VarLen
from fastrec.offsets import offsets_from
from fastrec.padding import FixedLenSequence
from fastrec.ragged import Ragged
from fastrec.schema import (
    Composition,
    Features,
    Schema,
    as_schema_or_names,
    n_arrays,
)
from fastrec.spec import Column, ComposedColumns, RowRule, Spec

__all__ = ["ParsedSequences", "SequenceSchema", "schema_or_names"]


@dataclass(frozen=True)
class _OfRecord(Spec):
    """A feature of the context, which is about the record as a whole."""

    spec: Spec

    def _columns(self, name: str | bytes) -> list[Column]:
        columns = self.spec._columns(name)
        return [column._replace(section="context") for column in columns]

    def _rules(self, first: int) -> list[RowRule]:
        return self.spec._rules(first)

    @property
    def _is_plain(self) -> bool:
        return self.spec._is_plain

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        return self.spec._compose(name, arrays)

    def _described(self) -> str:
        return self.spec._described()


@dataclass(frozen=True)
class _Padded(Spec):
    """A list whose steps are items of one shape."""

    spec: FixedLenSequence
    has_lengths: bool

    def _columns(self, name: str | bytes) -> list[Column]:
        [column] = self.spec._columns(name)
        return [
            column._replace(
                section="lists",
                is_required=not self.spec.allow_missing,
                has_lengths=self.has_lengths,
            )
        ]

    @property
    def _is_plain(self) -> bool:
        return not self.has_lengths

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        return self.spec._compose(name, arrays)

    def _described(self) -> str:
        return f"list of {self.spec._described()}"


@dataclass(frozen=True)
class _Steps(Spec):
    """A list whose steps have any number of values."""

    spec: VarLen | Ragged

    def _columns(self, name: str | bytes) -> list[Column]:
        values = self.spec._columns(name)[0]._replace(section="lists")
        sizes = values._replace(
            section="step_sizes", kind="int64", dtype=np.dtype(np.int64), shape=()
        )
        return [values, sizes]

    @property
    def _is_plain(self) -> bool:
        return False

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        values, sizes = arrays
        assert isinstance(values, RaggedArray)
        assert isinstance(sizes, RaggedArray)
        dtype = getattr(self.spec, "row_splits_dtype", "int64")
        inner = offsets_from(np.asarray(sizes.values))
        steps = RaggedArray._wrap(values.values, _as_splits(inner, dtype))
        outer = np.asarray(sizes.row_splits)
        return [(name, RaggedArray._wrap(steps, _as_splits(outer, dtype)))]

    def _described(self) -> str:
        return f"list of {self.spec._described()}"


def _as_splits(splits: Any, dtype: str) -> Any:  # noqa: ANN401 (arrays of either dtype)
    """Return row splits in the dtype that is asked for, if it holds them."""
    fits = splits[-1] <= np.iinfo(dtype).max
    return splits.astype(dtype, copy=False) if fits else splits


class SequenceSchema(Schema):
    """What is read of SequenceExamples: columns of the context, and of feature lists.

    As a mapping, it has the columns of both. Its `repr` makes the arguments of
    `fastrec.open` again.
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
        """Return the schema of both parts.

        Raises
        ------
        SchemaError
            If they make no sense, name nothing, or have a name in common.
        """
        given: dict[str, object] = {
            "context_features": context_features,
            "sequence_features": sequence_features,
        }
        parts: list[Mapping[Any, Any]] = []
        for argument, features in given.items():
            if features is not None and not isinstance(features, Mapping):
                msg = (
                    f"{argument} must be a dict from feature name to spec, "
                    f"not {type(features).__name__}"
                )
                raise SchemaError(msg)
            parts.append(features or {})
        context, lists = parts
        if not context and not lists:
            msg = "context_features and sequence_features name no feature"
            raise SchemaError(msg)
        for name in context:
            if name in lists:
                msg = (
                    f"{name!r} is a name in both context_features and "
                    "sequence_features, but batches are one dict: read one of them "
                    f"under another name, with key={name!r}"
                )
                raise SchemaError(msg)
        return cls({**context, **lists}, frozenset(lists))

    def _check_spec(self, name: str | bytes, spec: Spec) -> None:
        if name not in self._list_names:
            super()._check_spec(name, spec)
            return
        reason = ""
        if isinstance(spec, FixedLenSequence):
            if spec.default is not None:
                reason = "a feature list has no default; it is padded with zeros"
        elif isinstance(spec, Ragged):
            if spec.partitions:
                reason = "partitions in feature lists are not read; give none"
        elif not isinstance(spec, VarLen):
            reason = (
                "feature lists are read with FixedLenSequence, VarLen or Ragged, "
                f"not {type(spec).__name__}"
            )
        if reason:
            msg = f"sequence feature {name!r}: {reason}"
            raise SchemaError(msg)

    def __repr__(self) -> str:
        lines = [self._head()]
        for argument, is_list in (
            ("context_features", False),
            ("sequence_features", True),
        ):
            names = [name for name in self if (name in self._list_names) == is_list]
            lines += [f'    "{argument}": {{', *self._lines(names, 8), "    },"]
        return "\n".join([*lines, *self._left_out(), "}"])

    def _asked(self) -> Mapping[str | bytes, Spec]:
        return {
            name: self._list_spec(spec) if name in self._list_names else _OfRecord(spec)
            for name, spec in self.items()
        }

    def _list_spec(self, spec: Spec) -> Spec:
        if isinstance(spec, FixedLenSequence):
            return _Padded(spec, has_lengths=not spec._is_plain)
        assert isinstance(spec, (VarLen, Ragged))
        return _Steps(spec)

    def _with(self, features: Mapping[str | bytes, Spec]) -> SequenceSchema:
        return type(self)(
            features,
            self._list_names.intersection(features),
            notes=self._notes_on(features),
            source=self._source,
        )

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self._features, self._list_names, self._notes, self._source)
        return _unpickled, (type(self), *parts)


def _unpickled(
    cls: type[SequenceSchema],
    features: Features,
    list_names: frozenset[str | bytes],
    notes: Mapping[str | bytes, str],
    source: str,
) -> SequenceSchema:
    return cls(features, list_names, notes=notes, source=source)


class ParsedSequences(SequenceSchema):
    """A schema whose batches are (context, lists, lengths of the padded lists)."""

    def _list_spec(self, spec: Spec) -> Spec:
        if isinstance(spec, FixedLenSequence):
            return _Padded(spec, has_lengths=True)
        return super()._list_spec(spec)

    def _composition(self) -> Callable[[Sequence[Array]], Any]:
        asked = self._asked()
        whole = Composition(asked)
        of_context = {
            column
            for name, spec in self.items()
            if name not in self._list_names
            for column in spec._names(name)
        }
        lengths_at: dict[str | bytes, int] = {}
        n_arrays_before = 0
        for name, spec in asked.items():
            if isinstance(spec, _Padded):
                lengths_at[name] = n_arrays_before + 1
            n_arrays_before += n_arrays(spec, name)

        def compose(arrays: Sequence[Array]) -> tuple[Batch, Batch, Batch]:
            columns: dict[Any, Array] = dict(whole(arrays))
            context = {
                name: columns.pop(name) for name in list(columns) if name in of_context
            }
            lengths: dict[Any, Array] = {
                name: arrays[at] for name, at in lengths_at.items()
            }
            return context, columns, lengths

        return compose


def schema_or_names(
    features: object,
    context_features: Features | None,
    sequence_features: Features | None,
) -> tuple[Schema | None, tuple[str | bytes, ...] | None]:
    """Return the schema that a caller gives, or names of features to infer.

    Neither, where nothing is given.

    Raises
    ------
    SchemaError
        If what is given makes no sense.
    """
    if context_features is not None or sequence_features is not None:
        if features is not None:
            msg = (
                "features are those of tf.train.Example: give either them, or "
                "context_features and sequence_features"
            )
            raise SchemaError(msg)
        return SequenceSchema.of(context_features, sequence_features), None
    return (None, None) if features is None else as_schema_or_names(features)
