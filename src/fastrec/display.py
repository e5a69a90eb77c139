"""Short strings and HTML for values, rows and tables.

All text is escaped, because names and values come from files. The HTML inherits the
colours of the page, so it is readable on light and dark backgrounds.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.printable import printable

SHOWN_BYTES = 16  # shown of a long string
_MAX_IMAGE_BYTES = 64 << 10  # size of an encoded image in a page
_MAX_PIXELS = 256  # width or height of an array that is shown as an image
_MAX_ROWS = 50  # shown of a table
_SHOWN_VALUES = 6  # shown of an array in a table
_LINE = 88

# The first bytes of the image formats that browsers show; WebP follows a RIFF header.
_IMAGES = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF"}

_TABLE = "border-collapse:collapse;background:transparent;color:inherit"
_CELL = (
    "text-align:left;vertical-align:top;padding:2px 12px 2px 0;background:transparent;"
    "color:inherit;border:0;border-top:1px solid rgba(128,128,128,.35);max-width:24em;"
    "overflow-wrap:break-word"
)
_IMAGE = "max-width:128px;max-height:64px;min-height:28px;image-rendering:auto"


class Html(str):
    """A string of HTML, which `table` does not escape."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the HTML; template engines call this instead of escaping."""
        return self


class ShortRow(dict[str, Any]):
    """A dict for one row, with a repr that abridges long values."""

    __slots__ = ()

    def __repr__(self) -> str:
        items = [f"{name!r}: {short_repr(value)}" for name, value in self.items()]
        text = f"{{{', '.join(items)}}}"
        if len(text) <= _LINE and "\n" not in text:
            return text
        return "{" + ",\n ".join(items) + "}"

    def _repr_html_(self) -> str:
        rows = [[as_text(name), value] for name, value in self.items()]
        return table(["column", "value"], rows)


def abridged(value: bytes) -> str:
    """Return the repr of a bytes object, abridged if it is long."""
    if len(value) <= 2 * SHOWN_BYTES:
        return repr(value)
    return f"{value[:SHOWN_BYTES]!r}...({len(value)} bytes)"


def short_repr(value: object) -> str:
    """Return the repr of a value, abridged if it is long."""
    if isinstance(value, bytes):
        return abridged(value)
    if isinstance(value, np.ndarray):
        if value.ndim > 1 and value.size > _SHOWN_VALUES**2:
            return f"array(..., shape={value.shape}, dtype={value.dtype})"
        with np.printoptions(threshold=2 * _SHOWN_VALUES, edgeitems=3):
            return repr(value)
    return repr(value)


def as_text(name: object) -> str:
    """Return the name of a feature or file as a printable string."""
    if isinstance(name, bytes):
        name = repr(name)
    return printable(name)


def escaped(value: object) -> Html:
    """Escape a value for HTML; return a value of type `Html` unchanged."""
    import html  # slow to import

    return value if isinstance(value, Html) else Html(html.escape(printable(value)))


def value_html(value: object) -> Html:
    """Return a value of a record as HTML: a small image or a short string."""
    if (uri := picture_of(value)) is not None:
        text = escaped(short_repr(value))
        return Html(f'<img src="{uri}" alt="{text}" title="{text}" style="{_IMAGE}">')
    if isinstance(value, bytes):
        return escaped(_text_of(value))
    if isinstance(value, np.ndarray) and value.ndim:
        return escaped(_numbers_text(value) if value.size else "[]")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return Html(f"{value:.6g}")
    if hasattr(value, "_text"):  # an array of variable-length values
        return escaped(value._text())
    return escaped(value if isinstance(value, str) else repr(value))


def picture_of(value: object) -> str | None:
    """Return a data URI if a value is a small image that browsers show, else None."""
    if isinstance(value, bytes):
        return image_uri(value) if len(value) <= _MAX_IMAGE_BYTES else None
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        is_image = value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3, 4))
        if is_image and all(8 <= side <= _MAX_PIXELS for side in value.shape[:2]):
            png = _png(value)
            return None if png is None else image_uri(png)
    return None


def image_format(data: bytes) -> str:
    """Return "JPEG", "PNG", "GIF" or "WebP" by the first bytes; "" for other data."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of an encoded image; None if unknown."""
    return _core.image_size(data)


def image_uri(data: bytes) -> str | None:
    """Return an encoded image as a data URI; None if browsers cannot show it."""
    kind = image_format(data)
    if not kind:
        return None
    return f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}"


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = ""
) -> Html:
    """Return a table as HTML.

    Cells of type `str` are escaped; `value_html` formats all other cells. A long table
    ends with the number of omitted rows.
    """
    listed = list(rows)
    n_more = max(0, len(listed) - _MAX_ROWS)
    parts = [f"<p>{escaped(title)}</p>"] if title else []
    if listed:
        head = "".join(
            f'<th style="{_CELL};border-top:0">{escaped(text)}</th>' for text in header
        )
        parts.append(f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>')
        parts += [f"<tr>{_cells(row)}</tr>" for row in listed[:_MAX_ROWS]]
        parts.append("</tbody></table>")
    if n_more:
        parts.append(f"<p>... and {n_more:,} more</p>")
    return Html(f'<div style="overflow-x:auto">{"".join(parts)}</div>')


def _cells(row: Sequence[object]) -> str:
    return "".join(
        f'<td style="{_CELL}">'
        f"{escaped(cell) if isinstance(cell, str) else value_html(cell)}</td>"
        for cell in row
    )


def _text_of(value: bytes) -> str:
    """Decode bytes if they are short UTF-8 text; otherwise return an abridged repr."""
    text = value[: 8 * SHOWN_BYTES].decode("utf-8", "replace")
    if len(value) <= 8 * SHOWN_BYTES and text.isprintable() and "\ufffd" not in text:
        return text or "b''"
    return abridged(value)


def _numbers_text(value: np.ndarray[Any, Any]) -> str:
    shown = value.ravel()[:_SHOWN_VALUES].tolist()
    texts = [f"{x:.5g}" if isinstance(x, float) else str(x) for x in shown]
    more = ", ..." if value.size > len(shown) else ""
    sides = ", ".join(map(str, value.shape))
    return f"{value.dtype}[{sides}]: {', '.join(texts)}{more}"


def _png(pixels: np.ndarray[Any, Any]) -> bytes | None:
    """Return uint8 pixels as PNG; None if OpenCV (extra ``image``) is not installed.

    The shape is (height, width), or (height, width, channels) with 1, 3 or 4 channels.
    """
    try:
        import cv2
    except ModuleNotFoundError:
        return None
    if pixels.ndim == 3 and pixels.shape[2] > 1:
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]  # BGR
    return bytes(cv2.imencode(".png", pixels)[1])
