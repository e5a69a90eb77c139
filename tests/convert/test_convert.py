"""Converters: files of other formats <-> TFRecord files.

Goal
    Every kind of source round-trips its values: all types, shapes and storages, nulls as
    omitted features. Tables have the values that the loader delivers.
    Unsupported or damaged input is an error that names the file or column with a hint,
    and leaves no output. Extras are imported only if they are needed.
Method
    Files of every kind are generated from known values. Hypothesis generates tables for
    Parquet -> TFRecord -> Parquet. Intact files are truncated at every byte.
"""

from __future__ import annotations

import errno
import gzip
import itertools
import logging
import os
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("PIL")
pytest.importorskip("typer")
pytest.importorskip("rich")

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from PIL import Image

import fastrec as fr
from children import run_python
from commands import run as run_command
from fastrec import convert
from fastrec import options as fastrec_options
from fastrec.convert.source import Source
from fastrec.convert.write import open_source, write_source


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Run ``fastrec convert`` in this process; return its stdout and stderr."""
    return run_command("convert", *arguments, status=status)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce batches to a few hundred bytes, so that small files have many."""
    monkeypatch.setattr(fastrec_options, "BATCH_BYTES", 256)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Create a new directory."""
    return lambda: tmp_path_factory.mktemp("convert")


def converted(
    paths: Any,
    features: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Source, fr.Dataset]:
    """Convert files to one TFRecord file next to the first, and open it."""
    first = Path(paths if isinstance(paths, str | Path) else paths[0])
    target = first.with_name(f"{first.name}.tfrecord")
    source = open_source(paths, **options)
    assert write_source(source, target).files == [str(target)]
    if features is not None:
        return source, fr.open(target, features={**features, **source.features})
    return source, fr.open(target)


def whole(ds: fr.Dataset) -> dict[str, Any]:
    """Return all records as one batch."""
    return ds[0 : len(ds)]


def lists(column: Any) -> list[Any]:
    """Return a column of any kind as one list of values per row."""
    if isinstance(column, fr.RaggedArray):
        return column.tolist()
    rows: list[Any] = column.tolist()
    return rows if column.ndim > 1 else [[value] for value in rows]


def some(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return random values of a dtype."""
    return np.random.default_rng(len(shape)).integers(0, 256, shape).astype(dtype)


# Images.


def image_file(path: Path, mode: str, size: tuple[int, int], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 1).save(path, **options)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return folders of images of three classes."""
    folder = tmp_path / "pictures"
    image_file(folder / "dog/b.png", "RGBA", (3, 2))
    image_file(folder / "cat/b.jpg", "RGB", (5, 4))
    image_file(folder / "cat/a.JPEG", "L", (7, 6))
    image_file(folder / "cat/more/c.gif", "P", (2, 9))
    image_file(folder / "Ant/d.png", "P", (4, 4), transparency=0)
    image_file(folder / "Ant/e.bmp", "1", (4, 5))
    image_file(folder / "Ant/f.png", "I;16", (6, 5))
    return folder


IMAGES = [  # label, class, filename, height, width, depth, format
    (0, b"Ant", b"Ant/d.png", 4, 4, 4, b"PNG"),
    (0, b"Ant", b"Ant/e.bmp", 5, 4, 1, b"BMP"),
    (0, b"Ant", b"Ant/f.png", 5, 6, 1, b"PNG"),
    (1, b"cat", b"cat/a.JPEG", 6, 7, 1, b"JPEG"),
    (1, b"cat", b"cat/b.jpg", 4, 5, 3, b"JPEG"),
    (1, b"cat", b"cat/more/c.gif", 9, 2, 3, b"GIF"),
    (2, b"dog", b"dog/b.png", 2, 3, 4, b"PNG"),
]


@pytest.mark.usefixtures("small_batches")
def test_images_keep_their_bytes_and_have_metadata(pictures: Path) -> None:
    source, ds = converted(pictures)
    assert source.features == {}
    assert source.n_total == len(ds) == len(IMAGES)
    names = ("label", "class", "filename", "height", "width", "depth", "format")
    batch = whole(ds)
    assert set(batch) == {"image", *names}
    columns = [batch[name].tolist() for name in names]
    assert list(zip(*columns, strict=True)) == IMAGES
    for data, filename in zip(batch["image"], batch["filename"], strict=True):
        assert data == (pictures / filename.decode()).read_bytes()


def test_columns_of_images_are_selected(pictures: Path) -> None:
    _, ds = converted(pictures, columns=["label", "image"])
    assert set(whole(ds)) == {"image", "label"}


def test_files_that_are_not_images_are_ignored_and_logged(
    pictures: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (pictures / "cat/notes.txt").write_text("about cats")
    (pictures / ".hidden").mkdir()
    (pictures / ".hidden/a.png").write_bytes(b"")
    (pictures / "cat/.b.png").write_bytes(b"")
    image_file(pictures / "no-class.png", "L", (1, 1))
    with caplog.at_level(logging.WARNING, "fastrec"):
        source = open_source(pictures)
    assert source.n_total == len(IMAGES)
    assert "ignored 2 files" in caplog.text


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_an_unreadable_image_is_named(pictures: Path, data: bytes) -> None:
    bad = pictures / "cat/bad.png"
    bad.write_bytes(data)
    with pytest.raises(fr.CorruptionError, match="cannot read the image") as caught:
        converted(pictures)
    assert caught.value.path == str(bad)
    assert [path.name for path in pictures.parent.iterdir()] == ["pictures"]


def test_a_damaged_png_is_named(pictures: Path) -> None:
    path = pictures / "dog/b.png"
    data = bytearray(path.read_bytes())
    data[data.index(b"IDAT") + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(fr.CorruptionError) as caught:
        list(open_source(pictures).batches)
    assert caught.value.path == str(path)


def test_a_directory_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match=r"DIR/class/name\.jpg or DIR/name\.jpg"):
        open_source(tmp_path)


def test_images_are_written_back(pictures: Path, tmp_path: Path) -> None:
    path, back = tmp_path / "pictures.tfrecord", tmp_path / "back"
    convert.write_tfrecords(pictures, path)
    files = convert.write_images(path, back)
    assert files == [str(back / row[2].decode()) for row in IMAGES]
    for file in files:
        assert (
            Path(file).read_bytes()
            == (pictures / Path(file).relative_to(back)).read_bytes()
        )
    with pytest.raises(FileExistsError, match="row 0"):
        convert.write_images(path, back)
    assert convert.write_images(path, back, overwrite=True) == files
    assert not list(back.rglob("*.tmp"))
    run(path, "--out", f"{tmp_path}/again/")
    assert (tmp_path / "again/cat/more/c.gif").exists()


@pytest.mark.parametrize(
    ("column", "folders"),
    [
        ({"class": [b"a", b"b"]}, ["a", "b"]),
        ({"label": [3, 10]}, ["3", "10"]),
        ({}, [""] * 2),
    ],
)
def test_images_without_names_are_numbered(
    tmp_path: Path, column: dict[str, Any], folders: list[str]
) -> None:
    png = image_file(tmp_path / "a.png", "RGB", (1, 1)).read_bytes()
    jpeg = image_file(tmp_path / "a.jpg", "RGB", (1, 1)).read_bytes()
    path, out = tmp_path / "x.tfrecord", tmp_path / "out"
    fr.write(path, {"picture": [png, jpeg], **column})
    files = convert.write_images(path, out, image="picture")
    names = ["00000000.png", "00000001.jpg"]
    assert files == [str(out / f / n) for f, n in zip(folders, names, strict=True)]
    with pytest.raises(KeyError, match="image"):
        convert.write_images(path, out)


@pytest.mark.parametrize(
    "name", [b"../x.png", b"/x.png", b"a/../../x.png", b"", b".", b"x\0.png"]
)
def test_images_stay_below_their_folder(tmp_path: Path, name: bytes) -> None:
    path, out = tmp_path / "x.tfrecord", tmp_path / "out"
    fr.write(path, {"image": [b"\x89PNG\r\n\x1a\n"], "filename": [name]})
    with pytest.raises(fr.SchemaError, match="below the directory"):
        convert.write_images(path, out)
    assert not out.exists()


def test_other_files_are_not_named_like_images(tmp_path: Path) -> None:
    fr.write(tmp_path / "a.tfrecord", {"image": [b"RIFF\4\0\0\0WAVEfmt "]})
    with pytest.raises(fr.SchemaError, match="its format is unknown"):
        convert.write_images(tmp_path / "a.tfrecord", tmp_path / "out")


def test_images_of_one_name_are_never_lost(tmp_path: Path) -> None:
    path, out = tmp_path / "x.tfrecord", tmp_path / "out"
    fr.write(path, {"image": [b"a", b"b"], "filename": [b"x", b"x"]})
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            convert.write_images(path, out, overwrite=overwrite)
        assert (out / "x").read_bytes() == b"a"


def test_a_flat_folder_of_images_has_no_classes(tmp_path: Path) -> None:
    folder = tmp_path / "flat"
    image_file(folder / "b.png", "RGB", (3, 2))
    image_file(folder / "a.jpg", "L", (4, 5))
    (folder / "empty").mkdir()
    source, ds = converted(folder)
    batch = whole(ds)
    assert source.n_total == 2
    names = {"image", "filename", "height", "width", "depth", "format"}
    assert set(batch) == names
    assert batch["filename"].tolist() == [b"a.jpg", b"b.png"]
    assert batch["image"].tolist() == [
        (folder / name).read_bytes() for name in ("a.jpg", "b.png")
    ]
    with pytest.raises(ValueError, match="no column 'label'"):
        open_source(folder, columns=["label"])


def test_folders_with_and_without_classes_cannot_be_mixed(
    pictures: Path, tmp_path: Path
) -> None:
    image_file(tmp_path / "flat/a.png", "L", (1, 1))
    with pytest.raises(ValueError, match="must have class folders"):
        open_source([pictures, tmp_path / "flat"])


@pytest.mark.usefixtures("small_batches")
def test_unreadable_images_are_skipped_reported_and_counted(
    pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [pictures / "cat/bad.png", pictures / "dog/a.jpg"]
    for path in bad:
        path.write_bytes(b"no image")
    out = tmp_path / "out.tfrecord"
    run(pictures, "-o", out, status=1)
    assert not out.exists()
    shown, errors = run(pictures, "-o", out, "--on-error", "skip")
    assert "wrote 7 records" in shown
    assert "skipped 2 images that cannot be read" in errors
    told = [record.getMessage() for record in caplog.records]
    assert [str(path) in text for path, text in zip(bad, told, strict=True)] == [
        True
    ] * 2
    names = whole(fr.open(out))["filename"].tolist()
    assert names == [filename for _, _, filename, *_ in IMAGES]

    progress: list[tuple[int, int]] = []
    convert.write_tfrecords(
        *(pictures, tmp_path / "b.tfrecord"),
        on_error="skip",
        progress=lambda *counts: progress.append(counts),
    )
    assert progress[-1] == (len(IMAGES), len(IMAGES) + 2)


def test_no_file_is_written_if_no_image_can_be_read(tmp_path: Path) -> None:
    folder, out = tmp_path / "flat", tmp_path / "out.tfrecord"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"no image")
    _, errors = run(folder, "-o", out, "--on-error", "skip", status=2)
    assert "cannot read any of 1 images" in errors
    assert not out.exists()


def test_only_images_can_be_skipped(tmp_path: Path) -> None:
    table = csv_file(tmp_path / "t.csv", "n\n1\n")
    with pytest.raises(ValueError, match="requires a directory of images"):
        open_source(table, on_error="skip")
    with pytest.raises(ValueError, match="must be 'raise' or 'skip', got 'no'"):
        open_source(table, on_error="no")


# Tables to TFRecords.


def table_file(path: Path, table: Any) -> Path:
    """Write a table in the format that the suffix names."""
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    else:
        opened = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
        with opened(path, table.schema) as writer:
            writer.write_table(table)
    return path


N = None
STRINGS = ["a", "", "\u00e4\u20ac", "a\0b"]
# Type, values, and the values after reading: ints, floats or bytes.
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (pa.bool_(), [True, N, False], [1, N, 0]),
    (pa.int8(), [-128, N, 127], [-128, N, 127]),
    (pa.uint16(), [0, N, 65535], [0, N, 65535]),
    (pa.int64(), [-(2**63), N, 2**63 - 1], [-(2**63), N, 2**63 - 1]),
    (pa.uint64(), [0, N, 2**63 - 1], [0, N, 2**63 - 1]),
    (pa.float16(), [np.float16(0.5), N, np.float16(-2)], [0.5, N, -2.0]),
    (pa.float32(), [0.5, N, -2], [0.5, N, -2.0]),
    (pa.float64(), [0.5, N, 1e-3], [0.5, N, float(np.float32(1e-3))]),
    (pa.string(), ["a", N, ""], [b"a", N, b""]),
    (pa.large_string(), STRINGS, [x.encode() for x in STRINGS]),
    (pa.string_view(), ["x" * 20, N, ""], [b"x" * 20, N, b""]),
    (pa.binary(), [b"\xff\0", N, b""], [b"\xff\0", N, b""]),
    (pa.large_binary(), [b"\xff\0", N, b""], [b"\xff\0", N, b""]),
    (pa.binary_view(), [b"\xff" * 20, N, b""], [b"\xff" * 20, N, b""]),
    (pa.binary(2), [b"ab", N, b"\0\0"], [b"ab", N, b"\0\0"]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", N, "b", "a"], [b"a", N, b"b", b"a"]),
    (pa.dictionary(pa.int32(), pa.int64()), [5, N, 6], [5, N, 6]),
    (pa.run_end_encoded(pa.int32(), pa.int64()), [5, 5, N, 6], [5, 5, N, 6]),
    (pa.list_(pa.int32()), [[1, 2], N, [], [3]], [[1, 2], [], [], [3]]),
    (pa.large_list(pa.float32()), [[0.5], N, []], [[0.5], [], []]),
    (pa.list_(pa.bool_()), [[True, False], [], [True]], [[1, 0], [], [1]]),
    (pa.list_(pa.string()), [["a", ""], N, ["b"]], [[b"a", b""], [], [b"b"]]),
    (
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        [["a", "b"], [], ["a"]],
        [[b"a", b"b"], [], [b"a"]],
    ),
    (pa.list_view(pa.int16()), [[1, 2], N, [3]], [[1, 2], [], [3]]),
    (pa.large_list_view(pa.string()), [["a"], N, ["b", ""]], [[b"a"], [], [b"b", b""]]),
    (pa.list_(pa.int16(), 2), [[1, 2], N, [3, 4]], [[1, 2], [], [3, 4]]),
    (pa.list_(pa.string(), 2), [["a", "b"], ["", "c"]], [[b"a", b"b"], [b"", b"c"]]),
]
cases = pytest.mark.parametrize(
    ("kind", "values", "expected"), CASES, ids=[str(case[0]) for case in CASES]
)


def as_lists(values: Sequence[Any]) -> list[list[Any]]:
    """Return each row as a list of values; null is empty."""
    return [
        [] if row is None else list(row) if isinstance(row, list) else [row]
        for row in values
    ]


def spec_of(expected: Sequence[Any]) -> fr.VarLen:
    """Return specs that read rows with any number of values."""
    first = next(value for row in as_lists(expected) for value in row)
    kinds = {int: "int64", float: "float32", bytes: "bytes"}
    return fr.VarLen(kinds[type(first)])


@cases
@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("suffix", [".arrow", ".arrows"])
def test_arrow_columns_of_all_types_read_back(
    tmp_path: Path,
    kind: Any,
    values: list[Any],
    expected: list[Any],
    begin: int,
    suffix: str,
) -> None:
    # Buffers and bit masks of a slice have offsets.
    array = pa.array([*values, *values], kind)[begin:]
    path = table_file(tmp_path / f"t{suffix}", pa.table({"x": array}))
    wanted = [*expected, *expected][begin:]
    _, ds = converted(path, {"x": spec_of(expected)})
    assert whole(ds)["x"].tolist() == as_lists(wanted)


@cases
def test_sliced_batches_have_the_rows_of_the_slice(
    kind: Any,
    values: list[Any],
    expected: list[Any],
) -> None:
    from fastrec.convert.arrow_columns import columns_of

    array = pa.array(list(itertools.islice(itertools.cycle(values), 20)), kind)
    wanted = list(itertools.islice(itertools.cycle(as_lists(expected)), 20))
    for begin, end in [(0, 20), (3, 17), (9, 10), (8, 8), (0, 0)]:
        batch = pa.RecordBatch.from_arrays([array[begin:end]], ["x"])
        column = columns_of(batch)["x"]
        assert len(column) == end - begin
        if isinstance(column, np.ma.MaskedArray):
            found = as_lists(column.tolist())
            found = [[] if row == [None, None] else row for row in found]
        elif isinstance(column, list):
            found = [
                [] if row is None else [row] if isinstance(row, bytes) else list(row)
                for row in column
            ]
        else:
            found = lists(column)
        if str(kind) == "double":
            found = [[float(np.float32(value)) for value in row] for row in found]
        assert found == wanted[begin:end]


def test_columns_without_nulls_share_the_memory_of_arrow() -> None:
    from fastrec.convert.arrow_columns import columns_of

    table = pa.table(
        {
            "i": pa.array([1, 2, 3], pa.int16()),
            "f": pa.array([1, 2, 3], pa.float64()),
            "s": pa.array(["a", "bb", "c"]),
            "l": pa.array([[1], [2, 3], []], pa.large_list(pa.int64())),
            "k": pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2)),
        }
    )
    (batch,) = table.to_batches()
    columns = columns_of(batch)
    addresses = {
        "i": (columns["i"], batch["i"].buffers()[1]),
        "f": (columns["f"], batch["f"].buffers()[1]),
        "s": (columns["s"].data, batch["s"].buffers()[2]),
        "l": (columns["l"].values, batch["l"].buffers()[3]),
        "k": (columns["k"], batch["k"].buffers()[2]),
    }
    for name, (array, buffer) in addresses.items():
        assert array.ctypes.data == buffer.address, name


def test_tensors_are_written_as_bytes(tmp_path: Path) -> None:
    images = some("u1", (6, 3, 4))
    nested = pa.array(images.tolist(), pa.list_(pa.list_(pa.uint8(), 4), 3))
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(some("f4", (6, 2, 2)))
    table = pa.table({"nested": nested, "tensors": tensors})
    path = table_file(tmp_path / "t.arrow", table.slice(1))
    source, ds = converted(path, {})
    assert source.features == {
        "nested": fr.Raw((3, 4), "uint8"),
        "tensors": fr.Raw((2, 2), "float32"),
    }
    batch = whole(ds)
    np.testing.assert_array_equal(batch["nested"], images[1:])
    np.testing.assert_array_equal(batch["tensors"], some("f4", (6, 2, 2))[1:])


def test_a_missing_tensor_is_omitted(tmp_path: Path) -> None:
    kind = pa.list_(pa.list_(pa.int16(), 2), 2)
    values = [[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]]
    path = table_file(tmp_path / "t.arrow", pa.table({"x": pa.array(values, kind)}))
    _, ds = converted(path)
    assert ["x" in fr.decode_example(record) for record in ds.records] == [1, 0, 1]
    spec = {"x": fr.Raw((2, 2), "int16", default=np.zeros((2, 2), np.int16))}
    assert whole(ds.with_features(spec))["x"].tolist() == [
        [[1, 2], [3, 4]],
        [[0, 0], [0, 0]],
        [[5, 6], [7, 8]],
    ]


def test_a_dictionary_may_contain_nulls(tmp_path: Path) -> None:
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0]), pa.array(["a", None])
    )
    path = table_file(tmp_path / "t.arrow", pa.table({"x": array}))
    _, ds = converted(path)
    assert whole(ds)["x"].tolist() == [[b"a"], [], [], [b"a"]]


def test_columns_of_nulls_are_omitted(tmp_path: Path) -> None:
    columns = {
        "n": pa.nulls(2),
        "i": pa.nulls(2, pa.int64()),
        "s": pa.nulls(2, pa.string()),
        "l": pa.nulls(2, pa.list_(pa.int64())),
        "x": [1, 2],
    }
    path = table_file(tmp_path / "t.parquet", pa.table(columns))
    _, ds = converted(path)
    assert [list(fr.decode_example(record)) for record in ds.records] == [["x"]] * 2


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int64()), pa.list_(pa.string()), pa.list_(pa.int64(), 2)],
    ids=str,
)
def test_a_null_within_a_list_is_an_error(tmp_path: Path, kind: Any) -> None:
    rows: list[Any] = [[None, None], None]
    path = table_file(tmp_path / "t.arrow", pa.table({"x": pa.array(rows, kind)}))
    with pytest.raises(
        fr.SchemaError, match="'x': it has a null within a list"
    ) as caught:
        converted(path)
    assert caught.value.path == str(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("kind", "cast", "value", "read"),
    [
        (pa.timestamp("us"), "int64", 7, 7),
        (pa.date32(), "int32", 7, 7),
        (pa.date64(), "int64", 86_400_000, 86_400_000),
        (pa.time32("s"), "int32", 7, 7),
        (pa.time64("us"), "int64", 7, 7),
        (pa.duration("s"), "int64", 7, 7),
        (pa.decimal128(5, 2), "float64", 1.5, 1.5),
    ],
    ids=str,
)
def test_types_that_no_feature_can_store_are_refused_with_a_hint(
    tmp_path: Path,
    kind: Any,
    cast: str,
    value: Any,
    read: Any,
) -> None:
    array = pa.array([value, None], pa.type_for_alias(cast)).cast(kind)
    path = table_file(tmp_path / "t.arrow", pa.table({"x": array}))
    with pytest.raises(fr.SchemaError) as caught:
        open_source(path)
    assert f"'x' of type {kind}" in str(caught.value)
    assert f"--type NAME={cast}" in str(caught.value)
    assert (caught.value.path, caught.value.feature) == (str(path), "x")
    _, ds = converted(path, types={"x": cast})
    assert whole(ds)["x"].tolist() == [[read], []]


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (pa.array([{"a": 1}]), "separate columns"),
        (pa.array([[{"a": 1}]]), "separate columns"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "separate columns"),
        (pa.array([[[1]]]), "one level"),
        (pa.array([[[1]]], pa.list_(pa.list_(pa.int64()), 1)), "one level"),
        (pa.array([[["a"]]], pa.list_(pa.list_(pa.string(), 1), 1)), "one level"),
        (pa.array([[1.5]]).cast(pa.list_(pa.decimal128(5, 2))), "float64"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "omit it"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_nested_types_are_refused_with_a_hint(
    tmp_path: Path,
    array: Any,
    hint: str,
) -> None:
    path = table_file(tmp_path / "t.arrow", pa.table({"n": [1], "x": array}))
    with pytest.raises(fr.SchemaError, match="no feature can store") as caught:
        open_source(path)
    assert hint in str(caught.value)
    assert caught.value.feature == "x"
    _, ds = converted(path, columns=["n"])
    assert whole(ds)["n"].tolist() == [1]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows", ".feather"])
@pytest.mark.usefixtures("small_batches")
def test_tables_are_read_in_batches_and_concatenated(
    tmp_path: Path, suffix: str
) -> None:
    for i in range(3):
        table = pa.table({"n": range(100 * i, 100 * (i + 1)), "s": ["text"] * 100})
        table_file(tmp_path / f"{i}{suffix}", table)
    progress: list[tuple[int, int]] = []
    convert.write_tfrecords(
        *(tmp_path / f"?{suffix}", tmp_path / "out.tfrecord"),
        progress=lambda *counts: progress.append(counts),
    )
    assert len(progress) > 6
    assert progress[-1] == (300, 300 if suffix == ".parquet" else 0)
    batch = whole(fr.open(tmp_path / "out.tfrecord"))
    assert batch["n"].tolist() == list(range(300))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows", ".csv"])
def test_a_table_without_rows_is_a_file_without_records(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        path.write_text("a,b\n")
    else:
        table_file(path, pa.table({"a": pa.array([], pa.int64())}))
    _, ds = converted(path)
    assert len(ds) == 0
    assert list(open_source(path).batches) == []


def test_tables_must_have_equal_columns(tmp_path: Path) -> None:
    one = table_file(tmp_path / "1.parquet", pa.table({"x": pa.array([1], pa.int8())}))
    null = table_file(tmp_path / "0.parquet", pa.table({"x": pa.nulls(1)}))
    same = table_file(tmp_path / "2.parquet", pa.table({"x": pa.array([2])}))
    other = table_file(tmp_path / "3.parquet", pa.table({"x": ["a"]}))
    more = table_file(tmp_path / "4.parquet", pa.table({"x": [1], "y": [2]}))
    _, ds = converted([one, same, null])
    assert [row.tolist() for row in whole(ds)["x"]] == [[1], [2], []]
    with pytest.raises(
        fr.SchemaError, match=r"cannot cast column 'x'.*types="
    ) as caught:
        list(open_source([one, other]).batches)
    assert caught.value.path == str(other)
    with pytest.raises(ValueError, match=r"column 'y' must be in all files"):
        open_source([one, more])
    source = open_source([one, more], columns=["x"])
    assert [batch["x"].tolist() for batch in source.batches] == [[1], [1]]


def test_files_of_different_kinds_cannot_be_mixed(tmp_path: Path) -> None:
    table = table_file(tmp_path / "1.parquet", pa.table({"x": [1]}))
    text = csv_file(tmp_path / "2.csv", "x\n1\n")
    with pytest.raises(ValueError, match="all be of one kind"):
        open_source([table, text])


def test_columns_are_selected_by_name_and_in_order(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "t.csv", "x,y,z\n1,2,3\n")
    source = open_source(path, columns=["y", "x"])
    assert list(next(source.batches)) == ["y", "x"]
    with pytest.raises(ValueError, match="no column 'w'; the data has 'x', 'y'"):
        open_source(path, columns=["w"])
    with pytest.raises(ValueError, match="must not repeat"):
        open_source(path, columns=["x", "x"])
    path = csv_file(tmp_path / "twice.csv", "x,x\n1,2\n")
    with pytest.raises(ValueError, match="must be unique, got 'x' twice"):
        open_source(path)


def test_kinds_are_recognized_without_a_suffix(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2]})
    for suffix in (".parquet", ".arrow"):
        path = table_file(tmp_path / f"t{suffix}", table)
        source = open_source(path.rename(tmp_path / f"like{suffix[1:]}"))
        assert next(source.batches)["x"].tolist() == [1, 2]


def test_unknown_files_and_tfrecords_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1))
    np.savez(tmp_path / "a.npz", a=np.arange(1))
    idx = b"\0\0\x08\1\0\0\0\1\7"
    (tmp_path / "a-idx1-ubyte").write_bytes(idx)
    (tmp_path / "a-idx1-ubyte.gz").write_bytes(gzip.compress(idx))
    (tmp_path / "a.txt").write_text("text")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match=r"supported are \.csv") as caught:
            open_source(path)
        assert path.name in str(caught.value)
        assert "with NumPy: fr.write(path, {...}); see docs/writing.md" in str(
            caught.value
        )
    with fr.Writer(tmp_path / "a.tfrecord") as writer:
        writer.write({"x": 1})
    with pytest.raises(ValueError, match="already a TFRecord file"):
        open_source(tmp_path / "a.tfrecord")
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="at least one file"):
        open_source([])
    with pytest.raises(ValueError, match="types= requires CSV"):
        open_source(tmp_path, types={"a": "int64"})


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows", ".feather"])
def test_truncated_tables_are_errors_that_name_the_file(
    tmp_path: Path, suffix: str
) -> None:
    table = pa.table({"x": range(50), "s": [str(i) for i in range(50)]})
    good = table_file(tmp_path / f"good{suffix}", table).read_bytes()
    path = tmp_path / f"bad{suffix}"
    whole_rows = {"x": list(range(50)), "s": [str(i).encode() for i in range(50)]}
    n_errors = 0
    for size in range(0, len(good), 7):
        path.write_bytes(good[:size])
        try:
            batches = list(open_source(path).batches)
        except fr.CorruptionError as error:
            assert error.path == str(path)  # noqa: PT017 (a stream may be whole)
            n_errors += 1
        else:
            # A stream may end after its batches; the end mark is optional.
            assert suffix == ".arrows"
            rows = {k: v.tolist() for k, v in batches[0].items()} if batches else {}
            assert rows in ({}, whole_rows)
    assert n_errors > len(good) // 20


def test_hostile_offsets_are_found(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 12345])], ["x"])
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    good = path.read_bytes()
    written = np.array([0, 12345], np.int32).tobytes()
    at = good.rindex(written)  # the first match is the size of the text
    assert good.index(b"x" * 12345) > at
    for hostile in ([0, 99999], [0, -5], [5, 0]):
        offsets = np.array(hostile, np.int32).tobytes()
        path.write_bytes(good[:at] + offsets + good[at + len(offsets) :])
        with pytest.raises(fr.CorruptionError) as caught:
            list(open_source(path).batches)
        assert caught.value.path == str(path)


def test_null_views_are_not_dereferenced(tmp_path: Path) -> None:
    # pyarrow validates only non-null views of strings, but casts all of them.
    array = pa.array(["x" * 20, "b", None] * 3, pa.string_view())
    path = table_file(tmp_path / "t.arrow", pa.table({"x": array}))
    good = path.read_bytes()
    view = np.array([1, ord("b"), 0, 0], "<i4").tobytes()
    assert good.count(view + bytes(16)) == 3
    wild = np.array([-(2**31), 0, 0, 0], "<i4").tobytes()
    path.write_bytes(good.replace(view + bytes(16), view + wild))
    _, ds = converted(path)
    assert whole(ds)["x"].tolist() == [[b"x" * 20], [b"b"], []] * 3


# CSV.


def csv_file(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "T.TSV.gz"])
def test_csv_columns_have_the_kinds_of_their_values(tmp_path: Path, name: str) -> None:
    text = 'i,f,s,b,d,e\n1,0.5,"x, ""y""",true,2020-01-31,\n,,,,,\n-3,2,z,false,2021-12-01,\n'
    if "tsv" in name.lower():
        quoted = '"x, ""y"""'
        text = text.replace(quoted, "@").replace(",", "\t").replace("@", quoted)
    _, ds = converted(csv_file(tmp_path / name, text))
    batch = whole(ds)
    assert {name: lists(column) for name, column in batch.items()} == {
        "i": [[1], [], [-3]],
        "f": [[0.5], [], [2.0]],
        "s": [[b'x, "y"'], [b""], [b"z"]],
        "b": [[1], [], [0]],
        "d": [[b"2020-01-31"], [b""], [b"2021-12-01"]],
        "e": [[b""]] * 3,
    }


def test_types_override_the_inference_of_csv_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastrec.convert import tables

    monkeypatch.setattr(tables, "_CSV_BLOCK_BYTES", 64)
    path = csv_file(tmp_path / "t.csv", "x\n" + "1\n" * 100 + "0.5\n")
    with pytest.raises(fr.SchemaError, match="--type NAME=") as caught:
        converted(path)
    assert caught.value.path == str(path)
    _, ds = converted(path, types={"x": "float64"})
    assert whole(ds)["x"].tolist() == [1.0] * 100 + [0.5]
    with pytest.raises(ValueError, match="no column 'y'; the data has 'x'"):
        open_source(path, types={"y": "float64"})
    with pytest.raises(ValueError, match="number"):
        open_source(path, types={"x": "number"})


@pytest.mark.parametrize(
    "text", ["", "a,b\n1\n", "a,b\n1,2\n3\n", "a,a\n1,2\n"], ids=ascii
)
def test_ragged_and_empty_csv_files_are_errors(tmp_path: Path, text: str) -> None:
    path = csv_file(tmp_path / "t.csv", text)
    with pytest.raises(ValueError, match=r"t\.csv|got 'a' twice"):
        converted(path)


def test_a_truncated_gzip_is_an_error(tmp_path: Path) -> None:
    rng = random.Random(0)
    text = "x\n" + "".join(f"{rng.random()}\n" for _ in range(1000))
    path = csv_file(tmp_path / "t.csv.gz", text)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(fr.CorruptionError) as caught:
        converted(path)
    assert caught.value.path == str(path)


# TFRecords to tables.


def to_arrow(batch: Any, **options: Any) -> Any:
    return pa.record_batch(fr.arrow.RecordBatch(batch, **options))


@pytest.mark.parametrize(
    ("column", "kind", "rows"),
    [
        (np.array([True, False]), pa.bool_(), [True, False]),
        (np.array([1, -2], "i2"), pa.int16(), [1, -2]),
        (np.array([1, -2], ">i4"), pa.int32(), [1, -2]),
        (np.array([1, 2], "u8"), pa.uint64(), [1, 2]),
        (np.array([0.5, 2], "f2"), pa.float16(), [0.5, 2]),
        (np.array([0.5, 2], "f4"), pa.float32(), [0.5, 2]),
        (np.eye(2), pa.list_(pa.float64(), 2), [[1, 0], [0, 1]]),
        (np.eye(4)[::2, ::3], pa.list_(pa.float64(), 2), [[1, 0], [0, 0]]),
        (
            np.arange(8).reshape(2, 2, 2),
            pa.list_(pa.list_(pa.int64(), 2), 2),
            [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        ),
        (np.zeros((2, 0), "i8"), pa.list_(pa.int64(), 0), [[], []]),
        (fr.BytesArray.from_list(["a", "\0"]), pa.large_binary(), [b"a", b"\0"]),
        (
            fr.BytesArray.from_list(["x", "a", "", "y"])[1:3],
            pa.large_binary(),
            [b"a", b""],
        ),
        (
            fr.BytesArray.from_list([["a", "b"], ["c", "d"]]),
            pa.list_(pa.large_binary(), 2),
            [[b"a", b"b"], [b"c", b"d"]],
        ),
        (
            fr.RaggedArray.from_list([[1, 2], []]),
            pa.large_list(pa.int64()),
            [[1, 2], []],
        ),
        (
            fr.RaggedArray.from_list([["a"], ["b", "c"]]),
            pa.large_list(pa.large_binary()),
            [[b"a"], [b"b", b"c"]],
        ),
        (
            fr.RaggedArray.from_list([[[1], [2, 3]], []]),
            pa.large_list(pa.large_list(pa.int64())),
            [[[1], [2, 3]], []],
        ),
        (
            fr.RaggedArray(np.arange(6).reshape(3, 2), [0, 1, 3]),
            pa.large_list(pa.list_(pa.int64(), 2)),
            [[[0, 1]], [[2, 3], [4, 5]]],
        ),
    ],
)
def test_columns_become_arrow_arrays(column: Any, kind: Any, rows: list[Any]) -> None:
    batch = to_arrow({"x": column, b"n": np.arange(2)})
    batch.validate(full=True)
    assert batch.schema.names == ["x", "n"]
    assert batch["x"].type == kind
    assert batch["x"].to_pylist() == rows


def test_arrow_arrays_share_the_memory_of_columns() -> None:
    numbers = np.arange(5.0)
    strings = fr.BytesArray.from_list(["a", "bc"] * 2 + ["d"])
    ragged: Any = fr.RaggedArray.from_list([[1], [2, 3], [], [4], [5]])
    batch = to_arrow({"n": numbers, "s": strings, "r": ragged}, text=["s"])
    assert batch["n"].buffers()[1].address == numbers.ctypes.data
    assert batch["s"].buffers()[2].address == strings.data.ctypes.data
    assert batch["r"].buffers()[3].address == ragged.values.ctypes.data


def test_text_is_checked() -> None:
    names = fr.BytesArray.from_list(["\u00e4", "b"])
    batch = to_arrow({"x": names}, text={"x"})
    assert batch["x"].type == pa.large_string()
    assert batch["x"].to_pylist() == ["\u00e4", "b"]
    rows = fr.RaggedArray.from_list([["a"], ["b"]])
    assert to_arrow({"x": rows}, text={"x"})["x"].to_pylist() == [["a"], ["b"]]
    bad = fr.BytesArray.from_list([b"a", b"\xff"])
    with pytest.raises(
        fr.SchemaError, match="'x': a value is not UTF-8 text"
    ) as caught:
        to_arrow({"x": bad}, text=["x"])
    assert caught.value.feature == "x"
    with pytest.raises(fr.SchemaError, match="must be byte strings"):
        to_arrow({"x": np.arange(2)}, text=["x"])
    with pytest.raises(ValueError, match="no column 'y'; the batch has 'x'"):
        to_arrow({"x": names}, text=["y"])


def test_optional_columns_are_values_or_null() -> None:
    batch = {
        "i": fr.RaggedArray.from_list([[], [1], [2], []]),
        "s": fr.RaggedArray.from_list([["a"], [], [], ["b"]]),
        "dense": np.arange(4),
        "empty": fr.RaggedArray(np.zeros(0, np.float32), [0] * 5),
    }
    table = to_arrow(batch, text=["s"], optional=list(batch))
    assert table.to_pydict() == {
        "i": [None, 1, 2, None],
        "s": ["a", None, None, "b"],
        "dense": [0, 1, 2, 3],
        "empty": [None] * 4,
    }
    assert table["empty"].type == pa.float32()
    rows = fr.RaggedArray.from_list([[1], [1, 2]])
    with pytest.raises(fr.SchemaError, match=r"has 2 values; .* record 1"):
        to_arrow({"x": rows}, optional=["x"])


@pytest.mark.parametrize(
    "column",
    [
        np.zeros(2, complex),
        np.array([[1], [2]], object),
        fr.RaggedArray.from_list([[1], [2]]).to_sparse(),
    ],
    ids=lambda column: type(column).__name__,
)
def test_columns_that_arrow_does_not_have_are_named(column: Any) -> None:
    with pytest.raises(fr.SchemaError, match="column 'x': ") as caught:
        to_arrow({"x": column})
    assert caught.value.feature == "x"
    with pytest.raises(fr.SchemaError, match="column names must be UTF-8"):
        to_arrow({b"\xff": np.arange(2)})


def records_file(path: Path, n_records: int = 10) -> Path:
    with fr.Writer(path) as writer:
        for i in range(n_records):
            row = {"n": i, "v": [0.5] * (i % 3), "s": f"s{i}", "k": [i, -i]}
            row["v"] = np.array(row["v"], np.float32)
            writer.write(row)
    return path


def rows_of(n_records: int = 10) -> dict[str, list[Any]]:
    n = range(n_records)
    return {
        "k": [[i, -i] for i in n],
        "n": list(n),
        "s": [f"s{i}".encode() for i in n],
        "v": [[0.5] * (i % 3) for i in n],
    }


def read_table(path: Path) -> Any:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    return pyarrow.feather.read_table(path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_tables_have_the_values_of_the_records(
    tmp_path: Path, suffix: str, batch_size: int | None
) -> None:
    records = records_file(tmp_path / "a.tfrecord")
    calls = []
    target = tmp_path / f"new/t{suffix}"
    n_records = convert.write_table(
        records,
        target,
        batch_size=batch_size,
        progress=lambda *call: calls.append(call),
    )
    assert n_records == 10
    assert calls[-1] == (10, 10)
    assert len(calls) == -(-10 // (batch_size or 10))
    table = read_table(target)
    assert {name: table[name].to_pylist() for name in sorted(table.column_names)} == (
        rows_of()
    )
    assert table.schema.field("k").type.list_size == 2
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_an_arrow_file_can_be_mapped_and_a_feather_file_is_compressed(
    tmp_path: Path,
) -> None:
    with fr.Writer(tmp_path / "a.tfrecord") as writer:
        for _ in range(100):
            writer.write({"x": bytes(1000)})
    for suffix in ("arrow", "feather"):
        convert.write_table(tmp_path / "a.tfrecord", tmp_path / f"t.{suffix}")
    assert (tmp_path / "t.arrow").stat().st_size > 100_000
    assert (tmp_path / "t.feather").stat().st_size < 20_000
    before = pa.total_allocated_bytes()
    with pa.memory_map(str(tmp_path / "t.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
        assert table.num_rows == 100
        assert pa.total_allocated_bytes() - before < 10_000


def test_a_dataset_is_written_with_its_schema(tmp_path: Path) -> None:
    records = records_file(tmp_path / "a.tfrecord")
    ds = fr.open(
        records,
        features={
            "n": fr.FixedLen((), "int8"),
            "pixels": fr.Raw((2,), "uint8", key="s"),
        },
    )
    convert.write_table(ds, tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.schema.field("n").type == pa.int8()
    assert table["pixels"].to_pylist() == [[ord("s"), ord(f"{i}")] for i in range(10)]


def test_compressed_records_are_streamed(tmp_path: Path) -> None:
    records = records_file(tmp_path / "a.tfrecord")
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(records.read_bytes()))
    assert convert.write_table(path, tmp_path / "t.parquet", batch_size=3) == 10
    assert pq.read_table(tmp_path / "t.parquet")["n"].to_pylist() == list(range(10))
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 4


def test_a_table_is_complete_on_any_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    records = records_file(tmp_path / "a.tfrecord")
    assert convert.write_table(records, tmp_path / "t.parquet") == 10


def test_an_existing_table_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    records = records_file(tmp_path / "a.tfrecord")
    target = tmp_path / "t.parquet"
    target.write_bytes(b"mine")
    with pytest.raises(FileExistsError) as caught:
        convert.write_table(records, target)
    assert caught.value.filename == str(target)
    assert target.read_bytes() == b"mine"
    convert.write_table(records, target, overwrite=True)
    assert pq.read_table(target).num_rows == 10


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_a_failure_keeps_the_existing_file(tmp_path: Path, suffix: str) -> None:
    records = tmp_path / "a.tfrecord"
    with fr.Writer(records) as writer:
        for i in range(6):
            writer.write({"x": b"\xff" if i == 5 else b"a"})
    target = tmp_path / f"t{suffix}"
    target.write_bytes(b"mine")
    with pytest.raises(fr.SchemaError):
        convert.write_table(records, target, text=["x"], batch_size=2, overwrite=True)
    assert target.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.tfrecord",
        target.name,
    ]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_the_next_conversion_removes_the_file_of_a_killed_one(
    tmp_path: Path, suffix: str
) -> None:
    records, target = records_file(tmp_path / "a.tfrecord"), tmp_path / f"t{suffix}"
    code = """
    import os, signal, sys
    from fastrec import convert

    def kill(n_written, n_total):
        os.kill(os.getpid(), signal.SIGKILL)

    convert.write_table(sys.argv[1], sys.argv[2], batch_size=4, progress=kill)
    """
    run_python(code, records, target, status=-signal.SIGKILL)
    assert len([*tmp_path.glob(".t.*.tmp")]) == 1
    run(records, "-o", target)
    assert {path.name for path in tmp_path.iterdir()} == {records.name, target.name}
    assert read_table(target).num_rows == 10


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_a_disk_that_refuses_a_table_is_an_error_that_names_it(
    tmp_path: Path, suffix: str
) -> None:
    records, target = records_file(tmp_path / "a.tfrecord"), tmp_path / f"t{suffix}"
    code = """
    import resource, sys
    from fastrec.cli.app import app

    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    app(["convert", sys.argv[1], "-o", sys.argv[2]])
    """
    done = run_python(code, records, target, status=2)
    assert done.stderr == f"error: {target}: {os.strerror(errno.EFBIG)}\n"
    assert [path.name for path in tmp_path.iterdir()] == [records.name]


def test_a_table_requires_records(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with pytest.raises(fr.Error, match="empty table"):
        convert.write_table(tmp_path / "a.tfrecord", tmp_path / "t.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]
    with pytest.raises(ValueError, match=r"\.parquet, \.arrow, \.feather"):
        convert.write_table(records_file(tmp_path / "b.tfrecord"), tmp_path / "t.xls")


# Round trips.

FLOATS = st.floats(width=32, allow_nan=False)
INTS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-128, 127)
KINDS: list[tuple[Any, Any]] = [
    (pa.int64(), INTS),
    (pa.int8(), SMALL),
    (pa.float32(), FLOATS),
    (pa.float64(), FLOATS),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", ""])),
    (pa.list_(pa.int64()), st.lists(INTS, max_size=3)),
    (pa.list_(pa.float32()), st.lists(FLOATS, max_size=3)),
    (pa.large_list(pa.string()), st.lists(st.text(max_size=3), max_size=3)),
    (pa.list_(pa.int16(), 2), st.lists(SMALL, min_size=2, max_size=2)),
]


@st.composite
def tables(draw: st.DrawFn) -> Any:
    n_rows = draw(st.integers(0, 6))
    columns = {}
    names = st.text(
        st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=4
    )
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        kind, values = draw(st.sampled_from(KINDS))
        # Before pyarrow 26, null lists of a fixed size cannot be read.
        if not pa.types.is_fixed_size_list(kind) and draw(st.booleans()):
            values = st.none() | values
        rows = draw(st.lists(values, min_size=n_rows, max_size=n_rows))
        columns[name] = pa.array(rows, kind)
    return pa.table(columns)


def as_written(kind: Any, rows: list[Any]) -> list[list[Any]]:
    """Return the rows of a type after a round trip through features."""
    found = as_lists(rows)
    if "string" in str(kind):
        found = [[value.encode() for value in row] for row in found]
    return [[int(v) if isinstance(v, bool) else v for v in row] for row in found]


@given(table=tables(), n_rows=st.integers(1, 6))
@settings(max_examples=60)
def test_parquet_to_tfrecord_and_back_is_equal(
    table: Any,
    n_rows: int,
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    pq.write_table(table, folder / "in.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastrec_options, "_ROWS_MAX", n_rows)
        source = open_source(folder / "in.parquet")
        write_source(source, folder / "a.tfrecord")
    ds = fr.open(folder / "a.tfrecord")
    assert len(ds) == table.num_rows
    expected = {
        field.name: as_written(field.type, table[field.name].to_pylist())
        for field in table.schema
    }
    # A feature that no record has is not a column.
    there = {name: rows for name, rows in expected.items() if any(rows)}
    if not there:
        return
    convert.write_table(
        ds.select_columns(list(there)), folder / "out.parquet", batch_size=4
    )
    back = pq.read_table(folder / "out.parquet")
    assert {name: as_lists(back[name].to_pylist()) for name in there} == there


def test_optional_columns_round_trip_nulls(tmp_path: Path) -> None:
    table = pa.table({"i": [1, None, 3], "s": ["a", "b", None], "x": [0.5, 1.5, 2.5]})
    pq.write_table(table, tmp_path / "in.parquet")
    _, ds = converted(tmp_path / "in.parquet")
    convert.write_table(ds, tmp_path / "t.parquet", text=["s"], optional=["i", "s"])
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == table.to_pydict()


# The command.


def numbers_file(path: Path) -> Path:
    return csv_file(path, "\n".join(["n", *map(str, range(100))]))


def test_the_command_converts_tensors_to_shards(tmp_path: Path) -> None:
    images, labels = some("u1", (50, 28, 28)), some("u1", (50,))
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    table = pa.table({"image": tensors, "label": labels})
    path = table_file(tmp_path / "train.arrow", table)
    out = tmp_path / "train-{shard:05d}-of-{num_shards:05d}.tfrecord"
    shown, errors = run(path, "-o", out, "--num-shards", "4")
    assert errors == ""
    assert "wrote 50 records" in shown
    assert "4 files" in shown
    assert "features={'image': fr.Raw((28, 28), 'uint8'), ...}" in shown
    features = {"image": fr.Raw((28, 28), "uint8"), "label": "int64"}
    ds = fr.open(f"{tmp_path}/train-*-of-00004.tfrecord", features=features)
    assert len(ds.files) == 4
    batch = whole(ds)
    order = np.lexsort(batch["image"].reshape(50, -1).T)
    wanted = np.lexsort(images.reshape(50, -1).T)
    np.testing.assert_array_equal(batch["image"][order], images[wanted])
    np.testing.assert_array_equal(batch["label"][order], labels[wanted])


def test_the_command_converts_tables_both_ways(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "t.csv", "when,name,n\n2020-01-01,a,1\n2020-01-02,b,\n")
    records = tmp_path / "t.tfrecord"
    run(path, "-o", records, "--columns", "n,name", "--type", "n=double")
    table = tmp_path / "t.parquet"
    options = ["--text", "name", "--optional", "n"]
    shown, _ = run(records, "-o", table, *options)
    assert "wrote 2 records" in shown
    assert pq.read_table(table).to_pydict() == {"n": [1.0, None], "name": ["a", "b"]}
    _, error = run(records, "-o", table, *options, status=2)
    assert error.count("\n") == 1
    assert "--overwrite" in error
    run(records, "-o", table, "--overwrite", "--columns", "name")
    assert pq.read_table(table).to_pydict() == {"name": [b"a", b"b"]}


def test_errors_of_the_command_name_its_options(tmp_path: Path) -> None:
    paths = [
        csv_file(tmp_path / "1.csv", "a\n1\n"),
        csv_file(tmp_path / "2.csv", "a,b\n1,2\n"),
    ]
    out = tmp_path / "two.tfrecord"
    _, error = run(*paths, "-o", out, status=2)
    assert "--columns" in error
    run(*paths, "-o", out, "--columns", "a")


def test_the_command_compresses(tmp_path: Path) -> None:
    out = tmp_path / "n.tfrecord.gz"
    run(numbers_file(tmp_path / "n.csv"), "-o", out, "--compression", "gzip")
    assert out.read_bytes()[:2] == b"\x1f\x8b"
    rows = [row["n"] for row in fr.open(out)]
    assert rows == list(range(100))


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path, out = numbers_file(tmp_path / "n.csv"), tmp_path / "n.tfrecord"
    out.write_bytes(b"mine")
    _, error = run(path, "-o", out, status=2)
    assert error == f"error: {out}: File exists; --overwrite replaces it\n"
    assert out.read_bytes() == b"mine"
    run(path, "-o", out, "--overwrite")
    assert len(fr.open(out)) == 100


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["-o", "x.parquet", "--num-shards", "2"], "--num-shards"),
        (["-o", "x.feather", "--compression", "gzip"], "--compression"),
        (["-o", "x.arrow", "--type", "a=int64"], "--type"),
        (["-o", "x.tfrecord", "--text", "a"], "--text"),
        (["-o", "x.tfrecord", "--optional", "a"], "--optional"),
        (["-o", "x.tfrecord", "--type", "a"], "--type"),
        ([], "--out"),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: Path, arguments: list[str], option: str
) -> None:
    path = csv_file(tmp_path / "a.csv", "a\n1\n")
    _, error = run(path, *arguments, status=2)
    assert option in error


def test_errors_of_the_command_are_one_line(tmp_path: Path) -> None:
    out = tmp_path / "x.tfrecord"
    (tmp_path / "a.txt").write_text("text")
    bad = table_file(tmp_path / "bad.parquet", pa.table({"n": [1]}))
    bad.write_bytes(bad.read_bytes()[:-1])
    big = pa.table({"n": pa.array([2**63], pa.uint64())})
    table_file(tmp_path / "big.parquet", big)
    statuses = {"a.txt": 2, "bad.parquet": 1, "none.csv": 2, "big.parquet": 2}
    for name, status in statuses.items():
        _, error = run(tmp_path / name, "-o", out, status=status)
        assert error.count("\n") == 1, error
        assert error.startswith("error: ")
    assert not out.exists()
    table = tmp_path / "x.parquet"
    _, error = run(tmp_path / "big.parquet", "-o", table, status=1)
    assert error.count("\n") == 1
    records = records_file(tmp_path / "r.tfrecord")
    for option in ("--columns", "--text", "--optional"):
        _, error = run(records, "-o", table, option, "nope", status=2)
        assert error.count("\n") == 1
        assert "no column 'nope'" in error
    assert not table.exists()


# Extras.


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [("pyarrow", "t.parquet", "arrow"), ("PIL", "pictures", "image")],
)
def test_a_missing_extra_is_named_with_the_pip_command(
    tmp_path: Path, pictures: Path, package: str, name: str, extra: str
) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t.parquet")
    assert pictures.is_dir()
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from fastrec.cli import main\n"
        f"sys.argv = ['fastrec', 'convert', {str(tmp_path / name)!r}, '-o', 'x']\n"
        "main()"
    )
    done = run_python(code, status=2, cwd=tmp_path)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f'pip install "fastrec-io[{extra}]"' in done.stderr


def test_arrays_need_no_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['PIL'] = None\n"
        "import fastrec as fr; from fastrec import convert\n"
        "fr.write('n.tfrecord', {'n': [0, 1, 2]})\n"
        "assert len(fr.open('n.tfrecord')) == 3\n"
        "try: convert.write_table('n.tfrecord', 'n.parquet')\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = run_python(code, cwd=tmp_path)
    assert done.stdout.count('pip install "fastrec-io[arrow]"') == 1
