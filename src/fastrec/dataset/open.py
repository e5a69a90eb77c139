"""Opening: files as a dataset, or as the bytes of their records."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from fastrec.arrays.batch import BytesArray
from fastrec.dataset.dataset import Dataset
from fastrec.errors import Error, advise_repair
from fastrec.features.base import Column, Spec
from fastrec.features.schema import Features
from fastrec.features.sequence_schema import schema_or_names
from fastrec.hints import checked_names
from fastrec.on_error import ErrorPolicy, check_on_error
from fastrec.options import (
    Limits,
    checked_limits,
    positive_int,
)
from fastrec.sources.file_set import File, FileOptions, FileSet
from fastrec.sources.source import Reading, Source
from fastrec.sources.view import View
from fastrec.storage.compression import Compression, check_compression
from fastrec.storage.paths import Paths, expand

__all__ = ["Serialized", "open", "read_records"]

_RECORDS_AT_ONCE = 64  # read together if the caller wants single records

_RECORD = "record"  # the column that read_records() reads


@checked_names
def open(
    paths: Paths,
    *,
    features: Features | Sequence[str] | None = None,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    on_error: ErrorPolicy = "raise",
    io: Literal["auto", "mmap", "pread"] = "auto",
    compression: Compression = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
) -> Dataset:
    """Open TFRecord files as a dataset.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        A file, a glob (its matches sorted by name), a directory (the TFRecord files in
        it, sorted by name), or a list of these, in the order given. Each may be a
        ``file://`` URL. A directory is refused if the names of its files differ by a
        split word: train, test, valid, validation, val, dev or eval.
    features : mapping of str to specs, or list of str, optional
        Which features to read, and as which columns; specs may also be those of tf.io, or
        names of dtypes such as ``"int64"`` for a scalar. Features of the files that are
        not named are skipped without being decoded. Specs for a list of names, and
        without it those of all features, are what the records show: see `Dataset.infer_schema`.
    context_features, sequence_features : mapping of str to specs, optional
        In place of `features`, for records that are tf.train.SequenceExample: what to
        read of their context, and of their feature lists, which take `FixedLenSequence`
        (padded to the longest list, a step being one item), `VarLen` and `Ragged` (a
        `RaggedArray` of steps of values). Batches have the columns of both.
    on_error : {"raise", "skip", "resync", "mask"}, default "raise"
        How damage is handled. ``"raise"`` delivers the records before it, and raises.
        ``"skip"`` skips records that cannot be read or do not fit their spec; if the
        framing of a file is broken, so that the next record cannot be found, it skips the
        rest of the file. ``"resync"`` does the same, but searches for the next record
        that both checksums prove; do not use it if records may contain TFRecords.
        ``"mask"`` is ``"skip"``, but a row that cannot be read is filled with zeros and
        empty values, and is False in an added bool column ``__valid__``. `Dataset.report`
        and `Loader.report` list what was skipped, and it is logged.
    io : {"auto", "mmap", "pread"}
        How files are read: through a memory mapping, or in blocks. ``"auto"`` maps local
        files and reads those of network file systems in blocks. The results are the same.
    compression : {"auto", None, "GZIP", "ZLIB"}
        ``"auto"`` detects GZIP and ZLIB by the first bytes of each file, whatever its
        name. With None no file is compressed, with ``"GZIP"`` or ``"ZLIB"`` all are.
    cache_dir : path-like, optional
        Where compressed files are expanded, each once, when they are first needed. Then
        everything works as on plain files. A file that has changed is expanded again, and
        its earlier expansion is deleted; nothing else there is.
    index_dir : path-like, optional
        Where indexes are kept; by default in the user's cache.
    limits : Limits, optional
        What records may cost, for files from untrusted sources.

    Raises
    ------
    OSError
        If a path does not exist, or names no files.
    ValueError
        If an option is invalid, a path is a remote URL, or a directory mixes splits.
    SchemaError
        If the features are invalid.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
    >>> for batch in ds.loader(256):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """
    if io not in ("auto", "mmap", "pread"):
        msg = f"io must be 'auto', 'mmap' or 'pread', got {io!r}"
        raise ValueError(msg)
    check_compression(compression)
    options = FileOptions(
        io,
        compression,
        None if cache_dir is None else os.path.abspath(os.fspath(cache_dir)),  # noqa: PTH100
        None if index_dir is None else os.fspath(index_dir),
    )
    policy, checked = check_on_error(on_error), checked_limits(limits)
    names = expand(paths, joins=True)
    files = FileSet([File(name, options) for name in names], policy, checked)
    schema, wanted = schema_or_names(features, context_features, sequence_features)
    return Dataset(View(Source(files, [Reading(len(files), schema, wanted)])))


@dataclass(frozen=True, repr=False)
class Serialized(Spec):
    """The serialized record itself."""

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        return []

    def _columns(self, name: str | bytes) -> list[Column]:
        dtype = np.dtype(np.uint8)
        return [Column(name, b"", "bytes", "record", dtype, (), repr(self))]


@overload
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: None = None,
    num_threads: int | None = None,
) -> Iterator[bytes]: ...
@overload
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: int,
    num_threads: int | None = None,
) -> Iterator[BytesArray]: ...
@checked_names
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: int | None = None,
    num_threads: int | None = None,
) -> Iterator[bytes] | Iterator[BytesArray]:
    """Read the records of files in sequence, as bytes.

    Both checksums of every record are verified. No index is needed, so the first records
    come at once.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        As for `fastrec.open`.
    compression : {"auto", None, "GZIP", "ZLIB"}
        As for `fastrec.open`.
    batch_size : int, optional
        Yield a `BytesArray` of this many records at a time; the last may have fewer.
    num_threads : int, optional
        Native threads that read ahead; 0 reads inside ``next()``. By default as
        `Dataset.loader` has it.

    Yields
    ------
    bytes, or BytesArray

    Raises
    ------
    CorruptionError
        At a damaged record, after all records before it; nothing is skipped.
    """
    dataset = open(paths, features={_RECORD: Serialized()}, compression=compression)
    if batch_size is not None:
        batch_size = positive_int("batch_size", batch_size)
        return _batches(dataset, batch_size, num_threads)
    return itertools.chain.from_iterable(
        _batches(dataset, _RECORDS_AT_ONCE, num_threads)
    )


def _batches(
    dataset: Dataset, batch_size: int, num_threads: int | None
) -> Iterator[BytesArray]:
    few: list[bytes] = []  # the last records, and the good ones before damage
    damage: Error | None = None
    try:
        for batch in dataset._batches_until_damage(batch_size, num_threads):
            records: Any = batch[_RECORD]
            if len(records) == batch_size:
                yield records
            else:
                few.extend(records)
    except Error as error:
        damage = error
    if few:
        yield BytesArray.from_list(few)
    if damage is not None:
        advise_repair(damage)  # read_records() has no on_error=
        raise damage
