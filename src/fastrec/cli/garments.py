"""Synthetic images like Fashion-MNIST, and a softmax classifier in NumPy.

Each image blends the outlines of two kinds of garment. The image is shifted by up to
two pixels, with random brightness and noise. The kinds overlap, so a linear classifier
has an accuracy of about 80 %.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 28  # pixels in each direction
_BLOCK = 5_000  # images generated at once
_SHIFTS = list(product(range(-2, 3), repeat=2))  # pixels
_MAX_MIX = 0.6  # weight of the second kind
_NOISE = 0.15  # of full brightness
_MOMENTUM = 0.9

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
KINDS = tuple(_OUTLINES)  # label names, by label


def _filled(outline: str) -> NDArray[np.float32]:
    """Return an image of an outline, filled by the even-odd rule."""
    corners = np.array([c.split(",") for c in outline.strip("| ").split()], np.float64)
    if outline.startswith("|"):
        corners = np.concatenate([corners, corners[::-1] * [-1, 1]])
        corners[:, 0] += SIDE / 2
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    inside = np.zeros((SIDE, SIDE), np.bool_)
    for (x0, y0), (x1, y1) in pairwise([*corners.tolist(), corners[0].tolist()]):
        if y0 != y1:
            crossing = x0 + (x1 - x0) * (y - y0) / (y1 - y0)
            inside ^= ((y0 > y) != (y1 > y)) & (x < crossing)
    return inside.astype(np.float32)


def pictures(n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Generate `n` random images, as an array (n, SIDE, SIDE), and their labels."""
    outlines = np.stack([_filled(outline) for outline in _OUTLINES.values()])
    shifted = np.stack([np.roll(outlines, shift, (1, 2)) for shift in _SHIFTS])
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(KINDS), size=n)
    images = np.empty((n, SIDE, SIDE), np.uint8)
    for begin in range(0, n, _BLOCK):
        kinds = labels[begin : begin + _BLOCK]
        shifts = rng.integers(len(_SHIFTS), size=len(kinds))
        others = (kinds + rng.integers(1, len(KINDS), size=len(kinds))) % len(KINDS)
        mix = rng.uniform(0, _MAX_MIX, (len(kinds), 1, 1)).astype(np.float32)
        grey = shifted[shifts, kinds] * (1 - mix) + shifted[shifts, others] * mix
        grey *= rng.uniform(0.5, 1, (len(kinds), 1, 1))
        grey += np.float32(_NOISE) * rng.standard_normal(grey.shape, np.float32)
        images[begin : begin + _BLOCK] = np.clip(grey, 0, 1) * 255
    return images, labels


class Softmax:
    """Linear softmax classifier, trained by gradient descent with momentum."""

    def __init__(self, n_pixels: int, n_kinds: int, *, rate: float = 0.05) -> None:
        self.weights = np.zeros((n_pixels + 1, n_kinds), np.float32)  # last row: bias
        self._step = np.zeros_like(self.weights)
        self._rate = rate

    def train(self, images: NDArray[np.uint8], labels: NDArray[Any]) -> float:
        """Train one step on (n, n_pixels) images; return the loss before the step."""
        inputs, rows = _inputs(images), np.arange(len(labels))
        scores = inputs @ self.weights
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log(chances[rows, labels] + 1e-9).mean()
        chances[rows, labels] -= 1
        gradient = inputs.T @ chances / len(labels)
        self._step = _MOMENTUM * self._step - self._rate * gradient
        self.weights += self._step
        return float(loss)

    def predict(self, images: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the most likely label of each image."""
        best: NDArray[np.intp] = (_inputs(images) @ self.weights).argmax(axis=1)
        return best


def _inputs(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale pixels to 0..1 and append a column of ones for the bias."""
    ones = np.ones((len(images), 1), np.float32)
    return np.hstack([images * np.float32(1 / 255), ones])
