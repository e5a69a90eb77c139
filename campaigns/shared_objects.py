"""Threads share one object of fastrec, and get what one thread alone would get.

usage: shared_objects.py RUNS [SEED] [SITUATION ...]

Each run starts several threads at once in one situation, with a new object: so the
threads also meet what is created on first use. Needs only NumPy, and runs with and
without the GIL. The last line of the output is a JSON object.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import fastrec as fr
from children import SECONDS_TO_HANG
from fastrec.compat import tf_io

N_THREADS = 4
FILE_SIZES = (37, 0, 60, 23)
N = sum(FILE_SIZES)
SPEC: dict[str, Any] = {
    "n": fr.FixedLen((), "int64"),
    "ids": fr.VarLen("int64"),
    "word": fr.FixedLen((), "bytes"),
}
STREAM_ORDERS: list[dict[str, Any]] = [{}, {"shuffle": fr.Window(16)}]
ORDERS = [
    *STREAM_ORDERS,
    {"shuffle": True},
    {"shuffle": fr.Blocks(block_bytes=300, lanes=3)},
]

Untyped: TypeAlias = Any  # not of `columns`, which imports optional packages
Work: TypeAlias = Callable[[int], object]


def row(n: int) -> dict[str, Any]:
    return {"n": n, "ids": np.full(n % 4, n), "word": b"w" * (n % 7)}


def check_rows(batch: Untyped) -> list[int]:
    """Check every value of a batch, and return its labels."""
    numbers = batch["n"].tolist()
    for n, ids, word in zip(
        numbers, batch["ids"].tolist(), batch["word"].tolist(), strict=True
    ):
        assert (ids, word) == ([n] * (n % 4), b"w" * (n % 7)), (n, ids, word)
    return [int(n) for n in numbers]


def labels(batches: Iterable[Any]) -> list[int]:
    return [n for batch in batches for n in check_rows(batch)]


def together(*works: Work) -> list[Any]:
    """Start one thread for each function at once; return their results."""
    begin = threading.Barrier(len(works))

    def started(i: int) -> object:
        begin.wait()
        return works[i](i)

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(started, i) for i in range(len(works))]
        return [future.result(timeout=SECONDS_TO_HANG) for future in futures]


class Situations:
    """Files of the rows 0 to N - 1, and a method for each situation."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory, self.rng = directory, rng
        self.plain = self._write("plain-{i}.tfrecord")
        self.compressed = self._write("packed-{i}.tfrecord.gz")

    def _write(self, pattern: str) -> list[Path]:
        paths = []
        ends = itertools.accumulate(FILE_SIZES, initial=0)
        for i, (begin, end) in enumerate(itertools.pairwise(ends)):
            path = self.directory / pattern.format(i=i)
            with fr.Writer(path, sync=False, num_threads=0) as writer:
                for n in range(begin, end):
                    writer.write(row(n))
            paths.append(path)
        return paths

    def _open(self, **options: Untyped) -> fr.Dataset:
        features = self.rng.choice([SPEC, None])
        return fr.open(self.plain, **{"features": features, **options})

    def _loader(self, ds: fr.Dataset, **options: Untyped) -> fr.Loader:
        orders = STREAM_ORDERS if ds.is_streamed else ORDERS
        chosen: dict[str, Any] = {
            "num_threads": self.rng.choice([0, 1, 3]),
            "transform": self.rng.choice([None, dict]),
            **self.rng.choice(orders),
            **options,
        }
        if chosen["transform"] is not None:
            chosen["transform_threads"] = self.rng.choice([0, 1, 3])
        return ds.loader(self.rng.choice([1, 3, 16]), **chosen)

    def one_iterator(self) -> None:
        """Some threads take batches; another one looks at the loader."""
        ds = self.rng.choice([self._open, self._open_compressed])()
        loader = self._loader(ds)
        iterator = iter(loader)
        done = threading.Event()
        states: list[dict[str, Any]] = []

        def take(_: int) -> list[int]:
            return labels(iterator)

        def watch(_: int) -> list[int]:
            while True:
                states.append(loader.state_dict())
                assert len(loader.report) == 0
                assert 0 <= loader.stats.n_records <= N
                repr(loader)
                if done.is_set():
                    return []

        def take_and_end(i: int) -> list[int]:
            try:
                return take(i)
            finally:
                done.set()

        found = together(watch, take_and_end, *[take] * (N_THREADS - 2))
        assert sorted(itertools.chain(*found)) == list(range(N))
        places = [(state["epoch"], state["position"]) for state in states]
        assert places == sorted(places)
        # Every state that was seen resumes its epoch, at its position.
        state = self.rng.choice(states)
        loader.load_state_dict(state)
        rest = labels(loader)
        assert len(set(rest)) == len(rest) == N - state["position"]

    def _open_compressed(self) -> fr.Dataset:
        return fr.open(self.compressed, features=SPEC)

    def iterators_of_one_loader(self) -> None:
        """A new ``for`` closes the one before."""
        loader = self._loader(self._open())

        def loop(_: int) -> None:
            for _ in range(3):
                iterator = iter(loader)
                try:
                    found = labels(iterator)
                except RuntimeError as error:
                    if "was closed" not in str(error):
                        raise
                else:
                    assert len(set(found)) == len(found)

        together(*[loop] * N_THREADS)
        loader.close()
        assert sorted(labels(loader)) == list(range(N))

    def batches_of_one_loader(self) -> None:
        """Batches by step, of more epochs than the loader keeps plans of."""
        loader = self._loader(self._open(), shuffle=True)

        def look(i: int) -> list[int]:
            return [n for e in range(8) for n in labels([loader.batch(0, i + e)])]

        assert together(*[look] * N_THREADS) == [look(i) for i in range(N_THREADS)]

    def loaders_of_one_dataset(self) -> None:
        ds = self._open()
        seeds = [self.rng.randrange(9) for _ in range(N_THREADS)]
        loaders = [self._loader(ds, seed=seed) for seed in seeds]
        found = together(*[lambda i: labels(loaders[i])] * N_THREADS)
        for mine in found:
            assert sorted(mine) == list(range(N))

    def one_dataset(self) -> None:
        """Reads of every kind of a dataset that has not been read yet."""
        ds = self._open(index_dir=self.directory / "indexes")
        numbers = [self.rng.randrange(N) for _ in range(12)]

        def by_number(_: int) -> None:
            for n in numbers:
                read = ds[n]
                assert (int(read["n"]), read["word"]) == (n, row(n)["word"])
                assert read["ids"].tolist() == row(n)["ids"].tolist()

        def by_slice(_: int) -> None:
            assert labels([ds[5:40]]) == list(range(5, 40))
            assert labels([ds[numbers]]) == numbers

        def records(_: int) -> None:
            stored = [fr.decode_example(ds.records[n]) for n in numbers]
            assert [int(found["n"][0]) for found in stored] == numbers
            assert len(list(ds.records)) == N

        def views(_: int) -> None:
            first, second = ds.split([0.5, 0.5], seed=3)
            both = [int(r["n"]) for view in (first, second) for r in view]
            assert sorted(both) == list(range(N))
            even = ds.select(range(0, N, 2))
            assert [int(r["n"]) for r in even] == list(range(0, N, 2))
            assert set(ds.schema) == set(SPEC)
            assert len(ds) == N
            repr(ds)

        works = [by_number, by_slice, records, views]
        self.rng.shuffle(works)
        together(*works, self.rng.choice(works))
        shutil.rmtree(self.directory / "indexes", ignore_errors=True)

    def one_mix(self) -> None:
        ds = self._open()
        halves = {"a": (ds.select(range(50)), 2.0), "b": (ds.select(range(50, N)), 1.0)}
        mixed = fr.mix(halves, seed=1, length=90)
        expected = [int(mixed[i]["n"]) for i in range(0, 90, 10)]
        again = fr.mix(halves, seed=1, length=90)
        loader = self._loader(again, shuffle=True)
        iterator = iter(loader)

        def take(_: int) -> list[int]:
            return labels(iterator)

        def look(_: int) -> list[int]:
            assert [int(again[i]["n"]) for i in range(0, 90, 10)] == expected
            return []

        found = together(look, look, *[take] * (N_THREADS - 2))
        alone = labels(loader.batch(step, epoch=0) for step in range(len(loader)))
        assert sorted(itertools.chain(*found)) == sorted(alone)

    def one_writer(self) -> None:
        """Rows, batches and records, to a file or to shards."""
        folder = self.directory / "written"
        folder.mkdir()
        name = self.rng.choice(
            ["all.tfrecord", "part-{shard}.tfrecord.gz", "s-{shard}"]
        )
        shards: dict[str, Any] = {}
        if "{shard}" in name:
            shards = self.rng.choice([{"num_shards": 3}, {"max_shard_records": 50}])
        n_each = 40
        rows = [[row(i * n_each + k) for k in range(n_each)] for i in range(N_THREADS)]
        whole = fr.open(self.plain, features=SPEC)[:n_each]

        with fr.Writer(
            folder / name, sync=False, num_threads=self.rng.choice([0, 2]), **shards
        ) as writer:

            def by_row(i: int) -> None:
                for one in rows[i]:
                    writer.write(one)
                    assert writer.n_records >= 0

            def by_record(i: int) -> None:
                for one in rows[i]:
                    writer.write_record(fr.encode_example(one))

            def by_batch(_: int) -> None:
                writer.write_batch(whole)

            works: list[Work] = [by_row, by_record, by_batch, by_row]
            together(*works)
            assert writer.n_records == N_THREADS * n_each
        written = fr.open(sorted(folder.iterdir()), features=SPEC)
        wanted = Counter(r["n"] for i in (0, 1, 3) for r in rows[i])
        wanted.update(range(n_each))
        assert Counter(labels(written.loader(16))) == wanted
        shutil.rmtree(folder)

    def functions(self) -> None:
        """Functions that share memory in the module."""
        records = [fr.encode_example(row(n)) for n in range(N)]

        def parse(_: int) -> None:
            assert labels([fr.parse_example(records, SPEC)]) == list(range(N))

        def single(_: int) -> None:
            for n, record in enumerate(records):
                read = tf_io.parse_single_example(record, SPEC)
                assert int(read["n"]) == n
                assert fr.encode_example(row(n)) == record

        together(parse, single, parse, single)

    def one_batch(self) -> None:
        """Threads read the arrays of one batch, whose memory other batches reuse."""
        loader = self._loader(self._open(features=SPEC), num_threads=1)
        for batch in itertools.islice(loader, 8):
            found = together(*[lambda _, batch=batch: check_rows(batch)] * N_THREADS)
            assert found == [check_rows(batch)] * N_THREADS


SITUATIONS = [name for name in vars(Situations) if not name.startswith("_")]


def main() -> None:
    runs = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    chosen = sys.argv[3:] or SITUATIONS
    sys.setswitchinterval(1e-5)  # with the GIL, threads take turns more often
    directory = Path(tempfile.mkdtemp(prefix="fastrec-shared-"))
    try:
        files = Situations(directory, random.Random(seed))
        for run in range(runs):
            faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
            name = chosen[run % len(chosen)]
            files.rng = random.Random(f"{seed} {run}")
            try:
                getattr(files, name)()
            except BaseException:
                sys.stderr.write(f"run {run} of seed {seed}: {name}\n")
                raise
        faulthandler.cancel_dump_traceback_later()
    finally:
        shutil.rmtree(directory)
    sys.stdout.write(json.dumps({"runs": runs}) + "\n")


if __name__ == "__main__":
    main()
