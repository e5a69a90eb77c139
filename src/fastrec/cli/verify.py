"""``fastrec verify``: verify every checksum, and report damage."""

from __future__ import annotations

import typer

from fastrec.cli.arguments import AsJson, Paths, Threads
from fastrec.cli.findings import Findings, files_to_examine, find, show
from fastrec.options import default_num_threads

__all__ = ["verify"]


def verify(paths: Paths, *, threads: Threads = None, as_json: AsJson = False) -> None:
    """Verify all checksums of TFRecord files, and report what is damaged.

    After broken framing, it searches for records that both checksums prove. GZIP and ZLIB
    files are inflated and verified, too. Nothing is written: "fastrec repair" does that.

    The exit status is 0 if all files are sound, 1 if any is damaged, and 2 if a file
    cannot be read or the command line is wrong.
    """
    findings = Findings(num_threads=threads or default_num_threads())
    find(files_to_examine(paths, findings), findings, as_json=as_json)
    show(findings, as_json=as_json)
    raise typer.Exit(2 if findings.unreadable else int(bool(findings.regions)))
