"""Softmax regression in NumPy: the smallest classifier that learns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Softmax"]

# Rows that are multiplied at once. So few, that BLAS does it without threads: where the
# cores are busy, waiting for each other would take them many times as long.
ROWS = 32


class Softmax:
    """A linear classifier of grey pictures, trained by gradient descent with momentum.

    Parameters
    ----------
    n_pixels, n_kinds : int
        Inputs and outputs.
    rate, momentum : float
        Step size, and how much of the last step goes into the next.
    """

    def __init__(
        self, n_pixels: int, n_kinds: int, *, rate: float = 0.05, momentum: float = 0.9
    ) -> None:
        self.weights = np.zeros((n_pixels + 1, n_kinds), np.float32)  # last row: bias
        self._step = np.zeros_like(self.weights)
        self._rate = rate
        self._momentum = momentum

    def train(self, pictures: NDArray[np.uint8], labels: NDArray[Any]) -> float:
        """Take one step on a batch; return the mean loss before it.

        Parameters
        ----------
        pictures : ndarray of uint8
            Shape ``(batch, n_pixels)``.
        labels : ndarray of int
            Shape ``(batch,)``.
        """
        inputs, rows = _inputs(pictures), np.arange(len(labels))
        scores = (inputs @ self.weights).reshape(-1, self.weights.shape[1])
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log(chances[rows, labels] + 1e-9).mean()

        chances[rows, labels] -= 1
        # Rows behind the batch have inputs of 0, so their chances add nothing.
        chances = chances.reshape(*inputs.shape[:2], -1)
        gradient = (inputs.swapaxes(1, 2) @ chances).sum(axis=0) / len(labels)
        self._step = self._momentum * self._step - self._rate * gradient
        self.weights += self._step
        return float(loss)

    def predict(self, pictures: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the most likely label of each picture."""
        scores = _inputs(pictures) @ self.weights
        best: NDArray[np.intp] = scores.argmax(axis=2).ravel()
        return best[: len(pictures)]


def _inputs(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale pixels to 0..1 and append the constant input of the bias.

    Shape ``(blocks, ROWS, n_pixels + 1)``; the rows behind the last picture are 0.
    """
    n_rows, n_pixels = pictures.shape
    inputs = np.zeros((-(-n_rows // ROWS), ROWS, n_pixels + 1), np.float32)
    rows = inputs.reshape(-1, n_pixels + 1)[:n_rows]
    np.multiply(pictures, np.float32(1 / 255), out=rows[:, :-1])
    rows[:, -1] = 1
    return inputs
