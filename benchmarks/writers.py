"""The writers that write.py measures, each in a separate process.

Each gets the same values in its best form: columns, or rows of Python values, created
before timing. A repetition writes one file, from open to close, with checksums and
without syncing it to the disk. The protocol is that of worker.py.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

__all__ = ["N_RECORDS", "ROWS", "WRITERS", "draw", "rows_of"]

SEED = 20_261
MASK_DELTA = 0xA282EAD8

# Names to int64 or float32 of shape (n,) or (n, k), or lists of byte strings.
Values: TypeAlias = Mapping[str, Any]
Write: TypeAlias = Callable[[str], None]

N_RECORDS = {"tabular": 280_000, "images": 2_400, "mnist": 300_000, "tokens": 50_000}
# For row-by-row writers: enough to measure in reasonable time.
ROWS = {"tabular": 20_000, "images": 2_400, "mnist": 40_000, "tokens": 4_000}


def draw(workload: str, n: int) -> Values:
    """Return the values of `n` records, as in workloads.py."""
    rng = np.random.default_rng(SEED)
    if workload == "tabular":
        columns: dict[str, Any] = {"label": rng.integers(0, 2, n)}
        for i in range(1, 14):
            columns[f"I{i}"] = rng.standard_normal(n, np.float32)
        for i in range(1, 27):
            integers = np.exp2(rng.uniform(0, 31, n)).astype(np.int64)
            columns[f"category_{i}"] = integers
        return columns
    if workload == "tokens":
        return {k: rng.integers(0, 32_000, (n, 1024)) for k in ("inputs", "targets")}
    if workload == "mnist":
        sizes, n_labels = np.full(n, 784), 10
    else:
        sizes, n_labels = rng.integers(100_000, 120_001, n), 1000
    images = [rng.bytes(int(size)) for size in sizes]
    return {"image": images, "label": rng.integers(0, n_labels, n)}


def rows_of(values: Values) -> Iterator[dict[str, Any]]:
    """Convert columns to rows of ints, floats, bytes and lists of them."""
    lists = [v if isinstance(v, list) else v.tolist() for v in values.values()]
    for row in zip(*lists, strict=True):
        yield dict(zip(values, row, strict=True))


def kinds_of(values: Values) -> dict[str, str]:
    """Return the kind of each feature: "int64", "float" or "bytes"."""
    return {
        name: "bytes"
        if isinstance(value, list)
        else {"i": "int64", "f": "float"}[value.dtype.kind]
        for name, value in values.items()
    }


# Each of these returns a function that writes one file, and its description.


def fastrec_batch(values: Values, threads: int) -> tuple[Write, str]:
    """fastrec, all columns at once, byte strings as BytesArray."""
    import fastrec as fr

    columns = {
        name: fr.BytesArray.from_list(value) if isinstance(value, list) else value
        for name, value in values.items()
    }
    num_threads = 0 if threads == 1 else threads

    def write(path: str) -> None:
        with fr.Writer(path, sync=False, num_threads=num_threads) as writer:
            writer.write_batch(columns)

    return write, "write_batch"


def fastrec_rows(values: Values, threads: int) -> tuple[Write, str]:
    """fastrec, row by row."""
    import fastrec as fr

    rows = [*rows_of(values)]
    num_threads = 0 if threads == 1 else threads

    def write(path: str) -> None:
        with fr.Writer(path, sync=False, num_threads=num_threads) as writer:
            for row in rows:
                writer.write(row)

    return write, "write(row)"


def as_list(value: object) -> Sequence[Any]:
    """Return the value list of a feature."""
    return value if isinstance(value, list) else [value]


def tensorflow(values: Values, threads: int) -> tuple[Write, str]:  # noqa: ARG001
    """TensorFlow, as in its guide."""
    import tensorflow as tf

    rows, kinds = [*rows_of(values)], kinds_of(values)
    train = tf.train
    features: dict[str, Callable[[Any], Any]] = {
        "int64": lambda v: train.Feature(int64_list=train.Int64List(value=as_list(v))),
        "float": lambda v: train.Feature(float_list=train.FloatList(value=as_list(v))),
        "bytes": lambda v: train.Feature(bytes_list=train.BytesList(value=as_list(v))),
    }
    makers = {name: features[kind] for name, kind in kinds.items()}

    def write(path: str) -> None:
        with tf.io.TFRecordWriter(path) as writer:
            for row in rows:
                feature = {name: makers[name](value) for name, value in row.items()}
                example = train.Example(features=train.Features(feature=feature))
                writer.write(example.SerializeToString())

    return write, "tf.train.Example, tf.io.TFRecordWriter"


def tfrecord_package(values: Values, threads: int) -> tuple[Write, str]:  # noqa: ARG001
    """The package `tfrecord`."""
    from tfrecord.writer import TFRecordWriter

    names = {"int64": "int", "float": "float", "bytes": "byte"}
    kinds = {name: names[kind] for name, kind in kinds_of(values).items()}
    rows = [
        {name: (value, kinds[name]) for name, value in row.items()}
        for row in rows_of(values)
    ]

    def write(path: str) -> None:
        writer = TFRecordWriter(path)
        for row in rows:
            writer.write(row)
        writer.close()

    return write, "tfrecord.TFRecordWriter"


def protobuf(values: Values, threads: int) -> tuple[Write, str]:  # noqa: ARG001
    """google.protobuf (upb), with our frames and checksums of the package crc32c."""
    from crc32c import crc32c

    from peers.protobuf_alone import example_class

    message = example_class()
    rows, kinds = [*rows_of(values)], kinds_of(values)
    fields = {name: f"{kind}_list" for name, kind in kinds.items()}

    def masked(data: bytes) -> int:
        crc = crc32c(data)
        return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF

    def write(path: str) -> None:
        with open(path, "wb", buffering=1 << 20) as file:
            for row in rows:
                example = message()
                feature = example.features.feature
                for name, value in row.items():
                    getattr(feature[name], fields[name]).value.extend(as_list(value))
                record = example.SerializeToString()
                length = struct.pack("<Q", len(record))
                file.write(length + struct.pack("<I", masked(length)))
                file.write(record)
                file.write(struct.pack("<I", masked(record)))

    return write, "Example.SerializeToString, crc32c"


def ready_file(values: Values) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of the file."""
    folder = Path(os.environ["FASTREC_BENCH_WRITE"])
    path = folder / f"ready-{os.getpid()}.tfrecord"
    fastrec_batch(values, 1)[0](str(path))
    data = np.fromfile(path, np.uint8)
    path.unlink()
    return data


def memcpy(values: Values, threads: int) -> tuple[Write, str]:  # noqa: ARG001
    """A copy of the bytes in memory: the lower bound of encoding."""
    data = ready_file(values)
    copy = np.empty_like(data)

    def write(path: str) -> None:
        if path:
            np.copyto(copy, data)

    return write, "limit: a copy in memory"


def plain_write(values: Values, threads: int) -> tuple[Write, str]:  # noqa: ARG001
    """The encoded bytes in pieces of 1 MiB: the lower bound of writing a file."""
    data = memoryview(ready_file(values))  # type: ignore[arg-type]

    def write(path: str) -> None:
        with open(path, "wb", buffering=0) as file:
            file.writelines(
                data[begin : begin + (1 << 20)]
                for begin in range(0, len(data), 1 << 20)
            )

    return write, "limit: the encoded bytes"


WRITERS: dict[str, Callable[[Values, int], tuple[Write, str]]] = {
    "fastrec:batch": fastrec_batch,
    "fastrec:rows": fastrec_rows,
    "tf.data:writer": tensorflow,
    "tfrecord": tfrecord_package,
    "protobuf": protobuf,
    "memcpy": memcpy,
    "write": plain_write,
}


def serve(args: argparse.Namespace) -> None:
    """Write a file to verify; then a file for each line of input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**found: Any) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    path = str(args.file)
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    try:
        write, form = WRITERS[args.writer](draw(args.workload, args.n), args.threads)
        write(path)
    except ModuleNotFoundError as error:
        answer(status="missing", reason=f"{error.name} is not installed")
        return
    except Exception as error:  # noqa: BLE001 (whatever a peer raises is its result)
        answer(status="failed", reason=f"{type(error).__name__}: {error}")
        return
    answer(status="ready", form=form, n_records=args.n)
    for _ in sys.stdin:
        args.file.unlink(missing_ok=True)
        wall, cpu = time.perf_counter(), time.process_time()
        write(path)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        answer(wall_s=wall, cpu_s=cpu, epochs=1)
    args.file.unlink(missing_ok=True)


def main() -> None:
    """Run one writer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writer", required=True, choices=WRITERS)
    parser.add_argument("--workload", required=True, choices=N_RECORDS)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--cpus", type=int, nargs="*", default=[])
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
