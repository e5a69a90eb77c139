"""Ranks of torch.distributed: what each reads, and a loader that is of another one.

Goal
    Ranks that train together make the same steps on different rows. A loader that was
    given another rank or world size than the process group's is an error that says both.
    Others take their rank from `process_group`.
Method
    Two processes with gloo, which train a model of one weight (torch_ranks.py), and four
    in a 2 x 2 device mesh (mesh_ranks.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from children import SECONDS_TO_HANG, start_program
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX"),
]
torch: Untyped = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

N = 30
BATCH_SIZE = 4


@pytest.fixture(scope="module")
def path(write: Write) -> Path:
    return write(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(N)))


@pytest.fixture(scope="module")
def found(path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return said_by("torch_ranks.py", 2, tmp_path_factory.mktemp("ranks"), path)


def said_by(program: str, n_ranks: int, folder: Path, path: Path) -> list[Any]:
    """Start a program once for each rank, and return what each of them prints."""
    ranks = [start_program(program, rank, folder, path) for rank in range(n_ranks)]
    said = [rank.communicate(timeout=2 * SECONDS_TO_HANG) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * n_ranks, said
    return [json.loads(out) for out, _ in said]


def test_ranks_make_the_same_steps_on_different_rows(
    found: list[dict[str, Any]], path: Path
) -> None:
    ds = open_dataset(path)
    for epoch, seen in enumerate(["seen", "seen in a worker"]):
        for rank in range(2):
            loader = ds.loader(BATCH_SIZE, shuffle=True, rank=rank, world_size=2)
            steps = range(len(loader))
            expected = [loader.batch(step, epoch)["n"].tolist() for step in steps]
            assert found[rank][seen] == expected
        every = [n for rank in found for step in rank[seen] for n in step]
        assert sorted(every) == list(range(N))


def test_ranks_end_with_one_model(found: list[dict[str, Any]]) -> None:
    assert found[0]["weight"] == found[1]["weight"]


def test_a_loader_that_was_given_another_rank_is_refused(
    found: list[dict[str, Any]],
) -> None:
    for rank in range(2):
        said = found[rank]["refusals"]
        here = f"this process is rank {rank} of 2 in torch.distributed"
        assert said["given"] == said["as alone in its group"] == ""
        assert f"the loader is rank 0 of 1 (given), but {here}" in said["as alone"]
        assert f"rank={rank}, world_size=2" in said["as alone"]
        assert "pass process_group=" in said["as alone"]
        assert "rank 0 of 1 in process_group" in said["given in another group"]
        assert "is not in process_group" in said["in the other's group"]


@pytest.mark.timeout(4 * SECONDS_TO_HANG)
def test_a_dataset_takes_its_rank_from_the_group_of_a_mesh(
    path: Path, tmp_path: Path
) -> None:
    ds = open_dataset(path)
    ranks = said_by("mesh_ranks.py", 4, tmp_path, path)
    assert [found["dp"] for found in ranks] == [0, 0, 1, 1]
    for rank, found in enumerate(ranks):
        part = ds.loader(BATCH_SIZE, rank=found["dp"], world_size=2)
        expected = [batch["n"].tolist() for batch in part]
        assert found["loader"] == found["iterable"] == expected
        quarter = ds.loader(BATCH_SIZE, rank=rank, world_size=4)
        assert found["all"] == [batch["n"].tolist() for batch in quarter]
        assert found["a loader of all ranks"] == expected
        assert f"rank={found['dp']}, world_size=2" in found["another rank"]
