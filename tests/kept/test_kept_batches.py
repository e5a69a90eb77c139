"""Batches of kept rows.

Goal
    A loader of a dataset that keeps its rows delivers the batches of the same loader
    without `cache`, bit for bit: while the directory is filled and in later epochs, in
    every order, on every rank, for every spec, policy and adapter.
Method
    Generated schemas and records, compared for three epochs: the first decodes, the
    others read the directory. FASTREC_TEST_RUNS sets how many schemas (30).
"""

from __future__ import annotations

import functools
import gzip
import io
import itertools
import pickle
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import fastrec as fr
from campaigns.differential_cases import FORMS, random_record, random_sequence_specs
from campaigns.differential_specs import fastrec_feature
from campaigns.single_rows import random_schema
from children import SEED, n_runs
from columns import Untyped, Write
from fastrec import _core
from fastrec.on_error import SkippedRegion
from kept_rows import exact, exactly
from numbered import (
    SPEC,
    Batch,
    N,
    every_order,
    loader_of,
    record,
    reloaded,
    take,
    write_files,
)
from object_server import ObjectServer
from oracle import example, tfrecord_file
from oracle_frames import frame_offsets
from tfds_directory import class_label, image, node, write_directory


def generated(rng: random.Random, folder: Path, **options: Untyped) -> Untyped:
    """Return a dataset of generated Examples or SequenceExamples in 1 to 3 files."""
    is_sequence = rng.random() < 0.3
    if is_sequence:
        specs: Any = random_sequence_specs(rng)
        while len({spec.name for spec in specs}) < len(specs):
            specs = random_sequence_specs(rng)
        for part, is_list in (("context", False), ("sequence", True)):
            options[f"{part}_features"] = {
                spec.name: fastrec_feature(spec)
                for spec in specs
                if (spec.section == "lists") == is_list
            }
    else:
        specs, features = random_schema(rng)
        unknown = fr.SerializedTensor()  # rows of any shape cannot be kept
        options["features"] = {
            name: fr.Raw((), "uint8") if spec == unknown else spec
            for name, spec in features.items()
        }
    form = rng.choice(FORMS)
    paths = []
    for i in range(rng.randrange(1, 4)):
        records = [
            random_record(rng, specs, form, is_sequence=is_sequence)
            for _ in range(rng.randrange(12))
        ]
        paths.append(folder / f"{rng.random()}-{i}")
        paths[-1].write_bytes(tfrecord_file(records))
    return fr.open(paths, **options)


@pytest.mark.filterwarnings("ignore:drop_last=True drops all records")
@pytest.mark.filterwarnings("ignore::fastrec.MissingFeatureWarning")
@pytest.mark.parametrize("run", range(n_runs(30)))
def test_kept_rows_of_any_schema_are_those_of_the_files(
    tmp_path: Path, run: int
) -> None:
    rng = random.Random(SEED * 100_000 + run)
    on_error = rng.choice(("raise", "skip", "skip", "mask"))
    ds = generated(rng, tmp_path, on_error=on_error)
    options: dict[str, Any] = {
        "shuffle": rng.choice((False, True, fr.Blocks(block_bytes=300, lanes=3))),
        "num_threads": rng.choice((0, 2)),
        "transform_threads": rng.choice((None, 0, 2)),
        rng.choice(("pad_last", "drop_last")): rng.random() < 0.6,
        "seed": run,
    }
    size = rng.randrange(1, 9)
    kept = ds.cache(tmp_path / "kept")
    for loader in (kept.loader(size, **options), kept.loader(size, **options)):
        plain = ds.loader(size, **options)
        for _ in range(2):
            assert exactly(loader) == exactly(plain)
    if on_error != "raise":
        assert loader.stats.n_kept == loader.stats.n_records


# Views, transforms and columns.

# Keeps the rows of a dataset in a new directory, or, for comparison, only selects columns.
Cache: TypeAlias = Callable[..., Untyped]


def doubled(batch: Batch) -> Batch:
    return {**batch, "n": batch["n"] * 2, "half": np.asarray(batch["n"] / 2, "float16")}


def n_bytes_of(batch: Batch) -> Batch:
    lengths = [sum(map(len, row)) for row in batch["words"].tolist()]
    return {**batch, "bytes": np.array(lengths, "uint16")}


def noise(batch: Batch, info: fr.BatchInfo) -> Batch:
    values = [
        0.0 if p < 0 else info.rng(i).random() for i, p in enumerate(info.positions)
    ]
    return {**batch, "noise": np.array(values)}


def count(row: dict[str, Untyped]) -> int:
    return len(row["words"])


def jitter(row: dict[str, Untyped], rng: np.random.Generator) -> float:
    return float(row["n"] + rng.random())


COUNTS = fr.per_row(count, out={"count": "int64"})
JITTER = fr.per_row(jitter, out={"noise": "float64"})
PADDED = {
    "n": fr.FixedLen((), "int64"),
    "words": fr.FixedLenSequence((), "bytes", b"-", multiple_of=2, lengths="n_words"),
}

# Views of two datasets, some rows of which are kept.
VIEWS: dict[str, Callable[[Cache, Untyped, Untyped], Untyped]] = {
    "whole": lambda cache, a, _: cache(a),
    "select before": lambda cache, a, _: cache(a.select(range(N - 1, 0, -3))),
    "select after": lambda cache, a, _: cache(a).select([5, 1, 1, 40, 17, 3, 5]),
    "select twice": lambda cache, a, _: cache(a.select(range(30))).select(range(9, 20)),
    "split before": lambda cache, a, _: cache(a.split([0.5, 0.5])[1]),
    "split after": lambda cache, a, _: cache(a).split([0.3, 0.7])[1],
    "shard before": lambda cache, a, _: cache(a.shard(num_shards=3, index=1)),
    "shard after": lambda cache, a, _: cache(a).shard(num_shards=3, index=2),
    "empty before": lambda cache, a, _: cache(a.select([])),
    "empty after": lambda cache, a, _: cache(a).select([]),
    "columns": lambda cache, a, _: cache(a, columns=["words", "n"]),
    "columns after": lambda cache, a, _: cache(a).select_columns(["pixels", "words"]),
    "columns twice": lambda cache, a, _: cache(a, ["n", "pixels"]).select_columns(
        ["n"]
    ),
    "columns of transforms": lambda cache, a, _: cache(
        a.with_transform(doubled, cache_key="1"), ["half"]
    ),
    "padded": lambda cache, a, _: cache(a.with_features(PADDED)),
    "padded select": lambda cache, a, _: cache(a.with_features(PADDED)).select(
        [0, 4, 5]
    ),
    "before": lambda cache, a, _: cache(a.with_transform(doubled, cache_key="1")),
    "after": lambda cache, a, _: cache(a).with_transform(noise),
    "both": lambda cache, a, _: (
        cache(
            a.with_transform(n_bytes_of, cache_key="1").with_transform(
                COUNTS, cache_key="2"
            )
        )
        .with_transform(noise)
        .with_transform(JITTER)
    ),
    "concat": lambda cache, a, b: fr.concat([b, cache(a)]),
    "concat kept": lambda cache, a, b: fr.concat([cache(a), cache(b.select(range(8)))]),
    "kept concat": lambda cache, a, b: cache(fr.concat([a, b])),
    "kept concat of columns": lambda cache, a, b: cache(fr.concat([a, b]), ["n"]),
    "kept concat of transforms": lambda cache, a, b: cache(
        fr.concat(
            [
                a.with_transform(doubled, cache_key="1"),
                b.with_transform(doubled, cache_key="2"),
            ]
        ).with_transform(n_bytes_of, cache_key="3")
    ),
    "concat of transforms": lambda cache, a, b: fr.concat(
        [
            cache(a.with_transform(doubled, cache_key="1")).with_transform(noise),
            b.with_transform(doubled).with_transform(noise),
        ]
    ),
    "concat of padded": lambda cache, a, b: fr.concat(
        [cache(a.with_features(PADDED)), b.with_features(PADDED)]
    ),
    "concat of padded kept": lambda cache, a, b: fr.concat(
        [cache(b.with_features(PADDED)), cache(a.with_features(PADDED))]
    ).with_transform(n_bytes_of),
    "concat twice": lambda cache, a, b: fr.concat([cache(a), b, cache(a)]),
    "mix": lambda cache, a, b: fr.mix({"a": (cache(a), 2), "b": (b, 1)}),
    "mix kept": lambda cache, a, b: fr.mix({"a": (cache(a), 2), "b": (cache(b), 1)}),
    "mix per batch": lambda cache, a, b: fr.mix(
        {"a": (cache(a), 2), "b": (cache(b), 1)}, per_batch=True
    ),
}


def only(columns: list[str], batch: Batch) -> Batch:
    return {name: batch[name] for name in batch if name in (*columns, "__valid__")}


def both(view: str, folder: Path, a: Untyped, b: Untyped) -> tuple[Untyped, Untyped]:
    """Return a view of kept rows, and the same view of decoded rows."""
    numbers = itertools.count()

    def kept(ds: Untyped, columns: list[str] | None = None) -> Untyped:
        return ds.cache(folder / f"kept{next(numbers)}", columns)

    def decoded(ds: Untyped, columns: list[str] | None = None) -> Untyped:
        if columns is None:
            return ds
        if set(columns) <= set(ds.column_names):
            return ds.select_columns(columns)
        return ds.with_transform(functools.partial(only, columns))

    return VIEWS[view](kept, a, b), VIEWS[view](decoded, a, b)


@pytest.fixture(scope="module")
def other(write: Write) -> Untyped:
    return fr.open(write_files(write, (5, 40)), features=SPEC)


LOADERS: list[dict[str, Any]] = [
    {"batch_size": 7},
    {"batch_size": 8, "shuffle": True, "pad_last": True},
    {"batch_size": 4, "shuffle": True, "drop_last": True, "transform_threads": 0},
    {"batch_size": 100, "shuffle": True, "num_threads": 0},
]


@pytest.mark.filterwarnings("ignore:drop_last=True drops all records")
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_kept_rows_are_those_of_decoded_rows(
    ds: Untyped, other: Untyped, tmp_path: Path, view: str
) -> None:
    kept, plain = both(view, tmp_path, ds, other)
    assert len(kept) == len(plain)
    for options in LOADERS:
        loader, expected = kept.loader(**options), plain.loader(**options)
        for _ in range(2):
            assert exactly(loader) == exactly(expected)
    again = pickle.loads(pickle.dumps(kept))
    for part in (kept, again):
        assert exactly([part[:]]) == exactly([plain[:]])
        for name in plain[:]:
            if name != "noise":  # depends on the order
                assert exact(part.column(name)) == exact(plain.column(name))
    loader = again.loader(11, shuffle=True)
    assert exactly(loader) == exactly(plain.loader(11, shuffle=True))
    if ("concat" not in view and "mix" not in view) or "kept" in view:
        assert loader.stats.n_kept == loader.stats.n_records


# Orders, ranks and resuming.


@every_order
def test_ranks_fill_a_directory_together(
    ds: Untyped, tmp_path: Path, order: str
) -> None:
    kept = ds.cache(tmp_path)
    for epoch in range(2):
        for rank in range(4):
            options = {"rank": rank, "world_size": 4, "pad_last": order != "listed"}
            loader, plain = (loader_of(d, order, **options) for d in (kept, ds))
            assert exactly(loader) == exactly(plain), (epoch, rank)
    assert loader.stats.n_kept == loader.stats.n_records > 0


@every_order
def test_a_run_resumes_while_the_directory_is_filled(
    ds: Untyped, tmp_path: Path, order: str
) -> None:
    plain = loader_of(ds, order, seed=3)
    whole = exactly(plain) + exactly(plain)
    state = loader_of(ds, order, seed=3).state_dict()
    found: list[Untyped] = []
    for n_steps in (1, 2, 3, 4) * 3:
        loader = loader_of(ds.cache(tmp_path), order, seed=3)
        loader.load_state_dict(reloaded(state))
        found += exactly(take(loader, n_steps))
        state = loader.state_dict()
        if len(found) >= len(whole) // 2:
            break
    loader = loader_of(ds.cache(tmp_path), order, seed=3)
    loader.load_state_dict(reloaded(state))
    found += exactly(loader)
    found += exactly(loader)
    assert found[: len(whole)] == whole


# Rows that cannot be read.


@pytest.mark.parametrize("on_error", ["skip", "resync", "mask"])
@pytest.mark.parametrize("pad_last", [False, True])
def test_damaged_records_are_skipped_or_masked_in_every_epoch(
    write: Write, tmp_path: Path, on_error: Untyped, pad_last: bool
) -> None:
    records = [record(n) for n in range(30)]
    records[11] = b"\xff" * 9
    data = bytearray(tfrecord_file(records))
    data[frame_offsets(bytes(data))[20] + 14] ^= 1
    ds = fr.open(write(bytes(data)), features=SPEC, on_error=on_error)
    options: dict[str, Any] = {"shuffle": True, "pad_last": pad_last}
    kept = ds.cache(tmp_path / "kept")
    for loader in (kept.loader(4, **options), kept.loader(4, **options)):
        plain = ds.loader(4, **options)
        for _ in range(2):
            assert exactly(loader) == exactly(plain)
            assert loader.report == plain.report
    assert loader.stats.n_kept == loader.stats.n_records


def fails_for_sevens(row: dict[str, Untyped]) -> int:
    if row["n"] % 7 == 3:
        raise ValueError("a seven")
    return int(row["n"]) + 1


def of_region(region: SkippedRegion) -> Untyped:
    """Return what is known of the row of a transform that failed."""
    return region.path, region.begin, region.reason, region.records


@pytest.mark.parametrize("policy", ["skip", "mask"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_rows_whose_transform_fails_are_skipped_or_masked(
    ds: Untyped, tmp_path: Path, policy: str, place: str
) -> None:
    transform = fr.per_row(fails_for_sevens, out={"next": "int64"})
    options: dict[str, Any] = {"shuffle": True, "on_transform_error": policy}
    plain = ds.with_transform(transform).loader(5, **options)
    for _ in range(2):
        if place == "before":
            kept = ds.with_transform(transform, cache_key="1").cache(tmp_path)
        else:
            kept = ds.cache(tmp_path).with_transform(transform)
        loader = kept.loader(5, **options)
        plain.set_epoch(0)
        for _ in range(2):
            assert exactly(loader) == exactly(plain)
            assert [*map(of_region, loader.report)] == [*map(of_region, plain.report)]
    assert loader.stats.n_kept > 0


# Specs that Python code decodes, data sets of TFDS, and remote files.


def picture(n: int) -> bytes:
    PIL = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(n).integers(0, 256, (n % 3 + 4, 5, 3), np.uint8)
    file = io.BytesIO()
    PIL.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def with_images(n: int) -> bytes:
    pictures = [picture(n + i) for i in range(3)]
    if n % 10 == 7:
        pictures[n // 10 % 2] = b"not an image"
    numbers = [zlib.compress(bytes([n, i])) for i in range(2)]
    return example(
        {
            b"image": ("bytes", pictures[:1]),
            b"images": ("bytes", pictures[1 : 1 + n % 3]),
            b"numbers": ("bytes", numbers),
            b"zipped": ("bytes", numbers[:1]),
        }
    )


DECODED = {
    "image": fr.Image((4, 4), fit="resize"),
    "images": fr.List(fr.Image((6, 3, 1), fit="resize")),
    "raw": fr.List(fr.Raw((2,), "uint8", compression="ZLIB"), 2, key="numbers"),
    "zipped": fr.Raw((2,), "uint8", compression="ZLIB"),
    "bytes": fr.FixedLen((), "bytes", key="image"),
}


@pytest.mark.parametrize("on_error", ["raise", "skip", "mask"])
def test_images_and_lists_are_kept_as_decoded(
    write: Write, tmp_path: Path, on_error: Untyped
) -> None:
    numbers = [n for n in range(40) if on_error != "raise" or n % 10 != 7]
    path = write(tfrecord_file(with_images(n) for n in numbers))
    ds = fr.open(path, features=DECODED, on_error=on_error)
    options: dict[str, Any] = {"shuffle": True, "pad_last": True}
    kept = ds.cache(tmp_path / "kept")
    for loader in (kept.loader(6, **options), kept.loader(6, **options)):
        plain = ds.loader(6, **options)
        for _ in range(2):
            assert exactly(loader) == exactly(plain)
    n_good = sum(n % 10 != 7 for n in numbers)
    assert n_good == 36
    assert loader.stats.n_kept == 2 * n_good


def test_data_sets_of_tfds(tmp_path: Path) -> None:
    rows = [{"image": picture(0), "label": n % 3, "text": b"x" * n} for n in range(20)]
    features = {
        "image": image(4, 5, 3),
        "label": class_label(3),
        "text": node("Text", "text"),
    }
    directory = write_directory(
        tmp_path / "data", features, {"train": [rows[:9], rows[9:]]}
    )
    ds = fr.open_tfds(directory, "train[2:]")
    kept = ds.cache(tmp_path / "kept")
    loader = kept.loader(5, shuffle=True)
    for _ in range(2):
        assert exactly(loader) == exactly(ds.loader(5, shuffle=True))
        loader.set_epoch(0)
    assert loader.stats.n_kept == 18
    assert exact(kept.column("label")) == exact(ds.column("label"))


def test_remote_files(server: ObjectServer, tmp_path: Path) -> None:
    data = tfrecord_file(record(n) for n in range(30))
    server.objects |= {"a.tfrecord": data, "b.tfrecord": data}
    urls = [f"{server.url}/{name}.tfrecord" for name in "ab"]
    ds = fr.open(urls, features=SPEC)
    loader, plain = (
        each.loader(7, shuffle=fr.Blocks(block_bytes=300, lanes=2))
        for each in (ds.cache(tmp_path), ds)
    )
    for _ in range(2):
        assert exactly(loader) == exactly(plain)
    assert loader.stats.n_kept == 60


def test_compressed_files_need_a_copy(write: Write, tmp_path: Path) -> None:
    path = write(gzip.compress(tfrecord_file(record(n) for n in range(30))))
    kept = fr.open(path, features=SPEC).cache(tmp_path / "kept")
    with pytest.raises((TypeError, ValueError), match="cache_dir"):
        next(iter(kept.loader(5)))
    ds = fr.open(path, features=SPEC, cache_dir=tmp_path / "copies")
    loader = ds.cache(tmp_path / "kept").loader(5, shuffle=True)
    plain = ds.loader(5, shuffle=True)
    for _ in range(2):
        assert exactly(loader) == exactly(plain)


# Single batches and rows, and warnings.


def test_single_batches_and_rows_are_read_from_the_directory(
    ds: Untyped, tmp_path: Path
) -> None:
    kept, plain = ds.cache(tmp_path), ds.loader(5, shuffle=True, pad_last=True)
    loader = kept.loader(5, shuffle=True, pad_last=True)
    for _ in range(2):
        found = [loader.batch(step) for step in range(9)]
        assert exactly(found) == exactly(plain.batch(step) for step in range(9))
    for i in (0, 42, -1):
        assert repr(kept[i]) == repr(ds[i])
    assert [repr(row) for row in kept] == [repr(row) for row in ds]
    assert np.load(tmp_path / "rows.npy")["checksum"].all()


@pytest.mark.parametrize("view", ["whole", "before", "kept concat of transforms"])
def test_padding_is_decoded_once(
    ds: Untyped,
    other: Untyped,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    view: str,
) -> None:
    kept, plain = both(view, tmp_path, ds, other)
    options: dict[str, Any] = {"pad_last": True, "num_threads": 0}
    loader = kept.loader(len(kept) - 1, **options)
    for _ in range(2):
        exactly(loader)
    with monkeypatch.context() as patch:
        patch.delattr(_core, "decode_records")
        found = exactly(loader)
    assert found == exactly(plain.loader(len(kept) - 1, **options))


def test_a_column_without_values_is_a_warning_of_the_first_epoch(
    write: Write, tmp_path: Path
) -> None:
    path = write(tfrecord_file(record(n) for n in range(30)))
    features = {
        "word": fr.VarLen("bytes"),
        "padded": fr.FixedLenSequence((), "bytes", key="words"),
    }
    loader = fr.open(path, features=features).cache(tmp_path).loader(5)
    with pytest.warns(fr.MissingFeatureWarning, match="did you mean 'words'"):
        exactly(loader)
    exactly(loader)


def test_transforms_get_padded_columns_if_only_one_part_has_them(
    tmp_path: Path,
) -> None:
    for name in "ab":
        fr.write(tmp_path / name, [{"n": [*range(1 + i % 4)]} for i in range(40)])
    padded = {"n": fr.FixedLenSequence((), "int64")}
    varying = {"n": fr.VarLen("int64")}

    def totals(batch: Untyped) -> Untyped:
        assert isinstance(batch["n"], np.ndarray)
        return {"total": batch["n"].sum(1)}

    def totals_of_runs(batch: Untyped) -> Untyped:
        return {"total": batch["n"].to_padded(fill=0).sum(1)}

    a = fr.open(tmp_path / "a", features=padded).cache(tmp_path / "kept")
    b = fr.open(tmp_path / "b", features=varying)
    joined = fr.concat([a.with_transform(totals), b.with_transform(totals_of_runs)])
    loader = joined.loader(16, shuffle=True)
    for _ in range(2):
        assert sum(int(batch["total"].sum()) for batch in loader) == 2 * 10 * (
            1 + 3 + 6
        )
