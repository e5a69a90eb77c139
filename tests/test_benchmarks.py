"""benchmarks/compare.py, which tells whether a change made fastrec slower, and run.py.

Goal
    A fall beyond the noise of the two runs fails, and so does a row that is gone; less
    than that, and gains, do not. What a smoke test or a missing peer gives is no figure.
    The chart and the text of the README have the ratios of docs/performance.md.
Method
    Results written by hand; compare.py runs as users run it. Nothing is timed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def row(rate: float, spread: float = 0.02, **other: Any) -> dict[str, Any]:
    found = {"workload": "tabular", "order": "sequential", "threads": 1}
    return {**found, "peer": "fastrec", "records_per_s": rate, "spread": spread} | other


def missing(**other: Any) -> dict[str, Any]:
    found = row(0, status="missing", **other)
    del found["records_per_s"]
    return found


def compare(
    folder: Path,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    *options: str,
    quick: bool = False,
) -> subprocess.CompletedProcess[str]:
    paths = [folder / "before.json", folder / "after.json"]
    for path, rows in zip(paths, (before, after), strict=True):
        path.write_text(json.dumps({"quick": quick, "rows": rows}))
    command = [sys.executable, str(BENCHMARKS / "compare.py"), *options]
    return subprocess.run(
        [*command, *map(str, paths)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("after", "spread", "status", "verdict"),
    [
        pytest.param(100.0, 0.02, 0, "same", id="equal"),
        pytest.param(96.5, 0.02, 0, "same", id="within-both-spreads"),
        pytest.param(95.5, 0.02, 1, "REGRESSION", id="beyond-both-spreads"),
        pytest.param(75.0, 0.2, 0, "same", id="within-wide-spreads"),
        pytest.param(97.5, 0.0, 0, "same", id="within-the-floor"),
        pytest.param(96.5, 0.0, 1, "REGRESSION", id="beyond-the-floor"),
        pytest.param(120.0, 0.02, 0, "faster", id="gain"),
    ],
)
def test_a_fall_beyond_the_noise_fails(
    tmp_path: Path, after: float, spread: float, status: int, verdict: str
) -> None:
    done = compare(tmp_path, [row(100.0, spread)], [row(after, spread)])

    assert done.returncode == status, done.stderr
    assert done.stdout.split()[-1] == verdict


def test_one_fallen_row_among_others_fails(tmp_path: Path) -> None:
    before = [row(100.0), row(100.0, order="shuffled"), row(100.0, threads=2)]
    after = [row(100.0), row(50.0, order="shuffled"), row(100.0, threads=2)]

    done = compare(tmp_path, before, after)

    assert done.returncode == 1
    verdicts = {tuple(line.split()[1:3]): line for line in done.stdout.splitlines()}
    assert "REGRESSION" in verdicts["shuffled", "1"]
    assert done.stdout.count("REGRESSION") == 1


def test_a_row_that_is_gone_fails(tmp_path: Path) -> None:
    before = [row(100.0), row(100.0, workload="images")]

    done = compare(tmp_path, before, [row(100.0), missing(workload="images")])

    assert done.returncode == 1
    assert "no longer measured" in done.stdout


def test_relative_rates_forgive_a_slower_day_and_no_regression(tmp_path: Path) -> None:
    before = [row(100.0), row(10.0, peer="tf.data:batch")]
    slow_day = [row(50.0), row(5.0, peer="tf.data:batch")]
    slower = [row(50.0), row(10.0, peer="tf.data:batch")]

    assert compare(tmp_path, before, slow_day).returncode == 1
    assert compare(tmp_path, before, slow_day, "--relative").returncode == 0
    assert compare(tmp_path, before, slower, "--relative").returncode == 1


def test_rows_of_other_peers_do_not_count(tmp_path: Path) -> None:
    before = [row(100.0), row(100.0, peer="memcpy")]

    assert compare(tmp_path, before, [row(100.0)]).returncode == 0
    assert compare(tmp_path, before, [row(100.0)], "--peer", "memcpy").returncode == 2


def test_figures_of_a_smoke_test_are_refused(tmp_path: Path) -> None:
    done = compare(tmp_path, [row(100.0)], [row(100.0)], quick=True)

    assert done.returncode == 2
    assert "--quick" in done.stderr


def test_a_reader_is_verified_before_it_is_timed(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--starts"]
    options = ["--workloads", "sequence", "--peers", "fastrec", "--threads", "1"]
    run = [*command, *options, "--data", str(tmp_path / "data")]
    result = tmp_path / "result.json"
    first = subprocess.run(
        [*run, "--json", str(result)], capture_output=True, text=True, check=False
    )
    assert first.returncode == 0, first.stderr
    assert [r["order"] for r in json.loads(result.read_text())["rows"]] == [
        "sequential",
        "shuffled",
    ]

    # Two files change places: the same records, but not those of the truth's order.
    one, two = sorted((tmp_path / "data").rglob("*.tfrecord"))[:2]
    held = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(held)
    other = subprocess.run(
        [*run, "--orders", "sequential"], capture_output=True, text=True, check=False
    )

    assert other.returncode == 1
    assert "failed: MismatchError" in other.stdout


def test_a_peer_that_cannot_be_compiled_is_missing(tmp_path: Path) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from peers import limit
from peers.reader import MissingPeerError
try:
    limit.compiled()
except MissingPeerError as error:
    print(error)
"""
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, BENCHMARKS],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("needs a C++ compiler"), done.stderr


def test_the_chart_of_the_readme_shows_the_table_of_the_docs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, BENCHMARKS / "chart.py", tmp_path], check=True)
    for theme in ("light", "dark"):
        chart = f"speed-{theme}.svg"
        committed = ROOT / "docs/_static" / chart
        drawn = (tmp_path / chart).read_text("utf-8")
        assert committed.read_text("utf-8") == drawn, "run benchmarks/chart.py"
    ratios = [float(ratio) for ratio in re.findall(r">([\d.]+)x<", drawn)]
    claim = f"{min(ratios):.0f} to {max(ratios):.0f} times"
    for page in ("README.md", "docs/index.md"):
        assert claim in (ROOT / page).read_text("utf-8"), page
