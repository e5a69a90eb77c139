"""Command-line application: commands, version, errors and exit statuses.

Only the module of the requested command is imported, to keep start-up fast.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import fastrec as fr
from fastrec.caller_warnings import is_of_fastrec
from fastrec.cli.files import copies
from fastrec.cli.terminal import counted, printable
from fastrec.errors import advise_repair
from fastrec.options import MissingExtraError, default_num_threads

_PANELS = {
    "Look": ("info", "head", "schema", "stats", "count", "sample", "query", "images"),
    "Check": ("verify", "repair", "index"),
    "Change": ("convert", "cache", "shuffle", "reshard", "split"),
    "Measure": ("bench", "report", "demo"),
}
_COMMANDS = {name: panel for panel, names in _PANELS.items() for name in names}
# Modules that implement several commands. Other modules are named after their command.
_MODULES = dict.fromkeys(("shuffle", "reshard", "split"), "rewrite")
_MODULES |= dict.fromkeys(("head", "sample", "count"), "records")
_MODULES |= dict.fromkeys(("verify", "repair"), "verify")

_WIDTH = min(shutil.get_terminal_size().columns, 100) - 2  # columns of help
_NAMES_WIDTH = max(_WIDTH // 3, max(map(len, _COMMANDS)))
_ARGUMENT_TYPE = re.compile(r"(?<=[A-Z]) <.*>$")  # follows an argument name
_CONTEXT = {"help_option_names": ["-h", "--help"], "terminal_width": _WIDTH}
_EPILOG = (
    "Exit status: 0 success; 1 the command found a problem in the data; 2 the command "
    "could not run; 130 interrupted by Ctrl-C."
)
_DATA, _NOT_RUN, _INTERRUPTED, _BROKEN_PIPE = 1, 2, 130, 128 + 13

_PACKAGES = (
    "numpy typer rich duckdb jinja2 isal pyarrow pillow opencv-python-headless polars ray "
    "torch jax keras grain tensorflow tensorflow-cpu"
)


def _help_of(command: Any, ctx: Any) -> str:
    """Return a command's help text; the column of names is a third of the width."""
    formatter = ctx.make_formatter()
    write = formatter.write_dl
    formatter.write_dl = lambda rows: write(
        [(_ARGUMENT_TYPE.sub("", name), text) for name, text in rows], _NAMES_WIDTH
    )
    command.format_help(ctx, formatter)
    return str(formatter.getvalue()).rstrip("\n")


class _Command(TyperCommand):
    get_help = _help_of


class _Commands(TyperGroup):
    """The commands of ``fastrec``, imported lazily; an error is printed as one line."""

    get_help = _help_of

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(_COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = f"fastrec.cli.{_MODULES.get(cmd_name, cmd_name)}"
        command = typer.Typer(add_completion=False, rich_markup_mode=None)
        command.command(
            cmd_name, cls=_Command, epilog=_EPILOG, context_settings=_CONTEXT
        )(getattr(importlib.import_module(module), cmd_name))
        return typer.main.get_command(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and summaries of the commands, grouped as in `_PANELS`."""
        indent = max(map(len, _COMMANDS))
        for panel, names in _PANELS.items():
            commands = [self.get_command(ctx, name) for name in names]
            helps = [command.get_short_help_str(999) for command in commands]
            padded = [name.ljust(indent) for name in names]
            with formatter.section(panel):
                formatter.write_dl(list(zip(padded, helps, strict=True)))

    def invoke(self, ctx: Any) -> Any:
        try:
            with copies():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            _fail("; ".join(["interrupted", *interrupt.args]), _INTERRUPTED)
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(_BROKEN_PIPE) from None
        except typer.BadParameter as error:
            error.message = printable(error.message)
            raise
        except (fr.Error, OSError, ValueError, MissingExtraError) as error:
            if not isinstance(error, fr.Error | OSError) and not _is_checked(error):
                raise
            is_data = isinstance(error, fr.Error) and error.code != "other"
            if isinstance(error, fr.Error):
                advise_repair(error)  # commands lack on_error=
            text = str(error)
            if isinstance(error, OSError) and error.filename is not None:
                text = f"{printable(error.filename)}: {error.strerror}"
            text = printable(" ".join(text.split()))
            _fail(f"error: {text}", _DATA if is_data else _NOT_RUN)


def _is_checked(error: Exception) -> bool:
    """Return whether fastrec raised an error, not a function that it called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return is_of_fastrec(frame) and not isinstance(error, UnicodeError)


def _fail(line: str, status: int) -> None:
    typer.echo(line, err=True)
    raise typer.Exit(status) from None


def _print_version(wanted: bool) -> None:
    """If `wanted`, print the versions of fastrec, Python and packages, and exit."""
    if not wanted:
        return
    import importlib.metadata
    import platform

    found = []
    for name in _PACKAGES.split():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    cpus = counted(default_num_threads(), "usable CPU")
    typer.echo(
        f"fastrec {fr.__version__}\n"
        f"Python {platform.python_version()}, {platform.platform()}, {cpus}\n"
        f"packages: {', '.join(found)}"
    )
    raise typer.Exit


app = typer.Typer(
    name="fastrec",
    cls=_Commands,
    no_args_is_help=True,
    context_settings=_CONTEXT,
    epilog=_EPILOG,
    rich_markup_mode=None,  # rich panels truncate words on narrow terminals
    pretty_exceptions_enable=False,
)


@app.callback()
def _fastrec(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of fastrec, Python and packages, and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Inspect, check, rewrite and benchmark TFRecord files."""
