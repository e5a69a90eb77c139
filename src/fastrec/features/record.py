"""Record: whole serialized records as a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastrec.features.base import Column, Spec


@dataclass(frozen=True, init=False, repr=False)
class Record(Spec):
    """The whole serialized record.

    Read as a `BytesArray` of shape ``(batch,)``. Records need not be Examples: other
    protobuf messages, text, images. They are parsed only if the schema has other specs,
    too.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open(
    ...     "logs/events.*", features={"record": fr.Record()}
    ... )  # doctest: +SKIP
    >>> ds[0]["record"]  # doctest: +SKIP
    b'...'
    """

    _n_positional = 0

    def __init__(self) -> None:
        self._set(key=None)

    def _columns(self, name: str | bytes) -> list[Column]:
        dtype = np.dtype(np.uint8)
        return [Column(name, b"", "bytes", "record", dtype, (), repr(self))]
