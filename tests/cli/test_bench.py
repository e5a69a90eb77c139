"""``fastrec bench``: the time of each stage, and the verdict.

Goal
    Every stage reads the same records, plain or compressed, once per pass. Results are
    printed as text and as JSON. Files that cannot be measured are a one-line error. The
    verdict follows the times, noise does not change it, and that of a busy machine is
    provisional.
Method
    Small files and the time of two rounds; no test depends on timing. Verdicts are tested
    on invented times.
"""

from __future__ import annotations

import gzip
import json
import re
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
from columns import Write
from fastrec.cli import costs
from fastrec.cli.app import app
from fastrec.cli.costs import Sample
from fastrec.cli.verdict import TIE, Timing, busy_reason, own_shares, verdict_of
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
    stages = ["read", "+ inflate", "+ checksums", "+ decode"]
    if form == "plain":
        stages.remove("+ inflate")
    assert [start for start in starts if start in stages] == stages
    assert "all, num_threads=1" in starts
    assert "memcpy of the same bytes" in starts
    assert ("\nverdict: " in out) != ("\nprovisional verdict: " in out)


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
    rows = [*found["stages"], *found["threads"], found["memcpy"]]
    for row in rows:
        assert row["wall_ns"] > 0
        assert row["records_per_s"] == pytest.approx(1e9 / row["wall_ns"])
        assert row["mb_per_s"] == pytest.approx(
            row["records_per_s"] * len(FILE) / N / 1e6
        )
    assert found["verdict"]["text"]


def test_threads_are_measured_up_to_the_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.cli.bench.default_num_threads", lambda: 6)
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
    assert "+ deliver" in starts
    assert "+ decode" not in starts
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
    timing = costs.measure({"stage": slow_at_first}, 112).timings["stage"]
    assert (timing.wall_ns, timing.cpu_ns, timing.spread) == (2e9, 1e9, 0)
    assert timing.records_per_s == 0.5


def test_times_are_the_least_of_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    durations = [2, 4, 2, 3, 2.5]  # at least a sixth of the time

    def varying() -> Generator[float]:
        now[0] += durations.pop(0)
        yield 1

    monkeypatch.setattr("fastrec.cli.costs.perf_counter", lambda: now[0])
    monkeypatch.setattr("fastrec.cli.costs.process_time", lambda: now[0])
    timing = costs.measure({"stage": varying}, 12).timings["stage"]
    assert timing.wall_ns == 2e9
    assert timing.spread == pytest.approx(2.75 / 2 - 1)


def test_a_pass_ends_after_its_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def endless() -> Generator[float]:
        while True:
            now[0] += 1
            yield 2

    monkeypatch.setattr("fastrec.cli.costs.perf_counter", lambda: now[0])
    found = costs.measure({"a": endless, "b": endless}, 80).timings
    assert found["a"].wall_ns == found["b"].wall_ns == 0.5e9
    assert now[0] < 120


def test_the_cost_of_a_stage_is_a_difference() -> None:
    found = {
        "read": Timing(4, 2),
        "checksums": Timing(4, 1),  # noise: the difference is at least 0
        "decode": Timing(20, 10),
    }
    assert own_shares(found) == pytest.approx(
        {"read": 0.2, "checksums": 0.0, "decode": 0.8}
    )


# The verdict.

IDLE = {0: Timing(100, 100), 1: Timing(60, 105), 2: Timing(55, 110)}


def stages_of(**cpu_ns: float) -> dict[str, Timing]:
    """Return cumulative times, from the CPU time of each stage alone."""
    total, stages = 0.0, {}
    for name, own in cpu_ns.items():
        total += own
        stages[name] = Timing(total, total)
    return stages


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"read": 50, "checksums": 20, "decode": 30}, "read"),
        ({"read": 10, "checksums": 20, "decode": 70}, "decode"),
        ({"read": 5, "inflate": 60, "checksums": 5, "decode": 30}, "inflate"),
        ({"read": 10, "checksums": 60, "decode": 30}, "checksums"),
        ({"read": 10, "checksums": 20, "deliver": 70}, "deliver"),
        ({"read": 10, "checksums": 43, "decode": 47}, TIE),
        ({"read": 50, "checksums": 0, "decode": 50}, TIE),
    ],
)
def test_the_verdict_names_the_most_expensive_stage(
    own: dict[str, float], expected: str
) -> None:
    assert verdict_of(stages_of(**own), IDLE).stage == expected


@pytest.mark.parametrize(
    ("wall_ns", "expected"),
    [
        ([100, 60, 35], 2),
        ([100, 60, 58], 1),  # a tie: fewer threads leave CPUs to the model
        ([100, 95, 97], 0),
        ([100, 120, 150], 0),  # threads made it slower
        ([100, 50, 80], 1),
        ([100], 0),
    ],
)
def test_the_verdict_recommends_the_fewest_threads_that_help(
    wall_ns: list[float], expected: int
) -> None:
    loaders = {n: Timing(wall, 100) for n, wall in enumerate(wall_ns)}
    verdict = verdict_of(stages_of(read=10, decode=90), loaders)
    assert verdict.num_threads == expected
    if expected:
        gain = wall_ns[0] / wall_ns[expected]
        assert f"num_threads={expected} is {gain:.1f} times as fast" in verdict.advice
    else:
        assert "threads do not make it faster" in verdict.advice


def test_noise_does_not_change_the_verdict() -> None:
    rng = np.random.default_rng(0)

    def noisy(timing: Timing) -> Timing:
        wall, cpu = timing[:2] * rng.uniform(1, 1.04, 2)
        return Timing(float(wall), float(cpu), float(rng.uniform(0, 0.2)))

    stages = stages_of(read=15, checksums=15, decode=70)
    found = {
        verdict_of(
            {name: noisy(timing) for name, timing in stages.items()},
            {n: noisy(timing) for n, timing in IDLE.items()},
        )[:2]
        for _ in range(1000)
    }
    assert len({stage for stage, _ in found}) == 1


QUIET: Any = {"spread": 0.1, "free_cpus": 1.9, "num_threads": 2, "disk_share": 0.0}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ""),
        ({"free_cpus": 0.9}, "other processes leave 0.9 CPUs for num_threads=2"),
        ({"free_cpus": 0.9, "num_threads": 1}, ""),
        ({"spread": 0.4}, "rounds of the same work differ by 40%"),
        ({"disk_share": 0.5}, "the files do not stay in the page cache"),
    ],
)
def test_a_busy_machine_is_noticed(changed: dict[str, Any], expected: str) -> None:
    assert busy_reason(Timing(101, 100), **QUIET | changed) == expected


def test_waiting_for_a_cpu_is_noticed() -> None:
    reason = busy_reason(Timing(200, 100), **QUIET)
    assert reason == "one thread had a CPU for only 50% of the time"


@pytest.mark.parametrize("reason", ["", "other processes use the CPUs"])
def test_a_busy_machine_gets_a_provisional_verdict(
    write: Write, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr("fastrec.cli.bench.busy_reason", lambda *_, **__: reason)
    path = write(FILE)
    out, found = run(path), report(path)
    assert ("\nprovisional verdict: " in out) == bool(reason)
    uncertain = (
        r"times are uncertain by up to \d+%, because other processes use the CPUs"
    )
    assert bool(re.search(uncertain, out)) == bool(reason)
    assert ("\nverdict: " in out) == (not reason)
    assert found["verdict"]["text"]


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
