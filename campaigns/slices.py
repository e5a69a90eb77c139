"""Add up a long campaign from slices, each on another instruction set of the CPU.

A slice is a number: with the campaign's seed it decides what is tried, so any slice can
be repeated alone. Its counts are appended to a file in build/campaigns. The same command
resumes a campaign that was stopped, unless the sources of what it tries have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from campaigns import ROOT
from fastrec import _core

RESULTS = ROOT / "build" / "campaigns"

Counts = dict[str, int]


def digest(folders: Sequence[str]) -> str:
    """Return a digest of all sources in some folders of the checkout."""
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".py"}:
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


def run_with(isa: str, command: Sequence[str | Path], **variables: object) -> str:
    """Run a slice with an instruction set and variables; return its output.

    A slice that fails ends the campaign, after its own output.
    """
    added = {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **added, "FASTREC_ISA": isa},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        settings = " ".join(f"{name}={text}" for name, text in added.items())
        words = " ".join(map(str, command))
        sys.exit(
            f"{done.stdout}\nstatus {done.returncode}; to repeat it, run\n"
            f"    {settings} FASTREC_ISA={isa} {words}"
        )
    return done.stdout


def add_slices(
    name: str,
    folders: Sequence[str],
    runs: int,
    run_slice: Callable[[int, str], Counts],
) -> Counter[str]:
    """Run slices until their counts of ``runs`` reach `runs`, and return all counts."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}-{digest(folders)}.jsonl"
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    isas = _core.isas()
    total: Counter[str] = Counter()
    number = 0
    while total["runs"] < runs:
        if number < len(known):
            isa, counts = json.loads(known[number])
        else:
            isa = isas[number % len(isas)]
            counts = run_slice(number, isa)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([isa, counts]) + "\n")
        total.update(counts)
        total[f"with {isa}"] += counts["runs"]
        sys.stdout.write(f"slice {number}, {isa}: {total['runs']:,} runs\n")
        sys.stdout.flush()
        number += 1
    return total


def finish(total: Counter[str], *names: str) -> None:
    """Print all counts, and as the last line those that the results file holds."""
    sys.stdout.writelines(f"{n:12,} {name}\n" for name, n in total.most_common())
    n_isas = sum(name.startswith("with ") for name in total)
    figures = {name: total[name] for name in ("runs", *names)}
    sys.stdout.write(json.dumps({**figures, "instruction_sets": n_isas}) + "\n")
