"""Source: the loader that an adapter reads, of a Dataset with options or of a Loader."""

from __future__ import annotations

from typing import Any

import torch.distributed

from fastrec.dataset.dataset import Dataset
from fastrec.loader.loader import Loader
from fastrec.options import check_instance
from fastrec.torch.ranks import rank_options

__all__ = ["loader_of"]


def loader_of(
    taker: str,
    source: Dataset | Loader,
    options: dict[str, Any],
    process_group: torch.distributed.ProcessGroup | None,
    example: str,
) -> Loader:
    """Return `source` if it is a Loader, else the loader of a Dataset.

    A Dataset gets rank and world size from `process_group`, unless `options` have them.

    Raises
    ------
    TypeError
        If `source` is neither, or is a Loader and there are options. The message quotes
        `taker`, the name of the adapter, and `example`.
    """
    if isinstance(source, Loader):
        if options:
            msg = (
                "a loader is given as it is: its options are those it was made with, "
                f"but {taker} got {', '.join(options)}"
            )
            raise TypeError(msg)
        return source
    check_instance(taker, source, Dataset, f"or a Loader, {example}")
    if not options:
        msg = f"{taker} needs loader options for a Dataset, or a Loader, {example}"
        raise TypeError(msg)
    if not {"rank", "world_size"} & options.keys():
        options = options | rank_options(process_group)
    return source.loader(**options)
