"""Expand a URL to the objects of a glob or a directory."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from collections.abc import Callable, Iterable, Sequence

from fastrec.storage.remote import Faults, RemotePath, head, remote_path, waited
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import has_magic, is_http

__all__ = ["delete", "exists", "expand_url", "names_below"]

_MAX_LISTED = 5


def expand_url(
    url: str,
    storage_options: StorageOptions | None,
    *,
    is_recursive: bool,
    choose: Callable[[Sequence[RemotePath]], list[RemotePath]],
    check_split: Callable[[str, Sequence[str]], None] | None,
) -> list[RemotePath]:
    """Return the objects of a URL, sorted by name.

    The URL is an object, a glob, or a directory, of which `choose` returns the TFRecord
    files. `check_split` raises if the names in a directory are of several splits.
    """
    path = remote_path(url, storage_options)
    if has_magic(url):
        found = _matches(path)
        if not found:
            reason = "No object matches the pattern"
            raise FileNotFoundError(errno.ENOENT, reason, str(path))
        return found
    if path.key and not path.key.endswith("/"):
        try:
            path.entry = head(path)
        except FileNotFoundError:
            if is_http(url):  # only "/" at the end means a directory
                raise
        else:
            return [path]
    return _directory(path, is_recursive, choose, check_split)


def _directory(
    path: RemotePath,
    is_recursive: bool,
    choose: Callable[[Sequence[RemotePath]], list[RemotePath]],
    check_split: Callable[[str, Sequence[str]], None] | None,
) -> list[RemotePath]:
    prefix = path.key.rstrip("/") + "/" if path.key else ""
    listed = _listed(path, prefix, is_recursive=is_recursive)
    visible = [
        (entry, key)
        for entry, key in listed
        if not any(part.startswith(".") for part in key[len(prefix) :].split("/"))
    ]
    files = _paths(path, (entry for entry, _ in visible if entry is not None))
    chosen = choose(files)
    if not chosen:
        if not listed:
            raise FileNotFoundError(
                errno.ENOENT, "No such object or directory", str(path)
            )
        reason = "No TFRecord file in the directory"
        inner = sorted(key[len(prefix) : -1] for entry, key in visible if entry is None)
        if inner:
            more = ", ..." if len(inner) > _MAX_LISTED else ""
            pattern = f"{path.rstrip('/')}/**/*.tfrecord*"
            reason += (
                f" (subdirectories {', '.join(map(repr, inner[:_MAX_LISTED]))}{more} "
                f"are not searched); pass one of them, or a glob such as {pattern!r}"
            )
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    if check_split is not None:
        check_split(path.rstrip("/"), chosen)
    return chosen


def _matches(path: RemotePath) -> list[RemotePath]:
    """Return the objects that match a glob, sorted by name."""
    parts = path.key.split("/")
    n_literal = next(i for i, part in enumerate(parts) if has_magic(part))
    prefix = "".join(f"{part}/" for part in parts[:n_literal])
    is_deep = n_literal < len(parts) - 1 or parts[-1] == "**"
    listed = _listed(path, prefix, is_recursive=is_deep)
    return _paths(
        path,
        (
            entry
            for entry, key in listed
            if entry is not None and _is_match(key.split("/"), parts)
        ),
    )


def _is_match(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether the parts of a key match those of a glob; ``**`` matches any."""
    if not patterns:
        return not names
    pattern, *rest = patterns
    if pattern == "**":
        n_hidden = next(
            (i for i, n in enumerate(names) if n.startswith(".")), len(names)
        )
        if not rest:
            return bool(names) and n_hidden == len(names)
        return any(_is_match(names[i:], rest) for i in range(n_hidden + 1))
    if not names or (names[0].startswith(".") and not pattern.startswith(".")):
        return False
    return fnmatch.fnmatchcase(names[0], pattern) and _is_match(names[1:], rest)


def exists(path: str) -> bool:
    """Return whether a local file or an object exists."""
    if not isinstance(path, RemotePath):
        return os.path.lexists(path)
    try:
        head(path)
    except FileNotFoundError:
        return False
    return True


def names_below(path: RemotePath, directory: str) -> list[str]:
    """Return the names of the objects in a directory of the store of `path`."""
    prefix = f"{directory}/" if directory else ""
    try:
        listed = _listed(path, prefix, is_recursive=False)
    except FileNotFoundError:
        return []
    return sorted(key[len(prefix) :] for entry, key in listed if entry is not None)


def delete(path: RemotePath) -> None:
    """Delete an object, which may be missing."""
    with contextlib.suppress(FileNotFoundError):
        waited(
            str(path),
            lambda: path.store.call(str(path), lambda: path.store.delete(path.key)),
            Faults(),
        )


def _listed(
    path: RemotePath, prefix: str, *, is_recursive: bool
) -> list[tuple[Entry | None, str]]:
    def request() -> list[tuple[Entry | None, str]]:
        return path.store.call(
            str(path),
            lambda: list(path.store.list(prefix, is_recursive=is_recursive)),
        )

    return waited(str(path), request, Faults())


def _paths(path: RemotePath, entries: Iterable[Entry]) -> list[RemotePath]:
    """Return the paths of listed objects, sorted by name, without duplicates."""
    by_key = {entry.key: entry for entry in entries}
    return [path.sibling(by_key[key]) for key in sorted(by_key)]
