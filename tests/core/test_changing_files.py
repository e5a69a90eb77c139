"""Files that are shortened, written again or replaced while they are read.

Goal
    Whatever another process does to a file, no read ends the process and no record is
    wrong: each is one that was written, and what is lost is an error with the place.
Method
    Files are changed in the middle of a pass, by the test or by a thread beside it, in
    each way of reading. What a signal does is looked at in processes of their own.
    FASTREC_TEST_RUNS sets how many passes are disturbed in each way of reading (100).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

import fastrec as fr
from children import SEED, run_python
from columns import Write
from fastrec.arrays.batch import Batch
from oracle import example, tfrecord_file

Io: TypeAlias = Literal["auto", "mmap", "pread"]

RUNS = int(os.environ.get("FASTREC_TEST_RUNS", "100"))
N_RECORDS = 400
FIRST = 1 << 14  # numbers that all take three bytes
PAYLOAD_BYTES = 1000
SPEC = {"n": fr.FixedLen((), "int64"), "data": fr.Raw((PAYLOAD_BYTES,), "uint8")}
IOS: list[Io] = ["mmap", "pread", "auto"]


def content(version: int = 0) -> bytes:
    """Records of number n and bytes that follow from the version and n, without zeros."""
    return tfrecord_file(
        example(
            {
                b"n": ("int64", [FIRST + version * N_RECORDS + n]),
                b"data": ("bytes", [bytes([1 + (version + n) % 255]) * PAYLOAD_BYTES]),
            }
        )
        for n in range(N_RECORDS)
    )


CONTENTS = [content(version) for version in range(2)]
assert len(CONTENTS[0]) == len(CONTENTS[1])


def check(batch: Batch, may_be_mixed: bool = True) -> list[int]:
    """Return the numbers of the records, each of which must be as it was written."""
    numbers: list[int] = (batch["n"] - FIRST).tolist()
    for number, data in zip(numbers, batch["data"], strict=True):
        version, n = divmod(number, N_RECORDS)
        assert version == 0 or may_be_mixed
        assert (data == 1 + (version + n) % 255).all()
    return numbers


@pytest.fixture
def big(write: Write) -> Path:
    return write(CONTENTS[0])


@pytest.mark.parametrize("io", IOS)
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_what_is_lost_is_an_error_with_the_place(
    big: Path, io: Io, num_threads: int, shuffle: bool
) -> None:
    ds = fr.open(big, features=SPEC, io=io)
    left = len(CONTENTS[0]) // 3
    loader = ds.loader(5, shuffle=shuffle, num_threads=num_threads, prefetch=2)
    batches = iter(loader)
    seen = check(next(batches), may_be_mixed=False)
    os.truncate(big, left)

    def read_on() -> None:
        for batch in batches:
            seen.extend(check(batch, may_be_mixed=False))

    with pytest.raises(fr.CorruptionError) as caught:
        read_on()
    assert caught.value.path == str(big)
    assert caught.value.offset is not None
    assert caught.value.offset <= len(CONTENTS[0])
    with pytest.raises(fr.CorruptionError) as again:
        next(batches)
    assert str(again.value) == str(caught.value)
    if not shuffle:
        assert seen == list(range(len(seen)))
        assert len(seen) <= left // PAYLOAD_BYTES


def test_the_text_says_how_many_bytes_are_left(big: Path) -> None:
    ds = fr.open(big, features=SPEC, io="mmap")
    assert ds[0]["n"] == FIRST
    os.truncate(big, 4096)
    with pytest.raises(
        fr.CorruptionError,
        match=r"the file was shortened while it was mapped \(now 4096 bytes\) - at ",
    ):
        ds[N_RECORDS - 1]
    assert ds[0]["n"] == FIRST


@pytest.mark.parametrize("io", IOS)
def test_records_and_rows_of_a_file_that_is_gone_are_errors(big: Path, io: Io) -> None:
    ds = fr.open(big, features=SPEC, io=io)
    assert len(ds) == N_RECORDS
    assert len(ds.records[0]) > PAYLOAD_BYTES
    os.truncate(big, 0)
    for read in (
        lambda: ds.records[7],
        lambda: ds[7],
        lambda: ds[[7, 8]],
        lambda: ds.loader(2).batch(3),
    ):
        with pytest.raises(fr.CorruptionError) as caught:
            read()
        assert caught.value.path == str(big)


def child(code: str, *arguments: object, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    return done.returncode, done.stdout, done.stderr


GUARDED = """
import faulthandler, mmap, os, sys
import fastrec as fr

def foreign():
    with open(sys.argv[1] + ".foreign", "w+b") as file:
        file.write(bytes(8192))
        file.flush()
        view = mmap.mmap(file.fileno(), 8192)
        os.truncate(sys.argv[1] + ".foreign", 0)
        return view[0]

when, path = sys.argv[2], sys.argv[1]
if when == "before":
    faulthandler.enable()
ds = fr.open(path, features={"n": fr.FixedLen((), "int64")}, io="mmap")
len(ds), ds[0]
if when == "after":
    faulthandler.enable()
os.truncate(path, 100)
try:
    ds[len(ds) - 1]
except fr.CorruptionError as error:
    print(error.reason, flush=True)
if sys.argv[3] == "foreign":
    foreign()
"""

LOST = "the file was shortened while it was mapped (now 100 bytes)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="SIGBUS is a matter of POSIX")
@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_faulthandler_hears_of_the_faults_of_others_only(big: Path, when: str) -> None:
    code, out, err = child(GUARDED, big, when, "ours")
    assert (code, out, err) == (0, LOST, "")
    big.write_bytes(CONTENTS[0])
    code, out, err = child(GUARDED, big, when, "foreign")
    assert (code, out) == (-7 if sys.platform == "linux" else -10, LOST)
    assert err.count("Fatal Python error: Bus error") == (when != "never")
    assert err.count("in foreign") == (when != "never")


@pytest.mark.skipif(sys.platform == "win32", reason="SIGBUS is a matter of POSIX")
def test_the_guard_can_be_left_out(big: Path) -> None:
    code, out, _ = child(GUARDED, big, "never", "ours", FASTREC_SIGBUS_GUARD="0")
    assert (code < 0, out) == (True, "")
    code, _, err = child("import fastrec", FASTREC_SIGBUS_GUARD="maybe")
    assert code == 1
    assert "FASTREC_SIGBUS_GUARD must be 0 or 1, got 'maybe'" in err


@pytest.mark.skipif(sys.platform == "win32", reason="SIGBUS is a matter of POSIX")
def test_nothing_is_installed_before_a_file_is_mapped(big: Path) -> None:
    code = """
        import ctypes, signal, sys
        import fastrec as fr

        def handler():
            action = (ctypes.c_long * 32)()
            assert ctypes.CDLL(None).sigaction(signal.SIGBUS, None, action) == 0
            return action[0]

        ds = fr.open(sys.argv[1], features={"n": fr.FixedLen((), "int64")}, io=sys.argv[2])
        before = handler()
        ds[0]
        print(before, handler() != before)
    """
    assert child(code, big, "mmap")[1] == "0 True\n"
    # Its index is small, so it is copied, not mapped for good.
    assert child(code, big, "pread", FASTREC_SIGBUS_GUARD="0")[1] == "0 False\n"


def shorten(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(len(CONTENTS[0])))


def write_again(path: Path, _: random.Random) -> None:
    with path.open("r+b") as file:
        file.write(CONTENTS[1])


def write_anew(path: Path, _: random.Random) -> None:
    path.write_bytes(CONTENTS[1])  # empty for a moment


def replace(path: Path, draw: random.Random) -> None:
    other = path.with_suffix(f".{draw.random()}")
    other.write_bytes(CONTENTS[1])
    other.replace(path)


def scribble(path: Path, draw: random.Random) -> None:
    with path.open("r+b") as file:
        for _ in range(20):
            file.seek(draw.randrange(len(CONTENTS[0])))
            file.write(draw.randbytes(50))


DISTURBANCES = [shorten, write_again, write_anew, replace, scribble]


@pytest.mark.parametrize("io", IOS)
@pytest.mark.parametrize("disturb", DISTURBANCES)
def test_no_disturbance_ends_the_process_or_makes_a_record_wrong(
    write: Write, io: Io, disturb: Callable[[Path, random.Random], None]
) -> None:
    draw = random.Random(f"{SEED} {io} {disturb.__name__}")
    for run in range(RUNS // len(DISTURBANCES)):
        path = write(CONTENTS[0])
        ds = fr.open(path, features=SPEC, io=io)
        shuffle = draw.random() < 0.5
        loader = ds.loader(3, shuffle=shuffle, seed=run, num_threads=draw.randrange(3))
        is_begun = draw.random() < 0.5
        batches = iter(loader)
        numbers = check(next(batches)) if is_begun else []
        seconds = draw.random() * 0.004
        thread = threading.Timer(seconds, disturb, (path, draw))
        thread.start()
        damaged = ""
        try:
            for batch in batches:
                numbers += check(batch)
        except fr.CorruptionError as error:
            damaged = error.path or "somewhere"
        thread.join()
        assert damaged in ("", str(path))
        # Another length is that of the file when it was opened.
        assert damaged or not is_begun or len(numbers) == N_RECORDS
        assert len({n % N_RECORDS for n in numbers}) == len(numbers)


BLOCKED = """
import os, signal, sys
import fastrec as fr

path, threads, shuffle = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
ds = fr.open(path, features={"n": fr.FixedLen((), "int64")}, io="mmap")
batches = iter(ds.loader(5, shuffle=shuffle, num_threads=threads, prefetch=2))
next(batches)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.truncate(path, os.path.getsize(path) // 3)
try:
    for _ in batches:
        pass
except fr.CorruptionError:
    print("damaged")
"""


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_blocked_signals_do_not_end_the_process(
    big: Path, num_threads: int, shuffle: bool
) -> None:
    done = run_python(BLOCKED, big, num_threads, shuffle)
    assert (done.returncode, done.stdout, done.stderr) == (0, "damaged\n", "")
