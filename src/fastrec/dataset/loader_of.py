"""The loader that an adapter reads: the one it got, or one of the dataset it got."""

from __future__ import annotations

from typing import Any

from fastrec.dataset.dataset import Dataset
from fastrec.loader.loader import Loader
from fastrec.options import check_instance

__all__ = ["loader_of"]


def loader_of(
    taker: str,
    source: Dataset | Loader,
    options: dict[str, Any],
    place: tuple[int, int] | None,
) -> Loader:
    """Return `source` if it is a Loader, else the loader of a Dataset at rank `place`."""
    if isinstance(source, Loader):
        if options:
            msg = (
                f"{taker} got a Loader, which has its options already, and the options "
                f"{', '.join(options)}: pass them to Dataset.loader"
            )
            raise TypeError(msg)
        return source
    check_instance(taker, source, Dataset, "or a Loader")
    if place is not None and not {"rank", "world_size"} & options.keys():
        options = options | {"rank": place[0], "world_size": place[1]}
    return source.loader(**options)
