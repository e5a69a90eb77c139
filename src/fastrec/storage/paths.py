"""Expand paths, URLs, globs and directories to lists of files."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import logging
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from fastrec import _core
from fastrec.printable import printable
from fastrec.storage.parallel import run_in_threads
from fastrec.storage.pipes import PipePath, is_pipe, refuse_pipe
from fastrec.storage.remote import (
    HEAD_BYTES,
    RemotePath,
    RequestCounters,
    ask,
    fetch,
    fetch_beginning,
    has_ranges,
    pieces,
    remote_path,
)
from fastrec.storage.stores import Entry, StorageOptions, Version
from fastrec.storage.urls import has_magic, is_http, is_mistyped, redacted

if TYPE_CHECKING:
    import numpy.typing as npt

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"

_A = TypeVar("_A")
_T = TypeVar("_T")

_log = logging.getLogger("fastrec")

# "a.tfrecord", "a.tfrecord-00000-of-00010", "a.tfrecords.gz"; not "a.tfrecord.index".
_SHARD_NAME = re.compile(
    r"\.tfrecords?(-\d+-of-\d+)?(\.(gz|gzip|zlib|zz|z))?\Z", re.IGNORECASE
)
_CONTENTS = ("tfrecord", "gzip", "zlib")  # accepted for files with other names
_NO_FILE = "No TFRecord file in the directory or its subdirectories"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FILE = re.compile("file:", re.IGNORECASE)
_FILE_URL = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
_VERSION_THREADS = 8  # they mostly wait for a file server
_REQUEST_THREADS = 64
_MAX_BEGUN = 1024  # paths whose files are read before they are needed

# Limits of a listing, which may be endless: listed keys, and keys kept in memory.
_MAX_KEYS = 10_000_000
_MAX_KEPT = 1_000_000

_SPLIT_WORDS = frozenset(("train", "test", "valid", "validation", "val", "dev", "eval"))

# Shard numbers: decimal or hexadecimal, optionally with a total.
_NUMBER = re.compile(
    r"(?<![A-Za-z])[0-9A-Fa-f]*[0-9][0-9A-Fa-f]*(?![A-Za-z])(?:-of-[0-9]+)?|[0-9]+"
)
# Directories of a table partitioned by Hive or Spark: key=value.
_PARTITION = re.compile(r"(?<![^/])([^/=]+)=([^/]*)(?=/)")
_MAX_LISTED = 10


def expand(
    paths: Paths,
    *,
    joins: bool = False,
    allows_pipes: bool = False,
    storage_options: StorageOptions | None = None,
) -> list[str]:
    """Return the files of `paths` in dataset order; a remote file is a `RemotePath`.

    Each path or URL names a file, glob or directory. A directory stands for all
    TFRecord files below it, detected by name or first bytes; names such as
    ``_temporary`` and ``.x`` are skipped. A glob or directory includes a file with
    several names once. With `joins`, a directory that mixes splits is an error. With
    `allows_pipes`, a path may name a pipe, which becomes a `PipePath`.
    """
    expand_one = partial(
        _expand_one, joins=joins, allows_pipes=allows_pipes, options=storage_options
    )
    if isinstance(paths, (str, bytes, os.PathLike)):
        return expand_one(paths)
    given: object = paths
    if not isinstance(given, Iterable):
        raise TypeError(
            f"paths must be a path or an iterable of paths, got {type(given).__name__}"
        )
    given = list(given)
    urls = [path for path in given if isinstance(path, str) and is_remote(path)]
    if len(urls) > 1:
        new = [url for url in urls if type(url) is str and not _FILE.match(url)]
        if new and not storage_options:
            remote_path(new[0], None)  # creates the store that all share
        n_bytes = HEAD_BYTES if len(urls) <= _MAX_BEGUN else 1
        parts = asked_in_threads(partial(expand_one, n_bytes=n_bytes), given)
    else:
        parts = [expand_one(path) for path in given]
    files = [file for part in parts for file in part]
    if not files:
        raise ValueError("paths must not be empty")
    return files


def _expand_one(
    given: object,
    counters: RequestCounters | None = None,
    *,
    joins: bool,
    allows_pipes: bool,
    options: StorageOptions | None,
    n_bytes: int = HEAD_BYTES,
) -> list[str]:
    if isinstance(given, (RemotePath, PipePath)):
        return [given]
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(
            f"a path must be a str or os.PathLike, got {type(given).__name__}"
        )
    name = os.fspath(given)
    if is_remote(name):
        return [*_expand_url(name, counters, joins, options, n_bytes)]
    path = path_of_url(name)
    if os.path.isdir(path):
        top = os.path.join(path, "")
        found = _unique_entries(_walk(top, ["**"], hidden=(".", "_"), ignored=()))
        # Check the name first: an empty or damaged shard must not be skipped silently.
        files = [
            file
            for file in found
            if _SHARD_NAME.search(file)
            or _core.recognize(os.fsencode(file)) in _CONTENTS
        ]
        if not files:
            raise FileNotFoundError(errno.ENOENT, _NO_FILE, path)
        if joins:
            _check_one_split(path, files)
        return files
    # An existing name is literal, even if it contains wildcards.
    if os.path.lexists(path) or not glob.has_magic(path):
        if not is_pipe(os.stat(path)):
            return [path]
        if not allows_pipes:
            refuse_pipe(path, "this operation")
        return [PipePath(path)]
    top, patterns = _split_glob(path)
    files = _unique_entries(_walk(top, patterns))
    if not files:
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", path)
    return files


# Versions and contents.


def version_of(path: str, counters: RequestCounters | None = None) -> Version:
    """Return the `Version` of a local file or remote object, or raise an OSError."""
    if isinstance(path, RemotePath):
        entry = path.entry or fetch_beginning(path, HEAD_BYTES, counters)
        return entry.version
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def versions_of(paths: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the version of each file or object, shape (n, 2), or raise an OSError."""
    remote = [path for path in paths if isinstance(path, RemotePath)]
    if remote:
        unknown = [path for path in remote if path.entry is None]
        asked_in_threads(
            lambda path, counters: fetch_beginning(path, 1, counters), unknown
        )
        return np.array([version_of(path) for path in paths], np.int64)
    return _core.versions_of(os.fsencode("\0".join(paths)), _VERSION_THREADS)


def asked_in_threads(
    call: Callable[[_A, RequestCounters], _T], items: Sequence[_A]
) -> list[_T]:
    """Call ``call(item, counters)`` for all items, in threads; return the results."""
    counters = RequestCounters()
    return run_in_threads(
        [partial(call, item, counters) for item in items],
        cancel=counters.cancel,
        progress_text=lambda n_done, _: f"queried {n_done:,} of {len(items):,} files",
        n_threads=_REQUEST_THREADS,
    )


def recognized(path: str, counters: RequestCounters | None = None) -> str:
    """Detect the format of a file, such as "tfrecord" or "gzip", by its first bytes."""
    with local_head(path, counters) as local:
        return _core.recognize(os.fsencode(local))


@contextlib.contextmanager
def local_head(path: str, counters: RequestCounters | None = None) -> Iterator[str]:
    """Yield `path` if it is local, else a temporary copy of the object's beginning."""
    if not isinstance(path, RemotePath):
        yield path
        return
    import tempfile  # slow to import

    version = version_of(path, counters)
    n_bytes = min(version[0], HEAD_BYTES)
    if has_ranges(path, counters):
        data = path.beginning
    else:
        with contextlib.closing(pieces(path, version, counters)) as content:
            data = bytes(next(content, b""))
    with tempfile.NamedTemporaryFile(prefix="fastrec-") as file:
        if memoryview(data).nbytes < n_bytes:
            path.beginning = data = fetch(path, 0, n_bytes, version, counters)
        file.write(data)
        file.flush()
        yield file.name


# Local paths and URLs.


def path_of_url(path: str) -> str:
    """Return the path in a ``file://`` URL; expand ``~`` in any other path.

    Raises a ValueError for a path that looks like a mistyped URL or ``str(Path(url))``.
    """
    if prefix := _FILE_URL.match(path):
        # Unquote to bytes, because names may not be UTF-8. Keep "?", which may be a
        # wildcard.
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
    """Return the path of a local directory; raise a ValueError for a remote URL."""
    path = os.fspath(given)
    if is_remote(path):
        raise ValueError(f"{name} must be a local directory, got {redacted(path)!r}")
    return path_of_url(path)


# Local globs and directories.


def _split_glob(pattern: str) -> tuple[str, list[str]]:
    """Split a glob into the directory above its first wildcard and the other parts."""
    parts = pattern.split("/")
    n_literal = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "".join(f"{part}/" for part in parts[:n_literal]), parts[n_literal:]


def _walk(
    top: str,
    patterns: Sequence[str],
    hidden: tuple[str, ...] = (".",),
    ignored: tuple[type[OSError], ...] = (OSError,),
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield each path below `top` that matches the parts of a glob, with its DirEntry.

    Unlike in `glob`, ``**`` does not follow links. Names that begin with `hidden` match
    only parts that begin with a dot.
    """
    pattern, *rest = patterns
    if rest and (pattern == "**" or not glob.has_magic(pattern)):
        below = top if pattern == "**" else f"{top}{pattern}/"
        yield from _walk(below, rest, hidden, ignored)
        if pattern != "**":
            return
    entries: list[os.DirEntry[str]] = []
    with contextlib.suppress(*ignored), os.scandir(top or os.curdir) as found:
        entries += found
    match = re.compile(fnmatch.translate(pattern)).match
    for entry in entries:
        path = top + entry.name
        if entry.name.startswith(hidden) and not pattern.startswith("."):
            continue
        if pattern == "**" and entry.is_dir(follow_symlinks=False):
            yield from _walk(f"{path}/", patterns, hidden, ignored)
        elif rest and pattern != "**" and match(entry.name) and os.path.isdir(path):
            yield from _walk(f"{path}/", rest, hidden, ignored)
        elif not rest and match(entry.name):
            yield path, entry


def _unique_entries(found: Iterable[tuple[str, os.DirEntry[str]]]) -> list[str]:
    """Return the sorted paths of the regular files in `found`, each file only once."""
    entries = list(found)
    files = [pair for pair in entries if pair[1].is_file(follow_symlinks=False)]
    has_links = any(entry.is_symlink() for _, entry in entries)
    if not has_links and len({entry.inode() for _, entry in files}) == len(files):
        return sorted([path for path, _ in files])  # without a system call per file
    first: dict[tuple[int, int], str] = {}
    for path in sorted({path for path, _ in entries}):
        try:
            status = os.stat(path)
        except OSError:
            continue  # a dangling link, or a file that was deleted meanwhile
        if not stat.S_ISREG(status.st_mode):
            continue
        same = first.setdefault((status.st_dev, status.st_ino), path)
        if same != path:
            names = printable(path), printable(same)
            _log.warning("skipping %s, which is the same file as %s", *names)
    return list(first.values())


# Remote globs and directories.


def _expand_url(
    url: str,
    counters: RequestCounters | None,
    joins: bool,
    options: StorageOptions | None,
    n_bytes: int,
) -> list[RemotePath]:
    if _FILE.match(url):
        raise ValueError(
            f"the host of a file URL must be empty or localhost, got {redacted(url)!r}"
        )
    path = remote_path(url, options)
    if has_magic(url):
        prefix, patterns = _split_glob(path.key)
        found = _listed(
            path,
            prefix,
            lambda key: _is_match(key[len(prefix) :].split("/"), patterns),
            counters,
            is_recursive=len(patterns) > 1 or patterns == ["**"],
        )
        if not found:
            reason = "No object matches the pattern"
            raise FileNotFoundError(errno.ENOENT, reason, str(path))
        return found
    if path.key and not path.key.endswith("/"):
        try:
            fetch_beginning(path, n_bytes, counters)
        except FileNotFoundError:
            if is_http(url):  # only "/" at the end means a directory
                raise
        else:
            return [path]
    prefix = path.key.rstrip("/") + "/" if path.key else ""

    def is_visible(key: str) -> bool:
        parts = key[len(prefix) :].split("/")
        return not any(part.startswith((".", "_")) for part in parts)

    visible = _listed(path, prefix, is_visible, counters, is_recursive=True)
    files = []
    for file in visible:
        if _SHARD_NAME.search(file.key) or recognized(file, counters) in _CONTENTS:
            files.append(file)
        if len(visible) > _MAX_BEGUN:
            file.beginning = b""  # too many to keep
    if not files:
        reason = _NO_FILE if visible else "No such object or directory"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    if joins:
        _check_one_split(path.rstrip("/"), files)
    return files


def _is_match(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether the parts of a key match the parts of a glob, including ``**``."""
    if not patterns:
        return not names
    pattern, *rest = patterns
    if pattern == "**":
        n_visible = next(
            (i for i, name in enumerate(names) if name.startswith(".")), len(names)
        )
        if not rest:
            return bool(names) and n_visible == len(names)
        return any(_is_match(names[i:], rest) for i in range(n_visible + 1))
    if not names or (names[0].startswith(".") and not pattern.startswith(".")):
        return False
    return fnmatch.fnmatchcase(names[0], pattern) and _is_match(names[1:], rest)


def names_below(path: RemotePath, directory: str) -> list[str]:
    """Return the names of the objects in `directory`, in the same store as `path`."""
    prefix = f"{directory}/" if directory else ""
    try:
        found = _listed(path, prefix, lambda _: True, None, is_recursive=False)
    except FileNotFoundError:
        return []
    return [file.key[len(prefix) :] for file in found]


def _listed(
    path: RemotePath,
    prefix: str,
    keep: Callable[[str], bool],
    counters: RequestCounters | None,
    *,
    is_recursive: bool,
) -> list[RemotePath]:
    """Return the objects below `prefix` whose keys `keep` accepts, sorted by key."""
    kept: list[Entry] = []
    n_keys, after = 0, ""
    while True:
        page, after = ask(
            path,
            partial(path.store.list, prefix, is_recursive=is_recursive, after=after),
            counters,
        )
        n_keys += max(1, len(page))
        kept += [entry for entry in page if keep(entry.key)]
        if len(kept) > _MAX_KEPT or n_keys > _MAX_KEYS:
            reason = f"stopped after listing {n_keys:,} objects; pass a longer prefix"
            raise OSError(errno.EOVERFLOW, reason, str(path))
        if not after:
            break
    files = []
    for _, entry in sorted({entry.key: entry for entry in kept}.items()):
        file = path.sibling(entry)
        if entry.size == 0:
            # The size may not include the object's parts. Or the object does not exist:
            # the empty object "key/", which marks a directory, is listed as "key".
            try:
                fetch_beginning(file, 1, counters)
            except FileNotFoundError:
                continue
        files.append(file)
    return files


# Directories that mix splits.


def _check_one_split(directory: str, files: Iterable[str]) -> None:
    """Raise a ValueError if file names in a directory differ by a split word.

    The message lists a glob for each group of names. If the names differ only by other
    words, a warning is logged instead. Numbers may always differ.
    """
    names = [file[len(directory) :].lstrip(os.sep) for file in files]
    groups = Counter(map(_literal_parts, names))
    if len(groups) == 1:
        return
    globs = [
        f"{os.path.join(glob.escape(directory), _glob(parts, count, names))!r} "
        f"({count:,} file{'s' * (count > 1)})"
        for parts, count in [*groups.items()][:_MAX_LISTED]
    ]
    if len(groups) > _MAX_LISTED:
        globs.append(f"and {len(groups) - _MAX_LISTED:,} more")
    listed = ", ".join(globs)
    if len({_split_words(parts) for parts in groups}) > 1:
        hint = "Pass the glob of one split, or a list of globs to join several"
        if os.path.exists(os.path.join(directory, "dataset_info.json")):
            hint = f"TFDS wrote it: call fastrec.open_tfds({directory!r}, split)"
        raise ValueError(
            f"cannot read directory {directory!r} as one dataset: its file names "
            f"differ by a split word (train, test, ...): {listed}. {hint}"
        )
    _log.warning(
        "joining %d groups of files in directory %r: %s; pass a glob to read only one",
        len(groups),
        directory,
        listed,
    )


def _literal_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name between its numbers and partition values."""

    def without_value(found: re.Match[str]) -> str:
        is_split = found[2].lower() in _SPLIT_WORDS
        return found[0] if is_split else f"{found[1]}=0"

    return tuple(_NUMBER.split(_PARTITION.sub(without_value, name)))


def _split_words(parts: Iterable[str]) -> frozenset[str]:
    words = re.findall(r"[a-z]+", " ".join(parts).lower())
    return _SPLIT_WORDS.intersection(words)


def _glob(parts: Iterable[str], count: int, names: Sequence[str]) -> str:
    """Return a glob for the `count` names with these parts; others should not match."""
    literals = [glob.escape(part) for part in parts]
    pattern = "*".join(literals)
    n_matches = sum(fnmatch.fnmatchcase(name, pattern) for name in names)
    return pattern if n_matches == count else "[0-9]*".join(literals)
