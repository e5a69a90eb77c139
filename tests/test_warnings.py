"""Warnings point at the line of the caller.

Goal
    Each warning names the file and line that called the library, at any depth of the
    call inside the library.
Method
    The public API is called from this file, by ways of different depth.
"""

from __future__ import annotations

import gzip
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from fastrec import convert

HUGE = np.array([1e300, 1.0])


def assert_warns_inside(
    call: Callable[..., object], text: str, *given: Untyped
) -> None:
    """Call a function of this file, which must warn once at one of its lines."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*given)
    lines, first = inspect.getsourcelines(call)
    assert [text in str(warning.message) for warning in caught] == [True]
    assert caught[0].filename == __file__
    assert first <= caught[0].lineno < first + len(lines)


def by_write(path: Path) -> None:
    fr.write(path, {"n": HUGE})


def by_writer(path: Path) -> None:
    with fr.Writer(path) as writer:
        writer.write({"n": HUGE})


def by_columns(path: Path) -> None:
    with fr.Writer(path) as writer:
        writer.write_batch({"n": HUGE})


def by_encoding(_: Path) -> None:
    fr.encode_example({"n": HUGE})


def by_converting(path: Path) -> None:
    pytest.importorskip("pyarrow")
    path.with_suffix(".csv").write_text(f"n\n{HUGE[0]}\n")
    convert.write_tfrecords(path.with_suffix(".csv"), path)


@pytest.mark.parametrize(
    "call", [by_write, by_writer, by_columns, by_encoding, by_converting]
)
def test_a_float_outside_of_float32(
    tmp_path: Path, call: Callable[[Path], None]
) -> None:
    assert_warns_inside(call, "outside of float32", tmp_path / "a.tfrecord")


def by_ranks(ds: fr.Dataset) -> None:
    ds.loader(4, rank=0, world_size=2)


def test_compressed_files_that_ranks_share(tmp_path: Path) -> None:
    fr.write(tmp_path / "a.tfrecord", {"n": np.arange(40)})
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress((tmp_path / "a.tfrecord").read_bytes()))
    ds = fr.open(path, features={"n": fr.FixedLen((), "int64")})
    assert_warns_inside(by_ranks, "cannot be divided evenly", ds)


def by_threads(ds: fr.Dataset, num_threads: int) -> None:
    for _ in ds.loader(8, num_threads=num_threads, memory_limit=1):
        pass


def test_a_batch_beyond_the_memory_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    fr.write(path, {"n": np.arange(40)})
    ds = fr.open(path, features={"n": fr.FixedLen((), "int64")})
    for num_threads in (0, 2):
        assert_warns_inside(by_threads, "memory_limit", ds, num_threads)
