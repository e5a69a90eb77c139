"""The ``fastrec`` command: output, errors and exit statuses.

Goal
    The demo trains a model without input files. Commands show files without binary
    output. Indexes are built ahead of time. Every error that a user can cause is one line
    on stderr with an exit status.
Method
    Most commands run in this process through typer's runner. The installed script, a
    missing extra and imports run in new interpreters.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from children import run_python
from commands import run
from fastrec.cli import garments, terminal
from fastrec.cli.preview import aligned, preview
from fastrec.cli.terminal import counted, printable, progress_bar, rate, size
from oracle import Features, example, frame_offsets, tfrecord_file

SCRIPT = Path(sysconfig.get_path("scripts")) / "fastrec"
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 8
IMAGES: list[Features] = [
    {b"image": ("bytes", [JPEG]), b"name": ("bytes", [b"cat"]), b"n": ("int64", [i])}
    for i in range(40)
]


def file_of(path: Path, records: list[bytes]) -> Path:
    path.write_bytes(tfrecord_file(records))
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return forty records with a JPEG-like image, a name and a number."""
    return file_of(tmp_path / "images.tfrecord", [example(row) for row in IMAGES])


# The command itself.


def test_version_is_that_of_the_distribution() -> None:
    first, machine, packages = run("--version")[0].splitlines()
    assert first == f"fastrec {version('fastrec-io')}"
    assert "usable CPU" in machine
    assert f"numpy {np.__version__}" in packages


def test_the_installed_script_runs(images: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "count", images], capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"40\n"
    assert done.stderr == b"", "bars are for terminals"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_missing_extra_is_named_with_the_pip_command(package: str) -> None:
    done = run_python(
        f"import sys; sys.modules[{package!r}] = None\n"
        "from fastrec.cli import main\n"
        "main()",
        status=2,
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"requires {package}" in done.stderr
    assert 'pip install "fastrec-io[cli]"' in done.stderr


def test_another_missing_module_is_a_traceback() -> None:
    done = run_python(
        "import sys; sys.modules['fastrec.cli.app'] = None\n"
        "from fastrec.cli import main\n"
        "main()",
        status=1,
    )
    assert "Traceback" in done.stderr


def test_the_library_does_not_import_the_extra() -> None:
    done = run_python(
        "import sys, fastrec, fastrec.cli\n"
        "print(sorted({'typer', 'rich', 'fastrec.cli.app'} & set(sys.modules)))"
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("command", "note"), [("index", "; saved indexes are kept"), ("count", "")]
)
def test_ctrl_c_exits_without_a_traceback(
    images: Path, monkeypatch: pytest.MonkeyPatch, command: str, note: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fr, "build_index", interrupted)
    assert run(command, images, status=130) == ("", f"interrupted{note}\n")


# The demo on synthetic data.


def test_demo_trains_a_model_and_keeps_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    shown, errors = run("demo", "--records", "6000")
    assert errors == ""
    assert "6,000 records in 6 files" in shown
    assert "'image': fr.FixedLen((), 'bytes')" in shown
    assert "'label': fr.FixedLen((), 'int64')" in shown
    assert re.search(
        r"\{'image': <784 bytes: [0-9a-f ]+ \.\.\.>, 'label': \d\}  # [\w -]+\n", shown
    )
    assert re.search(r"read 6,000 records: .* records/s, .* MB/s", shown)
    assert len(re.findall(r"epoch \d: loss .* records/s", shown)) == 2
    accuracy = re.search(r"accuracy: ([\d.]+)% .* ([\d.]+)% of 1,000 test", shown)
    assert accuracy is not None
    for percent in accuracy.groups():
        assert 60 < float(percent) < 95
    assert [path.name for path in tmp_path.iterdir()] == ["fastrec-demo"]
    pattern = "fastrec-demo/train-*-of-00006.tfrecord"
    assert shown.endswith(f'to look at the files: fastrec head "{pattern}"\n')
    assert len(fr.open(pattern)) == 6000
    # Again, with the same files.
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "fastrec-demo").iterdir()
    }
    again, errors = run("demo", "--records", "6000")
    assert errors == ""
    assert "using the train files in fastrec-demo from an earlier demo" in again
    assert accuracy.group() in again
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_hint_of_the_demo_works_without_an_activated_environment(
    tmp_path: Path,
) -> None:
    def shown(*command: str) -> str:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    demo = shown(sys.executable, "-m", "fastrec", "demo", "--records", "60")
    hint = demo.rstrip().rpartition("to look at the files: ")[2]
    assert "label" in shown("/bin/sh", "-c", hint)


def test_a_progress_bar_appears_after_a_second_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    for seconds, shown in ((0.9, ""), (1.1, "reading .* 3 of 10 seconds")):
        times = iter([0, seconds])
        clock = SimpleNamespace(perf_counter=times.__next__)
        monkeypatch.setattr(terminal, "time", clock)
        with progress_bar("reading", "seconds") as bar:
            bar(3, 10)
        assert re.search(shown, screen.getvalue())
        assert bool(screen.getvalue()) == bool(shown)


def test_demo_keeps_its_data_in_a_given_directory(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "made [1] up"
    for _ in range(2):
        run("demo", "--dir", folder, "--records", "120")
    names = [f"train-{i:05d}-of-00006.tfrecord" for i in range(6)]
    assert sorted(path.name for path in folder.iterdir()) == [
        "test-00000-of-00001.tfrecord",
        *names,
    ]
    ds = fr.open([folder / name for name in names])
    assert len(ds) == 120
    assert set(ds.schema) == {"image", "label"}
    assert all(len(row["image"]) == 784 and 0 <= row["label"] < 10 for row in ds)


def test_demo_data_is_reproducible(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        run("demo", "--dir", tmp_path / name, "--records", "120")
        files = sorted((tmp_path / name).iterdir())
        made.append([path.read_bytes() for path in files])
    assert made[0] == made[1]
    assert len(set(made[0])) == 7, "two files hold the same records"


def test_demo_replaces_no_file(tmp_path: Path) -> None:
    mine = tmp_path / "train-00002-of-00006.tfrecord"
    mine.write_bytes(b"mine")
    _, errors = run("demo", "--dir", tmp_path, "--records", "60", status=2)
    assert errors == f"error: {mine}: the file exists; choose another --dir\n"
    assert mine.read_bytes() == b"mine"


def test_pictures_are_grey_and_of_all_kinds() -> None:
    pictures, labels = garments.pictures(6000, seed=3)
    assert pictures.shape == (6000, 28, 28)
    assert pictures.dtype == np.uint8
    assert set(labels.tolist()) == set(range(len(garments.KINDS)))
    again, _ = garments.pictures(6000, seed=3)
    other, _ = garments.pictures(6000, seed=4)
    assert np.array_equal(pictures, again)
    assert not np.array_equal(pictures, other)


@pytest.mark.parametrize("n_rows", [1, 31, 32, 33, 100])
def test_one_step_of_softmax_follows_the_gradient(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    pictures = rng.integers(0, 256, (n_rows, 12), np.uint8)
    labels = rng.integers(0, 3, n_rows)
    model = garments.Softmax(12, 3, rate=0.5)
    assert model.train(pictures, labels) == pytest.approx(np.log(3), rel=1e-5)
    # With weights of 0, all kinds are equally likely.
    inputs = np.column_stack([pictures / 255, np.ones(n_rows)])
    slope = inputs.T @ (1 / 3 - np.eye(3)[labels]) / n_rows
    np.testing.assert_allclose(model.weights, -0.5 * slope, rtol=1e-4, atol=1e-6)
    expected = (inputs @ model.weights).argmax(axis=1)
    assert np.array_equal(model.predict(pictures), expected)


# Indexes.


def test_index_counts_the_records_of_each_file(images: Path) -> None:
    empty = file_of(images.with_name("empty.tfrecord"), [])
    index_dir = images.parent / "index"
    shown, errors = run("index", images, empty, "--index-dir", index_dir)
    assert errors == ""
    lines = [line.split() for line in shown.splitlines()]
    assert lines[:3] == [["file", "records"], [str(images), "40"], [str(empty), "0"]]
    assert "40 records in 2 files" in shown
    assert f"indexed {size(images.stat().st_size)} in" in shown
    assert len(list(index_dir.glob("*.frecidx"))) == 1  # of both files

    found = json.loads(run("index", images, "--index-dir", index_dir, "--json")[0])
    assert found["files"] == [{"path": str(images), "n_records": found["n_records"]}]
    again, _ = run("index", images, empty, "--index-dir", index_dir)
    assert "all files are indexed" in again


def test_index_counts_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.tfrecord"
    fr.write(path, {"a": fr.RaggedArray.from_list([[1.0, 2.0], [3.0]])})
    index_dir = tmp_path / "index"
    run("index", path, "--index-dir", index_dir, "--steps", "a")
    (kept,) = index_dir.glob("*.counts.npy")
    assert np.load(kept).tolist() == [2, 1]
    _, errors = run("index", path, "--world-size", "2", "--steps", "a", status=2)
    assert "steps= excludes world_size=" in errors


def test_index_divides_the_files_among_ranks(tmp_path: Path) -> None:
    record = example(IMAGES[0])
    files = [file_of(tmp_path / f"{i}.tfrecord", [record] * (i + 1)) for i in range(5)]
    counts: dict[str, int] = {}
    for rank in range(2):
        shown, _ = run("index", tmp_path, "--rank", str(rank), "--world-size", "2")
        found = re.findall(r"^(.+\.tfrecord) +(\d+)$", shown, re.MULTILINE)
        assert not counts.keys() & {path for path, _ in found}
        counts |= {path: int(count) for path, count in found}
    assert counts == {str(path): i + 1 for i, path in enumerate(files)}


def test_index_writes_the_text_format_of_dali(images: Path) -> None:
    target = images.parent / "texts" / "of today"
    shown, _ = run("index", images, "--tfrecord2idx", target)
    assert "wrote 1 .idx file to" in shown
    offsets = frame_offsets(images.read_bytes())
    expected = [(begin, end - begin) for begin, end in pairwise(offsets)]
    text = (target / "images.tfrecord.idx").read_text()
    assert [tuple(map(int, line.split())) for line in text.splitlines()] == expected


@pytest.mark.parametrize(
    ("paths", "options", "reasons"),
    [
        (["images.tfrecord", "copy/images.tfrecord"], [], ["2 files have this name"]),
        (["images.gz"], [], ["images.gz' is compressed", "gunzip"]),
        (
            ["images.tfrecord"],
            ["--rank", "2", "--world-size", "2"],
            ["less than the world size"],
        ),
    ],
)
def test_index_writes_no_text_after_an_error(
    images: Path, paths: list[str], options: list[str], reasons: list[str]
) -> None:
    folder, content = images.parent, images.read_bytes()
    (folder / "copy").mkdir()
    (folder / "copy" / images.name).write_bytes(content)
    (folder / "images.gz").write_bytes(gzip.compress(content))
    target = folder / "texts"
    files = [folder / path for path in paths]
    _, errors = run("index", *files, *options, "--tfrecord2idx", target, status=2)
    assert all(reason in errors for reason in reasons)
    assert not target.exists()


# Errors.


@pytest.mark.parametrize("command", ["bench", "schema", "index"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.tfrecord", "No such file"),
        ("missing-*.tfrecord", "No file matches"),
        ("nothing", "No TFRecord file in the directory"),
        ("text.txt", "not a TFRecord file"),
        ("cut.tfrecord", " - at "),
        ("unknown://bucket/a.tfrecord", "unknown://"),
    ],
)
def test_unreadable_files_are_a_one_line_error(
    images: Path, command: str, name: str, reason: str
) -> None:
    folder = images.parent
    (folder / "nothing").mkdir()
    (folder / "text.txt").write_text("just some words\n" * 9)
    (folder / "cut.tfrecord").write_bytes(images.read_bytes()[:-1])
    path = name if "://" in name else folder / name
    status = 1 if name in ("text.txt", "cut.tfrecord") else 2
    shown, errors = run(command, path, status=status)
    assert shown == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert reason in errors
    assert name in errors


def test_damage_to_a_payload_is_a_one_line_error(images: Path) -> None:
    data = bytearray(images.read_bytes())
    data[40] ^= 1
    images.write_bytes(data)
    _, errors = run("schema", images, status=1)
    assert errors.startswith("error: payload checksum mismatch")
    assert f" - at {images}, record 0, byte 12. " in errors
    assert errors.endswith(f"Run: fastrec repair {images} --out OUT\n")


# Formats of values and numbers.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "''"),
        (b"\x00", "<1 byte: 00>"),
        (b"cat", "'cat'"),
        ("Z\u00fcrich\t".encode(), "'Z\u00fcrich\\t'"),
        (b"a\x1b[31m", "<6 bytes: 61 1b 5b 33 31 6d>"),
        (b"x" * 50, f"'{'x' * 50}'"),
        (b"x" * 51, f"'{'x' * 46}...' (51 bytes)"),
        ("\u00fc".encode() * 1000, f"'{chr(0xFC) * 23}...' (2,000 bytes)"),
        (bytes(9), "<9 bytes: 00 00 00 00 00 00 00 00 ...>"),
        (b"\x89PNG\r\n\x1a\n" + bytes(2000), "PNG, 2,008 bytes"),
        (np.int64(-3), "-3"),
        (np.float32(0.1), "0.1"),
        (np.zeros(0, np.int64), "[]"),
        (np.zeros((0, 3), np.float32), "[]"),
        (np.arange(4), "[0, 1, 2, 3]"),
        (np.arange(1000), "[0, 1, 2, 3, ...] 1,000 int64"),
        (np.arange(6).reshape(2, 3), "[0, 1, 2, 3, ...] 2x3 int64"),
        (
            fr.BytesArray.from_list([b"a", JPEG]),
            "['a', JPEG, 2,052 bytes]",
        ),
        (fr.BytesArray.from_list([]), "[]"),
        (fr.RaggedArray(np.arange(3), [0, 2, 3]), "[[0, 1], [2]]"),
    ],
)
def test_previews_of_values_are_short(value: object, expected: str) -> None:
    assert preview(value) == expected


def test_previews_of_rows_are_aligned() -> None:
    assert aligned({"a": "'x'", "long": "1"}) == ["a     'x'", "long  1"]


def test_numbers_are_formatted() -> None:
    sizes = [size(n) for n in (0, 999, 1000, 58_700_000, 2e12, 3e15)]
    assert sizes == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "58.7 MB",
        "2.0 TB",
        "3.0 PB",
    ]
    assert [counted(n, "file") for n in (0, 1, 2000)] == [
        "0 files",
        "1 file",
        "2,000 files",
    ]
    rates = [rate(n / 2) for n in (0, 1, 25, 2_469_134)]
    assert rates == ["0", "0.5", "12.5", "1,230,000"]
    assert printable("a\x1b[31m\u00fc\udcff") == "a\\x1b[31m\u00fc\\udcff"


# File names with control characters, and directories of two splits.

HOSTILE = "a\x1b[31m\r\n\udcff\u202eb"


def is_shown(*texts: str) -> bool:
    return all(line.isprintable() for text in texts for line in text.split("\n"))


def test_names_of_files_are_escaped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    whole = tfrecord_file([example(row) for row in IMAGES])
    path = folder / f"{HOSTILE}-1.tfrecord"
    path.write_bytes(whole)
    (folder / f"{HOSTILE}-2.tfrecord").hardlink_to(path)
    damaged = folder / f"{HOSTILE}-test"
    damaged.write_bytes(whole[:-1])
    shown = [
        *run("index", path),
        *run("verify", path),
        *run("verify", folder, status=1),
        *run("repair", damaged, "--out", folder / HOSTILE),
        *run("index", damaged, status=1),
        *run("verify", folder / "absent", status=2),
        *run("reshard", folder, "--out", folder / "out", status=2),
        *run("convert", path, "--out", folder / "out.tfrecord", status=2),
        *run("reshard", path, "--out", path, "--overwrite", status=2),
    ]
    assert is_shown(*shown)
    errors: list[Exception] = []
    for paths in (damaged, folder, folder / "absent", f"unknown://{HOSTILE}"):
        with pytest.raises((fr.Error, OSError, ValueError)) as caught:
            len(fr.open(paths))
        errors.append(caught.value)
    fr.open(damaged, on_error="skip").report  # noqa: B018 (which logs)
    assert caplog.records
    assert is_shown(*map(str, errors), *(line.getMessage() for line in caplog.records))
    assert errors[0].path == str(damaged)  # type: ignore[attr-defined]


def test_only_commands_that_combine_files_refuse_two_splits(tmp_path: Path) -> None:
    folder, out = tmp_path / "mnist", tmp_path / "out"
    folder.mkdir()
    for name in ("mnist-train.tfrecord", "mnist-test.tfrecord"):
        file_of(folder / name, [example(row) for row in IMAGES])
    assert "80 intact records in 2 files" in run("verify", folder)[0]
    assert "80 records in 2 files" in run("index", folder)[0]
    run("reshard", folder, "--out", f"{out}/packed/", "--compression", "gzip")
    assert len(list((out / "packed").iterdir())) == 2
    table = out / "table.parquet"
    for command in (
        ("reshard", folder, "--out", out / "one.tfrecord"),
        ("shuffle", folder, "--out", out / "one.tfrecord"),
        ("bench", folder),
        ("convert", folder, "--out", table),
    ):
        output, errors = run(*command, status=2)
        assert not output
        (line,) = errors.splitlines()
        assert "mnist-test.tfrecord" in line
        assert "split" in line


INTERRUPTED = """
import signal, sys
import fastrec as fr
from fastrec.cli import main

def open(*paths, **options):
    signal.raise_signal(signal.SIGINT)

fr.open = open
sys.argv = ["fastrec", *{arguments!r}]
main()
"""


@pytest.mark.parametrize("command", ["bench", "report", "convert"])
def test_ctrl_c_is_one_line_and_an_exit_status(images: Path, command: str) -> None:
    arguments = [command, str(images)]
    if command == "convert":
        arguments += ["-o", str(images.with_name("out.parquet"))]
    done = run_python(INTERRUPTED.format(arguments=arguments), status=130)
    note = "" if command == "bench" else "; nothing was written"
    assert done.stderr == f"interrupted{note}\n"


def test_python_dash_m_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastrec", "--help"],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "verify" in done.stdout
