"""Ids of rows, counted over every framework: each once in an epoch.

Goal
    Whatever reads a loader, one or two ranks together get each row of an epoch once: if
    it was made before or after the process group, and if the epoch was resumed at its end
    or in its middle, by the same or another number of ranks, with the same or another
    batch size.
Method
    1,003 rows in three files of uneven sizes. One process of one rank and two processes
    of two ranks (counted_ids.py) read with each framework, save states, and then resume
    those of both.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from children import SECONDS_TO_HANG, Child, start_program
from columns import Untyped
from oracle import example, tfrecord_file

PACKAGES = ("accelerate", "jax", "keras", "lightning", "torchdata", "transformers")

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX"),
    pytest.mark.timeout(8 * SECONDS_TO_HANG),
]
torch: Untyped = pytest.importorskip("torch")
for package in PACKAGES:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

SIZES = (500, 3, 500)
ALL = list(range(sum(SIZES)))
WAYS = [
    *("loader", "torch", "DataLoader", "DataLoader, 2 workers", "StatefulDataLoader"),
    *("StatefulDataLoader, 2 workers", "Lightning", "accelerate", "Trainer", "JAX"),
    "Keras",
]
# A plain DataLoader has no state. Keras begins an epoch again that was left.
WAYS_THAT_RESUME = [way for way in WAYS if not way.startswith("DataLoader")]
SAVED_SIZE = 64  # of the batches of a rank whose states are resumed


def said(program: Child[str]) -> dict[str, Any]:
    """Return the next line of JSON that a program prints."""
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith('{"'):
            answer: dict[str, Any] = json.loads(line)
            return answer
    pytest.fail(f"a rank ended: {program.communicate()}")


@pytest.fixture(scope="module")
def read(
    write: Callable[[bytes], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    """Return what each rank of one and of two said, by their number."""
    begins = (sum(SIZES[:i]) for i in range(len(SIZES)))
    paths = [
        write(
            tfrecord_file(example({b"n": ("int64", [begin + n])}) for n in range(size))
        )
        for begin, size in zip(begins, SIZES, strict=True)
    ]
    folder = tmp_path_factory.mktemp("states")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = [(0, 1), (0, 2), (1, 2)]
    arguments = [(rank, n_ranks, folder, port, *paths) for rank, n_ranks in places]
    programs = [start_program("counted_ids.py", *each) for each in arguments]
    try:
        found = [said(program) for program in programs]
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()
        for answer, program in zip(found, programs, strict=True):
            answer["resumed"] = said(program)
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    return {1: found[:1], 2: found[1:]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", ["early", "late"])
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_ranks_read_each_row_once_whenever_the_loader_was_made(
    way: str, made: str, n_ranks: int, read: dict[int, list[dict[str, Any]]]
) -> None:
    parts = [rank[made][way] for rank in read[n_ranks]]
    assert sorted(n for part in parts for n in part) == ALL
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("way", WAYS_THAT_RESUME)
@pytest.mark.parametrize("where", ["middle", "end"])
@pytest.mark.parametrize("n_before", [1, 2])
@pytest.mark.parametrize("n_after", [1, 2])
@pytest.mark.parametrize("batch_size", [SAVED_SIZE // 2, SAVED_SIZE, 2 * SAVED_SIZE])
def test_a_resumed_epoch_has_each_remaining_row_once(
    way: str,
    where: str,
    n_before: int,
    n_after: int,
    batch_size: int,
    read: dict[int, list[dict[str, Any]]],
) -> None:
    size_before, size_after = n_before * SAVED_SIZE, n_after * batch_size
    if (way, where) == ("Lightning", "middle") and size_before != size_after:
        pytest.skip("Lightning counts the batches of an epoch, whatever their sizes")
    seen = []
    if where == "middle" and way != "Keras":
        seen = [n for rank in read[n_before] for n in rank["middle"][way]]
        assert 0 < len(seen) < len(ALL)
    case = f"{way}; {where}; {n_before}; {batch_size}"
    rest = [n for rank in read[n_after] for n in rank["resumed"][case]]
    assert sorted([*seen, *rest]) == ALL


@pytest.mark.parametrize("way", WAYS_THAT_RESUME)
def test_an_epoch_after_a_resume_at_the_end_has_another_order(
    way: str, read: dict[int, list[dict[str, Any]]]
) -> None:
    (alone,) = read[1]
    resumed = alone["resumed"][f"{way}; end; 1; {SAVED_SIZE}"]
    assert resumed == alone["resumed"][f"loader; end; 1; {SAVED_SIZE}"]
    assert resumed != alone["late"][way]
