"""Generated records against TensorFlow and protobuf: the same, or a listed difference.

Goal
    Under specs of every kind, records that are valid, odd or malformed have TensorFlow's
    columns, or both refuse them; where the two differ, the record has a difference that
    docs/semantics.md lists. What protobuf reads in a record is what fastrec reads in it.
Method
    Hypothesis draws specs and records, at least 20,000 in a run; campaigns/differential.py
    compares them, with TensorFlow in a process that may die. Each difference also has
    an example that shows it. Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracle import example
from oracle_example import (
    delimited,
    entry,
    feature,
    fixed32,
    tag,
    varint,
    varint_field,
)

pytestmark = pytest.mark.oracle

pytest.importorskip("tensorflow", reason="TensorFlow")
pytest.importorskip("google.protobuf")

from campaigns.differential import Comparison, Disagreement, Ours, Unit, random_unit
from campaigns.differential_cases import (
    FORMS,
    Form,
    Spec,
    random_record,
    random_sequence_specs,
    random_specs,
)
from campaigns.differential_model import DIFFERENCES, NARROWER, allows, find_differences
from campaigns.differential_tf import Crash

LEAST_CASES = 20_000
RECORDS_OF_SEED = 25

seeds = st.integers(0, 2**32 - 1)
many = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
forms = pytest.mark.parametrize("form", FORMS)
messages = pytest.mark.parametrize("is_sequence", [False, True], ids=["", "sequence"])


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    found = Comparison()
    yield found
    found.close()


@pytest.fixture(scope="module")
def whole_tests() -> list[str]:
    """The tests of many records that have passed in this process."""
    return []


@forms
@messages
@pytest.mark.timeout(600)
def test_many_records_of_a_few_specs(
    comparison: Comparison, whole_tests: list[str], form: Form, is_sequence: bool
) -> None:
    @many
    @given(
        spec_seed=seeds,
        record_seeds=st.lists(seeds, min_size=6, max_size=8),
        is_single=st.booleans(),
    )
    def compare(spec_seed: int, record_seeds: list[int], is_single: bool) -> None:
        draw_specs = random_sequence_specs if is_sequence else random_specs
        specs = draw_specs(random.Random(spec_seed))
        records = [
            random_record(rng, specs, form, is_sequence=is_sequence)
            for seed in record_seeds
            for rng in [random.Random(seed)]
            for _ in range(RECORDS_OF_SEED)
        ]
        comparison.compare(Unit(specs, form, records, is_sequence, is_single))

    compare()
    whole_tests.append(f"{form} {is_sequence}")


@forms
@messages
@pytest.mark.timeout(600)
def test_records_that_shrink_to_their_bytes(
    comparison: Comparison, form: Form, is_sequence: bool
) -> None:
    @settings(many, max_examples=8)
    @given(rng=st.randoms(use_true_random=False))
    def compare(rng: random.Random) -> None:
        comparison.compare(random_unit(rng, form, 2, is_sequence=is_sequence))

    compare()


def test_the_run_has_compared_as_many_cases_as_it_says(
    comparison: Comparison,
    whole_tests: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if len(whole_tests) < 2 * len(FORMS):
        pytest.skip("counts what all tests above compare, some of which did not run")
    with capsys.disabled():
        sys.stdout.write(f" {comparison.n_cases} cases compared with TensorFlow ")
    assert comparison.n_cases >= LEAST_CASES
    assert comparison.counts["records compared with protobuf"] >= LEAST_CASES


# The list of differences.

DOCUMENT = Path(__file__).parents[2] / "docs" / "semantics.md"


@pytest.mark.parametrize(
    "row", [*(d.row for d in DIFFERENCES.values()), *NARROWER.values()]
)
def test_every_difference_that_is_excused_is_listed(row: str) -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(f"| {row} |") for line in lines), row


FIXED = Spec("fixed", "a", "int64", default=7)
PAIR = Spec("fixed", "a", "int64", shape=(2,))
VAR = Spec("var", "a", "int64")
WORD = Spec("fixed", "a", "bytes")
FLOATS = Spec("var", "a", "float")
TENSOR = Spec("tensor", "a", "bytes", shape=None, dtype="int32")
ONE = feature("int64", [1])
TWO_PIECES = delimited(1, b"\x01") + delimited(1, b"\x02")
ROWS = Spec("ragged", "a", "int64", keys=("v", "p"), partitions=(("RowLengths", "p"),))
SPLITS = ROWS._replace(partitions=(("RowSplits", "p"),))
SPARSE = Spec("sparse", "a", "int64", shape=(4,), keys=("v", "i"))
STEPS = Spec("sequence", "a", "int64", "lists")


def of(value: bytes, *more: bytes, key: bytes = b"a") -> bytes:
    """An Example whose feature has these bytes."""
    return delimited(1, b"".join([entry(key, value), *more]))


def tensor(dtype: int, *parts: bytes, shape: bytes = b"\x12\x02\x08\x01") -> bytes:
    """An Example that holds a TensorProto of one value."""
    message = varint_field(1, dtype) + delimited(2, shape) + b"".join(parts)
    return example({b"a": ("bytes", [message])})


EXAMPLES: dict[str, tuple[Spec, bytes]] = {
    "pieces": (VAR, of(delimited(3, TWO_PIECES))),
    "lists": (VAR, of(ONE + ONE)),
    "kinds": (VAR, of(feature("bytes", [b"x"]) + ONE)),
    "past": (VAR, example({b"a": ("int64", [1])}) + b"\x0a\x09"),
    "floats": (FLOATS, of(delimited(2, delimited(1, b"\0\0\x80?\0")))),
    "unknown": (VAR, of(fixed32(9) + ONE)),
    "entry": (VAR, delimited(1, delimited(1, delimited(1, b"a")))),
    "unset": (FIXED, of(ONE, entry(b"a", b""))),
    "tags": (VAR, b"\x8a\x00" + of(ONE)[1:]),
    "zero": (VAR, of(ONE) + b"\x02\x00"),
    "after": (VAR, of(ONE + b"\x0f")),
    "unasked": (VAR, of(fixed32(9), entry(b"a", ONE))),
    "sequence": (
        STEPS,
        delimited(
            2,
            delimited(1, delimited(2, delimited(1, ONE)) + delimited(1, b"a")),
        ),
    ),
    "ragged": (
        ROWS._replace(partitions=(("RowStarts", "p"),)),
        example({b"v": ("int64", [1])}),
    ),
    "sparse": (SPARSE, example({b"v": ("int64", [1]), b"i": ("int64", [9])})),
    "no splits": (SPLITS, example({})),
    "tensor": (TENSOR, tensor(3, delimited(7, b"\x01\x02"))),
    "tensor lists": (TENSOR, tensor(3, delimited(7, b"\x01"), delimited(14, b"\x0e"))),
    "tensor bool": (TENSOR, tensor(10, delimited(4, b"\x02"))),
    "tensor rank": (TENSOR, tensor(3, delimited(7, b"\x01"), shape=b"\x18\x01")),
    "tensor dtype": (TENSOR, tensor(11, delimited(4, b"\x01"))),
}


def outcomes(comparison: Comparison, spec: Spec, record: bytes) -> tuple[Any, Any]:
    """What fastrec and TensorFlow make of one record alone."""
    is_sequence = spec.section != "features"
    mode = "single sequence" if is_sequence else "single"
    (theirs,) = comparison.tensorflow.run([spec], mode, [record])
    return Ours([spec]).outcome(mode, record), theirs


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_difference_has_an_example(comparison: Comparison, name: str) -> None:
    spec, record = EXAMPLES[name]
    ours, theirs = outcomes(comparison, spec, record)
    assert ours != theirs
    found, _ = find_differences(record, [spec], is_sequence=spec.section != "features")
    assert name in found
    assert allows(name, ours, theirs)


CRASHES: dict[str, tuple[Spec, bytes]] = {
    "floats past shape": (
        Spec("fixed", "a", "float", shape=(1,)),
        of(delimited(2, fixed32(1, b"\0\0\x80?") * 100_000)),
    ),
    "huge": (WORD, of(delimited(1, tag(1, 2) + varint(2**32 - 1) + b"x"))),
    "sequence past": (
        Spec("var", "a", "bytes", "lists"),
        delimited(2, entry(b"a", delimited(1, delimited(1, b"\x0a\x7fx")))),
    ),
}


@pytest.mark.parametrize("name", CRASHES)
def test_what_crashes_tensorflow_is_an_error_here(
    comparison: Comparison, name: str
) -> None:
    spec, record = CRASHES[name]
    ours, theirs = outcomes(comparison, spec, record)
    comparison.tensorflow.renew()
    assert ours is None
    assert isinstance(theirs, Crash)
    found, _ = find_differences(record, [spec], is_sequence=spec.section != "features")
    assert name in found
    assert DIFFERENCES[name].crashes


def test_what_no_difference_explains_is_a_failure(comparison: Comparison) -> None:
    """The comparison itself: a wrong answer of ours is not excused."""
    unit = Unit([VAR], "odd", [example({b"a": ("int64", [1])})], False, True)
    right = Ours.outcome

    def wrong(self: Ours, mode: str, group: Any) -> Any:
        return right(self, mode, group) and [None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ours, "outcome", wrong)
        with pytest.raises(Disagreement):
            comparison.compare(unit)
