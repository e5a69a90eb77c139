"""Shards and compressed files.

Goal
    Every record is in the shard that the rule assigns. Python's gzip and zlib read
    compressed files. The index stored by a writer equals the index built by a reader.
    Invalid options are refused. Whatever interrupts the writing, only complete files have
    their final names.
Method
    A second implementation of the rules, one record at a time; hypothesis compares.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import itertools
import linecache
import os
import signal
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, open_dataset
from fastrec.storage.index import FileIndexes
from written import payloads, records_in

PATTERN = "train-{shard:05d}-of-{num_shards:05d}.tfrecord"
OPEN_PATTERN = "train-{shard:03d}.tfrecord"
FRAME_BYTES = 16


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def shards_of(
    sizes: Sequence[int], most_bytes: int, most_records: int
) -> list[list[int]]:
    """Return the sizes of payloads by shard, following the rule record by record."""
    shards: list[list[int]] = [[]]
    for size in sizes:
        shard = shards[-1]
        n_bytes = sum(shard) + FRAME_BYTES * (len(shard) + 1) + size
        if shard and (n_bytes > most_bytes or len(shard) == most_records):
            shards.append([])
        shards[-1].append(size)
    return shards


def records_of_sizes(sizes: Sequence[int]) -> list[bytes]:
    """Return records that all differ, unless they are empty."""
    return [(str(i).encode() * size)[:size] for i, size in enumerate(sizes)]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 60), max_size=30),
    most_bytes=st.integers(1, 300),
    most_records=st.none() | st.integers(1, 6),
    num_threads=st.sampled_from([0, 2]),
    pattern=st.sampled_from([PATTERN, OPEN_PATTERN]),
)
def test_shards_end_before_a_record_that_does_not_fit(
    sizes: list[int],
    most_bytes: int,
    most_records: int | None,
    num_threads: int,
    pattern: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    records = records_of_sizes(sizes)
    with fr.Writer(
        folder / pattern,
        max_shard_bytes=most_bytes,
        max_shard_records=most_records,
        num_threads=num_threads,
        sync=False,
    ) as writer:
        for record in records:
            writer.write_record(record)
    shards = shards_of(sizes, most_bytes, most_records or 2**63)
    n = len(shards)
    expected = [str(folder / pattern.format(shard=i, num_shards=n)) for i in range(n)]
    assert writer.files == expected
    assert names_in(folder) == sorted(map(os.path.basename, expected))
    assert [[*map(len, records_in(path))] for path in expected] == shards
    assert [r for path in expected for r in records_in(path)] == records


@settings(max_examples=60)
@given(
    n_records=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    num_shards=st.integers(1, 5),
    num_threads=st.sampled_from([0, 2]),
    is_batch=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_record_i_goes_to_shard_i_modulo_num_shards(
    n_records: list[int],
    num_shards: int,
    num_threads: int,
    is_batch: list[bool],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, numbers = tmp_path_factory.mktemp("shards"), iter(range(100))
    with fr.Writer(
        folder / PATTERN, num_shards=num_shards, num_threads=num_threads, sync=False
    ) as writer:
        for n, batch in zip(n_records, is_batch, strict=False):
            values = [next(numbers) for _ in range(n)]
            if batch:
                writer.write_batch({"i": np.array(values, np.int64)})
            else:
                for value in values:
                    writer.write({"i": value})
    records = [fr.encode_example({"i": i}) for i in range(sum(n_records))]
    paths = [
        folder / PATTERN.format(shard=i, num_shards=num_shards)
        for i in range(num_shards)
    ]
    assert writer.files == [*map(str, paths)]
    assert [records_in(path) for path in paths] == [
        records[i::num_shards] for i in range(num_shards)
    ]


@pytest.mark.parametrize("pattern", [PATTERN, OPEN_PATTERN])
@pytest.mark.parametrize(
    "options",
    [{"max_shard_bytes": "300KB"}, {"max_shard_records": 777}, {"num_shards": 7}],
)
@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_shards_do_not_depend_on_threads(
    tmp_path: Path, pattern: str, options: dict[str, Any], compression: str | None
) -> None:
    n = 12_000
    columns = {
        "i": np.arange(n) * 7,
        "s": fr.BytesArray.from_list([b"text" * (i % 31) for i in range(n)]),
    }
    found = []
    for num_threads in (0, 1, 3):
        folder = tmp_path / str(num_threads)
        folder.mkdir()
        files = fr.write(
            folder / pattern,
            columns,
            num_threads=num_threads,
            compression=compression,
            sync=False,
            **options,
        )
        found.append([(Path(file).name, Path(file).read_bytes()) for file in files])
        assert names_in(folder) == sorted(name for name, _ in found[-1])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 2
    ds = fr.open(str(tmp_path / "3" / "*"), cache_dir=tmp_path / "expanded")
    got = ds[0:n]
    order = np.argsort(np.asarray(got["i"]))
    np.testing.assert_array_equal(np.asarray(got["i"])[order], columns["i"])
    assert got["s"][order].tolist() == columns["s"].tolist()  # type: ignore[attr-defined]


def test_one_shard_is_the_default_up_to_200_mb(tmp_path: Path) -> None:
    files = fr.write(tmp_path / PATTERN, {"x": np.zeros((3, 1 << 20))}, sync=False)
    assert [Path(f).name for f in files] == ["train-00000-of-00001.tfrecord"]


def test_a_shard_of_200_mb_is_full_by_default(tmp_path: Path) -> None:
    record = memoryview(bytes(100_000_000 - 2 * FRAME_BYTES))
    with fr.Writer(tmp_path / PATTERN, sync=False, num_threads=0) as writer:
        for _ in range(2):
            writer.write_record(record)
        writer.write_record(bytes(2 * FRAME_BYTES - FRAME_BYTES))
        writer.write_record(b"")
    sizes = [Path(file).stat().st_size for file in writer.files]
    assert sum(sizes) == writer.n_bytes
    assert sizes == [200_000_000, FRAME_BYTES]


@pytest.mark.parametrize("pattern", [PATTERN, OPEN_PATTERN])
@pytest.mark.parametrize("options", [{}, {"num_shards": 3}])
def test_shards_without_records_exist(
    tmp_path: Path, pattern: str, options: dict[str, Any]
) -> None:
    files = fr.write(tmp_path / pattern, {}, **options)
    assert len(files) == options.get("num_shards", 1)
    assert [Path(file).read_bytes() for file in files] == [b""] * len(files)


# --- Compressed files ------------------------------------------------------------------


def inflated(path: str | Path, compression: str | None) -> bytes:
    data = Path(path).read_bytes()
    if compression is None:
        return data
    return gzip.decompress(data) if compression == "GZIP" else zlib.decompress(data)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("level", [None, 0, 1, 9])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_compressed_files_hold_the_frames_of_plain_ones(
    tmp_path: Path, compression: str, level: int | None, num_threads: int
) -> None:
    rng = np.random.default_rng(3)
    columns = {"x": rng.integers(0, 9, (500, 900)), "i": np.arange(500)}
    plain, deflated = tmp_path / "plain", tmp_path / "deflated"
    fr.write(plain, columns)
    options: dict[str, Any] = {"compression": compression, "num_threads": num_threads}
    fr.write(deflated, columns, compression_level=level, **options)
    assert inflated(deflated, compression) == plain.read_bytes()
    ds = fr.open(deflated, cache_dir=tmp_path / "expanded")
    assert len(ds) == 500
    got = ds[0:500]
    np.testing.assert_array_equal(got["x"], columns["x"])
    np.testing.assert_array_equal(got["i"], columns["i"])
    is_smaller = deflated.stat().st_size < plain.stat().st_size
    assert is_smaller == (level != 0)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("records", [[], [b""], [b"one"], [bytes(3 << 20), b"", b"x"]])
def test_compressed_files_of_few_records(
    tmp_path: Path, compression: str, records: list[bytes]
) -> None:
    path = tmp_path / "data"
    with fr.Writer(path, compression=compression) as writer:
        for record in records:
            writer.write_record(record)
    assert payloads(inflated(path, compression)) == records
    if records:
        ds = open_dataset(path, cache_dir=tmp_path / "expanded")
        assert ds.records[0 : len(records)].tolist() == records


def test_shards_are_cut_by_their_bytes_before_compression(tmp_path: Path) -> None:
    with fr.Writer(
        tmp_path / OPEN_PATTERN, max_shard_bytes=1000, compression="GZIP"
    ) as writer:
        for _ in range(20):
            writer.write_record(bytes(100))
    assert [len(payloads(inflated(file, "GZIP"))) for file in writer.files] == [8, 8, 4]


# --- Indexes ---------------------------------------------------------------------------


def only_joins(found: FileIndexes, *_: object) -> None:
    """Join the index files of single files; replaces a function that scans files."""
    assert not found.missing.size
    found.save()


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
@pytest.mark.parametrize("name", ["one.tfrecord", OPEN_PATTERN, PATTERN])
def test_the_stored_index_equals_a_built_index(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str | None,
    name: str,
) -> None:
    def kept(cache: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(cache)): path.read_bytes()
            for path in cache.rglob("*")
            if path.is_file() and not path.name.startswith(".lock")
        }

    data, of_writer, built = tmp_path / "data", tmp_path / "writer", tmp_path / "built"
    data.mkdir()
    monkeypatch.setenv("FASTREC_CACHE", str(of_writer))
    options: dict[str, Any] = (
        {} if name == "one.tfrecord" else {"max_shard_records": 40}
    )
    columns = {"x": [b"x" * i for i in range(100)]}
    files = fr.write(data / name, columns, compression=compression, **options)
    before = kept(of_writer)
    assert len(before) == len(files)

    # Reading scans no file here, and builds equal indexes with an empty cache.
    monkeypatch.setattr(FileIndexes, "_build", only_joins)
    assert len(fr.open(files)) == 100
    monkeypatch.undo()
    monkeypatch.setenv("FASTREC_CACHE", str(built))
    assert [len(fr.open(file)) for file in files] == [
        len(records) for records in map(list, map(fr.read_records, files))
    ]
    assert kept(built) == before


def test_the_index_includes_appended_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data"
    for i in range(3):
        with fr.Writer(path, append=True) as writer:
            writer.write_batch({"i": [i] * 10})
        assert len(fr.open(path)) == 10 * (i + 1)
    assert fr.open(path)[0:30]["i"].tolist() == [0] * 10 + [1] * 10 + [2] * 10


# --- Options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "error", "text"),
    [
        ("f", {"num_shards": 2}, ValueError, "num_shards require a shard pattern"),
        ("f", {"max_shard_bytes": 9}, ValueError, "require a shard pattern"),
        ("f", {"max_shard_records": 9}, ValueError, "require a shard pattern"),
        (PATTERN, {"num_shards": 2, "max_shard_bytes": 9}, ValueError, "num_shards cannot be combined"),
        (PATTERN, {"num_shards": 2, "max_shard_records": 9}, ValueError, "num_shards cannot be combined"),
        (PATTERN, {"num_shards": 0}, ValueError, "num_shards must be at least 1"),
        (PATTERN, {"num_shards": 2.0}, TypeError, "num_shards must be an integer"),
        (PATTERN, {"max_shard_records": 0}, ValueError, "max_shard_records.*at least 1"),
        (PATTERN, {"max_shard_bytes": "much"}, ValueError, 'such as "4MB"'),
        ("f", {"compression": "gzip"}, ValueError, '"GZIP" or "ZLIB", got \'gzip\''),
        ("f", {"compression": True}, ValueError, "got True"),
        ("f", {"compression_level": 10}, ValueError, "compression_level must be at most 9"),
        ("f", {"compression_level": -1}, ValueError, "compression_level must be at least 0"),
        ("f", {"overwrite": 1}, TypeError, "overwrite must be True or False"),
        ("f", {"sync": "yes"}, TypeError, "sync must be True or False"),
        ("f", {"append": 1}, TypeError, "append must be True or False"),
        (PATTERN, {"num_shards": 0}, ValueError, "num_shards must be at least 1, got 0"),
        (PATTERN, {"num_shards": -1}, ValueError, "num_shards must be at least 1, got -1"),
        ("f", {"num_threads": -1}, ValueError, "num_threads must be at least 0, got -1"),
        ("f", {"append": True, "overwrite": True}, ValueError, "append=True requires the path of one"),
        ("f", {"append": True, "compression": "GZIP"}, ValueError, "append=True requires"),
        (PATTERN, {"append": True}, ValueError, "append=True requires the path of one file"),
        ("f", {"max_shards": 1}, TypeError, "no option 'max_shards'.*num_shards"),
        ("f", {"features": {"a": 1}}, fr.SchemaError, "'a'"),
        ("{num_shards}", {}, ValueError, r"must have \{shard\}"),
        ("{shard}-{other}", {}, ValueError, "a shard pattern must look like"),
        ("{shard:x.y}", {}, ValueError, "a shard pattern must look like"),
        ("{shard}/f", {}, ValueError, "in the last component of the path"),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(
    tmp_path: Path,
    name: str,
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    before = names_in(tmp_path)
    for write in (fr.Writer, lambda path, **options: fr.write(path, {}, **options)):
        with pytest.raises(error, match=text):
            write(tmp_path / name, **options)
        assert names_in(tmp_path) == before


def test_names_with_other_braces_are_names(tmp_path: Path) -> None:
    files = fr.write(tmp_path / "{0}-{x}.tfrecord", {"a": [1]})
    assert [Path(file).name for file in files] == ["{0}-{x}.tfrecord"]
    assert names_in(tmp_path) == ["{0}-{x}.tfrecord"]


@pytest.mark.parametrize("options", [{}, {"num_shards": 2}])
def test_existing_shards_are_refused_and_all_replaced_only_by_overwriting(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    old = tmp_path / PATTERN.format(shard=7, num_shards=9)
    old.write_bytes(b"old")
    other = tmp_path / "train-7-of-9.tfrecord"  # not how the pattern writes it
    other.write_bytes(b"other")
    with pytest.raises(FileExistsError) as caught:
        fr.write(tmp_path / PATTERN, {"a": [1]}, **options)
    assert caught.value.filename == str(old)
    assert names_in(tmp_path) == sorted([old.name, other.name])

    with fr.Writer(tmp_path / PATTERN, overwrite=True, **options) as writer:
        writer.write_batch({"a": [1, 2]})
        assert old.read_bytes() == b"old"
    assert names_in(tmp_path) == sorted(
        [other.name, *(Path(file).name for file in writer.files)]
    )


# --- Exceptions and signals ------------------------------------------------------------


def interrupted(path: Path, how: str, **options: Untyped) -> None:
    """Write many batches, and raise an exception in between."""

    def sources() -> Untyped:
        for i in range(50):
            if how == "Ctrl-C" and i == 30:
                signal.raise_signal(signal.SIGINT)
            if how == "exception" and i == 30:
                raise ZeroDivisionError
            yield {"i": np.full(2000, i), "s": [b"x" * 50] * 2000}

    with fr.Writer(path, sync=False, **options) as writer:
        for columns in sources():
            writer.write_batch(columns)
        if how == "refused":
            writer.write_batch({"i": ["text"]})


@pytest.mark.parametrize("how", ["Ctrl-C", "exception", "refused"])
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("one.tfrecord", {}),
        ("one.tfrecord.gz", {"compression": "GZIP"}),
        (PATTERN, {"max_shard_bytes": "500KB"}),
        (PATTERN, {"num_shards": 5}),
        (OPEN_PATTERN, {"num_shards": 5}),
    ],
)
def test_an_exception_publishes_nothing(
    tmp_path: Path, how: str, num_threads: int, name: str, options: dict[str, Any]
) -> None:
    errors = (KeyboardInterrupt, ZeroDivisionError, ValueError)
    with pytest.raises(errors):
        interrupted(tmp_path / name, how, num_threads=num_threads, **options)
    assert names_in(tmp_path) == []
    # Locks are released.
    fr.write(tmp_path / name, {"i": [1]}, **options)


@pytest.mark.parametrize("how", ["Ctrl-C", "exception"])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_full_shards_stay_after_an_interrupt(
    tmp_path: Path, how: str, num_threads: int
) -> None:
    with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
        interrupted(
            tmp_path / OPEN_PATTERN,
            how,
            num_threads=num_threads,
            max_shard_records=1000,
        )
    names = names_in(tmp_path)
    # Threads may not have written all of them.
    assert names == [OPEN_PATTERN.format(shard=i) for i in range(len(names))]
    assert len(names) <= 60
    if num_threads == 0:
        assert len(names) >= 50
    for name in names:
        assert len(records_in(tmp_path / name)) == 1000


# A signal may come right after a file was opened: then its last reference closes it.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_ctrl_c_while_threads_write_fails_the_writer(tmp_path: Path) -> None:
    """A signal may come at any moment, also inside write_batch."""
    columns = {"i": np.arange(200_000), "f": np.zeros((200_000, 8), np.float32)}
    for delay in (0.0, 0.005, 0.02, 0.05):
        writer = fr.Writer(tmp_path / PATTERN, num_threads=2, max_shard_bytes="1MB")
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))

        def write(writer: fr.Writer = writer, timer: threading.Timer = timer) -> None:
            with writer:
                timer.start()
                for _ in range(1000):
                    writer.write_batch(columns)

        with pytest.raises(KeyboardInterrupt):
            write()
        timer.join()
        assert writer.closed
        assert names_in(tmp_path) == []
        with pytest.raises(ValueError, match=r"closed|interrupted"):
            writer.write_batch(columns)


# --- Interrupts -----------------------------------------------------------------------


class InterruptBefore:
    """Raises a KeyboardInterrupt before the n-th line of fastrec that runs."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.is_raised = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        path = frame.f_code.co_filename
        if self.is_raised or not path.startswith(PACKAGE):
            return None
        if event == "call" and any(
            found.f_code.co_name in FINALIZERS for found in callers_of(frame)
        ):
            return None  # where Python ignores what is raised
        # A real signal comes before a lock is acquired or after it is released.
        line = linecache.getline(path, frame.f_lineno).lstrip()
        if event == "line" and not line.startswith("with "):
            self._n -= 1
            if self._n < 0:
                self.is_raised = True
                raise KeyboardInterrupt
        return self


PACKAGE = str(Path(fr.__file__).parent)
FINALIZERS = {"__del__", "_discard_unclosed"}


def callers_of(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def open_files() -> Counter[str]:
    """Return how often each file, pipe or socket is open in this process."""
    found: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread closed it meanwhile
            found[str(descriptor.readlink())] += 1
    return found


def left_in(folder: Path, before: Counter[str]) -> list[str]:
    """Return the hidden files, and what is open and was not open `before`."""
    hidden = [path.name for path in folder.iterdir() if path.name[0] == "."]
    return hidden + list((open_files() - before).elements())


# An interrupt in `__exit__` itself leaves the rest to the garbage collection.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(600)  # it writes hundreds of files, perhaps on a busy machine
@pytest.mark.skipif(sys.platform != "linux", reason="/proc as Linux has it")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a", {"num_threads": 0}),
        ("a", {"num_threads": 2, "compression": "GZIP"}),
        (OPEN_PATTERN, {"num_threads": 1, "max_shard_records": 3}),
        (PATTERN, {"num_threads": 0, "num_shards": 2}),
    ],
)
def test_an_interrupt_before_any_line_leaves_complete_files_or_none(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    def write(folder: Path, finds: list[str]) -> None:
        with fr.Writer(folder / name, sync=False, **options) as writer:
            writer.write_batch({"x": np.arange(5)})
            writer.write({"x": 5})
        finds.extend(writer.files)

    (tmp_path / "whole").mkdir()
    files: list[str] = []
    write(tmp_path / "whole", files)
    want = {Path(path).name: Path(path).read_bytes() for path in files}
    # Outside the loop: a thread may still store the index of the last iteration.
    files_before = open_files()
    for n in itertools.count():
        folder = tmp_path / f"{n}"
        folder.mkdir()
        interrupt, before = InterruptBefore(n), sys.gettrace()
        found: list[str] = []
        sys.settrace(interrupt)
        try:
            write(folder, found)
        except KeyboardInterrupt:
            assert interrupt.is_raised
        finally:
            sys.settrace(before)
        if left_in(folder, files_before):
            gc.collect()
        # If `__exit__` was interrupted, a thread removes the rest.
        until = time.monotonic() + 60
        while (left := left_in(folder, files_before)) and time.monotonic() < until:
            os.sched_yield()
        assert not left, n
        whole = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert whole.items() <= want.items(), n
        if found:
            break
    assert whole == want
    assert n > 300


def test_doubled_braces_are_not_a_pattern(tmp_path: Path) -> None:
    with fr.Writer(tmp_path / "a-{{shard}}") as writer:
        writer.write_record(b"x")
    assert names_in(tmp_path) == ["a-{{shard}}"]
