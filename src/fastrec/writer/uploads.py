"""Objects as output files: written to a local temporary file, uploaded when complete."""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import threading
from functools import partial
from pathlib import Path

from fastrec.storage.remote import RemotePath
from fastrec.storage.stores import TransientError
from fastrec.tasks import CancelledError, Task
from fastrec.writer.output import OutputFile


class UploadedFile(OutputFile):
    """A local file that `publish` uploads and removes.

    The object appears when it is complete, or not at all.
    """

    def publish(self, path: str, target: str, *, sync: bool) -> None:
        """Upload the file; a signal aborts the upload."""
        del sync  # a store keeps what it has confirmed
        assert isinstance(target, RemotePath)
        self.path = path
        is_cancelled = threading.Event()

        def check() -> None:
            if is_cancelled.is_set():
                raise CancelledError

        put = partial(
            target.store.put,
            target.key,
            Path(self.current_path),
            overwrite=self._overwrite,
            check=check,
        )
        upload = Task(lambda: target.store.call(str(target), put))
        reason = ""
        try:
            _thread.start_new_thread(upload.run, ())
            upload.result()
        except TransientError as error:  # after the retries of the store
            reason = str(error)
        except BaseException:
            is_cancelled.set()
            raise
        if reason:
            raise OSError(errno.EIO, reason, str(target))
        temporary, self.current_path = self.current_path, target
        self._may_exist = False
        with contextlib.suppress(OSError):
            os.unlink(temporary)
