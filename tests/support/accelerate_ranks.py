"""Read as one rank of two under Accelerate and the Hugging Face Trainer.

    python accelerate_ranks.py RANK FOLDER FILE

The ranks rendezvous through a file in FOLDER. Prints a line of JSON: for each way of
reading, the rows of each batch, or the text of the error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.utils.data import ChainDataset, DataLoader

import fastrec as fr
from children import SECONDS_TO_HANG

Untyped: TypeAlias = Any

BATCH_SIZE = 4
WORLD_SIZE = 2


def rows(batches: Untyped) -> Untyped:
    try:
        return [batch["n"].tolist() for batch in batches]
    except ValueError as error:
        return str(error)


def first(batches: Untyped) -> Untyped:
    return batches[0]


def by_accelerate(ds: fr.Dataset) -> dict[str, Untyped]:
    import accelerate

    accelerator: Untyped = accelerate.Accelerator(cpu=True)
    each: Untyped = accelerate.Accelerator(
        cpu=True,
        dataloader_config=accelerate.DataLoaderConfiguration(dispatch_batches=False),
    )

    def data() -> Untyped:
        return fr.torch.IterableDataset(ds, BATCH_SIZE)

    def batches(dataset: Untyped, **options: Untyped) -> Untyped:
        return DataLoader(dataset, **{"batch_size": None, **options})

    worker = {"num_workers": 1, "multiprocessing_context": "fork"}
    of_one = {"batch_size": 1, "collate_fn": first}
    given = fr.torch.IterableDataset(
        ds, BATCH_SIZE, rank=dist.get_rank(), world_size=WORLD_SIZE
    )
    loader = fr.torch.loader(ds, BATCH_SIZE, device=accelerator.device)
    left = accelerator.prepare(batches(fr.torch.Dataset(ds), batch_size=BATCH_SIZE))
    for _ in left:
        break
    return {
        "not prepared": rows(batches(data())),  # after a prepared loop with a break
        "loader": rows(accelerator.prepare(loader)),
        "prepared": rows(accelerator.prepare(batches(data()))),
        "in a worker": rows(accelerator.prepare(batches(data(), **worker))),
        "rank given": rows(accelerator.prepare(batches(given))),
        "collated": rows(accelerator.prepare(batches(data(), **of_one))),
        "chained": rows(each.prepare(batches(ChainDataset([data()]), **of_one))),
        "on each rank": rows(each.prepare(batches(data(), **of_one))),
        "not prepared after errors": rows(batches(data())),
    }


def updates(ds: fr.Dataset) -> list[int]:
    """Return how many updates each of two epochs makes in groups of three batches."""
    import accelerate

    accelerator: Untyped = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=3
    )
    layer = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(
        layer, torch.optim.SGD(layer.parameters(), 1e-9)
    )
    loader = accelerator.prepare(fr.torch.loader(ds, BATCH_SIZE, shuffle=True))
    other = accelerator.prepare(fr.torch.loader(ds, BATCH_SIZE, shuffle=True))
    made = []
    for _ in range(2):
        made.append(0)
        for batch in loader:
            with accelerator.accumulate(model):
                x = batch["n"].float().unsqueeze(1)
                accelerator.backward(model(x).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                made[-1] += accelerator.sync_gradients
            list(other)  # as a validation within the epoch
    batches = iter(loader)
    last = weakref.ref(next(batches)["n"])
    dropped = weakref.ref(batches)
    del batches
    assert last() is None, "accelerate keeps a batch"
    assert dropped() is None, "accelerate keeps an iterator"
    return made


def gathered(ds: fr.Dataset) -> dict[str, Untyped]:
    """Return the rows that ranks gather for metrics, in the ways that are documented."""
    import accelerate

    accelerator: Untyped = accelerate.Accelerator(cpu=True)
    padded = accelerator.prepare(fr.torch.loader(ds, 8, pad_last=True))
    of_records = []
    for batch in padded:
        n, valid = accelerator.gather_for_metrics((batch["n"], batch["__valid__"]))
        of_records += n[valid].tolist()
    loader = DataLoader(fr.torch.Dataset(ds), 8, collate_fn=fr.torch.collate)
    of_rows = []
    for batch in accelerator.prepare(loader):
        of_rows += accelerator.gather_for_metrics(batch["n"]).tolist()
    odd = ds.select(range(len(ds) - 1))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fr.torch.loader(odd, 8)
        fr.torch.loader(odd, 8, pad_last=True)
    said = [str(w.message) for w in warned if "gather_for_metrics" in str(w.message)]
    return {"padded": of_records, "rows": of_rows, "warnings": said}


class Model(torch.nn.Module):
    """A model with one weight that stores the rows of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, n: Untyped) -> dict[str, Untyped]:
        self.seen.append(n.tolist())
        return {"loss": self.linear(n.float().reshape(-1, 1)).square().mean()}


def by_trainer(ds: fr.Dataset, folder: Path) -> dict[str, Untyped]:
    import transformers

    def train(dataset: Untyped, collate: Callable[..., Untyped], size: int) -> Untyped:
        model = Model()
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "trainer"),
            per_device_train_batch_size=size,
            max_steps=4,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer: Untyped = transformers.Trainer(
            model, arguments, train_dataset=dataset, data_collator=collate
        )
        try:
            trainer.train()
        except ValueError as error:
            return str(error)
        return model.seen

    data = fr.torch.IterableDataset(ds, BATCH_SIZE)
    rows = fr.torch.Dataset(ds)
    return {
        "trainer of rows": train(rows, fr.torch.collate, BATCH_SIZE),
        "trainer": train(data, first, 1),
    }


def main() -> None:
    faulthandler.dump_traceback_later(3 * SECONDS_TO_HANG, exit=True)
    rank, folder, path = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    # As torchrun sets them.
    places = {"RANK": rank, "LOCAL_RANK": rank}
    sizes = {"WORLD_SIZE": WORLD_SIZE, "LOCAL_WORLD_SIZE": WORLD_SIZE}
    os.environ |= {name: str(n) for name, n in {**places, **sizes}.items()}
    os.environ |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    dist.init_process_group(
        "gloo",
        init_method=(folder / "ranks").as_uri(),
        rank=rank,
        world_size=WORLD_SIZE,
    )
    ds = fr.open(path, features={"n": fr.FixedLen((), "int64")})
    found = by_accelerate(ds) | by_trainer(ds, folder)
    found["updates"] = updates(ds)
    found["gathered"] = gathered(ds)
    dist.destroy_process_group()
    sys.stdout.write("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
