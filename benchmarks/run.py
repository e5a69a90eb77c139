"""Measure fastrec and its peers: verify, time, and print Markdown tables.

Peers run in the environments that install.py creates, if they exist.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from environment import describe, usable_cpus
from install import default_environments, interpreters
from peers import SCALES, default_peers
from plot import draw
from protocol import Plan, Row, Start, measure, measure_starts
from table import markdown, starts_markdown
from workloads import WORKLOADS, default_data, prepare

__all__: list[str] = []

QUICK_SCALE, SHORT_SCALE = 1 / 64, 1 / 8
ORDERS = ("sequential", "shuffled")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS]
    )
    parser.add_argument("--peers", nargs="+", metavar="PEER[:FORM]", help="not all")
    n_cpus = len(usable_cpus()) or 1
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=[*ORDERS])
    parser.add_argument(
        "--threads", nargs="+", type=int, default=sorted({1, n_cpus}), help="1 and all"
    )
    parser.add_argument(
        "--starts",
        nargs="*",
        choices=WORKLOADS,
        default=["tabular", "images"],
        metavar="WORKLOAD",
        help="workloads whose import time, first batch and memory are measured",
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds, at least 5")
    parser.add_argument(
        "--min-s", type=float, default=0.5, help="seconds per repetition"
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of records"
    )
    parser.add_argument(
        "--data", type=Path, default=default_data(), help="cache of files"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=default_environments(),
        help="directory of install.py",
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--plot", type=Path, help="also plot the ratios (PNG, SVG)")
    parser.add_argument(
        "--python",
        nargs="+",
        metavar="PEER=PATH",
        default=[],
        help="interpreters of peers that install.py did not install",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="1/8 of the records, 0.1 s per repetition, shuffled only on all CPUs",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny files, one round: a smoke test, no result",
    )
    args = parser.parse_args()
    if args.repeat < 5:
        parser.error(
            "rounds must be at least 5 to measure the spread; use --quick for a smoke test"
        )
    if args.short:
        args.scale, args.min_s = SHORT_SCALE, 0.1
    if args.quick:
        args.scale, args.repeat, args.min_s = QUICK_SCALE, 1, 0.0
    return args


def main() -> int:
    """Run all measurements; fail if a reader delivered wrong values."""
    args = parse()
    pythons = interpreters(args.environments)
    pythons |= dict(entry.split("=", 1) for entry in args.python)
    plan = Plan(
        args.data, args.scale, args.batch_size, args.repeat, args.min_s, pythons
    )
    environment = describe()
    rows: list[Row] = []
    starts: list[Start] = []
    for name in args.workloads:
        prepare(WORKLOADS[name], args.data, args.scale)
        for order in args.orders:
            for threads in args.threads:
                if args.short and order == "shuffled" and threads < max(args.threads):
                    continue
                what = f"{name}, {order}, {threads} thread(s) ..."
                print(what, file=sys.stderr, flush=True)
                peers = args.peers or default_peers(name, threads)
                rows += measure(plan, name, order, threads, peers)
    for name in args.starts:
        prepare(WORKLOADS[name], args.data, args.scale)
        print(f"{name}, starts ...", file=sys.stderr, flush=True)
        peers = args.peers or default_peers("", 1)
        readers = [peer for peer in peers if peer not in SCALES]
        rounds = min(3, args.repeat)
        starts += measure_starts(plan, name, max(args.threads), readers, rounds)
    print(markdown(rows))
    print()
    print(starts_markdown(starts))
    print()
    for key, value in environment.items():
        print(f"- {key}: {value}")
    versions = {name: v for row in rows for name, v in row.versions.items()}
    print(f"- versions: {versions}")
    if args.json:
        result = {
            "environment": environment | {"versions": versions},
            "quick": args.quick,
            "rows": [row.as_json() for row in rows],
            "starts": [asdict(start) for start in starts],
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    if args.plot:
        draw([row.as_json() for row in rows], args.plot)
    return int("failed" in [row.status for row in rows] + [s.status for s in starts])


if __name__ == "__main__":
    sys.exit(main())
