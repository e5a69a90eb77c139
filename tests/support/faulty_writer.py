"""A program whose writers fail: at the first call, at the second, and so on.

Arguments: a new folder, and the faults; an error of -1 kills the process. For each
fault, prints how often it occurred, and how often it raised.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

from fastrec import Writer
from faults import Fault, Faults, check_nothing_more, left_open, patience
from oracle_frames import frame

SOME = [bytes([n]) * (n * 997 % 20_000) for n in range(30)]
RECORDS = SOME * 10  # more than 2 MiB, so that there are several writes
WHOLE = b"".join(map(frame, SOME)) * 10
OLD = frame(b"what was there before")


def write(path: Path, *, overwrite: bool) -> None:
    """Write all records."""
    with Writer(path, overwrite=overwrite) as writer:
        for record in RECORDS:
            writer.write_record(record)


def check_left(path: Path, *, overwrite: bool) -> None:
    """Check that a killed writer left all or only a temporary and a lock file."""
    if path.exists() and path.read_bytes() != OLD:
        assert path.read_bytes() == WHOLE
    else:
        assert path.exists() == overwrite
    for other in path.parent.iterdir():
        if other != path:
            assert other.name.startswith(f".{path.name}."), other
            assert other.name.endswith((".tmp", ".lock")), other
            assert WHOLE.startswith(other.read_bytes()), other


def is_killed(
    path: Path, faults: Faults, fault: Fault, k: int, *, overwrite: bool
) -> bool:
    """Write in a process that is killed at the k-th call; return whether it was."""
    child = os.fork()
    if child == 0:
        with faults.injected(fault, str(path.parent), k):
            write(path, overwrite=overwrite)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def is_refused(path: Path, fault: Fault, *, overwrite: bool) -> bool:
    """Write, and check the error if a call fails."""
    said = (fault.error, str(path))
    writer = None
    try:
        writer = Writer(path, overwrite=overwrite)
        for record in RECORDS:
            writer.write_record(record)
        writer.close()
    except OSError as error:
        assert (error.errno, error.filename) == said, error
        if writer is None:
            return True
        assert writer.closed
        for again in (writer.close, lambda: writer.write_record(b"more")):
            try:
                again()
            except OSError as repeated:
                assert (repeated.errno, repeated.filename) == said
            else:
                raise AssertionError from error
        return True
    return False


def gone(folder: Path, faults: Faults, fault: Fault, *, overwrite: bool) -> list[int]:
    """Write with the fault at every call; return the number of faults and errors."""
    n_made = n_refused = 0
    for k in itertools.count(1):
        below = folder / f"{fault}-{overwrite}-{k}"
        below.mkdir(parents=True)
        path = below / "data"
        if overwrite:
            path.write_bytes(OLD)
        refused = False
        with patience():
            if fault.error < 0:
                n = int(is_killed(path, faults, fault, k, overwrite=overwrite))
                check_left(path, overwrite=overwrite)
            else:
                with faults.injected(fault, str(below), k):
                    refused = is_refused(path, fault, overwrite=overwrite)
                n = faults.n_made
                assert len(list(below.iterdir())) == (overwrite or not refused)
                check_left(path, overwrite=overwrite)
                assert refused or path.read_bytes() == WHOLE
            n_made += n
            n_refused += refused
            if n == 0 or fault.is_of_all_calls:
                break
            write(path, overwrite=True)
            assert path.read_bytes() == WHOLE
    return [n_made, n_refused]


def main() -> None:
    """Write with all faults."""
    faults = Faults()
    before = left_open()
    for text in sys.argv[2:]:
        fault = Fault.of(text)
        new, overwritten = (
            gone(Path(sys.argv[1]), faults, fault, overwrite=overwrite)
            for overwrite in (False, True)
        )
        print(new[0] + overwritten[0], new[1] + overwritten[1])
    check_nothing_more(before)


if __name__ == "__main__":
    main()
