"""The programs in examples/ run as they are, and do what they say.

Goal
    Fashion-MNIST goes from IDX files to shards that hold its images, and to a
    classifier that has learned; from made-up files and from files that are there. The
    same shards train a classifier in every framework, and answer a query. The programs
    that make their data themselves do what their first lines promise.
Method
    Each program runs in a separate process, on few records. The shards are read again
    and compared with the IDX files.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fastrec as fr

EXAMPLES = Path(__file__).parents[1] / "examples"
N_TRAIN, N_TEST = 3000, 500


def run_example(
    name: str, *arguments: str | Path, folder: Path, **environment: str
) -> str:
    """Run a program in `folder`; return what it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        check=False,
        cwd=folder,
        env=os.environ | environment,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    if not environment:
        assert done.stderr == ""
    return done.stdout


def accuracy(shown: str) -> float:
    found = re.search(r"accuracy on the test records: ([\d.]+)%", shown)
    assert found is not None, shown
    return float(found[1]) / 100


def idx_values(path: Path, header_bytes: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(gzip.decompress(path.read_bytes())[header_bytes:], np.uint8)


def test_damaged_idx_files_are_refused(tmp_path: Path) -> None:
    read_idx = runpy.run_path(str(EXAMPLES / "fashion_mnist.py"))["read_idx"]
    path = tmp_path / "labels-idx2-ubyte"
    good = b"\0\0\x08\2\0\0\0\2\0\0\0\1\3\4"
    path.write_bytes(good)
    assert read_idx(path).tolist() == [[3], [4]]
    for bad in [good[:n] for n in range(len(good))] + [good + b"\5", b"\1" + good]:
        path.write_bytes(bad)
        with pytest.raises((IndexError, SystemExit, ValueError)):
            read_idx(path)


def sorted_rows(images: npt.NDArray[Any], labels: npt.NDArray[Any]) -> list[bytes]:
    rows = zip(images, labels.tolist(), strict=True)
    return sorted(bytes([label]) + image.tobytes() for image, label in rows)


@pytest.fixture(scope="module")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the program ran on made-up files, and what it printed."""
    folder = tmp_path_factory.mktemp("fashion")
    count = str(N_TRAIN)
    return folder, run_example("fashion_mnist.py", "--records", count, folder=folder)


def assert_learned(shown: str) -> None:
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", shown)]
    assert len(losses) == 2, shown
    assert losses[1] < losses[0]
    assert accuracy(shown) > 0.5, "guessing is right in one of ten"


def test_fashion_mnist_learns(fashion: tuple[Path, str]) -> None:
    _, shown = fashion
    assert f"{N_TRAIN:,} training records, {N_TEST:,} test records" in shown
    assert_learned(shown)


def needs(*packages: str) -> None:
    """Skip a test where a package is not installed, which a program imports."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize(
    ("framework", "environment"),
    [
        pytest.param("torch", {}, marks=pytest.mark.frameworks),
        pytest.param("jax", {}, marks=pytest.mark.frameworks),
        pytest.param("grain", {}, marks=pytest.mark.frameworks),
        pytest.param("keras", {"KERAS_BACKEND": "torch"}, marks=pytest.mark.frameworks),
        pytest.param("tf", {"TF_CPP_MIN_LOG_LEVEL": "3"}, marks=pytest.mark.oracle),
    ],
)
def test_every_framework_learns_from_the_same_shards(
    fashion: tuple[Path, str], framework: str, environment: dict[str, str]
) -> None:
    needs({"tf": "tensorflow"}.get(framework, framework))
    assert_learned(
        run_example(f"train_{framework}.py", folder=fashion[0], **environment)
    )


@pytest.mark.frameworks
def test_a_program_without_files_writes_them(tmp_path: Path) -> None:
    needs("keras", "torch")
    shown = run_example("train_keras.py", folder=tmp_path, KERAS_BACKEND="torch")
    assert_learned(shown)
    assert len(fr.open(tmp_path / "fashion-mnist/train-*.tfrecord")) == 12_000


@pytest.mark.frameworks
def test_the_shards_answer_a_query(fashion: tuple[Path, str]) -> None:
    needs("duckdb", "polars")
    shown = run_example("query_duckdb.py", folder=fashion[0])
    counts = [int(count) for count in re.findall(r"\b(\d{2,4})\b", shown)]
    assert N_TRAIN in [sum(counts[i : i + 10]) for i in range(len(counts))]


@pytest.mark.frameworks
def test_two_processes_share_an_epoch(tmp_path: Path) -> None:
    needs("torch")
    shown = run_example("two_processes.py", folder=tmp_path, OMP_NUM_THREADS="1")
    for rank in (0, 1):
        assert shown.count(f"rank {rank}: 6000 records in 47 steps") == 2, shown
    losses = re.findall(r"loss ([\d.]+), 12000 records", shown)
    assert float(losses[1]) < float(losses[0])


def test_a_buffer_is_biased_and_a_global_shuffle_is_not(tmp_path: Path) -> None:
    needs("matplotlib")
    shown = run_example("shuffle_bias.py", "--records", "70000", folder=tmp_path)
    found = re.findall(
        r"(\d+) of 10 labels in the first 4,000; correlation (\S+)", shown
    )
    (few, biased), (many, unbiased) = found
    assert (few, many) == ("2", "10")
    assert float(biased) > 0.85
    assert abs(float(unbiased)) < 0.02
    assert (tmp_path / "shuffle-bias.png").stat().st_size > 10_000


def test_images_are_read_after_the_shuffle_of_their_paths(tmp_path: Path) -> None:
    needs("PIL")
    shown = run_example("paths_only.py", folder=tmp_path)  # verifies the labels itself
    assert "600 images, of shape (48, 48, 3), in 10 batches" in shown


def test_the_guide_to_examples_works_without_tensorflow(tmp_path: Path) -> None:
    shown = run_example("tf_example.py", folder=tmp_path)
    assert "4 features of 10,000 records are what was written" in shown
    assert "[[0. 1. 2.]\n [3. 4. 5.]]" in shown
    assert len(fr.open(tmp_path / "by-hand.tfrecord")) == 1


def test_images_are_written_and_shown(tmp_path: Path) -> None:
    needs("PIL")
    from PIL import Image

    shown = run_example("show_images.py", folder=tmp_path)
    assert "images.png shows 24 images" in shown
    with Image.open(tmp_path / "images.png") as sheet:
        assert sheet.size == (576, 384)
        colors = np.unique(np.asarray(sheet.convert("RGB")).reshape(-1, 3), axis=0)
    assert len(colors) > 24, "a sheet without pictures"


def test_kept_images_are_decoded_once(tmp_path: Path) -> None:
    needs("PIL")
    needs("cv2")
    shown = run_example("kept_images.py", folder=tmp_path)
    assert "test images of each class: 20 20 20 20\n" in shown
    kept = re.findall(r"(\d+) of 320 rows were kept", shown)
    assert kept == ["0", "320", "320"]


def test_sentences_are_sequences_of_words(tmp_path: Path) -> None:
    shown = run_example("sequences.py", folder=tmp_path)
    assert "[19  8  0  0  0  0  0  0  0] we judge" in shown
    padding = [int(share) for share in re.findall(r"(\d+)% padding", shown)]
    assert padding[1] < padding[0] / 2


@pytest.mark.frameworks
def test_a_policy_learns_from_windows_of_episodes(tmp_path: Path) -> None:
    needs("cv2", "torch")
    shown = run_example("train_policy.py", folder=tmp_path)  # asserts that it learns
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", shown)]
    assert len(losses) == 4, shown
    assert losses[-1] < losses[0] / 2
    assert "100 episodes, 911 steps" in shown


@pytest.mark.parametrize(
    ("name", "prefix", "count"), [("train", "train", N_TRAIN), ("test", "t10k", N_TEST)]
)
def test_the_shards_of_fashion_mnist_hold_its_images(
    fashion: tuple[Path, str], name: str, prefix: str, count: int
) -> None:
    folder = fashion[0] / "fashion-mnist"
    images = idx_values(folder / f"idx/{prefix}-images-idx3-ubyte.gz", 16)
    labels = idx_values(folder / f"idx/{prefix}-labels-idx1-ubyte.gz", 8)
    ds = fr.open(
        f"{folder}/{name}-*-of-00004.tfrecord",
        features={"image": fr.Raw((28, 28), "uint8"), "label": "int64"},
    )
    assert len(ds.files) == 4
    assert len(ds) == count
    batch = ds[0:count]
    wanted = sorted_rows(images.reshape(-1, 28, 28), labels)
    assert sorted_rows(batch["image"], batch["label"]) == wanted


def test_fashion_mnist_takes_files_that_are_there(fashion: tuple[Path, str]) -> None:
    folder, shown = fashion
    given = folder / "fashion-mnist" / "idx"
    again = run_example("fashion_mnist.py", given, "--out", "other", folder=folder)
    # The same records in the same order, so the same classifier.
    assert accuracy(again) == accuracy(shown)
    assert len(list((folder / "other").glob("*.tfrecord"))) == 8
