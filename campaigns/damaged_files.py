"""Read damaged files in every way, and compare with a reader in plain Python.

    python -m campaigns.damaged_files --files 100000 --seed 0
    python -m campaigns.damaged_files --seed 0 --case 12      # one data set again

A case is a data set of one to three files: records of one kind, damaged in up to three
ways, compressed or not. It is opened with one drawn combination of compression, error
policy and I/O, indexed, and read in order and in another order with drawn threads and
batches. `Expected` says which records can be read, from the bytes alone.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import logging
import os
import random
import shutil
import struct
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import crc32c
import numpy as np

import fastrec as fr
from campaigns.slices import add_slices, finish, run_with
from columns import Untyped, open_dataset
from object_server import ObjectServer, served
from oracle import (
    Fixed,
    MismatchError,
    Raw,
    Var,
    WireError,
    decode,
    frame,
    frame_offsets,
    header,
)
from oracle_example import example, sequence
from oracle_frames import FOOTER_BYTES, HEADER_BYTES
from oracle_order import shuffled
from oracle_recovery import (
    CORRUPTIONS,
    Found,
    Kept,
    frame_end,
    gaps_and_frames,
    payload_holds,
    proven_length,
)
from oracle_streams import Seen, looks_like, seen

Row = dict[str, Any]

CASES_OF_SLICE = 1000
POLICIES = ("raise", "skip", "resync", "mask")
ORDERS = ("files", "shuffled", "blocks", "window")
COMPRESSIONS = (None, None, None, "GZIP", "ZLIB")
# A lying length: none, small, more than the file, beyond a limit, close to overflow.
LENGTHS = (0, 1, 7, 40, 400, 2**20, 2**31 - 1, 2**31, 2**63, 2**64 - 20, 2**64 - 1)
BAD_MESSAGES = (b"\x0a\x7f", b"f", b"\xff" * 11, b"\x12\x05abcde\x0a")


# Records.


def framed(payloads: Iterable[bytes]) -> bytes:
    return b"".join(frame(payload, crc32c.crc32c) for payload in payloads)


class Raws:
    """Records of any bytes."""

    options: ClassVar[Row] = {"features": {"record": fr.Record()}}
    empty: ClassVar[Row] = {"record": b""}
    dtypes: ClassVar[Row] = {"record": "object"}

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def record(self, n: int) -> bytes:
        size = self.rng.choice((0, 1, 3, 30, 90, 90, 300, 300, 2000))
        return self.rng.randbytes(size) + (n.to_bytes(2, "little") if size else b"")

    def row(self, payload: bytes) -> Row | None:
        return {"record": payload}


class Examples(Raws):
    """Records of four features."""

    options: ClassVar[Row] = {
        "features": {
            "n": fr.FixedLen((), "int64"),
            "pixels": fr.Raw((3,), "uint8"),
            "words": fr.VarLen("bytes"),
            "weights": fr.VarLen("float32"),
        }
    }
    spec: ClassVar[dict[str, Untyped]] = {
        "n": Fixed("int64"),
        "pixels": Raw((3,), "uint8"),
        "words": Var("bytes"),
        "weights": Var("float32"),
    }
    empty: ClassVar[Row] = {"n": 0, "pixels": [0, 0, 0], "words": [], "weights": []}
    dtypes: ClassVar[Row] = {
        "n": "int64",
        "pixels": "uint8",
        "words": "object",
        "weights": "float32",
    }

    def record(self, n: int) -> bytes:
        rng = self.rng
        words = [rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(5))]
        return example(
            {
                b"n": ("int64", [n - 3]),
                b"pixels": ("bytes", [rng.randbytes(3)]),
                b"words": ("bytes", words),
                b"weights": ("float", [k / 4 for k in range(rng.randrange(7))]),
            }
        )

    def row(self, payload: bytes) -> Row | None:
        try:
            cells = decode(payload, self.spec)
        except (WireError, MismatchError):
            return None
        return {name: cell.tolist() for name, cell in cells.items()}


class Sequences(Raws):
    """SequenceExamples of a context feature and two lists."""

    options: ClassVar[Row] = {
        "context_features": {"n": fr.FixedLen((), "int64")},
        "sequence_features": {"words": fr.VarLen("bytes"), "ids": fr.VarLen("int64")},
    }
    empty: ClassVar[Row] = {"n": 0, "words": [], "ids": []}
    dtypes: ClassVar[Row] = {"n": "int64", "words": "object", "ids": "int64"}

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.rows: dict[bytes, Row] = {}

    def record(self, n: int) -> bytes:
        rng = self.rng
        words = [[rng.randbytes(rng.randrange(9))] * rng.randrange(3) for _ in range(4)]
        words = words[: rng.randrange(5)]
        ids = [[rng.randrange(-9, 2 ** rng.randrange(40) + 9)] for _ in range(n % 4)]
        payload = sequence(
            {b"n": ("int64", [n])},
            {
                b"words": [("bytes", step) for step in words],
                b"ids": [("int64", step) for step in ids],
            },
        )
        self.rows[payload] = {"n": n, "words": words, "ids": ids}
        return payload

    def row(self, payload: bytes) -> Row | None:
        return self.rows.get(payload)


# Damage: CORRUPTIONS, and these, whose checksums hold.


def lying_length(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    """Replace the header of a frame by a valid one of another length."""
    begin, _ = rng.choice(gaps_and_frames(data, "skip").frames)
    (length,) = struct.unpack_from("<Q", data, begin)
    wrong = rng.choice((*LENGTHS, length + 1, abs(length - 1), length + 16))
    return data[:begin] + header(wrong) + data[begin + HEADER_BYTES :], []


def bad_message(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    """Replace a record by one that is not a message, with valid checksums."""
    begin, end = rng.choice(gaps_and_frames(data, "skip").frames)
    return data[:begin] + framed([rng.choice(BAD_MESSAGES)]) + data[end:], []


DAMAGES = (*CORRUPTIONS, lying_length, bad_message)


def damaged(good: bytes, rng: random.Random) -> bytes:
    """Damage a file in up to three ways."""
    content = good
    for damage in rng.choices(DAMAGES, k=rng.choices((0, 1, 2, 3), (1, 6, 2, 1))[0]):
        if len(content) < 2 or (
            damage not in CORRUPTIONS and not gaps_and_frames(content, "skip").frames
        ):
            continue
        before = content
        content, kept = damage(content, rng)
        if before is good and kept:
            check_kept(good, content, kept)
    return content


def check_kept(good: bytes, content: bytes, kept: list[Kept]) -> None:
    """Check the definition of "resync": every record that is undamaged is found again.

    It may lie in a frame whose two ends are proven, which then hides it.
    """
    frames = gaps_and_frames(content, "resync").frames
    exact = set(frames)
    for begin, end in itertools.pairwise(frame_offsets(good)):
        for start, stop, at in kept:
            if start <= begin and end <= stop:
                here, there = begin - start + at, end - start + at
                assert (here, there) in exact or any(
                    a <= here and there <= b for a, b in frames
                ), f"the record at {here} is lost"


def compressed(content: bytes, compression: str | None, rng: random.Random) -> bytes:
    """Compress a file, and damage the stream of every other one."""
    if compression is None:
        return content
    level = rng.choice((0, 1, 6))
    if compression == "ZLIB":
        stored = zlib.compress(content, level)
    else:
        cut = rng.choice((0, rng.randint(0, len(content))))
        parts = [content[:cut], content[cut:]] if cut else [content]
        stored = b"".join(gzip.compress(part, level, mtime=0) for part in parts)
    if rng.random() < 0.5:
        stored, _ = rng.choice(CORRUPTIONS)(stored, rng)
    return stored


# A case, and what can be read of it.


class Case(NamedTuple):
    """One data set, and how it is read."""

    kind: Raws
    files: list[bytes]
    compression: str | None  # the option
    is_cached: bool  # with cache_dir=
    io: str
    on_error: str
    order: str
    n_threads: int
    batch_size: int
    seed: int

    @property
    def shuffle(self) -> Untyped:
        return {
            "files": False,
            "shuffled": True,
            "blocks": fr.Blocks(block_bytes=500, lanes=3),
            "window": fr.Window(5),
        }[self.order]


def case_of(seed: int, number: int) -> Case:
    """Return a case of a campaign."""
    rng = random.Random(f"{seed} {number}")
    kind = rng.choice((Raws, Examples, Sequences))(rng)
    compression = rng.choice(COMPRESSIONS)
    is_large = rng.random() < 0.01
    files = []
    numbers = itertools.count()
    for _ in range(rng.choice((1, 1, 2, 3))):
        payloads = [kind.record(next(numbers)) for _ in range(rng.randrange(20))]
        if rng.random() < 0.1:  # a file in a file
            inside = framed([*payloads[:3], b"forged"])
            payloads.insert(rng.randint(0, len(payloads)), inside)
        if is_large:  # pieces of streams end inside
            payloads *= 1 + 300_000 // (1 + sum(map(len, payloads)))
        content = damaged(framed(payloads), rng)
        is_mixed = rng.random() < 0.1
        files.append(compressed(content, None if is_mixed else compression, rng))
    is_cached = compression is not None and rng.random() < 0.4
    is_random = compression is None or is_cached
    io = rng.choice(("mmap", "pread", "auto"))
    is_declared = compression is not None and rng.random() < 0.3
    return Case(
        kind,
        files,
        compression if is_declared else "auto",
        is_cached,
        "remote" if rng.random() < 0.02 else io,
        rng.choice(POLICIES),
        rng.choice(ORDERS if is_random else ("files", "window")),
        rng.randrange(4),
        rng.choice((1, 2, 3, 7, 16, 1000)),
        rng.randrange(2**32),
    )


class Bad(NamedTuple):
    """A record that cannot be read, or the place of a damaged stream."""

    file: int
    record: int | None


class Expected:
    """What can be read of a case.

    Attributes
    ----------
    rows : list of dict or Bad
        All records up to `end`, in order; `Bad` where one cannot be read.
    end : Bad or None
        The first place where framing or a stream is damaged, if damage is raised; and
        the first record of a stream that exceeds the limit of its size.
    frames : list of tuple
        File, begin and end of each record.
    gaps : list of tuple
        File, begin and end of each gap; the end of a gap in a stream is None.
    is_lost : bool
        Whether a stream is damaged that is to be expanded into a cache.

    With ``is_ended=False``, there is no `end`: as if damage were skipped.
    """

    def __init__(self, case: Case, *, is_ended: bool = True) -> None:
        self.rows: list[Row | Bad] = []
        self.end: Bad | None = None
        self.frames: list[tuple[int, int, int]] = []
        self.gaps: list[tuple[int, int, int | None]] = []
        self.is_lost = False
        self.is_ended = is_ended
        files = [seen(stored, case.compression) for stored in case.files]
        # One compressed file makes the data set a stream.
        self.is_stream = not case.is_cached and any(file.is_stream for file in files)
        for i, file in enumerate(files):
            self._add(case, i, file)

    def _add(self, case: Case, i: int, file: Seen) -> None:
        content = file.content
        self.is_lost |= not file.is_whole and case.is_cached
        is_searched = case.on_error == "resync" and not self.is_stream
        found = gaps_and_frames(content, "resync" if is_searched else "skip")
        if not file.is_whole and not found.gaps:
            begin = len(content)
            if found.frames and not payload_holds(content, found.frames[-1]):
                begin, _ = found.frames.pop()  # whose end nothing proves
            found.gaps.append((begin, len(content)))
        if self.end is not None:
            return
        if found.gaps and self.is_ended:
            self._find_end(case, i, file, found)
        for record, (begin, end) in enumerate(found.frames):
            row = None
            if payload_holds(content, (begin, end)):
                row = case.kind.row(content[begin + HEADER_BYTES : end - FOOTER_BYTES])
            self.rows.append(Bad(i, record) if row is None else row)
            self.frames.append((i, begin, end))
        self.gaps += [
            (i, begin, None if self.is_stream else end) for begin, end in found.gaps
        ]

    def _find_end(self, case: Case, i: int, file: Seen, found: Found) -> None:
        """Find out if the first gap of a file ends the reading."""
        content = file.content
        at, _ = found.gaps[0]
        last = frame_end(content, at)  # of a bad payload, before a bad header
        length = proven_length(content, at if last is None else last)
        is_limited = self.is_stream and length is not None and length >= 2**31
        if not is_limited and case.on_error != "raise":
            return
        if last is not None:
            found.frames.append((at, last))
            at = last
        is_cut = length is not None or len(content) - at < HEADER_BYTES
        is_of_stream = is_cut and not file.is_whole and not is_limited
        self.end = Bad(i, None if is_of_stream else len(found.frames))

    def batches(self, case: Case) -> tuple[list[list[Row]], list[Bad]]:
        """Return the batches of an epoch, in order or shuffled.

        If it ends with an error, return of what the error may be: of the bad records in
        the next batch.
        """
        rows = self.rows
        if case.order == "shuffled":
            if self.end is not None:
                return [], [self.end]
            places = shuffled(len(rows), case.seed, 0)
            rows = [rows[places(i)] for i in range(len(rows))]
        batches = [
            rows[i : i + case.batch_size] for i in range(0, len(rows), case.batch_size)
        ]
        delivered: list[list[Row]] = []
        for batch in batches:
            bad = [row for row in batch if isinstance(row, Bad)]
            bad = bad if case.on_error == "raise" else []
            if self.end is not None and len(batch) < case.batch_size:
                return delivered, [*bad, self.end]
            if bad:
                return delivered, bad
            delivered.append(self.delivered(case, batch))
        return delivered, [] if self.end is None else [self.end]

    def delivered(self, case: Case, rows: Sequence[Row | Bad]) -> list[Row]:
        """Return the rows of one batch."""
        if case.on_error != "mask":
            return [row for row in rows if not isinstance(row, Bad)]
        return [
            {**case.kind.empty, "__valid__": False}
            if isinstance(row, Bad)
            else {**row, "__valid__": True}
            for row in rows
        ]


# fastrec's side.


def rows_of(batch: Untyped, kind: Raws) -> list[Row]:
    """Return the rows of a batch as plain values."""
    for name, dtype in kind.dtypes.items():
        column = batch[name]
        values = getattr(column, "values", column)
        while isinstance(values, fr.RaggedArray):
            values = values.values
        assert np.dtype(values.dtype).name == dtype, f"{name} is {values.dtype}"
    columns = {name: column.tolist() for name, column in batch.items()}
    return [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def epoch(loader: Untyped, kind: Raws) -> tuple[list[list[Row]], fr.Error | None]:
    """Return all batches, and the error that ended them."""
    batches: list[list[Row]] = []

    def read() -> None:
        batches.extend(rows_of(batch, kind) for batch in loader)

    return batches, attempt(read)[1]


def attempt(function: Callable[[], Untyped]) -> tuple[Untyped, fr.Error | None]:
    """Return what a function returns, or the error that it raises."""
    try:
        return function(), None
    except fr.Error as error:
        return None, error


def check_case(case: Case, folder: Path, server: ObjectServer) -> None:
    """Compare all readings of a case with what is expected."""
    want = Expected(case)
    paths: list[str] = []
    for i, stored in enumerate(case.files):
        path = folder / f"{i}.tfrecord"
        path.write_bytes(stored)
        paths.append(str(path))
    io = {"io": case.io}
    if case.io == "remote":
        objects = {f"{folder.name}/{i}.tfrecord": d for i, d in enumerate(case.files)}
        server.objects = dict(objects)
        paths, io = [f"{server.url}/{key}" for key in objects], {}

    def opened() -> Untyped:
        return open_dataset(
            paths,
            compression=case.compression,
            on_error=case.on_error,
            cache_dir=folder / "cache" if case.is_cached else None,
            **io,
            **case.kind.options,
        )

    if want.is_lost:
        check_lost(opened, case)
        return
    check_index(opened(), case, want, paths)
    in_order = case._replace(order="files", n_threads=0)
    check_epoch(opened(), in_order, want, paths)
    if case != in_order:
        check_epoch(opened(), case, want, paths)


def check_lost(opened: Callable[[], Untyped], case: Case) -> None:
    """Check that a damaged stream, which cannot be expanded, is always an error."""
    _, error = attempt(
        lambda: list(opened().loader(case.batch_size, num_threads=case.n_threads))
    )
    assert error is not None, "a damaged stream was expanded into a cache"
    # Damage in an earlier file may be raised first.
    assert case.on_error == "raise" or error.code == "damaged_stream", error


def check_index(ds: Untyped, case: Case, want: Expected, paths: list[str]) -> None:
    """Compare the number of records, the report of framing, and one record by number."""
    n_records, error = attempt(lambda: len(ds))
    if want.end is not None:
        check_place(error, [want.end], paths)
        return
    assert error is None, error
    assert n_records == len(want.rows), f"{n_records} records, not {len(want.rows)}"
    found = [(paths.index(gap.path), gap.begin, gap.end) for gap in ds.report]
    assert [gap[:2] for gap in found] == [gap[:2] for gap in want.gaps], found
    for gap, (_, _, end) in zip(found, want.gaps, strict=True):
        assert end in (None, gap[2]), f"a gap ends at {gap[2]}, not {end}"
    if n_records and not want.is_stream:
        i = case.seed % n_records
        row = want.rows[i]
        got, error = attempt(lambda: rows_of(ds[i : i + 1], case.kind))
        if isinstance(row, Bad):
            check_place(error, [row], paths)
        else:
            assert got == [row], f"record {i} is {got}, not {row}: {error}"


def check_place(error: fr.Error | None, places: list[Bad], paths: list[str]) -> None:
    """Check that an error is about one of the places that are damaged."""
    assert error is not None, f"no error about {places}"
    assert error.path is not None
    place = Bad(paths.index(error.path), error.record)
    assert place in places, f"{error} is about {place}, not {places}"
    if place.record is None:
        assert error.code == "damaged_stream", error


def check_epoch(ds: Untyped, case: Case, want: Expected, paths: list[str]) -> None:
    """Compare an epoch: batches, the error or the report."""
    loader = ds.loader(
        case.batch_size,
        shuffle=case.shuffle,
        seed=case.seed,
        num_threads=case.n_threads,
    )
    got, error = epoch(loader, case.kind)
    if case.order in ("files", "shuffled"):
        batches, ends = want.batches(case)
        assert got == batches, difference(got, batches)
        if ends:
            check_place(error, ends, paths)
        else:
            assert error is None, error
    else:
        check_any_order(got, error, case, want)
    if error is None and case.on_error != "raise":
        check_report(loader.report, want, paths)


def check_any_order(
    got: list[list[Row]], error: fr.Error | None, case: Case, want: Expected
) -> None:
    """Compare the rows of an epoch whatever their order."""
    rows = [json_of(row) for batch in got for row in batch]
    all_rows = Expected(case, is_ended=False).rows
    known = Counter(json_of(row) for row in want.delivered(case, all_rows))
    if want.end is not None or (
        case.on_error == "raise" and any(isinstance(row, Bad) for row in want.rows)
    ):
        assert error is not None, f"no error about {want.end}"
        assert not Counter(rows) - known, "a row that does not exist, or twice"
        return
    assert error is None, error
    assert Counter(rows) == known, "rows are missing"
    assert len(got) == -(-len(want.rows) // case.batch_size), "the number of steps"


def json_of(row: Row) -> str:
    return json.dumps(row, sort_keys=True, default=bytes.hex)


def check_report(report: fr.Report, want: Expected, paths: list[str]) -> None:
    """Compare what a loader reports as lost."""
    frames = [
        frame
        for frame, row in zip(want.frames, want.rows, strict=True)
        if isinstance(row, Bad)
    ]
    found = [(paths.index(r.path), r.begin, r.end) for r in report if r.records]
    assert sorted(found) == frames, f"the report has the records {found}, not {frames}"
    gaps = [(paths.index(r.path), r.begin) for r in report if not r.records]
    assert sorted(gaps) == [gap[:2] for gap in want.gaps], f"and the gaps {gaps}"


def difference(got: list[list[Row]], want: list[list[Row]]) -> str:
    for i, (one, other) in enumerate(itertools.zip_longest(got, want)):
        if one != other:
            return f"batch {i} is {one}, not {other}"
    return ""


# The campaign.


def check_cases(seed: int, numbers: Iterable[int]) -> dict[str, int]:
    """Check some cases, and return what was counted."""
    log = logging.getLogger("fastrec")
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", fr.MissingFeatureWarning)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(served())
        for number in numbers:
            case = case_of(seed, number)
            folder = place / str(number)
            folder.mkdir()
            os.environ["FASTREC_CACHE"] = str(folder / "indexes")
            try:
                check_case(case, folder, server)
            except BaseException:
                settings = case._replace(files=[])
                sys.stderr.write(f"case {number} of seed {seed}: {settings}\n")
                raise
            shutil.rmtree(folder)
            counts["runs"] += len(case.files)
            counts["data sets"] += 1
            for name in (case.on_error, case.order, case.io):
                counts[name] += 1
            counts[f"{type(case.kind).__name__.lower()}"] += 1
            counts["compressed"] += any(map(looks_like, case.files))
            counts["expanded"] += case.is_cached
    return counts


def main() -> None:
    """Run a campaign, or repeat one slice or one case of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slice", type=int, help="check one slice in this process")
    parser.add_argument("--case", type=int, help="check one case in this process")
    options = parser.parse_args()
    if options.case is not None:
        check_cases(options.seed, [options.case])
    elif options.slice is not None:
        first = options.slice * CASES_OF_SLICE
        numbers = range(first, first + CASES_OF_SLICE)
        sys.stdout.write(json.dumps(check_cases(options.seed, numbers)))
    else:
        command = [sys.executable, "-m", "campaigns.damaged_files"]
        command += ["--seed", str(options.seed), "--slice"]
        finish(
            add_slices(
                f"damaged-files-{options.seed}",
                ["src"],
                options.files,
                lambda number, isa: json.loads(run_with(isa, [*command, str(number)])),
            )
        )


if __name__ == "__main__":
    main()
