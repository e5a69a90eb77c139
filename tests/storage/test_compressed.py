"""Compressed files with cache_dir=, which expands each file once.

Goal
    GZIP and ZLIB are detected by their bytes and decompressed exactly. A stream that is
    damaged, truncated or followed by other bytes raises an error with the compressed
    file and both offsets. Copies appear atomically, once, and behave like plain files.
Method
    Streams of the standard library, broken at every byte; `inflated` compared with the
    input, datasets with those of plain files. Both decompressors if isal is installed.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib.util
import os
import pickle
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from fastrec.storage import compression, local_copies
from oracle import example, frame, tfrecord_file
from oracle_streams import seen

Compress = Callable[[bytes], bytes]
SPEC = {"n": fr.FixedLen((), "int64")}


def in_members(data: bytes, size: int = 100) -> bytes:
    """Compress in members of `size` bytes, with an empty one after each."""
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(gzip.compress(piece) + gzip.compress(b"") for piece in pieces)


def with_name(data: bytes) -> bytes:
    """Compress with a file name, a comment and a checksum in the header."""
    fields = b"name.tfrecord\0a comment\0"
    head = b"\x1f\x8b\x08\x1a" + bytes(6) + fields
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    tail = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return head + body + tail


WAYS: dict[str, tuple[Compress, compression.Content]] = {
    "gzip": (gzip.compress, "gzip"),
    "stored": (lambda data: gzip.compress(data, 0), "gzip"),
    "members": (in_members, "gzip"),
    "named": (with_name, "gzip"),
    "zlib": (zlib.compress, "zlib"),
    "zlib-1": (lambda data: zlib.compress(data, 1), "zlib"),
    "zlib-0": (lambda data: zlib.compress(data, 0), "zlib"),
}
ways = pytest.mark.parametrize(("compress", "content"), WAYS.values(), ids=WAYS)


@pytest.fixture(
    params=[
        "zlib",
        pytest.param(
            "isal",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("isal") is None,
                reason="isal is not installed (extra gzip)",
            ),
        ),
    ]
)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both decompressors, one after the other."""
    if request.param == "zlib":
        monkeypatch.setattr(compression, "_backend", lambda: zlib)


def records(n: int, first: int = 0) -> list[bytes]:
    return [example({b"n": ("int64", [first + i])}) for i in range(n)]


def content_of(path: Path, content: compression.Content) -> bytes:
    return b"".join(compression.inflated(str(path), content))


# Decompression.


@ways
@pytest.mark.usefixtures("backend")
def test_the_content_is_what_was_compressed(
    write: Write, compress: Compress, content: compression.Content
) -> None:
    noise = np.random.default_rng(0).integers(0, 7, 1 << 20, np.uint8).tobytes()
    for data in (b"", b"x", b"abc" * 1000, noise, bytes(3 << 20)):
        if compress is in_members and len(data) > 1 << 14:
            data = data[: 1 << 14]
        path = write(compress(data))
        pieces = list(compression.inflated(str(path), content))
        assert b"".join(pieces) == data
        assert max(map(len, pieces), default=0) <= 1 << 20


@given(data=st.binary(max_size=2000), sizes=st.lists(st.integers(0, 700), max_size=5))
def test_members_of_any_size(write: Write, data: bytes, sizes: list[int]) -> None:
    compressed, at = b"", 0
    for size in sizes:
        compressed += gzip.compress(data[at : at + size])
        at += size
    compressed += gzip.compress(data[at:])
    assert content_of(write(compressed), "gzip") == data


@ways
@pytest.mark.usefixtures("backend")
def test_every_truncation_is_detected(
    write: Write, compress: Compress, content: compression.Content
) -> None:
    data = tfrecord_file(records(12))
    whole = compress(data)
    ends = set()  # between members, the file is valid and shorter
    if compress is in_members:
        rest = whole
        while rest:
            member = zlib.decompressobj(wbits=31)
            member.decompress(rest)
            rest = member.unused_data
            ends.add(len(whole) - len(rest))
    for n in range(1, len(whole)):
        path = write(whole[:n])
        got: list[bytes] = []
        if n in ends:
            assert data.startswith(content_of(path, content))
            continue
        with pytest.raises(fr.CorruptionError, match="is truncated") as caught:
            got.extend(compression.inflated(str(path), content))
        assert data.startswith(b"".join(got))
        assert (caught.value.path, caught.value.offset) == (str(path), n)
        assert f"at decompressed byte {len(b''.join(got)):,}" in caught.value.reason


@ways
@pytest.mark.usefixtures("backend")
def test_no_flipped_bit_changes_the_content(
    write: Write, compress: Compress, content: compression.Content
) -> None:
    data = tfrecord_file(records(3))
    whole = compress(data)
    for i in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[i // 8] ^= 1 << i % 8
        path = write(bytes(damaged))
        # Unused bits, such as the time in the header, may flip.
        with contextlib.suppress(fr.CorruptionError):
            assert content_of(path, content) == data


@pytest.mark.parametrize("n_before", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("bit", [5, 6, 7])
@pytest.mark.usefixtures("backend")
def test_unknown_flags_of_a_member_are_damage(
    tmp_path: Path, bit: int, n_before: int
) -> None:
    member = gzip.compress(b"content")
    damaged = bytearray(member)
    damaged[3] ^= 1 << bit
    path = tmp_path / "data.gz"
    path.write_bytes(member * n_before + damaged)
    with pytest.raises(fr.CorruptionError, match="unknown header flags") as caught:
        content_of(path, "gzip")
    assert caught.value.offset == n_before * len(member)


@ways
@pytest.mark.usefixtures("backend")
def test_the_content_before_the_damage_is_read(
    write: Write, compress: Compress, content: compression.Content
) -> None:
    rng = random.Random(4)
    # Above what is read and inflated at once.
    data = b"".join(rng.randbytes(1 << 10) * 4 for _ in range(100))
    if compress is in_members:
        data = data[: 1 << 14]
    whole = compress(data)
    places = [rng.randrange(len(whole)) for _ in range(3)]
    for at in (1, len(whole) // 2, len(whole) - 6, *places):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        got: list[bytes] = []
        want, _, is_whole = seen(bytes(damaged), content.upper())
        path = write(bytes(damaged))
        if is_whole:  # the time in a header
            assert content_of(path, content) == want
            continue
        with pytest.raises(fr.CorruptionError) as caught:
            got.extend(compression.inflated(str(path), content))
        assert b"".join(got) == want
        assert f"at decompressed byte {len(want):,}" in caught.value.reason
    # The checksum at the end is the last thing that is read.
    damaged = bytearray(whole)
    damaged[-5 if content == "gzip" else -1] ^= 1
    assert seen(bytes(damaged), content.upper()).content == data


@pytest.mark.usefixtures("backend")
def test_a_damaged_file_that_is_cut_while_it_is_read_is_damage(write: Write) -> None:
    whole = gzip.compress(bytes(1000)) + gzip.compress(b"x" * 1000)
    damaged = bytearray(whole)
    damaged[-5] ^= 1
    path = write(bytes(damaged))

    def cut(n_read: int) -> None:
        if n_read == len(whole):
            os.truncate(path, 10)

    with pytest.raises(fr.CorruptionError, match="is damaged"):
        list(compression.inflated(str(path), "gzip", on_read=cut))


@ways
@pytest.mark.parametrize(
    "rest", [b"\0", b"\0" * 512, b"x", b"\x1f", b"\x1f\x8b", b"\x1f\x8c"]
)
@pytest.mark.usefixtures("backend")
def test_nothing_may_follow_a_stream(
    write: Write, compress: Compress, content: compression.Content, rest: bytes
) -> None:
    whole = compress(b"content")
    is_begun = content == "gzip" and rest in (b"\x1f", b"\x1f\x8b")
    match = "is truncated" if is_begun else "followed by"
    with pytest.raises(fr.CorruptionError, match=match) as caught:
        content_of(write(whole + rest), content)
    if match == "followed by":
        assert caught.value.offset == len(whole)


def test_nothing_follows_a_zlib_stream_but_its_end(write: Write) -> None:
    with pytest.raises(fr.CorruptionError, match="followed by"):
        content_of(write(zlib.compress(b"a") + zlib.compress(b"b")), "zlib")


def test_a_zlib_stream_without_control_characters_is_no_text(write: Write) -> None:
    """The first 64 bytes of one file in 200 of these could be UTF-8 for all we know."""
    draw, n_alike = random.Random(0), 0
    for _ in range(1000):
        records = [
            bytes(draw.choices(b"abcdefgh", k=draw.randrange(60))) for _ in "123"
        ]
        stored = zlib.compress(tfrecord_file(records))
        if all(byte >= 0x20 and byte != 0x7F for byte in stored[:64]):
            n_alike += 1
            assert list(fr.read_records(write(stored))) == records
    assert n_alike > 0


@pytest.mark.usefixtures("backend")
def test_the_wrong_compression_is_corruption(write: Write) -> None:
    kinds: list[tuple[Compress, compression.Content]] = [
        (gzip.compress, "zlib"),
        (zlib.compress, "gzip"),
    ]
    for compress, content in kinds:
        with pytest.raises(fr.CorruptionError, match=f"(?i){content} stream"):
            content_of(write(compress(b"x" * 100)), content)


# Expansion.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write compressed and plain files with records 0 to 59, and empty ones."""
    folder = tmp_path / "data"
    folder.mkdir()
    made: list[Compress] = [
        WAYS["gzip"][0],
        bytes,
        WAYS["zlib"][0],
        in_members,
        with_name,
        bytes,
    ]
    for i, compress in enumerate(made):
        data = compress(tfrecord_file(records(10, 10 * i)))
        (folder / f"{i}.tfrecord").write_bytes(data)
    (folder / "7.tfrecord").write_bytes(gzip.compress(b""))
    (folder / "8.tfrecord").write_bytes(b"")
    (folder / "9.tfrecord").write_bytes(zlib.compress(b""))
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def plain_like(folder: Path, to: Path) -> Path:
    to.mkdir()
    for i in range(6):
        (to / f"{i}.tfrecord").write_bytes(tfrecord_file(records(10, 10 * i)))
    for i in (7, 8, 9):
        (to / f"{i}.tfrecord").write_bytes(b"")
    assert names_in(to) == names_in(folder)
    return to


def test_expanded_files_behave_like_plain_ones(folder: Path, tmp_path: Path) -> None:
    ds = open_dataset(folder, cache_dir=tmp_path / "cache")
    plain = open_dataset(plain_like(folder, tmp_path / "plain"))
    assert ds.files == [str(folder / name) for name in names_in(folder)]
    assert len(ds) == 60
    assert dict(ds.schema) == dict(plain.schema) == SPEC
    assert snapshot([ds[:], ds[[50, 3, 3]]]) == snapshot([plain[:], plain[[50, 3, 3]]])
    assert ds.records[42] == plain.records[42]
    for shuffle in (False, True, fr.Blocks(100, 2)):
        loaders = [d.loader(7, shuffle=shuffle, seed=1) for d in (ds, plain)]
        batches = [snapshot(list(loader)) for loader in loaders]
        assert batches[0] == batches[1]
        loaders[0].load_state_dict(loaders[1].state_dict())
    at = ds.loader(7).records_at(0)
    assert at[0] == (str(folder / "0.tfrecord"), 0, 0), "offsets are of the content"


def test_files_are_expanded_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    assert len(open_dataset(folder, cache_dir=cache)) == 60
    made = sorted(path.name for path in cache.iterdir() if path.suffix == ".tfrecord")
    assert len(made) == 6, "plain files stay where they are"

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(local_copies, "inflated", refuse)
    ds = open_dataset(folder, cache_dir=str(cache))
    assert len(ds) == len(pickle.loads(pickle.dumps(ds))) == 60


def left_in(cache: Path) -> list[str]:
    """Return the names of files other than locks, and marks that have ended."""
    names = [path.name for path in cache.iterdir()]
    return [name for name in names if not name.startswith((".lock-", ".use-"))]


def spoilt_expansions(good: bytes) -> list[bytes]:
    """Yield truncations and a modification of an expansion."""
    return [*(good[:size] for size in range(len(good))), good + b"\0", good + good]


def test_an_expansion_of_another_size_is_not_used(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.gz", tmp_path / "cache"
    path.write_bytes(gzip.compress(tfrecord_file(records(5))))
    options = {"features": SPEC, "cache_dir": cache}
    assert len(open_dataset(path, **options)) == 5
    (expansion_path,) = cache.glob("*.tfrecord")
    good = expansion_path.read_bytes()
    for spoilt in spoilt_expansions(good):
        expansion_path.write_bytes(spoilt)
        assert open_dataset(path, **options)[:]["n"].tolist() == list(range(5))
        assert expansion_path.read_bytes() == good
        assert len([*cache.glob("*.tfrecord")]) == 1


def test_other_entries_of_cache_dir_are_not_used(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.gz", tmp_path / "cache"
    path.write_bytes(gzip.compress(tfrecord_file(records(5))))
    assert len(open_dataset(path, cache_dir=cache)) == 5
    (expansion_path,) = cache.glob("*.tfrecord")
    elsewhere = expansion_path.replace(tmp_path / "elsewhere")
    good = elsewhere.read_bytes()
    obstacles: list[Callable[[], object]] = [
        lambda: expansion_path.symlink_to(elsewhere),
        lambda: expansion_path.symlink_to(tmp_path / "absent"),
        lambda: os.mkfifo(expansion_path),
    ]
    for make in obstacles:
        make()
        assert len(open_dataset(path, cache_dir=cache)) == 5
        assert not expansion_path.is_symlink()
        assert expansion_path.read_bytes() == good
        expansion_path.unlink()
    assert elsewhere.read_bytes() == good
    assert not (tmp_path / "absent").exists()


def test_another_version_of_a_file_is_expanded_again(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    for n in (3, 4):
        path.write_bytes(gzip.compress(tfrecord_file(records(n))))
        os.utime(path, ns=(n, n))
        assert len(open_dataset(path, cache_dir=tmp_path / "cache")) == n


def test_other_versions_are_deleted_once_no_dataset_uses_them(tmp_path: Path) -> None:
    path, like = tmp_path / "a[1].gz", tmp_path / "b" / "a[1].gz"
    like.parent.mkdir()
    like.write_bytes(gzip.compress(tfrecord_file(records(1))))
    os.utime(like, ns=(1, 1))
    cache = tmp_path / "cache"
    assert len(open_dataset(like, cache_dir=cache)) == 1
    (cache / "a[1].gz.tfrecord").write_bytes(b"another program's")

    def version(n: int, time: int) -> Untyped:
        path.write_bytes(gzip.compress(tfrecord_file(records(n))))
        os.utime(path, ns=(time, time))
        ds: Untyped = open_dataset(path, features=SPEC, cache_dir=cache)
        assert len(ds) == n
        return ds

    first = version(3, 10**18)
    reading = iter(first.loader(1, num_threads=0))
    assert next(reading)["n"].tolist() == [0]
    n_expanded = len([*cache.glob("*.tfrecord")])
    version(4, 2 * 10**18)
    assert len([*cache.glob("*.tfrecord")]) == n_expanded + 1
    assert [batch["n"].tolist() for batch in reading] == [[1], [2]]
    assert first[:]["n"].tolist() == [0, 1, 2]
    del first, reading
    version(5, 10**18)  # an older time
    assert len([*cache.glob("*.tfrecord")]) == n_expanded
    assert (cache / "a[1].gz.tfrecord").exists()
    assert len(open_dataset(like, cache_dir=cache)) == 1


def test_compression_option(folder: Path, tmp_path: Path) -> None:
    said = {"0": "GZIP", "2": "ZLIB", "1": None, "8": "GZIP", "9": "ZLIB"}
    for name, kind in said.items():
        path = folder / f"{name}.tfrecord"
        ds = open_dataset(path, cache_dir=tmp_path / name, compression=kind)
        assert len(ds) == (0 if name in "89" else 10)
    for kind, name in [("GZIP", "1"), ("GZIP", "2"), ("ZLIB", "0"), ("ZLIB", "1")]:
        path = folder / f"{name}.tfrecord"
        with pytest.raises(fr.CorruptionError, match=kind) as caught:
            len(open_dataset(path, cache_dir=tmp_path / "wrong", compression=kind))
        assert caught.value.path == str(path)
    with pytest.raises(fr.Error, match=r'GZIP file.*compression="auto"'):
        len(open_dataset(folder / "0.tfrecord", compression=None))
    wrong: Untyped
    for wrong in ("gzip", "", "SNAPPY", 3, b"GZIP", []):
        with pytest.raises(ValueError, match="compression"):
            open_dataset(folder, compression=wrong)


@pytest.mark.parametrize(
    "broken",
    [lambda data: data[:-3], lambda data: data + b"\0\0", lambda _: b"\x1f\x8b"],
)
def test_a_broken_stream_leaves_nothing_behind(
    tmp_path: Path, broken: Compress
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(broken(gzip.compress(tfrecord_file(records(5)))))
    cache = tmp_path / "cache"
    for _ in range(2):
        ds = open_dataset(path, features=SPEC, cache_dir=cache)
        with pytest.raises(fr.CorruptionError, match="GZIP stream") as caught:
            ds[0]
        assert caught.value.path == str(path)
    assert left_in(cache) == []


def test_damage_in_the_content_names_the_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    good = [frame(record) for record in records(3)]
    bad = bytearray(good[1])
    bad[14] ^= 1
    path.write_bytes(gzip.compress(good[0] + bad + good[2]))
    ds = open_dataset(path, features=SPEC, cache_dir=tmp_path / "cache")
    with pytest.raises(fr.CorruptionError, match="payload checksum") as caught:
        ds[:]
    assert (caught.value.path, caught.value.record) == (str(path), 1)
    path.write_bytes(gzip.compress(good[0] + good[1][:-2]))
    for use in (len, lambda ds: list(ds.loader(8))):
        with pytest.raises(fr.CorruptionError, match="ends inside a record") as caught:
            use(open_dataset(path, features=SPEC, cache_dir=tmp_path / "cache"))
        assert (caught.value.path, caught.value.record) == (str(path), 1)


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    cache = tmp_path / "cache"
    with pytest.raises(OSError, match="No space") as caught:
        len(open_dataset(folder, cache_dir=cache))
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.filename).startswith(str(cache))
    assert left_in(cache) == []


def test_a_bomb_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copies, "_MIN_LIMITED_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(40 << 20)))
    with pytest.raises(fr.LimitError, match="500 times") as caught:
        len(open_dataset(path, cache_dir=tmp_path / "cache"))
    assert caught.value.path == str(path)
    left = [p for p in (tmp_path / "cache").iterdir() if p.suffix == ".tfrecord"]
    assert left == []


@pytest.mark.parametrize(
    ("name", "n"),
    [("penguin-train.gz", 234), ("taxi-train-00000-of-00012.gz", 826)],
)
def test_real_files(testdata: Path, tmp_path: Path, name: str, n: int) -> None:
    ds: Untyped = open_dataset(testdata / name, cache_dir=tmp_path)
    data = gzip.decompress((testdata / name).read_bytes())
    assert len(ds) == n
    assert b"".join(frame(record) for record in ds.records) == data
