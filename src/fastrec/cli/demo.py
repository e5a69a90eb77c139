"""``fastrec demo``: the whole way from files to a trained model, or to your own records.

Without paths it makes its data (`garments`), trains on it (`softmax`) and says how fast
that went. With paths it opens those files and shows what is in them.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

import fastrec as fr
from fastrec.arrays.batch import Batch
from fastrec.cli import garments
from fastrec.cli.brief import brief, brief_row
from fastrec.cli.index import indexed
from fastrec.cli.softmax import Softmax
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, rate, size

__all__ = ["demo"]

BATCH_SIZE = 256
N_EPOCHS = 2
N_SHARDS = 6
PICTURE = fr.Raw((garments.SIDE, garments.SIDE), "uint8")
TEST_SEED = 1_000  # away from the seeds of the shards
SHADES = " .:-=+*#%@"


def demo(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Your files, directories, or globs in quotes."
        ),
    ] = None,
    *,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Write the made-up data there and keep it."
        ),
    ] = None,
    records: Annotated[
        int, typer.Option(min=60, help="How many training records to make up.")
    ] = 60_000,
    seconds: Annotated[
        float, typer.Option(min=0, help="Read your files for this long at most.")
    ] = 10,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Records in a batch.")
    ] = BATCH_SIZE,
) -> None:
    """Show your TFRecord files and how fast they read; without PATH, train a model.

    The model is a softmax classifier in NumPy; the data, 28x28 pictures of garments as
    in Fashion-MNIST, is made up and written as TFRecord files first.
    """
    if paths:
        if directory is not None:
            msg = "made-up data is only written where no PATH is given"
            raise typer.BadParameter(msg, param_hint="--dir")
        _tour(paths, batch_size, seconds)
        return
    with contextlib.ExitStack() as stack:
        index_dir = None
        if directory is None:
            # Indexes of files that will not be there tomorrow stay out of the cache.
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="fastrec-"))
            )
            index_dir = folder / "index"
        else:
            folder = directory
            folder.mkdir(parents=True, exist_ok=True)
        _lesson(folder, index_dir, records, batch_size)


# The made-up data, and a model of it.


def _lesson(
    folder: Path, index_dir: Path | None, n_records: int, batch_size: int
) -> None:
    out = console()
    train_glob, test_path = _write_data(out, folder, n_records)

    ds = _opened(out, train_glob, index_dir)
    _print_code(out, "print(ds.schema)")
    out.print(repr(ds.schema))
    row = ds[0]
    _print_code(out, "ds[0]")
    shown = ", ".join(f"{name!r}: {brief(value)}" for name, value in row.items())
    out.print(f"{{{shown}}}  # {garments.KINDS[row['label']]}")
    _print_picture(out, np.frombuffer(row["image"], np.uint8))

    _print_code(out, f"for batch in ds.loader({batch_size}): pass")
    watch = Stopwatch()
    n_read = sum(len(batch["label"]) for batch in ds.loader(batch_size))
    out.print(_speed("read", n_read, ds.nbytes, watch.seconds))

    loader = ds.loader(batch_size, shuffle=True)
    _print_code(out, f"loader = ds.loader({batch_size}, shuffle=True)")
    out.print(f"training: softmax regression in NumPy, {N_EPOCHS} epochs")
    model = Softmax(garments.SIDE**2, len(garments.KINDS))
    for epoch in range(1, N_EPOCHS + 1):
        watch = Stopwatch()
        loss = _train(model, loader, f"epoch {epoch} of {N_EPOCHS}")
        out.print(
            f"epoch {epoch}: loss {loss:.3f}, "
            + _speed("trained on", n_read, None, watch.seconds)
        )
    _print_code(out, "loader.state_dict()")
    out.print(repr(loader.state_dict()))
    on_train = _accuracy(model, loader)
    test = fr.open(test_path, index_dir=index_dir)
    on_test = _accuracy(model, test.loader(batch_size))
    out.print(
        f"accuracy: {on_train:.1%} of the training records, {on_test:.1%} of "
        f"{len(test):,} test records (guessing: {1 / len(garments.KINDS):.0%})",
        style="bold",
    )


def _write_data(out: Console, folder: Path, n_records: int) -> tuple[str, Path]:
    """Write training and test files; return the glob of the first, and the second.

    An existing file is an error, so that `folder` may be any.
    """
    test_path = folder / "test-00000-of-00001.tfrecord"
    shards = [
        (
            folder / f"train-{shard:05d}-of-{N_SHARDS:05d}.tfrecord",
            (shard + 1) * n_records // N_SHARDS - shard * n_records // N_SHARDS,
            shard,
        )
        for shard in range(N_SHARDS)
    ]
    shards.append((test_path, n_records // 6, TEST_SEED))
    total = sum(count for _, count, _ in shards)
    n_bytes = n_written = 0
    watch = Stopwatch()
    with Bar("writing") as bar:
        for path, count, seed in shards:
            with fr.Writer(path, features={"image": PICTURE}) as writer:
                for pictures, labels in garments.pictures(count, seed):
                    writer.write_batch({"image": pictures, "label": labels})
                    n_written += len(labels)
                    bar(n_written, total)
            n_bytes += path.stat().st_size
    out.print(
        f"made {counted(total, 'picture')} of garments and wrote {size(n_bytes)} in "
        f"{len(shards)} files to {printable(str(folder))} in {watch.seconds:.1f} s"
    )
    return f"{glob.escape(str(folder))}/train-*-of-{N_SHARDS:05d}.tfrecord", test_path


def _samples(batch: Batch) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pictures, shape ``(batch, pixels)``, and labels, without a copy."""
    pictures, labels = batch["image"], batch["label"]
    assert isinstance(pictures, fr.BytesArray)
    assert isinstance(labels, np.ndarray)
    return pictures.as_array("uint8", garments.SIDE**2), labels


def _train(model: Softmax, loader: fr.Loader, label: str) -> float:
    """Train for one epoch; return the mean loss of its batches."""
    total = 0.0
    with Bar(label) as bar:
        for step, batch in enumerate(loader, start=1):
            total += model.train(*_samples(batch))
            bar(step, len(loader), f"loss {total / step:.3f}")
    return total / len(loader)


def _accuracy(model: Softmax, loader: fr.Loader) -> float:
    """Return the share of records that the model labels rightly."""
    n_right = n_rows = 0
    for pictures, labels in map(_samples, loader):
        n_right += np.count_nonzero(model.predict(pictures) == labels)
        n_rows += len(labels)
    return n_right / n_rows


def _print_picture(out: Console, pixels: NDArray[np.uint8]) -> None:
    """Print a grey picture in letters, every second line of it: letters are tall."""
    for line in pixels.reshape(garments.SIDE, garments.SIDE)[::2]:
        shades = [SHADES[int(pixel) * len(SHADES) // 256] for pixel in line]
        out.print("    " + "".join(shades).rstrip())


# The user's own files.


def _tour(paths: list[str], batch_size: int, seconds: float) -> None:
    out = console()
    indexed(paths)  # behind a progress bar, for this may take a while
    ds = _opened(out, paths[0] if len(paths) == 1 else paths, None)
    if not len(ds):
        out.print("there is no record to show")
        return
    try:
        schema = ds.schema
    except fr.CorruptionError:
        raise
    except fr.Error as error:
        out.print(f"no schema: {error}", style="bold")
        schema = None
    is_streamed = ds.is_streamed
    if schema is None and is_streamed:
        _print_code(out, "next(iter(ds.records))")
        out.print(brief(next(iter(ds.records))))
        _print_code(out, "for record in ds.records: pass")
    elif schema is None:
        _print_code(out, "ds.records[0]")
        out.print(brief(ds.records[0]))
        _print_code(out, f"ds.records[i:i + {batch_size}] for all i")
    else:
        _print_code(out, "print(ds.schema)")
        out.print(repr(schema))
        _print_code(out, "ds.head(1)[0]" if is_streamed else "ds[0]")
        for line in brief_row(ds.head(1)[0] if is_streamed else ds[0]):
            out.print(line)
        _print_code(out, f"for batch in ds.loader({batch_size}): pass")
    _print_throughput(out, ds, schema is not None, batch_size, seconds)


def _print_throughput(
    out: Console, ds: fr.Dataset, is_decoded: bool, batch_size: int, seconds: float
) -> None:
    """Read the records once, or as many as fit in `seconds`, and print the rate."""
    n_records, n_read = len(ds), 0
    sizes = _decoded_sizes(ds, batch_size) if is_decoded else _sizes(ds, batch_size)
    watch = Stopwatch()
    with Bar("reading") as bar, contextlib.closing(sizes):
        for n_rows in sizes:
            n_read += n_rows
            bar(n_read, n_records)
            if watch.seconds > seconds:
                break
    # Records vary in size, so the bytes of a part are an estimate.
    n_bytes = ds.nbytes * n_read / n_records
    did = "decoded" if is_decoded else "read and verified"
    out.print(_speed(did, n_read, n_bytes, watch.seconds))
    if n_read < n_records:
        out.print(
            f"stopped at {n_read / n_records:.1%} of them (--seconds {seconds:g})"
        )


def _decoded_sizes(ds: fr.Dataset, batch_size: int) -> Generator[int, None, None]:
    for batch in ds.loader(batch_size):
        yield len(next(iter(batch.values())))


def _sizes(ds: fr.Dataset, batch_size: int) -> Generator[int, None, None]:
    if ds.is_streamed:
        records = iter(ds.records)
        while n_rows := sum(1 for _ in itertools.islice(records, batch_size)):
            yield n_rows
        return
    for first in range(0, len(ds), batch_size):
        yield len(ds.records[first : first + batch_size])


# What both print.


def _print_code(out: Console, line: str) -> None:
    out.print(f"\n{line}", style="bold cyan")


def _opened(out: Console, paths: str | list[str], index_dir: Path | None) -> fr.Dataset:
    """Open `paths`; print that, and how much there is."""
    ds = fr.open(paths, index_dir=index_dir)
    _print_code(out, f"ds = fr.open({paths!r})")
    n_files = counted(len(ds.files), "file")
    out.print(f"{counted(len(ds), 'record')} in {n_files}, {size(ds.nbytes)}")
    return ds


def _speed(did: str, n_records: int, n_bytes: float | None, seconds: float) -> str:
    text = f"{did} {counted(n_records, 'record')} in {seconds:.2f} s: "
    text += f"{rate(n_records, seconds)} records/s"
    if n_bytes is not None:
        text += f", {rate(n_bytes / 1e6, seconds)} MB/s"
    return text
