"""Measure packed int64 lists in ns per value: by instruction set, and memcpy.

A cell is `fastrec.parse_example` of records with one packed list, including the search
for the list in each record. A process chooses its instruction set once, so each has a
separate process; they run in turn. Each also copies its output, for comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import encode
import fastrec as fr
from environment import describe, usable_cpus
from fastrec import _core

__all__: list[str] = []

N_RECORDS = 256
LAYOUTS = ("fixed", "ragged")

Values = NDArray[np.int64]
Result = dict[str, dict[str, float]]


def distributions(length: int) -> dict[str, Values]:
    """Return lists like those of real files, with a fixed seed."""
    rng = np.random.default_rng(0)
    size = (N_RECORDS, length)
    weights = 1 / np.arange(1, 50_001)
    tokens = rng.integers(0, 32_000, size)
    return {
        "all < 128": rng.integers(0, 128, size),
        "tokens, 32k uniform": tokens,
        "tokens, Zipf 50k": rng.choice(50_000, size, p=weights / weights.sum()),
        "tokens, 128k uniform": rng.integers(0, 128_000, size),
        "log-uniform, 1 to 4 bytes": (2 ** rng.uniform(0, 28, size)).astype(np.int64),
        "ids below 2^40": rng.integers(0, 2**40, size),
        "random 64 bits": rng.integers(-(2**63), 2**63, size),
        "tokens and 20 % -1": np.where(rng.random(size) < 0.2, -1, tokens),
    }


def fastest(work: Callable[[], object], repeat: int) -> float:
    """Return the seconds of the fastest of `repeat` calls."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(name: str, values: Values, dtype: str, repeat: int) -> dict[str, float]:
    """Verify the values, and return the ns per value in this process."""
    cells = encode.example([encode.int64_feature("a", encode.varints(values))])
    rows = zip(cells.data, cells.keep, strict=True)
    records = fr.BytesArray.from_list([row[keep].tobytes() for row, keep in rows])
    ns = {"bytes": int(cells.keep.sum()) / values.size}
    specs: list[Any] = [fr.FixedLen((values.shape[1],), dtype), fr.VarLen(dtype)]
    for layout, spec in zip(LAYOUTS, specs, strict=True):
        schema = fr.Schema({"a": spec})

        def parse(schema: fr.Schema = schema) -> Any:
            return fr.parse_example(records, schema)["a"]

        column = parse()
        if not np.array_equal(getattr(column, "values", column).ravel(), values.flat):
            sys.exit(f"{name}: wrong values")
        del column
        ns[layout] = fastest(parse, repeat) / values.size * 1e9
    source = values.astype(dtype)
    target = np.empty_like(source)
    seconds = fastest(lambda: np.copyto(target, source), repeat)
    ns["memcpy"] = seconds / values.size * 1e9
    return ns


def results(isa: str, options: list[str]) -> Result:
    """Run a process with this instruction set, and return its results."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", *options],
        env={**os.environ, "FASTREC_ISA": isa},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: Result = json.loads(done.stdout)
    return found


def markdown(rounds: dict[str, list[Result]], layout: str) -> str:
    """Print a line per list, and a column per instruction set."""
    lines = [["values", "bytes a value", *rounds, "memcpy"]]
    lines.append(["---", *["---:"] * (len(rounds) + 2)])

    def median(isa: str, values: str, key: str) -> float:
        return statistics.median(result[values][key] for result in rounds[isa])

    for values in rounds["portable"][0]:
        portable = median("portable", values, layout)
        line = [values, f"{median('portable', values, 'bytes'):.2f}"]
        for isa in rounds:
            ns = median(isa, values, layout)
            line.append(f"{ns:.2f} ({portable / ns:.1f}x)")
        copied = [median(isa, values, "memcpy") for isa in rounds]
        lines.append([*line, f"{statistics.median(copied):.2f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure on one CPU, and print a table for each layout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1024, help="values per record")
    parser.add_argument("--dtype", default="int64", choices=("int64", "int32"))
    parser.add_argument(
        "--rounds", type=int, default=5, help="processes per instruction set"
    )
    parser.add_argument(
        "--repeat", type=int, default=50, help="calls; the fastest counts"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a smoke test, no result")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.rounds = args.repeat = 1
    cpus = usable_cpus()
    if cpus:
        os.sched_setaffinity(0, cpus[-1:])
    if args.child:
        found = {
            name: measure(name, values, args.dtype, args.repeat)
            for name, values in distributions(args.length).items()
            if np.array_equal(values, values.astype(args.dtype))
        }
        print(json.dumps(found))
        return

    environment = describe()
    options = ["--length", str(args.length), "--dtype", args.dtype]
    options += ["--repeat", str(args.repeat)]
    rounds: dict[str, list[Result]] = defaultdict(list)
    for _ in range(args.rounds):
        for isa in _core.isas():
            rounds[isa].append(results(isa, options))
    for layout in LAYOUTS:
        print(f"ns a value (times faster than portable), {layout}:\n")
        print(f"{markdown(rounds, layout)}\n")
    for key, value in environment.items():
        print(f"- {key}: {value}")
    if args.json:
        result = {"environment": environment, "quick": args.quick, "rounds": rounds}
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
