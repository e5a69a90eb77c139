"""Schemas: the features of a data set that are read, in the order of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastrec import _core
from fastrec.errors import SchemaError
from fastrec.features import Feature, FixedLen, Raw, VarLen

__all__ = ["Schema", "as_schema"]


class Schema(Mapping["str | bytes", Feature]):
    """Which features are read, and as which columns: an immutable, ordered mapping.

    Its `repr` is a dict to paste into a program. Where the schema was inferred, comments
    say what was seen.
    """

    def __init__(
        self,
        features: Mapping[str | bytes, Feature],
        *,
        notes: Mapping[str | bytes, str] | None = None,
        source: str = "",
    ) -> None:
        self._features = dict(features)
        self._notes = dict(notes or {})
        self._source = source

    def __getitem__(self, name: str | bytes) -> Feature:
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

    def _bind(self) -> _core.Schema:
        return _core.Schema([spec._column(name) for name, spec in self.items()])


def as_schema(features: object) -> Schema:
    """Return `features` as a Schema.

    Parameters
    ----------
    features : mapping of str or bytes to FixedLen, VarLen or Raw

    Raises
    ------
    SchemaError
        If it is something else; the message says what was found and where.
    """
    if isinstance(features, Schema):
        return features
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
    return Schema(features)
