"""Files that are written: they get their name whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastrec.writer.shard_names import COMPLETE, UNFINISHED

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AppendedFile", "Output", "OutputFile", "resolved", "sync_directory"]

_MOST_AT_ONCE = 1 << 30  # macOS refuses 2 GiB
# What a file system says that has no links (FAT, many in user space).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def resolved(path: str, *, overwrite: bool, directory: str = "") -> str:
    """Return where a file named `path` comes to lie: absolute, and without links.

    A relative path is one from `directory`.

    Raises
    ------
    OSError
        If a file there may not be replaced, or cannot be, or there is no directory.
    """
    with _named(path):
        place = os.path.join(directory, path)  # noqa: PTH118
        with contextlib.suppress(FileNotFoundError):
            os.lstat(place)
            if not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            # A rename would put a file in the place of a device.
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
    """Let errors name `path`, and not a temporary file or none."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


class Output:
    """A file that is open for writing; errors name it as the caller did.

    Its last reference closes the file: no thread ever writes through a descriptor that
    belongs to another file by now.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: io.FileIO | None = None

    @property
    def _opened(self) -> io.FileIO:
        if self._file is None:
            msg = f"{self.path} is closed"
            raise ValueError(msg)
        return self._file

    def write(self, data: Buffer) -> None:
        """Write all of `data` at the end."""
        file = self._opened
        rest = memoryview(data).cast("B")
        with _named(self.path):
            while rest:
                rest = rest[os.write(file.fileno(), rest[:_MOST_AT_ONCE]) :]

    def sync(self) -> None:
        """Bring what was written to the disk."""
        with _named(self.path):
            os.fsync(self._opened.fileno())

    def close(self) -> None:
        """Close the file; does nothing the next time."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class OutputFile(Output):
    """A new file, which has a temporary name until it is published.

    It is made by `open`, and not before, so that whoever has it can abandon it even if
    an interrupt comes at the moment it is made.

    Parameters
    ----------
    path : str
        What errors call it.
    temporary : str
        What it is called until then, without the state.
    overwrite : bool
        Whether it may replace a file.
    """

    def __init__(self, path: str, temporary: str, *, overwrite: bool) -> None:
        super().__init__(path)
        self._waiting = temporary + COMPLETE
        self._overwrite = overwrite
        self.temporary = temporary + UNFINISHED
        # Where it may be. Written down before it is there, for interrupts come anywhere.
        self._places: set[str] = set()

    def open(self) -> None:
        """Make the file.

        Raises
        ------
        OSError
            If that is not possible.
        """
        self._places.add(self.temporary)
        try:
            with _named(self.path):
                self._file = io.FileIO(self.temporary, "xb")
        except OSError:
            self._places.clear()  # what is there is not this one
            raise

    def complete(self) -> str:
        """Keep the file, which is whole, until its name is known; return where."""
        self._places.add(self._waiting)
        with _named(self.path):
            os.rename(self.temporary, self._waiting)  # noqa: PTH104
        self.temporary = self._waiting
        return self.temporary

    def publish(self, path: str, target: str, *, sync: bool) -> None:
        """Give the file its name, and with `sync`, make that last.

        Raises
        ------
        OSError
            If that is not possible, or there is a file that may not be replaced.
        """
        self.path = path
        with _named(path):
            if self._overwrite:
                os.replace(self.temporary, target)  # noqa: PTH105
            else:
                self._link(target)
        if sync:
            sync_directory(os.path.dirname(target))  # noqa: PTH120

    def _link(self, target: str) -> None:
        """Name the file as nothing else is named: unlike a rename, a link never replaces."""
        try:
            os.link(self.temporary, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # What remains is to look first, which leaves a gap of microseconds.
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            os.rename(self.temporary, target)  # noqa: PTH104
            return
        os.unlink(self.temporary)  # noqa: PTH108

    def abandon(self) -> None:
        """Remove the file, which is not published."""
        self.close()
        for path in self._places:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108


class AppendedFile(Output):
    """An existing file that grows at its end.

    Parameters
    ----------
    path : str
        What errors call it.
    target : str
    n_bytes : int
        The length to cut it to before it grows.
    """

    def __init__(self, path: str, target: str, n_bytes: int) -> None:
        super().__init__(path)
        self._target = target
        self._n_bytes = n_bytes

    def open(self) -> None:
        """Open and cut the file.

        Raises
        ------
        OSError
            If that is not possible.
        """
        with _named(self.path):
            self._file = io.FileIO(self._target, "r+b")
            self._file.truncate(self._n_bytes)
            self._file.seek(self._n_bytes)

    def abandon(self) -> None:
        """Cut what was appended."""
        if self._file is not None:
            with _named(self.path):
                self._file.truncate(self._n_bytes)
        self.close()


def sync_directory(directory: str) -> None:
    """Make a rename last.

    Not every file system can, and by then the file itself is safe: a refusal is no failure.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
