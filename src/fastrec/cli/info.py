"""``fastrec info``: summarize files, records, sizes, kinds, balance, and indexes."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
from typer import echo

from fastrec.cli.arguments import AsJson, Paths
from fastrec.cli.files import files_of, indexed
from fastrec.cli.preview import aligned
from fastrec.cli.records import first_records, message_of
from fastrec.cli.terminal import counted, print_json, print_table, printable, size
from fastrec.kept.description import descriptions
from fastrec.storage.compression import contents_of
from fastrec.storage.index import n_indexed
from fastrec.storage.paths import version_of

_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
_N_SAMPLED = 4096  # records
_MAX_FILES = 20  # in the table
_MAX_FEATURES = 8


def info(paths: Paths, *, as_json: AsJson = False) -> None:
    """Summarize files: records, sizes, compression, kind, balance, and indexes.

    The output contains no record values, so it can be pasted into a bug report. Kinds,
    sizes and features come from the first records of each file, up to 4,096 in total.
    Of a directory of fastrec cache, show the kept rows and the columns.
    """
    if len(paths) == 1 and (kept := descriptions(paths[0])):
        if as_json:
            print_json({"directories": kept})
        else:
            _print_kept(kept)
        return
    files = files_of(paths, joins=False)
    contents = contents_of(files)
    n_before = n_indexed(files, contents)
    counts, _ = indexed(files)
    kinds: Counter[str] = Counter()
    names: set[str] = set()
    sizes = []
    n_each = max(1, _N_SAMPLED // len(files))
    for path in files:
        for record in islice(first_records([path]), n_each):
            sizes.append(len(record.data))
            message = message_of(record.data)
            if isinstance(message, str):
                kinds[message] += 1
                continue
            kinds["SequenceExample" if message.lists else "Example"] += 1
            names |= set(map(printable, (*message.context, *message.lists)))
    listed = [
        {
            "path": path,
            "n_records": counts[path],
            "n_bytes": version_of(path)[0],
            "compression": "none" if content == "plain" else content.upper(),
        }
        for path, content in zip(files, contents, strict=True)
    ]
    of_sizes = np.percentile(sizes, _PERCENTILES).tolist() if sizes else []
    report: dict[str, Any] = {
        "n_files": len(files),
        "n_records": sum(file["n_records"] for file in listed),
        "n_bytes": sum(file["n_bytes"] for file in listed),
        "files": listed,
        "compression": Counter(file["compression"] for file in listed),
        "kinds": kinds,
        "n_sampled": len(sizes),
        "record_bytes": {
            f"p{p}": n for p, n in zip(_PERCENTILES, of_sizes, strict=False)
        },
        "features": sorted(names),
        "n_indexed": n_before,
    }
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _print_report(report: dict[str, Any]) -> None:
    n_files, n_records = report["n_files"], report["n_records"]
    is_sample = report["n_sampled"] < n_records
    sampled = f" (of {report['n_sampled']:,} sampled)" if is_sample else ""
    lines = {
        "records": f"{n_records:,} in {counted(n_files, 'file')}, {size(report['n_bytes'])}",
        "compression": _shares(report["compression"], ""),
        "kind": _shares(report["kinds"], sampled),
    }
    if report["record_bytes"]:
        low, _, _, median, _, high, top = report["record_bytes"].values()
        lines["record size"] = (
            f"{low:,.0f} to {top:,.0f} bytes, median {median:,.0f}, 95% up to {high:,.0f}"
            if low < top
            else counted(int(low), "byte")
        ) + sampled
    if report["features"]:
        shown = ", ".join(report["features"][:_MAX_FEATURES])
        more = ", ..." if len(report["features"]) > _MAX_FEATURES else ""
        lines["features"] = f"{len(report['features']):,}: {shown}{more}"
    if n_files > 1:
        each = [file["n_records"] for file in report["files"]]
        mean = n_records / n_files
        lines["records per file"] = f"{min(each):,} to {max(each):,}, mean {mean:,.0f}"
    lines["indexes"] = "all files were indexed"
    if n_new := n_files - report["n_indexed"]:
        lines["indexes"] = f"{n_new:,} of {counted(n_files, 'file')} indexed now"
    for line in aligned(lines):
        echo(line)
    if 1 < n_files <= _MAX_FILES:
        echo()
        rows = [
            [
                *(printable(file["path"]), f"{file['n_records']:,}"),
                *(size(file["n_bytes"]), file["compression"]),
            ]
            for file in report["files"]
        ]
        print_table(["file", "records", "size", "compression"], rows)


def _print_kept(directories: list[dict[str, Any]]) -> None:
    for i, kept in enumerate(directories):
        if i:
            echo()
        n_rows, n_kept = kept["n_rows"], kept["n_kept"]
        lines = {
            "directory": printable(kept["path"]),
            "kept rows": f"{n_kept:,} of {n_rows:,}, {size(kept['n_bytes'])} on disk",
            "features": ", ".join(
                f"{printable(name)} {spec}" for name, spec in kept["features"].items()
            ),
            "transforms": ", ".join(map(printable, kept["transforms"])) or "none",
        }
        for line in aligned(lines):
            echo(line)
        rows = [
            [printable(name), column["dtype"], _shape(column), size(column["n_bytes"])]
            for name, column in kept["columns"].items()
        ]
        echo()
        print_table(["column", "dtype", "shape of a row", "on disk"], rows)


def _shape(column: dict[str, Any]) -> str:
    sides = ["*" if side is None else f"{side}" for side in column["shape"]]
    return " x ".join(sides) or "-"


def _shares(counts: dict[str, int], note: str) -> str:
    """Join the names in `counts`, with counts if there are several; append `note`."""
    if len(counts) == 1:
        return next(iter(counts)) + note
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items()) + note
