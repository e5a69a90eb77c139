"""A stand-in for Fashion-MNIST: grey pictures of ten kinds of garments.

Each kind has an outline. A picture is its outline, mixed with some of another kind,
moved by up to two pixels, in a random brightness, with folds and with noise. So the
kinds overlap: a linear classifier gets about 85 % of them right.

Pictures are a function of (seed, number of the picture's block) alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["KINDS", "SIDE", "pictures"]

SIDE = 28  # pixels in each direction
MAX_SHIFT = 2  # pixels
MAX_MIX = 0.55  # share of another kind
FOLDS = 0.35  # of the brightness
NOISE = 0.1  # of full brightness
BLOCK = 5_000  # pictures made at once

Outline = list[tuple[float, float]]  # corners (x, y) in pixels, y downwards


def _mirrored(right: Outline) -> Outline:
    """Close the right half of an outline, given from the centre line, by its mirror."""
    half = SIDE / 2
    left = [(half - x, y) for x, y in reversed(right)]
    return [(half + x, y) for x, y in right] + left


_OUTLINES: dict[str, list[Outline]] = {
    "T-shirt": [
        _mirrored([(2, 4), (5, 3), (12, 9), (9.5, 13), (6.5, 10.5), (6.5, 25)]),
    ],
    "trouser": [
        _mirrored([(5, 2), (6.5, 26), (2.5, 26), (0.4, 9)]),
    ],
    "pullover": [
        _mirrored([(2, 4), (5, 3), (9, 7), (12, 23), (9.5, 25), (6.5, 12), (6.5, 25)]),
    ],
    "dress": [
        _mirrored([(2, 3), (3.5, 2), (4.5, 7), (3, 11), (8, 26)]),
    ],
    "coat": [
        _mirrored(
            [(2, 3), (5, 2), (12, 23), (9.5, 25), (7, 12), (8, 27), (0.6, 27), (0.6, 5)]
        ),
    ],
    "sandal": [
        [(2, 21), (9, 20), (17, 23), (26, 22), (26, 24), (16, 25), (2, 24)],
        [(3, 21), (7, 13), (9, 13), (6, 21)],
        [(14, 22), (18, 14), (21, 14), (24, 22), (22, 22), (19, 16), (16, 22)],
    ],
    "shirt": [
        _mirrored(
            [(0, 7), (3, 3), (5, 3), (9, 7), (12, 22), (9, 23), (6.5, 12), (6.5, 26)]
        ),
    ],
    "sneaker": [
        [(2, 15), (6, 14), (9, 17), (14, 13), (18, 17), (26, 20), (26, 24), (2, 24)],
    ],
    "bag": [
        [(3, 11), (25, 11), (26, 25), (2, 25)],
        [(8, 11), (10, 4), (18, 4), (20, 11), (18, 11), (16.5, 6), (11.5, 6), (10, 11)],
    ],
    "ankle boot": [
        [(4, 4), (13, 4), (14, 14), (25, 19), (26, 24), (9, 24), (8, 23), (4, 25)],
    ],
}
KINDS = tuple(_OUTLINES)  # the name of each label


def _filled(outline: Outline) -> NDArray[np.float32]:
    """Rasterize a closed outline: 1 inside, 0 outside, by the even-odd rule."""
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    inside = np.zeros((SIDE, SIDE), np.bool_)
    for (x0, y0), (x1, y1) in pairwise([*outline, outline[0]]):
        if y0 != y1:
            crossing = x0 + (x1 - x0) * (y - y0) / (y1 - y0)
            inside ^= ((y0 > y) != (y1 > y)) & (x < crossing)
    return inside.astype(np.float32)


def _softened(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Blur by the kernel (1, 2, 1) / 4 along both axes."""
    for axis in (0, 1):
        around = np.roll(picture, 1, axis) + np.roll(picture, -1, axis)
        picture = (around + picture + picture) / np.float32(4)
    return picture


def _prototypes() -> NDArray[np.float32]:
    """One picture of each kind, shape ``(kinds, SIDE, SIDE)``, values 0 to 1."""
    return np.stack(
        [
            _softened(np.max([_filled(part) for part in parts], axis=0))
            for parts in _OUTLINES.values()
        ]
    )


def _shifts(prototypes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every kind at every shift, shape ``(kinds, shifts, SIDE * SIDE)``."""
    steps = range(-MAX_SHIFT, MAX_SHIFT + 1)
    moved = [np.roll(prototypes, (dy, dx), (1, 2)) for dy in steps for dx in steps]
    return np.stack(moved, axis=1).reshape(len(KINDS), len(moved), -1)


def _folds() -> NDArray[np.float32]:
    """Six smooth waves over the picture, shape ``(6, SIDE * SIDE)``."""
    y, x = np.mgrid[:SIDE, :SIDE] * (2 * np.pi / SIDE)
    waves = [np.sin(x), np.cos(x), np.sin(2 * y), np.cos(2 * y), np.sin(x + y)]
    waves.append(np.cos(x - 2 * y))
    return np.stack(waves).reshape(len(waves), -1).astype(np.float32)


def pictures(
    count: int, seed: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Make pictures of garments, of random kinds in random order, block by block.

    Parameters
    ----------
    count : int
        Pictures in all.
    seed : int
        Another seed makes other pictures of the same kinds.

    Yields
    ------
    pictures : ndarray of uint8
        Shape ``(block, SIDE, SIDE)``.
    labels : ndarray of int64
        Shape ``(block,)``: indices of `KINDS`.
    """
    shifted, folds = _shifts(_prototypes()), _folds()
    n_kinds, n_shifts, _ = shifted.shape
    for number, start in enumerate(range(0, count, BLOCK)):
        rng = np.random.default_rng([seed, number])
        n = min(BLOCK, count - start)
        labels = rng.integers(n_kinds, size=n)
        others = (labels + rng.integers(1, n_kinds, size=n)) % n_kinds
        shift = rng.integers(n_shifts, size=n)
        mix = rng.uniform(0, MAX_MIX, (n, 1)).astype(np.float32)
        cloth = shifted[labels, shift] * (1 - mix) + shifted[others, shift] * mix

        strength = rng.standard_normal((n, len(folds)), np.float32)
        waves = np.einsum("pf,fx->px", strength, folds)  # no BLAS, no threads
        cloth *= rng.uniform(0.5, 1, (n, 1)).astype(np.float32)
        cloth *= 1 + FOLDS / np.sqrt(np.float32(len(folds))) * waves
        cloth += NOISE * rng.standard_normal(cloth.shape, np.float32)
        grey = (np.clip(cloth, 0, 1) * 255).astype(np.uint8)
        yield grey.reshape(n, SIDE, SIDE), labels
