"""Measure the cost of each adapter in addition to the loader: time and bytes copied.

usage: python benchmarks/frameworks.py [--records N] [--batch-size N] [--json FILE]

It reads epochs of the same file through every adapter whose framework is installed, in
turn, and through the loader alone, without training. Bytes are those of columns outside
of the memory they were decoded to: copies on the CPU by the adapter or the framework.
All labels are verified first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import fastrec as fr
from environment import describe

__all__: list[str] = []

Untyped: TypeAlias = Any

SPEC = {
    "image": fr.Raw((28, 28), "uint8"),
    "label": fr.FixedLen((), "int64"),
    "weight": fr.FixedLen((), "float32"),
}

# Batches as dicts of the framework's arrays.
Feed: TypeAlias = Callable[[fr.Loader], "Iterable[dict[str, Untyped]]"]


def by_loader(loader: fr.Loader) -> Iterable[dict[str, Untyped]]:
    """Return batches of NumPy arrays."""
    return loader


def by_torch(loader: fr.Loader) -> Iterable[dict[str, Untyped]]:
    """Return batches of PyTorch tensors."""
    batches: Iterable[dict[str, Untyped]] = fr.torch.loader(loader)
    return batches


def by_data_loader(loader: fr.Loader) -> Iterable[dict[str, Untyped]]:
    """Return batches of torch's DataLoader without workers."""
    from torch.utils.data import DataLoader

    data = fr.torch.IterableDataset(loader)
    batches: Iterable[dict[str, Untyped]] = DataLoader(data, batch_size=None)
    return batches


def by_jax(loader: fr.Loader) -> Iterable[dict[str, Untyped]]:
    """Return batches of JAX arrays on the CPU device."""
    batches: Iterable[dict[str, Untyped]] = fr.jax.loader(loader)
    return batches


def by_keras(loader: fr.Loader) -> Iterable[dict[str, Untyped]]:
    """Return the items of a PyDataset in the order of Keras."""
    data = fr.keras.PyDataset(loader, label_key="label", weight_key="weight")
    for i in range(len(data)):
        image, label, weight = data[i]
        yield {"image": image, "label": label, "weight": weight}
    data.on_epoch_end()


def by_tf(loader: fr.Loader) -> Iterable[dict[str, Untyped]]:
    """Return eager tensors of a tf.data.Dataset."""
    batches: Iterable[dict[str, Untyped]] = fr.tf.dataset(loader)
    return batches


def by_arrow(loader: fr.Loader) -> Iterator[dict[str, Untyped]]:
    """Return record batches of pyarrow."""
    import pyarrow

    for batch in pyarrow.RecordBatchReader.from_stream(loader):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns["image"] = columns["image"].flatten().flatten()
        yield columns


FEEDS: dict[str, tuple[str, Feed]] = {
    "loader": ("numpy", by_loader),
    "fr.torch.loader": ("torch", by_torch),
    "fr.torch.IterableDataset": ("torch", by_data_loader),
    "fr.jax.loader": ("jax", by_jax),
    "fr.keras.PyDataset": ("keras", by_keras),
    "fr.tf.dataset": ("tensorflow", by_tf),
    "pyarrow": ("pyarrow", by_arrow),
}


def address(column: Untyped) -> int:
    """Return the address of a column."""
    if hasattr(column, "data_ptr"):
        return int(column.data_ptr())
    if hasattr(column, "unsafe_buffer_pointer"):
        return int(column.unsafe_buffer_pointer())
    if hasattr(column, "buffers"):
        return int(column.buffers()[-1].address)
    array = column if isinstance(column, np.ndarray) else np.asarray(column)
    return int(array.ctypes.data)


def n_bytes_elsewhere(feed: Feed, ds: fr.Dataset, batch_size: int) -> int:
    """Return the copied bytes of a batch.

    A transform records the address of each decoded column.
    """
    places: list[dict[str, int]] = []

    def note(batch: dict[str, Untyped]) -> dict[str, Untyped]:
        places.append({name: address(column) for name, column in batch.items()})
        return batch

    loader = ds.loader(batch_size, transform=note, transform_threads=0, num_threads=0)
    batch = next(iter(feed(loader)))
    is_there = {
        name: any(address(column) == place[name] for place in places)
        for name, column in batch.items()
    }
    sizes = {name: column.nbytes for name, column in ds[:batch_size].items()}
    return sum(size for name, size in sizes.items() if not is_there[name])


def labels(batches: Iterable[dict[str, Untyped]]) -> list[int]:
    """Return the labels of all batches."""
    return [int(n) for batch in batches for n in np.asarray(batch["label"])]


def measure(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return time and copied bytes by adapter."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        n = given.records
        columns = {
            "image": rng.integers(0, 256, (n, 28, 28), np.uint8),
            "label": rng.integers(0, 10, n),
            "weight": rng.random(n, np.float32),
        }
        fr.write(Path(folder) / "a.tfrecord", columns, features=SPEC)
        ds = fr.open(Path(folder) / "a.tfrecord", features=SPEC)
        feeds = {
            name: feed
            for name, (package, feed) in FEEDS.items()
            if importlib.util.find_spec(package) is not None
        }
        loaders = {name: ds.loader(given.batch_size, num_threads=0) for name in feeds}
        n_steps = len(loaders["loader"])
        for name, feed in feeds.items():
            if labels(feed(loaders[name])) != columns["label"].tolist():
                msg = f"{name} delivers wrong labels"
                raise SystemExit(msg)
            n_bytes = n_bytes_elsewhere(feed, ds, given.batch_size)
            found[name] = {"bytes copied": n_bytes}
        times: dict[str, list[float]] = {name: [] for name in feeds}
        for _ in range(given.repeat):
            for name, feed in feeds.items():
                start = time.perf_counter()
                for _batch in feed(loaders[name]):
                    pass
                times[name].append(time.perf_counter() - start)
        for name in feeds:
            micros = statistics.median(times[name]) / n_steps * 1e6
            found[name]["us a batch"] = micros
            found[name]["records/s"] = n / statistics.median(times[name])
    return found


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description="Measure the cost of adapters")
    arguments.add_argument("--records", type=int, default=100_000, help="of 797 bytes")
    arguments.add_argument("--batch-size", type=int, default=256)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "torch")
    found = measure(given)
    print(f"{'':26} {'us a batch':>10} {'records/s':>12} {'bytes copied':>13}")
    for name, figures in found.items():
        print(
            f"{name:26} {figures['us a batch']:10.1f} {figures['records/s']:12,.0f} "
            f"{figures['bytes copied']:13,.0f}"
        )
    if given.json is not None:
        given.json.write_text(json.dumps({**describe(), "feeds": found}, indent=2))


if __name__ == "__main__":
    main()
