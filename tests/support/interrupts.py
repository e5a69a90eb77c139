"""A program that Ctrl-C interrupts at random moments of one of several loops.

usage: python tests/support/interrupts.py LOOP TIMES FILES

It continues after each interrupt, and every epoch must be complete. At the end, prints
as JSON how long each signal took to become a KeyboardInterrupt, in milliseconds. The
files contain the records 0, 1, ... of `record`: the columns are dense, bytes, ragged,
padded and composed of several features, and all values are compared.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fastrec as fr
from children import SECONDS_TO_HANG
from columns import Untyped
from oracle import example

# Short, because a signal just before a sleep does not end it.
_POLL_SECONDS = 0.001

_VALUES = fr.Ragged.RowLengths("lengths")

# A column of every kind. Arrays of most kinds are made by Python code, in which a
# signal may raise.
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "name": fr.FixedLen((), "bytes"),
    "ids": fr.VarLen("int64"),
    "words": fr.VarLen("bytes"),
    "padded": fr.FixedLenSequence((), "int64", key="ids", lengths="n_ids"),
    "rows": fr.Ragged("int64", [_VALUES], key="values"),
    "sparse": fr.Sparse("at", "values", "int64", 8),
    "stack": fr.Stack(["n", "n"], dtype="int64"),
}
NUMBERS = {"n": SPEC["n"]}


def record(n: int) -> bytes:
    k = n % 4
    return example(
        {
            b"n": ("int64", [n]),
            b"name": ("bytes", [b"%d" % n]),
            b"ids": ("int64", range(n, n + k)),
            b"words": ("bytes", [b"w" * k, b"%d" % n][: n % 3]),
            b"lengths": ("int64", [k, 1]),
            b"values": ("int64", range(n, n + k + 1)),
            b"at": ("int64", range(k + 1)),
        }
    )


def check_values(batches: list[Untyped], added: int) -> None:
    """Compare every column with the values that follow from its record number."""
    first = 0
    for batch in batches:
        n = np.arange(first, first + len(batch["n"]))
        first += len(n)
        k = n % 4
        np.testing.assert_array_equal(batch["n"], n + added)
        np.testing.assert_array_equal(batch["stack"], np.stack([n, n], 1))
        assert batch["name"].tolist() == [b"%d" % i for i in n]
        assert batch["words"].tolist() == [
            [b"w" * (i % 4), b"%d" % i][: i % 3] for i in n.tolist()
        ]
        np.testing.assert_array_equal(batch["ids"].lengths, k)
        np.testing.assert_array_equal(batch["n_ids"], k)
        places = np.arange(k.max(initial=0))
        ids = np.where(places < k[:, None], n[:, None] + places, 0)
        np.testing.assert_array_equal(batch["padded"], ids)
        np.testing.assert_array_equal(batch["ids"].to_padded(), ids)
        rows = batch["rows"]
        np.testing.assert_array_equal(rows.lengths, 2)
        lengths = np.stack([k, np.ones_like(k)], 1).ravel()
        np.testing.assert_array_equal(rows.values.lengths, lengths)
        values = np.concatenate([np.arange(i, i + i % 4 + 1) for i in n.tolist()])
        np.testing.assert_array_equal(rows.values.values, values)
        np.testing.assert_array_equal(batch["sparse"].values, values)
        np.testing.assert_array_equal(
            batch["sparse"].indices[:, 0], np.repeat(np.arange(len(n)), k + 1)
        )


def in_place(batch: Untyped) -> Untyped:
    """A transform that shows if it is called twice for one batch."""
    batch["n"] += 1
    for _ in range(200):
        batch["n"] -= 1
        batch["n"] += 1
    return batch


def waiting(batch: Untyped) -> Untyped:
    time.sleep(0.002)
    return batch


def plus_one(row: Untyped) -> Untyped:
    return {"n": row["n"] + 1}


PER_ROW = fr.per_row(plus_one, out=NUMBERS)


# Options of loaders, and what each adds to the records.
LOOPS: dict[str, tuple[dict[str, Untyped], int]] = {
    "inline": ({"batch_size": 20_000, "num_threads": 0}, 0),
    "threads": ({"batch_size": 20_000, "num_threads": 2}, 0),
    "small_batches": ({"batch_size": 16, "num_threads": 0}, 0),
    "small_batches_of_threads": ({"batch_size": 16, "num_threads": 2}, 0),
    "transform": (
        {"batch_size": 500, "transform": in_place, "transform_threads": 0},
        1,
    ),
    "transform_threads": (
        {"batch_size": 100, "transform": dict, "transform_threads": 2},
        0,
    ),
    "waiting": ({"batch_size": 1000, "transform": waiting}, 0),
    "per_row": (
        {"batch_size": 1000, "transform": PER_ROW, "transform_threads": 2},
        1,
    ),
    "per_row_inline": (
        {"batch_size": 500, "transform": PER_ROW, "transform_threads": 0},
        1,
    ),
}


# Ways to iterate an inline loader, and how to convert their items to a dict.
NAMES = [*SPEC, "n_ids"]
WAYS: dict[str, tuple[Untyped, Untyped]] = {
    "tuples": (
        lambda loader: iter(loader.tuples(*NAMES)),
        lambda batch: dict(zip(NAMES, batch, strict=True)),
    ),
    "repeat": (lambda loader: loader.repeat(1), dict),
}


class Interrupter:
    """A process that sends a SIGINT at a random moment after each `go`."""

    def __init__(self) -> None:
        to_it, self._go = os.pipe()
        self._sent, from_it = os.pipe()
        self.seconds = 0.02  # the longest time before it
        parent = os.getpid()
        if os.fork():
            os.close(to_it)
            os.close(from_it)
            return
        os.close(self._go)  # so that it ends with its parent
        draw = random.Random(0)
        while asked := os.read(to_it, 8):
            time.sleep(draw.uniform(0, float(np.frombuffer(asked)[0])))
            os.write(from_it, np.float64(time.monotonic()).tobytes())
            os.kill(parent, signal.SIGINT)
        os._exit(0)

    def go(self) -> None:
        """Request a signal; call `ms_since` before the next one."""
        os.write(self._go, np.float64(self.seconds).tobytes())

    def ms_since(self) -> float:
        """Return the milliseconds since the signal was sent."""
        now = time.monotonic()
        return 1000 * (now - float(np.frombuffer(os.read(self._sent, 8))[0]))


def loop(
    loader: Untyped,
    n_records: int,
    added: int,
    n_times: int,
    way: tuple[Untyped, Untyped],
) -> list[float]:
    """Interrupt epochs of a loader, and compare all their values."""
    begun, as_dict = way
    interrupter = Interrupter()
    begin = time.monotonic()
    for _ in loader:
        pass
    interrupter.seconds = min(0.1, time.monotonic() - begin)
    latencies: list[float] = []
    iterator, got = begun(loader), []
    while len(latencies) < n_times:
        is_over = False
        signal.alarm(SECONDS_TO_HANG)
        try:
            interrupter.go()
            for batch in iterator:
                got.append(batch)  # noqa: PERF402 (nothing between the two)
            is_over = True
            while True:
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            latency = interrupter.ms_since()
        latencies.append(latency)
        if not is_over:
            is_ended = not loader.step and len(got)
            assert is_ended or loader.step == len(got), (loader.step, len(got))
            continue
        assert loader.step == 0
        batches = list(map(as_dict, got))
        assert sum(len(batch["n"]) for batch in batches) == n_records
        check_values(batches, added)
        iterator, got = begun(loader), []
    signal.alarm(0)
    return latencies


def indexing(count: Callable[[], int], expected: int, n_times: int) -> list[float]:
    """Interrupt the building of an index, and repeat it."""
    interrupter = Interrupter()
    begin = time.monotonic()
    assert count() == expected
    interrupter.seconds = min(0.1, time.monotonic() - begin)
    latencies: list[float] = []
    while len(latencies) < n_times:
        signal.alarm(SECONDS_TO_HANG)
        try:
            interrupter.go()
            assert count() == expected
            while True:
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            latencies.append(interrupter.ms_since())
        assert count() == expected
    return latencies


def main() -> None:
    _, what, n_times, *paths = sys.argv
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if what == "indexing":

        def count() -> int:
            with contextlib.suppress(FileNotFoundError):
                for kept in Path(folder).rglob("*.frec*"):
                    kept.unlink()
            return len(fr.open(paths))

        with tempfile.TemporaryDirectory() as folder:
            os.environ["FASTREC_CACHE"] = folder
            latencies = indexing(count, count(), int(n_times))
    else:
        options, added = LOOPS["small_batches" if what in WAYS else what]
        way = WAYS.get(what, (iter, dict))
        ds = fr.open(paths, features=SPEC)
        latencies = loop(ds.loader(**options), len(ds), added, int(n_times), way)
    sys.stdout.write(json.dumps(latencies))


if __name__ == "__main__":
    main()
