"""``fastrec shuffle``, ``reshard`` and ``split``, and Ctrl-C in commands that write.

Goal
    The commands do what the library does, print the files they wrote, and report errors
    in one line.
Method
    Commands run in this process through typer's runner, on generated files. The library
    and the standard library read their output.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import zlib
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from children import run_python
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
        *("--num-shards", "3", "--seed", "9", "--memory", "30MB"),
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
    run("shuffle", files, "-o", out / "one", "--compression", "zlib", "--level", "1")
    content = zlib.decompress((out / "one").read_bytes())
    assert len(content) == len(tfrecord_file(RECORDS))
    assert sorted(records_in(out / "one")) == sorted(RECORDS)


def test_shuffle_expands_compressed_files_with_a_cache_dir(
    files: Path, out: Path, tmp_path: Path
) -> None:
    run("reshard", files, "-o", f"{tmp_path}/gz/", "--compression", "gzip")
    target = out / "x"
    _, errors = run("shuffle", tmp_path / "gz", "-o", target, status=1)
    assert "--cache-dir" in errors
    assert "fastrec reshard" in errors
    assert errors.count("\n") == 1
    run("shuffle", tmp_path / "gz", "-o", target, "--cache-dir", tmp_path / "cache")
    assert sorted(records_in(target)) == sorted(RECORDS)


def test_one_file_joins_the_files_in_order(files: Path, out: Path) -> None:
    c, a = files / "c.tfrecord", files / "a.tfrecord"
    shown, _ = run("reshard", c, a, "-o", out / "all.tfrecord")
    assert shown.startswith(f"wrote 5,000 records to {out}/all.tfrecord\n")
    merged = (out / "all.tfrecord").read_bytes()
    assert merged == c.read_bytes() + a.read_bytes()


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        (["--num-shards", "4"], [1250] * 4),
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


def test_a_directory_keeps_the_files(files: Path, out: Path) -> None:
    gz, zz, back = out / "gz", out / "zz", out / "back"
    run("reshard", files, "-o", f"{gz}/", "--compression", "gzip", "--level", "9")
    assert names_in(gz) == [f"{name}.tfrecord.gz" for name in "abc"]
    for path in gz.iterdir():
        content = gzip.decompress(path.read_bytes())
        assert content == (files / path.stem).read_bytes()
    zz.mkdir()  # an existing directory needs no slash
    run("reshard", gz, "-o", zz, "--compression", "zlib")
    assert names_in(zz) == [f"{name}.tfrecord.zz" for name in "abc"]
    shown, _ = run("reshard", zz, "-o", f"{back}/")
    assert shown.count("wrote") == 3
    for path in files.iterdir():
        assert (back / path.name).read_bytes() == path.read_bytes()


def test_existing_files_are_replaced_only_with_overwrite(
    files: Path, out: Path
) -> None:
    target = out / "x"
    target.write_bytes(b"mine")
    _, errors = run("reshard", files, "-o", target, status=2)
    assert errors == f"error: {target}: the file exists; --overwrite replaces it\n"
    assert target.read_bytes() == b"mine"
    run("reshard", files, "-o", target, "--overwrite")
    assert records_in(target) == RECORDS


def test_damage_is_one_line_with_a_hint(files: Path, out: Path) -> None:
    path = files / "c.tfrecord"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = len(RECORDS) - 70 - 1
    for command, target, *options in [
        ("shuffle", "x"),
        ("reshard", "x"),
        ("reshard", "{shard}", "--num-shards", "2"),
        ("reshard", "."),
        ("split", "{part}", "--parts", "a=1"),
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
        (["reshard", "-o", "x", "--compression", "LZ4"], "LZ4"),
        (["reshard", "-o", "x.gz"], "must not end in .gz without --compression"),
        (["reshard", "-o", "x/", "--num-shards", "2"], "requires a pattern"),
        (
            [
                *("reshard", "-o", "{shard}"),
                *("--num-shards", "2", "--max-shard-records", "3"),
            ],
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
            ["shuffle", "-o", "x", "--num-shards", "2"],
            "several shards require a shard pattern",
        ),
        (["shuffle", "-o", "x", "--memory", "1MB"], "memory must be at least"),
        (
            ["reshard", "-o", "x", "--num-shards", "2"],
            "several shards require a shard pattern",
        ),
        (["reshard", "-o", "{num_shards}"], "must have {shard}"),
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


@pytest.mark.parametrize(
    ("command", "target", "names"),
    [
        ("shuffle", "x-{shard}", ["x-0"]),
        ("reshard", "x", ["x"]),
        ("split", "{part}", ["a", "b"]),
        ("reshard", ".", ["a.tfrecord", "b.tfrecord", "c.tfrecord"]),
    ],
)
def test_json_names_the_files(
    files: Path, out: Path, command: str, target: str, names: list[str]
) -> None:
    options = ["--parts", "a=0.5,b=0.5"] if command == "split" else []
    shown, errors = run(command, files, "-o", out / target, *options, "--json")
    found = json.loads(shown)
    assert errors == ""
    assert [Path(file).name for file in found["files"]] == names
    assert found["n_records"] == len(RECORDS)
    assert found["n_bytes"] == sum(path.stat().st_size for path in files.iterdir())


# Ctrl-C.

# Sends SIGINT to this process when the first bytes of a file are written, or from the
# progress bar. The writing thread then waits, so that the signal arrives before it ends.
INTERRUPTED = """
import os, signal, sys, threading
from contextlib import contextmanager
from fastrec.cli import main, terminal
from fastrec.writer.output import OutputFile

write = OutputFile.write
sent = []

def interrupt():
    if not sent:
        sent.append(True)
        os.kill(os.getpid(), signal.SIGINT)

def interrupting(self, *arguments):
    write(self, *arguments)
    if {condition}:
        interrupt()
        threading.Event().wait(0.5)

@contextmanager
def progress_bar(label, unit=""):
    yield lambda done, total: interrupt() if {condition} else None

if {at!r} == "write":
    OutputFile.write = interrupting
else:
    terminal.progress_bar = progress_bar  # commands are imported later
sys.argv = ["fastrec", *{arguments!r}]
main()
"""


def interrupted(
    *arguments: str | Path, at: str, condition: str = "True"
) -> subprocess.CompletedProcess[str]:
    """Run a command in another process that interrupts itself."""
    line = [str(argument) for argument in arguments]
    code = INTERRUPTED.format(at=at, condition=condition, arguments=line)
    return run_python(code, status=130)


@pytest.mark.parametrize("is_replacing", [False, True])
@pytest.mark.parametrize("at", ["write", "progress"])
@pytest.mark.parametrize(
    ("command", "target", "options"),
    [
        ("shuffle", "x-{shard}-of-{num_shards}", ["--num-shards", "3"]),
        ("reshard", "x", []),
        ("reshard", "x-{shard}", ["--num-shards", "2"]),
        ("split", "{part}", ["--parts", "a=0.5,b=0.5"]),
        ("convert", "x.tfrecord", []),
        ("convert", "x.parquet", []),
    ],
)
def test_after_ctrl_c_nothing_is_written(
    tmp_path: Path,
    out: Path,
    *,
    command: str,
    target: str,
    options: list[str],
    at: str,
    is_replacing: bool,
) -> None:
    source = tmp_path / "in.tfrecord"
    source.write_bytes(tfrecord_file(RECORDS))
    if command == "convert":
        pytest.importorskip("pyarrow")
        if target.endswith(".parquet"):
            if at == "write":
                pytest.skip("pyarrow writes tables")
        else:
            source = tmp_path / "n.csv"
            source.write_text("\n".join(["n", *map(str, range(100_000))]))
    arguments: list[str | Path] = [command, source, "-o", out / target, *options]
    if is_replacing:
        run(*arguments)
        arguments.append("--overwrite")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = interrupted(*arguments, at=at)
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    if done.stderr == "interrupted; nothing was written\n":
        assert after == before
    else:  # the signal arrived after the last write
        assert done.stderr == f"interrupted; {len(after)} file written\n"
        assert not any(name.startswith(".") for name in after)
        assert run("verify", out)


def test_after_ctrl_c_written_files_are_counted(files: Path, out: Path) -> None:
    done = interrupted(
        *("reshard", files, "-o", out, "--threads", "1"),
        at="write",
        condition='self.path.endswith("c.tfrecord")',
    )
    assert done.stderr == "interrupted; 2 files written\n"
    assert names_in(out) == ["a.tfrecord", "b.tfrecord"]


@pytest.mark.parametrize("label", ["checking", "writing"])
def test_after_ctrl_c_in_repair_nothing_is_written(out: Path, label: str) -> None:
    data = bytearray(tfrecord_file(RECORDS))
    data[20] ^= 1
    damaged = out / "in.tfrecord"
    damaged.write_bytes(data)
    done = interrupted(
        *("repair", damaged, "-o", out / "x.tfrecord"),
        at="progress",
        condition=f"label == {label!r}",
    )
    assert done.stderr == "interrupted; nothing was written\n"
    assert names_in(out) == ["in.tfrecord"]


def test_after_ctrl_c_complete_indexes_are_kept(out: Path) -> None:
    path = out / "in.tfrecord"
    path.write_bytes(tfrecord_file(RECORDS))
    directory = out / "index"
    done = interrupted("index", path, "--index-dir", directory, at="progress")
    assert done.stderr == "interrupted; saved indexes are kept\n"
    assert not [name for name in names_in(directory) if name.endswith(".tmp")]
