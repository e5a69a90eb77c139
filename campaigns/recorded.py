"""Runs of campaigns, their results in docs/campaigns.json, and the page that shows them.

A campaign is a command that fails if its promise breaks. One that succeeds is recorded
in docs/campaigns.json, and the table of docs/robustness.md is made from that file.
The last line that a program prints is a JSON object: ``runs`` that were done, and
further figures. Of the last line of pytest, the number of tests is recorded.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from campaigns import ROOT
from campaigns.catalog import CAMPAIGNS, Campaign, named

RESULTS = ROOT / "docs" / "campaigns.json"
PAGE = ROOT / "docs" / "robustness.md"
BEGIN, END = "<!-- campaigns: begin -->", "<!-- campaigns: end -->"


def run(campaign: Campaign, runs: int, seed: int) -> dict[str, Any]:
    """Run a campaign that must succeed; return what to record."""
    command = campaign.command.format(python=sys.executable, runs=runs, seed=seed)
    begin, at = time.monotonic(), commit()
    done = subprocess.run(
        shlex.split(command), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.stdout.write(done.stdout)
        sys.exit(f"{campaign.name} failed with status {done.returncode}: {command}")
    *_, last = done.stdout.splitlines() or [""]
    figures = json.loads(last) if last.startswith("{") else {"runs": runs}
    if passed := re.search(r"(\d+) passed", last):
        figures["tests"] = int(passed[1])
    # A campaign that resumed reports the seconds of all its runs.
    seconds = figures.pop("seconds", seconds)
    runs = figures.pop("runs")
    return result(campaign.name, runs, seed, seconds, at, **figures)


def result(
    name: str, runs: int, seed: int, seconds: float, at: str, **figures: object
) -> dict[str, Any]:
    """Return what to record of a campaign that ends now and began at a commit."""
    return {
        "name": name,
        "runs": runs,
        "seed": seed,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": at,
        "runtime": python(),
        "machine": f"{os.cpu_count()} CPUs, {cpu()}",
        "seconds": round(seconds),
        **figures,
    }


def commit() -> str:
    """Return the commit of the checkout, with a + if sources or tests differ from it."""
    head = said("git", "log", "-1", "--format=%h")
    changed = said("git", "status", "--porcelain", "--", "src", "tests", "campaigns")
    return head + "+" if changed else head


def python() -> str:
    """Return the name of this Python; that of a free-threaded one ends in t."""
    has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
    return f"Python {platform.python_version()}{'' if has_gil else 't'}"


def cpu() -> str:
    """Return the name of the CPU."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except FileNotFoundError:  # only Linux has it
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def said(*command: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def record(
    recorded: dict[str, Any], results: Path = RESULTS, page: Path = PAGE
) -> None:
    """Replace the result of the same campaign and runtime, and write the page."""
    kept = [old for old in read(results) if key(old) != key(recorded)]
    kept = sorted([*kept, recorded], key=key)
    lines = ",\n".join(json.dumps(entry) for entry in kept)
    results.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    write_page(results, page)


def read(results: Path) -> list[dict[str, Any]]:
    """Return the recorded results."""
    found: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    return found


def key(recorded: dict[str, Any]) -> tuple[int, str]:
    """Return what has one result, the latest: a campaign and Python 3.X, or compiler."""
    names = [campaign.name for campaign in CAMPAIGNS]
    return names.index(recorded["name"]), minor(recorded["runtime"])


def minor(runtime: str) -> str:
    """Return a runtime without its patch version."""
    return re.sub(r"(\d+\.\d+)\.\d+", r"\1", runtime)


def table(results: Iterable[dict[str, Any]]) -> str:
    """Return the Markdown table of the results, in the order of the campaigns."""
    lines = [
        "| `run` | promise | tried | seed | when and on what | took |",
        "|---|---|---|---|---|---|",
    ]
    described = result("", 0, 0, 0, "")
    shown = ""
    for entry in sorted(results, key=key):
        campaign = named(entry["name"])
        figures = [
            f"{value:,} {name.replace('_', ' ')}"
            for name, value in entry.items()
            if name not in described
        ]
        tried = "; ".join([f"{entry['runs']:,} {campaign.unit}", *figures])
        where = f"{entry['date']}, `{entry['commit']}`, {entry['runtime']}"
        described_above = entry["name"] == shown
        shown = entry["name"]
        cells = [
            *(("", "") if described_above else (f"`{shown}`", campaign.promise)),
            tried,
            str(entry["seed"]),
            where,
            duration(entry["seconds"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def duration(seconds: int) -> str:
    """Return a duration for people."""
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def write_page(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Replace the table of the page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    text = f"{before}{BEGIN}\n\n{table(read(results))}\n\n{END}{after}"
    page.write_text(text, encoding="utf-8")
