"""Ray: read tasks of datasets, and sinks.

Goal
    Ray reads every record exactly once, whatever the ranges of the tasks are, also if
    workers are killed. It knows the number of rows and the schema, decodes only the
    columns of a query, and raises the errors of fastrec.
Method
    Records that contain their number, on a local cluster of two workers that do not share
    the index cache of the driver.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pa = pytest.importorskip("pyarrow")

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.storage.stores import Store
from numbered import SPEC, N, record
from object_server import random_faults, served
from oracle import example, tfrecord_file
from s3_server import S3

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray's about itself
]


@pytest.fixture(scope="module", autouse=True)
def cache_of_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A local cluster. Yields the index cache of its workers."""
    cache = tmp_path_factory.mktemp("workers")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    ray.init(
        num_cpus=2,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"FASTREC_CACHE": str(cache)}},
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 2000  # several blocks per task
    assert ray.get(ray.remote(os.getenv).remote("FASTREC_CACHE")) == str(cache)
    yield cache
    ray.shutdown()


def numbers(ds: Untyped) -> list[int]:
    return sorted(int(row["n"]) for row in ds.take_all())


def read(source: Untyped, **options: Untyped) -> Untyped:
    return fr.ray.read_tfrecords(source, **options)


# --- Rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 7, 100])
def test_every_record_is_read_once(paths: list[Path], n_blocks: int) -> None:
    ds = read(paths, features=SPEC, override_num_blocks=n_blocks)
    assert ds.count() == N
    assert numbers(ds) == list(range(N))


def test_one_large_file_is_read_by_many_tasks(
    write: Write, cache_of_workers: Path
) -> None:
    sizes = np.random.default_rng(0).integers(0, 3000, 500)
    path = write(
        tfrecord_file(
            example({b"n": ("int64", [n]), b"data": ("bytes", [bytes(size)])})
            for n, size in enumerate(sizes.tolist())
        )
    )
    ds = read(path, override_num_blocks=8)
    logical = ds._logical_plan.dag.datasource
    tasks = logical.get_read_tasks(8)
    rows = [task.metadata.num_rows for task in tasks]
    assert sum(rows) == 500
    ends = np.cumsum([0, *rows])
    shares = [sizes[a:b].sum() for a, b in itertools.pairwise(ends)]
    assert max(shares) - min(shares) < 2 * 3000
    assert numbers(ds) == list(range(500))
    assert not list(cache_of_workers.rglob("*")), "a worker has indexed the file"


def test_a_range_goes_through_several_files_and_a_file_through_several_ranges(
    paths: list[Path],
) -> None:
    ds = read(paths, features=SPEC)
    for n_blocks in (2, 5, 11):
        tasks = ds._logical_plan.dag.datasource.get_read_tasks(n_blocks)
        found = [
            int(n)
            for task in tasks
            for block in pickle.loads(pickle.dumps(task.read_fn))()
            for n in block["n"]
        ]
        assert found == list(range(N))
        assert all(
            set(task.metadata.input_files) <= set(map(str, paths)) for task in tasks
        )


def test_selected_records_are_read_in_their_order(paths: list[Path]) -> None:
    whole = open_dataset(paths, features=SPEC)
    selections = [
        whole.select([40, 3, 3, 12, 0]),
        whole.select(slice(30, 2, -3)),
        whole.filter(lambda batch: batch["n"] % 7 == 1),
        whole.shard(num_shards=3, index=1),
        fr.concat([whole.select([9, 8]), open_dataset(paths[:1], features=SPEC)]),
    ]
    for chosen in selections:
        expected = sorted(row["n"] for row in chosen)
        ds = read(chosen, override_num_blocks=3)
        assert ds.count() == len(expected)
        assert numbers(ds) == expected
        tasks = ds._logical_plan.dag.datasource.get_read_tasks(3)
        in_order = [
            int(n)
            for task in tasks
            for block in pickle.loads(pickle.dumps(task.read_fn))()
            for n in block["n"]
        ]
        assert in_order == [row["n"] for row in chosen]


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_consumers_of_a_split_get_each_record_once(
    paths: list[Path], n_ranks: int
) -> None:
    def consumed(part: Untyped) -> list[int]:
        batches = part.iter_batches(batch_size=5)
        return [int(n) for batch in batches for n in batch["n"]]

    task = ray.remote(num_cpus=0)(consumed)
    parts = read(paths, features=SPEC).streaming_split(n_ranks)
    found = ray.get([task.remote(part) for part in parts])
    assert sorted(n for part in found for n in part) == list(range(N))


def test_a_loader_of_the_driver_takes_the_ranks_of_workers(paths: list[Path]) -> None:
    loader = open_dataset(paths, features=SPEC).loader(5, shuffle=True)

    def consumed(loader: Untyped) -> list[int]:
        return [int(n) for batch in loader for n in batch["n"]]

    task = ray.remote(num_cpus=0)(consumed)
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    found = ray.get(
        [task.options(runtime_env={"env_vars": rank}).remote(loader) for rank in ranks]
    )
    assert sorted(n for part in found for n in part) == list(range(N))
    assert min(map(len, found)) > 0


def test_files_without_records_are_an_empty_dataset(write: Write) -> None:
    ds = read([write(b""), write(b"")], features=SPEC)
    assert ds.count() == 0
    assert ds.take_all() == []


def test_relative_paths_are_those_of_the_driver(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths[3].parent)
    assert numbers(read(paths[3].name, features=SPEC)) == list(range(8, 31))


def test_a_few_rows_are_taken_without_the_rest(paths: list[Path]) -> None:
    ds = read(paths, features=SPEC).limit(3)
    assert ds.count() == 3
    assert len(ds.take_all()) == 3


# --- Columns --------------------------------------------------------------------------


def test_rows_of_one_shape_are_tensors_and_others_lists(write: Write) -> None:
    n = 10
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "image": rng.integers(0, 255, (n, 4, 5, 3), np.uint8),
        "vector": rng.normal(size=(n, 7)).astype(np.float32),
        "flags": rng.integers(0, 2, (n, 3, 3)).astype(bool),
        "scalar": np.arange(n),
    }
    ragged = [list(range(i % 4)) for i in range(n)]
    words = [[b"w" * j for j in range(i % 3)] for i in range(n)]
    path = write(b"")
    raw = {"image": fr.Raw((4, 5, 3), "uint8"), "flags": fr.Raw((3, 3), "bool")}
    with fr.Writer(path, overwrite=True, features=raw) as writer:
        writer.write_batch(
            columns
            | {"ids": ragged, "words": words, "name": [f"x{i}" for i in range(n)]}
        )
    features = raw | {
        "vector": fr.FixedLen((7,), "float32"),
        "scalar": "int64",
        "ids": fr.VarLen("int64"),
        "words": fr.VarLen("bytes"),
        "name": "bytes",
    }
    ds = read(path, features=features, text=["name"], override_num_blocks=2)
    types = dict(zip(ds.schema().names, ds.schema().types, strict=True))
    batch = ds.sort("scalar").take_batch(n)
    for name, column in columns.items():
        assert batch[name].dtype == column.dtype
        assert np.array_equal(batch[name], column), name
    assert [row.tolist() for row in batch["ids"]] == ragged
    assert [list(row) for row in batch["words"]] == words
    assert list(batch["name"]) == [f"x{i}" for i in range(n)]
    assert str(types["name"]) == "large_string"
    found = ds.materialize().schema()
    assert dict(zip(found.names, found.types, strict=True)) == types


def test_var_len_features_are_lists_in_every_block(write: Write) -> None:
    """Ray's own reader makes a value of a list with one value, and null of an empty one."""
    rows = [[1], [], [2, 3], [4], []] * 20
    path = write(tfrecord_file(example({b"ids": ("int64", row)}) for row in rows))
    ds = read(path, features={"ids": fr.VarLen("int64")}, override_num_blocks=10)
    found = [row["ids"] for row in ds.take_all()]
    assert sorted(map(list, found)) == sorted(rows)


def test_columns_that_a_query_does_not_need_are_not_decoded(write: Write) -> None:
    good = [example({b"n": ("int64", [n]), b"x": ("float", [n])}) for n in range(20)]
    bad = example({b"n": ("int64", [20]), b"x": ("bytes", [b"text"])})
    path = write(tfrecord_file([*good, bad]))
    features = {"n": "int64", "x": "float32"}
    ds = read(path, features=features)
    assert numbers(ds.select_columns(["n"])) == list(range(21))
    assert numbers(read(path, features=features, columns=["n"])) == list(range(21))
    assert read(path, features=features, columns=["n"]).schema().names == ["n"]
    assert ds.select_columns(["n"]).schema().names == ["n"]
    with pytest.raises(fr.SchemaError, match="record 20"):
        ds.take_all()
    assert ds.rename_columns({"n": "m"}).select_columns(["m"]).sum("m") == 210
    assert ds.select_columns([]).count() == 21


def test_images_are_decoded_if_a_query_needs_them(write: Write) -> None:
    pytest.importorskip("cv2")
    path = write(b"")
    images = np.random.default_rng(0).integers(0, 255, (6, 4, 5, 3), np.uint8)
    features = {"image": fr.Image((4, 5)), "n": fr.FixedLen((), "int64")}
    with fr.Writer(path, overwrite=True, features=features) as writer:
        writer.write_batch({"image": images, "n": np.arange(6)})
        writer.write({"image": b"not an image", "n": 6})
    ds = read(path, features=features)
    assert ds.count() == 7
    assert numbers(ds.select_columns(["n"])) == list(range(7))
    with pytest.raises(fr.SchemaError, match="record 6"):
        ds.take_all()
    good = read(fr.open(path, features=features).select(range(6)))
    batch = good.sort("n").take_batch(6)
    assert np.array_equal(batch["image"], images)


@pytest.mark.parametrize("name", ["mnist-1000.tfrecord", "sequence-eval.gz", "taxi"])
def test_real_files_arrive_unchanged(testdata: Path, name: str) -> None:
    files = sorted(testdata.glob(f"{name}*"))
    table = pa.table(fr.open(files))
    blocks = ray.get(read(files, override_num_blocks=2).to_arrow_refs())
    found = {
        name: [x for b in blocks for x in b[name].to_pylist()]
        for name in blocks[0].schema.names
    }
    assert list(found) == table.schema.names
    for column, values in found.items():
        expected = table[column].to_pylist()
        plain = [x.tolist() if isinstance(x, np.ndarray) else x for x in values]
        assert sorted(map(repr, plain)) == sorted(map(repr, expected)), column


def test_transforms_run_in_the_read_tasks(paths: list[Path]) -> None:
    pid = os.getpid()

    def doubled(batch: Any) -> Any:
        return {
            "n": batch["n"] * 2,
            "away": np.full(len(batch["n"]), os.getpid() != pid),
        }

    ds = read(open_dataset(paths, features=SPEC).with_transform(doubled))
    rows = ds.take_all()
    assert sorted(row["n"] for row in rows) == list(range(0, 2 * N, 2))
    assert all(row["away"] for row in rows)


# --- Errors ---------------------------------------------------------------------------


def damaged(write: Write, n_damaged: int) -> Path:
    data = bytearray(tfrecord_file(record(n) for n in range(60)))
    whole = tfrecord_file(record(n) for n in range(n_damaged))
    data[len(whole) + 20] ^= 1
    return write(bytes(data))


@pytest.mark.parametrize("n_damaged", [0, 37, 59])
def test_errors_keep_their_class_code_and_place(write: Write, n_damaged: int) -> None:
    path = damaged(write, n_damaged)
    ds = read(path, features=SPEC, override_num_blocks=4)
    with pytest.raises(fr.CorruptionError) as caught:
        ds.take_all()
    error: Any = caught.value
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert error.code == "payload_checksum"
    assert (error.path, error.record) == (str(path), n_damaged)
    assert "fastrec repair" in error.hint
    assert str(error.cause) in str(error)


@pytest.mark.parametrize("n_damaged", [0, 37, 59])
def test_records_that_cannot_be_read_are_skipped(write: Write, n_damaged: int) -> None:
    path = damaged(write, n_damaged)
    expected = [n for n in range(60) if n != n_damaged]
    ds = read(open_dataset(path, features=SPEC, on_error="skip"), override_num_blocks=4)
    assert numbers(ds) == expected
    assert ds.count() == 59


def test_broken_framing_is_left_out_by_every_task_in_the_same_way(write: Write) -> None:
    data = bytearray(tfrecord_file(record(n) for n in range(60)))
    begin = len(tfrecord_file(record(n) for n in range(30)))
    data[begin] ^= 1  # a length
    path, other = write(bytes(data)), write(tfrecord_file([record(60)]))
    with pytest.raises(fr.CorruptionError):
        read([path, other], features=SPEC)
    source = open_dataset([path, other], features=SPEC, on_error="resync")
    expected = [n for n in range(61) if n != 30]
    for n_blocks in (1, 5):
        assert numbers(read(source, override_num_blocks=n_blocks)) == expected


def test_a_file_that_changes_after_planning_is_an_error(write: Write) -> None:
    path = write(tfrecord_file(record(n) for n in range(30)))
    ds = read(path, features=SPEC)
    path.write_bytes(tfrecord_file(record(n) for n in range(1, 31)))
    os.utime(path, ns=(1, 1))
    with pytest.raises(fr.Error) as caught:
        ds.take_all()
    assert caught.value.code == "file_changed"


def test_what_is_wrong_is_refused(paths: list[Path]) -> None:
    with pytest.raises(TypeError, match=r"did you mean columns=\?"):
        read(paths, column=["n"])
    with pytest.raises(TypeError, match=r"did you mean override_num_blocks=\?"):
        read(paths, num_blocks=3)
    with pytest.raises(TypeError, match="got a Loader"):
        read(open_dataset(paths).loader(3))
    with pytest.raises(ValueError, match="shuffle must be None"):
        read(paths, shuffle=True)
    with pytest.raises(KeyError, match="no column 'm'"):
        read(paths, features=SPEC, columns=["m"])
    with pytest.raises(ValueError, match="no column 'm'"):
        read(paths, features=SPEC, text=["m"])
    with pytest.raises(FileNotFoundError):
        read("missing.tfrecord")
    with pytest.raises(TypeError, match="cannot select records of a mix"):
        read(fr.mix({"a": (open_dataset(paths, features=SPEC), 1)}))


# --- Compressed files -----------------------------------------------------------------


def test_a_compressed_file_is_read_by_one_task(tmp_path: Path) -> None:
    out = str(tmp_path / "{shard:05d}.tfrecord.gz")
    with fr.Writer(out, compression="GZIP", max_shard_records=9) as writer:
        for n in range(N):
            writer.write_record(record(n))
    mixed = [*writer.files, write_plain(tmp_path)]
    for n_blocks in (1, 2, 3, 50):
        ds = read(mixed, features=SPEC, override_num_blocks=n_blocks)
        assert numbers(ds) == list(range(N + 5))
        tasks = ds._logical_plan.dag.datasource.get_read_tasks(n_blocks)
        assert len(tasks) == min(n_blocks, len(mixed))
        assert sum(len(task.metadata.input_files) for task in tasks) == len(mixed)
    cached = fr.open(writer.files, features=SPEC, cache_dir=tmp_path / "expanded")
    assert numbers(read(cached, override_num_blocks=3)) == list(range(N))


def write_plain(folder: Path) -> str:
    path = folder / "plain.tfrecord"
    path.write_bytes(tfrecord_file(record(n) for n in range(N, N + 5)))
    return str(path)


# --- Order ----------------------------------------------------------------------------


def test_files_are_shuffled_as_by_readers_of_ray(paths: list[Path]) -> None:
    from ray.data import FileShuffleConfig

    def order(shuffle: Untyped, n_executions: int = 0) -> list[int]:
        context = ray.data.DataContext.get_current().copy()
        context._execution_idx = n_executions
        datasource = read(
            paths, features=SPEC, shuffle=shuffle
        )._logical_plan.dag.datasource
        tasks = datasource.get_read_tasks(8, data_context=context)
        return [
            int(n) for task in tasks for block in task.read_fn() for n in block["n"]
        ]

    same = FileShuffleConfig(seed=3, reseed_after_execution=False)
    each = FileShuffleConfig(seed=3)
    assert order(None) == list(range(N))
    assert order(same) == order(same, 1) != list(range(N))
    assert order(each) == order(each) != order(each, 1)
    assert sorted(order("files")) == list(range(N))


# --- Remote files ---------------------------------------------------------------------


def test_ranges_of_remote_files_are_read_through_faults(
    paths: list[Path], cache_of_workers: Path
) -> None:
    pytest.importorskip("obstore")
    objects = {f"data/{i}.tfrecord": path.read_bytes() for i, path in enumerate(paths)}
    before = set(cache_of_workers.rglob("*"))
    with served(objects) as server:
        urls = [f"{server.url}/{key}" for key in objects]
        ds = read(urls, features=SPEC, override_num_blocks=3)
        assert ds.count() == N
        server.inject = random_faults(0, 0.3, ("500", "reset", "cut"))
        assert numbers(ds) == list(range(N))
        assert server.injected
        assert set(cache_of_workers.rglob("*")) == before, "a worker made an index"
        server.inject = lambda _request: "changed"
        with pytest.raises(fr.CorruptionError) as caught:
            ds.take_all()
        assert caught.value.code == "file_changed"


def test_credentials_are_not_sent_to_workers(paths: list[Path]) -> None:
    pytest.importorskip("obstore")
    with served({"a.tfrecord": paths[0].read_bytes()}) as server:
        url = server.url.replace("://", "://user:secret@") + "/a.tfrecord?token=secret"
        ds = read(url, features=SPEC)
        tasks = ds._logical_plan.dag.datasource.get_read_tasks(2)
        assert b"secret" not in pickle.dumps([task.read_fn for task in tasks])
        with pytest.raises(PermissionError) as caught:
            ds.take_all()
        assert "credentials" in str(caught.value)
        assert "secret" not in str(caught.value)


# --- Killed workers -------------------------------------------------------------------


@pytest.mark.parametrize("at", [3, N - 2])
def test_a_killed_worker_loses_and_repeats_nothing(
    paths: list[Path], tmp_path: Path, at: int
) -> None:
    marker = tmp_path / "killed"

    def kill_once(batch: Any) -> Any:
        if at in batch["n"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    whole = open_dataset(paths, features=SPEC).with_transform(kill_once)
    ds = read(whole, override_num_blocks=2)
    assert numbers(ds) == list(range(N))
    assert marker.exists()


# --- Writing --------------------------------------------------------------------------


def written(files: list[str]) -> list[int]:
    return [int(n) for n in fr.open(files, features={"n": "int64"})[:]["n"]]


@pytest.mark.parametrize("n_blocks", [1, 7])
def test_rows_are_written_once_and_in_order(
    paths: list[Path], tmp_path: Path, n_blocks: int
) -> None:
    ds = read(paths, features=SPEC, override_num_blocks=n_blocks)
    pattern = tmp_path / "part-{shard:03d}-of-{num_shards:03d}.tfrecord"
    raw = {"pixels": SPEC["pixels"]}  # else rows of 3 numbers are lists of integers
    files = fr.ray.write_tfrecords(ds, pattern, features=raw)
    n = len(files)
    assert files == [str(pattern).format(shard=i, num_shards=n) for i in range(n)]
    assert sorted(map(str, tmp_path.iterdir())) == files, "and no others"
    assert written(files) == list(range(N))
    source, copy = (fr.open(each, features=SPEC)[:] for each in (paths, files))
    assert all(source[name].tolist() == copy[name].tolist() for name in SPEC)
    with pytest.raises(FileExistsError):
        fr.ray.write_tfrecords(ds, pattern)
    half = ds.filter(expr="n < 20")
    fewer = fr.ray.write_tfrecords(half, pattern, overwrite=True, min_rows_per_file=N)
    assert len(fewer) == 1
    assert sorted(map(str, tmp_path.iterdir())) == fewer
    assert written(fewer) == list(range(20))


def test_shards_are_limited_and_compressed_as_by_a_writer(tmp_path: Path) -> None:
    files = fr.ray.write_tfrecords(
        ray.data.range(100, override_num_blocks=1),
        tmp_path / "{shard}.gz",
        max_shard_records=30,
        compression="GZIP",
        compression_level=1,
    )
    assert [Path(file).name for file in files] == ["0.gz", "1.gz", "2.gz", "3.gz"]
    assert all(Path(file).read_bytes()[:2] == b"\x1f\x8b" for file in files)
    assert sorted(row["id"] for row in fr.open(files)) == list(range(100))


def test_columns_of_ray_become_features(tmp_path: Path) -> None:
    import pandas as pd

    image = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    vector = np.arange(6, dtype=np.float32).reshape(2, 3)
    table = ray.data.from_numpy([image]).rename_columns({"data": "image"})
    table = table.zip(ray.data.from_numpy([vector]).rename_columns({"data": "vector"}))
    frame = pd.DataFrame({"name": ["a", None], "x": [1.5, 2.5], "ids": [[1, 2], []]})
    table = table.zip(ray.data.from_pandas(frame))
    files = fr.ray.write_tfrecords(table, tmp_path / "{shard}.tfrecord")
    features = {
        "image": fr.Raw((4, 5, 3), "uint8"),
        "vector": fr.FixedLen((3,), "float32"),
        "name": fr.FixedLen((), "bytes", default=b"none"),
        "x": "float32",
        "ids": fr.VarLen("int64"),
    }
    found: Untyped = fr.open(files, features=features)[:]
    assert np.array_equal(found["image"], image)
    assert np.array_equal(found["vector"], vector)
    assert found["name"].tolist() == [b"a", b"none"]
    assert found["x"].tolist() == [1.5, 2.5]
    assert found["ids"].tolist() == [[1, 2], []]


def test_a_dataset_without_rows_is_one_empty_file(tmp_path: Path) -> None:
    empty = ray.data.range(10).limit(0)
    files = fr.ray.write_tfrecords(empty, tmp_path / "{shard}-of-{num_shards}.tfrecord")
    assert [Path(file).name for file in files] == ["0-of-1.tfrecord"]
    assert len(fr.open(files)) == 0


@pytest.mark.parametrize("at", [3, 77])
def test_a_killed_writer_loses_and_repeats_nothing(tmp_path: Path, at: int) -> None:
    marker = tmp_path / "killed"

    def kill_once(batch: Any) -> Any:
        if at in batch["id"] and not marker.exists():
            # The files of this attempt are open.
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    out = tmp_path / "out"
    out.mkdir()
    ds = ray.data.range(100, override_num_blocks=2).map_batches(
        kill_once, batch_size=10
    )
    files = fr.ray.write_tfrecords(ds, out / "{shard}.tfrecord", max_shard_records=20)
    assert marker.exists()
    assert sorted(row["id"] for row in fr.open(files)) == list(range(100))
    assert sorted(out.iterdir()) == sorted(map(Path, files))


def test_a_failed_job_leaves_no_files(tmp_path: Path) -> None:
    def fail(batch: Any) -> Any:
        if 77 in batch["id"]:
            raise RuntimeError(77)
        return batch

    ds = ray.data.range(100, override_num_blocks=10).map_batches(fail, batch_size=5)
    with pytest.raises(Exception, match="RuntimeError: 77"):
        fr.ray.write_tfrecords(ds, tmp_path / "{shard}.tfrecord", max_shard_records=2)
    mapping = pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64()))
    table = ray.data.from_arrow(pa.table({"m": mapping}))
    with pytest.raises(fr.SchemaError, match="no feature can store column 'm'"):
        fr.ray.write_tfrecords(table, tmp_path / "{shard}.tfrecord")
    assert not list(tmp_path.iterdir())


def test_objects_appear_together_and_a_failed_job_leaves_none(s3: S3) -> None:
    def fail(batch: Any) -> Any:
        if 77 in batch["id"]:
            raise RuntimeError(77)
        return batch

    ds = ray.data.range(100, override_num_blocks=4)
    pattern = s3.url("d/{shard}-of-{num_shards}.tfrecord")
    options: dict[str, Any] = {"storage_options": s3.options, "max_shard_records": 20}
    with pytest.raises(Exception, match="RuntimeError: 77"):
        fr.ray.write_tfrecords(ds.map_batches(fail, batch_size=5), pattern, **options)
    assert s3.names() == []
    files = fr.ray.write_tfrecords(ds, pattern, **options)
    n = len(files)
    assert files == [s3.url(f"d/{i}-of-{n}.tfrecord") for i in range(n)]
    assert s3.names() == sorted(f"d/{i}-of-{n}.tfrecord" for i in range(n))
    found = fr.open(files, storage_options=s3.options)
    assert [row["id"] for row in found] == list(range(100))
    with pytest.raises(FileExistsError):
        fr.ray.write_tfrecords(ds, pattern, **options)
    (one,) = fr.ray.write_tfrecords(ds.limit(5), pattern, overwrite=True, **options)
    assert s3.names() == ["d/0-of-1.tfrecord"]
    assert len(fr.open(one, storage_options=s3.options)) == 5


def test_a_store_that_fails_after_the_job_does_not_fail_it(
    s3: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("denied")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("fastrec.ray.write.delete", fail)
    stores = []
    open_store = Store.__init__

    def init(store: Store, root: str, options: Any) -> None:
        open_store(store, root, options)
        stores.append(store)

    monkeypatch.setattr(Store, "__init__", init)
    files = fr.ray.write_tfrecords(
        ray.data.range(100, override_num_blocks=4),
        s3.url("d/{shard}.tfrecord"),
        storage_options=s3.options,
        max_shard_records=20,
    )
    assert len(files) > 4
    assert len(stores) == 2  # of the names, and of the empty file
    assert "cannot remove the staged files: denied" in caplog.text
    assert not list(tmp_path.iterdir())
    assert set(map(str, files)) <= {s3.url(name) for name in s3.names()}


def test_leftovers_of_a_killed_driver_are_removed(tmp_path: Path) -> None:
    pattern = tmp_path / "{shard}.tfrecord"
    program = f"""
import os, signal
from fastrec.ray.write import staging
from fastrec.writer.shard_names import ShardNames
with staging(ShardNames({str(pattern)!r}), overwrite=False, sync=False):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    left = list(tmp_path.iterdir())
    assert any(path.is_dir() for path in left)
    assert all(path.name.startswith(".") for path in left)
    files = fr.ray.write_tfrecords(ray.data.range(10), pattern)
    assert sorted(tmp_path.iterdir()) == sorted(map(Path, files))


def test_wrong_arguments_of_a_write_are_refused(tmp_path: Path) -> None:
    ds = ray.data.range(10)
    write = fr.ray.write_tfrecords
    with pytest.raises(ValueError, match="path must be a shard pattern"):
        write(ds, tmp_path / "a.tfrecord")
    with pytest.raises(TypeError, match=r"must be a ray.data.Dataset, got Dataset"):
        write(fr.open(__file__), tmp_path / "{shard}.tfrecord")
    with pytest.raises(ValueError, match="HTTP servers are read-only") as url:
        write(ds, "https://key:secret@host/{shard}.tfrecord")
    assert "secret" not in str(url.value)
    with pytest.raises(ValueError, match="pass storage_options=") as url:
        write(ds, "ftp://key:secret@host/{shard}.tfrecord")
    assert "secret" not in str(url.value)
    with pytest.raises(ValueError, match="compression must be"):
        write(ds, tmp_path / "{shard}.tfrecord", compression="BZIP2")
    with pytest.raises(FileNotFoundError) as caught:
        write(ds, tmp_path / "missing" / "{shard}.tfrecord")
    assert caught.value.filename == str(tmp_path / "missing" / "{shard}.tfrecord")
    with pytest.raises(TypeError, match="did you mean overwrite="):
        write(ds, tmp_path / "{shard}.tfrecord", overwrit=True)  # type: ignore[call-arg]
    assert not list(tmp_path.iterdir())
