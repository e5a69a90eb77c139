"""Rows -> TFRecord files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastrec import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

__all__ = ["Writer", "encode_example"]


class Writer:
    """Writes one plain TFRecord file, which appears whole or not at all.

    Records go to a temporary file beside the target, ``.NAME.PID-N.tmp``. `close`
    brings them to the disk and gives the file its name; leaving the ``with`` block by
    an exception, or `abandon`, removes it. A process that is killed leaves nothing
    under the final name.

    Parameters
    ----------
    path : str or os.PathLike
        The file to write.
    overwrite : bool, default False
        Replace an existing file when the new one is complete. Without it an existing
        file is an error, and none is ever replaced.

    Raises
    ------
    FileExistsError
        If there is a file at `path`, and `overwrite` is not given; by `close`, if one
        came into being meanwhile.
    OSError
        If the file cannot be made, or, from any method, if the disk refuses (it is
        full, for example). Then nothing bears the final name, and every later call
        reports the same error.

    Warns
    -----
    ResourceWarning
        If the writer is garbage with its records neither closed nor abandoned. They
        are lost.

    Notes
    -----
    Up to 1 MiB of records is buffered. Several threads may share a writer; the GIL is
    released while the disk works. The layout of frames is that of
    ``tensorflow/core/lib/io/record_writer.h``: length, masked CRC-32C of the length,
    payload, masked CRC-32C of the payload.

    Examples
    --------
    >>> import fastrec as fr
    >>> with fr.Writer("train.tfrecord") as writer:  # doctest: +SKIP
    ...     for image, label in samples:
    ...         writer.write({"image": image.tobytes(), "label": label})
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> None:
        self._path = os.fsdecode(path)
        if "{shard" in self._path or "{num_shards" in self._path:
            raise ValueError(
                f"{self._path!r} is a pattern of shards, which cannot be written yet: "
                "open one Writer per file"
            )
        self._file = _core.FileWriter(self._path, overwrite=overwrite)

    def write(self, row: Mapping[Any, Any], /) -> None:
        """Write one row as a tf.train.Example.

        Parameters
        ----------
        row : mapping of str or bytes to values
            The features, written in this order. See `encode_example` for the values.

        Raises
        ------
        ValueError, TypeError
            If a value cannot be written; the writer stays as it was. Also if the
            writer is closed.
        OSError
            If the disk refuses.
        """
        self._file.write_example(row)

    def write_record(self, record: Buffer, /) -> None:
        """Write one record as it is.

        Parameters
        ----------
        record : bytes-like
            Its payload, of any content and length. The frame is added.

        Raises
        ------
        ValueError
            If the writer is closed.
        OSError
            If the disk refuses.
        """
        self._file.write_record(record)

    def close(self) -> None:
        """Bring the file to the disk and give it its name; does nothing the next time.

        Raises
        ------
        OSError
            If the disk refuses, now or in an earlier call, or if a file that may not
            be replaced has come into being. The records are lost.
        """
        self._file.close()

    def abandon(self) -> None:
        """Remove what was written; does nothing once the writer is closed."""
        self._file.abandon()

    @property
    def path(self) -> str:
        """The file to write."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the file is closed, abandoned or lost to an error."""
        return self._file.closed

    @property
    def n_records(self) -> int:
        """Records written so far."""
        return self._file.n_records

    @property
    def n_bytes(self) -> int:
        """Size of the file so far in bytes, what is buffered included."""
        return self._file.n_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        # There is no file if the constructor has failed.
        file = getattr(self, "_file", None)
        if file is None or file.closed:
            return
        file.abandon()
        warnings.warn(
            f"{self._path}: a Writer was never closed, {file.n_records} records are "
            "lost; use `with`",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<fastrec.Writer {self._path!r}: {self.n_records} records, "
            f"{self.n_bytes} bytes, {state}>"
        )


def encode_example(row: Mapping[Any, Any], /) -> bytes:
    r"""Serialize one row as a tf.train.Example.

    Parameters
    ----------
    row : mapping of str or bytes to values
        The features, encoded in this order. What a value becomes is decided by its
        own type:

        ==========================================  ===============================
        bool, int, IntEnum; NumPy bool and int      int64
        float; NumPy float16, float32, float64      float (float32)
        str (as UTF-8), bytes, bytearray,           bytes
        memoryview (of bytes)
        ndarray of 0 or 1 dimensions                a list of int64 or float
        list or tuple of the above scalars          a list; int and float do not mix
        `BytesArray` of 1 dimension                 a list of bytes
        ==========================================  ===============================

    Returns
    -------
    bytes
        The message: number lists packed, every length as short as it can be, each map
        entry key first.

    Raises
    ------
    ValueError
        If an integer does not fit int64 (a uint64 is written as its bits by
        ``.view("int64")``), an array has two or more dimensions (write it by
        ``.tobytes()``), a list is empty (write an empty array, which has a dtype, or
        ``BytesArray.from_list([])``) or mixes kinds, or the message reaches 2 GiB,
        which protobuf cannot read. The text names the feature and the cure.
    TypeError
        If a value or key is of any other type.

    Warns
    -----
    RuntimeWarning
        If a float is too large for float32: it is written as inf, as NumPy casts it.

    Notes
    -----
    Source of the format: ``tensorflow/core/example/{example,feature}.proto``; of the
    coercions: TensorFlow's guide "TFRecord and tf.train.Example".

    Examples
    --------
    >>> import fastrec as fr
    >>> fr.encode_example({"label": 3})
    b'\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x03'
    """
    return _core.encode_example(row)
