"""Short text previews of the values of a record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import fastrec as fr
from fastrec.cli.terminal import counted
from fastrec.storage.compression import GZIP_MAGIC

__all__ = ["file_format", "preview", "preview_row"]

_MAX_TEXT_BYTES = 60
_MAX_ITEMS = 4  # of an array

# First bytes of formats; WebP and WAV have their name after a RIFF header.
_MAGIC = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"\x93NUMPY": "npy",
    GZIP_MAGIC: "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
}


def file_format(data: bytes) -> str:
    """Return the name of a format by the first bytes of `data`; "" if unknown."""
    if data[:4] == b"RIFF" and data[8:12].isalnum():
        return {b"WEBP": "WebP", b"WAVE": "WAV"}.get(data[8:12], "RIFF")
    # Two bytes may match by chance, so check the size field of BMP, too.
    if data[:2] == b"BM" and data[2:6] != len(data).to_bytes(4, "little"):
        return ""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")


def preview(value: object) -> str:
    """Return a short text: a string or its length, the first items of an array."""
    if isinstance(value, bytes):
        return _preview_bytes(value)
    if isinstance(value, np.generic):
        return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())
    items: fr.BytesArray | fr.RaggedArray | np.ndarray
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        items = value.ravel()
    elif isinstance(value, fr.BytesArray):
        kind = f"{value.shape[0]} strings" if value.ndim == 1 else f"bytes{value.shape}"
        items = value
    elif isinstance(value, fr.RaggedArray):
        kind, items = f"{len(value)} rows", value
    else:
        return type(value).__name__
    shown = [preview(items[i]) for i in range(min(len(items), _MAX_ITEMS))]
    rest = ", ..." if len(items) > len(shown) else ""
    return f"<{kind}: {', '.join(shown)}{rest}>" if shown else f"<{kind}>"


def preview_row(row: Mapping[str, object]) -> list[str]:
    """Return one aligned line per feature of a row."""
    width = max((len(repr(name)) for name in row), default=0)
    return [f"{name!r:<{width}}  {preview(value)}" for name, value in row.items()]


def _preview_bytes(data: bytes) -> str:
    kind = file_format(data)
    if not kind and 0 < len(data) <= _MAX_TEXT_BYTES:
        text = data.decode("utf-8", "replace")
        if text.isprintable() and "\ufffd" not in text:
            return repr(data)
    count = counted(len(data), "byte")
    return f"<{count}, {kind}>" if kind else f"<{count}>"
