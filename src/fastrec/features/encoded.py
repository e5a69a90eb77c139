"""List: several byte strings per record, and the specs that Python code decodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fastrec.errors import SchemaError
from fastrec.features.base import Column, Spec, checked_count, checked_key
from fastrec.features.fixed import Raw
from fastrec.features.image import Image


@dataclass(frozen=True, init=False, repr=False)
class List(Spec):
    """A list of images, or of arrays stored as byte strings.

    Read as a `RaggedArray` of ``batch`` rows, whose ``values`` are those of all strings;
    with `length`, as an ndarray of shape ``(batch, length, *shape)``.

    Parameters
    ----------
    spec : Image or Raw
        How each byte string is read. The random crops of one record are equal.
    length : int, optional
        The number of byte strings in every record; by default any number.
    key : str or bytes, optional
        The feature's name, if it differs from the column's; by default that of `spec`.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record has another number of byte
        strings than `length`, or as for `spec`.

    Examples
    --------
    >>> List(Image((64, 64)), key="frames")
    List(Image((64, 64)), key='frames')
    """

    spec: Image | Raw
    length: int | None
    _n_positional = 1

    def __init__(
        self,
        spec: Image | Raw,
        length: int | None = None,
        *,
        key: str | bytes | None = None,
    ) -> None:
        given: object = spec
        if not isinstance(given, (Image, Raw)):
            raise SchemaError(f"spec must be an Image or Raw, got {spec!r}")
        if length is not None:
            length = checked_count("length", length)
        self._set(spec=spec, length=length)
        self._set(key=spec.key if key is None else checked_key(key))

    def _argument_text(self, value: object, module: str) -> str:
        if isinstance(value, Spec):
            return value._text(module)
        return super()._argument_text(value, module)

    def _columns(self, name: str | bytes) -> list[Column]:
        if self.length is None:
            return [self._strings(name, "ragged")]
        default = None if self.spec.default is None else [b""] * self.length
        column = self._strings(name)
        return [column._replace(shape=(self.length,), default=default)]

    def _row_type(self) -> str:
        length = "ragged" if self.length is None else self.length
        return f"{self.spec._row_type()} {length}"


# A byte string, or a list of them, that Python code decodes.
Encoded: TypeAlias = "Image | Raw | List"


def encoded_of(features: Mapping[str | bytes, Spec]) -> dict[str | bytes, Encoded]:
    """Return the columns whose byte strings Python code decodes."""
    return {
        name: spec
        for name, spec in features.items()
        if isinstance(spec, (Image, List))
        or (isinstance(spec, Raw) and spec.compression is not None)
    }
