"""Index files: the paths and names under which indexes are stored.

An index file (``src/cpp/record/index_file.h``) contains the indexes of many files, with
file names relative to a directory. An index file has one of two locations:

* ``$FASTREC_CACHE/index`` (else ``$XDG_CACHE_HOME/fastrec/index``, else
  ``~/.cache/fastrec/index``), or `index_dir`: ``DIRECTORY.HASH.frecidx`` for several
  files, ``DIRECTORY.HASH.RANK-of-N.frecidx`` for the part that one machine built,
  ``NAME.HASH.frecidx`` for a single file
* ``.fastrec/index.frecidx`` in the directory of the files, so that copies include it
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastrec.storage.paths import local_directory
from fastrec.storage.remote import RemotePath
from fastrec.storage.stores import Entry
from fastrec.storage.urls import refuse_read_only

if TYPE_CHECKING:
    from pathlib import Path

# hashlib and pathlib are slow to import, so the functions that need them import them.

NEXT_TO_DATA = os.path.join(".fastrec", "index.frecidx")
ONLY_FILE = b"."  # the name in the index file of a single file


def cache_dir() -> Path:
    """Return the cache directory that the current environment variables determine."""
    from pathlib import Path

    for variable, tail in (("FASTREC_CACHE", "."), ("XDG_CACHE_HOME", "fastrec")):
        if value := os.environ.get(variable):
            return Path(value) / tail
    try:
        return Path.home() / ".cache" / "fastrec"
    except RuntimeError:  # no home directory, as in containers
        return Path(os.devnull)  # nothing can be written there


def hashed_name(path: str) -> str:
    """Return ``NAME.HASH``: the last component of `path`, and the hash of `path`."""
    import hashlib

    return f"{short_name(path)}.{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def short_name(path: str) -> str:
    """Return the last component of a path, cut to 100 bytes."""
    name = os.path.basename(path.rstrip("/"))
    return os.fsencode(name)[:100].decode(errors="ignore")


def joined_names(paths: Sequence[str]) -> bytes:
    """Join paths with NUL bytes, in the form that the core accepts."""
    return os.fsencode("\0".join(paths))


def index_path(path: str, index_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the index file for the single file at `path`."""
    return IndexPlace(index_dir).file(Scope.of([path]).key)


class IndexPlace(NamedTuple):
    """The place of index files: `index_dir` (else the cache), or next to the data."""

    index_dir: str | os.PathLike[str] | None = None
    part: tuple[int, int] | None = None  # rank and world size, if machines share work
    is_next_to_data: bool = False
    must_keep: bool = False  # whether a failure to save the indexes is an error

    def folder(self) -> Path:
        """Return the directory of the index files."""
        from pathlib import Path

        if self.index_dir is None:
            return cache_dir() / "index"
        return Path(local_directory("index_dir", self.index_dir))

    def file(self, path: str, part: str = "") -> Path:
        """Return the path of the index file for a file or, with "/", a directory."""
        return self.folder() / f"{hashed_name(path)}{part}.frecidx"

    def path(self, scope: Scope) -> Path | RemotePath:
        """Return the path of the index file for the files of `scope`."""
        if self.is_next_to_data:
            path, _ = scope.next_to_data()
            if isinstance(path, RemotePath):
                refuse_read_only(path)
            if path is None:
                raise ValueError(
                    "an index next to the data requires local files only, or files in "
                    "one bucket"
                )
            return path
        if self.part is None:
            return self.file(scope.key)
        rank, world_size = self.part
        return self.file(scope.directory + os.sep, f".{rank}-of-{world_size}")

    def candidates(self, scope: Scope) -> Iterator[tuple[Path, bytes, bool]]:
        """Yield the local index files that may contain the indexes of a whole scope.

        Each item has the index file's path, the names that it uses for the files, and
        whether it is next to the data. If so, modification times may differ.
        """
        from pathlib import Path

        own = self.file(scope.key)
        yield own, scope.names_in(own), False
        for directory, names in scope.above():
            next_to_data = Path(directory, NEXT_TO_DATA)
            if scope.remote is None and os.path.lexists(next_to_data):
                yield next_to_data, names, True
            cached = self.file(directory + os.sep)
            if cached != own and os.path.lexists(cached):
                yield cached, names, False


@dataclass(frozen=True)
class Scope:
    """The common directory of some files, and the file names relative to it."""

    directory: str  # a real path, or a URL
    paths: Sequence[str]
    names: bytes  # joined by NUL bytes, in the order of the files

    @classmethod
    def of(cls, paths: Sequence[str]) -> Scope:
        """Return the scope of `paths`, which must not be empty."""
        names = [p.identity if isinstance(p, RemotePath) else p for p in paths]
        if len(paths) == 1 and not isinstance(paths[0], RemotePath):
            names = [os.path.realpath(paths[0])]
        prefix = os.path.commonprefix(names)  # noqa: RUF071 (cut to a directory)
        prefix = prefix[: prefix.rfind("/") + 1]
        directory = prefix[:-1]
        if "://" not in prefix:
            directory = os.path.realpath(prefix or os.curdir)
        return cls(directory, paths, joined_names([n[len(prefix) :] for n in names]))

    @property
    def remote(self) -> RemotePath | None:
        """The first of the files if the directory is remote, else None."""
        is_local = self.directory.startswith("/") or not self.paths
        first = None if is_local else self.paths[0]
        return first if isinstance(first, RemotePath) else None

    @property
    def key(self) -> str:
        """The path that determines the name of the index file."""
        name = os.fsdecode(self.names) if len(self.paths) == 1 else ""
        return os.path.join(self.directory, name)

    def names_in(self, path: Path | RemotePath) -> bytes:
        """Return the names that the index file at `path` uses for the files."""
        if isinstance(path, RemotePath):
            return self.next_to_data()[1]
        name = os.path.basename(path)
        is_own = len(self.paths) == 1 and name.startswith(hashed_name(self.key))
        return ONLY_FILE if is_own else self.names

    def next_to_data(self) -> tuple[Path | RemotePath | None, bytes]:
        """Return the index file next to the data, and its names for the files.

        The path is None if the files are in several stores, or share names.
        """
        from pathlib import Path

        if (first := self.remote) is None:
            if any(isinstance(path, RemotePath) for path in self.paths):
                return None, b""
            return Path(self.directory, NEXT_TO_DATA), self.names
        n_above = len(self.directory) + 1 - (len(first.address) - len(first.key))
        paths = [path for path in self.paths if isinstance(path, RemotePath)]
        names = [path.key[n_above:] for path in paths]
        if n_above < 0 or len(set(names)) < len(set(self.paths)):
            return None, b""
        entry = Entry(first.key[:n_above] + NEXT_TO_DATA)
        return first.sibling(entry), joined_names(names)

    def above(self) -> Iterator[tuple[str, bytes]]:
        """Yield the directory and each parent, with the file names relative to it."""
        directory, prefix = self.directory, b""
        while True:
            names = prefix + self.names.replace(b"\0", b"\0" + prefix)
            yield directory, names if prefix else self.names
            directory, name = os.path.split(directory)
            if not name or self.remote is not None:
                return
            prefix = os.fsencode(name) + b"/" + prefix
