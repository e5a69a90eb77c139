"""Which files a caller means: paths, globs, directories, and lists of them."""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from fastrec import _core
from fastrec.printable import printable
from fastrec.storage.splits import check_one_split

__all__ = [
    "Paths",
    "Version",
    "expand",
    "is_remote",
    "local_path",
    "path_of_url",
    "version_of",
]

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"

# The size and modification time of a file, which tell it from an earlier one.
Version: TypeAlias = tuple[int, int]

_log = logging.getLogger("fastrec")

# "a.tfrecord", "a.tfrecord-00000-of-00010", "a.tfrecords.gz"; not "a.tfrecord.index".
_SHARD_NAME = re.compile(
    r"\.tfrecords?(-\d+-of-\d+)?(\.(gz|gzip|zlib|zz|z))?\Z", re.IGNORECASE
)
_CONTENTS = ("tfrecord", "gzip", "zlib")  # of files with other names

_SEPARATOR = f"[{re.escape(os.sep + (os.altsep or ''))}]"
_ANY_DIRECTORIES = re.compile(rf"(?:^|(?<={_SEPARATOR}))\*\*(?:{_SEPARATOR}|$)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FILE_URL = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
_MAX_LISTED = 5


def expand(paths: Paths, *, joins: bool = False) -> list[str]:
    """Return the files that `paths` names, in the order of their records.

    Each is a file, a glob (sorted by name; ``**`` does not follow links to directories), a
    directory (its TFRecord files, recognised by their first bytes, sorted by name), or a
    ``file://`` URL of one. A file that has several names in a glob or a directory comes
    once. With `joins`, a directory is refused if the names of its files differ by a split
    word, such as train and test.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, a glob matches nothing, or a directory has no
        TFRecord file in it.
    ValueError
        If there are no paths, one of them is a remote URL, or a directory mixes splits.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        return _expand_one(paths, joins=joins)
    given: object = paths
    if not isinstance(given, Iterable):
        msg = f"paths must be a path or several, not {given!r}"
        raise TypeError(msg)
    found = [file for path in given for file in _expand_one(path, joins=joins)]
    if not found:
        msg = "no paths were given"
        raise ValueError(msg)
    return found


def version_of(path: str) -> Version:
    """Return the version of a file, or raise an OSError."""
    status = os.stat(path)  # noqa: PTH116 (a Path for each of many files is slow)
    return status.st_size, status.st_mtime_ns


def path_of_url(path: str) -> str:
    """Return the path that a ``file://`` URL names, or any other text unchanged."""
    if here := _FILE_URL.match(path):
        # Bytes, for a name that is not UTF-8. A glob may follow, so "?" is a part of it.
        from urllib.parse import unquote_to_bytes  # slow to import, and rarely used

        return os.fsdecode(unquote_to_bytes(path[here.end() :]))
    return path


def is_remote(path: str) -> bool:
    """Return whether a path is a URL other than ``file://``."""
    return bool(_URL.match(path)) and not _FILE_URL.match(path)


def local_path(path: str) -> str:
    """Return the path to read, or raise a ValueError if it is a remote URL."""
    if not is_remote(path):
        return path_of_url(path)
    msg = (
        f"cannot read remote path {path!r}: remote paths are not supported; mount the "
        "bucket, or copy the files to a local disk"
    )
    raise ValueError(msg)


def _expand_one(given: object, *, joins: bool) -> list[str]:
    if not isinstance(given, (str, os.PathLike)):
        msg = f"a path must be a str or os.PathLike, not {given!r}"
        raise TypeError(msg)
    path = local_path(os.fspath(given))
    if os.path.isdir(path):  # noqa: PTH112 (a Path would change what the user wrote)
        files = _files_in(path)
        if joins:
            check_one_split(path, files)
        return files
    # A name that exists is meant literally, whatever characters it has.
    if os.path.lexists(path) or not glob.has_magic(path):
        os.stat(path)  # noqa: PTH116 (raises what the system says of a missing file)
        return [path]
    found = _once(_matches(path))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", path)
    return found


def _files_in(directory: str) -> list[str]:
    found = []
    with os.scandir(directory) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
    names = [entry.name for entry in shown]
    for path in _once(os.path.join(directory, name) for name in names):  # noqa: PTH118
        # The name of a shard is enough: an empty or damaged shard must not be left out
        # without an error.
        if _SHARD_NAME.search(path) or _core.recognize(os.fsencode(path)) in _CONTENTS:
            found.append(path)
    if not found:
        reason = "No TFRecord file in the directory"
        inner = sorted(entry.name for entry in shown if entry.is_dir())
        if inner:
            more = ", ..." if len(inner) > _MAX_LISTED else ""
            pattern = os.path.join(glob.escape(directory), "**", "*.tfrecord*")  # noqa: PTH118
            reason += (
                f", and directories in it ({', '.join(map(repr, inner[:_MAX_LISTED]))}"
                f"{more}) are not searched: name one of them, or write a glob such as "
                f"{pattern!r}"
            )
        raise FileNotFoundError(errno.ENOENT, reason, directory)
    return found


def _matches(pattern: str) -> Iterator[str]:
    """Yield what a glob matches; unlike `glob`, ``**`` does not follow links."""
    parts = _ANY_DIRECTORIES.split(pattern, maxsplit=1)
    if len(parts) == 1:
        yield from glob.iglob(pattern)  # noqa: PTH207
        return
    above, below = parts
    tops = glob.iglob(above) if glob.has_magic(above) else [above]  # noqa: PTH207
    for top in tops:
        for directory, inner, names in os.walk(top or os.curdir):
            inner[:] = [name for name in inner if not name.startswith(".")]
            here = directory if top else os.path.relpath(directory)
            here = "" if here == os.curdir else here
            if below:
                yield from _matches(os.path.join(glob.escape(here), below))  # noqa: PTH118
            else:
                shown = (name for name in names if not name.startswith("."))
                yield from (os.path.join(here, name) for name in shown)  # noqa: PTH118


def _once(paths: Iterable[str]) -> list[str]:
    """Return the regular files among `paths`, sorted by name, each file once."""
    found: dict[tuple[int, int], str] = {}
    for path in sorted(set(paths)):
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue  # a dangling link, or a file that was deleted meanwhile
        if not stat.S_ISREG(status.st_mode):
            continue
        first = found.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            _log.warning(
                "%s is the same file as %s, and read once",
                printable(path),
                printable(first),
            )
    return list(found.values())
