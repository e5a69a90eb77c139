"""The command-line application: its commands, version, errors and exit statuses.

A command's module is imported when the command runs, so that no command waits for the
imports of another.
"""

from __future__ import annotations

import difflib
import importlib
import re
import shutil
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import fastrec as fr
from fastrec import _core
from fastrec.cli.stdin import copies
from fastrec.cli.terminal import console, counted, end_at_broken_pipe, printable
from fastrec.errors import advise_repair
from fastrec.options import MissingExtraError, default_num_threads

_PANELS = {
    "Look": ("info", "head", "schema", "stats", "count", "sample", "query", "images"),
    "Check": ("verify", "repair", "index"),
    "Change": ("convert", "shuffle", "reshard", "split"),
    "Measure": ("bench", "report", "demo"),
}
_COMMANDS = {name: panel for panel, names in _PANELS.items() for name in names}
# The modules with the functions of several commands. Any other has its command's name.
_MODULES = dict.fromkeys(("shuffle", "reshard", "split"), "rewrite")

_MAX_WIDTH = 100  # of help texts
_ARGUMENT_TYPE = re.compile(r"(?<=[A-Z]) <.*>$")  # behind the name of an argument
_EPILOG = (
    "Exit status: 0 done, and nothing wrong was found; 1 the data has a problem, or the "
    "answer is negative; 2 the command could not run; 130 interrupted by Ctrl-C."
)
_CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "terminal_width": min(shutil.get_terminal_size().columns, _MAX_WIDTH) - 2,
}
_DATA, _NOT_RUN, _INTERRUPTED = 1, 2, 130

_PACKAGES = (
    *(
        "numpy",
        "typer",
        "rich",
        "duckdb",
        "jinja2",
        "isal",
        "pyarrow",
        "pillow",
        "opencv-python-headless",
    ),
    *("polars", "ray", "torch", "jax", "keras", "grain"),
    *("tensorflow", "tensorflow-cpu"),
)


def _help_of(command: Any, ctx: Any) -> str:
    """Return the help of a command, with at most a third of the width for names."""
    formatter = ctx.make_formatter()
    names_width = max(formatter.width // 3, len(max(_COMMANDS, key=len)))
    write = formatter.write_dl

    def write_dl(rows: Iterable[tuple[str, str]], *_: object) -> None:
        untyped = [(_ARGUMENT_TYPE.sub("", name), text) for name, text in rows]
        write(untyped, col_max=names_width)

    formatter.write_dl = write_dl
    command.format_help(ctx, formatter)
    return str(formatter.getvalue()).rstrip("\n")


class _Command(TyperCommand):
    get_help = _help_of


class _Commands(TyperGroup):
    """Imports commands when needed, and reports errors as one line and a status."""

    get_help = _help_of

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        function = cmd_name.replace("-", "_")
        module = f"fastrec.cli.{_MODULES.get(cmd_name, function)}"
        command = typer.Typer(add_completion=False, rich_markup_mode=None)
        command.command(
            cmd_name, cls=_Command, epilog=_EPILOG, context_settings=_CONTEXT
        )(getattr(importlib.import_module(module), function))
        return typer.main.get_command(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per panel."""
        indent = max(map(len, _COMMANDS))
        for panel, names in _PANELS.items():
            with formatter.section(panel):
                lines = [
                    (
                        name.ljust(indent),
                        self.get_command(ctx, name).get_short_help_str(1000),
                    )
                    for name in names
                ]
                formatter.write_dl(lines)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(_unknown(name))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with copies():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            note = f"; {interrupt}" if interrupt.args else ""
            _fail(f"interrupted{note}", _INTERRUPTED)
        except BrokenPipeError:
            end_at_broken_pipe()
        except typer.BadParameter as error:
            error.message = printable(error.message)
            raise
        except MissingExtraError as error:
            _fail(f"error: {error}", _NOT_RUN)
        except (fr.Error, OSError) as error:
            is_data = isinstance(error, fr.Error) and error.code != "other"
            if isinstance(error, fr.Error):
                advise_repair(error)  # commands have no on_error=
            text = f"error: {printable(_one_line(error))}"
            _fail(text, _DATA if is_data else _NOT_RUN)


def _fail(line: str, status: int) -> None:
    console(stderr=True).print(line)
    raise typer.Exit(status) from None


def _one_line(error: fr.Error | OSError) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{printable(error.filename)}: {error.strerror}"
    return " ".join(text.split())


def _unknown(name: str) -> str:
    """Return the error for an unknown command, with the one that was meant."""
    text = f"no command {printable(name)!r}"
    if close := difflib.get_close_matches(name.lower(), _COMMANDS):
        return f"{text}; did you mean {' or '.join(close)}?"
    return f"{text}; fastrec --help lists the commands"


def _print_version(wanted: bool) -> None:
    if wanted:
        for line in _version_lines():
            console().print(line)
        raise typer.Exit


def _version_lines() -> list[str]:
    """Return the version, the machine, and the packages that fastrec can use."""
    import importlib.metadata
    import platform

    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    cpus = counted(default_num_threads(), "usable CPU")
    return [
        f"fastrec {fr.__version__}",
        f"core {_core.__version__}, instruction set {_core.isas()[0]}",
        f"Python {platform.python_version()}, {platform.platform()}, {cpus}",
        f"packages: {', '.join(found)}",
    ]


app = typer.Typer(
    name="fastrec",
    cls=_Commands,
    no_args_is_help=True,
    context_settings=_CONTEXT,
    epilog=_EPILOG,
    rich_markup_mode=None,  # whose panels truncate words on narrow terminals
    pretty_exceptions_enable=False,
)


@app.callback()
def _fastrec(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of fastrec, its core and packages, and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Look at TFRecord files, check, change and measure them."""
