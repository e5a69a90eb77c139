"""``fastrec demo``: train a model on synthetic data, or show the user's files."""

from __future__ import annotations

import glob
import itertools
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import fastrec as fr
from fastrec.arrays.batch import Batch, n_rows
from fastrec.cli import demo_images
from fastrec.cli.arguments import BatchSize, OptionalPaths
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.outputs import reports_interrupt
from fastrec.cli.preview import preview, preview_row
from fastrec.cli.softmax import Softmax
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, rate, size

_N_EPOCHS = 2
_N_SHARDS = 6
_DIRECTORY = Path("fastrec-demo")
_MIN_QUOTED_S = 0.5  # of warm reading behind a rate
_N_PIXELS = demo_images.SIDE**2
_FEATURES = {"image": fr.Raw((demo_images.SIDE, demo_images.SIDE), "uint8")}


def demo(
    paths: OptionalPaths = None,
    *,
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where to write the synthetic data, and keep it.",
        ),
    ] = _DIRECTORY,
    records: Annotated[
        int, typer.Option(min=60, help="Number of synthetic training records.")
    ] = 60_000,
    seconds: Annotated[
        float, typer.Option(min=0, help="Maximum time of a pass over your files.")
    ] = 10,
    batch_size: BatchSize = 256,
) -> None:
    """Show your TFRecord files and how fast they read; without PATH, train a model.

    Without PATH, it writes synthetic 28x28 images of garments, like Fashion-MNIST, to
    TFRecord files in ./fastrec-demo, and trains a softmax classifier in NumPy on them. The
    files stay there, and the next demo uses them.
    """
    out = console()
    if paths:
        if directory != _DIRECTORY:
            raise typer.BadParameter("cannot be combined with PATH", param_hint="--dir")
        _show_files(out, paths, batch_size, seconds)
    else:
        _train_model(out, directory, records, batch_size)


# Training on synthetic data.


def _train_model(out: Console, folder: Path, n_records: int, batch_size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with reports_interrupt(lambda: map(str, folder.iterdir())):
        train = _written(out, folder, "train", n_records, _N_SHARDS)
        test = fr.open(_written(out, folder, "test", n_records // 6, 1))
    pattern = f"{glob.escape(str(folder))}/train-*-of-{_N_SHARDS:05d}.tfrecord"
    ds = _opened(out, pattern, train)
    row = ds[0]
    _print_code(out, "ds[0]")
    shown = ", ".join(f"{name!r}: {preview(value)}" for name, value in row.items())
    out.print(f"{{{shown}}}  # {demo_images.KINDS[row['label']]}")
    _read_and_print(out, ds, batch_size, seconds=60)

    loader = ds.loader(batch_size, shuffle=True)
    _print_code(out, f"loader = ds.loader({batch_size}, shuffle=True)")
    out.print(f"training: softmax regression in NumPy, {_N_EPOCHS} epochs")
    model = Softmax(_N_PIXELS, len(demo_images.KINDS))
    for epoch in range(1, _N_EPOCHS + 1):
        watch, loss = Stopwatch(), 0.0
        with Bar(f"epoch {epoch} of {_N_EPOCHS}") as bar:
            for step, batch in enumerate(loader, start=1):
                loss += model.train(*_samples(batch))
                bar(step, len(loader), f"loss {loss / step:.3f}")
        speed = rate(n_records, watch.seconds)
        out.print(f"epoch {epoch}: loss {loss / len(loader):.3f}, {speed} records/s")
    out.print(
        f"accuracy: {_accuracy(model, loader):.1%} of the training records, "
        f"{_accuracy(model, test.loader(batch_size)):.1%} of {len(test):,} test records",
        style="bold",
    )
    # The command of an environment that is not activated is not on the PATH.
    is_found = shutil.which("fastrec") is not None
    command = "fastrec" if is_found else f"{shlex.quote(sys.executable)} -m fastrec"
    out.print(f'\nto look at the files: {command} head "{printable(pattern)}"')


def _written(
    out: Console, folder: Path, part: str, n_records: int, n_shards: int
) -> list[str]:
    """Write the files of a part, unless an earlier demo did; return their paths.

    Other files with these names are an error.
    """
    names = [f"{part}-{n:05d}-of-{n_shards:05d}.tfrecord" for n in range(n_shards)]
    files = [str(folder / name) for name in names]
    if all(map(os.path.exists, files)) and len(fr.open(files)) == n_records:
        where = f"{part} files in {printable(folder)}"
        out.print(f"using the {where} from an earlier demo")
        return files
    blocks = demo_images.pictures(n_records, seed=int(part == "test"))
    images, labels = map(np.concatenate, zip(*blocks, strict=True))
    pattern = folder / (part + "-{shard:05d}-of-{num_shards:05d}.tfrecord")
    columns = {"image": images, "label": labels}
    try:
        fr.write(pattern, columns, features=_FEATURES, num_shards=n_shards)
    except FileExistsError as error:
        reason = "the file exists; --dir names another directory"
        raise FileExistsError(error.errno, reason, error.filename) from error
    out.print(
        f"wrote {counted(n_records, 'synthetic image')} to "
        f"{counted(len(files), f'{part} file')} in {printable(folder)}"
    )
    return files


def _samples(batch: Batch) -> tuple[Any, Any]:
    """Return images of shape ``(batch, pixels)`` and labels, without a copy."""
    pictures: Any = batch["image"]
    return pictures.as_array("uint8", _N_PIXELS), batch["label"]


def _accuracy(model: Softmax, loader: fr.Loader) -> float:
    """Return the share of records whose label the model predicts."""
    samples = map(_samples, loader)
    hits = [model.predict(pictures) == labels for pictures, labels in samples]
    return float(np.concatenate(hits).mean())


# The user's files.


def _show_files(
    out: Console, paths: list[str], batch_size: int, seconds: float
) -> None:
    files = files_of(paths, joins=True)
    indexed(files)  # with a progress bar
    ds = _opened(out, paths[0] if len(paths) == 1 else paths, files)
    if not len(ds):
        out.print("no records to show")
        return
    _print_code(out, "ds.head(1)[0]")
    for line in preview_row(ds.head(1)[0]):
        out.print(line)
    n_records = _read_and_print(out, ds, batch_size, seconds)
    if n_records < len(ds):
        share = n_records / len(ds)
        out.print(f"read {share:.1%} of the records (--seconds {seconds:g})")


def _read_and_print(
    out: Console, ds: fr.Dataset, batch_size: int, seconds: float
) -> int:
    """Read the first records for at most `seconds`, then quote the rate of reading again.

    The first pass fills the page cache and does not count. Returns its records.
    """
    _print_code(out, f"for batch in ds.loader({batch_size}): pass")
    loader = ds.loader(batch_size)
    n_records = n_batches = n_passes = 0
    watch = Stopwatch()
    with Bar("reading") as bar:
        for batch in loader:
            n_records += n_rows(batch)
            n_batches += 1
            bar(n_records, len(ds))
            if watch.seconds > seconds:
                break
    watch = Stopwatch()
    while watch.seconds < _MIN_QUOTED_S:
        loader.seek(0)
        for _ in itertools.islice(loader, n_batches):
            pass
        n_passes += 1
    per_s = n_passes * n_records / watch.seconds
    passes = counted(n_passes, "pass" if n_passes == 1 else "passe")
    out.print(
        f"read {counted(n_records, 'record')} in {passes} of "
        f"{watch.seconds / n_passes:.3g} s: {rate(per_s, 1)} records/s, "
        f"{rate(per_s * ds.nbytes / len(ds) / 1e6, 1)} MB/s"
    )
    return n_records


# Printing.


def _print_code(out: Console, line: str) -> None:
    out.print(f"\n{line}", style="bold cyan")


def _opened(out: Console, paths: str | list[str], files: list[str]) -> fr.Dataset:
    """Open `files`; print the code, the number of records and bytes, and the schema."""
    ds = fr.open(files)
    _print_code(out, f"ds = fr.open({paths!r})")
    n_files = counted(len(ds.files), "file")
    out.print(f"{counted(len(ds), 'record')} in {n_files}, {size(ds.nbytes)}")
    if len(ds):
        _print_code(out, "print(ds.schema)")
        out.print(repr(ds.schema))
    return ds
