"""``fastrec verify``: verify all checksums, and report damage."""

from __future__ import annotations

import typer

from fastrec.cli.arguments import AsJson, Paths, RayAddress, Threads
from fastrec.cli.check_report import (
    CheckReport,
    check_and_print,
    files_to_check,
    print_sums,
)
from fastrec.options import default_num_threads


def verify(
    paths: Paths,
    *,
    threads: Threads = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Verify all checksums of TFRecord files, and report damage.

    After broken framing, it searches for records whose checksums match. GZIP and ZLIB
    files are decompressed and verified, too. It writes no files: use "fastrec repair". But
    it builds a cached index again that does not match its file.

    The exit status is 0 if all files are intact, 1 if any is damaged, and 2 if a file
    cannot be read or the command line is invalid.
    """
    report = CheckReport(num_threads=threads or default_num_threads())
    files = files_to_check(paths, report)
    check_and_print(files, report, as_json=as_json, ray_address=ray)
    print_sums(report, as_json=as_json)
    raise typer.Exit(2 if report.unreadable else int(bool(report.regions)))
