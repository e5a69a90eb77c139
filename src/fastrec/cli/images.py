"""``fastrec images``: a contact sheet of the images in records."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import fastrec as fr
from fastrec.cli.arguments import Paths, Seed
from fastrec.cli.inputs import files_of
from fastrec.cli.preview import file_format
from fastrec.cli.records import PlacedRecord, message_of, sampled_records
from fastrec.cli.terminal import console, counted, printable, when_interrupted
from fastrec.options import extra
from fastrec.storage.atomic import replacement
from fastrec.storage.urls import redacted

_FORMATS = ("JPEG", "PNG", "GIF", "WebP", "BMP", "TIFF")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_MARGIN = 4
_CAPTION_HEIGHT = 14
_MAX_CAPTION = 24
_BLACK = (0, 0, 0)


def images(
    paths: Paths,
    *,
    out: Annotated[
        Path,
        typer.Option(
            *("--out", "-o"), metavar="SHEET", help="A .png, .jpg or .webp file."
        ),
    ],
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The feature with the images; by default the first that has some.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write this feature under the images.",
            show_default=False,
        ),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=1, help="Number of images.")
    ] = 64,
    seed: Seed = 0,
    side: Annotated[
        int, typer.Option(metavar="PIXELS", min=16, max=1024, help="Size of an image.")
    ] = 128,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file.")
    ] = False,
) -> None:
    """Make a contact sheet of images of random records.

    The images are byte strings in a format that OpenCV reads. One that cannot be read is
    an empty frame with the number of its record, and the exit status is 1.
    """
    if out.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f"must end in one of {', '.join(_SUFFIXES)}, got {redacted(str(out))}",
            param_hint="--out",
        )
    if out.exists() and not overwrite:
        raise typer.BadParameter(
            f"{out} exists; --overwrite replaces it", param_hint="--out"
        )
    with extra("image", "fastrec images", "cv2"):
        import cv2
    files = files_of(paths, joins=False)
    with when_interrupted("nothing was written"):
        tiles = list(_tiles(sampled_records(files, n, seed), column, label, side))
        if not tiles:
            what = "an image" if column is None else f"a byte string {column!r}"
            raise fr.Error(f"no record has {what}")
        sheet = _sheet(tiles, side, has_captions=label is not None)
        _, encoded = cv2.imencode(out.suffix.lower(), sheet)
        with replacement(out) as temporary:
            temporary.write_bytes(encoded.tobytes())
    n_failed = sum(tile is None for tile, _ in tiles)
    console().print(
        f"wrote {counted(len(tiles), 'image')}, {sheet.shape[1]}x{sheet.shape[0]}, to "
        f"{printable(out)}"
    )
    if n_failed:
        verb = "cannot be read and is" if n_failed == 1 else "cannot be read and are"
        console(stderr=True).print(
            f"{counted(n_failed, 'image')} {verb} an empty frame"
        )
        raise typer.Exit(1)


_Pixels = npt.NDArray[Any]  # BGR
_Tile = tuple[_Pixels | None, str]


def _tiles(
    records: list[PlacedRecord], column: str | None, label: str | None, side: int
) -> Iterator[_Tile]:
    """Yield the image and caption of each record; None for one that cannot be read."""
    for record in records:
        message = message_of(record.data)
        values: dict[Any, Any] = {} if message is None else message.context
        if column is None:
            column = next(filter(lambda name: _image_in(values[name]), values), None)
            if column is None:
                continue
        data = _first(values.get(column))
        if not isinstance(data, bytes):
            continue
        tile = _tile(data, side)
        caption = f"record {record.number}" if tile is None else ""
        if label is not None and tile is not None:
            caption = _caption(_first(values.get(label)))
        yield tile, caption


def _first(values: Any) -> Any:
    return None if values is None or not len(values) else values[0]


def _image_in(values: Any) -> bool:
    data = _first(values)
    return isinstance(data, bytes) and file_format(data) in _FORMATS


def _caption(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = printable(text)
    return text if len(text) <= _MAX_CAPTION else text[: _MAX_CAPTION - 3] + "..."


def _tile(data: bytes, side: int) -> _Pixels | None:
    """Return an image in a white square, or None if it cannot be read."""
    import cv2

    pixels = None
    with contextlib.suppress(cv2.error):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        return None
    height, width = pixels.shape[:2]
    scale = min(1.0, side / max(height, width))
    width, height = max(1, round(width * scale)), max(1, round(height * scale))
    top, left = (side - height) // 2, (side - width) // 2
    square = np.full((side, side, 3), 255, np.uint8)
    square[top : top + height, left : left + width] = cv2.resize(
        pixels, (width, height), interpolation=cv2.INTER_AREA
    )
    return square


def _sheet(tiles: list[_Tile], side: int, *, has_captions: bool) -> _Pixels:
    """Return the images in rows, as square as possible."""
    import cv2

    bottom = _MARGIN + side  # of an image in its cell
    height = bottom + (_CAPTION_HEIGHT if has_captions else 0)
    cells = []
    for tile, caption in tiles:
        cell = np.full((height, bottom, 3), 255, np.uint8)
        text_at = _MARGIN, bottom + _CAPTION_HEIGHT - _MARGIN
        if tile is None:
            text_at = 2 * _MARGIN, _CAPTION_HEIGHT + _MARGIN
            cv2.rectangle(cell, (_MARGIN, _MARGIN), (bottom - 1, bottom - 1), _BLACK)
        else:
            cell[_MARGIN:bottom, _MARGIN:] = tile
        cv2.putText(cell, caption, text_at, cv2.FONT_HERSHEY_PLAIN, 0.8, _BLACK)
        cells.append(cell)
    n_columns = math.ceil(math.sqrt(len(cells)))
    cells += [np.full_like(cells[0], 255)] * (-len(cells) % n_columns)
    rows = [cells[i : i + n_columns] for i in range(0, len(cells), n_columns)]
    sheet = cv2.vconcat([cv2.hconcat(row) for row in rows])
    return np.pad(sheet, ((0, _MARGIN), (0, _MARGIN), (0, 0)), constant_values=255)
