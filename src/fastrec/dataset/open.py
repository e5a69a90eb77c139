"""Opening: files -> a dataset, or their records as they are; what the records hold."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np

from fastrec.arrays.batch import Batch, BytesArray
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.indexing import batches_until_damage
from fastrec.errors import Error, advise_repair
from fastrec.features.base import Column, Spec
from fastrec.features.infer import SAMPLE_RECORDS
from fastrec.features.schema import Features, Schema
from fastrec.features.sequence_schema import schema_or_names
from fastrec.limits import Limits, checked_limits
from fastrec.on_error import OnError, check_on_error
from fastrec.options import checked_names, positive_int
from fastrec.sources.file_set import Files
from fastrec.sources.sources import Source, Sources
from fastrec.sources.view import View
from fastrec.storage.located import Compression, Located, check_compression
from fastrec.storage.paths import Paths, expand

__all__ = ["Serialized", "infer_schema", "open", "read_records"]

# Records that are read at once where they are wanted one by one.
_RECORDS_AT_ONCE = 64

_RECORD = "record"  # the column that read_records() reads


@checked_names
def open(
    paths: Paths,
    *,
    features: Features | Sequence[str] | None = None,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    on_error: OnError = "raise",
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
        without it those of all features, are what the records show: see `infer_schema`.
    context_features, sequence_features : mapping of str to specs, optional
        In place of `features`, for records that are tf.train.SequenceExample: what to
        read of their context, and of their feature lists, which take `FixedLenSequence`
        (padded to the longest list, a step being one item), `VarLen` and `Ragged` (a
        `RaggedArray` of steps of values). Batches have the columns of both.
    on_error : {"raise", "skip", "resync", "mask"}
        What becomes of damage. ``"raise"`` delivers what comes before it, and raises.
        ``"skip"`` leaves a record out that cannot be read, or does not fit its spec; where
        the framing of a file is broken, so that nobody knows where records begin, it
        leaves out the rest of the file. ``"resync"`` is the same, but searches on for the
        next record that both checksums prove: not for files whose records may hold
        TFRecords themselves. ``"mask"`` is as ``"skip"``, but a row that cannot be read is
        filled with zeros and empty values, and a bool column ``__valid__`` is added that
        is False there. `Dataset.report` and `Loader.report` list what was left out, and
        the log says so.
    io : {"auto", "mmap", "pread"}
        How files are read: through a memory mapping, or in blocks. ``"auto"`` maps local
        files and reads those of network file systems in blocks. The results are the same.
    compression : {"auto", None, "GZIP", "ZLIB"}
        ``"auto"`` recognises GZIP and ZLIB by the first bytes of each file, whatever its
        name. None says that no file is compressed, ``"GZIP"`` and ``"ZLIB"`` that all are.
    cache_dir : path-like, optional
        Where compressed files are expanded to plain ones, each once, when they are first
        needed. Then everything works as on plain files. When a file has changed, it is
        expanded again, and the expansion of its earlier version is deleted; nothing else
        there ever is.
    index_dir : path-like, optional
        Where indexes are kept, if not in the user's cache.
    limits : Limits, optional
        What records may cost, where they come from people whom you do not trust.

    Raises
    ------
    OSError
        If a path does not exist, or names no files.
    ValueError
        If an option is none of those above, a path is a remote URL, or a directory mixes
        splits.
    SchemaError
        If the features make no sense.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
    >>> for batch in ds.loader(256):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """
    if io not in ("auto", "mmap", "pread"):
        msg = f"io must be 'auto', 'mmap' or 'pread', not {io!r}"
        raise ValueError(msg)
    check_compression(compression)
    checked = checked_limits(limits)
    located = Located(
        expand(paths, joins=True),
        compression,
        None if cache_dir is None else os.path.abspath(os.fspath(cache_dir)),  # noqa: PTH100
        checked.expansion,
    )
    files = Files(
        located,
        io,
        None if index_dir is None else os.fspath(index_dir),
        check_on_error(on_error),
        checked,
    )
    schema, names = schema_or_names(features, context_features, sequence_features)
    return Dataset(View(Sources([Source(files, schema, names=names)])))


@checked_names
def infer_schema(dataset: Dataset, *, sample: int | None = SAMPLE_RECORDS) -> Schema:
    """Look at records, and return the schema of all that they hold.

    A feature that all of them have, with one number of values, is `FixedLen`, any other
    `VarLen`. If any record has feature lists, they are tf.train.SequenceExample: a list
    all of whose steps have one number of values is `FixedLenSequence`, any other `VarLen`;
    one that has the name of a feature of the context becomes a column ``name_list``.
    Columns come in the order of their names. A feature that never has a kind of values is
    left out.

    The comments of its repr tell what was seen: how many records were looked at, the
    share of them that has a feature, ranges, and byte strings that are all JPEG, PNG, GIF,
    WebP or UTF-8 text. They suggest defaults and `Raw`, which are never assumed. The same
    records give the same schema.

    Parameters
    ----------
    dataset : Dataset
        Which features it reads does not matter. Of a view, these are the records of the
        view; of compressed files that are read as they are, the first ones.
    sample : int or None, default 4096
        How many records are looked at, spread evenly over the dataset; None are all. On
        compressed files that are read as they are, also no more than 64 MiB, or than
        16 KiB for each record, whichever is more.

    Returns
    -------
    Schema
        For ``features=``. Without features if there are no records.

    Raises
    ------
    TypeError, ValueError
        If this is no dataset, or `sample` no positive integer.
    SchemaError
        If a feature holds values of several kinds, or the records have no features.
    DecodeError
        If a record is neither a tf.train.Example nor a SequenceExample.
    CorruptionError
        If a record that is looked at is damaged, and the dataset's `on_error` is
        ``"raise"``: otherwise records that cannot be read are left out.

    Examples
    --------
    >>> import fastrec as fr
    >>> print(fr.infer_schema(fr.open("data/*"), sample=100_000))  # doctest: +SKIP
    """
    given: object = dataset
    if not isinstance(given, Dataset):
        msg = (
            f"infer_schema() takes a dataset, not {given!r}: "
            "fastrec.open(paths) makes one of files"
        )
        raise TypeError(msg)
    if sample is not None:
        sample = positive_int("sample", sample)
    return dataset._view.inferred(sample)


@dataclass(frozen=True, repr=False)
class Serialized(Spec):
    """The serialized record itself, whatever it is."""

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
    """Read the records of files one after another, whatever they hold.

    Both checksums of every record are verified. No index is needed: the first records
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
        Where a record is damaged, after all records before it: nothing is left out here.
    """
    dataset = open(paths, features={_RECORD: Serialized()}, compression=compression)
    if batch_size is not None:
        batch_size = positive_int("batch_size", batch_size)
        return _batches(dataset, batch_size, num_threads)
    return _one_by_one(dataset, num_threads)


def _one_by_one(dataset: Dataset, num_threads: int | None) -> Iterator[bytes]:
    for batch in _until_damage(dataset, _RECORDS_AT_ONCE, num_threads):
        yield from batch[_RECORD]


def _batches(
    dataset: Dataset, batch_size: int, num_threads: int | None
) -> Iterator[BytesArray]:
    few: list[bytes] = []  # the last records, and the good ones before damage
    try:
        for batch in _until_damage(dataset, batch_size, num_threads):
            records = batch[_RECORD]
            if len(records) == batch_size:
                yield records
            else:
                few.extend(records)
    except Error:
        if few:
            yield BytesArray.from_list(few)
        raise
    if few:
        yield BytesArray.from_list(few)


def _until_damage(
    dataset: Dataset, batch_size: int, num_threads: int | None
) -> Iterator[Batch]:
    try:
        yield from batches_until_damage(dataset, batch_size, num_threads)
    except Error as error:
        advise_repair(error)  # read_records() has no on_error=
        raise
