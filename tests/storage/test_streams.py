"""Compressed files without a cache, read sequentially.

Goal
    An epoch over streams equals the epoch over plain files with the same content, bit
    for bit, for any number of threads: in file order, through a window, on several
    ranks, resumed anywhere. Damage raises after the good batches, memory is bounded,
    threads end. Operations that require random access raise an error with a hint.
Method
    Files of different sizes, compressed in different ways, compared with plain files of
    the same content. A reservoir in plain Python is the oracle of windows.
"""

from __future__ import annotations

import _thread
import gc
import gzip
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from children import Child, run_python
from columns import Untyped, open_dataset, snapshot
from fastrec import _core
from fastrec.loader import decoder
from fastrec.loader import options as loader_options
from fastrec.storage import index, stream_readers
from oracle import example, frame, header, tfrecord_file

Check = Callable[[], None]

SPEC: dict[str, Untyped] = {"n": fr.FixedLen((), "int64"), "w": fr.VarLen("bytes")}
SIZES = (9, 0, 14, 1, 40, 11)
N = sum(SIZES)
COMPRESS: list[Callable[[bytes], bytes]] = [
    gzip.compress,
    gzip.compress,
    zlib.compress,
    bytes,
    lambda data: b"".join(gzip.compress(data[i : i + 99]) for i in range(0, 2000, 99)),
    lambda data: gzip.compress(data, 0),
]
THREADS = (0, 1, 2, 5)


def record(n: int) -> bytes:
    return example({b"n": ("int64", [n]), b"w": ("bytes", [b"w" * (n % 9)] * (n % 3))})


def contents() -> list[bytes]:
    ends = np.cumsum(SIZES).tolist()
    return [
        tfrecord_file(record(n) for n in range(end - size, end))
        for size, end in zip(SIZES, ends, strict=True)
    ]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write the same records to compressed and plain files."""
    folder = tmp_path_factory.mktemp("streams")
    compressed, plain = folder / "compressed", folder / "plain"
    compressed.mkdir()
    plain.mkdir()
    for i, (data, compress) in enumerate(zip(contents(), COMPRESS, strict=True)):
        (compressed / f"{i}.tfrecord").write_bytes(compress(data))
        (plain / f"{i}.tfrecord").write_bytes(data)
    return compressed, plain


@pytest.fixture
def ds(folders: tuple[Path, Path]) -> Untyped:
    return open_dataset(folders[0], features=SPEC)


@pytest.fixture
def plain(folders: tuple[Path, Path]) -> Untyped:
    return open_dataset(folders[1], features=SPEC)


def numbers(batches: Any) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def file_with(tmp_path: Path, data: bytes, name: str = "a.gz") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_is_streamed(ds: Untyped, plain: Untyped) -> None:
    assert ds.is_streamed
    assert not plain.is_streamed
    assert fr.concat([plain, ds]).is_streamed, "one file of them is enough"


# One epoch, in file order.


@pytest.mark.filterwarnings("ignore:drop_last=True drops all records")
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"pad_last": True}])
@pytest.mark.parametrize("batch_size", [1, 7, N, 1000])
def test_an_epoch_equals_that_of_plain_files(
    ds: Untyped, plain: Untyped, batch_size: int, options: dict[str, Any]
) -> None:
    want = snapshot(list(plain.loader(batch_size, **options)))
    for threads in THREADS:
        loader = ds.loader(batch_size, num_threads=threads, **options)
        assert snapshot(list(loader)) == want
        assert snapshot(list(loader)) == want, "and the next one"
        assert loader.epoch == 2
    assert len(loader) == len(want)


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    level=st.integers(0, 9),
    batch_size=st.integers(1, 20),
)
def test_any_records_in_any_files(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    lengths: list[int],
    level: int,
    batch_size: int,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    payloads = []
    for i, size in enumerate(sizes):
        of_file = [bytes([i + 1]) * lengths[k % len(lengths)] for k in range(size)]
        payloads += of_file
        data = tfrecord_file(example({b"b": ("bytes", [p])}) for p in of_file)
        (folder / f"{i}").write_bytes(gzip.compress(data, level))
    ds = open_dataset(
        [folder / f"{i}" for i in range(len(sizes))],
        features={"b": fr.FixedLen((), "bytes")},
    )
    batches = list(ds.loader(batch_size, num_threads=2))
    assert [b for batch in batches for b in batch["b"].tolist()] == payloads


def test_rows_head_and_records_do_not_count_records(
    folders: tuple[Path, Path], plain: Untyped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_scan_stream", None)  # must not be called
    ds = open_dataset(folders[0])
    assert [row["n"] for row in ds.head(12)] == list(range(12))
    assert [row["n"] for row in ds] == list(range(N))
    assert list(ds.records) == list(plain.records)
    assert dict(ds.schema) == SPEC
    assert "first 75 records" in str(ds.schema)
    assert numbers(ds.loader(50)) == [list(range(50)), list(range(50, N))]


def test_the_count_is_exact_and_cached(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {"features": SPEC, "index_dir": tmp_path}
    ds = open_dataset(folders[0], **options)
    assert len(ds) == N
    monkeypatch.setattr(index, "_scan_stream", None)  # not counted again
    assert len(open_dataset(folders[0], **options)) == N
    assert len(pickle.loads(pickle.dumps(ds))) == N
    (kept,) = tmp_path.glob("*.frecidx")
    monkeypatch.undo()
    data = bytearray(kept.read_bytes())  # a damaged cache file is counted again
    data[-1] ^= 1
    kept.write_bytes(data)
    assert len(open_dataset(folders[0], **options)) == N


def test_datasets_of_both_kinds_are_joined(ds: Untyped, plain: Untyped) -> None:
    both = fr.concat([plain, ds])
    assert len(both) == 2 * N
    got = [n for batch in numbers(both.loader(8)) for n in batch]
    assert got == [*range(N), *range(N)]


def test_transforms_receive_the_batch_info(ds: Untyped, plain: Untyped) -> None:
    def look(batch: Untyped, info: fr.BatchInfo) -> Untyped:
        draws = [info.rng(i).integers(1 << 30) for i in range(len(info.positions))]
        return {
            **batch,
            "at": info.positions,
            "is": info.records,
            "rng": np.array(draws),
        }

    for shuffle in (False, fr.Window(6)):
        got, want = (
            snapshot(list(d.loader(8, shuffle=shuffle, transform=look, seed=2)))
            for d in (ds, plain)
        )
        assert got == want


# Operations that require random access.


@pytest.mark.parametrize(
    "use",
    [
        lambda ds: ds[0],
        lambda ds: ds[:3],
        lambda ds: ds.records[0],
        lambda ds: ds.loader(4, shuffle=True),
        lambda ds: ds.loader(4, shuffle=fr.Blocks()),
        lambda ds: ds.loader(batches=lambda *_: [[0]]),
        lambda ds: ds.loader(4).batch(0),
        lambda ds: ds.loader(4).peek(),
        lambda ds: ds.select([0]),
        lambda ds: ds.split([0.5]),
        lambda ds: ds.shard(num_shards=2, index=0),
        lambda ds: ds.filter(lambda batch: batch["n"] > 0),
        lambda ds: next(iter(fr.mix({"a": (ds, 1)}).loader(2))),
    ],
)
def test_the_error_for_random_access_contains_a_hint(
    ds: Untyped, use: Callable[[Any], Any]
) -> None:
    with pytest.raises(ValueError, match="cache_dir"):
        use(ds)


# Positions in an epoch.


@pytest.mark.parametrize("shuffle", [False, fr.Window(7), fr.Window(7, False)])
def test_an_epoch_is_resumed_at_every_position(
    ds: Untyped,
    plain: Untyped,
    shuffle: Any,
) -> None:
    whole = numbers(ds.loader(6, shuffle=shuffle, seed=5))
    rows = [n for batch in whole for n in batch]
    loader = ds.loader(6, shuffle=shuffle, seed=5)
    states = [loader.state_dict()]
    for _ in loader:
        states.append(json.loads(json.dumps(loader.state_dict())))
    for step, state in enumerate(states[:-1]):
        assert state["position"] == 6 * step
        for threads in (0, 2):
            again = ds.loader(6, shuffle=shuffle, num_threads=threads)
            again.load_state_dict(state)
            assert numbers(again) == whole[step:]
        other = ds.loader(11, shuffle=shuffle)  # another batch size
        other.load_state_dict(state)
        assert [n for batch in numbers(other) for n in batch] == rows[6 * step :]
    assert states[-1]["epoch"] == 1
    of_plain = plain.loader(6, shuffle=shuffle)
    of_plain.load_state_dict(states[3])
    assert numbers(of_plain) == whole[3:], "the same data, so the same state"
    assert loader.records_at(2, 0) == [
        (os.fspath(Path(ds.files[0]).parent / Path(path).name), i, at)
        for path, i, at in of_plain.records_at(2, 0)
    ]


# Windows.


def mixed(x: int) -> int:
    """The finalizer of SplitMix64."""
    most = 2**64 - 1
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & most
    x = (x ^ x >> 27) * 0x94D049BB133111EB & most
    return x ^ x >> 31


def reservoir(n_records: int, n: int, draws: Callable[[int], int]) -> list[int]:
    """Return the deliveries of a reservoir before the records run out."""
    slots = list(range(min(n, n_records)))
    delivered = []
    for position, incoming in enumerate(range(n, n_records)):
        slot = draws(position)
        delivered.append(slots[slot])
        slots[slot] = incoming
    return delivered


@pytest.mark.parametrize("n", [1, 2, 7, N - 1, N, N + 1, 10_000])
@pytest.mark.parametrize("shuffle_files", [False, True])
def test_a_window_does_not_depend_on_the_readers(
    ds: Untyped, plain: Untyped, n: int, shuffle_files: bool
) -> None:
    window = fr.Window(n, shuffle_files)
    want = numbers(plain.loader(8, shuffle=window, seed=3))
    assert sorted(x for batch in want for x in batch) == list(range(N))
    for threads in THREADS:
        loader = ds.loader(8, shuffle=window, seed=3, num_threads=threads)
        assert numbers(loader) == want
    second = numbers(loader)
    assert (second != want) == (n > 1 or shuffle_files), "another order in every epoch"
    if n == 1 and not shuffle_files:
        assert want == numbers(plain.loader(8))


@given(
    n_records=st.integers(0, 400),
    n=st.integers(1, 60),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 5),
    rnd=st.randoms(use_true_random=False),
)
def test_positions_of_a_window_are_arithmetic(
    n_records: int,
    n: int,
    seed: int,
    epoch: int,
    rnd: Any,
) -> None:
    """Positions requested in any order equal those of a sequential reservoir."""

    def order() -> _core.Order:
        runs = np.array([0]), np.array([n_records])
        return _core.Order.window(*runs, n, seed, epoch)

    whole = order().records(np.arange(n_records)).tolist()
    assert sorted(whole) == list(range(n_records))
    # The draws are observable: the delivered record was in the slot that is refilled.
    slots = {i: i for i in range(min(n, n_records))}
    where = {record: slot for slot, record in slots.items()}
    draws = []
    for position in range(max(0, n_records - n)):
        slot = where.pop(whole[position])
        draws.append(slot)
        where[position + n] = slot
    assert whole[: len(draws)] == reservoir(n_records, n, draws.__getitem__)
    assert sorted(where) == sorted(whole[len(draws) :])
    asked = [rnd.randrange(n_records) for _ in range(30)] if n_records else []
    cold = order()
    got = [int(cold.records(np.array([position]))[0]) for position in asked]
    assert got == [whole[position] for position in asked]


def test_draws_of_a_window_never_change() -> None:
    """Golden: they are part of the contract, see docs/determinism.md."""
    order = _core.Order.window(np.array([0]), np.array([40]), 4, 7, 1)
    assert order.records(np.arange(40)).tolist() == GOLDEN_WINDOW


GOLDEN_WINDOW = [
    *(1, 3, 5, 0, 4, 2, 7, 10, 8, 12, 6, 9, 11, 13, 14, 17, 15, 16, 20, 22, 18, 19),
    *(21, 23, 25, 24, 27, 26, 29, 28, 31, 30, 33, 36, 35, 34, 38, 39, 37, 32),
]


def test_draws_are_uniform() -> None:
    n, n_records = 16, 40_000
    order = _core.Order.window(np.array([0]), np.array([n_records]), n, 1, 0)
    records = order.records(np.arange(n_records))
    stay = np.arange(n_records - n) - (records[: n_records - n] - n) - 1
    # A record stays for k more draws with probability (1 - 1/n)^k / n.
    for k in range(5):
        expected = (1 - 1 / n) ** k / n
        assert abs((stay == k).mean() - expected) < 5 * (expected / n_records) ** 0.5


def test_window_validates_its_arguments() -> None:
    for wrong in (0, -1, 2**40):
        with pytest.raises(ValueError, match="n must"):
            fr.Window(wrong)
    wrong_type: Untyped = "10"
    with pytest.raises(TypeError, match="n must"):
        fr.Window(wrong_type)
    with pytest.raises(TypeError, match="shuffle_files"):
        fr.Window(3, wrong_type)


def test_a_window_over_a_view(plain: Untyped) -> None:
    chosen = plain.select(range(0, N, 2))
    got = numbers(chosen.loader(8, shuffle=fr.Window(5)))
    flat = [n for batch in got for n in batch]
    assert sorted(flat) == list(range(0, N, 2))
    with pytest.raises(TypeError, match="Window"):
        list(fr.mix({"a": (plain, 1)}).loader(4, shuffle=fr.Window(5)))


# Damage.


def until_error(loader: Untyped) -> tuple[list[list[int]], BaseException]:
    got: list[list[int]] = []
    try:
        for batch in loader:
            got.append(batch["n"].tolist())
    except (fr.Error, OSError) as error:
        return got, error
    pytest.fail("the epoch ended without an error")


@pytest.mark.parametrize("threads", [0, 2])
def test_good_batches_are_delivered_before_the_error(
    tmp_path: Path, threads: int
) -> None:
    data = tfrecord_file(record(n) for n in range(20))
    bad = bytearray(data)
    at = len(tfrecord_file(record(n) for n in range(13)))
    bad[at + 15] ^= 1
    flipped = bytearray(data)
    flipped[at + 9] ^= 1
    cases: list[tuple[bytes, str, int | None, int]] = [
        (gzip.compress(bad), "payload checksum", 13, at + 12),
        (gzip.compress(flipped), "length checksum", 13, at),
        (gzip.compress(data[: at + 5]), "inside a record header", 13, at),
        (gzip.compress(data[: at + 14]), "inside a record", 13, at),
        (gzip.compress(data) + b"\0", "followed by", None, len(gzip.compress(data))),
        (
            gzip.compress(data, 0)[:-9],
            "is truncated",
            None,
            len(gzip.compress(data, 0)) - 9,
        ),
    ]
    for i, (damaged, reason, number, offset) in enumerate(cases):
        path = file_with(tmp_path, damaged, f"{i}.gz")
        ds = open_dataset([path, path], features=SPEC)
        got, error = until_error(ds.loader(4, num_threads=threads))
        assert isinstance(error, fr.CorruptionError)
        assert reason in error.reason
        assert (error.path, error.record, error.offset) == (str(path), number, offset)
        n_good = 3 if number else len(got)
        assert got == [list(range(4 * k, 4 * k + 4)) for k in range(n_good)]
        if reason != "payload checksum":
            with pytest.raises(fr.CorruptionError, match=reason):
                len(ds)


def test_every_truncation_is_an_error_after_the_good_rows(tmp_path: Path) -> None:
    whole = gzip.compress(tfrecord_file(record(n) for n in range(6)))
    for n in range(2, len(whole)):
        ds = open_dataset(
            file_with(tmp_path, whole[:n]), features=SPEC, compression="GZIP"
        )
        got, error = until_error(ds.loader(1, num_threads=0))
        assert isinstance(error, fr.CorruptionError)
        assert got == [[k] for k in range(len(got))]


def test_a_file_that_changed_after_it_was_counted_raises(tmp_path: Path) -> None:
    data = gzip.compress(tfrecord_file(record(i) for i in range(4)))
    paths = [file_with(tmp_path, data, f"{i}.gz") for i in range(2)]
    ds = open_dataset(paths, features=SPEC)
    loader = ds.loader(2)
    state = loader.state_dict()
    # As many records as before.
    file_with(tmp_path, gzip.compress(tfrecord_file([record(9)] * 4)), "1.gz")
    for shuffle in (False, fr.Window(3, False)):
        counted = ds.loader(2, shuffle=shuffle, transform=dict)
        if not shuffle:
            counted.load_state_dict(state)
            counted.seek(1)
        got, error = until_error(counted)
        assert isinstance(error, fr.CorruptionError)
        assert (error.path, "changed" in error.reason) == (str(paths[1]), True)
        assert got == ([] if shuffle else [[2, 3]])
    assert len(numbers(open_dataset(paths, features=SPEC).loader(2))) == 4


def test_the_content_may_not_be_tfrecord(tmp_path: Path) -> None:
    for data, reason in [
        (b"hello, world\n" * 20, "text"),
        (gzip.compress(b"twice"), "GZIP file"),
        (bytes(5), "TFRecord"),
        (bytes(500), "TFRecord"),
    ]:
        path = file_with(tmp_path, zlib.compress(data))
        for use in (len, lambda ds: list(ds.loader(2))):
            with pytest.raises(fr.Error, match=reason) as caught:
                use(open_dataset(path, features=SPEC, compression="ZLIB"))
            assert caught.value.path == str(path)


def test_a_deleted_file_raises_when_it_is_reached(tmp_path: Path) -> None:
    paths = [
        file_with(tmp_path, gzip.compress(tfrecord_file([record(i)])), f"{i}.gz")
        for i in range(2)
    ]
    ds = open_dataset(paths, features=SPEC)
    assert len(ds.head(2)) == 2
    paths[1].unlink()
    got, error = until_error(ds.loader(1))
    assert got == [[0]]
    assert isinstance(error, FileNotFoundError)
    assert error.filename == str(paths[1])


# Memory.


def test_lengths_beyond_the_limit_raise_before_reading(tmp_path: Path) -> None:
    for length in (2**31, 2**40, 2**63, 2**64 - 17, 2**64 - 1):
        data = frame(record(0)) + header(length) + bytes(1000)
        path = file_with(tmp_path, gzip.compress(data))
        ds = open_dataset(path, features=SPEC)
        got, error = until_error(ds.loader(1))
        assert got == [[0]]
        assert isinstance(error, fr.LimitError)
        assert (error.record, error.offset) == (1, len(frame(record(0))))


BOMB = """
import re, resource, sys
import fastrec as fr
def peak():
    # Linux adds the memory of the parent to ru_maxrss until exec, but not to VmHWM.
    if sys.platform == "linux":
        status = open("/proc/self/status").read()
        return int(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1]) << 10
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
ds = fr.open(sys.argv[1], features={"n": fr.FixedLen((), "int64", default=0)})
most = 1 << 30
try:
    for batch in ds.loader(256, num_threads=1, memory_limit="64MB", shuffle=eval(sys.argv[2])):
        pass
except fr.LimitError as error:
    print(error.record, error.reason)
assert peak() < most + (800 << 20), peak()
"""


@pytest.mark.timeout(600)  # may be slow on a busy machine: it fills some GB
@pytest.mark.parametrize("shuffle", ["False", "fr.Window(10_000)"])
def test_a_bomb_of_large_records_hits_the_limit(tmp_path: Path, shuffle: str) -> None:
    """Read 100 records of 100 MB of zeros from 10 MB; a batch would be 10 GB."""
    body = bytes(100_000_000)
    crc = _core.crc32c(body)
    masked = ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
    one = gzip.compress(header(len(body)) + body + struct.pack("<I", masked), 1)
    path = file_with(tmp_path, one * 100)
    done = run_python(BOMB, path, shuffle)
    assert "compressed records in memory exceed" in done.stdout
    assert done.stdout.startswith("10 ")


# Threads.


def test_threads_end_however_a_loop_ends(tmp_path: Path, threads_end: Check) -> None:
    noise = np.random.default_rng(0).bytes(50_000)
    spec = {"b": fr.FixedLen((), "bytes")}
    data = gzip.compress(tfrecord_file([example({b"b": ("bytes", [noise])})] * 100), 1)
    paths = [file_with(tmp_path, data, f"{i}.gz") for i in range(3)]
    ds = open_dataset(paths, features=spec)
    for threads in THREADS:
        # A limit so low that the readers always wait for room.
        loader = ds.loader(2, num_threads=threads, memory_limit=1_000_000)
        for _ in loader:
            break
        loader.close()
        threads_end()
        iterator = iter(loader)
        next(iterator)
        del iterator
        gc.collect()
        threads_end()
        assert sum(len(batch["b"]) for batch in loader) == 300
        threads_end()
    ds.head(1)
    next(iter(ds.records))
    gc.collect()
    threads_end()


def test_a_failed_start_leaves_no_thread(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch, threads_end: Check
) -> None:
    assert len(ds) == N  # so that only the following work remains
    monkeypatch.setattr(decoder, "_FRAME_BYTES", None)
    with pytest.raises(TypeError):
        next(iter(ds.loader(4, num_threads=2)))
    threads_end()


@pytest.mark.parametrize(
    ("num_threads", "n_readers"), [(None, 2), (0, 1), (1, 2), (2, 2), (8, 9)]
)
def test_the_caller_determines_the_number_of_threads(
    ds: Untyped,
    monkeypatch: pytest.MonkeyPatch,
    num_threads: int | None,
    n_readers: int,
) -> None:
    """More threads than CPUs help if they wait for a file server."""
    for module in (decoder, loader_options):
        monkeypatch.setattr(module, "default_num_threads", lambda: 2)
    started = []
    open_streams = stream_readers.byte_streams

    def note(files: Untyped, **options: Untyped) -> Untyped:
        started.append(options["n_readers"])
        return open_streams(files, **options)

    monkeypatch.setattr(stream_readers, "byte_streams", note)
    assert numbers(ds.loader(N, num_threads=num_threads)) == [list(range(N))]
    assert started == [n_readers]


@pytest.mark.parametrize("n_started", [0, 1])
def test_fewer_threads_than_requested_read_all_files(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch, threads_end: Check, n_started: int
) -> None:
    assert len(ds) == N  # which also starts threads
    start, n_left = _thread.start_new_thread, n_started

    def started(*arguments: Untyped) -> int:
        nonlocal n_left
        if n_left == 0:
            msg = "can't start new thread"
            raise RuntimeError(msg)
        n_left -= 1
        return start(*arguments)

    monkeypatch.setattr(_thread, "start_new_thread", started)
    loader = ds.loader(N, num_threads=3)
    if n_started == 0:
        with pytest.raises(RuntimeError, match="start new thread"):
            next(iter(loader))
    else:
        assert numbers(loader) == [list(range(N))]
    threads_end()


PROCESS = """
import os, signal, sys
import fastrec as fr
ds = fr.open(sys.argv[1], features={"n": fr.FixedLen((), "int64")})
loader = ds.loader(4, num_threads=2)
iterator, records = iter(loader), iter(ds.records)
first = next(iterator)["n"].tolist()
one = next(records)
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # a deadlock ends the child, and the test
    n_refused = 0
    for of_parent in (iterator, records):
        try:
            next(of_parent)
        except RuntimeError:
            n_refused += 1
    again = [n for batch in ds.loader(4) for n in batch["n"].tolist()]
    is_same = next(iter(ds.records)) == one
    del of_parent, iterator, records
    os._exit(0 if again == list(range(75)) and is_same and n_refused == 2 else 1)
assert os.waitpid(pid, 0)[1] == 0
rest = [n for batch in iterator for n in batch["n"].tolist()]
assert first + rest == list(range(75))
assert 1 + len(list(records)) == 75
iterator = iter(loader)
next(iterator)  # and leave it to the end of the interpreter
print("done")
"""


def test_fork_and_interpreter_exit(folders: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS, str(folders[0])],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


LEFT_OPEN = """
import sys
import fastrec as fr
records = iter(fr.open(sys.argv[1]).records)
print(len(next(records)))
"""


def test_the_interpreter_exits_during_an_epoch(tmp_path: Path) -> None:
    """Enough records that the reader thread waits for room."""
    data = gzip.compress(frame(bytes(1000)) * 20_000, 1)
    done = run_python(LEFT_OPEN, file_with(tmp_path, data))
    assert (done.stdout, done.stderr) == ("1000\n", "")


INTERRUPTED = """
import itertools, os, sys, threading, time
import fastrec as fr
from fastrec.storage import local_copies
from fastrec.storage import stream_readers

def endless(path, content, **options):
    with open(path, "rb") as file:
        frames = file.read()
    for i in itertools.count():
        time.sleep(STALL if i else 0)
        yield frames

for module in (local_copies, stream_readers):
    module.inflated = endless
options = {"features": {"n": fr.FixedLen((), "int64")}, "compression": "GZIP"}
ds = fr.open(sys.argv[1], **options)
cached = fr.open(sys.argv[1], cache_dir=sys.argv[2], **options)
print("ready", flush=True)
try:
    USE
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
os._exit(0)
"""
USES = {
    "the loader": "ds.loader(4, num_threads=2)",
    "the loader inline": "ds.loader(4, num_threads=0)",
    "a large window": "ds.loader(4, shuffle=fr.Window(10_000_000))",
    "rows": "ds",
    "records": "ds.records",
}
PASSES = {"counting": "len(ds)", "expanding": "len(cached)"}


@pytest.mark.parametrize(
    ("use", "stall"),
    # A pass waits for the current piece of its threads.
    [(use, stall) for use in USES for stall in ("0.001", "60")]
    + [(use, "0.001") for use in PASSES],
)
def test_ctrl_c_interrupts_within_200_ms(tmp_path: Path, use: str, stall: str) -> None:
    path = file_with(tmp_path, tfrecord_file(record(n) for n in range(9)))
    code = INTERRUPTED.replace("STALL", stall)
    loops = {name: f"for _ in {what}: pass" for name, what in USES.items()}
    code = code.replace("USE", {**loops, **PASSES}[use])

    def seconds_to_stop() -> float:
        with Child(
            [sys.executable, "-c", code, path, tmp_path / "cache"],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)  # Into the loop.
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        return float(out) - sent

    # One of ten: other processes may delay the machine.
    assert any(seconds_to_stop() < 0.2 for _ in range(10))


# Counting in advance.


def test_records_are_counted_in_advance(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fr.build_index(folders[0], index_dir=tmp_path)
    assert found == {
        str(folders[0] / f"{i}.tfrecord"): size for i, size in enumerate(SIZES)
    }
    monkeypatch.setattr(index, "_scan_stream", None)  # not counted again
    assert len(open_dataset(folders[0], index_dir=tmp_path)) == N


# Ranks.


def files_of_sizes(folder: Path, sizes: list[int]) -> Path:
    n = 0
    for i, size in enumerate(sizes):
        data = tfrecord_file(record(n + k) for k in range(size))
        file_with(folder, gzip.compress(data), f"{i:02d}.gz")
        n += size
    return folder


@pytest.mark.parametrize("shuffle", [False, fr.Window(5)])
@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"pad_last": True}])
def test_ranks_read_whole_files(
    tmp_path: Path,
    shuffle: Any,
    world_size: int,
    options: dict[str, Any],
) -> None:
    sizes = [20, 21, 19, 20, 22, 18, 20, 20, 21, 19, 20, 20]
    folder = files_of_sizes(tmp_path, sizes)
    read: list[list[int]] = []
    n_steps = set()
    for rank in range(world_size):
        ds = open_dataset(folder, features=SPEC)
        made = {"rank": rank, "world_size": world_size, "shuffle": shuffle, **options}
        loader = ds.loader(8, **made)
        batches = list(loader)
        n_steps.add(len(batches))
        assert len(loader) == len(batches)
        valid = [b.get("__valid__", np.ones(len(b["n"]), bool)) for b in batches]
        rows = [b["n"][v].tolist() for b, v in zip(batches, valid, strict=True)]
        assert all(0 < len(row) <= 8 for row in rows)
        if options:
            assert {len(batch["n"]) for batch in batches} == {8}
        places = [loader.records_at(step, 0) for step in range(len(batches))]
        assert [len(at) for at in places] == [len(row) for row in rows]
        for threads, step in ((0, 1), (2, len(batches) // 2)):
            again = open_dataset(folder, features=SPEC).loader(
                8, num_threads=threads, **made
            )
            again.seek(step)
            state = again.state_dict()
            again.seek(0)
            again.load_state_dict(state)
            assert snapshot(list(again)) == snapshot(batches[step:])
        read.append([n for row in rows for n in row])
    assert len(n_steps) == 1
    flat = [n for of_rank in read for n in of_rank]
    assert len(set(flat)) == len(flat)
    if options.get("drop_last"):
        assert len(flat) >= sum(sizes) - world_size * 8 - sum(sizes) // 20
    else:
        assert sorted(flat) == list(range(sum(sizes)))
    state = loader.state_dict()
    for size, others in [(8, world_size + 1), (9, world_size)]:
        other = open_dataset(folder, features=SPEC).loader(
            size, rank=0, world_size=others, pad_last=True
        )
        with pytest.raises(ValueError, match="a different order"):
            other.load_state_dict(state)


def test_few_files_are_shared_with_a_warning(ds: Untyped, plain: Untyped) -> None:
    for rank in range(7):
        options = {"rank": rank, "world_size": 7, "global_batch_size": 16}
        with pytest.warns(UserWarning, match="cache_dir"):
            loader = ds.loader(**options)
        assert snapshot(list(loader)) == snapshot(list(plain.loader(**options)))


@pytest.mark.filterwarnings("ignore:compressed files:UserWarning")
def test_a_rank_without_rows_raises(tmp_path: Path) -> None:
    ds = open_dataset(files_of_sizes(tmp_path, [3, 3, 0]), features=SPEC)
    loader = ds.loader(2, rank=0, world_size=2)
    assert numbers(loader) == [[0], [1, 2]]
    assert len(loader) == 2
    with pytest.raises(ValueError, match="pad_last"):
        open_dataset(ds.files[:1], features=SPEC).loader(1, rank=0, world_size=4)


def test_a_rank_with_too_few_records_raises(tmp_path: Path) -> None:
    ds = open_dataset(files_of_sizes(tmp_path, [3, 2]), features=SPEC)
    with pytest.raises(ValueError, match=r"no row.*pad_last"):
        ds.loader(1, rank=0, world_size=2)
    loader = ds.loader(1, rank=1, world_size=2, pad_last=True)
    assert numbers(loader) == [[3], [4], [0]]
    assert [batch["__valid__"].tolist() for batch in loader] == [
        [True],
        [True],
        [False],
    ]


# Real files.


def test_real_files(testdata: Path) -> None:
    taxi = open_dataset(sorted(testdata.glob("taxi-train-*.gz")))
    assert len(taxi) == 2 * 826
    assert sum(len(b["tips"]) for b in taxi.loader(100)) == len(taxi)
    for path in testdata.glob("*.gz"):
        data = gzip.decompress(path.read_bytes())
        assert b"".join(frame(r) for r in open_dataset(path).records) == data
