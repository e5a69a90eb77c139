"""The numbers of steps in records are counted once, and kept with the index.

Goal
    The files are read once to count steps. The counts are found again next to the
    data, in the cache and in a copy of the data, and never for other records.
Method
    Calls of the function that counts are counted; files are copied and rewritten.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
import fastrec.sources.steps as steps_module
from s3_server import S3

LENGTHS = [3, 0, 5, 1]
FEATURES: dict[str, Any] = {
    "action": fr.VarLen("float32", (2,)),
    "frame": fr.VarLen("bytes"),
}


def write(path: Path, lengths: list[int]) -> Path:
    """Write one record for each number of steps."""
    path.parent.mkdir(exist_ok=True)
    with fr.Writer(path, overwrite=True) as writer:
        for n in lengths:
            frames = fr.BytesArray.from_list([b"frame"] * n)
            writer.write({"action": np.ones(2 * n, np.float32), "frame": frames})
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the directory of this test's indexes and counts."""
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each column that is counted is added."""
    names: list[Any] = []
    count: Callable[..., Any] = steps_module._counted

    def counting(source: Any, name: Any, numbers: Any) -> Any:
        names.append(name)
        return count(source, name, numbers)

    monkeypatch.setattr(steps_module, "_counted", counting)
    return names


def rows_of(path: Path, *windows: str) -> int:
    """Open a file again; return how many steps its records have."""
    ds = fr.open(path, features=FEATURES)
    return len(ds.steps(dict.fromkeys(windows, 0)))


def test_steps_are_counted_once_and_numbers_before_strings(
    tmp_path: Path, counted: list[Any]
) -> None:
    path = write(tmp_path / "a.tfrecord", LENGTHS)
    assert rows_of(path, "frame", "action") == sum(LENGTHS)
    assert rows_of(path, "frame", "action") == sum(LENGTHS)
    assert rows_of(path, "action") == sum(LENGTHS)
    assert counted == ["action"]
    assert rows_of(path, "frame") == sum(LENGTHS)
    assert counted == ["action", "frame"]


def test_an_index_next_to_the_data_has_counts_also_in_a_copy(
    tmp_path: Path, counted: list[Any]
) -> None:
    path = write(tmp_path / "data" / "a.tfrecord", LENGTHS)
    assert rows_of(path, "action") == sum(LENGTHS)  # keeps counts in the cache
    fr.build_index(path, next_to_data=True, steps="action")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "cache")
    assert rows_of(tmp_path / "copy" / "a.tfrecord", "action") == sum(LENGTHS)
    assert counted == ["action", "action"]


def test_an_inferred_column_is_counted_by_its_values(
    tmp_path: Path, counted: list[Any]
) -> None:
    path = write(tmp_path / "a.tfrecord", [4, 4, 4])  # inferred as FixedLen((8,))
    fr.build_index(path, steps="action")
    assert rows_of(path, "action") == 12
    assert counted == ["action"]


def test_a_changed_file_is_counted_again(tmp_path: Path, counted: list[Any]) -> None:
    path = write(tmp_path / "a.tfrecord", LENGTHS)
    assert rows_of(path, "action") == sum(LENGTHS)
    write(path, LENGTHS[::-1])  # of the same size
    steps = fr.open(path, features=FEATURES).steps({"action": 0, "frame": 0})
    assert len(counted) == 2
    assert [len(batch["action"]) for batch in steps.loader(100)] == [sum(LENGTHS)]


def test_damaged_counts_are_counted_again(tmp_path: Path, counted: list[Any]) -> None:
    path = write(tmp_path / "data" / "a.tfrecord", LENGTHS)
    fr.build_index(path, next_to_data=True, steps="action")
    (kept,) = (tmp_path / "data" / ".fastrec").glob("*.counts.npy")
    for content in (b"", kept.read_bytes()[:-3], b"\x93NUMPY"):
        kept.write_bytes(content)
        assert rows_of(path, "action") == sum(LENGTHS)
    assert counted[0] == "action"


def test_an_unreadable_record_has_a_row_that_reports_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", LENGTHS)
    ds = fr.open(path, features=FEATURES)
    place = ds.loader(1).records_at(2)[0]
    content = bytearray(path.read_bytes())
    content[place.offset + 40] ^= 1
    path.write_bytes(content)
    steps = fr.open(path, features=FEATURES).steps({"action": [0, 1], "frame": 0})
    assert len(steps) == 3 + 1 + 1
    with pytest.raises(fr.CorruptionError, match="record 2"):
        [*steps.loader(2)]
    loader = steps.loader(2, on_error="skip", shuffle=True)
    assert sum(len(batch["action"]) for batch in loader) == 4
    assert [region.path for region in loader.report.regions] == [str(path)]
    batches = [*steps.loader(5, on_error="mask")]
    assert batches[0]["__valid__"].tolist() == [True] * 3 + [False, True]
    assert not batches[0]["action"][3].any()
    assert batches[0]["frame"][3] == b""


@pytest.mark.parametrize("on_error", ["raise", "skip", "mask"])
def test_columns_with_different_numbers_of_steps_are_reported(
    tmp_path: Path, on_error: Any
) -> None:
    path = tmp_path / "a.tfrecord"
    with fr.Writer(path) as writer:
        for n_frames in (2, 3, 2):
            frames = fr.BytesArray.from_list([b"f"] * n_frames)
            writer.write({"action": np.ones(4, np.float32), "frame": frames})
    ds = fr.open(path, features=FEATURES, on_error=on_error)
    steps = ds.steps({"action": [-1, 0], "frame": 0})
    assert len(steps) == 6
    loader = steps.loader(6)
    if on_error == "raise":
        message = r"got 2 in 'action' and 3 in 'frame' - at .*a.tfrecord, record 1"
        with pytest.raises(fr.SchemaError, match=message):
            next(iter(loader))
        with pytest.raises(fr.SchemaError, match=message):
            steps[2]
        return
    (batch,) = loader
    assert len(loader.report.regions) == 2
    if on_error == "skip":
        assert len(batch["action"]) == 4
    else:
        assert batch["__valid__"].tolist() == [True, True, False, False, True, True]
        assert not batch["action"][2:4].any()


def test_a_record_that_changed_after_the_count_is_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    for path, frames in zip(paths, (["abc"], ["a", ""]), strict=True):
        with fr.Writer(path) as writer:
            writer.write({"frame": frames})
    assert paths[0].stat().st_size == paths[1].stat().st_size
    steps = fr.open(paths[0], features=FEATURES).steps({"frame": 0})
    with paths[0].open("r+b") as file:
        file.write(paths[1].read_bytes())
    with pytest.raises(
        fr.CorruptionError, match="must have 1 steps, as were counted, got 2"
    ):
        [*steps.loader(4)]


def test_counts_in_a_directory_that_cannot_be_written_are_not_kept(
    tmp_path: Path, counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.tfrecord", LENGTHS)
    monkeypatch.setenv("FASTREC_CACHE", str(path))  # not a directory
    assert rows_of(path, "action") == rows_of(path, "action") == sum(LENGTHS)
    assert counted == ["action", "action"]
    with pytest.raises(OSError, match=r"a\.tfrecord"):
        fr.build_index(path, steps="action")


def test_counts_next_to_remote_data_are_found(
    s3: S3, tmp_path: Path, counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: Any = {"storage_options": s3.options}
    for i in range(2):
        path = write(tmp_path / f"{i}.tfrecord", LENGTHS)
        with fr.Writer(s3.url(f"d/{i}.tfrecord"), **options) as writer:
            for record in fr.open(path, features=FEATURES).records:
                writer.write_record(record)
    fr.build_index(s3.url("d/*"), next_to_data=True, steps="action", **options)
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "second"))
    ds = fr.open(s3.url("d/*"), features=FEATURES, **options)
    steps = ds.steps({"action": [-1, 0], "frame": 0})
    assert counted == ["action"]
    with pytest.warns(UserWarning, match="one by one for each of their steps"):
        next(iter(steps.loader(4, shuffle=True)))
    loader = steps.loader(4, shuffle=fr.Blocks(), memory_limit=100)
    assert "too small for blocks of steps" in loader._options.advice()
    for shuffle in (False, fr.Blocks()):
        batches = [*steps.loader(4, shuffle=shuffle)]
        assert sum(len(batch["frame"]) for batch in batches) == 2 * sum(LENGTHS)


def write_lists(path: Path, lists: list[dict[str, list[int]]]) -> Path:
    """Write records with lists of numbers; each has its number as id."""
    with fr.Writer(path) as writer:
        for i, columns in enumerate(lists):
            writer.write({"id": i, **columns})
    return path


def integers(*names: str) -> dict[str, Any]:
    """Return the specs of lists of numbers, and of the id."""
    return {"id": fr.FixedLen((), "int64"), **{n: fr.VarLen("int64") for n in names}}


@pytest.mark.parametrize("edge", ["repeat", "drop"])
@pytest.mark.parametrize("on_error", ["skip", "mask"])
def test_a_failed_row_has_no_values_in_any_part_of_a_batch(
    tmp_path: Path, on_error: Any, edge: Any
) -> None:
    fine = [{"a": [i] * 5, "b": [i] * 5} for i in range(1, 4)]
    first = write_lists(tmp_path / "1", [*fine, {"a": [7] * 4, "b": [7] * 3}, *fine])
    second = write_lists(tmp_path / "2", fine)
    parts = [
        fr.open(first, features=integers("a", "b")),
        fr.open(
            second, features={**integers("b"), "a": fr.FixedLenSequence((), "int64")}
        ),
    ]
    steps = fr.concat(
        [
            part.steps({"a": [-1, 0], "b": 0}, edge=edge).with_transform(
                lambda batch: batch
            )
            for part in parts
        ]
    )
    for shuffle in (False, True):
        loader = steps.loader(16, shuffle=shuffle, on_error=on_error, pad_last=True)
        for batch in loader:
            lost = ~batch["__valid__"]
            assert not batch["a"][lost].any()
            assert not batch["id"][lost].any()
            assert not (batch["b"][~lost] == 7).any()


def test_a_count_that_failed_is_tried_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", LENGTHS)
    ds = fr.open(path, features={"action": fr.VarLen("float32", (5,))})
    assert len(ds.steps({"action": 0})) == 2 + len([3, 5, 1]) - 1  # 3 and 1 do not fit
    assert rows_of(path, "action") == sum(LENGTHS)
    content = path.read_bytes()
    (tmp_path / "copy.tfrecord").write_bytes(content[:50] + b"?" + content[51:])
    copy = tmp_path / "copy.tfrecord"
    assert rows_of(copy, "action") < sum(LENGTHS)
    copy.write_bytes(content)
    assert rows_of(copy, "action") == sum(LENGTHS)


def test_a_command_counts_values_that_an_inferred_schema_does_not_fit(
    tmp_path: Path, counted: list[Any]
) -> None:
    path = tmp_path / "a.tfrecord"
    lists = [[1] * 4] * 5000
    lists[4321] = [1] * 9
    fr.write(path, {"a": fr.RaggedArray.from_list(lists)})
    fr.build_index(path, steps="a")
    ds = fr.open(path, features={"a": fr.VarLen("int64")})
    assert len(ds.steps({"a": 0})) == 4 * 5000 + 5
    assert counted == ["a"]
    fr.write(tmp_path / "b.tfrecord", {"a": np.arange(3)})
    with pytest.raises(fr.SchemaError, match="no steps of one shape"):
        fr.build_index(tmp_path / "b.tfrecord", steps="a")


def test_which_column_is_counted_does_not_depend_on_the_cache(tmp_path: Path) -> None:
    path = write_lists(tmp_path / "a", [{"a": [1] * 4, "b": [1] * 3}])
    ds = fr.open(path, features=integers("a", "b"))
    assert len(ds.steps({"b": 0})) == 3
    assert len(ds.steps({"a": 0, "b": 0})) == 4
    assert len(ds.steps({"b": 0, "a": 0})) == 3


def test_a_state_belongs_to_the_counts(tmp_path: Path) -> None:
    path = write_lists(
        tmp_path / "a", [{"a": [1] * i, "b": [1] * (i + 1)} for i in range(1, 9)]
    )
    ds = fr.open(path, features=integers("a", "b"))
    loader = ds.steps({"a": 0}).loader(4)
    next(iter(loader))
    same = ds.steps({"a": [0, 1]}).loader(4)
    same.load_state_dict(loader.state_dict())
    assert same.step == 1
    with pytest.raises(ValueError, match="saved for a different dataset"):
        ds.steps({"b": 0}).loader(4).load_state_dict(loader.state_dict())


def test_joined_datasets_with_other_keys_are_counted_apart(tmp_path: Path) -> None:
    paths = [
        write_lists(tmp_path / name, [{"x": [1] * 3, "y": [1] * 5}]) for name in "12"
    ]

    def joined(*keys: str) -> fr.Dataset:
        return fr.concat(
            [
                fr.open(path, features={"a": fr.VarLen("int64", key=key)})
                for path, key in zip(paths, keys, strict=True)
            ]
        ).steps({"a": 0})

    assert len(joined("x", "x")) == 6
    assert len(joined("x", "y")) == 8
    assert len(joined("x", "y")[:]["a"]) == 8
