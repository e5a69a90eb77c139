"""Values of a record in a few words: never binary, never long."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import fastrec as fr
from fastrec.storage.compression import GZIP_MAGIC

__all__ = ["brief", "brief_row", "hint"]

LONG_TEXT = 60  # characters of a text that is shown
SHOWN_ITEMS = 4  # of an array

# How formats begin; WebP, WAV and the like name themselves behind a RIFF header.
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


def hint(data: bytes) -> str:
    """Return the name of the format that `data` begins like, or ""."""
    if data[:4] == b"RIFF" and data[8:12].isalnum():
        return {b"WEBP": "WebP", b"WAVE": "WAV"}.get(data[8:12], "RIFF")
    # Two bytes may be chance, so BMP must also repeat its size.
    if data[:2] == b"BM" and data[2:6] != len(data).to_bytes(4, "little"):
        return ""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")


def brief(value: object) -> str:
    """Return `value` as it is shown to people: bytes by length, arrays by their ends."""
    if isinstance(value, bytes):
        return _brief_bytes(value)
    if isinstance(value, np.generic):
        return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())
    if isinstance(value, fr.BytesArray):
        kind = f"{value.shape[0]} strings" if value.ndim == 1 else f"bytes{value.shape}"
        items = [value[i] for i in range(SHOWN_ITEMS)[: len(value)]]
        return _listed(kind, [brief(item) for item in items], len(value))
    if isinstance(value, fr.RaggedArray):
        rows = [value[i] for i in range(SHOWN_ITEMS)[: len(value)]]
        return _listed(f"{len(value)} rows", [brief(row) for row in rows], len(value))
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        shown = [brief(item) for item in value.ravel()[:SHOWN_ITEMS]]
        return _listed(kind, shown, value.size)
    return type(value).__name__


def brief_row(row: Mapping[str, object]) -> list[str]:
    """Return the features of a row, one line each, in columns."""
    names = [repr(name) for name in row]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {brief(value)}"
        for name, value in zip(names, row.values(), strict=True)
    ]


def _brief_bytes(data: bytes) -> str:
    kind = hint(data)
    if not kind and 0 < len(data) <= LONG_TEXT:
        text = data.decode("utf-8", "replace")
        if text.isprintable() and "\ufffd" not in text:
            return repr(data)
    count = "1 byte" if len(data) == 1 else f"{len(data):,} bytes"
    return f"<{count}, {kind}>" if kind else f"<{count}>"


def _listed(kind: str, shown: list[str], count: int) -> str:
    rest = ", ..." if count > len(shown) else ""
    return f"<{kind}: {', '.join(shown)}{rest}>" if shown else f"<{kind}>"
