"""Exceptions of transforms, filters and conversions.

Goal
    An exception names the file, record, byte and step. With a policy, rows are skipped or
    masked: steps, positions and other rows stay, and the report lists the losses. Threads
    and interrupts make no difference.
Method
    Functions that fail for known records, on files whose labels are record numbers.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.loader.prefetch import Conversion, with_conversion
from numbered import SPEC, Batch, N, labels, record
from oracle import frame

BAD = (4, 9, 30)
THREADS = [(0, 0), (2, 0), (2, 1), (2, 3)]
every_threads = pytest.mark.parametrize(("num_threads", "transform_threads"), THREADS)

OUT = {"twice": fr.FixedLen((), "int64")}


def double(row: Batch) -> int:
    if row["n"] in BAD:
        msg = f"{row['n']} is odd"
        raise ArithmeticError(msg)
    return 2 * int(row["n"])


def double_all(batch: Batch) -> Batch:
    if np.isin(batch["n"], BAD).any():
        msg = "some are odd"
        raise ArithmeticError(msg)
    return {**batch, "twice": 2 * batch["n"]}


PER_ROW = fr.per_row(double, out=OUT)


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def error_of(run: Callable[[], object]) -> str:
    """Return the notes of the ArithmeticError that `run` raises."""
    with pytest.raises(ArithmeticError) as caught:
        run()
    return notes(caught.value)


# Locations in errors.


@every_threads
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_function_of_rows_names_the_record(
    ds: Untyped, num_threads: int, transform_threads: int, shuffle: bool
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    loader = ds.loader(5, shuffle=shuffle, seed=3, transform=PER_ROW, **threads)
    found = error_of(lambda: list(loader))
    step = loader.step
    places = loader.records_at(step)
    known = [
        f"in per_row(double), row {row} of step {step} of epoch 0: "
        f"{path}, record {number}, byte {byte}"
        for row, (path, number, byte) in enumerate(places)
    ]
    assert found in known
    plain = ds.loader(5, shuffle=shuffle, seed=3)
    assert plain.batch(step)["n"][known.index(found)] in BAD


@every_threads
@pytest.mark.parametrize(
    "transform",
    [
        lambda batch: {"n": batch["nn"]},
        fr.per_row(lambda row: row["nn"], out={"m": "int64"}),
    ],
)
def test_a_missing_column_is_named_with_those_of_the_batch(
    ds: Untyped,
    num_threads: int,
    transform_threads: int,
    transform: Callable[[Batch], Batch],
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    loader = ds.loader(5, transform=transform, **threads)
    with pytest.raises(KeyError, match="'nn'") as caught:
        next(iter(loader))
    columns = "no column 'nn'; the batch has 'n', 'pixels', 'words'; did you mean 'n'?"
    assert notes(caught.value).count(columns) == 1
    with pytest.raises(KeyError) as caught:
        ds.with_transform(transform)[0]
    assert notes(caught.value).count(columns) == 1


@every_threads
def test_a_transform_of_batches_names_the_first_and_last_record(
    ds: Untyped, num_threads: int, transform_threads: int
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    loader = ds.loader(3, transform=double_all, **threads)
    found = error_of(lambda: list(loader))
    (first, number, byte), _, (last, *end) = loader.records_at(1)
    assert found == (
        f"in double_all(), 3 rows of step 1 of epoch 0: the first is {first}, record "
        f"{number}, byte {byte}; the last is {last}, record {end[0]}, byte {end[1]}"
    )
    assert error_of(lambda: loader.batch(1)) == found
    assert "record 0" in error_of(lambda: ds.with_transform(double_all)[:10])


def test_a_conversion_names_the_records(ds: Untyped) -> None:
    loader = with_conversion(ds.loader(3), Conversion(double_all, 2))
    assert "in the conversion, 3 rows of step 1" in error_of(lambda: list(loader))
    finished = with_conversion(ds.loader(3), Conversion(dict, 2, double_all))
    assert "in the conversion, 3 rows of step 1" in error_of(lambda: list(finished))
    assert "of step 1" in error_of(lambda: loader.batch(1))


def test_a_filter_names_the_records(ds: Untyped, paths: list[Path]) -> None:
    found = error_of(lambda: ds.filter(lambda batch: double_all(batch)["n"] > 0))
    assert (
        f"in filter(), {N} rows of step 0 of epoch 0: the first is {paths[0]}" in found
    )


def test_skipped_records_do_not_shift_the_places(write: Write) -> None:
    frames = [bytearray(frame(record(n))) for n in range(12)]
    for n in (1, 5):
        frames[n][20] ^= 1
    for on_error in ("skip", "mask"):
        ds = open_dataset(write(b"".join(frames)), features=SPEC, on_error=on_error)
        loader = ds.loader(8, transform=PER_ROW)
        byte = sum(map(len, frames[:4]))
        assert f"record 4, byte {byte}" in error_of(lambda: list(loader))  # noqa: B023


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="notes are printed there")
def test_notes_are_logged_on_python_3_10(
    ds: Untyped, caplog: pytest.LogCaptureFixture
) -> None:
    found = error_of(lambda: list(ds.loader(5, transform=PER_ROW)))
    assert found in caplog.text


# Policies.


def per_row_loaders(ds: Untyped, on_transform_error: str, **options: Any) -> list[Any]:
    """Loaders whose per-row function, or that of the dataset, fails."""
    options = {"batch_size": 5, "on_transform_error": on_transform_error, **options}
    other = {"n": "int64", "pixels": fr.Raw((3,), "uint8"), "words": fr.VarLen("bytes")}
    halves = [ds.select(range(20)), ds.select(range(20, N)).with_features(other)]
    transformed = [half.with_transform(PER_ROW) for half in halves]
    return [
        ds.loader(transform=PER_ROW, **options),
        ds.with_transform(PER_ROW).loader(**options),
        fr.concat(transformed).loader(**options),
    ]


@every_threads
def test_rows_are_skipped(
    ds: Untyped, num_threads: int, transform_threads: int
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    for loader in per_row_loaders(ds, "skip", **threads):
        batches = list(loader)
        assert len(batches) == len(loader)
        assert labels(batches) == [n for n in range(N) if n not in BAD]
        for step, batch in enumerate(batches):
            assert batch["twice"].tolist() == (2 * batch["n"]).tolist()
            assert set(batch["n"].tolist()) <= set(range(5 * step, 5 * step + 5))
        assert loader.report.records_lost == len(BAD)
        for n, region in zip(BAD, loader.report, strict=True):
            assert (region.path, region.begin) == ds.loader(1).records_at(n)[0][::2]
            assert (
                region.reason == f"per_row(double) raised ArithmeticError: {n} is odd"
            )
        loader.load_state_dict(loader.state_dict())
        assert labels(itertools.islice(loader, 2)) == [0, 1, 2, 3, 5, 6, 7, 8]
        resumed = per_row_loaders(ds, "skip")[0]
        resumed.load_state_dict(ds.loader(5).state_dict() | {"position": 5})
        assert labels(resumed) == [n for n in range(5, N) if n not in BAD]


@every_threads
@pytest.mark.parametrize("how", ["mask", "pad_last"])
def test_rows_are_masked(
    ds: Untyped, num_threads: int, transform_threads: int, how: str
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    options = {"pad_last": True} if how == "pad_last" else {}
    choice = "skip" if how == "pad_last" else "mask"
    for loader in per_row_loaders(ds, choice, **options, **threads):
        batches = list(loader)
        valid = np.concatenate([batch["__valid__"] for batch in batches])
        twice = np.concatenate([batch["twice"] for batch in batches])
        assert labels(batches)[:N] == list(range(N))
        good = [n for n in range(N) if n not in BAD]
        assert np.flatnonzero(valid).tolist() == good
        assert twice.tolist() == [0 if n in BAD else 2 * n for n in range(N)] + (
            [0] * (len(twice) - N)
        )
        assert loader.report.records_lost == len(BAD)


@every_threads
def test_a_skipped_batch_is_empty(
    ds: Untyped, num_threads: int, transform_threads: int
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    options: dict[str, Any] = {"transform": double_all, "on_transform_error": "skip"}
    for rank, world_size in ((0, 1), (1, 2)):
        ranks = {"rank": rank, "world_size": world_size, "drop_last": True}
        loader = ds.loader(3, **options, **threads, **ranks)
        want = [
            [] if set(rows) & set(BAD) else rows
            for rows in (batch["n"].tolist() for batch in ds.loader(3, **ranks))
        ]
        assert [batch["twice"].tolist() for batch in loader] == [
            [2 * n for n in rows] for rows in want
        ]
        assert loader.report.records_lost == 3 * want.count([])


@pytest.mark.parametrize("on_transform_error", ["skip", "mask"])
def test_later_transforms_do_not_receive_skipped_rows(
    ds: Untyped, on_transform_error: str
) -> None:
    seen = []

    def look(row: Batch) -> int:
        seen.append(int(row["n"]))
        return int(row["twice"])

    again = fr.per_row(look, out={"again": fr.FixedLen((), "int64")})
    loader = ds.with_transform(PER_ROW).loader(
        5, transform=again, on_transform_error=on_transform_error
    )
    for batch in loader:
        assert batch["again"].tolist() == batch["twice"].tolist()
    assert seen == [n for n in range(N) if n not in BAD]


@every_threads
def test_max_errors_counts_damage_and_transforms_together(
    write: Write, num_threads: int, transform_threads: int
) -> None:
    threads = {"num_threads": num_threads, "transform_threads": transform_threads}
    frames = [bytearray(frame(record(n))) for n in range(N)]
    frames[7][20] ^= 1
    ds = open_dataset(write(b"".join(frames)), features=SPEC, on_error="skip")
    options = {"transform": PER_ROW, "on_transform_error": "skip", **threads}
    assert len(list(ds.loader(2, max_errors=4, **options))) == -(-N // 2)
    loader = ds.loader(2, max_errors=2, **options)
    iterator = iter(loader)
    assert labels(itertools.islice(iterator, 4)) == [0, 1, 2, 3, 5, 6]
    for _ in range(2):
        found = error_of(lambda: next(iterator))
    assert "record 9" in found
    assert "max_errors=2" in found
    assert loader.step == 4


def test_invalid_policies_are_refused(ds: Untyped) -> None:
    with pytest.raises(ValueError, match='on_transform_error must be "raise"'):
        ds.loader(5, on_transform_error="ignore")
    for options in (
        {"on_transform_error": "mask"},
        {"on_transform_error": "skip", "pad_last": True},
    ):
        with pytest.raises(
            ValueError, match=r"requires transforms created by .*per_row"
        ):
            ds.loader(5, transform=double_all, **options)
    with pytest.raises(ValueError, match="max_errors= requires a policy"):
        ds.loader(5, transform=PER_ROW, max_errors=1)

    def no_rows(batch: Batch) -> Batch:
        batch["n"][0]
        return double_all(batch)

    loader = ds.loader(5, transform=no_rows, on_transform_error="skip")
    found = error_of(lambda: list(loader))
    assert "cannot skip the batch: the transform raises for an empty batch" in found


def test_memory_errors_are_never_skipped(ds: Untyped) -> None:
    def greedy(_: Batch) -> int:
        raise MemoryError

    for transform in (fr.per_row(greedy, out=OUT), greedy):
        with pytest.raises(MemoryError):
            list(ds.loader(5, transform=transform, on_transform_error="skip"))
