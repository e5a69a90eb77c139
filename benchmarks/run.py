"""Measure fastrec beside its peers: verify, time, and print a Markdown table."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from environment import describe
from peers import DEFAULT
from protocol import Plan, Row, measure
from table import markdown
from workloads import WORKLOADS, default_data, prepare

__all__: list[str] = []

QUICK_SCALE = 1 / 64


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS]
    )
    parser.add_argument("--peers", nargs="+", metavar="PEER[:FORM]", default=[*DEFAULT])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
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
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument(
        "--python",
        nargs="+",
        metavar="PEER=PATH",
        default=[],
        help="interpreters of peers that are not installed beside fastrec",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny files, one round: a smoke test, no result",
    )
    args = parser.parse_args()
    if args.repeat < 5:
        parser.error("fewer than 5 rounds show no spread; --quick is the smoke test")
    if args.quick:
        args.scale, args.repeat, args.min_s = QUICK_SCALE, 1, 0.0
    return args


def main() -> int:
    """Run everything; fail if a reader delivered something wrong."""
    args = parse()
    pythons = dict(entry.split("=", 1) for entry in args.python)
    plan = Plan(
        args.data, args.scale, args.batch_size, args.repeat, args.min_s, pythons
    )
    environment = describe()
    rows: list[Row] = []
    for name in args.workloads:
        prepare(WORKLOADS[name], args.data, args.scale)
        for threads in args.threads:
            print(f"{name}, {threads} thread(s) ...", file=sys.stderr, flush=True)
            rows += measure(plan, name, threads, args.peers)
    print(markdown(rows))
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
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row.status == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
