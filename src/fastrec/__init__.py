"""fastrec: TFRecord files into training loops, without TensorFlow.

Two objects: a `Dataset` says what is read, a `Loader` says how.

>>> import fastrec as fr
>>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
>>> for batch in ds.loader(256):  # doctest: +SKIP
...     step(batch["image"], batch["label"])
"""

from __future__ import annotations

from fastrec._core import __version__
from fastrec.arrays import BytesArray, RaggedArray, concatenate, take
from fastrec.dataset import Dataset, open
from fastrec.errors import CorruptionError, DecodeError, Error, LimitError, SchemaError
from fastrec.features import FixedLen, Raw, VarLen
from fastrec.index import build_index
from fastrec.loader import Loader
from fastrec.mixture import concat, mix
from fastrec.order import Blocks, Window
from fastrec.sampling import buckets, weighted
from fastrec.schema import Schema
from fastrec.stage import BatchOrigin, per_row
from fastrec.writer import Writer, encode_example

__all__ = [
    "BatchOrigin",
    "Blocks",
    "BytesArray",
    "CorruptionError",
    "Dataset",
    "DecodeError",
    "Error",
    "FixedLen",
    "LimitError",
    "Loader",
    "RaggedArray",
    "Raw",
    "Schema",
    "SchemaError",
    "VarLen",
    "Window",
    "Writer",
    "__version__",
    "buckets",
    "build_index",
    "concat",
    "concatenate",
    "encode_example",
    "mix",
    "open",
    "per_row",
    "take",
    "weighted",
]
