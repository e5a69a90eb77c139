"""Train on Fashion-MNIST in two processes with DistributedDataParallel.

usage: python examples/two_processes.py
       torchrun --nproc-per-node 2 examples/two_processes.py

From IDX files to a trained model. Needs PyTorch; two processes share the CPU here, and
have a GPU each where there are some.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fashion_mnist
import fastrec as fr

N_EPOCHS = 2
GLOBAL_BATCH_SIZE = 256
N_RECORDS = 12_000
DATA = Path("two-processes")


def main() -> None:
    """Write the data and start the processes; each of them trains."""
    if "RANK" in os.environ:  # set by torchrun
        train()
        return
    DATA.mkdir(exist_ok=True)
    idx = fashion_mnist.write_synthetic(DATA, N_RECORDS)  # or download the real files
    fr.write(
        DATA / "train-{shard:05d}-of-{num_shards:05d}.tfrecord",
        {
            "image": fashion_mnist.read_idx(idx / "train-images-idx3-ubyte.gz"),
            "label": fashion_mnist.read_idx(idx / "train-labels-idx1-ubyte.gz"),
        },
        features=fashion_mnist.FEATURES,
        num_shards=3,  # files and processes need not match
        overwrite=True,
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run([*torchrun, "--nproc-per-node=2", __file__], check=True)


def train() -> None:
    """Train as one of the processes."""
    dist.init_process_group()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    # The loader takes rank and world size from the process group. All ranks make the
    # same number of steps, and each record is used once per epoch.
    loader = fr.torch.loader(
        fr.open(DATA / "train-*.tfrecord", features=fashion_mnist.FEATURES),
        global_batch_size=GLOBAL_BATCH_SIZE,
        shuffle=True,
        seed=0,
        device=device,
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).to(device)
    model = DistributedDataParallel(model)  # averages gradients
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(1, N_EPOCHS + 1):
        n_seen, total = torch.zeros(()), torch.zeros(())
        for batch in loader:
            logits = model(batch["image"].float() / 255)
            loss = nn.functional.cross_entropy(logits, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n_seen += len(logits)
            total += loss.detach().cpu() * len(logits)
        print(f"rank {loader.rank}: {n_seen:.0f} records in {len(loader)} steps")
        for value in (n_seen, total):
            dist.all_reduce(value)
        if loader.rank == 0:
            print(f"epoch {epoch}: loss {total / n_seen:.3f}, {n_seen:.0f} records")
    # The model is part of reference cycles. Free it before the interpreter exits, because
    # threads of its process group still need the interpreter to free gradients.
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
