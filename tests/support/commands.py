"""The ``fastrec`` command, run in the process of a test."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from fastrec.cli.app import app


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Run the command; return its stdout and stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    if status != 0:
        assert isinstance(result.exception, SystemExit), "a traceback was shown"
    return result.stdout, result.stderr
