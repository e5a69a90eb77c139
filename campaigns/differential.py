"""Compare fastrec with TensorFlow and protobuf on generated records.

    python -m campaigns.differential --cases 2000000 --seed 0
    python -m campaigns.differential --seed 0 --unit 12     # one unit again

fastrec and TensorFlow read every record with the same specs. Either both reject it, or
both return the same columns, or the record has one of the differences that
docs/semantics.md lists. In addition, protobuf parses every record and writes it again
in canonical form; fastrec and TensorFlow must read the same from both forms.

A case is one record with one set of specs whose outcome was compared with TensorFlow's;
a batch that was compared as a whole counts as one more. A unit is some records for one
set of specs; slices.py adds up a campaign from slices of ten.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import ml_dtypes  # noqa: F401 (NumPy knows bfloat16 once this is imported)
import numpy as np
from google.protobuf.message import DecodeError

import fastrec as fr
from campaigns.differential_cases import (
    FORMS,
    Form,
    Spec,
    random_record,
    random_sequence_specs,
    random_specs,
)
from campaigns.differential_model import DIFFERENCES, allows, find_differences
from campaigns.differential_specs import fastrec_feature
from campaigns.differential_tf import Crash, Tensorflow, frozen_array, frozen_strings
from campaigns.slices import add_slices, finish, run_with
from fastrec.compat import tf_io, tf_train

REFUSED = (fr.DecodeError, fr.SchemaError)


class Disagreement(AssertionError):
    """fastrec differs, and no listed difference explains it."""


# fastrec's side.


def frozen(column: Any, form: str) -> Any:
    """Return a column as plain values that compare bit for bit."""
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
    """fastrec with one set of specs."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = specs
        self.parts: list[dict[str, Any]] = [{}, {}]
        for spec in specs:
            self.parts[spec.section == "lists"][spec.name] = fastrec_feature(spec)
        # Bound once, for the function that parses batches of Examples.
        self.schema: Any = fr.Schema(self.parts[0]) if self.parts[0] else None

    def outcome(self, mode: str, group: Any) -> Any:
        """Return the columns, or None if the records were rejected."""
        context, lists = self.parts
        found: Any
        try:
            if mode == "batch":
                found = (fr.parse_example(group, self.schema),)
            elif mode == "single":
                found = (tf_io.parse_single_example(group, self.schema),)
            elif mode == "sequence":
                found = fr.parse_sequence_example(group, context, lists)
            else:
                found = tf_io.parse_single_sequence_example(group, context, lists)
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
    """Return a record rewritten by protobuf, or None if protobuf rejects it."""
    message = tf_train.SequenceExample if is_sequence else tf_train.Example
    try:
        parsed = message.FromString(record)
    except DecodeError:
        return None
    parsed.DiscardUnknownFields()
    written: bytes = parsed.SerializeToString(deterministic=True)
    return written


# The comparison.

# How often TensorFlow reads records that may crash it, for each difference.
MOST_CRASHES = 10
BATCH = 32
# TensorFlow never frees its functions.
UNITS_OF_WORKER = 40


class Unit(NamedTuple):
    """Records for one set of specs."""

    specs: list[Spec]
    form: Form
    records: list[bytes]
    is_sequence: bool
    is_single: bool  # alone, a record is parsed as one and not as a batch of one


class Read:
    """A record, and whether fastrec reads it."""

    def __init__(self, unit: Unit, record: bytes, *, is_accepted: bool) -> None:
        self.unit = unit
        self.record = record
        self.is_accepted = is_accepted

    @cached_property
    def _differences(self) -> tuple[set[str], set[str]]:
        return find_differences(
            self.record, self.unit.specs, is_sequence=self.unit.is_sequence
        )

    @property
    def found(self) -> set[str]:
        """The differences that the record may show."""
        return self._differences[0]

    @property
    def narrower(self) -> set[str]:
        """The reasons for which protobuf may reject the record."""
        return self._differences[1]

    def is_plain(self) -> bool:
        """Whether TensorFlow must read the same as fastrec."""
        return self.is_accepted and not self.found

    def seems_plain(self) -> bool:
        """As `is_plain`, without analysing valid records."""
        return self.is_accepted and (self.unit.form == "valid" or not self.found)


class Run(NamedTuple):
    """A unit that is being compared."""

    unit: Unit
    ours: Ours

    @property
    def whole(self) -> str:
        """The parsing mode of batches."""
        return "sequence" if self.unit.is_sequence else "batch"

    @property
    def alone(self) -> str:
        """The parsing mode of single records."""
        if not self.unit.is_single:
            return self.whole
        return "single sequence" if self.unit.is_sequence else "single"

    def group(self, record: bytes) -> Any:
        return record if self.unit.is_single else [record]

    def outcome(self, record: bytes) -> Any:
        return self.ours.outcome(self.alone, self.group(record))

    def read(self, record: bytes, *, is_accepted: bool) -> Read:
        return Read(self.unit, record, is_accepted=is_accepted)


class Comparison:
    """Compares units, and counts cases."""

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
        """Number of records and batches compared with TensorFlow."""
        return self.counts["records"] + self.counts["batches"]

    def close(self) -> None:
        self.tensorflow.close()

    def compare(self, unit: Unit) -> None:
        """Compare all records: in batches if no difference is expected, else alone."""
        self._n_units += 1
        if self._n_units % UNITS_OF_WORKER == 0:
            self.tensorflow.renew()
        run = Run(unit, Ours(unit.specs))
        for spec in unit.specs:
            part = "" if spec.section == "features" else f" ({spec.section})"
            self.counts[f"of {spec.form}{part}"] += len(unit.records)
        self.counts["of SequenceExamples"] += unit.is_sequence * len(unit.records)
        again: list[Read] = []
        apart: list[Read] = []
        for i in range(0, len(unit.records), BATCH):
            reads = self.read(run, unit.records[i : i + BATCH], again)
            apart += self.compare_plain(run, reads)
        self.compare_apart(run, apart)
        apart = []
        for i in range(0, len(again), BATCH):
            apart += self.compare_plain(run, again[i : i + BATCH], of_protobuf=True)
        self.compare_apart(run, apart)

    def compare_plain(
        self, run: Run, reads: list[Read], *, of_protobuf: bool = False
    ) -> list[Read]:
        """Compare records without differences as a batch, and return the others."""
        for is_plain in (Read.seems_plain, Read.is_plain):
            together = [read for read in reads if is_plain(read)]
            if not together or self.compare_batch(run, together, of_protobuf):
                return [read for read in reads if not is_plain(read)]
        self.compare_apart(run, together)
        theirs = self.tensorflow.run(
            run.unit.specs, run.whole, [[read.record for read in together]]
        )
        ours = run.ours.outcome(run.whole, [read.record for read in together])
        return self.fail(run, together[-1], f"as a batch {ours}", theirs)

    # fastrec against protobuf.

    def read(self, run: Run, records: list[bytes], again: list[Read]) -> list[Read]:
        """Read some records; add odd ones, rewritten by protobuf, to `again`."""
        whole = run.ours.outcome(run.whole, records)
        is_sequence = run.unit.is_sequence
        rewrites = [rewritten(record, is_sequence=is_sequence) for record in records]
        known = [record for record in rewrites if record is not None]
        is_known = whole is not None and len(known) == len(records)
        if is_known and run.ours.outcome(run.whole, known) == whole:
            self.counts["records compared with protobuf"] += len(records)
            reads = [run.read(record, is_accepted=True) for record in records]
            again += [
                run.read(written, is_accepted=True)
                for read, written in zip(reads, known, strict=True)
                if not read.seems_plain()
            ]
            return reads
        if len(records) > 1:
            middle = len(records) // 2
            if run.unit.form == "malformed":
                return [
                    r for record in records for r in self.read(run, [record], again)
                ]
            return [
                *self.read(run, records[:middle], again),
                *self.read(run, records[middle:], again),
            ]
        [record], [written] = records, rewrites
        self.counts["records compared with protobuf"] += 1
        outcome = run.outcome(record)
        read = run.read(record, is_accepted=outcome is not None)
        self.counts["refused by fastrec"] += outcome is None
        if self.is_protobufs(run, read, outcome, written) and not read.seems_plain():
            assert written is not None
            again.append(run.read(written, is_accepted=True))
        return [read]

    def is_protobufs(
        self,
        run: Run,
        read: Read,
        outcome: Any,
        written: bytes | None,
    ) -> bool:
        """Return if protobuf reads the same; it must, except for listed reasons."""
        if written is None:
            if outcome is None:
                return False
            reasons = read.narrower & {"long", "key", "unasked", "depth"}
        else:
            if run.outcome(written) == outcome:
                return outcome is not None
            reasons = read.narrower & {"unknown in entry", "zero in group", "no value"}
        if not reasons:
            self.fail(run, read, outcome, f"protobuf's {written!r}")
        self.narrower.update(reasons)
        return False

    # fastrec against TensorFlow.

    def compare_batch(self, run: Run, reads: list[Read], of_protobuf: bool) -> bool:
        """Return whether a batch is equal, so that all its records are compared."""
        batch = [read.record for read in reads]
        (theirs,) = self.tensorflow.run(run.unit.specs, run.whole, [batch])
        if isinstance(theirs, Crash) or theirs is None:
            return False
        if theirs != run.ours.outcome(run.whole, batch):
            return False
        if of_protobuf:
            self.counts["records as protobuf has them"] += len(batch)
        else:
            self.counts["batches"] += 1
            self.counts["records"] += len(batch)
            self.counts[f"records {run.unit.form}"] += len(batch)
        return True

    def compare_apart(self, run: Run, apart: list[Read]) -> None:
        """Compare records one by one."""
        calm = []
        for read in apart:
            crashing = [name for name in read.found if DIFFERENCES[name].crashes]
            if not crashing:
                calm.append(read)
            elif all(self.crashes[f"tried: {n}"] < self.most_crashes for n in crashing):
                self.crashes.update(f"tried: {name}" for name in crashing)
                self.show(run, [read])
                self.tensorflow.renew()  # its memory may be damaged
            else:
                self.counts["not shown to TensorFlow, which it may crash"] += 1
        if not calm:
            return
        records = [read.record for read in calm]
        accepted = set(self.tensorflow.sift(run.unit.specs, run.alone, records))
        for i, read in enumerate(calm):
            if i not in accepted:
                self.judge(run, read, None)
        self.show(run, [calm[i] for i in sorted(accepted)])

    def show(self, run: Run, reads: list[Read]) -> None:
        """Let TensorFlow read records one by one."""
        groups = [run.group(read.record) for read in reads]
        outcomes = self.tensorflow.run(run.unit.specs, run.alone, groups)
        for read, theirs in zip(reads, outcomes, strict=True):
            self.judge(run, read, theirs)

    def judge(self, run: Run, read: Read, theirs: Any) -> None:
        """Require equal outcomes, or a listed difference that explains them."""
        self.counts["records"] += 1
        self.counts["records alone"] += 1
        self.counts[f"records {run.unit.form}"] += 1
        if isinstance(theirs, Crash):
            reasons = [name for name in read.found if DIFFERENCES[name].crashes]
            if not reasons:
                self.fail(run, read, run.outcome(read.record), theirs)
            self.crashes.update(f"{name}: {theirs.signal}" for name in reasons)
            return
        self.counts["refused by TensorFlow"] += theirs is None
        self.counts["refused by both"] += theirs is None and not read.is_accepted
        if theirs is None and not read.is_accepted:
            return
        ours = run.outcome(read.record)
        if theirs == ours:
            return
        reasons = [name for name in read.found if allows(name, ours, theirs)]
        if not reasons:
            self.fail(run, read, ours, theirs)
        self.counts["records that differ"] += 1
        self.differences.update(reasons)

    def fail(self, run: Run, read: Read, ours: Any, theirs: Any) -> NoReturn:
        raise Disagreement(
            f"\nspecs   {run.unit.specs}\nmode    {run.alone}\n"
            f"record  {read.record!r}\nfastrec {ours}\nother   {theirs}\n"
            f"found   {read.found} {read.narrower}"
        )


def random_unit(
    rng: random.Random, form: Form, n_records: int, *, is_sequence: bool
) -> Unit:
    specs = (random_sequence_specs if is_sequence else random_specs)(rng)
    records = [
        random_record(rng, specs, form, is_sequence=is_sequence)
        for _ in range(n_records)
    ]
    return Unit(specs, form, records, is_sequence, rng.random() < 0.5)


# The campaign.

# What decides what a record decodes to.
DECODER = [f"src/cpp/{room}" for room in ("base", "wire", "batch", "decode")]
UNITS_OF_SLICE = 10


def unit_of(seed: int, number: int, n_records: int) -> Unit:
    """Return one unit of a campaign: 3 of 10 hold SequenceExamples."""
    rng = random.Random(f"{seed} {number}")
    form = rng.choices(FORMS, (70, 18, 12))[0]
    return random_unit(rng, form, n_records, is_sequence=number % 10 >= 7)


def compare_units(seed: int, numbers: Iterable[int], n_records: int) -> dict[str, int]:
    """Compare some units of a campaign, and return what was counted."""
    comparison = Comparison()
    try:
        for number in numbers:
            try:
                comparison.compare(unit_of(seed, number, n_records))
            except Exception:
                sys.stderr.write(f"failed: --unit {number}\n")
                raise
    finally:
        comparison.close()
    counts = {"runs": comparison.n_cases, **comparison.counts}
    for title, found in (
        ("difference", comparison.differences),
        ("crash", comparison.crashes),
        ("protobuf is narrower", comparison.narrower),
    ):
        counts |= {f"{title}: {name}": n for name, n in found.items()}
    return counts


def main() -> None:
    """Run a campaign, or repeat one slice or one unit of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=int, default=3000, help="of a unit")
    parser.add_argument("--slice", type=int, help="compare one slice in this process")
    parser.add_argument("--unit", type=int, help="compare one unit in this process")
    options = parser.parse_args()
    if options.unit is not None:
        numbers = range(options.unit, options.unit + 1)
    elif options.slice is not None:
        first = options.slice * UNITS_OF_SLICE
        numbers = range(first, first + UNITS_OF_SLICE)
    else:
        settings = ["--seed", str(options.seed), "--records", str(options.records)]
        command = [sys.executable, "-m", "campaigns.differential", *settings, "--slice"]
        finish(
            add_slices(
                f"differential-{options.seed}-{options.records}",
                DECODER,
                options.cases,
                lambda number, isa: json.loads(run_with(isa, [*command, str(number)])),
            ),
            "records compared with protobuf",
            "of SequenceExamples",
            "records that differ",
        )
        return
    counts = compare_units(options.seed, numbers, options.records)
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main()
