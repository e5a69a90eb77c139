"""Limits: the memory and time that hostile files may use.

Goal
    fastrec never uses memory or time that is not proportional to a file's bytes.
Method
    Bombs of each kind, small files that request much memory, are read in separate
    processes whose memory is measured; options and places in errors are named cases.
"""

from __future__ import annotations

import glob
import gzip
import os
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import fastrec as fr
from children import run_python
from columns import Write
from fastrec import _core
from oracle import example, frame, header, tfrecord_file
from oracle_frames import masked

Untyped: TypeAlias = Any

MB = 1 << 20
LISTS = {"n": fr.FixedLenSequence((), "int64")}
NAMES = {"s": fr.FixedLenSequence((), "bytes", default="filling")}


def numbered(*counts: int) -> list[bytes]:
    """Write records with these numbers of values."""
    return [example({b"n": ("int64", [1] * count)}) for count in counts]


def varint(value: int) -> bytes:
    low = b""
    while value > 127:
        low += bytes([value & 127 | 128])
        value >>= 7
    return low + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def long_list(n: int) -> bytes:
    """Return a record of `n` ones, in as many bytes."""
    feature = field(3, field(1, b"\1" * n))
    return field(1, field(1, field(1, b"n") + field(2, feature)))


def many_features(n: int) -> bytes:
    """Return a record of `n` empty features with distinct names, of 9 bytes each."""
    entries = np.empty((n, 9), np.uint8)
    entries[:] = list(field(1, field(1, b"key") + field(2, b"")))
    entries[:, 4:7] = np.arange(n, dtype=">u4").view(np.uint8).reshape(n, 4)[:, 1:]
    return field(1, entries.tobytes())


def quick_frame(payload: bytes) -> bytes:
    return frame(payload, lambda data: _core.crc32c(data))


# Errors and their places.


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_record_above_the_limit_is_an_error_at_its_place(
    write: Write, io: Untyped, shuffle: bool
) -> None:
    # Adjacent records are read as one block, but checked one by one.
    records = numbered(1, 2, 300, 3)
    path = write(tfrecord_file(records))
    spec = {"n": fr.VarLen("int64")}
    limits = fr.Limits(max_record_bytes=len(records[2]) - 1)
    ds = fr.open(path, features=spec, io=io, limits=limits)
    loader = ds.loader(1, shuffle=shuffle, seed=1)
    with pytest.raises(fr.LimitError, match="exceeds the limit") as caught:
        list(loader)
    at = sum(len(frame(record)) for record in records[:2])
    assert (caught.value.record, caught.value.offset) == (2, at)
    assert caught.value.path == str(path)
    with pytest.raises(fr.LimitError):
        ds.records[2]
    assert ds.records[3] == records[3]

    skipping: Untyped = ds.loader(4, on_error="skip")
    assert [batch["n"].lengths.tolist() for batch in skipping] == [[1, 2, 3]]
    assert [region.begin for region in skipping.report] == [at]
    just = fr.Limits(max_record_bytes=len(records[2]))
    assert len(list(fr.open(path, features=spec, io=io, limits=just).loader(1))) == 4


@pytest.mark.parametrize("length", [2**31, 2**32 + 5])
def test_longer_records_than_protobuf_reads_are_errors_that_name_its_limit(
    length: int, tmp_path: Path
) -> None:
    named = r"2\^31 - 1 as in protobuf; TFRecord files allow 2\^64 - 1"
    path = tmp_path / "long.tfrecord"
    path.write_bytes(header(length))
    os.truncate(path, 16 + length)  # the rest is a hole
    ds = fr.open(path, features={"r": fr.Record()})
    for read in (
        lambda: list(ds.loader(1)),
        lambda: ds.records[0],
        lambda: next(fr.read_records(path)),
    ):
        with pytest.raises(fr.LimitError, match=f"of {length} bytes.*{named}"):
            read()
    record: Untyped = np.memmap(path, np.uint8, "r")
    with fr.Writer(tmp_path / "written.tfrecord") as writer:
        with pytest.raises(
            ValueError, match=r"2147483647 bytes, the limit of protobuf"
        ):
            writer.write_record(record)
        writer.write_record(b"short")
    assert list(fr.read_records(tmp_path / "written.tfrecord")) == [b"short"]


# Reads or writes a large record, and prints the peak of memory relative to its size. The
# peak includes the pages of the mapped file, and what is written.
LARGE_RECORD = """
import sys
import fastrec as fr
path, n_bytes, action = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if "VmHWM" in line)
before = peak()
payload = b"1" * n_bytes if "writer" in action else None
bytes_spec = fr.FixedLen((), "bytes")
with (
    fr.Writer(path + ".1", sync=False) as writer,
    fr.Writer(path + ".2", sync=False, features={"a": bytes_spec}) as spec_writer,
):
    eval(action)
print((peak() - before) / n_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    "action",
    [
        "[len(record) for record in fr.read_records(path)]",
        "[len(records) for records in fr.read_records(path, batch_size=2)]",
        "[*fr.open(path, features={'r': fr.Record()}).loader(1)]",
        "[*fr.open(path, features={'a': bytes_spec}).loader(1)]",
        "fr.open(path, features={'a': bytes_spec}).records[0]",
        "fr.open(path, features={'a': bytes_spec})[0]",
        "writer.write_record(payload)",
        "writer.write({'a': payload})",
        "spec_writer.write({'a': payload})",
        "writer.write_batch({'a': [payload]})",
    ],
)
def test_a_large_record_is_in_memory_at_most_twice(action: str, tmp_path: Path) -> None:
    n_bytes, path = 160 * MB, tmp_path / "large.tfrecord"
    with fr.Writer(path, sync=False) as writer:
        writer.write({"a": bytes(n_bytes)})
    done = run_python(LARGE_RECORD, path, n_bytes, action)
    assert float(done.stdout) < 2.2


def test_a_record_of_a_stream_above_the_limit(write: Write) -> None:
    records = numbered(1, 2, 300, 3)
    path = write(gzip.compress(tfrecord_file(records)))
    ds = fr.open(
        path, features={"n": fr.VarLen("int64")}, limits=fr.Limits(max_record_bytes=100)
    )
    batches: Untyped = iter(ds.loader(1))
    assert [len(next(batches)["n"].values) for _ in range(2)] == [1, 2]
    with pytest.raises(fr.LimitError, match="limit of 100") as caught:
        next(batches)
    assert caught.value.record == 2


@pytest.mark.parametrize(
    ("spec", "record"),
    [
        (LISTS, long_list(1000)),
        (NAMES, example({b"s": ("bytes", [b"x"] * 1000)})),
    ],
)
def test_a_column_that_padding_makes_too_large_names_the_record(
    write: Write, spec: Untyped, record: bytes
) -> None:
    small = example({b"n": ("int64", [1]), b"s": ("bytes", [b"x"])})
    path = write(tfrecord_file([small] * 30 + [record] + [small] * 33))
    ds = fr.open(path, features=spec, limits=fr.Limits(max_padded_bytes=130_000))
    assert len(list(ds.select(range(30)).loader(30))) == 1
    with pytest.raises(
        fr.LimitError, match="padding 64 rows to 1000 items takes more than 130000"
    ) as caught:
        list(ds.loader(64))
    error = caught.value
    assert (error.path, error.record) == (str(path), 30)
    assert error.feature == next(iter(spec))
    # In a smaller batch it has its place.
    assert len(list(ds.loader(8))) == 8


def test_padding_names_the_record_behind_a_skipped_one(write: Write) -> None:
    small, large = numbered(1)[0], long_list(1000)
    damaged = bytearray(frame(small))
    damaged[-1] ^= 1
    data = bytes(damaged) + tfrecord_file([small] * 9 + [large] + [small] * 5)
    ds = fr.open(
        write(data),
        features=LISTS,
        on_error="skip",
        limits=fr.Limits(max_padded_bytes=50_000),
    )
    with pytest.raises(fr.LimitError, match="padding 15 rows") as caught:
        list(ds.loader(16))
    assert caught.value.record == 10


def test_padding_is_limited_by_default(write: Write) -> None:
    spec = {"n": fr.FixedLenSequence((), "int64", multiple_of=2**31 - 1)}
    ds = fr.open(write(tfrecord_file(numbered(1, 2, 3))), features=spec)
    with pytest.raises(fr.LimitError, match="padding 3 rows to"):
        list(ds.loader(3))


def test_more_features_than_the_limit(write: Write) -> None:
    path = write(frame(many_features(50)) + frame(many_features(51)))
    with pytest.raises(fr.SchemaError, match="have no features"):
        _ = fr.open(path, limits=fr.Limits(max_features=51)).schema
    policies: list[Any] = ["skip", "raise"]
    for on_error in policies:
        ds = fr.open(path, limits=fr.Limits(max_features=50), on_error=on_error)
        with pytest.raises(fr.LimitError, match="more than 50 features") as caught:
            _ = ds.schema
        assert caught.value.record == 1
    # Features with specs are not limited.
    wanted = {"n": fr.FixedLen((), "int64", default=7)}
    assert ds.with_features(wanted)[:]["n"].tolist() == [7, 7]


def test_records_of_different_features_are_counted_together(write: Write) -> None:
    records = [example({b"f%d" % i: ("int64", [1])}) for i in range(30)]
    path = write(tfrecord_file(records))
    assert len(fr.open(path, limits=fr.Limits(max_features=30)).schema) == 30
    with pytest.raises(fr.LimitError, match="more than 29 features"):
        _ = fr.open(path, limits=fr.Limits(max_features=29)).schema


def test_more_feature_lists_than_the_limit(write: Write) -> None:
    lists = field(2, b"".join(field(1, field(1, b"%d" % i)) for i in range(30)))
    path = write(frame(numbered(1)[0] + lists))
    assert len(fr.open(path, limits=fr.Limits(max_features=30)).schema) == 1
    with pytest.raises(fr.LimitError, match="more than 29 features"):
        _ = fr.open(path, limits=fr.Limits(max_features=29)).schema


def test_an_expansion_above_the_limit_can_be_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.local_copies._MIN_LIMITED_BYTES", 1 << 20)
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(quick_frame(bytes(4 << 20))))
    cache = tmp_path / "cache"
    with pytest.raises(
        fr.LimitError, match=r"500 times its size.*Limits\(max_expansion_ratio"
    ):
        len(fr.open(path, cache_dir=cache))
    assert (
        len(fr.open(path, cache_dir=cache, limits=fr.Limits(max_expansion_ratio=1100)))
        == 1
    )


# The option.


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_record_bytes": 0}, ValueError),
        ({"max_record_bytes": 2**31}, ValueError),
        ({"max_record_bytes": "much"}, ValueError),
        ({"max_features": 1.5}, TypeError),
        ({"max_expansion_ratio": -1}, ValueError),
        ({"max_padded_bytes": None}, TypeError),
    ],
)
def test_invalid_limits_raise(options: Untyped, error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        fr.Limits(**options)


def test_limits_are_values() -> None:
    limits = fr.Limits(max_record_bytes="64MB", max_padded_bytes="1GiB")
    assert limits.max_record_bytes == 64_000_000
    assert eval(repr(limits), {"Limits": fr.Limits}) == limits
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert fr.Limits() == fr.Limits() != limits


def test_limits_stay_with_a_dataset(write: Write) -> None:
    path = write(tfrecord_file(numbered(1, 300)))
    limits = fr.Limits(max_record_bytes=100)
    ds: fr.Dataset = fr.open(path, features=LISTS, limits=limits)
    for view in (
        ds.select([1]),
        ds.loader(1, on_error="mask").dataset.loader(1, on_error="raise").dataset,
        ds.select_columns(["n"]),
        pickle.loads(pickle.dumps(ds)),
        fr.concat([ds, ds]),
    ):
        with pytest.raises(fr.LimitError):
            list(view.loader(2))
    with pytest.raises(ValueError, match="must have equal limits="):
        fr.concat([ds, fr.open(path, features=LISTS)])
    with pytest.raises(TypeError, match=r"must be a fastrec\.Limits"):
        fr.open(path, limits=5)  # type: ignore[arg-type]


# Bombs.

READ = """
import sys
import fastrec as fr
def peak():  # getrusage() would count the process that started this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if "VmHWM" in line)
options = eval(sys.argv[2])
before = peak()
try:
    ds = fr.open(sys.argv[1], io="pread", **options)
    for batch in ds.loader(64, num_threads=0):
        pass
    print("read", end=" ")
except fr.Error as error:
    print(type(error).__name__, end=" ")
print(peak() - before)
"""


def read_bomb(path: Path, options: str) -> tuple[str, int]:
    """Return the outcome of reading `path`, and the memory that it used."""
    done = run_python(READ, path, options)
    outcome, peak = done.stdout.split()
    return outcome, int(peak)


def repeated(block: bytes, n: int, kind: str = "gzip") -> bytes:
    """Return `n` times `block`, compressed, without allocating the whole."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if kind == "gzip" else 15)
    return b"".join(packer.compress(block) for _ in range(n)) + packer.flush()


def nested_groups(depth: int) -> bytes:
    return b"\x0b" * depth + b"\x0c" * depth


BOMBS: dict[str, tuple[Callable[[], bytes], str, str, int]] = {
    # name: (file, options, outcome, memory in addition to the limit)
    "length 2^63": (
        lambda: header(2**63) + bytes(100),
        "{'features': {'n': 'int64'}}",
        "CorruptionError",
        64 * MB,
    ),
    "length 2^40": (
        lambda: header(2**40) + bytes(100),
        "{'features': {'n': 'int64'}}",
        "CorruptionError",
        64 * MB,
    ),
    "length 2^40 in a stream": (
        lambda: gzip.compress(header(2**40) + bytes(100)),
        "{'features': {'n': 'int64'}}",
        "LimitError",
        64 * MB,
    ),
    "length 2^30 in a stream that ends": (
        lambda: gzip.compress(header(2**30) + bytes(100)),
        "{'features': {'n': 'int64'}}",
        "CorruptionError",
        64 * MB,
    ),
    "a record that inflates 1,000 times": (
        lambda: repeated(header(2**30), 1) + repeated(bytes(MB), 64),
        "{'features': {'n': 'int64'}, 'limits': fr.Limits(max_record_bytes='16MB')}",
        "LimitError",
        64 * MB,
    ),
    "a stream of empty records": (
        lambda: repeated((header(0) + struct.pack("<I", masked(0))) * 1000, 1000),
        "{'features': {'n': fr.FixedLen((), 'int64', default=0)}}",
        "read",
        64 * MB,
    ),
    "one long list among short ones": (
        lambda: tfrecord_file(numbered(1) * 63) + quick_frame(long_list(10 * MB)),
        """{"features": {"n": fr.FixedLenSequence((), "int64")},
            "limits": fr.Limits(max_padded_bytes="1GiB")}""",
        "LimitError",
        10 * 8 * 3 * MB + 64 * MB,  # values that were read, in a block that grew
    ),
    "ten million features": (
        lambda: quick_frame(many_features(10_000_000)),
        "{}",
        "LimitError",
        # The file in memory, and its first 100,000 features.
        128 * MB + 64 * MB,
    ),
    "ten million features without a spec": (
        lambda: quick_frame(many_features(10_000_000)),
        "{'features': {'n': fr.FixedLen((), 'int64', default=0)}}",
        "read",
        128 * MB + 64 * MB,
    ),
    "groups in groups": (
        lambda: quick_frame(nested_groups(1_000_000)),
        "{'features': {'n': fr.FixedLen((), 'int64', default=0)}}",
        "DecodeError",
        64 * MB,
    ),
    "groups in groups, not deep": (
        lambda: quick_frame(nested_groups(99)),
        "{'features': {'n': fr.FixedLen((), 'int64', default=0)}}",
        "read",
        64 * MB,
    ),
}


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="measuring memory needs /proc"
)
@pytest.mark.parametrize("name", BOMBS)
def test_memory_of_a_bomb_is_bounded(write: Write, name: str) -> None:
    make, options, outcome, most = BOMBS[name]
    got, peak = read_bomb(write(make()), options)
    assert got == outcome
    assert peak < most, f"{peak / MB:.0f} MiB"


# Names.


def test_circular_links_are_not_followed(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    for folder in (tmp_path, deep):
        (folder / "x.tfrecord").write_bytes(tfrecord_file(numbered(1)))
        for i in range(12):  # glob would try 12**40 ways
            (folder / f"loop{i}").symlink_to(tmp_path)
    wanted = [str(tmp_path / "a/b/x.tfrecord"), str(tmp_path / "x.tfrecord")]
    assert fr.open(tmp_path / "**" / "*.tfrecord").files == wanted
    assert fr.open(tmp_path / "**" / "x*").files == wanted
    assert fr.open(f"{tmp_path}/**").files == wanted
    assert fr.open(tmp_path / "**" / "b" / "**" / "*.tfrecord").files == wanted[:1]
    assert fr.open(tmp_path / "a" / "**" / "x.tfrecord").files == wanted[:1]
    (tmp_path / "itself").symlink_to("itself")
    assert fr.open(tmp_path / "[ai]*" / "b" / "x.tfrecord").files == wanted[:1]


def test_recursive_globs_match_like_glob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x", "a/x", "a/y", "a/b/x", ".hidden/x", "a/.x", "[c]/x", "a/[c]/b/x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tfrecord_file(numbered(1)))
    monkeypatch.chdir(tmp_path)
    for pattern in (
        "**",
        "**/x",
        "**/*",
        "a/**",
        "a/**/x",
        "./**/x",
        "*/**/x",
        "**/b/x",
        "**/b/**",
        "**/[[]c]/**/x",
        f"{glob.escape(str(tmp_path))}/**/x",
        f"{glob.escape(str(tmp_path))}/*/**/b/*",
    ):
        wanted = {p for p in glob.glob(pattern, recursive=True) if Path(p).is_file()}
        assert fr.open(pattern).files == sorted(wanted), pattern
    with pytest.raises(FileNotFoundError):
        fr.open("**/nothing*")


def test_a_file_with_several_names_is_listed_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = tmp_path / "a.tfrecord"
    first.write_bytes(tfrecord_file(numbered(1)))
    (tmp_path / "b.tfrecord").symlink_to(first)
    (tmp_path / "c.tfrecord").hardlink_to(first)
    (tmp_path / "d.tfrecord").symlink_to(tmp_path / "nothing")
    for paths in (tmp_path, tmp_path / "*.tfrecord"):
        caplog.clear()
        assert fr.open(paths).files == [str(first)]
        assert caplog.text.count("is the same file as") == 2
    # A file that is listed twice is read twice.
    assert len(fr.open([first, tmp_path / "b.tfrecord"])) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_globs_and_directories_skip_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tfrecord")
    (tmp_path / "null.tfrecord").symlink_to("/dev/null")
    (tmp_path / "folder.tfrecord").mkdir()
    path = tmp_path / "x.tfrecord"
    path.write_bytes(tfrecord_file(numbered(1)))
    assert fr.open(tmp_path).files == [str(path)]
    assert fr.open(tmp_path / "*.tfrecord").files == [str(path)]
    with pytest.raises(OSError, match="null"):
        list(fr.open(tmp_path / "null.tfrecord"))


@pytest.mark.parametrize(
    "name", ["part-00000-1f2e.gz", "part-7", "x.TFRecord-00000-of-00002", "x[ab].gz"]
)
def test_a_partitioned_directory_has_files_of_any_name(
    tmp_path: Path, name: str
) -> None:
    content = gzip.compress(tfrecord_file(numbered(3)))
    for day in ("day=1", "day=2"):
        folder = tmp_path / day / "label=[3]"
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()
        (folder / name).write_bytes(content)
    assert len(fr.open(tmp_path).files) == 2
