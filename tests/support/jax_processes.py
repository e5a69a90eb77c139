"""One of two processes that share arrays: prints its shards as JSON.

usage: python tests/support/jax_processes.py PROCESS PORT FILES
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastrec as fr
from numbered import SPEC


def rows_here(array: Any) -> list[int]:
    """Return the rows on the devices of this process, each once."""
    shards = {
        shard.index[0].start or 0: shard.data for shard in array.addressable_shards
    }
    return [int(n) for _, rows in sorted(shards.items()) for n in np.asarray(rows)]


def epoch(loader: fr.Loader) -> dict[str, Any]:
    """Return the results of an epoch, including a computation across processes."""
    rows, sums = [], []
    for batch in loader:
        rows.append(rows_here(batch["n"]))
        sums.append(int(jax.jit(jnp.sum)(batch["n"])))
        shape = batch["pixels"].shape
    rank = loader.rank, loader.world_size
    return {"rank": rank, "rows": rows, "sums": sums, "shape": shape}


def error_of(ds: fr.Dataset, sharding: object, **options: Any) -> str:
    options = {"batch_size": 4, "drop_last": True} | options
    try:
        next(iter(fr.jax.loader(ds, sharding=sharding, **options)))
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    process, port, *paths = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(f"localhost:{port}", 2, int(process))
    ds = fr.open(paths, features={name: SPEC[name] for name in ("n", "pixels")})
    ragged = fr.open(paths, features={"many": fr.VarLen("int64", key="n")})
    spec = fr.FixedLenSequence((), "int64", key="n", multiple_of=8)
    padded = fr.open(paths, features={"many": spec})
    to_one_width = padded.with_transform(lambda b: {"many": b["many"][:, :1]})
    devices = np.array(jax.devices())
    rows, whole = PartitionSpec("batch"), PartitionSpec()
    mesh = Mesh(devices, "batch")
    by_row = NamedSharding(mesh, rows)
    across = NamedSharding(Mesh(devices.reshape(2, 2).T, ("batch", "model")), rows)
    own = NamedSharding(Mesh(np.array(jax.local_devices()), "batch"), rows)
    interleaved = NamedSharding(Mesh(devices[[0, 2, 1, 3]], "batch"), rows)
    full: dict[str, Any] = {"batch_size": 4, "shuffle": True, "drop_last": True}
    told = {
        "divided": epoch(fr.jax.loader(ds, sharding=by_row, **full)),
        "whole": epoch(
            fr.jax.loader(
                ds, sharding=NamedSharding(mesh, whole), **full | {"drop_last": False}
            )
        ),
        "across": epoch(fr.jax.loader(ds, sharding=across, **full)),
        "own mesh": epoch(fr.jax.loader(ds, sharding=own, **full)),
        "default device": epoch(fr.jax.loader(ds, **full)),
        "errors": {
            "tail": error_of(ds, by_row, drop_last=False),
            "rank": error_of(ds, by_row, rank=0, world_size=4),
            "interleaved": error_of(ds, interleaved),
            "size": error_of(ds, by_row, batch_size=3),
            "skip": error_of(ds, by_row, on_error="skip"),
            "ragged": error_of(ragged, by_row),
            "padded": error_of(padded, by_row),
            "to one width": error_of(to_one_width, by_row),
        },
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
