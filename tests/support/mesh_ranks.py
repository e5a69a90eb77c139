"""Read as one rank of a 2 x 2 device mesh, with one data-parallel dimension.

    python mesh_ranks.py RANK FOLDER FILE

The ranks rendezvous through a file in FOLDER. Prints a line of JSON.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

import fastrec as fr
from children import SECONDS_TO_HANG

Untyped: TypeAlias = Any

BATCH_SIZE = 4
WORLD_SIZE = 4


def rows(batches: Untyped) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def main() -> None:
    faulthandler.dump_traceback_later(2 * SECONDS_TO_HANG, exit=True)
    rank, folder, path = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    dist.init_process_group(
        "gloo",
        init_method=(folder / "mesh").as_uri(),
        rank=rank,
        world_size=WORLD_SIZE,
    )
    mesh: Untyped = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    group = mesh["dp"].get_group()
    ds = fr.open(path, features={"n": fr.FixedLen((), "int64")})
    of_group: Untyped = {"batch_size": BATCH_SIZE, "process_group": group}
    found: dict[str, Any] = {
        "dp": mesh["dp"].get_local_rank(),
        "loader": rows(fr.torch.loader(ds, **of_group)),
        "iterable": rows(
            DataLoader(fr.torch.IterableDataset(ds, **of_group), batch_size=None)
        ),
        "all": rows(fr.torch.loader(ds, batch_size=BATCH_SIZE)),
    }
    try:
        fr.torch.loader(ds, rank=0, world_size=1, **of_group)
    except ValueError as error:
        found["another rank"] = str(error)
    of_all = ds.loader(BATCH_SIZE)
    found["a loader of all ranks"] = rows(fr.torch.loader(of_all, process_group=group))
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
