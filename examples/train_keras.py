"""Train a Keras model on TFRecord files, with any backend.

usage: python examples/train_keras.py [TRAIN] [TEST]

TRAIN and TEST are the files that examples/fashion_mnist.py writes. The environment
variable KERAS_BACKEND names the backend: torch, jax or tensorflow.
"""

from __future__ import annotations

import sys
import time

import keras

import fastrec as fr

N_EPOCHS = 2
BATCH_SIZE = 256
SPEC = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}


def main(
    train: str = "fashion-mnist/train-*.tfrecord",
    test: str = "fashion-mnist/test-*.tfrecord",
) -> None:
    """Train on the records of `train`, and validate on those of `test`."""
    # The loader shuffles records, so Keras need not shuffle batches.
    training = fr.keras.PyDataset(
        fr.open(train, features=SPEC),
        batch_size=BATCH_SIZE,
        shuffle=True,
        label_key="label",
    )
    testing = fr.keras.PyDataset(
        fr.open(test, features=SPEC), batch_size=BATCH_SIZE, label_key="label"
    )

    model = keras.Sequential(
        [
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    for epoch in range(1, N_EPOCHS + 1):  # fit() continues after the last one
        start = time.perf_counter()
        history = model.fit(
            training, validation_data=testing, shuffle=False, verbose=0
        ).history
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {history['loss'][-1]:.3f}, {seconds:.2f} s")
    print(f"accuracy on the test records: {history['val_accuracy'][-1]:.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
