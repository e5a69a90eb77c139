"""``fastrec repair``: copy the sound records of damaged files to new files."""

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
from fastrec.cli.examine import Examined, examined
from fastrec.cli.findings import Findings, files_to_examine, find, show, text_of
from fastrec.cli.terminal import Bar
from fastrec.options import default_num_threads
from fastrec.rewrite import copy
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import COMPRESSED_SUFFIXES, inflated

__all__ = ["copy_proven", "repair"]


def repair(
    paths: Paths,
    *,
    out: Annotated[
        Path,
        typer.Option(
            *("--out", "-o"),
            metavar="OUT",
            help="The file to write for one PATH that is a file, otherwise the directory "
            "for files of the same names. Existing files are never replaced. Output is "
            "not compressed, and names lose .gz and the like.",
        ),
    ],
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Copy the sound records of damaged TFRecord files to new files.

    A record is sound if both of its checksums match. A header with one flipped bit is
    restored. The damaged files stay unchanged, and sound files are not copied. The
    temporary file of a fastrec.Writer that was killed can be repaired, too.

    The exit status is 0 if every damaged file was repaired, even if some of its records
    are lost; 1 if a damaged file has no sound record; and 2 if a file cannot be read or
    written or the command line is wrong.
    """
    findings = Findings(num_threads=threads or default_num_threads(), written=[])
    files = files_to_examine(paths, findings)
    targets = _targets(paths, list(files), out)
    damaged = find(files, findings, as_json=as_json)
    _write(damaged, targets, findings)
    show(findings, as_json=as_json)
    is_lost = any(not found.n_records for found in damaged)
    raise typer.Exit(2 if findings.unreadable else int(is_lost))


def _targets(paths: list[str], files: list[str], out: Path) -> dict[str, str]:
    """Return the target of each file: `out`, or a file of its name in that directory."""
    is_file = len(files) == 1 and not Path(paths[0]).is_dir()
    msg = ""
    if is_file and out.suffix.lower() in COMPRESSED_SUFFIXES:
        msg = f"{out} would not be compressed: choose a name without {out.suffix}"
    targets = {path: str(out) for path in files}
    try:
        if not is_file:
            targets = copy.targets_of(files, str(out), None)
    except FileExistsError as error:
        msg = f"{error.filename}: {error.strerror}"
    except ValueError as error:
        msg = str(error)
    for target in filter(os.path.lexists, targets.values()):
        msg = msg or f"{target}: the file exists, and repair never replaces a file"
    if msg:
        raise typer.BadParameter(msg, param_hint="--out")
    return targets


def _write(
    damaged: list[Examined], targets: dict[str, str], findings: Findings
) -> None:
    written = findings.written
    assert written is not None
    n_total = sum(found.content_bytes for found in damaged)
    with Bar("writing", "bytes") as bar:
        bar(0, n_total)
        for found in damaged:
            if not found.n_records:
                continue
            target = Path(targets[found.path])
            try:
                n_bytes = copy_proven(
                    found, target, findings.num_threads, bar.advance_by
                )
            except OSError as error:
                path = str(error.filename or found.path)
                findings.refuse(path, error.strerror or str(error))
            except fr.Error as error:
                findings.refuse(found.path, error.reason)
            else:
                written.append(
                    {
                        "path": text_of(found.path),
                        "target": text_of(str(target)),
                        "n_records": found.n_records,
                        "n_bytes": n_bytes,
                    }
                )


def copy_proven(
    found: Examined,
    target: Path,
    n_threads: int,
    on_write: Callable[[int], object],
) -> int:
    """Write the proven records of a file to `target`; return the bytes written.

    The new file is examined before it gets its name; after an error nothing is left.
    """
    n_bytes = 0
    try:
        with replacement(target) as temporary:
            with temporary.open("xb") as file:
                for piece in _proven(found):
                    file.write(piece)
                    n_bytes += len(piece)
                    on_write(len(piece))
                file.flush()
                os.fsync(file.fileno())
            (written,) = examined([str(temporary)], n_threads)
            is_as_found = not (written.damaged or written.unreadable)
            if not is_as_found or written.n_records != found.n_records:
                reason = "the file changed while its records were copied"
                raise fr.Error(reason, found.path, code="file_changed")
    except OSError as error:
        if error.filename is None:
            error.filename = str(target)
        raise
    return n_bytes


def _proven(found: Examined) -> Iterator[bytes]:
    """Yield the proven bytes of the content, with repaired headers."""
    end = found.content_bytes
    if found.damaged and found.damaged[-1].region.end is None:
        end = found.damaged[-1].region.begin
    begins = [each.region.begin for each in found.damaged]
    ends = [
        end if each.region.end is None else each.region.end for each in found.damaged
    ]
    at = 0  # of the content
    with closing(inflated(found.path, found.content)) as pieces:
        while at < end and (piece := next(pieces, b"")):
            data = np.frombuffer(piece, np.uint8)[: end - at].copy()
            is_proven = np.ones(len(data), np.bool_)
            here = slice(bisect_right(ends, at), bisect_left(begins, at + len(data)))
            for each, begin, stop in zip(
                found.damaged[here], begins[here], ends[here], strict=True
            ):
                if each.bit is None:
                    is_proven[max(0, begin - at) : stop - at] = False
                elif 0 <= (byte := begin + each.bit // 8 - at) < len(data):
                    data[byte] ^= 1 << each.bit % 8
            at += len(data)
            yield data[is_proven].tobytes()
