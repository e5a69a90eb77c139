"""Child processes of tests, with timeouts so that a hang fails the test."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import AnyStr

SECONDS_TO_HANG = 60
SEED = int(os.environ.get("FASTREC_TEST_SEED", "0"))  # of what campaigns draw
SUPPORT = Path(__file__).parent  # the folder of test helpers and programs
ROOT = SUPPORT.parents[1]  # where campaigns/ is


def n_runs(few: int) -> int:
    """Return how often to repeat a rare failure: ``$FASTREC_TEST_RUNS``, else `few`."""
    return int(os.environ.get("FASTREC_TEST_RUNS", few))


class Child(subprocess.Popen[AnyStr]):
    """A process that a `with` block kills if it raises, instead of waiting for it."""

    def __exit__(
        self,
        of_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.kill()
        super().__exit__(of_type, error, traceback)


def start_program(program: str, *arguments: object) -> Child[str]:
    """Start a program of this directory. It prints a traceback if it hangs."""
    return _child([str(SUPPORT / program)], arguments)


def _child(
    program: list[str], arguments: tuple[object, ...], cwd: Path | None = None
) -> Child[str]:
    return Child(
        [sys.executable, *program, *map(str, arguments)],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def built_library(source: Path, folder: Path) -> Path:
    """Compile a C file as a library to preload."""
    target = folder / f"{source.stem}.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"],
        check=True,
    )
    return target


def run_program(program: str, *arguments: object) -> str:
    """Run a program that must succeed without output on stderr; return its stdout."""
    return _output(start_program(program, *arguments))


def run_python(
    code: str,
    *arguments: object,
    status: int = 0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, which must exit with a status."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        check=False,
        cwd=cwd,
        env=env,
        text=True,
        timeout=2 * SECONDS_TO_HANG,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def run_campaign(name: str, *arguments: object) -> str:
    """Run a program of campaigns/ as `run_program` does."""
    return _output(_child(["-m", f"campaigns.{name}"], arguments, cwd=ROOT))


def _output(started: Child[str]) -> str:
    with started as child:
        # Longer than the program's own watchdog, which says where it hangs.
        out, err = child.communicate(timeout=10 * SECONDS_TO_HANG)
    assert (child.returncode, err) == (0, ""), (out, err)
    return out
