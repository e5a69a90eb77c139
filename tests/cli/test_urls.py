"""The commands with URLs.

Goal
    A command shows and writes the same for a URL as for a local file, apart from names.
Method
    An HTTP server and moto's S3 server in this process.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import run
from object_server import ObjectServer, served
from oracle import example, tfrecord_file
from s3_server import S3
from written import payloads

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("obstore", reason="extra `remote` is not installed")
pytest.importorskip("fsspec", reason="extra `remote` is not installed")

ROWS = [example({b"n": ("int64", [i]), b"x": ("bytes", [b"abc"])}) for i in range(100)]
FILES = {
    "a.tfrecord": tfrecord_file(ROWS),
    "b.tfrecord.gz": gzip.compress(tfrecord_file(ROWS)),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with served(FILES) as running:
        yield running


@pytest.fixture
def s3(s3: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "command",
    [
        ("head", "-n", "3"),
        ("count",),
        ("stats",),
        ("query", "SELECT n FROM records WHERE n = 7"),
    ],
    ids=lambda command: command[0],
)
def test_the_output_is_that_of_a_local_file(
    server: ObjectServer, tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    local = tmp_path / name
    local.write_bytes(FILES[name])
    first, *options = command
    expected, _ = run(first, local, *options)
    shown, _ = run(first, f"{server.url}/{name}", *options)
    assert shown.replace(server.url, str(tmp_path)) == expected


@pytest.mark.parametrize("name", FILES)
def test_verify(server: ObjectServer, name: str) -> None:
    url = f"{server.url}/{name}"
    shown, _ = run("verify", url)
    assert "100 intact records in 1 file" in shown
    data = bytearray(FILES[name])
    data[len(data) // 2] ^= 1
    server.objects["damaged"] = bytes(data)
    shown, _ = run("verify", f"{server.url}/damaged", status=1)
    assert f"{server.url}/damaged" in shown


def test_index_and_info(server: ObjectServer, tmp_path: Path) -> None:
    url = f"{server.url}/a.tfrecord"
    shown, _ = run("index", url, "--index-dir", tmp_path)
    assert "100" in shown
    assert list(tmp_path.iterdir())
    shown, _ = run("info", url)
    assert "100" in shown


@pytest.mark.parametrize("name", FILES)
def test_rewriting_from_a_server_to_a_bucket(
    server: ObjectServer, s3: S3, name: str
) -> None:
    # Another name for each test: writers on one machine lock a URL.
    out = s3.url(f"{name}-out-{{shard}}-of-{{num_shards}}.tfrecord")
    source = f"{server.url}/{name}"
    shown, _ = run("reshard", source, "--out", out, "--num-shards", "3", "--json")
    names = [f"{name}-out-{i}-of-3.tfrecord" for i in range(3)]
    assert json.loads(shown)["files"] == [s3.url(name) for name in names]
    assert s3.names() == names
    assert [p for name in names for p in payloads(s3.get(name))] == ROWS
    target = s3.url(f"{name}-shuffled-{{shard}}.tfrecord")
    run("shuffle", s3.url(f"{name}-out-*"), "--out", target, "--seed", "1")
    found = [
        p for name in s3.names() if "-shuffled-" in name for p in payloads(s3.get(name))
    ]
    assert sorted(found) == sorted(ROWS)
    assert found != ROWS


def test_convert_a_url(server: ObjectServer, s3: S3, tmp_path: Path) -> None:
    table = tmp_path / "a.parquet"
    run("convert", f"{server.url}/a.tfrecord", "--out", table)
    run("convert", table, "--out", s3.url("back.tfrecord"))
    assert len(payloads(s3.get("back.tfrecord"))) == len(ROWS)


def test_tables_are_not_written_to_urls(server: ObjectServer) -> None:
    url = "s3://user:pw@bucket/a.parquet"
    _, errors = run("convert", f"{server.url}/a.tfrecord", "--out", url, status=2)
    assert "must be a local path for tables and images" in errors
    assert "pw" not in errors


def test_wrong_urls_are_one_line_errors(server: ObjectServer) -> None:
    for url in (f"{server.url}/absent.tfrecord", f"{server.url}/absent/*"):
        _, errors = run("count", url, status=2)
        assert errors.startswith("error: ")
        assert url in errors
        assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("count", "URL"),
        ("verify", "URL"),
        ("index", "URL"),
        ("index", "FILE", "--index-dir", "URL"),
        ("images", "FILE", "--out", "URL.txt"),
        ("repair", "FILE", "--out", "URL.gz"),
        ("reshard", "FILE", "--out", "URL.gz"),
        ("reshard", "FILE", "--num-shards", "2", "--out", "URL"),
        ("reshard", "FILE", "--num-shards", "2", "--out", "URL/"),
        ("shuffle", "FILE", "--out", "URL"),
        ("convert", "FILE", "--out", "URL.parquet"),
        ("convert", "URL.csv", "--out", "URL"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("url", ["http:/u:hunter2@h/x", "s3://k:hunter2/@b/x"])
def test_credentials_are_in_no_error_of_a_command(
    command: tuple[str, ...],
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.tfrecord"
    file.write_bytes(FILES["a.tfrecord"])
    words = [word.replace("URL", url).replace("FILE", str(file)) for word in command]
    _, errors = run(*words, status=2)
    assert "h/x" in errors or "b/x" in errors
    assert "hunter2" not in errors
    assert list(tmp_path.iterdir()) == [file]
