"""Images, stored arrays and tensors in the feature lists of SequenceExamples.

Goal
    Each step is decoded as a record of an Example is, for all lengths, nestings, and
    numbers of threads. A step that cannot be decoded is an error that names the step,
    which `on_error` skips or masks. Random crops are those of `per=`.
Method
    Records with lists of known images and arrays.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, open_dataset
from fastrec.compat import tf_io

RNG = np.random.default_rng(0)
LENGTHS = (3, 0, 1, 5, 2)
SHAPE = (3, 2)


def png(pixels: Untyped) -> bytes:
    cv2: Untyped = pytest.importorskip("cv2")
    return bytes(cv2.imencode(".png", pixels[..., ::-1])[1])


def jpeg(pixels: Untyped) -> bytes:
    cv2: Untyped = pytest.importorskip("cv2")
    quality = [cv2.IMWRITE_JPEG_QUALITY, 100]
    return bytes(cv2.imencode(".jpg", pixels[..., ::-1], quality)[1])


def zipped(array: Untyped) -> bytes:
    return zlib.compress(array.tobytes())


def big_endian(array: Untyped) -> bytes:
    return bytes(array.astype(array.dtype.newbyteorder(">")).tobytes())


def write(path: Path, rows: Untyped, name: str = "x") -> Path:
    """Write one record for each row; an empty row has no feature list."""
    with fr.Writer(path) as writer:
        for number, row in enumerate(rows):
            writer.write_sequence_example(
                context={"number": number}, feature_lists={name: row} if row else {}
            )
    return path


def opened(path: Path, spec: Untyped, **options: Untyped) -> Untyped:
    return open_dataset(
        path,
        context_features={"number": fr.FixedLen((), "int64")},
        sequence_features={"x": spec},
        **options,
    )


# The spec of a step, its shape and dtype, and how it is stored.
ITEMS: dict[str, tuple[Untyped, Untyped, str, Callable[[Untyped], bytes]]] = {
    "png": (fr.Image((6, 4)), (6, 4, 3), "uint8", png),
    "raw": (fr.Raw(SHAPE, "float32"), SHAPE, "float32", lambda a: a.tobytes()),
    "big-endian raw": (fr.Raw(SHAPE, "int16", False), SHAPE, "int16", big_endian),
    "bool raw": (fr.Raw(SHAPE, "bool"), SHAPE, "bool", lambda a: a.tobytes()),
    "zipped raw": (fr.Raw(SHAPE, "int64", compression="ZLIB"), SHAPE, "int64", zipped),
    "empty raw": (fr.Raw((0,), "int64"), (0,), "int64", lambda a: a.tobytes()),
    "tensor": (
        fr.SerializedTensor(SHAPE, "complex64"),
        SHAPE,
        "complex64",
        tf_io.serialize_tensor,
    ),
    "scalar tensor": (
        fr.SerializedTensor((), "bool"),
        (),
        "bool",
        tf_io.serialize_tensor,
    ),
}


def values(n: int, shape: tuple[int, ...], dtype: str) -> Untyped:
    return RNG.integers(0, 256, (n, *shape)).astype(dtype)


@pytest.mark.parametrize(("spec", "shape", "dtype", "store"), ITEMS.values(), ids=ITEMS)
def test_each_step_is_an_item(
    tmp_path: Path, spec: Untyped, shape: Untyped, dtype: str, store: Untyped
) -> None:
    rows = [values(n, shape, dtype) for n in LENGTHS]
    stored = [[[store(item)] for item in row] for row in rows]
    ds = opened(write(tmp_path / "a", stored), spec)
    kept = ds.cache(tmp_path / "kept").loader(5)
    batches = [ds[:], *kept, *kept]  # written, then read
    for threads in (0, 1, 3):
        batches += ds.loader(5, transform_threads=threads)
    for batch in batches:
        assert batch["x"].shape == (5, None, *shape)
        assert batch["x"].dtype == dtype
        assert batch["x"].lengths.tolist() == [*LENGTHS]
        assert all(map(np.array_equal, batch["x"], rows))
    for i, row in enumerate(rows):
        assert np.array_equal(ds[i]["x"], row)
    (padded,) = ds.loader(7, pad_last=True)
    assert padded["x"].lengths.tolist() == [*LENGTHS, 0, 0]
    shuffled = next(iter(ds.loader(5, shuffle=True)))
    for number, row in zip(shuffled["number"].tolist(), shuffled["x"], strict=True):
        assert np.array_equal(row, rows[number])


@pytest.mark.parametrize(("spec", "shape", "dtype", "store"), ITEMS.values(), ids=ITEMS)
def test_each_step_is_a_list(
    tmp_path: Path, spec: Untyped, shape: Untyped, dtype: str, store: Untyped
) -> None:
    lengths = [[2, 0, 3], [], [0], [1, 1, 1]]
    rows = [[values(n, shape, dtype) for n in row] for row in lengths]
    stored = [[[store(item) for item in step] for step in row] for row in rows]
    ds = opened(write(tmp_path / "a", stored), fr.List(spec))
    for batch in (ds[:], *ds.loader(4, transform_threads=3)):
        assert batch["x"].shape == (4, None, None, *shape)
        assert batch["x"].values.values.dtype == dtype
        for found, row in zip(batch["x"], rows, strict=True):
            assert len(found) == len(row)
            assert all(map(np.array_equal, found, row))
    assert all(map(np.array_equal, ds[0]["x"], rows[0]))
    # Steps of one length are an axis.
    equal = [values(n * 2, shape, dtype).reshape(n, 2, *shape) for n in LENGTHS]
    stored = [[[store(item) for item in step] for step in row] for row in equal]
    ds = opened(write(tmp_path / "b", stored), fr.List(spec, 2))
    assert ds[:]["x"].shape == (5, None, 2, *shape)
    assert all(map(np.array_equal, ds[:]["x"], equal))
    assert np.array_equal(ds[3]["x"], equal[3])


def test_the_frames_of_a_video_are_jpegs(tmp_path: Path) -> None:
    frames = [jpeg(np.full((16, 16, 3), 20 * i, np.uint8)) for i in range(8)]
    ds = opened(write(tmp_path / "a", [[[f] for f in frames]] * 3), fr.Image((16, 16)))
    found = ds[2]["x"].astype(int)
    expected = np.arange(8).reshape(-1, 1, 1, 1) * 20
    assert np.abs(found - expected).max() <= 2


def test_lists_of_tensors_in_examples(tmp_path: Path) -> None:
    rows = [values(n, SHAPE, "float64") for n in LENGTHS]
    with fr.Writer(tmp_path / "a") as writer:
        for row in rows:
            writer.write({"x": [*map(tf_io.serialize_tensor, row)]} if len(row) else {})
    spec = fr.List(fr.SerializedTensor(SHAPE, "float64"))
    ds = open_dataset(tmp_path / "a", features={"x": spec})
    for batch in (ds[:], *ds.loader(5, transform_threads=3)):
        assert all(map(np.array_equal, batch["x"], rows))
    assert eval(repr(spec), vars(fr)) == spec


def test_tensors_of_another_encoding(tmp_path: Path) -> None:
    # dtype int32, shape (2,), and the values in the list `int_val`.
    listed = b"\x08\x03\x12\x04\x12\x02\x08\x02\x3a\x02\x07\x08"
    plain = tf_io.serialize_tensor(np.array([7, 8], "int32"))
    path = write(tmp_path / "a", [[[plain], [listed]], [[listed]]])
    ds = opened(path, fr.SerializedTensor((2,), "int32"))
    assert ds[:]["x"].tolist() == [[[7, 8], [7, 8]], [[7, 8]]]


def test_defaults_replace_empty_strings(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [[[b""], [b"ab"]], []])
    raw = fr.Raw((2,), "uint8", default=[1, 2])
    assert opened(path, raw)[:]["x"].tolist() == [[[1, 2], [97, 98]], []]
    pixels = values(1, (6, 4, 3), "uint8")[0]
    path = write(tmp_path / "b", [[[b""], [png(pixels)]]])
    found = opened(path, fr.Image((6, 4), default=9))[0]["x"]
    assert np.array_equal(found, [np.full_like(pixels, 9), pixels])


def test_a_step_must_have_one_byte_string(tmp_path: Path) -> None:
    for step in ([], [b"a", b"b"]):
        path = write(tmp_path / f"{len(step)}", [[[b"a"], step]])
        message = f"feature list 'x' has a step of {len(step)} values, expected 1"
        with pytest.raises(fr.SchemaError, match=message):
            opened(path, fr.Raw((1,)))[:]


GOOD = zlib.compress(bytes(8))
TENSOR = tf_io.serialize_tensor(np.zeros(2, "int32"))
IMAGE = b"\x89PNG\r\n\x1a\n"
UNREADABLE = {
    "image": (fr.Image((6, 4)), None, IMAGE, "must be .* image", "image"),
    "size": (fr.Raw((2,)), b"ab", b"abc", "must be a string of 2", "value_size"),
    "zlib": (fr.Raw((8,), compression="ZLIB"), GOOD, b"?", "must be ZLIB", "zlib"),
    "shape": (
        fr.SerializedTensor((2,), "int32"),
        TENSOR,
        tf_io.serialize_tensor(np.zeros(3, "int32")),
        "holds a tensor of the wrong shape",
        "tensor_shape",
    ),
    "dtype": (
        fr.SerializedTensor((2,), "int32"),
        TENSOR,
        tf_io.serialize_tensor(np.zeros(2, "float32")),
        "holds no serialized tensor of a matching dtype",
        "tensor_type",
    ),
}


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize(
    ("spec", "good", "bad", "message", "code"), UNREADABLE.values(), ids=UNREADABLE
)
def test_unreadable_steps(
    tmp_path: Path,
    spec: Untyped,
    good: bytes | None,
    bad: bytes,
    message: str,
    code: str,
    threads: int,
) -> None:
    if good is None:
        good = png(values(1, (6, 4, 3), "uint8")[0])
    rows = [[[good]], [[good], [good], [bad], [bad]], [], [[good]]]
    path = write(tmp_path / "a", rows)
    options = {"batch_size": 4, "transform_threads": threads}
    at_step = f"^step 2 of feature list 'x' {message}"
    for use in (lambda ds: list(ds.loader(**options)), lambda ds: ds[1]):
        with pytest.raises(fr.SchemaError, match=at_step) as caught:
            use(opened(path, spec))
        error = caught.value
        assert (error.path, error.record, error.feature) == (str(path), 1, "x")
        assert error.code == code
    loader = opened(path, spec, on_error="skip").loader(**options)
    assert [n for batch in loader for n in batch["number"].tolist()] == [0, 2, 3]
    (masked,) = opened(path, spec, on_error="mask").loader(**options)
    assert masked["__valid__"].tolist() == [True, False, True, True]
    assert masked["x"].lengths.tolist() == [1, 4, 0, 1]
    assert not masked["x"][1].any()
    nested = write(tmp_path / "b", [[[good]], [[], [good, bad]]])
    at_value = f"value 1 of step 1 of feature list 'x' {message}"
    with pytest.raises(fr.SchemaError, match=at_value):
        opened(nested, fr.List(spec))[:]


# Windows.


@pytest.mark.parametrize("edge", ["repeat", "zero"])
@pytest.mark.parametrize("in_lists", [False, True])
@pytest.mark.parametrize(("spec", "shape", "dtype", "store"), ITEMS.values(), ids=ITEMS)
def test_windows_of_steps(
    tmp_path: Path,
    spec: Untyped,
    shape: Untyped,
    dtype: str,
    store: Untyped,
    in_lists: bool,
    edge: Untyped,
) -> None:
    shape = (2, *shape) if in_lists else shape
    rows = [values(n, shape, dtype) for n in LENGTHS]
    stored = [
        [[*map(store, item)] if in_lists else [store(item)] for item in row]
        for row in rows
    ]
    spec = fr.List(spec, 2) if in_lists else spec
    ds = opened(write(tmp_path / "a", stored), spec)
    found = ds.steps({"x": [-1, 0]}, edge=edge)
    ends = [row[max(i - 1, 0) : i + 1] for row in rows for i in range(len(row))]
    expected = [np.concatenate([end[:1], end])[-2:] for end in ends]
    if edge == "zero":
        for window, end in zip(expected, ends, strict=True):
            window[: 2 - len(end)] = 0
    for batch in (found[:], *found.loader(20, transform_threads=3)):
        assert batch["x"].shape == (11, 2, *shape)
        assert batch["x"].dtype == dtype
        assert np.array_equal(batch["x"], expected)
    (one,) = ds.steps({"x": 0}).loader(11)
    assert np.array_equal(one["x"], np.concatenate(rows))


def test_lists_of_any_length_have_no_windows(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [[[b"a"], [b"a", b"b"]]])
    for spec in (fr.List(fr.Raw((1,))), fr.VarLen("bytes")):
        with pytest.raises(fr.SchemaError, match="no steps of one shape"):
            opened(path, spec).steps({"x": [0]})


# Random crops.


@pytest.mark.parametrize("fit", ["random_crop", "random_resized_crop"])
@pytest.mark.parametrize("in_lists", [False, True])
def test_random_crops_per_window_and_per_image(
    tmp_path: Path, fit: Untyped, in_lists: bool
) -> None:
    # The pixels are their coordinates, so a crop shows where it is from.
    y, x = np.mgrid[0:40, 0:60].astype(np.uint8)
    data = png(np.dstack([y, x, y]))
    if in_lists:
        path = write(tmp_path / "a", [[[data] * 2] * 3] * 6)
    else:
        path = write(tmp_path / "a", [[[data]] * 6] * 6)

    def crops(per: str, **options: Untyped) -> Untyped:
        image: Untyped = fr.Image((8, 8), fit=fit, per=per)  # type: ignore[arg-type]
        ds = opened(path, fr.List(image, 2) if in_lists else image)
        loader = ds.loader(seed=1, **options)
        values = np.concatenate([batch["x"].values for batch in loader])
        return values.reshape(6, 6, 8, 8, 3)

    for per in ("window", "image"):
        expected = crops(per, batch_size=6, transform_threads=1)
        for options in (
            {"batch_size": 6, "transform_threads": 0},
            {"batch_size": 6, "transform_threads": 3},
            {"batch_size": 1},
            {"batch_size": 4},
        ):
            assert np.array_equal(crops(per, **options), expected)
        kinds = [len(np.unique(row, axis=0)) for row in expected]
        assert kinds == [1] * 6 if per == "window" else min(kinds) > 2
        assert len(np.unique(expected[:, 0], axis=0)) > 2
    # The first images are the same in both.
    windows, images = crops("window", batch_size=6), crops("image", batch_size=6)
    assert np.array_equal(windows[:, 0], images[:, 0])


def test_columns_share_the_crops_of_each_image(tmp_path: Path) -> None:
    files = [png(values(1, (30, 30, 3), "uint8")[0])] * 4
    with fr.Writer(tmp_path / "a") as writer:
        writer.write({"image": files, "mask": files})
    spec = fr.List(fr.Image((8, 8), fit="random_resized_crop", per="image"))
    ds = open_dataset(tmp_path / "a", features={"image": spec, "mask": spec})
    (row,) = ds.loader(1)
    assert np.array_equal(row["image"].values, row["mask"].values)
    assert not np.array_equal(row["image"].values[0], row["image"].values[1])


def test_random_crops_of_steps_are_not_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [[[b"x"]]])
    image = fr.Image((8, 8), fit="random_crop", per="image")
    assert eval(repr(image), vars(fr)) == image
    assert image != fr.Image((8, 8), fit="random_crop")
    with pytest.raises(ValueError, match="random crops cannot be kept"):
        opened(path, image).cache(tmp_path / "kept")
    with pytest.raises(fr.SchemaError, match="per must be 'window' or 'image', got 'r"):
        fr.Image((8, 8), per="row")  # type: ignore[arg-type]


# Parsing, and schemas.


def test_parsing_decodes_both_sections() -> None:
    pixels = values(3, (6, 4, 3), "uint8")
    files = [png(each) for each in pixels]
    records = [
        fr.encode_sequence_example(
            context={"x": files[0]}, feature_lists={"x": [[f] for f in files]}
        ),
        fr.encode_sequence_example(context={"x": files[1]}),
    ]
    spec = {"x": fr.Image((6, 4))}
    context, lists, lengths = fr.parse_sequence_example(records, spec, spec)
    assert np.array_equal(context["x"], pixels[:2])
    assert lists["x"].lengths.tolist() == [3, 0]  # type: ignore[union-attr]
    assert np.array_equal(lists["x"].values, pixels)  # type: ignore[union-attr]
    assert lengths == {}
    context, lists = tf_io.parse_single_sequence_example(records[0], spec, spec)
    assert np.array_equal(context["x"], pixels[0])
    assert np.array_equal(lists["x"], pixels)
    with pytest.raises(fr.SchemaError, match="step 0 of feature list 'x' must be") as e:
        fr.parse_sequence_example(
            [records[1], fr.encode_sequence_example(feature_lists={"x": [[b"?"]]})],
            None,
            spec,
        )
    assert e.value.record == 1
    context, lists, _ = fr.parse_sequence_example([], spec, spec)
    assert context["x"].shape == (0, 6, 4, 3)
    assert lists["x"].shape == (0, None, 6, 4, 3)


def test_schemas_of_decoded_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [[[b"ab"], [b"cd"]]], name="y")
    spec = fr.Raw((2,), "uint8", key="y")
    ds = opened(path, spec).select_columns(["x"])
    assert ds[0]["x"].tolist() == [[97, 98], [99, 100]]
    assert pickle.loads(pickle.dumps(ds))[0]["x"].tolist() == ds[0]["x"].tolist()
    assert repr(spec) in repr(ds.schema)
    with pytest.raises(fr.SchemaError, match=r"list of uint8\[2\] in one and uint8"):
        fr.concat([ds, fr.open(path, features={"x": spec})]).schema  # noqa: B018


@pytest.mark.parametrize(
    "spec", [fr.SerializedTensor(), fr.SerializedTensor((2,), "bytes")]
)
def test_tensors_in_lists_have_a_shape_and_numbers(spec: fr.SerializedTensor) -> None:
    message = "SerializedTensor in a list must have a shape and a numeric dtype"
    with pytest.raises(fr.SchemaError, match=message):
        fr.List(spec)
    with pytest.raises(fr.SchemaError, match=f"^sequence feature 'x': a {message}"):
        fr.parse_sequence_example([], None, {"x": spec})
