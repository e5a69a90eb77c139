"""Damaged files: what can be had of them, and what is said about the rest.

Goal
    Nothing wrong is ever delivered. A record that cannot be read is passed over alone;
    where framing is broken, the rest of the file is left out, or, with "resync", every
    record is found again that no proven frame covers. Whatever is left out is reported.
    Threads, kinds of I/O, indexes and walks make no difference.
Method
    An oracle in Python says which records of a damaged file can be had. Every bit of a
    small file is flipped, a file is cut at every byte, and bits of larger files are
    flipped, $FASTREC_TEST_RUNS times (1,000). Other damage is in test_damaged_files.py,
    rows are in test_on_error.py.
"""

from __future__ import annotations

import gzip
import itertools
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from children import SEED
from columns import Untyped, Write, open_dataset, snapshot
from fastrec import _core
from fastrec.on_error import SkippedRegion
from numbered import SPEC, record
from oracle import frame, frame_offsets, header, tfrecord_file
from oracle_recovery import CORRUPTIONS, gaps_and_frames, payload_holds

RUNS = int(os.environ.get("FASTREC_TEST_RUNS", "0"))
MODES = ("skip", "resync")
IO = ("mmap", "pread")

# Numbers, long lists, and bytes; and a record of no bytes.
FLIPPED = [record(4), record(11), b"", bytes(range(60)), record(3)]


def built(path: Path, io: str, mode: str, n_threads: int = 1) -> _core.Index:
    table = _core.FileTable(os.fsencode(path), [io])
    numbers = np.arange(1)
    (index,) = _core.Indexes.build(
        table, numbers, n_threads, _core.ScanProgress(), mode
    )
    return index


def frames_of(index: _core.Index) -> list[tuple[int, int]]:
    """Where frames begin and end by an index."""
    starts = index.offsets.tolist()
    gaps = {gap.begin for gap in index.gaps}
    ends = []
    for begin, end in itertools.pairwise(starts):
        inside = [gap for gap in gaps if begin < gap <= end]
        ends.append((begin, min(inside, default=end)))
    return ends


def payloads_of(path: Path, io: str, index: _core.Index) -> list[bytes | None]:
    """What is read of each record; None where it cannot be read."""
    table = _core.FileTable(os.fsencode(path), [io])
    catalog = _core.Catalog(_core.Indexes([index]))
    found: list[bytes | None] = []
    for number in range(len(catalog)):
        try:
            found.append(_core.read_record(table, catalog, number))
        except fr.CorruptionError:
            found.append(None)
    return found


def check_file(path: Path, data: bytes, io: str, mode: str) -> list[bytes | None]:
    """Compare what is found in a damaged file with the oracle."""
    index = built(path, io, mode)
    want = gaps_and_frames(data, mode)
    assert frames_of(index) == want.frames
    assert [(gap.begin, gap.end) for gap in index.gaps] == want.gaps
    payloads = payloads_of(path, io, index)
    assert payloads == [
        data[begin + 12 : end - 4] if payload_holds(data, (begin, end)) else None
        for begin, end in want.frames
    ]
    return payloads


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that is written again and again; no index of it is ever kept."""
    return tmp_path_factory.mktemp("damaged") / "file.tfrecord"


# Framing, against the oracle.


@pytest.mark.parametrize("mode", MODES)
def test_every_flipped_bit_loses_one_record_or_the_rest(place: Path, mode: str) -> None:
    good = tfrecord_file(FLIPPED)
    offsets = frame_offsets(good)
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        place.write_bytes(data)
        io = IO[bit % 2]
        payloads = check_file(place, bytes(data), io, mode)
        hit = sum(end <= bit // 8 for end in offsets[1:])
        is_header = bit // 8 - offsets[hit] < 12
        after = FLIPPED[hit + 1 :] if mode == "resync" or not is_header else []
        found = [payload for payload in payloads if payload is not None]
        assert found == FLIPPED[:hit] + after, bit


def test_flips_in_larger_files(place: Path) -> None:
    rng = random.Random(SEED)
    n_done = 0
    for n_done in itertools.count():
        if n_done >= max(1000, RUNS):
            break
        if n_done % 2000 == 0:
            records = [
                record(rng.randrange(10**6))[: rng.randint(0, 200)] for _ in range(12)
            ]
            good = tfrecord_file(records)
            offsets = frame_offsets(good)
        data = bytearray(good)
        byte = rng.randrange(len(good))
        data[byte] ^= 1 << rng.randrange(8)
        place.write_bytes(data)
        payloads = check_file(place, bytes(data), IO[n_done % 2], "resync")
        hit = sum(end <= byte for end in offsets[1:])
        found = [payload for payload in payloads if payload is not None]
        assert found == records[:hit] + records[hit + 1 :]


@pytest.mark.parametrize("mode", MODES)
def test_a_file_cut_anywhere_keeps_the_whole_records_before_it(
    place: Path, mode: str
) -> None:
    rng = random.Random(1)
    records = [rng.randbytes(rng.randint(0, 2000)) for _ in range(66)]
    data = tfrecord_file(records)
    assert len(data) >= 1 << 16
    offsets = frame_offsets(data)
    place.write_bytes(data)
    n_whole = len(records)
    ends = {end + byte for end in offsets for byte in range(-5, 14)}
    sizes = {*range(3000), *range(0, len(data), 11), *ends} & {*range(len(data))}
    for size in sorted(sizes, reverse=True):
        os.truncate(place, size)
        n_whole -= offsets[n_whole] > size
        index = built(place, IO[size % 2], mode)
        assert len(index) == n_whole
        end = offsets[n_whole]
        gaps = [] if end == size else [(end, size)]
        assert [(gap.begin, gap.end) for gap in index.gaps] == gaps
        for error in (gap.error for gap in index.gaps):
            assert "the file ends inside" in error.reason


def test_zeros_at_the_end_have_a_reason_of_their_own(write: Write) -> None:
    good = tfrecord_file([b"a", b"bc"])
    for mode in MODES:
        index = built(write(good + bytes(100_000)), "mmap", mode)
        (gap,) = index.gaps
        begin, end, error = gap.begin, gap.end, gap.error
        assert (begin, end) == (len(good), len(good) + 100_000)
        assert "100000 zero bytes" in error.reason


def test_large_files_are_searched_in_blocks(write: Write) -> None:
    rng = random.Random(5)
    big = rng.randbytes(3_000_000)
    data = bytearray(tfrecord_file([b"first", big, b"second", big, b"third"]))
    data[len(frame(b"first"))] ^= 1  # the length of the first big one
    for io in IO:
        path = write(bytes(data))
        index = built(path, io, "resync", 2)
        assert payloads_of(path, io, index) == [b"first", b"second", big, b"third"]
        assert len(built(path, io, "skip", 2)) == 1


def test_a_nested_file_is_the_hole_that_is_documented(write: Write) -> None:
    """If the header around it is lost, nothing tells its records from others."""
    nested = tfrecord_file([b"forged", b"too"])
    data = bytearray(tfrecord_file([b"first", nested, b"last"]))
    data[len(frame(b"first"))] ^= 1
    path = write(bytes(data))
    assert payloads_of(path, "mmap", built(path, "mmap", "skip")) == [b"first"]
    found = payloads_of(path, "mmap", built(path, "mmap", "resync"))
    assert found == [b"first", b"forged", b"too", b"last"]
    # A payload that is damaged alone is never searched.
    data = bytearray(tfrecord_file([b"first", nested, b"last"]))
    data[-len(frame(b"last")) - 1] ^= 1
    path = write(bytes(data))
    found = payloads_of(path, "mmap", built(path, "mmap", "resync"))
    assert found == [b"first", None, b"last"]


def test_a_length_that_lies_but_is_proven_is_a_cut(write: Write) -> None:
    data = frame(b"a") + header(2**63) + b"rest" + frame(b"b")
    for io in IO:
        path = write(data)
        assert payloads_of(path, io, built(path, io, "resync")) == [b"a", b"b"]
        assert payloads_of(path, io, built(path, io, "skip")) == [b"a"]


# Datasets and loaders.


@pytest.fixture(scope="module")
def damaged(write: Write) -> list[Path]:
    """Four files: a broken header and a bad payload; whole; cut; a bad payload."""
    first = bytearray(tfrecord_file(record(n) for n in range(20)))
    offsets = frame_offsets(bytes(first))
    first[offsets[8] + 3] ^= 1
    first[offsets[14] + 15] ^= 1
    whole = tfrecord_file(record(n) for n in range(20, 25))
    cut = tfrecord_file(record(n) for n in range(25, 40))[:-5]
    last = bytearray(tfrecord_file(record(n) for n in range(40, 50)))
    last[-6] ^= 1
    return [write(bytes(data)) for data in (first, whole, cut, last)]


LEFT = {
    "skip": [*range(8), *range(20, 39), *range(40, 49)],
    "resync": [
        *(n for n in range(20) if n not in (8, 14)),
        *range(20, 39),
        *range(40, 49),
    ],
}


def labels(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


@pytest.mark.parametrize("mode", MODES)
def test_threads_io_and_indexes_change_nothing(damaged: list[Path], mode: str) -> None:
    want = None
    for io, threads, is_indexed in itertools.product(IO, (0, 1, 2), (False, True)):
        ds = open_dataset(damaged, features=SPEC, on_error=mode, io=io)
        n_records = len(ds) if is_indexed else None
        loader = ds.loader(7, num_threads=threads)
        batches = list(loader)
        assert labels(batches) == LEFT[mode]
        got = (snapshot(batches), loader.report, ds.report, ds._source.fingerprint())
        want = want or got
        assert got == want, (io, threads, is_indexed)
        assert n_records in (None, len(ds))
        assert len(loader) == len(batches) == -(-len(ds) // 7)


@pytest.mark.parametrize("mode", MODES)
def test_reports_say_what_and_where(damaged: list[Path], mode: str) -> None:
    ds = open_dataset(damaged, features=SPEC, on_error=mode)
    loader = ds.loader(7)
    list(loader)
    offsets = frame_offsets(tfrecord_file(record(n) for n in range(20)))
    first, cut = ds.report
    assert first == SkippedRegion(
        str(damaged[0]),
        offsets[8],
        offsets[9] if mode == "resync" else offsets[-1],
        first.reason,
        None,
    )
    assert "length checksum mismatch" in first.reason
    assert (cut.path, cut.records) == (str(damaged[2]), None)
    assert cut.end == damaged[2].stat().st_size
    assert "the file ends inside a record" in cut.reason
    assert not ds.report.is_complete
    assert ds.report.bytes_lost == sum(
        region.end - region.begin for region in ds.report
    )

    assert [region for region in loader.report if region.records is None] == [
        region for region in ds.report if region.records is None
    ]
    rows = [region for region in loader.report if region.records is not None]
    assert [region.path for region in rows] == [
        str(damaged[i]) for i in ((0, 3) if mode == "resync" else (3,))
    ]
    assert not loader.report.is_complete
    if mode == "resync":
        assert (rows[0].begin, rows[0].end) == (offsets[14], offsets[15])
    assert all("payload checksum mismatch" in region.reason for region in rows)
    assert str(damaged[3]) in str(loader.report)


@pytest.mark.parametrize("mode", MODES)
def test_all_orders_work_on_what_is_there(damaged: list[Path], mode: str) -> None:
    ds = open_dataset(damaged, features=SPEC, on_error=mode)
    orders: list[Untyped] = [True, fr.Blocks(block_bytes=300), fr.Window(9)]
    for shuffle in orders:
        loader = ds.loader(4, shuffle=shuffle, seed=1)
        assert sorted(labels(loader)) == LEFT[mode]
    shared = [
        labels(ds.loader(5, shuffle=True, seed=1, rank=rank, world_size=3))
        for rank in range(3)
    ]
    assert sorted(itertools.chain.from_iterable(shared)) == LEFT[mode]
    good = [ds[i]["n"] for i in range(8)]
    assert good == list(range(8))
    assert [row["n"] for row in ds] == LEFT[mode]
    assert [row["n"] for row in ds.head(30)] == LEFT[mode][:30]


def test_a_resumed_epoch_is_the_same(damaged: list[Path]) -> None:
    ds = open_dataset(damaged, features=SPEC, on_error="resync")
    whole = list(ds.loader(5, shuffle=True, seed=3))
    first = ds.loader(5, shuffle=True, seed=3)
    for _ in itertools.islice(first, 4):
        pass
    second = open_dataset(damaged, features=SPEC, on_error="resync").loader(
        5, shuffle=True
    )
    second.load_state_dict(first.state_dict())
    assert snapshot(list(second)) == snapshot(whole[4:])


def test_modes_that_see_other_data_have_other_fingerprints(
    damaged: list[Path],
) -> None:
    states = {
        mode: open_dataset(damaged, features=SPEC, on_error=mode).loader(5).state_dict()
        for mode in ("skip", "resync", "mask")
    }
    assert states["skip"] == states["mask"]
    assert states["skip"]["fingerprint"] != states["resync"]["fingerprint"]
    loader = open_dataset(damaged, features=SPEC, on_error="resync").loader(5)
    with pytest.raises(ValueError, match="different dataset"):
        loader.load_state_dict(states["skip"])


def test_a_damaged_file_raises_unless_said_otherwise(damaged: list[Path]) -> None:
    ds = open_dataset(damaged, features=SPEC)
    for mode in MODES:  # whose indexes must not be those of another mode
        assert len(open_dataset(damaged, features=SPEC, on_error=mode)) > 0
        with pytest.raises(fr.CorruptionError, match="length checksum"):
            len(ds)
    with pytest.raises(fr.CorruptionError):
        _ = ds.report
    assert len(open_dataset(damaged, features=SPEC, on_error="skip")) == 37
    assert labels(ds.loader(5, on_error="resync")) == LEFT["resync"]


def test_whole_files_are_the_same_in_every_mode(write: Write) -> None:
    path = write(tfrecord_file(record(n) for n in range(30)))
    want = open_dataset(path, features=SPEC)
    for mode in ("raise", "skip", "resync"):
        ds = open_dataset(path, features=SPEC, on_error=mode)
        assert not ds.report
        assert ds._source.fingerprint() == want._source.fingerprint()
        loader = ds.loader(7)
        assert snapshot(list(loader)) == snapshot(list(want.loader(7)))
        assert not loader.report


def test_what_is_left_out_is_logged(
    damaged: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    for is_indexed in (False, True):
        caplog.clear()
        ds = open_dataset(damaged, features=SPEC, on_error="resync")
        if is_indexed:
            len(ds)
        list(ds.loader(5))
        texts = [entry.getMessage() for entry in caplog.records]
        assert sum(text.startswith("skipping /") for text in texts) == 2
        assert sum("skipping or masking a row" in text for text in texts) == 1
        assert sum("skipped 2 records in epoch 0" in text for text in texts) == 1


def test_numbers_that_were_chosen_keep_their_meaning(damaged: list[Path]) -> None:
    chosen = open_dataset(damaged, features=SPEC, on_error="skip").select([9, 10])
    assert labels([chosen[:]]) == [21, 22]
    assert labels(chosen.loader(2, on_error="mask")) == [21, 22]
    with pytest.raises(ValueError, match="selected from damaged files"):
        chosen.loader(2, on_error="resync")


def test_what_is_no_tfrecord_is_one_region(write: Write) -> None:
    good = write(tfrecord_file([record(1)]))
    text = write(b"this is a text file, and no TFRecord file at all\n" * 9)
    ds = open_dataset([text, good], features=SPEC, on_error="resync")
    assert labels(ds.loader(3)) == [1]
    (region,) = ds.report
    assert "it looks like text" in region.reason


def test_a_compressed_file_is_not_damaged(write: Write) -> None:
    import gzip

    path = write(gzip.compress(tfrecord_file([record(1)])))
    ds = open_dataset(path, features=SPEC, compression=None, on_error="skip")
    with pytest.raises(fr.Error, match="GZIP"):
        list(ds.loader(1))
    with pytest.raises(fr.Error, match="GZIP"):
        len(ds)


def test_indexes_of_damaged_files_are_not_kept(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path))
    path = write(tfrecord_file([record(n) for n in range(4)])[:-1])
    assert len(open_dataset(path, features=SPEC, on_error="skip")) == 3
    assert not list(tmp_path.rglob("*.frecidx"))


def test_numpy_is_not_asked_for_more_than_there_is(damaged: list[Path]) -> None:
    """Selections and splits of what is there."""
    ds = open_dataset(damaged, features=SPEC, on_error="resync")
    a, b = ds.split([0.5, 0.5], seed=2)
    assert sorted(labels(a.loader(8)) + labels(b.loader(8))) == LEFT["resync"]
    mask = np.arange(len(ds)) % 2 == 0
    assert len(ds.select(mask)) == -(-len(ds) // 2)


# Compressed files.


def outcome(path: Path, on_error: Untyped) -> dict[str, Untyped]:
    """What a dataset and its loaders make of a file, but for the ends of regions."""
    options = {"features": {"n": SPEC["n"]}, "on_error": on_error}
    ds = open_dataset(path, **options)
    found: dict[str, Untyped] = {}
    try:
        found["len"] = len(ds)
        found["regions"] = [(gap.begin, gap.records) for gap in ds.report]
    except fr.CorruptionError as error:
        found["error"] = (error.code, error.record, error.offset)
    for name, rows in (("counted", ds), ("walked", open_dataset(path, **options))):
        loader = rows.loader(3, num_threads=0)
        delivered: list[Untyped] = []
        try:
            for batch in loader:
                valid = batch.get("__valid__", np.ones(len(batch["n"]), bool))
                delivered += np.where(valid, batch["n"], -1).tolist()
        except fr.CorruptionError as error:
            found[f"{name} error"] = (error.code, error.record, error.offset)
        found[name] = delivered
        found[f"{name} rows"] = [
            (row.begin, row.end if row.records else None) for row in loader.report
        ]
    return found


def damaged_contents(n: int) -> list[bytes]:
    """A good file with one or two kinds of corruption."""
    rng = random.Random(SEED)
    good = tfrecord_file([record(i) for i in range(12)])
    found = []
    for _ in range(n):
        data = good
        for corrupt in rng.choices(CORRUPTIONS, k=rng.randint(1, 2)):
            if len(data) > 1:
                data, _ = corrupt(data, rng)
        found.append(data)
    # A damaged payload before a damaged header, before part of one, and at the end.
    offsets = frame_offsets(good)
    for hit in range(12):
        altered = bytearray(good)
        altered[offsets[hit] + 13] ^= 1
        found.append(bytes(altered[: offsets[hit + 1]]))
        found.append(bytes(altered[: offsets[hit + 1] + 5]))
        if hit < 11:
            altered[offsets[hit + 1] + 2] ^= 1
        found.append(bytes(altered))
    return found


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_files_are_left_out_from_the_same_byte_on(
    write: Write, compress: Callable[[bytes], bytes]
) -> None:
    for data in damaged_contents(max(60, RUNS)):
        plain, stream = write(data), write(compress(data))
        for on_error in ("raise", "skip", "mask"):
            assert outcome(stream, on_error) == outcome(plain, on_error)
        # Nothing is searched for in a stream.
        assert outcome(stream, "resync") == outcome(stream, "skip")


def test_verify_finds_the_same_in_compressed_files(write: Write) -> None:
    pytest.importorskip("typer")
    from fastrec.rewrite.check import check_files

    for data in damaged_contents(0):
        paths = [str(write(data)), str(write(gzip.compress(data)))]
        plain, stream = check_files(paths, 1)
        for part in plain.damaged[: len(stream.damaged)]:
            if part.bit is not None:
                break  # no header is repaired in a stream
        else:
            begins = [damaged.region.begin for damaged in stream.damaged]
            assert begins == [
                damaged.region.begin for damaged in plain.damaged[: len(begins)]
            ]
