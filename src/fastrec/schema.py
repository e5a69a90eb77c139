"""Schemas: the features of a data set that are read, in the order of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from fastrec import _core
from fastrec.errors import SchemaError
from fastrec.features import Column, FixedLen, Raw, Spec, VarLen

__all__ = ["Features", "Schema", "as_schema", "check_columns"]


# What callers may give: mappings are invariant in their keys, so each is named.
Features: TypeAlias = (
    "Mapping[str, Spec] | Mapping[bytes, Spec] | Mapping[str | bytes, Spec]"
)


class Schema(Mapping["str | bytes", Spec]):
    """Which features are read, and as which columns: an immutable, ordered mapping.

    Its `repr` is a dict to paste into a program. Where the schema was inferred, comments
    say what was seen.

    Parameters
    ----------
    features : mapping of str or bytes to FixedLen, VarLen or Raw
        Columns in the order in which batches have them.
    notes : mapping of str or bytes to str, optional
        What the repr says of a column.
    source : str, optional
        What the repr says of the whole.

    Raises
    ------
    SchemaError
        If `features` is something else; the message says what was found and where.
    """

    def __init__(
        self,
        features: Features,
        *,
        notes: Mapping[str | bytes, str] | None = None,
        source: str = "",
    ) -> None:
        self._features = _checked(features)
        self._notes = dict(notes or {})
        self._source = source

    def __getitem__(self, name: str | bytes) -> Spec:
        return self._features[name]

    def __iter__(self) -> Iterator[str | bytes]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __repr__(self) -> str:
        entries = [
            (f"    {name!r}: fr.{spec!r},", self._notes.get(name))
            for name, spec in self._features.items()
        ]
        width = max((len(entry) for entry, _ in entries), default=0)
        lines = [
            f"{entry:<{width}}  # {note}" if note else entry for entry, note in entries
        ]
        head = "{" + (f"  # {self._source}" if self._source else "")
        return "\n".join([head, *lines, "}"])

    def _columns(self) -> list[Column]:
        return [spec._column(name) for name, spec in self.items()]

    def _bind(self) -> _core.Schema:
        return _core.Schema(self._columns())


def as_schema(features: object) -> Schema:
    """Return `features` as a Schema that has at least one column.

    Raises
    ------
    SchemaError
        If that is not what it is.
    """
    schema = features if isinstance(features, Schema) else Schema(_checked(features))
    if not schema:
        msg = "features names no feature; leave it out to read all of them"
        raise SchemaError(msg)
    return schema


def check_columns(first: Mapping[Any, str], other: Mapping[Any, str]) -> None:
    """Raise a SchemaError that lists how columns differ, given what each of them is."""
    differences = [
        f"{name!r} is {first.get(name, 'missing')} in the first and "
        f"{other.get(name, 'missing')} in another"
        for name in dict.fromkeys([*first, *other])
        if first.get(name) != other.get(name)
    ]
    if differences:
        msg = (
            "datasets that are joined must have equal columns: "
            + "; ".join(differences)
            + ". Say what to read with features=, or make them equal with with_transform()"
        )
        raise SchemaError(msg)


def _checked(features: object) -> dict[str | bytes, Spec]:
    if not isinstance(features, Mapping):
        msg = (
            "features must be a dict from feature name to spec, such as "
            f'{{"label": fr.FixedLen((), "int64")}}, not {type(features).__name__}'
        )
        raise SchemaError(msg)
    for name, spec in features.items():
        if not isinstance(name, (str, bytes)):
            msg = f"a feature's name must be a str or bytes, not {name!r}"
            raise SchemaError(msg)
        if not isinstance(spec, (FixedLen, VarLen, Raw)):
            msg = (
                f"feature {name!r} must have a spec (fr.FixedLen, fr.VarLen or fr.Raw), "
                f"not {spec!r}"
            )
            raise SchemaError(msg)
    return dict(features)
