"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AsJson", "BatchSize", "OptionalPaths", "Paths", "Seed", "Threads"]

_PATH = typer.Argument(metavar="PATH", help="Files, directories, or globs in quotes.")

Paths = Annotated[list[str], _PATH]
OptionalPaths = Annotated[list[str] | None, _PATH]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object with all results.")
]
BatchSize = Annotated[int, typer.Option(min=1, help="Records per batch.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**64 - 1, help="Seed of the random order.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of threads; by default one per CPU.", show_default=False
    ),
]
