"""Generated workloads: files, and their expected values.

Files and expected values are generated once and cached in a directory; the name of each
workload's folder contains all its parameters.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

import encode
from truth import FIRST_ROWS, Column, Truth, byte_strings, rows_hash

__all__ = ["WORKLOADS", "Feature", "Prepared", "Workload", "default_data", "prepare"]

# Increment when files or expected values change.
GENERATION = 1
SEED = 20_260
N_FILES = 8
CHUNK_BYTES = 8 << 20

Drawn: TypeAlias = tuple[encode.Cells, dict[str, Column]]
Draw: TypeAlias = Callable[[np.random.Generator, int], Drawn]


@dataclass(frozen=True)
class Feature:
    """A feature, independent of the readers' specs.

    The last two kinds are feature lists, with `shape` or any number of values per step.
    """

    name: str
    kind: Literal["fixed", "varlen", "raw", "steps", "varlen_steps"]
    dtype: Literal["int64", "float32", "uint8", "bytes"]
    shape: tuple[int, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether it is a feature list of a SequenceExample."""
        return self.kind in ("steps", "varlen_steps")


@dataclass(frozen=True)
class Workload:
    """A workload: `draw(rng, n)` returns n records and their columns.

    `draw` is one function for all files, or one function per file.
    """

    name: str
    features: tuple[Feature, ...]
    n_records: int  # At scale 1, larger than the last-level cache.
    record_bytes: int  # Approximate, to draw in chunks that fit into memory.
    draw: Draw | tuple[Draw, ...]
    is_gzip: bool = False  # Whether the files are compressed.

    @property
    def is_sequence(self) -> bool:
        """Whether the records are SequenceExamples."""
        return any(f.is_list for f in self.features)


@dataclass(frozen=True)
class Prepared:
    """Files on disk, and their expected values."""

    workload: Workload
    files: tuple[Path, ...]
    truth: Truth


def scalars(
    rng: np.random.Generator, n: int
) -> tuple[list[encode.Cells], dict[str, Column]]:
    """A label, 13 floats and 26 int64 of 1 to 5 bytes, like the Criteo dataset."""
    label = rng.integers(0, 2, n)
    columns: dict[str, NDArray[Any]] = {"label": label}
    entries = [encode.int64_feature("label", encode.varints(label[:, None]))]
    for i in range(1, 14):
        floats = rng.standard_normal(n, np.float32)
        columns[f"I{i}"] = floats
        entries.append(encode.float_feature(f"I{i}", floats[:, None]))
    for i in range(1, 27):
        integers = np.exp2(rng.uniform(0, 31, n)).astype(np.int64)
        columns[f"category_{i}"] = integers
        cells = encode.varints(integers[:, None])
        entries.append(encode.int64_feature(f"category_{i}", cells))
    return entries, {name: Column(values) for name, values in columns.items()}


def tabular(rng: np.random.Generator, n: int) -> Drawn:
    """40 scalars in the same order, like Python's protobuf."""
    entries, columns = scalars(rng, n)
    return encode.example(entries), columns


def tabular_shuffled(rng: np.random.Generator, n: int) -> Drawn:
    """40 scalars in a different order in each record, like C++ protobuf."""
    entries, columns = scalars(rng, n)
    order = rng.permuted(np.tile(np.arange(len(entries)), (n, 1)), axis=1)
    return encode.example(entries, order), columns


def tabular_in(order: NDArray[np.int64]) -> Draw:
    """40 scalars in the given order, like one of several writer processes."""

    def draw(rng: np.random.Generator, n: int) -> Drawn:
        entries, columns = scalars(rng, n)
        return encode.example([entries[i] for i in order]), columns

    return draw


def wide(rng: np.random.Generator, n: int) -> Drawn:
    """600 int64 of 1 to 5 bytes, 200 floats, and 200 lists of 0 to 5 int64."""
    columns: dict[str, Column] = {}
    entries: list[encode.Cells] = []
    for feature in WIDE:
        if feature.dtype == "float32":
            floats = rng.standard_normal(n, np.float32)
            columns[feature.name] = Column(floats)
            entries.append(encode.float_feature(feature.name, floats[:, None]))
            continue
        integers = np.exp2(rng.uniform(0, 31, (n, 5))).astype(np.int64)
        if feature.kind == "fixed":
            integers, n_values = integers[:, :1], None
            columns[feature.name] = Column(integers[:, 0])
        else:
            n_values = rng.integers(0, 6, n)
            values = integers[np.arange(5) < n_values[:, None]]
            columns[feature.name] = Column(values, n_values)
        cells = encode.varints(integers, n_values)
        entries.append(encode.int64_feature(feature.name, cells))
    return encode.example(entries), columns


def wide_20(rng: np.random.Generator, n: int) -> Drawn:
    """The records of `wide`, with a selection of columns."""
    records, columns = wide(rng, n)
    return records, {feature.name: columns[feature.name] for feature in WIDE_20}


def mnist(rng: np.random.Generator, n: int) -> Drawn:
    """784 raw bytes and a label."""
    image = rng.integers(0, 256, (n, 28, 28), np.uint8)
    label = rng.integers(0, 10, n)
    one = np.ones(n, np.int64)
    entries = [
        encode.bytes_feature("image", [encode.fixed(image)], one),
        encode.int64_feature("label", encode.varints(label[:, None])),
    ]
    return encode.example(entries), {"image": Column(image), "label": Column(label)}


def tokens(rng: np.random.Generator, n: int) -> Drawn:
    """Two lists of 1,024 tokens, vocabulary 32k."""
    columns = {
        name: rng.integers(0, 32_000, (n, 1024)) for name in ("inputs", "targets")
    }
    entries = [encode.int64_feature(k, encode.varints(v)) for k, v in columns.items()]
    return encode.example(entries), {k: Column(v) for k, v in columns.items()}


def embeddings(rng: np.random.Generator, n: int) -> Drawn:
    """A vector of 768 floats and an id."""
    vector = rng.standard_normal((n, 768), np.float32)
    ids = rng.integers(0, 2**31, n)
    entries = [
        encode.float_feature("embedding", vector),
        encode.int64_feature("id", encode.varints(ids[:, None])),
    ]
    return encode.example(entries), {"embedding": Column(vector), "id": Column(ids)}


def ragged(rng: np.random.Generator, n: int) -> Drawn:
    """0 to 99 int64 and 0 to 15 words of 1 to 12 letters."""
    n_ids, n_words = rng.integers(0, 100, n), rng.integers(0, 16, n)
    ids = rng.integers(0, 32_000, (n, 99))
    letters = rng.integers(ord("a"), ord("z") + 1, (n, 15, 12), np.uint8)
    lengths = rng.integers(1, 13, (n, 15))
    words = [encode.prefixes(letters[:, i], lengths[:, i]) for i in range(15)]
    entries = [
        encode.int64_feature("ids", encode.varints(ids, n_ids)),
        encode.bytes_feature("words", words, n_words),
    ]
    has_word = np.arange(15) < n_words[:, None]
    texts = zip(letters[has_word], lengths[has_word], strict=True)
    return encode.example(entries), {
        "ids": Column(ids[np.arange(99) < n_ids[:, None]], n_ids),
        "words": Column(byte_strings(t[:k].tobytes() for t, k in texts), n_words),
    }


def images(rng: np.random.Generator, n: int) -> Drawn:
    """One byte string of 100 to 120 KB, incompressible like a JPEG, and a label."""
    jpeg: NDArray[np.uint8] = np.frombuffer(rng.bytes(n * 120_000), np.uint8)
    jpeg = jpeg.reshape(n, 120_000)
    lengths, label = rng.integers(100_000, 120_001, n), rng.integers(0, 1000, n)
    one = np.ones(n, np.int64)
    entries = [
        encode.bytes_feature("jpeg", [encode.prefixes(jpeg, lengths)], one),
        encode.int64_feature("label", encode.varints(label[:, None])),
    ]
    texts = zip(jpeg, lengths, strict=True)
    return encode.example(entries), {
        "jpeg": Column(byte_strings(t[:k].data for t, k in texts)),
        "label": Column(label),
    }


def sequence(rng: np.random.Generator, n: int) -> Drawn:
    """An id and a duration; 1 to 40 steps of an event, 16 floats and 0 to 3 words."""
    n_steps = rng.integers(1, 41, n)
    is_step = np.arange(40) < n_steps[:, None]
    ids = rng.integers(0, 2**31, n)
    duration = rng.standard_normal(n, np.float32)
    event = rng.integers(0, 32_000, (n, 40))
    frame = rng.standard_normal((n, 40, 16), np.float32)
    n_words = rng.integers(0, 4, (n, 40))
    letters = rng.integers(ord("a"), ord("z") + 1, (n, 40, 3, 12), np.uint8)
    lengths = rng.integers(1, 13, (n, 40, 3))
    context = [
        encode.int64_feature("id", encode.varints(ids[:, None])),
        encode.float_feature("duration", duration[:, None]),
    ]
    events = [encode.list_of_int64(encode.varints(event[:, [i]])) for i in range(40)]
    frames = [encode.list_of_floats(frame[:, i]) for i in range(40)]
    words = [
        encode.list_of_bytes(
            [encode.prefixes(letters[:, i, j], lengths[:, i, j]) for j in range(3)],
            n_words[:, i],
        )
        for i in range(40)
    ]
    lists = [
        encode.steps("event", events, n_steps),
        encode.steps("frame", frames, n_steps),
        encode.steps("words", words, n_steps),
    ]
    has_word = is_step[:, :, None] & (np.arange(3) < n_words[:, :, None])
    texts = zip(letters[has_word], lengths[has_word], strict=True)
    return encode.sequence_example(context, lists), {
        "id": Column(ids),
        "duration": Column(duration),
        "event": Column(event[is_step], n_steps),
        "frame": Column(frame[is_step].ravel(), n_steps * 16),
        "words": Column(
            byte_strings(t[:k].tobytes() for t, k in texts),
            has_word.sum(axis=(1, 2)),
        ),
        "words/counts": Column(n_words[is_step], n_steps),
    }


TABULAR = (
    Feature("label", "fixed", "int64"),
    *(Feature(f"I{i}", "fixed", "float32") for i in range(1, 14)),
    *(Feature(f"category_{i}", "fixed", "int64") for i in range(1, 27)),
)
RAGGED = (Feature("ids", "varlen", "int64"), Feature("words", "varlen", "bytes"))
LABEL = Feature("label", "fixed", "int64")
WIDE = (
    *(Feature(f"int_feature_{i:03}", "fixed", "int64") for i in range(600)),
    *(Feature(f"float_feature_{i:03}", "fixed", "float32") for i in range(200)),
    *(Feature(f"list_feature_{i:03}", "varlen", "int64") for i in range(200)),
)
# 12 scalars of int64, 4 of float and 4 lists, from all parts of a record.
WIDE_20 = WIDE[25::50]

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("tabular", TABULAR, 280_000, 900, tabular),
        Workload("tabular-shuffled", TABULAR, 280_000, 900, tabular_shuffled),
        Workload(
            "tabular-orders",
            TABULAR,
            280_000,
            900,
            tuple(
                tabular_in(np.random.default_rng(file).permutation(len(TABULAR)))
                for file in range(N_FILES)
            ),
        ),
        Workload("wide", WIDE, 8_400, 60_000, wide),
        Workload("wide-20", WIDE_20, 8_400, 60_000, wide_20),
        Workload(
            "mnist",
            (Feature("image", "raw", "uint8", (28, 28)), LABEL),
            300_000,
            900,
            mnist,
        ),
        Workload(
            "tokens",
            tuple(
                Feature(name, "fixed", "int64", (1024,))
                for name in ("inputs", "targets")
            ),
            50_000,
            20_000,
            tokens,
        ),
        Workload(
            "embeddings",
            (
                Feature("embedding", "fixed", "float32", (768,)),
                Feature("id", "fixed", "int64"),
            ),
            80_000,
            6_000,
            embeddings,
        ),
        Workload("ragged", RAGGED, 600_000, 2_000, ragged),
        Workload(
            "images", (Feature("jpeg", "fixed", "bytes"), LABEL), 2_400, 250_000, images
        ),
        Workload(
            "sequence",
            (
                Feature("id", "fixed", "int64"),
                Feature("duration", "fixed", "float32"),
                Feature("event", "steps", "int64"),
                Feature("frame", "steps", "float32", (16,)),
                Feature("words", "varlen_steps", "bytes"),
            ),
            100_000,
            20_000,
            sequence,
        ),
        Workload("tabular-gzip", TABULAR, 280_000, 900, tabular, is_gzip=True),
        Workload("ragged-gzip", RAGGED, 600_000, 2_000, ragged, is_gzip=True),
    )
}


def default_data() -> Path:
    """Return the default directory of the files."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fastrec-bench"


def prepare(workload: Workload, data: Path, scale: float) -> Prepared:
    """Return the workload's files under `data`; write them if necessary."""
    n_records = max(N_FILES, round(workload.n_records * scale))
    folder = data / f"{workload.name}-{n_records}-{SEED}-g{GENERATION}"
    if not folder.exists():
        data.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=data))
        try:
            generate(workload, draft, n_records)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    files = tuple(sorted(folder.glob("*.tfrecord")))
    return Prepared(workload, files, Truth.load(folder / "truth.npz"))


def generate(workload: Workload, folder: Path, n_records: int) -> None:
    """Write the files and expected values of one workload."""
    rng = np.random.default_rng(SEED)
    chunk = max(1, CHUNK_BYTES // workload.record_bytes)
    records = nbytes = total = 0
    sums: dict[str, list[int]] = {"records": [], "nbytes": [], "hashes": []}
    first: dict[str, Column] = {}
    for shard in range(N_FILES):
        end = n_records * (shard + 1) // N_FILES
        path = folder / f"{workload.name}-{shard:05d}-of-{N_FILES:05d}.tfrecord"
        draw = workload.draw
        draw = draw[shard] if isinstance(draw, tuple) else draw
        with gzip.open(path, "wb", 6) if workload.is_gzip else path.open("wb") as file:
            while records < end:
                n = min(max(chunk, FIRST_ROWS), end - records)
                cells, columns = draw(rng, n)
                nbytes += file.write(encode.frames(cells))
                total = (total + rows_hash(columns)) % 2**64
                first = first or {k: c.head(FIRST_ROWS) for k, c in columns.items()}
                records += n
        for name, value in zip(sums, (records, nbytes, total), strict=True):
            sums[name].append(value)
    Truth(**sums, first=first).save(folder / "truth.npz")
