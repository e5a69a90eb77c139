"""Images: decode image files to pixels, and encode pixels as PNG, with OpenCV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import BytesArray
from fastrec.errors import Error, LimitError, SchemaError
from fastrec.features.image import Image
from fastrec.options import Limits, extra

_MIN_VERSION = [4, 11]
_TEMPORARY_BYTES = 31 << 20  # glibc considers blocks of up to 32 MiB
# The first byte of JPEG and PNG files; the first byte of all JPEG markers is the same.
_JPEG, _PNG, _SCAN = 0xFF, 0x89, 0xDA
_DAMAGED = "must be an intact image, got a truncated or damaged image"
_RGBA = 4  # channels
# Pillow modes by number of channels. RGBX: Pillow would blend RGBA.
_MODES = {1: "L", 3: "RGB", _RGBA: "RGBX"}


def _opencv() -> Any:
    with extra("image", "fr.Image", "cv2"):
        import cv2
    version = cv2.__version__.split(".")
    if [*map(int, version[:2])] < _MIN_VERSION:
        raise ImportError(
            f"fr.Image requires OpenCV 4.11, got {cv2.__version__}, which accepts "
            "truncated images: pip install -U opencv-python-headless",
            name="cv2",
        )
    return cv2


class ImageDecoder:
    """Decodes each image into an array of the shape that its Image spec defines."""

    def __init__(self, limits: Limits, specs: Iterable[Image]) -> None:
        self._cv2 = _opencv()
        if any(spec.antialias and spec.fit != "exact" for spec in specs):
            with extra("image", "fr.Image", "PIL"):
                import PIL.Image
            self._pillow = PIL.Image
        # OpenCV allocates and frees each image. glibc returns such memory to the system
        # every time, which doubles the cost of an image. After it has freed a larger
        # block once, glibc keeps such memory.
        np.empty(_TEMPORARY_BYTES, np.uint8)
        self._max_pixels = limits.max_image_pixels
        self._max_scans = limits.max_image_scans

    def decode(
        self,
        data: npt.NDArray[np.uint8],
        spec: Image,
        rng: np.random.Generator | None,
        row: npt.NDArray[np.uint8],
    ) -> None:
        """Decode `data` into `row`, or raise an Error without a location."""
        if not data.size and spec.default is not None:
            row[...] = spec.default
            return
        rows, columns, channels = row.shape
        width, height = self.checked_size(data)
        if spec.fit == "exact" and (height, width) != spec.shape:
            reason = (
                f"must be an image of height {spec.shape[0]} and width {spec.shape[1]}, "
                f"got {height} and {width}"
            )
            if spec.dtype == "uint8":
                reason += '; fit="resize" or another fit= reads any size'
            raise SchemaError(reason, code="image_shape")
        if spec.dtype != "uint8":
            row[...] = self._wide_pixels(data, spec)
            return
        x, y, wide, high = spec.box(width, height, rng)
        image = self._pixels(data, channels)
        if image.shape[:2] != (height, width):
            raise SchemaError(_DAMAGED, code="image")
        image = image[y : y + high, x : x + wide]
        pixels = row[..., 0] if channels == 1 else row
        if (high, wide) == (rows, columns):
            np.copyto(pixels, image)
        elif spec.antialias and (high > rows or wide > columns):
            np.copyto(pixels, self._antialiased(image, columns, rows, _MODES[channels]))
        else:
            cv2 = self._cv2
            cv2.resize(
                image, (columns, rows), dst=pixels, interpolation=cv2.INTER_LINEAR
            )

    def _antialiased(
        self, image: npt.NDArray[np.uint8], width: int, height: int, mode: str
    ) -> Any:
        """Resize `image`; each new pixel is a weighted mean of source pixels."""
        size, data = (image.shape[1], image.shape[0]), np.ascontiguousarray(image)
        pillow = self._pillow
        whole = pillow.frombuffer(mode, size, data, "raw", mode, 0, 1)
        return np.asarray(whole.resize((width, height), pillow.Resampling.BILINEAR))

    def _wide_pixels(self, data: npt.NDArray[np.uint8], spec: Image) -> Any:
        """Return the uint16 or float32 pixels of a PNG file."""
        is_float = spec.dtype == "float32"
        expected = (*spec.shape, _RGBA if is_float else spec.channels)
        image = self._read(data, self._cv2.IMREAD_UNCHANGED)
        image = image if image.ndim > 2 else image[..., np.newaxis]
        bits = 8 if is_float else 16
        if image.shape != expected or image.dtype.itemsize * 8 != bits:
            raise SchemaError(
                f"must be an image of {expected[2]} channels of {bits} bits, got "
                f"{image.shape[2]} channels of {image.dtype.itemsize * 8} bits",
                code="image",
            )
        if image.shape[2] > 1:
            image = image[..., [2, 1, 0, 3][: image.shape[2]]]  # OpenCV reads BGR(A)
        return np.ascontiguousarray(image).view(np.float32) if is_float else image

    def checked_size(self, data: npt.NDArray[np.uint8]) -> tuple[int, int]:
        """Return an image's width and height; raise an Error if it is not allowed."""
        size = _core.image_size(data)
        if size is None:
            looks = _core.describe_foreign(data) or f"{data.size} bytes"
            reason = f"must be a JPEG, PNG or WebP image, got {looks}"
            raise SchemaError(reason, code="image")
        width, height = size
        if not width or not height:
            raise SchemaError(
                f"must be an image with pixels, got {width} x {height} pixels",
                code="image",
            )
        if width * height > self._max_pixels:
            raise LimitError(
                f"is an image of {width} x {height} pixels, more than "
                f"limits=fastrec.Limits(max_image_pixels={self._max_pixels})",
                code="image_pixels",
            )
        # In compressed pixels, a zero follows each byte 0xff. So this counts the scans,
        # plus at most a few matches in metadata.
        n_scans = np.count_nonzero((data[:-1] == _JPEG) & (data[1:] == _SCAN))
        if data[0] == _JPEG and n_scans > self._max_scans:
            raise LimitError(
                f"is a JPEG file of {n_scans} scans, more than "
                f"limits=fastrec.Limits(max_image_scans={self._max_scans})",
                code="image_scans",
            )
        if data[0] == _PNG and not _has_room(data.tobytes()):
            raise SchemaError(_DAMAGED, code="image")
        return size

    def _read(self, data: npt.NDArray[np.uint8], flags: int) -> Any:
        try:
            image = self._cv2.imdecode(data, flags)
        except self._cv2.error:  # a size that OpenCV refuses
            image = None
        if image is None:
            raise SchemaError(_DAMAGED, code="image")
        return image

    def _pixels(self, data: npt.NDArray[np.uint8], channels: int) -> Any:
        """Decode `data` to gray, RGB or RGBA pixels, depending on `channels`."""
        cv2 = self._cv2
        if channels != _RGBA:
            # Not cvtColor, whose threads would compete with those of the loader.
            color = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR_RGB
            return self._read(data, cv2.IMREAD_IGNORE_ORIENTATION | color)
        image = self._read(data, cv2.IMREAD_UNCHANGED)
        if image.dtype == np.uint16:
            image = (image >> 8).astype(np.uint8)
        if image.ndim == 2:
            return cv2.cvtColor(image, cv2.COLOR_GRAY2RGBA)
        is_opaque = image.shape[2] != _RGBA
        order = cv2.COLOR_BGR2RGBA if is_opaque else cv2.COLOR_BGRA2RGBA
        return cv2.cvtColor(image, order)


def decode_image(
    data: bytes | bytearray | memoryview | npt.NDArray[np.uint8],
    image: Image | None = None,
    *,
    channels: Literal[1, 3, 4] | None = None,
    rng: np.random.Generator | None = None,
    limits: Limits | None = None,
) -> npt.NDArray[Any]:
    """Decode one JPEG, PNG or WebP file that is in memory.

    Parameters
    ----------
    data : bytes-like
        The file.
    image : Image, optional
        The shape, fit and dtype of the result. By default the size of the image is kept.
    channels : {3, 1, 4}, optional
        RGB, grayscale or RGBA; only without `image`, by default 3.
    rng : Generator, optional
        Draws the crop; required if `image` is cropped at random.
    limits : Limits, optional
        The maximum pixels and scans; by default ``Limits()``.

    Returns
    -------
    ndarray of shape ``(height, width, channels)``
        The pixels, uint8 unless `image` has another dtype; see `Image`.

    Raises
    ------
    SchemaError
        If `data` is not an intact image, or not of the size of `image`.
    LimitError
        If the image exceeds `limits`.
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> import fastrec as fr
    >>> frame = fr.decode_image(ds[0]["frames"][3])  # doctest: +SKIP
    >>> small = fr.Image((224, 224), fit="center_crop")
    >>> frame = fr.decode_image(ds[0]["frames"][3], small)  # doctest: +SKIP
    """
    given: object = image
    if given is not None and not isinstance(given, Image):
        raise TypeError(f"image must be an fr.Image, got {given!r}")
    if image is not None and channels is not None:
        raise ValueError("pass either image= or channels=; an fr.Image has channels")
    if image is not None and image.is_random and rng is None:
        raise ValueError(f"fit={image.fit!r} requires rng=")
    file = np.frombuffer(data, np.uint8)
    decoder = ImageDecoder(limits or Limits(), [] if image is None else [image])
    try:
        if image is None:
            width, height = decoder.checked_size(file)
            image = Image((height, width), channels=channels)
        row = np.empty(image.row_shape, image.dtype)
        decoder.decode(file, image, rng, row)
    except Error as error:
        raise type(error)(f"data {error.reason}", code=error.code) from None
    return row


def _has_room(file: bytes) -> bool:
    """Return whether a PNG file is as long as its chunks declare.

    OpenCV allocates memory for the declared lengths. The layout of a file is::

        | signature: 8 | length: 4 | type: 4 | data | checksum: 4 | length: 4 | ...
    """
    at = 8
    while at + 12 <= len(file) and file[at + 4 : at + 8] != b"IEND":
        at += 12 + int.from_bytes(file[at : at + 4], "big")
    return at + 12 <= len(file)


def encoded_images(rows: npt.NDArray[Any], spec: Image) -> BytesArray:
    """Encode the pixels of each row as a PNG file, which is lossless."""
    if rows.shape[1:] != spec.row_shape or rows.dtype != spec.dtype:
        raise ValueError(
            f"rows must be {spec.dtype} of shape {spec.row_shape}, as in {spec!r}, got "
            f"{rows.dtype} of shape {rows.shape[1:]}"
        )
    if spec.dtype == "float32":
        rows = np.ascontiguousarray(rows).view(np.uint8)
    cv2 = _opencv()
    orders = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    files = []
    for row in rows:
        n_channels = row.shape[2]
        image = cv2.cvtColor(row, orders[n_channels]) if n_channels > 1 else row
        _, file = cv2.imencode(".png", image)
        files.append(file.tobytes())
    return BytesArray.from_list(files)
