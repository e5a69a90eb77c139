"""JAX: the batches of a loader on devices, divided as a sharding says.

Goal
    Device arrays hold exactly what the loader delivers, whatever the sharding, and go on
    holding it. No integer is wrapped. What cannot be divided is refused before anything
    starts. Processes that hold the same rows read the same rows, and others read others.
Method
    Four CPU devices, and plain loaders beside. Two processes run `jax_processes.py`, and
    what they got is compared with a plain loader here.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastrec as fr
import fastrec.jax
from children import SECONDS_TO_HANG, start_program
from columns import Untyped, Write, open_dataset, snapshot
from numbered import (
    NUMBERS,
    SPEC,
    Batch,
    N,
    labels,
    reloaded,
)
from oracle import example, tfrecord_file

pytestmark = pytest.mark.frameworks

# Before JAX looks for devices, which nothing does while tests are collected.
with contextlib.suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", 4)


@pytest.fixture(scope="module")
def ds(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=NUMBERS)


@pytest.fixture(scope="module")
def by_row() -> Untyped:
    """A sharding of rows over four devices."""
    if len(jax.devices()) < 4:
        pytest.skip("JAX was started with fewer devices by somebody else")
    return NamedSharding(
        Mesh(np.array(jax.devices()[:4]), "batch"), PartitionSpec("batch")
    )


def on_host(batches: Any) -> list[Batch]:
    """What device arrays hold, in the dtypes of the files."""
    found: list[Batch] = []
    for batch in batches:
        assert all(isinstance(column, jax.Array) for column in batch.values())
        found.append({name: np.asarray(column) for name, column in batch.items()})
        found[-1]["n"] = found[-1]["n"].astype(np.int64)
    return found


# --- Batches on devices ---------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [0, 2])
def test_batches_are_those_of_the_loader(ds: Untyped, num_threads: int) -> None:
    options: Untyped = {
        "batch_size": 5,
        "shuffle": True,
        "num_threads": num_threads,
    }
    plain, loader = ds.loader(**options), fr.jax.loader(ds, **options)
    assert len(loader) == len(plain)
    for _ in range(2):
        assert snapshot(on_host(loader)) == snapshot(list(plain))
    assert snapshot(on_host([loader.peek()])) == snapshot([plain.peek()])


def test_rows_of_a_dataset_are_pytrees(ds: Untyped) -> None:
    row = ds[3]
    doubled = jax.tree.map(lambda value: 2 * value, row)
    assert doubled["n"] == 2 * row["n"]
    assert [*doubled] == [*row]
    assert len(jax.tree.leaves(row)) == len(row)


def test_a_device_is_a_sharding(ds: Untyped) -> None:
    device = jax.devices()[-1]
    for batch in fr.jax.loader(ds, sharding=device, batch_size=5):
        assert {column.device for column in batch.values()} == {device}


def test_rows_are_divided_over_the_devices(ds: Untyped, by_row: Untyped) -> None:
    options: Untyped = {"batch_size": 8, "shuffle": True, "drop_last": True}
    loader = fr.jax.loader(ds, sharding=by_row, **options)
    assert (loader.rank, loader.world_size) == (0, 1)
    for batch, plain in zip(loader, ds.loader(**options), strict=True):
        assert batch["pixels"].sharding.is_equivalent_to(by_row, 2)
        for i, shard in enumerate(batch["n"].addressable_shards):
            np.testing.assert_array_equal(shard.data, plain["n"][2 * i : 2 * i + 2])
        assert jax.jit(jnp.sum)(batch["n"]) == plain["n"].sum()


def test_every_device_may_have_all_rows(ds: Untyped, by_row: Untyped) -> None:
    whole = NamedSharding(by_row.mesh, PartitionSpec())
    loader = fr.jax.loader(ds, sharding=whole, batch_size=5)
    assert labels(loader) == list(range(N))
    assert [len(shard.data) for shard in loader.peek()["n"].addressable_shards] == [
        5
    ] * 4


def test_a_loader_that_exists_is_continued_on_devices(
    ds: Untyped, by_row: Untyped
) -> None:
    plain = ds.loader(8, shuffle=True, drop_last=True)
    plain.seek(3)
    loader = fr.jax.loader(plain, sharding=by_row)
    assert labels(loader) == labels(plain)
    with pytest.raises(TypeError, match="only with a Dataset, got a Loader and seed"):
        fr.jax.loader(plain, seed=1)


def test_a_loader_for_the_default_device_can_be_pickled(ds: Untyped) -> None:
    loader = fr.jax.loader(ds, batch_size=5)
    seen = labels(itertools.islice(loader, 2))
    assert seen + labels(pickle.loads(pickle.dumps(loader))) == list(range(N))


def test_filled_rows_are_marked(ds: Untyped, by_row: Untyped) -> None:
    *_, last = fr.jax.loader(ds, sharding=by_row, batch_size=8, pad_last=True)
    assert last["__valid__"].dtype == bool
    assert int(last["__valid__"].sum()) == N % 8


# --- What cannot be divided -----------------------------------------------------------


def test_what_does_not_divide_evenly_is_refused_before_anything_starts(
    ds: Untyped, by_row: Untyped, threads_end: Callable[[], None]
) -> None:
    with pytest.raises(ValueError, match="a batch of 6 rows cannot be divided over 4"):
        fr.jax.loader(ds, sharding=by_row, batch_size=6, drop_last=True)
    with pytest.raises(
        ValueError, match=r"last batch of 3 rows .* drop_last=True or pad"
    ):
        fr.jax.loader(ds, sharding=by_row, batch_size=8)
    message = r'NamedSharding\(mesh, PartitionSpec\("batch"\)\), got .*'
    for wrong in ("cpu", by_row.spec, 256):
        with pytest.raises(TypeError, match=message):
            fr.jax.loader(ds, sharding=wrong, batch_size=8)
    with pytest.raises(
        ValueError, match=r'skipped rows.* on_error="mask" or pad_last=True'
    ):
        fr.jax.loader(
            ds, sharding=by_row, batch_size=8, drop_last=True, on_error="skip"
        )
    with pytest.raises(
        TypeError,
        match=r"requires a fastrec\.Dataset, with loader options, or a Loader",
    ):
        fr.jax.loader(by_row.mesh, batch_size=8)
    with pytest.raises(TypeError, match="num_threads="):
        fr.jax.loader(ds, batch_size=8, num_workers=2)  # type: ignore[call-arg]
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("batch", "model"))
    images = NamedSharding(mesh, PartitionSpec("batch", "model"))
    with pytest.raises(ValueError, match="must divide rows and nothing else"):
        fr.jax.loader(ds, sharding=images, batch_size=8)
    threads_end()


def test_a_batch_of_listed_rows_that_does_not_divide_names_its_rows(
    ds: Untyped, by_row: Untyped
) -> None:
    def batches(_seed: int, _epoch: int) -> list[list[int]]:
        return [[0, 1, 2, 3], [4, 5, 6], [7]]

    iterator = iter(fr.jax.loader(ds, sharding=by_row, batches=batches))
    assert next(iterator)["n"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="'n': a batch of 3 rows cannot be divided"):
        next(iterator)


def test_rows_of_any_lengths_are_not_divided(
    paths: list[Path], by_row: Untyped
) -> None:
    ds = open_dataset(paths, features={"many": fr.VarLen("int64", key="n")})
    with pytest.raises(ValueError, match=r"'many' has rows of any lengths, .*pad them"):
        next(iter(fr.jax.loader(ds, sharding=by_row, batch_size=4, drop_last=True)))


# --- Dtypes ---------------------------------------------------------------------------


def test_dtypes_stay_but_for_those_of_64_bits(ds: Untyped) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    small = [bool, "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16"]
    dtypes = [np.dtype(dtype) for dtype in [*small, bfloat16, "float32"]]
    wide = [np.dtype(dtype) for dtype in ("int64", "uint64", "float64")]

    def every_dtype(batch: Batch) -> Batch:
        return {str(dtype): batch["n"].astype(dtype) for dtype in [*dtypes, *wide]}

    loader = fr.jax.loader(ds, batch_size=5, transform=every_dtype)
    want = ds.loader(5, transform=every_dtype)
    for batch, plain in zip(loader, want, strict=True):
        for name in map(str, dtypes):
            assert batch[name].dtype == plain[name].dtype
        got = [str(batch[str(dtype)].dtype) for dtype in wide]
        assert got == ["int32", "uint32", "float32"]
        for name, column in plain.items():
            np.testing.assert_array_equal(np.asarray(batch[name]), column)
    with jax.enable_x64(True):
        batch = loader.batch(0)
        assert [batch[str(dtype)].dtype for dtype in wide] == wide


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31, "int64"), (-(2**31) - 1, "int64"), (2**40, "int64"), (2**32, "uint64")],
)
def test_an_integer_beyond_32_bits_is_an_error_and_never_wraps(
    write: Write, value: int, dtype: str
) -> None:
    numbers = [2**31 - 1, -(2**31) * (dtype == "int64"), 3, 4, value, 6]
    records = [example({b"n": ("int64", [number])}) for number in numbers]
    spec = {"id": fr.FixedLen((), dtype, key="n")}
    ds = open_dataset(write(tfrecord_file(records)), features=spec)
    loader = fr.jax.loader(ds, batch_size=3, prefetch_to_device=2)
    iterator = iter(loader)
    assert next(iterator)["id"].tolist() == numbers[:3]
    place = rf"'id', row 1: {value} does not fit u?int32, .*jax_enable_x64"
    with pytest.raises(OverflowError, match=place):
        next(iterator)
    assert loader.step == 1
    with jax.enable_x64(True):
        loader.load_state_dict(loader.state_dict())
        assert [batch["id"].tolist() for batch in loader] == [numbers[3:]]


def test_a_column_that_is_no_array_is_left_to_the_user(ds: Untyped) -> None:
    def transform(batch: Batch) -> Batch:
        return batch | {"names": ["a"], "scale": np.float32(2), "on": jnp.ones(5)}

    batch = fr.jax.loader(ds, batch_size=5, transform=transform).peek()
    assert (batch["names"], batch["scale"]) == (["a"], 2)
    assert isinstance(batch["on"], jax.Array)


@pytest.mark.parametrize(
    "dtype", ["U9", "datetime64[s]", "timedelta64[s]", "V4", "i4,f4", "longdouble"]
)
def test_a_column_of_no_dtype_of_jax_is_refused_by_name(
    ds: Untyped, dtype: str
) -> None:
    def transform(batch: Batch) -> Batch:
        return {"x": np.zeros(len(batch["n"]), dtype)}

    if np.dtype(dtype) == np.float64:
        pytest.skip("longdouble is float64 here")
    loader = fr.jax.loader(ds, batch_size=5, transform=transform)
    with pytest.raises(
        TypeError, match=r"'x': JAX has no arrays of .*ds.select_columns"
    ):
        loader.peek()


def test_columns_in_dicts_are_placed_too(ds: Untyped, by_row: Untyped) -> None:
    def transform(batch: Batch) -> Batch:
        return {"inputs": {"pixels": batch["pixels"], "names": ["a"]}, "n": batch["n"]}

    batch = fr.jax.loader(
        ds, batch_size=8, sharding=by_row, drop_last=True, transform=transform
    ).peek()
    assert list(batch) == ["inputs", "n"]
    assert batch["inputs"]["pixels"].sharding.is_equivalent_to(by_row, 2)
    assert batch["inputs"]["names"] == ["a"]


# --- Rows of any lengths --------------------------------------------------------------


def with_rows(batch: Batch) -> Batch:
    many = fr.RaggedArray(np.repeat(batch["n"], 2), 2 * np.arange(len(batch["n"]) + 1))
    nested = fr.RaggedArray(many, np.arange(len(batch["n"]) + 1))
    return batch | {"many": many, "few": many.to_sparse(), "nested": nested}


@pytest.fixture(scope="module")
def mixed(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=SPEC).with_transform(with_rows)


def test_rows_of_any_lengths_go_to_one_device_and_bytes_stay(mixed: Untyped) -> None:
    batch, plain = fr.jax.loader(mixed, batch_size=5).batch(3), mixed[15:20]
    for name in ("many", "few", "nested"):
        leaves = jax.tree.leaves(batch[name])
        assert all(isinstance(leaf, jax.Array) for leaf in leaves)
        back = jax.tree.map(np.asarray, batch[name])
        assert isinstance(back, type(plain[name]))
        wanted = jax.tree.leaves(plain[name])
        for leaf, want in zip(jax.tree.leaves(back), wanted, strict=True):
            np.testing.assert_array_equal(leaf, want)
    assert batch["words"].equals(plain["words"])
    assert isinstance(batch["words"].values.data, np.ndarray)


def test_batches_are_pytrees(mixed: Untyped) -> None:
    plain = mixed[:7]
    same = jax.tree.map(lambda leaf: leaf, plain)
    assert all(same[name] is not plain[name] for name in ("many", "few", "nested"))
    for name in ("words", "many", "few", "nested"):
        assert same[name].equals(plain[name])
    assert jax.tree.structure(same) == jax.tree.structure(plain)
    paths_of = [
        path for path, _ in jax.tree_util.tree_flatten_with_path(plain["nested"])[0]
    ]
    assert list(map(jax.tree_util.keystr, paths_of)) == [
        ".values.values",
        ".values.row_splits",
        ".row_splits",
    ]
    put = jax.device_put(plain)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(put))
    assert put["few"].dense_shape == (7, 2)
    assert put["words"].values.shape == plain["words"].values.shape


def test_batches_pass_through_jit(mixed: Untyped) -> None:
    def doubled(batch: Batch) -> Any:
        many = batch["many"]
        ids = jnp.repeat(
            jnp.arange(len(many.row_splits) - 1),
            jnp.diff(many.row_splits),
            total_repeat_length=len(many.values),
        )
        sums = jax.ops.segment_sum(many.values, ids, len(many.row_splits) - 1)
        return batch | {"sums": sums}

    jitted = jax.jit(doubled)
    for batch in fr.jax.loader(mixed, batch_size=9, drop_last=True):
        got = jitted(batch)
        np.testing.assert_array_equal(got["sums"], 2 * batch["n"])
        assert isinstance(got["few"], fr.SparseArray)


def test_a_repr_shows_whatever_jax_puts_in_a_pytree(mixed: Untyped) -> None:
    batch = fr.jax.loader(mixed, batch_size=5).peek()
    columns = {name: batch[name] for name in ("words", "many", "few", "nested")}

    def shown(tree: Batch) -> Batch:
        for column in tree.values():
            assert repr(column).startswith(f"{type(column).__name__}(")
        return tree

    shown(columns)
    shown(jax.eval_shape(shown, columns))
    shown(jax.tree.map(lambda _: None, columns))
    assert repr(batch["many"]).startswith("RaggedArray(values=Array([0, 0, 1, 1")


def test_rows_can_be_taken_of_arrays_on_devices(mixed: Untyped) -> None:
    batch, plain = fr.jax.loader(mixed, batch_size=5).peek(), mixed[:5]
    for name in ("many", "few", "nested"):
        found, wanted = batch[name][[3, 1]], plain[name][[3, 1]]
        assert isinstance(jax.tree.leaves(found)[name == "few"], jax.Array)
        assert repr(found).startswith(type(wanted).__name__)
        leaves = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
        assert all(np.array_equal(leaf, want) for leaf, want in leaves)


# --- Whose memory it is ---------------------------------------------------------------


def test_a_cpu_device_shares_the_memory_of_the_batch(ds: Untyped) -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("the default device is no CPU")
    places: list[int] = []

    def noted(batch: Batch) -> Batch:
        places.append(batch["pixels"].ctypes.data)
        return batch

    batches = list(fr.jax.loader(ds, batch_size=5, transform=noted))
    assert [batch["pixels"].unsafe_buffer_pointer() for batch in batches] == places


@pytest.mark.parametrize("is_divided", [False, True])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_arrays_keep_their_values_while_the_loop_goes_on(
    ds: Untyped, by_row: Untyped, num_threads: int, is_divided: bool
) -> None:
    options: Untyped = {
        "batch_size": 4,
        "drop_last": True,
        "num_threads": num_threads,
    }
    loader = fr.jax.loader(
        ds,
        sharding=by_row if is_divided else None,
        memory_limit="8kB",
        prefetch_to_device=2,
        **options,
    )
    want = list(itertools.islice(ds.loader(**options).repeat(), 200))
    held = list(itertools.islice(loader.repeat(), 200))
    assert snapshot(on_host(held)) == snapshot(want)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("is_divided", [False, True])
def test_donated_arrays_change_no_other(
    ds: Untyped, by_row: Untyped, is_divided: bool
) -> None:
    step = jax.jit(
        lambda batch: {"n": 3 * batch["n"] - 1, "pixels": batch["pixels"] + 1},
        donate_argnums=0,
    )
    options: Untyped = {"batch_size": 4, "drop_last": True}
    loader = fr.jax.loader(
        ds, sharding=by_row if is_divided else None, memory_limit="8kB", **options
    )
    plain = ds.loader(**options)
    held = []
    for batch in itertools.islice(loader.repeat(), 100):
        held.append(step(batch))
        assert batch["pixels"].is_deleted()
    for got, want in zip(held, plain.repeat(10), strict=False):
        np.testing.assert_array_equal(got["n"], 3 * want["n"] - 1)
        np.testing.assert_array_equal(got["pixels"], want["pixels"] + np.uint8(1))


# --- State and the end ----------------------------------------------------------------


def test_a_state_counts_what_was_delivered_and_continues_there(
    ds: Untyped, by_row: Untyped
) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "drop_last": True}
    whole = labels(ds.loader(**options))
    plain = ds.loader(**options)
    loader = fr.jax.loader(ds, sharding=by_row, prefetch_to_device=3, **options)
    for n, (_, _) in enumerate(zip(loader, plain, strict=True), 1):
        assert (loader.step, loader.stats.n_batches) == (plain.step, n)
        assert loader.state_dict() == plain.state_dict()
        later = fr.jax.loader(ds, sharding=by_row, prefetch_to_device=3, **options)
        later.load_state_dict(reloaded(loader.state_dict()))
        if n < len(plain):
            assert labels(later) == whole[4 * n :]


def test_a_loop_that_is_dropped_leaves_no_threads(
    ds: Untyped, threads_end: Callable[[], None]
) -> None:
    loader = fr.jax.loader(ds, batch_size=5, num_threads=2, prefetch_to_device=2)
    next(iter(loader))
    threads_end()
    with loader:
        iterator = iter(loader)
        next(iterator)
    with pytest.raises(RuntimeError, match="was closed"):
        next(iterator)


# --- Two processes --------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port: int = listening.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def processes(paths: list[Path]) -> list[dict[str, Any]]:
    """What two processes of two devices each say they got."""
    port = free_port()
    children = [start_program("jax_processes.py", i, port, *paths) for i in range(2)]
    try:
        told = [child.communicate(timeout=SECONDS_TO_HANG) for child in children]
    finally:
        for child in children:
            child.kill()
    for child, (out, err) in zip(children, told, strict=True):
        assert child.returncode == 0, out + err
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


def test_processes_have_the_rows_that_the_sharding_gives_them(
    ds: Untyped, processes: list[dict[str, Any]]
) -> None:
    plain = list(ds.loader(global_batch_size=8, shuffle=True, drop_last=True))
    for i, process in enumerate(processes):
        divided = process["divided"]
        assert divided["rank"] == [i, 2]
        assert divided["rows"] == [batch["n"][4 * i :][:4].tolist() for batch in plain]
        assert divided["sums"] == [int(batch["n"].sum()) for batch in plain]
        assert divided["shape"] == [8, 3]


@pytest.mark.parametrize("how", ["whole", "across"])
def test_processes_that_hold_the_same_rows_read_the_same_rows(
    ds: Untyped, processes: list[dict[str, Any]], how: str
) -> None:
    plain = list(ds.loader(4, shuffle=True, drop_last=how == "across"))
    for process in processes:
        assert process[how]["rank"] == [0, 1]
        assert process[how]["rows"] == [batch["n"].tolist() for batch in plain]
        assert process[how]["sums"] == [int(batch["n"].sum()) for batch in plain]


def test_arrays_of_one_process_are_of_its_own_rows(
    ds: Untyped, processes: list[dict[str, Any]]
) -> None:
    for i, process in enumerate(processes):
        plain = ds.loader(4, shuffle=True, drop_last=True, rank=i, world_size=2)
        rows = [batch["n"].tolist() for batch in plain]
        for how in ("own mesh", "default device"):
            assert process[how]["rank"] == [i, 2]
            assert process[how]["rows"] == rows


def test_processes_refuse_what_would_not_fit_together(
    processes: list[dict[str, Any]],
) -> None:
    for i, process in enumerate(processes):
        errors = process["errors"]
        assert "drop_last=True or pad_last=True" in errors["tail"]
        assert (
            f"rank 0 of 4 (given), but this process is rank {i} of 2 in the sharding"
            in errors["rank"]
        )
        assert "order the devices of the mesh by process" in errors["interleaved"]
        assert "a batch of 6 rows cannot be divided over 4" in errors["size"]
        assert 'pass on_error="mask" or pad_last=True' in errors["skip"]
        assert "pad them (fr.FixedLenSequence with length=)" in errors["ragged"]
        assert "'many' is as wide as the longest row of each" in errors["padded"]
        assert (
            "length= to its fr.FixedLenSequence, and truncate=True" in errors["padded"]
        )
        assert errors["to one width"] == ""
