"""Index files: where the indexes of files are kept, and how they are found.

An index file (``src/cpp/record/index_file.h``) has the indexes of many files, by their
names relative to a directory. There are four kinds:

* ``DIRECTORY.HASH.frecidx``: of several files, named after their common directory
* ``DIRECTORY.HASH.RANK-of-N.frecidx``: the part that one machine of several has built
* ``NAME.HASH.frecidx``: of a single file
* ``.fastrec/index.frecidx`` in the directory of the files, which can be copied with them

The first three are in ``$FASTREC_CACHE/index`` (else ``$XDG_CACHE_HOME/fastrec/index``,
else ``~/.cache/fastrec/index``) or in `index_dir`. An index is used if the file has the
same size and modification time (or ETag). Next to the data, the time may differ, but
sampled records of the file must be where the index says.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import CODES, Content
from fastrec.storage.paths import local_directory, version_of
from fastrec.storage.remote import RemotePath, fetch
from fastrec.storage.stores import Entry

if TYPE_CHECKING:
    from pathlib import Path

# hashlib and pathlib are slow to import, so the functions that need them do it.

_log = logging.getLogger("fastrec")

Numbers = npt.NDArray[np.int64]

_NEXT_TO_DATA = os.path.join(".fastrec", "index.frecidx")
_ONLY_FILE = b"."  # the name in the index file of a single file


def cache_dir() -> Path:
    """Return the cache directory, from the current environment."""
    from pathlib import Path

    for variable, tail in (("FASTREC_CACHE", "."), ("XDG_CACHE_HOME", "fastrec")):
        if value := os.environ.get(variable):
            return Path(value) / tail
    try:
        return Path.home() / ".cache" / "fastrec"
    except RuntimeError:  # no home directory, as in containers
        return Path(os.devnull)  # nothing can be written there


def _directory_of(index_dir: str | os.PathLike[str] | None) -> Path:
    from pathlib import Path

    if index_dir is None:
        return cache_dir() / "index"
    return Path(local_directory("index_dir", index_dir))


def hashed_name(path: str) -> str:
    """Return the last component of a real path or identity, and a hash of all of it."""
    import hashlib

    return f"{_short_name(path)}.{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def _short_name(path: str) -> str:
    """Return the last component of a path, cut to 100 bytes."""
    name = os.path.basename(path.rstrip("/"))
    return os.fsencode(name)[:100].decode(errors="ignore")


def _identity(path: str) -> str:
    return path.identity if isinstance(path, RemotePath) else path


def index_path(path: str, index_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the index file of a single file."""
    real = path.identity if isinstance(path, RemotePath) else os.path.realpath(path)
    name = hashed_name(real)
    return _directory_of(index_dir) / f"{name}.frecidx"


def joined_names(paths: Sequence[str]) -> bytes:
    """Join paths by NUL bytes, in the form that the core accepts."""
    return os.fsencode("\0".join(paths))


@dataclass(frozen=True)
class Scope:
    """The common directory of files, and their names relative to it.

    Attributes
    ----------
    directory : str
        Real path, or URL.
    names : bytes
        Joined by NUL bytes, in the order of the files.
    n_files : int
    """

    directory: str
    names: bytes
    n_files: int
    remote: RemotePath | None = None  # one of the files

    @classmethod
    def of(cls, paths: Sequence[str]) -> Scope:
        """Return the scope of at least one file."""
        if len(paths) == 1:
            remote = paths[0] if isinstance(paths[0], RemotePath) else None
            real = remote.identity if remote else os.path.realpath(paths[0])
            directory, _, name = real.rpartition("/")
            return cls(directory or "/", os.fsencode(name), 1, remote)
        identities = [*map(_identity, paths)]
        first, last = min(identities), max(identities)
        same = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(first, last, strict=False)
        )
        prefix = first[: first.rfind(os.sep, 0, sum(1 for _ in same)) + 1]
        names = os.fsencode("\0".join([name[len(prefix) :] for name in identities]))
        if "://" in prefix:
            remote = next((p for p in paths if isinstance(p, RemotePath)), None)
            return cls(prefix[:-1], names, len(paths), remote)
        return cls(os.path.realpath(prefix or os.curdir), names, len(paths))

    def path(
        self,
        index_dir: str | os.PathLike[str] | None,
        *,
        part: tuple[int, int] | None = None,
        is_next_to_data: bool = False,
    ) -> Path:
        """Return the path of the index file that these files are written to."""
        from pathlib import Path

        if is_next_to_data:
            return Path(self.directory) / _NEXT_TO_DATA
        name = hashed_name(self._key)
        if part is not None:
            name = f"{hashed_name(self.directory + os.sep)}.{part[0]}-of-{part[1]}"
        return _directory_of(index_dir) / f"{name}.frecidx"

    @property
    def _key(self) -> str:
        if self.n_files == 1:
            return os.path.join(self.directory, os.fsdecode(self.names))
        return self.directory + os.sep

    def names_in(self, path: Path) -> bytes:
        """Return the names of the files in the index file at `path()`."""
        is_own = self.n_files == 1 and path.name.startswith(hashed_name(self._key))
        return _ONLY_FILE if is_own else self.names

    def above(self) -> Iterator[tuple[str, bytes]]:
        """Yield each directory from this one up, and the names relative to it."""
        directory, prefix = self.directory, b""
        while True:
            names = prefix + self.names.replace(b"\0", b"\0" + prefix)
            yield directory, names if prefix else self.names
            directory, name = os.path.split(directory)
            if not name or self.remote is not None:
                return
            prefix = os.fsencode(name) + b"/" + prefix


def _candidates(
    scope: Scope, index_dir: str | os.PathLike[str] | None
) -> Iterator[tuple[Path, bytes, bool]]:
    """Yield the index files that may have all files of a scope.

    Yields their paths, the names of the files in them, and whether they are next to the
    data, so that times may differ.
    """
    from pathlib import Path

    own = scope.path(index_dir)
    yield own, scope.names_in(own), False
    for directory, names in scope.above():
        if scope.remote is None:
            next_to_data = os.path.join(directory, _NEXT_TO_DATA)
            if os.path.lexists(next_to_data):
                yield Path(next_to_data), names, True
        cached = Scope(directory, b"", 0).path(index_dir)
        if cached != own and os.path.lexists(cached):
            yield cached, names, False


def _fetched(
    scope: Scope, paths: Sequence[str]
) -> tuple[_core.IndexFile, bytes] | None:
    """Return the index file next to remote data, and the names of the files in it.

    Returns None if there is none, or if the names do not tell the files apart.
    """
    remote = scope.remote
    if remote is None:
        return None
    n_above = len(scope.directory) + 1 - (len(remote.address) - len(remote.key))
    names = [path.key[n_above:] for path in paths if isinstance(path, RemotePath)]
    if n_above < 0 or len(set(names)) < len(set(paths)):
        return None
    key = f"{remote.key[:n_above]}{_NEXT_TO_DATA}"
    path = remote.sibling(Entry(key, -1, ""))
    try:
        version = version_of(path)
        content = fetch(path, 0, version[0], version)
    except FileNotFoundError:
        return None
    except OSError as error:  # some stores deny access to an object that is missing
        _log.info("cannot read the index %s: %s", path, error.strerror)
        return None
    file = _core.IndexFile.of(bytes(content))
    return None if file is None else (file, joined_names(names))


def contents_by_name(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> npt.NDArray[np.uint8]:
    """Return codes of the compression of files by the first index file."""
    scope = Scope.of(paths)
    for path, names, _ in _candidates(scope, index_dir):
        file = _core.IndexFile.load(os.fsencode(path))
        if file is not None:
            return file.contents(names)
    return np.full(len(paths), CODES["auto"], np.uint8)


class IndexSearch:
    """The indexes of files that were found in index files so far.

    Parameters
    ----------
    paths : sequence of str
    versions : ndarray of int64, shape (n, 2)
        The size and the modification time of each file.
    contents : sequence of str
        The compression of each file; an index of another compression is not used.
    needs_crcs : bool
        Whether an index must have the checksums of the payloads.
    index_dir : path-like, optional
    is_probing : bool
        Whether each index is compared with sampled records of its file.
    stale : sequence of int
        The numbers of files whose indexes in index files are not used.

    Attributes
    ----------
    parts : list of (ndarray of int64, Indexes)
        The numbers of files, and their indexes.
    missing : ndarray of int64
        The numbers of the other files.
    versions : ndarray of int64, shape (n, 2)
    scattered : list of Path
        The index files, of single files or parts, that should be merged into one.
    is_fetched : bool
        Whether indexes were fetched from a remote store, and should be kept here.
    """

    def __init__(
        self,
        paths: Sequence[str],
        versions: npt.NDArray[np.int64],
        contents: Sequence[Content],
        *,
        needs_crcs: bool,
        index_dir: str | os.PathLike[str] | None,
        is_probing: bool = False,
        stale: Sequence[int] = (),
    ) -> None:
        self._paths = paths
        self.versions = versions
        self._contents = np.array([CODES[content] for content in contents], np.uint8)
        self._needs_crcs = needs_crcs
        self._index_dir = index_dir
        self._is_probing = is_probing
        self._stale = np.array(stale, np.int64)
        self._table: _core.FileTable | None = None  # to probe files
        self.scope = Scope.of(paths)
        self.parts: list[tuple[Numbers, _core.Indexes]] = []
        self.missing = np.arange(len(paths), dtype=np.int64)
        self.scattered: list[Path] = []
        self.is_fetched = False
        self._merged: list[_core.IndexFile] = []  # the parts among them
        self._sources: set[str] = set()  # index files that were used

    @property
    def is_complete(self) -> bool:
        """Whether all indexes were found."""
        return not self.missing.size

    def add(self, numbers: Numbers, indexes: _core.Indexes) -> None:
        """Add indexes of missing files."""
        if numbers.size:
            self.parts.append((numbers, indexes))
            self.missing = np.setdiff1d(self.missing, numbers, assume_unique=True)

    def indexes(self) -> _core.Indexes:
        """Return the indexes of all files, none of which is missing."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        return _core.Indexes.merged(len(self._paths), self.parts)

    def is_only_from(self, path: Path) -> bool:
        """Whether all indexes were found in one index file."""
        return self._sources == {str(path)}

    def search(self) -> None:
        """Search where indexes of all files together may be on this machine."""
        for path, names, is_next_to_data in _candidates(self.scope, self._index_dir):
            self._look_into(path, names, is_next_to_data=is_next_to_data)
            if self.is_complete:
                return

    def fetch(self) -> None:
        """Search next to remote files, which takes a request."""
        fetched = _fetched(self.scope, self._paths)
        if fetched is not None and self._find(
            *fetched, self.missing, is_next_to_data=True
        ):
            self.is_fetched = True

    def search_scattered(self) -> None:
        """Search for parts that several machines built, and for indexes of single files."""
        folder = _directory_of(self._index_dir)
        try:
            listed = set(os.listdir(folder))
        except OSError:
            return
        for directory, names in self.scope.above():
            stem = f"{hashed_name(directory + os.sep)}."
            parts = {name for name in listed if name.startswith(stem)}
            for name in sorted(parts - {f"{stem}frecidx"}):
                part = self._look_into(folder / name, names)
                if (
                    part is not None
                    and directory == self.scope.directory
                    and self.scope.n_files > 1
                ):
                    self.scattered.append(folder / name)
                    self._merged.append(part)
        single = {
            name.rsplit(".", 2)[0] for name in listed if name.endswith(".frecidx")
        }
        for number in self.missing.tolist() if self.scope.n_files > 1 else ():
            path = self._paths[number]
            if _short_name(_identity(path)) not in single:
                continue
            found = _core.IndexFile.load(os.fsencode(index_path(path, self._index_dir)))
            if found is not None and self._find(
                found, b"\0".join([_ONLY_FILE] * len(self._paths)), np.array([number])
            ):
                self.scattered.append(index_path(path, self._index_dir))

    def _look_into(
        self, path: str | Path, names: bytes, *, is_next_to_data: bool = False
    ) -> _core.IndexFile | None:
        """Use an index file, and return it if it had an index of a missing file."""
        file = _core.IndexFile.load(os.fsencode(path))
        if file is None or not self._find(
            file, names, self.missing, is_next_to_data=is_next_to_data
        ):
            return None
        self._sources.add(str(path))
        return file

    def _find(
        self,
        file: _core.IndexFile,
        names: bytes,
        numbers: Numbers,
        *,
        is_next_to_data: bool = False,
    ) -> bool:
        found = file.find(
            names,
            np.setdiff1d(numbers, self._stale, assume_unique=True),
            self.versions,
            self._contents,
            needs_crcs=self._needs_crcs,
            ignores_times=is_next_to_data,
            probed=self._probed() if is_next_to_data or self._is_probing else None,
        )
        self.add(*found)
        return bool(found[0].size)

    def _probed(self) -> _core.FileTable:
        if self._table is None:
            from fastrec.storage.range_readers import table_of

            self._table = table_of(self._paths, "pread")
        return self._table

    def save(self, path: Path) -> None:
        """Write the indexes that were found or added to `path`, or raise an OSError.

        Indexes of other files that exist are kept there. Deletes the scattered files.
        """
        names = self.scope.names_in(path).split(b"\0")
        parts = [part for each in self.parts if len((part := _without_gaps(*each))[0])]
        if self._stale.size:
            parts = self.parts  # an index with gaps is not written, but replaces others
        if not parts:
            return
        numbers = np.concatenate([part[0] for part in parts]).tolist()
        known = _core.IndexFile.load(os.fsencode(path))
        others = [] if known is None or names == [_ONLY_FILE] else [known]
        is_own = path == self.scope.path(self._index_dir)
        with replacement(path, sync=False) as temporary:
            _core.save_indexes(
                os.fsencode(temporary),
                b"\0".join([names[number] for number in numbers]),
                _core.Indexes.joined([part[1] for part in parts]),
                [*others, *self._merged] if is_own else others,
                None if self.scope.remote else os.fsencode(self.scope.directory),
            )
        for scattered in self.scattered if is_own else ():
            with contextlib.suppress(OSError):
                scattered.unlink()


def _without_gaps(
    numbers: Numbers, indexes: _core.Indexes
) -> tuple[Numbers, _core.Indexes]:
    """Leave out the indexes of damaged files, which are not cached."""
    if not indexes.has_gaps:
        return numbers, indexes
    whole = [i for i, index in enumerate(indexes) if not index.gaps]
    return numbers[whole], _core.Indexes([indexes[i] for i in whole])
