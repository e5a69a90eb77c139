"""Inject faults into requests of remote files, and check that nothing wrong is delivered.

usage: python -m campaigns.remote_faults [--faults N] [--seed N]

Every round reads random data in all ways from a server in this process, or writes it
through a proxy that cuts connections. If all faults are transient, everything must be
delivered; otherwise, every value that is delivered must be right, and the rest is an
error. Prints one line per way: runs, injected faults, and how the runs ended.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from unittest.mock import patch

import numpy as np

import fastrec as fr
from children import start_program
from columns import Untyped
from fastrec.storage import remote
from object_server import FAULTS, TRANSIENT, ObjectServer, random_faults, served
from oracle import example, tfrecord_file
from s3_server import S3, s3_server
from written import payloads

# Errors that may end a run. Any other error is a finding.
EXPECTED = (OSError, fr.CorruptionError)
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "x": fr.FixedLen((), "bytes"),
}
N_FILES = 8
Rows = list[int]
_RESET = struct.pack("ii", 1, 0)
_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_WRITER_THREADS = 16


def value(n: int) -> bytes:
    rng = random.Random(n)
    return rng.randbytes(rng.choice((5, 50, 500, 20_000)))


def row(n: int) -> bytes:
    return example({b"n": ("int64", [n]), b"x": ("bytes", [value(n)])})


def check(rows: Rows, batch: Untyped) -> None:
    """Check the values of a batch, and add its row numbers."""
    numbers = batch["n"].tolist()
    for n, x in zip(numbers, batch["x"].tolist(), strict=True):
        assert x == value(n), f"row {n} has a wrong value"
    rows += numbers


def batches_of(loader: Untyped, rows: Rows) -> None:
    for batch in loader:
        check(rows, batch)


# Ways of reading: (folder, options of `fr.open`, function, whether in order).


def sequential(ds: Untyped, rows: Rows) -> None:
    batches_of(ds.loader(16), rows)


def shuffled(ds: Untyped, rows: Rows) -> None:
    batches_of(ds.loader(16, shuffle=True, seed=3), rows)


def blocks(ds: Untyped, rows: Rows) -> None:
    batches_of(ds.loader(16, shuffle=fr.Blocks(), seed=3), rows)


def window(ds: Untyped, rows: Rows) -> None:
    batches_of(ds.loader(16, shuffle=fr.Window(64), seed=3), rows)


def by_number(ds: Untyped, rows: Rows) -> None:
    for i in range(0, len(ds), 7):
        check(rows, ds[i : i + 1])


READING: dict[str, tuple[str, bool, Callable[[Untyped, Rows], None]]] = {
    "sequential": ("plain", False, sequential),
    "shuffled": ("plain", False, shuffled),
    "blocks": ("plain", False, blocks),
    "by number": ("plain", False, by_number),
    "gzip": ("gz", False, sequential),
    "gzip window": ("gz", False, window),
    "cached": ("plain", True, shuffled),
    "cached gzip": ("gz", True, shuffled),
}


def read(way: str, server: ObjectServer, expected: Rows, *, hostile: bool) -> str:
    """Read everything once, and return how it ended."""
    folder, is_cached, function = READING[way]
    rows: Rows = []
    in_order = way in ("sequential", "gzip")
    everything = expected[::7] if way == "by number" else expected
    with tempfile.TemporaryDirectory() as directory:
        options: dict[str, Untyped] = {"index_dir": f"{directory}/index"}
        if is_cached:
            options["cache_dir"] = f"{directory}/cache"
        ended = "complete"
        try:
            url = f"{server.url}/{folder}/*"
            function(fr.open(url, features=SPEC, **options), rows)
        except EXPECTED as error:
            if not hostile:
                raise
            ended = getattr(error, "code", type(error).__name__)
    if ended == "complete":
        assert (rows if in_order else sorted(rows)) == everything
    elif in_order:
        assert rows == everything[: len(rows)]
    else:
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(everything)
    return ended


@contextmanager
def cutting_proxy(
    target: tuple[str, int], rng: random.Random, injected: Counter[str]
) -> Iterator[str]:
    """Forward connections to `target`; cut or refuse some at random, and the first."""
    listener = socket.create_server(("127.0.0.1", 0))

    def forward(source: socket.socket, sink: socket.socket, most: int | None) -> None:
        is_cut = False
        with suppress(OSError):
            while data := source.recv(65536):
                if most is not None and len(data) >= most:
                    sink.sendall(data[:most])
                    injected["cut"] += 1
                    is_cut = True
                    break
                sink.sendall(data)
                most = None if most is None else most - len(data)
        if is_cut:  # with a reset: moto accepts a body that ends early
            for end in (source, sink):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()
            return
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def relay(
        client: socket.socket, server: socket.socket, sent: int | None, got: int | None
    ) -> None:
        with client, server:
            answer = threading.Thread(
                target=forward, args=(server, client, got), daemon=True
            )
            answer.start()
            forward(client, server, sent)
            answer.join()

    def accept() -> None:
        with suppress(OSError):
            for number in itertools.count():
                client, _ = listener.accept()
                if number == 0 or rng.random() < 0.1:
                    injected["503"] += 1
                    with client:
                        client.recv(65536)
                        client.sendall(_BUSY)
                    continue
                server = socket.create_connection(target)
                limits: list[int | None] = [None, None]
                if rng.random() < 0.4:
                    limits[rng.randrange(2)] = int(10 ** rng.uniform(0, 7))
                threading.Thread(
                    target=relay, args=(client, server, *limits), daemon=True
                ).start()

    threading.Thread(target=accept, daemon=True).start()
    host, port = listener.getsockname()
    yield f"http://{host}:{port}"
    listener.close()


def write(
    seed: int, injected: Counter[str], n_writers: int = 200, n_kills: int = 4
) -> Counter[str]:
    """Write shards through the proxy; each object is whole, or does not exist.

    Also kills `n_kills` processes that write objects of several parts.
    """
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    with s3_server() as s3:
        host, _, port = s3.endpoint.partition("://")[2].partition(":")
        with cutting_proxy((host, int(port)), rng, injected) as endpoint:
            options = {
                **s3.options,
                "endpoint": endpoint,
                "retry_config": {"max_retries": 4},
                "client_options": {"read_timeout": "2s"},
            }
            sizes = [rng.choice((3, 30, 2000)) for _ in range(n_writers)]
            with ThreadPoolExecutor(_WRITER_THREADS) as pool:
                write_one = partial(_write_one, s3, options)
                ends.update(pool.map(write_one, range(n_writers), sizes))
        for number in range(n_kills):
            url = s3.url(f"killed-{number}.tfrecord")
            with (
                patch.dict(os.environ, s3.environment()),
                start_program("remote_writer.py", url) as child,
            ):
                assert child.stdout is not None
                child.stdout.readline()  # it begins to upload
                time.sleep(rng.uniform(0, 1))
                child.kill()
                child.communicate()
            found = [name for name in s3.names() if name == f"killed-{number}.tfrecord"]
            assert all(len(payloads(s3.get(name))) == 6 for name in found)
            ends["killed, complete" if found else "killed, absent"] += 1
    return ends


def _write_one(s3: S3, options: dict[str, Untyped], number: int, n_rows: int) -> str:
    """Write shards, check the objects, and return how the writer ended."""
    rows = [row(number * 10_000 + i) for i in range(n_rows)]
    url, ended = s3.url(f"{number}-{{shard}}.tfrecord"), "complete"
    try:
        with fr.Writer(url, max_shard_records=1000, storage_options=options) as writer:
            for record in rows:
                writer.write_record(record)
    except OSError as error:
        ended = type(error).__name__
    names = sorted(name for name in s3.names() if name.startswith(f"{number}-"))
    shards = [payloads(s3.get(name)) for name in names]
    pieces = [rows[i : i + 1000] for i in range(0, n_rows, 1000)]
    if ended == "complete":
        assert shards == pieces
    else:
        assert all(shard in pieces for shard in shards)
    return ended


def main() -> None:
    """Run rounds until enough faults are injected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # More faults per second: short pauses, and many ranges.
    remote._FIRST_DELAY_SECONDS = 0.001
    remote._PIECE_BYTES, remote._FIRST_PIECE_BYTES = 16 << 10, 4 << 10
    counts: dict[str, Counter[str]] = {}
    injected: dict[str, Counter[str]] = {}
    seed = arguments.seed
    with suppress(KeyboardInterrupt):  # which ends the campaign early
        while sum(map(Counter.total, injected.values())) < arguments.faults:
            rng = np.random.default_rng(seed)
            per_file = int(rng.integers(1, 120))
            files = [
                list(range(i * 1000 + 1, i * 1000 + 1 + per_file))
                for i in range(N_FILES)
            ]
            data = [tfrecord_file([row(n) for n in numbers]) for numbers in files]
            expected = [n for numbers in files for n in numbers]
            objects = {f"plain/{i}.tfrecord": each for i, each in enumerate(data)}
            objects |= {
                f"gz/{i}.tfrecord.gz": gzip.compress(each)
                for i, each in enumerate(data)
            }
            for way in READING:
                for hostile in (False, True):
                    faults = FAULTS if hostile else TRANSIENT
                    name = f"{way}, {'all' if hostile else 'transient'} faults"
                    with served(objects, stall_seconds=0.02) as server:
                        rate = 0.05 if hostile else 0.4
                        server.inject = random_faults(seed, rate, faults)
                        ended = read(way, server, expected, hostile=hostile)
                        injected.setdefault(name, Counter()).update(server.injected)
                    counts.setdefault(name, Counter())[ended] += 1
                    seed += 1
            if seed % (8 * 2 * len(READING)) == 0:  # uploads take longer
                ends = write(seed, injected.setdefault("written", Counter()))
                counts.setdefault("written", Counter()).update(ends)
    for name, ends in counts.items():
        n_faults = injected[name].total()
        print(f"{name}: {n_faults} faults, {dict(ends)}")
    kinds = sum(injected.values(), Counter[str]())
    print(json.dumps({"runs": kinds.total(), "kinds": len(kinds)}))


if __name__ == "__main__":
    main()
