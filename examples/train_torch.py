"""Train a small PyTorch model on TFRecord files.

usage: python examples/train_torch.py [TRAIN TEST]

TRAIN and TEST are TFRecord files, by default those of examples/fashion_mnist.py: images
of 28 x 28 bytes, and labels.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

import fashion_mnist
import fastrec as fr

N_EPOCHS = 2
BATCH_SIZE = 256
FEATURES = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}


def main(train_files: str, test_files: str) -> None:
    """Train a model, and print its accuracy."""
    train = fr.open(train_files, features=FEATURES)
    test = fr.open(test_files, features=FEATURES)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    # Batches of tensors, on the device already. Each epoch is another shuffle.
    loader = fr.torch.loader(train, batch_size=BATCH_SIZE, shuffle=True, device=device)
    for epoch in range(1, N_EPOCHS + 1):
        start = time.perf_counter()
        losses = []
        for batch in loader:
            loss = nn.functional.cross_entropy(model(scaled(batch)), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())  # stays on the device, so this does not wait
        mean_loss = torch.stack(losses).mean().item()
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {mean_loss:.3f}, {seconds:.2f} s")

    model.eval()
    n_right = 0
    with torch.no_grad():
        for batch in fr.torch.loader(test, batch_size=BATCH_SIZE, device=device):
            n_right += int((model(scaled(batch)).argmax(1) == batch["label"]).sum())
    print(f"accuracy on the test records: {n_right / len(test):.1%}")


def scaled(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the images of a batch as numbers from 0 to 1: ``(batch, 28, 28)``."""
    return batch["image"].float() / 255


if __name__ == "__main__":
    main(*(sys.argv[1:] or fashion_mnist.files()))
