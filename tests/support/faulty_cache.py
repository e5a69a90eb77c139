"""A program whose writes of caches fail: indexes, counts and expanded files.

Each write of a cache fails at the first call, at the second, and so on. Arguments: a
plain and a compressed file with records of numbers, a new folder, and the faults; an
error of -1 kills the process. Prints how many faults of each kind occurred.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import fastrec as fr
from faults import Fault, Faults, check_nothing_more, left_open, patience

Way: TypeAlias = Callable[[Path], list[bytes]]

SPEC = {"n": fr.FixedLen((), "int64")}


class Lines(logging.Handler):
    """The log lines about entries that could not be cached."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "not kept" in record.getMessage():
            self.lines.append(record.getMessage())


def ways(plain: str, packed: str) -> dict[str, Way]:
    """Return functions that read each kind of cache entry in a folder."""

    def indexed(cache: Path) -> list[bytes]:
        ds = fr.open([plain, plain], features=SPEC, index_dir=cache)
        assert len(ds.loader(7, shuffle=True)) > 0
        return list(ds.records)

    def counted(cache: Path) -> list[bytes]:
        ds = fr.open([packed, packed], features=SPEC, index_dir=cache)
        assert len(ds) > 0
        return list(ds.records)

    def expanded(cache: Path) -> list[bytes]:
        return list(fr.open(packed, features=SPEC, cache_dir=cache).records)

    return {"index": indexed, "count": counted, "expansion": expanded}


def fails(
    faults: Faults, way: Way, cache: Path, fault: Fault, k: int, log: Lines
) -> tuple[list[bytes] | None, int]:
    """Return the records, or None after an OSError, and the number of faults."""
    log.lines.clear()
    try:
        with faults.injected(fault, str(cache), k):
            found = way(cache)
    except OSError as error:
        assert error.errno == fault.error, error
        assert error.filename.startswith(str(cache)), error
        return None, faults.n_made
    assert len(log.lines) <= 1, log.lines
    return found, faults.n_made


def is_killed(faults: Faults, way: Way, cache: Path, fault: Fault, k: int) -> bool:
    """Run in a process that is killed at the k-th call; return whether it was."""
    child = os.fork()
    if child == 0:
        with faults.injected(fault, str(cache), k):
            way(cache)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def gone(
    plain: str, packed: str, folder: Path, faults: Faults, fault: Fault, log: Lines
) -> int:
    """Run all kinds, and return the number of faults."""
    n_made = 0
    for kind, way in ways(plain, packed).items():
        whole = way(folder / kind)
        for k in itertools.count(1):
            what = f"{kind}: {fault} at {k}"
            cache = folder / f"{fault}-{kind}-{k}" / "below"
            with patience():
                if fault.error < 0:
                    n = int(is_killed(faults, way, cache, fault, k))
                else:
                    found, n = fails(faults, way, cache, fault, k, log)
                    assert found is not None or kind == "expansion", what
                    assert found in (None, whole), what
                    left = [path.name for path in cache.glob("**/*")]
                    assert not any(name.endswith(".tmp") for name in left), left
                if n == 0:
                    break
                n_made += n
                assert way(cache) == whole, what  # incomplete entries are not used
                assert way(cache) == whole, what
    return n_made


def main() -> None:
    """Run all kinds with all faults."""
    plain, packed, folder = sys.argv[1:4]
    faults, log = Faults(), Lines()
    logging.getLogger("fastrec").addHandler(log)
    logging.getLogger("fastrec").setLevel(logging.INFO)
    before = left_open()
    for text in sys.argv[4:]:
        print(gone(plain, packed, Path(folder), faults, Fault.of(text), log))
    check_nothing_more(before)


if __name__ == "__main__":
    main()
