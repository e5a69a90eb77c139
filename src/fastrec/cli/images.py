"""``fastrec images``: a contact sheet of the images in records."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["images"]

_FORMATS = ("JPEG", "PNG", "GIF", "WebP", "BMP", "TIFF")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_MARGIN = 4
_CAPTION_HEIGHT = 14
_MAX_CAPTION = 24
_MAX_PIXELS = 100_000_000  # of an image
_BACKGROUND = "#ffffff"
_INK = "#000000"


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

    The images are byte strings in a format that Pillow reads. One that cannot be read is
    an empty frame with the number of its record, and the exit status is 1.
    """
    if out.suffix.lower() not in _SUFFIXES:
        msg = f"must end in one of {', '.join(_SUFFIXES)}, got {redacted(str(out))}"
        raise typer.BadParameter(msg, param_hint="--out")
    if out.exists() and not overwrite:
        msg = f"{out} exists; --overwrite replaces it"
        raise typer.BadParameter(msg, param_hint="--out")
    with extra("image", "fastrec images"):
        from PIL import Image as _  # noqa: F401
    files = files_of(paths, joins=False)
    with when_interrupted("nothing was written"):
        tiles = list(_tiles(sampled_records(files, n, seed), column, label, side))
        if not tiles:
            what = "an image" if column is None else f"a byte string {column!r}"
            msg = f"no record has {what}"
            raise fr.Error(msg)
        sheet = _sheet(tiles, side, has_captions=label is not None)
        with replacement(out) as temporary, temporary.open("wb") as file:
            sheet.save(file, _format_of(out))
    n_failed = sum(tile is None for tile, _ in tiles)
    console().print(
        f"wrote {counted(len(tiles), 'image')}, {sheet.width}x{sheet.height}, to "
        f"{printable(out)}"
    )
    if n_failed:
        verb = "cannot be read and is" if n_failed == 1 else "cannot be read and are"
        console(stderr=True).print(
            f"{counted(n_failed, 'image')} {verb} an empty frame"
        )
        raise typer.Exit(1)


def _format_of(path: Path) -> str:
    return {".png": "PNG", ".webp": "WEBP"}.get(path.suffix.lower(), "JPEG")


_Tile = tuple["Image.Image | None", str]


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


def _first(values: Any) -> Any:  # noqa: ANN401
    return None if values is None or not len(values) else values[0]


def _image_in(values: Any) -> bool:  # noqa: ANN401
    data = _first(values)
    return isinstance(data, bytes) and file_format(data) in _FORMATS


def _caption(value: Any) -> str:  # noqa: ANN401
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = printable(text)
    return text if len(text) <= _MAX_CAPTION else text[: _MAX_CAPTION - 3] + "..."


def _tile(data: bytes, side: int) -> Image.Image | None:
    """Return an image that fits in a square, or None if it cannot be read."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _MAX_PIXELS:
                return None
            image.draft("RGB", (side, side))  # decodes a JPEG at a smaller scale
            upright = ImageOps.exif_transpose(image)
            rgb = upright.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    rgb.thumbnail((side, side))
    return rgb


def _sheet(tiles: list[_Tile], side: int, *, has_captions: bool) -> Image.Image:
    """Return the images in rows, as square as possible."""
    from PIL import Image, ImageDraw

    n_columns = math.ceil(math.sqrt(len(tiles)))
    n_rows = math.ceil(len(tiles) / n_columns)
    width = side + _MARGIN
    height = width + (_CAPTION_HEIGHT if has_captions else 0)
    sheet = Image.new(
        "RGB", (n_columns * width + _MARGIN, n_rows * height + _MARGIN), _BACKGROUND
    )
    pen = ImageDraw.Draw(sheet)
    for number, (tile, caption) in enumerate(tiles):
        left = _MARGIN + number % n_columns * width
        top = _MARGIN + number // n_columns * height
        if tile is None:
            pen.rectangle((left, top, left + side - 1, top + side - 1), outline=_INK)
            pen.text((left + _MARGIN, top + _MARGIN), caption, fill=_INK)
            continue
        sheet.paste(
            tile, (left + (side - tile.width) // 2, top + (side - tile.height) // 2)
        )
        pen.text((left, top + side), caption, fill=_INK)
    return sheet
