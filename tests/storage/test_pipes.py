"""Pipes: FIFOs and stdin are read once, in order.

Goal
    Records and batches of a pipe equal those of a file of the same bytes, compressed or
    not, and each record is delivered as soon as it arrives. Whatever needs a file is
    refused, without waiting, with what to do; no epoch of a pipe is silently empty.
Method
    A writing thread on a FIFO, and a child with a pipe or a socket as its stdin.
"""

from __future__ import annotations

import gzip
import os
import pickle
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fastrec as fr
from children import Child
from columns import Untyped, open_dataset
from commands import run
from oracle import tfrecord_file

SPEC = {"n": fr.FixedLen((), "int64")}
N = 500
RECORDS = [fr.encode_example({"n": i, "s": b"x" * i}) for i in range(N)]
CONTENT = tfrecord_file(RECORDS)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def feed(fifo: Path) -> Iterator[Callable[[bytes], None]]:
    threads: list[threading.Thread] = []

    def write(content: bytes) -> None:
        with fifo.open("wb") as file:  # waits for the reader
            file.write(content)

    def begin(content: bytes) -> None:
        # A reader that has not read the end may still have the previous FIFO open.
        fifo.unlink()
        os.mkfifo(fifo)
        threads.append(threading.Thread(target=write, args=(content,)))
        threads[-1].start()

    yield begin
    for thread in threads:
        thread.join(60)


def numbers(batches: Untyped) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
def test_a_pipe_is_read_like_a_file(
    fifo: Path, feed: Callable[[bytes], None], pack: Callable[[bytes], bytes]
) -> None:
    def dataset() -> Untyped:
        return open_dataset(fifo, features=SPEC)

    content = pack(CONTENT)
    feed(content)
    assert list(fr.read_records(fifo)) == RECORDS
    feed(content)
    batches = [batch.tolist() for batch in fr.read_records(fifo, batch_size=64)]
    assert [len(batch) for batch in batches] == [64] * 7 + [52]
    assert [record for batch in batches for record in batch] == RECORDS
    feed(content)
    assert numbers(list(dataset().loader(16))) == list(range(N))
    feed(content)
    assert sorted(numbers(dataset().loader(16, shuffle=fr.Window(99)))) == list(
        range(N)
    )
    feed(content)
    assert [row["n"] for row in dataset()] == list(range(N))
    feed(content)
    shown, _ = run("head", fifo, "-n", str(N))
    assert shown.count("record ") == N
    feed(pack(b""))
    assert list(fr.read_records(fifo)) == []


def test_records_before_damage_are_yielded(
    fifo: Path, feed: Callable[[bytes], None]
) -> None:
    for batch_size, size in ((None, 1), (64, 64)):
        feed(CONTENT[:-5])
        records: Untyped = fr.read_records(fifo, batch_size=batch_size)
        found = [next(records) for _ in range((N - 1) // size)]
        if size > 1:
            found = [record for batch in found for record in batch]
            found += next(records)
        assert found == RECORDS[:-1]
        with pytest.raises(fr.CorruptionError, match=r"ends inside .* LOCAL_COPY"):
            next(records)


def test_each_record_is_yielded_as_it_arrives(fifo: Path) -> None:
    records = fr.read_records(fifo)
    writer = os.open(fifo, os.O_RDWR)  # does not wait for the reader
    for record in RECORDS[:3]:
        os.write(writer, tfrecord_file([record]))
        assert next(records) == record
    os.close(writer)
    assert list(records) == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_closing_a_loader_closes_a_pipe_without_a_writer(fifo: Path) -> None:
    loader = open_dataset(fifo, features=SPEC).loader(1)

    def read() -> None:
        with pytest.raises(RuntimeError, match="was closed"):
            next(iter(loader))

    def is_open() -> bool:
        entries = Path("/proc/self/fd").iterdir()
        return any(os.path.realpath(entry) == str(fifo) for entry in entries)

    reader = threading.Thread(target=read)
    reader.start()
    while not is_open():
        pass
    loader.close()
    reader.join(60)
    while is_open():
        pass


@pytest.mark.parametrize("is_socket", [False, True])
def test_stdin_is_a_path(is_socket: bool) -> None:
    code = (
        "import fastrec as fr; "
        "print(sum(1 for _ in fr.read_records('/dev/stdin')), flush=True)"
    )
    ours, theirs = socket.socketpair()
    with Child[bytes](
        [sys.executable, "-c", code],
        stdin=theirs.fileno() if is_socket else subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        theirs.close()
        if is_socket:
            ours.sendall(CONTENT)
        else:
            assert process.stdin is not None
            process.stdin.write(CONTENT)
            process.stdin.close()
        ours.close()
        assert process.stdout is not None
        assert process.stdout.readline() == b"%d\n" % N


@pytest.mark.parametrize(
    "use",
    [
        lambda path: len(open_dataset(path, features=SPEC)),
        lambda path: len(open_dataset(path, features=SPEC).loader(2)),
        lambda path: open_dataset(path, features=SPEC)[3],
        lambda path: open_dataset(path, features=SPEC).select([1]),
        lambda path: open_dataset(path, features=SPEC).loader(2, shuffle=True),
        lambda path: open_dataset(path, features=SPEC).loader(2, rank=0, world_size=2),
        lambda path: open_dataset(path, features=SPEC).loader(2).state_dict(),
        lambda path: open_dataset(path).infer_schema(),
        lambda path: next(iter(open_dataset(path).loader(2))),
        lambda path: pickle.dumps(open_dataset(path, features=SPEC)),
        lambda path: open_dataset(path, cache_dir=path.parent / "cache"),
        lambda path: fr.build_index(path),
        # As pyarrow.table(ds), polars.DataFrame(ds) and DuckDB do.
        lambda path: open_dataset(path, features=SPEC).__arrow_c_stream__(),
    ],
)
def test_what_needs_a_file_is_refused_without_waiting(
    fifo: Path, use: Callable[[Path], object]
) -> None:
    with pytest.raises(
        (OSError, TypeError), match=r"is a pipe; copy it to a file"
    ) as e:
        use(fifo)
    assert str(fifo) in str(e.value)


def test_commands_refuse_a_pipe_in_one_line(fifo: Path) -> None:
    _, errors = run("count", fifo, status=2)
    assert errors == (
        f"error: {fifo}: this operation requires a file, but this is a pipe; copy it to "
        "a file first\n"
    )


def test_a_pipe_is_not_read_twice(fifo: Path, feed: Callable[[bytes], None]) -> None:
    loader = open_dataset(fifo, features=SPEC).loader(16)
    feed(CONTENT)
    assert numbers(loader) == list(range(N))
    with pytest.raises(OSError, match=r"reading it again .* is a pipe"):
        list(loader)


def test_a_forked_process_does_not_read_a_pipe(fifo: Path) -> None:
    ds = open_dataset(fifo, features=SPEC)
    child = os.fork()
    if child == 0:
        try:
            next(iter(ds.loader(1)))
        except OSError as error:
            os._exit(0 if "is a pipe" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
