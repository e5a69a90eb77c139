"""Foreign files: what a file is that is not a TFRecord file, and what to do with it."""

from __future__ import annotations

import os

from fastrec import _core

_PIECE_BYTES = 1 << 20
_GZIP = b"\x1f\x8b\x08"
_HEAD_BYTES = 512  # a tar file has its magic at byte 257
_CONVERT = "run: fastrec convert FILE --out OUT"
_EXTRACT = "extract its files"
_DECOMPRESS = "decompress it: fastrec reads GZIP and ZLIB only"

# The first bytes of files; how they are called; what to do.
_MAGIC: list[tuple[bytes, str, str]] = [
    (b"version https://git-lfs", "a Git LFS pointer", "run: git lfs pull"),
    (b"PAR1", "a Parquet file", _CONVERT),
    (b"ARROW1", "an Arrow file", _CONVERT),
    (b"\x93NUMPY", "a .npy file", "read it with NumPy, and write it with fr.write"),
    (b"PK\x03\x04", "a zip or .npz file", _EXTRACT),
    (
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file",
        "read it with h5py, and write it with fr.write",
    ),
    (b"SEQ", "a Hadoop SequenceFile", "write it as TFRecord with spark-tfrecord"),
    (
        b"\x83\xafp\xd1\r\x88J?",
        "a Riegeli or ArrayRecord file",
        "read it with its library",
    ),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", _DECOMPRESS),
    (b"\xff\x06\0\0sNaPpY", "a Snappy file", _DECOMPRESS),
    (b"\xfd7zXZ\0", "an xz file", _DECOMPRESS),
    (b"BZh", "a bzip2 file", _DECOMPRESS),
    (b"\xff\xd8\xff", "a JPEG file", "write images with fr.write"),
    (b"\x89PNG", "a PNG file", "write images with fr.write"),
]


def advice_about(path: str, offset: int) -> str:
    """Return what a local file is and what to do, or "" if that is not known.

    The framing of the file is broken at byte `offset`.
    """
    try:
        if not os.path.isfile(path):  # such as a pipe, which would wait for a writer
            return ""
        # The offset of a compressed file is that in its content.
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
            + (", or keep the records before with fastrec repair" if offset else "")
        )
    return _advice_at_begin(head) if not offset else _advice_behind_records(head)


def _advice_at_begin(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return f"This is a tar file: {_EXTRACT}"
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "This is an HTML page, such as an error of a server: download it again"
    for magic, name, advice in _MAGIC:
        if head.startswith(magic):
            return f"This is {name}: {advice}"
    if not any(head[:64]):
        return "The file begins with zeros, as if it was never written: copy it again"
    if _is_raw_deflate(head):
        return (
            "This is a raw deflate stream, without the header of ZLIB or GZIP: inflate it "
            "with zlib.decompressobj(-15)"
        )
    return ""


def _advice_behind_records(head: bytes) -> str:
    import zlib  # slow to import, and used for errors only

    try:  # a damaged length may have the magic
        is_gzip = head.startswith(_GZIP) and zlib.decompressobj(31).decompress(head)
    except zlib.error:
        return ""
    gzip = "GZIP data follows plain records in one file: keep the two in separate files"
    return gzip if is_gzip else ""


def _is_raw_deflate(head: bytes) -> bool:
    """Return whether inflating `head` yields the header of a TFRecord frame."""
    import zlib  # slow to import, and used for errors only

    try:
        header = zlib.decompressobj(-zlib.MAX_WBITS).decompress(head, 12)
    except zlib.error:
        return False
    checksum = _core.masked_crc32c(header[:8]).to_bytes(4, "little")
    return len(header) == 12 and header[8:] == checksum
