"""A program that shuts down real file systems while files are written: a campaign.

usage: python -m campaigns.power_cut_mounted --runs N --seed S [--only FS WORKLOAD]

It needs root, loop devices, mkfs.ext4 and mkfs.xfs. In each run, a process writes to a
file system in an image. At a random moment, an ioctl shuts the file system down without
flushing its journal or any data, as a power cut does. Before that, it may write back all
files once, as a kernel may at any time. Then the image is mounted again, and the promises
of power_cut.py are checked. The last line is an object with the number of runs, and of
those that ended before the workload and with an incomplete file without sync.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import gc
import json
import logging
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from campaigns.power_cut import WORKLOADS, Promises, Workload, snapshot

# The type of a file system, and the options of mkfs and of mount.
FILE_SYSTEMS = {
    "ext4": ("ext4", ["-q"], "loop"),
    "ext4 data=writeback": ("ext4", ["-q"], "loop,data=writeback,noauto_da_alloc"),
    "xfs": ("xfs", ["-q"], "loop"),
}
IMAGE_BYTES = 320 << 20  # mkfs.xfs needs 300 MB
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN
WITHOUT_FLUSHING = 2


@contextlib.contextmanager
def mounted(image: Path, place: Path, options: str) -> Iterator[Path]:
    """Mount an image, and unmount it at the end."""
    subprocess.run(["mount", "-o", options, image, place], check=True)
    try:
        yield place / "w"
    finally:
        gc.collect()  # closes and unmaps files
        subprocess.run(["umount", place], check=True)


def sync(folder: Path) -> None:
    """Write back all files of the file system."""
    descriptor = os.open(folder, os.O_RDONLY)
    assert ctypes.CDLL(None).syncfs(descriptor) == 0
    os.close(descriptor)


def shut_down(folder: Path) -> None:
    """Shut down the file system, which keeps what is on the disk now."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
    os.close(descriptor)


def clear(folder: Path) -> None:
    """Make an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def cut(workload: Workload, folder: Path, seconds: float, draw: random.Random) -> bool:
    """Shut the file system down while a process runs a workload; return if it was done."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):  # the file system is gone
            os.write(sender, b"b")
            workload.run(folder)
            os.write(sender, b"d")
        os.kill(os.getpid(), signal.SIGKILL)
    os.read(receiver, 1)
    moment = draw.uniform(0, 1.3 * seconds)
    if draw.random() < 0.5:
        first = draw.uniform(0, moment)
        time.sleep(first)
        sync(folder)
        moment -= first
    time.sleep(moment)
    is_done = bool(select.select([receiver], [], [], 0)[0])
    shut_down(folder)
    os.close(receiver)
    os.close(sender)
    os.waitpid(child, 0)
    return is_done


def try_all(
    image: Path, place: Path, name: str, workload: Workload, runs: range, seed: int
) -> Counter[str]:
    """Cut the power in each of `runs`, on a new file system."""
    kind, mkfs_options, options = FILE_SYSTEMS[name]
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run([f"mkfs.{kind}", *mkfs_options, image], check=True)
    with mounted(image, place, options) as folder:
        clear(folder)
        os.environ["FASTREC_CACHE"] = str(folder / "cache")
        workload.prepare(folder)
        before = snapshot(folder)
        begin = time.monotonic()
        workload.run(folder)
        seconds = time.monotonic() - begin
        promises = Promises(workload, folder, before, snapshot(folder))
    for run in runs:
        draw = random.Random(f"{seed} {name} {workload.name} {run}")
        with mounted(image, place, options):
            clear(folder)
            workload.prepare(folder)
            sync(folder)
            is_done = cut(workload, folder, seconds, draw)
        with mounted(image, place, options):
            promises.check(snapshot(folder), draw, is_done=is_done)
        promises.counts["cut_before_the_end"] += not is_done
    return promises.counts


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()
    logging.disable()
    chosen = [
        (name, workload)
        for workload in WORKLOADS
        for name in FILE_SYSTEMS
        if all(part in (name, workload.name) for part in options.only)
    ]
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as root:
        image, place = Path(root) / "image", Path(root) / "mounted"
        place.mkdir()
        for i, (name, workload) in enumerate(chosen):
            runs = range(
                i * options.runs // len(chosen), (i + 1) * options.runs // len(chosen)
            )
            try:
                counts = try_all(image, place, name, workload, runs, options.seed)
            except BaseException:
                print(f"failed: {name}, {workload.name}, {runs}")
                raise
            print(f"{name}, {workload.name}: {dict(counts)}", flush=True)
            if not workload.is_synced:
                total["incomplete_without_sync"] += counts["incomplete"]
            total.update(counts)
    del total["incomplete"]  # most are of files that are appended to, or not flushed
    print(json.dumps({"runs": total.pop("states"), **total}))


if __name__ == "__main__":
    main()
