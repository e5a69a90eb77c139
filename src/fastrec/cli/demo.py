"""``fastrec demo``: train a model on synthetic data, or show the user's files."""

from __future__ import annotations

import glob
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import fastrec as fr
from fastrec.arrays.batch import Batch, n_rows
from fastrec.cli import demo_images
from fastrec.cli.arguments import BatchSize, OptionalPaths
from fastrec.cli.inputs import indexed
from fastrec.cli.preview import preview, preview_row
from fastrec.cli.softmax import Softmax
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, rate, size

__all__ = ["demo"]

_N_EPOCHS = 2
_N_SHARDS = 6
_N_PIXELS = demo_images.SIDE**2
_SHADES = np.array(list(" .:-=+*#%@"))


def demo(
    paths: OptionalPaths = None,
    *,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Keep the synthetic data in this directory."
        ),
    ] = None,
    records: Annotated[
        int, typer.Option(min=60, help="Number of synthetic training records.")
    ] = 60_000,
    seconds: Annotated[
        float, typer.Option(min=0, help="Maximum time to read your files.")
    ] = 10,
    batch_size: BatchSize = 256,
) -> None:
    """Show your TFRecord files and how fast they read; without PATH, train a model.

    Without PATH, it writes synthetic 28x28 images of garments, like Fashion-MNIST, to
    TFRecord files, and trains a softmax classifier in NumPy on them.
    """
    if paths:
        if directory is not None:
            msg = "cannot be combined with PATH"
            raise typer.BadParameter(msg, param_hint="--dir")
        _show_files(console(), paths, batch_size, seconds)
    elif directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        _train_model(console(), directory, None, records, batch_size)
    else:
        with tempfile.TemporaryDirectory(prefix="fastrec-") as folder:
            # Keep indexes of temporary files out of the user's cache.
            index_dir = Path(folder) / "index"
            _train_model(console(), Path(folder), index_dir, records, batch_size)


# Training on synthetic data.


def _train_model(
    out: Console, folder: Path, index_dir: Path | None, n_records: int, batch_size: int
) -> None:
    _write_data(out, folder, n_records)
    pattern = f"{glob.escape(str(folder))}/train-*-of-{_N_SHARDS:05d}.tfrecord"
    ds = _opened(out, pattern, index_dir)
    _print_code(out, "print(ds.schema)")
    out.print(repr(ds.schema))
    row = ds[0]
    _print_code(out, "ds[0]")
    shown = ", ".join(f"{name!r}: {preview(value)}" for name, value in row.items())
    out.print(f"{{{shown}}}  # {demo_images.KINDS[row['label']]}")
    pixels = np.frombuffer(row["image"], np.uint8).astype(int)
    picture = _SHADES[pixels * len(_SHADES) // 256].reshape(-1, demo_images.SIDE)
    for line in picture[::2]:  # characters are about twice as high as wide
        out.print("    " + "".join(line).rstrip())

    _print_code(out, f"for batch in ds.loader({batch_size}): pass")
    watch = Stopwatch()
    n_read = sum(len(batch["label"]) for batch in ds.loader(batch_size))
    out.print(_speed("read", n_read, ds.nbytes, watch.seconds))

    loader = ds.loader(batch_size, shuffle=True)
    _print_code(out, f"loader = ds.loader({batch_size}, shuffle=True)")
    out.print(f"training: softmax regression in NumPy, {_N_EPOCHS} epochs")
    model = Softmax(_N_PIXELS, len(demo_images.KINDS))
    for epoch in range(1, _N_EPOCHS + 1):
        watch = Stopwatch()
        loss = 0.0
        with Bar(f"epoch {epoch} of {_N_EPOCHS}") as bar:
            for step, batch in enumerate(loader, start=1):
                loss += model.train(*_samples(batch))
                bar(step, len(loader), f"loss {loss / step:.3f}")
        speed = _speed("trained on", n_read, None, watch.seconds)
        out.print(f"epoch {epoch}: loss {loss / len(loader):.3f}, {speed}")
    _print_code(out, "loader.state_dict()")
    out.print(repr(loader.state_dict()))
    test = fr.open(folder / "test-00000-of-00001.tfrecord", index_dir=index_dir)
    out.print(
        f"accuracy: {_accuracy(model, loader):.1%} of the training records, "
        f"{_accuracy(model, test.loader(batch_size)):.1%} of {len(test):,} test records "
        f"(guessing: {1 / len(demo_images.KINDS):.0%})",
        style="bold",
    )


def _write_data(out: Console, folder: Path, n_records: int) -> None:
    """Write training and test files; an existing file is an error."""
    watch = Stopwatch()
    features = {"image": fr.Raw((demo_images.SIDE, demo_images.SIDE), "uint8")}
    n_test = n_records // 6
    files: list[str] = []
    parts = [("train", n_records, _N_SHARDS), ("test", n_test, 1)]
    for seed, (part, count, n_shards) in enumerate(parts):
        blocks = demo_images.pictures(count, seed)
        images, labels = map(np.concatenate, zip(*blocks, strict=True))
        files += fr.write(
            folder / (part + "-{shard:05d}-of-{num_shards:05d}.tfrecord"),
            {"image": images, "label": labels},
            features=features,
            num_shards=n_shards,
        )
    n_bytes = sum(Path(file).stat().st_size for file in files)
    out.print(
        f"wrote {counted(n_records + n_test, 'synthetic image')}, {size(n_bytes)}, to "
        f"{len(files)} files in {printable(folder)} in {watch.seconds:.1f} s"
    )


def _samples(batch: Batch) -> tuple[Any, Any]:
    """Return images of shape ``(batch, pixels)`` and labels, without a copy."""
    pictures = batch["image"]
    assert isinstance(pictures, fr.BytesArray)
    return pictures.as_array("uint8", _N_PIXELS), batch["label"]


def _accuracy(model: Softmax, loader: fr.Loader) -> float:
    """Return the share of records whose label the model predicts."""
    hits = [
        model.predict(pictures) == labels for pictures, labels in map(_samples, loader)
    ]
    return float(np.concatenate(hits).mean())


# The user's files.


def _show_files(
    out: Console, paths: list[str], batch_size: int, seconds: float
) -> None:
    indexed(paths)  # with a progress bar
    ds = _opened(out, paths[0] if len(paths) == 1 else paths, None)
    if not len(ds):
        out.print("no records to show")
        return
    _print_code(out, "print(ds.schema)")
    out.print(repr(ds.schema))
    _print_code(out, "ds.head(1)[0]")
    for line in preview_row(ds.head(1)[0]):
        out.print(line)
    _print_code(out, f"for batch in ds.loader({batch_size}): pass")

    n_records, n_read = len(ds), 0
    watch = Stopwatch()
    with Bar("reading") as bar:
        for batch in ds.loader(batch_size):
            n_read += n_rows(batch)
            bar(n_read, n_records)
            if watch.seconds > seconds:
                break
    n_bytes = ds.nbytes * n_read / n_records  # an estimate, because sizes vary
    out.print(_speed("decoded", n_read, n_bytes, watch.seconds))
    if n_read < n_records:
        out.print(
            f"stopped after {n_read / n_records:.1%} of the records "
            f"(--seconds {seconds:g})"
        )


# Printing.


def _print_code(out: Console, line: str) -> None:
    out.print(f"\n{line}", style="bold cyan")


def _opened(out: Console, paths: str | list[str], index_dir: Path | None) -> fr.Dataset:
    """Open `paths`; print the code, and the number of records and bytes."""
    ds = fr.open(paths, index_dir=index_dir)
    _print_code(out, f"ds = fr.open({paths!r})")
    n_files = counted(len(ds.files), "file")
    out.print(f"{counted(len(ds), 'record')} in {n_files}, {size(ds.nbytes)}")
    return ds


def _speed(verb: str, n_records: int, n_bytes: float | None, seconds: float) -> str:
    text = f"{verb} {counted(n_records, 'record')} in {seconds:.2f} s: "
    text += f"{rate(n_records, seconds)} records/s"
    return text if n_bytes is None else f"{text}, {rate(n_bytes / 1e6, seconds)} MB/s"
