"""Measure records written per second by fastrec, TensorFlow, `tfrecord` and protobuf.

Every writer runs in a separate process (writers.py), pinned to the number of CPUs of its
threads. Each first writes a file that is verified: the package crc32c checks all
checksums, and protobuf parses records spread over the file. Then writers run in turn,
once per round, each to a new file.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crc32c import crc32c

from environment import describe, usable_cpus
from install import default_environments, interpreters
from peers.protobuf_alone import example_class
from protocol import Row, Worker
from table import lines
from writers import MASK_DELTA, N_RECORDS, ROWS, WRITERS, Values, draw, rows_of

__all__: list[str] = []

WRITERS_FILE = Path(__file__).with_name("writers.py")
MOST_PARSED = 1_000
LIMITS = ("memcpy", "write")
BY_COLUMNS = ("fastrec:batch", *LIMITS)
TITLES = {
    "fastrec:batch": "fastrec write_batch",
    "fastrec:rows": "fastrec write(row)",
    "tf.data:writer": "tf.io.TFRecordWriter",
    "protobuf": "protobuf, own frames",
    "write": "write()",
}
HEAD = (
    "workload", "CPUs", "writer", "records/s", "MB/s wall", "MB/s CPU", "spread",
    "x TensorFlow", "of write()", "note",
)  # fmt: skip


def masked(data: bytes) -> int:
    """Return a masked checksum."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def payloads(path: Path) -> list[bytes]:
    """Yield the records of a file, after checking their checksums."""
    data, found, begin = path.read_bytes(), [], 0
    while begin < len(data):
        length, of_length = struct.unpack_from("<QI", data, begin)
        end = begin + 12 + length
        found.append(data[begin + 12 : end])
        (of_payload,) = struct.unpack_from("<I", data, end)
        if of_length != masked(data[begin : begin + 8]) or of_payload != masked(
            found[-1]
        ):
            raise ValueError(f"wrong checksum in record {len(found) - 1}")
        begin = end + 4
    return found


def verify(path: Path, values: Values, n: int) -> int:
    """Raise unless the file holds the first `n` rows; return its size."""
    records = payloads(path)
    if len(records) != n:
        raise ValueError(f"{len(records)} records instead of {n}")
    parse = example_class().FromString
    every = max(1, n // MOST_PARSED)
    chosen = {name: value[:n:every] for name, value in values.items()}
    for record, row in zip(records[::every], rows_of(chosen), strict=True):
        feature = parse(record).features.feature
        found = {
            k: list(getattr(f, f.WhichOneof("kind")).value) for k, f in feature.items()
        }
        meant = {k: v if isinstance(v, list) else [v] for k, v in row.items()}
        if found != meant:
            raise ValueError(f"a record is {found} instead of {meant}")
    return path.stat().st_size


def begin(
    row: Row, args: argparse.Namespace, folder: Path, pythons: dict[str, str]
) -> Worker:
    """Start a writer, and verify its first file."""
    counts = N_RECORDS if row.peer in BY_COLUMNS else ROWS
    n = max(10, round(counts[row.workload] * args.scale))
    path = folder / f"{row.peer.replace(':', '-')}-{row.threads}.tfrecord"
    python = pythons.get(row.peer.partition(":")[0], sys.executable)
    command = [python, str(WRITERS_FILE), "--writer", row.peer]
    command += ["--workload", row.workload, "--threads", str(row.threads)]
    command += ["--n", str(n), "--file", str(path)]
    cpus = usable_cpus()[: row.threads]
    worker = Worker(row, [*command, "--cpus", *map(str, cpus)] if cpus else command)
    vars(row).update(worker.answer())
    if row.status == "ready" and row.peer != "memcpy":
        try:
            row.nbytes = verify(path, draw(row.workload, n), n)
        except ValueError as error:
            row.status, row.reason = "failed", str(error)
    return worker


def measure(
    workload: str, args: argparse.Namespace, folder: Path, pythons: dict[str, str]
) -> list[Row]:
    """Measure all writers on one workload."""
    n_cpus = len(usable_cpus()) or os.cpu_count() or 1
    rows = [Row(workload, "", 1, writer) for writer in args.writers]
    if "fastrec:batch" in args.writers and n_cpus > 1:
        rows.insert(1, Row(workload, "", 2, "fastrec:batch"))
    with ExitStack() as stack:
        workers = []
        for row in rows:
            worker = begin(row, args, folder, pythons)
            stack.callback(worker.close)
            workers.append(worker)
        for row in rows:  # a copy writes the same bytes
            if row.peer == "memcpy":
                row.nbytes = max(other.nbytes for other in rows)
        for _ in range(args.repeat):
            for worker in workers:
                worker.round()
    return rows


def ratio(row: Row, rows: list[Row], peer: str) -> str:
    """Return the rate relative to `peer`."""
    for other in rows:
        same = (other.workload, other.peer) == (row.workload, peer)
        if same and other.measured and row.peer not in LIMITS:
            return f"{row.records_per_s / other.records_per_s:.3g}"
    return ""


def cells(row: Row, rows: list[Row]) -> list[str]:
    """One line of the table."""
    what = [row.workload, str(row.threads), TITLES.get(row.peer, row.peer)]
    if not row.measured:
        return [*what, *["-"] * (len(HEAD) - 4), f"{row.status}: {row.reason}"]
    return [
        *what,
        f"{row.records_per_s:,.0f}",
        f"{row.mb_per_s:,.0f}",
        f"{row.mb_per_cpu_s:,.0f}",
        f"{row.spread:.0%}",
        ratio(row, rows, "tf.data:writer"),
        ratio(row, rows, "write"),
        row.form,
    ]


def main() -> int:
    """Measure, and print a table; return 1 if a writer failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workloads", nargs="+", choices=N_RECORDS, default=[*N_RECORDS]
    )
    parser.add_argument("--writers", nargs="+", choices=WRITERS, default=[*WRITERS])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true", help="few records, once")
    parser.add_argument(
        "--folder", type=Path, help="directory of the output, such as /dev/shm"
    )
    parser.add_argument("--environments", type=Path, default=default_environments())
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.quick:
        args.scale, args.repeat = 0.002, 1
    environment = describe() | {
        "files": "a new file each time, in the page cache, not synced"
    }
    print(json.dumps(environment, indent=1), file=sys.stderr)
    pythons = interpreters(args.environments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(
        prefix="fastrec-write-", dir=args.folder
    ) as folder:
        os.environ["FASTREC_BENCH_WRITE"] = folder
        os.environ["FASTREC_CACHE"] = str(Path(folder) / "cache")
        for workload in args.workloads:
            print(f"{workload} ...", file=sys.stderr, flush=True)
            rows += measure(workload, args, Path(folder), pythons)
    print(lines(HEAD, 3, [cells(row, rows) for row in rows]))
    if args.json:
        found: dict[str, Any] = {"quick": args.quick, "environment": environment}
        found["rows"] = [row.as_json() for row in rows]
        args.json.write_text(json.dumps(found, indent=1))
    return int(any(row.status == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
