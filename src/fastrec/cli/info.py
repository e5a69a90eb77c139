"""``fastrec info``: files, records, sizes, kinds, balance, and indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.cli.arguments import AsJson, Paths
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.preview import aligned
from fastrec.cli.records import first_records, message_of
from fastrec.cli.terminal import (
    console,
    counted,
    json_line,
    json_path,
    print_table,
    printable,
    size,
)
from fastrec.storage.compression import Content, contents_of
from fastrec.storage.index import make_counts, make_indexes, n_indexed
from fastrec.storage.index_files import cache_dir
from fastrec.storage.paths import version_of

_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
_N_SAMPLED = 1000  # records
_FRAMING_BYTES = 16
_MAX_FILES = 20  # in the table
_MAX_FEATURES = 8


def info(paths: Paths, *, as_json: AsJson = False) -> None:
    """Show what files are: records, sizes, compression, kind, balance, and indexes.

    It prints no value of a record, so the output can be pasted into a bug report. Kind
    and features come from the first records of the files.
    """
    files = files_of(paths, joins=False)
    contents = contents_of(files)
    n_before = n_indexed(list(zip(files, contents, strict=True)))
    indexed(files)  # behind a progress bar
    sizes = _record_sizes(files, contents)
    names = ["none" if content == "plain" else content.upper() for content in contents]
    every = np.concatenate(sizes)
    percentiles = np.percentile(every, _PERCENTILES).tolist() if len(every) else []
    kinds, features = _survey(files)
    report: dict[str, Any] = {
        "n_files": len(files),
        "n_records": len(every),
        "n_bytes": sum(version_of(path)[0] for path in files),
        "files": [
            {
                "path": json_path(path),
                "n_records": len(of_file),
                "n_bytes": version_of(path)[0],
                "compression": name,
            }
            for path, of_file, name in zip(files, sizes, names, strict=True)
        ],
        "compression": Counter(names),
        "kinds": kinds,
        "record_bytes": {
            f"p{p}": n for p, n in zip(_PERCENTILES, percentiles, strict=False)
        },
        "features": features,
        "n_indexed": n_before,
        "index_directory": str(cache_dir() / "index"),
    }
    if as_json:
        console().print(json_line(report))
    else:
        _print_report(report)


def _record_sizes(
    files: Sequence[str], contents: Sequence[Content]
) -> list[npt.NDArray[np.int64]]:
    """Return the sizes of the records in each file."""
    if set(contents) <= {"plain"}:
        indexes = make_indexes(files)
    else:
        indexes = make_counts(list(zip(files, contents, strict=True)))
    offsets = [index.offsets.astype(np.int64) for index in indexes]
    return [each[1:] - each[:-1] - _FRAMING_BYTES for each in offsets]


def _survey(files: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return counts by kind of record, and the names of features, of the first records."""
    kinds: Counter[str] = Counter()
    names: set[str] = set()
    n_each = -(-_N_SAMPLED // len(files))
    for path in files:
        for record in islice(first_records([path]), n_each):
            message = message_of(record.data)
            if message is None:
                kinds[_core.describe_foreign(record.data) or "unknown"] += 1
                continue
            kinds["SequenceExample" if message.lists else "Example"] += 1
            names |= set(map(printable, (*message.context, *message.lists)))
    return dict(kinds), sorted(names)


def _print_report(report: dict[str, Any]) -> None:
    out = console()
    n_files, n_records = report["n_files"], report["n_records"]
    lines = {
        "records": f"{n_records:,} in {counted(n_files, 'file')}, {size(report['n_bytes'])}",
        "compression": ", ".join(
            name if count == n_files else f"{name} ({counted(count, 'file')})"
            for name, count in report["compression"].items()
        ),
        "kind": ", ".join(
            kind if len(report["kinds"]) == 1 else f"{kind} ({count:,} sampled)"
            for kind, count in report["kinds"].items()
        ),
    }
    if n_records:
        low, _, _, median, _, high, top = report["record_bytes"].values()
        lines["record size"] = (
            f"{low:,.0f} to {top:,.0f} bytes, median {median:,.0f}, 95% up to {high:,.0f}"
            if low < top
            else counted(int(low), "byte")
        )
    if report["features"]:
        shown = ", ".join(report["features"][:_MAX_FEATURES])
        more = ", ..." if len(report["features"]) > _MAX_FEATURES else ""
        lines["features"] = f"{len(report['features']):,}: {shown}{more}"
    if n_files > 1:
        of_files = [file["n_records"] for file in report["files"]]
        mean = n_records / n_files
        lines["records per file"] = (
            f"{min(of_files):,} to {max(of_files):,}, mean {mean:,.0f}"
        )
    state = "all files were indexed"
    if report["n_indexed"] < n_files:
        state = f"{n_files - report['n_indexed']:,} of {counted(n_files, 'file')} indexed now"
    lines["indexes"] = f"{state}, in {printable(report['index_directory'])}"
    for line in aligned(lines):
        out.print(line)
    if 1 < n_files <= _MAX_FILES:
        out.print()
        print_table(
            out,
            ["file", "records", "size", "compression"],
            [
                [
                    printable(file["path"]),
                    f"{file['n_records']:,}",
                    size(file["n_bytes"]),
                    file["compression"],
                ]
                for file in report["files"]
            ],
        )
