"""Goal: an inferred schema's comments suggest only arrays that the bytes support.

Method: byte strings of many dtypes and shapes are written and the suggested specs read
back. The right one must be among them, and the only one if the data is unambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from fastrec.compat import tf_io

DTYPES = ("uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
SHAPES = ((10,), (28, 28), (16, 16, 3))

Note = Callable[[Iterable[bytes]], str]


@pytest.fixture
def note(tmp_path: Path) -> Note:
    """Return the inferred schema's comment on byte strings, one in each record."""

    def noted(strings: Iterable[bytes]) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.tfrecord"
        with fr.Writer(path) as writer:
            for string in strings:
                writer.write({"x": string})
        return repr(fr.open(path).schema).splitlines()[1].partition("  # ")[2]

    return noted


def dtype_named(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return np.dtype(name)


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, shape)
    if dtype.startswith("int"):
        return rng.integers(-1000, 30_000, shape)
    return rng.normal(size=shape)


def one_hot(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    array = np.zeros(shape)
    array.flat[seed % array.size] = 1
    return array


def suggested(comment: str) -> list[str]:
    """Return the dtypes that a comment suggests."""
    return re.findall(r"fr\.Raw\(\(\d+,\), '(\w+)'\)", comment)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_records", [1, 100])
def test_the_dtype_of_ordinary_values_is_suggested(
    note: Note, dtype: str, shape: tuple[int, ...], n_records: int
) -> None:
    right = dtype_named(dtype)
    arrays = [values(dtype, shape, seed).astype(right) for seed in range(n_records)]
    comment = note(array.tobytes() for array in arrays)
    found = suggested(comment)
    assert dtype in found
    assert ("(ambiguous)" in comment) == (len(found) > 1)
    if (
        n_records == 100 and dtype != "bfloat16"
    ):  # whose values are those of float16, too
        assert found == [dtype]
    elif n_records == 100:
        assert set(found) == {"uint8", "float16", "bfloat16"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_dtype_of_one_hot_values_is_suggested(note: Note, dtype: str) -> None:
    right = dtype_named(dtype)
    found = suggested(
        note(one_hot((10,), i).astype(right).tobytes() for i in range(100))
    )
    if dtype in ("float16", "bfloat16"):
        assert set(found) == {"uint8", "float16", "bfloat16"}
    else:
        assert found == [dtype]


@pytest.mark.parametrize("n_records", [5, 100])
def test_a_float64_one_hot_is_never_float32(note: Note, n_records: int) -> None:
    comment = note(one_hot((10,), i).tobytes() for i in range(n_records))
    assert "fr.Raw((10,), 'float64')" in comment
    assert "float32" not in comment


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_may_have_any_dtype(note: Note, dtype: str) -> None:
    zeros = np.zeros((4, 4), dtype_named(dtype)).tobytes()
    comment = note([zeros] * 3)
    assert f"an array of any dtype (zeros)? fr.Raw(({len(zeros)},), 'uint8')" in comment


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_nonfinite_or_extreme_values_exclude_a_dtype(note: Note, bad: float) -> None:
    arrays = [np.full(8, bad) for _ in range(50)]
    assert "float64" not in note(array.tobytes() for array in arrays)


@pytest.mark.parametrize(
    "dtype", [name for name in DTYPES if name != "bfloat16"] + ["bool", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_serialized_tensors_are_suggested_as_tensors(
    note: Note, dtype: str, shape: tuple[int, ...]
) -> None:
    tensor = tf_io.serialize_tensor(np.ones(shape, dtype))
    assert note([tensor] * 5).endswith(
        f"a tensor? fr.SerializedTensor({shape}, '{dtype}')"
    )


def test_tensors_that_differ_are_suggested_as_any_tensor(note: Note) -> None:
    tensors = [tf_io.serialize_tensor(np.ones(n + 1, "float32")) for n in range(5)]
    assert note(tensors).endswith("a tensor? fr.SerializedTensor()")
    texts = [tf_io.serialize_tensor(np.array(["a", "bc"]))] * 2
    assert note(texts).endswith("a tensor? fr.SerializedTensor((2,), 'bytes')")
    # Not all of them are tensors.
    assert "tensor" not in note([*tensors, b"\xff\xfe"])


@pytest.mark.parametrize(
    ("string", "what"),
    [
        (b"\xff\xd8\xff\xe0" + b"\1" * 60, "JPEG"),
        (b"\x89PNG\r\n\x1a\n" + b"\1" * 56, "PNG"),
        (b"a text of 24 letters....", "UTF-8 text"),
    ],
)
def test_images_and_text_are_not_arrays(note: Note, string: bytes, what: str) -> None:
    comment = note([string] * 3)
    assert comment.startswith(what)
    assert "Raw" not in comment
    assert "TensorProto" not in comment


# Errors about byte strings: the spec that reads them.


@pytest.mark.parametrize(
    ("array", "spec", "fitting"),
    [
        (
            np.ones((28, 28), "uint8"),
            fr.FixedLen((28, 28), "uint8"),
            '(28, 28), "uint8"',
        ),
        (np.ones((2, 3), "float32"), fr.FixedLen((2, 3)), '(2, 3), "float32"'),
        (np.ones((2, 3), "float64"), fr.FixedLen((2, 3)), '(2, 3), "float64"'),
        (np.ones((28, 28), "float32"), fr.Raw((28, 28)), '(28, 28), "float32"'),
        (np.ones((28, 28), "int32"), fr.Raw((28, 28)), '(28, 28), "int32"'),
        (np.ones((4, 4), "float64"), fr.Raw((4, 4), "float32"), '(4, 4), "float64"'),
        (np.ones((4, 4), "int64"), fr.Raw((4, 4), "float32"), '(4, 4), "int64"'),
        (np.ones((28, 28), "uint8"), fr.Raw((28, 28), "float32"), '(28, 28), "uint8"'),
        (np.ones((8, 8, 3), "uint8"), fr.Raw((8, 8)), '(8, 8, 3), "uint8"'),
        (np.ones(9, "uint8"), fr.Raw((2, 4)), '(9,), "uint8"'),
    ],
)
def test_an_error_about_a_byte_string_suggests_the_spec_that_fits(
    tmp_path: Path,
    array: np.ndarray[Any, Any],
    spec: fr.FixedLen | fr.Raw,
    fitting: str,
) -> None:
    path = tmp_path / "images.tfrecord"
    fr.write(path, {"image": [array.tobytes()] * 3})
    right = f"fr.Raw({fitting})"
    with pytest.raises(fr.SchemaError, match=re.escape(f"; {right} reads its")):
        fr.open(path, features={"image": spec})[0]
    found = fr.open(path, features={"image": eval(right)})[0]["image"]
    assert np.array_equal(found.ravel(), array.ravel())


@pytest.mark.parametrize(
    ("string", "fitting"),
    [
        (tf_io.serialize_tensor(np.ones((2, 2))), r"fr\.SerializedTensor\(\) reads it"),
        (b"\xff\xd8\xff\xe0....", r'fr\.FixedLen\(\(\), "bytes"\) reads it.*JPEG'),
    ],
)
def test_an_error_about_a_byte_string_names_its_format(
    string: bytes, fitting: str
) -> None:
    record = fr.encode_example({"image": string})
    for spec in (fr.FixedLen((2, 2), "float64"), fr.Raw((2, 2), "float64")):
        with pytest.raises(fr.SchemaError, match=fitting):
            tf_io.parse_single_example(record, {"image": spec})
