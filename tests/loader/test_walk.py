"""Epochs in file order without an index.

Goal
    The first batch of a large file reads little of it, an epoch keeps little of it
    resident, and a damaged record ends the epoch in its step.
Method
    The resident memory that Linux reports, and files with one byte changed.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

N_RECORDS = 4_000
FEATURES = {"image": fr.VarLen("bytes"), "label": "int64"}


def resident_mib() -> float:
    """Return the resident size of mapped files in this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("RssFile:"))
    return int(line.split()[1]) / 1024


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file of 400 MB, more than an epoch keeps resident."""
    path = str(tmp_path_factory.mktemp("walk") / "large.tfrecord")
    with fr.Writer(path) as writer:
        for i in range(N_RECORDS):
            writer.write({"image": bytes(100_000), "label": i})
    return path


@pytest.fixture
def _no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path))


@linux
@pytest.mark.usefixtures("_no_index")
@pytest.mark.parametrize("num_threads", [0, 2])
def test_the_first_batch_of_a_large_file_reads_little(
    large: str, num_threads: int
) -> None:
    before = resident_mib()
    loader = fr.open(large, features=FEATURES).loader(
        8, num_threads=num_threads, prefetch=1
    )
    batch = next(iter(loader))
    assert batch["label"].tolist() == list(range(8))
    assert resident_mib() - before < 32


@linux
@pytest.mark.usefixtures("_no_index")
@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_keeps_little_of_the_files_resident(
    large: str, num_threads: int, is_indexed: bool, shuffle: bool
) -> None:
    before = resident_mib()
    dataset = fr.open(large, features=FEATURES)
    if is_indexed:
        assert len(dataset) == N_RECORDS
    peak, total = 0.0, 0
    for batch in dataset.loader(
        16, num_threads=num_threads, shuffle=shuffle, seed=1, prefetch=2
    ):
        peak = max(peak, resident_mib() - before)
        total += int(batch["label"].sum())
    assert total == N_RECORDS * (N_RECORDS - 1) // 2
    assert peak < 230


@pytest.mark.usefixtures("_no_index")
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("in_length", [False, True])
def test_damage_ends_the_epoch_in_its_step(
    tmp_path: Path, num_threads: int, in_length: bool
) -> None:
    path = tmp_path / "damaged.tfrecord"
    with fr.Writer(path) as writer:
        for i in range(2_000):
            writer.write({"label": np.array([1_000 + i])})  # frames of one size
    content = bytearray(path.read_bytes())
    record = 1_111
    content[len(content) // 2_000 * record + (1 if in_length else 14)] ^= 1
    path.write_bytes(content)

    dataset = fr.open(path, features={"label": "int64"})
    labels: list[int] = []
    batches = iter(dataset.loader(64, num_threads=num_threads))

    def read_all() -> None:
        for batch in batches:
            labels.extend(batch["label"].tolist())

    with pytest.raises(fr.CorruptionError) as caught:
        read_all()
    assert labels == list(range(1_000, 1_000 + record // 64 * 64))
    assert caught.value.record == record
