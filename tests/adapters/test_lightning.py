"""Lightning resumes a loader in the middle of an epoch and at its end.

Goal
    A run that is interrupted and resumed from Lightning's checkpoint trains on the
    batches that an uninterrupted run trains on, in its order, wherever it was saved.
Method
    Record numbers as the only column; a callback that raises in the second epoch;
    checkpoints at the ends of epochs and of validations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped, open_dataset
from oracle import example, tfrecord_file

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.filterwarnings("ignore:::torch"),
]
torch: Untyped = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning: Untyped = pytest.importorskip("lightning")

N, BATCH_SIZE, N_EPOCHS = 100, 10, 2


class Model(lightning.LightningModule):
    """Remembers the batches that it was trained on."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.path = path
        self.seen: list[list[int]] = []

    def train_dataloader(self) -> fr.Loader:
        ds = open_dataset(self.path)
        return fr.torch.loader(ds, batch_size=BATCH_SIZE, shuffle=True)

    def training_step(self, batch: Untyped, _index: int) -> Untyped:
        self.seen.append(batch["n"].tolist())
        return self.weight.square().sum()

    def configure_optimizers(self) -> Untyped:
        return torch.optim.SGD(self.parameters(), 0.1)


class Stop(lightning.Callback):
    """Raise after a number of steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Untyped, *_: object) -> None:
        if trainer.global_step == self.step:
            raise InterruptedError


def fit(
    model: Model,
    folder: Path,
    *callbacks: Untyped,
    max_epochs: int = N_EPOCHS,
    val_check_interval: float | None = None,
    **options: object,
) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[*callbacks],
        default_root_dir=folder,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        max_epochs=max_epochs,
        val_check_interval=val_check_interval,
    )
    trainer.fit(model, **options)


def test_a_run_resumes_in_the_middle_of_an_epoch(
    write: Callable[[bytes], Path], tmp_path: Path
) -> None:
    path = write(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(N)))
    whole, begun, resumed = Model(path), Model(path), Model(path)
    fit(whole, tmp_path / "whole")
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path, filename="mid", every_n_train_steps=13
    )
    with pytest.raises(InterruptedError):
        fit(begun, tmp_path / "begun", save, Stop(15))
    fit(resumed, tmp_path / "resumed", ckpt_path=tmp_path / "mid.ckpt")
    assert begun.seen[:13] + resumed.seen == whole.seen
    for epoch in (whole.seen[:10], whole.seen[10:]):
        assert sorted(n for batch in epoch for n in batch) == list(range(N))


class Validated(Model):
    """A model that is validated on all rows."""

    def val_dataloader(self) -> fr.Loader:
        return fr.torch.loader(open_dataset(self.path), batch_size=30)

    def validation_step(self, batch: Untyped, _index: int) -> None:
        self.log("mean", batch["n"].float().mean())


@pytest.mark.parametrize("model", [Model, Validated])
@pytest.mark.parametrize("interval", [1.0, 0.5])
def test_a_run_resumes_at_each_of_its_checkpoints(
    model: type[Model], interval: float, write: Callable[[bytes], Path], tmp_path: Path
) -> None:
    path = write(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(N)))
    options: dict[str, Untyped] = {"max_epochs": 3}
    if model is Validated:
        options["val_check_interval"] = interval
    whole = model(path)
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path, filename="{step}", save_top_k=-1, save_on_train_epoch_end=None
    )
    fit(whole, tmp_path / "whole", save, **options)
    saved = sorted(tmp_path.glob("*.ckpt"))
    assert len(saved) == (6 if model is Validated and interval == 0.5 else 3)
    for checkpoint in saved:
        n_steps = int(checkpoint.stem.split("=")[1])
        resumed = model(path)
        fit(resumed, tmp_path / "resumed", ckpt_path=checkpoint, **options)
        assert resumed.seen == whole.seen[n_steps:]
    orders = [whole.seen[begin : begin + 10] for begin in (0, 10, 20)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
