"""docs/migration.md: the code there runs, and reads what it says.

Goal
    Whoever copies a block of fastrec code from the page has a program that works.
Method
    Every Python block that imports fastrec is run in a folder with the files it names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from oracle_example import sequence
from oracle_frames import tfrecord_file

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    if "import fastrec" in block
]
N_RECORDS = 300  # in each of two files


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page, which is the current one."""
    folder = tmp_path / "data"
    folder.mkdir()
    for f in range(2):
        with fr.Writer(folder / f"train-{f}.tfrecord") as w:
            for i in range(N_RECORDS):
                image = np.full((28, 28), i % 256, np.uint8).tobytes()
                w.write({"image": image, "label": i, "tags": ["tag"] * (1 + i % 3)})
    clip = sequence(
        {b"label": ("int64", [1])},
        {
            b"audio": [("float", [0.5, 1.0])] * 3,
            b"words": [("bytes", [b"a"]), ("bytes", [])],
        },
    )
    (folder / "clips.tfrecord").write_bytes(tfrecord_file([clip] * 40))
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_page_has_code() -> None:
    assert len(BLOCKS) >= 6


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_runs(block: str) -> None:
    steps: list[tuple[Any, ...]] = []
    names: dict[str, Any] = {"step": lambda *arrays: steps.append(arrays)}
    exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 (our own page)
    if "loader" in names:
        n_rows = sum(len(batch["label"]) for batch in names["loader"])
        assert n_rows > 0
    if "image" in names:
        assert (names["image"] == names["batch"]["label"][:, None, None] % 256).all()
    if "step(" in block:
        assert steps
        assert all(len(arrays[0]) == len(arrays[1]) for arrays in steps)
