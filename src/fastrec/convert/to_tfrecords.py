"""Sources -> TFRecord files."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from fastrec.convert.formats import open_source
from fastrec.convert.source import Source
from fastrec.features.base import Spec
from fastrec.features.fixed import Raw
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths
from fastrec.writer.writer import Writer


def write_tfrecords(
    source: Source | Paths,
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    **options: Any,
) -> list[str]:
    """Write a source to TFRecord files, one tf.train.Example per row.

    Parameters
    ----------
    source : Source, or path-like, or iterable of path-like
        A source returned by `open_source`, or its first argument.
    path : path-like
        The file or shard pattern, as for `fastrec.Writer`.
    progress : callable, optional
        Called after each batch with ``source.n_done`` and ``source.n_total``.
    **options
        Keyword arguments of `fastrec.Writer`: ``features=...``, ``overwrite=True``,
        ``max_shard_bytes="200MB"``, ``num_shards=8``, ``compression="GZIP"``, ...

    Returns
    -------
    list of str
        The paths of the files.

    Raises
    ------
    ValueError, fastrec.Error, ModuleNotFoundError, OSError
        As for `open_source`, ``Source.batches`` and `fastrec.Writer`. After an error,
        only complete files have their final names.

    Examples
    --------
    >>> from fastrec import convert
    >>> convert.write_tfrecords("pictures/", "train.tfrecord")  # doctest: +SKIP
    """
    if not isinstance(source, Source):
        source = open_source(source)
    features = {name: _optional(spec) for name, spec in source.features.items()}
    features |= options.pop("features", None) or {}
    with Writer(path, features=features or None, **options) as writer:
        for columns in source.batches():
            writer.write_batch(columns)
            if progress is not None:
                progress(source.n_done, source.n_total)
    return list(writer.files)


def _optional(spec: Spec) -> Spec:
    """Return a spec with a default, so that null rows may omit the feature."""
    if not isinstance(spec, Raw):
        return spec
    return dataclasses.replace(spec, default=np.zeros(spec.shape, spec.dtype))
