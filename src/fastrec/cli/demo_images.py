"""Synthetic images like Fashion-MNIST: ten kinds of garments in grey.

An image is the outline of its kind, mixed with some of another kind, shifted by up to two
pixels, in random brightness, with folds and noise. The kinds overlap, so a linear
classifier has an accuracy of about 85 %. Images depend only on seed and block.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

SIDE = 28  # pixels in each direction
BLOCK = 5_000  # images generated at once
_MAX_SHIFT = 2  # pixels
_MAX_MIX = 0.55  # share of another kind
_FOLDS = 0.35  # of the brightness
_NOISE = 0.1  # of full brightness

# Corners x,y in pixels, y downwards. "|" marks the right half of a symmetric outline,
# relative to the centre line.
_OUTLINES = {
    "T-shirt": "| 2,4 5,3 12,9 9.5,13 6.5,10.5 6.5,25",
    "trouser": "| 5,2 6.5,26 2.5,26 0.4,9",
    "pullover": "| 2,4 5,3 9,7 12,23 9.5,25 6.5,12 6.5,25",
    "dress": "| 2,3 3.5,2 4.5,7 3,11 8,26",
    "coat": "| 2,3 5,2 12,23 9.5,25 7,12 8,27 0.6,27 0.6,5",
    "sandal": "2,21 4,21 7,13 9,13 7,20 14,22 18,14 21,14 24,22 26,22 26,24 16,25 2,24",
    "shirt": "| 0,7 3,3 5,3 9,7 12,22 9,23 6.5,12 6.5,26",
    "sneaker": "2,15 6,14 9,17 14,13 18,17 26,20 26,24 2,24",
    "bag": "| 1.5,6 4,4 6,11 11,11 12,25 0,25 0,11 4,11",
    "ankle boot": "4,4 13,4 14,14 25,19 26,24 9,24 8,23 4,25",
}
KINDS = tuple(_OUTLINES)  # the name of each label


def _filled(outline: str) -> NDArray[np.float32]:
    """Rasterize an outline by the even-odd rule, and blur it."""
    corners = np.array([c.split(",") for c in outline.strip("| ").split()], np.float64)
    if outline.startswith("|"):
        mirrored = corners[::-1] * [-1, 1]
        corners = np.concatenate([corners, mirrored])
        corners[:, 0] += SIDE / 2
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    inside = np.zeros((SIDE, SIDE), np.bool_)
    for (x0, y0), (x1, y1) in pairwise([*corners.tolist(), corners[0].tolist()]):
        if y0 != y1:
            crossing = x0 + (x1 - x0) * (y - y0) / (y1 - y0)
            inside ^= ((y0 > y) != (y1 > y)) & (x < crossing)
    picture = inside.astype(np.float32)
    for axis in (0, 1):
        around = np.roll(picture, 1, axis) + np.roll(picture, -1, axis)
        picture = (around + 2 * picture) / np.float32(4)
    return picture


def pictures(
    count: int, seed: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield blocks of images of random kinds, and their labels, indices of `KINDS`.

    The shapes are (block, SIDE, SIDE) and (block,).
    """
    outlines = np.stack([_filled(outline) for outline in _OUTLINES.values()])
    moves = list(product(range(-_MAX_SHIFT, _MAX_SHIFT + 1), repeat=2))
    moved = np.stack([np.roll(outlines, move, (1, 2)) for move in moves], axis=1)
    shifted = moved.reshape(len(KINDS), len(moves), SIDE * SIDE)
    y, x = np.mgrid[:SIDE, :SIDE].reshape(2, -1) * np.float32(2 * np.pi / SIDE)
    waves = np.sin(np.stack([x, x + 1.5, 2 * y, 2 * y + 1.5, x + y, x - 2 * y]))
    for number, start in enumerate(range(0, count, BLOCK)):
        rng = np.random.default_rng([seed, number])
        n = min(BLOCK, count - start)
        labels = rng.integers(len(KINDS), size=n)
        others = (labels + rng.integers(1, len(KINDS), size=n)) % len(KINDS)
        shift = rng.integers(len(moves), size=n)
        mix = rng.uniform(0, _MAX_MIX, (n, 1)).astype(np.float32)
        cloth = shifted[labels, shift] * (1 - mix) + shifted[others, shift] * mix
        cloth *= rng.uniform(0.5, 1, (n, 1)).astype(np.float32)
        strength = rng.standard_normal((n, len(waves)), np.float32) / len(waves) ** 0.5
        folds = np.einsum("pf,fx->px", strength, waves)  # BLAS results vary
        cloth *= 1 + np.float32(_FOLDS) * folds
        cloth += np.float32(_NOISE) * rng.standard_normal(cloth.shape, np.float32)
        grey = (np.clip(cloth, 0, 1) * 255).astype(np.uint8)
        yield grey.reshape(n, SIDE, SIDE), labels
