"""``fastrec bench``: the cost of each stage, and the bottleneck.

Goal
    Every stage reads the same records, plain or compressed, once per pass. Results are
    printed as text and as JSON. Files that cannot be measured are a one-line error. Costs
    and bottleneck follow arithmetic.
Method
    Small files and the time of two rounds; no test depends on timing. Arithmetic is
    tested on invented costs.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

import fastrec as fr
from fastrec.cli import bench, costs
from fastrec.cli.app import app
from fastrec.cli.costs import Cost, FirstRead, Sample
from fastrec.storage.compression import inflated
from oracle import example, frame_offsets, tfrecord_file
from oracle_example import sequence

Write = Callable[[bytes], Path]
Pack = Callable[[bytes], bytes]

N = 3000
FILE = tfrecord_file(
    example({b"n": ("int64", [i]), b"image": ("bytes", [b"x" * (i % 50)])})
    for i in range(N)
)
PACKS: dict[str, Pack] = {"plain": bytes, "gzip": gzip.compress, "zlib": zlib.compress}


@pytest.fixture(autouse=True)
def _no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide TensorFlow, unless a test requests it."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)


def run(*arguments: str | Path, status: int = 0) -> str:
    """Run ``fastrec bench`` with minimal time; return its output."""
    line = ["bench", *map(str, arguments), "--seconds", "0"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def report(*arguments: str | Path) -> Any:  # noqa: ANN401
    return json.loads(run(*arguments, "--json"))


def sampled(*paths: Path) -> Sample:
    files = [str(path) for path in paths]
    is_streamed = fr.open(files)._view.files.is_streamed
    first = costs.first_read(files, is_streamed=is_streamed, seconds=60)
    return costs.sample_of(first)


# Output.


@pytest.mark.parametrize("form", PACKS)
def test_every_stage_has_its_line(write: Write, form: str) -> None:
    out = run(write(PACKS[form](FILE)))
    lines = out.splitlines()
    assert lines[0].startswith("the first 3,000 records of 1 file, ")
    assert lines[0].endswith("2 columns, batches of 256")
    starts = [line.split("  ")[0] for line in lines]
    stages = ["reading", "inflating", "checksums", "decoding"]
    if form == "plain":
        stages.remove("inflating")
    assert [start for start in starts if start in stages] == stages
    assert "1 thread" in starts
    assert "memcpy" in starts
    assert "tf.data was not measured: TensorFlow is not installed" in lines
    assert lines[-2].removeprefix("bottleneck: ") in bench._HINTS


@pytest.mark.parametrize("form", PACKS)
def test_json_has_all_results(write: Write, form: str) -> None:
    data = PACKS[form](FILE)
    found = report(write(data), "--batch-size", "100")
    assert found["n_files"] == found["n_files_measured"] == 1
    assert found["n_records"] == N
    assert found["n_bytes"] == len(FILE)
    assert found["file_bytes"] == len(data)
    assert found["n_columns"] == 2
    assert found["batch_size"] == 100
    assert found["column_bytes"] >= 8 * N + sum(i % 50 for i in range(N))
    assert sum(line["share"] for line in found["stages"]) == pytest.approx(1)
    assert all(line["records_per_s"] > 0 for line in found["stages"])
    assert found["tf_data"] == {}
    assert found["hint"]


def test_only_named_columns_are_decoded(write: Write) -> None:
    path = write(FILE)
    one = report(path, "--columns", "n")
    both = report(path, "--columns", "n", "--columns", "image")
    assert (one["n_columns"], both["n_columns"]) == (1, 2)
    assert one["column_bytes"] < both["column_bytes"]


def test_sequence_examples_are_decoded(write: Write) -> None:
    record = sequence({b"n": ("int64", [3])}, {b"steps": [("int64", [1, 2])] * 5})
    found = report(write(tfrecord_file([record] * 20)))
    assert (found["n_records"], found["n_columns"]) == (20, 2)


@pytest.mark.parametrize("form", PACKS)
@pytest.mark.parametrize("record", [b"\xff not an Example", b""])
def test_other_records_are_read_without_decoding(
    write: Write, form: str, record: bytes
) -> None:
    path = write(PACKS[form](tfrecord_file([record] * 50)))
    out = run(path)
    starts = [line.split("  ")[0] for line in out.splitlines()]
    assert "checksums" in starts
    assert "decoding" not in starts
    assert "decoding was not measured: " in out
    found = report(path)
    assert (found["n_records"], found["n_columns"]) == (50, 0)
    assert found["decoding_skipped"]


# Measuring.


@pytest.mark.parametrize("form", PACKS)
def test_each_stage_reads_each_record_once(write: Write, form: str) -> None:
    sample = sampled(*(write(PACKS[form](FILE)) for _ in range(3)))
    assert sample.n_records == 3 * N
    assert sample.n_bytes == 3 * len(FILE)
    loader = sample.dataset.loader(256, num_threads=0)
    stages = [
        costs.read(sample),
        costs.verify(sample),
        costs.decode(loader, sample),
        costs.decode(loader, sample),
    ]
    if form != "plain":
        stages.append(costs.inflate(sample))
    for stage in stages:
        assert sum(stage) == pytest.approx(3 * N)


@pytest.mark.parametrize("form", PACKS)
def test_the_beginning_of_large_files_is_measured(
    write: Write, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "SAMPLE_BYTES", len(FILE) // 2)
    monkeypatch.setattr(costs, "_COMPRESSED_BYTES", len(FILE) // 2)
    monkeypatch.setattr("fastrec.storage.compression._PIECE_BYTES", 1000)
    monkeypatch.setattr("fastrec.storage.compression._READ_BYTES", 100)
    sample = sampled(*(write(PACKS[form](FILE)) for _ in range(2)))
    ends = np.array(frame_offsets(FILE))
    assert len(sample.ranges) == 1
    assert 0 < sample.n_records < N
    assert sample.n_bytes == ends[sample.n_records]
    assert abs(sample.n_bytes - len(FILE) // 2) < 2000
    assert 0 < sample.file_bytes < len(PACKS[form](FILE))
    assert sum(costs.verify(sample)) == sample.n_records
    loader = sample.dataset.loader(64, num_threads=0)
    n_decoded = sum(costs.decode(loader, sample))
    assert sample.n_records <= n_decoded < sample.n_records + 64


def test_a_record_larger_than_the_sample_is_measured(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "SAMPLE_BYTES", 10)
    sample = sampled(write(FILE))
    assert sample.n_records == 1
    assert sum(costs.decode(sample.dataset.loader(9), sample)) == 1


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


def stage_of(*chunks: float) -> Callable[[], Generator[float]]:
    def stage() -> Generator[float]:
        yield from chunks

    return stage


def test_the_first_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow_at_first() -> Generator[float]:
        now[0] += 100 if now[0] == 0 else 6
        yield 3

    monkeypatch.setattr("fastrec.cli.costs.perf_counter", lambda: now[0])
    monkeypatch.setattr("fastrec.cli.costs.process_time", lambda: now[0] / 2)
    found = costs.measure({"stage": slow_at_first}, 112)
    assert found["stage"].wall_ns == 2e9
    assert found["stage"].cpu_ns == 1e9
    assert found["stage"].records_per_s == 0.5


def test_a_pass_ends_after_its_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def endless() -> Generator[float]:
        while True:
            now[0] += 1
            yield 2

    monkeypatch.setattr("fastrec.cli.costs.perf_counter", lambda: now[0])
    found = costs.measure({"a": endless, "b": endless}, 80)
    assert found["a"].wall_ns == found["b"].wall_ns == 0.5e9
    assert now[0] < 120


def test_the_cost_of_a_stage_is_a_difference() -> None:
    found = {
        "reading": Cost(4, 2),
        "checksums": Cost(4, 1),  # noise: the difference is at least 0
        "decoding": Cost(20, 10),
    }
    lines = bench._lines(found)
    assert [line.own_ns for line in lines] == pytest.approx([2, 0, 8])
    assert [line.share for line in lines] == pytest.approx([0.2, 0, 0.8])


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ({"reading": 5, "checksums": 2, "decoding": 4}, {}, "reading"),
        ({"reading": 1, "checksums": 2, "decoding": 4}, {}, "decoding"),
        (
            {"reading": 1, "inflating": 9, "checksums": 2, "decoding": 4},
            {},
            "inflating",
        ),
        ({"reading": 1, "checksums": 2, "decoding": 4}, {"copying_ns": 3}, "copying"),
        ({"reading": 5, "checksums": 2, "decoding": 4}, {"copying_ns": 3}, "reading"),
        ({"reading": 5, "decoding": 4}, {"is_waiting": True}, "waiting"),
        ({"reading": 5, "decoding": 4}, {"disk_bytes": 60}, "disk"),
        ({"reading": 5, "decoding": 4}, {"disk_bytes": 40}, "reading"),
        (
            {"reading": 5, "decoding": 4},
            {"disk_bytes": 60, "file_bytes_per_s": 9},
            "reading",
        ),
    ],
)
def test_the_most_expensive_stage_is_the_bottleneck(
    own: dict[str, float], others: dict[str, Any], expected: str
) -> None:
    disk_bytes = others.pop("disk_bytes", 0)
    first = FirstRead({"a": 100}, seconds=10.0, disk_bytes=disk_bytes)
    lines = [bench.Line(name, ns, ns, 0.1, 1.0) for name, ns in own.items()]
    options = {"is_waiting": False, "file_bytes_per_s": 11, "copying_ns": 1} | others
    assert bench._bottleneck(first, lines, **options) == expected
    assert expected in bench._HINTS


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


# With TensorFlow.


@pytest.mark.oracle
@pytest.mark.parametrize("form", PACKS)
def test_tf_data_is_measured(
    write: Write, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    pytest.importorskip("tensorflow")
    found = report(write(PACKS[form](FILE)))
    assert found["tf_data_missing"] == ""
    assert "tf.data, 1 thread" in found["tf_data"]
    assert all(value > 0 for value in found["tf_data"].values())


@pytest.mark.oracle
def test_tf_data_reads_the_same_columns(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    pytest.importorskip("tensorflow")
    from fastrec.cli import tf_data

    record = sequence({b"n": ("int64", [3])}, {b"steps": [("int64", [1, 2])] * 5})
    ds = fr.open(write(tfrecord_file([record] * 7)))
    batches = tf_data.make_batches(ds, 7, batch_size=4, n_threads=1)
    context, lists, _ = next(batches)
    assert context["n"].numpy().tolist() == [3] * 4
    assert lists["steps"].shape[0] == 4

    ds = fr.open(write(FILE))
    batches = tf_data.make_batches(ds, N, batch_size=256, n_threads=2)
    expected = ds[0:256]
    batch = next(batches)
    assert batch["n"].numpy().tolist() == np.asarray(expected["n"]).tolist()
    assert batch["image"].numpy().tolist() == expected["image"].tolist()
