"""Compare two results of run.py; fail on a regression outside the measured noise.

A row is a regression if its rate fell by more than the sum of the spreads of both runs,
and by more than the floor. --relative divides the rates by those of tf.data in the same
run, to compare results of machines or days of different speed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["Change", "changes"]

Key: TypeAlias = tuple[str, str, int, str]  # Workload, order, threads, peer.


@dataclass(frozen=True)
class Change:
    """A row of both results: the rates, and their noise."""

    key: Key
    before: float
    after: float
    noise: float

    @property
    def share(self) -> float:
        """The change relative to the rate before."""
        return self.after / self.before - 1

    @property
    def verdict(self) -> str:
        """The verdict on the change, given the noise."""
        if abs(self.share) <= self.noise:
            return "same"
        return "REGRESSION" if self.share < 0 else "faster"


def rates(result: dict[str, Any], *, relative: bool) -> dict[Key, tuple[float, float]]:
    """Return rate and spread of every measured row."""
    measured = {
        (row["workload"], row["order"], row["threads"], row["peer"]): (
            row["records_per_s"],
            row["spread"],
        )
        for row in result["rows"]
        if "records_per_s" in row
    }
    if not relative:
        return measured
    found = {}
    for key, (rate, spread) in measured.items():
        rivals = [
            value
            for other, value in measured.items()
            if other[:3] == key[:3] and other[3].partition(":")[0] == "tf.data"
        ]
        if rivals:
            best, its_spread = max(rivals)
            found[key] = (rate / best, spread + its_spread)
    return found


def changes(
    before: dict[Key, tuple[float, float]],
    after: dict[Key, tuple[float, float]],
    floor: float,
) -> list[Change]:
    """Return the rows of both results, in the order of the first."""
    return [
        Change(key, rate, after[key][0], max(floor, spread + after[key][1]))
        for key, (rate, spread) in before.items()
        if key in after
    ]


def main() -> int:
    """Print the rows of both results; return 1 if there is a regression."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--peer", default="fastrec", help="peer to compare")
    parser.add_argument("--floor", type=float, default=0.03, help="minimum noise")
    parser.add_argument(
        "--relative", action="store_true", help="divide rates by those of tf.data"
    )
    args = parser.parse_args()
    results = [json.loads(path.read_text()) for path in (args.before, args.after)]
    if any(result["quick"] for result in results):
        parser.error("cannot compare results of --quick, which is a smoke test")
    before, after = (rates(result, relative=args.relative) for result in results)
    rows = [c for c in changes(before, after, args.floor) if c.key[3] == args.peer]
    lost = [key for key in before if key[3] == args.peer and key not in after]
    for change in rows:
        workload, order, threads, _ = change.key
        print(
            f"{workload:18}{order:11}{threads:3}  {change.before:12,.6g} -> {change.after:12,.6g}"
            f"  {change.share:+7.1%}  noise {change.noise:5.1%}  {change.verdict}"
        )
    for workload, order, threads, _ in lost:
        print(f"{workload:18}{order:11}{threads:3}  no longer measured")
    if not rows:
        parser.error(f"no row of {args.peer} is in both results")
    return int(bool(lost) or any(c.verdict == "REGRESSION" for c in rows))


if __name__ == "__main__":
    sys.exit(main())
