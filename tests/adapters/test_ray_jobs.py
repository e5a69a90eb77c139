"""Commands that run on a Ray cluster: ``fastrec index|verify|shuffle --ray ADDRESS``.

Goal
    The output and the files are those of the same command without a cluster, and so are
    errors and exit statuses. A killed worker changes nothing.
Method
    Both forms of a command on the same files; a cluster of two workers that do not share
    the caches of the driver.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import fastrec as fr
from columns import Untyped, Write
from fastrec.ray import jobs
from numbered import FILE_SIZES, N, record, write_files
from oracle import tfrecord_file

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray's about itself
]


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[str]:
    """Start a local cluster; yield its address."""
    ray.init(
        num_cpus=2,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module")
def paths(write: Write) -> list[str]:
    return [str(path) for path in write_files(write, FILE_SIZES)]


def fastrec(*arguments: Untyped, folder: Path | None = None) -> Untyped:
    return subprocess.run(
        [sys.executable, "-m", "fastrec", *map(str, arguments)],
        capture_output=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        text=True,
    )


def without_times(text: str) -> str:
    return re.sub(r"(in|verified) [\d.]+ s.*", "", text)


def test_verify_prints_the_same(paths: list[str], write: Write, address: str) -> None:
    data = bytearray(tfrecord_file(record(n) for n in range(30)))
    data[700] ^= 1
    damaged = str(write(bytes(data)))
    for files, status in ((paths, 0), ([*paths, damaged], 1)):
        plain, by_ray = (
            fastrec("verify", *files),
            fastrec("verify", *files, "--ray", address),
        )
        assert (plain.returncode, by_ray.returncode) == (status, status), by_ray.stderr
        assert without_times(by_ray.stdout) == without_times(plain.stdout)


def test_relative_paths_are_those_of_the_command(
    paths: list[str], address: str
) -> None:
    folder = Path(paths[0]).parent
    names = [Path(path).name for path in paths]
    done = fastrec("verify", *names, "--json", "--ray", address, folder=folder)
    assert json.loads(done.stdout)["n_records"] == N, done.stderr
    missing = fastrec("verify", "missing.tfrecord", "--ray", address, folder=folder)
    assert missing.returncode == 2


def test_index_builds_shared_indexes(
    paths: list[str], address: str, tmp_path: Path
) -> None:
    done = fastrec("index", *paths, "--index-dir", tmp_path, "--json", "--ray", address)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [file["n_records"] for file in found["files"]] == list(FILE_SIZES)
    again = fastrec("index", *paths, "--index-dir", tmp_path, "--json")
    assert json.loads(again.stdout)["n_bytes_indexed"] == 0, "built again"
    assert len(fr.open(paths, index_dir=tmp_path)) == N
    refused = fastrec("index", *paths, "--ray", address)
    assert refused.returncode == 2
    assert "requires --index-dir" in refused.stderr


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_shuffle_writes_the_same_files(
    paths: list[str], address: str, tmp_path: Path, compression: str
) -> None:
    suffix = ".tfrecord" + ".gz" * (compression == "gzip")
    written = []
    for name, options in (("plain", []), ("ray", ["--ray", address])):
        folder = tmp_path / name
        folder.mkdir()
        done = fastrec(
            *("shuffle", *paths, "--num-shards", 5, "--seed", 3),
            *("--out", "{shard:02d}-of-{num_shards:02d}" + suffix),
            *("--compression", compression, *options),
            folder=folder,
        )
        assert done.returncode == 0, done.stderr
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    assert len(written[0]) == 5
    again = fastrec(
        "shuffle",
        *paths,
        "-o",
        tmp_path / "ray" / "00-of-05.tfrecord",
        *(["--ray", address]),
    )
    if compression == "none":
        assert again.returncode == 2
        assert "--overwrite replaces it" in again.stderr


def test_errors_are_one_line(write: Write, address: str, tmp_path: Path) -> None:
    data = bytearray(tfrecord_file(record(n) for n in range(30)))
    data[20] ^= 1
    damaged = write(bytes(data))
    out = tmp_path / "{shard}.tfrecord"
    done = fastrec("shuffle", damaged, "-o", out, "--ray", address)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"{damaged}, record 0" in done.stderr
    assert not list(tmp_path.iterdir())
    url = "memory://d/{shard}.tfrecord"
    done = fastrec("shuffle", damaged, "-o", url, "--ray", address)
    assert done.returncode == 2
    assert f"shuffle to a directory that all nodes share, got {url!r}" in done.stderr
    done = fastrec("verify", damaged, "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "cannot connect to the Ray cluster '127.0.0.1:1'" in done.stderr


def test_a_killed_worker_changes_no_result(tmp_path: Path) -> None:
    marker = tmp_path / "killed"

    def kill_once(i: int) -> int:
        if i == 5 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i * i

    tasks = [partial(kill_once, i) for i in range(8)]
    seen: list[tuple[int, int]] = []
    sizes = list(range(8))
    results = jobs.run_tasks(tasks, sizes, lambda *progress: seen.append(progress))
    assert results == [i * i for i in range(8)]
    assert marker.exists()
    assert seen[-1] == (28, 28)
    assert seen == sorted(seen)
