"""A program that reads a file in every way while system calls fail.

Each way runs with the fault at the first call, at the second, and so on, until no call
fails. Arguments: the folder with the files, io, the allowed outcome ("refused",
"transparent", or "either"), and the faults. For each fault, prints how often it
occurred, and how often it raised.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import fastrec as fr
from faults import Fault, Faults, check_nothing_more, left_open, patience

Io: TypeAlias = Literal["auto", "mmap", "pread"]
ErrorPolicy: TypeAlias = Literal["raise", "skip", "resync", "mask"]
Rows: TypeAlias = list[Any]
Way: TypeAlias = Callable[[fr.Dataset, Rows], None]

SPEC = {"n": fr.FixedLen((), "int64"), "data": fr.VarLen("bytes")}


def epoch(
    *, shuffle: bool = False, num_threads: int = 0, index_first: bool = False
) -> Way:
    def read(ds: fr.Dataset, rows: Rows) -> None:
        if index_first:
            len(ds)
        loader = ds.loader(7, shuffle=shuffle, num_threads=num_threads, prefetch=3)
        batches = iter(loader)
        try:
            for batch in batches:
                sizes = [len(data) for row in batch["data"] for data in row]
                rows.extend(zip(batch["n"].tolist(), sizes, strict=True))
        except OSError as error:
            try:
                next(batches)
            except OSError as again:
                assert again.errno == error.errno
            else:
                raise AssertionError from error
            raise
        if "__valid__" in batch:
            rows.append("masked")

    return read


def indexed(ds: fr.Dataset, rows: Rows) -> None:
    rows.append(len(ds))


def records(ds: fr.Dataset, rows: Rows) -> None:
    rows.extend(ds.records)


def some(ds: fr.Dataset, rows: Rows) -> None:
    rows.append([int(ds[i]["n"]) for i in (0, 5, 17)])


def chosen(ds: fr.Dataset, rows: Rows) -> None:
    rows.append(ds.records[[3, 1, 19]].tolist())


def head(ds: fr.Dataset, rows: Rows) -> None:
    # All rows: a few would not need what is read ahead.
    rows.append([int(row["n"]) for row in ds.head(1000)])


def fingerprint(ds: fr.Dataset, rows: Rows) -> None:
    rows.append(ds.loader(7).state_dict()["fingerprint"])


def inferred(ds: fr.Dataset, rows: Rows) -> None:
    rows.append(repr(ds.infer_schema()))


EPOCHS = {
    "sequential": epoch(),
    "sequential in threads": epoch(num_threads=2),
    "sequential, indexed": epoch(num_threads=2, index_first=True),
}
RANDOM = {
    "shuffled": epoch(shuffle=True),
    "shuffled in threads": epoch(shuffle=True, num_threads=2),
    "some": some,
    "chosen": chosen,
}
OTHERS = {
    "indexed": indexed,
    "records": records,
    "head": head,
    "fingerprint": fingerprint,
    "inferred": inferred,
}


def cases(folder: Path) -> list[tuple[str, Path, ErrorPolicy, Way]]:
    """Return every way to read every file, and its error policy."""
    plain, damaged, packed = (folder / name for name in ("plain", "damaged", "packed"))
    found: list[tuple[str, Path, ErrorPolicy, Way]] = []
    for name, way in (EPOCHS | RANDOM | OTHERS).items():
        found.append((name, plain, "raise", way))
        if name != "records":  # which raise where a payload is damaged
            found.append((name, damaged, "resync", way))
    for name, way in (EPOCHS | {"indexed": indexed}).items():
        found.append((name, plain, "skip", way))
        found.append((name, damaged, "skip", way))
        found.append((name, damaged, "mask", way))
    for name, way in (EPOCHS | OTHERS).items():
        found.append((name, packed, "raise", way))
        found.append((name, packed, "skip", way))
    return found


def opened(path: Path, io: Io, on_error: ErrorPolicy) -> fr.Dataset:
    """Open a file without an index directory, so that the index is built again."""
    return fr.open(
        path, features=SPEC, io=io, on_error=on_error, index_dir="/dev/null/index"
    )


def gone(
    folder: Path, io: Io, outcome: str, faults: Faults, fault: Fault
) -> tuple[int, int]:
    """Run all ways; return the number of faults and of errors."""
    n_made = n_refused = 0
    for name, path, on_error, way in cases(folder):
        whole: Rows = []
        way(opened(path, io, on_error), whole)
        for k in itertools.count(1):
            what = f"{name} of {path.name}, {on_error}: {fault} at {k}"
            ds = opened(path, io, on_error)
            rows: Rows = []
            refusal = None
            with patience():
                try:
                    with faults.injected(fault, str(path), k):
                        way(ds, rows)
                except OSError as caught:
                    refusal = caught
                if faults.n_made == 0:
                    break
                n_made += faults.n_made
                if refusal is None:
                    # Read-ahead hints may fail, too; they are optional.
                    assert outcome != "refused", what
                    assert rows == whole, what
                else:
                    assert outcome != "transparent", (what, refusal)
                    assert refusal.errno == fault.error, (what, refusal)
                    assert os.fspath(refusal.filename) == str(path), (what, refusal)
                    n_refused += 1
                    assert rows == whole[: len(rows)], what
                again: Rows = []
                way(ds, again)
                assert again == whole, (what, "what failed is not as before")
            if fault.is_of_all_calls:
                break
    return n_made, n_refused


def main() -> None:
    """Read in every way with every fault."""
    folder, outcome = Path(sys.argv[1]), sys.argv[3]
    io: Io = sys.argv[2]  # type: ignore[assignment]
    logging.disable()  # silence warnings about skipped regions
    faults = Faults()
    before = left_open()
    for text in sys.argv[4:]:
        print(*gone(folder, io, outcome, faults, Fault.of(text)))
    check_nothing_more(before)


if __name__ == "__main__":
    main()
