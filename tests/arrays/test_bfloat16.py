"""bfloat16 columns: float lists that are rounded during decoding.

Goal
    Every numeric spec reads float lists as bfloat16, rounded to nearest, ties to even,
    like ml_dtypes; raw memory and tensors are read bit for bit.
Method
    Floats next to every rounding boundary, NaNs and infinities, compared with ml_dtypes
    bit for bit. Skipped without ml_dtypes.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from children import run_python
from columns import Untyped
from fastrec.compat import tf_io
from oracle import example

ml_dtypes: Any = pytest.importorskip("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
dtypes = pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, BFLOAT16])


def floats() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return floats next to the ties of every exponent, with both signs; no NaNs."""
    upper = np.arange(0, 0x7F80, 37, dtype=np.uint32) << 16
    bits = (upper[:, None] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])).ravel()
    both = np.concatenate([bits, bits | 0x80000000, [0x7F800000, 0xFF800000]])
    found: np.ndarray[Any, np.dtype[np.float32]] = both.astype(np.uint32).view("f4")
    return found


def parse(values: Untyped, spec: Untyped) -> Untyped:
    stored = [np.float32(value).tobytes() for value in values]
    record = example({b"a": ("float", stored)})
    return fr.parse_example([record], {"a": spec})["a"]


def same_bits(got: Untyped, want: Untyped) -> bool:
    got, want = np.asarray(got), np.asarray(want)
    is_bfloat16 = got.dtype == want.dtype == BFLOAT16
    return bool(is_bfloat16 and got.tobytes() == want.tobytes())


@dtypes
def test_floats_are_rounded_as_ml_dtypes_rounds_them(dtype: Untyped) -> None:
    values = floats()
    want = values.astype(BFLOAT16)
    assert (want.astype("f4") != values).any()
    got = parse(values, fr.FixedLen((len(values),), dtype))
    assert got.shape == (1, len(values))
    assert same_bits(got[0], want)
    assert same_bits(parse(values, fr.VarLen(dtype)).values, want)
    assert same_bits(parse(values, fr.Ragged(dtype)).values, want)
    assert same_bits(parse(values, fr.FixedLenSequence((), dtype))[0], want)


def test_nan_stays_nan_and_quiet() -> None:
    stored = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000], "u4").view("f4")
    record = example({b"a": ("float", [v.tobytes() for v in stored])})
    (got,) = fr.parse_example([record], {"a": fr.FixedLen((3,), "bfloat16")})["a"]
    assert np.isnan(got).all()
    assert (got.view("u2") & 0x0040).all()


def test_defaults_padding_and_rows() -> None:
    records = [example({b"a": ("float", [1.5])}), example({})]
    spec: Untyped = {
        "a": fr.FixedLen((), "bfloat16", default=0.1),
        "stack": fr.Stack(["a", "b"], "bfloat16", default=3.0),
        "padded": fr.FixedLenSequence((), "bfloat16", default=-1.0, key="a"),
    }
    batch = fr.parse_example(records, spec)
    assert same_bits(batch["a"], np.array([1.5, 0.1], BFLOAT16))
    assert same_bits(batch["stack"], np.array([[1.5, 3], [3, 3]], BFLOAT16))
    assert same_bits(batch["padded"], np.array([[1.5], [-1]], BFLOAT16))
    assert same_bits(
        tf_io.parse_single_example(records[0], spec)["a"], BFLOAT16.type(1.5)
    )


@pytest.mark.parametrize("little_endian", [True, False])
def test_raw_memory_is_read_unchanged(little_endian: bool) -> None:
    want = np.array([1.5, -0.1, 3e38, np.nan], BFLOAT16).reshape(2, 2)
    stored = want.tobytes() if little_endian else want.view("u2").byteswap().tobytes()
    spec = fr.Raw((2, 2), BFLOAT16, little_endian)
    assert spec.dtype == "bfloat16"
    record = example({b"a": ("bytes", [stored])})
    assert same_bits(fr.parse_example([record], {"a": spec})["a"][0], want)


def test_specs_are_immutable_and_pickle() -> None:
    spec = fr.FixedLen((), ml_dtypes.bfloat16, default=1.0)
    assert repr(spec) == "FixedLen((), 'bfloat16', default=1.0)"
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert {spec: 1}[fr.FixedLen((), "bfloat16", default=1.0)] == 1


def test_an_int_list_is_an_error() -> None:
    record = example({b"a": ("int64", [1])})
    with pytest.raises(fr.SchemaError, match="int64"):
        fr.parse_example([record], {"a": fr.FixedLen((), "bfloat16")})


def test_the_dtype_name_requires_no_import_of_ml_dtypes() -> None:
    """The caller need not import ml_dtypes; without it, the error names it."""
    program = """
import sys
import fastrec as fr
assert "ml_dtypes" not in sys.modules
print(fr.FixedLen((), "bfloat16"))
sys.modules.pop("ml_dtypes")
sys.modules["ml_dtypes"] = None
try:
    fr.FixedLen((), "bfloat16")
except fr.SchemaError as error:
    print(error)
"""
    ran = run_python(program)
    assert ran.stdout.splitlines() == [
        "FixedLen((), 'bfloat16')",
        "dtype 'bfloat16' requires ml_dtypes: pip install ml_dtypes",
    ]
