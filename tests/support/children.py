"""Child processes of tests, with timeouts so that a hang fails the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["SECONDS_TO_HANG", "SUPPORT", "n_runs", "run_program", "start_program"]

SECONDS_TO_HANG = 60
SUPPORT = Path(__file__).parent  # the folder of test helpers and programs


def n_runs(few: int) -> int:
    """Return how often to repeat a rare failure: ``$FASTREC_TEST_RUNS``, else `few`."""
    return int(os.environ.get("FASTREC_TEST_RUNS", few))


def start_program(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program of this directory. It prints a traceback if it hangs."""
    return subprocess.Popen(
        [sys.executable, SUPPORT / program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(program: str, *arguments: object) -> str:
    """Run a program that must succeed without output on stderr; return its stdout."""
    with start_program(program, *arguments) as child:
        try:
            # Longer than the program's own watchdog, which says where it hangs.
            out, err = child.communicate(timeout=10 * SECONDS_TO_HANG)
        except BaseException:
            child.kill()  # or the end of `with` would wait for it: pytest-timeout raises
            raise
    assert (child.returncode, err) == (0, ""), (out, err)
    return out
