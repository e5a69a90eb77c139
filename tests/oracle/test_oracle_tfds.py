"""Data sets of tensorflow-datasets, value by value against its own readers.

Goal
    `open_tfds` returns the values, shapes and dtypes that TFDS returns, for every layout
    that TFDS writes, and selects the records that TFDS selects.
Method
    Data sets that TFDS generates here, with known and random values, each read by both.
    Every leaf of every row is compared. Random texts of the slicing grammar.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from fastrec.tfds.split_slices import pieces_of
from tfds_builders import examples, generate, tfds

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore"),  # of TFDS and what it imports
]

F = tfds.features
RNG = np.random.default_rng(0)


def leaves(value: Untyped) -> list[Any]:
    """Return the values of a row, one after another, after the lengths of its lists."""
    if isinstance(value, (fr.RaggedArray, fr.BytesArray)):
        value = value.tolist()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [
            ("list", len(value)),
            *(leaf for item in value for leaf in leaves(item)),
        ]
    if isinstance(value, np.generic):
        value = value.item()
    return ["nan" if isinstance(value, float) and math.isnan(value) else value]


def dtype_of(value: Untyped) -> np.dtype[Any] | None:
    """Return the dtype of a value, or of the first one in a list."""
    if isinstance(value, (list, tuple)):
        return next((found for item in value if (found := dtype_of(item))), None)
    if isinstance(value, (bytes, str, fr.BytesArray)):
        return np.dtype(object)
    dtype: np.dtype[Any] = np.dtype(value.dtype)
    return dtype


def compare(
    builder: Untyped,
    split: str = "train",
    pixels: Mapping[str, int] | None = None,
    **options: Untyped,
) -> int:
    """Compare all rows of a split; return the number of values.

    `pixels` are columns of images whose values may differ by a number.
    """
    expected = examples(builder, split)
    ds = fr.open_tfds(builder.data_path, split, **options)
    rows: Any = list(ds)
    assert len(rows) == len(ds) == len(expected)
    n_values = 0
    for row, other in zip(rows, expected, strict=True):
        assert set(row) == set(other)
        for name, value in row.items():
            found, right = leaves(value), leaves(other[name])
            if name in (pixels or {}):
                limit = (pixels or {})[name]
                assert len(found) == len(right), name
                pairs = zip(found, right, strict=True)
                assert all(
                    a == b if isinstance(a, tuple) else abs(a - b) <= limit
                    for a, b in pairs
                ), name
            else:
                assert found == right, name
            if (kind := dtype_of(other[name])) is not None:
                assert dtype_of(value) == kind, name
            n_values += sum(not isinstance(leaf, tuple) for leaf in found)
    batches = list(ds.loader(3))
    assert sum(len(next(iter(batch.values()))) for batch in batches) == len(rows)
    return n_values


def pixels(*shape: int) -> Untyped:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def smooth(height: int, width: int) -> Untyped:
    """Return a picture that decoders of JPEG decode nearly alike."""
    rows, columns = np.mgrid[:height, :width]
    tint = RNG.integers(0, 100, 3)
    picture = rows[..., None] * 4 + columns[..., None] * 2 + tint
    return picture.astype(np.uint8)


def test_mnist(tmp_path: Path) -> None:
    features = {
        "image": F.Image(shape=(28, 28, 1)),
        "label": F.ClassLabel(names=["zero", "one", "two"]),
    }
    rows = [{"image": pixels(28, 28, 1), "label": i % 3} for i in range(61)]
    builder = generate(
        tmp_path, "Mnist", features, {"train": rows, "test": rows[:7]}, n_shards=3
    )
    for split in ("train", "test", "train[:80%]", "train[10:20]+test", "all"):
        assert compare(builder, split) >= 7 * 785
    ds = fr.open_tfds(builder.data_path, "test")
    assert ds.schema.class_names == {"label": ("zero", "one", "two")}
    assert list(ds.schema.class_names["label"]) == builder.info.features["label"].names


def coco_row(i: int) -> dict[str, Any]:
    def box() -> Untyped:
        (ymin, ymax), (xmin, xmax) = np.sort(RNG.random((2, 2)))
        return F.BBox(ymin=ymin, xmin=xmin, ymax=ymax, xmax=xmax)

    n = i % 4
    return {
        "image": pixels(8 + i, 20 - i, 3),
        "image/filename": f"{i}.jpg",
        "image/id": i * 2**33,
        "objects": [
            {
                "area": int(RNG.integers(2**40)),
                "bbox": box(),
                "id": j,
                "is_crowd": bool(j % 2),
                "label": j % 2,
                "tokens": [f"t{k}" for k in range(j)],
            }
            for j in range(n)
        ],
    }


def test_coco(tmp_path: Path) -> None:
    features = {
        "image": F.Image(encoding_format="png"),
        "image/filename": F.Text(),
        "image/id": np.int64,
        "objects": F.Sequence(
            {
                "area": np.int64,
                "bbox": F.BBoxFeature(),
                "id": np.int64,
                "is_crowd": np.bool_,
                "label": F.ClassLabel(names=["cat", "dog"]),
                "tokens": F.Sequence(F.Text()),
            }
        ),
    }
    rows = [coco_row(i) for i in range(12)]
    builder = generate(tmp_path, "Coco", features, {"train": rows}, n_shards=2)
    names = [
        *("image/filename", "image/id", "objects/area", "objects/bbox"),
        *("objects/id", "objects/is_crowd", "objects/label", "objects/tokens"),
    ]
    ds = fr.open_tfds(builder.data_path, "train")
    assert sorted(ds.column_names) == ["image", *names]
    assert ds.schema.class_names == {"objects/label": ("cat", "dog")}
    # Images have different sizes, so the column has the files.
    decoded = [row["image"] for row in examples(builder, "train")]
    n_pixels = 0
    for row, image in zip(ds, decoded, strict=True):
        height, width, _ = image.shape
        spec = {"image": fr.Image((height, width))}
        record = fr.encode_example({"image": row["image"]})
        assert np.array_equal(fr.parse_example([record], spec)["image"][0], image)
        n_pixels += image.size
    assert n_pixels > 5000
    rest = fr.open_tfds(builder.data_path, "train", features=names)
    for row, other in zip(rest, examples(builder, "train"), strict=True):
        for name in names:
            assert leaves(row[name]) == leaves(other[name]), name
    resized = fr.open_tfds(
        builder.data_path, images={"image": fr.Image((9, 9), fit="resize")}
    )
    assert resized[:]["image"].shape == (12, 9, 9, 3)


def step(i: int, n: int, kind: str) -> dict[str, Any]:
    return {
        "observation": {
            "image": smooth(16, 24),
            "wrist": pixels(8, 8, 1),
            "state": RNG.standard_normal(8).astype(np.float32),
            "joints": {"left": RNG.random((2, 3)), "right": np.float32(i)},
        },
        "action": RNG.standard_normal(7).astype(np.float32),
        "reward": np.float32(i == n - 1),
        "discount": np.float32(1),
        "is_first": i == 0,
        "is_last": i == n - 1,
        "is_terminal": i == n - 1,
        "language_instruction": f"pick up {kind}",
        "language_embedding": RNG.standard_normal(16).astype(np.float32),
        "depth": RNG.random((4, 5, 1)).astype(np.float32),
        "mask": RNG.random((4, 5)) > 0.5,
        "tokens": list(range(i)),
    }


def test_an_rlds_robot(tmp_path: Path) -> None:
    float32 = np.float32
    steps = {
        "observation": {
            "image": F.Image(shape=(16, 24, 3), encoding_format="jpeg"),
            "wrist": F.Image(shape=(8, 8, 1), encoding_format="png"),
            "state": F.Tensor(shape=(8,), dtype=float32),
            "joints": {
                "left": F.Tensor(shape=(2, 3), dtype=np.float64),
                "right": F.Scalar(dtype=float32),
            },
        },
        "action": F.Tensor(shape=(7,), dtype=float32),
        "reward": F.Scalar(dtype=float32),
        "discount": F.Scalar(dtype=float32),
        "is_first": F.Scalar(dtype=np.bool_),
        "is_last": np.bool_,
        "is_terminal": np.bool_,
        "language_instruction": F.Text(),
        "language_embedding": F.Tensor(shape=(16,), dtype=float32),
        "depth": F.Tensor(shape=(4, 5, 1), dtype=float32, encoding="zlib"),
        "mask": F.Tensor(shape=(4, 5), dtype=np.bool_, encoding="bytes"),
        "tokens": F.Sequence(np.int32),
    }
    features = {
        "steps": F.Dataset(steps),
        "episode_metadata": {"file_path": F.Text(), "success": np.bool_},
    }
    rows = [
        {
            "steps": [step(i, n, f"{n} cans") for i in range(n)],
            "episode_metadata": {"file_path": f"/{n}", "success": n % 2 == 0},
        }
        for n in (3, 1, 5, 12, 2)
    ]
    builder = generate(tmp_path, "Robot", features, {"train": rows}, n_shards=2)
    # libjpeg may decode by another DCT than OpenCV's copy of it.
    n_values = compare(builder, pixels={"steps/observation/image": 3})
    assert n_values > 23 * (16 * 24 * 3 + 64)
    ds = fr.open_tfds(builder.data_path)
    batch: Any = ds[:2]
    assert batch["steps/action"].shape == (2, None, 7)
    assert batch["steps/observation/image"].shape == (2, None, 16, 24, 3)
    assert batch["steps/depth"].shape == (2, None, 4, 5, 1)
    assert batch["steps/tokens"].shape == (2, None, None)
    observations = fr.open_tfds(builder.data_path, features=["steps/observation"])
    assert len(observations.column_names) == 5


DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32),
    *(np.uint64, np.float16, np.float32, np.float64),
]


def values_of(dtype: Untyped, shape: Sequence[int]) -> Untyped:
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return (RNG.random(shape) + 1j * RNG.random(shape)).astype(dtype)
    if dtype.kind == "b":
        return RNG.random(shape) > 0.5
    if dtype.kind in "fV":  # bfloat16 is opaque to NumPy
        # TFDS stores floats as float32.
        return RNG.standard_normal(shape).astype(np.float32).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("encoding", ["none", "bytes", "zlib"])
def test_every_dtype(tmp_path: Path, encoding: str) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    features, shapes = {}, {"scalar": (), "vector": (3,), "matrix": (2, 3)}
    dtypes = list(DTYPES)
    if encoding != "none":  # TFDS cannot decode uint32
        dtypes += [bfloat16, np.complex64, np.complex128]
        dtypes.remove(np.uint32)
    for dtype in dtypes:
        for name, shape in shapes.items():
            features[f"{np.dtype(dtype).name}_{name}"] = F.Tensor(
                shape=shape, dtype=dtype, encoding=encoding
            )
    rows = [
        {
            f"{np.dtype(dtype).name}_{name}": values_of(dtype, shape)
            for dtype in dtypes
            for name, shape in shapes.items()
        }
        for _ in range(9)
    ]
    builder = generate(tmp_path, "Dtypes", features, {"train": rows}, n_shards=2)
    assert compare(builder) == 9 * 10 * len(dtypes)


def test_nested_sequences(tmp_path: Path) -> None:
    pair = F.Tensor(shape=(2,), dtype=np.int32)
    features = {
        "one": F.Sequence(np.int64),
        "pairs": F.Sequence(pair),
        "fixed": F.Sequence(pair, length=3),
        "two": F.Sequence(F.Sequence(np.float32)),
        "two_pairs": F.Sequence(F.Sequence(pair)),
        "three": F.Sequence(F.Sequence(F.Sequence(np.uint8))),
        "texts": F.Sequence(F.Text()),
        "text_lists": F.Sequence(F.Sequence(F.Text())),
        "text_pairs": F.Sequence(F.Tensor(shape=(2,), dtype=np.str_)),
        "unsigned": F.Sequence(F.Sequence(np.uint64)),
        "any": F.Tensor(shape=(None,), dtype=np.int64),
        "any_rows": F.Tensor(shape=(None, 3), dtype=np.float32),
        "dicts": F.Sequence({"a": np.int64, "b": {"c": F.Sequence(F.Text())}}),
    }

    def row(n: int) -> dict[str, Any]:
        return {
            "one": [*range(n)],
            "pairs": values_of(np.int32, (n, 2)),
            "fixed": values_of(np.int32, (3, 2)),
            "two": [values_of(np.float32, (i,)) for i in range(n)],
            "two_pairs": [[*values_of(np.int32, (i, 2))] for i in range(n)],
            "three": [[[*range(k)] for k in range(i)] for i in range(n)],
            "texts": [f"{i}\xe9" for i in range(n)],
            "text_lists": [[f"{i}"] * i for i in range(n)],
            "text_pairs": [[f"{i}", "x"] for i in range(n)],
            "unsigned": [[2**64 - 1 - i] * i for i in range(n)],
            "any": values_of(np.int64, (n,)),
            "any_rows": values_of(np.float32, (n, 3)),
            "dicts": [{"a": i, "b": {"c": [f"{i}"] * i}} for i in range(n)],
        }

    rows = [row(n) for n in (0, 1, 4, 2, 0, 5)]
    builder = generate(tmp_path, "Nested", features, {"train": rows}, n_shards=2)
    assert compare(builder) > 250


def test_sequences_of_one_length_in_sequences(tmp_path: Path) -> None:
    """TFDS writes them as nested sequences, and its reader cannot read them."""
    features = {
        "outer": F.Sequence(F.Sequence(np.int64), length=2),
        "inner": F.Sequence(F.Sequence(np.int64, length=2)),
        "both": F.Sequence(F.Sequence(np.int64, length=2), length=3),
        "steps": F.Dataset(
            {"points": F.Sequence(F.Tensor(shape=(2,), dtype=np.float32), length=3)}
        ),
    }
    rows: list[dict[str, Any]] = [
        {
            "outer": [[*range(n)], [7]],
            "inner": [[i, n] for i in range(n)],
            "both": [[n, 1], [2, n], [3, 4]],
            "steps": [{"points": [[i, n], [0, 1], [2, 3]]} for i in range(n)],
        }
        for n in (2, 0, 3)
    ]
    builder = generate(tmp_path, "Lengths", features, {"train": rows})
    with pytest.raises(TypeError):
        examples(builder, "train")
    batch: Any = fr.open_tfds(builder.data_path)[:]
    order = [int(both[0][0]) for both in batch["both"]]
    assert sorted(order) == [0, 2, 3]
    for i, n in enumerate(order):
        (row,) = (row for row in rows if row["both"][0][0] == n)
        for name in ("outer", "inner", "both"):
            assert leaves(batch[name][i]) == leaves(row[name])
        points = [each["points"] for each in row["steps"]]
        assert batch["steps/points"][i].tolist() == points
    assert batch["steps/points"].shape == (3, None, 3, 2)
    assert batch["inner"].shape == (3, None, 2)
    assert batch["both"].shape == (3, 3, 2)


def test_videos_audio_and_texts(tmp_path: Path) -> None:
    features = {
        "video": F.Video(shape=(None, 6, 7, 3)),
        "clip": F.Video(shape=(4, 6, 7, 1)),
        "frames": F.Sequence(F.Image(shape=(5, 5, 3), encoding_format="png")),
        "depth": F.Image(shape=(6, 5, 1), dtype=np.uint16, encoding_format="png"),
        "wide": F.Image(shape=(6, 5, 3), dtype=np.uint16, encoding_format="png"),
        "float": F.Sequence(F.Image(shape=(6, 5, 1), dtype=np.float32)),
        "audio": F.Audio(shape=(None,), sample_rate=16_000),
        "stereo": F.Audio(shape=(None, 2), dtype=np.int16),
        "text": F.Translation(languages=["de", "en"]),
        "texts": F.TranslationVariableLanguages(languages=["de", "en"]),
        "maybe": F.Tensor(shape=(), dtype=np.str_, optional=True),
        "number": F.Scalar(np.int32, optional=True),
    }

    def row(n: int) -> dict[str, Any]:
        return {
            "video": pixels(n, 6, 7, 3),
            "clip": pixels(4, 6, 7, 1),
            "frames": [*pixels(n, 5, 5, 3)],
            "depth": values_of(np.uint16, (6, 5, 1)),
            "wide": values_of(np.uint16, (6, 5, 3)),
            "float": [*values_of(np.float32, (n, 6, 5, 1))],
            "audio": values_of(np.int16, (n * 100,)).astype(np.int64),
            "stereo": values_of(np.int16, (n * 10, 2)),
            "text": {"de": f"{n} Dinge", "en": f"{n} things"},
            "texts": {"de": ["a", "b"][: n + 1], "en": "c"},
            "maybe": None if n % 2 else "here",
            "number": None if n % 2 else n,
        }

    rows = [row(n) for n in (2, 1, 3, 4)]
    builder = generate(tmp_path, "Media", features, {"train": rows})
    assert compare(builder) > 3900
    batch: Any = fr.open_tfds(builder.data_path)[:]
    assert batch["clip"].shape == (4, 4, 6, 7, 1)
    assert batch["video"].shape == (4, None, 6, 7, 3)


def test_the_slicing_grammar() -> None:
    from tensorflow_datasets.core import naming, splits

    rng = random.Random(0)
    numbers = ["", "0", "5", "-5", "10", "50", "100", "33.3", "-1", "1", "2", "-3"]
    n_equal = 0
    for _ in range(3000):
        lengths = {
            "train": [rng.randrange(40) for _ in range(rng.randrange(1, 6))],
            "test-x": [rng.randrange(1, 150)],
        }
        unit = rng.choice(["", "%", "shard"])
        slices = [
            f"[{rng.choice(numbers)}{unit}:{rng.choice(numbers)}{unit}]",
            f"[{rng.choice(numbers)}{unit}]",
            "",
        ]
        terms = [
            rng.choice(["train", "train", "test-x", "all", "none"]) + rng.choice(slices)
            for _ in range(rng.choice([1, 1, 2]))
        ]
        text = rng.choice(["+", " + "]).join(terms)
        infos = [
            splits.SplitInfo(
                name=name,
                shard_lengths=counts,
                num_bytes=0,
                filename_template=naming.ShardedFileTemplate(
                    data_dir="/d", dataset_name="x", filetype_suffix="tfrecord"
                ),
            )
            for name, counts in lengths.items()
        ]
        try:
            instructions = splits.SplitDict(infos)[text].file_instructions
            expected = [(i.filename, i.skip, i.skip + i.take) for i in instructions]
        except (KeyError, ValueError, NotImplementedError):
            with pytest.raises(ValueError, match="split"):
                pieces_of(text, lengths)
            continue
        try:
            found = [
                (f"/d/x-{s}.tfrecord-{i:05}-of-{len(lengths[s]):05}", begin, end)
                for s, i, begin, end in pieces_of(text, lengths)
            ]
        except ValueError as error:
            # TFDS also returns no records, or takes a negative number of them.
            is_reversed = "before it begins" in str(error)
            assert is_reversed or not expected, text
            continue
        assert found == expected, text
        n_equal += 1
    assert n_equal > 500
