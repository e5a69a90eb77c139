"""``fastrec doctor``: verify every checksum, report damage, save sound records."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fastrec as fr
from fastrec import _core
from fastrec.cli.arguments import AsJson, Paths, Threads
from fastrec.cli.examine import Damaged, Examined, examined
from fastrec.cli.repair import repair
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, size
from fastrec.options import default_num_threads
from fastrec.rewrite import copy
from fastrec.storage.compression import COMPRESSED_SUFFIXES
from fastrec.storage.paths import expand

__all__ = ["doctor"]


@dataclass
class _Report:
    """All findings, as ``--json`` prints them."""

    n_files: int = 0
    n_damaged_files: int = 0
    n_bytes: int = 0
    n_records: int = 0
    n_records_lost: int = 0
    is_loss_known: bool = True
    regions: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[dict[str, str]] = field(default_factory=list)
    not_tfrecords: list[str] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    num_threads: int = 0

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
            fields["path"] = _text(damaged.region.path)
            kind = "damaged" if damaged.bit is None else "repaired"
            self.regions.append({**fields, "kind": kind, "bit": damaged.bit})

    def refuse(self, path: str, reason: str) -> None:
        """Add a path that cannot be read or written."""
        self.unreadable.append({"path": _text(path), "reason": reason})


def doctor(
    paths: Paths,
    *,
    repair_to: Annotated[
        Path | None,
        typer.Option(
            "--repair",
            metavar="OUT",
            help="Write the proven records of damaged files to new ones: to the file OUT "
            "for one PATH that is a file, otherwise to files of the same names in the "
            "directory OUT. No file is ever replaced. What is written is not compressed, "
            "and names lose .gz and the like.",
        ),
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Verify all checksums of TFRecord files, and report what is damaged.

    After broken framing, it searches for records that both checksums prove. It repairs a
    header of which one bit was flipped, which counts as damage. GZIP and ZLIB files are
    inflated and verified, too.

    The temporary file of a fastrec.Writer that was killed is a file like any other, if
    PATH names it: --repair saves its whole records.

    The exit status is 0 if all is sound, 1 if anything is damaged (even if it could be
    repaired), and 2 if a file could not be read or OUT could not be written, or for a
    wrong command line.
    """
    out = console()
    report = _Report(num_threads=threads or default_num_threads())
    watch = Stopwatch()
    files = _files(paths, report)
    targets = {} if repair_to is None else _targets(paths, list(files), repair_to)
    damaged_files = []
    for found in _examined(list(files), report.num_threads):
        if found.unreadable:
            report.refuse(found.path, found.unreadable)
        elif files[found.path] and found.damaged and not found.n_records:
            report.not_tfrecords.append(_text(found.path))
        else:
            report.add(found)
            if found.damaged:
                damaged_files.append(found)
            if not as_json:
                _print_damaged(out, found.damaged)
    report.seconds = watch.seconds
    if repair_to is not None:
        _repair(damaged_files, targets, report)

    for failure in report.unreadable:
        console(stderr=True).print(
            printable(f"error: {failure['path']}: {failure['reason']}")
        )
    if as_json:
        out.print(json.dumps(dataclasses.asdict(report), indent=1))
    elif report.n_files or report.not_tfrecords or not report.unreadable:
        _print_report(out, report, is_repairing=repair_to is not None)
    raise typer.Exit(2 if report.unreadable else int(bool(report.regions)))


# What is examined.


def _files(paths: Iterable[str], report: _Report) -> dict[str, bool]:
    """Return all files, and whether each may not be a TFRecord file.

    Those are files of directories that do not begin as TFRecord files do, perhaps because
    the beginning is damaged.
    """
    files: dict[str, bool] = {}
    for path in paths:
        try:
            found = _files_in(path) if Path(path).is_dir() else {}
            for name in found or expand(path):  # without files, this raises
                files[name] = files.get(name, False) or found.get(name, False)
        except OSError as error:
            report.refuse(path, error.strerror or str(error))
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


# Repairing.


def _targets(paths: list[str], files: list[str], out: Path) -> dict[str, str]:
    """Return the target of each file: `out`, or a file of its name in that directory."""
    is_file = len(files) == 1 and not Path(paths[0]).is_dir()
    msg = ""
    if is_file and out.suffix.lower() in COMPRESSED_SUFFIXES:
        msg = f"{out} would be a plain file: give a name without {out.suffix}"
    targets = {path: str(out) for path in files}
    try:
        if not is_file:
            targets = copy.targets_of(files, str(out), None)
    except FileExistsError as error:
        msg = f"{error.filename}: {error.strerror}"
    except ValueError as error:
        msg = str(error)
    for target in filter(os.path.lexists, targets.values()):
        msg = msg or f"{target}: it exists, and nothing is ever written over"
    if msg:
        raise typer.BadParameter(msg, param_hint="--repair")
    return targets


def _repair(damaged: list[Examined], targets: dict[str, str], report: _Report) -> None:
    n_total = sum(found.content_bytes for found in damaged)
    with Bar("writing", "bytes") as bar:
        bar(0, n_total)
        for found in damaged:
            if not found.n_records:
                continue
            written = {
                "path": _text(found.path),
                "target": _text(targets[found.path]),
                "n_records": found.n_records,
            }
            try:
                target = Path(targets[found.path])
                n_bytes = repair(found, target, report.num_threads, bar.advance_by)
                report.written.append({**written, "n_bytes": n_bytes})
            except OSError as error:
                path = str(error.filename or found.path)
                report.refuse(path, error.strerror or str(error))
            except fr.Error as error:
                report.refuse(found.path, error.reason)


# What is printed.


def _text(path: str) -> str:
    """Return a path as JSON can hold it: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _print_damaged(out: Console, damaged: Iterable[Damaged]) -> None:
    for each in damaged:
        region, text = each.region, str(each.region)
        if each.bit is not None:
            text = f"{region.path}, bytes {region.begin} to {region.end}, "
            text += f"1 record repaired: {region.reason}"
        out.print(printable(text))


def _print_report(out: Console, report: _Report, *, is_repairing: bool) -> None:
    for path in report.not_tfrecords:
        out.print(f"{printable(path)}: not a TFRecord file, and has no record")
    for written in report.written:
        records = counted(written["n_records"], "record")
        out.print(f"wrote {records} to {printable(written['target'])}")
    if is_repairing and not report.regions:
        out.print("nothing is damaged, so nothing is written")
    out.print(
        f"{counted(report.n_records, 'sound record')} in "
        f"{counted(report.n_files, 'file')}, {size(report.n_bytes)}",
        style="bold",
    )
    if report.regions:
        more = "" if report.is_loss_known else " and an unknown number"
        n_repaired = sum(region["kind"] == "repaired" for region in report.regions)
        out.print(
            f"damaged: {counted(len(report.regions), 'region')} in "
            f"{counted(report.n_damaged_files, 'file')}; "
            f"{counted(report.n_records_lost, 'record')}{more} lost, "
            f"{n_repaired:,} repaired",
            style="bold",
        )
    out.print(
        f"verified in {report.seconds:.2f} s ({size(report.n_bytes / report.seconds)}/s)"
    )
