"""A program that cuts the power while files are written: a campaign.

usage: python -m campaigns.power_cut --runs N --seed S [--only WORKLOAD [STATE]]

Each workload runs once, while recorder.c records its calls. Then the program makes states
in which a power cut may leave the disk (disk_states.py), N in all, after each call in
turn. In every state:

* A final name has all of the old file, all of the new one, or, if one of them does not
  exist, none: except with sync=False, and of a file that is appended to.
* After the end of the workload, all of its files are complete.
* A file that is appended to has all of its old records, in front.
* fastrec delivers the records of a complete file, whatever is left of its index and of
  other cached files. Of any other file it delivers records from the first on, or raises.
* The same workload with overwrite=True, or fastrec repair, then writes the whole files,
  and leaves no temporary file of a writer. A file can be appended to, or its damage is
  an error.

The last line is an object with the number of states, of those in which fastrec ran
(equal states are tried once), and of states with an incomplete file under a final name
without sync, and of files that cannot be appended to before they are repaired.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import fastrec as fr
from campaigns.disk_states import CONTENTS, MODELS, NAMES, Choice, Disk, read_trace
from children import built_library
from commands import run as command
from oracle_frames import frame, frame_offsets

SHARE_OF_WRITES = 4  # in one state of this many, the workload runs again
MEMORY = Path("/dev/shm")  # where fsync takes no time
MOST_PER_WRITE = 8192
OF_SHARDS = "d-{shard:02d}"
OF_SHARDS_AND_NUMBER = "d-{shard:02d}-of-{num_shards:02d}"


def records(seed: int, n: int) -> list[bytes]:
    """Return serialized Examples."""
    draw = random.Random(seed)
    return [
        fr.encode_example({"n": i, "data": draw.randbytes(draw.randrange(3000))})
        for i in range(n)
    ]


OLD, NEW = records(1, 24), records(2, 30)
LAST = fr.encode_example({"n": -1})
OLD_FRAMES = list(map(frame, OLD))


@dataclass(frozen=True)
class Workload:
    """What is run in a folder, what was there before, and what a power cut may leave.

    `again` repeats it in any state, with overwrite; it is None of a workload that appends
    to a file.
    """

    name: str
    run: Callable[[Path], object]
    prepare: Callable[[Path], object]
    again: Callable[[Path], object] | None
    is_synced: bool = True


def write(folder: Path, pattern: str, some: Sequence[bytes], **options: Any) -> None:
    """Write records by a Writer; without threads, so that the calls have one order."""
    with fr.Writer(folder / pattern, **{"num_threads": 0, **options}) as writer:
        for record in some:
            writer.write_record(record)


def written(
    name: str,
    pattern: str = "d.tfrecord",
    *,
    old: dict[str, Any] | None = None,
    **options: Any,
) -> list[Workload]:
    """Return workloads of a Writer with and without sync.

    `old` has the options of the Writer whose files are replaced.
    """

    def prepare(folder: Path) -> None:
        if old is not None:
            write(folder, pattern, OLD, **old)

    def run(folder: Path, *, sync: bool) -> None:
        write(folder, pattern, NEW, overwrite=old is not None, sync=sync, **options)

    def again(folder: Path) -> None:
        write(folder, pattern, NEW, overwrite=True, **options)

    return [
        Workload(name, partial(run, sync=True), prepare, again),
        Workload(
            f"{name}, sync=False",
            partial(run, sync=False),
            prepare,
            again,
            is_synced=False,
        ),
    ]


def appended(name: str, *, cut: int = 0, sync: bool = True) -> Workload:
    """Return a workload that appends to a file, of which `cut` bytes are missing."""

    def prepare(folder: Path) -> None:
        data = b"".join(OLD_FRAMES)
        (folder / "d.tfrecord").write_bytes(data[: len(data) - cut])

    def run(folder: Path) -> None:
        write(folder, "d.tfrecord", NEW, append=True, sync=sync)

    return Workload(name, run, prepare, None, is_synced=sync)


def rewritten(name: str, *arguments: str, out: str) -> Workload:
    """Return a workload of a command that rewrites d.tfrecord."""

    def run(folder: Path, *more: str) -> None:
        target = folder / out
        command(name, folder / "d.tfrecord", "-o", target, *arguments, *more)

    return Workload(
        f"fastrec {name} -o {out}",
        run,
        lambda folder: write(folder, "d.tfrecord", NEW),
        lambda folder: run(folder, "--overwrite"),
    )


def damaged(folder: Path) -> None:
    """Write a file of which one payload is damaged."""
    write(folder, "d.damaged", NEW)
    with (folder / "d.damaged").open("r+b") as file:
        file.seek(len(frame(NEW[0])) + 40)
        file.write(b"\0\0\0\0")


def repaired(folder: Path) -> None:
    """Repair it."""
    command("repair", folder / "d.damaged", "-o", folder / "mended.tfrecord")


def repaired_again(folder: Path) -> None:
    """Repair it, unless a complete file is there, which is never replaced."""
    if not (folder / "mended.tfrecord").exists():
        repaired(folder)


def read_all(folder: Path) -> None:
    """Read files so that their index, count and copy are cached."""
    for path in folder.glob("d*"):
        assert len(fr.open(path)) == len(NEW)
        assert list(fr.open(path, cache_dir=folder / "copies").records) == NEW


def cached(name: str, file: str, **options: Any) -> Workload:
    """Return a workload that reads a file for which nothing is cached."""

    def prepare(folder: Path) -> None:
        write(folder, file, NEW, **options)
        shutil.rmtree(folder / "cache")

    return Workload(f"caches of a {name} file", read_all, prepare, read_all)


def indexed(folder: Path) -> None:
    """Build the index next to the data."""
    command("index", folder, "--next-to-data")


def tables(folder: Path) -> None:
    """Convert the file to a table."""
    command("convert", folder / "d.tfrecord", "-o", folder / "d.parquet", "--overwrite")


SHARDS: dict[str, Any] = {"max_shard_bytes": 12_000}
LANES: dict[str, Any] = {"num_shards": 3}
WORKLOADS = [
    *written("one file"),
    *written("one file of GZIP", compression="GZIP"),
    *written("one file of ZLIB", compression="ZLIB"),
    *written("replaced file", old={}),
    *written("shards by bytes", OF_SHARDS, **SHARDS),
    *written("shards by records", OF_SHARDS, max_shard_records=7, num_threads=2),
    *written("shards with their number", OF_SHARDS_AND_NUMBER, **SHARDS),
    *written("num_shards", OF_SHARDS_AND_NUMBER, **LANES),
    *written("num_shards of GZIP", OF_SHARDS, compression="GZIP", **LANES),
    *written(
        "replaced shards",
        OF_SHARDS_AND_NUMBER,
        old={"max_shard_records": 3},
        **SHARDS,
    ),
    appended("appending"),
    appended("appending after a cut", cut=17),
    appended("appending, sync=False", sync=False),
    rewritten("reshard", "--max-shard-bytes", "12KB", out=OF_SHARDS_AND_NUMBER),
    rewritten("reshard", "--compression", "gzip", out="packed/"),
    rewritten("shuffle", "--num-shards", "2", "--seed", "1", out="s-{shard}"),
    rewritten("split", "--parts", "a=0.6,b=0.4", out="{part}.tfrecord"),
    Workload("fastrec repair", repaired, damaged, repaired_again),
    Workload(
        "fastrec convert",
        tables,
        lambda folder: write(folder, "d.tfrecord", NEW),
        tables,
    ),
    cached("plain", "d.tfrecord"),
    cached("GZIP", "d.tfrecord.gz", compression="GZIP"),
    Workload(
        "fastrec index",
        indexed,
        lambda folder: write(folder, OF_SHARDS, NEW, **SHARDS),
        indexed,
    ),
]


# --- Files ----------------------------------------------------------------------------

Snapshot = Mapping[str, "tuple[int, bytes | None]"]  # inodes and contents

_OF_WRITERS = re.compile(r"\..*\.[0-9a-f]{16}-\d+\.tmp")


def snapshot(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return the inode and content of each file, and the inode of each directory."""
    return {
        str(path): (path.stat().st_ino, None if path.is_dir() else path.read_bytes())
        for path in [folder, *folder.rglob("*")]
    }


def times(folder: Path) -> dict[int, int]:
    """Return the modification time of each inode."""
    return {path.stat().st_ino: path.stat().st_mtime_ns for path in folder.rglob("*")}


def records_of(content: bytes) -> list[bytes]:
    """Return the records of a complete file, by a slow reader."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    elif content[:1] == b"\x78":
        content = zlib.decompress(content)
    return [content[a + 12 : b - 4] for a, b in pairwise(frame_offsets(content))]


def intact_records(path: Path) -> list[bytes]:
    """Return the records of a damaged file of which both checksums match."""
    ds = fr.open(path, features={"record": fr.Record()}, on_error="resync")
    return [record for batch in ds.loader(100) for record in batch["record"].tolist()]


def are_some_of(found: Sequence[bytes], complete: Sequence[bytes]) -> bool:
    """Whether records are in the complete list, in the same order."""
    rest = iter(complete)
    return all(record in rest for record in found)


# --- The campaign ---------------------------------------------------------------------


class Promises:
    """What is promised of the files in `folder`, given those before and after a workload.

    `counts` has the numbers of states, of those that differ, and so on.
    """

    def __init__(
        self, workload: Workload, folder: Path, before: Snapshot, after: Snapshot
    ) -> None:
        self._workload = workload
        self._folder = folder
        self._before = self._finals(before)
        self._after = self._finals(after)
        self._complete: dict[bytes, list[bytes]] = {}
        for path, content in [*self._before.items(), *self._after.items()]:
            if not path.endswith((".damaged", ".parquet")):
                with contextlib.suppress(ValueError):  # the file to append to
                    self._complete[content] = records_of(content)
        self._seen: set[int] = set()
        self.counts: Counter[str] = Counter()

    def check(
        self,
        state: Snapshot,
        draw: random.Random,
        *,
        is_done: bool,
        restore: Callable[[], object] = lambda: None,
    ) -> None:
        """Check a state after a power cut; `restore` puts its files into the folder."""
        found = self._finals(state)
        incomplete = [path for path in found if not self._is_complete(path, found)]
        missing = [
            path for path in self._before.keys() & self._after if path not in found
        ]
        self.counts["states"] += 1
        self.counts["incomplete"] += bool(incomplete)
        if self._workload.again is None:
            ((_, content),) = found.items()
            assert content.startswith(b"".join(map(frame, self._old))), "old records"
        elif self._workload.is_synced:
            assert not incomplete, f"incomplete: {incomplete}"
            assert not missing, f"missing: {missing}"
        if self._workload.is_synced and is_done:
            assert found == self._after, "the end of the workload is not on the disk"
        key = hash(tuple(state.items()))
        if key not in self._seen:
            self._seen.add(key)
            self.counts["distinct"] += 1
            restore()
            self._read(found)
            if draw.randrange(SHARE_OF_WRITES) == 0:
                self._continue(found)

    def _finals(self, found: Snapshot) -> dict[str, bytes]:
        """Return the files that users see: no caches, temporary or lock files."""
        skipped = len(str(self._folder)) + 1
        return {
            path: content
            for path, (_, content) in found.items()
            if content is not None
            and not path[skipped:].startswith((".", "cache/", "copies/"))
            and "/." not in path[skipped:]
        }

    def _is_complete(self, path: str, found: dict[str, bytes]) -> bool:
        return found[path] in (self._before.get(path), self._after.get(path))

    def _read(self, found: dict[str, bytes]) -> None:
        """Read all files; none has a wrong record, and a complete one has all."""
        for path, content in found.items():
            if path.endswith((".damaged", ".parquet")):
                continue
            complete = self._complete.get(content)
            delivered = []
            try:
                ds = fr.open(path, cache_dir=self._folder / "copies")
                for record in ds.records:
                    delivered.append(bytes(record))
                assert len(ds) == len(delivered)
            except fr.Error:
                assert complete is None, "a complete file cannot be read"
            if complete is not None:
                assert delivered == complete, "a complete file has other records"
            else:
                expected = self._complete[self._after[path]]
                assert delivered == expected[: len(delivered)], "wrong records"

    def _continue(self, found: dict[str, bytes]) -> None:
        """Do what a user does after a power cut."""
        self.counts["continued"] += 1
        for temporary in self._folder.rglob("*.tmp"):
            if _OF_WRITERS.fullmatch(temporary.name) and self._is_plain:
                assert set(intact_records(temporary)) <= set(NEW)
        if self._workload.again is None:
            self._append(*found.items())
            return
        self._workload.again(self._folder)
        now = snapshot(self._folder)
        assert self._finals(now) == self._after
        left = [path for path in now if _OF_WRITERS.fullmatch(Path(path).name)]
        assert not left, left

    @property
    def _is_plain(self) -> bool:
        return not any(word in self._workload.name for word in ("GZIP", "ZLIB", "gzip"))

    def _append(self, one: tuple[str, bytes]) -> None:
        """Append to a file that has a part of what was appended."""
        path, content = Path(one[0]), one[1]
        try:
            write(self._folder, path.name, [LAST], append=True)
        except fr.CorruptionError:
            self.counts["refused"] += 1
            assert path.read_bytes() == content, "a refused file was changed"
            command("repair", path, "-o", path.with_name("mended"))
            path = path.with_name("mended")
        appended = intact_records(path)
        n = len(self._old)
        assert appended[:n] == self._old, "an old record is lost"
        assert are_some_of(appended[n:], [*NEW, LAST])

    @property
    def _old(self) -> list[bytes]:
        """The records that were complete before the workload."""
        ((_, content),) = self._before.items()
        return [record for record in OLD if frame(record) in content]


class Cuts:
    """The power cuts of one workload, which is run and recorded in `folder`."""

    def __init__(self, workload: Workload, folder: Path, library: ctypes.CDLL) -> None:
        self._name = workload.name
        self._folder = folder
        workload.prepare(folder)
        before, self._times = snapshot(folder), times(folder)
        trace = folder.with_suffix(".trace")
        library.recorder_start(
            os.fsencode(folder), os.fsencode(trace), ctypes.c_size_t(MOST_PER_WRITE)
        )
        workload.run(folder)
        library.recorder_mark()
        library.recorder_stop()
        self._times |= times(folder)
        after = snapshot(folder)
        self.promises = Promises(workload, folder, before, after)
        self._disk = Disk(before, read_trace(trace))
        moments = range(self._disk.n_calls + 1)
        self._choices = [
            Choice(*each) for each in product(moments, MODELS, NAMES, CONTENTS)
        ]
        random.Random(0).shuffle(self._choices)
        self.promises.counts["calls"] = self._disk.n_calls
        # Without a power cut, the model has what the file system has.
        end = Choice(self._disk.n_calls, "journal", "last", "last")
        files = {path: each for path, each in after.items() if each[1] is not None}
        assert self._disk.state(end, random.Random(0)) == files

    def check(self, seed: int, number: int) -> None:
        """Check one state."""
        draw = random.Random(f"{seed} {self._name} {number}")
        choice = self._choices[number % len(self._choices)]
        state = self._disk.state(choice, draw)
        self.promises.check(
            state,
            draw,
            is_done=choice.time > self._disk.done_at,
            restore=lambda: self._restore(state),
        )

    def _restore(self, state: dict[str, tuple[int, bytes]]) -> None:
        """Write the files of a state."""
        for path in self._folder.rglob("*"):
            if not path.is_dir():
                path.unlink()
        names: dict[int, str] = {}
        for name, (inode, content) in state.items():
            if inode in names:
                os.link(names[inode], name)
                continue
            names[inode] = name
            Path(name).write_bytes(content)
            mtime = self._times.get(inode, 0)
            os.utime(name, ns=(mtime, mtime))


def preload(folder: Path) -> None:
    """Compile recorder.c, and start this program again with it."""
    library = built_library(Path(__file__).with_name("recorder.c"), folder)
    environment = os.environ | {"LD_PRELOAD": str(library)}
    arguments = [sys.executable, *sys.orig_argv[1:]]
    sys.exit(subprocess.run(arguments, env=environment, check=False).returncode)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--runs", type=int, default=1000, help="states, of all workloads"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar=("WORKLOAD", "STATE"))
    options = parser.parse_args()
    if "recorder.so" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory() as built:
            preload(Path(built))
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    logging.disable()
    workloads = [
        each for each in WORKLOADS if not options.only or each.name == options.only[0]
    ]
    total: Counter[str] = Counter()
    for i, workload in enumerate(workloads):
        n_states = (i + 1) * options.runs // len(workloads) - i * options.runs // len(
            workloads
        )
        numbers = map(int, options.only[1:]) if options.only else ()
        with tempfile.TemporaryDirectory(
            dir=MEMORY if MEMORY.exists() else None
        ) as root:
            folder = Path(root) / "w"
            folder.mkdir()
            os.environ["FASTREC_CACHE"] = str(folder / "cache")
            cuts = Cuts(workload, folder, library)
            for number in list(numbers) or range(n_states):
                try:
                    cuts.check(options.seed, number)
                except BaseException:
                    print(
                        f"failed: --seed {options.seed} --only {workload.name!r} {number}"
                    )
                    raise
        print(f"{workload.name}: {dict(cuts.promises.counts)}")
        total.update(cuts.promises.counts)
        if not workload.is_synced:
            total["incomplete_without_sync"] += cuts.promises.counts["incomplete"]
    del total["incomplete"]  # most are of files that are appended to, or not flushed
    print(json.dumps({"runs": total.pop("states"), **total}))


if __name__ == "__main__":
    main()
