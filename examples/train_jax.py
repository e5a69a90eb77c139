"""Train a classifier of garments in plain JAX.

usage: python examples/train_jax.py [TRAIN TEST]

TRAIN and TEST are TFRecord files, by default those of examples/fashion_mnist.py. The rows of
every batch are divided over all devices that JAX finds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fashion_mnist
import fastrec as fr

FEATURES = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}
N_EPOCHS = 2
BATCH_SIZE = 256
LEARNING_RATE = 0.1


def main(train: str, test: str) -> None:
    """Train on the records of `train`, and test on those of `test`."""
    by_row = NamedSharding(
        Mesh(np.array(jax.devices()), "batch"), PartitionSpec("batch")
    )
    loader = fr.jax.loader(
        fr.open(train, features=FEATURES),
        batch_size=BATCH_SIZE,
        sharding=by_row,
        shuffle=True,
        drop_last=True,
    )
    step = jax.jit(update)
    params = {"weights": jnp.zeros((28 * 28, 10)), "bias": jnp.zeros(10)}
    for epoch in range(1, N_EPOCHS + 1):
        start = time.perf_counter()
        losses = []
        for batch in loader:
            params, loss = step(params, batch)
            losses.append(loss)
        mean = jnp.mean(jnp.array(losses))  # waits for all of them
        print(f"epoch {epoch}: loss {mean:.3f}, {time.perf_counter() - start:.2f} s")

    # The last batch is filled with padding rows, which are not counted.
    records = fr.open(test, features=FEATURES)
    batches = fr.jax.loader(
        records, batch_size=BATCH_SIZE, sharding=by_row, pad_last=True
    )
    count = jax.jit(count_right)
    n_right = sum(int(count(params, batch)) for batch in batches)
    print(f"accuracy on the test records: {n_right / len(records):.1%}")


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


def count_right(params: dict[str, Any], batch: dict[str, Any]) -> jax.Array:
    """Return the number of records of a batch that are classified correctly."""
    is_right = logits_of(params, batch["image"]).argmax(1) == batch["label"]
    return jnp.sum(is_right & batch["__valid__"])


if __name__ == "__main__":
    main(*(sys.argv[1:] or fashion_mnist.files()))
