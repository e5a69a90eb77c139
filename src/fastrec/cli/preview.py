"""Short text previews of record values."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any

import numpy as np

import fastrec as fr
from fastrec.cli.terminal import counted, printable
from fastrec.display import image_format, image_size

_MAX_TEXT_BYTES = 50
_MAX_HEX_BYTES = 8
_MAX_ITEMS = 4  # of an array
_MAX_NAME_WIDTH = 30


def preview(value: object) -> str:
    """Return a short preview of a value, such as its first items or its image size."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _preview_bytes(value)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if not isinstance(value, (np.ndarray, fr.BytesArray, fr.RaggedArray, list, tuple)):
        return printable(value)
    items: Any = value.ravel() if isinstance(value, np.ndarray) else value
    shown = [preview(items[i]) for i in range(min(len(items), _MAX_ITEMS))]
    is_whole = len(shown) == len(items) and np.ndim(items) == np.ndim(value)
    if is_whole or not shown:
        return f"[{', '.join(shown)}]"
    kind = counted(len(value), "value")
    if isinstance(value, np.ndarray):
        kind = f"{'x'.join(f'{side:,}' for side in value.shape)} {value.dtype}"
    return f"[{', '.join(shown)}, ...] {kind}"


def aligned(texts: Mapping[Any, str]) -> list[str]:
    """Return one line for each name and text in `texts`, with the texts aligned."""
    names = [printable(name) for name in texts]
    width = min(max(map(len, names), default=0), _MAX_NAME_WIDTH)
    pairs = zip(names, texts.values(), strict=True)
    return [f"{name:<{width}}  {text}" for name, text in pairs]


def _preview_bytes(data: bytes) -> str:
    count = counted(len(data), "byte")
    if kind := image_format(data):
        size = image_size(data)
        return f"{kind}{f' {size[0]}x{size[1]}' if size else ''}, {count}"
    is_short = len(data) <= _MAX_TEXT_BYTES
    text = text_of(data if is_short else data[: _MAX_TEXT_BYTES - 4])
    if text is not None:
        return repr(text) if is_short else f"{text + '...'!r} ({count})"
    some = data[:_MAX_HEX_BYTES].hex(" ")
    return f"<{count}: {some}{' ...' * (len(data) > _MAX_HEX_BYTES)}>"


def text_of(data: bytes) -> str | None:
    """Decode UTF-8 text, except an incomplete last character; None if not text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
    is_text = all(c.isprintable() or c in "\t\n\r" for c in text)
    return text if is_text else None
