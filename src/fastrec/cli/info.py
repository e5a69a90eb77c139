"""``fastrec info``: files, records, sizes, kinds, balance, and indexes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.cli.arguments import AsJson, Paths
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.preview import aligned
from fastrec.cli.records import PlacedRecord, first_records, message_of
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

__all__ = ["info"]

_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
_N_SAMPLED = 1000  # records
_FRAMING_BYTES = 16
_MAX_FILES = 20  # in the table
_MAX_FEATURES = 8


def info(paths: Paths, *, as_json: AsJson = False) -> None:
    """Show what files are: records, sizes, compression, kind, balance, and indexes.

    It prints no value of a record, so the output can be pasted into a bug report. Kind
    and order of features come from the first records of the files.
    """
    files = files_of(paths, joins=False)
    contents = contents_of(files)
    n_before = n_indexed(list(zip(files, contents, strict=True)))
    indexed(files)  # behind a progress bar
    sizes = _record_sizes(files, contents)
    n_each = -(-_N_SAMPLED // len(files))
    sample = itertools.chain.from_iterable(
        itertools.islice(first_records([path]), n_each) for path in files
    )
    report = _Report.of(files, contents, sizes, n_before, sample)
    if as_json:
        console().print(json_line(asdict(report)))
    else:
        _print_report(report)


@dataclass
class _Report:
    """The results, with the fields of ``--json``."""

    n_files: int
    n_records: int
    n_bytes: int
    files: list[dict[str, Any]]
    compression: dict[str, int]  # number of files by compression
    kinds: dict[str, int]  # number of sampled records by kind
    record_bytes: dict[str, float]  # percentiles
    features: list[str]
    feature_order: str
    n_indexed: int  # files, before the command
    index_directory: str = field(default_factory=lambda: str(cache_dir() / "index"))

    @classmethod
    def of(
        cls,
        files: Sequence[str],
        contents: Sequence[Content],
        sizes: Sequence[npt.NDArray[np.int64]],
        n_indexed: int,
        sample: Iterable[PlacedRecord],
    ) -> _Report:
        """Make the report from the record sizes of each file and a sample of records."""
        names = [
            "none" if content == "plain" else content.upper() for content in contents
        ]
        listed = [
            {
                "path": json_path(path),
                "n_records": len(of_file),
                "n_bytes": version_of(path)[0],
                "compression": name,
            }
            for path, of_file, name in zip(files, sizes, names, strict=True)
        ]
        every = np.concatenate(sizes)
        percentiles = np.percentile(every, _PERCENTILES).tolist() if len(every) else []
        kinds, features, order = _survey(sample)
        return cls(
            n_files=len(files),
            n_records=len(every),
            n_bytes=sum(version_of(path)[0] for path in files),
            files=listed,
            compression=dict(Counter(names)),
            kinds=kinds,
            record_bytes={
                f"p{p}": float(n)
                for p, n in zip(_PERCENTILES, percentiles, strict=False)
            },
            features=features,
            feature_order=order,
            n_indexed=n_indexed,
        )


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


def _survey(sample: Iterable[PlacedRecord]) -> tuple[dict[str, int], list[str], str]:
    """Return counts by kind of record, names of features, and whether their order varies."""
    kinds: Counter[str] = Counter()
    names: dict[str, None] = {}
    pairs: dict[str, set[tuple[bytes, bytes]]] = {}  # neighbours, by file
    for record in sample:
        message = message_of(record.data)
        if message is None:
            kinds[_core.describe_foreign(record.data) or "unknown"] += 1
            continue
        kinds["SequenceExample" if message.lists else "Example"] += 1
        names |= dict.fromkeys(map(printable, (*message.context, *message.lists)))
        neighbours = pairs.setdefault(record.path, set())
        neighbours.update(itertools.pairwise(_keys(record.data)))
    order = "the same in all records"
    if any(map(_has_reversed, pairs.values())):
        order = "differs between records"
    elif _has_reversed(set().union(*pairs.values())):
        order = "the same in each file, differs between files"
    return dict(kinds), sorted(names), order if names else ""


def _keys(data: bytes) -> list[bytes]:
    """Return the keys of an Example or SequenceExample in the order of its bytes."""
    return [
        key
        for _, features in _messages(data)
        for _, entry in _messages(features)
        for number, key in _messages(entry)
        if number == 1
    ]


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the fields of a message that are not numbers."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        length = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 in (0, 2):
            value, at = _varint(data, at)
            length = value if tag & 7 == 2 else 0
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and the offset behind it."""
    value = 0
    for shift in itertools.count(0, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at


def _has_reversed(pairs: set[tuple[bytes, bytes]]) -> bool:
    return any((after, before) in pairs for before, after in pairs)


def _print_report(report: _Report) -> None:
    out = console()
    n_files, n_records = report.n_files, report.n_records
    lines = {
        "records": f"{n_records:,} in {counted(n_files, 'file')}, {size(report.n_bytes)}",
        "compression": ", ".join(
            name if count == n_files else f"{name} ({counted(count, 'file')})"
            for name, count in report.compression.items()
        ),
        "kind": ", ".join(
            kind if len(report.kinds) == 1 else f"{kind} ({count:,} sampled)"
            for kind, count in report.kinds.items()
        ),
    }
    if n_records:
        low, _, _, median, _, high, top = report.record_bytes.values()
        lines["record size"] = (
            f"{low:,.0f} to {top:,.0f} bytes, median {median:,.0f}, 95% up to {high:,.0f}"
            if low < top
            else counted(int(low), "byte")
        )
    if report.features:
        shown = ", ".join(report.features[:_MAX_FEATURES])
        more = ", ..." if len(report.features) > _MAX_FEATURES else ""
        lines["features"] = f"{len(report.features):,}: {shown}{more}"
        lines["feature order"] = report.feature_order
    if n_files > 1:
        of_files = [file["n_records"] for file in report.files]
        mean = n_records / n_files
        lines["records per file"] = (
            f"{min(of_files):,} to {max(of_files):,}, mean {mean:,.0f}"
        )
    state = "all files were indexed"
    if report.n_indexed < n_files:
        state = (
            f"{n_files - report.n_indexed:,} of {counted(n_files, 'file')} indexed now"
        )
    lines["indexes"] = f"{state}, in {printable(report.index_directory)}"
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
                for file in report.files
            ],
        )
