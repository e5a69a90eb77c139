"""Single rows: ds[i], iteration and parse_single_example, without a batch in Python.

Goal
    A row is what indexing the columns of a batch gives, bit for bit; it owns its
    memory; an error is that of the batch, with file, record and feature. This holds on
    every instruction set, in threads, after a fork, and after records that fail.
Method
    Generated schemas and records, valid, odd and malformed, compared with batches that
    are indexed in Python (campaigns/single_rows.py).
"""

from __future__ import annotations

import gc
import gzip
import os
import random
import subprocess
import sys
import tracemalloc
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from campaigns.single_rows import assert_equal_rows, compare, row_by_index
from children import ROOT
from columns import Untyped, Write, open_dataset
from fastrec import _core
from fastrec.compat import tf_io
from oracle import example, frame, tfrecord_file

N_SCHEMAS = 150  # for each instruction set


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_a_row_is_a_row_of_a_batch(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    compare(seed, tmp_path_factory.getbasetemp(), Counter())


@pytest.mark.parametrize("isa", _core.isas())
def test_every_instruction_set_returns_the_rows_of_batches(isa: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "campaigns.single_rows", "1000", str(N_SCHEMAS)],
        cwd=ROOT,
        env={**os.environ, "FASTREC_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n_rows, n_errors, n_read = map(int, done.stdout.split())
    assert min(n_rows, n_errors, n_read) > N_SCHEMAS


# Records of all sizes.

LARGE = {
    "data": fr.FixedLen((), "bytes"),
    "pixels": fr.FixedLenSequence((), "uint8", key="numbers"),
    "n": fr.FixedLen((), "int64"),
}


def large_record(n: int, size: int) -> bytes:
    data = random.Random(n).randbytes(size)
    numbers = [byte & 0x7F for byte in data[: size // 8]]
    return example(
        {
            b"data": ("bytes", [data]),
            b"n": ("int64", [n]),
            b"numbers": ("int64", numbers),
        }
    )


@pytest.mark.parametrize("io", ["auto", "pread"])
def test_rows_of_every_size_are_whole(write: Write, io: str) -> None:
    sizes = [0, 1, 100, 16_000, 17_000, 300_000, 20, 5 << 20, 40, 70_000]
    records = [large_record(n, size) for n, size in enumerate(sizes)]
    ds = open_dataset(write(tfrecord_file(records)), features=LARGE, io=io)
    for n in [*range(len(sizes)), *reversed(range(len(sizes)))]:
        assert_equal_rows(ds[n], row_by_index(ds[n : n + 1], 0))
        assert_equal_rows(ds[n], tf_io.parse_single_example(records[n], LARGE))
        assert ds[n]["data"] == random.Random(n).randbytes(sizes[n])


def test_rows_own_their_memory(write: Write) -> None:
    record = example({b"x": ("float", [0.0] * 1000), b"data": ("bytes", [b"a" * 4000])})
    path = write(tfrecord_file([record] * 400))
    spec = {"x": fr.FixedLen((1000,)), "data": fr.VarLen("bytes")}
    ds = open_dataset(path, features=spec)
    first = ds[0]
    first["x"][:] = 7  # writable, and nobody else's
    assert not ds[0]["x"].any()
    gc.collect()
    tracemalloc.start()
    kept = [ds[i]["x"][:1].copy() for i in range(400)]
    assert tracemalloc.get_traced_memory()[0] < 400 * 1000
    tracemalloc.stop()
    assert len(kept) == 400


# Indices.


def test_indices_are_checked_like_those_of_a_sequence(write: Write) -> None:
    path = write(tfrecord_file([example({b"n": ("int64", [n])}) for n in range(5)]))
    ds = open_dataset(path, features={"n": fr.FixedLen((), "int64")})
    for _ in range(2):  # also without the core's reader of rows
        for index in (0, 4, -1, -5, np.int64(3), np.uint8(2), np.array(1)):
            assert ds[index]["n"] == range(5)[int(index)]
        for index in (5, -6, 2**63, -(2**63) - 1, 2**70, np.uint64(2**64 - 1)):
            with pytest.raises(
                IndexError, match=f"record {int(index)} is out of range"
            ):
                ds[index]
        for index in (True, 1.0, None, "n"):
            with pytest.raises((TypeError, IndexError)):
                ds[index]
    view = ds.select([3, 3, 0])
    assert [view[i]["n"] for i in (0, 1, 2, -1)] == [3, 3, 0, 0]


# Errors.


def test_errors_name_file_record_and_feature(write: Write) -> None:
    good, bad = example({b"n": ("int64", [1])}), example({b"n": ("float", [1.0])})
    data = bytearray(tfrecord_file([good, bad, good, good]))
    data[-6] ^= 1  # in the payload of the last record
    path = write(bytes(data))
    for on_error in ("raise", "skip", "mask"):
        spec = {"n": fr.FixedLen((), "int64")}
        ds = open_dataset(path, features=spec, on_error=on_error)
        assert ds[0]["n"] == ds[2]["n"] == 1
        for index, kind, feature in (
            (1, fr.SchemaError, "n"),
            (3, fr.CorruptionError, None),
        ):
            with pytest.raises(kind) as single:
                ds[index]
            with pytest.raises(kind) as batch:
                ds[[index]]
            assert str(single.value) == str(batch.value)
            assert single.value.hint == batch.value.hint
            assert single.value.path == str(path)
            assert (single.value.record, single.value.feature) == (index, feature)
        assert ds[0]["n"] == 1  # the reader works after an error


def test_a_padded_row_above_the_limit_names_its_feature(write: Write) -> None:
    path = write(tfrecord_file([example({b"n": ("int64", [1, 2])})] * 2))
    ds = open_dataset(
        path,
        features={"n": fr.FixedLenSequence((), "int64", length=1000)},
        limits=fr.Limits(max_padded_bytes=500),
    )
    for index in (1, slice(1, 2)):
        with pytest.raises(fr.LimitError, match="padding 1 rows to 1000") as caught:
            ds[index]
        assert (caught.value.record, caught.value.feature) == (1, "n")


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    records = [example({b"n": ("int64", [n] * 50)}) for n in range(200)]
    path.write_bytes(tfrecord_file(records))
    ds = open_dataset(path, features={"n": fr.FixedLen((50,), "int64")})
    assert ds[199]["n"][0] == 199
    os.truncate(path, len(tfrecord_file(records[:100])))
    with pytest.raises(fr.Error, match=r"a\.tfrecord"):
        ds[199]


# What a row depends on besides its record.


def test_transforms_images_and_mixes_see_their_batch(write: Write) -> None:
    path = write(tfrecord_file([example({b"n": ("int64", [n])}) for n in range(4)]))
    ds = open_dataset(path, features={"n": fr.FixedLen((), "int64")})
    assert ds[1]["n"] == 1
    doubled = ds.with_transform(lambda batch: {"m": batch["n"] * 2})
    assert [dict(doubled[i]) for i in (1, 2)] == [{"m": 2}, {"m": 4}]
    joined = fr.concat([ds, doubled.with_transform(lambda batch: {"n": batch["m"]})])
    assert [joined[i]["n"] for i in (1, 2, 5, 6)] == [1, 2, 2, 4]
    mixed = fr.mix({"a": (ds, 1.0), "b": (ds, 1.0)}, seed=0)
    for i in (0, 1, 2):
        assert_equal_rows(mixed[i], row_by_index(mixed[i : i + 1], 0))
    empty = ds.with_transform(lambda batch: {"n": batch["n"][:0]})
    for _ in range(2):
        with pytest.raises(ValueError, match="returned no row for record 2"):
            empty[2]


def test_datasets_with_several_schemas_read_each_file_with_its_own(
    write: Write,
) -> None:
    path = write(tfrecord_file([example({b"n": ("int64", [5])})] * 2))
    int32 = {"n": fr.FixedLen((), "int64"), "m": fr.FixedLen((), "int64", key="n")}
    other = {"m": fr.FixedLen((), "int64", default=3), "n": fr.FixedLen((), "int64")}
    ds = fr.concat(
        [open_dataset(path, features=int32), open_dataset(path, features=other)]
    )
    for i in (0, 1, 2, 3, 3, 0):
        assert list(ds[i].items()) == [("n", 5), ("m", 5 if i < 2 else 3)]


def test_missing_features_are_reported_once(write: Write) -> None:
    records = [example({b"lable": ("int64", [n])}) for n in range(1100)]
    spec = {"label": fr.FixedLen((), "int64", default=-1)}
    ds = open_dataset(write(tfrecord_file(records)), features=spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(999):
            assert ds[i]["label"] == -1
    with pytest.warns(fr.MissingFeatureWarning, match="did you mean 'lable'") as caught:
        ds[999]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(1000, 1100):
            ds[i]


# Threads and processes.


def test_threads_share_a_dataset_and_a_schema(write: Write) -> None:
    sizes = [10, 20_000, 300, 100_000, 5]
    records = [large_record(n, sizes[n % len(sizes)]) for n in range(40)]
    ds = open_dataset(write(tfrecord_file(records)), features=LARGE)
    wanted = [row_by_index(ds[i : i + 1], 0) for i in range(len(records))]

    def read(seed: int) -> int:
        rng = random.Random(seed)
        for _ in range(300):
            i = rng.randrange(len(records))
            assert_equal_rows(ds[i], wanted[i])
            assert_equal_rows(tf_io.parse_single_example(records[i], LARGE), wanted[i])
        return seed

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(read, range(6))) == list(range(6))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_reads_rows(write: Write) -> None:
    records = [large_record(n, 100 + 20_000 * (n % 2)) for n in range(6)]
    ds = open_dataset(write(tfrecord_file(records)), features=LARGE)
    wanted = [ds[i] for i in range(6)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for i in range(6):
                assert_equal_rows(ds[i], wanted[i])
                assert_equal_rows(
                    tf_io.parse_single_example(records[i], LARGE), wanted[i]
                )
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert_equal_rows(ds[5], wanted[5])


# Rows of any batch.


class Indexed:
    """A column of an unknown class."""

    shape = (3,)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> str:
        return "abc"[i]


def columns() -> dict[str, Any]:
    numbers = np.arange(24).reshape(3, 8)
    strings = fr.BytesArray.from_list([["a", ""], ["bc", "d"], ["", "efg"]])
    ragged = fr.RaggedArray.from_list([[1, 2], [], [3]])
    objects = np.empty(3, object)
    objects[:] = [numbers, b"x", None]
    record = np.zeros(3, [("a", "i4"), ("b", "f8")])
    record["a"] = [1, 2, 3]
    return {
        "scalars": np.arange(3, dtype=np.int16),
        "rows": numbers,
        "strided": numbers[:, ::2],
        "transposed": np.asfortranarray(numbers),
        "swapped": np.arange(3).astype(">i4"),
        "unaligned": np.frombuffer(b"\0" + bytes(range(24)), np.int64, 3, 1),
        "dates": np.array(["2020-01-01", "NaT", "2021-01-01"], "M8[D]"),
        "text": np.array(["a", "bc", ""]),
        "raw": np.array([b"a", b"bc", b""]),
        "void": np.zeros(3, "V3"),
        "structured": record,
        "objects": objects,
        "empty": np.zeros((3, 0), np.float32),
        "masked": np.ma.masked_array(numbers, numbers % 2 == 1),
        "bool": np.array([True, False, True]),
        "complex": np.arange(3) * 1j,
        "half": np.arange(3, dtype=np.float16),
        "strings": strings,
        "tail": fr.BytesArray.from_list(["??", "a", "bc", "def"])[1:],
        "ragged": ragged,
        "ragged32": fr.RaggedArray(ragged.values, ragged.row_splits.astype(np.int32)),
        "ragged strings": fr.RaggedArray(strings, [0, 2, 2, 3]),
        "ragged tail": fr.RaggedArray.from_list([[9], [1, 2], [], [3]])[1:],
        "nested": fr.RaggedArray.from_list([[[1], [2, 3]], [], [[4]]]),
        "sparse": fr.SparseArray([[0, 1], [2, 0]], np.array([5, 6]), (3, 2)),
        "unknown": Indexed(),
    }


@pytest.mark.parametrize("name", columns())
def test_a_row_of_any_column_is_a_copy(name: str) -> None:
    column = columns()[name]
    rows = _core.BatchRows({"before": np.arange(3), name: column})
    for i in range(3):
        row: Untyped = rows.row(i)
        wanted = {"before": np.arange(3)[i], name: column[i]}
        if isinstance(wanted[name], np.ndarray) and name == "transposed":
            wanted[name] = wanted[name].copy()
        assert_equal_rows(row, wanted)
        if isinstance(row[name], np.ndarray):
            memory = getattr(column, "values", column)  # of a RaggedArray
            assert not np.shares_memory(row[name], np.asarray(memory))
    for i in (3, -4):
        with pytest.raises(IndexError):
            rows.row(i)


def test_offsets_that_were_overwritten_are_not_followed() -> None:
    for bad in ([0, 9, 3], [-1, 1, 3], [0, 2, 400], [2, 1, 3]):
        strings = fr.BytesArray.from_list(["ab", "c"])
        ragged = fr.RaggedArray.from_list([[1, 2], [3]])
        strings.offsets[:] = bad
        np.asarray(ragged.row_splits)[:] = bad
        for column in (strings, ragged):
            rows = _core.BatchRows({"x": column})
            for i in (0, 1):
                row: Untyped = rows.row(i)["x"]  # what Python's slices return
                assert len(row) <= 3


def test_compressed_files_are_read_row_by_row_in_sequence(write: Write) -> None:
    records = [example({b"n": ("int64", [n])}) for n in range(150)]
    path = write(gzip.compress(b"".join(map(frame, records))))
    ds = open_dataset(path, features={"n": fr.FixedLen((), "int64")})
    assert [row["n"] for row in ds] == list(range(150))
    with pytest.raises(ValueError, match="requires random access"):
        ds[0]
