"""Datasets in object stores, read by ranges.

Goal
    Every way to read records delivers from URLs what it delivers from local files, with
    any number of faults and in any amount of memory; a changed object is an error; every
    wait for the network ends on a signal, on `close`, and with the process.
Method
    The same bytes in local files and on an HTTP server in this process that injects
    faults and stalls; compared batch by batch.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from children import SECONDS_TO_HANG, run_program
from columns import Untyped, open_dataset
from fastrec.storage.range_readers import RangeReaders
from object_server import ObjectServer, Request, random_faults, served
from oracle import example, tfrecord_file

pytest.importorskip("obstore", reason="extra `remote` is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore:shuffle=True reads records"),
    pytest.mark.filterwarnings("ignore:a batch of .* exceeds memory_limit"),
]

SIZES = (40, 700, 0, 300)
SPEC = {"n": fr.FixedLen((), "int64"), "text": fr.VarLen("bytes")}
BATCH_SIZE = 64


def records(first: int, n: int) -> list[bytes]:
    """Return records of up to 40 KB."""
    rng = np.random.default_rng(first)
    return [
        example(
            {
                b"n": ("int64", [i]),
                b"text": (
                    "bytes",
                    [rng.bytes(int(rng.integers(0, 40_000 if i % 9 else 9)))],
                ),
            }
        )
        for i in range(first, first + n)
    ]


@pytest.fixture(scope="module")
def shards() -> dict[str, bytes]:
    begins = itertools.accumulate(SIZES, initial=0)
    return {
        f"data/train-{i:05d}-of-{len(SIZES):05d}.tfrecord": tfrecord_file(
            records(begin, n)
        )
        for i, (begin, n) in enumerate(zip(begins, SIZES, strict=False))
    }


@pytest.fixture
def server(
    shards: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ObjectServer]:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))
    with served(shards, stall_seconds=10 * SECONDS_TO_HANG) as running:
        yield running


def open_remote(server: ObjectServer, **options: Untyped) -> Untyped:
    urls = [f"{server.url}/{key}" for key in sorted(server.objects)]
    return open_dataset(urls, **{"features": SPEC} | options)


@pytest.fixture(scope="module")
def paths(shards: dict[str, bytes], write: Callable[[bytes], Path]) -> list[Path]:
    return [write(shards[key]) for key in sorted(shards)]


@pytest.fixture(scope="module")
def local(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=SPEC)


def rows(batches: Untyped) -> list[tuple[int, list[bytes]]]:
    return [
        (int(n), text)
        for batch in batches
        for n, text in zip(batch["n"], batch["text"].tolist(), strict=True)
    ]


def n_fetched(server: ObjectServer) -> int:
    """Return the number of bytes that were requested so far."""
    spans = (r.span for r in list(server.requests) if r.method == "GET")
    return sum(end - begin for begin, end in filter(None, spans))


ORDERS: list[dict[str, Untyped]] = [
    {},
    {"shuffle": True},
    {"shuffle": fr.Blocks("200KB", lanes=8)},
    {"shuffle": fr.Window(100)},
    {"shuffle": fr.Blocks("50KB", lanes=3), "drop_last": True},
]


@pytest.mark.parametrize("memory_limit", ["1GB", "300KB"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_epochs_equal_those_of_local_files(
    server: ObjectServer, local: Untyped, order: dict[str, Untyped], memory_limit: str
) -> None:
    options = {"batch_size": BATCH_SIZE, "seed": 3, **order}
    loader = open_remote(server).loader(memory_limit=memory_limit, **options)
    expected = local.loader(**options)
    for _ in range(2):
        assert rows(loader) == rows(expected)
    assert loader.stats.n_bytes_fetched > 0
    assert loader.stats.n_retries == 0


@pytest.mark.parametrize("num_threads", [0, 1, 3])
@pytest.mark.parametrize("order", ORDERS[:3], ids=str)
def test_ranks_equal_those_of_local_files(
    server: ObjectServer, local: Untyped, order: dict[str, Untyped], num_threads: int
) -> None:
    ds = open_remote(server)
    for rank in range(3):
        options = {"batch_size": 16, "rank": rank, "world_size": 3, **order}
        loader = ds.loader(num_threads=num_threads, **options)
        assert rows(loader) == rows(local.loader(**options))


def test_single_rows_equal_those_of_local_files(
    server: ObjectServer, local: Untyped
) -> None:
    ds = open_remote(server)
    assert len(ds) == len(local) == sum(SIZES)
    for i in (0, 39, 40, 500, -1):
        assert ds[i]["n"] == local[i]["n"]
        assert ds[i]["text"].tolist() == local[i]["text"].tolist()
    chosen = [700, 3, 3, 41]
    assert ds[chosen]["text"].tolist() == local[chosen]["text"].tolist()
    assert [int(row["n"]) for row in ds.select(range(30, 60))] == [*range(30, 60)]


def test_records_equal_those_of_local_files(
    server: ObjectServer, paths: list[Path]
) -> None:
    urls = [f"{server.url}/{key}" for key in sorted(server.objects)]
    assert list(fr.read_records(urls)) == list(fr.read_records(paths))


@pytest.mark.parametrize("order", ORDERS[:3], ids=str)
def test_a_restarted_run_continues_on_urls(
    server: ObjectServer, local: Untyped, order: dict[str, Untyped]
) -> None:
    options = {"batch_size": BATCH_SIZE, "seed": 3, **order}
    expected = local.loader(**options)
    loader = open_remote(server).loader(**options)
    head = rows(itertools.islice(loader, 5))
    assert head == rows(itertools.islice(expected, 5))
    resumed = open_remote(server).loader(**options)
    resumed.load_state_dict(loader.state_dict())
    assert head + rows(resumed) == rows(local.loader(**options))


@pytest.mark.parametrize("order", ORDERS[:3], ids=str)
def test_local_and_remote_files_mix(
    server: ObjectServer, local: Untyped, paths: list[Path], order: dict[str, Untyped]
) -> None:
    urls = [f"{server.url}/{key}" for key in sorted(server.objects)]
    mixed = open_dataset([urls[0], paths[1], paths[2], urls[3]], features=SPEC)
    options = {"batch_size": BATCH_SIZE, **order}
    for _ in range(2):
        assert rows(mixed.loader(**options)) == rows(local.loader(**options))


def test_the_sample_for_the_schema_is_data(server: ObjectServer) -> None:
    n_bytes = sum(map(len, server.objects.values()))
    batches = open_remote(server, features=None).loader(BATCH_SIZE)
    assert sum(len(batch["n"]) for batch in batches) == sum(SIZES)
    assert n_fetched(server) <= n_bytes + len(SIZES) * (16 << 10)  # the beginnings


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[2]], ids=str)
def test_a_resumed_epoch_reads_only_what_it_needs(
    server: ObjectServer, order: dict[str, Untyped], has_index: bool, tmp_path: Path
) -> None:
    n_bytes = sum(map(len, server.objects.values()))
    options = {"batch_size": 16, "seed": 3, **order}
    loader = open_remote(server).loader(**options)
    n_steps = sum(1 for _ in loader)
    head = rows(itertools.islice(loader, n_steps * 3 // 4))
    state = loader.state_dict()
    if not has_index:
        for path in tmp_path.rglob("*.frecidx"):
            path.unlink()
    server.requests.clear()
    resumed = open_remote(server).loader(**options)
    resumed.load_state_dict(state)
    rest = rows(resumed)
    assert len(head) + len(rest) == sum(SIZES)
    n_blocks = 8 * 200_000 if order else 0  # that are in use
    n_needed = sum(len(text) for _, texts in rest for text in texts) + n_blocks
    n_scanned = 0 if has_index else n_bytes
    assert n_fetched(server) < 1.2 * (n_needed + n_scanned)


# Indexes.


def test_a_complete_epoch_keeps_the_indexes(
    server: ObjectServer, local: Untyped, tmp_path: Path
) -> None:
    n_bytes = sum(map(len, server.objects.values()))
    ds = open_remote(server)
    assert rows(ds.loader(BATCH_SIZE)) == rows(local.loader(BATCH_SIZE))
    assert n_bytes <= n_fetched(server) < 1.5 * n_bytes
    server.requests.clear()
    assert len(ds) == sum(SIZES)
    again = open_remote(server)
    assert len(again) == sum(SIZES)
    assert again[700]["n"] == 700
    assert n_fetched(server) < n_bytes / 2
    # Another version has no index.
    for path in tmp_path.rglob("*.frecidx"):
        assert b"hunter2" not in path.read_bytes()
    key = sorted(server.objects)[1]
    server.objects[key] = tfrecord_file(records(40, 20))
    assert len(open_remote(server)) == 40 + 20 + 300


def test_an_epoch_that_is_not_complete_keeps_no_index_of_unread_files(
    server: ObjectServer, tmp_path: Path
) -> None:
    loader = open_remote(server).loader(8)
    next(iter(loader))
    loader.close()
    names = {path.name.split(".")[0] for path in tmp_path.rglob("*.frecidx")}
    assert names <= {"train-00000-of-00004"}


def test_indexes_are_built_ahead_of_time(server: ObjectServer, tmp_path: Path) -> None:
    urls = [f"{server.url}/{key}" for key in sorted(server.objects)]
    counts = fr.build_index(urls, index_dir=tmp_path / "indexes")
    assert list(counts.values()) == list(SIZES)
    server.requests.clear()
    ds = open_remote(server, index_dir=tmp_path / "indexes")
    assert len(ds) == sum(SIZES)
    assert n_fetched(server) <= len(SIZES) * (64 << 10)  # the beginnings


def test_large_records_are_indexed_by_their_headers(server: ObjectServer) -> None:
    large = [
        example({b"n": ("int64", [i]), b"pad": ("bytes", [bytes(1 << 20)])})
        for i in range(24)
    ]
    server.objects = {"data/large.tfrecord": tfrecord_file(large)}
    assert len(open_remote(server)) == len(large)
    assert n_fetched(server) < sum(map(len, large)) / 4


def test_the_schema_is_inferred_without_an_index(
    server: ObjectServer, paths: list[Path]
) -> None:
    ds = open_remote(server, features=None)
    assert ds.schema == open_dataset(paths).schema
    server.requests.clear()
    next(iter(ds.loader(4)))


# Faults.


@pytest.mark.parametrize("order", ORDERS[:3], ids=str)
def test_transient_faults_are_retried_and_counted(
    server: ObjectServer, local: Untyped, order: dict[str, Untyped]
) -> None:
    options = {"batch_size": BATCH_SIZE, **order}
    len(open_remote(server))  # caches the index
    ds = open_remote(server)
    faults = ("500", "503", "reset", "cut", "few", "shifted")
    server.inject = random_faults(5, 0.2, faults, in_a_row=2)
    server.injected.clear()
    loader = ds.loader(**options)
    assert rows(loader) == rows(local.loader(**options))
    n_injected = sum(server.injected.values())
    # An index was built with the dataset; requests that were withdrawn are not counted.
    assert (loader.stats.n_retries > 0) == (n_injected > 0)


@pytest.mark.parametrize("order", ORDERS[:3], ids=str)
def test_altered_bytes_never_become_a_record(
    server: ObjectServer, local: Untyped, order: dict[str, Untyped]
) -> None:
    len(open_remote(server))  # caches the index
    ds = open_remote(server)
    server.inject = random_faults(7, 0.5, ("altered",))
    options = {"batch_size": BATCH_SIZE, **order}
    expected = rows(local.loader(**options))
    messages: list[str] = []
    for _ in range(3):
        delivered: list[Untyped] = []
        try:
            for batch in ds.loader(**options, memory_limit="300KB"):
                delivered += rows([batch])
        except fr.CorruptionError as error:
            messages.append(str(error))
        assert delivered == expected[: len(delivered)]
    assert server.injected["altered"] > 0
    assert all(server.url in message for message in messages)


@pytest.mark.parametrize("on_error", ["raise", "skip", "resync", "mask"])
def test_damaged_objects_are_treated_like_damaged_files(
    server: ObjectServer, write: Callable[[bytes], Path], on_error: str
) -> None:
    key = sorted(server.objects)[1]
    damaged = bytearray(server.objects[key])
    damaged[len(damaged) // 3] ^= 0x40
    payload = tfrecord_file(records(40, 300))
    damaged[len(payload) + 2] ^= 0x40  # a length
    server.objects[key] = bytes(damaged)
    files = [write(server.objects[name]) for name in sorted(server.objects)]

    def outcome(ds: Untyped) -> tuple[Untyped, ...]:
        delivered: list[Untyped] = []
        loader = ds.loader(BATCH_SIZE)
        try:
            for batch in loader:
                delivered += rows([batch])
        except fr.CorruptionError as error:
            return delivered, error.code, error.record, error.offset
        regions = [(r.begin, r.end, r.reason) for r in loader.report.regions]
        return delivered, regions

    for _ in range(2):
        remote = open_remote(server, on_error=on_error)
        expected = open_dataset(files, features=SPEC, on_error=on_error)
        assert outcome(remote) == outcome(expected)


@pytest.mark.parametrize("order", ORDERS[:3], ids=str)
def test_an_object_that_changed_is_an_error(
    server: ObjectServer, order: dict[str, Untyped]
) -> None:
    len(open_remote(server))  # caches the index
    ds = open_remote(server)
    key = sorted(server.objects)[1]
    server.objects[key] = tfrecord_file(records(1_000, SIZES[1]))
    with pytest.raises(fr.CorruptionError, match="changed") as error:
        list(ds.loader(BATCH_SIZE, memory_limit="300KB", **order))
    assert error.value.code == "file_changed"
    assert key in str(error.value)


def test_a_removed_object_is_an_error(server: ObjectServer) -> None:
    len(open_remote(server))  # caches the index
    ds = open_remote(server)
    del server.objects[sorted(server.objects)[3]]
    with pytest.raises((OSError, fr.CorruptionError), match="train-00003"):
        list(ds.loader(BATCH_SIZE))
    assert ds[0]["n"] == 0


# Waiting.


class Alarm(Exception):
    """Raised by a signal handler."""


@contextmanager
def alarm_while_stalled(server: ObjectServer) -> Iterator[None]:
    """Stall all requests for ranges, and raise an Alarm in the body."""

    def ring(*_: object) -> None:
        raise Alarm

    def stall(request: Request) -> str | None:
        return "stall" if request.method == "GET" else None

    before = signal.signal(signal.SIGALRM, ring)
    server.inject = stall
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Alarm):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", ["next", "row", "rows", "index", "state"])
def test_a_signal_ends_a_wait(server: ObjectServer, what: str) -> None:
    if what != "index":
        assert len(open_remote(server)) == sum(SIZES)  # caches the index
    ds = open_remote(server)
    calls: dict[str, Callable[[], object]] = {
        "next": lambda: next(iter(ds.loader(BATCH_SIZE, shuffle=True))),
        "row": lambda: ds[500],
        "rows": lambda: ds[[1, 2, 600]],
        "index": lambda: len(ds),
        "state": ds.loader(BATCH_SIZE).state_dict,  # has a hash of checksums
    }
    with alarm_while_stalled(server):
        calls[what]()


def test_closing_a_loader_ends_its_waits(server: ObjectServer, local: Untyped) -> None:
    ds = open_remote(server)
    options = {"batch_size": 4, "memory_limit": "300KB"}
    loader = ds.loader(**options)
    batches = iter(loader)
    next(batches)
    server.inject = lambda _request: "stall"
    loader.close()  # hangs if it waits for the stalled requests
    server.inject = lambda _request: None
    assert rows(open_remote(server).loader(**options)) == rows(local.loader(**options))


def test_a_stalled_request_delays_no_other_one(server: ObjectServer) -> None:
    assert len(open_remote(server)) == sum(SIZES)  # caches the index
    ds = open_remote(server)
    first, last = SIZES[0] + 5, sum(SIZES) - 5
    assert ds[last]["n"] == last
    stalled = threading.Event()

    def stall(request: Request) -> str | None:
        if request.span is None or stalled.is_set():
            return None
        stalled.set()
        return "stall"

    server.inject = stall
    reading = threading.Thread(target=lambda: ds[first + 300], daemon=True)
    reading.start()
    assert stalled.wait(SECONDS_TO_HANG)
    time.sleep(0.01)  # until its thread waits for the response
    numbers = range(first, first + 100, 20)
    assert [ds[i]["n"] for i in numbers] == list(numbers)
    assert reading.is_alive()


@pytest.mark.parametrize("state", ["idle", "stalled"])
def test_the_process_ends(server: ObjectServer, state: str) -> None:
    if state == "stalled":
        server.inject = lambda request: (
            "stall" if request.span and request.span[0] > 100_000 else None
        )
    run_program("remote_exit.py", f"{server.url}/{sorted(server.objects)[1]}")


def test_an_index_that_must_not_be_read_is_missing(server: ObjectServer) -> None:
    server.status = lambda path, _headers: 403 if ".fastrec" in path else None
    ds = open_remote(server)
    assert ds[2]["n"] == 2
    assert len(ds) == len(rows(open_remote(server).loader(4)))


def test_threads_end_with_the_dataset(server: ObjectServer) -> None:
    def readers() -> weakref.WeakSet[RangeReaders]:
        found = (obj for obj in gc.get_objects() if isinstance(obj, RangeReaders))
        return weakref.WeakSet(found)

    before = readers()  # of other tests
    ds = open_remote(server)
    assert ds[0]["n"] == 0
    kept = readers() - before  # each thread refers to its readers
    assert kept
    del ds
    until = time.monotonic() + SECONDS_TO_HANG
    while kept and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert not kept


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_hang(server: ObjectServer) -> None:
    ds = open_remote(server)
    batches = iter(ds.loader(4))
    next(batches)
    child = os.fork()
    if not child:
        try:
            with pytest.raises(RuntimeError, match="after a fork"):
                next(batches)
            with pytest.raises(RuntimeError, match="fork"):
                _ = ds[0]
        except BaseException:  # noqa: BLE001
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ds[0]["n"] == 0


def test_shuffled_single_records_warn_once(server: ObjectServer) -> None:
    loader = open_remote(server).loader(BATCH_SIZE, shuffle=True)
    with pytest.warns(UserWarning, match=r"fr\.Blocks\(\).*cache_dir="):
        list(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)
