"""Short text previews of the values of a record."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import fastrec as fr
from fastrec import _core
from fastrec.cli.terminal import counted, printable
from fastrec.display import image_format
from fastrec.storage.compression import GZIP_MAGIC

_MAX_TEXT_BYTES = 50
_MAX_HEX_BYTES = 8
_MAX_ITEMS = 4  # of an array
_MAX_NAME_WIDTH = 30

# First bytes of formats; WAV has its name after a RIFF header.
_MAGIC = {
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
    if kind := image_format(data):
        return kind
    if data[:4] == b"RIFF" and data[8:12].isalnum():
        return "WAV" if data[8:12] == b"WAVE" else "RIFF"
    # Two bytes may match by chance, so check the size field of BMP, too.
    if data[:2] == b"BM" and data[2:6] != len(data).to_bytes(4, "little"):
        return ""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")


def preview(value: object) -> str:
    """Return a short text: a number, a text, the size of an image, the first items."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _preview_bytes(value)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, (int, np.generic)):
        return str(value)
    items: Sequence[Any] | fr.BytesArray | fr.RaggedArray | np.ndarray
    if isinstance(value, np.ndarray):
        shape = "x".join(f"{size:,}" for size in value.shape)
        items, kind = value.ravel(), f"{shape} {value.dtype}"
    elif isinstance(value, fr.BytesArray):
        items, kind = value, counted(len(value), "string")
        if value.ndim > 1:
            kind = f"{'x'.join(map(str, value.shape))} strings"
    elif isinstance(value, fr.RaggedArray):
        items, kind = value, counted(len(value), "row")
    elif isinstance(value, (list, tuple)):
        items, kind = value, counted(len(value), "value")
    else:
        return type(value).__name__
    shown = [preview(items[i]) for i in range(min(len(items), _MAX_ITEMS))]
    if len(items) <= len(shown) and (not shown or np.ndim(items) == np.ndim(value)):
        return f"[{', '.join(shown)}]"
    return f"[{', '.join(shown)}, ...] {kind}"


def preview_row(row: Mapping[str, object]) -> list[str]:
    """Return one aligned line per feature of a row."""
    return aligned({name: preview(value) for name, value in row.items()})


def aligned(texts: Mapping[Any, str]) -> list[str]:
    """Return one line per name, with the texts below each other."""
    names = [printable(name) for name in texts]
    width = min(max(map(len, names), default=0), _MAX_NAME_WIDTH)
    return [
        f"{name:<{width}}  {text}"
        for name, text in zip(names, texts.values(), strict=True)
    ]


def _preview_bytes(data: bytes) -> str:
    count = counted(len(data), "byte")
    if kind := file_format(data):
        size = _core.image_size(data)
        return f"{kind}{f' {size[0]}x{size[1]}' if size else ''}, {count}"
    is_short = len(data) <= _MAX_TEXT_BYTES
    if (
        text := _text_of(data if is_short else data[: _MAX_TEXT_BYTES - 4])
    ) is not None:
        return repr(text) if is_short else f"{text + '...'!r} ({count})"
    some = data[:_MAX_HEX_BYTES].hex(" ")
    return f"<{count}: {some}{' ...' * (len(data) > _MAX_HEX_BYTES)}>"


def _text_of(data: bytes) -> str | None:
    """Return UTF-8 text, without a character that is cut at its end; None if binary."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
    is_text = all(
        character.isprintable() or character in "\t\n\r" for character in text
    )
    return text if is_text else None
