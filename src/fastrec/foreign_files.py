"""Foreign files: what a file is that is not a TFRecord file, and what to do with it."""

from __future__ import annotations

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


def advice_about(path: str) -> str:
    """Return what a file is and what to do, or "" if that is not known.

    Reads the first 512 bytes of a local file.
    """
    from pathlib import Path  # slow to import, and used for errors only

    try:
        if not Path(path).is_file():  # such as a pipe, which would wait for a writer
            return ""
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return ""
    if head[257:262] == b"ustar":
        return f"This is a tar file: {_EXTRACT}"
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "This is an HTML page, such as an error of a server: download it again"
    for magic, name, advice in _MAGIC:
        if head.startswith(magic):
            return f"This is {name}: {advice}"
    if head and not any(head[:64]):
        return "The file begins with zeros, as if it was never written: copy it again"
    return ""
