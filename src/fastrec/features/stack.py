"""The spec of a column that several features make up, one value each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    Spec,
    checked_dtype,
    checked_keys,
    default_array,
    default_strings,
    frozen,
    kind_of,
    value_dtype,
)

__all__ = ["Stack"]


@dataclass(frozen=True, repr=False)
class Stack(Spec):
    """Many features of one value each, side by side in one column.

    Read as one array of shape ``(batch, len(keys))``, decoded straight into its place:
    an ndarray of `dtype`, or a `BytesArray` for ``"bytes"``.

    Parameters
    ----------
    keys : sequence of str or bytes
        The features, in the order of their values.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar or sequence of scalars, optional
        Stands in where a feature is missing: one value for all of them, or one for each.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, as `FixedLen` with ``shape=()`` does
        for the feature concerned.

    Examples
    --------
    >>> Stack(["height", "width"], "int32", default=0)
    Stack(('height', 'width'), 'int32', default=0)
    """

    keys: tuple[str | bytes, ...] = ()
    dtype: str = "float32"
    default: Any = None

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            keys: Sequence[str | bytes],
            dtype: npt.DTypeLike = "float32",
            default: object = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key is not None:
            msg = "a Stack has keys, and no key of its own"
            raise SchemaError(msg)
        self._set("keys", checked_keys("keys", self.keys))
        self._set("dtype", checked_dtype(self.dtype))
        self._set("default", frozen(self.default))
        self._defaults()

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        arguments = [repr(self.keys), repr(self.dtype)]
        if self.default is not None:
            arguments.append(f"default={self.default!r}")
        return arguments

    def _defaults(self) -> Sequence[bytes | list[bytes] | None]:
        """Return one default for each feature, as the core wants it."""
        n = len(self.keys)
        if self.default is None:
            return [None] * n
        default = (
            self.default if isinstance(self.default, tuple) else (self.default,) * n
        )
        if self.dtype == "bytes":
            return [[string] for string in default_strings(default, n)]
        values = default_array(default, value_dtype(self.dtype), (n,))
        return [value.tobytes() for value in values]

    def _columns(self, name: str | bytes) -> list[Column]:
        n = len(self.keys)
        return [
            Column(
                name,
                key.encode() if isinstance(key, str) else key,
                kind_of(self.dtype),
                "dense",
                value_dtype(self.dtype),
                (1,) if n == 1 else (),
                repr(self),
                default=default,
                slot=slot,
                n_slots=n,
            )
            for slot, (key, default) in enumerate(
                zip(self.keys, self._defaults(), strict=True)
            )
        ]

    def _described(self) -> str:
        return f"{self.dtype}[{len(self.keys)}]"
