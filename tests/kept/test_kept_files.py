"""The directory of kept rows, damaged, shared, full, or in use by others.

Goal
    A row that is not as it was written is decoded again or an error: never another row.
    Processes that fill a directory at the same time, also those that are killed, leave
    rows that are right. A full disk and a read-only directory cost time only.
Method
    Every byte of a small directory is changed, files are cut and deleted, system calls
    fail, children are killed (campaigns/killed_caches.py).
"""

from __future__ import annotations

import errno
import functools
import multiprocessing
import os
import pickle
import random
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastrec as fr
from campaigns.killed_caches import kept_dataset
from children import SEED, n_runs, run_campaign, run_python
from columns import Untyped, Write, open_dataset
from fastrec.kept import store
from kept_rows import exactly, with_rows_of_every_kind
from numbered import SPEC, N, record, write_files
from oracle import tfrecord_file

ALONE: dict[str, Any] = {"num_threads": 0, "transform_threads": 0}


@pytest.fixture
def small(write: Write, monkeypatch: pytest.MonkeyPatch) -> Untyped:
    """Three rows, with files of every kind, which are small for this test."""
    monkeypatch.setattr(store, "_SMALL_ROW_BYTES", 8)
    monkeypatch.setattr(store, "_CHUNK_BYTES", 64)
    path = write(tfrecord_file([record(n) for n in (4, 5, 8)]))
    ds = fr.open(path, features=SPEC)
    return ds.with_transform(with_rows_of_every_kind, cache_key="1")


def outcome(ds: Untyped, directory: Path) -> Untyped:
    """Return the batches of an epoch, or an error that says how to continue."""
    try:
        return exactly(ds.cache(directory).loader(3, shuffle=True, **ALONE))
    except ValueError as error:
        return str(error)


def restore(directory: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (directory / name).write_bytes(data)


def filled(ds: Untyped, directory: Path) -> tuple[Untyped, dict[str, bytes]]:
    """Fill a directory; return the batches, and the contents of the files."""
    batches = outcome(ds, directory)
    assert batches == exactly(ds.loader(3, shuffle=True, **ALONE))
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {"kept.json", "rows.npy", "large.npy", "words.npy"} <= {*files}
    return batches, files


def test_a_changed_byte_is_never_delivered(
    small: Untyped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FASTREC_TEST_RUNS sets how many bytes are changed (400)."""
    batches, files = filled(small, tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # decoded rows are not kept
    places = [
        (name, at)
        for name, data in files.items()
        for at in range(0 if name.endswith("json") else 256, len(data))
    ]
    rng = random.Random(SEED)
    n_changes = min(len(places), n_runs(400))
    n_errors = 0
    for name, at in rng.sample(places, n_changes):
        changed = bytearray(files[name])
        changed[at] ^= 1 << rng.randrange(8)
        (tmp_path / name).write_bytes(changed)
        found = outcome(small, tmp_path)
        (tmp_path / name).write_bytes(files[name])
        n_errors += isinstance(found, str)
        assert found == batches or "delete" in found, (name, at)
    assert 0 < n_errors < n_changes


@pytest.mark.parametrize("is_writable", [True, False])
def test_files_that_are_cut_or_missing(
    small: Untyped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_writable: bool
) -> None:
    batches, files = filled(small, tmp_path / "kept")
    monkeypatch.setattr(os, "access", lambda *_: is_writable)
    for name, data in files.items():
        for size in (None, 0, 9, 256, len(data) // 2, len(data) - 1, len(data) + 9):
            path = tmp_path / "kept" / name
            path.unlink()
            if size is not None:
                path.write_bytes((data + bytes(9))[:size])
            found = outcome(small, tmp_path / "kept")
            assert found == batches or "delete" in found, (name, size)
            if size is None and is_writable:
                assert name in (".lock", "kept.json") or "damaged" in found
            restore(tmp_path / "kept", files)


# Processes.


def compare(kept: Untyped, plain: Untyped, seed: int) -> None:
    """Compare an epoch in a separate order."""
    options: dict[str, Any] = {"shuffle": True, "seed": seed, **ALONE}
    assert exactly(kept.loader(5, **options)) == exactly(plain.loader(5, **options))


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def test_eight_processes_fill_a_directory_at_once(write: Write, tmp_path: Path) -> None:
    files = write_files(write, (150, 150))
    plain = open_dataset(files, features=SPEC)
    for run in range(n_runs(3)):
        kept = plain.cache(tmp_path / f"kept{run}")
        children = [
            forked(functools.partial(compare, kept, plain, seed)) for seed in range(8)
        ]
        statuses = [os.waitpid(child, 0)[1] for child in children]
        assert statuses == [0] * 8
        loader = kept.loader(7, **ALONE)
        assert exactly(loader) == exactly(plain.loader(7, **ALONE))
        assert loader.stats.n_kept == loader.stats.n_records


def test_processes_share_a_dataset(ds: Untyped, tmp_path: Path) -> None:
    kept = ds.cache(tmp_path)
    for method in ("fork", "spawn"):
        context: Untyped = multiprocessing.get_context(method)
        child = context.Process(target=compare, args=(kept, ds, 1))
        child.start()
        child.join()
        assert child.exitcode == 0
    loader = kept.loader(5, **ALONE)
    assert exactly(loader) == exactly(ds.loader(5, **ALONE))
    assert loader.stats.n_kept == N


def test_a_child_does_not_write_where_its_parent_writes(
    ds: Untyped, tmp_path: Path
) -> None:
    loader = ds.cache(tmp_path).loader(5, **ALONE)
    plain = exactly(ds.loader(5, **ALONE))
    batches = iter(loader)
    assert exactly([next(batches)]) == plain[:1]  # the parent has a chunk of each file
    again = pickle.dumps(ds.cache(tmp_path))
    child = forked(lambda: compare(pickle.loads(again), ds, 2))
    assert exactly(batches) == plain[1:]
    assert os.waitpid(child, 0)[1] == 0
    assert exactly(loader) == plain


def test_workers_of_torch_fill_a_directory(ds: Untyped, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = """
        import sys, warnings
        import fastrec as fr, fastrec.torch
        from torch.utils.data import DataLoader
        warnings.filterwarnings("ignore", "This DataLoader will create")
        ds = fr.open(sys.argv[2:], features={"n": fr.FixedLen((), "int64")})
        kept = ds.cache(sys.argv[1])
        for epoch in range(2):
            found = []
            for each in (kept, ds):
                data = fr.torch.IterableDataset(each, 4, shuffle=True, num_threads=0)
                data.set_epoch(epoch)
                loader = DataLoader(data, batch_size=None, num_workers=2)
                found.append([batch["n"].tolist() for batch in loader])
            assert found[0] == found[1]
        loader = kept.loader(4, num_threads=0)
        for _ in loader:
            pass
        print(loader.stats.n_kept)
    """
    assert int(run_python(code, tmp_path / "kept", *ds.files).stdout) == N


def test_rows_of_killed_processes_are_right(write: Write, tmp_path: Path) -> None:
    files = write_files(write, (150, 150))
    folder, runs = tmp_path / "kept", n_runs(8)
    n_killed, n_records = map(
        int, run_campaign("killed_caches", "kept", folder, *files, runs).split()
    )
    assert n_killed > 0
    assert n_records == runs * 300


def test_the_campaign_keeps_rows_of_every_kind(ds: Untyped, tmp_path: Path) -> None:
    kept_dataset(ds, tmp_path)[:]
    exactly(kept_dataset(ds, tmp_path).loader(9, **ALONE))
    assert {"nested.npy", "nested.1.npy", "nested.2.npy"} & {
        path.name for path in tmp_path.iterdir()
    }
    assert (tmp_path / "large.npy").stat().st_size > N * store._SMALL_ROW_BYTES


# Disks.


def epochs_on_a_full_disk(kept: Untyped, plain: Untyped) -> int:
    """Compare three epochs; return the number of warnings."""
    loader, expected = kept.loader(5, **ALONE), plain.loader(5, **ALONE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert exactly(loader) == exactly(expected)
    assert all("cannot keep more rows" in str(each.message) for each in caught)
    return len(caught)


@pytest.mark.parametrize("call", ["pwrite", "ftruncate", "replace"])
def test_a_full_disk_ends_keeping_with_a_warning(
    small: Untyped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    true_call = getattr(os, call)
    rest = [0]

    def fails(*arguments: Untyped, **options: Untyped) -> Untyped:
        rest[0] -= 1
        if rest[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true_call(*arguments, **options)

    for n_before in range(60):
        rest[0] = n_before
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            directory = tmp_path / f"{call}{n_before}"
            n_warnings = epochs_on_a_full_disk(small.cache(directory), small)
        if rest[0] >= 0:
            break
        assert n_warnings == 1
        # As soon as there is room, the other rows are kept.
        assert epochs_on_a_full_disk(small.cache(directory), small) == 0
        loader = small.cache(directory).loader(3, **ALONE)
        assert exactly(loader) == exactly(small.loader(3, **ALONE))
        assert loader.stats.n_kept == 3
    assert 0 < n_before < 59
    assert n_warnings == 0


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems cannot reserve disk space"
)
def test_a_file_that_may_not_grow_ends_keeping(ds: Untyped, tmp_path: Path) -> None:
    code = """
        import resource, sys, warnings
        import fastrec as fr
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
        ds = fr.open(sys.argv[3:])
        loader = ds.cache(sys.argv[1]).loader(5, transform_threads=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                assert sum(len(batch["n"]) for batch in loader) == len(ds)
        (warning,) = caught
        print(warning.message)
    """
    for n_bytes in (100, 300, 2000):
        directory = tmp_path / str(n_bytes)
        done = run_python(code, directory, n_bytes, *ds.files)
        assert "cannot keep more rows in" in done.stdout


def test_a_directory_that_cannot_be_written_is_read(
    small: Untyped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = small.cache(tmp_path).select([0, 2]).loader(2, **ALONE)
    exactly(half)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, "access", lambda *_: False)
    loader = small.cache(tmp_path).loader(3, **ALONE)
    for _ in range(2):
        assert exactly(loader) == exactly(small.loader(3, **ALONE))
    assert loader.stats.n_kept == 4  # two in each epoch
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_directory_that_cannot_be_created_keeps_nothing(
    small: Untyped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(store, "held_lock", refuse)
    assert epochs_on_a_full_disk(small.cache(tmp_path / "kept"), small) == 1


# Two datasets in one directory.


def test_rows_of_another_dataset_are_refused(ds: Untyped, tmp_path: Path) -> None:
    a, b = ds.select(range(9)), open_dataset(ds.files[:1], features=SPEC)
    exactly(a.cache(tmp_path).loader(5, **ALONE))
    with pytest.raises(ValueError, match="keeps rows of another dataset: its n_rows"):
        next(iter(b.cache(tmp_path).loader(5, **ALONE)))
    # Both in one loader, before any row is kept.
    first, other = (open_dataset(ds.files[i], features=SPEC) for i in (0, 3))
    for parts in ([first, other], [first.with_transform(dict, cache_key="1"), other]):
        directory = tmp_path / str(len(parts[0]._transforms))
        joined = fr.concat([part.cache(directory) for part in parts])
        with pytest.raises(ValueError, match="keeps rows of another dataset"):
            for _ in joined.loader(5, **ALONE):
                pass
        shutil.rmtree(directory, ignore_errors=True)


def test_directories_are_created_with_their_parents(
    ds: Untyped, tmp_path: Path
) -> None:
    kept = ds.cache(tmp_path / "a" / "b")
    compare(kept, ds, 0)
    compare(kept, ds, 0)
    assert (tmp_path / "a" / "b" / "kept.json").exists()
