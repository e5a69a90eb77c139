"""Arrays for columns that NumPy has no type for, and operations on whole batches."""

from __future__ import annotations

from fastrec.arrays.bytes import BytesArray
from fastrec.arrays.ragged import RaggedArray
from fastrec.arrays.sparse import SparseArray

__all__ = ["BytesArray", "RaggedArray", "SparseArray"]
