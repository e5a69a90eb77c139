"""Directories of tensorflow-datasets, read without it.

Goal
    `open_tfds` finds the version, the split, the shards and the columns, and returns an
    ordinary dataset. Files that do not have the records that dataset_info.json lists are
    found, whatever is read. Anything that cannot be opened is an error that says what
    exists. tests/oracle/test_oracle_tfds.py compares values with TFDS.
Method
    Small directories written by fastrec's own Writer, in the layout of TFDS.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from tfds_directory import (
    class_label,
    dataset,
    features_dict,
    image,
    node,
    sequence,
    tensor,
    write_directory,
)


def open_tfds(*args: Untyped, **options: Untyped) -> Untyped:
    """Call `fastrec.open_tfds` untyped."""
    return fr.open_tfds(*args, **options)


def numbers(ds: Untyped) -> list[int]:
    return [row["number"] for row in ds]


# Splits and files.


def test_a_split_is_an_ordinary_dataset(tmp_path: Path) -> None:
    ds = open_tfds(write_directory(tmp_path), "train")
    assert len(ds) == 9
    assert numbers(ds) == [*range(9)]
    assert ds[-1]["number"] == 8
    assert repr(ds).endswith("and 1 more file, 9 records, column 'number'>")
    assert numbers(pickle.loads(pickle.dumps(ds))) == [*range(9)]
    shuffled = [n for b in ds.loader(4, shuffle=True) for n in b["number"].tolist()]
    assert sorted(shuffled) == [*range(9)] != shuffled
    assert numbers(ds.select(range(7, 2, -1))) == [7, 6, 5, 4, 3]
    assert numbers(fr.concat([ds, ds])) == [*range(9)] * 2


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[2:7]", range(2, 7)),
        ("train[:50%]", range(4)),
        ("train[50%:]", range(4, 9)),
        ("train[2shard]", range(5, 9)),
        ("train[1shard:]", range(5, 9)),
        ("train[-2:]", [7, 8]),
        ("test+train[:1]", [100, 101, 0]),
        ("train[7:]+train[:2]+test", [7, 8, 0, 1, 100, 101]),
        ("all", [*range(9), 100, 101]),
    ],
)
def test_slices(tmp_path: Path, split: str, expected: Untyped) -> None:
    rows = [{"number": n} for n in range(102)]
    splits = {"train": [rows[:5], [], rows[5:9]], "test": [rows[100:]]}
    ds = open_tfds(write_directory(tmp_path, splits=splits), split)
    expected = list(expected)
    assert len(ds) == len(expected)
    assert numbers(ds) == expected
    for world_size in (1, 2):
        parts = [
            batch["number"].tolist()
            for rank in range(world_size)
            for batch in ds.loader(
                1, rank=rank, world_size=world_size, shuffle=True, drop_last=True
            )
        ]
        whole = sorted(n for part in parts for n in part)
        assert len(whole) == len(expected) // world_size * world_size
        assert set(whole) <= set(expected)
    loader = ds.loader(1, shuffle=True, seed=3)
    order = [batch["number"].item() for batch in loader]
    again = ds.loader(1, shuffle=True, seed=3)
    again.load_state_dict(again.state_dict() | {"position": 1})
    assert [batch["number"].item() for batch in again] == order[1:]


def test_the_only_split_need_not_be_named(tmp_path: Path) -> None:
    assert numbers(open_tfds(write_directory(tmp_path / "a"))) == [*range(9)]
    two = {"train": [[{"number": 1}]], "test": [[{"number": 2}]]}
    directory = write_directory(tmp_path / "b", splits=two)
    with pytest.raises(
        ValueError, match="requires split=; the dataset has 'train', 't"
    ):
        open_tfds(directory)
    with pytest.raises(ValueError, match=r"no split 'tain'; .*; did you mean 'train'"):
        open_tfds(directory, "tain[:10%]")


def test_opening_reads_no_shard(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    for file in directory.glob("*.tfrecord-*"):
        file.write_bytes(b"no record")
    for split in ("train", "train[:3]"):
        ds = open_tfds(directory, split)
        assert len(open_tfds(directory)) == 9
        with pytest.raises(fr.CorruptionError):
            list(ds)


def test_names_of_files_follow_the_template(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    path = directory / "dataset_info.json"
    info = json.loads(path.read_text())
    info["splits"][0]["filepathTemplate"] = "{SPLIT}/{SHARD_INDEX}.{FILEFORMAT}"
    path.write_text(json.dumps(info))
    (directory / "train").mkdir()
    for i, file in enumerate(sorted(directory.glob("*.tfrecord-*"))):
        file.rename(directory / "train" / f"{i:05}.tfrecord")
    assert numbers(open_tfds(directory)) == [*range(9)]


@pytest.mark.parametrize(
    "template",
    [
        "{WHAT}",
        "{SPLIT:9999999999}",
        "{SPLIT.__class__}",
        "../{SPLIT}.{FILEFORMAT}",
        "/etc/{SPLIT}",
        "{SPLIT}/../../{DATASET}",
    ],
)
def test_a_template_names_files_of_the_directory(tmp_path: Path, template: str) -> None:
    directory = write_directory(tmp_path)
    path = directory / "dataset_info.json"
    info = json.loads(path.read_text())
    info["splits"][0]["filepathTemplate"] = template
    path.write_text(json.dumps(info))
    with pytest.raises(ValueError, match="unknown file template") as raised:
        open_tfds(directory)
    assert repr(template) in str(raised.value)


def test_the_version_is_found_below_a_directory(tmp_path: Path) -> None:
    write_directory(tmp_path / "things" / "1.0.0")
    assert numbers(open_tfds(tmp_path / "things")) == [*range(9)]
    assert numbers(open_tfds(tmp_path)) == [*range(9)]
    assert numbers(open_tfds(f"file://{tmp_path}/things")) == [*range(9)]
    for path in ("", "things/", "things//1.0.0/"):
        assert numbers(open_tfds(f"{tmp_path}/{path}")) == [*range(9)]
    write_directory(tmp_path / "things" / "1.1.0")
    with pytest.raises(ValueError, match=r"one version .* with '1.0.0', '1.1.0'; pass"):
        open_tfds(tmp_path / "things")


def test_a_directory_without_metadata(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"No dataset_info.json in the directory"
    ):
        open_tfds(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"No dataset_info.json in the directory"
    ):
        open_tfds(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"requires a directory.*downloads"):
        open_tfds("mnist")
    directory = write_directory(tmp_path / "things")
    (directory / "features.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"features.json"):
        open_tfds(directory)
    assert numbers(open_tfds(directory, features={"number": "int64"})) == [*range(9)]
    (directory / "dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match=r"dataset_info.json': it is not valid JSON"):
        open_tfds(directory)
    (directory / "dataset_info.json").write_text("[]")
    with pytest.raises(ValueError, match=r"dataset_info.json': it must contain a dict"):
        open_tfds(directory)
    (directory / "dataset_info.json").write_text('{"name": "old", "splits": []}')
    with pytest.raises(ValueError, match="lists no split with shard lengths"):
        open_tfds(directory)


def test_damaged_metadata_is_an_error(tmp_path: Path) -> None:
    path = write_directory(tmp_path) / "dataset_info.json"
    good = json.loads(path.read_text())
    junk: list[Any] = [None, -2, "x", [], {}, [None], {"a": 1}, True, ["-3"], "7"]
    for key in ("fileFormat", "splits", "name", "version", "alternativeFileFormats"):
        for value in junk:
            path.write_text(json.dumps(good | {key: value}))
            with contextlib.suppress(ValueError, FileNotFoundError):
                open_tfds(tmp_path)
    for key in ("name", "shardLengths", "filepathTemplate"):
        for value in junk:
            split = good["splits"][0] | {key: value}
            path.write_text(json.dumps(good | {"splits": [split]}))
            with contextlib.suppress(ValueError, FileNotFoundError):
                open_tfds(tmp_path)
    path.write_text(json.dumps(good | {"splits": [{"shardLengths": ["-1"]}]}))
    with pytest.raises(ValueError, match=r"dataset_info.json is malformed \("):
        open_tfds(tmp_path)


def test_other_formats_of_files(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "a", fileFormat="array_record")
    with pytest.raises(ValueError, match=r"are array_record files, .* convert_format"):
        open_tfds(directory)
    both = {"fileFormat": "riegeli", "alternativeFileFormats": ["tfrecord"]}
    assert len(open_tfds(write_directory(tmp_path / "b", None, None, "b", **both))) == 9


def test_a_missing_shard(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    (directory / "things-train.tfrecord-00002-of-00003").unlink()
    with pytest.raises(
        FileNotFoundError, match="Missing 1 of 3 shards of split 'train'"
    ):
        open_tfds(directory)
    assert numbers(open_tfds(directory, "train[:1shard]")) == [*range(5)]


def test_open_advises_open_tfds(tmp_path: Path) -> None:
    rows = [[{"number": 1}]]
    directory = write_directory(tmp_path, splits={"train": rows, "test": rows})
    with pytest.raises(ValueError, match=r"TFDS wrote it: call fastrec.open_tfds\('/"):
        fr.open(directory)
    (directory / "dataset_info.json").unlink()
    with pytest.raises(ValueError, match="Pass the glob of one split"):
        fr.open(directory)


# The number of records.


def shortened(tmp_path: Path, *, more: bool = False) -> Path:
    """Return a directory whose first shard has another number of whole records."""
    directory = write_directory(tmp_path)
    with fr.Writer(
        directory / "things-train.tfrecord-00000-of-00003", overwrite=True
    ) as writer:
        for n in range(7 if more else 4):
            writer.write({"number": n})
    return directory


MESSAGE = (
    "the file must have 5 records, as dataset_info.json lists, got {}; .* - at .*"
    "things-train.tfrecord-00000-of-00003"
)


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("policy", ["raise", "skip", "mask"])
def test_another_number_of_records_is_found(
    tmp_path: Path, policy: str, *, more: bool
) -> None:
    directory = shortened(tmp_path, more=more)
    message = MESSAGE.format(7 if more else 4)
    options = {"on_error": policy, "index_dir": tmp_path / "indexes"}
    uses: Untyped = [
        lambda ds: list(ds.loader(2)),  # without an index
        lambda ds: list(ds.loader(2, num_threads=0)),
        lambda ds: list(ds.loader(2, transform=dict)),
        lambda ds: ds[0],
        lambda ds: list(ds.loader(2, shuffle=True)),
        lambda ds: list(ds.select([1])),
        lambda ds: list(fr.concat([ds, ds])),
        list,
    ]
    for use in uses:
        with pytest.raises(fr.CorruptionError, match=message) as caught:
            use(open_tfds(directory, "train", **options))
        assert caught.value.code == "record_count"
    with pytest.raises(fr.CorruptionError, match=message):
        list(open_tfds(directory, "train[3:7]", **options))


def test_some_files_are_a_source_without_listed_numbers(tmp_path: Path) -> None:
    source = open_tfds(write_directory(tmp_path / "things"))._source
    part = pickle.loads(pickle.dumps(source.part([1])))
    assert len(part.catalog()) == 4
    assert len(source.part([0]).catalog()) == 5


def test_all_batches_come_before_the_error(tmp_path: Path) -> None:
    ds = open_tfds(shortened(tmp_path), index_dir=tmp_path / "indexes")
    batches = iter(ds.loader(2))
    found = [n for _ in range(4) for n in next(batches)["number"].tolist()]
    assert found == [0, 1, 2, 3, 5, 6, 7, 8]
    with pytest.raises(fr.CorruptionError):
        next(batches)


def test_damage_that_on_error_skips_is_not_another_number(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    file = directory / "things-train.tfrecord-00000-of-00003"
    data = bytearray(file.read_bytes())
    data[len(data) // 5 * 2] ^= 1  # the length of record 2
    file.write_bytes(data)
    options = {"on_error": "skip", "index_dir": tmp_path / "indexes"}
    for use in (
        list,
        lambda ds: [*ds.loader(2)],
        lambda ds: [*ds.loader(2, shuffle=True)],
    ):
        ds = open_tfds(directory, **options)
        use(ds)
        assert len(ds) == 6
        assert numbers(ds) == [0, 1, 5, 6, 7, 8]
        assert ds.report.records_lost <= 3
    # Numbers in a slice would be those of other records.
    with pytest.raises(fr.CorruptionError, match=r"must have 5 records, .* got 2"):
        open_tfds(directory, "train[1:6]", **options)
    with pytest.raises(fr.CorruptionError, match="length checksum mismatch"):
        len(open_tfds(directory)[:])


# Columns.

MNIST = {"image": image(4, 5, 1), "label": class_label(3)}


def test_class_names(tmp_path: Path) -> None:
    row = {"image": b"", "label": 2, "objects/label": [0, 1]}
    features = MNIST | {"objects": sequence(features_dict({"label": class_label(2)}))}
    directory = write_directory(tmp_path, features, {"train": [[row]]})
    assert open_tfds(directory).schema.class_names == {}
    (directory / "label.labels.txt").write_text("zero\none\n\ntwo \n")
    (directory / "objects-label.labels.txt").write_text("Katze\nH\xfcndin\n", "utf-8")
    ds = open_tfds(directory)
    names = {"label": ("zero", "one", "two"), "objects/label": ("Katze", "H\xfcndin")}
    assert ds.schema.class_names == names
    for other in (ds.select([0]), pickle.loads(pickle.dumps(ds))):
        assert other.schema.class_names == names
    assert ds.select_columns(["label"]).schema.class_names == {"label": names["label"]}
    assert "# ClassLabel, 3 classes: 'zero', 'one', 'two'" in repr(ds.schema)
    (directory / "label.labels.txt").write_text("zero\none\n")
    with pytest.raises(
        fr.SchemaError, match=r"label.labels.txt must have 3 names, .* 2"
    ):
        open_tfds(directory)


def test_names_of_features(tmp_path: Path) -> None:
    features = {
        "steps": dataset(
            features_dict({"a": tensor("int64"), "b": tensor("float32", 2)})
        ),
        "meta": features_dict({"x": tensor("int64"), "y": node("Unknown")}),
    }
    row = {"steps/a": [1, 2], "steps/b": [1.0, 2.0, 3.0, 4.0], "meta/x": 7}
    directory = write_directory(tmp_path, features, {"train": [[row]]})
    with pytest.raises(fr.SchemaError, match="cannot read column 'meta/y', a Unknown"):
        open_tfds(directory)
    ds = open_tfds(directory, features=["meta/x", "steps"])
    assert ds.column_names == ["meta/x", "steps/a", "steps/b"]
    assert ds[0]["steps/b"].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(fr.SchemaError, match=r"no feature 'step'; .* you mean 'steps"):
        open_tfds(directory, features=["step"])
    ds = open_tfds(directory, features={"b": fr.VarLen("float64", key="steps/b")})
    assert ds[0]["b"].tolist() == [1, 2, 3, 4]


def png(*shape: int, seed: int = 0) -> tuple[bytes, Untyped]:
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    _, data = cv2.imencode(".png", pixels if pixels.ndim == 2 else pixels[..., ::-1])
    return data.tobytes(), pixels


def test_images(tmp_path: Path) -> None:
    gray, pixels = png(4, 5)
    color, other = png(6, 3, 3)
    features = MNIST | {
        "photo": image(None, None, 3),
        "gif": image(None, 4, 5, 3),
    }
    row = {"image": gray, "label": 0, "photo": color, "gif": b"file"}
    directory = write_directory(tmp_path, features, {"train": [[row] * 3]})
    batch = open_tfds(directory)[:]
    assert np.array_equal(batch["image"], np.stack([pixels[..., None]] * 3))
    assert batch["photo"][0] == color
    assert batch["gif"][0] == b"file"
    ds = open_tfds(directory, images={"photo": fr.Image((6, 3))})
    assert np.array_equal(ds[1]["photo"], other)
    ds = open_tfds(
        directory, images={"image": fr.Image((2, 2), fit="resize", channels=1)}
    )
    assert ds[:]["image"].shape == (3, 2, 2, 1)
    with pytest.raises(
        fr.SchemaError, match=r"images= must name .* 'label'; there are 'image"
    ):
        open_tfds(directory, images={"label": fr.Image((2, 2))})
    with pytest.raises(fr.SchemaError, match="pass either images=, or all specs"):
        open_tfds(
            directory,
            images={"image": fr.Image((2, 2))},
            features={"label": "int64"},
        )


def test_steps_of_episodes(tmp_path: Path) -> None:
    steps = {
        "action": tensor("float32", 7),
        "image": image(4, 5, 3),
        "language": node("Text", "text"),
        "depth": tensor("int16", 2, encoding="bytes"),
        "tokens": sequence(tensor("int32")),
    }
    pictures = [png(4, 5, 3, seed=i) for i in range(5)]

    def row(n: int) -> dict[str, Any]:
        return {
            "steps/action": np.arange(7 * n, dtype=np.float32),
            "steps/image": [data for data, _ in pictures[:n]],
            "steps/language": ["go"] * n,
            "steps/depth": [np.array([i, n], np.int16).tobytes() for i in range(n)],
            "steps/tokens/ragged_flat_values": [*range(n)],
            "steps/tokens/ragged_row_lengths_0": [n] + [0] * (n - 1) if n else [],
        }

    features = {"steps": dataset(features_dict(steps))}
    shards = [[row(2), row(0)], [row(5), row(1)]]
    ds = open_tfds(write_directory(tmp_path, features, {"train": shards}))
    for batch in (ds[:], *ds.loader(4), *ds.loader(4, num_threads=2)):
        assert batch["steps/action"].shape == (4, None, 7)
        assert (
            batch["steps/action"][2].tolist() == np.arange(35.0).reshape(5, 7).tolist()
        )
        assert batch["steps/image"].shape == (4, None, 4, 5, 3)
        for i, n in enumerate((2, 0, 5, 1)):
            assert len(batch["steps/language"][i]) == n
            for j in range(n):
                assert np.array_equal(batch["steps/image"][i][j], pictures[j][1])
            assert batch["steps/depth"][i].tolist() == [[j, n] for j in range(n)]
        assert batch["steps/tokens"][2].tolist() == [[0, 1, 2, 3, 4], [], [], [], []]


def test_uint64_are_the_bits_of_int64(tmp_path: Path) -> None:
    features = {
        "x": tensor("uint64"),
        "many": sequence(tensor("uint64")),
        "nested": sequence(sequence(tensor("uint64"))),
    }
    row = {
        "x": -1,
        "many": [0, -1],
        "nested/ragged_flat_values": [5, -2],
        "nested/ragged_row_lengths_0": [0, 2],
    }
    ds = open_tfds(write_directory(tmp_path, features, {"train": [[row]]}))
    batch = ds[:]
    assert batch["x"].tolist() == [2**64 - 1]
    assert batch["many"].tolist() == [[0, 2**64 - 1]]
    assert batch["nested"].tolist() == [[[], [5, 2**64 - 2]]]
    assert {column.dtype for column in batch.values()} == {np.dtype(np.uint64)}
    assert repr(ds.schema).count("# bits of uint64") == 3


def test_options_are_passed_through(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "data")
    ds = open_tfds(directory, io="pread", on_error="skip", index_dir=tmp_path / "i")
    assert ds.on_error == "skip"
    assert numbers(ds) == [*range(9)]
    assert len(ds) == 9
    assert list((tmp_path / "i").iterdir())
    shutil.rmtree(directory)
    with pytest.raises(TypeError, match="directory must be a path or URL, got int"):
        open_tfds(3)
