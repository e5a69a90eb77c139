"""Run a campaign: a promise of docs/robustness.md, tried many times.

    python tests/support/campaigns.py list
    python tests/support/campaigns.py run flips cuts        # as often as by default
    python tests/support/campaigns.py run flips --runs 1000 --seed 7 --no-record

A campaign is a command that fails if its promise breaks. One that succeeds is recorded
in docs/campaigns.json, and the table of docs/robustness.md is made from that file.
The last line that a program prints is a JSON object: ``runs`` that were done, and
further figures. Of the last line of pytest, the number of tests is recorded.
"""

from __future__ import annotations

import argparse
import dataclasses
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

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "campaigns.json"
PAGE = ROOT / "docs" / "robustness.md"
BEGIN, END = "<!-- campaigns: begin -->", "<!-- campaigns: end -->"


@dataclasses.dataclass(frozen=True)
class Campaign:
    """A promise, and the command that tries it."""

    name: str
    promise: str
    command: str
    """``{python}``, ``{runs}`` and ``{seed}`` are filled in."""
    runs: int
    """By default."""
    unit: str
    """What is counted."""


def tests(name: str, promise: str, selection: str, runs: int, unit: str) -> Campaign:
    """Return a campaign of tests that repeat themselves FASTREC_TEST_RUNS times."""
    command = (
        "env FASTREC_TEST_RUNS={runs} FASTREC_TEST_SEED={seed} {python} -m pytest -q "
        "--timeout=0 -o faulthandler_timeout=0 -p no:cacheprovider "
        f"--hypothesis-seed={{seed}} {selection}"
    )
    return Campaign(name, promise, command, runs, unit)


def fuzz(target: str, promise: str) -> Campaign:
    """Return a campaign of a libFuzzer target."""
    command = (
        "{python} tests/support/fuzz_campaign.py --executions {runs} --seed {seed}"
    )
    return Campaign(
        f"fuzz-{target}", promise, f"{command} --targets {target}", 10_000_000, "inputs"
    )


CAMPAIGNS = [
    Campaign(
        "suite",
        "The tests pass, each once.",
        "{python} -m pytest -q -n auto -p no:cacheprovider --hypothesis-seed={seed}",
        1,
        "run of all tests",
    ),
    tests(
        "flips",
        'One flipped bit costs one record: with `on_error="resync"`, all others come '
        "back.",
        "tests/core/test_recovery.py -k flips_in_larger_files",
        200_000,
        "flips",
    ),
    Campaign(
        "damaged-files",
        "Files of Examples, SequenceExamples and other records are damaged in eleven ways, "
        "and GZIP and ZLIB streams in nine: with every error policy, order, number of "
        "threads and I/O, exactly the records come that a reader in plain Python finds, "
        "and errors and reports name the place.",
        "{python} tests/support/damaged_files.py --files {runs} --seed {seed}",
        100_000,
        "files",
    ),
    Campaign(
        "differential",
        "Generated records, valid, odd and malformed, have the columns that TensorFlow "
        "and protobuf read, or a difference that docs/semantics.md lists.",
        "{python} tests/support/differential.py --cases {runs} --seed {seed}",
        2_000_000,
        "records and batches",
    ),
    Campaign(
        "fastpath",
        "The fast decoder returns the columns or the fault of the reference decoder, on "
        "every instruction set of the CPU.",
        "{python} tests/support/fastpath_campaign.py --records {runs} --seed {seed}",
        10_000_000,
        "records",
    ),
    tests(
        "changing-files",
        "A file is shortened, overwritten, rewritten or replaced while it is read, mapped "
        "and by pread: no value that was never in the file is delivered.",
        "tests/core/test_changing_files.py -k no_disturbance",
        1_000,
        "passes in each way of reading",
    ),
    tests(
        "resume",
        "Training runs of 1 to 4 ranks in every order are cut and resumed with another "
        "number of ranks, batch size and threads: each record comes once an epoch.",
        'tests/loader/test_resume.py -k "random_training or restart_at_any"',
        600,
        "runs, and cuts of each order",
    ),
    tests(
        "forks",
        "After a fork at any moment, both processes read on.",
        "tests/loader/test_processes.py -k fork",
        200,
        "forks of each of nine kinds",
    ),
    tests(
        "exits",
        "An interpreter exits silently while loaders and threads live.",
        "tests/loader/test_processes.py -k silently",
        60,
        "exits of each kind",
    ),
    *(
        Campaign(
            f"signals-{mode}",
            f"A signal handler raises {times} in any call of loaders, Arrow streams, writers, "
            "rewriting, indexing, copying, verification and conversion: nothing is lost "
            "or repeated, files are complete or absent, and no thread, descriptor, lock "
            "or temporary file is left.",
            f"{{python}} tests/support/interrupts.py {mode} --signals {{runs}} "
            "--seed {seed}",
            50_000,
            "signals",
        )
        for mode, times in (("single", "once"), ("storm", "2 to 20 times"))
    ),
    *(
        Campaign(
            f"signals-adapters-{mode}",
            f"A signal handler raises {times} in any call of the adapters of PyTorch, JAX, "
            "Keras, Grain and polars, those that are installed: the same.",
            f"{{python}} tests/support/interrupts.py {mode} adapters --signals {{runs}} "
            "--seed {seed}",
            50_000,
            "signals",
        )
        for mode, times in (("single", "once"), ("storm", "2 to 20 times"))
    ),
    Campaign(
        "shared-objects",
        "Threads that share an iterator, a loader, a dataset, a mix, a writer or a batch "
        "get what one thread alone would get, with and without the GIL.",
        "{python} tests/support/shared_objects.py {runs} {seed}",
        10_000,
        "runs of nine situations",
    ),
    tests(
        "kills-caches",
        "`kill -9` of a process that writes indexes and expansions leaves nothing that is "
        "believed.",
        "tests/core/test_faults.py -k killed",
        200,
        "kills",
    ),
    tests(
        "kills-writers",
        "`kill -9` of a writer leaves complete files and temporary ones, from which "
        "`fastrec repair` saves the records.",
        "tests/writer/test_killed_writers.py -k kill_9",
        200,
        "kills of each of nine kinds",
    ),
    Campaign(
        "power-cut",
        "A power cut at any call of a writer or command leaves complete files under final "
        "names, and caches that are not believed, in a model of what ext4, XFS and weaker "
        "file systems may lose.",
        "{python} tests/support/power_cut.py --runs {runs} --seed {seed}",
        20_000,
        "states of a disk",
    ),
    Campaign(
        "power-cut-mounted",
        "The same when real ext4 and XFS file systems are shut down (needs root).",
        "{python} tests/support/power_cut_mounted.py --runs {runs} --seed {seed}",
        330,
        "shutdowns",
    ),
    Campaign(
        "soak",
        "Hours of epochs, plain, GZIP, remote with faults, mixed, transformed, abandoned "
        "and interrupted: every value is right, and memory grows by at most 1 %, open files "
        "and threads by none.",
        "{python} tests/support/soak.py {runs} {seed}",
        120,
        "minutes",
    ),
    fuzz(
        "framing",
        "Any bytes, as a TFRecord file: no crash, and a scan in segments finds the frames "
        "of one in one piece.",
    ),
    fuzz(
        "recovery",
        "Any bytes, as a damaged file, mapped and by pread: exactly the frames and gaps "
        "of the definition of each recovery.",
    ),
    fuzz(
        "index",
        "Any bytes, as an index file: it is used only if it belongs to its file, and all "
        "records that it gives are frames of the file.",
    ),
    fuzz(
        "stream",
        "Any bytes, as the content of a compressed file, in pieces: the frames, errors "
        "and gaps of a scan.",
    ),
    fuzz(
        "claims",
        "Any bytes, as files that an epoch reads without an index: each step has the "
        "records of a plain walk.",
    ),
    fuzz(
        "example",
        "Any bytes, as `tf.train.Example`s: no crash, consistent columns, and the fast "
        "path agrees with the reference decoder.",
    ),
    fuzz("sequence", "The same for `tf.train.SequenceExample`s."),
    fuzz("schema", "The same for any schema, and records of it."),
    fuzz(
        "tensor",
        "Any bytes, as a TensorProto: the same values in every form and in a column.",
    ),
    fuzz(
        "plan",
        "Records in the form of writers, and nearly: all plan kernels and the learned "
        "fast path agree with the reference decoder.",
    ),
    fuzz(
        "encode",
        "Any rows: decoding what the encoders write gives back every bit, and both "
        "encoders write the same bytes.",
    ),
    fuzz("crc32c", "Any bytes and cuts: all checksum kernels agree."),
    fuzz("varint", "Any bytes and counts: all varint kernels agree."),
]


def named(name: str, campaigns: Iterable[Campaign] = CAMPAIGNS) -> Campaign:
    """Return the campaign with a name."""
    for campaign in campaigns:
        if campaign.name == name:
            return campaign
    sys.exit(f"no campaign is named {name}; see: campaigns.py list")


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
    changed = said("git", "status", "--porcelain", "--", "src", "tests")
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


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("list", help="print all campaigns and their commands")
    commands.add_parser("page", help="write the table of the page again")
    runner = commands.add_parser("run", help="run campaigns, and record their results")
    runner.add_argument("names", nargs="+", metavar="NAME")
    runner.add_argument(
        "--runs", type=int, help="how often; each campaign has a default"
    )
    runner.add_argument(
        "--share", type=float, default=1, help="this share of the default number"
    )
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--no-record", dest="record", action="store_false")
    options = parser.parse_args()
    if options.command == "list":
        for campaign in CAMPAIGNS:
            print(f"{campaign.name} ({campaign.runs:,} {campaign.unit})")
            print(f"    {campaign.promise}\n    {campaign.command}")
    elif options.command == "page":
        write_page()
    else:
        for campaign in [named(name) for name in options.names]:
            runs = options.runs or max(1, round(options.share * campaign.runs))
            done = run(campaign, runs, options.seed)
            print(json.dumps(done), flush=True)
            if options.record:
                record(done)


if __name__ == "__main__":
    main()
