"""``fastrec repair``: copy the intact records of damaged files to new files."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, Paths, Threads
from fastrec.cli.check_report import (
    CheckReport,
    check_and_print,
    files_to_check,
    print_sums,
)
from fastrec.cli.outputs import reports_interrupt
from fastrec.cli.terminal import Bar, json_path
from fastrec.options import default_num_threads
from fastrec.rewrite import copy
from fastrec.rewrite.check import FileCheck, check_files
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import COMPRESSED_SUFFIXES, inflated
from fastrec.storage.urls import redacted


def repair(
    paths: Paths,
    *,
    out: Annotated[
        Path,
        typer.Option(
            *("--out", "-o"),
            metavar="OUT",
            help="The file to write if PATH is one file, otherwise the directory for "
            "files of the same names. Existing files are never replaced. Output is not "
            "compressed, and suffixes such as .gz are removed.",
        ),
    ],
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Copy the intact records of damaged TFRecord files to new files.

    A record is intact if both of its checksums match. A header with one flipped bit is
    repaired. Damaged files stay unchanged, and intact files are not copied. It also
    repairs the temporary file of a killed fastrec.Writer.

    The exit status is 0 if every damaged file was repaired, even if some of its records
    are lost; 1 if a damaged file has no intact record; and 2 if a file cannot be read or
    written, or the command line is invalid.
    """
    report = CheckReport(num_threads=threads or default_num_threads(), written=[])
    files = files_to_check(paths, report)
    targets = _targets(paths, list(files), out)
    with reports_interrupt(targets.values):
        damaged = check_and_print(files, report, as_json=as_json)
        _write(damaged, targets, report)
    print_sums(report, as_json=as_json)
    is_lost = any(not check.n_records for check in damaged)
    raise typer.Exit(2 if report.unreadable else int(is_lost))


def _targets(paths: list[str], files: list[str], out: Path) -> dict[str, str]:
    """Return the target of each file: `out`, or a file of its name in `out`."""
    is_file = len(files) == 1 and not Path(paths[0]).is_dir()
    msg = ""
    if is_file and out.suffix.lower() in COMPRESSED_SUFFIXES:
        msg = (
            f"output is not compressed; use a name without {out.suffix}, got "
            f"{redacted(str(out))}"
        )
    targets = {path: str(out) for path in files}
    try:
        if not is_file:
            targets = copy.targets_of(files, str(out), None)
    except FileExistsError as error:
        msg = f"{error.filename}: {error.strerror}"
    except ValueError as error:
        msg = str(error)
    for target in filter(os.path.lexists, targets.values()):
        msg = msg or f"{target}: the file exists, and repair does not replace files"
    if msg:
        raise typer.BadParameter(msg, param_hint="--out")
    return targets


def _write(
    damaged: list[FileCheck], targets: dict[str, str], report: CheckReport
) -> None:
    written = report.written
    assert written is not None
    n_total = sum(check.content_bytes for check in damaged)
    with Bar("writing", "bytes") as bar:
        bar(0, n_total)
        for check in damaged:
            if not check.n_records:
                continue
            target = Path(targets[check.path])
            try:
                n_bytes = copy_intact(check, target, report.num_threads, bar.advance_by)
            except OSError as error:
                path = str(error.filename or check.path)
                report.add_unreadable(path, error.strerror or str(error))
            except fr.Error as error:
                report.add_unreadable(check.path, error.reason)
            else:
                written.append(
                    {
                        "path": json_path(check.path),
                        "target": json_path(str(target)),
                        "n_records": check.n_records,
                        "n_bytes": n_bytes,
                    }
                )


def copy_intact(
    check: FileCheck,
    target: Path,
    n_threads: int,
    on_write: Callable[[int], object],
) -> int:
    """Write the intact records of a file to `target`; return the bytes written.

    The new file is checked before it gets its name. After an error it is removed.
    """
    n_bytes = 0
    with replacement(target) as temporary:
        with temporary.open("wb") as file:
            for piece in _intact_bytes(check):
                file.write(piece)
                n_bytes += len(piece)
                on_write(len(piece))
        (written,) = check_files([str(temporary)], n_threads)
        is_intact = not (written.damaged or written.unreadable)
        if not is_intact or written.n_records != check.n_records:
            reason = "the file changed while its records were copied"
            raise fr.Error(reason, check.path, code="file_changed")
    return n_bytes


def _intact_bytes(check: FileCheck) -> Iterator[bytes]:
    """Yield the bytes of intact records, with repaired headers."""
    end = check.content_bytes
    if check.damaged and check.damaged[-1].region.end is None:
        end = check.damaged[-1].region.begin
    begins = [each.region.begin for each in check.damaged]
    ends = [
        end if each.region.end is None else each.region.end for each in check.damaged
    ]
    offset = 0  # in the uncompressed content
    with closing(inflated(check.path, check.content)) as pieces:
        while offset < end and (piece := next(pieces, b"")):
            data = np.frombuffer(piece, np.uint8)[: end - offset].copy()
            is_intact = np.ones(len(data), np.bool_)
            in_piece = slice(
                bisect_right(ends, offset), bisect_left(begins, offset + len(data))
            )
            for each, begin, stop in zip(
                check.damaged[in_piece], begins[in_piece], ends[in_piece], strict=True
            ):
                if each.bit is None:
                    is_intact[max(0, begin - offset) : stop - offset] = False
                elif 0 <= (byte := begin + each.bit // 8 - offset) < len(data):
                    data[byte] ^= 1 << each.bit % 8
            offset += len(data)
            yield data[is_intact].tobytes()
