"""Read TFRecord files into training loops, without TensorFlow.

A `Dataset` selects records and features. A `Loader` delivers their values in batches.
`write` and `Writer` create TFRecord files.

>>> import fastrec as fr
>>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
>>> for batch in ds.loader(256):  # doctest: +SKIP
...     step(batch["image"], batch["label"])
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from fastrec._core import __version__
from fastrec.arrays.batch import (
    Batch,
    BytesArray,
    RaggedArray,
    SparseArray,
    concat_batches,
    take_rows,
)
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open, read_records
from fastrec.errors import CorruptionError, DecodeError, Error, LimitError, SchemaError
from fastrec.features.fixed import (
    FixedLen,
    FixedLenSequence,
    Raw,
    Record,
    Stack,
    VarLen,
)
from fastrec.features.image import Image, List
from fastrec.features.missing import MissingFeatureWarning
from fastrec.features.ragged import Ragged, Sparse
from fastrec.features.schema import Schema
from fastrec.features.tensor import SerializedTensor
from fastrec.hints import missing_attribute
from fastrec.loader.loader import Loader
from fastrec.loader.order import Blocks, Window
from fastrec.loader.stats import LoaderStats
from fastrec.on_error import Report
from fastrec.options import Limits
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.pack import pack_columns
from fastrec.transforms.per_row import per_row

if TYPE_CHECKING:
    from fastrec import arrow as arrow
    from fastrec import compat as compat
    from fastrec import convert as convert
    from fastrec import grain as grain
    from fastrec import jax as jax
    from fastrec import keras as keras
    from fastrec import polars as polars
    from fastrec import ray as ray
    from fastrec import samplers as samplers
    from fastrec import tf as tf
    from fastrec import torch as torch
    from fastrec.convert.write import write
    from fastrec.dataset.build_index import build_index
    from fastrec.dataset.mix import concat, mix
    from fastrec.dataset.open_tfds import open_tfds
    from fastrec.example.encode import (
        encode_example,
        encode_sequence_example,
    )
    from fastrec.example.parse import (
        decode_example,
        decode_sequence_example,
        parse_example,
        parse_sequence_example,
    )
    from fastrec.transforms.images import decode_image
    from fastrec.writer.writer import Writer

# Files and loaders.
__all__ = ["Blocks", "Dataset", "Limits", "Loader", "LoaderStats", "Window", "Writer"]
__all__ += ["__version__", "build_index", "concat", "mix", "open", "open_tfds", "write"]
# Features and single records.
__all__ += ["FixedLen", "FixedLenSequence", "Image", "List", "Ragged", "Raw", "Record"]
__all__ += ["Schema", "SerializedTensor", "Sparse", "Stack", "VarLen", "read_records"]
__all__ += ["decode_example", "encode_example", "parse_example"]
__all__ += ["decode_sequence_example", "encode_sequence_example"]
__all__ += ["decode_image", "parse_sequence_example"]
# Batches and transforms.
__all__ += ["Batch", "BatchInfo", "BytesArray", "RaggedArray", "SparseArray"]
__all__ += ["concat_batches", "pack_columns", "per_row", "take_rows"]
# Errors and reports.
__all__ += ["CorruptionError", "DecodeError", "Error", "LimitError", "SchemaError"]
__all__ += ["MissingFeatureWarning", "Report"]

# Imported on first access: adapters, which import their frameworks, and names that a
# training loop does not need.
_MODULES = ["arrow", "compat", "convert", "grain", "jax", "keras", "polars", "ray"]
_MODULES += ["samplers", "tf", "torch"]
_MODULE_OF = {
    "Writer": "writer.writer",
    "build_index": "dataset.build_index",
    "concat": "dataset.mix",
    "decode_example": "example.parse",
    "decode_image": "transforms.images",
    "decode_sequence_example": "example.parse",
    "encode_example": "example.encode",
    "encode_sequence_example": "example.encode",
    "mix": "dataset.mix",
    "open_tfds": "dataset.open_tfds",
    "parse_example": "example.parse",
    "parse_sequence_example": "example.parse",
    "write": "convert.write",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _MODULE_OF:
            module = importlib.import_module(f"fastrec.{_MODULE_OF[name]}")
            value = globals()[name] = getattr(module, name)
            return value
        if name not in _MODULES:
            raise missing_attribute(sys.modules[__name__], name)
        try:
            return importlib.import_module(f"fastrec.{name}")
        except ModuleNotFoundError as error:
            # hasattr(), help() and inspect.getmembers() expect only AttributeError.
            # ``import fastrec.torch`` raises the ModuleNotFoundError itself.
            raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
