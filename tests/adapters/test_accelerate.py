"""Accelerate and the Hugging Face Trainer on two ranks: all records, or an error.

Goal
    Under Accelerate, no way of reading loses records silently. `fr.torch.loader` and
    the map-style data set deliver all of them; an IterableDataset whose batches
    Accelerate would divide among the ranks again is refused with the line to write. The
    gradients of the last batches of an epoch are applied, and metrics count each row once.
Method
    Two processes with gloo (accelerate_ranks.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import fastrec as fr
from children import SECONDS_TO_HANG, start_program
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX"),
    pytest.mark.timeout(5 * SECONDS_TO_HANG),
]
torch: Untyped = pytest.importorskip("torch")
for package in ("accelerate", "transformers"):
    pytest.importorskip(package)
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

N = 30
BATCH_SIZE = 4


@pytest.fixture(scope="module")
def path(write: Write) -> Path:
    return write(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(N)))


@pytest.fixture(scope="module")
def found(path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    programs = [
        start_program("accelerate_ranks.py", rank, folder, path) for rank in range(2)
    ]
    said = [program.communicate(timeout=4 * SECONDS_TO_HANG) for program in programs]
    assert [program.returncode for program in programs] == [0, 0], said
    # The Trainer prints its figures before the last line.
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


@pytest.mark.parametrize("way", ["loader", "not prepared", "not prepared after errors"])
def test_each_rank_reads_its_own_part(
    way: str, found: list[dict[str, Any]], path: Path
) -> None:
    for rank in range(2):
        part = open_dataset(path).loader(BATCH_SIZE, rank=rank, world_size=2)
        assert found[rank][way] == [batch["n"].tolist() for batch in part]


@pytest.mark.parametrize(
    "way",
    [
        *("prepared", "in a worker", "rank given", "collated", "chained"),
        *("on each rank", "trainer"),
    ],
)
def test_parts_that_would_be_divided_again_are_refused(
    way: str, found: list[dict[str, Any]]
) -> None:
    for rank in range(2):
        said = found[rank][way]
        assert f"it has the records of rank {rank} of 2" in said
        assert "accelerator.prepare(fr.torch.loader(ds, batch_size=256, " in said
        line = "train_dataset=fr.torch.Dataset(ds), data_collator=fr.torch.collate"
        assert line in said


def test_a_trainer_of_rows_sees_all_of_them(found: list[dict[str, Any]]) -> None:
    seen = [n for rank in found for step in rank["trainer of rows"] for n in step]
    assert set(seen) == set(range(N))
    assert len(seen) == 2 * BATCH_SIZE * 4  # accelerate fills the last batches


def test_the_last_group_of_accumulated_batches_is_applied(
    found: list[dict[str, Any]],
) -> None:
    n_batches = -(-N // (2 * BATCH_SIZE))
    for rank in range(2):
        assert found[rank]["updates"] == [-(-n_batches // 3)] * 2


def test_metrics_count_each_row_once(found: list[dict[str, Any]]) -> None:
    for rank in range(2):
        gathered = found[rank]["gathered"]
        assert sorted(gathered["padded"]) == sorted(gathered["rows"]) == list(range(N))
        (warning,) = gathered["warnings"]
        assert "pass pad_last=True" in warning
        assert "fr.torch.Dataset(ds)" in warning


def test_batches_are_skipped_by_seek(path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    loader = fr.torch.loader(open_dataset(path), BATCH_SIZE)
    with pytest.raises(AttributeError, match=r"loader\.seek.*ignore_data_skip=True"):
        accelerate.skip_first_batches(loader, 2)
