"""Arrow: batches, loaders and datasets as tables.

Goal
    A table holds what the batches hold, in one schema, and shares their memory. It may
    outlive all of fastrec's objects, and any thread may let go of it without waiting for
    Python. What goes wrong is told, with the file and the record.
Method
    pyarrow, which checks whatever it is given, reads every kind of column; addresses tell
    copies from views. A thread that Python knows nothing of releases arrays while this
    one holds the GIL.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import gzip
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from children import run_python
from columns import Untyped, Write, open_dataset
from fastrec import _core, convert
from numbered import SPEC, DataSets, record
from oracle import Encoder, example, frame, tfrecord_file

pa = pytest.importorskip("pyarrow")

Reader = fr.arrow.RecordBatchReader


@pytest.fixture
def data(write: Write) -> DataSets:
    return DataSets(write)


def table_of(source: Untyped, **options: Untyped) -> Untyped:
    """The table that pyarrow makes of a source, checked by it."""
    table = pa.table(Reader(source, **options) if options else source)
    table.validate(full=True)
    return table


def record_batch(columns: Untyped, **options: Untyped) -> Untyped:
    batch = pa.record_batch(fr.arrow.RecordBatch(columns, **options))
    batch.validate(full=True)
    return batch


def address(array: Untyped, buffer: int) -> int:
    found = array.buffers()[buffer].address
    assert isinstance(found, int)
    return found


def expected_rows(n_records: int) -> dict[str, list[Any]]:
    """What records of tests/support/numbered.py hold, as pyarrow says it."""
    n = range(n_records)
    return {
        "n": list(n),
        "pixels": [[i % 256, 7, 0] for i in n],
        "words": [[b"w" * (i % 5)] * (i % 3) for i in n],
    }


# What columns become.

NUMBERS = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
)


@pytest.mark.parametrize("dtype", NUMBERS.split())
@pytest.mark.parametrize("order", "<>")
def test_numbers_stay_what_they_are(dtype: str, order: Literal["<", ">"]) -> None:
    values = (np.arange(11) % 3).astype(np.dtype(dtype).newbyteorder(order))
    names = {"float16": "halffloat", "float32": "float", "float64": "double"}
    [array] = record_batch({"x": values}).columns
    assert str(array.type) == names.get(dtype, dtype)
    assert array.to_pylist() == values.tolist()
    [array] = record_batch({"x": values[1::2]}).columns
    assert array.to_pylist() == values[1::2].tolist()


@given(st.lists(st.integers(0, 3), max_size=3).map(tuple), st.integers(0, 4))
def test_shapes_nest_from_the_outside_in(inner: tuple[int, ...], n_rows: int) -> None:
    numbers = np.arange(np.prod([n_rows, *inner], dtype=int)).reshape(n_rows, *inner)
    strings = fr.BytesArray.from_list([str(n) for n in numbers.reshape(-1)])
    strings = fr.BytesArray(strings.data, strings.offsets, numbers.shape)
    bits = numbers % 3 == 0
    batch = record_batch({"n": numbers, "s": strings, "b": bits})
    kind = batch["n"].type
    for size in inner:
        assert kind.list_size == size
        kind = kind.value_type
    assert kind == pa.int64()
    assert batch["n"].to_pylist() == numbers.tolist()
    assert batch["b"].to_pylist() == bits.tolist()
    assert batch["s"].to_pylist() == strings.tolist()


def test_rows_of_rows_and_slices_are_read_where_they_lie() -> None:
    nested = fr.RaggedArray.from_list([[[1], [2, 3]], [], [[], [4]]])
    int32 = fr.RaggedArray(nested.values, nested.row_splits.astype(np.int32))
    words = fr.RaggedArray.from_list([["a"], ["b", "c"], []])
    batch = {"nested": nested, "int32": int32, "words": words}
    rows: dict[str, list[Any]] = {
        "nested": [[[1], [2, 3]], [], [[], [4]]],
        "words": [[b"a"], [b"b", b"c"], []],
    }
    rows["int32"] = rows["nested"]
    made = record_batch(batch)
    assert made.to_pydict() == rows
    assert made["int32"].type == made["nested"].type  # whatever the splits are kept as
    strings = fr.BytesArray.from_list(["aa", "b", "", "cc"])[1:]
    cut = record_batch({"s": strings, **fr.take_rows(batch, slice(0, 3))}, text=["s"])
    assert cut["s"].to_pylist() == ["b", "", "cc"]
    assert record_batch(fr.take_rows(batch, slice(1, 3))).to_pydict() == {
        name: column[1:] for name, column in rows.items()
    }


def test_masked_numbers_are_null() -> None:
    values = np.ma.MaskedArray([[1, 2], [3, 4]], [[False, True], [False, False]])
    assert record_batch({"x": values})["x"].to_pylist() == [[1, None], [3, 4]]


def some_bytes() -> st.SearchStrategy[bytes]:
    """Text, pieces of it, and what is none."""
    text = st.text("a\u00e4\u20ac\U0001f600", max_size=3).map(str.encode)
    cut = st.tuples(text, st.integers(0, 6)).map(lambda pair: pair[0][pair[1] :])
    return st.one_of(text, cut, st.binary(max_size=3))


@given(st.lists(some_bytes(), max_size=6), st.integers(0, 2), st.integers(0, 2))
def test_text_is_what_is_text_string_by_string(
    strings: list[bytes], first: int, n_left_out: int
) -> None:
    column = fr.BytesArray.from_list(strings)[first : len(strings) - n_left_out]
    expected: list[str] = []
    for i, string in enumerate(column.tolist()):
        try:
            expected.append(string.decode())
        except UnicodeDecodeError:
            with pytest.raises(
                fr.SchemaError, match=rf"'x'.* not UTF-8 text.* record {i}$"
            ):
                record_batch({"x": column}, text=["x"])
            return
    assert record_batch({"x": column}, text=["x"])["x"].to_pylist() == expected


OPTIONAL: list[tuple[Untyped, list[Any]]] = [
    (np.arange(4), [0, 1, 2, 3]),
    (np.arange(8.0).reshape(4, 2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
    (np.array([True, False, True, True]), [True, False, True, True]),
    (fr.BytesArray.from_list(["a", "", "bc", "d"])[1:], [b"", b"bc", b"d"]),
    (
        fr.BytesArray.from_list([["a", ""], ["", "bc"]]),
        [[b"a", b""], [b"", b"bc"]],
    ),
    (fr.RaggedArray.from_list([[1], [], [2, 3]]), [[1], [], [2, 3]]),
]


@pytest.mark.parametrize("case", range(len(OPTIONAL)))
@given(places=st.data())
def test_optional_rows_are_their_value_or_null(
    case: int, places: st.DataObject
) -> None:
    values, items = OPTIONAL[case]
    n_items = places.draw(st.integers(0, len(items)))
    n_rows = n_items + places.draw(st.integers(0, 10))
    chosen = places.draw(st.permutations(range(n_rows)))[:n_items]
    there = np.isin(np.arange(n_rows), chosen)
    splits = np.concatenate([[0], np.cumsum(there)])
    column = fr.RaggedArray(values[:n_items], splits)
    array = record_batch({"x": column}, optional=["x"])["x"]
    rest = iter(items)
    assert array.to_pylist() == [next(rest) if one else None for one in there]
    assert array.null_count == n_rows - n_items


def test_what_arrow_has_not_is_refused_by_name() -> None:
    batch = fr.arrow.RecordBatch
    refused = {
        "sparse": fr.RaggedArray.from_list([[1], [2]]).to_sparse(),
        "complex": np.zeros(2, complex),
        "objects": np.array(["a", None]),
        "strings": np.array([b"a", b"b"]),
        "list": [1, 2],
        "scalar": np.array(1),
        "long": np.zeros(2, np.longdouble),
    }
    for name, column in refused.items():
        with pytest.raises(fr.SchemaError, match=f"column '{name}': ") as caught:
            batch({name: column})
        assert caught.value.feature == name
    with pytest.raises(fr.SchemaError, match=r"fr\.VarLen"):
        batch({"x": refused["sparse"]})
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(fr.SchemaError, match=r"bfloat16; .*float32"):
        batch({"x": np.zeros(2, ml_dtypes.bfloat16)})
    unnamed: list[Untyped] = [b"\xff", "a\0b", "\udcff"]
    for one in unnamed:
        with pytest.raises(fr.SchemaError, match="column names must be UTF-8"):
            pa.record_batch(batch({one: np.arange(2)}))
    with pytest.raises(
        fr.SchemaError, match="column names must be unique, got 'a' twice"
    ):
        batch({"a": np.arange(2), b"a": np.arange(2)})
    with pytest.raises(TypeError, match="names must be str or bytes, got 3"):
        batch({3: np.arange(2)})
    with pytest.raises(
        ValueError, match=r"columns must have equal lengths, got {'a': 2, 'b': 3}"
    ):
        batch({"a": np.arange(2), "b": np.arange(3)})
    with pytest.raises(ValueError, match="no column 'b'; the batch has 'a'"):
        batch({"a": np.arange(2)}, optional=["b"])


def test_record_batches_tell_their_length_and_schema() -> None:
    batch = fr.arrow.RecordBatch({b"n": np.arange(3), "s": np.zeros((3, 2), bool)})
    assert len(batch) == 3
    assert batch.column_names == ["n", "s"]
    assert pa.schema(batch) == pa.schema(
        [("n", pa.int64()), ("s", pa.list_(pa.bool_(), 2))]
    )
    assert len(fr.arrow.RecordBatch({})) == 0
    assert pa.record_batch(batch) == pa.record_batch(batch)  # as often as one likes


def test_a_requested_schema_changes_nothing() -> None:
    batch = fr.arrow.RecordBatch({"s": fr.BytesArray.from_list(["a", "b"])})
    wanted = pa.schema([("s", pa.string())])
    schema, _ = batch.__arrow_c_array__(wanted.__arrow_c_schema__())
    assert pa.Schema._import_from_c_capsule(schema) == pa.schema(batch)
    assert pa.record_batch(batch, schema=wanted)["s"].to_pylist() == ["a", "b"]


# Whose memory it is.

FEATURES: dict[str, Any] = {
    **SPEC,
    "word": fr.VarLen("bytes", key="words"),
    "padded": fr.FixedLenSequence((), "bytes", key="words", length=3),
}


def test_columns_are_shared_and_not_copied(data: DataSets) -> None:
    ds = data.of((40,)).with_features(FEATURES)
    batch = next(iter(ds.loader(30)))
    made = record_batch(batch)
    assert address(made["n"], 1) == batch["n"].ctypes.data
    assert address(made["pixels"].flatten(), 1) == batch["pixels"].ctypes.data
    words, strings = made["words"], batch["words"].values
    assert address(words, 1) == batch["words"].row_splits.ctypes.data
    assert address(words.flatten(), 1) == strings.offsets.ctypes.data
    assert address(words.flatten(), 2) == strings.data.ctypes.data
    assert address(made["padded"].flatten(), 2) == batch["padded"].data.ctypes.data
    optional = fr.take_rows(batch, slice(1))
    made = record_batch(optional, optional=["word"], text=["word"])
    assert address(made["word"], 2) == batch["word"].values.data.ctypes.data


def test_columns_of_transforms_are_shared_and_not_copied(data: DataSets) -> None:
    made_of: list[Any] = []

    def doubled(batch: Untyped) -> Untyped:
        made_of.append(batch["n"] * 2.0)
        return {"x": made_of[-1], "y": batch["pixels"][1:].reshape(-1, 3)[:, :]} | {
            "y": batch["pixels"]
        }

    ds = data.of((10,)).with_transform(doubled)
    table = table_of(ds, batch_size=5)
    addresses = [address(chunk, 1) for chunk in table["x"].chunks]
    assert addresses == [array.ctypes.data for array in made_of]


def forgotten_table(data: DataSets, **options: Untyped) -> Untyped:
    loader = data.of((300,)).loader(50, **options)
    return table_of(loader)


@pytest.mark.parametrize("num_threads", [0, 2])
def test_tables_outlive_loader_and_dataset(data: DataSets, num_threads: int) -> None:
    table = forgotten_table(data, num_threads=num_threads)
    gc.collect()
    for _ in data.of((301,)).loader(50, shuffle=True):  # which would use what is free
        pass
    assert table.to_pydict() == expected_rows(300)


def test_memory_is_not_used_again_while_a_table_has_it(data: DataSets) -> None:
    loader = data.of((400,)).loader(40, num_threads=2)
    held = []
    for batch in loader:
        held.append(record_batch({"n": batch["n"], "words": batch["words"]}))
        del batch
    for _ in loader.repeat(3):
        pass
    rows = expected_rows(400)
    for i, made in enumerate(held):
        these = slice(40 * i, 40 * i + 40)
        assert made["n"].to_pylist() == rows["n"][these]
        assert made["words"].to_pylist() == rows["words"][these]


def test_memory_is_used_again_when_a_table_is_gone(data: DataSets) -> None:
    loader = data.of((40,)).loader(40, num_threads=0)
    made = record_batch(next(iter(loader)))
    n_idle = loader._pool.n_idle
    part = made["n"][3:5]
    del made
    gc.collect()
    assert part.to_pylist() == [3, 4]
    n_idle_but_one = loader._pool.n_idle
    del part
    gc.collect()
    assert n_idle <= n_idle_but_one < loader._pool.n_idle


# Threads without the GIL.


class CArray(ctypes.Structure):
    """ArrowArray, as the specification of the C data interface has it."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def c_array(capsule: object) -> CArray:
    """The struct in a capsule, which keeps it."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return CArray.from_address(get_pointer(capsule, b"arrow_array"))


class TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def release_elsewhere(array: CArray) -> None:
    """Have a thread of the system release an array while this one keeps the GIL."""
    libc = ctypes.PyDLL(None)
    thread = ctypes.c_ulong()
    start, wait = libc.pthread_create, libc.pthread_timedjoin_np
    begun = start(
        ctypes.byref(thread), None, ctypes.c_void_p(array.release), ctypes.byref(array)
    )
    assert begun == 0
    deadline = TimeSpec(int(time.time()) + 10, 0)
    assert wait(thread, None, ctypes.byref(deadline)) == 0, "it waits for the GIL"


linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can stop waiting for a thread"
)


@linux_only
def test_blocks_go_back_to_their_pool_without_the_gil(data: DataSets) -> None:
    loader = data.of((40,)).loader(40, num_threads=0)
    batch = next(iter(loader))
    _, capsule = fr.arrow.RecordBatch(batch).__arrow_c_array__()
    del batch
    gc.collect()
    n_idle = loader._pool.n_idle
    array = c_array(capsule)
    assert array.length == 40
    release_elsewhere(array)
    assert array.release is None
    assert loader._pool.n_idle > n_idle


class Watched(np.ndarray[Any, Any]):
    """An array that can be seen to be gone."""


@linux_only
def test_arrays_of_python_are_dropped_later_by_python() -> None:
    watched = Watched(5)
    gone = weakref.ref(watched)
    for _ in range(100):
        _, capsule = fr.arrow.RecordBatch({"x": watched}).__arrow_c_array__()
        release_elsewhere(c_array(capsule))
    _, capsule = fr.arrow.RecordBatch({"x": watched}).__arrow_c_array__()
    del watched
    assert gone() is not None
    release_elsewhere(c_array(capsule))
    wait_until_gone(gone)


def wait_until_gone(gone: weakref.ref[Watched]) -> None:
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert gone() is None


def test_letting_go_of_an_array_leaves_python_alone() -> None:
    # Once there was a second interpreter, no thread can tell whether it has the GIL. So
    # those that have it leave what is left to the main thread, too.
    watched = Watched(5)
    dropped_by: list[int] = []
    gone = weakref.ref(watched, lambda _: dropped_by.append(threading.get_ident()))
    capsules = [fr.arrow.RecordBatch({"x": watched}).__arrow_c_array__()]
    del watched
    thread = threading.Thread(target=capsules.clear)
    thread.start()
    thread.join()
    wait_until_gone(gone)
    assert dropped_by == [threading.get_ident()]


def test_what_is_left_when_python_ends_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(tfrecord_file(record(n) for n in range(50)))
    code = (
        "import sys\n"
        "import fastrec as fr\n"
        "assert not any(m.startswith('fastrec.arrow') for m in sys.modules)\n"
        "import numpy as np, pyarrow as pa\n"
        "ds = fr.open('a.tfrecord')\n"
        "table, capsule = pa.table(ds), ds.loader(2).__arrow_c_stream__()\n"
        "mine = pa.record_batch(fr.arrow.RecordBatch({'x': np.arange(5)}))\n"
        "reader = pa.RecordBatchReader.from_stream(ds.loader(2))\n"
        "batch = reader.read_next_batch()\n"
        "sys.modules['keeps'] = [table, capsule, mine, reader, batch]\n"
        "print(table.num_rows)\n"
    )
    done = run_python(code, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("50\n", "", 0)


# Streams.


@pytest.mark.parametrize("sizes", [(1,), (7, 0, 1, 23, 0, 12)])
@pytest.mark.parametrize("batch_size", [1, 4, None])
def test_a_dataset_is_a_table(
    data: DataSets, sizes: tuple[int, ...], batch_size: int | None
) -> None:
    ds = data.of(sizes)
    n_records = sum(sizes)
    table = table_of(ds, batch_size=batch_size)
    assert table.to_pydict() == expected_rows(n_records)
    assert table["n"].num_chunks == -(-n_records // (batch_size or n_records))
    assert table.schema == pa.schema(ds)
    assert pa.table(ds) == pa.table(ds)  # each time another pass


def test_a_table_has_all_records_whatever_the_rank(
    data: DataSets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ds = data.of((40,))
    assert pa.table(ds).num_rows == 40
    assert pa.table(ds.loader(10)).num_rows == 20


def test_views_of_datasets_are_tables_of_their_own(data: DataSets) -> None:
    ds = data.of((40,))
    assert table_of(ds.select([3, 1, 3]))["n"].to_pylist() == [3, 1, 3]
    assert table_of(ds.select_columns(["words"])).column_names == ["words"]
    joined = fr.concat([ds.select(range(2)), data.of((7, 0, 1, 23, 0, 12))])
    assert table_of(joined).num_rows == 45
    mixed = fr.mix({"a": (ds, 1), "b": (data.of((7,)), 1)})
    table = table_of(mixed)
    assert table.column_names == [*SPEC, "__source__"]
    assert table.schema == pa.schema(mixed)


def test_datasets_that_are_read_in_several_ways_are_one_table(data: DataSets) -> None:
    parts = [
        data.of((20,)).with_features(
            {"x": fr.FixedLenSequence((), "bytes", fill, key="words"), "n": SPEC["n"]}
        )
        for fill in ("-", "+")
    ]
    table = table_of(fr.concat(parts), batch_size=7)
    assert table.schema == pa.schema(fr.concat(parts))
    assert table["n"].to_pylist() == [*range(20), *range(20)]
    own = [part.with_transform(lambda batch: {"n": -batch["n"]}) for part in parts]
    assert table_of(fr.concat(own))["n"].to_pylist() == [-n for n in range(20)] * 2


def every_spec() -> dict[str, Any]:
    return {
        "int8": fr.FixedLen((), "int8", key="n"),
        "pixels": fr.Raw((3,), "uint8"),
        "words": fr.VarLen("bytes"),
        "nested": fr.Ragged("bytes", [fr.Ragged.UniformRowLength(1)], key="words"),
        "padded": fr.FixedLenSequence((), "bytes", key="words", lengths="n_words"),
        "wide": fr.FixedLenSequence((), "bytes", key="words", length=2),
        "stack": fr.Stack(["n", "n"], "int64"),
    }


def test_the_schema_of_no_rows_is_that_of_all(data: DataSets) -> None:
    ds = data.of((40,)).with_features(every_spec())
    kinds = {field.name: str(field.type) for field in pa.schema(ds)}
    text = "large_binary"
    assert kinds == {
        "int8": "int8",
        "pixels": "fixed_size_list<item: uint8>[3]",
        "words": f"large_list<item: {text}>",
        "nested": f"large_list<item: fixed_size_list<item: {text}>[1]>",
        "padded": f"large_list<item: {text}>",
        "n_words": "int64",
        "wide": f"fixed_size_list<item: {text}>[2]",
        "stack": "fixed_size_list<item: int64>[2]",
    }
    assert table_of(ds, batch_size=3).schema == pa.schema(ds)


def test_padded_columns_of_any_width_have_one_type(
    data: DataSets, tmp_path: Path
) -> None:
    features = {
        "x": fr.FixedLenSequence((1,), "bytes", key="words"),
        "n": fr.FixedLenSequence((1,), "int64"),
    }
    ds = data.of((6,)).with_features(features)
    table = table_of(ds, batch_size=2)
    # A table of a dataset has the rows of the files; one of a loader, those of batches.
    assert [len(row) for row in table["x"].to_pylist()] == [0, 1, 2, 0, 1, 2]
    padded = table_of(ds.loader(2))
    assert padded.schema == table.schema
    assert [len(row) for row in padded["x"].to_pylist()] == [1, 1, 2, 2, 2, 2]
    assert table["n"].to_pylist() == [[[n]] for n in range(6)]
    assert convert.write_table(ds, tmp_path / "t.parquet", batch_size=2) == 6


def test_rows_without_padding_are_those_of_the_files(data: DataSets) -> None:
    padded = {
        "x": fr.FixedLenSequence((), "bytes", "fill", multiple_of=4, key="words"),
        "y": fr.FixedLenSequence((1,), "int16", 7, key="n", lengths="n_y"),
    }
    ds = data.of((6,)).with_features(padded)
    expected = [[b"w" * (n % 5)] * (n % 3) for n in range(6)]
    for source in (ds, ds.select_columns(["x"])):
        assert table_of(source, batch_size=5)["x"].to_pylist() == expected
    table = table_of(ds, optional=["y"])
    assert table.schema == pa.schema(Reader(ds, optional=["y"]))
    assert table["y"].to_pylist() == [[n] for n in range(6)]
    assert table["n_y"].to_pylist() == [1] * 6
    wrong = ds.with_features({"x": fr.FixedLenSequence((), "float32", key="n")})
    with pytest.raises(pa.ArrowInvalid, match="FixedLenSequence"):
        pa.table(wrong)
    # Transforms get what they get anywhere.
    kept = table_of(ds.with_transform(lambda batch: {"x": batch["x"]}))
    assert {len(row) for row in kept["x"].to_pylist()} == {4}


def test_steps_of_sequence_examples_are_lists(write: Write) -> None:
    def sequence(n: int) -> bytes:
        steps: list[Any] = [("int64", [i] * i) for i in range(n)]
        ones: list[Any] = [("float", [0.5])] * n
        return Encoder().sequence({b"id": ("int64", [n])}, {b"s": steps, b"f": ones})

    path = write(tfrecord_file(sequence(n) for n in range(5)))
    ds = open_dataset(
        path,
        context_features={"id": fr.FixedLen((), "int64")},
        sequence_features={
            "s": fr.VarLen("int64"),
            "f": fr.FixedLenSequence((), "float32", lengths="n"),
        },
    )
    table = table_of(ds, batch_size=2)
    assert table.schema == pa.schema(ds)
    assert table["s"].to_pylist() == [[[i] * i for i in range(n)] for n in range(5)]
    assert table["f"].to_pylist() == [[0.5] * n for n in range(5)]
    assert table["n"].to_pylist() == list(range(5))


def test_compressed_files_are_tables(data: DataSets, tmp_path: Path) -> None:
    [file] = data.of((40,)).files
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(Path(file).read_bytes()))
    ds = open_dataset(path, features=SPEC)
    assert pa.schema(ds) == pa.schema(data.of((40,)))
    assert table_of(ds, batch_size=7).to_pydict() == expected_rows(40)
    transformed = ds.with_transform(lambda batch: {"x": batch["n"] + 0.5})
    for source in (transformed, transformed.loader(7)):
        assert table_of(source)["x"].to_pylist() == [n + 0.5 for n in range(40)]


def test_no_records_are_a_table_without_rows(write: Write) -> None:
    ds = open_dataset(write(b""), features=SPEC)
    with_transform = ds.with_transform(lambda batch: {"x": batch["n"] * 0.5})
    assert pa.table(with_transform).schema == pa.schema([("x", pa.float64())])
    loader = with_transform.loader(4)
    for source in (ds, ds.loader(4), with_transform, loader):
        table = table_of(source)
        assert table.num_rows == 0
        assert table.schema == pa.schema(source)
    assert pa.table(fr.open(ds.files)).shape == (0, 0)  # nobody said what to read


def test_the_schema_is_known_before_anything_is_decoded(write: Write) -> None:
    path = write(tfrecord_file([b"\xff no example"]))
    ds = open_dataset(path, features=SPEC)
    assert pa.schema(ds).names == list(SPEC)
    reader = pa.RecordBatchReader.from_stream(ds)
    assert reader.schema.names == list(SPEC)
    with pytest.raises(pa.ArrowInvalid):
        reader.read_next_batch()


def test_a_loader_is_a_table_of_its_next_epoch(data: DataSets) -> None:
    loader = data.of((40,)).loader(8, shuffle=True, seed=3)
    assert pa.schema(loader) == pa.schema(data.of((40,)))
    epochs = [table_of(loader)["n"].to_pylist() for _ in range(2)]
    again = data.of((40,)).loader(8, shuffle=True, seed=3)
    for epoch in epochs:
        assert epoch == [int(n) for batch in again for n in batch["n"]]
    assert epochs[0] != epochs[1]
    loader.seek(4)
    assert len(table_of(loader)) == 8
    assert loader.state_dict() == again.state_dict() | {"epoch": 3, "position": 0}


@pytest.mark.parametrize("is_compressed", [False, True])
def test_asking_a_loader_for_its_columns_moves_it_not(
    data: DataSets, tmp_path: Path, is_compressed: bool
) -> None:
    def transform(batch: Untyped) -> Untyped:
        return {"x": batch["n"] * 2}

    ds = data.of((40,))
    if is_compressed:
        path = tmp_path / "a.gz"
        path.write_bytes(gzip.compress(Path(ds.files[0]).read_bytes()))
        ds = open_dataset(path, features=SPEC)
    loader = ds.loader(8, transform=transform)
    next(iter(loader))
    state = loader.state_dict()
    assert pa.schema(loader).names == ["x"]
    reader = pa.RecordBatchReader.from_stream(loader)
    assert loader.state_dict() == state
    loader.load_state_dict(state)
    assert reader.read_all()["x"].to_pylist() == [2 * n for n in range(8, 40)]


def test_rows_that_only_fill_a_batch_are_told_by_a_column(data: DataSets) -> None:
    loader = data.of((10,)).loader(4, pad_last=True)
    table = table_of(loader)
    assert table.schema == pa.schema(loader)
    assert table["__valid__"].to_pylist() == [True] * 10 + [False] * 2


def test_a_stream_that_is_dropped_ends_its_threads(
    data: DataSets, threads_end: Callable[[], None]
) -> None:
    ds = data.of((300,)).with_transform(lambda batch: batch)
    makers: list[Callable[[], Untyped]] = [
        lambda: ds,
        lambda: ds.loader(3, num_threads=2),
        lambda: Reader(ds, batch_size=3),
    ]
    for make in makers:  # a loader that is kept would keep its transform threads
        reader = pa.RecordBatchReader.from_stream(make())
        reader.read_next_batch()
        del reader
        gc.collect()
        threads_end()


def test_iterating_gives_record_batches_of_one_schema(data: DataSets) -> None:
    reader = Reader(data.of((10,)), batch_size=4, text=["words"], optional=["n"])
    batches = list(reader)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert {str(pa.schema(batch)) for batch in batches} == {str(pa.schema(reader))}
    assert pa.schema(reader).field("words").type.value_type == pa.large_string()


def test_text_and_null_are_as_asked_for_in_streams(data: DataSets) -> None:
    ds = data.of((40,)).with_features({"w": fr.VarLen("bytes", key="words")})
    few = ds.filter(lambda batch: batch["w"].lengths < 2)
    words = [row[0].decode() if row else None for row in table_of(few)["w"].to_pylist()]
    assert table_of(few, text=["w"], optional=["w"])["w"].to_pylist() == words
    with pytest.raises(pa.ArrowInvalid, match=r"has 2 values; .* record 2"):
        table_of(ds, optional=["w"])
    wanted = pa.schema([("w", pa.large_list(pa.string()))])
    assert pa.table(ds, schema=wanted)["w"].to_pylist()[:2] == [[], ["w"]]


def test_options_that_make_no_sense_are_refused(data: DataSets) -> None:
    ds = data.of((10,))
    with pytest.raises(TypeError, match="Dataset or a Loader, got str"):
        Reader("a.tfrecord")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got a Loader, which has its own"):
        Reader(ds.loader(2), batch_size=3)
    with pytest.raises(ValueError, match="batch_size"):
        Reader(ds, batch_size=0)
    with pytest.raises(
        ValueError, match="no column 'x'; the batch has 'n', 'pixels', 'words'"
    ):
        pa.table(Reader(ds, text=["x"]))


# Errors.


def damaged_file(write: Write) -> Path:
    frames = [bytearray(frame(record(n))) for n in range(10)]
    frames[3][-1] ^= 1
    return write(b"".join(map(bytes, frames)))


def test_damage_is_told_with_file_and_record(write: Write) -> None:
    path = damaged_file(write)
    ds = open_dataset(path, features=SPEC)
    where = rf"^CorruptionError: .*checksum.* - at {path}, record 3, byte \d+"
    with pytest.raises(pa.ArrowInvalid, match=where):
        pa.table(Reader(ds, batch_size=2))
    reader = pa.RecordBatchReader.from_stream(Reader(ds, batch_size=2))
    assert reader.read_next_batch()["n"].to_pylist() == [
        0,
        1,
    ]  # what is good comes first
    for _ in range(2):
        with pytest.raises(pa.ArrowInvalid, match="record 3"):
            reader.read_next_batch()
    with pytest.raises(fr.CorruptionError, match="record 3"):
        list(Reader(ds, batch_size=2))
    n = [i for i in range(10) if i != 3]
    skipping = ds.loader(1, on_error="skip").dataset
    assert table_of(skipping, batch_size=1)["n"].to_pylist() == n
    masked = table_of(ds.loader(1, on_error="mask").dataset)
    assert masked["__valid__"].to_pylist() == [i != 3 for i in range(10)]


def test_values_that_do_not_fit_are_told_with_file_and_record(data: DataSets) -> None:
    words = [[b"a"], [b"b", b"c"], [], [b"d", b"\xff"]]
    nested = fr.RaggedArray(fr.RaggedArray.from_list(words), [0, 1, 1, 3, 4])
    with pytest.raises(fr.SchemaError, match="not UTF-8 text") as caught:
        fr.arrow.RecordBatch({"x": nested}, text=["x"])
    assert (caught.value.record, caught.value.feature) == (3, "x")
    ds = data.of((3, 40))  # records 2, 5, 8, ... have two words
    with pytest.raises(fr.SchemaError, match=f"{ds.files[0]}, record 2, byte"):
        list(Reader(ds, optional=["words"]))
    second = rf"'words': .* 2 values; .* - at {ds.files[1]}, record 5, byte \d+$"
    few = ds.select([0, 1, 8])
    with pytest.raises(fr.SchemaError, match=second):
        list(Reader(few, batch_size=2, optional=["words"]))
    with pytest.raises(pa.ArrowInvalid, match=second):
        pa.table(Reader(few.loader(2, shuffle=True), optional=["words"]))
    made = few.with_transform(lambda batch: batch)
    with pytest.raises(fr.SchemaError, match=r"\(row 2 of the table\)$"):
        list(Reader(made, batch_size=2, optional=["words"]))


def test_the_systems_errors_keep_their_number(write: Write) -> None:
    ds = open_dataset(write(tfrecord_file([record(0)])), features=SPEC)
    reader = pa.RecordBatchReader.from_stream(Reader(ds, batch_size=1))
    Path(ds.files[0]).unlink()
    with pytest.raises(OSError, match=f"FileNotFoundError: .*{ds.files[0]}"):
        reader.read_all()


class StrangeError(Exception):
    """An error that can be seen to be gone."""


class SpeechlessError(Exception):
    """An error that cannot say what it is about."""

    def __str__(self) -> str:
        msg = "no words"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (ValueError("v"), pa.ArrowInvalid, "ValueError: v"),
        (KeyError("k"), OSError, "KeyError: 'k'"),
        (StrangeError(), OSError, "StrangeError"),
        (MemoryError("m"), MemoryError, "m"),
        (NotImplementedError("n"), NotImplementedError, "NotImplementedError: n"),
        (
            PermissionError(13, "p", "f\udcff"),
            OSError,
            r"PermissionError: .*f\\udcff",
        ),
        (OSError("socket", "reset"), OSError, r"OSError: .*socket\] reset"),
        (OSError(2**40, "large"), OSError, "OSError: .* large"),
        (SpeechlessError(), OSError, "SpeechlessError"),
        (ValueError("zero\0byte"), pa.ArrowInvalid, r"ValueError: zero\\x00byte"),
    ],
)
def test_errors_of_transforms_come_through(
    data: DataSets,
    raised: Exception,
    kind: type[Exception],
    text: str,
) -> None:
    def transform(batch: Untyped) -> Untyped:
        if batch["n"][0] >= 4:
            raise raised
        return batch

    ds = data.of((10,)).with_transform(transform)
    with pytest.raises(kind, match=text):
        pa.table(Reader(ds, batch_size=2))


def test_an_exception_is_not_kept_by_the_stream(data: DataSets) -> None:
    gone: list[weakref.ref[StrangeError]] = []

    def transform(batch: Untyped) -> Untyped:
        if batch["n"][0]:
            error = StrangeError("strange")
            gone.append(weakref.ref(error))
            raise error
        return batch

    loader = data.of((10,)).loader(2, transform=transform, transform_threads=0)
    with pytest.raises(OSError, match="strange"):
        pa.table(loader)
    del loader
    gc.collect()
    assert [found() for found in gone] == [None]


def interrupt() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("stop", "raised"), [(interrupt, KeyboardInterrupt), (sys.exit, SystemExit)]
)
def test_what_stops_the_program_stops_it(
    data: DataSets, stop: Callable[[], None], raised: type[BaseException]
) -> None:
    def transform(batch: Untyped) -> Untyped:
        if batch["n"][0]:
            stop()
        return batch

    loader = data.of((10,)).loader(2, transform=transform, transform_threads=0)
    with pytest.raises(raised) as caught:  # noqa: PT012 (it comes when it may)
        try:
            pa.table(loader)
        except OSError:
            for _ in range(1000):
                time.sleep(0.001)
            pytest.fail("it is lost")
    assert any(entry.name == "transform" for entry in caught.traceback)


@pytest.mark.frameworks
def test_a_second_interrupt_does_not_hide_the_first(
    data: DataSets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come in the Python code that knows which thread is the main one."""
    polars = pytest.importorskip("polars")  # pyarrow calls this code, too

    def transform(batch: Untyped) -> Untyped:
        if batch["n"][0]:
            patched.setattr(threading, "main_thread", interrupt)
            interrupt()
        return batch

    loader = data.of((10,)).loader(2, transform=transform, transform_threads=0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with contextlib.suppress(polars.exceptions.ComputeError):
            polars.DataFrame(loader)
        for _ in range(1000):
            time.sleep(0.001)


def test_what_ends_another_thread_ends_not_the_program(data: DataSets) -> None:
    def transform(batch: Untyped) -> Untyped:
        return sys.exit() if batch["n"][0] else batch

    seen: list[str] = []

    def read() -> None:
        try:
            pa.table(data.of((10,)).loader(2, transform=transform))
        except OSError as error:
            seen.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert seen == ["SystemExit"]


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ({"x": np.zeros(2, np.int32)}, r"got {'x': 'int32'} after {'x': 'int64'}"),
        (
            {"x": np.zeros((2, 3), int)},
            r"got {'x': 'fixed_size_list<int64>\[3\]'} after",
        ),
        ({"y": np.zeros(2, int)}, r"got {'y': 'int64'} after {'x': 'int64'}"),
        (
            {"x": fr.RaggedArray.from_list([[1], []])},
            r"got {'x': 'large_list<int64>'} after",
        ),
    ],
)
def test_batches_that_differ_are_refused(
    data: DataSets, later: dict[str, Any], text: str
) -> None:
    def transform(batch: Untyped) -> Untyped:
        return {"x": batch["n"]} if batch["n"][0] < 4 else later

    ds = data.of((10,)).with_transform(transform)
    with pytest.raises(pa.ArrowInvalid, match=text):
        pa.table(Reader(ds, batch_size=2))


def test_batches_without_rows_are_left_out(data: DataSets) -> None:
    def transform(batch: Untyped) -> Untyped:
        keep = batch["n"] % 8 < 4
        return fr.take_rows(batch, keep) if keep.any() else {"n": np.zeros(0)}

    ds = data.of((20,)).with_transform(transform)
    table = table_of(ds, batch_size=4)
    assert table["n"].num_chunks == 3
    assert table["n"].to_pylist() == [n for n in range(20) if n % 8 < 4]


@pytest.mark.parametrize("buffers", [(), ("x",)])
def test_what_a_stream_cannot_read_is_an_error_of_the_stream(buffers: Untyped) -> None:
    values = fr.arrow.RecordBatch({})._values
    batch: Untyped = values._replace(buffers=buffers) if buffers else "no batch"
    error = "must be an array" if buffers else "AttributeError"
    field = fr.arrow.RecordBatch({"x": np.arange(2)})._field
    capsule = _core.arrow_array_stream(field, iter([batch]))
    reader = pa.RecordBatchReader._import_from_c_capsule(capsule)
    with pytest.raises(OSError, match=error):
        reader.read_next_batch()


def test_examples_of_other_programs_are_tables(write: Write) -> None:
    rows = [example({b"\xc3\xa4": ("int64", [n])}) for n in range(3)]
    assert table_of(fr.open(write(tfrecord_file(rows)))).to_pydict() == {
        "\u00e4": [0, 1, 2]
    }


def test_an_inferred_schema_has_the_options_that_fit(testdata: Path) -> None:
    ds = fr.open(testdata / "taxi-train-00000-of-00012.gz")
    options = ds.schema.arrow_options
    assert options["text"] == ["company", "payment_type"]
    assert set(options["optional"]) == set(ds.schema), "none has several values"
    types = pa.schema(Reader(ds, **options))
    assert types.field("company").type == pa.large_string()
    assert types.field("dropoff_latitude").type == pa.float32()
    few = ds.select_columns(["fare", "company"]).schema.arrow_options
    assert few["text"] == ["company"]
    assert fr.Schema({"x": fr.VarLen("bytes")}).arrow_options == {
        "text": [],
        "optional": [],
    }
    lists = fr.open(testdata / "sequence-eval.gz").schema
    assert lists.arrow_options == {"text": ["s"], "optional": ["f", "i"]}
    assert {name: list(specs) for name, specs in lists.sections.items()} == {
        "context_features": ["f", "i"],
        "sequence_features": ["s"],
    }


def test_steps_of_records_are_rows_of_a_table(tmp_path: Path) -> None:
    rows = [{"a": [10 * i + j for j in range(i)], "id": i} for i in range(1, 5)]
    fr.write(tmp_path / "episodes.tfrecord", rows)
    features = {"a": fr.VarLen("int64"), "id": fr.FixedLen((), "int64")}
    ds = fr.open(tmp_path / "episodes.tfrecord", features=features)
    steps = ds.steps({"a": [-1, 0]}, edge="zero")
    for source in (steps, steps.loader(3), fr.mix({"steps": (steps, 1.0)})):
        columns = table_of(source).to_pydict()
        assert columns["a"][:3] == [[0, 10], [0, 20], [20, 21]]
        assert columns["a/mask"][:3] == [[False, True], [False, True], [True, True]]
        assert columns["id"] == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]


def test_a_reader_reports_its_progress(data: DataSets) -> None:
    seen: list[int] = []
    pa.table(Reader(data.of((10,)), batch_size=4, progress=seen.append))
    assert seen == [4, 8, 10]


def test_a_reader_keeps_the_error_that_ended_its_stream(data: DataSets) -> None:
    ds = data.of((40,)).with_features({"w": fr.VarLen("bytes", key="words")})
    reader = Reader(ds, optional=["w"])
    with pytest.raises(pa.ArrowInvalid):
        pa.table(reader)
    assert isinstance(reader.error, fr.SchemaError)
    assert reader.error.record is not None
