"""CheckReport: the output of ``fastrec verify`` and ``fastrec repair``."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from fastrec.cli.inputs import files_of
from fastrec.cli.terminal import (
    Bar,
    Stopwatch,
    console,
    counted,
    json_path,
    printable,
    size,
)
from fastrec.on_error import lost
from fastrec.options import default_num_threads
from fastrec.rewrite.check import DamagedRegion, FileCheck, check_files
from fastrec.storage.paths import recognized, version_of


@dataclass
class CheckReport:
    """All results, with the fields of ``--json``; `written` is None for verify."""

    n_files: int = 0
    n_damaged_files: int = 0
    n_bytes: int = 0
    n_records: int = 0
    n_records_lost: int = 0
    is_loss_known: bool = True
    regions: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[dict[str, str]] = field(default_factory=list)
    not_tfrecords: list[str] = field(default_factory=list)
    stale_indexes: list[str] = field(default_factory=list)
    written: list[dict[str, Any]] | None = None
    seconds: float = 0.0
    num_threads: int = field(default_factory=default_num_threads)

    def add(self, check: FileCheck) -> None:
        """Add the result of one file."""
        self.n_files += 1
        self.n_bytes += check.n_bytes
        self.n_records += check.n_records
        self.n_damaged_files += bool(check.damaged)
        if check.had_stale_index:
            self.stale_indexes.append(json_path(check.path))
        for damaged in check.damaged:
            if damaged.bit is None:
                self.n_records_lost += damaged.region.records or 0
                self.is_loss_known &= damaged.region.records is not None
            fields = dataclasses.asdict(damaged.region)
            fields["path"] = json_path(damaged.region.path)
            kind = "damaged" if damaged.bit is None else "repaired"
            self.regions.append({**fields, "kind": kind, "bit": damaged.bit})

    def add_unreadable(self, path: str, reason: str) -> None:
        """Add a path that cannot be read or written."""
        self.unreadable.append({"path": json_path(path), "reason": reason})


# Checking.


def files_to_check(paths: Iterable[str], report: CheckReport) -> dict[str, bool]:
    """Return all files, and whether each may be another format than TFRecord.

    That is a file of a directory that does not begin like a TFRecord file, perhaps
    because its beginning is damaged.
    """
    files: dict[str, bool] = {}
    for path in paths:
        try:
            in_directory = _files_in(path) if Path(path).is_dir() else {}
            # It raises if there are no files.
            for name in in_directory or files_of([path], joins=False):
                files[name] = files.get(name, False) or in_directory.get(name, False)
        except OSError as error:
            report.add_unreadable(path, error.strerror or str(error))
    return files


def _files_in(directory: str) -> dict[str, bool]:
    """Return the files below a directory, and whether each may be another format."""
    names = []
    for folder, folders, inside in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        visible = [name for name in inside if not name.startswith(".")]
        names += [os.path.join(folder, name) for name in visible]
    files = {}
    for path in filter(os.path.isfile, sorted(names)):
        is_named = "tfrecord" in Path(path).name.lower()
        try:
            content = recognized(path)
        except OSError:
            content = "tfrecord"  # checking it reports the error
        if is_named or content not in ("empty", "text"):
            files[path] = not is_named and content == "unknown"
    return files


def _check_with_bar(files: list[str], n_threads: int) -> Iterable[FileCheck]:
    """Check files, and yield the results, with a progress bar."""
    n_bytes = 0
    for path in files:
        with suppress(OSError):  # checking it reports the error
            n_bytes += version_of(path)[0]
    with (
        Bar("checking", "bytes") as bar,
        closing(
            check_files(files, n_threads, lambda done: bar(done, n_bytes))
        ) as results,
    ):
        yield from results


def _checked_by_ray(files: list[str], address: str) -> Iterable[FileCheck]:
    """Check files on a Ray cluster, and yield the results, with a progress bar."""
    from fastrec.ray import jobs  # slow to import

    with jobs.cluster(address), Bar("checking", "bytes") as bar:
        for checks in jobs.map_files(_checked, files, bar):
            yield from checks


def _checked(files: list[str]) -> list[FileCheck]:
    return list(check_files(files, 1))


def check_and_print(
    files: dict[str, bool],
    report: CheckReport,
    *,
    as_json: bool,
    ray_address: str | None = None,
) -> list[FileCheck]:
    """Check files, print damaged regions, and return the damaged files.

    With `ray_address`, tasks of that Ray cluster check them.
    """
    out = console()
    watch = Stopwatch()
    damaged = []
    checks = (
        _check_with_bar(list(files), report.num_threads)
        if ray_address is None
        else _checked_by_ray(list(files), ray_address)
    )
    for check in checks:
        if check.unreadable:
            report.add_unreadable(check.path, check.unreadable)
        elif files[check.path] and check.damaged and not check.n_records:
            report.not_tfrecords.append(json_path(check.path))
        else:
            report.add(check)
            if check.damaged:
                damaged.append(check)
            if not as_json:
                _print_damaged(out, check.damaged)
    report.seconds = watch.seconds
    return damaged


# Printing.


def print_sums(report: CheckReport, *, as_json: bool) -> None:
    """Print the errors, and the sums or all fields as JSON."""
    for failure in report.unreadable:
        console(stderr=True).print(
            printable(f"error: {failure['path']}: {failure['reason']}")
        )
    if as_json:
        fields = dataclasses.asdict(report)
        if report.written is None:
            del fields["written"]
        console().print(json.dumps(fields, indent=1))
    elif report.n_files or report.not_tfrecords or not report.unreadable:
        _print_sums(console(), report)


def _print_damaged(out: Console, damaged: Iterable[DamagedRegion]) -> None:
    for each in damaged:
        region, text = each.region, str(each.region)
        if each.bit is not None:
            text = f"{region.path}, bytes {region.begin} to {region.end}, "
            text += f"1 record repaired: {region.reason}"
        out.print(printable(text))


def _print_sums(out: Console, report: CheckReport) -> None:
    for path in report.not_tfrecords:
        out.print(f"{printable(path)}: not a TFRecord file")
    for path in report.stale_indexes:
        out.print(f"{printable(path)}: the index was stale, and was built again")
    for written in report.written or ():
        records = counted(written["n_records"], "record")
        out.print(f"wrote {records} to {printable(written['target'])}")
    n_intact = report.n_files - report.n_damaged_files
    if report.written and n_intact:
        out.print(
            f"{counted(n_intact, 'intact file')} not copied: to read all records, move "
            "the new files over the damaged ones"
        )
    if report.written is not None and not report.regions:
        out.print("no damage found, no file written")
    out.print(
        f"{counted(report.n_records, 'intact record')} in "
        f"{counted(report.n_files, 'file')}, {size(report.n_bytes)}",
        style="bold",
    )
    if report.regions:
        n_repaired = sum(region["kind"] == "repaired" for region in report.regions)
        out.print(
            f"damaged: {counted(len(report.regions), 'region')} in "
            f"{counted(report.n_damaged_files, 'file')}; "
            f"{lost(report.n_records_lost, is_known=report.is_loss_known)}, "
            f"{n_repaired:,} repaired",
            style="bold",
        )
    out.print(
        f"verified in {report.seconds:.2f} s ({size(report.n_bytes / report.seconds)}/s)"
    )
