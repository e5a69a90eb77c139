"""Schema cache: dicts of specs that are passed again and again -> schemas."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from fastrec.features.base import Spec

_MAX_ENTRIES = 64

T = TypeVar("T")


class SchemaCache(Generic[T]):
    """Creates a schema of dicts of specs once, until the contents of a dict change.

    ``create(*sections)`` returns the schema of one or more dicts, which may be None.
    Items are compared by identity: equal specs may differ, such as in the sign of a
    zero. Specs are immutable; other objects, such as those of tf.io, are also compared
    with a copy.
    """

    def __init__(self, create: Callable[..., T]) -> None:
        self._create = create
        self._entries: dict[tuple[int, ...], tuple[list[Any], T]] = {}

    def __call__(self, *sections: Any) -> T:
        """Return the schema of `sections`."""
        key = tuple(map(id, sections))
        entry = self._entries.get(key)
        if entry is not None and all(map(_is_equal, entry[0], sections)):
            return entry[1]
        schema = self._create(*sections)
        if all(section is None or type(section) is dict for section in sections):
            contents = list(map(_contents, sections))
            # Not equal: some value cannot be compared with a copy of itself.
            if all(map(_is_equal, contents, sections)):
                if len(self._entries) >= _MAX_ENTRIES:
                    self._entries.clear()
                self._entries[key] = contents, schema
        return schema


def _contents(section: Mapping[Any, Any] | None) -> Any:
    """Return the names, the specs, and the mutable specs with copies."""
    if section is None:
        return None
    mutable = [
        spec
        for spec in section.values()
        if not isinstance(spec, Spec) and type(spec) is not str
    ]
    return [*section], [*section.values()], [(s, copy.deepcopy(s)) for s in mutable]


def _is_equal(contents: Any, section: Mapping[Any, Any] | None) -> bool:
    """Return whether a dict has these contents."""
    if section is None or contents is None:
        return section is contents
    names, specs, copies = contents
    try:
        return (
            len(section) == len(names)
            and all(map(operator.is_, section, names))
            and all(map(operator.is_, section.values(), specs))
            and (not copies or all(value == copied for value, copied in copies))
        )
    except ValueError:  # values with arrays
        return False
