"""``fastrec images`` and the sizes of images.

Goal
    A sheet shows the images of random records with their labels; images that cannot be
    read are marked, and the exit status says so. Sizes are read from the headers of images.
Method
    Images in plain colours, which are found again in the sheet.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("cv2")

import fastrec as fr
from commands import run
from fastrec.cli.preview import preview

COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 0, 255)]


def encoded(form: str, size: tuple[int, int], colour: Any = (9, 99, 200)) -> bytes:
    options = {"lossless": True} if form == "WEBP" else {}
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, form, **options)
    return buffer.getvalue()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "images.tfrecord"
    with fr.Writer(file) as writer:
        for number, colour in enumerate(COLOURS):
            data = encoded("PNG", (20 + number, 30), colour)
            writer.write({"key": b"k", "label": f"class {number}", "image": data})
    return file


@pytest.mark.parametrize("name", ["sheet.png", "sheet.jpg", "sheet.webp"])
def test_a_sheet_shows_the_images(path: Path, name: str) -> None:
    sheet = path.with_name(name)
    shown, errors = run("images", path, "-o", sheet, "--label", "label", "--side", "32")
    assert errors == ""
    with Image.open(sheet) as image:
        assert shown == f"wrote 4 images, {image.width}x{image.height}, to {sheet}\n"
        assert (image.width, image.height) == (2 * 36 + 4, 2 * 50 + 4)
        pixels = image.convert("RGB")
    for number, colour in enumerate(COLOURS):
        middle = 4 + number % 2 * 36 + 16, 4 + number // 2 * 50 + 16
        found = pixels.getpixel(middle)
        assert max(abs(a - b) for a, b in zip(found, colour, strict=True)) < 30


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "BMP", "TIFF"])
def test_the_column_with_images_is_found(tmp_path: Path, form: str) -> None:
    path, sheet = tmp_path / "a.tfrecord", tmp_path / "sheet.png"
    fr.write(path, {"key": [b"BM"], "picture": [encoded(form, (40, 30))]})
    shown, errors = run("images", path, "-o", sheet)
    assert "wrote 1 image" in shown
    assert errors == ""


def test_images_are_random_records(path: Path) -> None:
    sheets = []
    for seed in (0, 0, 1, 2, 3):
        sheet = path.with_name("one.png")
        run("images", path, "-o", sheet, "-n", "1", "--seed", str(seed), "--overwrite")
        sheets.append(sheet.read_bytes())
    assert sheets[0] == sheets[1]
    assert len(set(sheets)) > 1


def test_an_image_that_cannot_be_read_is_marked(tmp_path: Path) -> None:
    path, sheet = tmp_path / "a.tfrecord", tmp_path / "sheet.png"
    good = encoded("JPEG", (40, 30))
    with fr.Writer(path) as writer:
        for data in (good, good[:200], b"\xff\xd8\xff no image"):
            writer.write({"image": data})
    shown, errors = run("images", path, "-o", sheet, "--column", "image", status=1)
    assert "wrote 3 images" in shown
    assert errors == "2 images cannot be read and are shown as an empty frame\n"
    assert sheet.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-o", "sheet.gif"], "ends in one of .png"),
        (["-o", "sheet.png", "--column", "none"], "no sample has a byte string 'none'"),
        (["-o", "images.tfrecord.png"], "exists; --overwrite replaces it"),
    ],
)
def test_invalid_options_are_errors(
    path: Path, options: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    Path("images.tfrecord.png").write_bytes(b"mine")
    _, errors = run("images", path, *options, status=2)
    assert reason in " ".join(errors.split())
    assert Path("images.tfrecord.png").read_bytes() == b"mine"


def test_records_without_images_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    fr.write(path, {"n": [1, 2]})
    _, errors = run("images", path, "-o", tmp_path / "sheet.png", status=2)
    assert errors == "error: no sample has an image\n"
    assert not (tmp_path / "sheet.png").exists()


# Sizes from headers.


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("size", [(1, 1), (223, 135), (300, 2)])
def test_previews_show_the_sizes_of_images(form: str, size: tuple[int, int]) -> None:
    data = encoded(form, size)
    name = "WebP" if form == "WEBP" else form
    assert preview(data) == f"{name} {size[0]}x{size[1]}, {len(data):,} bytes"
    for end in range(14, 20):  # a cut header is not an error
        assert preview(data[:end]).endswith(f"{end} bytes")


def test_previews_name_other_images() -> None:
    data = encoded("GIF", (7, 5))
    assert preview(data) == f"GIF, {len(data)} bytes"
