"""Draw the pictures of the gallery: docs/images/gallery-*.png.

usage: KERAS_BACKEND=torch python docs/pictures.py

Runs the programs of examples/ in a temporary folder, and draws what they wrote. Needs the
extras "test" and "frameworks".
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.gridspec import SubplotSpec

import fastrec as fr
from fastrec.cli.garments import KINDS

mpl.use("agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
FEATURES = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}


def run(name: str, *arguments: str) -> None:
    """Run an example in the current folder."""
    program = str(ROOT / "examples" / name)
    subprocess.run([sys.executable, program, *arguments], check=True)


def save(name: str) -> None:
    """Save the current figure."""
    plt.gcf().savefig(IMAGES / name, dpi=100)
    plt.close()


def draw_garments() -> None:
    """Draw garments of each kind."""
    images, labels = fr.open("fashion-mnist/train-*.tfrecord", features=FEATURES)[
        :500
    ].values()
    _, axes = plt.subplots(3, 10, figsize=(9, 3.1), layout="constrained")
    for label, column in enumerate(axes.T):
        column[0].set_title(KINDS[label], fontsize=9)
        for axis, image in zip(column, images[labels == label], strict=False):
            axis.imshow(image, cmap="gray_r")
            axis.axis("off")
    save("gallery-fashion-mnist.png")


def draw_predictions() -> None:
    """Draw what the Keras model makes of test images."""
    import keras

    test = fr.open("fashion-mnist/test-*.tfrecord", features=FEATURES)[:20]
    model = keras.saving.load_model("best.keras")
    predicted = np.asarray(model.predict(test["image"], verbose=0)).argmax(axis=1)
    _, axes = plt.subplots(2, 10, figsize=(9, 2.3), layout="constrained")
    for axis, image, label, guess in zip(
        axes.flat, test["image"], test["label"], predicted, strict=True
    ):
        axis.imshow(image, cmap="gray_r")
        color = "black" if label == guess else "firebrick"
        axis.set_title(KINDS[guess], fontsize=9, color=color)
        axis.axis("off")
    save("gallery-keras.png")


def draw_ranks() -> None:
    """Draw which records the ranks read in the first steps."""
    ds = fr.open("fashion-mnist/train-*.tfrecord", features=FEATURES)
    _, axis = plt.subplots(figsize=(9, 3), layout="constrained")
    records_of_file = len(ds) // len(ds.files)
    for rank in range(2):
        loader = ds.loader(
            global_batch_size=256, shuffle=True, seed=0, rank=rank, world_size=2
        )
        for step in range(4):
            numbers = [
                ds.files.index(path) * records_of_file + record
                for path, record, _ in loader.records_at(step)
            ]
            places = step + rank * 0.3 + np.linspace(0, 0.25, len(numbers))
            axis.scatter(places, numbers, s=4, color=f"C{rank}")
        axis.scatter([], [], color=f"C{rank}", label=f"rank {rank}")
    axis.set(xlabel="step", ylabel="record", xticks=range(4))
    axis.legend(loc="upper right", framealpha=1)
    save("gallery-ddp.png")


def draw_padding() -> None:
    """Draw a random batch of sentences, and one of similar lengths."""
    spec = {"tokens": fr.FixedLenSequence((), "int64")}
    ds = fr.open("sentences.tfrecord", context_features={}, sequence_features=spec)
    lengths = np.count_nonzero(ds[:]["tokens"], axis=1)
    orders = fr.samplers.bucket_by_length(lengths, edges=[4, 8], sizes=[40, 40, 40])
    batches = {
        "random": next(iter(ds.loader(40, shuffle=True, seed=0))),
        "by length": ds.loader(batches=orders).batch(1),
    }
    _, axes = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained")
    for axis, (name, batch) in zip(axes, batches.items(), strict=True):
        tokens = np.ma.masked_equal(batch["tokens"], 0)
        axis.pcolormesh(tokens.T, cmap="viridis", edgecolor="white", linewidth=0.5)
        axis.set(title=f"a batch, {name}", xlabel="row", ylabel="place")
    save("gallery-sequences.png")


def draw_counts() -> None:
    """Draw the result of a query."""
    import duckdb

    files = "fashion-mnist/train-*.tfrecord"
    garments = fr.open(files, features=FEATURES)  # noqa: F841 (DuckDB finds it)
    query = """
        SELECT label, avg(list_sum(flatten(image)) / 784) AS ink FROM garments
        GROUP BY label ORDER BY ink
    """
    rows = duckdb.sql(query).fetchall()
    _, axis = plt.subplots(figsize=(9, 3), layout="constrained")
    axis.barh([KINDS[label] for label, _ in rows], [ink for _, ink in rows])
    axis.set(xlabel="mean pixel")
    save("gallery-duckdb.png")


def draw_windows() -> None:
    """Draw an episode, and the windows of four of its steps."""
    program = runpy.run_path(str(ROOT / "examples/train_policy.py"))
    image, action, state = program["FEATURES"]
    ds = fr.open("episodes.tfrecord", features=program["FEATURES"]).select([11])
    frames, side = ds[0][image], program["SIDE"]
    numbers = [0, 4, 8, 12]
    rows = ds.steps({**program["WINDOWS"], state: 0})[numbers]
    figure = plt.figure(figsize=(9, 4.3), layout="constrained")
    above, below = figure.add_gridspec(2, 1, height_ratios=[1, 4.2])

    def show(
        pixels: npt.NDArray[np.uint8], place: SubplotSpec, title: str, alpha: float = 1
    ) -> Axes:
        axis = figure.add_subplot(place)
        axis.imshow(pixels, alpha=alpha)
        axis.set_title(title, fontsize=9)
        axis.set(xticks=[], yticks=[])
        return axis

    for i, place in enumerate(above.subgridspec(1, len(frames))):
        show(frames[i], place, f"step {i}" if i in numbers else f"{i}")
    places = below.subgridspec(2, 7, width_ratios=[1, 1, 1, 0.15, 1, 1, 1])
    for i, number in enumerate(numbers):
        line, left = i // 2, i % 2 * 4
        for j, offset in enumerate(program["WINDOWS"][image]):
            name = f"frame {max(0, number + offset)}"
            title = f"row {number}: {name}" if j == 0 else name
            show(rows[image][i, j], places[line, left + j], title)
        moves = rows[action][i] * side
        begins = rows[state][i] * side + np.cumsum(moves, 0) - moves
        is_step = number + np.arange(len(moves)) < len(frames)
        axis = show(rows[image][i, -1], places[line, left + 2], "8 actions", alpha=0.3)
        axis.quiver(
            *(*begins.T, *moves.T),
            color=np.where(is_step, "black", "silver"),
            angles="xy",
            scale_units="xy",
            scale=1,
            width=0.018,
            headwidth=4,
            headlength=4,
            headaxislength=4,
        )
        axis.set(xlim=(-0.5, side - 0.5), ylim=(side - 0.5, -0.5))
    save("gallery-episodes.png")


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run("fashion_mnist.py", "--records", "12000")
        run("train_keras.py")
        run("sequences.py")
        run("train_policy.py")
        run("shuffle_bias.py")
        run("show_images.py")
        draw_garments()
        draw_predictions()
        draw_ranks()
        draw_padding()
        draw_windows()
        draw_counts()
        for made, name in [("images.png", "images"), ("shuffle-bias.png", "shuffle")]:
            Path(made).rename(IMAGES / f"gallery-{name}.png")


if __name__ == "__main__":
    main()
