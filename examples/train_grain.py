"""Train a classifier of garments in plain JAX, with a Grain pipeline.

usage: python examples/train_grain.py [TRAIN TEST]

TRAIN and TEST are TFRecord files, by default those of examples/fashion_mnist.py. fastrec is
the source of the records, which Grain shuffles and batches. See examples/train_jax.py for
the same without Grain: fastrec then shuffles and batches.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import grain
import jax
import jax.numpy as jnp

import fashion_mnist
import fastrec as fr

FEATURES = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}
N_EPOCHS = 2
BATCH_SIZE = 256
LEARNING_RATE = 0.1


def main(train: str, test: str) -> None:
    """Train on the records of `train`, and test on those of `test`."""
    records = grain.MapDataset.source(
        fr.grain.DataSource(fr.open(train, features=FEATURES))
    )
    step = jax.jit(update)
    params = {"weights": jnp.zeros((28 * 28, 10)), "bias": jnp.zeros(10)}
    for epoch in range(1, N_EPOCHS + 1):
        start = time.perf_counter()
        losses = []
        batches = records.shuffle(seed=epoch).batch(BATCH_SIZE, drop_remainder=True)
        for batch in batches.to_iter_dataset():  # reads ahead in threads
            params, loss = step(params, batch)
            losses.append(loss)
        mean = jnp.mean(jnp.array(losses))  # waits for all of them
        print(f"epoch {epoch}: loss {mean:.3f}, {time.perf_counter() - start:.2f} s")

    source = fr.grain.DataSource(fr.open(test, features=FEATURES))
    n_right = sum(
        int(jnp.sum(logits_of(params, batch["image"]).argmax(1) == batch["label"]))
        for batch in grain.MapDataset.source(source).batch(BATCH_SIZE).to_iter_dataset()
    )
    print(f"accuracy on the test records: {n_right / len(source):.1%}")


def logits_of(params: dict[str, Any], images: jax.Array) -> jax.Array:
    """Return one score for each class: shape ``(batch, 10)``."""
    return images.reshape(-1, 28 * 28) / 255 @ params["weights"] + params["bias"]


def loss_of(params: dict[str, Any], batch: dict[str, Any]) -> jax.Array:
    """Return the mean cross entropy of a batch."""
    log_p = jax.nn.log_softmax(logits_of(params, batch["image"]))
    return -jnp.mean(log_p[jnp.arange(len(log_p)), batch["label"]])


def update(
    params: dict[str, Any], batch: dict[str, Any]
) -> tuple[dict[str, Any], jax.Array]:
    """Return the parameters after one step of gradient descent, and the loss."""
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradients), loss


if __name__ == "__main__":
    main(*(sys.argv[1:] or fashion_mnist.files()))
