"""Files that are written: they get their final name whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AppendedFile", "OutputFile", "resolved"]

_MAX_WRITE_BYTES = 1 << 30  # macOS refuses 2 GiB
# What a file system without links reports (FAT, many in user space).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def resolved(path: str, *, overwrite: bool, directory: str = "") -> str:
    """Return the absolute place of a new file, without links.

    A relative path begins at `directory`. Raises an OSError if a file there may not be or
    cannot be replaced, or if its directory does not exist.
    """
    with _named(path):
        place = os.path.join(directory, path)  # noqa: PTH118
        with contextlib.suppress(FileNotFoundError):
            os.lstat(place)
            if not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            # A rename would replace a device by a file.
            mode = os.stat(place).st_mode  # noqa: PTH116
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        above, name = os.path.split(os.path.realpath(place))
        if not os.path.basename(path):  # noqa: PTH119
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.stat(os.path.join(above, "."))  # noqa: PTH116, PTH118
        return os.path.join(above, name)  # noqa: PTH118


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Make errors name `path` instead of a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


class OutputFile:
    """A new file at a temporary place until it is published; errors call it `path`.

    `open` creates it, so that `discard` can remove it even if an interrupt comes at the
    moment when it is created.
    """

    def __init__(self, path: str, temporary: str, *, overwrite: bool = False) -> None:
        self.path = path
        self.place = temporary
        self._overwrite = overwrite
        self._may_exist = False
        # Its last reference closes it, so no thread ever writes through a descriptor that
        # another file has taken over.
        self._file: io.FileIO | None = None

    def open(self) -> None:
        """Create the file, which must not exist."""
        self._may_exist = True  # before it does, because interrupts come anywhere
        try:
            with _named(self.path):
                self._file = io.FileIO(self.place, "xb")
        except OSError:
            self._may_exist = False  # an existing file is not this one
            raise

    def write(self, data: Buffer) -> None:
        """Write all of `data` at the end."""
        file = self._file
        assert file is not None
        rest = memoryview(data).cast("B")
        with _named(self.path):
            while rest:
                rest = rest[os.write(file.fileno(), rest[:_MAX_WRITE_BYTES]) :]

    def sync(self) -> None:
        """Bring what was written to the disk."""
        assert self._file is not None
        with _named(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; does nothing the next time."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def publish(self, path: str, target: str, *, sync: bool) -> None:
        """Give the file its final name, and with `sync`, make that last.

        Raises an OSError if a file exists there that may not be replaced.
        """
        self.path = path
        with _named(path):
            if self._overwrite:
                os.replace(self.place, target)  # noqa: PTH105
            else:
                _rename_to_new(self.place, target)
        self._may_exist = False  # first: an interrupt here must not remove the target
        self.place = target
        if sync:
            _sync_directory(os.path.dirname(target))  # noqa: PTH120

    def discard(self) -> None:
        """Remove the file, which is not published."""
        self.close()
        if self._may_exist:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.place)  # noqa: PTH108


class AppendedFile(OutputFile):
    """An existing file that grows at its end, after it was cut to `n_bytes`."""

    def __init__(self, path: str, target: str, n_bytes: int) -> None:
        super().__init__(path, target)
        self._n_bytes = n_bytes

    def open(self) -> None:
        """Open and cut the file."""
        with _named(self.path):
            self._file = io.FileIO(self.place, "r+b")
            self._file.truncate(self._n_bytes)
            self._file.seek(self._n_bytes)

    def publish(self, path: str, target: str, *, sync: bool) -> None:
        """Do nothing: the file has its name."""

    def discard(self) -> None:
        """Cut off what was appended."""
        if self._file is not None:
            with _named(self.path):
                self._file.truncate(self._n_bytes)
        self.close()


def _rename_to_new(path: str, target: str) -> None:
    """Rename a file by a link: unlike a rename, it never replaces a file."""
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # What remains is to look first, which leaves a gap of microseconds.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(path, target)  # noqa: PTH104
    else:
        os.unlink(path)  # noqa: PTH108


def _sync_directory(directory: str) -> None:
    """Make a rename last, where the file system can: the file itself is safe."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
