"""Rows and columns -> TFRecord files."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastrec import _core
from fastrec.caller_warnings import warn_caller
from fastrec.example.columns import columns_of, ordered, row_of_lists
from fastrec.features.schema import Features, Schema, as_schema
from fastrec.hints import checked_names
from fastrec.printable import printable
from fastrec.tasks import TaskPool
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.sharding import checked_sharding
from fastrec.writer.shards import Frames, ShardWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

__all__ = ["Writer"]

# Bytes that are handed over at once: enough to hide the cost of Python, and few enough
# that many open shards do not take much memory.
_CHUNK_BYTES = 1 << 20
_LEAST_CHUNK_BYTES = 64 << 10
_ALL_CHUNKS_BYTES = 64 << 20
_IDLE_BYTES = 96 << 20


class Writer:
    """Writes a TFRecord file or shards. A file appears complete or not at all.

    A file has a hidden temporary name in its directory, ``.NAME.*.tmp``, and gets its
    final name when it is complete and on the disk: a single file by `close`, and shards
    as they are full. Where the names have the number of shards, all shards get their
    names by `close`. Leaving the ``with`` block by an exception, or `discard`, removes
    the temporary files. Those that a killed process leaves are removed by the next writer
    of the same path; until then, ``fastrec repair`` saves their records.

    Parameters
    ----------
    path : str or os.PathLike
        The file to write, or a pattern of shards:
        ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``; ``{num_shards}`` is optional.
    features : mapping of str or bytes to specs, optional
        Specs of the features that need one: arrays of two or more dimensions, as bytes
        (`Raw`) or as a list of values (`FixedLen`), and empty lists. Every row can then
        be read by these specs; a row that lacks a feature without a default is refused.
    overwrite : bool, default False
        Replace existing files when the new ones are complete. With a pattern, `close`
        removes the other files that match it.
    append : bool, default False
        Add to an existing plain file in place, or create it. An incomplete record at its
        end, left by a crash, is cut off and logged. An exception in the ``with`` block
        removes what was added; a process that is killed leaves it.
    max_shard_bytes : int or str, optional
        Begin another shard where one would become larger, before compression. By default
        ``"200MB"``, unless `max_shard_records` or `num_shards` is given.
    max_shard_records : int, optional
        Begin another shard after this many records.
    num_shards : int, optional
        Write this many shards at once: record ``i`` goes to shard ``i % num_shards``.
    compression : {None, "GZIP", "ZLIB"}
        GZIP files have many members, which all readers join.
    compression_level : int, optional
        0 to 9 as in zlib; 6 by default.
    sync : bool, default True
        Flush files to the disk before they are renamed. Without it, files may be
        incomplete after a power loss.
    num_threads : int, optional
        Threads that encode batches, compress and write; 0 uses the caller's. By default
        one for each usable CPU. The files do not depend on it.

    Raises
    ------
    FileExistsError
        If a file exists, and neither `overwrite` nor `append` is given; by `close`, if
        one was created meanwhile.
    BlockingIOError
        If another writer is writing the same file or pattern.
    OSError
        If a file cannot be created or, from any method, written. Shards that have their
        final names stay, all else is removed, and every later call reports the same error.
    CorruptionError
        If the file to append to is damaged before its end.
    SchemaError, TypeError, ValueError
        If an argument is invalid.

    Warns
    -----
    ResourceWarning
        If the writer is garbage-collected before `close` or `discard`: its records are
        lost.

    Notes
    -----
    A feature has one kind in all records of a writer, and features keep the order of the
    records before: such files are read fastest. Integers become floats in a feature that
    had floats before; floats after integers are an error.

    The index of a plain file, or the record count of a compressed one, is stored for
    readers. Several threads may share a writer.

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
    ) -> None:
        self._path = os.fsdecode(path)
        names = ShardNames(self._path)
        self._features = {} if features is None else dict(as_schema(features))
        self._n_lanes, sharding = checked_sharding(
            names,
            overwrite=overwrite,
            append=append,
            max_shard_bytes=max_shard_bytes,
            max_shard_records=max_shard_records,
            num_shards=num_shards,
            compression=compression,
            compression_level=compression_level,
            sync=sync,
            num_threads=num_threads,
        )
        self._n_threads = sharding.n_threads
        self._chunk_bytes = max(
            _LEAST_CHUNK_BYTES,
            min(_CHUNK_BYTES, _ALL_CHUNKS_BYTES // (self._n_lanes or 1)),
        )
        self._shards = ShardWriter(names, sharding, self._n_lanes, append=append)
        self._pool = _core.BlockPool(_IDLE_BYTES)
        self._added = _Added(
            [_core.FrameBuffer(self._pool) for _ in range(self._n_lanes or 1)]
        )
        self._order = _core.FeatureOrder()
        self._sequence_order = _core.SequenceOrder()
        # Of the last batch: the next one probably has the same.
        self._layout: _core.ArrayLayout | None = None
        # Records in all lanes; None after an interrupt.
        self._n_assigned: int | None = 0
        self._lock = threading.RLock()
        # Not the shards: they hold errors, whose tracebacks hold this writer.
        weakref.finalize(self, _forgotten, self._path, self._shards.pool, self._added)

    def write(self, row: Mapping[Any, Any], /) -> None:
        """Write one row as a tf.train.Example.

        Parameters
        ----------
        row : mapping of str or bytes to values
            See `encode_example` for the values; those with a spec may be arrays of any
            dimensions.

        Raises
        ------
        ValueError, TypeError
            If a value cannot be written, or if the writer is closed.
        OSError
            If the disk refuses.
        """
        if self._features:
            row = row_of_lists(row, self._features)
        self._add(lambda buffer: buffer.add_example(row, self._order))

    def write_batch(self, columns: Mapping[Any, Any], /) -> None:
        """Write the rows of columns, each as a tf.train.Example.

        Parameters
        ----------
        columns : mapping of str or bytes to columns
            All of one length n. Each row becomes:

            ===================================  =========================================
            ndarray of shape (n,)                one value
            ndarray of shape (n, k)              a list of k values
            ndarray of more dimensions           by its spec in `features`: bytes (`Raw`)
                                                 or a list of values (`FixedLen`)
            `RaggedArray`                        a list
            `BytesArray` of shape (n,), (n, k)   one byte string, or k
            list or tuple                        as its items say: values, str, bytes,
                                                 lists, arrays; None leaves the feature out
            numpy.ma.MaskedArray                 as its data; masked rows leave it out
            ===================================  =========================================

            NumPy converts tensors and series of other libraries.

        Raises
        ------
        ValueError, TypeError
            If a column cannot be written; nothing of the batch is.
        OSError
            If the disk refuses.
        """
        self._check()
        encoder = self._layout.encoder(columns) if self._layout else None
        if encoder is None:
            found, n_rows = columns_of(columns, self._features)
            placed = ordered(found, self._order)
            encoder = _core.BatchEncoder(placed, n_rows, columns)
            self._layout = encoder.layout
        with self._lock:
            # A part of a batch is never left in the files.
            self._shards.attempt(self._write_rows, encoder)

    def write_record(self, record: Buffer, /) -> None:
        """Write one record, of any bytes.

        Parameters
        ----------
        record : bytes-like
            The payload; the frame is added.

        Raises
        ------
        ValueError
            If the writer is closed.
        OSError
            If the disk refuses.
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
            As for `write`.
        feature_lists : mapping of str or bytes to iterables of values, optional
            An iterable of steps, each a value of a feature: lists, arrays of shape
            (steps,) or (steps, k), a `BytesArray`, a `RaggedArray`.

        Raises
        ------
        ValueError, TypeError, OSError
            As for `write`.
        """
        context = {} if context is None else context
        if self._features:
            context = row_of_lists(context, self._features)
        lists = {} if feature_lists is None else feature_lists
        self._add(
            lambda buffer: buffer.add_sequence(context, lists, self._sequence_order)
        )

    def close(self) -> None:
        """Publish the remaining files; does nothing the next time.

        Raises
        ------
        OSError
            If the disk refuses, now or in an earlier call, or if a file that must not be
            replaced was created meanwhile. What is not published is lost.
        """
        with self._lock:
            if not self.closed:
                for lane in range(len(self._added.buffers)):
                    self._hand_over(lane)
            self._shards.close()

    def discard(self) -> None:
        """Remove what is not published; does nothing once the writer is closed."""
        with self._lock:
            self._shards.discard()

    @property
    def path(self) -> str:
        """The file to write, or the pattern."""
        return self._path

    @property
    def files(self) -> list[str]:
        """The files that were written, in the order of their shards, once it is closed."""
        return list(self._shards.files)

    @property
    def closed(self) -> bool:
        """Whether the writer is closed, discarded or lost to an error."""
        return self._shards.closed

    @property
    def n_records(self) -> int:
        """Records written so far."""
        return self._added.n_records

    @property
    def n_bytes(self) -> int:
        """Bytes of their frames so far, before compression; what is buffered included."""
        return self._added.n_bytes

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
        """Add a record to the next buffer, and write the buffer if it is full."""
        self._check()
        if self._n_lanes is None:
            if add(self._added.buffers[0]) >= self._chunk_bytes:
                with self._lock:
                    self._hand_over(0)
            return
        with self._lock:
            n_assigned = self._taken_n_assigned()
            lane = n_assigned % self._n_lanes
            n_bytes = add(self._added.buffers[lane])
            self._n_assigned = n_assigned + 1
            if n_bytes >= self._chunk_bytes:
                self._hand_over(lane)

    def _taken_n_assigned(self) -> int:
        """Return the records in all lanes, and forget them until the next is added."""
        n_assigned, self._n_assigned = self._n_assigned, None
        return self._added.n_records if n_assigned is None else n_assigned

    def _hand_over(self, lane: int) -> None:
        self._shards.attempt(self._take_over, lane)

    def _take_over(self, lane: int) -> None:
        self._shards.write(self._added.buffers[lane].take(), lane)

    def _write_rows(self, encoder: _core.BatchEncoder) -> None:
        n_rows = encoder.n_rows
        if self._n_lanes is None and self._n_threads > 1:
            rows_per_chunk = max(1, self._chunk_bytes // max(1, encoder.row_bytes()))
            if n_rows > 2 * rows_per_chunk:
                self._spread_rows(encoder, rows_per_chunk)
                return
        first, n_lanes = self._taken_n_assigned(), self._n_lanes or 1
        for lane in range(n_lanes):
            row = (lane - first) % n_lanes
            while row < n_rows:
                row = self._added.buffers[lane].add_rows(
                    encoder, row, n_rows, n_lanes, self._chunk_bytes
                )
                if row < n_rows:
                    self._hand_over(lane)
        self._n_assigned = first + n_rows

    def _spread_rows(self, encoder: _core.BatchEncoder, rows_per_chunk: int) -> None:
        self._hand_over(0)
        n_rows = encoder.n_rows
        tasks = (
            partial(self._encoded, encoder, row, min(row + rows_per_chunk, n_rows))
            for row in range(0, n_rows, rows_per_chunk)
        )
        for frames in self._shards.spread(tasks):
            self._added.add(frames)
            self._shards.write(frames)

    def _encoded(self, encoder: _core.BatchEncoder, begin: int, end: int) -> Frames:
        # An eighth more, because some chunks are larger than others.
        buffer = _core.FrameBuffer(self._pool, self._chunk_bytes * 9 // 8)
        buffer.add_rows(encoder, begin, end, 1, 2**63)
        return buffer.take()


class _Added:
    """Counts of what was added, in the buffers and before."""

    def __init__(self, buffers: list[_core.FrameBuffer]) -> None:
        self.buffers = buffers
        self._n_records = 0
        self._n_bytes = 0

    def add(self, frames: Frames) -> None:
        """Count frames that were in none of the buffers."""
        _, offsets = frames
        self._n_records += len(offsets) - 1
        self._n_bytes += int(offsets[-1])

    @property
    def n_records(self) -> int:
        return self._n_records + sum(buffer.n_records for buffer in self.buffers)

    @property
    def n_bytes(self) -> int:
        return self._n_bytes + sum(buffer.n_bytes for buffer in self.buffers)


def _forgotten(path: str, pool: TaskPool, added: _Added) -> None:
    """Remove what an unclosed writer wrote."""
    if pool.is_ending:
        return
    pool.stop()
    warn_caller(
        f"{printable(path)}: a Writer was never closed, {added.n_records} records are lost; use "
        "`with`",
        ResourceWarning,
    )
