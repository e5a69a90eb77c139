"""Which files a caller means: paths, globs, directories, and lists of them."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable
from typing import TypeAlias

from fastrec import _core

__all__ = ["Paths", "expand"]

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def expand(paths: Paths) -> list[str]:
    """Return the files that `paths` names, in the order that records count through them.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        A file, a glob such as ``"train-*.tfrecord"`` (sorted by name, ``**`` goes into
        directories), a directory (those files in it that are TFRecords, judged by their
        first bytes, sorted by name), or several of these, in the order given.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, a glob matches nothing, or a directory has no
        TFRecord file in it.
    ValueError
        If there are no paths, or one of them is a remote URL.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        return _expand_one(paths)
    given: object = paths
    if not isinstance(given, Iterable):
        msg = f"paths must be a path or several, not {given!r}"
        raise TypeError(msg)
    found = [file for path in given for file in _expand_one(path)]
    if not found:
        msg = "no paths were given"
        raise ValueError(msg)
    return found


def _expand_one(given: object) -> list[str]:
    if not isinstance(given, (str, os.PathLike)):
        msg = f"a path must be a str or os.PathLike, not {given!r}"
        raise TypeError(msg)
    path: str = os.fspath(given)
    if _URL.match(path):
        msg = (
            f"remote paths cannot be read yet: {path!r}; mount the bucket, or copy the "
            "files to a local disk"
        )
        raise ValueError(msg)
    if os.path.isdir(path):  # noqa: PTH112 (a Path would change what the user wrote)
        return _files_in(path)
    # A name that exists is meant literally, whatever characters it has.
    if os.path.lexists(path) or not glob.has_magic(path):
        os.stat(path)  # noqa: PTH116 (raises what the system says of a missing file)
        return [path]
    found = sorted(p for p in glob.iglob(path, recursive=True) if os.path.isfile(p))  # noqa: PTH113, PTH207
    if not found:
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", path)
    return found


def _files_in(directory: str) -> list[str]:
    found = []
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name.startswith(".") or not entry.is_file():
                continue
            content = _core.recognize(os.fsencode(entry.path))
            # A shard may be empty, but so is a file like _SUCCESS. A compressed file may
            # be one of the shards: leaving it out in silence would lose its records.
            is_shard = content == "empty" and "tfrecord" in entry.name.lower()
            if is_shard or content in ("tfrecord", "gzip", "zlib"):
                found.append(entry.path)
    if not found:
        raise FileNotFoundError(
            errno.ENOENT, "No TFRecord file in the directory", directory
        )
    return found
