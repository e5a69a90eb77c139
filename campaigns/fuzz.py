"""Run the fuzz targets.

    python -m campaigns.fuzz --executions 10000000 --jobs 2
    python -m campaigns.fuzz --minimize

The targets are built (preset ``fuzz``: Clang, AddressSanitizer and
UndefinedBehaviorSanitizer), the canary must be found, all regression inputs must pass,
and then each target runs from its seeds, from its corpus in ``tests/cpp/corpora``, and
from what earlier campaigns added in ``build/fuzz/corpus``. The last line of the output
is a JSON object for ``python -m campaigns run``.

A campaign that was stopped resumes while the targets are the same programs. An input
that fails is left in ``build/fuzz/findings``; the other targets continue, and the exit
status is 1. ``--minimize`` replaces ``tests/cpp/corpora`` by a smallest set of inputs
with the coverage of all these inputs; no campaign may run meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from campaigns import ROOT

Command: TypeAlias = Sequence["str | Path"]

REGRESSIONS = ROOT / "tests" / "cpp" / "regressions"
CORPORA = ROOT / "tests" / "cpp" / "corpora"

INTERRUPTED = 72  # how libFuzzer ends at Ctrl-C

# Executions between updates of the account.
SLICE_EXECUTIONS = 500_000
OPTIONS = (
    "-max_len=512",
    "-entropic=0",  # its accounting costs more than what it chooses better
    "-timeout=10",
    "-detect_leaks=0",  # counts allocations; LeakSanitizer checks at the end
    "-print_final_stats=1",
    "-reload=0",  # no other process writes to the corpus
)
CANARY_EXECUTIONS = 5_000_000
# Input of the canary -> what a sanitizer must report.
CANARY_WORDS = {
    b"heap": "heap-buffer-overflow",
    b"bits": "shift exponent",
    b"leak": "LeakSanitizer",
    b"huge": "exceeds maximum supported size",
}


def main() -> int:
    """Run a campaign; the exit status is 1 if anything was found."""
    options = parse_arguments()
    build = options.build or build_targets()
    targets = find_targets(build, options.targets)
    write_seeds(build, targets)
    if options.minimize:
        for target in targets:
            minimize(build, target)
        return 0
    prove_canary(build)
    prove_regressions(targets)
    campaign = Campaign(build, options.seed)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            runs = [
                pool.submit(campaign.run_seconds, target, options.seconds)
                if options.seconds is not None
                else pool.submit(campaign.run_executions, target, options.executions)
                for target in targets
            ]
        for finished in runs:
            finished.result()
    except KeyboardInterrupt:
        campaign.stop()
        say("stopped; run the same command with --executions to resume")
        return 130
    say(f"{campaign.n_failures} targets failed")
    results = campaign.results.values()
    figures = {
        "runs": sum(account.executions for account in results),
        "edges": sum(account.edges for account in results),
        "seconds": sum(account.seconds for account in results),
        "runtime": compiler_of(build),
    }
    say(json.dumps(figures))
    return 1 if campaign.n_failures else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--executions", type=int, default=1_000_000, help="per target")
    length.add_argument("--seconds", type=int, help="per target, instead")
    parser.add_argument("--targets", nargs="*", help="by name, without _fuzz")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--build", type=Path, help="where the targets are, if built")
    parser.add_argument("--seed", type=int, default=0, help="of all mutations")
    parser.add_argument(
        "--minimize", action="store_true", help="write tests/cpp/corpora instead"
    )
    return parser.parse_args()


def build_targets() -> Path:
    """Build all targets, and return their folder."""
    run(["cmake", "--workflow", "--preset", "fuzz"])
    return ROOT / "build" / "fuzz"


def find_targets(build: Path, names: list[str] | None) -> list[Path]:
    """Return the targets with these names, by default all but the canary."""
    found = sorted(path for path in build.glob("*_fuzz") if "canary" not in path.name)
    if names:
        found = [build / f"{name}_fuzz" for name in names]
    missing = [str(path) for path in found if not path.exists()]
    if missing or not found:
        sys.exit(f"no such fuzz targets: {missing or build}")
    return found


def write_seeds(build: Path, targets: list[Path]) -> None:
    """Write the seeds of the targets, and unpack their corpora next to them."""
    seeds = build / "seeds"
    run([build / "fuzz_seeds", seeds])
    for target in targets:
        folder = seeds / target.name
        folder.mkdir(exist_ok=True)
        packed = CORPORA / f"{target.name}.zip"
        if packed.exists():
            shutil.unpack_archive(packed, folder)


def minimize(build: Path, target: Path) -> None:
    """Pack a smallest set of inputs with the coverage of all inputs of a target."""
    corpus = build / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    CORPORA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as found:
        inputs = (corpus, build / "seeds" / target.name)
        # Edges without the numbers of their executions, or the set becomes ten times as
        # large.
        cover = ("-set_cover_merge=1", "-use_counters=0")
        run([target, *OPTIONS, *cover, found, *inputs])
        kept = sorted(Path(found).iterdir())
        with zipfile.ZipFile(CORPORA / f"{target.name}.zip", "w") as packed:
            for path in kept:
                # Without a date, so that the same inputs make the same file.
                member = zipfile.ZipInfo(path.name)
                packed.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)
    say(f"{target.name:15} {len(kept):,} inputs")


def prove_canary(build: Path) -> None:
    """Check that the target with planted bugs fails, and only for these."""
    canary = build / "canary_fuzz"
    findings = build / "canary"
    findings.mkdir(exist_ok=True)
    harmless = findings / "harmless"
    harmless.write_bytes(b"harmless")
    run([canary, harmless])
    for word, sanitizer in CANARY_WORDS.items():
        spoken = findings / word.decode()
        spoken.write_bytes(word)
        done = attempt([canary, *OPTIONS, spoken])
        if done.returncode == 0 or sanitizer not in done.stderr:
            sys.exit(f"the canary said {word!r} and {sanitizer} did not hear it")
    prefix = f"-artifact_prefix={findings}/"
    done = attempt([canary, *OPTIONS, f"-runs={CANARY_EXECUTIONS}", prefix])
    if done.returncode == 0:
        sys.exit(f"the canary was not found in {CANARY_EXECUTIONS} executions")
    say("the canary was found: the fuzzer searches, and both sanitizers are on")


def prove_regressions(targets: list[Path]) -> None:
    """Run the regression inputs; a failure ends the campaign."""
    for target in targets:
        inputs = sorted((REGRESSIONS / target.name.removesuffix("_fuzz")).glob("*"))
        if inputs:
            run([target, *inputs])


@dataclasses.dataclass
class Account:
    """The results of one target."""

    program: str = ""  # which it is
    seed: int = 0
    executions: int = 0
    seconds: float = 0
    edges: int = 0
    findings: int = 0


class Campaign:
    """Runs targets, several at a time, and saves their results in a file."""

    def __init__(self, build: Path, seed: int) -> None:
        self.build = build
        self.seed = seed
        self.results: dict[str, Account] = {}
        self.n_failures = 0
        self._file = build / "campaign.json"
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._accounts: dict[str, Account] = {}
        if self._file.exists():
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            self._accounts = {
                name: Account(**fields) for name, fields in stored.items()
            }

    def stop(self) -> None:
        """Start no further runs."""
        self._stopped.set()

    def run_seconds(self, target: Path, seconds: int) -> None:
        """Run a target for a time, independent of earlier runs."""
        account = self.results[target.name] = Account()
        length = [f"-max_total_time={seconds}", f"-seed={self.seed + 1}"]
        self._run(target, account, length)

    def run_executions(self, target: Path, executions: int) -> None:
        """Run a target until its account has this many executions."""
        program = hashlib.sha256(target.read_bytes()).hexdigest()
        account = self._accounts.get(target.name, Account())
        if (account.program, account.seed) != (program, self.seed):
            account = Account(program, self.seed)
        self.results[target.name] = account
        with self._lock:
            self._accounts[target.name] = account
        while account.executions < executions:
            n = min(SLICE_EXECUTIONS, executions - account.executions)
            # 0 is libFuzzer's word for any seed. Each slice has another one.
            seed = (self.seed * 1_000_003 + account.executions) % 2**31 + 1
            if not self._run(target, account, [f"-runs={n}", f"-seed={seed}"]):
                return

    def _run(self, target: Path, account: Account, length: list[str]) -> bool:
        """Run a target once; return False if it failed or the campaign was stopped."""
        if self._stopped.is_set():
            return False
        corpus = self.build / "corpus" / target.name
        seeds = self.build / "seeds" / target.name
        findings = self.build / "findings"
        for folder in (corpus, seeds, findings):
            folder.mkdir(parents=True, exist_ok=True)
        prefix = f"-artifact_prefix={findings}/{target.name}-"
        begin = time.monotonic()
        # Leaks are on the paths of the corpus, so the first run is enough.
        done = attempt(
            [target, *OPTIONS, *length, prefix, corpus, seeds],
            detects_leaks=account.executions == 0,
        )
        with self._lock:
            account.seconds += time.monotonic() - begin
            account.executions += last_number(
                r"stat::number_of_executed_units:\s*(\d+)", done.stderr
            )
            account.edges = max(account.edges, last_number(r" cov: (\d+)", done.stderr))
            if done.returncode not in {0, INTERRUPTED}:
                self._report(target, account, done.stderr)
            self._save()
            say(
                f"{target.name:15} {account.executions:>11,} executions, "
                f"{account.seconds:>8,.0f} s, {account.edges:,} edges"
            )
        return done.returncode == 0

    def _report(self, target: Path, account: Account, output: str) -> None:
        found = re.findall(r"Test unit written to (\S+)", output)
        account.findings += len(found)
        self.n_failures += 1
        say(output[-8000:])
        say(f"{target.name} failed: {', '.join(found) or 'without an input'}")

    def _save(self) -> None:
        stored = {name: vars(account) for name, account in self._accounts.items()}
        written = self._file.with_suffix(".tmp")
        written.write_text(json.dumps(stored, indent=1), encoding="utf-8")
        written.replace(self._file)


def compiler_of(build: Path) -> str:
    """Return the compiler of the targets."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    said = attempt([found[1], "--version"]).stdout if found else ""
    version = re.search(r"(\w+) version ([\d.]+)", said)
    return f"{version[1]} {version[2]}" if version else "unknown"


def last_number(pattern: str, text: str) -> int:
    """Return the last number that `pattern` finds in `text`, or 0."""
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def attempt(
    command: Command, *, detects_leaks: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command, and capture its output."""
    # These take half of the time: stacks of allocations, which a finding has when it is
    # run again, a check that the C++ tests make (asan), and freed memory that is kept
    # for much longer than the run of one input. LeakSanitizer needs two frames of each
    # stack, and ignores allocations without them.
    options = f"malloc_context_size={2 if detects_leaks else 0}:"
    options += "detect_stack_use_after_return=0:"
    options += "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:"
    # A length read from the input must not size memory.
    options += "max_allocation_size_mb=256:allocator_may_return_null=0"
    environment = {"ASAN_OPTIONS": options, **os.environ}
    return subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
    )


def run(command: Command) -> None:
    """Run a command that must succeed."""
    done = attempt(command)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr[-8000:]}{command[0]} failed")


def say(text: str) -> None:
    """Print a line at once: a campaign is long."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
