"""Tensors of torch: columns of a batch that share their memory.

Goal
    A tensor has the values, the shape and the dtype of its column, and is the same memory
    wherever torch can use it. What torch cannot hold is an error that names the column,
    or is left as it is.
Method
    Columns of every kind and dtype beside NumPy's own values, and addresses beside each
    other; batches of a loader that are held and changed while it goes on.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

pytestmark = pytest.mark.frameworks
torch: Untyped = pytest.importorskip("torch")

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
ML_DTYPES = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def tensor_of(column: Untyped, **options: Untyped) -> Untyped:
    (tensor,) = fr.torch.tensors({"x": column}, **options).values()
    return tensor


def address(array: Untyped) -> int:
    return int(array.ctypes.data)


def ragged(rows: Untyped, dtype: str = "int64") -> Untyped:
    return fr.RaggedArray.from_list(rows, dtype)


# Arrays.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3), (4, 0, 2)])
def test_a_tensor_is_the_array_in_the_same_memory(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.ones(shape, dtype)
    tensor = tensor_of(array)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.shape == shape
    assert tensor.data_ptr() == (address(array) if array.size else 0)
    assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("dtype", ML_DTYPES)
def test_types_of_ml_dtypes_are_those_of_torch(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = [[1.0, -2.0], [0.5, 3.0], [0.0, -0.25]]
    array = np.array(values, getattr(ml_dtypes, dtype))
    tensor = tensor_of(array)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.float().tolist() == values
    assert tensor.data_ptr() == address(array)
    assert tensor_of(array[:0]).shape == (0, 2)


def test_strides_are_those_of_the_array_where_torch_has_such() -> None:
    array = np.arange(24).reshape(4, 6)
    for view in (array[::2], array.T, array[:, 1::3]):
        tensor = tensor_of(view)
        assert tensor.data_ptr() == address(view)
        assert np.array_equal(tensor.numpy(), view)


def test_memory_that_a_tensor_cannot_be_is_copied() -> None:
    row = np.arange(4)
    read_only = np.arange(4)
    read_only.flags.writeable = False
    fields = np.zeros(4, "i1,i4")
    for array in (np.broadcast_to(row, (3, 4)), read_only, row[::-1], fields["f1"]):
        tensor = tensor_of(array)
        assert np.array_equal(tensor.numpy(), array)
        tensor.fill_(7)
    assert row.tolist() == read_only.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (">i2", r'byte order \(>i2\): .*astype\("int16"\)'),
        ("M8[s]", r"no dtype for datetime64\[s\]"),
        ("i4,i4", "no dtype for"),
        ("S3", "no dtype for"),
    ],
)
def test_a_dtype_that_torch_lacks_is_an_error(dtype: str, text: str) -> None:
    with pytest.raises(TypeError, match=f"column 'x': .*{text}"):
        tensor_of(np.zeros(2, dtype))


def test_arrays_that_differ_are_a_list() -> None:
    column = np.empty(2, object)
    column[:] = [np.arange(3), np.ones((2, 2), np.float32)]
    tensors = tensor_of(column)
    assert [tensor.shape for tensor in tensors] == [(3,), (2, 2)]
    assert tensors[0].data_ptr() == address(column[0])


# Rows of any lengths.


def test_ragged_rows_are_values_and_offsets() -> None:
    column = ragged([[1, 2], [], [3]])
    jagged = tensor_of(column)
    assert len(jagged) == 3
    assert jagged.values.tolist() == [1, 2, 3]
    assert jagged.offsets.tolist() == [0, 2, 2, 3]
    assert jagged.lengths.tolist() == [2, 0, 1]
    assert jagged.values.data_ptr() == address(column.values)
    assert jagged.offsets.data_ptr() == address(column.row_splits)


def test_rows_of_rows_nest() -> None:
    jagged = tensor_of(ragged([[[1], [2, 3]], [], [[]]]))
    assert jagged.offsets.tolist() == [0, 2, 2, 3]
    assert jagged.values.offsets.tolist() == [0, 1, 3, 3]
    assert jagged.values.values.tolist() == [1, 2, 3]


@pytest.mark.parametrize("splits", ["int32", "int64"])
def test_ragged_rows_are_a_nested_tensor_if_asked_for(splits: str) -> None:
    column: Untyped = fr.RaggedArray(np.arange(3.0), np.array([0, 2, 2, 3], splits))
    for nested in (tensor_of(column, ragged="nested"), tensor_of(column).nested()):
        assert [row.tolist() for row in nested.unbind()] == [[0, 1], [], [2]]
        assert nested.values().data_ptr() == address(column.values)


def test_columns_of_equal_lengths_can_be_subtracted() -> None:
    batch = {
        "state": ragged([[3, 5], [], [7]]),
        "action": ragged([[1, 1], [], [2]]),
        "other": ragged([[1], [2], [3]]),
    }
    nested = fr.torch.tensors(batch, ragged="nested")
    rows = (nested["state"] - nested["action"]).unbind()
    assert [row.tolist() for row in rows] == [[2, 4], [], [5]]
    jagged = fr.torch.tensors(batch)
    moved = importlib.import_module("fastrec.torch.blocks").mapped(jagged, torch.clone)
    for columns in (jagged, moved):
        assert columns["state"].offsets is columns["action"].offsets
        assert columns["state"].offsets is not columns["other"].offsets
    assert moved["state"].offsets is not jagged["state"].offsets


def test_what_cannot_be_nested_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"column 'x': .*one ragged dimension"):
        tensor_of(ragged([[[1]]]), ragged="nested")
    with pytest.raises(ValueError, match=r'"offsets" or "nested", got .padded'):
        tensor_of(ragged([[1]]), ragged="padded")


def test_jagged_rows_move_as_tensors_do() -> None:
    jagged = tensor_of(ragged([[[1], [2, 3]], []]))
    there = jagged.to("meta", non_blocking=True)
    parts = [there.values.values, there.values.offsets, there.offsets]
    assert {part.device.type for part in parts} == {"meta"}
    assert [part.shape for part in parts] == [(3,), (3,), (3,)]


@pytest.mark.parametrize("splits", ["int32", "int64"])
@pytest.mark.parametrize("inner", [(), (2,), (3, 1)])
@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", *ML_DTYPES])
def test_nested_tensors_are_ragged_arrays_in_the_same_memory(
    dtype: str, inner: tuple[int, ...], splits: str
) -> None:
    pytest.importorskip("ml_dtypes")
    values: Untyped = np.ones((3, *inner)).astype(dtype)
    column: Untyped = fr.RaggedArray(values, np.array([0, 2, 2, 3], splits))
    nested = fr.torch.as_nested(column)
    assert nested.layout == torch.jagged
    assert nested.dtype == getattr(torch, dtype)
    for rows in (nested, tensor_of(column)):
        back = fr.torch.as_ragged(rows)
        assert back.equals(column)
        assert back.row_splits.dtype == splits
        assert address(back.values) == address(values)
        assert address(back.row_splits) == address(column.row_splits)


def test_results_of_torch_are_ragged_arrays() -> None:
    linear = torch.nn.Linear(2, 4)
    column: Untyped = fr.RaggedArray(np.ones((3, 2), np.float32), [0, 2, 2, 3])
    out = fr.torch.as_ragged(linear(fr.torch.as_nested(column)))
    assert out.lengths.tolist() == [2, 0, 1]
    assert np.array_equal(out[2], linear(torch.ones(1, 2)).detach().numpy())
    lists = ragged([[[1], [2, 3]], [], [[]]])
    assert fr.torch.as_ragged(tensor_of(lists)).equals(lists)
    starts, lengths = torch.tensor([0, 1, 0]), torch.tensor([2, 3, 0])
    rows = torch.arange(12).reshape(3, 4)
    narrow = torch.nested.narrow(rows, 1, starts, lengths, layout=torch.jagged)
    assert fr.torch.as_ragged(narrow).tolist() == [[0, 1], [5, 6, 7], []]


def test_what_has_no_ragged_or_nested_form_is_an_error() -> None:
    for rows, text in [
        (ragged([[[1]]]), "one ragged dimension"),
        (ragged([[b"x"]], "string"), "must be a RaggedArray of numbers, got Ragged"),
        (np.ones(3), "must be a RaggedArray of numbers, got array"),
    ]:
        with pytest.raises(TypeError, match=text):
            fr.torch.as_nested(rows)
    nested = fr.torch.as_nested(fr.RaggedArray(np.ones((3, 2)), [0, 1, 3]))
    for tensor, text in [
        (torch.ones(3), r"layout torch.jagged, got torch.strided"),
        (np.ones(3), r"layout torch.jagged, got array"),
        (
            nested.transpose(1, 2),
            r"second dimension must be ragged, got shape \(2, 2, j",
        ),
    ]:
        with pytest.raises(TypeError, match=text):
            fr.torch.as_ragged(tensor)


# What else a batch holds.


def test_a_sparse_array_is_a_sparse_tensor_in_the_same_memory() -> None:
    column: Untyped = fr.SparseArray([[0, 1], [2, 0]], np.array([5, 6]), (3, 2))
    tensor = tensor_of(column)
    assert tensor.layout == torch.sparse_coo
    assert tensor.to_dense().tolist() == column.to_dense().tolist()
    assert tensor._values().data_ptr() == address(column.values)
    assert tensor._indices().data_ptr() == address(column.indices)


def test_byte_strings_and_what_is_no_array_pass() -> None:
    strings = fr.BytesArray.from_list([b"a", b"bc"])
    rows = fr.RaggedArray.from_list([[b"a"], []])
    sparse = fr.SparseArray([[0, 1], [1, 0]], strings, (2, 2))
    for column in (strings, rows, sparse, "text", None, torch.ones(2)):
        assert tensor_of(column) is column
        assert tensor_of(column, ragged="nested") is column


# Whose memory it is.


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    records = (
        example({b"n": ("int64", [n]), b"x": ("float", [float(n)] * (n % 4))})
        for n in range(100)
    )
    features = {"n": fr.FixedLen((), "int64"), "x": fr.VarLen("float32")}
    return open_dataset(write(tfrecord_file(records)), features=features)


def test_tensors_keep_their_memory_while_the_loader_goes_on(ds: Untyped) -> None:
    held, copies = [], []
    for batch in ds.loader(8, shuffle=True, num_threads=2).repeat(3):
        tensors = fr.torch.tensors(batch)
        held.append([tensors["n"], tensors["x"].values, tensors["x"].offsets])
        copies.append([tensor.clone() for tensor in held[-1]])
        del batch, tensors
    for kept, cloned in zip(held, copies, strict=True):
        assert all(map(torch.equal, kept, cloned))


def test_changes_of_a_tensor_show_in_no_other_batch(ds: Untyped) -> None:
    expected = [batch["n"].tolist() for batch in ds.loader(8).repeat(3)]
    found = []
    for batch in ds.loader(8, num_threads=2).repeat(3):
        tensor = fr.torch.tensors(batch)["n"]
        found.append(tensor.tolist())
        tensor.fill_(-1)
    assert found == expected
