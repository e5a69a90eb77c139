"""Helpers of adapters such as fastrec.jax: create a loader, and limit columns."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from fastrec.dataset.dataset import Dataset
from fastrec.features.infer import name_of
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderKeywords
from fastrec.loader.ranks import ALONE, RankFinder
from fastrec.options import check_instance


def loader_of(
    adapter: str,
    source: Dataset | Loader[Any],
    batch_size: int | None,
    options: LoaderKeywords,
    find_rank: RankFinder | None = None,
) -> Loader[Any]:
    """Return `source` if it is a Loader; otherwise create a loader of the Dataset.

    If `find_rank` is set, a Loader is copied, and the returned loader calls `find_rank`
    to get its rank at the start of each epoch. Error messages name `adapter`.
    """
    if isinstance(source, Loader):
        given = [*(["batch_size"] if batch_size is not None else []), *options]
        if given:
            raise TypeError(
                f"{adapter} accepts loader options only with a Dataset, got a Loader "
                f"and {', '.join(given)}: pass the options to ds.loader()"
            )
        loader = source if find_rank is None else copy.copy(source)
    else:
        check_instance(adapter, source, Dataset, "with loader options, or a Loader")
        keywords: dict[str, Any] = {**options}
        if find_rank is not None and not {"rank", "world_size"} & options.keys():
            keywords["rank"] = find_rank(ALONE)
        loader = source.loader(batch_size, **keywords)
    if find_rank is not None:
        loader._follow(find_rank)
    return loader


def has_functions(dataset: Dataset) -> bool:
    """Return whether a dataset has transforms; image decoding is not a transform."""
    return bool(dataset._transforms or dataset._source.transforms)


def reading_columns(dataset: Dataset, names: Collection[str]) -> Dataset:
    """Return a dataset of only the columns `names`, unless this may change its rows."""
    # Every query must skip the same rows, whatever columns it reads.
    if has_functions(dataset) or dataset.on_error != "raise":
        return dataset
    schema: Any = dataset.schema  # its names may be bytes
    features = [
        feature
        for feature, spec in schema.items()
        if any(name_of(column) in names for column in spec._names(feature))
    ]
    # Added columns, such as `__source__`, come with any feature: read at least one.
    return dataset.select_columns(features or list(schema)[:1])
