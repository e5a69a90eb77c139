"""Open TFRecord files as a dataset, or read their serialized records."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, overload

from fastrec.arrays.batch import BytesArray
from fastrec.dataset.dataset import Dataset
from fastrec.errors import Error, advise_repair
from fastrec.features.fixed import Record
from fastrec.features.schema import Features, schema_or_names
from fastrec.hints import checked_names
from fastrec.on_error import ErrorPolicy, check_on_error
from fastrec.options import (
    Limits,
    byte_count,
    checked_limits,
    positive_int,
)
from fastrec.sources.file_set import FileOptions, FileSet
from fastrec.sources.source import Reading, Source
from fastrec.storage.compression import Compression, check_compression
from fastrec.storage.paths import Paths, expand, local_directory
from fastrec.storage.stores import StorageOptions

_RECORDS_AT_ONCE = 64  # batch size of read_records() without batch_size=

_RECORD = "record"  # the column of read_records()


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
    cache_bytes: int | str | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    storage_options: StorageOptions | None = None,
) -> Dataset:
    """Open TFRecord files as a dataset.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        A file, a glob (matches sorted by name), a directory (all TFRecord files below
        it, sorted by name), or a list of these. Each may be a URL: ``s3://``,
        ``gs://``, ``az://``, ``https://``, ``hf://``, ``file://`` or any scheme that
        fsspec supports. A directory must not mix splits, which are recognized by train,
        test, valid, validation, val, dev or eval in file names. A pipe (``/dev/stdin``)
        is read once, in order, and requires `features`.
    features : mapping of str to specs, or list of str, optional
        The features to read, by column name. A spec may also be a tf.io spec, or the
        dtype of a scalar, such as ``"int64"``. Other features are skipped without
        decoding. For a list of names, specs are inferred; by default all features are
        read with inferred specs. See `Dataset.infer_schema`. `Record` reads whole
        records, which need not be tf.train.Examples.
    context_features, sequence_features : mapping of str to specs, optional
        Specs for tf.train.SequenceExamples, instead of `features`: of context features
        and of feature lists. Feature lists accept `FixedLenSequence` (padded to the
        longest list; each step is one item), `VarLen` and `Ragged` (a `RaggedArray` of
        steps, each with its values), and `Image`, `Raw`, `SerializedTensor` and `List`
        (a `RaggedArray` of decoded steps). Batches have the columns of both mappings.
    on_error : {"raise", "skip", "resync", "mask"}, default "raise"
        Policy for damaged records. ``"raise"`` delivers the records before the damage and
        raises. ``"skip"`` skips records that cannot be read or do not fit their spec;
        after broken framing it skips the rest of the file, because it cannot find the
        next record. ``"resync"`` searches for the next record that both checksums
        confirm; do not use it if records may contain TFRecord data. ``"mask"`` is like
        ``"skip"``, but fills a row that cannot be read with zeros and empty values, and
        adds a bool column ``__valid__`` that is False for this row. `Dataset.report`
        and `Loader.report` list skipped regions, and the log names them.
    io : {"auto", "mmap", "pread"}
        ``"mmap"`` maps files into memory; ``"pread"`` reads them in blocks. ``"auto"``
        maps local files and reads network file systems in blocks. Results are the same.
    compression : {"auto", None, "GZIP", "ZLIB"}
        ``"auto"`` detects GZIP and ZLIB from the first bytes of each file. None treats
        all files as plain; ``"GZIP"`` and ``"ZLIB"`` treat all files as compressed.
    cache_dir : path-like, optional
        Directory for local copies of remote files and expanded copies of compressed
        files. Each file is copied once, when first needed. The dataset then has random
        access, and later epochs do not use the network. If a file changes, it is copied
        again, and the earlier copy is deleted once no dataset uses it. Processes may
        share the directory.
    cache_bytes : int or str, optional
        Maximum size of the copies in `cache_dir`: a number of bytes or a string such as
        ``"500GB"``; by default unlimited. The least recently used copies that no
        dataset uses are deleted to make room. Remote files that do not fit are read
        over the network; compressed files that do not fit raise an error.
    index_dir : path-like, optional
        Directory for indexes; by default in the user's cache.
    limits : Limits, optional
        Limits on memory and disk space, for files from untrusted sources.
    storage_options : mapping, optional
        Credentials and other options for the library that reads the URLs: options of
        obstore stores for ``s3://``, ``gs://``, ``az://`` and ``https://``, and options
        of fsspec filesystems for other URLs. By default they come from the environment.

    Raises
    ------
    OSError
        If a path does not exist or matches no files, or a store refuses access.
    ValueError
        If an option is invalid, a URL has an unknown scheme, or a directory mixes
        splits.
    MissingExtraError
        If a path is a URL, and the package that reads it is not installed.
    SchemaError
        If the features are invalid.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
    >>> for batch in ds.loader(256, shuffle=True):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])

    With specs, features are checked and converted:

    >>> features = {"image": fr.Raw((28, 28), "uint8"), "label": "int64"}
    >>> ds = fr.open("data/", features=features, on_error="skip")  # doctest: +SKIP
    """
    if io not in ("auto", "mmap", "pread"):
        raise ValueError(f"io must be 'auto', 'mmap' or 'pread', got {io!r}")
    check_compression(compression)
    options = FileOptions(
        io,
        compression,
        cache_dir
        if cache_dir is None
        else os.path.abspath(local_directory("cache_dir", cache_dir)),
        index_dir if index_dir is None else local_directory("index_dir", index_dir),
        None if cache_bytes is None else byte_count("cache_bytes", cache_bytes),
    )
    if cache_bytes is not None and cache_dir is None:
        raise ValueError("cache_bytes requires cache_dir")
    policy, checked = check_on_error(on_error), checked_limits(limits)
    names = expand(
        paths,
        joins=True,
        allows_pipes=cache_dir is None,
        storage_options=storage_options,
    )
    files = FileSet(names, options, policy, checked)
    schema, columns = schema_or_names(features, context_features, sequence_features)
    return Dataset(Source(files, (Reading(len(files), schema, columns),)))


@overload
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: None = None,
    num_threads: int | None = None,
    storage_options: StorageOptions | None = None,
) -> Iterator[bytes]: ...
@overload
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: int,
    num_threads: int | None = None,
    storage_options: StorageOptions | None = None,
) -> Iterator[BytesArray]: ...
@checked_names
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: int | None = None,
    num_threads: int | None = None,
    storage_options: StorageOptions | None = None,
) -> Iterator[bytes] | Iterator[BytesArray]:
    """Yield the serialized records of files in sequence.

    Verifies both checksums of every record. Needs no index, so it starts at once.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        See `fastrec.open`.
    compression : {"auto", None, "GZIP", "ZLIB"}
        See `fastrec.open`.
    batch_size : int, optional
        Yield a `BytesArray` of this many records at a time; the last may have fewer.
    num_threads : int, optional
        Native threads that read ahead; 0 reads inside ``next()``. The default is
        the same as for `Dataset.loader`.
    storage_options : mapping, optional
        See `fastrec.open`.

    Yields
    ------
    bytes, or BytesArray if `batch_size` is set

    Raises
    ------
    CorruptionError
        If a record is damaged; all records before it are yielded first.
    """
    dataset = open(
        paths,
        features={_RECORD: Record()},
        compression=compression,
        storage_options=storage_options,
    )
    if batch_size is not None:
        batch_size = positive_int("batch_size", batch_size)
        return _batches(dataset, batch_size, num_threads)
    if dataset._source.files.pipes:  # each record as soon as it arrives
        return iter(dataset.records)
    batches = _batches(dataset, _RECORDS_AT_ONCE, num_threads)
    return itertools.chain.from_iterable(batches)


def _batches(
    dataset: Dataset, batch_size: int, num_threads: int | None
) -> Iterator[BytesArray]:
    # The last batch may be short, and damage is preceded by a short batch or, in streams,
    # by single records.
    remainder: list[BytesArray] = []
    damage: Error | None = None
    batches: Iterable[Any]
    if dataset._source.files.pipes:  # a pipe cannot be read twice
        batches = (BytesArray.from_list([record]) for record in dataset.records)
    else:
        loaded = dataset._batches_until_damage(batch_size, num_threads)
        batches = (batch[_RECORD] for batch in loaded)
    try:
        for records in batches:
            if len(records) == batch_size:
                yield records
                continue
            remainder.append(records)
            if len(remainder) == batch_size:
                yield BytesArray._concatenate(remainder)
                remainder = []
    except Error as error:
        damage = error
    if len(remainder) == 1:
        yield remainder[0]
    elif remainder:
        yield BytesArray._concatenate(remainder)
    if damage is not None:
        advise_repair(damage)  # read_records() has no on_error=
        raise damage
