"""fastrec: TFRecord files into training loops, without TensorFlow.

Two objects: a `Dataset` says what is read, a `Loader` says how. `write` and `Writer` make
such files.

>>> import fastrec as fr
>>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
>>> for batch in ds.loader(256):  # doctest: +SKIP
...     step(batch["image"], batch["label"])
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from fastrec._core import __version__
from fastrec.arrays.batch import BytesArray, RaggedArray, SparseArray, concatenate, take
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.mix import concat, mix
from fastrec.dataset.open import infer_schema, open, read_records
from fastrec.errors import CorruptionError, DecodeError, Error, LimitError, SchemaError
from fastrec.example.encode import (
    encode_example,
    encode_sequence_example,
    masked_crc32c,
)
from fastrec.example.parse import (
    decode_example,
    decode_raw,
    decode_sequence_example,
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
    parse_tensor,
)
from fastrec.features.fixed import FixedLen, Raw, VarLen
from fastrec.features.missing import MissingFeatureWarning
from fastrec.features.padded import FixedLenSequence
from fastrec.features.ragged import Ragged
from fastrec.features.schema import Schema
from fastrec.features.sparse import Sparse
from fastrec.features.stack import Stack
from fastrec.features.tensor import TensorProto, serialize_tensor
from fastrec.limits import Limits
from fastrec.loader.loader import Loader
from fastrec.loader.order import Blocks, Window
from fastrec.loader.samplers import buckets, weighted
from fastrec.loader.stats import LoaderStats
from fastrec.on_error import Region, Report
from fastrec.storage.index import build_index
from fastrec.transforms.batch_info import BatchOrigin
from fastrec.transforms.per_row import per_row
from fastrec.writer.write import write
from fastrec.writer.writer import Writer

__all__ = [
    "BatchOrigin",
    "Blocks",
    "BytesArray",
    "CorruptionError",
    "Dataset",
    "DecodeError",
    "Error",
    "FixedLen",
    "FixedLenSequence",
    "LimitError",
    "Limits",
    "Loader",
    "LoaderStats",
    "MissingFeatureWarning",
    "Ragged",
    "RaggedArray",
    "Raw",
    "Region",
    "Report",
    "Schema",
    "SchemaError",
    "Sparse",
    "SparseArray",
    "Stack",
    "TensorProto",
    "VarLen",
    "Window",
    "Writer",
    "__version__",
    "buckets",
    "build_index",
    "concat",
    "concatenate",
    "decode_example",
    "decode_raw",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "infer_schema",
    "masked_crc32c",
    "mix",
    "open",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "per_row",
    "read_records",
    "serialize_tensor",
    "take",
    "weighted",
    "write",
]

# Imported on first access. An adapter imports its framework.
_SUBMODULES = (
    "arrow",
    "compat",
    "convert",
    "grain",
    "jax",
    "keras",
    "polars",
    "tf",
    "torch",
)

if TYPE_CHECKING:
    from fastrec import arrow as arrow
    from fastrec import compat as compat
    from fastrec import convert as convert
    from fastrec import grain as grain
    from fastrec import jax as jax
    from fastrec import keras as keras
    from fastrec import polars as polars
    from fastrec import tf as tf
    from fastrec import torch as torch
else:

    def __getattr__(name: str) -> ModuleType:
        if name not in _SUBMODULES:
            msg = f"module 'fastrec' has no attribute {name!r}"
            raise AttributeError(msg)
        try:
            return importlib.import_module(f"fastrec.{name}")
        except ModuleNotFoundError as error:
            # For hasattr(), help() and inspect.getmembers(), which only expect this type.
            # ``import fastrec.torch`` raises the ModuleNotFoundError itself.
            raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])
