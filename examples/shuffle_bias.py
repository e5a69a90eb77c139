"""Compare a shuffle buffer with a global shuffle on records sorted by label.

usage: python examples/shuffle_bias.py [--records N]

Writes a plot, shuffle-bias.png: which label comes when. Needs matplotlib.
"""

from __future__ import annotations

import argparse

import matplotlib as mpl
import numpy as np

import fastrec as fr

mpl.use("agg")
import matplotlib.pyplot as plt

N_LABELS = 10
BUFFER = 10_000


def main() -> None:
    """Write sorted records, read them in two orders, and plot the labels."""
    arguments = argparse.ArgumentParser(description="how random is the order?")
    arguments.add_argument("--records", type=int, default=300_000)
    n_records = arguments.parse_args().records

    # All records of the first label, then all of the second one, and so on.
    index = np.arange(n_records)
    columns = {"index": index, "label": index * N_LABELS // n_records}
    fr.write("sorted.tfrecord", columns, overwrite=True)
    ds = fr.open("sorted.tfrecord")

    # The first is shuffle() of tf.data.
    orders: dict[str, bool | fr.Window]
    orders = {f"{BUFFER:,} records": fr.Window(BUFFER), "all records": True}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axis, (name, shuffle) in zip(axes, orders.items(), strict=True):
        loader = ds.loader(1_000, shuffle=shuffle, seed=0)
        labels = np.concatenate([batch["label"] for batch in loader])
        place = np.arange(len(labels))
        n_labels = len(np.unique(labels[:4_000]))
        print(
            f"shuffle of {name}: {n_labels} of {N_LABELS} labels in the first 4,000; "
            f"correlation {np.corrcoef(place, labels)[0, 1]:.3f}"
        )
        axis.scatter(place[::50], labels[::50], s=2, alpha=0.5)
        axis.set(title=f"shuffle of {name}", xlabel="place in the epoch")
    axes[0].set_ylabel("label")
    figure.savefig("shuffle-bias.png", dpi=120)
    print("wrote shuffle-bias.png")


if __name__ == "__main__":
    main()
