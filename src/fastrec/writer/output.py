"""Output files: written under a temporary name and renamed when complete."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastrec.storage.atomic import sync_directory
from fastrec.storage.remote import RemotePath, exists

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAX_WRITE_BYTES = 1 << 30  # macOS rejects writes of 2 GiB
# Errors of os.link on file systems without hard links (FAT, many in user space).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def resolved(path: str, *, overwrite: bool, directory: str = "") -> str:
    """Return the absolute path of a new file, with links resolved.

    A relative path starts at `directory`. Raises an OSError if an existing file must not
    or cannot be replaced, or if the directory does not exist.
    """
    if isinstance(path, RemotePath):
        if not overwrite and exists(path):
            raise FileExistsError(errno.EEXIST, "The object exists", str(path))
        return path
    with _named(path):
        absolute = os.path.join(directory, path)
        with contextlib.suppress(FileNotFoundError):
            os.lstat(absolute)
            if not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            # A rename would replace a device by a file.
            mode = os.stat(absolute).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        parent, name = os.path.split(os.path.realpath(absolute))
        if not os.path.basename(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.stat(os.path.join(parent, "."))
        return os.path.join(parent, name)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Make errors name `path` instead of a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = path
        del error.filename2
        raise


class OutputFile:
    """A new file with a temporary name until it is published; errors name `path`.

    The constructor does not create the file, so that `discard` can remove it after an
    interrupt inside `open`.
    """

    def __init__(self, path: str, temporary: str, *, overwrite: bool = False) -> None:
        self.path = path
        self.current_path = temporary
        self._overwrite = overwrite
        self._may_exist = False
        # The last reference closes the file, so a thread never writes to a descriptor
        # that the system has reused.
        self._file: io.FileIO | None = None

    def open(self) -> None:
        """Create the file, which must not exist."""
        self._may_exist = True  # first, because an interrupt may come at any point
        try:
            with _named(self.path):
                self._file = io.FileIO(self.current_path, "xb")
        except OSError:
            self._may_exist = False  # an existing file belongs to another writer
            raise

    def write(self, data: Buffer) -> None:
        """Append all of `data`."""
        file = self._file
        assert file is not None
        rest = memoryview(data).cast("B")
        with _named(self.path):
            while rest:
                rest = rest[os.write(file.fileno(), rest[:_MAX_WRITE_BYTES]) :]

    def sync(self) -> None:
        """Flush the file to the disk."""
        assert self._file is not None
        with _named(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def publish(self, path: str, target: str, *, sync: bool) -> None:
        """Rename the file to its final name; `sync` also flushes the directory.

        Raises an OSError if a file exists there that must not be replaced.
        """
        self.path = path
        with _named(path):
            if self._overwrite:
                os.replace(self.current_path, target)
            else:
                _rename_to_new(self.current_path, target)
        self._may_exist = False  # first: an interrupt here must not remove the target
        self.current_path = target
        if sync:
            sync_directory(os.path.dirname(target))

    def discard(self) -> None:
        """Remove the unpublished file."""
        self.close()
        if self._may_exist:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.current_path)


class AppendedFile(OutputFile):
    """An existing file to append to, after truncating it to `n_bytes`."""

    def __init__(self, path: str, target: str, n_bytes: int) -> None:
        super().__init__(path, target)
        self._n_bytes = n_bytes

    def open(self) -> None:
        """Open and truncate the file."""
        with _named(self.path):
            self._file = io.FileIO(self.current_path, "r+b")
            self._file.truncate(self._n_bytes)
            self._file.seek(self._n_bytes)

    def publish(self, path: str, target: str, *, sync: bool) -> None:
        """Do nothing: the file has its final name."""

    def discard(self) -> None:
        """Truncate the file to its length before appending."""
        if self._file is not None:
            with _named(self.path):
                self._file.truncate(self._n_bytes)
        self.close()


def _rename_to_new(path: str, target: str) -> None:
    """Rename a file by linking it, because a rename would replace an existing file."""
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without links, another process may create the file between check and rename.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(path, target)
    else:
        os.unlink(path)
