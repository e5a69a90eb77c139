"""A program that kills writers of one kind at random moments, and writes again.

Arguments: the kind, a new folder, and the number of runs. Prints how many writers were
killed before they finished, and how many of these left temporary files.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
import struct
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crc32c
from typer.testing import CliRunner

import fastrec as fr
from children import SEED
from fastrec.cli.app import app
from faults import check_nothing_more, is_killed, left_open

PATTERN, NUMBERED = "data-{shard:05d}", "data-{shard:03d}-of-{num_shards:03d}.rec"
N_MOST = 300
LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}-(?P<shard>\d+)\.tmp")
SOME = [random.Random(n).randbytes(n * 997 % 20_000) for n in range(60)]


@dataclass
class Kind:
    """A kind of writer."""

    name: str = "data"
    options: dict[str, Any] = field(default_factory=dict)
    per_shard: int | None = None  # records
    n_lanes: int | None = None

    def of_shard(self, records: list[bytes], shard: int) -> list[bytes]:
        """Return the records of a shard."""
        if self.n_lanes is not None:
            return records[shard :: self.n_lanes]
        if self.per_shard is not None:
            return records[shard * self.per_shard :][: self.per_shard]
        return records


def sharded(name: str, **options: Any) -> Kind:
    return Kind(name, {"max_shard_records": 25, **options}, per_shard=25)


def in_lanes(**options: Any) -> Kind:
    return Kind(NUMBERED, {"num_shards": 4, **options}, n_lanes=4)


KINDS = {
    "file": Kind(),
    "gzip": Kind(options={"compression": "GZIP", "compression_level": 1}),
    "zlib": Kind(options={"compression": "ZLIB", "compression_level": 1}),
    "pattern": sharded(PATTERN),
    "numbered": sharded(NUMBERED),
    "numbered_gzip": sharded(NUMBERED, compression="GZIP", compression_level=1),
    "lanes": in_lanes(),
    "lanes_zlib": in_lanes(compression="ZLIB", compression_level=1),
}


def record(number: int) -> bytes:
    return struct.pack("<I", number) + SOME[number % len(SOME)]


def write(path: Path, n_records: int, **options: Any) -> None:
    """Write records one by one, as a program would."""
    with fr.Writer(path, **options) as writer:
        for number in range(n_records):
            writer.write_record(record(number))


# An independent reader.


def content_of(data: bytes) -> tuple[bytes, bool]:
    """Return the decompressible part of a file, and whether it is complete."""
    wbits = {b"\x1f\x8b": 31, b"\x78\x01": 15, b"\x78\x9c": 15}.get(data[:2])
    if wbits is None:  # a plain file, which begins with a short record
        return data, True
    content = b""
    while data:
        member = zlib.decompressobj(wbits)
        content += member.decompress(data)
        if not member.eof:
            return content, False
        data = member.unused_data
    return content, True


def masked_crc(data: bytes) -> int:
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records_in(path: Path) -> tuple[list[bytes], bool]:
    """Return the complete records of a file, and whether the file is complete."""
    data, is_whole = content_of(path.read_bytes())
    found: list[bytes] = []
    at = 0
    while at < len(data):
        if at + 16 > len(data):
            return found, False
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked_crc(data[at : at + 8])
        end = at + 12 + length + 4
        if end > len(data):
            return found, False
        payload = data[at + 12 : end - 4]
        assert struct.unpack("<I", data[end - 4 : end]) == (masked_crc(payload),)
        found.append(payload)
        at = end
    return found, is_whole


# Remaining files.


class Run:
    """A writer that is killed, and its records."""

    def __init__(self, kind: Kind, folder: Path, n_records: int) -> None:
        self.kind = kind
        self.folder = folder
        self.records = [record(number) for number in range(n_records)]

    def published(self) -> dict[int, tuple[str, list[bytes]]]:
        """Return the shards with final names, each of which must be complete."""
        found = {}
        for path in self.folder.iterdir():
            if path.name.startswith("."):
                continue
            numbers = [int(number) for number in re.findall(r"\d+", path.name)]
            shard = numbers[0] if numbers else 0
            records, is_whole = records_in(path)
            assert is_whole, path
            assert records == self.kind.of_shard(self.records, shard), path
            assert list(fr.read_records(path, num_threads=0)) == records
            found[shard] = (path.name, records)
        return found

    def check_left(self) -> bool:
        """Check that temporary files are prefixes of shards; return if any exist."""
        has_left = False
        for path in self.folder.iterdir():
            if path.name == f".{self.kind.name}.lock" or not path.name.startswith("."):
                continue
            match = LEFT.fullmatch(path.name)
            assert match, path
            assert match["name"] == self.kind.name
            records, _ = records_in(path)
            expected = self.kind.of_shard(self.records, int(match["shard"]))
            assert records == expected[: len(records)], path
            saved = saved_of(path)
            assert saved == expected[: len(saved)], path
            assert len(saved) >= len(records), path
            has_left = True
        return has_left


def saved_of(path: Path) -> list[bytes]:
    """Return the records of a file, after repair if it is torn."""
    out = path.with_name("saved")
    result = CliRunner().invoke(app, ["repair", str(path), "--out", str(out)])
    assert result.exit_code in (0, 1), result.output
    found = out if out.exists() else path
    if result.exit_code == 1 and not out.exists():
        return []
    records, is_whole = records_in(found)
    assert is_whole
    out.unlink(missing_ok=True)
    return records


def kill(
    kind: Kind, folder: Path, draw: random.Random, seconds: float
) -> tuple[bool, bool]:
    """Kill a writer; return whether it was killed, and whether it left files."""
    folder.mkdir()
    run = Run(kind, folder, draw.randrange(N_MOST))
    options = {**kind.options, "sync": draw.random() < 0.5}
    path = folder / kind.name
    share = (len(run.records) + 30) / N_MOST
    killed = is_killed(
        lambda: write(path, len(run.records), **options),
        draw.random() * seconds * share,
    )
    has_left = run.check_left()
    assert killed or not has_left
    run.published()
    # The next writer removes these files, and ignores the lock.
    again = Run(kind, folder, 60)
    write(path, 60, **kind.options, overwrite=True)
    n_shards = kind.n_lanes or (1 if kind.per_shard is None else 3)
    assert set(again.published()) == set(range(n_shards))
    assert not [left for left in folder.iterdir() if left.name.startswith(".")]
    shutil.rmtree(folder)
    return killed, has_left


def kill_append(folder: Path, draw: random.Random, seconds: float) -> tuple[bool, bool]:
    """Kill an appending writer twice, and append again."""
    folder.mkdir()
    path = folder / "data"
    n_before = draw.randrange(20)
    write(path, n_before)
    killed = False
    n_added = 0
    for _ in range(2):
        killed |= is_killed(
            lambda: write(path, N_MOST, append=True), draw.random() * seconds
        )
        found, _ = records_in(path)
        n_added = len(found) - n_before
        assert found[:n_before] == [record(n) for n in range(n_before)]
        added = found[n_before:]
        assert added == [record(n) for n in whole_runs(added)]
        write(path, 1, append=True)
        again, is_whole = records_in(path)
        assert is_whole
        assert again == [*found, record(0)]
        assert list(fr.read_records(path, num_threads=0)) == again
        assert {left.name for left in folder.iterdir()} == {"data"}
    shutil.rmtree(folder)
    return killed, n_added > 0


def whole_runs(added: list[bytes]) -> list[int]:
    """Return which records each writer added, which must be consecutive from 0."""
    numbers: list[int] = []
    for each in added:
        (number,) = struct.unpack_from("<I", each)
        assert number == 0 or number == numbers[-1] + 1
        numbers.append(number)
    return numbers


def main() -> None:
    """Kill writers, and check the remaining files."""
    kind, folder, n_runs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    logging.disable()  # of the tails that are cut
    draw = random.Random(f"{SEED} {kind}")
    folder.mkdir()
    options = {} if kind == "append" else KINDS[kind].options
    name = "data" if kind == "append" else KINDS[kind].name
    # Measure the duration, to choose the moments.
    (folder / "measured").mkdir()
    begin = time.perf_counter()
    write(folder / "measured" / name, N_MOST, **options)
    seconds = 1.2 * (time.perf_counter() - begin)
    before = left_open()[0], 1  # the threads of that writer may not be gone yet
    sums = [0, 0]
    for number in range(n_runs):
        below = folder / f"{number}"
        results = (
            kill_append(below, draw, seconds)
            if kind == "append"
            else kill(KINDS[kind], below, draw, seconds)
        )
        sums = [total + int(n) for total, n in zip(sums, results, strict=True)]
    check_nothing_more(before)
    print(*sums)


if __name__ == "__main__":
    main()
