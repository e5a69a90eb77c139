"""``fastrec images``: write a contact sheet of the images in records."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from typer import echo

import fastrec as fr
from fastrec.cli.arguments import Overwrite, Paths, Seed, out_option
from fastrec.cli.files import files_of, local_output, reports_interrupt
from fastrec.cli.records import PlacedRecord, message_of, sampled_records
from fastrec.cli.terminal import counted, printable
from fastrec.display import image_format
from fastrec.options import extra
from fastrec.storage.atomic import replacement

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_MARGIN, _CAPTION_HEIGHT = 4, 14  # pixels
_MAX_CAPTION = 24
_BLACK = (0, 0, 0)

_Pixels = npt.NDArray[Any]  # BGR


def images(
    paths: Paths,
    *,
    out: Annotated[str, out_option("A .png, .jpg or .webp file.", "SHEET")],
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Feature with the images; by default the first one with an image.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Print this feature below each image."),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=1, help="Number of images.")
    ] = 64,
    seed: Seed = 0,
    side: Annotated[
        int, typer.Option(metavar="PIXELS", min=16, max=1024, help="Size of each tile.")
    ] = 128,
    overwrite: Overwrite = False,
) -> None:
    """Write a contact sheet of images from random records.

    The images must be byte strings in a format that OpenCV reads. An unreadable image
    becomes an empty frame with its record number, and the exit status is 1.
    """
    target = local_output(out, _SUFFIXES, overwrite=overwrite)
    with extra("image", "fastrec images", "cv2"):
        import cv2
    files = files_of(paths, joins=False)
    with reports_interrupt():
        tiles = list(_tiles(sampled_records(files, n, seed), column, label, side))
        if not tiles:
            what = "an image" if column is None else f"a byte string {column!r}"
            raise fr.Error(f"no sample has {what}")
        n_columns = math.ceil(math.sqrt(len(tiles)))
        cells = [cell for cell, _ in tiles]
        cells += [np.full_like(cells[0], 255)] * (-len(cells) % n_columns)
        rows = [cells[i : i + n_columns] for i in range(0, len(cells), n_columns)]
        sheet = cv2.vconcat([cv2.hconcat(row) for row in rows])
        edges = ((0, _MARGIN), (0, _MARGIN), (0, 0))
        sheet = np.pad(sheet, edges, constant_values=255)
        with replacement(target) as temporary:
            encoded = cv2.imencode(target.suffix.lower(), sheet)[1]
            temporary.write_bytes(encoded.tobytes())
    height, width = sheet.shape[:2]
    wrote = f"{counted(len(tiles), 'image')}, {width}x{height}"
    echo(f"wrote {wrote}, to {printable(out)}")
    if n_failed := sum(not is_read for _, is_read in tiles):
        verb = "cannot be read and is" if n_failed == 1 else "cannot be read and are"
        echo(f"{counted(n_failed, 'image')} {verb} shown as an empty frame", err=True)
        raise typer.Exit(1)


def _tiles(
    records: list[PlacedRecord], column: str | None, label: str | None, side: int
) -> Iterator[tuple[_Pixels, bool]]:
    """Yield a tile for each record with an image, and whether the image is readable."""
    import cv2

    bottom = _MARGIN + side
    height = bottom + (0 if label is None else _CAPTION_HEIGHT)
    for record in records:
        message = message_of(record.data)
        values: dict[Any, Any] = {} if isinstance(message, str) else message.context
        firsts = {name: x[0] for name, x in values.items() if x is not None and len(x)}
        if column is None:
            column = next(filter(lambda name: _is_image(firsts[name]), firsts), None)
        data = firsts.get(column)
        if not isinstance(data, bytes):
            continue
        cell = np.full((height, bottom, 3), 255, np.uint8)
        pixels = _scaled(data, side)
        if pixels is None:
            text, at = (
                f"record {record.number}",
                (2 * _MARGIN, _CAPTION_HEIGHT + _MARGIN),
            )
            cv2.rectangle(cell, (_MARGIN, _MARGIN), (bottom - 1, bottom - 1), _BLACK)
        else:
            text, at = _caption(firsts.get(label)), (_MARGIN, height - _MARGIN)
            top, left = (_MARGIN + (side - x) // 2 for x in pixels.shape[:2])
            cell[top : top + len(pixels), left : left + pixels.shape[1]] = pixels
        if pixels is None or label is not None:
            cv2.putText(cell, text, at, cv2.FONT_HERSHEY_PLAIN, 0.8, _BLACK)
        yield cell, pixels is not None


def _is_image(value: object) -> bool:
    if not isinstance(value, bytes):
        return False
    is_tiff = value.startswith((b"II*\0", b"MM\0*"))
    is_bmp = value.startswith(b"BM") and value[6:10] == bytes(4)
    return is_tiff or is_bmp or image_format(value) != ""


def _caption(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = printable(text)
    return text if len(text) <= _MAX_CAPTION else text[: _MAX_CAPTION - 3] + "..."


def _scaled(data: bytes, side: int) -> _Pixels | None:
    """Decode an image and fit it into `side` x `side` pixels; None if unreadable."""
    import cv2

    pixels = None
    with contextlib.suppress(cv2.error):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        return None
    height, width = pixels.shape[:2]
    scale = min(1.0, side / max(height, width))
    shape = max(1, round(width * scale)), max(1, round(height * scale))
    scaled: _Pixels = cv2.resize(pixels, shape, interpolation=cv2.INTER_AREA)
    return scaled
