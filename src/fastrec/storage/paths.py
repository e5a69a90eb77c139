"""Expand paths, globs and directories to lists of files."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from fastrec import _core
from fastrec.printable import printable
from fastrec.storage.parallel import run_in_threads
from fastrec.storage.pipes import PipePath, is_pipe, refuse_pipe
from fastrec.storage.remote import Faults, RemotePath, Version, fetch, version_of_url
from fastrec.storage.splits import check_one_split
from fastrec.storage.stores import StorageOptions
from fastrec.storage.urls import is_mistyped, redacted

if TYPE_CHECKING:
    import numpy.typing as npt


__all__ = [
    "Paths",
    "Version",
    "asked_in_threads",
    "expand",
    "is_remote",
    "local_directory",
    "local_head",
    "local_path",
    "path_of_url",
    "recognized",
    "version_of",
    "versions_of",
]

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"

_A = TypeVar("_A")
_T = TypeVar("_T")

_log = logging.getLogger("fastrec")

# "a.tfrecord", "a.tfrecord-00000-of-00010", "a.tfrecords.gz"; not "a.tfrecord.index".
_SHARD_NAME = re.compile(
    r"\.tfrecords?(-\d+-of-\d+)?(\.(gz|gzip|zlib|zz|z))?\Z", re.IGNORECASE
)
_CONTENTS = ("tfrecord", "gzip", "zlib")  # accepted for files with other names

_SEPARATOR = f"[{re.escape(os.sep + (os.altsep or ''))}]"
_ANY_DIRECTORIES = re.compile(rf"(?:^|(?<={_SEPARATOR}))\*\*(?:{_SEPARATOR}|$)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FILE_URL = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
_VERSION_THREADS = 8  # they mostly wait for a file server
_REQUEST_THREADS = 32
_HEAD_BYTES = 16 << 10  # of a remote file, to detect its content


def expand(
    paths: Paths,
    *,
    joins: bool = False,
    allows_pipes: bool = False,
    storage_options: StorageOptions | None = None,
) -> list[str]:
    """Return the files of `paths`, in dataset order; those of URLs are `RemotePath`.

    Each path is a file, a glob (sorted by name; ``**`` does not follow links to
    directories), a directory (the TFRecord files in it and below, detected by name or
    first bytes, sorted by name), or a URL of one. In a directory, links to directories
    and names that begin with a dot or an underscore, such as ``_temporary``, are left
    out. A file with several names in a glob or a directory is listed once. With `joins`,
    a directory whose names differ by a split word, such as train and test, raises. With
    `allows_pipes`, a path may be that of a pipe, whose files are `PipePath`.
    `storage_options` are passed to the library that reads the URLs.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, a glob has no match, or a directory has no TFRecord
        files.
    OSError
        If a store refuses.
    ValueError
        If there are no paths, a URL has an unknown scheme, or a directory mixes splits.
    """
    expand_one = partial(
        _expand_one,
        joins=joins,
        allows_pipes=allows_pipes,
        options=storage_options,
    )
    if isinstance(paths, (str, bytes, os.PathLike)):
        return expand_one(paths)
    given: object = paths
    if not isinstance(given, Iterable):
        raise TypeError(
            f"paths must be a path or an iterable of paths, got {type(given).__name__}"
        )
    given = list(given)
    n_remote = sum(isinstance(path, str) and is_remote(path) for path in given)
    if n_remote > 1:
        # The first one alone: it makes the store that the others share.
        parts = [expand_one(given[0]), *asked_in_threads(expand_one, given[1:])]
    else:
        parts = [expand_one(path) for path in given]
    files = [file for part in parts for file in part]
    if not files:
        raise ValueError("paths must not be empty")
    return files


def version_of(path: str, faults: Faults | None = None) -> Version:
    """Return the version of a file or object, or raise an OSError."""
    if isinstance(path, RemotePath):
        return version_of_url(path, faults)
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def versions_of(paths: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the version of each file or object, of shape (n, 2), or raise an OSError."""
    if any(isinstance(path, RemotePath) for path in paths):
        return np.array(asked_in_threads(version_of, paths), np.int64)
    return _core.versions_of(os.fsencode("\0".join(paths)), _VERSION_THREADS)


def asked_in_threads(call: Callable[[_A, Faults], _T], items: Sequence[_A]) -> list[_T]:
    """Return the results of `call`, which sends requests, for each of `items`."""
    faults = Faults()
    return run_in_threads(
        [partial(call, item, faults) for item in items],
        cancel=faults.cancel,
        progress_text=lambda n_done, _: f"asked for {n_done:,} of {len(items):,} files",
        n_threads=_REQUEST_THREADS,
    )


def path_of_url(path: str) -> str:
    """Return the path of a ``file://`` URL, or any other path with ``~`` expanded.

    Raises a ValueError for what seems to be a mistyped URL, or a `Path` of one.
    """
    if prefix := _FILE_URL.match(path):
        # Unquote to bytes, because names may not be UTF-8. Keep "?", which may be a
        # glob.
        from urllib.parse import unquote_to_bytes  # slow to import, and rarely used

        return os.fsdecode(unquote_to_bytes(path[prefix.end() :]))
    if is_mistyped(path) and not os.path.isdir(os.path.dirname(path) or os.curdir):
        raise ValueError(
            f"a URL must be a str that begins with scheme://, got {redacted(path)!r}"
        )
    return os.path.expanduser(path)


def is_remote(path: str) -> bool:
    """Return whether a path is a URL other than ``file://``."""
    return bool(_URL.match(path)) and not _FILE_URL.match(path)


def local_directory(name: str, given: str | os.PathLike[str]) -> str:
    """Return the path of a directory, which is the argument `name`."""
    path = os.fspath(given)
    if is_remote(path):
        raise ValueError(f"{name} must be a local directory, got {redacted(path)!r}")
    return path_of_url(path)


def local_path(path: str) -> str:
    """Return a local path or the path of a ``file://`` URL; raise for other URLs."""
    if not is_remote(path):
        return path_of_url(path)
    raise ValueError(
        f"cannot read {redacted(path)!r}: only TFRecord files are read from URLs"
    )


def _expand_one(
    given: object,
    faults: Faults | None = None,
    *,
    joins: bool,
    allows_pipes: bool,
    options: StorageOptions | None,
) -> list[str]:
    if isinstance(given, (RemotePath, PipePath)):
        return [given]
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(
            f"a path must be a str or os.PathLike, got {type(given).__name__}"
        )
    name = os.fspath(given)
    if is_remote(name):
        return _expand_url(name, faults or Faults(), joins, options)
    path = path_of_url(name)
    if os.path.isdir(path):
        files = _files_below(path)
        if joins:
            check_one_split(path, files)
        return files
    # An existing name is literal, even if it contains wildcards.
    if os.path.lexists(path) or not glob.has_magic(path):
        status = os.stat(path)
        if not is_pipe(status):
            return [path]
        if not allows_pipes:
            refuse_pipe(path, "this operation")
        return [PipePath(path)]
    files = _files_matching(path)
    if not files:
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", path)
    return files


def _expand_url(
    url: str,
    faults: Faults,
    joins: bool,
    options: StorageOptions | None,
) -> list[str]:
    if url.lower().startswith("file:"):
        raise ValueError(
            f"the host of a file URL must be empty or localhost, got {redacted(url)!r}"
        )
    from fastrec.storage.remote_listing import expand_url

    return [
        *expand_url(
            url,
            options,
            faults=faults,
            choose=partial(_remote_tfrecords, faults),
            check_split=check_one_split if joins else None,
        )
    ]


def _remote_tfrecords(faults: Faults, paths: Sequence[RemotePath]) -> list[RemotePath]:
    """Return the TFRecord files among the objects of a directory."""
    return [
        path
        for path in paths
        if _SHARD_NAME.search(path.key) or recognized(path, faults) in _CONTENTS
    ]


def recognized(path: str, faults: Faults | None = None) -> str:
    """Return "tfrecord", "gzip", "zlib" or another content that the first bytes show."""
    with local_head(path, faults) as local:
        return _core.recognize(os.fsencode(local))


@contextlib.contextmanager
def local_head(path: str, faults: Faults | None = None) -> Iterator[str]:
    """Yield a local file with the beginning of `path`, which is `path` if it is local."""
    if not isinstance(path, RemotePath):
        yield path
        return
    import tempfile  # slow to import

    faults = faults or Faults()
    version = version_of(path, faults)
    end = min(version[0], _HEAD_BYTES)
    with tempfile.NamedTemporaryFile(prefix="fastrec-") as file:
        file.write(fetch(path, 0, end, version, faults=faults))
        file.flush()
        yield file.name


def _files_matching(pattern: str) -> list[str]:
    """Return the regular files that match a glob, sorted by name, each once."""
    directory, name = os.path.split(pattern)
    if name == "**" or glob.has_magic(directory) or name.startswith("."):
        return _unique_files(_matches(pattern))
    match = re.compile(fnmatch.translate(name)).match
    try:
        entries = _visible(directory or os.curdir, ".")
    except OSError:
        return []
    prefix = os.path.join(directory, "")
    return _unique_entries([(prefix + e.name, e) for e in entries if match(e.name)])


def _visible(directory: str, hidden: str | tuple[str, ...]) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return [entry for entry in entries if not entry.name.startswith(hidden)]


def _unique_entries(entries: Sequence[tuple[str, os.DirEntry[str]]]) -> list[str]:
    """Return the paths of regular files among `entries`, sorted, each file once."""
    files = [pair for pair in entries if pair[1].is_file(follow_symlinks=False)]
    has_links = any(entry.is_symlink() for _, entry in entries)
    if has_links or len({entry.inode() for _, entry in files}) < len(files):
        return _unique_files(path for path, _ in entries)
    # This makes no system call for a file.
    return sorted([path for path, _ in files])


def _entries_below(directory: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the path and the entry of what a directory has, and those below it."""
    for entry in _visible(directory, (".", "_")):
        path = os.path.join(directory, entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield from _entries_below(path)
        else:
            yield path, entry


def _files_below(directory: str) -> list[str]:
    files = _tfrecords(_unique_entries([*_entries_below(directory)]))
    if not files:
        reason = "No TFRecord file in the directory, nor in those below"
        raise FileNotFoundError(errno.ENOENT, reason, directory)
    return files


def _tfrecords(files: Sequence[str]) -> list[str]:
    """Return the TFRecord files among `files`."""
    # Check the name first: an empty or damaged shard must not be skipped silently.
    return [
        path
        for path in files
        if _SHARD_NAME.search(path) or _core.recognize(os.fsencode(path)) in _CONTENTS
    ]


def _matches(pattern: str) -> Iterator[str]:
    """Yield the matches of a glob; unlike in `glob`, ``**`` does not follow links."""
    parts = _ANY_DIRECTORIES.split(pattern, maxsplit=1)
    if len(parts) == 1:
        yield from glob.iglob(pattern)
        return
    above, below = parts
    tops = glob.iglob(above) if glob.has_magic(above) else [above]
    for top in tops:
        for directory, inner, names in os.walk(top or os.curdir):
            inner[:] = [name for name in inner if not name.startswith(".")]
            here = directory if top else os.path.relpath(directory)
            here = "" if here == os.curdir else here
            if below:
                yield from _matches(os.path.join(glob.escape(here), below))
            else:
                visible = (name for name in names if not name.startswith("."))
                yield from (os.path.join(here, name) for name in visible)


def _unique_files(paths: Iterable[str]) -> list[str]:
    """Return the regular files among `paths`, sorted by name, without duplicates."""
    files: dict[tuple[int, int], str] = {}
    for path in sorted(set(paths)):
        try:
            status = os.stat(path)
        except OSError:
            continue  # a dangling link, or a file that was deleted meanwhile
        if not stat.S_ISREG(status.st_mode):
            continue
        first = files.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            _log.warning(
                "skipping %s, which is the same file as %s",
                printable(path),
                printable(first),
            )
    return list(files.values())
