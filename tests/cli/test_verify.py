"""``fastrec verify`` and ``repair``.

Goal
    Only intact files are reported as intact. Every damaged region is reported with its
    location and reason, for any number of threads and pieces. A repaired file is intact
    and has exactly the records whose checksums match, byte for byte. No file is replaced.
Method
    An oracle in Python determines which frames of a damaged file are intact. The command
    runs in this process through typer's runner, except for interrupts and measurements
    of memory.
"""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from children import run_python
from commands import run as run_command
from fastrec.rewrite.check import FileCheck, check_files
from fastrec.rewrite.repair import copy_intact
from oracle import frame, frame_offsets, header, tfrecord_file
from oracle_recovery import CORRUPTIONS, gaps_and_frames, payload_holds

RECORDS = [bytes([i]) * (i * 7 % 90) for i in range(40)]
GOOD = tfrecord_file(RECORDS)
OFFSETS = frame_offsets(GOOD)
HEADER_BITS = range(96)


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Run ``fastrec verify``, or ``repair`` with --out; return its stdout and stderr."""
    command = "repair" if "--out" in arguments else "verify"
    return run_command(command, *arguments, status=status)


def report_of(*arguments: str | Path, status: int = 0) -> dict[str, Any]:
    shown, _ = run(*arguments, "--json", status=status)
    report = json.loads(shown)
    assert isinstance(report, dict)
    return report


def flipped(data: bytes, byte: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[byte] ^= 1 << bit
    return bytes(changed)


def examine(
    path: Path, n_threads: int = 1, piece_bytes: int | None = None
) -> FileCheck:
    (found,) = check_files([str(path)], n_threads, piece_bytes=piece_bytes)
    assert not found.unreadable
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.tfrecord"
    path.write_bytes(GOOD)
    return path


# Intact files.


def test_intact_files_are_reported_as_intact(file: Path) -> None:
    empty = file.with_name("empty.tfrecord")
    empty.touch()
    shown, errors = run(file, empty)
    assert errors == "", "bars are for terminals"
    assert shown.startswith(
        f"40 intact records in 2 files, {len(GOOD) / 1000:.1f} kB\n"
    )
    assert "damaged" not in shown
    report = report_of(file, empty)
    assert report["n_files"] == 2
    assert report["n_bytes"] == len(GOOD)
    assert report["n_records"] == 40
    assert report["regions"] == []


def test_the_keys_of_the_report_are_documented(file: Path) -> None:
    file.write_bytes(flipped(GOOD, OFFSETS[3]))
    report = report_of(file, "--out", file.with_name("repaired"))
    assert {*report} - {*report_of(file, status=1)} == {"written"}
    text = (Path(__file__).parents[2] / "docs" / "robustness.md").read_text()
    assert list(report) == [
        "n_files",
        "n_damaged_files",
        "n_bytes",
        "n_records",
        "n_records_lost",
        "is_loss_known",
        "regions",
        "unreadable",
        "not_tfrecords",
        "stale_indexes",
        "seconds",
        "num_threads",
        "written",
    ]
    (region,) = report["regions"]
    assert list(region) == ["path", "begin", "end", "reason", "records", "kind", "bit"]
    for key in [*report, *region]:
        assert f"`{key}`" in text


# Damaged files, compared with the oracle.


def values(check: FileCheck) -> dict[str, object]:
    """The fields of a check, which compare equal also if they contain errors."""
    damaged = [(span.region, span.bit) for span in check.damaged]
    return {**vars(check), "damaged": damaged}


def check(path: Path, data: bytes) -> FileCheck:
    """Compare the result with the oracle, which does not repair headers."""
    path.write_bytes(data)
    found = examine(path)
    for n_threads, piece_bytes in ((1, 40), (3, 150)):
        assert values(examine(path, n_threads, piece_bytes)) == values(found)
    if any(damaged.bit is not None for damaged in found.damaged):
        return found
    want = gaps_and_frames(data, "resync")
    bad = [span for span in want.frames if not payload_holds(data, span)]
    assert found.n_records == len(want.frames) - len(bad)
    regions = [each.region for each in found.damaged]
    want_spans: list[tuple[int, int | None]] = [*sorted([*want.gaps, *bad])]
    assert [(region.begin, region.end) for region in regions] == want_spans
    for region in regions:
        is_record = (region.begin, region.end) in bad
        assert region.records == (1 if is_record else None)
    return found


def sound_records(path: Path) -> list[bytes]:
    return list(fr.read_records(path))


def repaired(found: FileCheck, target: Path) -> list[bytes]:
    """Return the records of a repaired file, which must be intact."""
    copy_intact(found, target, 1, lambda _: None)
    again = examine(target)
    assert not again.damaged
    assert again.n_records == found.n_records
    records = sound_records(target)
    target.unlink()
    return records


@pytest.mark.parametrize("kind", range(9), ids=lambda i: CORRUPTIONS[i].__name__)
def test_nine_kinds_of_corruption_are_found_and_repaired(
    tmp_path: Path, kind: int
) -> None:
    path, target = tmp_path / "damaged", tmp_path / "repaired"
    rng = random.Random(kind)
    n_repaired = 0
    for seed in range(60):
        records = [rng.randbytes(rng.choice((0, 3, 30, 90, 300))) for _ in range(14)]
        data, _ = CORRUPTIONS[kind](tfrecord_file(records), random.Random(seed))
        found = check(path, data)
        regions = [(each.region.begin, each.region.end) for each in found.damaged]
        # Intact and damaged bytes cover the whole file.
        edges = [edge for region in regions for edge in region if edge is not None]
        assert edges == sorted(edges)
        if found.n_records and regions:
            got = repaired(found, target)
            assert all(record in records for record in got)
            n_repaired += 1
    assert n_repaired > 20


@pytest.mark.parametrize("bit", HEADER_BITS)
def test_every_flipped_bit_of_a_header_is_repaired(file: Path, bit: int) -> None:
    for number in (0, 17, 39):
        begin, end = OFFSETS[number : number + 2]
        file.write_bytes(flipped(GOOD, begin + bit // 8, bit % 8))
        target = file.with_name(f"repaired-{number}")
        report = report_of(file, "--out", target)
        (region,) = report["regions"]
        assert (region["begin"], region["end"]) == (begin, end)
        assert (region["kind"], region["bit"], region["records"]) == (
            "repaired",
            bit,
            1,
        )
        assert "length checksum mismatch" in region["reason"]
        assert report["n_records"] == 40
        assert report["n_records_lost"] == 0
        assert target.read_bytes() == GOOD
    shown, _ = run(file, status=1)
    assert f"1 record repaired: {region['reason']}" in shown


def test_a_payload_is_never_repaired(file: Path) -> None:
    begin, end = OFFSETS[17:19]
    for byte in range(begin + 12, end):
        found = check(file, flipped(GOOD, byte, byte % 8))
        (damaged,) = found.damaged
        assert damaged.bit is None
        assert (damaged.region.begin, damaged.region.end) == (begin, end)
        assert damaged.region.records == 1


def test_records_inside_a_record_are_not_recovered(file: Path) -> None:
    inner = tfrecord_file([b"inner"] * 5)
    data = tfrecord_file([b"first", inner, b"last"])
    begin = len(frame(b"first"))
    target = file.with_name("repaired")
    found = check(file, flipped(data, begin + 2))
    assert repaired(found, target) == [b"first", inner, b"last"]

    # Two flipped bits cannot be repaired, so the search finds the frames inside.
    found = check(file, flipped(flipped(data, begin + 2), begin + 9))
    assert repaired(found, target) == [b"first", *[b"inner"] * 5, b"last"]
    assert "found by searching" in found.damaged[0].region.reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GOOD + bytes(5000), "the file ends with 5000 zero bytes"),
        (GOOD[:-3], "the file ends inside a record"),
        (GOOD + b"12345", "the file ends inside a record header"),
        (GOOD + header(2**40), "the file ends inside a record"),
        (b"some words, and some more of them\n" * 9, "it looks like text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "it looks like a PNG file"),
        (flipped(GOOD, OFFSETS[9] + 12), "payload checksum mismatch"),
    ],
)
def test_damage_is_named(file: Path, data: bytes, reason: str) -> None:
    check(file, data)
    shown, errors = run(file, status=1)
    assert errors == ""
    line, *_ = shown.splitlines()
    assert line.startswith(f"{file}, bytes ")
    assert reason in line
    assert reason in report_of(file, status=1)["regions"][0]["reason"]
    assert "damaged: 1 region in 1 file" in shown


def test_lost_records_are_counted(file: Path) -> None:
    data = flipped(GOOD, OFFSETS[9] + 12)
    file.write_bytes(data)
    assert (
        "damaged: 1 region in 1 file; 1 record lost, 0 repaired"
        in run(file, status=1)[0]
    )
    report = report_of(file, status=1)
    assert (report["n_records_lost"], report["is_loss_known"]) == (1, True)
    file.write_bytes(data[:-1])
    assert (
        "2 regions in 1 file; at least 1 record lost, 0 repaired"
        in run(file, status=1)[0]
    )
    report = report_of(file, status=1)
    assert (report["n_records_lost"], report["is_loss_known"]) == (1, False)


# Repairing.


@pytest.mark.parametrize("bad", [None, 7])
def test_a_stale_index_is_built_again(file: Path, bad: int | None) -> None:
    fr.build_index(file)
    before = file.stat()
    records = [RECORDS[-1], *RECORDS[:-1]]
    data = tfrecord_file(records)
    if bad is not None:
        data = flipped(data, frame_offsets(data)[bad] + 13)
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    status = 0 if bad is None else 1
    shown, _ = run(file, status=status)
    assert f"{file}: the index was stale and was rebuilt" in shown
    report = report_of(file, status=status)
    assert report["stale_indexes"] == []
    ds = fr.open(file)
    assert [ds.records[i] for i in range(len(ds)) if i != bad] == [
        record for i, record in enumerate(records) if i != bad
    ]


def test_a_stale_count_of_a_compressed_file_is_built_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    stored = gzip.compress(GOOD, compresslevel=0, mtime=0)
    path.write_bytes(stored)
    fr.build_index(path)
    before = path.stat()
    fewer = [b"".join(RECORDS) + bytes(16 * (len(RECORDS) - 1))]
    path.write_bytes(gzip.compress(tfrecord_file(fewer), compresslevel=0, mtime=0))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == len(stored)
    assert report_of(path)["stale_indexes"] == [str(path)]
    assert report_of(path)["stale_indexes"] == []
    assert len(fr.open(path)) == 1


def test_several_damaged_files_are_repaired_to_a_directory(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "a.tfrecord").write_bytes(GOOD)
    (folder / "b.tfrecord").write_bytes(GOOD[:-1])
    (folder / "c.tfrecord").write_bytes(b"text " * 50)
    (folder / "d.tfrecord.gz").write_bytes(gzip.compress(GOOD)[:-20])
    report = report_of(folder, "--out", out, status=1)
    assert sorted(path.name for path in out.iterdir()) == ["b.tfrecord", "d.tfrecord"]
    assert (out / "b.tfrecord").read_bytes() == GOOD[: OFFSETS[-2]]
    assert GOOD.startswith((out / "d.tfrecord").read_bytes())
    assert [written["target"] for written in report["written"]] == [
        str(out / "b.tfrecord"),
        str(out / "d.tfrecord"),
    ]
    assert report["written"][0]["n_records"] == 39
    assert report["written"][0]["n_bytes"] == OFFSETS[-2]
    run(out)


def test_repair_reports_intact_files_that_it_does_not_copy(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(GOOD)
    (tmp_path / "b.tfrecord").write_bytes(GOOD[:-1])
    shown, _ = run(tmp_path, "--out", tmp_path / "out")
    assert "1 intact file not copied" in shown


def test_intact_files_are_not_written(file: Path) -> None:
    target = file.with_name("new")
    shown, _ = run(file, "--out", target)
    assert "no damage found" in shown
    assert not target.exists()


def test_existing_files_are_never_replaced(file: Path) -> None:
    damaged = GOOD[:-1]
    file.write_bytes(damaged)
    symbolic, hard = file.with_name("symbolic"), file.with_name("hard")
    symbolic.symlink_to(file)
    hard.hardlink_to(file)
    dangling = file.with_name("dangling")
    dangling.symlink_to(file.with_name("nowhere"))
    for target in (file, symbolic, hard, dangling, file.parent):
        _, errors = run(file, "--out", target, status=2)
        assert "repair does not replace files" in " ".join(errors.split()).replace(
            "\u2502 ", ""
        )
    assert file.read_bytes() == damaged
    other = file.with_name("other.tfrecord")
    other.write_bytes(damaged)
    run(file, other, "--out", file.parent, status=2)
    run(file.parent, "--out", file.parent, status=2)
    assert file.read_bytes() == other.read_bytes() == damaged
    assert not file.with_name("nowhere").exists()


def test_files_of_the_same_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "x", tmp_path / "b" / "x"]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(GOOD[:-1])
    _, errors = run(*paths, "--out", tmp_path / "out", status=2)
    assert "have this output" in errors
    assert not (tmp_path / "out").exists()


def test_a_compressed_name_for_the_output_is_refused(file: Path) -> None:
    _, errors = run(file, "--out", file.with_suffix(".gz"), status=2)
    assert "output is not compressed" in errors


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_the_records_of_a_killed_writer_are_recovered(
    tmp_path: Path, compression: str | None
) -> None:
    code = (
        "import os, sys, random, fastrec as fr\n"
        "random = random.Random(0)\n"
        f"writer = fr.Writer(sys.argv[1], num_threads=0, compression={compression!r})\n"
        "for _ in range(4000):\n"
        "    writer.write_record(random.randbytes(1000))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    target = tmp_path / "data"
    subprocess.run([sys.executable, "-c", code, target], check=False)
    (left,) = tmp_path.glob(".data.*.tmp")
    with left.open("r+b") as torn:
        torn.truncate(left.stat().st_size - 3)
    assert report_of(tmp_path, status=2)["n_files"] == 0, "it is hidden"
    report = report_of(left, "--out", target)
    assert report["written"][0]["n_records"] > 2000
    rng = random.Random(0)
    for record in sound_records(target):
        assert record == rng.randbytes(1000)
    run(target)


def test_a_full_disk_leaves_no_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file.write_bytes(GOOD[:-1])
    before = sorted(file.parent.iterdir())
    target = file.with_name("repaired")
    monkeypatch.setattr(os, "fsync", refuse)
    _, errors = run(file, "--out", target, status=2)
    assert errors == f"error: {target}: {os.strerror(errno.ENOSPC)}\n"
    assert sorted(file.parent.iterdir()) == before


def test_a_file_that_changes_during_a_repair_is_an_error(file: Path) -> None:
    file.write_bytes(GOOD[:-1])
    found = examine(file)
    file.write_bytes(flipped(GOOD, OFFSETS[20] + 12)[:-1])
    target = file.with_name("repaired")
    with pytest.raises(fr.Error, match="changed while its records were copied"):
        copy_intact(found, target, 1, lambda _: None)
    assert not target.exists()


# Selection of files.


def test_a_directory_is_searched_for_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / "beginning").write_bytes(b"\xff" * 12 + GOOD[12:])
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (tmp_path / "readme").write_text("words " * 50)
    (tmp_path / "text.tfrecord").write_text("words " * 50)
    (tmp_path / ".hidden").write_bytes(GOOD[:-1])
    (tmp_path / "_SUCCESS").touch()
    for name in ("below", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "good").write_bytes(GOOD)
    report = report_of(tmp_path, status=1)
    assert report["n_files"] == 4
    assert report["n_records"] == 119
    assert [region["path"] for region in report["regions"]] == [
        str(tmp_path / "beginning"),
        str(tmp_path / "text.tfrecord"),
    ]
    assert report["not_tfrecords"] == [str(tmp_path / "picture")]


def test_an_unreadable_file_does_not_stop_the_others(file: Path) -> None:
    damaged = file.with_name("damaged.tfrecord")
    damaged.write_bytes(GOOD[:-1])
    fifo = file.with_name("fifo")
    os.mkfifo(fifo)
    missing = file.with_name("missing")
    pattern = file.with_name("none-*")
    nothing = file.with_name("nothing")
    nothing.mkdir()
    bad = [fifo, missing, pattern, nothing]
    report = report_of(*bad, file, damaged, status=2)
    assert {failure["path"] for failure in report["unreadable"]} == set(map(str, bad))
    assert report["n_records"] == 79
    assert len(report["regions"]) == 1
    shown, errors = run(*bad, file, status=2)
    assert errors.count("error: ") == errors.count("\n") == 4
    assert "40 intact records in 1 file" in shown


def test_only_errors_are_printed_if_no_file_can_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for more in ((), ("--out", tmp_path / "out")):
        shown, errors = run(missing, *more, status=2)
        assert (shown, errors.count("\n")) == ("", 1)
        assert errors.startswith(f"error: {missing}: ")


def test_usage_errors_are_refused(file: Path) -> None:
    run(status=2)
    run(file, "--threads", "0", status=2)
    _, errors = run("unknown://bucket/a.tfrecord", status=2)
    assert "unknown://" in errors


def test_a_file_that_is_named_twice_is_checked_once(file: Path) -> None:
    assert report_of(file, str(file.parent / "*.tfrecord"))["n_files"] == 1


# Compressed files.


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_files_are_verified(file: Path, compress: Any) -> None:
    file.write_bytes(compress(GOOD))
    assert report_of(file)["n_records"] == 40

    begin, end = OFFSETS[17:19]
    file.write_bytes(compress(flipped(GOOD, begin + 12)))
    report = report_of(file, "--out", file.with_name("a"))
    (region,) = report["regions"]
    assert (region["begin"], region["end"], region["records"]) == (begin, end, 1)
    assert report["n_records"] == 39
    assert file.with_name("a").read_bytes() == GOOD[:begin] + GOOD[end:]

    # The content of a compressed file is not searched, and the reason says so.
    file.write_bytes(compress(flipped(GOOD, begin)))
    report = report_of(file, "--out", file.with_name("b"))
    (region,) = report["regions"]
    assert (region["begin"], region["end"], region["records"]) == (begin, None, None)
    assert "are not searched" in region["reason"]
    assert file.with_name("b").read_bytes() == GOOD[:begin]

    for damaged in (compress(GOOD)[:-9], compress(GOOD) + b"more", compress(GOOD[:-1])):
        file.write_bytes(damaged)
        report = report_of(file, status=1)
        assert len(report["regions"]) == 1


# Threads, time and memory.


def test_results_do_not_depend_on_threads_and_pieces(tmp_path: Path) -> None:
    rng = random.Random(4)
    paths = []
    for number in range(30):
        records = [rng.randbytes(rng.randrange(300)) for _ in range(30)]
        records[5] = tfrecord_file(records[:4])
        data = tfrecord_file(records)
        for _ in range(number % 4):
            data, _ = CORRUPTIONS[rng.randrange(9)](data, rng)
        path = tmp_path / f"{number}"
        path.write_bytes(gzip.compress(data) if number % 7 == 6 else data)
        paths.append(str(path))
    want = list(map(values, check_files(paths, 1)))
    assert [found["path"] for found in want] == paths
    assert any(found["damaged"] for found in want)
    for n_threads, piece_bytes in itertools.product((1, 2, 5), (64, 1000, None)):
        found = check_files(paths, n_threads, piece_bytes=piece_bytes)
        assert list(map(values, found)) == want


def test_progress_reaches_the_size_of_the_files(file: Path) -> None:
    packed = file.with_name("packed")
    packed.write_bytes(gzip.compress(GOOD))
    looks: list[int] = []
    list(check_files([str(file), str(packed)], 2, looks.append))
    assert looks == sorted(looks)
    assert looks[-1] == len(GOOD) + packed.stat().st_size


def test_threads_stop_when_the_generator_is_closed(file: Path) -> None:
    results = check_files([str(file)] * 50, 3)
    next(results)
    results.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("fastrec") for name in names)


INTERRUPTED = """
import sys
from fastrec.cli import main, verify
check_files = verify.check_files
def with_output(files, n_threads, on_progress):
    return check_files(files, n_threads, lambda _: print("at work", flush=True))
verify.check_files = with_output
main()
"""


def long_plain(path: Path) -> None:
    """Write sixty records of 2 GiB as a sparse file."""
    with path.open("wb") as file:
        for _ in range(60):
            file.write(header(2**31 - 1))
            file.seek(2**31 - 1, os.SEEK_CUR)
            file.write(bytes(4))


def long_compressed(path: Path) -> None:
    """Write a compressed file of forty records of 1 GiB."""
    payload = gzip.compress(bytes(1 << 24)) * 64
    whole = gzip.compress(header(1 << 30)) + payload + gzip.compress(bytes(4))
    path.write_bytes(whole * 40)


@pytest.mark.parametrize("write", [long_plain, long_compressed])
def test_an_interrupt_has_the_usual_exit_status(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "long")
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "verify", tmp_path / "long"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "at work\n"
    child.send_signal(signal.SIGINT)
    shown, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors == "interrupted\n"
    assert "intact" not in shown


MEASURED = """
import resource, sys
from fastrec.rewrite.check import check_files
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small, large = sys.argv[1:]
list(check_files([small], 2))
before = peak()
(found,) = check_files([large], 2)
assert not found.damaged
print(found.n_records, (peak() - before) * (1 if sys.platform == "darwin" else 1024))
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(GOOD)
    n_records = 4_000_000
    large.write_bytes(frame(b"") * n_records)
    done = run_python(MEASURED, small, large)
    n_found, n_grown = map(int, done.stdout.split())
    assert n_found == n_records
    assert n_grown < 16 << 20, "an index of it would take 32 MB"
