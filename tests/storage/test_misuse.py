"""Files, caches and locks of another user, as SECURITY.md describes them.

Goal
    A forged index delivers no other bytes than verified frames of its file, and no epoch
    with other records. A link or FIFO in place of a lock writes nothing elsewhere. A copy
    in `cache_dir` is as trusted as the data. No file is ever executed.
Method
    Indexes with valid checksums and forged offsets; names that another user created
    first; the syntax trees of all modules; the names of tests on the page.
"""

from __future__ import annotations

import ast
import gzip
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from children import n_runs
from columns import open_dataset
from fastrec import _core
from fastrec.storage.index_files import index_path
from oracle import frame, frame_offsets, tfrecord_file

ROOT = Path(__file__).parents[2]

INNER = tfrecord_file([b"never", b"a record of the file"])
RECORDS = [b"first", b"has " + INNER + b" inside", b"", b"fourth", b"fifth"]


# Indexes.


def forged_offsets(data: bytes, n_cases: int) -> Iterator[list[int]]:
    """Yield offsets of frames; the first and last must be those of the file."""
    rng = random.Random(0)
    begin = data.index(INNER)
    inner = [begin + offset for offset in frame_offsets(INNER)]
    true = frame_offsets(data)
    yield [0, *true[2:]]
    yield [0, *inner, len(data)]
    yield [*true[:2], *inner, *true[2:]]
    yield [0, len(data)]
    for _ in range(n_cases):
        places = rng.choice([range(1, len(data)), sorted({*true, *inner} - {0})])
        n = rng.randrange(min(len(places), 9))
        yield [0, *sorted(rng.sample(places, n)), len(data)]


def test_a_forged_index_delivers_only_frames_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data.tfrecord"
    data = tfrecord_file(RECORDS)
    path.write_bytes(data)
    assert len(fr.open(path)) == len(RECORDS)
    good = Path(index_path(str(path))).read_bytes()
    state = path.stat()
    n_raised = 0
    for offsets in forged_offsets(data, n_runs(40)):
        index = _core.Index.from_offsets(
            np.array(offsets, np.uint64),
            (state.st_size, state.st_mtime_ns),
            os.fsencode(path),
        )
        # The name of a single file in its index is a dot.
        target = os.fsencode(index_path(str(path)))
        _core.save_indexes(target, b".", _core.Indexes([index]), [], None)
        ds = open_dataset(path, features={"record": fr.Record()})
        assert len(ds) == len(offsets) - 1, "the forged index is not read"
        for number in range(len(RECORDS)):
            if number >= len(ds):  # the first error rebuilds the index
                break
            try:
                record = ds.records[number]
            except fr.CorruptionError as error:
                assert error.path == str(path)  # noqa: PT017
                n_raised += 1
            else:
                assert frame(record) in data
        for shuffle in (False, True):
            loader = ds.loader(2, shuffle=shuffle, num_threads=0)
            try:
                found = [r for batch in loader for r in batch["record"].tolist()]
            except fr.CorruptionError as error:
                assert error.path == str(path)  # noqa: PT017
                n_raised += 1
            else:
                # The index is true, or an error before has rebuilt it.
                assert sorted(found) == sorted(RECORDS)
    assert n_raised >= 40
    assert Path(index_path(str(path))).read_bytes() == good


# Directories of others.


def test_a_copy_in_cache_dir_is_as_trusted_as_the_data(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.gz", tmp_path / "cache"
    path.write_bytes(gzip.compress(tfrecord_file([b"true"])))
    assert list(open_dataset(path, cache_dir=cache).records) == [b"true"]
    (copy,) = cache.glob("*.tfrecord")
    copy.write_bytes(tfrecord_file([b"fake"]))
    assert list(open_dataset(path, cache_dir=cache).records) == [b"fake"]
    spoilt = bytearray(tfrecord_file([b"fake"]))
    spoilt[-5] ^= 1
    copy.write_bytes(spoilt)
    with pytest.raises(fr.CorruptionError):
        list(open_dataset(path, cache_dir=cache).records)


@pytest.mark.parametrize("target", ["absent", "present"])
def test_a_writer_does_not_follow_a_link_in_place_of_its_lock(
    tmp_path: Path, target: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "present").write_bytes(b"of another user")
    (tmp_path / ".data.lock").symlink_to(elsewhere / target)
    with pytest.raises(OSError, match="symbolic links"):
        fr.Writer(tmp_path / "data")
    assert [path.name for path in elsewhere.iterdir()] == ["present"]
    assert (elsewhere / "present").read_bytes() == b"of another user"
    assert not (tmp_path / "data").exists()


def test_a_writer_does_not_block_on_a_fifo_in_place_of_its_lock(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / ".data.lock")
    with fr.Writer(tmp_path / "data", sync=False) as writer:
        writer.write_record(b"record")
    assert list(fr.read_records(tmp_path / "data")) == [b"record"]


# Code.


def called(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions that a module calls, and of modules it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_file_is_executed_or_unpickled() -> None:
    forbidden = {"eval", "exec", "compile", "pickle", "marshal", "shelve", "os.system"}
    n_modules = 0
    for file in sorted((ROOT / "src" / "fastrec").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert not forbidden & set(called(tree)), file
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.load":
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert options.get("allow_pickle") == "False", file
        n_modules += 1
    assert n_modules > 100


def test_the_tests_that_the_page_names_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.\w+)(?:::(\w+))?`", page)
    assert len(named) > 20
    for file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, (file, test)
