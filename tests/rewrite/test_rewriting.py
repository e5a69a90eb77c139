"""Whole-file tools: shuffle, merge, reshard, split, compress, expand.

Goal
    Every frame is copied once, byte for byte, in the documented order. The output does
    not depend on memory limits or threads. Damaged files, interrupts and existing targets
    leave no output.
Method
    Files of several sizes from the oracle's encoder, which shares no code with fastrec;
    the standard library reads compressed files. Shuffles are compared with a loader,
    splits with `Dataset.split`. Most tools run as functions, with an exception in the
    middle, and as commands.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import signal
import subprocess
import sysconfig
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

import fastrec as fr
from children import run_python
from fastrec.rewrite import copy, shuffle
from fastrec.sources import selection
from fastrec.storage import parallel
from fastrec.writer.shards import ShardOptions
from oracle_frames import frame, frame_offsets

SCRIPT = Path(sysconfig.get_path("scripts")) / "fastrec"

COMPRESSIONS = (None, "GZIP", "ZLIB")
SUFFIXES = {None: "", "GZIP": ".gz", "ZLIB": ".zz"}
COMPRESS: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}
EXPAND: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "GZIP": gzip.decompress,
    "ZLIB": zlib.decompress,
}
every_compression = pytest.mark.parametrize("compression", COMPRESSIONS)

# Records in each file; the last case is large enough for a Feistel permutation.
SIZES = [[0], [1], [7, 0, 1, 23, 0, 12], [300, 5000, 1]]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)

MEMORY = 20 << 20


def frames_of(n: int, seed: int = 0) -> list[bytes]:
    """Return different frames, most of them small, some with empty payloads."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 60, n)
    lengths[rng.random(n) < 0.01] = 3000
    return [
        frame(
            b"" if length == 0 and i % 2 else b"%d:" % i + rng.bytes(int(length)),
            crc32c.crc32c,
        )
        for i, length in enumerate(lengths)
    ]


def split_frames(data: bytes) -> list[bytes]:
    return [data[a:b] for a, b in itertools.pairwise(frame_offsets(data))]


class Files:
    """Files of frames in a separate directory."""

    def __init__(
        self, directory: Path, sizes: list[int], compression: str | None = None
    ) -> None:
        directory.mkdir()
        self.frames = frames_of(sum(sizes))
        self.by_file: list[list[bytes]] = []
        self.paths: list[str] = []
        ends = itertools.accumulate(sizes, initial=0)
        for number, (begin, end) in enumerate(itertools.pairwise(ends)):
            path = directory / f"{number}.tfrecord{SUFFIXES[compression]}"
            self.by_file.append(self.frames[begin:end])
            path.write_bytes(COMPRESS[compression](b"".join(self.by_file[-1])))
            self.paths.append(str(path))


@pytest.fixture
def files_of(tmp_path: Path) -> Callable[..., Files]:
    numbers = itertools.count()
    return lambda *args: Files(tmp_path / f"in-{next(numbers)}", *args)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def contents(files: list[str], compression: str | None = None) -> list[list[bytes]]:
    return [
        split_frames(EXPAND[compression](Path(path).read_bytes())) for path in files
    ]


def joined(parts: list[list[bytes]]) -> list[bytes]:
    return [item for part in parts for item in part]


def assert_nothing_in(directory: Path) -> None:
    assert list(directory.iterdir()) == []


def shard_options(**options: Any) -> ShardOptions:
    return ShardOptions(**{"sync": False, "n_threads": 2, **options})


def loader_order(files: Files, seed: int) -> list[bytes]:
    """Return the frames in the order of a shuffled loader."""
    dataset = fr.open(files.paths, features={"x": fr.FixedLen((), "int64", default=0)})
    loader = dataset.loader(7, shuffle=True, seed=seed)
    return [
        files.by_file[files.paths.index(path)][record]
        for step in range(len(loader))
        for path, record, _ in loader.records_at(step, epoch=0)
    ]


# Shuffling.


@every_size
@pytest.mark.parametrize("n_shards", [1, 3])
def test_a_shuffled_file_has_the_order_of_a_shuffled_loader(
    files_of: Callable[..., Files], out: Path, sizes: list[int], n_shards: int
) -> None:
    files = files_of(sizes)
    written = shuffle.shuffle(
        files.paths,
        str(out / "{shard}.tfrecord"),
        shard_options(),
        num_shards=n_shards,
        seed=11,
        memory=MEMORY,
    )
    shards = contents(written.files)
    n = len(files.frames)
    assert [len(shard) for shard in shards] == [
        (k + 1) * n // n_shards - k * n // n_shards for k in range(n_shards)
    ]
    assert joined(shards) == loader_order(files, 11)
    assert written.n_records == n
    assert written.n_bytes == sum(map(len, files.frames))


def test_a_loader_reads_a_shuffled_file_in_shuffled_order(
    tmp_path: Path, out: Path
) -> None:
    path, shuffled = tmp_path / "in.tfrecord", out / "out.tfrecord"
    n = 6000
    fr.write(path, {"n": np.arange(n)})
    shuffle.shuffle([str(path)], str(shuffled), shard_options(), seed=3, memory=MEMORY)
    spec = {"n": fr.FixedLen((), "int64")}
    loader = fr.open(path, features=spec).loader(256, shuffle=True, seed=3)
    expected = np.concatenate([batch["n"] for batch in loader])
    found = np.concatenate(
        [batch["n"] for batch in fr.open(shuffled, features=spec).loader(256)]
    )
    assert sorted(found) == list(range(n))
    np.testing.assert_array_equal(found, expected)


def records_of_a_kilobyte(path: Path, n: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, 1000 + n, np.uint8).tobytes()
    with fr.Writer(path, sync=False) as writer:
        for i in range(n):
            writer.write_record(data[i : i + 1000])


@every_compression
def test_a_shuffle_does_not_depend_on_memory_and_threads(
    tmp_path: Path,
    out: Path,
    compression: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "in.tfrecord"
    records_of_a_kilobyte(path, 12_000)
    n_reads: list[int] = []
    chunks = shuffle._chunks

    def counted(pieces: Any, capacity: int) -> Any:
        for chunk in chunks(pieces, capacity):
            n_reads[-1] += 1
            yield chunk

    monkeypatch.setattr(shuffle, "_chunks", counted)
    found = []
    for memory, n_threads in [
        (17 << 20, 0),
        (17 << 20, 4),
        (21 << 20, 1),
        (1 << 30, 2),
    ]:
        n_reads.append(0)
        target = out / f"{memory}-{n_threads}"
        shuffle.shuffle(
            [str(path)],
            str(target) + "-{shard}",
            shard_options(compression=compression, n_threads=n_threads, level=1),
            num_shards=2,
            memory=memory,
        )
        found.append([Path(f"{target}-{shard}").read_bytes() for shard in range(2)])
    assert n_reads[0] == n_reads[1] >= 3
    assert n_reads[2] == 2
    assert n_reads[3] == 1
    assert all(each == found[0] for each in found)


SHUFFLED_IN_CHILD = """
import sys
from pathlib import Path
from fastrec.rewrite import shuffle
from fastrec.writer.shards import ShardOptions

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10

def run(path, out, memory):
    shard_options = ShardOptions(sync=False, n_threads=2, compression=COMPRESSION, level=1)
    shuffle.shuffle([path], out, shard_options, memory=memory)

_, few, path, out, memory = sys.argv
run(few, out + ".few", int(memory))
before = peak()
run(path, out, int(memory))
print(peak() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="measuring memory needs /proc"
)
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_shuffle_keeps_to_its_memory_limit(
    tmp_path: Path, out: Path, compression: str | None
) -> None:
    few, path = tmp_path / "few.tfrecord", tmp_path / "in.tfrecord"
    records_of_a_kilobyte(few, 10)
    records_of_a_kilobyte(path, 100_000)
    memory = path.stat().st_size // 4
    code = SHUFFLED_IN_CHILD.replace("COMPRESSION", repr(compression))
    done = run_python(code, few, path, out / "out", memory)
    assert 0 < int(done.stdout) <= memory
    assert len(fr.open(out / "out")) == 100_000


def test_a_record_larger_than_the_memory_limit_is_shuffled(
    tmp_path: Path, out: Path
) -> None:
    path = tmp_path / "in.tfrecord"
    records = [bytes([i]) * (6 << 20 if i == 3 else 1000) for i in range(8)]
    with fr.Writer(path, sync=False) as writer:
        for record in records:
            writer.write_record(record)
    target = out / "out.tfrecord"
    shuffle.shuffle([str(path)], str(target), shard_options(), memory=17 << 20)
    assert sorted(fr.read_records(target)) == sorted(records)


def test_a_memory_limit_below_the_indexes_is_refused(
    files_of: Callable[..., Files], out: Path
) -> None:
    files = files_of([10])
    with pytest.raises(ValueError, match=r"memory must be at least .* for 10 records"):
        shuffle.shuffle(files.paths, str(out / "x"), shard_options(), memory=1 << 20)
    assert_nothing_in(out)


def test_compressed_files_are_shuffled_with_a_cache_dir_only(
    files_of: Callable[..., Files], out: Path, tmp_path: Path
) -> None:
    files = files_of([40, 3], "GZIP")
    with pytest.raises(fr.Error, match=r"requires random access.*--cache-dir DIR"):
        shuffle.shuffle(files.paths, str(out / "x"), shard_options(), memory=MEMORY)
    assert_nothing_in(out)
    cache = tmp_path / "cache"
    written = shuffle.shuffle(
        files.paths,
        str(out / "x"),
        shard_options(),
        memory=MEMORY,
        cache_dir=str(cache),
    )
    (found,) = contents(written.files)
    assert found != files.frames
    assert sorted(found) == sorted(files.frames)


# Other shards.


@every_compression
@every_size
def test_merging_concatenates_files_in_order(
    files_of: Callable[..., Files],
    out: Path,
    sizes: list[int],
    compression: str | None,
) -> None:
    files = files_of(sizes, compression)
    paths = files.paths[::-1]
    written = copy.reshard(paths, str(out / "all"), shard_options())
    assert contents(written.files) == [joined(files.by_file[::-1])]
    assert written.n_records == len(files.frames)


@every_compression
@every_size
@pytest.mark.parametrize("n_shards", [1, 4, 60])
def test_resharding_divides_evenly_and_keeps_the_order(
    files_of: Callable[..., Files],
    out: Path,
    sizes: list[int],
    compression: str | None,
    n_shards: int,
) -> None:
    files = files_of(sizes, compression)
    pattern = str(out / "{shard}-of-{num_shards}")
    written = copy.reshard(files.paths, pattern, shard_options(), n_shards)
    shards = contents(written.files)
    assert [Path(path).name for path in written.files] == [
        f"{k}-of-{n_shards}" for k in range(n_shards)
    ]
    assert joined(shards) == files.frames
    n = len(files.frames)
    assert [len(shard) for shard in shards] == [
        (k + 1) * n // n_shards - k * n // n_shards for k in range(n_shards)
    ]


def test_shards_without_records_are_not_open_together(
    files_of: Callable[..., Files], out: Path
) -> None:
    resource = pytest.importorskip("resource", reason="no limit of open files here")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    files, pattern = files_of([0]), str(out / "{shard}")
    n_open = max(map(int, os.listdir("/proc/self/fd"))) if Path("/proc").exists() else 0
    limit = n_open + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        written = copy.reshard(files.paths, pattern, shard_options(), 2 * limit)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(written.files) == 2 * limit


def test_resharding_by_size_fills_shards_up_to_the_limit(
    files_of: Callable[..., Files], out: Path
) -> None:
    files = files_of([300, 5000, 1])
    most = 4000
    written = copy.reshard(
        files.paths, str(out / "{shard}"), shard_options(max_bytes=most)
    )
    shards = contents(written.files)
    assert joined(shards) == files.frames
    sizes = [sum(map(len, shard)) for shard in shards]
    assert max(sizes) <= most
    for size, following in zip(sizes, shards[1:], strict=False):
        assert size + len(following[0]) > most, "one more would have fitted"


def test_resharding_by_records_fills_shards_up_to_the_limit(
    files_of: Callable[..., Files], out: Path
) -> None:
    files = files_of([7, 0, 1, 23])
    written = copy.reshard(
        files.paths, str(out / "{shard}"), shard_options(max_records=10)
    )
    shards = contents(written.files)
    assert [len(shard) for shard in shards] == [10, 10, 10, 1]
    assert joined(shards) == files.frames


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_shards_are_read_by_the_standard_library(
    files_of: Callable[..., Files], out: Path, compression: str
) -> None:
    files = files_of([300, 5000, 1])
    found = []
    for n_threads in (0, 3):
        pattern = str(out / f"{n_threads}-{{shard}}")
        written = copy.reshard(
            files.paths,
            pattern,
            shard_options(compression=compression, level=9, n_threads=n_threads),
            5,
        )
        assert joined(contents(written.files, compression)) == files.frames
        found.append([Path(path).read_bytes() for path in written.files])
    assert found[0] == found[1], "threads show in the bytes"


def test_a_file_that_changes_after_counting_is_detected(
    files_of: Callable[..., Files], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of([10])
    for change in (-1, 1):
        monkeypatch.setattr(
            copy,
            "even_bounds",
            lambda n, parts, change=change: selection.even_bounds(n + change, parts),
        )
        with pytest.raises(fr.Error, match="changed while it was read"):
            copy.reshard(files.paths, str(out / "{shard}"), shard_options(), 2)
        assert_nothing_in(out)


# Splitting.


@every_compression
@every_size
@pytest.mark.parametrize("seed", [0, 5])
def test_a_split_equals_dataset_split(
    files_of: Callable[..., Files],
    out: Path,
    tmp_path: Path,
    sizes: list[int],
    compression: str | None,
    seed: int,
) -> None:
    files = files_of(sizes, compression)
    parts = {"train": 0.7, "valid": 0.2, "none": 0.0, "test": 0.1}
    pattern = str(out / "{part}.tfrecord")
    written = copy.split(files.paths, pattern, parts, shard_options(), seed)
    assert list(written) == list(parts)
    dataset = fr.open(files.paths, cache_dir=tmp_path / "cache")
    for name, part in zip(
        parts, dataset.split(list(parts.values()), seed=seed), strict=True
    ):
        assert written[name].files == [str(out / f"{name}.tfrecord")]
        assert written[name].n_records == len(part)
        assert list(fr.read_records(written[name].files)) == list(part.records)
    found = joined([joined(contents(each.files)) for each in written.values()])
    assert sorted(found) == sorted(files.frames)


def test_parts_may_have_shards_and_omit_records(
    files_of: Callable[..., Files], out: Path
) -> None:
    files = files_of([100])
    written = copy.split(
        files.paths,
        str(out / "{part}-{shard}-of-{num_shards}"),
        {"a": 0.25, "b": 0.5},
        shard_options(max_records=20),
    )
    names = [f"a-{k}-of-2" for k in range(2)] + [f"b-{k}-of-3" for k in range(3)]
    assert sorted(path.name for path in out.iterdir()) == names
    assert written["a"].n_records == 25
    assert written["b"].n_records == 50


@pytest.mark.parametrize(
    ("pattern", "parts", "message"),
    [
        ("x", {"a": 1.0}, r"must contain \{part\}"),
        ("{part}", {"../a": 1.0}, "the name of a part must be"),
        ("{part}", {"": 1.0}, "the name of a part must be"),
        ("{part}", {"{shard}": 1.0}, "the name of a part must be"),
        (
            "{part}",
            {"a": 0.9, "b": 0.2},
            r"be nonnegative and sum to at most 1, got \[0\.9, 0\.2\]",
        ),
    ],
)
def test_invalid_parts_are_refused(
    files_of: Callable[..., Files],
    out: Path,
    pattern: str,
    parts: dict[str, float],
    message: str,
) -> None:
    files = files_of([5])
    with pytest.raises(ValueError, match=message):
        copy.split(files.paths, str(out / pattern), parts, shard_options())
    assert_nothing_in(out)


# Compressing and expanding.


@pytest.mark.parametrize("n_threads", [0, 1, 2, 8])
@pytest.mark.parametrize("before", COMPRESSIONS)
@pytest.mark.parametrize("after", COMPRESSIONS)
def test_files_are_compressed_and_expanded_one_by_one(
    files_of: Callable[..., Files],
    out: Path,
    before: str | None,
    after: str | None,
    n_threads: int,
) -> None:
    files = files_of([7, 0, 3000], before)
    targets = copy.targets_of(files.paths, str(out / "deep" / "er"), after)
    written = copy.recode(
        targets, shard_options(compression=after, n_threads=n_threads)
    )
    assert [Path(path).name for path in targets.values()] == [
        f"{number}.tfrecord{SUFFIXES[after]}" for number in range(3)
    ]
    assert [each.files for each in written] == [[path] for path in targets.values()]
    assert contents(list(targets.values()), after) == files.by_file


def test_two_files_of_one_name_are_refused(files_of: Callable[..., Files]) -> None:
    one, other = files_of([1]), files_of([1])
    with pytest.raises(FileExistsError, match="have this output"):
        copy.targets_of(one.paths + other.paths, "x", None)
    with pytest.raises(ValueError, match="is a shard pattern"):
        copy.targets_of(["a{shard}"], "x", None)


# Errors and interrupts.

Tool = Callable[..., Any]


def shuffled_to(files: list[str], out: Path, **options: Any) -> None:
    progress = options.pop("progress", lambda _done, _total: None)
    shuffle.shuffle(
        files,
        str(out / "{shard}"),
        shard_options(**options),
        num_shards=4,
        memory=MEMORY,
        progress=progress,
    )


def resharded_to(files: list[str], out: Path, **options: Any) -> None:
    progress = options.pop("progress", lambda _done, _total: None)
    copy.reshard(
        files, str(out / "{shard}"), shard_options(**options), 4, progress=progress
    )


def merged_to(files: list[str], out: Path, **options: Any) -> None:
    progress = options.pop("progress", lambda _done, _total: None)
    copy.reshard(files, str(out / "all"), shard_options(**options), progress=progress)


def split_to(files: list[str], out: Path, **options: Any) -> None:
    progress = options.pop("progress", lambda _done, _total: None)
    copy.split(
        files,
        str(out / "{part}"),
        {"a": 0.5, "b": 0.5},
        shard_options(**options),
        progress=progress,
    )


def recoded_to(files: list[str], out: Path, **options: Any) -> None:
    progress = options.pop("progress", lambda _done, _total: None)
    targets = copy.targets_of(files, str(out), None)
    copy.recode(targets, shard_options(**options), progress=progress)


every_tool = pytest.mark.parametrize(
    "tool", [shuffled_to, resharded_to, merged_to, split_to, recoded_to]
)


@every_tool
@pytest.mark.parametrize("where", ["length", "payload", "end"])
def test_damage_is_located_and_nothing_is_published(
    files_of: Callable[..., Files], out: Path, tool: Tool, where: str
) -> None:
    files = files_of([5000])
    (path,) = map(Path, files.paths)
    data = bytearray(path.read_bytes())
    at = frame_offsets(bytes(data))[4321]
    if where == "end":
        del data[at + 5 :]
    else:
        data[at + (3 if where == "length" else 12)] ^= 1
    path.write_bytes(data)
    with pytest.raises(fr.CorruptionError) as caught:
        tool(files.paths, out)
    error = caught.value
    assert error.path == str(path)
    assert error.record == 4321
    assert error.offset == at + (12 if where == "payload" else 0)
    assert f"fastrec repair {path}" in str(error)
    assert_nothing_in(out)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("tool", [merged_to, recoded_to])
def test_damage_of_a_compressed_stream_is_reported(
    files_of: Callable[..., Files], out: Path, tool: Tool, compression: str
) -> None:
    files = files_of([5000], compression)
    (path,) = map(Path, files.paths)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(fr.CorruptionError, match="is truncated") as caught:
        tool(files.paths, out)
    assert caught.value.path == str(path)
    assert "fastrec repair" in str(caught.value)
    assert_nothing_in(out)


class Interrupted(BaseException):
    """A BaseException that the code must not swallow."""


@every_tool
@pytest.mark.parametrize("n_threads", [0, 2])
def test_an_exception_leaves_no_files(
    tmp_path: Path,
    out: Path,
    tool: Tool,
    n_threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "in.tfrecord"
    records_of_a_kilobyte(path, 40_000 if tool is recoded_to else 4000)
    n_told = 0

    def progress(_done: int, _total: int) -> None:
        nonlocal n_told
        n_told += 1
        if n_told == 3 or tool is recoded_to:
            raise Interrupted

    monkeypatch.setattr(parallel, "_POLL_SECONDS", 0.0001)
    with pytest.raises(Interrupted):
        tool([str(path)], out, n_threads=n_threads, progress=progress)
    assert_nothing_in(out)


@pytest.mark.parametrize("call", ["FileIO", "unlink", "link"])
def test_an_interrupt_in_a_system_call_leaves_only_complete_files(
    files_of: Callable[..., Files],
    out: Path,
    call: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = files_of([7, 23])
    module = io if call == "FileIO" else os
    real = getattr(module, call)

    n_interrupts = 0

    def interrupted(path: Any, *args: Any) -> Any:
        nonlocal n_interrupts
        found = real(path, *args)
        name = str(path)  # of a descriptor, it is a number
        is_ours = name.endswith(".tmp") and str(out) in name
        if is_ours and not n_interrupts:
            n_interrupts += 1
            if isinstance(found, io.RawIOBase):
                found.close()  # the last reference would close it with a warning
            raise Interrupted
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, call, interrupted)
        with pytest.raises(Interrupted):
            resharded_to(files.paths, out, n_threads=0)
    assert n_interrupts == 1
    if call == "FileIO":
        assert_nothing_in(out)
    for path in out.iterdir():  # published, so it must be complete
        assert path.name == "0"
        assert split_frames(path.read_bytes()) == files.frames[:7]


def test_ctrl_c_leaves_no_files(tmp_path: Path, out: Path) -> None:
    path = tmp_path / "in.tfrecord"
    records_of_a_kilobyte(path, 60_000)
    child = subprocess.Popen(
        [
            *(SCRIPT, "reshard", path, "-o", out / "{shard}", "--num-shards", "4"),
            *("--compression", "GZIP", "--level", "9"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not any(out.glob(".*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    shown, errors = child.communicate(timeout=60)
    assert (child.returncode, shown, errors) == (
        130,
        b"",
        b"interrupted; nothing was written\n",
    )
    assert_nothing_in(out)


@every_tool
def test_existing_files_are_kept_without_overwrite(
    files_of: Callable[..., Files], out: Path, tool: Tool
) -> None:
    files = files_of([50])
    tool(files.paths, out)
    names = sorted(path.name for path in out.iterdir())
    before = {name: (out / name).read_bytes() for name in names}
    first = out / names[0]
    first.write_bytes(b"mine")
    with pytest.raises(FileExistsError) as caught:
        tool(files.paths, out)
    assert caught.value.filename == str(first)
    assert first.read_bytes() == b"mine"
    tool(files.paths, out, overwrite=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@every_tool
def test_an_output_that_is_an_input_is_refused(
    files_of: Callable[..., Files], out: Path, tool: Tool
) -> None:
    files = files_of([50])
    tool(files.paths, out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    linked = out.parent / "linked"
    linked.symlink_to(out)
    inputs = [str(linked / path.name) for path in sorted(before)]
    with pytest.raises(FileExistsError, match="cannot overwrite an input"):
        tool(inputs, out, overwrite=True)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_several_shards_require_a_pattern(
    files_of: Callable[..., Files], out: Path
) -> None:
    files = files_of([5])
    target = str(out / "one")
    with pytest.raises(ValueError, match="several shards require a shard pattern"):
        copy.reshard(files.paths, target, shard_options(), 2)
    with pytest.raises(ValueError, match="several shards require a shard pattern"):
        copy.reshard(files.paths, target, shard_options(max_records=2))
    with pytest.raises(ValueError, match="several shards require a shard pattern"):
        shuffle.shuffle(
            files.paths, target, shard_options(), num_shards=2, memory=MEMORY
        )
    assert_nothing_in(out)


@every_tool
def test_progress_reaches_the_total(
    files_of: Callable[..., Files], out: Path, tool: Tool
) -> None:
    files = files_of([300, 5000])
    told: list[tuple[int, int]] = []
    tool(files.paths, out, progress=lambda done, total: told.append((done, total)))
    total = sum(map(len, files.frames))
    assert told == sorted(told)
    if tool is not recoded_to:  # it reports only ten times a second
        assert told[-1] == (total, total)


# Frames, in the core.


def test_frames_are_read_to_the_given_offsets(
    files_of: Callable[..., Files],
) -> None:
    files = files_of([7, 0, 23])
    view = fr.open(files.paths)._source
    numbers = np.array([29, 0, 7, 7], np.int64)
    lengths = np.diff(view.catalog().places(numbers)[:, 2:]).ravel()
    assert lengths.tolist() == [len(files.frames[number]) for number in numbers]
    begins = np.cumsum([1, *lengths[:-1]])[::1]
    into = np.zeros(int(lengths.sum()) + 2, np.uint8)
    read = fr._core.read_frames
    read(view.files.table, view.catalog(), numbers, begins, into)
    expected = b"".join(files.frames[number] for number in numbers)
    assert into.tobytes() == b"\0" + expected + b"\0"


@pytest.mark.parametrize("begin", [-1, 1, 2**62])
def test_frames_are_never_read_out_of_bounds(
    files_of: Callable[..., Files], begin: int
) -> None:
    files = files_of([1])
    view = fr.open(files.paths)._source
    into = np.zeros(len(files.frames[0]), np.uint8)
    number = np.zeros(1, np.int64)
    with pytest.raises(IndexError, match="too small"):
        fr._core.read_frames(
            view.files.table, view.catalog(), number, np.array([begin]), into
        )
    into.flags.writeable = False
    with pytest.raises(ValueError, match="not writeable"):
        fr._core.read_frames(view.files.table, view.catalog(), number, number, into)
