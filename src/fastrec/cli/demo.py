"""``fastrec demo``: write synthetic images, read them, and train a model."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from typer import echo, secho

import fastrec as fr
from fastrec.cli import garments
from fastrec.cli.arguments import BatchSize
from fastrec.cli.files import reports_interrupt
from fastrec.cli.preview import preview
from fastrec.cli.terminal import counted, printable, progress_bar, rate, size

_N_EPOCHS = 2
_N_SHARDS = 6
_MIN_QUOTED_S = 0.5  # minimum time to measure a rate
_N_PIXELS = garments.SIDE**2
_FEATURES = {"image": fr.Raw((garments.SIDE, garments.SIDE), "uint8")}


def demo(
    *,
    dir: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory in which the synthetic data is kept."
        ),
    ] = Path("fastrec-demo"),
    records: Annotated[
        int, typer.Option(min=60, help="Number of synthetic training records.")
    ] = 60_000,
    batch_size: BatchSize = 256,
) -> None:
    """Write synthetic images to TFRecord files, read them, and train a model.

    The images are 28x28 pixels of garments, in the style of Fashion-MNIST. The model is
    a softmax classifier in NumPy. The next demo reuses the files.
    """
    dir.mkdir(parents=True, exist_ok=True)
    with reports_interrupt(lambda: map(str, dir.iterdir())):
        train = _written(dir, "train", records, _N_SHARDS)
        test = fr.open(_written(dir, "test", records // 6, 1))
    pattern = f"{glob.escape(str(dir))}/train-*-of-{_N_SHARDS:05d}.tfrecord"
    ds = fr.open(train)
    _print_code(f"ds = fr.open({pattern!r})")
    n_files = counted(len(train), "file")
    echo(f"{counted(len(ds), 'record')} in {n_files}, {size(ds.nbytes)}")
    _print_code("print(ds.schema)")
    echo(repr(ds.schema))
    _print_code("ds[0]")
    row = ds[0]
    shown = ", ".join(f"{name!r}: {preview(value)}" for name, value in row.items())
    echo(f"{{{shown}}}  # {garments.KINDS[row['label']]}")
    _print_code(f"for batch in ds.loader({batch_size}): pass")
    _print_rate(ds, batch_size)

    loader = ds.loader(batch_size, shuffle=True)
    _print_code(f"loader = ds.loader({batch_size}, shuffle=True)")
    echo(f"training: softmax regression in NumPy, {_N_EPOCHS} epochs")
    model = garments.Softmax(_N_PIXELS, len(garments.KINDS))
    for epoch in range(1, _N_EPOCHS + 1):
        start, loss = perf_counter(), 0.0
        with progress_bar(f"epoch {epoch} of {_N_EPOCHS}") as bar:
            for step, batch in enumerate(loader, start=1):
                loss += model.train(*_samples(batch))
                bar(step, len(loader))
        speed = rate(records / (perf_counter() - start))
        echo(f"epoch {epoch}: loss {loss / len(loader):.3f}, {speed} records/s")
    secho(
        f"accuracy: {_accuracy(model, loader):.1%} of the training records, "
        f"{_accuracy(model, test.loader(batch_size)):.1%} of {len(test):,} test records",
        bold=True,
    )
    # Without an activated virtual environment, the command may be missing from PATH.
    is_found = shutil.which("fastrec") is not None
    command = "fastrec" if is_found else f"{shlex.quote(sys.executable)} -m fastrec"
    echo(f'\nto look at the files: {command} head "{printable(pattern)}"')


def _written(folder: Path, part: str, n_records: int, n_shards: int) -> list[str]:
    """Write the "train" or "test" files, unless an earlier demo did; return the paths.

    Raises a FileExistsError if other files with these names exist.
    """
    names = [f"{part}-{n:05d}-of-{n_shards:05d}.tfrecord" for n in range(n_shards)]
    files = [str(folder / name) for name in names]
    if all(map(os.path.exists, files)) and len(fr.open(files)) == n_records:
        echo(f"using the {part} files in {printable(folder)} from an earlier demo")
        return files
    images, labels = garments.pictures(n_records, seed=int(part == "test"))
    pattern = folder / (part + "-{shard:05d}-of-{num_shards:05d}.tfrecord")
    columns = {"image": images, "label": labels}
    try:
        fr.write(pattern, columns, features=_FEATURES, num_shards=n_shards)
    except FileExistsError as error:
        reason = "the file exists; choose another --dir"
        raise FileExistsError(error.errno, reason, error.filename) from error
    echo(
        f"wrote {counted(n_records, 'synthetic image')} to "
        f"{counted(len(files), f'{part} file')} in {printable(folder)}"
    )
    return files


def _samples(batch: Any) -> tuple[Any, Any]:
    """Return the images of a batch, as an array ``(n, pixels)``, and their labels."""
    return batch["image"].as_array("uint8", _N_PIXELS), batch["label"]


def _accuracy(model: garments.Softmax, loader: fr.Loader) -> float:
    """Return the fraction of records whose label the model predicts correctly."""
    samples = map(_samples, loader)
    hits = [model.predict(images) == labels for images, labels in samples]
    return float(np.concatenate(hits).mean())


def _print_rate(ds: fr.Dataset, batch_size: int) -> None:
    """Print the rate of repeated passes; the files are in the page cache."""
    loader = ds.loader(batch_size)
    start, n_passes = perf_counter(), 0
    while perf_counter() - start < _MIN_QUOTED_S:
        for _ in loader:
            pass
        n_passes += 1
    per_s = n_passes * len(ds) / (perf_counter() - start)
    mb_per_s = per_s * ds.nbytes / len(ds) / 1e6
    records = counted(len(ds), "record")
    echo(f"read {records}: {rate(per_s)} records/s, {rate(mb_per_s)} MB/s")


def _print_code(line: str) -> None:
    secho(f"\n{line}", fg="cyan", bold=True)
