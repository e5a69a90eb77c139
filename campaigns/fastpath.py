"""Compare the fast decoder with the reference decoder on generated records.

    python -m campaigns.fastpath --records 10000000 --seed 0

The comparison is the C++ test FastPath.GivesWhatTheReferenceGives. One run of it is 64
records with one schema, read in order both ways. Its runs are numbered: run n of the
campaign with seed s is FASTREC_TEST_RUNS=1 FASTREC_TEST_SEED=(s * 2^32 + n).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from campaigns import ROOT
from campaigns.slices import add_slices, finish, run_with

RECORDS_OF_RUN = 64
RUNS_OF_SLICE = 2000
TESTED = [f"src/cpp/{room}" for room in ("base", "wire", "batch", "decode")]


def built() -> Path:
    """Build the C++ tests, and return their program."""
    for step in (["--preset", "default"], ["--build", "--preset", "default"]):
        subprocess.run(["cmake", *step], cwd=ROOT, check=True)
    return ROOT / "build" / "default" / "fastrec_test"


def main() -> None:
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", type=Path, help="fastrec_test, if it is built")
    options = parser.parse_args()
    program = options.program.resolve() if options.program else built()

    def run_slice(number: int, isa: str) -> dict[str, int]:
        said = run_with(
            isa,
            [program, "--gtest_filter=FastPath.GivesWhatTheReferenceGives"],
            FASTREC_TEST_RUNS=RUNS_OF_SLICE,
            FASTREC_TEST_SEED=(options.seed << 32) + number * RUNS_OF_SLICE,
        )
        if "[  PASSED  ] 1 test." not in said:
            sys.exit(f"{program} has no such test: {said}")
        return {"runs": RUNS_OF_SLICE * RECORDS_OF_RUN}

    finish(add_slices(f"fastpath-{options.seed}", TESTED, options.records, run_slice))


if __name__ == "__main__":
    main()
