"""Instruction sets: the one in use changes how fast a record is read, and nothing else.

Goal
    Whatever FASTREC_ISA says, batches hold the same values, and what is refused is
    refused with the same words.
Method
    Packed lists of many lengths and mixtures of values, whole and damaged, read by one
    process per instruction set; the values that went in, and the outcomes of all
    processes beside each other.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import fastrec as fr
from children import run_python
from fastrec import _core
from oracle_example import delimited, entry, varint

# Reads lists of integers as columns of every kind, from records in a file of JSON.
READER = """
import json, sys
import fastrec as fr

outcomes = []
for record, n in json.load(open(sys.argv[1])):
    for dtype in ("int64", "int32", "uint64", "uint32", "int16", "uint8", "bool"):
        for spec in (fr.VarLen(dtype), fr.FixedLen((n,), dtype)):
            try:
                batch = fr.parse_example([bytes.fromhex(record)], {"a": spec})
            except (fr.DecodeError, fr.SchemaError) as error:
                outcomes.append(f"{type(error).__name__}: {error}")
            else:
                column = batch["a"]
                values = getattr(column, "values", column)
                assert values.dtype == dtype
                outcomes.append(values.ravel().tolist())
json.dump(outcomes, sys.stdout)
"""

MIXTURES: dict[str, Callable[[random.Random], int]] = {
    "small": lambda rng: rng.randrange(2),
    "one byte": lambda rng: rng.randrange(128),
    "tokens": lambda rng: rng.randrange(32_000),
    "logarithmic": lambda rng: int(2 ** rng.uniform(0, 31)),
    "ids": lambda rng: rng.randrange(2**40),
    "any": lambda rng: rng.randrange(-(2**63), 2**63),
    "tokens and -1": lambda rng: rng.choice([-1, *[rng.randrange(32_000)] * 4]),
    "around int32": lambda rng: rng.choice([-(2**31), 2**31 - 1] * 40 + [2**31]),
}


def record_of(packed: bytes) -> bytes:
    return delimited(1, entry(b"a", delimited(3, delimited(1, packed))))


def cases() -> list[tuple[list[int] | None, bytes, int]]:
    """Values, unless their bytes are damaged; the record; and how many there are."""
    rng = random.Random(0)
    found: list[tuple[list[int] | None, bytes, int]] = []
    for value_of in MIXTURES.values():
        for n in (0, 1, 7, 12, 33, 64, 65, 200, 1024):
            values = [value_of(rng) for _ in range(n)]
            packed = b"".join(varint(value) for value in values)
            found.append((values, record_of(packed), n))
            if not packed:
                continue
            damaged = bytearray(packed)
            at = rng.randrange(len(damaged))
            damaged[at : at + 11] = b"\x80" * len(damaged[at : at + 11])
            found.append((None, record_of(bytes(damaged)), n))
            found.append((None, record_of(packed[:at]), n))
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """What a process says of all cases, by its instruction set."""
    path = tmp_path_factory.mktemp("isa") / "records.json"
    path.write_text(json.dumps([(record.hex(), n) for _, record, n in cases()]))
    return {isa: read_with(isa, path) for isa in _core.isas()}


def read_with(isa: str, path: Path) -> list[object]:
    done = run_python(READER, os.fspath(path), env={**os.environ, "FASTREC_ISA": isa})
    found: list[object] = json.loads(done.stdout)
    return found


def test_every_instruction_set_reads_and_refuses_the_same(
    outcomes: dict[str, list[object]],
) -> None:
    portable = outcomes["portable"]
    for isa, found in outcomes.items():
        assert len(found) == len(portable)
        for i, (one, other) in enumerate(zip(found, portable, strict=True)):
            assert one == other, f"{isa}, outcome {i}"


def test_every_instruction_set_reads_what_was_written(
    outcomes: dict[str, list[object]],
) -> None:
    known = cases()
    for found in outcomes.values():
        n_outcomes = len(found) // len(known)
        for i, (values, _, _) in enumerate(known):
            if values is not None:
                assert found[i * n_outcomes] == values  # VarLen("int64")


def test_an_integer_that_does_not_fit_is_refused_by_name() -> None:
    values = [5] * 100 + [2**31] + [-1] * 100
    record = fr.encode_example({"a": values})
    for spec in (fr.VarLen("int32"), fr.FixedLen((201,), "int32")):
        with pytest.raises(fr.SchemaError, match="2147483648, which is out of range"):
            fr.parse_example([record], {"a": spec})
