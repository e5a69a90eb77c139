"""``fastrec shuffle``, ``merge``, ``reshard``, ``split``, ``compress`` and ``expand``.

Goal
    The commands do what the library does, print the files they wrote, and report errors
    in one line.
Method
    Commands run in this process through typer's runner, on generated files. The library
    and the standard library read their output.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from commands import run
from oracle import example, tfrecord_file

RECORDS = [example({b"n": ("int64", [n])}) for n in range(5000)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a directory of three files; the second has no records."""
    directory = tmp_path / "in"
    directory.mkdir()
    for name, records in [("a", RECORDS[:70]), ("b", []), ("c", RECORDS[70:])]:
        (directory / f"{name}.tfrecord").write_bytes(tfrecord_file(records))
    return directory


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def records_in(*paths: Path) -> list[bytes]:
    return list(fr.read_records([str(path) for path in paths]))


def test_shuffle_writes_the_order_of_the_loader(files: Path, out: Path) -> None:
    pattern = out / "x-{shard:03d}-of-{num_shards:03d}.tfrecord"
    shown, errors = run(
        *("shuffle", f"{files}/*.tfrecord", "-o", pattern, "--no-sync"),
        *("--shards", "3", "--seed", "9", "--memory", "30MB"),
    )
    assert errors == ""
    assert names_in(out) == [f"x-{k:03d}-of-003.tfrecord" for k in range(3)]
    first, second = shown.splitlines()
    assert first.startswith(f"wrote 5,000 records to 3 files: {out}/x-000-of-003")
    assert second.startswith("5,000 records, ")
    spec = {"n": fr.FixedLen((), "int64")}
    loader = fr.open(files, features=spec).loader(100, shuffle=True, seed=9)
    expected = [RECORDS[n] for batch in loader for n in batch["n"]]
    assert records_in(*sorted(out.iterdir())) == expected


def test_one_shard_needs_no_pattern(files: Path, out: Path) -> None:
    run("shuffle", files, "-o", out / "one", "--compression", "ZLIB", "--level", "1")
    content = zlib.decompress((out / "one").read_bytes())
    assert len(content) == len(tfrecord_file(RECORDS))
    assert sorted(records_in(out / "one")) == sorted(RECORDS)


def test_shuffle_expands_compressed_files_with_a_cache_dir(
    files: Path, out: Path, tmp_path: Path
) -> None:
    run("compress", files, "-o", tmp_path / "gz")
    target = out / "x"
    _, errors = run("shuffle", tmp_path / "gz", "-o", target, status=1)
    assert "--cache-dir" in errors
    assert errors.count("\n") == 1
    run("shuffle", tmp_path / "gz", "-o", target, "--cache-dir", tmp_path / "cache")
    assert sorted(records_in(target)) == sorted(RECORDS)


def test_merge_keeps_the_order_of_a_list(files: Path, out: Path) -> None:
    c, a = files / "c.tfrecord", files / "a.tfrecord"
    shown, _ = run("merge", c, a, "-o", out / "all.tfrecord")
    assert shown.startswith(f"wrote 5,000 records to {out}/all.tfrecord\n")
    merged = (out / "all.tfrecord").read_bytes()
    assert merged == c.read_bytes() + a.read_bytes()


def test_merge_writes_one_file_only(files: Path, out: Path) -> None:
    _, errors = run("merge", files, "-o", out / "{shard}", status=2)
    assert "use fastrec reshard" in errors
    assert names_in(out) == []


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        (["--shards", "4"], [1250] * 4),
        (["--max-shard-records", "2000"], [2000, 2000, 1000]),
        (["--max-shard-bytes", "1GB"], [5000]),
        ([], [5000]),
    ],
)
def test_reshard_writes_the_requested_shards(
    files: Path, out: Path, options: list[str], counts: list[int]
) -> None:
    run("reshard", files, "-o", out / "{shard}", *options)
    paths = [out / str(k) for k in range(len(counts))]
    assert names_in(out) == [path.name for path in paths]
    assert [len(records_in(path)) for path in paths] == counts
    assert records_in(*paths) == RECORDS


def test_reshard_by_size_reads_units(files: Path, out: Path) -> None:
    run("reshard", files, "-o", out / "{shard:02d}", "--max-shard-bytes", "20KB")
    sizes = [path.stat().st_size for path in sorted(out.iterdir())]
    assert len(sizes) > 5
    assert max(sizes) <= 20_000
    assert records_in(*sorted(out.iterdir())) == RECORDS


def test_split_equals_dataset_split(files: Path, out: Path) -> None:
    shown, _ = run(
        *("split", files, "-o", out / "{part}.tfrecord"),
        *("--parts", "train=0.9, valid=0.1", "--seed", "4"),
    )
    train, valid = out / "train.tfrecord", out / "valid.tfrecord"
    assert shown.startswith(
        f"wrote 4,500 records to {train}\nwrote 500 records to {valid}\n5,000 records"
    )
    for path, part in zip(
        (train, valid), fr.open(files).split([0.9, 0.1], seed=4), strict=True
    ):
        assert records_in(path) == list(part.records)


def test_split_may_have_shards(files: Path, out: Path) -> None:
    pattern = out / "{part}-{shard}"
    options = ["--parts", "a=0.5,b=0.5", "--max-shard-records", "2000"]
    run("split", files, "-o", pattern, *options)
    assert names_in(out) == ["a-0", "a-1", "b-0", "b-1"]


@pytest.mark.parametrize("parts", ["train", "a=0.5,a=0.5", "a=x", "=1", ""])
def test_parts_must_be_names_with_fractions(files: Path, out: Path, parts: str) -> None:
    _, errors = run("split", files, "-o", out / "{part}", "--parts", parts, status=2)
    assert "train=0.9,valid=0.1" in errors
    assert names_in(out) == []


def test_compress_and_expand_round_trip(files: Path, out: Path) -> None:
    gz, zz, back = out / "gz", out / "zz", out / "back"
    run("compress", files, "-o", gz, "--level", "9")
    assert names_in(gz) == [f"{name}.tfrecord.gz" for name in "abc"]
    for path in gz.iterdir():
        content = gzip.decompress(path.read_bytes())
        assert content == (files / path.stem).read_bytes()
    run("compress", gz, "-o", zz, "--compression", "ZLIB")
    assert names_in(zz) == [f"{name}.tfrecord.zz" for name in "abc"]
    shown, _ = run("expand", zz, "-o", back)
    assert shown.count("wrote") == 3
    for path in files.iterdir():
        assert (back / path.name).read_bytes() == path.read_bytes()


def test_existing_files_are_replaced_only_with_overwrite(
    files: Path, out: Path
) -> None:
    target = out / "x"
    target.write_bytes(b"mine")
    _, errors = run("merge", files, "-o", target, status=2)
    assert errors == f"error: {target}: the file exists; --overwrite replaces it\n"
    assert target.read_bytes() == b"mine"
    run("merge", files, "-o", target, "--overwrite")
    assert records_in(target) == RECORDS


def test_damage_is_one_line_with_a_hint(files: Path, out: Path) -> None:
    path = files / "c.tfrecord"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = len(RECORDS) - 70 - 1
    for command, target, *options in [
        ("shuffle", "x"),
        ("merge", "x"),
        ("reshard", "{shard}", "--shards", "2"),
        ("split", "{part}", "--parts", "a=1"),
        ("compress", ""),
    ]:
        where = out / target
        _, errors = run(command, path, "-o", where, *options, status=1)
        assert errors.count("\n") == 1
        assert f"{path}, record {last}, byte " in errors
        assert f"fastrec repair {path}" in errors
        assert names_in(out) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shuffle", "-o", "x", "--memory", "much"], "must be a number of bytes"),
        (["shuffle", "-o", "x", "--level", "3"], "requires --compression"),
        (["reshard", "-o", "{shard}", "--max-shard-bytes", "?"], "a number of bytes"),
        (["merge", "-o", "x", "--compression", "LZ4"], "LZ4"),
        (
            ["reshard", "-o", "{shard}", "--shards", "2", "--max-shard-records", "3"],
            "only one of",
        ),
    ],
)
def test_a_usage_error_is_explained(
    files: Path, arguments: list[str], message: str
) -> None:
    _, errors = run(*arguments, files, status=2)
    assert message in " ".join(
        errors.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["shuffle", "-o", "x", "--shards", "2"],
            "several shards require a shard pattern",
        ),
        (["shuffle", "-o", "x", "--memory", "1MB"], "memory must be at least"),
        (["reshard", "-o", "x"], "several shards require a shard pattern"),
        (["split", "-o", "x", "--parts", "a=1"], "must contain {part}"),
        (["split", "-o", "{part}", "--parts", "a=2"], "sum to at most 1"),
    ],
)
def test_invalid_options_are_a_one_line_error(
    files: Path, out: Path, arguments: list[str], message: str
) -> None:
    at = arguments.index("-o") + 1
    arguments[at] = str(out / arguments[at])
    _, errors = run(*arguments, files, status=2)
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert message in errors
    assert names_in(out) == []
