"""fastrec.torch: batches as tensors, and datasets for torch's DataLoader.

* `loader` returns a loader whose batches are tensors, on the CPU or on a device,
* `Dataset` is map-style: samplers choose its rows, which are read batch by batch,
* `IterableDataset` yields the batches of a loader, also in worker processes,
* `tensors` converts the columns of a batch to tensors that share the memory,
* `as_nested` and `as_ragged` convert a RaggedArray to a nested tensor, and back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from fastrec.hints import missing_attribute
from fastrec.options import extra

with extra("torch", "fastrec.torch"):
    import torch as _  # noqa: F401

from fastrec.torch.columns import Jagged, as_nested, as_ragged, tensors
from fastrec.torch.iterable import IterableDataset
from fastrec.torch.loading import loader
from fastrec.torch.map_style import Dataset, collate

__all__ = [
    "Dataset",
    "IterableDataset",
    "Jagged",
    "as_nested",
    "as_ragged",
    "collate",
    "loader",
    "tensors",
]

if not TYPE_CHECKING:  # type checkers would accept every name

    def __getattr__(name: str) -> NoReturn:
        raise missing_attribute(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return __all__
