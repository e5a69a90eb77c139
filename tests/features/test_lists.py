"""Lists of images and of stored arrays, and compressed arrays.

Goal
    Each byte string of a list is decoded as if it were alone, whatever the threads; the
    images of a record are cropped alike. A string that cannot be decoded is an error that
    names its number, which `on_error` skips or masks.
Method
    Records with lists of known arrays, read as lists and one by one.
"""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, open_dataset

RNG = np.random.default_rng(0)
LENGTHS = (3, 0, 1, 5, 2, 0, 4)


def arrays(shape: tuple[int, ...], dtype: str) -> list[Untyped]:
    """Return the arrays of each record."""
    return [
        RNG.integers(0, 100, (n, *shape)).astype(dtype) if n else np.zeros((0, *shape))
        for n in LENGTHS
    ]


def write(path: Path, rows: Untyped, **options: Untyped) -> Path:
    with fr.Writer(path, overwrite=True, **options) as writer:
        for number, row in enumerate(rows):
            writer.write({"x": row, "number": number} if row else {"number": number})
    return path


def opened(path: Path, spec: Untyped, **options: Untyped) -> Untyped:
    return open_dataset(path, features={"x": spec, "number": "int64"}, **options)


def pictures(n: int, height: int = 12, width: int = 10) -> list[tuple[bytes, Untyped]]:
    cv2: Untyped = pytest.importorskip("cv2")
    found = []
    for _ in range(n):
        pixels = RNG.integers(0, 256, (height, width, 3), np.uint8)
        _, data = cv2.imencode(".png", pixels[..., ::-1])
        found.append((data.tobytes(), pixels))
    return found


# Stored arrays.

RAW = {
    "matrix": ((2, 3), "float32"),
    "scalar": ((), "int16"),
    "bool": ((4,), "bool"),
    "complex": ((2,), "complex64"),
    "empty": ((0,), "int64"),
}


@pytest.mark.parametrize("compression", [None, "ZLIB"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("shape", "dtype"), RAW.values(), ids=RAW)
def test_lists_of_arrays(
    tmp_path: Path, shape: Untyped, dtype: str, order: Untyped, compression: Untyped
) -> None:
    compress: Untyped = (lambda data: data) if compression is None else zlib.compress
    values = arrays(shape, dtype)
    stored = [
        [
            compress(
                np.asarray(item).astype(np.dtype(dtype).newbyteorder(order)).tobytes()
            )
            for item in row
        ]
        for row in values
    ]
    path = write(tmp_path / "a.tfrecord", stored)
    spec = fr.List(fr.Raw(shape, dtype, order == "<", compression=compression))
    ds = opened(path, spec)
    for batch in (
        ds[:],
        next(iter(ds.loader(7))),
        next(iter(ds.loader(7, num_threads=0))),
    ):
        assert batch["x"].shape == (7, None, *shape)
        assert batch["x"].dtype == np.dtype(dtype)
        assert batch["x"].lengths.tolist() == [*LENGTHS]
        for found, expected in zip(batch["x"], values, strict=True):
            assert np.array_equal(found, expected)
    assert np.array_equal(ds[3]["x"], values[3])
    assert [row["number"] for row in ds] == [*range(7)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_compressed_arrays(tmp_path: Path, order: str) -> None:
    values = RNG.standard_normal((9, 3, 4)).astype("float32")
    spec = fr.Raw((3, 4), "float32", order == "<", compression="ZLIB")
    path = tmp_path / "a.tfrecord"
    with fr.Writer(path, features={"x": spec}) as writer:
        writer.write_batch({"x": values[:4]})
        for row in values[4:]:
            writer.write({"x": row})
    stored = fr.open(path, features={"x": "bytes"})
    raw = [zlib.decompress(row["x"]) for row in stored]
    assert raw == [row.astype(f"{order}f4").tobytes() for row in values]
    for batch in open_dataset(path, features={"x": spec}).loader(9):
        assert np.array_equal(batch["x"], values)
    records = list(fr.read_records(path))
    assert np.array_equal(fr.parse_example(records, {"x": spec})["x"], values)


def test_defaults(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [[], [zlib.compress(bytes([1, 2]))]])
    zipped = fr.Raw((2,), "uint8", default=[7, 8], compression="ZLIB")
    assert opened(path, zipped)[:]["x"].tolist() == [[7, 8], [1, 2]]
    two = fr.List(fr.Raw((1,), "uint8", default=[9]), 2)
    path = write(tmp_path / "b.tfrecord", [[], [b"a", b"b"]])
    assert opened(path, two)[:]["x"].tolist() == [[[9], [9]], [[97], [98]]]
    with pytest.raises(fr.SchemaError, match="is missing and has no default"):
        opened(path, fr.List(fr.Raw((1,), "uint8"), 2))[:]


def test_lists_of_one_length(tmp_path: Path) -> None:
    rows = [[bytes([i, j]) for j in range(3)] for i in range(5)]
    path = write(tmp_path / "a.tfrecord", rows)
    ds = opened(path, fr.List(fr.Raw((2,), "uint8"), 3))
    expected = [[[i, j] for j in range(3)] for i in range(5)]
    assert ds[:]["x"].tolist() == expected
    assert ds[:]["x"].shape == (5, 3, 2)
    with pytest.raises(fr.SchemaError, match="feature 'x' holds 3 values"):
        opened(path, fr.List(fr.Raw((2,), "uint8"), 4))[:]


GOOD = zlib.compress(bytes(8))
DAMAGED = {
    "short": (zlib.compress(bytes(7)), "must be ZLIB data of 8 bytes, got 7"),
    "long": (zlib.compress(bytes(9)), "must be ZLIB data of 8 bytes, got more than 8"),
    "cut": (GOOD[:-1], "must be ZLIB data of 8 bytes, got truncated data"),
    "trailing": (GOOD + b"x", "must be ZLIB data of 8 bytes, got 8 and trailing data"),
    "no zlib": (b"????", r"must be ZLIB data of 8 bytes, got damaged data \("),
    "empty": (b"", "must be ZLIB data of 8 bytes, got truncated data"),
}


@pytest.mark.parametrize(("data", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_strings_are_errors_with_their_place(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = write(tmp_path / "a.tfrecord", [[GOOD], [GOOD, data, GOOD], [GOOD]])
    spec = fr.List(fr.Raw((8,), "uint8", compression="ZLIB"))
    for use in (lambda ds: ds[:], lambda ds: list(ds.loader(3))):
        with pytest.raises(
            fr.SchemaError, match=f"value 1 of feature 'x' {message}"
        ) as e:
            use(opened(path, spec))
        assert (e.value.path, e.value.record, e.value.feature) == (str(path), 1, "x")
        assert e.value.code == "zlib"
    skipped = opened(path, spec, on_error="skip").loader(3)
    assert [n for b in skipped for n in b["number"].tolist()] == [0, 2]
    assert [len(row) for b in skipped for row in b["x"]] == [1, 1]
    (region,) = skipped.report
    assert message.split(",", maxsplit=1)[0] in region.reason
    (masked,) = opened(path, spec, on_error="mask").loader(3)
    assert masked["__valid__"].tolist() == [True, False, True]
    assert not masked["x"].values.any()
    alone = write(tmp_path / "b.tfrecord", [[GOOD], [data]])
    with pytest.raises(fr.SchemaError, match=f"^feature 'x' {message}"):
        opened(alone, fr.Raw((8,), "uint8", compression="ZLIB"))[:]


def test_a_string_of_another_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [[b"12", b"123"]])
    with pytest.raises(
        fr.SchemaError,
        match="value 1 of feature 'x' must be a string of 2 bytes, got 3",
    ):
        opened(path, fr.List(fr.Raw((2,), "uint8")))[:]


# Images.


def test_lists_of_images(tmp_path: Path) -> None:
    rows = [pictures(n) for n in LENGTHS]
    path = write(tmp_path / "a.tfrecord", [[data for data, _ in row] for row in rows])
    ds = opened(path, fr.List(fr.Image((12, 10))))
    for threads in (0, 1, 4):
        for batch in ds.loader(7, transform_threads=threads):
            assert batch["x"].shape == (7, None, 12, 10, 3)
            assert batch["x"].dtype == np.uint8
            for found, row in zip(batch["x"], rows, strict=True):
                assert len(found) == len(row)
                assert all(
                    np.array_equal(frame, pixels)
                    for frame, (_, pixels) in zip(found, row, strict=True)
                )
    padded = [b["x"].lengths.tolist() for b in ds.loader(4, pad_last=True)]
    assert padded == [[3, 0, 1, 5], [2, 0, 4, 0]]
    several = [frame for n in LENGTHS for frame in [n] * n]
    assert len(ds[:]["x"].values) == len(several)


def test_frames_of_one_length(tmp_path: Path) -> None:
    rows = [pictures(2) for _ in range(4)]
    path = write(tmp_path / "a.tfrecord", [[data for data, _ in row] for row in rows])
    found = opened(path, fr.List(fr.Image((12, 10)), 2))[:]["x"]
    assert np.array_equal(found, [[pixels for _, pixels in row] for row in rows])


@pytest.mark.parametrize("fit", ["random_crop", "random_resized_crop"])
def test_images_of_a_record_are_cropped_alike(tmp_path: Path, fit: Untyped) -> None:
    data, _ = pictures(1, 40, 60)[0]
    path = write(tmp_path / "a.tfrecord", [[data] * 4] * 6)
    lists = opened(path, fr.List(fr.Image((8, 8), fit=fit)))
    first = [row for b in lists.loader(6, seed=1) for row in b["x"]]
    assert all(np.array_equal(row[0], frame) for row in first for frame in row)
    assert not np.array_equal(first[0], first[1])
    alone = write(tmp_path / "b.tfrecord", [[data]] * 6)
    (batch,) = opened(alone, fr.Image((8, 8), fit=fit)).loader(6, seed=1)
    assert all(
        np.array_equal(row[3], one) for row, one in zip(first, batch["x"], strict=True)
    )
    one_by_one = [b["x"][0] for b in lists.loader(1, seed=1, transform_threads=0)]
    assert all(np.array_equal(a, b) for a, b in zip(first, one_by_one, strict=True))


def test_a_damaged_image_of_a_list(tmp_path: Path) -> None:
    (good, _), (other, _) = pictures(2)
    path = write(tmp_path / "a.tfrecord", [[good], [other, good[:-20]]])
    spec = fr.List(fr.Image((12, 10)))
    message = "value 1 of feature 'x' must be an intact image"
    with pytest.raises(fr.SchemaError, match=message) as caught:
        list(opened(path, spec).loader(2))
    assert caught.value.record == 1
    assert [len(b["x"]) for b in opened(path, spec, on_error="skip").loader(2)] == [1]


# Specs.


def test_a_list_is_a_spec() -> None:
    spec = fr.List(fr.Image((2, 3), fit="resize", key="frames"))
    assert spec.key == "frames"
    assert eval(repr(spec), vars(fr)) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert fr.List(fr.Image((2, 3)), 4, key="x").key == "x"
    schema = fr.Schema({"a": fr.List(fr.Raw((2,), "int8", compression="ZLIB"), 3)})
    assert "fr.List(fr.Raw((2,), 'int8', compression='ZLIB'), length=3)" in repr(schema)
    untyped: Any = fr
    for call, message in (
        (lambda: untyped.List(fr.VarLen()), "spec must be an Image, Raw or Serial"),
        (lambda: untyped.List(fr.Raw(()), 0), "length must be an int of at least 1"),
        (
            lambda: untyped.Raw((), compression="GZIP"),
            "compression must be None or 'ZL",
        ),
    ):
        with pytest.raises(fr.SchemaError, match=message):
            _called(call)


def _called(call: Untyped) -> None:
    call()


def test_lists_are_not_written(tmp_path: Path) -> None:
    spec = {"x": fr.List(fr.Raw((2,), "uint8"))}
    with fr.Writer(tmp_path / "a.tfrecord", features=spec) as writer:
        with pytest.raises(TypeError, match="cannot write a List"):
            writer.write({"x": [[1, 2]]})
        writer.discard()
