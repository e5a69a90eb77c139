"""Output files: written under a temporary name and renamed when complete."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.printable import printable
from fastrec.storage.atomic import sync_directory
from fastrec.storage.index import make_indexes, rename_index
from fastrec.storage.remote import RemotePath, copy, exists, upload
from fastrec.storage.stores import Entry

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("fastrec")

_MAX_WRITE_BYTES = 1 << 30  # macOS rejects writes of 2 GiB
# Errors of os.link on file systems without hard links (FAT, many FUSE file systems).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
# The damage that a crash leaves at the end of a file. After any other damage, intact
# records may follow.
_CRASH_CODES = ("truncated_header", "truncated_record", "trailing_zeros")


def resolved(path: str, *, overwrite: bool, directory: str = "") -> str:
    """Return the absolute path of a new file, with links resolved; URLs do not change.

    `directory` is the base of a relative path. Raises an OSError if an existing file
    must not or cannot be replaced, or if the parent directory does not exist.
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
            # A rename would replace a device with a file.
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
    """Set the file name of any OSError to `path`, in place of a temporary name."""
    try:
        yield
    except OSError as error:
        error.filename = path
        del error.filename2
        raise


class OutputFile:
    """A file that has a temporary name until it is published; errors name `path`.

    If `append_at` is set, the file exists already, and `open` truncates it to this many
    bytes. The constructor does not create the file, so that `discard` can remove it
    after an interrupt inside `open`.
    """

    def __init__(
        self,
        path: str,
        temporary: str,
        *,
        overwrite: bool = False,
        append_at: int | None = None,
    ) -> None:
        self.path = path
        self.current_path = temporary
        self.is_published = False
        self._overwrite = overwrite
        self._append_at = append_at
        self._may_exist = False
        # The last reference closes the file, so a thread never writes to a descriptor
        # that the system has reused.
        self._file: io.FileIO | None = None

    def open(self) -> None:
        """Create a new file, or open the existing file that records are added to."""
        if self._append_at is not None:
            with _named(self.path):
                self._file = io.FileIO(self.current_path, "r+b")
                self._file.truncate(self._append_at)
                self._file.seek(self._append_at)
            return
        self._may_exist = True  # first, because an interrupt may come at any point
        try:
            with _named(self.path):
                self._file = io.FileIO(self.current_path, "xb")
        except OSError:
            self._may_exist = False  # an existing file belongs to another writer
            raise

    def write(self, data: Buffer) -> None:
        """Write all of `data` at the end of the file."""
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
        """Rename, upload or copy the file to `target`; an appended file keeps its name.

        Also renames the index of the file and, with `sync`, flushes the directory.
        Raises an OSError, which names `path`, if `target` must not be replaced.
        """
        if self._append_at is not None:
            self.is_published = True
            return
        self.path, temporary = path, self.current_path
        if isinstance(temporary, RemotePath) and isinstance(target, RemotePath):
            with _named(path):
                copy(temporary, target)
        elif isinstance(target, RemotePath):
            entry = upload(temporary, target, overwrite=self._overwrite)
            # The path in `files` has no entry, because the object may be replaced.
            target = target.sibling(entry or Entry(target.key))
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        else:
            with _named(path):
                if self._overwrite:
                    os.replace(temporary, target)
                else:
                    _rename_to_new(temporary, target)
        self.is_published = True  # first: an interrupt here must not remove the target
        self.current_path = target
        if sync and not isinstance(target, RemotePath):
            sync_directory(os.path.dirname(target))
        rename_index(temporary, target)

    def discard(self) -> None:
        """Remove the file, or the appended records, unless the file is published."""
        if self.is_published:
            return
        if self._append_at is not None and self._file is not None:
            with _named(self.path):
                self._file.truncate(self._append_at)
        self.close()
        if self._may_exist:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.current_path)


def _rename_to_new(path: str, target: str) -> None:
    """Rename a file, by a hard link if possible, so that no file is replaced."""
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


def end_of_records(path: str, stale: Sequence[int] = ()) -> NDArray[np.uint64]:
    """Return the offsets of all frames in a file, then the offset to append at.

    Ignores an incomplete record at the end. Raises a CorruptionError if the file has
    any other damage or is not a plain TFRecord file.
    """
    try:
        (index,) = make_indexes([path], stale=stale)
        offsets = index.offsets
    except CorruptionError:
        # With "skip", one error describes the rest of the file, which may be all zeros.
        (index,) = make_indexes([path], recovery="skip")
        (gap,) = index.gaps
        begin, error = gap.begin, gap.error
        is_text = begin == 0 and _core.recognize(os.fsencode(path)) == "text"
        if is_text or error.code not in _CRASH_CODES:
            raise
        offsets = index.offsets[:-1]
        offsets = np.append(offsets[offsets < begin], np.uint64(begin))
        _log.warning(
            "%s: truncating %d bytes of an incomplete record at the end (%s)",
            *(printable(path), os.path.getsize(path) - begin, error.reason),
        )
    if n_records := len(offsets) - 1:
        # A crash may have lost the payload of the last record.
        files = _core.FileTable(os.fsencode(path), ["pread"])
        last = np.array([n_records - 1], np.int64)
        try:
            _core.verify_records(files, _core.Catalog(_core.Indexes([index])), last)
        except CorruptionError as error:
            if error.code == "index_mismatch" and not stale:
                return end_of_records(path, stale=[0])
            raise
    return offsets
