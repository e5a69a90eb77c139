"""Array types for bytes, ragged and sparse columns, and operations on batches."""

from __future__ import annotations

from fastrec.arrays.bytes import BytesArray
from fastrec.arrays.ragged import RaggedArray
from fastrec.arrays.sparse import SparseArray

__all__ = ["BytesArray", "RaggedArray", "SparseArray"]
