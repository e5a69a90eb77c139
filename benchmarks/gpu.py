"""Measure whether a GPU waits for data: copies of batches and a training step.

usage: python benchmarks/gpu.py [--device cuda] [--batch-size 256] [--json FILE]

It reads synthetic images of 150 KB with a label from a temporary file, and prints

* whether batches are decoded to page-locked memory, and whether they equal batches
  read on the CPU,
* GB/s to the device: of ``tensor.to(device)`` from page-locked memory, of the copies of
  `fastrec.torch.loader`, and from the file to the device,
* the share of the copies that overlaps with computation,
* the time of a training step on batches of the loader, and on one resident batch.

With ``--device cpu``, only the training step is measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

import fastrec as fr
from environment import describe
from fastrec.torch.blocks import block_tensors, page_locked

__all__: list[str] = []

Untyped: TypeAlias = Any

SIZE = 224
SPEC = {
    "image": fr.Raw((SIZE, SIZE, 3), "uint8"),
    "label": fr.FixedLen((), "int64"),
    "weight": fr.FixedLen((), "float32"),
}


class Clock:
    """Times asynchronous work of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], object], repeat: int) -> float:
        """Return the median seconds of `work` after one warm-up run."""
        work()
        times = []
        for _ in range(repeat):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def write_images(path: Path, count: int) -> None:
    """Write images of random noise."""
    rng = np.random.default_rng(0)
    with fr.Writer(path, features=SPEC) as writer:
        for begin in range(0, count, 256):
            n = min(256, count - begin)
            writer.write_batch(
                {
                    "image": rng.integers(0, 256, (n, SIZE, SIZE, 3), np.uint8),
                    "label": rng.integers(0, 10, n),
                    "weight": rng.random(n, np.float32),
                }
            )


def model_of(width: int, device: torch.device) -> tuple[Untyped, Untyped]:
    """Return a small convolutional network and its optimizer."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 8, 4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(width, width, 3, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(width, 10),
    ).to(device)
    return model, torch.optim.SGD(model.parameters(), 0.01)


def train(model: Untyped, optimizer: Untyped, batch: dict[str, Untyped]) -> None:
    """Start one training step without waiting."""
    images = batch["image"].permute(0, 3, 1, 2).float() / 255
    losses = torch.nn.functional.cross_entropy(
        model(images), batch["label"], reduction="none"
    )
    optimizer.zero_grad(set_to_none=True)
    (losses * batch["weight"]).mean().backward()
    optimizer.step()


def same(batch: dict[str, Untyped], expected: dict[str, Untyped]) -> bool:
    """Return whether tensors on a device equal those read on the CPU."""
    return all(
        np.array_equal(batch[name].cpu().numpy(), expected[name]) for name in SPEC
    )


def measure(given: argparse.Namespace) -> dict[str, Untyped]:
    """Return all results."""
    device = torch.device(given.device)
    is_cuda = device.type == "cuda"
    clock = Clock(device)
    figures: dict[str, Untyped] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.tfrecord"
        write_images(path, given.records)
        ds = fr.open(path, features=SPEC)
        options: dict[str, Untyped] = {
            "shuffle": True,
            "drop_last": True,
            "num_threads": given.threads,
        }
        plain = ds.loader(given.batch_size, **options)
        loader = fr.torch.loader(plain, device=device)

        steps = min(8, len(loader))
        wanted = [plain.batch(step, 0) for step in range(steps)]
        pairs = zip(itertools.islice(loader, steps), wanted, strict=True)
        figures["batches are right"] = all(same(*pair) for pair in pairs)
        n_bytes = sum(wanted[0][name].nbytes for name in SPEC)
        figures["MB a batch"] = n_bytes / 1e6
        if is_cuda:
            # The first batches are copied to page-locked memory, later ones decoded to it.
            plain._allocate_by(page_locked, recycles=True)
            locked = [
                all(block.bytes.is_pinned() for block in block_tensors(batch))
                for batch in plain
            ]
            figures["batches decoded into page-locked memory"] = (
                f"{sum(locked)} of the first {len(locked)}"
            )
            figures |= copies(plain, loader, clock, given.repeat, n_bytes)
        figures |= training(loader, device, clock, given)
    return figures


def copies(
    plain: fr.Loader, loader: fr.Loader, clock: Clock, repeat: int, n_bytes: int
) -> dict[str, Untyped]:
    """Return the rates of copies to the device, and the share that overlaps."""
    device = clock.device
    source = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)

    def plain_copies() -> None:
        for _ in range(8):
            source.to(device, non_blocking=True)

    # Copy one batch in page-locked memory repeatedly.
    (batch,) = deque(plain, maxlen=1)
    feed = loader._options.conversion
    assert feed is not None

    def our_copies() -> None:
        for _ in range(8):
            feed(batch)

    epoch = loader.repeat()
    n_steps = len(loader)

    def from_file() -> None:
        for _ in range(n_steps):
            next(epoch)

    # Computation that takes as long as the copies.
    matrix = torch.randn(4096, 4096, device=device)
    seconds_of_copies = clock.seconds(our_copies, repeat)
    seconds_of_product = clock.seconds(lambda: matrix @ matrix, repeat)
    n_products = max(1, round(seconds_of_copies / 8 / seconds_of_product))

    def computed() -> None:
        for _ in range(8 * n_products):
            torch.mm(matrix, matrix)

    def both() -> None:
        arriving = feed.convert(batch)
        for _ in range(8):
            assert feed.finish is not None
            feed.finish(arriving)
            arriving = feed.convert(batch)
            for _ in range(n_products):
                torch.mm(matrix, matrix)

    computing = clock.seconds(computed, repeat)
    together = clock.seconds(both, repeat)
    hidden = (computing + seconds_of_copies * 9 / 8 - together) / min(
        computing, seconds_of_copies
    )
    return {
        "GB/s, tensor.to(device)": 8
        * n_bytes
        / clock.seconds(plain_copies, repeat)
        / 1e9,
        "GB/s, copies of the loader": 8 * n_bytes / seconds_of_copies / 1e9,
        "GB/s, from the file": n_steps
        * n_bytes
        / clock.seconds(from_file, repeat)
        / 1e9,
        "share of copies that overlaps": hidden,
    }


def training(
    loader: fr.Loader, device: torch.device, clock: Clock, given: argparse.Namespace
) -> dict[str, Untyped]:
    """Return the time of a step on batches of the loader, and on a resident batch."""
    model, optimizer = model_of(given.width, device)
    batches = loader.repeat()
    resident = next(batches)

    def fed() -> None:
        for _ in range(given.steps):
            train(model, optimizer, next(batches))

    def stays() -> None:
        for _ in range(given.steps):
            train(model, optimizer, resident)

    on_resident = clock.seconds(stays, given.repeat) / given.steps
    on_loader = clock.seconds(fed, given.repeat) / given.steps
    return {
        "ms per step, resident batch": on_resident * 1e3,
        "ms per step, batches of the loader": on_loader * 1e3,
        "share of a step waiting for data": max(0.0, 1 - on_resident / on_loader),
    }


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(
        description="Measure whether a GPU waits for data"
    )
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--batch-size", type=int, default=256)
    arguments.add_argument("--records", type=int, default=16_384, help="of 150 KB")
    arguments.add_argument("--threads", type=int, help="that decode; one per CPU")
    arguments.add_argument("--width", type=int, default=64, help="of the network")
    arguments.add_argument("--steps", type=int, default=24)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        msg = "torch finds no CUDA device; use --device cpu to run without one"
        raise SystemExit(msg)
    figures = measure(given)
    where = describe() | {"torch": torch.__version__}
    if device.type == "cuda":
        where["gpu"] = torch.cuda.get_device_name(device)
    for name, value in {**where, **figures}.items():
        print(
            f"{name:38} {value:.3f}"
            if isinstance(value, float)
            else f"{name:38} {value}"
        )
    if given.json is not None:
        given.json.write_text(json.dumps({**where, **figures}, indent=2))
    if not figures["batches are right"]:
        msg = "batches on the device differ from batches on the CPU"
        raise SystemExit(msg)


if __name__ == "__main__":
    main()
