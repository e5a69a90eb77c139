"""Recorded calls -> the states in which a power cut may leave a disk.

The model follows ALICE (Pillai et al., OSDI 2014): a call is split into what reaches the
disk separately, and everything that no fsync has ordered may be on the disk or not.

The contents of a file, after its last fsync
    Each sector of 512 bytes has any of the values it had since then, or zeros, which
    ext4 with data=writeback and XFS may show for blocks that were allocated and not
    written. The size is any of its sizes since then, or a page boundary on the way,
    because delayed allocation extends a file while its pages are written. So a file may
    be empty, cut, or have its full size with holes, also under its final name.

Names
    "journal", for ext4 and XFS: creation, link, rename and unlink reach the disk in
    order, each as a whole. fsync of a file or directory also flushes the changes of its
    names, and all changes before those.

    "posix", weaker, for file systems of which nothing else is known: each name has any
    of the values it had since the last fsync of its directory, whatever other names
    have. Only that a rename replaces a name as a whole is assumed.

Both are weaker than ext4 with its defaults, which writes the data of a file before its
size (data=ordered), and before a rename that replaces another file (auto_da_alloc): the
promises must not depend on mount options. New directories are assumed to be on the disk,
and fsync to work: neither a disk that ignores flushes nor one that loses data which it
has acknowledged is modelled. ext4's option fast_commit is modelled only by "posix".
"""

from __future__ import annotations

import os
import posixpath
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE_BYTES = 4096
SECTOR_BYTES = 512
MODELS = ("journal", "posix")
NAMES = ("first", "last", "any")
CONTENTS = ("first", "last", "zeros", "cut", "any")

_HEADER = struct.Struct("<cQQII")


@dataclass(frozen=True)
class Call:
    """A recorded call: its letter, as in recorder.c, and its arguments."""

    letter: str
    inode: int
    number: int
    path: str
    data: bytes


def read_trace(path: Path) -> list[Call]:
    """Return the calls that recorder.c wrote."""
    content, at, calls = path.read_bytes(), 0, []
    while at < len(content):
        letter, inode, number, n_path, n_data = _HEADER.unpack_from(content, at)
        middle = at + _HEADER.size + n_path
        name = os.fsdecode(content[at + _HEADER.size : middle])
        at = middle + n_data
        calls.append(Call(letter.decode(), inode, number, name, content[middle:at]))
    return calls


@dataclass(frozen=True)
class Choice:
    """Which of the possible states after `time` calls, in terms of `MODELS` and so on."""

    time: int
    model: str
    names: str
    contents: str


@dataclass(eq=False)
class File:
    """A file: its contents after each call that changed it, and when it was flushed."""

    inode: int
    times: list[int]
    versions: list[bytes]
    syncs: list[int] = field(default_factory=list)

    def change(self, time: int, call: Call) -> None:
        """Apply a call."""
        data = self.versions[-1]
        if call.letter == "t":
            data = data[: call.number].ljust(call.number, b"\0")
        else:
            before = data[: call.number].ljust(call.number, b"\0")
            data = before + call.data + data[call.number + len(call.data) :]
        self.times.append(time)
        self.versions.append(data)

    def state(self, choice: str, time: int, draw: random.Random) -> bytes:
        """Return what the disk may have of the file after `time` calls."""
        synced = max((sync for sync in self.syncs if sync < time), default=-1)
        n_done = sum(each < time for each in self.times)
        n_safe = max(1, sum(each < synced for each in self.times))
        possible = self.versions[n_safe - 1 : n_done]
        first, last = possible[0], possible[-1]
        if choice == "first" or len(possible) == 1:
            return first
        if choice == "last":
            return last
        if choice == "zeros":
            return first[: len(last)].ljust(len(last), b"\0")
        if choice == "cut":
            return draw.choice(possible)[: _any_size(possible, draw)]
        return _any_sectors(possible, draw)


def _any_size(possible: Sequence[bytes], draw: random.Random) -> int:
    """Return a size that a file had, or passed at the end of a page."""
    sizes = [len(version) for version in possible]
    pages = range(min(sizes) // PAGE_BYTES + 1, -(-max(sizes) // PAGE_BYTES))
    return draw.choice([*sizes, *(page * PAGE_BYTES for page in pages)])


def _any_sectors(possible: Sequence[bytes], draw: random.Random) -> bytes:
    """Return any version of each page, or zeros; one page is torn between sectors."""
    size = _any_size(possible, draw)
    pages = range(0, size, PAGE_BYTES)
    torn = draw.choice(pages) if size else 0
    share = draw.random()
    pieces = []
    for page in pages:
        step = SECTOR_BYTES if page == torn else PAGE_BYTES
        for at in range(page, page + PAGE_BYTES, step):
            # A block that has reached the disk once does not become zeros.
            recent = possible[-1] if draw.random() < share else draw.choice(possible)
            piece = recent[at : at + step] or possible[0][at : at + step]
            pieces.append(piece.ljust(step, b"\0"))
    return b"".join(pieces)[:size]


@dataclass(frozen=True)
class Change:
    """Names that change together, to a file or to None; also the files they had."""

    time: int
    names: dict[str, File | None]
    replaced: list[File | None]

    def is_of(self, file: File) -> bool:
        """Whether it changes a name of this file."""
        return file in self.names.values() or file in self.replaced

    def is_in(self, folder: str) -> bool:
        """Whether it changes a name in this directory."""
        return any(posixpath.dirname(path) == folder for path in self.names)


class Disk:
    """What a folder may have on a disk while recorded calls are made.

    Parameters
    ----------
    before : dict
        The inode and content of each file, and the inode and None of each directory.
    calls : sequence of Call
    """

    def __init__(
        self, before: dict[str, tuple[int, bytes | None]], calls: Sequence[Call]
    ) -> None:
        self.n_calls = len(calls)
        self.done_at = len(calls)  # where the program marked its end
        self._changes: list[Change] = []
        self._folders: dict[int, str] = {}
        self._folder_syncs: dict[str, list[int]] = {}
        self._files: dict[int, File] = {}
        # Times of fsync, and how many changes of names are on the disk after it.
        self._barriers: list[tuple[int, int]] = []
        self._names: dict[str, File | None] = {}
        for path, (inode, data) in before.items():
            if data is None:
                self._folders[inode] = path
            else:
                file = self._files.setdefault(inode, File(inode, [-1], [data]))
                self._names[path] = file
        self._before = dict(self._names)
        for time, call in enumerate(calls):
            self._apply(time, call)

    def _apply(self, time: int, call: Call) -> None:
        if call.letter == "c":
            file = self._files[call.inode] = File(call.inode, [time], [b""])
            self._change(time, {call.path: file})
        elif call.letter in "wt":
            self._files[call.inode].change(time, call)
        elif call.letter == "s":
            self._sync(time, call.inode)
        elif call.letter == "l":
            self._change(time, {os.fsdecode(call.data): self._names[call.path]})
        elif call.letter == "r":
            moved = self._names[call.path]
            self._change(time, {call.path: None, os.fsdecode(call.data): moved})
        elif call.letter == "u":
            self._change(time, {call.path: None})
        elif call.letter == "d":
            self._folders[call.inode] = call.path
        else:
            assert call.letter == ".", call
            self.done_at = time

    def _change(self, time: int, names: dict[str, File | None]) -> None:
        replaced = [self._names.get(path) for path in names]
        self._changes.append(Change(time, names, replaced))
        self._names.update(names)

    def _sync(self, time: int, inode: int) -> None:
        folder = self._folders.get(inode)
        flushed = 0
        for n, change in enumerate(self._changes, 1):
            if (
                change.is_of(self._files[inode])
                if folder is None
                else change.is_in(folder)
            ):
                flushed = n
        self._barriers.append((time, flushed))
        if folder is None:
            self._files[inode].syncs.append(time)
        else:
            self._folder_syncs.setdefault(folder, []).append(time)

    def state(
        self, choice: Choice, draw: random.Random
    ) -> dict[str, tuple[int, bytes]]:
        """Return the inode and content of each name that the disk may have."""
        names = self._journal if choice.model == "journal" else self._posix
        contents: dict[File, bytes] = {}
        found = {}
        for path, file in sorted(names(choice, draw).items()):
            if file is not None:
                if file not in contents:
                    contents[file] = file.state(choice.contents, choice.time, draw)
                found[path] = (file.inode, contents[file])
        return found

    def _journal(self, choice: Choice, draw: random.Random) -> dict[str, File | None]:
        done = sum(change.time < choice.time for change in self._changes)
        synced = max((n for time, n in self._barriers if time < choice.time), default=0)
        n = {"first": synced, "last": done}.get(choice.names)
        names = dict(self._before)
        for change in self._changes[: draw.randint(synced, done) if n is None else n]:
            names.update(change.names)
        return names

    def _posix(self, choice: Choice, draw: random.Random) -> dict[str, File | None]:
        possible = {path: [file] for path, file in self._before.items()}
        for change in self._changes:
            if change.time < choice.time:
                for path, file in change.names.items():
                    syncs = self._folder_syncs.get(posixpath.dirname(path), [])
                    is_synced = any(change.time < each < choice.time for each in syncs)
                    values = possible.setdefault(path, [None])
                    possible[path] = [file] if is_synced else [*values, file]
        if choice.names == "any":
            return {path: draw.choice(values) for path, values in possible.items()}
        last = -1 if choice.names == "last" else 0
        return {path: values[last] for path, values in possible.items()}
