"""Calls of all kinds of writers that signals interrupt; see interrupts.py.

The published files of a writer must contain exactly the records that it accepted. This
also detects data that a thread of an earlier writer wrote to a later one.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import zlib
from collections.abc import Callable
from pathlib import Path

import fastrec as fr
from campaigns.signals import Signals
from columns import Untyped
from fastrec.rewrite.copy import recode, reshard, split, targets_of
from fastrec.rewrite.shuffle import shuffle
from fastrec.writer.shards import ShardOptions


def payload(token: int, i: int) -> bytes:
    """Return record `i` of a data set."""
    return b"%08d %06d " % (token, i) + bytes([i % 251]) * (i * 997 % 3000)


def row(token: int, i: int) -> dict[str, Untyped]:
    return {"n": i, "data": payload(token, i)}


def large(token: int, i: int) -> dict[str, Untyped]:
    return {"n": i, "data": payload(token, i) + b"." * 90_000}


# Each way of writing: the call for the records from `i` on, the number of records per
# call, and the payload of each record.
def one_record(writer: fr.Writer, token: int, i: int) -> None:
    writer.write_record(payload(token, i))


def one_row(writer: fr.Writer, token: int, i: int) -> None:
    writer.write(row(token, i))


def small_batch(writer: fr.Writer, token: int, i: int) -> None:
    write_rows(writer, [row(token, i + k) for k in range(20)])


def large_batch(writer: fr.Writer, token: int, i: int) -> None:
    write_rows(writer, [large(token, i + k) for k in range(40)])


def write_rows(writer: fr.Writer, rows: list[dict[str, Untyped]]) -> None:
    writer.write_batch({name: [found[name] for found in rows] for name in rows[0]})


def encoded(make: Untyped) -> Callable[[int, int], bytes]:
    return lambda token, i: fr.encode_example(make(token, i))


WAYS: dict[str, tuple[Untyped, int, Callable[[int, int], bytes]]] = {
    "record": (one_record, 1, payload),
    "row": (one_row, 1, encoded(row)),
    "batch": (small_batch, 20, encoded(row)),
    "large_batch": (large_batch, 40, encoded(large)),
}

ONE, PATTERN, TOTAL = "data", "data-{shard:03d}", "data-{shard:03d}-of-{num_shards:03d}"
KINDS: dict[str, tuple[str, str, int, dict[str, Untyped]]] = {
    "plain": (ONE, "record", 60, {}),
    "rows": (ONE, "row", 40, {}),
    "synced": (ONE, "batch", 40, {"sync": True}),
    "batch": (ONE, "large_batch", 80, {}),
    "gzip": (ONE, "batch", 60, {"compression": "GZIP"}),
    "gzip_batch": (
        ONE,
        "large_batch",
        40,
        {"compression": "GZIP", "compression_level": 1},
    ),
    "zlib": (ONE, "batch", 60, {"compression": "ZLIB"}),
    "append": (ONE, "batch", 40, {"append": True}),
    "overwrite": (ONE, "batch", 40, {"overwrite": True}),
    "by_records": (PATTERN, "batch", 60, {"max_shard_records": 7}),
    "by_bytes": (PATTERN, "row", 60, {"max_shard_bytes": 5000}),
    "by_total": (TOTAL, "batch", 60, {"max_shard_records": 13}),
    "lanes": (TOTAL, "row", 60, {"num_shards": 3}),
    "lanes_gzip": (
        TOTAL,
        "large_batch",
        40,
        {"num_shards": 3, "compression": "GZIP", "compression_level": 1},
    ),
}
REWRITES = ("reshard", "split", "recode", "shuffle")


def records_of(path: Path) -> list[bytes]:
    """Return the payloads in a file."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    elif path.stat().st_size and data[:1] == b"\x78" and data[8:12] != b"\0" * 4:
        data = zlib.decompress(data)
    found, offset = [], 0
    while offset < len(data):
        end = offset + 12 + int.from_bytes(data[offset : offset + 8], "little")
        assert end + 4 <= len(data), path
        found.append(data[offset + 12 : end])
        offset = end + 4
    return found


class Case:
    """One writer of a kind, whose calls are interrupted."""

    def __init__(
        self, signals: Signals, kind: str, n_threads: int, folder: Path, token: int
    ) -> None:
        self._name, self._way, self._n_wanted, options = KINDS[kind]
        self._write, self._n_at_once, self._payload = WAYS[self._way]
        self._options = {"sync": False, "num_threads": n_threads, **options}
        self._signals = signals
        self._kind = f"{kind}-{n_threads}"
        self._folder, self._token = folder, token
        self._old: list[bytes] = []
        if self._name == ONE and ("append" in options or "overwrite" in options):
            with fr.Writer(folder / ONE, num_threads=0, sync=False) as writer:
                writer.write_record(b"old")
            self._old = [b"old"]

    def _call(self, name: str, function: Callable[[], object]) -> bool:
        return self._signals.call(f"{self._kind} {name}", function)

    def _opened(self) -> fr.Writer:
        return fr.Writer(self._folder / self._name, **self._options)

    def run(self) -> str:
        """Write, and return how it ended."""
        if self._signals.draw.random() < 0.25:
            return self._in_context()
        made: list[fr.Writer] = []
        if self._call("open", lambda: made.append(self._opened())) and not made:
            self._check_lost(0)
            return "lost"
        (writer,) = made
        n = 0
        while n < self._n_wanted and not writer.closed:
            before = n

            def write(writer: fr.Writer = writer, begin: int = n) -> None:
                self._write(writer, self._token, begin)

            if self._call("write", write):
                n = writer.n_records
                assert before <= n <= before + self._n_at_once, (before, n)
            else:
                n += self._n_at_once
        was_closed = writer.closed
        assert writer.n_records == n or was_closed
        if not was_closed and self._signals.draw.random() < 0.1:
            if self._call("discard", writer.discard):
                writer.discard()
        elif was_closed or self._call("close", writer.close):
            with contextlib.suppress(ValueError):  # it was interrupted
                writer.close()
        if not writer.files:
            self._check_lost(n + self._n_at_once)
            return "lost"
        self._check_published(writer.files, n)
        return "published"

    def _in_context(self) -> str:
        """Write in a `with` block that is interrupted as a whole."""
        files: list[str] = []

        def write() -> None:
            with self._opened() as writer:
                for i in range(0, self._n_wanted, self._n_at_once):
                    self._write(writer, self._token, i)
            files.extend(writer.files)

        self._call("with", write)
        n = -(-self._n_wanted // self._n_at_once) * self._n_at_once
        if not files:
            self._check_lost(n)
            return "lost"
        self._check_published(files, n)
        return "published"

    def _expected(self, n: int) -> list[bytes]:
        return [self._payload(self._token, i) for i in range(n)]

    def _check_published(self, files: list[str], n: int) -> None:
        found = [records_of(Path(file)) for file in files]
        expected = self._expected(n)
        n_lanes = self._options.get("num_shards")
        if n_lanes is not None:
            assert found == [expected[lane::n_lanes] for lane in range(n_lanes)]
            return
        old = [] if "overwrite" in self._options else self._old
        assert list(itertools.chain(*found)) == old + expected

    def _check_lost(self, n: int) -> None:
        """Check the shards of a dropped writer: consecutive records of the first n."""
        files = sorted(path for path in self._folder.iterdir() if path.name[0] != ".")
        if self._name == ONE and files:
            found = records_of(files[0])
            if found != self._old:
                old = [] if "overwrite" in self._options else self._old
                # Interrupted when it was complete.
                assert found == old + self._expected(len(found) - len(old))
            return
        n_lanes = self._options.get("num_shards")
        expected = self._expected(n)
        for path in files:
            shard, found = int(path.name[5:8]), records_of(path)
            if n_lanes is not None:
                assert found == expected[shard::n_lanes][: len(found)]
            elif found:
                begin = expected.index(found[0])
                assert found == expected[begin : begin + len(found)]


def rewritten(
    signals: Signals, kind: str, n_threads: int, folder: Path, sources: list[str]
) -> str:
    """Rewrite files, and check the result unless that was interrupted."""
    shard_options = ShardOptions(sync=False, n_threads=n_threads, max_records=None)
    out, done = str(folder / "out-{shard:03d}"), False

    def rewrite() -> None:
        nonlocal done
        if kind == "reshard":
            reshard(sources, out, shard_options, 3)
        elif kind == "split":
            split(sources, str(folder / "{part}"), {"a": 0.5, "b": 0.5}, shard_options)
        elif kind == "recode":
            recode(targets_of(sources, str(folder), "GZIP"), shard_options)
        else:
            shuffle(sources, out, shard_options, seed=1, memory=64 << 20)
        done = True

    signals.call(f"{kind}-{n_threads}", rewrite)
    files = sorted(path for path in folder.iterdir() if path.name[0] != ".")
    found = list(itertools.chain(*map(records_of, files)))
    expected = list(itertools.chain(*map(records_of, map(Path, sources))))
    if done:
        assert sorted(found) == sorted(expected)
    else:
        assert not set(found) - set(expected)
    return "published" if done else "lost"


def written_source(top: Path, token: int) -> str:
    path = str(top / f"source-{token}")
    with fr.Writer(path, sync=False, num_threads=0) as writer:
        for i in range(200):
            writer.write_record(payload(token, i))
    return path
