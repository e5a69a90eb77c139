"""A program that kills writers and index builders with SIGKILL at random moments.

Arguments: "writer", "index", "expansion" or "table", a new folder, a plain and a compressed file
with records of numbers, and the number of runs; for "kept", two plain files. Prints how
many processes were killed before they finished, and how many records were read
afterwards.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from children import SEED
from fastrec import Writer  # imported here, because a child lives for 20 ms only
from fastrec.convert import write_table
from faults import check_nothing_more, is_killed, left_open, patience
from kept_rows import exactly

SPEC = {"n": fr.FixedLen((), "int64")}
RECORDS = [
    fr.encode_example({"n": n, "data": bytes([n]) * (n * 997 % 5000)})
    for n in range(200)
]


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long the work takes, so that a kill hits it in most runs."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def write_on(path: Path) -> None:
    """Write records until the process is killed."""
    with Writer(path) as writer:
        for record in itertools.cycle(RECORDS):
            writer.write_record(record)


def read_part(part: Path) -> int:
    """Read the files of a killed writer, and return the number of records."""
    # The sizes determine which records are complete.
    size = part.stat().st_size
    expected, end = [], 0
    for n, record in enumerate(itertools.cycle(RECORDS)):
        if end + len(record) + 16 > size:
            break
        expected.append(n % len(RECORDS))
        end += len(record) + 16
    for num_threads in (0, 2):
        ds = fr.open(part, features=SPEC, on_error="skip")
        loader = ds.loader(16, num_threads=num_threads)
        assert [n for batch in loader for n in batch["n"].tolist()] == expected
        assert len(ds) == len(expected)
        tails = [(region.begin, region.end) for region in ds.report]
        assert tails == ([] if end == size else [(end, size)]), (tails, end, size)
    found = []
    refusal = None
    try:
        for record in fr.read_records(part, num_threads=0):
            found.append(record)  # noqa: PERF402 (those before an error count)
    except fr.CorruptionError as error:
        refusal = error
    assert found == [RECORDS[n] for n in expected]
    assert (refusal is None) == (end == size), refusal
    if refusal is not None:
        assert refusal.offset is not None
        assert end <= refusal.offset <= size, refusal
    return len(expected)


def kill_writer(folder: Path, draw: random.Random) -> tuple[bool, int]:
    """Kill a writer; return 1 and the number of records that it left."""
    path = folder / "data"
    delay = draw.random() * 0.02
    n_bytes = draw.choice((0, 1))  # in a file, before the delay begins

    def has_begun() -> bool:
        return any(part.stat().st_size >= n_bytes for part in folder.iterdir())

    assert is_killed(lambda: write_on(path), delay, has_begun)
    left = list(folder.iterdir())
    assert path not in left
    n_records = 0
    for part in left:
        assert part.name.startswith(".data."), part
        n_records += read_part(part)
        part.unlink()
    return True, n_records


def kill_builder(
    folder: Path, draw: random.Random, read: Callable[[Path], list[bytes]]
) -> tuple[bool, int]:
    """Kill the builder of a cache entry, and read with the remaining files."""
    cache = folder / f"{draw.random()}"
    seconds = seconds_of(lambda: read(folder / f"{draw.random()}"))
    killed = is_killed(lambda: read(cache), draw.random() * seconds)
    assert read(cache) == WHOLE
    assert read(cache) == WHOLE
    return killed, 2 * len(WHOLE)


def kill_converter(folder: Path, draw: random.Random, plain: str) -> tuple[bool, int]:
    """Kill a conversion, and convert again, which leaves nothing else."""
    target = folder / "data.parquet"
    convert = partial(write_table, plain, target, batch_size=8)
    seconds = seconds_of(convert)
    target.unlink()
    killed = is_killed(convert, draw.random() * seconds)
    assert {path.name for path in folder.iterdir()} <= {
        target.name,
        f".{target.name}.0.tmp",
    }
    n_records = convert(overwrite=True)
    assert [*folder.iterdir()] == [target]
    target.unlink()
    return killed, n_records


def add_rows_of_every_kind(batch: dict[str, Any]) -> dict[str, Any]:
    """Add a column of large rows, and one of nested rows."""
    n = batch["n"]
    nested = [[[i], [i, -i]] for i in n.tolist()]
    large = n[:, np.newaxis] + np.arange(1000)
    return {**batch, "nested": fr.RaggedArray.from_list(nested), "large": large}


def kept_dataset(ds: fr.Dataset, directory: Path) -> fr.Dataset:
    """Return a dataset that keeps its rows in files of every kind."""
    return ds.with_transform(add_rows_of_every_kind, cache_key="1").cache(directory)


def kill_keeper(
    folder: Path, draw: random.Random, paths: list[str]
) -> tuple[bool, int]:
    """Kill processes that keep rows, and compare all rows with the decoded ones."""
    plain = fr.open(paths)
    kept = kept_dataset(plain, folder / f"{draw.random()}")
    options: dict[str, Any] = {"num_threads": 0, "transform_threads": 0}

    def epoch(ds: fr.Dataset, seed: int) -> None:
        for _ in ds.loader(7, shuffle=True, seed=seed, **options):
            pass

    whole = kept_dataset(plain, folder / f"{draw.random()}")
    seconds = seconds_of(partial(epoch, whole, 0))
    killed = [
        is_killed(partial(epoch, kept, seed), draw.random() * seconds)
        for seed in range(2)
    ]
    wanted = exactly(plain.with_transform(add_rows_of_every_kind).loader(9, **options))
    loader = kept.loader(9, **options)
    for _ in range(2):
        assert exactly(loader) == wanted
    assert loader.stats.n_kept >= len(plain)
    return any(killed), len(plain)


WHOLE: list[bytes] = []


def main() -> None:
    """Kill processes, and check the remaining files."""
    what, folder, plain, packed = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5]
    logging.disable()  # of the tails
    draw = random.Random(SEED)
    folder.mkdir()

    def indexed(cache: Path) -> list[bytes]:
        return list(fr.open(plain, features=SPEC, index_dir=cache).records)

    def expanded(cache: Path) -> list[bytes]:
        return list(fr.open(packed, features=SPEC, cache_dir=cache).records)

    if what != "kept":
        WHOLE.extend(fr.read_records(plain))
    if what == "table":
        kill_converter(folder, draw, plain)  # starts the threads of pyarrow
    if what == "kept":
        is_killed(list, 0)  # NumPy's threads end at a fork
    before = left_open()
    n_killed = n_records = 0
    for _ in range(int(sys.argv[5])):
        with patience():
            if what == "writer":
                killed, n = kill_writer(folder, draw)
            elif what == "table":
                killed, n = kill_converter(folder, draw, plain)
            elif what == "kept":
                killed, n = kill_keeper(folder, draw, [plain, packed])
            else:
                read = {"index": indexed, "expansion": expanded}[what]
                killed, n = kill_builder(folder, draw, read)
        n_killed += killed
        n_records += n
    check_nothing_more(before)
    print(n_killed, n_records)


if __name__ == "__main__":
    main()
