"""Shard options: how records are divided into files and written."""

from __future__ import annotations

from dataclasses import dataclass

from fastrec.options import (
    byte_count,
    default_num_threads,
    non_negative_int,
    positive_int,
    true_or_false,
)
from fastrec.storage.compression import COMPRESSIONS
from fastrec.storage.urls import redacted
from fastrec.writer.shard_names import ShardNames

_MAX_SHARD_BYTES = "200MB"  # TensorFlow's guide advises 100 MB and more


@dataclass(frozen=True)
class ShardOptions:
    """How records are divided into files and written.

    `max_bytes` and `max_records` limit a shard, before compression. `together` publishes
    files only when all are complete. `sync` flushes a file to the disk before it is
    renamed. With 0 threads the caller compresses and writes.
    """

    overwrite: bool = False
    max_bytes: int | None = None
    max_records: int | None = None
    compression: str | None = None
    level: int = -1
    sync: bool = True
    together: bool = False
    n_threads: int = 0


def checked_shard_options(
    names: ShardNames,
    *,
    overwrite: bool,
    append: bool,
    max_shard_bytes: int | str | None,
    max_shard_records: int | None,
    num_shards: int | None,
    compression: str | None,
    compression_level: int | None,
    sync: bool,
    num_threads: int | None,
) -> tuple[int | None, ShardOptions]:
    """Check the options of a Writer; return the number of shards, if set, and the rest."""
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
    if max_shard_bytes is not None:
        max_shard_bytes = byte_count("max_shard_bytes", max_shard_bytes)
    if max_shard_records is not None:
        max_shard_records = positive_int("max_shard_records", max_shard_records)
    if num_shards is not None:
        num_shards = positive_int("num_shards", num_shards)
    if compression is not None and compression not in COMPRESSIONS:
        raise ValueError(
            f'compression must be None, "GZIP" or "ZLIB", got {compression!r}'
        )
    level = -1
    if compression_level is not None:
        level = non_negative_int("compression_level", compression_level, maximum=9)
    n_threads = default_num_threads()
    if num_threads is not None:
        n_threads = non_negative_int("num_threads", num_threads)
    is_plain_file = not names.is_pattern and compression is None
    if true_or_false("append", append) and (overwrite or not is_plain_file):
        raise ValueError(
            "append=True requires the path of one file, without overwrite and compression"
        )
    return num_shards, ShardOptions(
        overwrite=true_or_false("overwrite", overwrite),
        max_bytes=max_shard_bytes,
        max_records=max_shard_records,
        compression=compression,
        level=level,
        sync=true_or_false("sync", sync),
        n_threads=n_threads,
    )
