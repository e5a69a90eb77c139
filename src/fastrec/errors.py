"""The exceptions that fastrec raises.

::

    Exception
    +-- fastrec.Error
        +-- fastrec.CorruptionError   the file is damaged             (also ValueError)
        +-- fastrec.DecodeError       a record breaks the wire format (also ValueError)
        +-- fastrec.SchemaError       an invalid spec, or a record that
        |                             does not fit its spec           (also ValueError)
        +-- fastrec.LimitError        the data exceed a size limit    (also ValueError)

Failed system calls raise :class:`OSError` or a subclass, such as
:class:`FileNotFoundError`, with ``errno`` and ``filename``. Invalid arguments raise
:class:`ValueError` or :class:`TypeError`.
"""

from __future__ import annotations

import logging
import os

from fastrec import _core
from fastrec.printable import printable

_log = logging.getLogger("fastrec")


class Error(Exception):
    """Base class of every error that fastrec defines.

    Attributes
    ----------
    code : str
        Identifier for programs, such as "payload_checksum" or "feature_missing". Codes
        never change. docs/errors.md lists them.
    reason : str
        Description of the error, without file, record and offset.
    path : str or None
        Path of the file with the error; None for records that were passed as bytes.
    record : int or None
        Zero-based index in `path`, or among the passed records; None if unknown.
    offset : int or None
        Byte offset in `path`, or in the record if `path` is None; None if unknown.
    feature : str or None
        Key of the affected feature; None if the error does not concern a feature.
    hint : str
        How to fix the error; "" if unknown.
    """

    # Set on instances, not on classes: Ray re-raises an error as an instance of a
    # subclass that looks attributes up in the original error.
    code: str
    hint: str
    _default_code = "other"
    _is_of_foreign_file = False  # True if the hint names the file's actual format

    def __init__(
        self,
        reason: str,
        path: str | None = None,
        record: int | None = None,
        offset: int | None = None,
        feature: str | None = None,
        *,
        code: str | None = None,
    ) -> None:
        # Pickles for worker processes contain the arguments of the base class and the
        # instance attributes.
        super().__init__(reason, path, record, offset, feature)
        self.reason = reason
        self.path = path
        self.record = record
        self.offset = offset
        self.feature = feature
        self.code = self._default_code if code is None else code
        self.hint = _repair_hint(self)
        # Errors at other offsets are often only reported, so do not read their files.
        if not self.offset:
            advise_foreign(self)

    def __str__(self) -> str:
        place = [] if self.path is None else [printable(self.path)]
        if self.record is not None:
            place.append(f"record {self.record}")
        if self.offset is not None:
            place.append(f"byte {self.offset}")
        # A reason may name features, and may have several lines.
        reason = "\n".join(map(printable, self.reason.split("\n")))
        text = f"{reason} - at {', '.join(place)}" if place else reason
        return f"{text}. {self.hint}" if self.hint else text


class CorruptionError(Error, ValueError):
    """A file is truncated, or does not match its checksums or its format."""

    _default_code = "corruption"


class DecodeError(Error, ValueError):
    """A record is not a valid protobuf message."""

    _default_code = "decode"


class SchemaError(Error, ValueError):
    """A spec is invalid, or a record does not fit its spec."""

    _default_code = "schema"


class LimitError(Error, ValueError):
    """A record, file or column exceeds a size limit."""

    _default_code = "limit"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception; Python prints the note below the traceback.

    Python 3.10 does not print notes, so on Python 3.10 the note is logged.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
        return
    error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]
    _log.error("%s: %s", type(error).__name__, note)


_CUT_SHORT = frozenset({"length_checksum", "truncated_header", "truncated_record"})
_BROKEN_FRAMING = _CUT_SHORT | {"not_tfrecord"}
_AT_BEGIN = _BROKEN_FRAMING | {"damaged_stream", "trailing_zeros"}
# Codes of file damage that `fastrec repair` repairs.
_DAMAGE = _CUT_SHORT | {"damaged_stream", "payload_checksum", "trailing_zeros"}


def advise_repair(error: Error) -> None:
    """Set an error's hint to the repair command, or to advice about another format."""
    if not advise_foreign(error):
        error.hint = _repair_hint(error) or error.hint


def _repair_hint(error: Error) -> str:
    is_damage = error.code in _DAMAGE and error.path is not None
    return f"Run: {_repair(str(error.path))}" if is_damage else ""


def advise_foreign(error: Error, local: str | None = None) -> bool:
    """Set the hint to advice about the file's actual format, if it is recognized.

    Returns True if so. `local` is a local copy of the beginning of a remote file.
    """
    if error._is_of_foreign_file:
        return True
    if error.path is None or error.offset is None:
        return False
    if error.code not in (_BROKEN_FRAMING if error.offset else _AT_BEGIN):
        return False
    advice = advice_about(local or error.path, error.offset)
    if advice:
        error.hint, error._is_of_foreign_file = advice, True
    return bool(advice)


def hint_by_number(path: str) -> str:
    """Return a hint for damage that indexing (``dataset[i]``) found in a file."""
    return (
        "on_error= does not apply to indexing: read with ds.loader(...), "
        "fr.torch.IterableDataset or the like, or run: "
        f"{_repair(path)}"
    )


def advise_on_error(error: Error) -> None:
    """Suggest ``on_error=`` and the repair command in the hint of an error.

    The hint suggests "skip" if only the payload of one record is damaged, and the end
    of its frame is proven. Otherwise, "skip" might lose the rest of the file.
    """
    if error.code not in _DAMAGE or error.path is None or advise_foreign(error):
        return
    repair = _repair(error.path)
    if error.code == "payload_checksum" and _is_end_proven(error):
        error.hint = f'Use on_error="skip", or run: {repair}'
    else:
        error.hint = f'Run: {repair}, or use on_error="resync"'


def _is_end_proven(error: Error) -> bool:
    assert error.path is not None
    if error.offset is None:
        return False
    try:
        return _core.is_end_proven(os.fsencode(error.path), error.offset)
    except OSError:
        return False


def _repair(path: str) -> str:
    import shlex  # slow to import, and used for errors only

    if not os.path.isfile(path):
        return "fastrec repair LOCAL_COPY --out OUT"
    return f"fastrec repair {printable(shlex.quote(path))} --out OUT"


# Recognize files of other formats, and advise how to read them.

_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 512  # a tar file has its magic at byte 257
_CONVERT = "run: fastrec convert FILE --out OUT"
_EXTRACT = "extract its files"
_DECOMPRESS = "decompress it: fastrec reads GZIP and ZLIB only"

# The first bytes, the name and the advice for each format.
_MAGIC: list[tuple[bytes, str, str]] = [
    (b"version https://git-lfs", "a Git LFS pointer", "run: git lfs pull"),
    (b"PAR1", "a Parquet file", _CONVERT),
    (b"ARROW1", "an Arrow file", _CONVERT),
    (b"\x93NUMPY", "a .npy file", "read it with NumPy, and write it with fr.write"),
    (b"PK\x03\x04", "a zip or .npz file", _EXTRACT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "read it with h5py; use fr.write"),
    (b"SEQ", "a Hadoop SequenceFile", "write it as TFRecord with spark-tfrecord"),
    (b"\x83\xafp\xd1\r\x88J?", "a Riegeli or ArrayRecord file", "use its library"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", _DECOMPRESS),
    (b"\xff\x06\0\0sNaPpY", "a Snappy file", _DECOMPRESS),
    (b"\xfd7zXZ\0", "an xz file", _DECOMPRESS),
    (b"BZh", "a bzip2 file", _DECOMPRESS),
    (b"\xff\xd8\xff", "a JPEG file", "write images with fr.write"),
    (b"\x89PNG", "a PNG file", "write images with fr.write"),
]


def advice_about(path: str, offset: int) -> str:
    """Return a hint that names a local file's format; "" for an unrecognized format.

    `offset` is the byte at which the framing of the file is broken.
    """
    try:
        if not os.path.isfile(path):  # opening a pipe would wait for a writer
            return ""
        # For a compressed file, the offset refers to the decompressed content.
        if offset and _core.recognize(os.fsencode(path)) != "tfrecord":
            return ""
        with open(path, "rb") as file:
            file.seek(offset)
            head = file.read(_HEAD_BYTES)
            is_zero = not any(head)
            while is_zero and (piece := file.read(_PIECE_BYTES)):
                is_zero = not any(piece)
    except (OSError, ValueError):
        return ""
    if not head:
        return ""
    if is_zero:
        return (
            f"The file has only zeros from byte {offset:,} on, as after a power cut or an "
            "interrupted copy: copy it again"
            + (", or recover the earlier records with fastrec repair" if offset else "")
        )
    return "" if offset else _advice_at_begin(head)


def _advice_at_begin(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return f"This is a tar file: {_EXTRACT}"
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "This is an HTML page, such as a server error: download the file again"
    for magic, name, advice in _MAGIC:
        if head.startswith(magic):
            return f"This is {name}: {advice}"
    if not any(head[:64]):
        return "The file begins with zeros, as if it was never written: copy it again"
    return ""


for _class in (Error, CorruptionError, DecodeError, SchemaError, LimitError):
    _class.__module__ = "fastrec"  # where users import it from
