"""Kill processes that share a cache of remote files, or fill its disk: a campaign.

usage: python -m campaigns.shared_caches --rounds N --seed S

A server in another process injects faults. In each round, eight processes read a dataset
through one cache directory. In half of the rounds, most of them are killed at random
moments. In the other half, the cache is on a disk of 50 MB, which is too small for the
dataset or has another file (needs root, for tmpfs): a process reads everything, or ends
with the error of a full disk. Then another process reads all rows, which must be right,
and no temporary file is left. Prints how the processes ended.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import fastrec as fr
from columns import Untyped

N_PROCESSES = 8
N_FILES, N_ROWS, ROW_BYTES = 8, 400, 8_000
DISK = "50m"
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "x": fr.FixedLen((), "bytes"),
}
IS_FULL = 3  # the status of a process that the full disk ended

SERVER = """
import gzip, sys
import fastrec as fr
from campaigns.shared_caches import N_FILES, N_ROWS, value
from object_server import random_faults, served
from oracle import tfrecord_file

objects = {}
for i in range(N_FILES):
    rows = range(i * N_ROWS, (i + 1) * N_ROWS)
    data = tfrecord_file([fr.encode_example({"n": n, "x": value(n)}) for n in rows])
    objects[f"plain/{i}.tfrecord"] = data
    objects[f"gz/{i}.tfrecord.gz"] = gzip.compress(data, 1)
    for copy in range(3):
        objects[f"large/{i}-{copy}.tfrecord"] = data
with served(objects, stall_seconds=0.02) as server:
    server.inject = random_faults(int(sys.argv[1]), 0.05, ("500", "503", "reset", "cut"))
    print(server.url, flush=True)
    sys.stdin.read()
"""


def value(n: int) -> bytes:
    return random.Random(n).randbytes(ROW_BYTES)


def read(url: str, cache: Path, **options: Untyped) -> None:
    """Read all rows through a cache, and check them."""
    ds = fr.open(f"{url}/*", features=SPEC, cache_dir=cache, index_dir=cache, **options)
    numbers = []
    for batch in ds.loader(64, shuffle=fr.Blocks(), num_threads=1):
        numbers += batch["n"].tolist()
        for n, x in zip(batch["n"].tolist(), batch["x"].tolist(), strict=True):
            assert x == value(n), f"row {n} has a wrong value"
    n_copies = 3 if url.endswith("large") else 1
    assert sorted(numbers) == sorted([*range(N_FILES * N_ROWS)] * n_copies)


def started(work: Callable[[], object]) -> int:
    """Run work in a forked process, and return its number."""
    if process := os.fork():
        return process
    status = 0
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (the status says so)
        status = IS_FULL if getattr(error, "errno", None) == errno.ENOSPC else 1
        if status == 1:
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(status)


def ended(process: int) -> str:
    """Wait for a process, and return how it ended."""
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, IS_FULL, -signal.SIGKILL), "a process failed"
    return {0: "complete", IS_FULL: "disk full"}.get(status, "killed")


def check(work: Callable[[], object], cache: Path) -> None:
    """Read everything once more; no temporary file may be left."""
    assert ended(started(work)) == "complete"
    assert not [path for path in cache.iterdir() if path.name.endswith(".tmp")]
    shutil.rmtree(cache)


def kill(url: str, folder: Path, rng: random.Random) -> Iterator[str]:
    """Kill processes that share a cache."""
    kind, limit = rng.choice([("plain", "12MB"), ("gz", "40MB")])
    options = {} if rng.random() < 0.5 else {"cache_bytes": limit}
    work = partial(read, f"{url}/{kind}", folder / "cache", **options)
    processes = [started(work) for _ in range(N_PROCESSES)]
    for process in rng.sample(processes, 6):
        time.sleep(rng.uniform(0, 0.4))
        os.kill(process, signal.SIGKILL)  # it may have ended, but is not waited for
    yield from map(ended, processes)
    check(work, folder / "cache")


def fill(url: str, folder: Path, rng: random.Random) -> Iterator[str]:
    """Fill the disk of a cache."""
    disk, other = folder / "disk", folder / "disk" / "other"
    disk.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", disk], check=True
    )
    try:
        options = {"cache_bytes": "40MB"}
        if rng.random() < 0.5:
            other.write_bytes(bytes(rng.randrange(15, 40) << 20))
            work = partial(read, f"{url}/plain", disk / "cache")
        else:
            limited = options if rng.random() < 0.5 else {}
            work = partial(read, f"{url}/large", disk / "cache", **limited)
        yield from map(ended, [started(work) for _ in range(N_PROCESSES)])
        other.unlink(missing_ok=True)
        check(partial(work, **options), disk / "cache")
    finally:
        subprocess.run(["umount", disk], check=True)


@contextlib.contextmanager
def server(seed: int) -> Iterator[str]:
    """Run the server in a process, because this one forks; yield its URL."""
    command = [sys.executable, "-c", SERVER, str(seed)]
    pipes: dict[str, Untyped] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def main() -> None:
    """Run rounds of both kinds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, server(arguments.seed) as url:
        for number in range(arguments.rounds):
            rng = random.Random(f"{arguments.seed} {number}")
            ends.update((kill, fill)[number % 2](url, Path(name), rng))
    print(json.dumps({"runs": arguments.rounds, **ends}))


if __name__ == "__main__":
    main()
