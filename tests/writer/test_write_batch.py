"""Columns -> records: Writer.write_batch and fastrec.write.

Goal
    In every form of columns, protobuf reads each row's values from its record, which
    equals the record that `Writer.write` writes for the row. Reading returns the values.
    Errors name the feature, have a hint, and leave the writer unchanged.
Method
    Hypothesis draws values; columns, rows and the expectation are made of them. Two
    tables list the conversions and the errors.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

import fastrec as fr
from columns import Untyped
from written import examples, records_in

Found: TypeAlias = "tuple[str, list[Any]] | None"

ABSENT: Any = object()
INTS = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
]
FLOATS = ["float16", "float32", "float64"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.tfrecord"


@pytest.fixture(scope="session")
def new_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return a function that returns unused paths."""
    folder, numbers = tmp_path_factory.mktemp("written"), itertools.count()
    return lambda: folder / f"{next(numbers)}.tfrecord"


# --- Columns of random values ----------------------------------------------------------


@dataclass
class Drawn:
    """A column, its rows, and the values that protobuf must read from each."""

    column: Any
    rows: list[Any]
    found: list[Found]
    spec: Any = None
    has_kind: bool = True  # in the columns, and in every row


def numbers(dtype: str) -> SearchStrategy[Any]:
    """Values of a dtype that fit int64 or float32."""
    if dtype == "bool":
        return st.booleans()
    if dtype in FLOATS:
        return st.floats(width=16 if dtype == "float16" else 32, allow_nan=False)
    info = np.iinfo(dtype)
    return st.integers(int(info.min), min(int(info.max), 2**63 - 1))


def found_numbers(dtype: str, values: Any) -> Found:
    if dtype in FLOATS:
        return "float", [float(value) for value in values]
    return "int64", [int(value) for value in values]


def in_some_memory(draw: DrawFn, array: Untyped) -> Untyped:
    """An equal array with another memory layout."""
    form = draw(st.sampled_from(["as it is", "backwards", "every other", "swapped"]))
    if form == "backwards":
        return np.ascontiguousarray(array[::-1])[::-1]
    if form == "every other":
        return np.repeat(array, 2, axis=0)[::2]
    if form == "swapped":
        return array.astype(array.dtype.newbyteorder())
    return array


@st.composite
def dense_numbers(draw: DrawFn, n: int) -> Drawn:
    dtype = draw(st.sampled_from(INTS + FLOATS))
    k = draw(st.none() | st.integers(0, 4))
    values = [
        draw(st.lists(numbers(dtype), min_size=k or 1, max_size=k or 1))
        if k != 0
        else []
        for _ in range(n)
    ]
    array = np.array(values, dtype).reshape(n, 1 if k is None else k)
    array = in_some_memory(draw, array[:, 0] if k is None else array)
    return Drawn(array, [*array], [found_numbers(dtype, row) for row in values])


@st.composite
def ragged_numbers(draw: DrawFn, n: int) -> Drawn:
    dtype = draw(st.sampled_from(INTS + FLOATS))
    rows = [draw(st.lists(numbers(dtype), max_size=5)) for _ in range(n)]
    arrays = [np.array(row, dtype) for row in rows]
    form = draw(st.sampled_from(["RaggedArray", "slice", "arrays", "lists"]))
    has_kind = any(rows)
    column: Any = arrays
    if form == "lists":
        has_kind = all(rows)
        column = [array.tolist() for array in arrays]
        if draw(st.booleans()):
            column = tuple(map(tuple, column))
    elif form != "arrays":
        before = [np.ones(3, dtype)] if form == "slice" else []
        column = fr.RaggedArray.from_list([*before, *arrays], dtype)[len(before) :]
    found = [found_numbers(dtype, row) for row in rows]
    return Drawn(column, [*arrays], found, has_kind=has_kind or form != "lists")


texts = st.text(max_size=5).filter(lambda text: text.isascii() or text.isprintable())


@st.composite
def strings(draw: DrawFn, n: int) -> Drawn:
    is_text = draw(st.booleans())
    one: SearchStrategy[Any] = texts if is_text else st.binary(max_size=40)
    k = draw(st.none() | st.integers(1, 3))
    rows = [draw(st.lists(one, min_size=k or 1, max_size=k or 1)) for _ in range(n)]
    stored = [[v.encode() if isinstance(v, str) else v for v in row] for row in rows]
    column: Any = rows if k else [row[0] for row in rows]
    form = draw(st.sampled_from(["lists", "BytesArray", "slice", "array"]))
    if form == "array" and n:
        column = np.array(column, object)
        if is_text and not any(v.endswith("\0") for row in rows for v in row):
            column = column.astype(str)
    elif form == "BytesArray" and n:
        column = fr.BytesArray.from_list(column)
    elif form == "slice" and n:
        column = fr.BytesArray.from_list([column[0], *column])[1:]
    return Drawn(
        column,
        rows if k else [row[0] for row in rows],
        [("bytes", row) for row in stored],
        has_kind=n > 0,
    )


@st.composite
def ragged_strings(draw: DrawFn, n: int) -> Drawn:
    rows = [draw(st.lists(st.binary(max_size=20), max_size=3)) for _ in range(n)]
    ragged = fr.RaggedArray.from_list(rows, "bytes")
    return Drawn(
        ragged if draw(st.booleans()) or not any(rows) else rows,
        [fr.BytesArray.from_list(row) for row in rows],
        [("bytes", row) for row in rows],
    )


@st.composite
def optional(draw: DrawFn, n: int) -> Drawn:
    """Lists with None in them, and masked arrays."""
    is_there = [draw(st.booleans()) for _ in range(n)]
    dtype = draw(st.sampled_from([*INTS, *FLOATS, "text"]))
    one = texts if dtype == "text" else numbers(dtype)
    values = [draw(one) for _ in range(n)]
    found: list[Found] = [
        ("bytes", [v.encode()]) if dtype == "text" else found_numbers(dtype, [v])
        for v in values
    ]
    column: Any = [
        v if there else None for v, there in zip(values, is_there, strict=True)
    ]
    if dtype != "text" and draw(st.booleans()):
        column = masked(np.array(values, dtype), [not there for there in is_there])
    rows = [v if there else ABSENT for v, there in zip(values, is_there, strict=True)]
    return Drawn(
        column,
        rows,
        [f if there else None for f, there in zip(found, is_there, strict=True)],
        has_kind=any(is_there) or not isinstance(column, list),
    )


shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
some_shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


def drawn_array(draw: DrawFn, dtype: str, shape: tuple[int, ...]) -> Untyped:
    size = math.prod(shape)
    values = draw(st.lists(numbers(dtype), min_size=size, max_size=size))
    return np.array(values, dtype).reshape(shape)


@st.composite
def raw(draw: DrawFn, n: int) -> Drawn:
    dtype = draw(st.sampled_from([*INTS, *FLOATS, "complex64", "complex128"]))
    shape, little_endian = draw(shapes), draw(st.booleans())
    if dtype.startswith("complex"):
        part = {"complex64": "float32", "complex128": "float64"}[dtype]
        parts = drawn_array(draw, part, (n, *shape, 2))
        array = np.ascontiguousarray(parts).view(dtype)[..., 0]
    else:
        array = drawn_array(draw, dtype, (n, *shape))
    stored = array.astype(array.dtype.newbyteorder("<" if little_endian else ">"))
    array = in_some_memory(draw, array)
    column = [*array] if shape and n and draw(st.booleans()) else array
    return Drawn(
        column,
        [*array],
        [("bytes", [stored[i : i + 1].tobytes()]) for i in range(n)],
        fr.Raw(
            shape, dtype, little_endian, key=draw(st.none() | st.just("in the file"))
        ),
    )


@st.composite
def fixed(draw: DrawFn, n: int) -> Drawn:
    dtype, shape = draw(st.sampled_from(INTS + FLOATS)), draw(shapes)
    array = drawn_array(draw, dtype, (n, *shape))
    form = draw(st.sampled_from(["array", "lists", "arrays"]))
    column: Any = in_some_memory(draw, array)
    if form == "lists" and array.size:
        column = array.tolist()
    elif form == "arrays" and shape and n:
        column = [*array]
    rows = [*array]
    if form == "lists" and array.size:
        rows = array.tolist()
    return Drawn(
        column,
        rows,
        [found_numbers(dtype, row.ravel()) for row in array],
        fr.FixedLen(shape, dtype, key=draw(st.none() | st.just(b"in the file"))),
    )


@st.composite
def fixed_strings(draw: DrawFn, n: int) -> Drawn:
    shape = draw(some_shapes)
    size = n * math.prod(shape)
    values = draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size))
    objects: Any = np.empty(size, object)
    objects[:] = values
    objects = objects.reshape((n, *shape))
    column: Any = objects
    if draw(st.booleans()):
        column = objects.tolist()
    elif draw(st.booleans()) and n:
        column = fr.BytesArray.from_list(objects.tolist())
    rows = objects.tolist()
    return Drawn(
        column,
        rows,
        [("bytes", [*np.ravel(row)]) for row in objects]
        if shape
        else [("bytes", [row]) for row in rows],
        fr.FixedLen(shape, "bytes"),
    )


@st.composite
def items(draw: DrawFn, n: int) -> Drawn:
    """Any number of items of one shape."""
    dtype, shape = draw(st.sampled_from(INTS + FLOATS)), draw(some_shapes)
    is_padded = draw(st.booleans())
    width = draw(st.integers(0, 3))
    lengths = [width if is_padded else draw(st.integers(0, 3)) for _ in range(n)]
    arrays = [drawn_array(draw, dtype, (length, *shape)) for length in lengths]
    column: Any = arrays
    if is_padded and n:
        column = np.stack(arrays)
    elif draw(st.booleans()):
        column = [array.tolist() for array in arrays]
    elif draw(st.booleans()) and n:
        column = fr.RaggedArray.from_list(arrays)
    spec = fr.FixedLenSequence if is_padded else fr.VarLen
    return Drawn(
        column,
        [*arrays],
        [found_numbers(dtype, array.ravel()) for array in arrays],
        spec(dtype=dtype, shape=shape),
    )


ONE_KEY = [dense_numbers, ragged_numbers, strings, ragged_strings, optional]
ONE_KEY += [raw, fixed, fixed_strings, items]


@dataclass
class Batch:
    columns: dict[str, Drawn]
    n: int

    def given(self) -> dict[Any, Any]:
        return {name: drawn.column for name, drawn in self.columns.items()}

    def rows(self) -> list[dict[Any, Any]]:
        return [
            {k: d.rows[i] for k, d in self.columns.items() if d.rows[i] is not ABSENT}
            for i in range(self.n)
        ]

    def features(self) -> dict[str, Any] | None:
        found = {k: d.spec for k, d in self.columns.items() if d.spec is not None}
        return found or None

    def key(self, name: str) -> bytes:
        spec = self.columns[name].spec
        key: str | bytes = name if spec is None or spec.key is None else spec.key
        return key.encode() if isinstance(key, str) else key

    def found(self) -> list[dict[bytes, Found]]:
        return [
            {
                self.key(k): d.found[i]
                for k, d in self.columns.items()
                if d.found[i] is not None
            }
            for i in range(self.n)
        ]


@st.composite
def batches(draw: DrawFn, kinds: Untyped = ONE_KEY, most: int = 6) -> Batch:
    n = draw(st.integers(0, most))
    names = draw(st.lists(texts, max_size=4, unique=True))
    columns: dict[str, Drawn] = {}
    keys: set[bytes] = set()
    for name in names:
        drawn = draw(draw(st.sampled_from(kinds))(n))
        key = Batch({name: drawn}, n).key(name)
        if drawn.has_kind and key not in keys:
            columns[name] = drawn
            keys.add(key)
    return Batch(columns, n if columns else 0)


def written(path: Path, batch: Batch, **options: Untyped) -> Path:
    features = batch.features()
    fr.write(path, batch.given(), features=features, sync=False, **options)
    return path


@given(batch=batches())
def test_protobuf_reads_the_values_of_every_row(
    batch: Batch, new_path: Callable[[], Path]
) -> None:
    assert examples(written(new_path(), batch, num_threads=0)) == batch.found()


@given(batch=batches())
def test_a_row_of_a_batch_is_written_like_a_single_row(
    batch: Batch, new_path: Callable[[], Path]
) -> None:
    columns = written(new_path(), batch, num_threads=0)
    rows = new_path()
    features = batch.features()
    with fr.Writer(rows, features=features, sync=False, num_threads=0) as writer:
        # The first row has all features, or the order would be another one.
        writer.write_batch({k: d.column[:0] for k, d in batch.columns.items()})
        for row in batch.rows():
            writer.write(row)
    assert records_in(rows) == records_in(columns)


@settings(max_examples=40)
@given(batch=batches(), n_times=st.integers(1, 4))
def test_files_do_not_depend_on_the_number_of_threads(
    batch: Batch, n_times: int, new_path: Callable[[], Path]
) -> None:
    found = set()
    for num_threads in (0, 1, 3):
        path, features = new_path(), batch.features()
        with fr.Writer(
            path, features=features, sync=False, num_threads=num_threads
        ) as writer:
            for _ in range(n_times):
                writer.write_batch(batch.given())
        found.add(path.read_bytes())
    assert len(found) == 1


def test_files_of_large_batches_do_not_depend_on_the_number_of_threads(
    new_path: Callable[[], Path],
) -> None:
    rng = np.random.default_rng(0)
    n = 60_000
    columns = {
        "i": rng.integers(0, 2**40, n) >> rng.integers(0, 40, n),
        "f": rng.standard_normal((n, 3)),
        "s": fr.BytesArray.from_list([b"x" * (i % 97) for i in range(n)]),
        "r": fr.RaggedArray(np.arange(2 * n), np.arange(0, 2 * n + 1, 2)),
        "m": masked(np.arange(n), rng.integers(0, 2, n)),
    }
    found = set()
    for num_threads in (0, 1, 2, 5):
        path = new_path()
        fr.write(path, columns, num_threads=num_threads, sync=False)
        found.add(path.read_bytes())
    (data,) = found
    assert len(data) > 4 << 20, "several chunks for each thread"
    path = new_path()
    with fr.Writer(path, num_threads=0, sync=False) as writer:
        for begin in range(0, n, 7_001):
            writer.write_batch(
                {k: v[begin : begin + 7_001] for k, v in columns.items()}
            )
    assert path.read_bytes() == data


def assert_equal(got: Untyped, want: Untyped) -> None:
    """The columns that are read equal those that were written."""
    if isinstance(got, fr.RaggedArray):
        np.testing.assert_array_equal(got.row_splits - got.row_splits[0], want[1])
        np.testing.assert_array_equal(got.values, want[0])
    else:
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@given(batch=batches([raw, fixed]))
def test_arrays_round_trip_through_their_specs(
    batch: Batch, new_path: Callable[[], Path]
) -> None:
    path, features = written(new_path(), batch), batch.features()
    if features is None:
        return
    ds = fr.open(path, features=features)
    assert len(ds) == batch.n
    for name, got in ds[0 : batch.n].items():
        drawn = batch.columns[str(name)]
        shape = (batch.n, *drawn.spec.shape)
        want = np.array(drawn.rows, drawn.spec.dtype).reshape(shape)
        assert_equal(got, want)


@given(batch=batches([items]))
def test_items_round_trip_through_their_specs(
    batch: Batch, new_path: Callable[[], Path]
) -> None:
    path, features = written(new_path(), batch), batch.features()
    if features is None:
        return
    for name, got in fr.open(path, features=features)[0 : batch.n].items():
        drawn = batch.columns[str(name)]
        rows = [
            np.array(r, drawn.spec.dtype).reshape(-1, *drawn.spec.shape)
            for r in drawn.rows
        ]
        if isinstance(got, fr.RaggedArray):
            assert got.lengths.tolist() == [len(row) for row in rows]
            want = np.concatenate(rows) if rows else got.values
            assert_equal(got.values, want)
        else:
            assert_equal(got, np.stack(rows) if rows else got)


@given(batch=batches([dense_numbers, ragged_numbers, strings, ragged_strings, fixed]))
def test_columns_that_were_read_are_written_unchanged(
    batch: Batch, new_path: Callable[[], Path]
) -> None:
    """The inferred schema works as `features` for columns that were read."""
    path, again = written(new_path(), batch), new_path()
    has_values = all(any(f[1] for f in d.found if f) for d in batch.columns.values())
    if not (batch.n and batch.columns and has_values):
        return
    ds = fr.open(path)
    fr.write(again, ds[0 : batch.n], features=ds.schema, sync=False)
    # The inferred schema may have another order of features.
    assert examples(again) == examples(path)


@given(
    values=st.lists(st.tuples(numbers("int64"), numbers("int64")), max_size=5),
    is_list=st.booleans(),
)
def test_a_stack_spec_is_written_as_separate_features(
    values: list[tuple[int, int]], is_list: bool, new_path: Callable[[], Path]
) -> None:
    path = new_path()
    features = {"size": fr.Stack(["h", b"w"], "int64")}
    array = np.array(values, np.int64).reshape(-1, 2)
    fr.write(path, {"size": values if is_list else array}, features=features)
    found = [{b"h": ("int64", [h]), b"w": ("int64", [w])} for h, w in values]
    assert examples(path) == found
    assert_equal(fr.open(path, features=features)[0 : len(values)]["size"], array)
    with fr.Writer(new_path(), features=features) as writer:
        for row in values:
            writer.write({"size": np.array(row)})
    assert examples(writer.files[0]) == found


def test_floats_keep_their_bits(path: Path) -> None:
    bits = np.array([0x7F800001, 0x80000000, 0x00000001, 0xFFC00001], "uint32")
    floats = bits.view("float32")
    fr.write(path, {"one": floats, "two": np.stack([floats, floats], axis=1)})
    for record, one in zip(records_in(path), bits, strict=True):
        assert record.count(one.tobytes()) == 3


# --- The table of coercions ------------------------------------------------------------


class Color(enum.IntEnum):
    RED = 7


def masked(values: Untyped, mask: Untyped = 0, dtype: Untyped = None) -> Untyped:
    return np.ma.masked_array(values, np.array(mask, np.bool_), dtype)


class Foreign:
    """A tensor of another library."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1.5, 2.5], dtype)


RAGGED = fr.RaggedArray.from_list([[1, 2], []])
WORDS = fr.BytesArray.from_list([b"a", b"bc"])


@pytest.mark.parametrize(
    ("column", "kind", "rows"),
    [
        (np.array([True, False]), "int64", [[1], [0]]),
        ([True, 3], "int64", [[1], [3]]),
        ([Color.RED, np.int8(-1)], "int64", [[7], [-1]]),
        ([np.uint64(5), -1], "int64", [[5], [-1]]),
        (
            [np.uint64(2**63 - 1), np.int64(-(2**63))],
            "int64",
            [[2**63 - 1], [-(2**63)]],
        ),
        (np.array([1, 2**32 - 1], "uint32"), "int64", [[1], [2**32 - 1]]),
        (np.array([1, -2], ">i4"), "int64", [[1], [-2]]),
        (np.array([2**64 - 1, 1], "uint64").view("int64"), "int64", [[-1], [1]]),
        ([0.5, np.float32(1)], "float", [[0.5], [1.0]]),
        (np.array([0.5, 1], "float16"), "float", [[0.5], [1.0]]),
        (np.array([0.5, 1], ">f8"), "float", [[0.5], [1.0]]),
        (np.array([0.5, 1], ml_dtypes.bfloat16), "float", [[0.5], [1.0]]),
        (np.array([1e-300, 1]), "float", [[0.0], [1.0]]),
        (Foreign(), "float", [[1.5], [2.5]]),
        (["h\u00e9", b"b"], "bytes", [[b"h\xc3\xa9"], [b"b"]]),
        ([bytearray(b"c"), memoryview(b"d")], "bytes", [[b"c"], [b"d"]]),
        ([b"", ""], "bytes", [[b""], [b""]]),
        (np.array(["h\u00e9", "b"]), "bytes", [[b"h\xc3\xa9"], [b"b"]]),
        (np.array([b"a\0", "b"], object), "bytes", [[b"a\0"], [b"b"]]),
        (np.array([1, 2], object), "int64", [[1], [2]]),
        (np.array([["a", "b"], ["c", "d"]]), "bytes", [[b"a", b"b"], [b"c", b"d"]]),
        (WORDS, "bytes", [[b"a"], [b"bc"]]),
        (fr.BytesArray.from_list([["a"], ["b"]]), "bytes", [[b"a"], [b"b"]]),
        (np.zeros((2, 3)), "float", [[0.0] * 3, [0.0] * 3]),
        (np.zeros((2, 0), "int8"), "int64", [[], []]),
        (np.zeros((2, 1), "bool"), "int64", [[0], [0]]),
        (RAGGED, "int64", [[1, 2], []]),
        (fr.RaggedArray(WORDS, [0, 2, 2]), "bytes", [[b"a", b"bc"], []]),
        ([[1, 2], ()], "int64", [[1, 2], []]),
        ([["a"], [b"b", "c"]], "bytes", [[b"a"], [b"b", b"c"]]),
        ([[0.5], np.array([1, 2], "float32")], "float", [[0.5], [1.0, 2.0]]),
        ([np.array([1], "uint64"), np.array([-1])], "int64", [[1], [-1]]),
        ([np.array([1, 2]), np.array([])], "int64", [[1, 2], []]),
        ([np.array(1), np.array(2)], "int64", [[1], [2]]),
        ([WORDS, WORDS[:0]], "bytes", [[b"a", b"bc"], []]),
        (("a", None), "bytes", [[b"a"], None]),
        ([None, 1.5], "float", [None, [1.5]]),
        ([None, [1]], "int64", [None, [1]]),
        ([np.array([2]), None], "int64", [[2], None]),
        (np.array([1, None], object), "int64", [[1], None]),
        (masked([1, 2], [1, 0]), "int64", [None, [2]]),
        (masked([1, 2]), "int64", [[1], [2]]),
        (masked([1.5, 1e300], [0, 1]), "float", [[1.5], None]),
        (masked([1, 2**63], [0, 1], "uint64"), "int64", [[1], None]),
        (masked(["a", "b"], [0, 1]), "bytes", [[b"a"], None]),
        (
            masked([[1, 2], [3, 4]], [[1, 1], [0, 0]]),
            "int64",
            [None, [3, 4]],
        ),
        (masked([1, "x"], [0, 1], object), "int64", [[1], None]),
    ],
)
def test_columns_are_converted_as_documented(
    path: Path, column: Untyped, kind: str, rows: list[Any]
) -> None:
    fr.write(path, {"f": column})
    expected = [{} if row is None else {b"f": (kind, row)} for row in rows]
    assert examples(path) == expected


@pytest.mark.parametrize(
    ("column", "spec", "rows"),
    [
        (np.array([[1, 2]], "uint8"), fr.Raw((2,), "uint8"), [b"\1\2"]),
        (
            np.array([[1, 2]]),
            fr.Raw((2,), "int64"),
            [b"\1" + bytes(7) + b"\2" + bytes(7)],
        ),
        (np.array([1], "int32"), fr.Raw((), "int32", False), [b"\0\0\0\1"]),
        (np.array([1 + 0j], "c8"), fr.Raw((), "c8", False), [b"\x3f\x80" + bytes(6)]),
        (np.array(["a"]), fr.Raw((), "<U1"), [b"a\0\0\0"]),
        (np.array([b"ab", b"c"]), fr.Raw((), "S2"), [b"ab", b"c\0"]),
        (np.array([7], "M8[s]"), fr.Raw((), "M8[s]"), [b"\7" + bytes(7)]),
        (np.array([(1, 2)], "u1,u1"), fr.Raw((), "u1,u1"), [b"\1\2"]),
        ([b"\1\2", b"\3\4"], fr.Raw((2,), "uint8"), [b"\1\2", b"\3\4"]),
        ([None, b"\3\4"], fr.Raw((2,), default=[0, 0]), [None, b"\3\4"]),
        ([np.ones(2, "uint8"), None], fr.Raw((2,), default=[0, 0]), [b"\1\1", None]),
        (np.zeros((2, 0), "uint8"), fr.Raw((0,)), [b"", b""]),
        ([[], []], fr.Raw((0,)), [b"", b""]),
        ([], fr.Raw((3, 3)), []),
    ],
)
def test_raw_features_hold_the_memory_of_arrays(
    path: Path, column: Untyped, spec: fr.Raw, rows: list[Any]
) -> None:
    fr.write(path, {"f": column}, features={"f": spec})
    expected = [{} if row is None else {b"f": ("bytes", [row])} for row in rows]
    assert examples(path) == expected


@pytest.mark.parametrize(
    ("column", "spec", "kind", "rows"),
    [
        ([1, 2], fr.FixedLen(()), "float", [[1.0], [2.0]]),
        (np.zeros((1, 2, 2), "int8"), fr.FixedLen((2, 2), "int64"), "int64", [[0] * 4]),
        (np.zeros((1, 2, 2)), fr.FixedLen((2, 2), "float64"), "float", [[0.0] * 4]),
        ([[[1, 2], [3, 4]]], fr.FixedLen((2, 2), "int8"), "int64", [[1, 2, 3, 4]]),
        ([[["a"], ["b"]]], fr.FixedLen((2, 1), "bytes"), "bytes", [[b"a", b"b"]]),
        (np.array([[["a"], ["b"]]]), fr.FixedLen((2, 1), "bytes"), "bytes", [[b"a", b"b"]]),
        (RAGGED[:1], fr.FixedLen((2,), "int64"), "int64", [[1, 2]]),
        ([None, [1, 2]], fr.FixedLen((2,), "int64", [0, 0]), "int64", [None, [1, 2]]),
        ([[[1]], None], fr.FixedLen((1, 1), default=[[0]]), "float", [[1.0], None]),
        ([None, None], fr.FixedLen((2,), default=[0, 0]), "float", [None, None]),
        ([], fr.FixedLen((2, 2), "bytes"), "bytes", []),
        (masked([1, 2**40], [0, 1]), fr.FixedLen((), "int32", 0), "int64",
         [[1], None]),
        ([[], []], fr.VarLen("float32"), "float", [[], []]),
        ([[], []], fr.VarLen("bytes"), "bytes", [[], []]),
        ([[], None], fr.VarLen("int64"), "int64", [[], None]),
        ([np.zeros(0)], fr.VarLen("int64"), "int64", [[]]),
        ([[[1, 2], [3, 4]], []], fr.VarLen("int64", (2,)), "int64", [[1, 2, 3, 4], []]),
        ([np.ones((1, 2)), np.ones(0)], fr.VarLen(shape=(2,)), "float", [[1.0, 1.0], []]),
        (np.ones((1, 2, 2), int), fr.FixedLenSequence((2,), "int64"), "int64", [[1] * 4]),
        (RAGGED, fr.FixedLenSequence((), "int64"), "int64", [[1, 2], []]),
    ],
)  # fmt: skip
def test_lists_are_written_by_their_specs(
    path: Path,
    column: Untyped,
    spec: Untyped,
    kind: str,
    rows: list[Any],
) -> None:
    fr.write(path, {"f": column}, features={"f": spec})
    expected = [{} if row is None else {b"f": (kind, row)} for row in rows]
    assert examples(path) == expected


IMAGES = np.zeros((2, 4, 4), "uint8")


@pytest.mark.parametrize(
    ("column", "error", "text"),
    [
        (
            IMAGES,
            ValueError,
            r"2-D rows.*fr\.Raw\(\(4, 4\), 'uint8'\).*\.tobytes\(\)",
        ),
        ([IMAGES[0]] * 2, ValueError, r"2-D rows.*\.tobytes\(\)"),
        (fr.BytesArray.from_list([[["a"]]] * 2), ValueError, r"fr\.FixedLen\("),
        (
            fr.RaggedArray(np.zeros((2, 2)), [0, 1, 2]),
            ValueError,
            r"fr\.VarLen\(.*shape",
        ),
        ([[[1], [2, 3]], []], ValueError, "lists of lists.*fr.Ragged"),
        ([[["a"]], []], ValueError, "lists of lists.*fr.Ragged"),
        (np.array([[["a"]], [["b"]]]), ValueError, "lists of lists"),
        ([1, 2.0], ValueError, "cannot mix float and int"),
        ([np.int64(1), np.float32(2)], ValueError, "cannot mix float and int"),
        ([[1], [2.0]], ValueError, "cannot mix float and int"),
        ([[1, 2.0], []], ValueError, "cannot mix float and int"),
        ([np.array([1]), np.array([2.0])], ValueError, "cannot mix float and int"),
        (["a", 1], ValueError, "cannot mix int and string"),
        (["a", float("nan")], ValueError, "write None for a missing string, not NaN"),
        (
            np.array(["a", np.nan], object),
            ValueError,
            "write None for a missing string, not NaN",
        ),
        ([[1], 1], ValueError, "cannot mix int and list"),
        ([[1], "a"], ValueError, "cannot mix list and string"),
        ([["a"], [1]], ValueError, "cannot mix int and string"),
        ([["a", 1], []], ValueError, "cannot mix int and string"),
        ([[b"a", 1], []], ValueError, "cannot mix int and string"),
        ([[1, [2]], []], ValueError, "cannot mix int and list"),
        ([[], []], ValueError, "kind of empty lists.*features="),
        ([[], None], ValueError, "kind of empty lists.*features="),
        (np.array([0, 2**63], "uint64"), ValueError, r"\.view\(\"int64\"\)"),
        ([2**63, 1], ValueError, r"\.view\(\"int64\"\)"),
        ([2**63, -1], ValueError, r"\.view\(\"int64\"\)"),
        ([2**200, 1], ValueError, r"\.view\(\"int64\"\)"),
        ([-(2**63) - 1, 1], ValueError, "range of int64"),
        ([[2**63], []], ValueError, r"\.view\(\"int64\"\)"),
        (
            [np.array([2**63], "uint64"), np.array([-1])],
            ValueError,
            r"\.view\(\"int64\"\)",
        ),
        (np.array([b"a", b"b"]), TypeError, r"\.tolist\(\).*trailing NUL bytes"),
        ([np.array([b"a"]), np.array([b"b"])], TypeError, r"\.tolist\(\)"),
        (np.array([1j, 2j]), TypeError, r"complex128.*\.astype\(\"float32\"\)"),
        ([1j, 2j], TypeError, "type complex"),
        (np.zeros(2, "longdouble"), TypeError, r"\.astype\(\"float32\"\)"),
        (np.array([1, 2], "M8[s]"), TypeError, r"datetime64.*\.astype\(\"int64\"\)"),
        (np.array([1, 2], "m8[ns]"), TypeError, r"timedelta64.*\.astype\(\"int64\"\)"),
        ([np.datetime64(1, "s"), None], TypeError, "type datetime64"),
        ([np.array([1], "M8[ns]"), [1]], TypeError, "datetime64"),
        ([[np.datetime64(1, "ns")], []], TypeError, "type datetime64"),
        (np.array([object(), 1]), TypeError, "type object"),
        ([{}, {}], TypeError, "type dict"),
        ([[1, None], [1]], TypeError, "type NoneType"),
        (["\ud800", "a"], ValueError, "UTF-8"),
        ([["\ud800"], []], ValueError, "UTF-8"),
        ([memoryview(b"abcd")[::2]] * 2, TypeError, "type memoryview"),
        (
            masked([[1, 2], [3, 4]], [[1, 0], [0, 0]]),
            ValueError,
            "masked entirely or not at all",
        ),
    ],
)
def test_invalid_values_name_the_feature_and_a_hint(
    path: Path, column: Untyped, error: type[Exception], text: str
) -> None:
    with (
        fr.Writer(path) as writer,
        pytest.raises(error, match=f"^feature 'f\u00e9'.*{text}"),
    ):
        writer.write_batch({"ok": [1, 2], "f\u00e9": column})
    assert writer.n_records == 0
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("column", "spec", "error", "text"),
    [
        ([1.0, 2.0], fr.FixedLen((), "int64"), ValueError, r"\.astype\(\"int64\"\)"),
        (["a", "b"], fr.FixedLen((), "int64"), ValueError, "values must be int64.*got bytes"),
        (["a", "b"], fr.FixedLen(()), ValueError, "values must be float.*got bytes"),
        ([1, 2], fr.FixedLen((), "bytes"), ValueError, "values must be bytes.*got int64"),
        ([1.0, 2.0], fr.VarLen("bytes"), ValueError, r"rows must have the shape of VarLen\(\'bytes\'\), got \(\)"),
        ([1, 300], fr.FixedLen((), "uint8"), ValueError, "300 is out of range of uint8"),
        ([1, -1], fr.FixedLen((), "uint64"), ValueError, "-1 is out of range of uint64"),
        ([1, 2], fr.FixedLen((), "bool"), ValueError, "2 is out of range of bool"),
        ([[1], [2]], fr.FixedLen((), "int64"), ValueError, r"shape of FixedLen\(\(\).*got \(1,\)"),
        (IMAGES, fr.FixedLen((4, 5), "int64"), ValueError, r"shape of FixedLen\(\(4, 5\).*got \(4, 4\)"),
        (IMAGES, fr.Raw((16,), "uint8"), ValueError, r"shape of Raw\(\(16,\).*got \(4, 4\)"),
        (IMAGES, fr.Raw((4, 4), "int8"), ValueError, r"\.astype\('int8'\)"),
        (IMAGES, fr.VarLen("int64"), ValueError, r"shape of VarLen.*got \(4, 4\)"),
        ([b"abc", b"ab"], fr.Raw((3,)), ValueError, "must have 3 bytes.*got 2 in row 1"),
        ([[1, 2], [3]], fr.FixedLen((2,), "int64"), ValueError, r"got \[1, 2\]"),
        ([[], []], fr.FixedLen((2,), "int64"), ValueError, r"shape of FixedLen.*got \(0,\)"),
        ([np.zeros(2), np.zeros(3)], fr.FixedLen((2,)), ValueError, "same shape"),
        ([1, None], fr.FixedLen((), "int64"), ValueError, "missing in row 1.*no default"),
        ([None, b"a"], fr.Raw((1,)), ValueError, "missing in row 0.*no default"),
        ([[1, 2], None], fr.Stack(["a", "b"]), ValueError, "row 1.*no default"),
        ([[1], [2]], fr.Stack(["a", "b"]), ValueError, r"shape of Stack.*got \(1,\)"),
        ([[1, 2], [3]], fr.Stack(["a", "b"]), ValueError, r"got \[1, 2\]"),
        ([[1], [2]], fr.Ragged("int64", [fr.Ragged.RowLengths("n")]), TypeError,
         "as columns"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_their_spec_are_refused(
    path: Path,
    column: Untyped,
    spec: Untyped,
    error: type[Exception],
    text: str,
) -> None:
    with (
        fr.Writer(path, features={"f": spec}) as writer,
        pytest.raises(error, match=f"^feature 'f'.*{text}"),
    ):
        writer.write_batch({"f": column})
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (
            {"a": [1], "b": [1, 2]},
            ValueError,
            r"columns must have equal lengths, got \{'a': 1, 'b': 2\}",
        ),
        ({"a": [1], b"a": [2]}, ValueError, "must be unique, got 'a' for two columns"),
        (
            {b"\xff": [1], "spec": [2]},
            ValueError,
            r"be unique, got '\\\\xff' for two columns",
        ),
        ({"a": 5}, TypeError, "feature 'a': a column must be an array, .* got int"),
        (
            {"a": "text"},
            TypeError,
            "feature 'a': a column must be an array, .* got str",
        ),
        (
            {"a": {1: 2}},
            TypeError,
            "feature 'a': a column must be an array, .* got dict",
        ),
        (
            {"a": None},
            TypeError,
            "feature 'a': a column must be an array, .* got NoneType",
        ),
        (
            {"a": np.array(5)},
            ValueError,
            "feature 'a': a column must have one value for each record,",
        ),
        (
            {"a": masked(5, 1)},
            ValueError,
            "feature 'a': a column must have one value for each record,",
        ),
        ({1: [1]}, TypeError, "feature names must be str or bytes, got int"),
        (
            [("a", [1])],
            TypeError,
            "columns must be a mapping of names to values, got list",
        ),
    ],
)
def test_invalid_mappings_of_columns_are_refused(
    path: Path,
    columns: Untyped,
    error: type[Exception],
    text: str,
) -> None:
    features = {"spec": fr.FixedLen((), "int64", 0, key=b"\xff")}
    with fr.Writer(path, features=features) as writer:
        with pytest.raises(error, match=text):
            writer.write_batch(columns)
        writer.write_batch({"a": [1.5]})
    assert examples(path) == [{b"a": ("float", [1.5])}]


def test_a_float_that_overflows_becomes_inf_with_a_numpy_warning(
    path: Path,
) -> None:
    with pytest.warns(RuntimeWarning, match="feature 'f'") as caught:
        fr.write(path, {"f": [1.0, 1e300]})
    assert examples(path)[1] == {b"f": ("float", [math.inf])}
    assert caught[0].filename == __file__


# --- Rows by specs, and rows without what specs need -----------------------------------


@pytest.mark.parametrize("name", ["image", b"image"])
def test_names_may_mix_str_and_bytes(path: Path, name: str | bytes) -> None:
    for other in ("image", b"image"):
        features = {other: fr.Raw((2, 2))}
        fr.write(
            path, {name: np.ones((1, 2, 2), "u1")}, features=features, overwrite=True
        )
        assert examples(path) == [{b"image": ("bytes", [b"\1" * 4])}]
        with fr.Writer(path, features=features, overwrite=True) as writer:
            writer.write({name: np.ones((2, 2), "u1")})
        assert examples(path) == [{b"image": ("bytes", [b"\1" * 4])}]


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (fr.FixedLen((), "int64"), True),
        (fr.Raw((1,)), True),
        (fr.Stack(["a", "b"]), True),
        (fr.FixedLen((), "int64", default=0), False),
        (fr.Raw((1,), default=[0]), False),
        (fr.Stack(["a", "b"], default=0), False),
        (fr.VarLen("int64"), False),
        (fr.FixedLenSequence((), "int64"), False),
    ],
)
def test_a_missing_feature_without_a_default_is_refused(
    path: Path,
    spec: Untyped,
    needed: bool,
) -> None:
    refused = (
        pytest.raises(ValueError, match=r"feature 'f'.* is missing.*no default")
        if needed
        else contextlib.nullcontext()
    )
    with fr.Writer(path, features={"f": spec}) as writer:
        with refused:
            writer.write({"else": 1})
        with refused:
            writer.write_batch({"else": [1]})
        with refused:
            writer.write({"f": masked(np.zeros(2 if "Stack" in str(spec) else ()), 1)})
        with pytest.raises(
            TypeError,
            match="feature 'f': value must not be None; omit the feature from the",
        ):
            writer.write({"f": None})
        with pytest.raises(TypeError, match="a row must be a mapping"):
            writer.write([("f", 1)])  # type: ignore[arg-type]
    assert len(examples(path)) == (0 if needed else 3)


def test_the_features_of_a_spec_may_be_written_separately(path: Path) -> None:
    features = {
        "size": fr.Stack(["h", "w"], "int64"),
        "label": fr.FixedLen((), "int64", key="image/label"),
    }
    with fr.Writer(path, features=features) as writer:
        writer.write({"h": 1, "w": 2, "image/label": 3})
        writer.write_batch({"h": [1], "w": [2], b"image/label": [3]})
        with pytest.raises(
            ValueError,
            match=r"feature 'size' is missing and Stack\(\('h', 'w'\), 'int64'\)",
        ):
            writer.write({"h": 1, "image/label": 3})
    got = fr.open(path, features=features)[0:2]
    assert got["size"].tolist() == [[1, 2]] * 2
    assert got["label"].tolist() == [3, 3]


def test_two_columns_of_one_key_are_refused(path: Path) -> None:
    spec = fr.FixedLen((), "int64", 0, key="k")
    with fr.Writer(path, features={"a": spec, "b": spec}) as writer:
        for columns in ({"a": 1, "b": 2}, {"a": 1, "k": 2}, {"k": 2, "a": 1}):
            with pytest.raises(ValueError, match="'k'"):
                writer.write(columns)
            with pytest.raises(
                ValueError,
                match="feature keys must be unique, got 'k' for two",
            ):
                writer.write_batch({name: [value] for name, value in columns.items()})
    assert path.read_bytes() == b""


# --- From batch to batch ---------------------------------------------------------------


def test_features_keep_the_order_of_earlier_records(path: Path) -> None:
    with fr.Writer(path) as writer:
        writer.write({"b": 1, "a": 2})
        writer.write({"a": 2, "b": 1})
        writer.write_batch({"c": ["x"], "a": [2], "b": [1]})
        writer.write({"c": "x", "b": 1, "a": 2})
        writer.write({"c": "x", "a": 2})
    two = fr.encode_example({"b": 1, "a": 2})
    three = fr.encode_example({"b": 1, "a": 2, "c": "x"})
    last = fr.encode_example({"a": 2, "c": "x"})
    assert records_in(path) == [two, two, three, three, last]


KINDS = {"int64": (1, [1]), "float": (1.5, [1.5]), "bytes": ("a", ["a"])}


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(KINDS, 2)])
@pytest.mark.parametrize("is_batch", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_feature_has_one_kind_in_all_records(
    path: Path, before: str, after: str, is_batch: tuple[int, int]
) -> None:
    def write(writer: fr.Writer, kind: str, is_batch: int) -> None:
        value = KINDS[kind][is_batch]
        writer.write_batch({"f": value}) if is_batch else writer.write({"f": value})

    with fr.Writer(path) as writer:
        write(writer, before, is_batch[0])
        if (before, after) == ("float", "int64"):
            write(writer, after, is_batch[1])
        else:
            with pytest.raises(ValueError, match=f"'f' (must have|has) .*{after}"):
                write(writer, after, is_batch[1])
    assert {features[b"f"][0] for features in examples(path)} == {before}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_batch", [False, True])
def test_empty_lists_get_the_kind_of_earlier_records(
    path: Path, kind: str, is_batch: bool
) -> None:
    with fr.Writer(path) as writer:
        writer.write_batch({"f": [KINDS[kind][1]]})
        empties: list[Any] = [[], (), np.zeros(0, "i8"), np.zeros(0)]
        for empty in [*empties, fr.BytesArray.from_list([])]:
            if is_batch:
                writer.write_batch({"f": [empty]})
            else:
                writer.write({"f": empty})
    assert [features[b"f"] for features in examples(path)[1:]] == [(kind, [])] * 5


def test_only_values_determine_the_kind_of_a_feature(path: Path) -> None:
    """Empty arrays and columns without rows do not."""
    with fr.Writer(path) as writer:
        writer.write_batch({"f": np.zeros((1, 0), "i8")})
        writer.write_batch({"f": np.zeros(0, "i8")})
        writer.write_batch({"f": masked([7], [True])})
        writer.write_batch({"f": [None]})
        writer.write({"f": np.zeros(0, "i8")})
        writer.write({"f": "text"})
        with pytest.raises(ValueError, match="had bytes values before"):
            writer.write({"f": 1})
    assert examples(path)[-1] == {b"f": ("bytes", [b"text"])}


@pytest.mark.parametrize("empty", [[b""], [b"", b""], fr.BytesArray.from_list([""])])
def test_empty_strings_are_values(path: Path, empty: Untyped) -> None:
    with fr.Writer(path) as writer:
        writer.write_batch({"f": empty})
        with pytest.raises(ValueError, match="had bytes values before"):
            writer.write({"f": 1})


def test_a_refused_batch_does_not_affect_later_records(path: Path) -> None:
    with fr.Writer(path) as writer:
        with pytest.raises(ValueError, match="feature 'b'"):
            writer.write({"a": 1, "b": []})
        with pytest.raises(ValueError, match="feature 'b'"):
            writer.write_batch({"a": [1], "b": [[]]})
        with pytest.raises(ValueError, match="feature 'b'"):
            writer.write_sequence_example(
                context={"a": 1, "b": []}, feature_lists={"c": [1]}
            )
        writer.write({"a": "text", "b": 1.5})
        writer.write_sequence_example(
            context={"a": "text", "b": 1.5}, feature_lists={"c": ["d"]}
        )
    assert examples(path)[0] == {b"a": ("bytes", [b"text"]), b"b": ("float", [1.5])}


@pytest.mark.parametrize("columns", [{}, {"a": []}, {"a": np.zeros((0, 3))}])
def test_batches_without_rows_write_nothing(
    path: Path, columns: dict[str, Any]
) -> None:
    fr.write(path, columns)
    assert path.read_bytes() == b""


def test_rows_may_have_no_features(path: Path) -> None:
    fr.write(path, {"a": [None, 1, None]})
    assert records_in(path) == [b"\n\0", fr.encode_example({"a": 1}), b"\n\0"]
    assert fr.encode_example({}) == b"\n\0"


def test_a_closed_writer_refuses_batches(path: Path) -> None:
    writer = fr.Writer(path)
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.write_batch({"a": [1]})
