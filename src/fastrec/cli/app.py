"""The command-line application: subcommands and error handling."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import fastrec as fr
from fastrec.cli.bench import bench
from fastrec.cli.convert import convert
from fastrec.cli.demo import demo
from fastrec.cli.index import index
from fastrec.cli.info import info
from fastrec.cli.repair import repair
from fastrec.cli.rewrite import compress, expand, merge, reshard, shuffle, split
from fastrec.cli.shuffle_report import shuffle_report
from fastrec.cli.terminal import console, printable
from fastrec.cli.verify import verify
from fastrec.errors import advise_repair
from fastrec.options import MissingExtraError

__all__ = ["app"]


class _Commands(TyperGroup):
    """Reports errors that users can cause as one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (older typers have another Context)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console(stderr=True).print("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise  # the reader of stdout is gone; typer exits silently
        except typer.BadParameter as error:
            error.message = printable(error.message)
            raise
        except MissingExtraError as error:
            console(stderr=True).print(f"error: {error}")
            raise typer.Exit(2) from None
        except (fr.Error, OSError) as error:
            if isinstance(error, fr.Error):
                advise_repair(error)  # commands have no on_error=
            console(stderr=True).print(f"error: {printable(_one_line(error))}")
            raise typer.Exit(1) from None


def _one_line(error: fr.Error | OSError) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{printable(error.filename)}: {error.strerror}"
    return " ".join(text.split())


def _print_version(wanted: bool) -> None:
    if wanted:
        console().print(f"fastrec {importlib.metadata.version('fastrec-io')}")
        raise typer.Exit


app = typer.Typer(
    name="fastrec",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _fastrec(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Inspect, verify, repair, convert and reshuffle TFRecord files."""


app.command()(bench)
app.command()(convert)
app.command()(demo)
app.command()(index)
app.command()(info)
app.command()(verify)
app.command()(repair)
app.command()(shuffle_report)
for _command in (shuffle, merge, reshard, split, compress, expand):
    app.command()(_command)
