"""Expand a URL to the objects of a glob or a directory."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fastrec.storage.remote import Faults, RemotePath, head, remote_path, waited
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import has_magic, is_http

# Limits of a listing, which may have no end: keys, and those that are kept in memory.
_MAX_KEYS = 10_000_000
_MAX_KEPT = 1_000_000


def expand_url(
    url: str,
    storage_options: StorageOptions | None,
    *,
    faults: Faults,
    choose: Callable[[Sequence[RemotePath]], list[RemotePath]],
    check_split: Callable[[str, Sequence[str]], None] | None,
) -> list[RemotePath]:
    """Return the objects of a URL, sorted by name.

    The URL is an object, a glob, or a directory, of which `choose` returns the TFRecord
    files. `check_split` raises if the names in a directory are of several splits.
    """
    path = remote_path(url, storage_options)
    if has_magic(url):
        found = _matches(path, faults)
        if not found:
            reason = "No object matches the pattern"
            raise FileNotFoundError(errno.ENOENT, reason, str(path))
        return found
    if path.key and not path.key.endswith("/"):
        try:
            path.entry = head(path, faults)
        except FileNotFoundError:
            if is_http(url):  # only "/" at the end means a directory
                raise
        else:
            return [path]
    return _directory(path, faults, choose, check_split)


def _directory(
    path: RemotePath,
    faults: Faults,
    choose: Callable[[Sequence[RemotePath]], list[RemotePath]],
    check_split: Callable[[str, Sequence[str]], None] | None,
) -> list[RemotePath]:
    prefix = path.key.rstrip("/") + "/" if path.key else ""

    def is_visible(key: str) -> bool:
        parts = key[len(prefix) :].split("/")
        return not any(part.startswith((".", "_")) for part in parts)

    visible = _listed(path, prefix, is_visible, faults, is_recursive=True)
    chosen = choose(_paths(path, visible, faults))
    if not chosen:
        if not visible:
            raise FileNotFoundError(
                errno.ENOENT, "No such object or directory", str(path)
            )
        reason = "No TFRecord file in the directory, nor in those below"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    if check_split is not None:
        check_split(path.rstrip("/"), chosen)
    return chosen


def _matches(path: RemotePath, faults: Faults) -> list[RemotePath]:
    """Return the objects that match a glob, sorted by name."""
    parts = path.key.split("/")
    n_literal = next(i for i, part in enumerate(parts) if has_magic(part))
    prefix = "".join(f"{part}/" for part in parts[:n_literal])
    is_deep = n_literal < len(parts) - 1 or parts[-1] == "**"

    def is_match(key: str) -> bool:
        return _is_match(key.split("/"), parts)

    listed = _listed(path, prefix, is_match, faults, is_recursive=is_deep)
    return _paths(path, listed, faults)


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
        listed = _listed(path, prefix, lambda _: True, Faults(), is_recursive=False)
    except FileNotFoundError:
        return []
    return sorted({key[len(prefix) :] for entry, key in listed if entry})


def delete(path: RemotePath) -> None:
    """Delete an object, which may be missing."""
    with contextlib.suppress(FileNotFoundError):
        waited(
            str(path),
            lambda: path.store.call(str(path), lambda: path.store.delete(path.key)),
            Faults(),
        )


def _listed(
    path: RemotePath,
    prefix: str,
    keep: Callable[[str], bool],
    faults: Faults,
    *,
    is_recursive: bool,
) -> list[tuple[Entry | None, str]]:
    """Return the entries whose keys `keep` accepts; some may be listed twice."""
    kept: list[tuple[Entry | None, str]] = []
    n_keys, after = 0, ""
    while True:
        request = partial(
            path.store.list, prefix, is_recursive=is_recursive, after=after
        )
        page, after = waited(
            str(path), partial(path.store.call, str(path), request), faults
        )
        n_keys += len(page)
        kept += [pair for pair in page if keep(pair[1])]
        if len(kept) > _MAX_KEPT or n_keys > _MAX_KEYS:
            reason = f"stopped after listing {n_keys:,} objects; pass a longer prefix"
            raise OSError(errno.EOVERFLOW, reason, str(path))
        if not after:
            return kept


def _paths(
    path: RemotePath, listed: Iterable[tuple[Entry | None, str]], faults: Faults
) -> list[RemotePath]:
    """Return the paths of listed objects, sorted by name, without duplicates."""
    by_key = {key: entry for entry, key in listed if entry is not None}
    files = []
    for key in sorted(by_key):
        file = path.sibling(by_key[key])
        if by_key[key].size == 0:
            # Perhaps the object has parts that are not counted, or does not exist: the
            # empty object "key/", which marks a directory, is listed as "key".
            try:
                file.entry = head(file, faults)
            except FileNotFoundError:
                continue
        files.append(file)
    return files
