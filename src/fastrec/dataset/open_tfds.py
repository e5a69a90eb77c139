"""Open directories that tensorflow-datasets (TFDS) wrote."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Literal

from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_files
from fastrec.errors import SchemaError
from fastrec.features.image import Image
from fastrec.features.schema import Features, Schema, as_schema_or_names, expanded
from fastrec.hints import checked_names, no_column
from fastrec.on_error import ErrorPolicy
from fastrec.options import Limits
from fastrec.storage.stores import StorageOptions
from fastrec.tfds.columns import schema_of
from fastrec.tfds.directory import TfdsDirectory
from fastrec.tfds.split_slices import Piece, pieces_of


@checked_names
def open_tfds(
    directory: str | os.PathLike[str],
    split: str | None = None,
    *,
    features: Features | Sequence[str] | None = None,
    images: Mapping[str, Image] | None = None,
    on_error: ErrorPolicy = "raise",
    io: Literal["auto", "mmap", "pread"] = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    storage_options: StorageOptions | None = None,
) -> Dataset:
    """Open a dataset that tensorflow-datasets (TFDS) wrote, such as an RLDS dataset.

    Reads ``dataset_info.json`` and ``features.json``, so the columns have the shapes and
    dtypes that TFDS returns. The keys of nested dicts are joined by "/". Sequences and
    the steps of an episode become a `RaggedArray`, one row per record. TFDS and
    TensorFlow are not required.

    Parameters
    ----------
    directory : path-like
        The directory of a dataset version, or a parent directory with only one version
        of one config; not the name of a dataset. It may be a URL; see `fastrec.open`.
    split : str, optional
        Same as in ``tfds.load``: ``"train"``, ``"train[:80%]"``, ``"train[100:200]"``,
        ``"train[1shard]"``, ``"train+test"`` or ``"all"``. By default the only split.
    features : list of str, or mapping of str to specs, optional
        A list names the columns to read; the name of a dict selects all columns in it.
        A mapping has specs of the stored features instead; see `fastrec.open`.
    images : mapping of str to Image, optional
        Specs that decode image columns. By default, images of a fixed size are decoded;
        other image columns contain the encoded files as bytes.
    on_error, io, cache_dir, cache_bytes, index_dir, limits, storage_options
        See `fastrec.open`.

    Returns
    -------
    Dataset
        ``ds.schema.class_names`` has the names of class labels.

    Raises
    ------
    OSError
        If the directory or a shard does not exist.
    ValueError
        If `split` is invalid or selects no records, or the files are not TFRecords.
    SchemaError
        If a column cannot be read, or `features` or `images` are invalid.
    CorruptionError
        If the record count of a file differs from ``dataset_info.json``. Raised when an
        epoch ends, or when the records of the file are first numbered.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open_tfds(
    ...     "tensorflow_datasets/mnist/3.0.1", "train[:80%]"
    ... )  # doctest: +SKIP
    >>> for batch in ds.loader(256, shuffle=True):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """
    found = TfdsDirectory.read(directory, storage_options)
    if split is None:
        if len(found.lengths) > 1:
            names = ", ".join(map(repr, found.lengths))
            raise ValueError(f"open_tfds() requires split=; the dataset has {names}")
        (split,) = found.lengths
    pieces = pieces_of(split, found.lengths)
    schema = _schema(found, features, images or {})
    dataset = open_files(
        found.shards((piece.split, piece.shard) for piece in pieces),
        features=schema,
        on_error=on_error,
        io=io,
        compression=None,  # TFDS never compresses
        cache_dir=cache_dir,
        cache_bytes=cache_bytes,
        index_dir=index_dir,
        limits=limits,
        storage_options=storage_options,
    )
    return _selected(dataset, found, pieces)


def _selected(
    dataset: Dataset, found: TfdsDirectory, pieces: Sequence[Piece]
) -> Dataset:
    """Return a view of the records in `pieces`; `dataset` has one file per piece."""
    lengths = tuple(found.lengths[piece.split][piece.shard] for piece in pieces)
    source = dataset._source.changed(
        lambda reading: dataclasses.replace(reading, record_counts=lengths)
    )
    if all(p.end - p.begin == n for p, n in zip(pieces, lengths, strict=True)):
        return Dataset(source)
    if source.files.on_error != "raise":
        source.check_counts(allows_gaps=False)  # gaps would change record numbers
    begins = itertools.accumulate(lengths, initial=0)
    ranges = tuple(
        range(first + piece.begin, first + piece.end)
        for first, piece in zip(begins, pieces, strict=False)
    )
    return Dataset(dataclasses.replace(source, pieces=ranges))


def _schema(
    found: TfdsDirectory,
    features: Features | Sequence[str] | None,
    images: Mapping[str, Image],
) -> Schema:
    schema, names = (None, None) if features is None else as_schema_or_names(features)
    if schema is not None:
        if images:
            raise SchemaError("pass either images=, or all specs with features=")
        return schema
    columns = found.columns()
    chosen = expanded(columns if names is None else names, columns)
    if missing := [name for name in chosen if name not in columns]:
        raise SchemaError(no_column(missing[0], columns, "the dataset", "feature"))
    class_names = found.class_names(columns, chosen)
    return schema_of(columns, chosen, images, class_names, str(found))
