"""The ``fastrec`` command, run in the process of a test, or in another Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from fastrec.cli.app import app

__all__ = ["run", "run_python"]


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Run the command; return its stdout and stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    if status != 0:
        assert isinstance(result.exception, SystemExit), "a traceback was shown"
    return result.stdout, result.stderr


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in another process."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
