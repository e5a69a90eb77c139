"""`write`: rows, Arrow tables and Hugging Face datasets, as well as columns.

Goal
    Any iterable of rows is written in order and in bounded memory, and reads back equal.
    Invalid data leaves no file, and the error names the row, the column or what to pass.
Method
    The same rows in every form, compared with the same data as columns.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from written import examples, records_in

ROWS = [
    {
        "n": n,
        "x": n / 4,
        "name": f"row {n}",
        "list": list(range(n % 4 + 1)),
        "pair": [n, 1],
    }
    for n in range(1000)
]


@pytest.fixture
def expected(tmp_path: Path) -> list[dict[bytes, Any]]:
    """Return the examples of ROWS."""
    path = tmp_path / "expected"
    with fr.Writer(path, num_threads=0) as writer:
        for row in ROWS:
            writer.write(row)
    return examples(path)


def columns() -> dict[str, list[Any]]:
    return {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.mark.parametrize("make", [list, tuple, iter, lambda rows: (r for r in rows)])
def test_rows_are_written_in_their_order(
    tmp_path: Path, expected: list[Any], make: Callable[[list[Any]], Any]
) -> None:
    assert fr.write(tmp_path / "a", make(ROWS)) == [str(tmp_path / "a")]
    assert examples(tmp_path / "a") == expected


def test_rows_may_lack_features(tmp_path: Path) -> None:
    fr.write(tmp_path / "a", [{"x": 1, "y": 2.5}, {"x": 2}, {"y": 0.5}])
    assert [set(found) for found in examples(tmp_path / "a")] == [
        {b"x", b"y"},
        {b"x"},
        {b"y"},
    ]


def test_options_and_specs_apply_to_rows(tmp_path: Path) -> None:
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    files = fr.write(
        tmp_path / "a-{shard}",
        ({"image": image + i} for i in range(10)),
        features={"image": fr.Raw((2, 2, 3), "uint8")},
        max_shard_records=4,
    )
    assert [len(records_in(path)) for path in files] == [4, 4, 2]
    ds = fr.open(files, features={"image": fr.Raw((2, 2, 3), "uint8")})
    np.testing.assert_array_equal(ds[9]["image"], image + 9)


def test_a_generator_of_rows_is_written_in_bounded_memory(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, bytes]]:
        for _ in range(400):
            yield {"data": bytes(100_000)}

    tracemalloc.start()
    fr.write(tmp_path / "a", rows(), num_threads=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "a").stat().st_size > 40_000_000
    assert peak < 5_000_000


# --- Errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (5, TypeError, "cannot write int: pass a mapping of columns, an iterable of"),
        ("a.csv", TypeError, "cannot write str: pass a mapping"),
        (None, TypeError, "cannot write NoneType: pass a mapping"),
        ([], ValueError, "must have at least one row, got none"),
        (iter([]), ValueError, "must have at least one row, got none"),
        ([{"x": 1}, 5], TypeError, "row 1 must be a mapping of features, got int"),
        ([[1, 2]], TypeError, "row 0 must be a mapping of features, got list"),
        (np.arange(3), TypeError, "row 0 must be a mapping of features, got int64"),
        ([{"x": 1}, {"x": "a"}], ValueError, "row 1: .*x"),
        ([{"x": 1}, {"x": object()}], TypeError, "row 1: .*x"),
    ],
)
def test_invalid_data_is_refused_and_leaves_no_file(
    tmp_path: Path, data: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        fr.write(tmp_path / "a", data)
    assert not list(tmp_path.iterdir())


def test_an_exception_of_the_generator_leaves_no_file(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"x": 1}
        raise KeyError

    with pytest.raises(KeyError):
        fr.write(tmp_path / "a", rows())
    assert not list(tmp_path.iterdir())


# --- Arrow ----------------------------------------------------------------------------


def test_arrow_tables_are_written(tmp_path: Path, expected: list[Any]) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table(columns())
    for name, data in {
        "table": table,
        "chunks": pa.concat_tables([table.slice(0, 300), table.slice(300)]),
        "reader": table.to_reader(max_chunksize=17),
    }.items():
        fr.write(tmp_path / name, data)
        assert examples(tmp_path / name) == expected


def test_nulls_and_tensors_of_arrow_are_written(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    kind = pa.list_(pa.list_(pa.int16(), 3), 2)
    images = [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 1, 2]]]
    table = pa.table({"x": [1, None], "image": pa.array(images, kind)})
    fr.write(tmp_path / "a", table)
    features = {
        "x": fr.FixedLen((), "int64", default=-1),
        "image": fr.Raw((2, 3), "int16"),
    }
    batch = fr.open(tmp_path / "a", features=features)[0:2]
    assert batch["x"].tolist() == [1, -1]
    assert batch["image"].tolist() == images


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({}, ValueError, "at least one column"),
        ({"s": [{"a": 1}]}, fr.SchemaError, "column 's' of type struct"),
    ],
)
def test_invalid_arrow_tables_are_refused(
    tmp_path: Path, columns: dict[str, Any], error: type[Exception], text: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(error, match=text):
        fr.write(tmp_path / "a", pa.table(columns))
    empty = pa.table({"x": pa.array([], pa.int64())})
    with pytest.raises(ValueError, match="at least one row"):
        fr.write(tmp_path / "a", empty)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(ValueError, match="must be unique, got 'x' twice"):
        fr.write(tmp_path / "a", twice)
    assert not list(tmp_path.iterdir())


def test_a_table_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Table:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise AssertionError

    for name in [*sys.modules]:
        if name.startswith("fastrec.convert"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"fastrec-io\[arrow\]"):
        fr.write(tmp_path / "a", Table())


def test_a_fastrec_dataset_can_be_written(tmp_path: Path, expected: list[Any]) -> None:
    pytest.importorskip("pyarrow")
    ds = fr.open(tmp_path / "expected")
    fr.write(tmp_path / "again", ds)
    assert examples(tmp_path / "again") == expected


# --- Hugging Face ---------------------------------------------------------------------


@pytest.mark.frameworks
def test_hugging_face_datasets_are_written(tmp_path: Path, expected: list[Any]) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(columns())
    fr.write(tmp_path / "whole", dataset)
    assert examples(tmp_path / "whole") == expected
    chosen = [700, 3, 3, 999]
    fr.write(tmp_path / "chosen", dataset.select(chosen).with_format("numpy"))
    assert examples(tmp_path / "chosen") == [expected[i] for i in chosen]
    fr.write(tmp_path / "streamed", dataset.to_iterable_dataset())
    assert examples(tmp_path / "streamed") == expected
    with pytest.raises(ValueError, match="at least one row"):
        fr.write(tmp_path / "none", dataset.select([]))


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_hugging_face_images_are_written_as_they_are_stored(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pillow = pytest.importorskip("PIL.Image")
    pictures = [tmp_path / f"{n}.png" for n in range(3)]
    for n, path in enumerate(pictures):
        pillow.new("RGB", (2, 3), (n, 0, 0)).save(path)
    stored = [picture.read_bytes() for picture in pictures]
    features = datasets.Features({"image": datasets.Image()})
    values = [{"bytes": stored[0], "path": None}, str(pictures[1]), str(pictures[2])]
    dataset = datasets.Dataset.from_dict({"image": values}, features=features)
    for form in (dataset, dataset.to_iterable_dataset()):
        fr.write(tmp_path / "t.tfrecord", form, overwrite=True)
        assert [row["image"] for row in fr.open(tmp_path / "t.tfrecord")] == stored
