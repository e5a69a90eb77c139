"""``fastrec bench``: the time of each stage, and the verdict.

Goal
    Every stage reads the same records, plain or compressed, once per pass. Results are
    printed as text and as JSON. Files that cannot be measured are a one-line error. The
    verdict follows the times.
Method
    Small files and the time of two rounds; no test depends on timing. Verdicts are tested
    on invented times.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

from columns import Write
from fastrec.cli import bench
from fastrec.cli.app import app
from fastrec.storage.compression import inflated
from oracle import example, frame_offsets, tfrecord_file
from oracle_example import sequence

Pack = Callable[[bytes], bytes]

N = 3000
FILE = tfrecord_file(
    example({b"n": ("int64", [i]), b"image": ("bytes", [b"x" * (i % 50)])})
    for i in range(N)
)
PACKS: dict[str, Pack] = {"plain": bytes, "gzip": gzip.compress, "zlib": zlib.compress}


def run(*arguments: str | Path, status: int = 0) -> str:
    """Run ``fastrec bench`` with minimal time; return its output."""
    line = ["bench", *map(str, arguments), "--seconds", "0"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def report(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--json"))


# Output.


@pytest.mark.parametrize("form", PACKS)
def test_every_stage_has_its_line(write: Write, form: str) -> None:
    out = run(write(PACKS[form](FILE)))
    lines = out.splitlines()
    assert lines[0].startswith("the first 3,000 records of 1 file, ")
    assert lines[0].endswith("2 columns, batches of 256")
    starts = [line.split("  ")[0] for line in lines]
    first = "read" if form == "plain" else "inflate"
    stages = [first, "+ checksums", "+ decode"]
    assert [start for start in starts if start in stages] == stages
    assert "all, num_threads=1" in starts
    assert "memcpy of the same bytes" in starts
    assert "\nverdict: " in out


@pytest.mark.parametrize("form", PACKS)
def test_json_has_all_results(write: Write, form: str) -> None:
    data = PACKS[form](FILE)
    found = report(write(data), "--batch-size", "100")
    assert found["n_files"] == 1
    assert found["n_records"] == N
    assert found["n_bytes"] == len(FILE) - 16 * N
    assert found["n_columns"] == 2
    assert found["batch_size"] == 100
    rows = [*found["stages"], *found["threads"], found["memcpy"]]
    for row in rows:
        assert row["wall_ns"] > 0
        assert row["records_per_s"] == pytest.approx(1e9 / row["wall_ns"])
        assert row["mb_per_s"] == pytest.approx(
            row["records_per_s"] * found["n_bytes"] / N / 1e6
        )
    assert found["verdict"]["text"]


def test_threads_are_measured_up_to_the_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "default_num_threads", lambda: 6)
    found = report(write(FILE))
    names = [row["name"] for row in found["threads"]]
    assert names == [f"num_threads={n}" for n in (1, 2, 4, 6)]


def test_only_named_columns_are_decoded(write: Write) -> None:
    path = write(FILE)
    one = report(path, "--columns", "n")
    both = report(path, "--columns", "n,image")
    assert (one["n_columns"], both["n_columns"]) == (1, 2)


def test_sequence_examples_are_decoded(write: Write) -> None:
    record = sequence({b"n": ("int64", [3])}, {b"steps": [("int64", [1, 2])] * 5})
    found = report(write(tfrecord_file([record] * 20)))
    assert (found["n_records"], found["n_columns"]) == (20, 2)


@pytest.mark.parametrize("form", PACKS)
def test_records_that_are_not_examples_are_one_column(write: Write, form: str) -> None:
    path = write(PACKS[form](tfrecord_file([b"\xff not an Example"] * 50)))
    assert "+ decode" in run(path)
    assert report(path)["n_columns"] == 1


@pytest.mark.parametrize("form", PACKS)
def test_examples_without_features_are_not_decoded(write: Write, form: str) -> None:
    path = write(PACKS[form](tfrecord_file([b""] * 50)))
    out = run(path)
    starts = [line.split("  ")[0] for line in out.splitlines()]
    assert "+ checksums" in starts
    assert "+ decode" not in starts
    assert "decoding was not measured: " in out
    found = report(path)
    assert (found["n_records"], found["n_columns"]) == (50, 0)
    assert found["decoding_skipped"]


# Measuring.


@pytest.mark.parametrize("form", PACKS)
def test_each_stage_reads_the_sample_once(
    write: Write, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    read: list[int] = []

    def blocks(*_: object) -> Generator[bytes]:
        yield FILE[:100]
        read.append(len(FILE) - 100)
        yield FILE[100:]

    def measured(stages: Any, *_: object) -> dict[str, tuple[float, float]]:
        for stage in stages.values():
            stage()
        return dict.fromkeys(stages, (1, 1))

    monkeypatch.setattr(bench, "_blocks", blocks)
    monkeypatch.setattr(bench, "inflated", blocks)
    monkeypatch.setattr(bench, "measure", measured)
    run(*(write(PACKS[form](FILE)) for _ in range(3)))
    assert len(read) == 3


def test_the_beginning_of_large_files_is_measured(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_SAMPLE_BYTES", 10)
    assert report(write(FILE))["n_records"] == 256


@pytest.mark.parametrize("form", PACKS)
def test_inflating_reports_its_position_in_the_file(write: Write, form: str) -> None:
    data = PACKS[form](FILE * 9)
    told: list[int] = []
    path = write(data)
    content: Any = form
    assert b"".join(inflated(str(path), content, on_read=told.append)) == FILE * 9
    assert told == sorted(told)
    assert told[-1] == len(data)


# Arithmetic.


def test_times_are_the_least_of_all_rounds_but_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    durations = [1, 4, 2, 3, 2.5]  # at least a sixth of the time

    def varying() -> None:
        now[0] += durations.pop(0)

    monkeypatch.setattr(bench, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bench, "process_time", lambda: now[0] / 2)
    assert bench.measure({"stage": varying}, 6) == {"stage": (2, 1)}


def test_a_short_pass_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def short() -> None:
        now[0] += 1

    monkeypatch.setattr(bench, "perf_counter", lambda: now[0])
    found = bench.measure({"a": short, "b": short}, 80)
    assert found["a"][0] == found["b"][0] == 1
    assert now[0] < 120


# The verdict.


@pytest.mark.parametrize(
    ("cpu_s", "expected"),
    [
        ([50, 70, 100], "read"),
        ([10, 30, 100], "decode"),
        ([10, 70, 100], "checksums"),
        ([50, 20, 110], "decode"),  # noise: the cost of a stage is at least 0
    ],
)
def test_the_verdict_names_the_most_expensive_stage(
    cpu_s: list[float], expected: str
) -> None:
    names = ["read", "checksums", "decode"]
    pairs = zip(names, cpu_s, strict=True)
    found = bench.verdict_of(dict(pairs))
    assert found["stage"] == expected
    assert found["text"].startswith(f"{expected} is the largest cost, ")


# Errors.


def test_files_without_records_are_a_one_line_error(write: Write) -> None:
    assert run(write(b""), status=2) == "error: no records in 1 file\n"
    empty = write(gzip.compress(b""))
    assert run(empty, write(b""), status=2) == "error: no records in 2 files\n"


@pytest.mark.parametrize("form", PACKS)
def test_damage_is_a_one_line_error(write: Write, form: str) -> None:
    data = bytearray(FILE)
    data[frame_offsets(FILE)[N - 5] + 12] ^= 1
    path = write(PACKS[form](bytes(data)))
    errors = run(path, status=1)
    assert errors.startswith("error: payload checksum mismatch")
    assert f"{path}, record {N - 5}" in errors
    assert errors.count("\n") == 1


def test_a_missing_column_is_a_usage_error(write: Write) -> None:
    errors = run(write(FILE), "--columns", "label", status=2)
    assert "--columns" in errors
    assert "'label'" in errors
