"""Train as one rank of two with DistributedDataParallel, and print its rows.

    python torch_ranks.py RANK FOLDER FILE

The ranks rendezvous through a file in FOLDER. Prints a line of JSON.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import fastrec as fr
from children import SECONDS_TO_HANG

Untyped: TypeAlias = Any

WORLD_SIZE = 2


def refusal(loader: fr.Loader, **options: Untyped) -> str:
    try:
        fr.torch.loader(loader, **options)
    except ValueError as error:
        return str(error)
    return ""


def refusals(ds: fr.Dataset, rank: int) -> dict[str, str]:
    alone = ds.loader(4, rank=0, world_size=1)
    given = ds.loader(4, rank=rank, world_size=2)
    # Each rank has a separate group, as if both trained on the same rows.
    groups: Untyped = [dist.new_group([i]) for i in range(WORLD_SIZE)]
    return {
        "given": refusal(given),
        "as alone": refusal(alone),
        "as alone in its group": refusal(alone, process_group=groups[rank]),
        "given in another group": refusal(given, process_group=groups[rank]),
        "in the other's group": refusal(alone, process_group=groups[1 - rank]),
    }


def train(batches: Untyped) -> Untyped:
    """Train one step on each batch; return the rows and the weight."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    seen = []
    for batch in batches:
        seen.append(batch["n"].tolist())
        x = batch["n"].float().unsqueeze(1)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), 2 * x).backward()
        optimizer.step()
    return seen, model.module.weight.item()


def main() -> None:
    faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
    rank, folder, path = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    ds = fr.open(path, features={"n": fr.FixedLen((), "int64")})
    dist.init_process_group(
        "gloo",
        init_method=(folder / "ranks").as_uri(),
        rank=rank,
        world_size=WORLD_SIZE,
    )
    found: dict[str, Any] = {"refusals": refusals(ds, rank)}
    dataset = fr.torch.IterableDataset(ds, 4, shuffle=True)
    found["seen"], found["weight"] = train(DataLoader(dataset, batch_size=None))
    options: Untyped = {"num_workers": 1, "multiprocessing_context": "fork"}
    in_worker = DataLoader(dataset, batch_size=None, **options)
    found["seen in a worker"] = [batch["n"].tolist() for batch in in_worker]
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
