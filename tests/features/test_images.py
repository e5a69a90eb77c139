"""Images: byte strings that are decoded to one array.

Goal
    The pixels are those that other libraries decode, whatever the kind of image. An image
    that cannot be decoded completely is an error with its place, which `on_error` skips
    or masks, and nothing is decoded before its size is checked. Threads, ranks, batch
    sizes and interrupts make no difference.
Method
    Small images that Pillow encodes, in every kind that Pillow has, and Pillow's pixels;
    every truncation; crops computed slowly from the same random numbers. Images that are
    scaled are compared with a formula of bilinear interpolation.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

import fastrec as fr
from columns import Untyped, open_dataset
from fastrec import _core
from fastrec.features.image import Fit

PIL = pytest.importorskip("PIL.Image")
cv2: Untyped = pytest.importorskip("cv2")

Pixels = npt.NDArray[np.uint8]

HEIGHT, WIDTH = 24, 40


def smooth(height: int = HEIGHT, width: int = WIDTH, seed: int = 0) -> Pixels:
    """Return an image of smooth random colors."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    image = PIL.fromarray(small).resize((width, height), PIL.Resampling.BICUBIC)
    return np.asarray(image)


PICTURE = PIL.fromarray(smooth())
ALPHA = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH), np.uint8)
WITH_ALPHA = PIL.fromarray(np.dstack([smooth(), ALPHA]))


def encoded(image: Untyped, kind: str = "PNG", **options: Untyped) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned() -> Untyped:
    exif = PIL.Exif()
    exif[0x112] = 6  # orientation
    return exif


JPEG = encoded(PICTURE, "JPEG", quality=90)
PNG = encoded(PICTURE)
WEBP = encoded(PICTURE, "WEBP", lossless=True)
LOSSY = encoded(PICTURE, "WEBP", quality=80)

KINDS = {
    "jpeg": JPEG,
    "jpeg progressive": encoded(PICTURE, "JPEG", progressive=True),
    "jpeg 4:4:4": encoded(PICTURE, "JPEG", subsampling=0),
    "jpeg gray": encoded(PICTURE.convert("L"), "JPEG"),
    "jpeg turned": encoded(PICTURE, "JPEG", exif=turned()),
    "jpeg trailing bytes": JPEG + bytes(9),
    "png": PNG,
    "png gray": encoded(PICTURE.convert("L")),
    "png palette": encoded(PICTURE.quantize(16)),
    "png transparent palette": encoded(PICTURE.quantize(16), transparency=0),
    "png bits": encoded(PICTURE.convert("1")),
    "png alpha": encoded(WITH_ALPHA),
    "png gray alpha": encoded(WITH_ALPHA.convert("LA")),
    "png turned": encoded(PICTURE, exif=turned()),
    "png animated": encoded(
        PICTURE, save_all=True, append_images=[PICTURE.rotate(180)]
    ),
    "webp": WEBP,
    "webp lossy": LOSSY,
    "webp alpha": encoded(WITH_ALPHA, "WEBP", lossless=True),
    "webp turned": encoded(PICTURE, "WEBP", lossless=True, exif=turned()),
    "webp animated": encoded(
        PICTURE, "WEBP", lossless=True, save_all=True, append_images=[WITH_ALPHA]
    ),
}
kinds = pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)


def by_pillow(data: bytes, mode: str = "RGB") -> Pixels:
    return np.asarray(PIL.open(BytesIO(data)).convert(mode))


def write(tmp_path: Path, *images: bytes | None) -> Path:
    path = tmp_path / "images.tfrecord"
    rows = ({"image": data} if data is not None else {} for data in images)
    with fr.Writer(path, overwrite=True) as writer:
        for number, row in enumerate(rows):
            writer.write({**row, "number": number})
    return path


def opened(
    tmp_path: Path, *images: bytes | None, shape: tuple[int, int], **options: Untyped
) -> Untyped:
    spec = fr.Image(shape, **{k: v for k, v in options.items() if k in IMAGE_OPTIONS})
    others = {k: v for k, v in options.items() if k not in IMAGE_OPTIONS}
    features = {"image": spec, "number": fr.FixedLen((), "int64")}
    return open_dataset(write(tmp_path, *images), features=features, **others)


IMAGE_OPTIONS = ("fit", "antialias", "channels", "default")


def decoded(data: bytes, shape: tuple[int, int], **options: Untyped) -> Pixels:
    """Decode one image in memory."""
    record = fr.encode_example({"image": data})
    batch = fr.parse_example([record], {"image": fr.Image(shape, **options)})
    pixels: Pixels = batch["image"][0]
    return pixels


# Kinds of images.


@kinds
def test_pixels_are_those_of_pillow(data: bytes) -> None:
    pixels = decoded(data, (HEIGHT, WIDTH))
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, by_pillow(data))


@kinds
def test_gray_pixels_are_nearly_those_of_pillow(data: bytes) -> None:
    pixels = decoded(data, (HEIGHT, WIDTH), channels=1)
    assert pixels.shape == (HEIGHT, WIDTH, 1)
    # Pillow converts the decoded colors of a JPEG, which has a channel of brightness.
    difference = pixels[..., 0].astype(int) - by_pillow(data, "L")
    assert abs(difference).max() <= (12 if data[0] == 0xFF else 1)


@kinds
def test_alpha_is_kept_or_opaque(data: bytes) -> None:
    pixels = decoded(data, (HEIGHT, WIDTH), channels=4)
    assert np.array_equal(pixels, by_pillow(data, "RGBA"))


def test_inks_become_colors() -> None:
    data = encoded(PICTURE.convert("CMYK"), "JPEG")
    difference = decoded(data, (HEIGHT, WIDTH)).astype(int) - by_pillow(data)
    assert abs(difference).max() <= 1


def png_of(values: npt.NDArray[np.uint16]) -> bytes:
    """Encode 16-bit gray or RGB as PNG, in plain filters."""
    colors = 2 if values.ndim == 3 else 0
    height, width = values.shape[:2]
    rows = values.astype(">u2").tobytes()
    size = len(rows) // height
    lines = b"".join(b"\0" + rows[i * size : (i + 1) * size] for i in range(height))
    header = struct.pack(">IIBBBBB", width, height, 16, colors, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def test_a_shape_may_name_the_channels() -> None:
    gray = fr.Image((28, 30, 1))
    assert gray == fr.Image((28, 30), channels=1) == fr.Image((28, 30, 1), channels=1)
    assert (gray.shape, gray.row_shape) == ((28, 30), (28, 30, 1))
    assert repr(fr.Image((28, 30, 3))) == "Image((28, 30))"


@pytest.mark.parametrize("shape", [(6, 5, 3), (6, 5)])
def test_16_bits_keep_the_upper_8(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 65536, shape).astype(np.uint16)
    expected = np.broadcast_to((values >> 8).reshape(6, 5, -1), (6, 5, 3))
    data = png_of(values)
    assert np.array_equal(decoded(data, (6, 5)), expected)
    rgba = decoded(data, (6, 5), channels=4)
    assert np.array_equal(rgba[..., :3], expected)
    assert (rgba[..., 3] == 255).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "fit", ["resize", "center_crop", "random_crop", "random_resized_crop"]
)
def test_one_pixel_fills_any_shape(kind: str, fit: str) -> None:
    data = encoded(PIL.new("RGB", (1, 1), (200, 100, 50)), kind)
    pixels = decoded(data, (3, 8), fit=fit)
    assert (pixels == by_pillow(data)[0, 0]).all()


# Images that cannot be decoded.


@pytest.mark.parametrize(
    "data",
    [JPEG, KINDS["jpeg progressive"], PNG, WEBP, LOSSY],
    ids=["jpeg", "progressive", "png", "webp", "lossy"],
)
@pytest.mark.parametrize("options", [{}, {"channels": 1}, {"channels": 4}])
def test_every_truncation_raises(data: bytes, options: dict[str, Any]) -> None:
    for size in range(0, len(data), 1 if len(data) < 1200 else 7):
        with pytest.raises(fr.SchemaError, match="image"):
            decoded(data[:size], (HEIGHT, WIDTH), **options)


@pytest.mark.parametrize("at", range(0, len(PNG), 5))
def test_a_damaged_png_raises(at: int) -> None:
    data = bytearray(PNG)
    data[at] ^= 0x24
    with pytest.raises((fr.SchemaError, fr.LimitError), match="image"):
        decoded(bytes(data), (HEIGHT, WIDTH))


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"", "0 bytes"),
        (b"hello", "UTF-8 text"),
        (encoded(PICTURE, "GIF"), "a GIF file"),
        (JPEG[:3], "a JPEG file"),
        (b"\xff\xd8\xff\xd9", "a JPEG file"),
        (bytes(range(128, 228)), "100 bytes of an unknown format"),
    ],
)
def test_other_bytes_are_named(tmp_path: Path, data: bytes, looks: str) -> None:
    ds = opened(tmp_path, JPEG, data, shape=(HEIGHT, WIDTH))
    with pytest.raises(
        fr.SchemaError, match=f"JPEG, PNG or WebP.*got {looks}"
    ) as caught:
        ds[1]
    assert caught.value.code == "image"


def test_errors_have_their_place(tmp_path: Path) -> None:
    ds = opened(tmp_path, JPEG, JPEG, JPEG[:-9], shape=(HEIGHT, WIDTH))
    _, _, begin = ds.loader(1).records_at(2)[0]
    for read in (
        lambda: ds[2],
        lambda: ds[0:3],
        lambda: list(ds),
        lambda: list(ds.loader(2)),
        lambda: list(ds.loader(3, num_threads=0, transform_threads=0)),
        lambda: ds.loader(1).batch(2),
    ):
        with pytest.raises(fr.SchemaError, match=r"'image'.*truncated") as caught:
            read()
        error = caught.value
        assert (error.path, error.record, error.offset) == (ds.files[0], 2, begin)
        assert error.feature == "image"


def test_another_size_is_an_error_that_names_both(tmp_path: Path) -> None:
    ds = opened(tmp_path, JPEG, shape=(WIDTH, HEIGHT))
    with pytest.raises(
        fr.SchemaError, match="height 40 and width 24, got 24 and 40"
    ) as e:
        ds[0]
    assert e.value.code == "image_shape"


def huge_png(width: int, height: int) -> bytes:
    head = bytearray(PNG)
    head[16:24] = struct.pack(">II", width, height)
    head[29:33] = struct.pack(">I", zlib.crc32(bytes(head[12:29])))
    return bytes(head)


def huge_jpeg(width: int, height: int) -> bytes:
    at = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:at] + struct.pack(">HH", height, width) + JPEG[at + 4 :]


@pytest.mark.parametrize("fit", ["exact", "resize"])
@pytest.mark.parametrize(
    "data",
    [
        huge_png(30_000, 30_000),
        huge_png(2**31 - 1, 2**31 - 1),
        huge_jpeg(65_000, 65_000),
    ],
    ids=["png", "largest png", "jpeg"],
)
def test_too_many_pixels_are_never_decoded(
    tmp_path: Path, data: bytes, fit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = opened(tmp_path, data, shape=(8, 8), fit=fit)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(fr.LimitError, match="max_image_pixels=178956970") as caught:
        ds[0]
    assert (caught.value.code, caught.value.record) == ("image_pixels", 0)


def test_the_limit_is_a_number_of_pixels(tmp_path: Path) -> None:
    n_pixels = HEIGHT * WIDTH
    for limit, is_error in ((n_pixels, False), (n_pixels - 1, True)):
        limits = fr.Limits(max_image_pixels=limit)
        ds = opened(tmp_path, JPEG, shape=(HEIGHT, WIDTH), limits=limits)
        if is_error:
            with pytest.raises(fr.LimitError):
                ds[0]
        else:
            ds[0]


# One image in memory.


@kinds
@pytest.mark.parametrize("channels", [None, 1, 3, 4])
def test_one_image_has_the_pixels_of_a_record(data: bytes, channels: Any) -> None:
    expected = decoded(data, (HEIGHT, WIDTH), channels=channels)
    for form in (data, bytearray(data), np.frombuffer(data, np.uint8)):
        pixels = fr.decode_image(form, channels=channels)
        assert pixels.dtype == np.uint8
        assert np.array_equal(pixels, expected)
        pixels[...] = 0  # the caller's, and writable


def test_one_image_is_fitted_to_its_spec() -> None:
    for options in ({"fit": "resize"}, {"fit": "center_crop", "channels": 1}):
        expected = decoded(JPEG, (8, 9), **options)
        assert np.array_equal(
            fr.decode_image(JPEG, fr.Image((8, 9), **options)), expected
        )
    random = fr.Image((8, 9), fit="random_resized_crop")
    one, same, other = (
        fr.decode_image(JPEG, random, rng=np.random.default_rng(i)) for i in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    depth = np.arange(15, dtype=np.uint16).reshape(5, 3) * 4000
    spec = fr.Image((5, 3), channels=1, dtype="uint16")
    assert np.array_equal(fr.decode_image(png_of(depth), spec)[..., 0], depth)
    gray = fr.decode_image(b"", fr.Image((1, 2), default=7))
    assert gray.tolist() == [[[7, 7, 7]] * 2]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((JPEG[:-9],), {}, fr.SchemaError, "^data must be an intact image"),
        ((b"hello",), {}, fr.SchemaError, "^data must be a JPEG, .* got UTF-8 text"),
        ((JPEG, fr.Image((2, 3))), {}, fr.SchemaError, "height 2 and width 3, got 24"),
        ((huge_png(30_000, 30_000),), {}, fr.LimitError, "max_image_pixels=178956970"),
        ((JPEG,), {"limits": fr.Limits(max_image_pixels=1)}, fr.LimitError, "40 x 24"),
        (("photo.jpg",), {}, TypeError, "bytes-like"),
        ((JPEG, (8, 8)), {}, TypeError, r"image must be an fr.Image, got \(8, 8\)"),
        ((JPEG,), {"channels": 2}, fr.SchemaError, "channels must be"),
        ((JPEG, fr.Image((8, 8))), {"channels": 1}, ValueError, "either image= or cha"),
        ((JPEG, fr.Image((8, 8), fit="random_crop")), {}, ValueError, "requires rng="),
    ],
)
def test_one_image_that_cannot_be_decoded_is_an_error(
    arguments: Untyped, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fr.decode_image(*arguments, **options)


# Error policies.

BAD = {2: JPEG[:-9], 5: b"", 6: None, 9: encoded(PIL.new("RGB", (3, 3)), "JPEG")}
IMAGES = [BAD.get(i, encoded(PIL.fromarray(smooth(seed=i)))) for i in range(12)]
GOOD = [i for i in range(12) if i not in BAD]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_bad_images_are_skipped(tmp_path: Path, threads: int) -> None:
    ds = opened(tmp_path, *IMAGES, shape=(HEIGHT, WIDTH), on_error="skip")
    loader = ds.loader(4, transform_threads=threads)
    batches = list(loader)
    assert [len(batch["image"]) for batch in batches] == [3, 2, 3]
    numbers = np.concatenate([batch["number"] for batch in batches])
    assert numbers.tolist() == GOOD
    for batch in batches:
        for number, pixels in zip(batch["number"], batch["image"], strict=True):
            assert np.array_equal(pixels, smooth(seed=int(number)))
    reasons = [region.reason for region in loader.report]
    assert len(reasons) == 4
    assert "truncated" in "".join(reasons)
    assert all("'image'" in reason for reason in reasons)
    with pytest.raises(fr.SchemaError, match="max_errors=3"):
        list(ds.loader(4, max_errors=3, transform_threads=threads))
    with pytest.raises(fr.SchemaError):
        ds[2]


@pytest.mark.parametrize("options", [{"on_error": "mask"}, {"pad_last": True}])
def test_bad_images_are_masked(tmp_path: Path, options: dict[str, Any]) -> None:
    ds = opened(tmp_path, *IMAGES, shape=(HEIGHT, WIDTH), on_error="skip")
    batches = list(ds.loader(8, **options))
    valid = np.concatenate([batch["__valid__"] for batch in batches])
    images = np.concatenate([batch["image"] for batch in batches])
    assert np.flatnonzero(valid).tolist() == GOOD
    assert not images[~valid].any()
    assert all(images[i].any() for i in GOOD)


def test_transforms_get_pixels_and_only_good_rows(tmp_path: Path) -> None:
    seen = []

    def brightness(row: Untyped, rng: Untyped) -> Untyped:
        seen.append(int(row["number"]))
        assert row["image"].shape == (HEIGHT, WIDTH, 3)
        return row["image"].mean() + 0 * rng.random()

    out = {"brightness": fr.FixedLen((), "float64")}
    ds = opened(tmp_path, *IMAGES, shape=(HEIGHT, WIDTH), on_error="skip")
    ds = ds.with_transform(fr.per_row(brightness, out=out))
    means = np.concatenate([batch["brightness"] for batch in ds.loader(5)])
    assert np.allclose(means, [smooth(seed=i).mean() for i in GOOD])
    assert sorted(seen) == GOOD
    # Errors of transforms have another policy.
    with pytest.raises(ZeroDivisionError):
        list(ds.loader(5, transform=lambda _: 1 // 0))


def test_a_default_replaces_missing_images(tmp_path: Path) -> None:
    ds = opened(tmp_path, JPEG, None, b"", shape=(HEIGHT, WIDTH), default=7)
    batch = ds[0:3]["image"]
    assert np.array_equal(batch[0], by_pillow(JPEG))
    assert (batch[1:] == 7).all()
    with pytest.raises(fr.SchemaError, match="missing"):
        opened(tmp_path, None, shape=(HEIGHT, WIDTH))[0]


# Fits.


def bilinear(pixels: npt.NDArray[Any], height: int, width: int) -> Untyped:
    """Resize with centers of pixels at halves, as tf.image.resize does."""

    def positions(n: int, n_from: int) -> tuple[Any, Any, Any]:
        at = np.clip((np.arange(n) + 0.5) * n_from / n - 0.5, 0, n_from - 1)
        low = np.floor(at).astype(int)
        return low, np.minimum(low + 1, n_from - 1), at - low

    top, bottom, down = positions(height, len(pixels))
    left, right, across = positions(width, pixels.shape[1])
    wide = pixels.astype(float)
    across, down = across[:, None], down[:, None, None]
    rows = wide[:, left] * (1 - across) + wide[:, right] * across
    return rows[top] * (1 - down) + rows[bottom] * down


def antialiased(pixels: npt.NDArray[Any], height: int, width: int) -> Untyped:
    """Resize with a triangle as wide as what a pixel covers, but not below two pixels."""

    def weights(n: int, n_from: int) -> Untyped:
        scale = n_from / n
        at = (np.arange(n)[:, None] + 0.5) * scale - (np.arange(n_from) + 0.5)
        triangle = np.maximum(0, 1 - abs(at) / max(1, scale))
        return triangle / triangle.sum(1, keepdims=True)

    down, across = weights(height, len(pixels)), weights(width, pixels.shape[1])
    return np.einsum("ab,bcd,ec->aed", down, pixels.astype(float), across)


def assert_near(pixels: Pixels, expected: npt.NDArray[Any]) -> None:
    assert pixels.shape == expected.shape
    assert abs(pixels - expected).max() <= 1.5


SCALES = [(20, 30), (13, 21), (48, 41), (24, 40), (12, 20), (5, 3), (10, 60)]
resized = pytest.mark.parametrize(
    ("antialias", "expected"), [(True, antialiased), (False, bilinear)]
)


@resized
@pytest.mark.parametrize("shape", SCALES)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_resize_is_bilinear_at_every_scale(
    shape: tuple[int, int], channels: int, antialias: bool, expected: Untyped
) -> None:
    for data in (JPEG, PNG):
        options: Untyped = {"channels": channels, "antialias": antialias}
        whole = decoded(data, (HEIGHT, WIDTH), channels=channels)
        pixels = decoded(data, shape, fit="resize", **options)
        assert_near(pixels, expected(whole, *shape))


@resized
@pytest.mark.parametrize("shape", [(24, 24), (15, 40), (20, 16), (30, 30), (6, 6)])
def test_center_crop_covers_the_shape(
    shape: tuple[int, int], antialias: bool, expected: Untyped
) -> None:
    whole = by_pillow(PNG)
    height, width = shape
    high = min(HEIGHT, round(WIDTH * height / width))
    wide = min(WIDTH, round(HEIGHT * width / height))
    y, x = (HEIGHT - high) // 2, (WIDTH - wide) // 2
    part = whole[y : y + high, x : x + wide]
    pixels = decoded(PNG, shape, fit="center_crop", antialias=antialias)
    assert_near(pixels, expected(part, *shape))


def test_colors_under_transparent_pixels_are_resized_by_themselves() -> None:
    rgba = np.dstack([smooth(), np.tile([0, 255], (HEIGHT, WIDTH // 2))])
    data = encoded(PIL.fromarray(rgba.astype(np.uint8)))
    pixels = decoded(data, (8, 10), fit="resize", channels=4)
    assert_near(pixels, antialiased(rgba, 8, 10))


def chunk(kind: bytes, data: bytes, length: int) -> bytes:
    crc = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", length) + kind + data + crc


@pytest.mark.parametrize("length", [13, 2**20, 2**31 - 1, 2**32 - 1])
@pytest.mark.parametrize("kind", [b"tEXt", b"PLTE", b"IDAT"])
def test_chunks_that_claim_more_than_the_file_are_not_decoded(
    length: int, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    head = PNG[:33]
    for data in (head + chunk(kind, b"a", length), head + chunk(kind, b"", length)[:9]):
        with pytest.raises(fr.SchemaError, match="truncated or damaged"):
            decoded(data, (8, 8), fit="resize")


def test_the_scans_of_a_jpeg_are_limited(tmp_path: Path) -> None:
    data = KINDS["jpeg progressive"]
    begin, end = data.rfind(b"\xff\xda"), data.rfind(b"\xff\xd9")
    n_scans, scan = data.count(b"\xff\xda"), data[begin:end]
    most = data[:end] + scan * (100 - n_scans) + data[end:]
    assert decoded(most, (8, 8), fit="resize").any()
    ds = opened(tmp_path, most[:end] + scan + most[end:], shape=(8, 8), fit="resize")
    with pytest.raises(
        fr.LimitError, match=r"101 scans.*max_image_scans=100"
    ) as caught:
        ds[0]
    assert caught.value.code == "image_scans"
    ds = open_dataset(ds.files[0], limits=fr.Limits(max_image_scans=101))
    assert ds.with_features({"image": fr.Image((8, 8), fit="resize")})[0]["image"].any()


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("at", [16, 20], ids=["width", "height"])
def test_images_without_pixels_are_refused(fit: str, at: int, tmp_path: Path) -> None:
    head = bytearray(PNG)
    head[at : at + 4] = bytes(4)
    head[29:33] = struct.pack(">I", zlib.crc32(bytes(head[12:29])))
    ds = opened(tmp_path, PNG, bytes(head), PNG, shape=(8, 8), fit=fit, on_error="skip")
    if fit != "exact":
        assert [len(batch["image"]) for batch in ds.loader(3)] == [2]
    with pytest.raises(fr.SchemaError, match="image with pixels"):
        ds[1]


@pytest.mark.parametrize("fit", ["random_crop", "random_resized_crop"])
def test_random_crops_are_parts_of_the_image(tmp_path: Path, fit: str) -> None:
    # The pixels are their coordinates, so a crop shows where it is from.
    rows, columns = np.mgrid[0:64, 0:96].astype(np.uint8)
    image = np.dstack([rows, columns, rows])
    data = encoded(PIL.fromarray(image))
    ds = opened(tmp_path, *[data] * 200, shape=(32, 32), fit=fit)
    (batch,) = ds.loader(200, seed=3)
    boxes = set()
    for crop in batch["image"].astype(int):
        top, left = crop[0, 0, :2]
        bottom, right = crop[-1, -1, :2]
        assert 0 <= top <= bottom <= 63
        assert 0 <= left <= right <= 95
        boxes.add((top, left, bottom, right))
        if fit == "random_crop":
            assert bottom - top >= 60
            assert abs((right - left) - (bottom - top)) <= 1
        else:
            area = (bottom - top + 2) * (right - left + 2) / (64 * 96)
            assert 0.06 <= area <= 1.1
    assert len(boxes) > (20 if fit == "random_crop" else 150)


def test_random_crops_depend_on_seed_epoch_and_position_alone(tmp_path: Path) -> None:
    images = [encoded(PIL.fromarray(smooth(30, 40, seed=i))) for i in range(20)]
    ds = opened(tmp_path, *images, shape=(8, 8), fit="random_resized_crop")

    def epoch(n: int, **options: Untyped) -> npt.NDArray[Any]:
        loader = ds.loader(shuffle=True, seed=1, **options)
        loader.set_epoch(n)
        return np.concatenate([batch["image"] for batch in loader])

    whole = epoch(0, batch_size=20, transform_threads=1)
    assert np.array_equal(whole, epoch(0, batch_size=3, transform_threads=3))
    assert np.array_equal(whole, epoch(0, batch_size=7, transform_threads=0))
    assert not np.array_equal(whole, epoch(1, batch_size=20))
    loader = ds.loader(4, shuffle=True, seed=1)
    next(iter(loader))
    resumed = ds.loader(5, shuffle=True, seed=1)
    resumed.load_state_dict(loader.state_dict())
    rest = np.concatenate([batch["image"] for batch in resumed])
    assert np.array_equal(whole[4:], rest)
    assert np.array_equal(ds[3]["image"], ds[0:5]["image"][3])


def test_columns_of_a_row_are_cropped_alike_and_unlike_its_transforms(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pairs"
    fr.write(path, [{"image": PNG, "mask": PNG}] * 10)
    spec = fr.Image((8, 8), fit="random_resized_crop")
    ds = open_dataset(path, features={"image": spec, "mask": spec})
    drawn: list[float] = []

    def draw(batch: Untyped, info: Untyped) -> Untyped:
        drawn.extend(info.rng(i).random() for i in range(len(info.positions)))
        return batch

    (batch,) = ds.loader(10, transform=draw)
    assert np.array_equal(batch["image"], batch["mask"])
    areas = [spec.box(100, 100, _generator(i, 1)) for i in range(10)]
    assert len(set(areas)) == 10
    assert drawn == [_generator(i, 0).random() for i in range(10)]


def _generator(position: int, stream: int) -> np.random.Generator:
    key = np.array([0, 0], np.uint64)
    counter = np.array([0, 0, stream, position], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def test_random_resized_crop_falls_back_to_the_center() -> None:
    spec = fr.Image((8, 8), fit="random_resized_crop")
    rng = np.random.default_rng(0)
    boxes = {spec.box(1000, 10, rng) for _ in range(50)}
    assert (493, 0, 13, 10) in boxes  # a ratio of 4/3
    assert spec.box(1, 1, rng) == (0, 0, 1, 1)


# Datasets and loaders.


def test_images_in_rows_views_and_joined_datasets(tmp_path: Path) -> None:
    images = [encoded(PIL.fromarray(smooth(seed=i))) for i in range(8)]
    ds = opened(tmp_path, *images, shape=(HEIGHT, WIDTH))
    assert [np.array_equal(row["image"], smooth(seed=i)) for i, row in enumerate(ds)]
    assert list(ds.select_columns(["number"])[0]) == ["number"]
    odd = ds.filter(lambda batch: batch["number"] % 2 == 1, columns=["number"])
    assert np.array_equal(odd[1]["image"], smooth(seed=3))
    bright = ds.filter(lambda batch: batch["image"].mean((1, 2, 3)) > 0)
    assert len(bright) == 8
    both = fr.concat([ds.select(range(2)), odd])
    assert [int(row["image"].sum()) for row in both] == [
        int(smooth(seed=i).sum()) for i in (0, 1, 1, 3, 5, 7)
    ]
    mixed = fr.mix({"a": (ds, 1), "b": (odd, 1)})
    batch = next(iter(mixed.loader(8, shuffle=True)))
    for number, pixels in zip(batch["number"], batch["image"], strict=True):
        assert np.array_equal(pixels, smooth(seed=int(number)))


def test_joined_datasets_with_other_images_are_refused(tmp_path: Path) -> None:
    a = opened(tmp_path, PNG, shape=(HEIGHT, WIDTH))
    b = a.with_features({"image": fr.Image((8, 8), fit="resize"), "number": "int64"})
    with pytest.raises(fr.SchemaError, match="'image' is uint8"):
        fr.concat([a, b]).schema  # noqa: B018


def test_images_of_a_stream_and_of_a_context(tmp_path: Path) -> None:
    path = tmp_path / "stream.gz"
    fr.write(path, [{"image": PNG}] * 9, compression="GZIP")
    ds = open_dataset(path, features={"image": fr.Image((HEIGHT, WIDTH))})
    for batch in ds.loader(3, shuffle=fr.Window(4)):
        assert (batch["image"] == smooth()).all()
    path = tmp_path / "sequence"
    with fr.Writer(path) as writer:
        writer.write_sequence_example(
            context={"image": PNG}, feature_lists={"x": [[1.0]]}
        )
    ds = open_dataset(
        path,
        context_features={"image": fr.Image((HEIGHT, WIDTH))},
        sequence_features={"x": fr.VarLen("float32")},
    )
    assert np.array_equal(ds[0]["image"], smooth())


def test_the_default_threads_share_the_rows(tmp_path: Path) -> None:
    import threading

    ds = opened(tmp_path, *[PNG] * 64, shape=(HEIGHT, WIDTH))
    threads: set[int] = set()
    are_two = threading.Event()

    def note(row: Untyped) -> int:
        threads.add(threading.get_ident())
        if len(threads) > 1:
            are_two.set()
        are_two.wait(60)  # the first thread waits for another one
        return int(row["number"])

    whole: set[int] = set()

    def note_batch(batch: Untyped) -> Untyped:
        whole.add(threading.get_ident())
        return batch

    out = {"n": fr.FixedLen((), "int64")}
    options = {"transform": fr.per_row(note, out=out), "transform_threads": 3}
    for batch in ds.loader(32, **options):
        assert len(batch["n"]) == 32
    assert 2 <= len(threads) <= 3
    assert len(list(ds.loader(4, transform=note_batch))) == 16
    assert len(whole) == 1  # a transform of batches is called by one thread


def test_tables_have_batches_of_16_mib_of_pixels(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    ds = opened(tmp_path, *[PNG] * 40, shape=(1024, 1024), fit="resize")
    sizes = [len(batch) for batch in fr.arrow.RecordBatchReader(ds)]
    assert sum(sizes) == 40
    assert max(sizes) == 5  # of 3 MiB


def test_memory_of_columns_is_recycled_and_never_shared(tmp_path: Path) -> None:
    images = [encoded(PIL.fromarray(smooth(seed=i))) for i in range(12)]
    ds = opened(tmp_path, *images, shape=(HEIGHT, WIDTH))
    kept = [batch["image"] for batch in ds.loader(2)]
    for i, pixels in enumerate(np.concatenate(kept)):
        assert np.array_equal(pixels, smooth(seed=i))
    assert all(array.flags.writeable for array in kept)


# Writing.


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_are_written_without_loss(tmp_path: Path, channels: int) -> None:
    spec = {"image": fr.Image((5, 7), channels=channels, key="x")}
    images = np.random.default_rng(0).integers(0, 256, (9, 5, 7, channels), np.uint8)
    path = tmp_path / "written"
    fr.write(path, {"image": images}, features=spec)
    assert np.array_equal(open_dataset(path, features=spec)[:]["image"], images)
    fr.write(path, [{"image": row} for row in images], features=spec, overwrite=True)
    assert np.array_equal(open_dataset(path, features=spec)[:]["image"], images)


def test_files_are_written_unchanged(tmp_path: Path) -> None:
    spec = {"image": fr.Image((HEIGHT, WIDTH), default=0)}
    path = tmp_path / "written"
    fr.write(path, {"image": [JPEG, None, PNG]}, features=spec)
    rows = [fr.decode_example(record) for record in fr.read_records(path)]
    assert rows[0]["image"].tolist() == [JPEG]
    assert rows[1] == {}
    assert rows[2]["image"].tolist() == [PNG]


def test_pixels_that_are_not_as_in_the_spec_are_refused(tmp_path: Path) -> None:
    spec = {"image": fr.Image((5, 7))}
    for wrong in (np.zeros((2, 5, 7), np.uint8), np.zeros((2, 5, 7, 3), np.float32)):
        with pytest.raises(ValueError, match=r"must be uint8 of shape \(5, 7, 3\)"):
            fr.write(tmp_path / "wrong", {"image": wrong}, features=spec)
    with pytest.raises(ValueError, match="no default"):
        fr.write(tmp_path / "wrong", {"image": [None]}, features=spec)


@pytest.mark.frameworks
def test_torch_shares_the_memory(tmp_path: Path) -> None:
    torch: Untyped = pytest.importorskip("torch")
    ds = opened(tmp_path, *[PNG] * 4, shape=(HEIGHT, WIDTH))
    (batch,) = ds.loader(4)
    tensor = fr.torch.tensors(batch)["image"]
    assert tensor.dtype == torch.uint8
    assert tensor.data_ptr() == batch["image"].ctypes.data
    (adapted,) = fr.torch.loader(ds, batch_size=4)
    assert np.array_equal(adapted["image"].numpy(), batch["image"])


# The spec.


def test_invalid_arguments_are_refused() -> None:
    image: Untyped = fr.Image
    for arguments, options, message in (
        ([(28,)], {}, r"shape must be \(height, width\)"),
        ([(28, 28, 1)], {"channels": 3}, "channels must be 1, as in shape"),
        ([(28, 28, 2)], {}, "channels must be 1, 3 or 4"),
        ([(0, 28)], {}, "size of 0"),
        ([(28, 28)], {"fit": "stretch"}, "fit must be 'exact', 'resize'"),
        ([(28, 28)], {"channels": 2}, "channels must be 1, 3 or 4"),
        ([(28, 28)], {"default": 256}, "default must be"),
        ([(28, 28)], {"key": 5}, "key must be"),
    ):
        with pytest.raises(fr.SchemaError, match=message):
            image(*arguments, **options)


def test_the_repr_is_an_expression() -> None:
    spec = fr.Image((8, 9), fit="resize", channels=1, key="x", default=0)
    assert eval(repr(spec), {"Image": fr.Image}) == spec
    assert repr(fr.Image((8, 9))) == "Image((8, 9))"


def test_schemas_suggest_images(tmp_path: Path) -> None:
    small = encoded(PIL.new("RGB", (7, 5)), "JPEG")
    path = write(tmp_path, JPEG, small)
    text = str(open_dataset(path).schema)
    assert "# JPEG up to 40x24" in text
    assert 'fr.Image((224, 224), fit="resize")' in text
    assert dict(eval(text))["image"] == fr.FixedLen((), "bytes")
    text = str(open_dataset(write(tmp_path, WEBP, WEBP)).schema)
    assert f"# WebP 40x24, {len(WEBP):,} bytes each; fr.Image((24, 40))" in text
    assert "fr.Image" not in str(open_dataset(write(tmp_path, JPEG, b"")).schema)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("jpeg", ""),
        ("jpeg gray", ", channels=1"),
        ("png", ""),
        ("png gray", ", channels=1"),
        ("png bits", ", channels=1"),
        ("png palette", ""),
        ("png alpha", ", channels=4"),
        ("png gray alpha", ", channels=4"),
        ("webp lossy", ""),
        ("webp alpha", ", channels=4"),
    ],
)
def test_suggested_images_have_all_channels(
    tmp_path: Path, kind: str, options: str
) -> None:
    spec = f"fr.Image((24, 40){options})"
    assert str(open_dataset(write(tmp_path, KINDS[kind])).schema).count(spec) == 1
    both = str(open_dataset(write(tmp_path, KINDS[kind], PNG)).schema)
    assert f"fr.Image((24, 40){options.replace(', channels=1', '')})" in both


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_suggested_images_keep_16_bits(tmp_path: Path, channels: int) -> None:
    levels = np.arange(40 * 60 * channels, dtype=np.uint16).reshape(40, 60, channels)
    data = cv2.imencode(".png", levels * 5)[1].tobytes()
    path = write(tmp_path, data)
    found = str(fr.open(path).schema).partition("each; ")[2].partition("\n")[0]
    of = "" if channels == 3 else f", channels={channels}"
    assert found == f'fr.Image((40, 60){of}, dtype="uint16")'
    pixels: Untyped = fr.open(path, features={"image": eval(found)})[0]["image"]
    assert len(np.unique(pixels)) == levels.size
    mixed = str(fr.open(write(tmp_path, data, encoded(PIL.new("L", (60, 40))))).schema)
    assert f"fr.Image((40, 60){of})" in mixed


def test_lists_of_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "lists.tfrecord"
    with fr.Writer(path) as writer:
        for n in (2, 2, 1):
            writer.write({"image": [PNG] * n})
    spec = "fr.List(fr.Image((24, 40)))"
    assert str(fr.open(path).schema).count(spec) == 1
    ds = open_dataset(path, features={"image": fr.Image((HEIGHT, WIDTH))})
    with pytest.raises(fr.SchemaError) as caught:
        ds[0]
    assert f"; {spec} accepts any number" in str(caught.value)
    lists = open_dataset(path, features={"image": eval(spec)})[:]["image"]
    assert lists.lengths.tolist() == [2, 2, 1]


def test_other_files_are_named() -> None:
    for kind, looks in (
        ("BMP", "a BMP file"),
        ("TIFF", "a TIFF file"),
        ("GIF", "a GIF file"),
        ("PNG", "an image in base64"),
        ("JPEG", "an image in base64"),
        ("WEBP", "an image in base64"),
    ):
        data = encoded(PICTURE, kind)
        data = base64.b64encode(data) if "base64" in looks else data
        with pytest.raises(fr.SchemaError, match=f"PNG or WebP image, got {looks}"):
            decoded(data, (HEIGHT, WIDTH))


def test_sizes_in_headers_are_those_of_pillow() -> None:
    for data in KINDS.values():
        assert _core.image_size(data) == PIL.open(BytesIO(data)).size


def test_a_missing_or_old_opencv_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = opened(tmp_path, PNG, shape=(HEIGHT, WIDTH))
    monkeypatch.setattr(cv2, "__version__", "4.10.0")
    with pytest.raises(ImportError, match=r"OpenCV 4\.11, got 4\.10\.0"):
        ds[0]
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"OpenCV.*pip install .*\[image\]"):
        ds[0]


PHOTOGRAPHS = ("china.jpg", "flower.jpg")
SIZES = [(427, 640), (600, 700), (400, 500), (300, 400), (224, 224), (214, 320)]
SIZES += [(128, 128), (96, 160), (64, 64), (16, 20)]


@pytest.mark.oracle
@pytest.mark.parametrize("name", PHOTOGRAPHS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_photographs_are_resized_as_by_tensorflow_and_pillow(
    name: str, size: tuple[int, int]
) -> None:
    tf: Untyped = pytest.importorskip("tensorflow")
    datasets: Untyped = pytest.importorskip("sklearn.datasets")
    data = (Path(datasets.__file__).parent / "images" / name).read_bytes()
    whole = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE")
    for antialias in (True, False):
        expected = tf.image.resize(whole, size, antialias=antialias).numpy()
        differences = abs(
            decoded(data, size, fit="resize", antialias=antialias) - expected
        )
        assert differences.max() <= (2 if antialias else 1.5)
        assert differences.mean() < 0.5
    image = PIL.open(BytesIO(data)).resize(size[::-1], PIL.Resampling.BILINEAR)
    assert abs(decoded(data, size, fit="resize") - np.asarray(image, float)).max() <= 2


@pytest.mark.oracle
@kinds
def test_pixels_are_those_of_tensorflow(data: bytes) -> None:
    tf: Untyped = pytest.importorskip("tensorflow")
    if data[:4] == b"RIFF":
        pytest.skip("decode_webp of TensorFlow reads no alpha and no animation")
    if data[0] == 0xFF:
        expected = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    else:
        expected = tf.io.decode_png(data, channels=3)
    assert np.array_equal(decoded(data, (HEIGHT, WIDTH)), expected.numpy())
    resized = tf.image.resize(expected, (20, 30)).numpy()
    assert_near(decoded(data, (20, 30), fit="resize", antialias=False), resized)


@pytest.mark.oracle
@pytest.mark.parametrize("data", [WEBP, LOSSY], ids=["lossless", "lossy"])
def test_webp_pixels_are_those_of_tensorflow(data: bytes) -> None:
    tf: Untyped = pytest.importorskip("tensorflow")
    expected = tf.io.decode_webp(data, channels=3).numpy()[0]
    assert np.array_equal(decoded(data, (HEIGHT, WIDTH)), expected)


# Other dtypes.


WIDE = {
    "uint16": ((3, 4), 1, "uint16"),
    "uint16 color": ((3, 4), 3, "uint16"),
    "uint16 alpha": ((3, 4), 4, "uint16"),
    "float32": ((3, 4), 1, "float32"),
}


def wide(shape: tuple[int, int], channels: int, dtype: str) -> Untyped:
    rng = np.random.default_rng(0)
    if dtype == "float32":
        values = rng.standard_normal((5, *shape, 1)).astype(dtype)
        values[0, 0, 0] = np.nan
        return values
    return rng.integers(0, 2**16, (5, *shape, channels), np.uint16)


@pytest.mark.parametrize(("shape", "channels", "dtype"), WIDE.values(), ids=WIDE)
def test_other_dtypes_are_read_as_written(
    tmp_path: Path, shape: tuple[int, int], channels: int, dtype: Untyped
) -> None:
    values = wide(shape, channels, dtype)
    features = {"image": fr.Image(shape, channels=channels, dtype=dtype)}
    path = tmp_path / "images.tfrecord"
    fr.write(path, {"image": values}, features=features)
    (batch,) = open_dataset(path, features=features).loader(5)
    assert batch["image"].dtype == dtype
    assert np.array_equal(batch["image"], values, equal_nan=dtype == "float32")
    (data,) = fr.open(path, features={"image": "bytes"})[:1]["image"]
    if channels == 1 and dtype == "uint16":
        pixels = np.asarray(PIL.open(BytesIO(data)))
        assert np.array_equal(pixels, values[0, ..., 0])
    with pytest.raises(fr.SchemaError, match="feature 'image' must be an intact image"):
        fr.parse_example([fr.encode_example({"image": data[:-20]})], features)


def test_images_of_another_kind_than_the_dtype() -> None:
    record = fr.encode_example({"image": PNG})
    for dtype, channels, message in (
        ("uint16", 3, "image of 3 channels of 16 bits, got 3 channels of 8 bits"),
        ("uint16", 1, "image of 1 channels of 16 bits, got 3 channels of 8 bits"),
        ("float32", 1, "image of 4 channels of 8 bits, got 3 channels of 8 bits"),
    ):
        kind: Untyped = dtype
        spec = fr.Image((HEIGHT, WIDTH), channels=channels, dtype=kind)
        with pytest.raises(fr.SchemaError, match=message):
            fr.parse_example([record], {"image": spec})
    untyped: Untyped = fr.Image
    for options, message in (
        ({"dtype": "int8"}, "dtype must be 'uint8', 'uint16' or 'float32', got 'int8'"),
        ({"dtype": "uint16", "fit": "resize"}, 'fit must be "exact" for dtype'),
        ({"dtype": "float32"}, "channels must be 1 for dtype 'float32', got 3"),
    ):
        with pytest.raises(fr.SchemaError, match=message):
            untyped((2, 2), **options)
