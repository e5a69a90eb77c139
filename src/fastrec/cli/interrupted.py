"""What writers left that were killed: which records are whole, and how they get names.

::

    leftovers -> one interrupted write for each writer and name -> shards, by number
              -> links, copies, or the proven records, written anew -> final names

A shard that is sound gets its name as it is. Of any other, the proven records are written
to a new file, compressed as it was. Nothing is written over, and all names of a write
appear, or none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import filecmp
import fnmatch
import functools
import glob
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import fastrec as fr
from fastrec import _core
from fastrec.cli.examine import Damaged, Examined, examined
from fastrec.cli.repair import proven
from fastrec.cli.terminal import counted, size
from fastrec.printable import printable
from fastrec.storage.compression import Content, codec_of
from fastrec.storage.locks import is_locked, lock_file
from fastrec.writer.output import OutputFile, sync_directory
from fastrec.writer.shard_names import Leftover, ShardNames, leftovers_in

__all__ = ["Interrupted", "Named", "examine", "finish", "interrupted", "refuse_mixed"]

_log = logging.getLogger("fastrec")

_COMPRESSIONS: dict[Content, str | None] = {
    "plain": None,
    "gzip": "GZIP",
    "zlib": "ZLIB",
}
_KEYS = (
    "path",
    "token",
    "is_being_written",
    "is_finished",
    "n_complete",
    "n_unfinished",
    "n_records",
    "n_records_unfinished",
    "n_bytes",
)
_COPY_BYTES = 1 << 20


@dataclass
class _Shard:
    """A leftover, and what is known of it."""

    leftover: Leftover
    found: Examined

    @property
    def is_sound(self) -> bool:
        """Whether it can get its name as it is."""
        is_whole = self.leftover.is_complete or self.found.n_records > 0
        return is_whole and not self.found.damaged

    @property
    def is_torn_only(self) -> bool:
        """Whether nothing is damaged but the end, where its writer was."""
        if self.leftover.is_complete:
            return not self.found.damaged
        ends = [damaged.region.end for damaged in self.found.damaged]
        bits = [damaged.bit for damaged in self.found.damaged]
        return not ends or (
            len(ends) == 1
            and bits == [None]
            and ends[0] in (None, self.found.content_bytes)
        )


@dataclass
class Interrupted:
    """A write that did not end: what one writer left under one name.

    Attributes
    ----------
    directory : str
    name : str
        Of the file, or the pattern of its shards.
    token : str
        Of the writer; begins with the number of its process.
    is_being_written : bool
        Whether somebody is writing under that name: then it may not be interrupted, and
        is left alone.
    is_finished : bool
        Whether all that is whole has its final names by now.
    """

    directory: str
    name: str
    token: str
    is_being_written: bool
    is_finished: bool = False
    _shards: list[_Shard] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Its name in its directory."""
        return os.path.join(self.directory, self.name)  # noqa: PTH118

    @property
    def leftovers(self) -> list[str]:
        """The files, by their real paths."""
        return [os.path.realpath(shard.leftover.path) for shard in self._shards]

    @property
    def unreadable(self) -> list[tuple[str, str]]:
        """Paths of files that could not be examined, and why."""
        return [
            (shard.leftover.path, shard.found.unreadable)
            for shard in self._shards
            if shard.found.unreadable
        ]

    @property
    def n_complete(self) -> int:
        """Complete shards."""
        return sum(shard.leftover.is_complete for shard in self._shards)

    @property
    def n_unfinished(self) -> int:
        """Shards that were being written."""
        return len(self._shards) - self.n_complete

    @property
    def n_records(self) -> int:
        """Proven records in all of them."""
        return sum(shard.found.n_records for shard in self._shards)

    @property
    def n_records_unfinished(self) -> int:
        """Proven records in those that were being written."""
        return sum(
            shard.found.n_records
            for shard in self._shards
            if not shard.leftover.is_complete
        )

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(shard.found.n_bytes for shard in self._shards)

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {name: getattr(self, name) for name in _KEYS}

    def __str__(self) -> str:
        if self.is_being_written:
            return f"{self.path}: being written, and left alone ({size(self.n_bytes)})"
        complete = counted(self.n_complete, "complete shard") + " with "
        complete += counted(self.n_records - self.n_records_unfinished, "record")
        unfinished = counted(self.n_records_unfinished, "whole record") + " in "
        unfinished += counted(self.n_unfinished, "unfinished file")
        parts = [complete] * bool(self.n_complete) + [unfinished] * bool(
            self.n_unfinished
        )
        return (
            f"{self.path}: a write was interrupted: {', '.join(parts)}, "
            f"{size(self.n_bytes)}"
        )


@dataclass(frozen=True)
class Named:
    """A shard of an interrupted write that got its final name.

    Attributes
    ----------
    path : str
        What it was.
    target : str
    n_records, n_bytes : int
    """

    path: str
    target: str
    n_records: int
    n_bytes: int


# What there is.


def interrupted(paths: Iterable[str]) -> tuple[list[Interrupted], set[str]]:
    """Return what was interrupted in directories, or of files, globs and patterns.

    A leftover that is named itself stands for all that its writer left.

    Returns
    -------
    writes : list of Interrupted
        By directory, name and writer; not examined yet.
    named : set of str
        Those of `paths`, no directories, that name any.
    """
    writes: dict[tuple[str, str, str], Interrupted] = {}
    named = set()
    groups_in = functools.cache(_groups_in)  # paths may be all files of a directory
    for path in paths:
        for directory, pattern in _places(path):
            for lefts in groups_in(directory):
                if pattern is not None:
                    if not _is_meant(path, pattern, lefts):
                        continue
                    named.add(path)
                first = lefts[0]
                key = os.path.realpath(directory), first.name, first.token
                if key not in writes:
                    writes[key] = _write_of(lefts)
    return list(writes.values()), named


def _groups_in(directory: str) -> list[list[Leftover]]:
    try:
        lefts = leftovers_in(directory)
    except OSError:  # who looks for files there reports it
        return []
    return [list(group) for _, group in groupby(lefts, _key)]


def _key(left: Leftover) -> tuple[str, str]:
    return left.name, left.token


def _places(path: str) -> Iterator[tuple[str, str | None]]:
    """Yield directories, and which names there are meant; None for all."""
    if os.path.isdir(path):  # noqa: PTH112
        yield path, None
        return
    above, pattern = os.path.split(path)
    if not glob.has_magic(above):
        yield above or os.curdir, pattern
        return
    for directory in sorted(glob.glob(above)):  # noqa: PTH207
        if os.path.isdir(directory):  # noqa: PTH112
            yield directory, pattern


def _is_meant(path: str, pattern: str, lefts: Sequence[Leftover]) -> bool:
    num_shards = lefts[-1].shard + 1
    names = {lefts[0].name}
    for left in lefts:
        names |= {left.final_name(num_shards), os.path.basename(left.path)}  # noqa: PTH119
    is_literal = os.path.lexists(path) or not glob.has_magic(pattern)
    return pattern in names or (
        not is_literal and any(fnmatch.fnmatchcase(name, pattern) for name in names)
    )


def _write_of(lefts: list[Leftover]) -> Interrupted:
    first = lefts[0]
    write = Interrupted(first.directory, first.name, first.token, _may_live(first))
    write._shards = [_Shard(left, Examined(left.path)) for left in lefts]
    return write


def _may_live(left: Leftover) -> bool:
    """Tell whether somebody may be writing under the name of a leftover."""
    try:
        return is_locked(left.lock)
    except (ImportError, OSError):
        # Without locks, what remains is to ask for the process. Another one may have got
        # its number by now, but what is left alone is not lost.
        try:
            os.kill(int(left.token.partition("-")[0]), 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return True


def examine(
    writes: Sequence[Interrupted],
    n_threads: int,
    on_look: Callable[[int], object] = lambda _: None,
) -> list[Interrupted]:
    """Find what is proven of each write, and return those that are still there.

    What is being written is not looked at.
    """
    shards = [
        shard
        for write in writes
        if not write.is_being_written
        for shard in write._shards
    ]
    paths = [shard.leftover.path for shard in shards]
    with contextlib.closing(examined(paths, n_threads, on_look)) as results:
        for shard, found in zip(shards, results, strict=True):
            shard.found = found
            if not shard.leftover.is_complete:
                _leave_torn_record_whole(found)
    for write in writes:
        # A writer that was at its end may have gone on meanwhile.
        write._shards = [
            shard for shard in write._shards if os.path.lexists(shard.leftover.path)
        ]
        if write.is_being_written:
            for shard in write._shards:
                with contextlib.suppress(OSError):
                    shard.found.n_bytes = Path(shard.leftover.path).stat().st_size
    return [write for write in writes if write._shards]


def _leave_torn_record_whole(found: Examined) -> None:
    """Take no records out of a record that the file ends in.

    Where its writer was is known to be the end, so that nothing behind the header there
    is a record of this file, whatever a search in it finds.
    """
    for number, damaged in enumerate(found.damaged):
        region = damaged.region
        if region.records is not None:
            continue
        is_torn = damaged.code == "truncated_record"
        if not is_torn or region.end == found.content_bytes or found.content != "plain":
            return
        stream = _core.StreamExamination(os.fsencode(found.path))
        try:
            with Path(found.path).open("rb") as file:
                for at in range(0, region.begin, _COPY_BYTES):
                    stream.feed(file.read(min(_COPY_BYTES, region.begin - at)))
            stream.finish()
        except fr.CorruptionError:  # before it, there is a header that was repaired
            return
        found.n_records, _ = stream.take_findings()
        whole = dataclasses.replace(region, end=found.content_bytes)
        found.damaged[number:] = [Damaged(whole, None, damaged.code)]
        return


# Finishing.


def refuse_mixed(writes: Sequence[Interrupted]) -> dict[int, OSError]:
    """Return why which writes, by their place, may not go to one directory together."""
    refused: dict[int, OSError] = {}
    for number, write in enumerate(writes):
        others = [other for other in writes if other.name == write.name]
        if len(others) > 1:
            reason = (
                f"{len(others)} interrupted writes have this name: name what one of them "
                f"left ({_names_of_one(write)}), and finish each to a directory of its own"
            )
            refused[number] = FileExistsError(errno.EEXIST, reason, write.path)
    return refused


def _names_of_one(write: Interrupted) -> str:
    return f".{write.name}.{write.token}-*"


def finish(
    write: Interrupted,
    out: Path,
    n_threads: int,
    on_write: Callable[[int], object] = lambda _: None,
) -> list[Named]:
    """Give all that is whole of a write its final names, in the directory `out`.

    Where that is the directory it lies in, what the writer left is removed afterwards,
    unless it is damaged in another way than at its end.

    Parameters
    ----------
    write : Interrupted
        Which was examined.
    out : Path
        Made if it is not there.
    n_threads : int
    on_write : callable
        Told how many bytes were read of what is written anew.

    Returns
    -------
    list of Named
        By number of the shard; empty if nothing was whole.

    Raises
    ------
    FileExistsError
        If a file is in the way, or others bear names of the same pattern.
    BlockingIOError
        If somebody is writing under that name by now.
    OSError
        If it is not possible. Then there is none of the names, and all is as it was.
    Error
        If what was written is not what was found before.
    """
    for path, reason in write.unreadable:
        raise OSError(errno.EIO, reason, path)
    with _locked(write):
        out.mkdir(parents=True, exist_ok=True)
        kept = _with_records(write._shards)
        num_shards = kept[-1].leftover.shard + 1 if kept else 0
        _refuse_others(write, kept, num_shards, out)
        named = _named(kept, num_shards, out, n_threads, on_write)
        write.is_finished = True
        is_in_place = out.samefile(write.directory)
        if is_in_place and all(shard.is_torn_only for shard in write._shards):
            # Of those that are left at any moment, the last one tells how many there are.
            for shard in [s for s in write._shards if s not in kept] + kept:
                os.unlink(shard.leftover.path)  # noqa: PTH108
            sync_directory(write.directory)
        return named


@contextlib.contextmanager
def _locked(write: Interrupted) -> Iterator[None]:
    """Keep writers away, where that is possible."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_file(write._shards[0].leftover.lock))
        except BlockingIOError:
            reason = "somebody is writing it"
            raise BlockingIOError(errno.EWOULDBLOCK, reason, write.path) from None
        except (ImportError, OSError) as error:
            # A directory that is only read, or files that cannot be locked.
            _log.info("%s is not locked: %s", printable(write.path), error)
        yield


def _with_records(shards: Sequence[_Shard]) -> list[_Shard]:
    """Return the shards without unfinished ones at the end that have no record."""
    kept = list(shards)
    while kept and not (kept[-1].leftover.is_complete or kept[-1].found.n_records):
        kept.pop()
    return kept


def _refuse_others(
    write: Interrupted, kept: Sequence[_Shard], num_shards: int, out: Path
) -> None:
    """Raise if files in `out` would be taken for shards of the same data set."""
    try:
        names = ShardNames(write.name)
    except ValueError:
        return
    if not names.has_num_shards or not kept:
        return
    # Its first shards may have got their names before it was killed.
    shards = [shard.leftover.shard for shard in kept]
    own = {names.name(shard, num_shards) for shard in (*range(shards[0]), *shards)}
    for path in names.existing(str(out)):
        if os.path.basename(path) not in own:  # noqa: PTH119
            reason = "it would be taken for one of the shards"
            raise FileExistsError(errno.EEXIST, reason, path)


def _named(
    kept: Sequence[_Shard],
    num_shards: int,
    out: Path,
    n_threads: int,
    on_write: Callable[[int], object],
) -> list[Named]:
    contents = [shard.found.content for shard in kept if shard.found.n_records]
    files: list[OutputFile | str] = []  # a path is that of a leftover to link
    made: list[Path] = []
    try:
        for shard in kept:
            target = out / shard.leftover.final_name(num_shards)
            if shard.is_sound and _is_linkable(shard.leftover.path, out):
                _sync(shard.leftover.path)
                files.append(shard.leftover.path)
            else:
                file = _new_file(target)
                files.append(file)
                file.open()
                if shard.is_sound:
                    _copy(shard.leftover.path, file, on_write)
                else:
                    content = shard.found.content if shard.found.n_records else None
                    content = content or (contents or ["plain"])[0]
                    _write_proven(shard.found, content, file, n_threads, on_write)
        named = []
        for shard, whole in zip(kept, files, strict=True):
            target = out / shard.leftover.final_name(num_shards)
            if _publish(whole, target):
                made.append(target)
            named.append(
                Named(
                    shard.leftover.path,
                    str(target),
                    shard.found.n_records,
                    target.stat().st_size,
                )
            )
        sync_directory(str(out))
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    finally:
        for whole in files:
            if isinstance(whole, OutputFile):
                whole.abandon()  # which does nothing once it has its name
    return named


def _new_file(target: Path) -> OutputFile:
    """Return a file under a name that no writer leaves, and which this may leave."""
    unique = f"{os.getpid()}.{secrets.token_hex(4)}"
    name = os.fsdecode(os.fsencode(target.name)[:200])
    return OutputFile(
        str(target), str(target.with_name(f".{name}.{unique}")), overwrite=False
    )


def _is_linkable(path: str, out: Path) -> bool:
    """Tell whether a file can have another name in `out`, by giving it one."""
    probe = out / f".{os.getpid()}.{secrets.token_hex(8)}.tmp"
    try:
        os.link(path, probe)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    probe.unlink()
    return True


def _sync(path: str) -> None:
    """Bring a file to the disk whose writer may not have come to that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(path: str, file: OutputFile, on_write: Callable[[int], object]) -> None:
    with Path(path).open("rb") as source:
        while piece := source.read(_COPY_BYTES):
            file.write(piece)
            on_write(len(piece))
    file.sync()


def _write_proven(
    found: Examined,
    content: Content,
    file: OutputFile,
    n_threads: int,
    on_write: Callable[[int], object],
) -> None:
    """Write the proven records, and examine that."""
    codec = codec_of(_COMPRESSIONS[content], -1)
    if found.n_records:
        for piece in proven(found):
            file.write(codec.ordered(codec.prepared(piece)))
            on_write(len(piece))
    file.write(codec.end())
    file.sync()
    (written,) = examined([file.temporary], n_threads)
    is_as_found = not (written.damaged or written.unreadable)
    if not is_as_found or written.n_records != found.n_records:
        reason = "the file changed while its records were copied"
        raise fr.Error(reason, found.path, code="file_changed")


def _publish(file: OutputFile | str, target: Path) -> bool:
    """Give a file its name; return whether it was not there already, with all it has."""
    path = file if isinstance(file, str) else file.temporary
    try:
        if isinstance(file, str):
            os.link(file, target)
        else:
            file.publish(str(target), str(target), sync=False)
    except FileExistsError:
        # Another attempt, or the writer itself, may have come so far.
        if target.is_file() and filecmp.cmp(path, target, shallow=False):
            return False
        reason = "it exists, and nothing is ever written over"
        raise FileExistsError(errno.EEXIST, reason, str(target)) from None
    except OSError as error:
        error.filename, error.filename2 = str(target), None
        raise
    return True
