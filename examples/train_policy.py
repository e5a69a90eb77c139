"""Train a robot policy on windows of episodes, in PyTorch.

usage: python examples/train_policy.py

A record is an episode: the frames that a robot sees while it moves to a goal, and its
actions, with the names that RLDS data sets have. A row is a step of an episode: the last
two frames, and the next eight actions. Needs torch, and the extra "image" to decode.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import fastrec as fr

N_EPISODES, N_EPOCHS, BATCH_SIZE = 100, 4, 32
SIDE = 64  # pixels of a frame
CHUNK = 8  # actions that the policy predicts

FEATURES = {
    "steps/observation/image": fr.List(fr.Image((SIDE, SIDE))),
    "steps/action": fr.VarLen("float32", (2,)),
    "steps/observation/state": fr.VarLen("float32", (2,)),
}
WINDOWS = {"steps/observation/image": [-1, 0], "steps/action": range(CHUNK)}


def main() -> None:
    """Write episodes, train on most of them, and test on the others."""
    write_episodes("episodes.tfrecord")
    ds = fr.open("episodes.tfrecord", features=FEATURES)
    print(f"{len(ds)} episodes, {len(ds.steps(WINDOWS)):,} steps")

    # Split the episodes before they become steps: those of one episode are similar.
    train, test = (part.steps(WINDOWS) for part in ds.split([0.8, 0.2]))
    stats = ds.statistics(["steps/action"])["steps/action"]
    mean, std = (torch.tensor(stats[key]).float() for key in ("mean", "std"))

    def loss_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        actions = (batch["steps/action"] - mean) / std
        return nn.functional.mse_loss(policy(batch["steps/observation/image"]), actions)

    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    loader = fr.torch.loader(train, batch_size=BATCH_SIZE, shuffle=True)
    for epoch in range(1, N_EPOCHS + 1):
        losses = []
        for batch in loader:
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}")

    batch = next(iter(fr.torch.loader(test, batch_size=len(test))))
    with torch.no_grad():
        error = loss_of(batch).item()
    of_mean = ((batch["steps/action"] - mean) / std).square().mean().item()
    print(f"test episodes: error {error:.3f}; that of the mean action is {of_mean:.3f}")
    assert error < of_mean / 2


class Policy(nn.Module):
    """Predicts normalised actions ``(batch, CHUNK, 2)`` from two frames."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(6, 16, 5, stride=2, padding=2), nn.ReLU()),
            nn.Conv2d(16, 16, 5, stride=2, padding=2),
        )
        self.head = nn.Sequential(
            nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, CHUNK * 2)
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Find places in ``(batch, 2, height, width, 3)``, and compute the actions."""
        pixels = frames.permute(0, 1, 4, 2, 3).flatten(1, 2)
        maps = self.features(1 - pixels / 255)  # 0 is the white background
        shares = maps.flatten(2).softmax(-1).unflatten(2, maps.shape[2:])
        axis = torch.linspace(-1, 1, maps.shape[-1])
        x, y = shares.sum(2) @ axis, shares.sum(3) @ axis
        return self.head(torch.cat([x, y], 1)).unflatten(1, (CHUNK, 2))


def write_episodes(path: str) -> None:
    """Write a record for each episode."""
    rng = np.random.default_rng(0)
    with fr.Writer(path, overwrite=True) as writer:
        for _ in range(N_EPISODES):
            place, goal = rng.uniform(0.1, 0.9, (2, 2))
            velocity = rng.uniform(-0.03, 0.03, 2)
            frames, places, actions = [], [], []
            while np.abs(goal - place).max() > 0.02:
                frames.append(frame(place, goal))
                places.append(place)
                velocity = 0.6 * velocity + 0.4 * (goal - place).clip(-0.06, 0.06)
                actions.append(velocity)  # how far the robot moves until the next frame
                place = place + velocity
            writer.write(
                {
                    "steps/observation/image": frames,
                    "steps/action": np.array(actions, np.float32).ravel(),
                    "steps/observation/state": np.array(places, np.float32).ravel(),
                }
            )


def frame(place: npt.NDArray[np.float64], goal: npt.NDArray[np.float64]) -> bytes:
    """Return a JPEG file: a blue robot and an orange goal on white."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    image = np.full((SIDE, SIDE, 3), 255.0)
    for center, color in ((goal, (255, 150, 30)), (place, (30, 80, 200))):
        distance = np.hypot(x - center[0], y - center[1]) * SIDE
        opacity = (3.5 - distance).clip(0, 1)[..., np.newaxis]
        image += opacity * (color - image)
    encoded: bytes = cv2.imencode(".jpg", np.uint8(image[..., ::-1]))[1].tobytes()
    return encoded


if __name__ == "__main__":
    main()
