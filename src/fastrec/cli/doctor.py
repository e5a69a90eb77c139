"""``fastrec doctor``: verify every checksum, say what is damaged, write what is not."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fastrec as fr
from fastrec import _core
from fastrec.cli import interrupted as interrupting
from fastrec.cli.examine import Damaged, Examined, examined
from fastrec.cli.interrupted import Interrupted, interrupted
from fastrec.cli.repair import repair, targets_of
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, size
from fastrec.options import default_num_threads
from fastrec.storage.compression import COMPRESSED_SUFFIXES
from fastrec.storage.paths import expand

__all__ = ["doctor"]


@dataclass
class _Report:
    """All that was found, as ``--json`` prints it."""

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
    interrupted: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    num_threads: int = 0

    def add(self, found: Examined) -> None:
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

    @property
    def status(self) -> int:
        """The exit status."""
        are_left = any(not write["is_being_written"] for write in self.interrupted)
        return 2 if self.unreadable else int(bool(self.regions) or are_left)


def doctor(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Files, directories, or globs in quotes."),
    ],
    *,
    repair_to: Annotated[
        Path | None,
        typer.Option(
            "--repair",
            metavar="OUT",
            help="Write the proven records of damaged files to new ones: to the file OUT "
            "for one PATH that is a file, otherwise to files of the same names in the "
            "directory OUT. Nothing is ever written over. What is written is not "
            "compressed, and names lose .gz and the like. Interrupted writes are finished "
            "in the directory OUT.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads. By default one for each CPU.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object, with all that was found."),
    ] = False,
) -> None:
    """Verify all checksums of TFRecord files, and say what is damaged.

    Behind broken framing, records are searched for that both checksums prove. A header
    of which one bit was flipped is repaired, which counts as damage. GZIP and ZLIB files
    are inflated and verified, too.

    What fastrec.Writer left that was killed is told of, too: complete shards, and whole
    records of unfinished ones. With --repair all that is whole gets its final names in
    OUT; where that is its own directory, what was left is removed. What somebody is
    writing is left alone.

    The exit status is 0 if all is sound, 1 if anything is damaged or was interrupted (also
    if it could be repaired or finished), and 2 if a file could not be read or OUT not be written, whatever else was
    found, and for a wrong command line.
    """
    out, errors = console(), console(stderr=True)
    n_threads = threads or default_num_threads()
    report = _Report(num_threads=n_threads)
    watch = Stopwatch()
    writes, named = interrupted(paths)
    files, guessed = _files(paths, report, writes, named)
    targets = {} if repair_to is None else _targets(paths, files, repair_to)
    damaged_files = []
    for found in _examined(files, n_threads):
        if found.unreadable:
            report.unreadable.append(_failure(found.path, found.unreadable))
            continue
        if found.path in guessed and found.damaged and not found.n_records:
            report.not_tfrecords.append(_text(found.path))
            continue
        report.add(found)
        if found.damaged:
            damaged_files.append(found)
        if not as_json:
            _print_damaged(out, found.damaged)
    report.seconds = watch.seconds
    if repair_to is not None:
        _repair(damaged_files, targets, report)
    writes = _examined_writes(writes, n_threads, report)
    if repair_to is not None:
        _finish(writes, repair_to, report)
    report.interrupted = [
        {**write.as_json(), "path": _text(write.path)} for write in writes
    ]
    if not as_json:
        for write in writes:
            out.print(printable(str(write)))

    for failure in report.unreadable:
        errors.print(printable(f"error: {failure['path']}: {failure['reason']}"))
    is_nothing_read = bool(report.unreadable) and not (
        report.n_files or report.not_tfrecords or report.interrupted
    )
    if as_json:
        out.print(json.dumps(dataclasses.asdict(report), indent=1))
    elif not is_nothing_read:
        _print_report(out, report, is_repairing=repair_to is not None)
    raise typer.Exit(report.status)


# What is examined.


def _files(
    paths: Iterable[str],
    report: _Report,
    writes: Iterable[Interrupted],
    named: set[str],
) -> tuple[list[str], set[str]]:
    """Return all files, each once, and which of them may be no TFRecords.

    Those are files of directories that do not begin as TFRecords do: perhaps because it
    is the beginning that is damaged. A path may also stand for interrupted writes only.
    """
    left = {path for write in writes for path in write.leftovers}
    above = {os.path.realpath(write.directory) for write in writes}
    files: dict[str, None] = {}
    guessed = set()
    for path in paths:
        try:
            if Path(path).is_dir():
                for name, is_guess in _files_in(path):
                    files[name] = None
                    if is_guess:
                        guessed.add(name)
            else:
                files |= dict.fromkeys(
                    file for file in expand(path) if os.path.realpath(file) not in left
                )
        except OSError as error:
            is_nothing = isinstance(error, FileNotFoundError)
            if is_nothing and (path in named or os.path.realpath(path) in above):
                continue
            reason = error.strerror or str(error)
            report.unreadable.append(_failure(path, reason))
        except ValueError as error:  # a remote path
            raise typer.BadParameter(str(error), param_hint="PATH") from error
    return list(files), guessed


def _files_in(directory: str) -> Iterable[tuple[str, bool]]:
    """Yield the files in a directory, and whether one may be no TFRecord."""
    with os.scandir(directory) as entries:
        names = sorted(
            entry.path
            for entry in entries
            if not entry.name.startswith(".") and entry.is_file()
        )
    n_files = 0
    for path in names:
        is_named = "tfrecord" in Path(path).name.lower()
        try:
            content = _core.recognize(os.fsencode(path))
        except OSError:
            content = "tfrecord"  # it is refused when its turn comes to be read
        if is_named or content not in ("empty", "text"):
            n_files += 1
            yield path, not is_named and content == "unknown"
    if not n_files:
        expand(directory)  # which raises


def _examined(files: list[str], n_threads: int) -> Iterable[Examined]:
    """Yield what is found of each file, behind a progress bar."""
    n_bytes = 0
    for path in files:
        with suppress(OSError):  # it is refused when its turn comes to be read
            n_bytes += os.stat(path).st_size  # noqa: PTH116 (there may be 100,000)
    with Bar("examining", "bytes") as bar:

        def show(done: int) -> None:
            bar(min(done, n_bytes), n_bytes)

        with closing(examined(files, n_threads, show)) as results:
            yield from results


# Repairing.


def _targets(paths: list[str], files: list[str], out: Path) -> dict[str, Path]:
    is_file = len(files) == 1 and not Path(paths[0]).is_dir()
    try:
        if is_file and out.suffix.lower() in COMPRESSED_SUFFIXES:
            msg = f"{out} would be a plain file: give a name without {out.suffix}"
            raise typer.BadParameter(msg, param_hint="--repair")
        if not is_file and out.is_dir():
            # What lies there itself is in its own way, if it is damaged; not otherwise,
            # and interrupted writes are finished where they lie.
            files = [path for path in files if not out.samefile(Path(path).parent)]
        return targets_of(files, out, is_file=is_file)
    except FileExistsError as error:
        msg = f"{error.filename}: {error.strerror}"
        raise typer.BadParameter(msg, param_hint="--repair") from error


def _summed(bar: Bar, n_total: int) -> Callable[[int], None]:
    """Return what is told of each piece how much it had, and shows the sum."""
    n_done = 0

    def show(n: int) -> None:
        nonlocal n_done
        n_done += n
        bar(min(n_done, n_total), n_total)

    return show


def _repair(damaged: list[Examined], targets: dict[str, Path], report: _Report) -> None:
    n_total = sum(found.content_bytes for found in damaged)
    with Bar("writing", "bytes") as bar:
        show = _summed(bar, n_total)
        for found in damaged:
            if not found.n_records:
                continue
            target = targets.get(found.path)
            if target is None:
                reason = "it exists, and nothing is ever written over"
                report.unreadable.append(_failure(found.path, reason))
                continue
            try:
                n_bytes = repair(found, target, report.num_threads, show)
            except (OSError, fr.Error) as error:
                report.unreadable.append(_refusal(error, found.path))
            else:
                report.written.append(
                    {
                        "path": _text(found.path),
                        "target": _text(str(target)),
                        "n_records": found.n_records,
                        "n_bytes": n_bytes,
                    }
                )


# Interrupted writes.


def _examined_writes(
    writes: list[Interrupted], n_threads: int, report: _Report
) -> list[Interrupted]:
    """Return those that are still there, examined behind a progress bar."""
    n_bytes = 0
    for write in writes:
        for path in write.leftovers:
            with suppress(OSError):
                n_bytes += Path(path).stat().st_size
    with Bar("examining what was interrupted", "bytes") as bar:
        writes = interrupting.examine(
            writes, n_threads, lambda done: bar(min(done, n_bytes), n_bytes)
        )
    for write in writes:
        for path, reason in write.unreadable:
            report.unreadable.append(_failure(path, reason))
    return writes


def _finish(writes: list[Interrupted], out: Path, report: _Report) -> None:
    ended = [write for write in writes if not write.is_being_written]
    if ended and out.exists() and not out.is_dir():
        reason = "interrupted writes are finished in a directory, and this is none"
        report.unreadable.append(_failure(str(out), reason))
        return
    refused = interrupting.refuse_mixed(ended)
    n_total = sum(write.n_bytes for write in ended)
    with Bar("finishing", "bytes") as bar:
        show = _summed(bar, n_total)
        for number, write in enumerate(ended):
            try:
                if number in refused:
                    raise refused[number]
                named = interrupting.finish(write, out, report.num_threads, show)
            except (OSError, fr.Error) as error:
                report.unreadable.append(_refusal(error, write.path))
                continue
            for each in named:
                report.written.append(
                    {
                        **dataclasses.asdict(each),
                        "path": _text(each.path),
                        "target": _text(each.target),
                    }
                )


# What is printed.


def _text(path: str) -> str:
    """Return a path as JSON can hold it: bytes that are no UTF-8 as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _failure(path: str, reason: str) -> dict[str, str]:
    return {"path": _text(path), "reason": reason}


def _refusal(error: OSError | fr.Error, path: str) -> dict[str, str]:
    """Return a failure that has to do with `path`, if the error names no other."""
    if isinstance(error, OSError):
        return _failure(str(error.filename or path), error.strerror or str(error))
    return _failure(path, error.reason)


def _print_damaged(out: Console, damaged: Iterable[Damaged]) -> None:
    for each in damaged:
        text = str(each.region)
        if each.bit is not None:
            text = text.replace(", 1 record: ", ", 1 record repaired: ", 1)
        out.print(printable(text))


def _print_report(out: Console, report: _Report, *, is_repairing: bool) -> None:
    for path in report.not_tfrecords:
        out.print(f"{printable(path)}: no TFRecord file, and nothing of one in it")
    for written in report.written:
        records = counted(written["n_records"], "record")
        out.print(f"wrote {records} to {printable(written['target'])}")
    if is_repairing and not report.regions and not report.interrupted:
        out.print("nothing is damaged, so nothing is written")
    total = (
        f"{counted(report.n_records, 'sound record')} in "
        f"{counted(report.n_files, 'file')}, {size(report.n_bytes)}"
    )
    out.print(total, style="bold")
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
    n_left = sum(
        not (write["is_being_written"] or write["is_finished"])
        for write in report.interrupted
    )
    if n_left:
        cure = "" if is_repairing else "; --repair OUT finishes what is whole of them"
        out.print(f"interrupted: {counted(n_left, 'write')}{cure}", style="bold")
    out.print(
        f"verified in {report.seconds:.2f} s ({size(report.n_bytes / report.seconds)}/s)"
    )
