"""Records in files: whole ones, and every way of breaking a small one.

Goal
    Records come back byte for byte. A damaged file yields exactly the records before
    the damage, and then an error that says where; never another record, never a crash.
Method
    A good file of a few records, of length 0 and more; cut at every byte, and with
    every bit flipped; lengths that lie, with checksums that are right.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from columns import Write, open_dataset
from fastrec import _core
from oracle import example, frame, frame_offsets, header, tfrecord_file

IO = ("mmap", "pread")
SPEC = {"n": fr.FixedLen((), "int64", default=-1)}
# The first is empty, so that no flipped bit makes it look like another kind of file.
RECORDS = [b"", example({b"n": ("int64", [7])}), b"", example({b"n": ("int64", [-8])})]
LABELS = [-1, 7, -1, -8]
FILE = tfrecord_file(RECORDS)
OFFSETS = frame_offsets(FILE)
PAYLOAD = 12


def frame_at(byte: int) -> int:
    """Which frame of FILE a byte belongs to."""
    return sum(end <= byte for end in OFFSETS[1:])


def labels_until_error(path: Path, io: str, threads: int) -> tuple[list[int], Any]:
    """What an epoch of batches of one delivers, and the error that ends it."""
    labels: list[int] = []
    try:
        with open_dataset(path, features=SPEC, io=io).loader(
            1, num_threads=threads
        ) as loader:
            for batch in loader:
                labels.extend(batch["n"].tolist())
    except fr.Error as error:
        return labels, error
    return labels, None


@given(records=st.lists(st.binary(max_size=60), max_size=8), io=st.sampled_from(IO))
def test_reads_back_what_the_oracle_wrote(
    write: Write, records: list[bytes], io: str
) -> None:
    ds = open_dataset(write(tfrecord_file(records)), io=io)
    assert len(ds) == len(records)
    assert [ds.records[i] for i in range(len(records))] == records
    assert ds.records[0 : len(records)].tolist() == records


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("size", [0, 1, 63, 4096, 65_535, 65_536, 70_000, 1_200_000])
def test_records_of_any_size_next_to_each_other(
    write: Write, io: str, size: int
) -> None:
    block = bytes(range(256)) * (size // 256 + 1)
    records = [b"before", block[:size], b"", b"after"]
    ds = open_dataset(write(tfrecord_file(records)), io=io)
    assert ds.records[0:4].tolist() == records
    assert [ds.records[i] for i in (3, 1, 2, 0)] == [records[i] for i in (3, 1, 2, 0)]


def test_records_take_negative_indices_and_refuse_others(write: Write) -> None:
    ds = open_dataset(write(tfrecord_file([b"a", b"b", b"c"])))
    assert ds.records[-1] == b"c"
    assert ds.records[-2:].tolist() == [b"b", b"c"]
    for index in (3, -4):
        with pytest.raises(IndexError, match=str(index)):
            ds.records[index]


@pytest.mark.parametrize("io", IO)
def test_an_empty_file_has_no_records(write: Write, io: str) -> None:
    ds = open_dataset(write(b""), features=SPEC, io=io)
    assert len(ds) == 0
    assert len(ds.loader(4)) == 0
    assert list(ds.loader(4)) == []
    assert ds.head(3) == []


@pytest.mark.parametrize("io", IO)
def test_zero_length_records_are_examples_without_features(
    write: Write, io: str
) -> None:
    ds = open_dataset(write(tfrecord_file([b"", b"", b""])), features=SPEC, io=io)
    assert ds.records[1] == b""
    assert ds[0:3]["n"].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("io", IO)
def test_every_truncation_keeps_the_whole_records_before_it(
    write: Write, io: str
) -> None:
    for cut in range(len(FILE) + 1):
        path = write(FILE[:cut])
        n_whole = sum(end <= cut for end in OFFSETS[1:])
        labels, error = labels_until_error(path, io, threads=cut % 3)
        assert labels == LABELS[:n_whole], cut
        if cut in OFFSETS:
            assert error is None, cut
            assert len(open_dataset(path, io=io)) == n_whole
            continue
        assert isinstance(error, fr.CorruptionError), cut
        assert error.path == str(path)
        assert error.record == n_whole
        assert error.offset is not None
        assert OFFSETS[n_whole] <= error.offset <= cut
        with pytest.raises(fr.CorruptionError, match=path.name):
            len(open_dataset(path, io=io))


@pytest.mark.parametrize("io", IO)
def test_every_flipped_bit_is_found_where_it_is(write: Write, io: str) -> None:
    for bit in range(8 * len(FILE)):
        damaged = bytearray(FILE)
        damaged[bit // 8] ^= 1 << bit % 8
        path = write(bytes(damaged))
        n_good = frame_at(bit // 8)
        labels, error = labels_until_error(path, io, threads=bit % 3)
        assert labels == LABELS[:n_good], bit
        assert isinstance(error, fr.CorruptionError), bit
        assert (error.path, error.record) == (str(path), n_good)
        assert error.offset is not None
        assert OFFSETS[n_good] <= error.offset < OFFSETS[n_good + 1]


@pytest.mark.parametrize("io", IO)
def test_a_damaged_payload_spoils_only_its_own_record(write: Write, io: str) -> None:
    for byte in range(OFFSETS[1] + PAYLOAD, OFFSETS[2]):
        damaged = bytearray(FILE)
        damaged[byte] ^= 0x10
        ds = open_dataset(write(bytes(damaged)), features=SPEC, io=io)
        assert len(ds) == 4
        assert [ds.records[i] for i in (3, 2, 0)] == [RECORDS[i] for i in (3, 2, 0)]
        assert ds[2:4]["n"].tolist() == LABELS[2:4]
        with pytest.raises(fr.CorruptionError, match="payload checksum") as caught:
            ds.records[1]
        assert caught.value.record == 1
        with pytest.raises(fr.CorruptionError, match="payload checksum"):
            ds[0:4]


@pytest.mark.parametrize("io", IO)
def test_records_can_be_verified_and_left_where_they_are(write: Write, io: str) -> None:
    for byte in range(OFFSETS[1] + PAYLOAD, OFFSETS[2]):
        damaged = bytearray(FILE)
        damaged[byte] ^= 0x10
        ds = open_dataset(write(bytes(damaged)), io=io)
        table, catalog = ds._source.files.table, ds._source.catalog()
        good, every = np.array([3, 0, 2]), np.arange(4)
        _core.verify_records(table, catalog, good)
        with pytest.raises(fr.CorruptionError, match="payload checksum") as caught:
            _core.verify_records(table, catalog, every)
        assert caught.value.record == 1


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("good", [[], [b"a good one", b""]])
@pytest.mark.parametrize(
    "length",
    [
        2**64 - 1,
        2**64 - 4,
        2**64 - 12,
        2**64 - 16,
        2**64 - 17,
        2**63 + 5,
        2**63,
        2**63 - 1,
        2**62,
        2**48,
        2**40,
        2**32,
        2**31,
        9,
        6,
        5,
    ],
)
def test_lengths_that_lie_are_refused_before_they_are_used(
    write: Write, io: str, good: list[bytes], length: int
) -> None:
    """Their checksums are right, and 4 + 4 bytes follow."""
    begin = tfrecord_file(good)
    path = write(begin + header(length) + b"data" + bytes(4))
    with pytest.raises(fr.CorruptionError) as caught:
        len(open_dataset(path, io=io))
    assert caught.value.record == len(good)
    assert caught.value.offset is not None
    assert len(begin) <= caught.value.offset <= len(begin) + PAYLOAD


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("n_bytes", [*range(1, 18), 32, 4096])
def test_trailing_bytes_are_damage_not_an_end(
    write: Write, io: str, n_bytes: int
) -> None:
    path = write(FILE + bytes(n_bytes))
    labels, error = labels_until_error(path, io, threads=0)
    assert labels == LABELS
    assert isinstance(error, fr.CorruptionError)
    assert error.record == 4


@pytest.mark.parametrize("io", IO)
def test_checksums_that_are_not_masked_are_wrong(write: Write, io: str) -> None:
    record = bytearray(frame(b"payload"))
    mask = 0xA282EAD8
    (stored,) = struct.unpack_from("<I", record, 8)
    rotated = (stored - mask) % 2**32
    struct.pack_into("<I", record, 8, (rotated << 15 | rotated >> 17) % 2**32)
    with pytest.raises(fr.CorruptionError, match="length checksum"):
        len(open_dataset(write(frame(b"first") + record), io=io))


def test_an_empty_file_among_others_is_no_gap(write: Write) -> None:
    paths = [write(tfrecord_file(part)) for part in ([b"a"], [], [b"b", b"c"], [])]
    ds = open_dataset(paths)
    assert len(ds) == 3
    assert ds.records[0:3].tolist() == [b"a", b"b", b"c"]


def test_the_record_number_of_an_error_counts_within_its_file(write: Write) -> None:
    damaged = bytearray(tfrecord_file([b"d", b"e"]))
    damaged[-1] ^= 1
    first, second = write(tfrecord_file([b"a", b"b", b"c"])), write(bytes(damaged))
    ds = open_dataset([first, second])
    with pytest.raises(fr.CorruptionError, match=second.name) as caught:
        ds.records[4]
    assert (caught.value.path, caught.value.record) == (str(second), 1)
