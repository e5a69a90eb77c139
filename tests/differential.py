"""fastrec against TensorFlow and protobuf, on as many generated records as are wanted.

    python tests/differential.py --cases 2000000 --seed 0

Every record is read by fastrec and by TensorFlow under the same specs. Either both
refuse it, or both have the same columns, or the record has one of the differences that
docs/semantics.md lists. Every record also goes through protobuf: what it makes of the
record, written again in the plain way, must mean the same to fastrec, and to TensorFlow.

A case is one record under one set of specs whose outcome was compared with
TensorFlow's; a batch that was compared as a whole counts as one more.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 (NumPy knows bfloat16 once this is imported)
import numpy as np
from google.protobuf.message import DecodeError

import fastrec as fr
from differential_cases import (
    FORMS,
    Form,
    Spec,
    random_record,
    random_sequence_specs,
    random_specs,
)
from differential_model import DIFFERENCES, allows, find_differences
from differential_tf import Crash, Tensorflow, frozen_array, frozen_strings
from oracle_protobuf import example_class, sequence_class

__all__ = ["Comparison", "Disagreement"]

DTYPES = {"int64": "int64", "float": "float32", "bytes": "bytes"}
REFUSED = (fr.DecodeError, fr.SchemaError)


class Disagreement(AssertionError):
    """fastrec differs, and nothing that is listed explains it."""


# fastrec's side.


def fastrec_feature(spec: Spec) -> Any:  # noqa: ANN401
    dtype = DTYPES[spec.kind]
    if spec.form == "fixed":
        return fr.FixedLen(spec.shape, dtype, spec.default)
    if spec.form == "sequence":
        return fr.FixedLenSequence(
            spec.shape, dtype, spec.default, allow_missing=spec.allow_missing
        )
    if spec.form == "var":
        return fr.VarLen(dtype)
    if spec.form == "ragged":
        parts = [getattr(fr.Ragged, kind)(value) for kind, value in spec.partitions]
        return fr.Ragged(dtype, parts, spec.splits, key=spec.keys[0])
    if spec.form == "sparse":
        return fr.Sparse(
            spec.keys[1:], spec.keys[0], dtype, spec.shape, spec.already_sorted
        )
    if spec.form == "raw":
        return fr.Raw(spec.shape, spec.dtype, spec.little_endian)
    if spec.form == "stack":
        return fr.Stack(spec.keys, dtype, spec.default)
    if spec.shape is None:
        return fr.TensorProto()
    return fr.TensorProto(spec.shape, "bytes" if spec.dtype == "string" else spec.dtype)


def frozen(column: Any, form: str) -> Any:  # noqa: ANN401
    """A column as plain values that compare bit for bit."""
    if form == "var":
        if isinstance(column, fr.RaggedArray):
            column = column.to_sparse()
        else:
            indices = [[i] for i in range(len(column))]
            return "sparse", indices, frozen(column, ""), (len(column),)
    if isinstance(column, fr.SparseArray):
        indices = np.asarray(column.indices).tolist()
        shape = tuple(int(size) for size in column.dense_shape)
        return "sparse", indices, frozen(column.values, ""), shape
    if isinstance(column, fr.RaggedArray):
        splits = frozen_array(np.asarray(column.row_splits))
        return "ragged", splits, frozen(column.values, "")
    if isinstance(column, bytes):
        return frozen_strings((), column)
    if isinstance(column, fr.BytesArray):
        return frozen_strings(column.shape, column.tolist())
    if isinstance(column, np.ndarray) and column.dtype == object:
        return "tensors", [frozen(tensor, "") for tensor in column]
    return frozen_array(column)


class Ours:
    """fastrec, with one set of specs."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = specs
        self.parts: list[dict[str, Any]] = [{}, {}]
        for spec in specs:
            self.parts[spec.section == "lists"][spec.name] = fastrec_feature(spec)

    def outcome(self, mode: str, group: Any) -> Any:  # noqa: ANN401
        """Columns, or None where refused."""
        context, lists = self.parts
        try:
            found: Any
            if mode == "batch":
                found = (fr.parse_example(group, context),)
            elif mode == "single":
                found = (fr.parse_single_example(group, context),)
            elif mode == "sequence":
                found = fr.parse_sequence_example(group, context, lists)
            else:
                found = fr.parse_single_sequence_example(group, context, lists)
        except REFUSED:
            return None
        columns = [
            frozen(found[spec.section == "lists"][spec.name], spec.form)
            for spec in self.specs
        ]
        if mode == "sequence":
            columns += [
                frozen_array(found[2][spec.name])
                for spec in self.specs
                if spec.section == "lists" and spec.form == "sequence"
            ]
        return columns


def rewritten(record: bytes, *, is_sequence: bool) -> bytes | None:
    """What protobuf reads in a record, written in its own way; None where it refuses."""
    message = sequence_class() if is_sequence else example_class()
    try:
        parsed = message.FromString(record)
    except DecodeError:
        return None
    parsed.DiscardUnknownFields()
    written: bytes = parsed.SerializeToString(deterministic=True)
    return written


# The comparison.

# TensorFlow is shown what may crash it so many times for each difference.
MOST_CRASHES = 10
BATCH = 32


class Unit(NamedTuple):
    """Records for one set of specs."""

    specs: list[Spec]
    records: list[bytes]
    is_sequence: bool
    is_single: bool  # alone, a record is parsed as one and not as a batch of one


class Comparison:
    """Compares, and counts what was compared."""

    def __init__(self, most_crashes: int = MOST_CRASHES) -> None:
        self.tensorflow = Tensorflow()
        self.most_crashes = most_crashes
        self.counts: Counter[str] = Counter()
        self.differences: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.narrower: Counter[str] = Counter()
        self._n_units = 0

    @property
    def n_cases(self) -> int:
        """Records and batches compared with TensorFlow."""
        return self.counts["records"] + self.counts["batches"]

    def close(self) -> None:
        self.tensorflow.close()

    def compare(self, unit: Unit) -> None:
        """Compare each record, and those without differences in batches."""
        self._n_units += 1
        if self._n_units % 50 == 0:  # functions of TensorFlow are never freed
            self.tensorflow.renew()
        ours = Ours(unit.specs)
        whole = "sequence" if unit.is_sequence else "batch"
        alone = f"single{' sequence' * unit.is_sequence}" if unit.is_single else whole
        together: list[bytes] = []
        apart: list[tuple[bytes, set[str], Any]] = []
        plain: list[bytes] = []
        for record in unit.records:
            group = record if unit.is_single else [record]
            outcome = ours.outcome(alone, group)
            found, narrower = find_differences(
                record, unit.specs, is_sequence=unit.is_sequence
            )
            again = self.by_protobuf(unit, ours, alone, record, outcome, narrower)
            if again is not None and again != record and outcome is not None:
                plain.append(again)
            self.count_forms(unit, outcome)
            if outcome is None or found - {"ragged", "tensor", "sparse"}:
                apart.append((record, found, outcome))
            else:
                together.append(record)
        for i in range(0, len(together), BATCH):
            batch = together[i : i + BATCH]
            if self.compare_batch(unit, ours, whole, batch):
                self.counts["records"] += len(batch)
                continue
            for record in batch:
                group = record if unit.is_single else [record]
                found, _ = find_differences(
                    record, unit.specs, is_sequence=unit.is_sequence
                )
                apart.append((record, found, ours.outcome(alone, group)))
        self.compare_alone(unit, ours, alone, apart)
        for i in range(0, len(plain), BATCH):
            batch = plain[i : i + BATCH]
            if not self.compare_batch(unit, ours, whole, batch):
                for record in batch:
                    found, _ = find_differences(
                        record, unit.specs, is_sequence=unit.is_sequence
                    )
                    group = record if unit.is_single else [record]
                    outcome = ours.outcome(alone, group)
                    self.compare_alone(unit, ours, alone, [(record, found, outcome)])
                continue
            self.counts["records as protobuf has them"] += len(batch)

    def count_forms(self, unit: Unit, outcome: Any) -> None:  # noqa: ANN401
        self.counts["refused by fastrec"] += outcome is None
        for spec in unit.specs:
            part = "" if spec.section == "features" else f" ({spec.section})"
            self.counts[f"{spec.form}{part}"] += 1

    def by_protobuf(
        self,
        unit: Unit,
        ours: Ours,
        alone: str,
        record: bytes,
        outcome: Any,  # noqa: ANN401
        narrower: set[str],
    ) -> bytes | None:
        """Compare with protobuf, and return the record as it writes it."""
        again = rewritten(record, is_sequence=unit.is_sequence)
        self.counts["records compared with protobuf"] += 1
        if again is None:
            if outcome is not None:
                reasons = narrower & {"long", "key", "unasked", "depth"}
                if not reasons:
                    self.fail(unit, alone, record, outcome, "protobuf refuses it")
                self.narrower.update(reasons)
            return None
        wanted = outcome
        if again != record:
            group = again if unit.is_single else [again]
            wanted = ours.outcome(alone, group)
        if outcome != wanted:
            reasons = narrower & {"unknown in entry", "zero in group"}
            if not reasons:
                self.fail(unit, alone, record, outcome, f"protobuf: {wanted}")
            self.narrower.update(reasons)
            return None
        return again

    def compare_batch(
        self, unit: Unit, ours: Ours, mode: str, batch: list[bytes]
    ) -> bool:
        wanted = ours.outcome(mode, batch)
        (outcome,) = self.tensorflow.run(unit.specs, mode, [batch])
        self.counts["batches"] += 1
        if isinstance(outcome, Crash) or outcome is None or wanted is None:
            return False
        return bool(outcome == wanted)

    def compare_alone(
        self,
        unit: Unit,
        ours: Ours,
        mode: str,
        apart: list[tuple[bytes, set[str], Any]],
    ) -> None:
        calm = []
        for record, found, outcome in apart:
            crashing = [name for name in found if DIFFERENCES[name].crashes]
            if not crashing:
                calm.append((record, found, outcome))
            elif all(self.crashes[f"tried: {n}"] < self.most_crashes for n in crashing):
                self.crashes.update(f"tried: {name}" for name in crashing)
                self.show(unit, mode, [(record, found, outcome)])
                self.tensorflow.renew()  # its memory may be damaged
            else:
                self.counts["not shown to TensorFlow, which it may crash"] += 1
        self.show(unit, mode, calm)

    def show(
        self, unit: Unit, mode: str, apart: list[tuple[bytes, set[str], Any]]
    ) -> None:
        """Compare records one by one."""
        groups = [
            record if unit.is_single else [record] for record, _, _ in apart
        ]
        outcomes = self.tensorflow.run(unit.specs, mode, groups)
        for (record, found, ours), theirs in zip(apart, outcomes, strict=True):
            self.counts["records"] += 1
            if isinstance(theirs, Crash):
                reasons = [name for name in found if DIFFERENCES[name].crashes]
                if not reasons:
                    self.fail(unit, mode, record, ours, theirs)
                self.crashes.update(f"{name}: {theirs.signal}" for name in reasons)
                continue
            self.counts["refused by TensorFlow"] += theirs is None
            self.counts["refused by both"] += theirs is None and ours is None
            if theirs == ours:
                continue
            reasons = [name for name in found if allows(name, ours, theirs)]
            if not reasons:
                self.fail(unit, mode, record, ours, theirs)
            self.counts["records that differ"] += 1
            self.differences.update(reasons)

    def fail(
        self, unit: Unit, mode: str, record: bytes, ours: Any, theirs: Any  # noqa: ANN401
    ) -> None:
        found = find_differences(record, unit.specs, is_sequence=unit.is_sequence)
        raise Disagreement(
            f"\nspecs   {unit.specs}\nmode    {mode}\nrecord  {record!r}\n"
            f"fastrec {ours}\nother   {theirs}\nfound   {found}"
        )


def random_unit(
    rng: random.Random, form: Form, n_records: int, *, is_sequence: bool
) -> Unit:
    specs = (random_sequence_specs if is_sequence else random_specs)(rng)
    records = [
        random_record(rng, specs, form, is_sequence=is_sequence)
        for _ in range(n_records)
    ]
    return Unit(specs, records, is_sequence, rng.random() < 0.5)


def report(comparison: Comparison, seconds: float) -> str:
    lines = [f"{comparison.n_cases} cases in {seconds:.0f} s"]
    for title, counts in (
        ("counts", comparison.counts),
        ("differences", comparison.differences),
        ("crashes of TensorFlow", comparison.crashes),
        ("protobuf is narrower", comparison.narrower),
    ):
        lines += [f"{title}:", *(f"{n:10} {name}" for name, n in counts.most_common())]
    return "\n".join(lines)


def main() -> None:
    """Compare the cases that a seed makes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=int, default=1000, help="for one set of specs")
    parser.add_argument("--keep-going", action="store_true", help="list all failures")
    options = parser.parse_args()
    comparison = Comparison()
    begin = last = time.monotonic()
    n_failures = 0
    n_units = 0
    while comparison.n_cases < options.cases:
        rng = random.Random(f"{options.seed} {n_units}")
        unit = random_unit(
            rng,
            FORMS[n_units % 3],
            options.records,
            is_sequence=n_units % 10 >= 7,
        )
        n_units += 1
        try:
            comparison.compare(unit)
        except Disagreement as found:
            n_failures += 1
            sys.stdout.write(f"unit {n_units - 1}{found}\n")
            if not options.keep_going:
                raise
        if time.monotonic() - last > 60:
            last = time.monotonic()
            sys.stdout.write(f"{report(comparison, last - begin)}\n")
            sys.stdout.flush()
    comparison.close()
    sys.stdout.write(f"{n_units} sets of specs, {n_failures} failures\n")
    sys.stdout.write(f"{report(comparison, time.monotonic() - begin)}\n")


if __name__ == "__main__":
    main()
