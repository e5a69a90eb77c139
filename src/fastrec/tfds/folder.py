"""Folder: the files of a data set on a disk or in an object store."""

from __future__ import annotations

import errno
import glob
import os
from dataclasses import dataclass
from typing import Any

from fastrec.storage.paths import expand, is_remote, path_of_url, version_of
from fastrec.storage.remote import RemotePath, fetch, remote_path
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import is_http


@dataclass(frozen=True)
class Folder:
    """A directory or a URL; its `str` has no credentials."""

    _given: str
    _path: str  # a RemotePath of a URL
    _options: StorageOptions | None = None

    @classmethod
    def of(
        cls, given: str | os.PathLike[str], storage_options: StorageOptions | None
    ) -> Folder:
        """Return the folder of a path or URL, which need not exist."""
        path: object = given
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"directory must be a path or URL, got {type(given).__name__}"
            )
        text = os.fspath(given)
        if not is_remote(text):
            return cls(text, path_of_url(text))
        text = text.rstrip("/")
        return cls(text, remote_path(text, storage_options), storage_options)

    def __str__(self) -> str:
        return str(self._path)

    @property
    def is_listable(self) -> bool:
        """Whether `matches` works: a plain HTTP server lists nothing."""
        return not (isinstance(self._path, RemotePath) and is_http(self._given))

    def path(self, name: str) -> str:
        """Return the path of a file in it."""
        if isinstance(self._path, RemotePath):
            key = f"{self._path.key}/{name}" if self._path.key else name
            return self._path.sibling(Entry(key, -1, ""))
        return os.path.join(self._path, name)

    def matches(self, pattern: str) -> dict[str, str]:
        """Return the paths of the files that match a glob, by their names in it."""
        if isinstance(self._path, RemotePath):
            top, paths = f"{self._path}/", f"{self._given}/{pattern}"
        else:
            top = self.path("")
            paths = os.path.join(glob.escape(self._path), pattern)
        try:
            found = expand(paths, storage_options=self._options)
        except FileNotFoundError:
            return {}
        return {str(path)[len(top) :]: path for path in found}

    def folder(self, name: str) -> Folder:
        """Return a folder in it."""
        given = f"{self._given.rstrip('/')}/{name}"
        return Folder(given, self.path(name), self._options)

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise an OSError."""
        path = self.path(name)
        if isinstance(path, RemotePath):
            version = version_of(path)
            data: Any = fetch(path, 0, version[0], version)
            return bytes(data)
        with open(path, "rb") as file:
            return file.read()

    def missing(self, reason: str, name: str = "") -> FileNotFoundError:
        """Return the error for a file that does not exist, or for the folder."""
        path = self.path(name) if name else self._path
        return FileNotFoundError(errno.ENOENT, reason, str(path))
