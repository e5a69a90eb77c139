"""Train a TensorFlow model with fastrec instead of TFRecordDataset and parsing.

usage: python examples/train_tf.py [TRAIN TEST]

TRAIN and TEST are TFRecord files, by default those of examples/fashion_mnist.py.
"""

from __future__ import annotations

import sys
import time

import tensorflow as tf

import fashion_mnist
import fastrec as fr

N_EPOCHS = 2
BATCH_SIZE = 256
SPEC = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}


def main(train: str, test: str) -> None:
    """Train a linear model on some files, and test it on others."""
    training = fr.tf.dataset(
        fr.open(train, features=SPEC),
        batch_size=BATCH_SIZE,
        shuffle=True,
        label_key="label",
    ).prefetch(2)
    testing = fr.tf.dataset(
        fr.open(test, features=SPEC), batch_size=BATCH_SIZE, label_key="label"
    )

    weights = tf.Variable(tf.zeros((28 * 28, 10)))
    bias = tf.Variable(tf.zeros(10))

    def logits_of(images: tf.Tensor) -> tf.Tensor:
        pixels = tf.cast(tf.reshape(images, (-1, 28 * 28)), tf.float32) / 255
        return pixels @ weights + bias

    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, logits_of(images)
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, (weights, bias))
        for variable, gradient in zip((weights, bias), gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    train_step = tf.function(step, reduce_retracing=True)
    for epoch in range(1, N_EPOCHS + 1):  # each epoch is a new shuffle
        start = time.perf_counter()
        losses = [train_step(images, labels) for images, labels in training]
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {tf.reduce_mean(losses):.3f}, {seconds:.2f} s")

    right = [tf.argmax(logits_of(images), 1) == labels for images, labels in testing]
    accuracy = tf.reduce_mean(tf.cast(tf.concat(right, 0), tf.float32))
    print(f"accuracy on the test records: {accuracy:.1%}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or fashion_mnist.files()))
