"""Image and List: specs of byte strings that Python, not the C++ core, decodes."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    Spec,
    checked_choice,
    checked_count,
    checked_item,
    checked_key,
)
from fastrec.features.fixed import Raw
from fastrec.features.tensor import SerializedTensor
from fastrec.options import true_or_false

Fit: TypeAlias = Literal[
    "exact", "resize", "center_crop", "random_crop", "random_resized_crop"
]

# Default parameters of torchvision's RandomResizedCrop.
_SCALE = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_MAX_TRIES = 10


@dataclass(frozen=True, init=False, repr=False)
class Image(Spec):
    """A JPEG, PNG or WebP image stored as a byte string.

    The column is an ndarray of `dtype` and shape ``(batch, height, width, channels)``.
    A loader's `transform_threads` decode the images before transforms run. Decoding
    requires OpenCV: ``pip install "fastrec-io[image]"``.

    Parameters
    ----------
    shape : tuple of int
        Height and width in pixels, or height, width and channels.
    fit : str, default "exact"
        How images of other sizes are converted to `shape`:

        =========================  =====================================================
        ``"exact"``                no conversion; another size is an error
        ``"resize"``               scaling, which may change the aspect ratio
        ``"center_crop"``          largest centered crop in the aspect ratio of `shape`
        ``"random_crop"``          like ``"center_crop"``, at a random position
        ``"random_resized_crop"``  random crop, scaled: 8 % to 100 % of the area and an
                                   aspect ratio of 3/4 to 4/3, like the default of
                                   torchvision's RandomResizedCrop
        =========================  =====================================================

        Images are cropped first, then scaled. Scaling is bilinear.
    per : {"window", "image"}, default "window"
        Which images have the same random crop: all images of a row, such as the frames
        of an episode or window, or only one. Columns share the crops in both cases.
    antialias : bool, default True
        Whether an output pixel averages all input pixels that it covers. Values differ
        by at most 2 from Pillow, torchvision and ``tf.image.resize(antialias=True)``.
        False interpolates between four input pixels, which is faster but ignores other
        pixels. Values differ by at most 1 from the default of ``tf.image.resize``.
    channels : {3, 1, 4}, default 3
        RGB, grayscale or RGBA, as an alternative to a third size in `shape`. Other
        images are converted as in TensorFlow: alpha is dropped or becomes opaque.
    key : str or bytes, optional
        The feature's name, if it differs from the column name.
    default : int, optional
        The value of all pixels, 0 to 255, for records that lack the feature or have an
        empty byte string. In feature lists, only for empty byte strings.
    dtype : {"uint8", "uint16", "float32"}, default "uint8"
        ``"uint16"`` reads 16-bit PNG files with `channels` channels. ``"float32"``
        reads the float32 images of TFDS, which are PNG files whose four channels are
        the bytes of one number. Both require ``fit="exact"``.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record does not have exactly one
        byte string, or if the image is unreadable, truncated, damaged or of the wrong
        size. ``on_error`` applies to such a record.
    LimitError
        When reading, if an image has more pixels than ``Limits(max_image_pixels=...)``.

    Notes
    -----
    Pixels equal the results of ``tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")``,
    ``decode_png`` and ``decode_webp``. As in TensorFlow, the EXIF orientation is
    ignored. Only the first frame of an animation is read.

    Random crops depend only on the seed, the epoch, the row's position and, with
    ``per="image"``, the image's number in the row, so a resumed loader repeats them. All
    columns of a row draw the same random numbers: images of equal size, such as a photo
    and its mask, have the same crop.

    In ``sequence_features=``, each step is an image. The column is a `RaggedArray` of
    ``batch`` rows, whose ``values`` have shape ``(n_steps, height, width, channels)``.

    Examples
    --------
    >>> Image((224, 224), fit="random_resized_crop", key="image/encoded")
    Image((224, 224), fit='random_resized_crop', key='image/encoded')
    """

    shape: tuple[int, int]
    fit: Fit
    per: Literal["window", "image"]
    antialias: bool
    channels: int
    default: int | None
    dtype: str
    _n_positional = 1

    def __init__(
        self,
        shape: Sequence[int],
        *,
        fit: Fit = "exact",
        per: Literal["window", "image"] = "window",
        antialias: bool = True,
        channels: int | None = None,
        key: str | bytes | None = None,
        default: int | None = None,
        dtype: Literal["uint8", "uint16", "float32"] = "uint8",
    ) -> None:
        checked = checked_item(shape)
        if len(checked) not in (2, 3):
            raise SchemaError(
                f"shape must be (height, width) or (height, width, channels), got {checked}"
            )
        if channels is None:
            channels = checked[2] if len(checked) == 3 else 3
        elif len(checked) == 3 and channels != checked[2]:
            raise SchemaError(
                f"channels must be {checked[2]}, as in shape {checked}, got {channels!r}"
            )
        checked_choice("fit", fit, get_args(Fit))
        checked_choice("per", per, ("window", "image"))
        checked_choice("channels", channels, (1, 3, 4))
        checked_choice("dtype", dtype, ("uint8", "uint16", "float32"))
        if default is not None and default not in range(256):
            raise SchemaError(f"default must be None or 0 to 255, got {default!r}")
        if dtype != "uint8" and fit != "exact":
            raise SchemaError(f'fit must be "exact" for dtype {dtype!r}, got {fit!r}')
        if dtype == "float32" and channels != 1:
            raise SchemaError(f"channels must be 1 for dtype 'float32', got {channels}")
        self._set(shape=checked[:2], fit=fit, channels=int(channels), dtype=dtype)
        self._set(per=per, antialias=true_or_false("antialias", antialias))
        self._set(default=None if default is None else int(default))
        self._set(key=checked_key(key))

    def _arguments(self, module: str) -> list[str]:
        return [a for a in super()._arguments(module) if a != "channels=3"]

    def _columns(self, name: str | bytes) -> list[Column]:
        return [self._strings(name)]

    def _row_type(self) -> str:
        return f"{self.dtype}{[*self.row_shape]}"

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """The shape of one row: (height, width, channels)."""
        return (*self.shape, self.channels)

    @property
    def is_random(self) -> bool:
        """Whether `box` draws random numbers to choose the crop."""
        return self.fit.startswith("random")

    def box(
        self, width: int, height: int, rng: np.random.Generator | None
    ) -> tuple[int, int, int, int]:
        """Return the crop rectangle for an image. The crop is then scaled to `shape`.

        Parameters
        ----------
        width, height : int
            The size of the image.
        rng : Generator or None
            Required if `is_random` is True; otherwise unused.

        Returns
        -------
        x, y, width, height : int
            The crop in pixels; (0, 0) is the upper left corner of the image.
        """
        wide, high = width, height
        if self.fit == "random_resized_crop":
            assert rng is not None
            return _random_part(width, height, rng)
        if self.fit in ("center_crop", "random_crop"):
            rows, columns = self.shape
            wide = max(1, min(width, round(height * columns / rows)))
            high = max(1, min(height, round(width * rows / columns)))
        if self.fit == "random_crop":
            assert rng is not None
            return _random_place(width, height, wide, high, rng)
        return (width - wide) // 2, (height - high) // 2, wide, high


def _random_place(
    width: int, height: int, wide: int, high: int, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    y = int(rng.integers(height - high + 1))
    return int(rng.integers(width - wide + 1)), y, wide, high


def _random_part(
    width: int, height: int, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Return a random crop as (x, y, width, height), like RandomResizedCrop."""
    for _ in range(_MAX_TRIES):
        area = width * height * rng.uniform(*_SCALE)
        ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return _random_place(width, height, wide, high, rng)
    wide = min(width, max(1, round(height * _RATIO[1])))
    high = min(height, max(1, round(width / _RATIO[0])))
    return (width - wide) // 2, (height - high) // 2, wide, high


# Specs of one byte string that Python code can decode.
Item: TypeAlias = "Image | Raw | SerializedTensor"


def item_fault(spec: object) -> str:
    """Return why `spec` is not an Item with a shape and a numeric dtype, or ""."""
    if not isinstance(spec, (Image, Raw, SerializedTensor)):
        return f"spec must be an Image, Raw or SerializedTensor, got {spec!r}"
    if isinstance(spec, SerializedTensor) and spec.dtype in (None, "bytes"):
        return (
            "a SerializedTensor in a list must have a shape and a numeric dtype, got "
            f"{spec!r}"
        )
    return ""


@dataclass(frozen=True, repr=False)
class List(Spec):
    """A feature with a list of byte strings, each of them an image or an array.

    The column is a `RaggedArray` of ``batch`` rows, whose ``values`` are the decoded
    items. With `length`, it is an ndarray of shape ``(batch, length, *shape)``. In
    ``sequence_features=``, each step has such a list, and the column is a `RaggedArray`
    of ``batch`` rows, whose ``values`` are the lists of all steps.

    Parameters
    ----------
    spec : Image, Raw or SerializedTensor
        The spec of each byte string. A `SerializedTensor` requires a shape and a
        numeric dtype.
    length : int, optional
        The number of byte strings in every record or step; by default any number.
    key : str or bytes, optional
        The feature's name; by default the key of `spec`, or else the column name.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record or step does not have
        `length` byte strings, or a byte string does not fit `spec`.

    Examples
    --------
    >>> List(Image((64, 64)), key="frames")
    List(Image((64, 64)), key='frames')
    """

    spec: Item
    length: int | None = None
    _n_positional = 1

    def __post_init__(self) -> None:
        if fault := item_fault(self.spec):
            raise SchemaError(fault)
        if self.length is not None:
            self._set(length=checked_count("length", self.length))
        self._set(key=self.spec.key if self.key is None else checked_key(self.key))

    def _columns(self, name: str | bytes) -> list[Column]:
        if self.length is None:
            return [self._strings(name, "ragged")]
        column = self._strings(name)
        has_default = getattr(self.spec, "default", None) is not None
        default = [b""] * self.length if has_default else None
        return [column._replace(shape=(self.length,), default=default)]

    def _windowed(self, length: int | None) -> Spec | None:
        if length is not None:
            return List(self.spec, length, key=self.key)
        item = copy.copy(self.spec)
        item._set(_is_item=True, key=self.key)
        return item

    def _row_type(self) -> str:
        length = "ragged" if self.length is None else self.length
        return f"{self.spec._row_type()} {length}"
