"""The files of a release: an index, step counts, kept rows and states of loaders.

usage: python tests/support/release_files.py    (GNU tar; needs OpenCV)

Writes ``tests/releases/VERSION.tar.xz``, for the installed version, with

* ``data/``: TFRecord files and ``.fastrec/index.frecidx``;
* ``index/``: the counts of steps;
* ``kept-NAME/``: the rows of each dataset of `kept_datasets`;
* ``states.json``: a state of each loader of `loaders`, and the batches after it.

Each later version must read them: ``tests/releases/test_releases.py``. What is written
here may grow, but datasets and loaders that exist must stay as they are.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from columns import Untyped
from kept_rows import with_rows_of_every_kind

N = 37
TIME = 1_700_000_000  # when the files were modified; kept rows and index remember it
N_BEFORE, N_AFTER = 3, 12  # batches before and after a state

FEATURES: dict[str, Any] = {
    "n": fr.FixedLen((), "int64"),
    "text": fr.FixedLen((), "bytes"),
    "tokens": fr.VarLen("int64"),
    "pixels": fr.Raw((40, 40, 3), "uint8"),  # a file, not a field of the table
}
IMAGE = {"image": fr.Image((40, 40, 3), fit="resize")}  # of images of this size
LENGTHS = np.arange(N) % 5  # of the tokens
KEPT_RUNS = {"shuffle": True, "seed": 1, "num_threads": 0, "transform_threads": 0}


def pixels(numbers: Untyped) -> Untyped:
    """Return the pixels of records."""
    steps = np.arange(40 * 40 * 3).reshape(40, 40, 3)
    return ((np.asarray(numbers)[:, None, None, None] + steps) % 256).astype(np.uint8)


def columns(numbers: Untyped) -> dict[str, Any]:
    """Return the columns of records."""
    numbers = np.asarray(numbers)
    tokens = [(np.arange(i % 5) * i).tolist() for i in numbers.tolist()]
    return {
        "n": numbers,
        "text": [b"record %d" % i for i in numbers],
        "tokens": fr.RaggedArray.from_list(tokens, dtype="int64"),
        "pixels": pixels(numbers),
    }


def opened(folder: Path, pattern: str = "plain-*.tfrecord", **options: Untyped) -> Any:
    """Open files of the data."""
    options = {"features": FEATURES, "index_dir": folder / "index", **options}
    return fr.open(folder / "data" / pattern, **options)


def kept_datasets(folder: Path) -> dict[str, Any]:
    """Return the datasets that keep their rows, by name."""
    ds = opened(folder)
    return {
        "rows": ds.with_transform(with_rows_of_every_kind, cache_key="1"),
        "steps": ds.steps({"tokens": [-1, 0]}, edge="zero", keep=["n"]),
    }


def kept_images(folder: Path) -> Any:
    """Return a dataset with images."""
    return opened(folder, "images.tfrecord", features=IMAGE)


def draw(_row: dict[str, Any], rng: np.random.Generator) -> int:
    """Return a random number of a row."""
    return int(rng.bit_generator.random_raw() >> 40)


def loaders(folder: Path) -> dict[str, fr.Loader]:
    """Return a loader of each kind of order, by name."""
    ds, zipped = opened(folder), opened(folder, "zipped-*.tfrecord.gz")
    parts = {"a": (ds.select(range(20)), 2), "b": (ds.select(range(20, N)), 1)}
    batches = fr.samplers.bucket_by_length(LENGTHS, edges=[2, 4], sizes=[4, 3, 2])
    drawn = fr.per_row(draw, out={"draw": "int64"})
    options: dict[str, Any] = {"seed": 3, "num_threads": 0, "transform_threads": 0}
    return {
        "files": ds.loader(5, **options),
        "shuffled": ds.loader(5, shuffle=True, transform=drawn, **options),
        "blocks": ds.loader(5, shuffle=fr.Blocks(20_000, lanes=2), **options),
        "window": zipped.loader(5, shuffle=fr.Window(8), **options),
        "mix": fr.mix(parts).loader(5, shuffle=True, **options),
        "mix per batch": fr.mix(parts, per_batch=True).loader(5, **options),
        "listed": ds.loader(batches=batches, **options),
        "steps": ds.steps({"tokens": 0}).loader(5, shuffle=True, **options),
    }


def following(batches: Iterator[dict[str, Any]]) -> list[dict[str, list[int]]]:
    """Return the columns of the next batches that have a number in each row."""
    return [
        {
            name: column.tolist()
            for name, column in batch.items()
            if isinstance(column, np.ndarray) and column.ndim == 1
        }
        for batch in itertools.islice(batches, N_AFTER)
    ]


def write(folder: Path) -> None:
    """Write the files of a release."""
    data = folder / "data"
    data.mkdir()
    for i, part in enumerate(np.split(np.arange(N), [15])):
        fr.write(data / f"plain-{i}.tfrecord", columns(part), features=FEATURES)
        path = data / f"zipped-{i}.tfrecord.gz"
        fr.write(path, columns(part), features=FEATURES, compression="GZIP")
    image = {"image": pixels(range(N))}
    fr.write(data / "images.tfrecord", image, features={"image": fr.Image((40, 40, 3))})
    for path in data.iterdir():
        os.utime(path, (TIME, TIME))
    fr.build_index(data, next_to_data=True)

    for name, ds in {**kept_datasets(folder), "images": kept_images(folder)}.items():
        for _ in ds.cache(folder / f"kept-{name}").loader(8, **KEPT_RUNS):
            pass
    states = {}
    for name, loader in loaders(folder).items():
        loader.set_epoch(1)
        batches = loader.repeat()
        for _ in itertools.islice(batches, N_BEFORE):
            pass
        states[name] = {"state": loader.state_dict(), "batches": following(batches)}
    (folder / "states.json").write_text(json.dumps(states, indent=1))


def main() -> None:
    """Write the archive of the installed version."""
    archive = Path(__file__).parents[1] / "releases" / f"{fr.__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTREC_CACHE"] = str(Path(folder, "cache"))
        content = Path(folder, "content")
        content.mkdir()
        write(content)
        command = f"""tar -cJf {archive} -C {content} --sparse --exclude=.lock* --sort=name
            --owner=0 --group=0 --numeric-owner --mtime=@{TIME} ."""
        subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
