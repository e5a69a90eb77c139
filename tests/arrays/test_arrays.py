"""BytesArray, RaggedArray, take_rows and concat_batches against Python lists.

Goal: every operation on a column returns the same as on lists of bytes or numbers, or
raises an error that states the cause; operations that promise to share memory do.

Method: hypothesis generates lists (with NULs, empty strings and empty rows, in 1 to 3
dimensions) and indices of every kind. NumPy object arrays and list comprehensions are
the oracle. Errors, memory and reprs are named cases.
"""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastrec.arrays.batch import (
    Array,
    BytesArray,
    RaggedArray,
    concat_batches,
    take_rows,
)

# Strings of few letters collide often; long ones are copied by another code path.
STRINGS = st.one_of(
    st.binary(max_size=4),
    st.text("\0a", max_size=3).map(str.encode),
    st.binary(min_size=1, max_size=3).map(lambda part: part * 100),
)
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


def objects(values: list[bytes], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the object array that is the oracle of a BytesArray."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


@st.composite
def bytes_cases(draw: st.DrawFn) -> tuple[BytesArray, np.ndarray[Any, Any]]:
    """Draw a BytesArray somewhere in a larger buffer, and its oracle."""
    shape = draw(SHAPES)
    size = int(np.prod(shape))
    values = draw(st.lists(STRINGS, min_size=size, max_size=size))
    before, after = draw(st.binary(max_size=3)), draw(st.binary(max_size=3))
    data = np.frombuffer(before + b"".join(values) + after, np.uint8)
    offsets = np.cumsum([len(before), *map(len, values)])
    return BytesArray(data, offsets, shape), objects(values, shape)


@st.composite
def first_axis_indices(draw: st.DrawFn, size: int) -> Any:
    """Draw a slice, a mask, or integers as a list or an array."""
    kinds = [st.slices(size), hnp.arrays(bool, size)]
    if size:
        integers = st.lists(st.integers(-size, size - 1), max_size=6)
        kinds += [integers, integers.map(lambda i: np.array(i, np.int32))]
        kinds.append(
            hnp.arrays(np.int64, (2, 2), elements=st.integers(-size, size - 1))
        )
    return draw(st.one_of(kinds))


def check(array: Any, expected: Any) -> None:
    """Compare an item or an array with the oracle, and check the array's parts."""
    if isinstance(expected, bytes):
        assert array == expected
        assert type(array) is bytes
        return
    assert isinstance(array, BytesArray)
    assert array.shape == expected.shape
    assert array.tolist() == expected.tolist()
    BytesArray(array.data, array.offsets, array.shape)  # is valid


# BytesArray


@given(case=bytes_cases())
def test_bytes_array_equals_the_lists(
    case: tuple[BytesArray, np.ndarray[Any, Any]],
) -> None:
    array, expected = case
    check(array, expected)
    assert (array.ndim, array.size, len(array)) == (
        expected.ndim,
        expected.size,
        len(expected),
    )
    flat = expected.ravel().tolist()
    assert array.lengths.dtype == np.int64
    assert array.lengths.shape == expected.shape
    assert array.lengths.ravel().tolist() == list(map(len, flat))
    assert array.nbytes == sum(map(len, flat)) + 8 * (len(flat) + 1)
    converted = np.asarray(array, dtype=object)
    assert converted.shape == expected.shape
    assert converted.tolist() == np.asarray(array).tolist() == expected.tolist()
    for row, expected_row in zip(array, expected, strict=True):
        check(row, expected_row)


@given(case=bytes_cases(), data=st.data())
def test_first_axis_indices_select_what_numpy_selects(
    case: tuple[BytesArray, np.ndarray[Any, Any]], data: st.DataObject
) -> None:
    array, expected = case
    index = data.draw(first_axis_indices(len(array)))
    check(array[index], expected[index])


@pytest.mark.parametrize("shape", [(5,), (3, 2), (3, 2, 2), (3, 0)])
@pytest.mark.parametrize("step", [None, 1, 2, -1, -2])
def test_every_slice_selects_what_numpy_selects(
    shape: tuple[int, ...], step: int | None
) -> None:
    values = [b"%d" % i * (i % 3) for i in range(int(np.prod(shape)))]
    expected = objects(values, shape)
    array = BytesArray.from_list(values)
    array = BytesArray(array.data, array.offsets, shape)
    rows = [list(range(i)) for i in range(5)]
    ragged_array = RaggedArray.from_list(rows, "int64")
    ends = [None, *range(-6, 7)]
    for start, stop in itertools.product(ends, ends):
        index = slice(start, stop, step)
        check(array[index], expected[index])
        assert ragged_array[index].tolist() == rows[index]


@given(case=bytes_cases(), data=st.data())
def test_indices_of_several_axes_select_what_numpy_selects(
    case: tuple[BytesArray, np.ndarray[Any, Any]], data: st.DataObject
) -> None:
    array, expected = case
    index: Any = data.draw(hnp.basic_indices(expected.shape, allow_newaxis=True))
    selected = expected[index]
    if isinstance(selected, np.ndarray) and selected.ndim == 0:
        selected = selected[()]
    check(array[index], selected)


@given(case=bytes_cases())
def test_every_string_has_an_item_and_a_view(
    case: tuple[BytesArray, np.ndarray[Any, Any]],
) -> None:
    array, expected = case
    for place in np.ndindex(expected.shape):
        check(array[place], expected[place])
        from_the_end = tuple(i - n for i, n in zip(place, array.shape, strict=True))
        check(array[from_the_end], expected[place])
        assert array.view(place) == expected[place]
        assert array.view(place).format == "B"


@given(case=bytes_cases(), data=st.data())
def test_equality_is_elementwise(
    case: tuple[BytesArray, np.ndarray[Any, Any]], data: st.DataObject
) -> None:
    array, expected = case
    flat = expected.ravel().tolist()
    choices = st.sampled_from(flat) | STRINGS if flat else STRINGS
    other = list(flat)
    for i in range(len(flat)):
        if data.draw(st.booleans()):
            other[i] = data.draw(choices)
    others = objects(other, expected.shape)
    want = np.array([a == b for a, b in zip(flat, other, strict=True)], bool)
    want = want.reshape(expected.shape)
    packed = BytesArray.from_list(other)
    packed = BytesArray(packed.data, packed.offsets, array.shape)
    forms: list[Any] = [packed, others]
    if others.tolist() and others.size:  # nested empty lists have lost their shape
        forms.append(others.tolist())
    for form in forms:
        for got in (array == form, form == array):
            assert got.dtype == bool
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(array != form, ~want)


@given(case=bytes_cases(), data=st.data())
def test_equality_with_one_string(
    case: tuple[BytesArray, np.ndarray[Any, Any]], data: st.DataObject
) -> None:
    array, expected = case
    flat = expected.ravel().tolist()
    value = data.draw(st.sampled_from(flat) | STRINGS if flat else STRINGS)
    want = np.array([a == value for a in flat], bool).reshape(expected.shape)
    np.testing.assert_array_equal(array == value, want)
    np.testing.assert_array_equal(value != array, ~want)
    assert (value in array) == (value in flat)


def test_equality_distinguishes_every_two_strings() -> None:
    strings = [
        b"",
        b"a",
        b"b",
        b"\0",
        b"ab",
        b"ba",
        b"a\0",
        b"a" * 300,
        b"a" * 299 + b"b",
    ]
    left, right = zip(*itertools.product(strings, strings), strict=True)
    want = [a == b for a, b in zip(left, right, strict=True)]
    array = BytesArray.from_list(left)
    assert (array == BytesArray.from_list(right)).tolist() == want
    for string in strings:
        assert (array == string).tolist() == [a == string for a in left]


def test_str_compares_as_utf8() -> None:
    array = BytesArray.from_list(["h\u00e9", "x"])
    assert array.tolist() == [b"h\xc3\xa9", b"x"]
    assert (array == "h\u00e9").tolist() == [True, False]
    assert (array == ["h\u00e9", "y"]).tolist() == [True, False]
    assert (array == np.array(["a", "x"])).tolist() == [False, True]
    assert "x" in array


def test_equality_with_other_types() -> None:
    array = BytesArray.from_list([b"a", b"b"])
    assert (array == [None, b"b"]).tolist() == [False, True]
    with pytest.raises(ValueError, match=r"shape \(2,\) with shape \(3,\)"):
        _ = array == [b"a", b"b", b"c"]
    with pytest.raises(ValueError, match=r"shape \(2,\) with shape \(1,\)"):
        _ = array == array[:1]
    with pytest.raises(TypeError, match="trailing NULs"):
        _ = array == np.array([b"a", b"b"])
    anything: Any = array
    assert (anything == 3) is False
    assert (anything != 3) is True
    assert 3 not in array
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    with pytest.raises(TypeError):
        np.add(anything, 1)


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=3),
    inner=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    dtype=st.sampled_from(["u1", "<u2", ">i4", ">f4", "<f8", "?"]),
    data=st.data(),
)
def test_as_array_views_strings_of_one_size(
    shape: tuple[int, ...], inner: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    elements: Any = st.integers(0, 1)
    expected = data.draw(hnp.arrays(dtype, shape + inner, elements=elements))
    size = int(np.prod(shape))
    rows = expected.reshape((size, *inner))
    strings = [rows[i : i + 1].tobytes() for i in range(size)]
    whole = BytesArray.from_list([b"odd", *strings])[1:]
    array = BytesArray(whole.data, whole.offsets, shape)
    got = array.as_array(dtype, inner)
    assert got.dtype == np.dtype(dtype)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    if got.size:
        assert np.shares_memory(got, array.data)


def test_as_array_error_names_the_first_string_of_another_size() -> None:
    array = BytesArray.from_list([b"1234", b"12", b"1"])
    text = r"cannot view strings as float32 of shape \(\): strings must have"
    with pytest.raises(ValueError, match=text):
        array.as_array("f4")
    with pytest.raises(
        ValueError, match=r"strings must have 4 bytes, but string \(0, 1\) has 2"
    ):
        BytesArray.from_list([[b"1234", b"12"]]).as_array("f4", ())
    with pytest.raises(ValueError, match="shape must not have negative sizes"):
        array.as_array("u1", -1)
    assert array[:1].as_array("u1", 4).tolist() == [[49, 50, 51, 52]]


@pytest.mark.parametrize("dtype", ["S4", "O", "S", "U"])
def test_as_array_accepts_numeric_dtypes_only(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"drops trailing NULs|no fixed size"):
        BytesArray.from_list([b"1234"]).as_array(dtype)


@pytest.mark.parametrize("dtype", ["S5", "U5", "f8", "u1"])
def test_conversion_to_other_dtypes_than_object_raises(dtype: str) -> None:
    array = BytesArray.from_list([b"a\0"])
    with pytest.raises(
        TypeError,
        match=r"use dtype=object, or as_array\(\) to view equally long strings",
    ):
        np.asarray(array, dtype=dtype)


def test_conversion_keeps_trailing_nuls_and_needs_a_copy() -> None:
    array = BytesArray.from_list([b"a\0"])
    assert np.asarray(array).tolist() == [b"a\0"]
    assert array.dtype == np.asarray(array).dtype == object
    with pytest.raises(ValueError, match="without a copy"):
        array.__array__(copy=False)


def test_slices_and_items_of_rows_share_the_buffer() -> None:
    array = BytesArray.from_list([["a", "b"], ["c", "d"], ["e", "f"]])
    whole = array.data
    for part in (
        array[1:],
        array[1],
        array[:],
        array[2:1],
        array[1:2, :],
        array[..., :],
    ):
        assert part.data is whole
    for part in (array[::-1], array[[0, 1]], array[np.ones(3, bool)], array[:, :1]):
        assert not np.shares_memory(part.data, whole)
    assert array[1:].offsets.base is not None


def test_views_share_the_buffer_and_outlive_the_array() -> None:
    array = BytesArray.from_list([b"cat", b"dogs"])
    view = array.view(-1)
    view[0] = ord("h")
    assert array[1] == b"hogs"
    del array
    gc.collect()
    assert bytes(view) == b"hogs"


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (3, "index 3 is out of bounds for axis 0 with size 3"),
        (-4, "index -4 is out of bounds for axis 0 with size 3"),
        ((0, 2), "index 2 is out of bounds for axis 1 with size 2"),
        ([0, 7], "index 7 is out of bounds for axis 0 with size 3"),
        ((0, 0, 0), "too many indices"),
        (np.ones(2, bool), "boolean index did not match"),
        ("a", "only integers, slices"),
        (1.5, "only integers, slices"),
    ],
)
def test_invalid_indices_raise_as_in_numpy(
    index: Any,
    text: str,
) -> None:
    array = BytesArray.from_list([["a", "b"]] * 3)
    with pytest.raises(IndexError, match=text):
        array[index]


def test_view_requires_one_index_per_axis() -> None:
    array = BytesArray.from_list([["a", "b"]])
    with pytest.raises(IndexError, match=r"view\(\) requires 2 indices, got 1"):
        array.view(0)
    with pytest.raises(IndexError, match="index 2 is out of bounds for axis 1"):
        array.view((0, 2))


@pytest.mark.parametrize(
    ("data", "offsets", "shape", "text"),
    [
        (
            np.zeros(3),
            [0, 3],
            None,
            "data must be a 1-D array of uint8, got 1-D float64",
        ),
        (
            np.zeros((3, 1), np.uint8),
            [0],
            None,
            "data must be a 1-D array of uint8, got 2-D uint8",
        ),
        (b"abc", [0, 3], None, r"data must be a 1-D array of uint8, got 0-D \|S3"),
        (np.uint8(3), [0], None, "data must be a 1-D array of uint8, got 0-D uint8"),
        (None, [0.0, 3.0], None, "offsets must have dtype int64, got float64"),
        (
            None,
            np.array([0, 3], np.uint64),
            None,
            "offsets must have dtype int64, got uint64",
        ),
        (
            None,
            [[0, 3]],
            None,
            r"offsets must be 1-D with at least one entry, got shape \(1, 2\)",
        ),
        (None, np.zeros(0, np.int64), None, "at least one entry"),
        (None, [0, 2, 1], None, "offsets must not decrease, got 1 after 2 at index 2"),
        (None, [-1, 2], None, "offsets must not be negative, got -1"),
        (None, [0, 4], None, "offsets must be at most the data size 3, got 4"),
        (None, [-(2**63), 2**63 - 1], None, "negative"),
        (
            None,
            [0, 1, 3],
            (3,),
            r"shape must have at least one dimension and 2 items, got \(3,\)",
        ),
        (
            None,
            [0, 1],
            (),
            r"shape must have at least one dimension and 1 items, got \(\)",
        ),
        (None, [0, 1, 2], (-1, -2), "shape must not have negative sizes"),
    ],
)
def test_bytes_array_validates_its_arguments(
    data: Any,
    offsets: Any,
    shape: tuple[int, ...] | None,
    text: str,
) -> None:
    with pytest.raises(ValueError, match=text):
        BytesArray(np.zeros(3, np.uint8) if data is None else data, offsets, shape)


def test_bytes_array_converts_its_arguments() -> None:
    data = np.frombuffer(b"a.b.c.", np.uint8)
    offsets = np.array([0, 1, 3], ">i4")
    array = BytesArray(data[::2], offsets, 2)
    assert array.tolist() == [b"a", b"bc"]
    assert array.data.flags.c_contiguous
    assert array.offsets.dtype == np.int64
    assert array.offsets.dtype.isnative


def test_bytes_array_does_not_copy_valid_arguments() -> None:
    data, offsets = np.zeros(3, np.uint8), np.array([0, 3])
    array = BytesArray(data, offsets)
    assert np.shares_memory(array.data, data)
    assert np.shares_memory(array.offsets, offsets)


def test_from_list_accepts_strings_and_nested_lists() -> None:
    array = BytesArray.from_list(
        [[b"a", "\u00e9"], (bytearray(b"b"), memoryview(b"c"))]
    )
    assert array.tolist() == [[b"a", b"\xc3\xa9"], [b"b", b"c"]]
    assert array.data.flags.writeable
    assert BytesArray.from_list([]).shape == (0,)
    assert BytesArray.from_list([[], []]).shape == (2, 0)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ([b"a", 3], TypeError, "value 1 must be bytes or str, got int"),
        ([["a"], ["b", "c"]], ValueError, "row 1 differs from row 0"),
        ([["a"], "b"], ValueError, "row 1 differs from row 0"),
        (["a", ["b"]], TypeError, "value 1 must be bytes or str, got list"),
    ],
)
def test_from_list_errors_name_the_value(
    values: list[Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        BytesArray.from_list(values)


COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda array: pickle.loads(pickle.dumps(array, protocol=2)),
    lambda array: pickle.loads(pickle.dumps(array)),
]


@pytest.mark.parametrize("duplicate", COPIES)
@given(case=bytes_cases())
def test_bytes_array_copies_and_pickles(
    duplicate: Callable[[Any], Any], case: tuple[BytesArray, np.ndarray[Any, Any]]
) -> None:
    array, expected = case
    other = duplicate(array)
    check(other, expected)
    assert not np.shares_memory(other.data, array.data)


def test_pickles_of_a_slice_exclude_the_rest_of_the_buffer() -> None:
    array = BytesArray.from_list([b"x" * 100_000, b"a"])
    assert len(pickle.dumps(array[1:])) < 1_000


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (BytesArray.from_list([]), "BytesArray([], shape=(0,))"),
        (BytesArray.from_list(["a", "\0"]), r"BytesArray([b'a', b'\x00'], shape=(2,))"),
        (
            BytesArray.from_list([["a", "b"], ["c", "d"]]),
            "BytesArray([[b'a', b'b'], [b'c', b'd']], shape=(2, 2))",
        ),
        (
            BytesArray.from_list(list("abcdefgh")),
            "BytesArray([b'a', b'b', b'c', ..., b'f', b'g', b'h'], shape=(8,))",
        ),
        (
            BytesArray.from_list(["0123456789" * 10]),
            "BytesArray([b'0123456789012345'...(100 bytes)], shape=(1,))",
        ),
    ],
)
def test_repr_of_bytes_is_short(array: BytesArray, text: str) -> None:
    assert repr(array) == str(array) == text


# RaggedArray

NUMBERS: st.SearchStrategy[list[Any]] = st.lists(
    st.lists(st.integers(-9, 9), max_size=4), max_size=6
)
TEXTS: st.SearchStrategy[list[Any]] = st.lists(
    st.lists(STRINGS, max_size=3), max_size=5
)
NESTED: st.SearchStrategy[list[Any]] = st.lists(
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), max_size=4
)


def ragged(rows: list[Any], depth: int, dtype: str) -> RaggedArray:
    """Make a RaggedArray from lists through its public constructor, level by level."""
    splits = np.cumsum([0, *map(len, rows)])
    flat = [value for row in rows for value in row]
    if depth > 1:
        return RaggedArray(ragged(flat, depth - 1, dtype), splits)
    is_bytes = dtype == "bytes"
    values = BytesArray.from_list(flat) if is_bytes else np.array(flat, dtype)
    return RaggedArray(values, splits)


@st.composite
def ragged_cases(draw: st.DrawFn) -> tuple[RaggedArray, list[Any]]:
    """Draw rows of numbers, of strings or of rows, and the array of them."""
    kinds = [(NUMBERS, 1, "int64"), (TEXTS, 1, "bytes"), (NESTED, 2, "float32")]
    lists, depth, dtype = draw(st.sampled_from(kinds))
    rows = draw(lists)
    array = ragged(rows, depth, dtype)
    if draw(st.booleans()):
        array = RaggedArray(array.values, array.row_splits.astype(np.int32))
    return array, rows


def as_list(row: Any) -> list[Any]:
    """Return a row of any kind as nested lists."""
    return list(row.tolist())


@given(case=ragged_cases())
def test_ragged_array_equals_the_lists(
    case: tuple[RaggedArray, list[Any]],
) -> None:
    array, rows = case
    assert array.tolist() == rows
    assert len(array) == len(rows)
    assert array.lengths.dtype == np.int64
    assert array.lengths.tolist() == list(map(len, rows))
    assert [as_list(row) for row in array] == rows
    assert array.nbytes == array.values.nbytes + array.row_splits.nbytes
    for i, row in enumerate(rows):
        assert as_list(array[i]) == as_list(array[i - len(rows)]) == row
        assert as_list(array[np.array(i)]) == row


@given(case=ragged_cases(), data=st.data())
def test_ragged_indices_select_the_rows_that_numpy_selects(
    case: tuple[RaggedArray, list[Any]], data: st.DataObject
) -> None:
    array, rows = case
    index = data.draw(first_axis_indices(len(rows)))
    positions = np.arange(len(rows))[index]
    if positions.ndim == 2:
        with pytest.raises(IndexError, match="index must be 1-D, got 2-D"):
            array[index]
        return
    selected = array[index]
    assert selected.tolist() == [rows[i] for i in positions]
    assert selected.row_splits.dtype == array.row_splits.dtype
    RaggedArray(selected.values, selected.row_splits)  # is valid


def padded(
    rows: list[Any],
    fill: object,
    lengths: list[int | None],
    depth: int,
) -> list[Any]:
    """Pad and truncate nested lists: the oracle of to_padded for rows of scalars."""
    if depth > 1:
        inner = padded([x for row in rows for x in row], fill, lengths[1:], depth - 1)
        longest = max((len(row) for outer in rows for row in outer), default=0)
        blank: object = [fill] * longest
        remaining = iter(inner)
        rows = [[next(remaining) for _ in row] for row in rows]
    else:
        blank = fill
    longest = max(map(len, rows), default=0)
    width = longest if not lengths or lengths[0] is None else lengths[0]
    return [(row + [blank] * width)[:width] for row in rows]


@given(case=ragged_cases(), length=st.none() | st.integers(0, 6), data=st.data())
def test_padded_rows_are_the_values_and_the_fill(
    case: tuple[RaggedArray, list[Any]], length: int | None, data: st.DataObject
) -> None:
    array, rows = case
    depth = 1 + isinstance(array.values, RaggedArray)
    is_bytes = array.dtype == object
    fills: list[Any] = [0, b"", b"pad", "p"] if is_bytes else [0, -1]
    fill = data.draw(st.sampled_from(fills))
    dense = array.to_padded(fill=fill, length=length, truncate=True)
    item = fill.encode() if isinstance(fill, str) else fill or (b"" if is_bytes else 0)
    want = padded(rows, item, [length], depth)
    assert dense.tolist() == want
    longest = max(map(len, rows), default=0)
    width = longest if length is None else length
    assert dense.shape[:2] == (len(rows), width)
    mask = array.mask(length)
    assert mask.dtype == bool
    assert mask.tolist() == [[j < len(row) for j in range(width)] for row in rows]
    if is_bytes:
        check(dense, objects([x for row in want for x in row], dense.shape))
    else:
        assert dense.dtype == array.dtype
    too_long = [i for i, row in enumerate(rows) if len(row) > width]
    if too_long:
        with pytest.raises(ValueError, match=f"row {too_long[0]} has .* truncate=True"):
            array.to_padded(fill=fill, length=length)
    else:
        assert array.to_padded(fill=fill, length=length).tolist() == want


def test_values_with_inner_dimensions() -> None:
    values = np.arange(12, dtype=">f4").reshape(6, 2)
    array = RaggedArray(values, [0, 1, 1, 6])
    assert array.shape == (3, None, 2)
    assert array[2].shape == (5, 2)
    dense = array.to_padded(fill=[7, 8])
    assert dense.shape == (3, 5, 2)
    assert dense.dtype == np.dtype(">f4")
    assert dense[1].tolist() == [[7, 8]] * 5
    assert dense[2].tolist() == array[2].tolist()
    assert array[::-1].tolist() == [array[2].tolist(), [], array[0].tolist()]


def test_nested_rows_pad_to_one_length_for_each_level() -> None:
    array = RaggedArray.from_list([[[1], [2, 3]], [[4, 5, 6]]])
    assert array.to_padded().tolist() == [
        [[1, 0, 0], [2, 3, 0]],
        [[4, 5, 6], [0, 0, 0]],
    ]
    assert array.to_padded(length=(None, 4)).shape == (2, 2, 4)
    assert array.to_padded(length=(3, None)).shape == (2, 3, 3)
    assert array.to_padded(length=(1, 2), truncate=True).tolist() == [
        [[1, 0]],
        [[4, 5]],
    ]
    with pytest.raises(
        ValueError, match=r"most length=1 values, but row 1 of \.values has 2; pass"
    ):
        array.to_padded(length=(None, 1))
    with pytest.raises(
        ValueError, match="length must have at most one entry for each ragged level,"
    ):
        array.to_padded(length=(None, None, None))
    texts = RaggedArray.from_list([[["a"], ["bc", "d"]], []])
    assert texts.to_padded(fill="-").tolist() == [
        [[b"a", b"-"], [b"bc", b"d"]],
        [[b"-", b"-"], [b"-", b"-"]],
    ]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("uint8", -1),
        ("uint8", 256),
        ("int64", 0.5),
        ("int64", float("nan")),
        ("int64", 2**63),
        ("int64", 10**30),
        ("bool", 2),
    ],
)
def test_fill_never_changes_its_value(dtype: str, fill: float) -> None:
    array = RaggedArray.from_list([[1], []], dtype)
    with pytest.raises(ValueError, match=f"fill must be a value of dtype {dtype}"):
        array.to_padded(fill=fill)


def test_to_padded_validates_its_arguments() -> None:
    array = RaggedArray.from_list([["a"]])
    with pytest.raises(TypeError, match="fill must be bytes or str, got int"):
        array.to_padded(fill=1)
    with pytest.raises(ValueError, match="length must not be negative, got -1"):
        array.to_padded(length=-1)
    untyped: Any = array  # does 8 mean the padding or the length?
    with pytest.raises(TypeError, match="positional"):
        untyped.to_padded(8)
    with pytest.raises(ValueError, match="length must not be negative, got -1"):
        array.mask(-1)


def test_rows_and_slices_share_the_values() -> None:
    values = np.arange(5)
    array = RaggedArray(values, np.array([0, 2, 2, 5]))
    assert array.values is values
    assert np.shares_memory(array[2], values)
    assert np.shares_memory(array[1:].values, values)
    for part in (array[[0, 2]], array[::-1], array[np.ones(3, bool)]):
        assert not np.shares_memory(part.values, values)
    texts = RaggedArray.from_list([["a"], ["b", "c"]])
    assert texts[1].data is texts[1:].values.data is texts.values.data  # type: ignore[union-attr]
    dense = texts.to_padded()
    assert not np.shares_memory(dense.data, texts.values.data)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (2, "index 2 is out of bounds for axis 0 with size 2"),
        (-3, "index -3 is out of bounds for axis 0 with size 2"),
        ([0, 5], "index 5 is out of bounds for axis 0 with size 2"),
        ((0, 1), r"tuple; write a\[i\]\[j\] instead of a\[i, j\]"),
        (np.ones(3, bool), "boolean index did not match"),
        (True, "index must be 1-D, got 2-D"),
        ("a", "only integers, slices"),
    ],
)
def test_invalid_row_indices_raise_as_in_numpy(
    index: Any,
    text: str,
) -> None:
    with pytest.raises(IndexError, match=text):
        RaggedArray.from_list([[1], [2, 3]])[index]


@pytest.mark.parametrize(
    ("values", "row_splits", "text"),
    [
        (np.zeros(3), [1, 3], "row_splits must start at 0, got 1"),
        (np.zeros(3), [0, 2], "row_splits must end at 3, the number of values, got 2"),
        (
            np.zeros(3),
            [0, 3, 2, 3],
            "row_splits must not decrease, got 2 after 3 at index 2",
        ),
        (np.zeros(3), [0.0, 3.0], "row_splits must have dtype int64, got float64"),
        (np.zeros(3), [], "row_splits must have dtype int64, got float64"),
        (np.zeros(()), [0], "at least one dimension"),
        (
            np.array([b"a"]),
            [0, 1],
            r"values must be numbers or a BytesArray, got dtype \|S1",
        ),
        (
            np.array([b"a"], object),
            [0, 1],
            "values must be numbers or a BytesArray, got dtype object",
        ),
    ],
)
def test_ragged_array_validates_its_arguments(
    values: Any,
    row_splits: Any,
    text: str,
) -> None:
    with pytest.raises(ValueError, match=text):
        RaggedArray(values, row_splits)


@given(case=ragged_cases())
def test_from_list_inverts_tolist(
    case: tuple[RaggedArray, list[Any]],
) -> None:
    array, rows = case
    dtype = None if array.dtype == object else array.dtype
    for form in (rows, list(array)):
        made = RaggedArray.from_list(form, dtype)
        assert made.tolist() == rows
        assert made.row_splits.dtype == np.int64
        if any(rows):
            assert made.dtype == array.dtype


def test_from_list_chooses_the_type_of_values() -> None:
    assert RaggedArray.from_list([[1], []]).dtype == np.int64
    assert RaggedArray.from_list([[1], [2.5]]).dtype == np.float64
    assert RaggedArray.from_list([[], []]).dtype == np.float64
    assert RaggedArray.from_list([]).tolist() == []
    assert RaggedArray.from_list([[1]], "float32").dtype == np.float32
    parts = [np.zeros((2, 3), np.uint8), np.zeros((0, 3), np.uint8)]
    array = RaggedArray.from_list(parts)
    assert (array.shape, array.dtype) == ((2, None, 3), np.dtype(np.uint8))
    for dtype in ("bytes", "string", bytes, object):
        assert isinstance(RaggedArray.from_list([[]], dtype).values, BytesArray)


@pytest.mark.parametrize(
    ("rows", "dtype", "text"),
    [
        ([1, 2], None, "row 0 must be a list of values, got int"),
        (["ab"], None, "row 0 must be a list of values, got str"),
        ([["a", 1]], None, "value 1 must be bytes or str, got int"),
        ([[1, None]], None, "values must be all numbers, or all bytes or str"),
        ([[1, [2]]], None, "row 0 must be a list of values, got int"),
        ([["a"]], "int64", "values must be int64, got bytes or str"),
        ([[1]], "bytes", "value 0 must be bytes or str, got int"),
    ],
)
def test_ragged_from_list_errors_name_the_row(
    rows: list[Any], dtype: str | None, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        RaggedArray.from_list(rows, dtype)


@given(case=ragged_cases(), other=ragged_cases())
def test_equals_compares_rows_dtype_and_values(
    case: tuple[RaggedArray, list[Any]], other: tuple[RaggedArray, list[Any]]
) -> None:
    array, rows = case
    same_kind = array.dtype == other[0].dtype
    assert array.equals(other[0]) == (same_kind and rows == other[1])
    wide = RaggedArray(array.values, array.row_splits.astype(np.int64))
    assert array.equals(wide)
    assert not array.equals(rows)
    if rows:
        assert not array.equals(array[1:])


def test_equals_treats_nan_as_equal_and_other_dtypes_as_different() -> None:
    nan = RaggedArray.from_list([[float("nan"), 1.0]])
    assert nan.equals(copy.copy(nan))
    assert not nan.equals(RaggedArray.from_list([[1.0, float("nan")]]))
    assert not nan.equals(RaggedArray.from_list([[1, 1]]))
    ones = RaggedArray.from_list([[1]])
    assert not ones.equals(RaggedArray.from_list([[1]], "int32"))


def test_misleading_operators_and_conversions_raise() -> None:
    array: Any = RaggedArray.from_list([[1, 2], [3, 4]])
    for other in (copy.copy(array), 3, np.arange(2)):
        with pytest.raises(
            TypeError, match=r"does not support [!=]=; call \.equals\(other\), or"
        ):
            _ = array == other
        with pytest.raises(
            TypeError, match=r"does not support [!=]=; call \.equals\(other\), or"
        ):
            _ = other == array
    with pytest.raises(
        TypeError, match=r"does not support [!=]=; call \.equals\(other\), or"
    ):
        _ = array != 3
    with pytest.raises(
        TypeError, match=r"RaggedArray to an ndarray; use \.to_padded\(\) or \.values"
    ):
        np.asarray(array)
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)


@pytest.mark.parametrize("duplicate", COPIES)
@given(case=ragged_cases())
def test_ragged_array_copies_and_pickles(
    duplicate: Callable[[Any], Any], case: tuple[RaggedArray, list[Any]]
) -> None:
    array, rows = case
    other = duplicate(array)
    assert other.tolist() == rows
    assert other.equals(array)
    assert other.row_splits.dtype == array.row_splits.dtype
    assert not np.shares_memory(other.row_splits, array.row_splits)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (
            RaggedArray.from_list([[1, 2], [], [3]]),
            "RaggedArray([[1, 2], [], [3]], shape=(3, None), dtype=int64)",
        ),
        (
            RaggedArray.from_list([list(range(9))] + [[0]] * 7, "int32"),
            (
                "RaggedArray([[0, 1, 2, ..., 6, 7, 8], [0], [0], ..., [0], [0], [0]], "
                "shape=(8, None), dtype=int32)"
            ),
        ),
        (
            RaggedArray.from_list([["a"], []]),
            "RaggedArray([[b'a'], []], shape=(2, None), dtype=object)",
        ),
        (
            RaggedArray.from_list([[[1], []], []], "uint8"),
            "RaggedArray([[[1], []], []], shape=(2, None, None), dtype=uint8)",
        ),
        (
            RaggedArray(np.zeros((9, 28, 28), np.uint8), [0, 9]),
            (
                "RaggedArray([[[[0, ..., 0], ..., [0, ..., 0]], ..., [[0, ..., 0], "
                "..., [0, ..., 0]]]], shape=(1, None, 28, 28), dtype=uint8)"
            ),
        ),
    ],
)
def test_repr_of_rows_is_short(array: RaggedArray, text: str) -> None:
    assert repr(array) == str(array) == text


def test_row_splits_widen_when_int32_cannot_hold_them() -> None:
    values = np.broadcast_to(np.zeros((), np.uint8), (2**31 - 1,))
    array = RaggedArray._wrap(values, np.array([0, 2**31 - 1], np.int32))
    assert array._splits(np.array([0, 2**31])).dtype == np.int64
    assert array[0:1].row_splits.dtype == np.int32


# Whole batches


def batch_of(rows: list[Any]) -> dict[str, Array]:
    """Make a batch with a column of every kind from lists of bytes."""
    texts = [[value] * i for i, value in enumerate(rows)]
    return {
        "label": np.arange(len(rows)),
        "image": np.arange(len(rows) * 4, dtype=np.uint8).reshape(-1, 2, 2),
        "name": BytesArray.from_list(rows),
        "tags": RaggedArray.from_list(texts, "bytes"),
        "boxes": RaggedArray.from_list([[i] * i for i in range(len(rows))], "int64"),
    }


def lists_of(batch: dict[str, Array]) -> dict[str, list[Any]]:
    """Return the columns of a batch as lists."""
    return {name: as_list(column) for name, column in batch.items()}


@given(rows=st.lists(STRINGS, min_size=1, max_size=5), data=st.data())
def test_take_selects_the_same_rows_of_every_column(
    rows: list[bytes], data: st.DataObject
) -> None:
    batch = batch_of(rows)
    index = data.draw(first_axis_indices(len(rows)))
    positions = np.arange(len(rows))[index]
    if positions.ndim == 2:
        with pytest.raises(TypeError, match="array of integers or bool, got 2-D int64"):
            take_rows(batch, index)
        return
    taken = take_rows(batch, index)
    assert list(taken) == list(batch)
    assert lists_of(taken) == {
        name: [column[i] for i in positions] for name, column in lists_of(batch).items()
    }


def test_take_shares_slices_and_copies_the_rest() -> None:
    batch = batch_of([b"a", b"b", b"c"])
    label: Any = batch["label"]
    sliced: Any = take_rows(batch, slice(1, None))["label"]
    copied: Any = take_rows(batch, [1])["label"]
    assert np.shares_memory(sliced, label)
    assert not np.shares_memory(copied, label)
    assert take_rows({}, [0]) == {}


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        ([0, 2], IndexError, "column 'x': index 2 is out of bounds"),
        ([True], IndexError, "column 'x': boolean index did not match"),
        (1, TypeError, "array of integers or bool, got 0-D int64"),
        ([0.0], TypeError, "array of integers or bool, got 1-D float64"),
    ],
)
def test_take_validates_the_index(
    index: Any,
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        take_rows({"x": np.arange(2)}, index)


def test_take_requires_columns_of_equal_length() -> None:
    text = r"columns must have equal lengths, got \{'x': 2, 'y': 3\}"
    with pytest.raises(ValueError, match=text):
        take_rows({"x": np.arange(2), "y": np.arange(3)}, slice(1))


@given(parts=st.lists(st.lists(STRINGS, max_size=4), min_size=1, max_size=4))
def test_concatenate_joins_every_column(parts: list[list[bytes]]) -> None:
    batches = []
    for rows in parts:
        batch = batch_of([b"first", *rows])
        batches.append(
            take_rows(batch, slice(1, None))
        )  # columns that start inside buffers
    whole = concat_batches(batches)
    want: dict[str, list[Any]] = {name: [] for name in batches[0]}
    for batch in batches:
        for name, values in lists_of(batch).items():
            want[name] += values
    assert lists_of(whole) == want
    assert list(whole) == list(batches[0])
    for name, column in whole.items():
        assert column.dtype == batches[0][name].dtype
        assert type(column) is type(batches[0][name])
        if isinstance(column, np.ndarray):
            first: Any = batches[0][name]
            assert not np.shares_memory(column, first)


def test_concatenate_keeps_shapes_dtypes_and_nesting() -> None:
    batch: dict[str, Array] = {
        "big": np.arange(2, dtype=">i2"),
        "names": BytesArray.from_list([["a", "b"], ["c", "d"]]),
        "nested": RaggedArray.from_list([[[1], [2, 3]], []], "int8"),
    }
    splits = np.array([0, 1, 2], np.int32)
    batch["narrow"] = RaggedArray(np.zeros(2), splits)
    whole = concat_batches([batch, batch])
    assert whole["big"].dtype == np.dtype(">i2")
    assert whole["names"].shape == (4, 2)
    assert as_list(whole["nested"]) == [[[1], [2, 3]], []] * 2
    narrow = whole["narrow"]
    assert isinstance(narrow, RaggedArray)
    assert narrow.row_splits.dtype == np.int32


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            np.zeros(1, np.int64),
            np.zeros(1, np.float32),
            r"int64 of shape \(\) in batch 0 and float32 of shape \(\) in batch 1",
        ),
        (np.zeros((1, 2)), np.zeros((1, 3)), r"shape \(2,\) in batch 0 and .*\(3,\)"),
        (np.zeros(1), BytesArray.from_list(["a"]), "float64 .* and bytes of shape"),
        (
            RaggedArray.from_list([[1]]),
            RaggedArray.from_list([["a"]]),
            "ragged rows of int64 .* and ragged rows of bytes",
        ),
    ],
)
def test_concatenate_errors_name_the_column(
    first: Array, second: Array, text: str
) -> None:
    with pytest.raises(ValueError, match=f"column 'x': rows are .*{text}"):
        concat_batches([{"x": first}, {"x": second}])


def test_concatenate_requires_batches_with_the_same_columns() -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        concat_batches([])
    x = np.zeros(1)
    with pytest.raises(ValueError, match="column 'y' is in batch 0 but not in batch 1"):
        concat_batches([{"x": x, "y": x}, {"x": x}])
    with pytest.raises(ValueError, match="column 'y' is in batch 1 but not in batch 0"):
        concat_batches([{"x": x}, {"x": x, "y": x}])
