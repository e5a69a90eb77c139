"""Read epochs through every framework, as one rank, and print the ids of their rows.

    python counted_ids.py RANK WORLD_SIZE FOLDER PORT FILE...

The files have the records 0, 1, ... in the feature "n". Ranks meet at PORT. Prints the
ids of epochs of loaders that were made before and after the process group, and of the
beginnings of epochs whose states it saves in FOLDER, as a line of JSON. When it reads a
line, it resumes all states in FOLDER, and prints the ids of the remaining rows.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

os.environ |= {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
os.environ |= {"ACCELERATE_USE_CPU": "true"}
warnings.simplefilter("ignore")

import accelerate
import lightning
import torch
import transformers
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import fastrec as fr
from children import SECONDS_TO_HANG

Untyped: TypeAlias = Any

BATCH_SIZE, N_STEPS = 64, 5  # steps before a state in the middle of an epoch

# Returns the ids of the rest of an epoch, or of its first steps, and a state.
Read: TypeAlias = "Callable[[Untyped, int | None, Untyped], tuple[list[int], Untyped]]"


def ids(batches: Iterable[Untyped]) -> list[int]:
    return [int(n) for batch in batches for n in batch["n"]]


def plain(loader: Untyped, n_steps: int | None, state: Untyped) -> Untyped:
    """Read what has state_dict and load_state_dict itself."""
    if state is not None:
        loader.load_state_dict(state)
    batches = iter(loader)
    read = ids(itertools.islice(batches, n_steps))
    return read, loader.state_dict() if hasattr(loader, "state_dict") else None


def by_accelerate(loader: Untyped, n_steps: int | None, state: Untyped) -> Untyped:
    accelerator: Untyped = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(loader)
    accelerator.register_for_checkpointing(loader)
    if state is not None:
        accelerator.load_state(state)
    batches = iter(loader)
    read = ids(itertools.islice(batches, n_steps))
    folder = FOLDER / f"accelerate-{WORLD_SIZE}-{n_steps}"
    if state is None:
        accelerator.save_state(str(folder))
    return read, str(folder)


class Model(lightning.LightningModule):  # type: ignore[misc]
    """A model with one weight, for Lightning and the Trainer, which keeps the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.read: list[int] = []

    def forward(self, n: Untyped) -> dict[str, Untyped]:
        self.read += n.tolist()
        return {"loss": self.weight.square().sum()}

    def training_step(self, batch: Untyped, _index: int) -> Untyped:
        return self(batch["n"])["loss"]

    def configure_optimizers(self) -> Untyped:
        return torch.optim.SGD(self.parameters(), 0.1)


def by_lightning(loader: Untyped, n_steps: int | None, state: Untyped) -> Untyped:
    model, epoch = Model(), loader.epoch
    name = f"lightning-{WORLD_SIZE}-{n_steps}"
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        FOLDER, filename=name, every_n_train_steps=n_steps, enable_version_counter=False
    )
    if state is not None and state[1] is None:
        epoch += 1
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=WORLD_SIZE,
        strategy="ddp" if WORLD_SIZE > 1 else "auto",
        callbacks=[save] if state is None else [],
        default_root_dir=FOLDER,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=epoch + 1,
        max_steps=-1 if n_steps is None else n_steps,
    )
    trainer.fit(model, loader, ckpt_path=None if state is None else state[0])
    return model.read, [str(FOLDER / f"{name}.ckpt"), n_steps]


def by_trainer(loader: Untyped, n_steps: int | None, state: Untyped) -> Untyped:
    if state is not None:
        loader.load_state_dict(state)

    class LoaderTrainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Untyped:
            return loader

    model = Model()
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(dir=FOLDER),
        max_steps=-1 if n_steps is None else n_steps,
        num_train_epochs=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer: Untyped = LoaderTrainer(model, arguments)
    epoch = loader.epoch  # which a Trainer that resumes passes to set_epoch
    loader.set_epoch = lambda _: type(loader).set_epoch(loader, epoch)
    trainer.train()
    return model.read, loader.state_dict()


def by_keras(data: Untyped, n_steps: int | None, state: Untyped) -> Untyped:
    """Read as `fit` does. A state in the middle of an epoch is its beginning."""
    if state is not None:
        data._loader.load_state_dict(state)
    data.on_epoch_begin()
    n_steps = len(data) if n_steps is None else n_steps
    read = [int(n) for i in range(n_steps) for n in data[i][0]]
    data.on_epoch_end()
    return read, data._loader.state_dict()


def ways(ds: fr.Dataset, batch_size: int) -> dict[str, tuple[Untyped, Read]]:
    """Return what each framework reads, and how it does."""
    import jax  # noqa: F401 (before workers are forked)

    worker: Untyped = {"batch_size": None, "num_workers": 2}
    worker |= {"multiprocessing_context": "fork", "timeout": SECONDS_TO_HANG}

    def data() -> Untyped:
        return fr.torch.IterableDataset(ds, batch_size, shuffle=True)

    def loader() -> Untyped:
        return fr.torch.loader(ds, batch_size, shuffle=True)

    return {
        "Lightning": (loader(), by_lightning),
        "loader": (ds.loader(batch_size, shuffle=True), plain),
        "torch": (loader(), plain),
        "DataLoader": (DataLoader(data(), batch_size=None), plain),
        "DataLoader, 2 workers": (DataLoader(data(), **worker), plain),
        "StatefulDataLoader": (StatefulDataLoader(data(), batch_size=None), plain),
        "StatefulDataLoader, 2 workers": (StatefulDataLoader(data(), **worker), plain),
        "accelerate": (loader(), by_accelerate),
        "Trainer": (loader(), by_trainer),
        "JAX": (fr.jax.loader(ds, batch_size, shuffle=True), plain),
        "Keras": (fr.keras.PyDataset(ds, batch_size, shuffle=True), by_keras),
    }


def say(found: object) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    faulthandler.dump_traceback_later(6 * SECONDS_TO_HANG, exit=True)
    logging.disable(logging.WARNING)
    ds = fr.open(sys.argv[5:], features={"n": fr.FixedLen((), "int64")})
    early = ways(ds, BATCH_SIZE)
    found: dict[str, Any] = {"early": {}, "late": {}, "middle": {}}
    for way, (made, read) in early.items():
        found["early"][way] = read(made, None, None)[0]
        # The first of the ways, Lightning, has made the process group.
        os.environ["RANK"] = str(RANK)
    for way, (made, read) in ways(ds, BATCH_SIZE).items():
        found["late"][way] = read(made, None, None)[0]
    for way, (made, read) in ways(ds, BATCH_SIZE).items():
        begun, state = read(made, N_STEPS, None)
        found["middle"][way] = begun
        torch.save(
            (way, "middle", state), FOLDER / f"{way}-middle-{WORLD_SIZE}-{RANK}.pt"
        )
    for way, (made, read) in ways(ds, BATCH_SIZE).items():
        state = read(made, None, None)[1]
        torch.save((way, "end", state), FOLDER / f"{way}-end-{WORLD_SIZE}-{RANK}.pt")
    say(found)
    sys.stdin.readline()
    resumed = {}
    for file in sorted(FOLDER.glob("*.pt")):
        _, _, saved_by, rank = file.stem.split("-")
        if int(rank) != (RANK if int(saved_by) == WORLD_SIZE else 0):
            continue
        way, where, state = torch.load(file, weights_only=False)
        for batch_size in (BATCH_SIZE, 2 * BATCH_SIZE, BATCH_SIZE // 2):
            made, read = ways(ds, batch_size)[way]
            if state is not None:
                case = f"{way}; {where}; {saved_by}; {batch_size}"
                resumed[case] = read(made, None, state)[0]
    say(resumed)


if __name__ == "__main__":
    RANK, WORLD_SIZE, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    if WORLD_SIZE > 1:  # as Lightning starts its processes
        os.environ |= {"LOCAL_RANK": str(RANK), "NODE_RANK": "0"}
        os.environ |= {"WORLD_SIZE": str(WORLD_SIZE), "MASTER_ADDR": "127.0.0.1"}
        os.environ["MASTER_PORT"] = sys.argv[4]
    main()
