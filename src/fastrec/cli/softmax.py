"""Softmax regression in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOMENTUM = 0.9


class Softmax:
    """A linear classifier of grey images, trained by gradient descent with momentum."""

    def __init__(self, n_pixels: int, n_kinds: int, *, rate: float = 0.05) -> None:
        self.weights = np.zeros((n_pixels + 1, n_kinds), np.float32)  # last row: bias
        self._step = np.zeros_like(self.weights)
        self._rate = rate

    def train(self, pictures: NDArray[np.uint8], labels: NDArray[Any]) -> float:
        """Train on a batch of shape (n, n_pixels); return its mean loss before the step."""
        inputs, rows = _inputs(pictures), np.arange(len(labels))
        scores = inputs @ self.weights
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log(chances[rows, labels] + 1e-9).mean()
        chances[rows, labels] -= 1
        gradient = inputs.T @ chances / len(labels)
        self._step = _MOMENTUM * self._step - self._rate * gradient
        self.weights += self._step
        return float(loss)

    def predict(self, pictures: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the most likely label of each image."""
        best: NDArray[np.intp] = (_inputs(pictures) @ self.weights).argmax(axis=1)
        return best


def _inputs(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale pixels to 0..1 and append the constant input of the bias."""
    inputs = np.ones((len(pictures), pictures.shape[1] + 1), np.float32)
    np.multiply(pictures, np.float32(1 / 255), out=inputs[:, :-1])
    return inputs
