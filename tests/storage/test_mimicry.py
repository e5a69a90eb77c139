"""Plain files whose damaged first header looks like that of a compressed file.

Goal
    Damage to the first header of a plain file loses at most the first record, because
    the file is not mistaken for a compressed one. Damaged or truncated GZIP and ZLIB
    files are still detected.
Method
    Every record length whose first two bytes look like a ZLIB header, and lengths that
    look like GZIP headers; one or several bits of the header are flipped. Real streams
    of every level are truncated at every byte, and damaged behind their beginning.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec import _core
from numbered import record
from oracle import frame

SPEC = {"n": fr.FixedLen((), "int64")}
ZLIB_LENGTHS = [
    first + 256 * second
    for first in range(0x08, 0x79, 0x10)
    for second in range(256)
    if (256 * first + second) % 31 == 0
]
# 1f 8b, and 1f 8b 08: the first bytes of every GZIP file.
GZIP_LENGTHS = [0x8B1F, 0x8B1F + (8 << 16)]
LENGTHS = ZLIB_LENGTHS + GZIP_LENGTHS

# Bits of the header, but not of the two bytes that look like another format.
DAMAGES = {
    "length": [23],
    "high": [62],
    "checksum": [70],
    "several": [17, 40, 66, 95],
    "many": [16, 21, 28, 33, 39, 47, 55, 63, 64, 72, 80, 90],
}

N_AFTER = 3


def damaged_file(length: int, bits: list[int]) -> tuple[bytes, bytes]:
    """Write a record of that length and others; return the file and a damaged copy."""
    long = frame(random.Random(length).randbytes(length), _core.crc32c)
    good = long + b"".join(frame(record(n)) for n in range(N_AFTER))
    damaged = bytearray(good)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    return good, bytes(damaged)


def numbers(ds: Untyped) -> list[int]:
    return [int(row["n"]) for row in ds]


def damage_of(ds: Untyped) -> fr.CorruptionError:
    with pytest.raises(fr.CorruptionError) as caught:
        len(ds)
    return caught.value


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_header_loses_one_record(write: Write, damage: str) -> None:
    for length in LENGTHS:
        _, data = damaged_file(length, DAMAGES[damage])
        path = write(data)
        error = damage_of(open_dataset(path, features=SPEC))
        assert "length checksum mismatch" in error.reason
        assert (error.record, error.offset) == (0, 0)
        for compression in ("auto", None):
            options = {"features": SPEC, "compression": compression}
            skipped = open_dataset(path, on_error="skip", **options)
            assert (len(skipped), numbers(skipped)) == (0, [])
            found = open_dataset(path, on_error="resync", **options)
            assert (len(found), numbers(found)) == (N_AFTER, [*range(N_AFTER)])
            (region,) = found.report
            assert (region.begin, region.end) == (0, length + 16)


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_restores_the_record(write: Write, damage: str, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    from commands import run

    for length in ZLIB_LENGTHS[:: 3 if damage == "length" else 9] + GZIP_LENGTHS:
        good, data = damaged_file(length, DAMAGES[damage])
        target = tmp_path / f"{length}.tfrecord"
        run("repair", write(data), "--out", target)
        is_one_bit = len(DAMAGES[damage]) == 1
        assert target.read_bytes() == (good if is_one_bit else good[length + 16 :])


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_damage_inside_a_compressed_file_is_skipped(
    write: Write, compress: Callable[[bytes], bytes]
) -> None:
    for length in ZLIB_LENGTHS[::5] + GZIP_LENGTHS:
        _, data = damaged_file(length, DAMAGES["checksum"])
        path = write(compress(data))
        error = damage_of(open_dataset(path, features=SPEC))
        assert "length checksum mismatch" in error.reason
        for on_error in ("skip", "resync"):
            ds = open_dataset(path, features=SPEC, on_error=on_error)
            assert (len(ds), numbers(ds)) == (0, [])


COMPRESSIONS: dict[str, Callable[[bytes, int], bytes]] = {
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_truncated_streams_are_recognised(write: Write, kind: str, level: int) -> None:
    data = b"".join(frame(record(n)) for n in range(30))
    whole = COMPRESSIONS[kind](data, level)
    assert numbers(open_dataset(write(whole), features=SPEC)) == [*range(30)]
    for size in range(20, len(whole), 7):  # fewer bytes may look like text
        error = damage_of(open_dataset(write(whole[:size]), features=SPEC))
        assert f"the {kind} stream is truncated" in error.reason


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_streams_damaged_behind_their_beginning_are_recognised(
    write: Write, kind: str, level: int
) -> None:
    rng = random.Random(level)
    data = b"".join(
        frame(rng.randbytes(rng.randrange(2000)), _core.crc32c) for n in range(30)
    )
    whole = COMPRESSIONS[kind](data, level)
    for _ in range(50):
        damaged = bytearray(whole)
        damaged[rng.randrange(1024, len(whole))] ^= 1 << rng.randrange(8)
        error = damage_of_records(open_dataset(write(bytes(damaged)), features=SPEC))
        # Damage to stored blocks shows in the records first.
        assert f"the {kind} stream" in error.reason or "checksum" in error.reason
        assert kind == "GZIP" or "GZIP" not in error.reason
    ds = open_dataset(write(whole), features=SPEC)
    with pytest.raises(ValueError, match="compressed"):
        ds[0]


def damage_of_records(ds: Untyped) -> fr.CorruptionError:
    with pytest.raises(fr.CorruptionError) as caught:
        for _ in ds.records:
            pass
    return caught.value


def test_a_stream_damaged_at_its_beginning_is_not_a_plain_file(write: Write) -> None:
    data = b"".join(frame(record(n)) for n in range(30))
    for kind, compress in COMPRESSIONS.items():
        damaged = bytearray(compress(data, 6))
        damaged[10:40] = bytes(30)
        error = damage_of(open_dataset(write(bytes(damaged)), features=SPEC))
        assert f"the {kind} stream is damaged" in error.reason
