"""Writer: write rows and columns to TFRecord files."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.caller_warnings import calling_frame, warn_caller
from fastrec.example.columns import columns_of, ordered, row_of_lists
from fastrec.features.schema import Features, Schema, as_schema
from fastrec.hints import checked_names
from fastrec.options import (
    byte_count,
    default_num_threads,
    non_negative_int,
    positive_int,
    true_or_false,
)
from fastrec.printable import printable
from fastrec.storage.compression import COMPRESSIONS
from fastrec.storage.stores import StorageOptions
from fastrec.storage.urls import redacted
from fastrec.tasks import TaskPool
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import Frames, ShardOptions, ShardWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

# Bytes passed to ShardWriter at once: enough to hide the cost of Python, and few enough
# that many open shards use little memory.
_CHUNK_BYTES = 1 << 20
_MIN_CHUNK_BYTES = 64 << 10
_MAX_BUFFERED_BYTES = 64 << 20
_IDLE_BYTES = 96 << 20
_MAX_SHARD_BYTES = "200MB"  # TensorFlow's guide advises 100 MB and more

# The process and lock of each writer. The callbacks are C functions, so no signal can
# raise in them.
_writers: dict[weakref.ref[Writer], tuple[int, str]] = {}


class Writer:
    """Writer of a TFRecord file or shards; a file appears complete or not at all.

    A file has a hidden temporary name in its directory, ``.NAME.*.tmp``, until it is
    complete and flushed to the disk. `close` renames a single file; shards are renamed
    as they fill up, or by `close` if their names contain the number of shards.
    `discard`, or an exception in the ``with`` block, removes the temporary files. If a
    process is killed, the next writer of the same path removes them; until then,
    ``fastrec repair`` recovers their records.

    Parameters
    ----------
    path : str or os.PathLike
        The file to write, or a shard pattern:
        ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``; ``{num_shards}`` is optional.
        It may be a URL, such as ``"s3://bucket/train.tfrecord"``: complete shards are
        uploaded from the directory for temporary files.
    features : mapping of str or bytes to specs, optional
        Specs for features that need one: arrays of two or more dimensions, as bytes
        (`Raw`) or as a list of values (`FixedLen`), and empty lists. A row must have
        every feature whose spec has no default.
    overwrite : bool, default False
        Replace existing files when the new ones are complete. With a pattern, `close`
        also removes other files that match it.
    append : bool, default False
        Append to a plain file, or create it. An incomplete record at its end, left by a
        crash, is truncated and logged. An exception in the ``with`` block undoes the
        append; a killed process does not.
    max_shard_bytes : int or str, optional
        Maximum size of a shard, before compression. By default ``"200MB"``, unless
        `max_shard_records` or `num_shards` is set.
    max_shard_records : int, optional
        Maximum number of records in a shard.
    num_shards : int, optional
        Write this many shards at once: record ``i`` goes to shard ``i % num_shards``.
    compression : {None, "GZIP", "ZLIB"}
        Compress the files. GZIP files have many members, which every reader joins.
    compression_level : int, optional
        0 to 9 as in zlib; 6 by default.
    sync : bool, default True
        Flush files to the disk before renaming them. If False, files that were written
        shortly before a power cut may be missing, truncated or partly zero.
    num_threads : int, optional
        Threads that encode batches, compress and write; 0 uses the caller's thread. By
        default one per usable CPU. The number does not affect the files.
    storage_options : mapping, optional
        Credentials and other options for the library that writes a URL, as for
        `fastrec.open`.

    Raises
    ------
    FileExistsError
        If a file exists and neither `overwrite` nor `append` is set. `close` raises it
        if another process has created the file in the meantime.
    BlockingIOError
        If another writer is writing the same file or pattern. In a notebook, a
        writer whose cell ended with an exception is discarded instead.
    OSError
        If a file cannot be created or, from any method, written. Published shards
        remain, other files are removed, and later calls raise the same error.
    CorruptionError
        If the file to append to is damaged before its end.
    SchemaError, TypeError, ValueError
        If an argument is invalid.

    Warns
    -----
    ResourceWarning
        If the writer is garbage-collected before `close` or `discard`; its records are
        lost.

    Notes
    -----
    All records of a writer have the same kind of values in a feature. Features keep the
    order of earlier records, because such files are read fastest. Integers become
    floats in a feature that had floats before; floats after integers are an error.

    The writer stores the index of a plain file, or the record count of a compressed
    file, for readers. Threads may share a writer.

    Examples
    --------
    >>> import fastrec as fr
    >>> with fr.Writer("train-{shard:05d}.tfrecord") as writer:  # doctest: +SKIP
    ...     for images, labels in batches:  # (n, 784) uint8, (n,) int64
    ...         writer.write_batch({"image": images, "label": labels})
    """

    @checked_names
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        features: Features | Schema | None = None,
        overwrite: bool = False,
        append: bool = False,
        max_shard_bytes: int | str | None = None,
        max_shard_records: int | None = None,
        num_shards: int | None = None,
        compression: str | None = None,
        compression_level: int | None = None,
        sync: bool = True,
        num_threads: int | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        names = ShardNames(os.fsdecode(path), storage_options)
        self._path = names.path if names.is_remote else os.fsdecode(path)
        self._features = {} if features is None else dict(as_schema(features))
        limits = (max_shard_bytes, max_shard_records)
        if not names.is_pattern and (num_shards, *limits) != (None, None, None):
            raise ValueError(
                "max_shard_bytes, max_shard_records and num_shards require a shard pattern "
                f'such as "train-{{shard:05d}}.tfrecord", got {redacted(names.path)!r}'
            )
        if num_shards is not None and limits != (None, None):
            raise ValueError(
                "num_shards cannot be combined with max_shard_bytes or max_shard_records"
            )
        if names.is_pattern and num_shards is None and limits == (None, None):
            max_shard_bytes = _MAX_SHARD_BYTES
        if compression not in (None, *COMPRESSIONS):
            raise ValueError(
                f'compression must be None, "GZIP" or "ZLIB", got {compression!r}'
            )
        is_plain_file = not names.is_pattern and compression is None
        if true_or_false("append", append) and (overwrite or not is_plain_file):
            raise ValueError(
                "append=True requires the path of one file, without overwrite and "
                "compression"
            )
        if max_shard_bytes is not None:
            max_shard_bytes = byte_count("max_shard_bytes", max_shard_bytes)
        if max_shard_records is not None:
            max_shard_records = positive_int("max_shard_records", max_shard_records)
        if num_shards is not None:
            num_shards = positive_int("num_shards", num_shards)
        level = -1
        if compression_level is not None:
            level = non_negative_int("compression_level", compression_level, maximum=9)
        if num_threads is None:
            num_threads = default_num_threads()
        self._n_lanes = num_shards
        self._n_threads = non_negative_int("num_threads", num_threads)
        options = ShardOptions(
            overwrite=true_or_false("overwrite", overwrite),
            max_bytes=max_shard_bytes,
            max_records=max_shard_records,
            compression=compression,
            level=level,
            sync=true_or_false("sync", sync),
            n_threads=self._n_threads,
        )
        self._chunk_bytes = max(
            _MIN_CHUNK_BYTES,
            min(_CHUNK_BYTES, _MAX_BUFFERED_BYTES // (self._n_lanes or 1)),
        )
        frame, _ = calling_frame()
        self._code, self._line = frame.f_code, frame.f_lineno
        del frame  # the frame refers to this writer
        begin = partial(ShardWriter, names, options, self._n_lanes, append=append)
        key = (os.getpid(), names.lock)
        try:
            self._shards = begin()
        except BlockingIOError as error:
            if not _end_abandoned(key, error):
                raise
            self._shards = begin()
        _writers[weakref.ref(self, _writers.pop)] = key
        self._pool = _core.BlockPool(_IDLE_BYTES)
        lanes = range(self._n_lanes or 1)
        self._buffers = [_core.FrameBuffer(self._pool) for _ in lanes]
        self._spread = np.zeros(2, np.int64)  # records and bytes not in `_buffers`
        self._order = _core.FeatureOrder()
        self._sequence_order = _core.SequenceOrder()
        # The layout of the last batch, which the next one probably shares.
        self._layout: _core.ArrayLayout | None = None
        # Records in all lanes; None after an interrupt.
        self._n_assigned: int | None = 0
        self._lock = threading.RLock()
        # Do not pass the shards: tracebacks of their errors refer to this writer.
        lost = partial(_n_records, self._buffers, self._spread)
        weakref.finalize(self, _discard_unclosed, self._path, self._shards.pool, lost)

    def write(self, row: Mapping[Any, Any], /) -> None:
        """Write one row as a tf.train.Example.

        Parameters
        ----------
        row : mapping of str or bytes to values
            Values as for `encode_example`; values with a spec may be arrays of any
            dimensions.

        Raises
        ------
        ValueError, TypeError
            If a value cannot be written, or if the writer is closed.
        OSError
            If writing to the file fails.
        """
        if self._features:
            row = row_of_lists(row, self._features)
        self._add(lambda buffer: buffer.add_example(row, self._order))

    def write_batch(self, columns: Mapping[Any, Any], /) -> None:
        """Write each row of a batch of columns as a tf.train.Example.

        Parameters
        ----------
        columns : mapping of str or bytes to columns
            Columns of the same length n. The feature of a row is:

            ===================================  =========================================
            ndarray of shape (n,)                one value
            ndarray of shape (n, k)              a list of k values
            ndarray of more dimensions           by its spec in `features`: bytes (`Raw`),
                                                 a list of values (`FixedLen`) or a PNG
                                                 file (`Image`)
            `RaggedArray`                        a list
            `BytesArray` of shape (n,), (n, k)   one byte string, or k
            list or tuple                        by its items: values, str, bytes, lists,
                                                 arrays; None omits the feature
            numpy.ma.MaskedArray                 like its data; masked rows omit it
            ===================================  =========================================

            NumPy converts tensors and series of other libraries.

        Raises
        ------
        ValueError, TypeError
            If a column cannot be written; no row of the batch is written.
        OSError
            If writing to the file fails.
        """
        self._check()
        encoder = self._layout.encoder(columns) if self._layout else None
        if encoder is None:
            checked, n_rows = columns_of(columns, self._features)
            sorted_columns = ordered(checked, self._order)
            encoder = _core.BatchEncoder(sorted_columns, n_rows, columns)
            self._layout = encoder.layout
        with _core.HeldLock(self._lock):
            # An interrupt here fails the writer, so files never have part of a batch.
            self._shards.attempt(self._write_rows, encoder)

    def write_record(self, record: Buffer, /) -> None:
        """Write one serialized record of any content.

        Parameters
        ----------
        record : bytes-like
            The payload; header and footer are added.

        Raises
        ------
        ValueError
            If the writer is closed.
        OSError
            If writing to the file fails.
        """
        self._add(lambda buffer: buffer.add_record(record))

    def write_sequence_example(
        self,
        *,
        context: Mapping[Any, Any] | None = None,
        feature_lists: Mapping[Any, Iterable[Any]] | None = None,
    ) -> None:
        """Write one tf.train.SequenceExample.

        Parameters
        ----------
        context : mapping of str or bytes to values, optional
            See `write`.
        feature_lists : mapping of str or bytes to iterables of values, optional
            Each feature list is an iterable of steps: a list of feature values, an
            array of shape (steps,) or (steps, k), a `BytesArray` or a `RaggedArray`.

        Raises
        ------
        ValueError, TypeError, OSError
            See `write`.
        """
        context = {} if context is None else context
        if self._features:
            context = row_of_lists(context, self._features)
        lists = {} if feature_lists is None else feature_lists
        order = self._sequence_order
        self._add(lambda buffer: buffer.add_sequence(context, lists, order))

    def close(self) -> None:
        """Complete and publish the remaining files; further calls do nothing.

        Raises
        ------
        OSError
            If writing fails, or has failed in an earlier call, or if another process has
            created a file that must not be replaced. Unpublished files are lost.
        """
        with _core.HeldLock(self._lock):
            if not self.closed:
                for lane in range(len(self._buffers)):
                    self._flush(lane)
            self._shards.close()

    def discard(self) -> None:
        """Remove unpublished files; do nothing if the writer is closed."""
        with _core.HeldLock(self._lock):
            self._shards.discard()

    @property
    def path(self) -> str:
        """The path of the file, or the shard pattern."""
        return self._path

    @property
    def files(self) -> list[str]:
        """The written files in the order of their shards; empty before `close`."""
        return list(self._shards.files)

    @property
    def closed(self) -> bool:
        """Whether the writer was closed or discarded, or has failed."""
        return self._shards.closed

    @property
    def n_records(self) -> int:
        """The number of records written so far, including buffered records."""
        return _n_records(self._buffers, self._spread)

    @property
    def n_bytes(self) -> int:
        """The size in bytes of all frames written so far, before compression."""
        return int(self._spread[1]) + sum(buffer.n_bytes for buffer in self._buffers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self.discard()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<fastrec.Writer {self._path!r}: {self.n_records} records, "
            f"{self.n_bytes} bytes, {state}>"
        )

    def _check(self) -> None:
        if self.closed:
            self._shards.check()

    def _add(self, add: Callable[[_core.FrameBuffer], int]) -> None:
        """Add a record to the next lane's buffer; flush the buffer if it is full."""
        self._check()
        if self._n_lanes is None:
            if add(self._buffers[0]) >= self._chunk_bytes:
                with _core.HeldLock(self._lock):
                    self._flush(0)
            return
        with _core.HeldLock(self._lock):
            n_assigned = self._take_n_assigned()
            lane = n_assigned % self._n_lanes
            n_bytes = add(self._buffers[lane])
            self._n_assigned = n_assigned + 1
            if n_bytes >= self._chunk_bytes:
                self._flush(lane)

    def _take_n_assigned(self) -> int:
        """Return the record count of all lanes; the caller sets `_n_assigned` again."""
        n_assigned, self._n_assigned = self._n_assigned, None
        return self.n_records if n_assigned is None else n_assigned

    def _flush(self, lane: int) -> None:
        self._shards.attempt(self._write_buffer, lane)

    def _write_buffer(self, lane: int) -> None:
        self._shards.write(self._buffers[lane].take(), lane)

    def _write_rows(self, encoder: _core.BatchEncoder) -> None:
        n_rows = encoder.n_rows
        if self._n_lanes is None and self._n_threads > 1:
            rows_per_chunk = max(1, self._chunk_bytes // max(1, encoder.row_bytes()))
            if n_rows > 2 * rows_per_chunk:
                self._spread_rows(encoder, rows_per_chunk)
                return
        first, n_lanes = self._take_n_assigned(), self._n_lanes or 1
        for lane in range(n_lanes):
            row = (lane - first) % n_lanes
            while row < n_rows:
                row = self._buffers[lane].add_rows(
                    encoder, row, n_rows, n_lanes, self._chunk_bytes
                )
                if row < n_rows:
                    self._flush(lane)
        self._n_assigned = first + n_rows

    def _spread_rows(self, encoder: _core.BatchEncoder, rows_per_chunk: int) -> None:
        self._flush(0)
        n_rows = encoder.n_rows
        tasks = (
            partial(self._encoded, encoder, row, min(row + rows_per_chunk, n_rows))
            for row in range(0, n_rows, rows_per_chunk)
        )
        for frames in self._shards.spread(tasks):
            self._spread += (len(frames[1]) - 1, int(frames[1][-1]))
            self._shards.write(frames)

    def _encoded(self, encoder: _core.BatchEncoder, begin: int, end: int) -> Frames:
        # An eighth more than the estimate, because rows vary in size.
        buffer = _core.FrameBuffer(self._pool, self._chunk_bytes * 9 // 8)
        buffer.add_rows(encoder, begin, end, 1, 2**63)
        return buffer.take()


def _n_records(
    buffers: Sequence[_core.FrameBuffer], spread: npt.NDArray[np.int64]
) -> int:
    return int(spread[0]) + sum(buffer.n_records for buffer in buffers)


def _end_abandoned(key: tuple[int, str], refusal: BlockingIOError) -> bool:
    """Discard the writer with `key` if it is abandoned; return whether it was.

    A writer is abandoned if the notebook cell or function that created it ended with an
    unhandled exception; its traceback or variables keep the writer alive. Otherwise,
    the line that created the writer is added to the error `refusal`.
    """
    found = [ref() for ref, its_key in _writers.copy().items() if its_key == key]
    if not found or (writer := found[-1]) is None:
        return False
    traceback: TracebackType | None = getattr(sys, "last_traceback", None)
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        if frame.f_code is writer._code:
            # A cell runs once. A function may run again, with another writer.
            is_cell = frame.f_code.co_name == "<module>"
            if is_cell or any(value is writer for value in frame.f_locals.values()):
                writer.discard()
                return True
    refusal.strerror = (
        "another writer of this process is writing this file; close() or discard() the "
        f"one that was created at {writer._code.co_filename}:{writer._line}"
    )
    return False


def _discard_unclosed(path: str, pool: TaskPool, n_lost: Callable[[], int]) -> None:
    """Remove unpublished files of a garbage-collected unclosed writer, and warn."""
    if pool.is_ending:
        return
    pool.stop()
    warn_caller(
        f"{printable(path)}: the Writer was not closed, so its {n_lost():,} "
        "records are lost; use a with block",
        ResourceWarning,
    )
