"""``fastrec verify`` and ``repair``: report damage, and copy intact records."""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import echo, secho

import fastrec as fr
from fastrec.cli.arguments import AsJson, Paths, RayAddress, Threads, out_option
from fastrec.cli.files import files_of, reports_interrupt
from fastrec.cli.terminal import counted, print_json, printable, progress_bar, size
from fastrec.on_error import lost
from fastrec.options import default_num_threads
from fastrec.rewrite import copy
from fastrec.rewrite.check import FileCheck, check_files
from fastrec.rewrite.repair import copy_intact
from fastrec.storage.compression import COMPRESSED_SUFFIXES
from fastrec.storage.paths import recognized, version_of
from fastrec.storage.urls import redacted

_Failures = list[dict[str, str]]  # path and reason


def verify(
    paths: Paths,
    *,
    threads: Threads = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Verify all checksums of TFRecord files, and report damage.

    After broken framing, verify searches plain files for records whose checksums match.
    GZIP and ZLIB files are decompressed and verified. No files are written, but stale
    cached indexes are rebuilt. To copy the intact records, use "fastrec repair".

    The exit status is 0 if all files are intact, 1 if any is damaged, and 2 if a file
    cannot be read or the command line is invalid.
    """
    files, failures = _files_to_check(paths)
    report, damaged = _check(files, failures, threads, ray, as_json=as_json)
    _print_sums(report, as_json=as_json)
    raise typer.Exit(2 if failures else int(bool(damaged)))


def repair(
    paths: Paths,
    *,
    out: Annotated[
        Path,
        out_option(
            "The output file if PATH is one file, otherwise the directory for files of "
            "the same names. Existing files are never replaced. Output is not "
            "compressed, and suffixes such as .gz are removed."
        ),
    ],
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Copy the intact records of damaged TFRecord files to new files.

    A record is intact if both of its checksums match. A header with one flipped bit is
    repaired. Damaged files stay unchanged, and intact files are not copied. PATH may
    also be the temporary file of a killed fastrec.Writer.

    The exit status is 0 if every damaged file was repaired, even if some of its records
    are lost; 1 if a damaged file has no intact record; and 2 if a file cannot be read or
    written, or the command line is invalid.
    """
    files, failures = _files_to_check(paths)
    targets = _targets(paths, list(files), out)
    with reports_interrupt(targets.values):
        report, damaged = _check(files, failures, threads, None, as_json=as_json)
        report["written"] = _write(damaged, targets, failures, report["num_threads"])
    _print_sums(report, as_json=as_json)
    is_lost = any(not check.n_records for check in damaged)
    raise typer.Exit(2 if failures else int(is_lost))


# Checking.


def _files_to_check(paths: Iterable[str]) -> tuple[dict[str, bool], _Failures]:
    """Return the files to check, as a dict, and the unreadable paths.

    The value of a file is True if it was found in a directory and does not look like a
    TFRecord file: it has another format, or its beginning is damaged.
    """
    files: dict[str, bool] = {}
    failures = []
    for path in paths:
        try:
            in_directory = _files_in(path) if Path(path).is_dir() else {}
            # files_of raises if there are no files.
            for name in in_directory or files_of([path], joins=False):
                files[name] = files.get(name, False) or in_directory.get(name, False)
        except OSError as error:
            failures.append({"path": path, "reason": error.strerror or str(error)})
    return files, failures


def _files_in(directory: str) -> dict[str, bool]:
    """Find the files below a directory; map each to True if its format is unknown."""
    files = {}
    for path in sorted(Path(directory).rglob("*")):
        is_hidden = any(x.startswith(".") for x in path.relative_to(directory).parts)
        if is_hidden or not path.is_file():
            continue
        is_named = "tfrecord" in path.name.lower()
        content = "tfrecord"
        with suppress(OSError):  # the check reports the error
            content = recognized(str(path))
        if is_named or content not in ("empty", "text"):
            files[str(path)] = not is_named and content == "unknown"
    return files


def _checks(
    files: Sequence[str], num_threads: int, ray: str | None
) -> Iterator[FileCheck]:
    """Check files locally, or on the Ray cluster at address `ray`; yield results."""
    with progress_bar("checking", "bytes") as bar:
        if ray is None:
            n_bytes = 0
            for path in files:
                with suppress(OSError):  # the check reports the error
                    n_bytes += version_of(path)[0]
            results = check_files(files, num_threads, lambda done: bar(done, n_bytes))
            with closing(results):
                yield from results
            return
        from fastrec.ray import jobs  # slow to import

        with jobs.cluster(ray):
            for checks in jobs.map_files(_checked, files, bar):
                yield from checks


def _checked(files: list[str]) -> list[FileCheck]:
    return list(check_files(files, 1))


def _check(
    files: dict[str, bool],
    failures: _Failures,
    threads: int | None,
    ray: str | None,
    *,
    as_json: bool,
) -> tuple[dict[str, Any], list[FileCheck]]:
    """Check files and print the damage; return the report and the damaged files.

    Unreadable files are added to `failures`. With `as_json`, nothing is printed.
    """
    start = time.perf_counter()
    num_threads = threads or default_num_threads()
    checks, others = [], []
    for check in _checks(list(files), num_threads, ray):
        if check.unreadable:
            failures.append({"path": check.path, "reason": check.unreadable})
        elif files[check.path] and check.damaged and not check.n_records:
            others.append(check.path)
        else:
            checks.append(check)
            for each in () if as_json else check.damaged:
                region, text = each.region, str(each.region)
                if each.bit is not None:
                    text = f"{region.path}, bytes {region.begin} to {region.end}, "
                    text += f"1 record repaired: {region.reason}"
                echo(printable(text))
    regions = [
        {
            **dataclasses.asdict(each.region),
            "kind": "damaged" if each.bit is None else "repaired",
            "bit": each.bit,
        }
        for check in checks
        for each in check.damaged
    ]
    n_lost = [each["records"] for each in regions if each["kind"] == "damaged"]
    damaged = [check for check in checks if check.damaged]
    report = {
        "n_files": len(checks),
        "n_damaged_files": len(damaged),
        "n_bytes": sum(check.n_bytes for check in checks),
        "n_records": sum(check.n_records for check in checks),
        "n_records_lost": sum(n or 0 for n in n_lost),
        "is_loss_known": None not in n_lost,
        "regions": regions,
        "unreadable": failures,
        "not_tfrecords": others,
        "stale_indexes": [check.path for check in checks if check.had_stale_index],
        "seconds": time.perf_counter() - start,
        "num_threads": num_threads,
    }
    return report, damaged


def _print_sums(report: dict[str, Any], *, as_json: bool) -> None:
    """Print the errors to stderr, and the report: as JSON, or a summary as text."""
    for failure in report["unreadable"]:
        echo(printable(f"error: {failure['path']}: {failure['reason']}"), err=True)
    n_files, n_damaged = report["n_files"], report["n_damaged_files"]
    if as_json:
        print_json(report)
        return
    if not (n_files or report["not_tfrecords"]) and report["unreadable"]:
        return
    for path in report["not_tfrecords"]:
        echo(f"{printable(path)}: not a TFRecord file")
    for path in report["stale_indexes"]:
        echo(f"{printable(path)}: the index was stale and was rebuilt")
    written = report.get("written")
    for each in written or ():
        records = counted(each["n_records"], "record")
        echo(f"wrote {records} to {printable(each['target'])}")
    if written and n_files > n_damaged:
        echo(
            f"{counted(n_files - n_damaged, 'intact file')} not copied: to read all "
            "records, move the new files over the damaged ones"
        )
    if written is not None and not n_damaged:
        echo("no damage found, no file written")
    records = counted(report["n_records"], "intact record")
    n_bytes = report["n_bytes"]
    secho(f"{records} in {counted(n_files, 'file')}, {size(n_bytes)}", bold=True)
    if regions := report["regions"]:
        n_repaired = sum(region["kind"] == "repaired" for region in regions)
        losses = lost(report["n_records_lost"], is_known=report["is_loss_known"])
        secho(
            f"damaged: {counted(len(regions), 'region')} in "
            f"{counted(n_damaged, 'file')}; {losses}, {n_repaired:,} repaired",
            bold=True,
        )
    seconds = report["seconds"]
    echo(f"verified in {seconds:.2f} s ({size(n_bytes / seconds)}/s)")


# Repairing.


def _targets(paths: list[str], files: list[str], out: Path) -> dict[str, str]:
    """Map each file to its output path: `out` for a single file, else in `out`."""
    is_file = len(files) == 1 and not Path(paths[0]).is_dir()
    if is_file and out.suffix.lower() in COMPRESSED_SUFFIXES:
        raise typer.BadParameter(
            f"must not end in {out.suffix}: output is not compressed, got "
            f"{redacted(str(out))}",
            param_hint="--out",
        )
    targets = (
        {files[0]: str(out)} if is_file else copy.targets_of(files, str(out), None)
    )
    for target in filter(os.path.lexists, targets.values()):
        reason = "the file exists, and repair does not replace files"
        raise FileExistsError(errno.EEXIST, reason, target)
    return targets


def _write(
    damaged: Sequence[FileCheck],
    targets: dict[str, str],
    failures: _Failures,
    num_threads: int,
) -> list[dict[str, Any]]:
    """Copy the intact records of damaged files; return a summary of each new file."""
    written = []
    n_total = sum(check.content_bytes for check in damaged)
    n_done = 0
    with progress_bar("writing", "bytes") as bar:

        def show(n_bytes: int) -> None:
            nonlocal n_done
            n_done += n_bytes
            bar(n_done, n_total)

        for check in damaged:
            if not check.n_records:
                continue
            target = targets[check.path]
            try:
                n_bytes = copy_intact(check, Path(target), num_threads, show)
            except OSError as error:
                path = str(error.filename or check.path)
                failures.append({"path": path, "reason": error.strerror or str(error)})
            except fr.Error as error:
                failures.append({"path": check.path, "reason": error.reason})
            else:
                fields = {"path": check.path, "target": target}
                counts = {"n_records": check.n_records, "n_bytes": n_bytes}
                written.append({**fields, **counts})
    return written
