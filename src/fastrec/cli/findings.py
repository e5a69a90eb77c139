"""The findings of ``fastrec verify`` and ``fastrec repair``: collected and printed."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from fastrec import _core
from fastrec.cli.examine import Damaged, Examined, examined
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, size
from fastrec.options import default_num_threads
from fastrec.storage.paths import expand

__all__ = ["Findings", "files_to_examine", "find", "show", "text_of"]


@dataclass
class Findings:
    """All findings, as ``--json`` prints them; `written` is None if nothing is repaired."""

    n_files: int = 0
    n_damaged_files: int = 0
    n_bytes: int = 0
    n_records: int = 0
    n_records_lost: int = 0
    is_loss_known: bool = True
    regions: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[dict[str, str]] = field(default_factory=list)
    not_tfrecords: list[str] = field(default_factory=list)
    written: list[dict[str, Any]] | None = None
    seconds: float = 0.0
    num_threads: int = field(default_factory=default_num_threads)

    def add(self, found: Examined) -> None:
        """Add the findings of one file."""
        self.n_files += 1
        self.n_bytes += found.n_bytes
        self.n_records += found.n_records
        self.n_damaged_files += bool(found.damaged)
        for damaged in found.damaged:
            if damaged.bit is None:
                self.n_records_lost += damaged.region.records or 0
                self.is_loss_known &= damaged.region.records is not None
            fields = dataclasses.asdict(damaged.region)
            fields["path"] = text_of(damaged.region.path)
            kind = "damaged" if damaged.bit is None else "repaired"
            self.regions.append({**fields, "kind": kind, "bit": damaged.bit})

    def refuse(self, path: str, reason: str) -> None:
        """Add a path that cannot be read or written."""
        self.unreadable.append({"path": text_of(path), "reason": reason})


# What is examined.


def files_to_examine(paths: Iterable[str], findings: Findings) -> dict[str, bool]:
    """Return all files, and whether each may not be a TFRecord file.

    These are files in directories that do not begin as TFRecord files do, perhaps because
    the beginning is damaged.
    """
    files: dict[str, bool] = {}
    for path in paths:
        try:
            found = _files_in(path) if Path(path).is_dir() else {}
            for name in found or expand(path):  # without files, this raises
                files[name] = files.get(name, False) or found.get(name, False)
        except OSError as error:
            findings.refuse(path, error.strerror or str(error))
        except ValueError as error:  # a remote path
            raise typer.BadParameter(str(error), param_hint="PATH") from error
    return files


def _files_in(directory: str) -> dict[str, bool]:
    """Return the files in a directory, and whether each may not be a TFRecord file."""
    with os.scandir(directory) as entries:
        names = sorted(
            entry.path
            for entry in entries
            if not entry.name.startswith(".") and entry.is_file()
        )
    files = {}
    for path in names:
        is_named = "tfrecord" in Path(path).name.lower()
        try:
            content = _core.recognize(os.fsencode(path))
        except OSError:
            content = "tfrecord"  # examining it reports the error
        if is_named or content not in ("empty", "text"):
            files[path] = not is_named and content == "unknown"
    return files


def _examined(files: list[str], n_threads: int) -> Iterable[Examined]:
    """Yield the findings of each file, behind a progress bar."""
    n_bytes = 0
    for path in files:
        with suppress(OSError):  # examining it reports the error
            n_bytes += os.stat(path).st_size  # noqa: PTH116 (there may be 100,000)
    with (
        Bar("examining", "bytes") as bar,
        closing(examined(files, n_threads, lambda done: bar(done, n_bytes))) as results,
    ):
        yield from results


def find(
    files: dict[str, bool], findings: Findings, *, as_json: bool
) -> list[Examined]:
    """Examine files, print and add what is found, and return the damaged files."""
    out = console()
    watch = Stopwatch()
    damaged = []
    for found in _examined(list(files), findings.num_threads):
        if found.unreadable:
            findings.refuse(found.path, found.unreadable)
        elif files[found.path] and found.damaged and not found.n_records:
            findings.not_tfrecords.append(text_of(found.path))
        else:
            findings.add(found)
            if found.damaged:
                damaged.append(found)
            if not as_json:
                _print_damaged(out, found.damaged)
    findings.seconds = watch.seconds
    return damaged


# What is printed.


def text_of(path: str) -> str:
    """Return a path as JSON can hold it: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def show(findings: Findings, *, as_json: bool) -> None:
    """Print the errors, and the findings or their sums."""
    for failure in findings.unreadable:
        console(stderr=True).print(
            printable(f"error: {failure['path']}: {failure['reason']}")
        )
    if as_json:
        fields = dataclasses.asdict(findings)
        if findings.written is None:
            del fields["written"]
        console().print(json.dumps(fields, indent=1))
    elif findings.n_files or findings.not_tfrecords or not findings.unreadable:
        _print_sums(console(), findings)


def _print_damaged(out: Console, damaged: Iterable[Damaged]) -> None:
    for each in damaged:
        region, text = each.region, str(each.region)
        if each.bit is not None:
            text = f"{region.path}, bytes {region.begin} to {region.end}, "
            text += f"1 record repaired: {region.reason}"
        out.print(printable(text))


def _print_sums(out: Console, findings: Findings) -> None:
    for path in findings.not_tfrecords:
        out.print(f"{printable(path)}: not a TFRecord file, and has no record")
    for written in findings.written or ():
        records = counted(written["n_records"], "record")
        out.print(f"wrote {records} to {printable(written['target'])}")
    if findings.written is not None and not findings.regions:
        out.print("nothing is damaged, so nothing is written")
    out.print(
        f"{counted(findings.n_records, 'sound record')} in "
        f"{counted(findings.n_files, 'file')}, {size(findings.n_bytes)}",
        style="bold",
    )
    if findings.regions:
        more = "" if findings.is_loss_known else " and an unknown number"
        n_repaired = sum(region["kind"] == "repaired" for region in findings.regions)
        out.print(
            f"damaged: {counted(len(findings.regions), 'region')} in "
            f"{counted(findings.n_damaged_files, 'file')}; "
            f"{counted(findings.n_records_lost, 'record')}{more} lost, "
            f"{n_repaired:,} repaired",
            style="bold",
        )
    out.print(
        f"verified in {findings.seconds:.2f} s ({size(findings.n_bytes / findings.seconds)}/s)"
    )
