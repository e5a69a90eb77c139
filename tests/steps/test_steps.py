"""Rows that are steps of records.

Goal
    Every row of ``ds.steps(...)`` equals the window that NumPy takes from ``ds[i]``,
    whatever the order, the ranks, the view and the batch size.
Method
    Random datasets of Examples and SequenceExamples; ``window_rows`` is the oracle.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from children import n_runs

N_RUNS = n_runs(60)
KINDS = ("numbers", "items", "strings", "arrays", "padded")

Windows = Mapping[str, int | Sequence[int]]


def random_list(rng: np.random.Generator, kind: str, n: int) -> Any:
    if kind == "items":
        return rng.random((n, 3), np.float32)
    if kind in ("strings", "arrays"):
        lengths = rng.integers(0, 9, n) if kind == "strings" else [4] * n
        return fr.BytesArray.from_list([rng.bytes(int(k)) for k in lengths])
    return rng.integers(-5, 300, n)


def spec_of(kind: str) -> Any:
    return {
        "numbers": fr.VarLen("int64"),
        "items": fr.VarLen("float32", (3,)),
        "strings": fr.VarLen("bytes"),
        "arrays": fr.List(fr.Raw((2,), "int16")),
        "padded": fr.FixedLenSequence((), "int32", default=-1),
    }[kind]


def random_dataset(rng: np.random.Generator, path: Path) -> fr.Dataset:
    """Write records with lists of 0 to 50 steps, some of them missing; open them."""
    kinds = {f"steps/{kind}": kind for kind in KINDS}
    is_sequence = bool(rng.integers(2))
    longest = int(rng.choice([1, 5, 50]))
    with fr.Writer(path) as writer:
        for i in range(int(rng.integers(1, 30))):
            n = int(rng.integers(0, longest + 1))
            lists = {
                name: random_list(rng, kind, n)
                for name, kind in kinds.items()
                if n or rng.integers(2)
            }
            context = {"id": i, "note": f"record {i}", "tags": np.arange(i % 3)}
            if is_sequence:
                steps = {name: [*values] for name, values in lists.items()}
                writer.write_record(
                    fr.encode_sequence_example(context=context, feature_lists=steps)
                )
            else:
                flat = {
                    k: np.ravel(v) if k == "steps/items" else v
                    for k, v in lists.items()
                }
                writer.write_record(fr.encode_example({**context, **flat}))
    context_specs = {
        "id": fr.FixedLen((), "int64"),
        "note": fr.FixedLen((), "bytes"),
        "tags": fr.VarLen("int64"),
    }
    if not is_sequence:
        features = {name: spec_of(kind) for name, kind in kinds.items()}
        return fr.open(path, features={**context_specs, **features})
    shapes = {"steps/items": ((3,), "float32"), "steps/strings": ((), "bytes")}
    specs: dict[str, Any] = {
        name: fr.FixedLenSequence(*shapes.get(name, ((), "int64"))) for name in kinds
    }
    specs["steps/arrays"] = fr.Raw((2,), "int16")
    return fr.open(path, context_features=context_specs, sequence_features=specs)


def window_rows(
    ds: fr.Dataset, windows: Windows, every: int, edge: str, keep: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows that ``ds.steps`` must have, each with its record and step."""
    offsets = {k: [w] if isinstance(w, int) else [*w] for k, w in windows.items()}
    every_offset = [0, *itertools.chain.from_iterable(offsets.values())]
    rows = []
    for record in range(len(ds)):
        row = ds[record]
        n = len(row[next(iter(windows))])
        for step in range(0, n, every):
            if edge == "drop" and not (
                step + min(every_offset) >= 0 and step + max(every_offset) < n
            ):
                continue
            made: dict[str, Any] = {name: row[name] for name in keep}
            for name, of_window in offsets.items():
                at = [step + offset for offset in of_window]
                items = [row[name][min(max(i, 0), n - 1)] for i in at]
                inside = [0 <= i < n for i in at]
                if edge == "zero":
                    zero = b"" if isinstance(items[0], bytes) else 0 * items[0]
                    items = [
                        x if ok else zero for x, ok in zip(items, inside, strict=True)
                    ]
                    mask = inside[0] if isinstance(windows[name], int) else inside
                    made[f"{name}/mask"] = mask
                made[name] = items[0] if isinstance(windows[name], int) else items
            rows.append({"at": (record, step), **made})
    return rows


def as_list(value: Any) -> Any:
    return (
        value.tolist()
        if hasattr(value, "tolist")
        else ([as_list(item) for item in value] if isinstance(value, list) else value)
    )


def check_batch(batch: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    expected = {name for row in rows for name in row} - {"at"}
    assert not rows or set(batch) == expected
    for name, column in batch.items():
        assert as_list(column) == [as_list(row[name]) for row in rows], name


@pytest.mark.parametrize("seed", range(N_RUNS))
def test_rows_equal_windows_of_records(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    ds = random_dataset(rng, tmp_path / "data.tfrecord")
    if rng.integers(2):
        ds = ds.select(rng.integers(0, len(ds), int(rng.integers(1, 40))))
    elif rng.integers(2):
        ds = ds.select(range(int(rng.integers(0, len(ds))), len(ds)))
    lists = [name for name in ds.column_names if name.startswith("steps/")]
    columns = rng.permutation(lists)[: int(rng.integers(1, 4))].tolist()
    windows: dict[str, Any] = {
        name: int(rng.integers(-2, 3))
        if rng.integers(3) == 0
        else sorted(rng.integers(-4, 5, int(rng.integers(1, 5))).tolist())
        for name in columns
    }
    every = int(rng.choice([1, 1, 2, 5]))
    edge: Any = str(rng.choice(["repeat", "zero", "drop"]))
    keep = ["id", "note", "tags"] if rng.integers(2) else ["id", "note"]
    rows = window_rows(ds, windows, every, edge, keep)
    steps = ds.steps(
        windows, every=every, edge=edge, keep=keep if "tags" in keep else None
    )
    assert len(steps) == len(rows)
    if not rows:
        assert not [*steps.loader(4)]
        return
    check_batch(steps[:], rows)
    chosen = rng.integers(0, len(rows), 7)
    check_batch(steps[chosen], [rows[i] for i in chosen])
    one = int(rng.integers(len(rows)))
    check_batch({k: [v] for k, v in steps[one].items()}, [rows[one]])

    orders: list[Any] = [False, True, fr.Blocks(200, lanes=2), fr.Window(5)]
    order = orders[int(rng.integers(len(orders)))]
    numbers: list[int] = []

    def check(batch: fr.Batch, info: fr.BatchInfo) -> fr.Batch:
        is_row = info.records >= 0
        numbers.extend(info.records[is_row].tolist())
        of_batch = [rows[i] for i in info.records[is_row]]
        assert info.steps is not None
        found = fr.take_rows(batch, is_row)
        found.pop("__valid__", None)
        check_batch(found, of_batch)
        if "id" in batch:
            ids = [row["id"] for row in of_batch]
            assert info.steps[is_row].tolist() == [
                [i, row["at"][1]] for i, row in zip(ids, of_batch, strict=True)
            ]
        return batch

    world_size = int(rng.integers(1, 3))
    for rank in range(world_size):
        loader = steps.loader(
            global_batch_size=int(rng.integers(2, 20)) if world_size == 1 else 6,
            shuffle=order,
            seed=seed,
            pad_last=True,
            rank=rank,
            world_size=world_size,
            num_threads=int(rng.integers(3)),
            transform=check,
        )
        assert len([*loader]) == len(loader)
    assert sorted(numbers) == [*range(len(rows))]


def test_joined_steps_have_the_rows_of_each_dataset(tmp_path: Path) -> None:
    rules: list[tuple[int, Any]] = [(1, "repeat"), (3, "drop"), (2, "repeat")]
    windows = {"numbers": [-1, 0, 2]}
    parts, rows = [], []
    for i, (every, edge) in enumerate(rules):
        path = tmp_path / f"{i}.tfrecord"
        with fr.Writer(path) as writer:
            for n in (5, 0, 9, 1):
                writer.write({"id": 10 * i + n, "numbers": 100 * i + np.arange(n)})
        ds = fr.open(
            path,
            features={"id": fr.FixedLen((), "int64"), "numbers": spec_of("numbers")},
        )
        parts.append(ds.steps(windows, every=every, edge=edge))
        rows += window_rows(ds, windows, every, edge, ["id"])
    joined = fr.concat(parts)
    assert len(joined) == len(rows)
    check_batch(joined[:], rows)
    check_batch(joined[::-3], rows[::-3])
    records = {at: i for i, at in enumerate([5, 0, 9, 1])}
    for batch in joined.loader(
        4, shuffle=True, transform=lambda batch, info: {**batch, "at": info.steps}
    ):
        for number, (record, step) in zip(batch["id"], batch["at"], strict=True):
            part, n = divmod(int(number), 10)
            assert record == 4 * part + records[n]
            assert step % rules[part][0] == 0
