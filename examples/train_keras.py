"""Train a Keras model on TFRecord files, with any backend.

usage: python examples/train_keras.py [TRAIN TEST]

TRAIN and TEST are TFRecord files, by default those of examples/fashion_mnist.py. The
environment variable KERAS_BACKEND names the backend: torch, jax or tensorflow.
"""

from __future__ import annotations

import sys

import keras

import fashion_mnist
import fastrec as fr

N_EPOCHS = 2
BATCH_SIZE = 256
CLASS_WEIGHT = dict.fromkeys(range(10), 1.0) | {6: 2.0}  # shirts are hard
SPEC = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}


def main(train: str, test: str) -> None:
    """Train on the records of `train`, and validate on those of `test`."""
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

    # fit() does all it does elsewhere: validation, callbacks, weights of classes.
    history = model.fit(
        training,
        epochs=N_EPOCHS,
        validation_data=testing,
        class_weight=CLASS_WEIGHT,
        callbacks=[
            keras.callbacks.EarlyStopping(patience=2),
            keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        ],
        shuffle=False,  # the loader shuffles
        verbose=0,
    ).history
    for epoch, value in enumerate(history["loss"], start=1):
        print(f"epoch {epoch}: loss {value:.3f}")

    best = keras.saving.load_model("best.keras")
    _, accuracy = best.evaluate(testing, verbose=0)
    print(f"accuracy on the test records: {accuracy:.1%}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or fashion_mnist.files()))
