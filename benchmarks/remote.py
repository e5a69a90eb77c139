"""Read a dataset from an HTTP server on this machine, compared with plain requests.

    python benchmarks/remote.py [--rounds 5] [--links loopback 20ms slow]

Whole epochs, in file order and shuffled, are compared with parallel ranged GETs of the
same bytes by obstore (the bars: 80 % on a link without a limit, 90 % at 40 MB/s a
connection, shuffled large records 50 %), and with a single stream, which is how the
package `tfrecord` reads a file of fsspec. The server is another process, whose CPU time
is not counted; it shares the CPUs. Rounds alternate all ways to read; the tables have
medians and (max - min) / median. All ways but the first two include opening the dataset
and inferring its schema. The first table counts the round trips to the first batch: the
longest chain of requests.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import multiprocessing
import os
import re
import statistics
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np

import fastrec as fr

__all__: list[str] = []

RANGE_BYTES = 4 << 20
N_CONNECTIONS = 16
N_FILES = 16
FILE_BYTES = 64 << 20
N_PASSES = 2  # each file is listed this often, so that starting takes a small share
N_SHUFFLED = 4  # files
BATCH_SIZE = 256
# Half of this holds ranges. Epochs of a few GB then use the same memory again and again,
# as longer ones do with the default.
MEMORY_LIMIT = "1GB"


@dataclass(frozen=True)
class Link:
    """Latency in seconds, and bytes/s of each connection.

    With `wave`, requests are answered together, once none has arrived for this time.
    """

    latency: float = 0.0
    bandwidth: float | None = None
    wave: float = 0.0


LINKS = {
    "loopback": Link(),
    "20ms": Link(0.02),
    "slow": Link(0.02, 40e6),
}


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves files with ranges, by sendfile."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    link = Link()
    waves: ClassVar = [0]  # requests in each wave
    wave_ended = threading.Condition()

    def _join_wave(self) -> None:
        with self.wave_ended:
            number, n_before = len(self.waves), 0
            self.waves[-1] += 1
            while len(self.waves) == number and n_before < self.waves[-1]:
                n_before = self.waves[-1]
                self.wave_ended.wait(self.link.wave)
            if len(self.waves) == number:
                self.waves.append(0)
                self.wave_ended.notify_all()

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(has_body=False)

    def do_GET(self) -> None:
        self._send(has_body=True)

    def _send(self, *, has_body: bool) -> None:
        time.sleep(self.link.latency)
        if self.path == "/waves":
            self.send_response(200)
            self.send_header("Content-Length", "8")
            self.end_headers()
            self.wfile.write(b"%8d" % (len(self.waves) - 1))
            return
        if self.link.wave:
            self._join_wave()
        path = Path(self.path.lstrip("/"))
        if not path.is_file():  # an index next to the data
            self.send_error(http.HTTPStatus.NOT_FOUND)
            return
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin, end = 0, size
            found = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            self.send_response(206 if found else 200)
            if found:
                begin = int(found[1])
                end = min(size, int(found[2]) + 1) if found[2] else size
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - begin))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{size}"')
            self.end_headers()
            started, first, rate = time.monotonic(), begin, self.link.bandwidth
            while has_body and begin < end:
                n = min(end - begin, (64 << 10) if rate else (1 << 20))
                begin += os.sendfile(self.connection.fileno(), file.fileno(), begin, n)
                if rate:
                    due = started + (begin - first) / rate
                    time.sleep(max(0, due - time.monotonic()))


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def _serve(directory: Path, link: Link, port: Any) -> None:
    os.chdir(directory)
    _Handler.link = link
    server = _Server(("127.0.0.1", 0), _Handler)
    port.send(server.server_port)
    server.serve_forever()


@contextmanager
def served(directory: Path, link: Link) -> Iterator[str]:
    """Serve a directory in another process, and yield its URL."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(directory, link, theirs), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def write_files(directory: Path) -> dict[str, list[str]]:
    """Write files of small and of large records; return their names by kind."""
    rng = np.random.default_rng(0)

    def small(n: int) -> dict[str, Any]:
        columns = {f"f{i}": rng.random(n, dtype=np.float32) for i in range(20)}
        return columns | {f"i{i}": rng.integers(0, 1 << 40, n) for i in range(20)}

    def large(n: int) -> dict[str, Any]:
        sizes = rng.integers(80_000, 140_000, n)
        return {"image": [rng.bytes(int(size)) for size in sizes]}

    names: dict[str, list[str]] = {}
    for kind, rows, n in (("718 B", small, 1000), ("110 KB", large, 50)):
        for i in range(N_FILES):
            name = f"{kind.replace(' ', '')}-{i:05d}-of-{N_FILES:05d}.tfrecord"
            row_bytes = 718 if kind == "718 B" else 110_000
            with fr.Writer(directory / name) as writer:
                for _ in range(FILE_BYTES // row_bytes // n):
                    writer.write_batch(rows(n))
            names.setdefault(kind, []).append(name)
    return names


# Ways to read. Each returns the number of bytes of the records that it read.


def plain_gets(urls: list[str], sizes: list[int]) -> int:
    """Request all bytes in ranges, on parallel connections, and drop them."""
    from obstore.store import HTTPStore

    root = urls[0].rpartition("/")[0]
    store = HTTPStore.from_url(root, client_options={"allow_http": True})
    ranges = [
        (url.rpartition("/")[2], begin, min(size, begin + RANGE_BYTES))
        for url, size in zip(urls, sizes, strict=True)
        for begin in range(0, size, RANGE_BYTES)
    ]

    def get(part: tuple[str, int, int]) -> int:
        key, begin, end = part
        return len(store.get_range(key, start=begin, end=end))

    with ThreadPoolExecutor(N_CONNECTIONS) as pool:
        return sum(pool.map(get, ranges))


def single_stream(urls: list[str], _sizes: list[int]) -> int:
    """Read one file after the other by one request, frame by frame, without checks."""
    n_bytes = 0
    for url in urls[:N_FILES]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", parts.path)
        response = connection.getresponse()
        while header := response.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            n_bytes += len(response.read(length + 4)) + 12
        connection.close()
    return n_bytes


def epoch(urls: list[str], sizes: list[int], **options: Any) -> int:
    """Read an epoch."""
    loader = fr.open(urls).loader(BATCH_SIZE, memory_limit=MEMORY_LIMIT, **options)
    for _ in loader:
        pass
    loader.close()
    return sum(sizes)


def first_batch(urls: list[str], _sizes: list[int], **options: Any) -> int:
    """Read the first batch of an epoch in file order."""
    next(iter(fr.open(urls, **options).loader(BATCH_SIZE)))
    return 0


WAYS: dict[str, Callable[[list[str], list[int]], int]] = {
    "plain GETs": plain_gets,
    "single stream": single_stream,
    "epoch": epoch,
    "Blocks()": lambda urls, sizes: epoch(
        urls, sizes, shuffle=fr.Blocks("1MB", lanes=64)
    ),
    # Each small record is a separate request, unless others are near it.
    "shuffle=True": lambda urls, sizes: epoch(
        urls[:N_SHUFFLED], sizes[:N_SHUFFLED], shuffle=True
    ),
    "first batch": first_batch,
}


def timed(
    read: Callable[[list[str], list[int]], int], urls: list[str], sizes: list[int]
) -> tuple[float, float, int]:
    """Return seconds, CPU seconds of this process, and bytes."""
    begin, cpu = time.perf_counter(), time.process_time()
    n_bytes = read(urls, sizes)
    return time.perf_counter() - begin, time.process_time() - cpu, n_bytes


def measure(
    link: str, directory: Path, names: dict[str, list[str]], rounds: int
) -> None:
    """Print the tables of a link."""
    with served(directory, LINKS[link]) as root:
        for kind, files in names.items():
            urls = [f"{root}/{name}" for name in files] * N_PASSES
            sizes = [(directory / name).stat().st_size for name in files] * N_PASSES
            # Shuffled orders need the index, which this epoch caches.
            epoch(urls, sizes)
            n_rows = len(fr.open(urls))
            runs: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
            for _ in range(rounds):
                for way, read in WAYS.items():
                    runs[way].append(timed(read, urls, sizes))
            plain = statistics.median(n / s for s, _, n in runs["plain GETs"])
            single = statistics.median(n / s for s, _, n in runs["single stream"])
            print(f"\n{link}, records of {kind}, {sum(sizes) / 1e6:.0f} MB\n")
            print(
                "| way | MB/s | rows/s | of plain GETs | of a single stream | CPU s/GB | spread | seconds |"
            )
            print("|---|---:|---:|---:|---:|---:|---:|---:|")
            for way, times in runs.items():
                seconds = statistics.median(s for s, _, _ in times)
                spread = (max(times)[0] - min(times)[0]) / seconds
                rate = statistics.median(n / s for s, _, n in times)
                n_bytes = times[0][2]
                if not n_bytes:
                    print(f"| {way} | | | | | | {spread:.0%} | {seconds:.3f} |")
                    continue
                cpu = statistics.median(c for _, c, _ in times) / n_bytes * 1e9
                rows_s = rate / sum(sizes) * n_rows
                print(
                    f"| {way} | {rate / 1e6:,.0f} | {rows_s:,.0f} | {rate / plain:.2f} "
                    f"| {rate / single:.1f} | {cpu:.2f} | {spread:.0%} | {seconds:.3f} |"
                )


def count_round_trips(directory: Path, names: dict[str, list[str]]) -> None:
    """Print the number of waves of requests up to the first batch."""
    print("\n| records | schema | round trips to the first batch |\n|---|---|---:|")
    with served(directory, Link(wave=0.05)) as root:

        def n_waves() -> int:
            with urlopen(f"{root}/waves") as response:
                return int(response.read())

        for kind, files in names.items():
            schema = fr.open(directory / files[0]).schema
            for schema_is, features in (("given", schema), ("inferred", None)):
                before = n_waves()
                with tempfile.TemporaryDirectory() as cache:
                    os.environ["FASTREC_CACHE"] = cache
                    first_batch(
                        [f"{root}/{name}" for name in files], [], features=features
                    )
                print(f"| {kind} | {schema_is} | {n_waves() - before} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--links", nargs="*", choices=LINKS, default=list(LINKS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="shuffle=True")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        os.environ["FASTREC_CACHE"] = str(directory / "cache")
        names = write_files(directory)
        count_round_trips(directory, names)
        os.environ["FASTREC_CACHE"] = str(directory / "cache")
        for link in options.links:
            measure(link, directory, names, options.rounds)


if __name__ == "__main__":
    main()
