"""States of loaders, and errors when loading them.

Goal
    A state is small, plain and the same on all ranks. It loads into the same order and
    dataset, wherever the files are. Any other state is a `ValueError` with the reason,
    which leaves the loader unchanged.
Method
    States of every order with each value changed; datasets that differ in one record, one
    file or their order; views.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.loader.progress import Progress
from numbered import (
    ORDERS,
    SPEC,
    N,
    every_order,
    labels,
    loader_of,
    record,
    reloaded,
    take,
)
from oracle import example, frame, tfrecord_file

# The contents of a state.


@every_order
def test_a_state_is_less_than_400_bytes_of_json(ds: Untyped, order: str) -> None:
    blocks = fr.Blocks(block_bytes=2**63 - 1, lanes=2**16)
    wide: dict[str, Any] = (
        {} if order == "listed" else {"shuffle": blocks, "batch_size": 2**31}
    )
    loader = loader_of(ds, order, seed=2**64 - 1, **wide)
    loader.set_epoch(2**63 - 1)
    state = loader.state_dict()
    assert reloaded(state) == state
    assert len(json.dumps({**state, "position": 2**63 - 1})) < 400
    loader.load_state_dict(reloaded(state))
    assert loader.epoch == 2**63 - 1
    loader.peek()


@every_order
def test_a_state_does_not_depend_on_ranks_threads_and_batch_size(
    ds: Untyped, order: str
) -> None:
    def state(**options: Untyped) -> dict[str, Any]:
        loader: Untyped = loader_of(ds, order, seed=3, **options)
        found: dict[str, Any] = loader.state_dict()
        return found

    want = state()
    assert list(want) == [
        "version",
        "fingerprint",
        "order",
        "seed",
        "epoch",
        "position",
    ]
    assert state(num_threads=8, prefetch=1, memory_limit="1MB") == want
    assert state(transform=dict, transform_threads=2) == want
    assert state(pad_last=True) == want
    if order != "mixed per batch":
        assert state(rank=1, world_size=2, pad_last=True) == want
        assert state(batch_size=9) == want


def test_a_state_belongs_to_the_caller(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=fr.Blocks())
    state = loader.state_dict()
    state["order"]["shuffle"]["lanes"] = 1
    state["order"].clear()
    assert loader.state_dict()["order"]["shuffle"]["lanes"] == 64


def test_loading_a_state_sets_the_seed(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True, seed=11)
    take(loader, 2)
    again = ds.loader(5, shuffle=True, seed=12)
    again.load_state_dict(loader.state_dict())
    want = labels(ds.loader(5, shuffle=True, seed=11).repeat(2))
    assert labels(again.repeat(2)) == want[10:]
    assert again.state_dict()["seed"] == 11


# Invalid states.


@pytest.mark.parametrize(
    ("change", "text"),
    [
        *(
            ({name: value}, name)
            for name in ("seed", "epoch", "position")
            for value in (-1, True, "1", 1.0, None, 2**64, 10**40, [1])
        ),
        ({"version": 2}, "version .* got 2"),
        ({"version": 2, "more": 0}, "version .* got 2"),
        ({"version": "1"}, "version .* got '1'"),
        ({"version": None}, "version .* got None"),
        ({"fingerprint": 3}, "fingerprint"),
        ({"fingerprint": None}, "fingerprint"),
        ({"order": None}, "order"),
        ({"order": [1]}, "order"),
        ({"order": {}}, "a different order"),
        ({"order": {"shuffle": True}}, "a different order"),
        ({"order": {"shuffle": False, "mix": "0"}}, "a different order"),
        ({"order": {1: b"", (2,): {3}}}, "a different order"),
        ({"more": 1}, "more"),
        ({7: 1}, "7"),
        ({"position": N + 1}, f"position .* at most {N}, .* got {N + 1}"),
        ({"position": 2**63}, "positions of an epoch"),
    ],
)
def test_an_invalid_value_is_a_value_error_that_names_it(
    ds: Untyped, change: dict[Any, Any], text: str
) -> None:
    loader = ds.loader(5)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    for strict in (True, False):
        with pytest.raises(ValueError, match=text):
            loader.load_state_dict({**state, **change}, strict=strict)
    assert loader.state_dict() == state
    assert labels(batches) == list(range(5, N)), "the running epoch is not disturbed"


@pytest.mark.parametrize(
    "key", ["version", "fingerprint", "order", "seed", "epoch", "position"]
)
def test_a_missing_key_is_a_value_error(ds: Untyped, key: str) -> None:
    loader = ds.loader(5)
    state = loader.state_dict()
    del state[key]
    with pytest.raises(ValueError, match=f"keys.*{key}"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("garbage", [None, 3, "state", [], [("version", 1)], {}, b""])
def test_an_object_that_is_not_a_state_is_a_value_error(
    ds: Untyped, garbage: Untyped
) -> None:
    with pytest.raises(ValueError, match="state must be a dict"):
        ds.loader(5).load_state_dict(garbage)


def test_a_position_at_the_end_is_the_next_epoch(ds: Untyped) -> None:
    loader = ds.loader(5)
    loader.load_state_dict({**loader.state_dict(), "position": N})
    assert (loader.epoch, loader.step) == (1, 0)


# Other orders and datasets.


@pytest.mark.parametrize("n_reads", range(8))
def test_a_state_is_of_one_moment_while_another_thread_takes(
    ds: Untyped, n_reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread ends the epoch after `n_reads` reads of the position."""
    loader = ds.loader(5, num_threads=0)
    iterator = iter(loader)
    take(iterator, len(loader) - 1)
    before, cursor = loader.state_dict(), loader._progress.cursor
    list(iterator)
    after, moved = loader.state_dict(), loader._progress.cursor
    reads = itertools.chain([cursor] * n_reads, itertools.repeat(moved))
    monkeypatch.setattr(
        Progress, "cursor", property(lambda _: next(reads)), raising=False
    )
    assert loader.state_dict() == (after if n_reads == 0 else before)


def test_an_interrupted_load_changes_nothing(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, other = ds.loader(5, shuffle=True), ds.loader(5, shuffle=True, seed=9)
    take(iter(other), 2)
    take(iter(loader), 1)
    before = loader.state_dict()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loader.load_state_dict(other.state_dict())
    assert loader.state_dict() == before
    loader.load_state_dict(other.state_dict())
    assert loader.state_dict() == other.state_dict()


def test_the_state_of_another_order_is_refused(ds: Untyped) -> None:
    loaders = {order: loader_of(ds, order) for order in ORDERS}
    data = {**loaders, "lanes": ds.loader(5, shuffle=fr.Blocks(300, lanes=4))}
    data["blocks of another size"] = ds.loader(5, shuffle=fr.Blocks(301, lanes=3))
    weights = {"a": (ds.select(range(20)), 3), "b": (ds.select(range(20, N)), 1)}
    data["other weights"] = fr.mix(weights).loader(5, shuffle=True)
    data["another seed"] = fr.mix(weights, seed=1).loader(5, shuffle=True)
    data["another length"] = fr.mix(weights, length=9).loader(5, shuffle=True)
    data["runs of another size"] = loader_of(ds, "mixed per batch", batch_size=6)
    for one, other in itertools.permutations(data, 2):
        state = data[one].state_dict()
        for strict in (True, False):
            with pytest.raises(ValueError, match="a different order"):
                data[other].load_state_dict(state, strict=strict)


def frames(n: int) -> list[bytes]:
    return [frame(record(k)) for k in range(n)]


def with_one_changed(at: int) -> list[bytes]:
    """Files with the same sizes and another payload."""
    return [frame(record(n, pixel=7 + (n == at))) for n in range(17)]


def open_bytes(write: Write, *files: list[bytes]) -> Untyped:
    return open_dataset([write(b"".join(f)) for f in files], features=SPEC)


OTHER_DATA: dict[str, list[list[bytes]]] = {
    "files in another order": [frames(17)[9:], frames(17)[:9]],
    "records cut into other files": [frames(17)[:8], frames(17)[8:]],
    "records in another order": [[*frames(17)[8::-1]], frames(17)[9:]],
    "one record more": [frames(17)[:9], frames(18)[9:]],
    "one record less": [frames(17)[:9], frames(16)[9:]],
    "one file more": [frames(17)[:9], frames(17)[9:], []],
    "one file less": [frames(9)],
    **{
        f"record {at} changed": [with_one_changed(at)[:9], with_one_changed(at)[9:]]
        for at in range(17)
    },
}


@pytest.mark.parametrize("what", OTHER_DATA)
def test_the_state_of_another_dataset_is_refused_by_default(
    write: Write, what: str
) -> None:
    loader = open_bytes(write, frames(17)[:9], frames(17)[9:]).loader(3)
    take(loader, 2)
    state = reloaded(loader.state_dict())
    other = open_bytes(write, *OTHER_DATA[what])
    again = other.loader(3)
    again.seek(1)
    with pytest.raises(ValueError, match=r"a different dataset.*strict=False"):
        again.load_state_dict(state)
    assert (again.epoch, again.step) == (0, 1)
    again.load_state_dict(state, strict=False)
    assert labels(again) == other[6:]["n"].tolist()


def test_sampled_records_of_large_datasets_are_distinguished(write: Write) -> None:
    """The fingerprint samples the first, the last and 16 records in between."""
    n = 500
    payloads = [example({b"n": ("int64", [1000 + k])}) for k in range(n)]

    def fingerprint(changed: int | None) -> object:
        mine = list(payloads)
        if changed is not None:
            mine[changed] = example({b"n": ("int64", [2000])})
        ds = open_dataset(write(tfrecord_file(mine)), features={"n": SPEC["n"]})
        return ds.loader(5).state_dict()["fingerprint"]

    want = fingerprint(None)
    assert fingerprint(None) == want
    for changed in (0, n // 17, n * 9 // 17, n * 16 // 17, n - 1):
        assert fingerprint(changed) != want


def test_a_copy_elsewhere_with_other_times_resumes(
    ds: Untyped, paths: list[Path], tmp_path: Path
) -> None:
    loader = ds.loader(5, shuffle=True)
    take(loader, 3)
    copies = []
    for i, path in enumerate(paths):
        copies.append(tmp_path / f"{9 - i}-copy.tfrecord")
        shutil.copyfile(path, copies[-1])
        os.utime(copies[-1], (10**9 + i, 10**9 + i))
    again = open_dataset(copies, features=SPEC).loader(5, shuffle=True)
    again.load_state_dict(reloaded(loader.state_dict()))
    assert labels(again) == labels(ds.loader(5, shuffle=True))[15:]


def test_states_do_not_depend_on_the_features(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    take(loader, 3)
    words = ds.select_columns(["n"]).with_transform(lambda batch: {"n": batch["n"]})
    again = words.loader(5, shuffle=True)
    again.load_state_dict(loader.state_dict())
    assert labels(again) == labels(ds.loader(5, shuffle=True))[15:]


VIEWS: dict[str, Callable[[Untyped], Untyped]] = {
    "the data": lambda ds: ds,
    "select": lambda ds: ds.select(range(10, 30)),
    "select backwards": lambda ds: ds.select(range(29, 9, -1)),
    "select others": lambda ds: ds.select(range(11, 31)),
    "select by number": lambda ds: ds.select([3, 1, 4, 1, 5]),
    "filter": lambda ds: ds.filter(lambda batch: batch["n"] % 2 == 0),
    "shard 0": lambda ds: ds.shard(num_shards=2, index=0),
    "shard 1": lambda ds: ds.shard(num_shards=2, index=1),
    "split 0": lambda ds: ds.split([0.5, 0.5])[0],
    "split 1": lambda ds: ds.split([0.5, 0.5])[1],
    "concat": lambda ds: fr.concat([ds, ds]),
}


def test_views_have_separate_states(ds: Untyped, paths: list[Path]) -> None:
    state = {
        name: view(ds).loader(5, shuffle=True).state_dict()
        for name, view in VIEWS.items()
    }
    afresh = open_dataset(paths, features=SPEC)
    for name, view in VIEWS.items():
        loader = view(afresh).loader(5, shuffle=True)
        loader.load_state_dict(state[name])
        for other in VIEWS.keys() - {name}:
            with pytest.raises(ValueError, match="a different dataset"):
                loader.load_state_dict(state[other])


def test_numpy_integers_in_a_state_are_accepted(
    ds: Untyped,
) -> None:
    loader = ds.loader(3, shuffle=True, seed=2**63)
    next(iter(loader))
    state = loader.state_dict()
    other = ds.loader(3, shuffle=True)
    other.load_state_dict(
        state
        | {
            "seed": np.uint64(state["seed"]),
            "position": np.array(state["position"]),
            "epoch": np.int32(0),
        }
    )
    assert other.state_dict() == state
