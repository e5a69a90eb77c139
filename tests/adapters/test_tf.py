"""TensorFlow: a loader as a tf.data.Dataset.

Goal
    A pass is an epoch, with the batches that the loader itself delivers and tensors that
    tf.io.parse_example makes of the same records. The element spec holds for every batch,
    the cardinality for every epoch; arrays are not copied; threads end; errors say file
    and record.
Method
    Columns of every kind, with loaders of several options, beside the loader itself and
    TensorFlow's own parser; addresses of arrays and of the tensors that they became.
    Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, open_dataset
from oracle import example, tfrecord_file
from oracle_tensorflow import plain, tf

pytestmark = pytest.mark.oracle

N = 23
BATCH_SIZE = 4
N_STEPS = 6

SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "floats": fr.FixedLen((2, 2), "float32"),
    "pixels": fr.Raw((3,), "uint8"),
    "half": fr.FixedLen((), "float16", key="weight"),
    "name": fr.FixedLen((), "bytes"),
    "names": fr.FixedLen((2,), "bytes"),
    "ids": fr.VarLen("int64"),
    "pairs": fr.VarLen("float32", (2,)),
    "words": fr.VarLen("bytes"),
    "nested": fr.Ragged("int64", [fr.Ragged.RowLengths("lengths")], key="ids"),
    "sparse": fr.Sparse(["row", "column"], "value", "float32", (5, 7)),
    "padded": fr.FixedLenSequence((2,), "int64", key="steps"),
    "cut": fr.FixedLenSequence((), "int64", length=3, truncate=True, key="ids"),
}

# As TensorFlow's parser is asked for the same columns.
SPEC_OF_TENSORFLOW: dict[str, Untyped] = {
    "n": tf.io.FixedLenFeature((), tf.int64),
    "floats": tf.io.FixedLenFeature((2, 2), tf.float32),
    "name": tf.io.FixedLenFeature((), tf.string),
    "names": tf.io.FixedLenFeature((2,), tf.string),
    "ids": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
    "words": tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64),
    "nested": tf.io.RaggedFeature(
        tf.int64,
        "ids",
        [tf.io.RaggedFeature.RowLengths("lengths")],
        row_splits_dtype=tf.int64,
    ),
    "sparse": tf.io.SparseFeature(["row", "column"], "value", tf.float32, (5, 7)),
}


def record(n: int) -> bytes:
    k = n % 3
    return example(
        {
            b"n": ("int64", [n]),
            b"floats": ("float", [n, 1, 2, 3]),
            b"pixels": ("bytes", [bytes([n, 1, 0])]),
            b"weight": ("float", [k / 2]),
            b"name": ("bytes", [b"\x00" * k + b"n" * 40 * k]),
            b"names": ("bytes", [b"", b"%d" % n]),
            b"ids": ("int64", [*range(2 * k)]),
            b"lengths": ("int64", [k, k]),
            b"pairs": ("float", [0.5, n] * k),
            b"words": ("bytes", [b"w" * n] * k),
            b"value": ("float", [n, 0.5][:k]),
            b"row": ("int64", [4, 0][:k]),
            b"column": ("int64", [6, n % 7][:k]),
            b"steps": ("int64", [n, 7] * (n % 4)),
        }
    )


@pytest.fixture(scope="module")
def path(write: Callable[[bytes], Path]) -> Path:
    return write(tfrecord_file(map(record, range(N))))


@pytest.fixture(scope="module")
def ds(path: Path) -> Untyped:
    return open_dataset(path, features=SPEC)


def numbers(batches: Untyped) -> list[list[int]]:
    return [batch["n"].numpy().tolist() for batch in batches]


def check_specs(spec: Untyped, batch: Untyped) -> None:
    """That a batch is what the element spec of its dataset says."""
    tf.nest.assert_same_structure(spec, batch, expand_composites=True)
    wanted = tf.nest.flatten(spec)
    found = [tf.type_spec_from_value(leaf) for leaf in tf.nest.flatten(batch)]
    for want, got in zip(wanted, found, strict=True):
        assert want.is_compatible_with(got), (want, got)


@pytest.mark.parametrize(
    "options", [{}, {"drop_last": True}, {"pad_last": True, "shuffle": True}]
)
def test_tensors_are_the_columns_of_the_loader(ds: Untyped, options: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE, **options)
    made = fr.tf.dataset(loader)
    wanted = [*ds.loader(BATCH_SIZE, **options)]
    found = [*made]
    assert len(found) == len(wanted) == len(made) == made.cardinality()
    for got, want in zip(found, wanted, strict=True):
        check_specs(made.element_spec, got)
        assert set(got) == set(want)
        for name in want:
            assert plain(got[name]) == plain(want[name]), name


def test_tensors_are_those_of_parse_example(ds: Untyped, path: Path) -> None:
    records = [*tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
    for step, batch in enumerate(fr.tf.dataset(ds.loader(BATCH_SIZE))):
        part = records[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        parsed = tf.io.parse_example(tf.constant(part), SPEC_OF_TENSORFLOW)
        for name, want in parsed.items():
            assert type(batch[name]) is type(want)
            assert plain(batch[name]) == plain(want), name


def test_shapes_are_static_where_they_never_change(ds: Untyped) -> None:
    spec = fr.tf.dataset(ds.loader(BATCH_SIZE)).element_spec
    assert spec["n"] == tf.TensorSpec([None], tf.int64)
    assert spec["floats"] == tf.TensorSpec([None, 2, 2], tf.float32)
    assert spec["half"] == tf.TensorSpec([None], tf.float16)
    assert spec["pixels"] == tf.TensorSpec([None, 3], tf.uint8)
    assert spec["names"] == tf.TensorSpec([None, 2], tf.string)
    assert spec["padded"] == tf.TensorSpec([None, None, 2], tf.int64)
    assert spec["cut"] == tf.TensorSpec([None, 3], tf.int64)
    assert spec["pairs"] == tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)
    assert spec["nested"] == tf.RaggedTensorSpec([None, None, None], tf.int64, 2)
    assert spec["sparse"] == tf.SparseTensorSpec([None, 5, 7], tf.float32)
    for options in ({"drop_last": True}, {"pad_last": True}):
        spec = fr.tf.dataset(ds.loader(BATCH_SIZE, **options)).element_spec
        assert {part.shape[0] for part in spec.values()} == {BATCH_SIZE}
    spec = fr.tf.dataset(
        ds.loader(BATCH_SIZE, drop_last=True, on_error="skip")
    ).element_spec
    assert spec["n"].shape[0] is None


def test_labels_and_weights_are_where_keras_wants_them(ds: Untyped) -> None:
    loader = ds.select_columns(["pixels", "n", "half", "ids"]).loader(
        BATCH_SIZE, pad_last=True
    )
    made = fr.tf.dataset(loader, label_key="n", weight_key="half")
    x, y, weights = made.element_spec
    assert sorted(x) == ["ids", "pixels"]
    assert y == tf.TensorSpec([BATCH_SIZE], tf.int64)
    assert weights == tf.TensorSpec([BATCH_SIZE], tf.float16)
    *_, (x, y, weights) = made
    assert y.numpy().tolist() == [20, 21, 22, 0]
    assert weights.numpy().tolist() == [1, 0, 0.5, 0]

    image = ds.select_columns(["pixels", "n"]).loader(BATCH_SIZE, pad_last=True)
    made = fr.tf.dataset(image, label_key="n")
    assert made.element_spec[0] == tf.TensorSpec([BATCH_SIZE, 3], tf.uint8)
    assert [*made][-1][2].numpy().tolist() == [1, 1, 1, 0]
    both = fr.tf.dataset(ds.loader(BATCH_SIZE), label_key=["n", "half"])
    assert sorted(both.element_spec[1]) == ["half", "n"]


def test_each_pass_is_the_next_epoch(ds: Untyped) -> None:
    loader = ds.select_columns(["n"]).loader(BATCH_SIZE, shuffle=True)
    wanted = [[b["n"].tolist() for b in loader] for _ in range(4)]
    loader.set_epoch(0)
    made = fr.tf.dataset(loader)
    assert numbers(made) == wanted[0]
    assert numbers(made.repeat(2)) == wanted[1] + wanted[2]
    assert loader.epoch == 3
    assert numbers(made.repeat().take(N_STEPS)) == wanted[3]
    assert made.repeat().cardinality() == tf.data.INFINITE_CARDINALITY


def test_the_state_of_the_loader_counts_what_was_delivered(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE, shuffle=True)
    wanted = [b["n"].tolist() for b in loader]
    loader.set_epoch(0)
    for step, batch in enumerate(fr.tf.dataset(loader)):
        assert loader.step == step + 1
        assert batch["n"].numpy().tolist() == wanted[step]
        if step == 1:
            state = loader.state_dict()
            break
    again = ds.loader(BATCH_SIZE, shuffle=True)
    again.load_state_dict(state)
    rest = fr.tf.dataset(again)
    assert rest.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert numbers(rest) == wanted[2:]
    assert len(numbers(rest)) == N_STEPS


def test_a_loader_that_was_moved_after_the_dataset_is_refused(ds: Untyped) -> None:
    loader = ds.select_columns(["n"]).loader(BATCH_SIZE)
    made = fr.tf.dataset(loader)
    loader.seek(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"step 2 of 6.*before"):
        next(iter(made))


def test_nobody_counts_compressed_files_or_listed_batches(
    ds: Untyped, path: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "packed.tfrecord.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    stream = open_dataset(packed, features={"n": SPEC["n"]}).loader(BATCH_SIZE)
    lists = ds.select_columns(["n"]).loader(
        batches=lambda _, epoch: [[1, 2], [3]][epoch % 2 :]
    )
    for loader in (stream, lists):
        made = fr.tf.dataset(loader)
        assert made.cardinality() == tf.data.UNKNOWN_CARDINALITY
        for _ in range(2):
            first = loader.epoch
            wanted = [batch["n"].tolist() for batch in loader]
            loader.set_epoch(first)
            assert numbers(made) == wanted


def test_arrays_are_not_copied(ds: Untyped) -> None:
    kept: list[Untyped] = []

    def keep(batch: Untyped) -> Untyped:
        kept.append(batch)
        return batch

    loader = ds.select_columns(["floats", "pixels", "ids"]).loader(
        BATCH_SIZE, transform=keep, transform_threads=0
    )
    made = fr.tf.dataset(loader)
    kept.clear()
    for batch in made:
        columns = kept[-1]
        # `_numpy` shares the memory of a tensor, where `numpy` copies it.
        for name in ("floats", "pixels"):
            assert batch[name]._numpy().ctypes.data == columns[name].ctypes.data
        values = columns["ids"].values
        assert batch["ids"].values._numpy().ctypes.data == values.ctypes.data
    assert len(kept) == N_STEPS


def test_tensors_outlive_their_loader_and_later_batches(ds: Untyped) -> None:
    names = ["n", "floats", "words"]
    wanted = [*ds.select_columns(names).loader(BATCH_SIZE, num_threads=2)] * 3
    held = [*fr.tf.dataset(ds.select_columns(names).loader(BATCH_SIZE)).repeat(3)]
    for got, want in zip(held, wanted, strict=True):
        assert all(plain(got[name]) == plain(want[name]) for name in names)


def test_transforms_make_columns_of_their_own(ds: Untyped) -> None:
    def transform(batch: Untyped) -> Untyped:
        width = int(batch["n"][0]) + 1
        return {"n": batch["n"][1:], "made": np.ones((len(batch["n"]) - 1, width))}

    loader = ds.select_columns(["n"]).loader(
        BATCH_SIZE, drop_last=True, transform=transform
    )
    made = fr.tf.dataset(loader, shapes={"made": (None,)})
    assert made.element_spec["made"] == tf.TensorSpec([None, None], tf.float64)
    assert [b["made"].shape[1] for b in made] == [1, 5, 9, 13, 17]
    cure = r"column 'made' is of shape \(3, 5\).* shapes={'made': \(None,\)}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=cure):
        list(fr.tf.dataset(loader))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda n: {"n": n[:, None]}, "'n' is of shape .* same number of dimensions"),
        (lambda n: {"n": n.tolist()}, "'n' is of type list.* must return arrays"),
        (lambda n: {"n": n, "m": n}, r"columns \['n', 'm'\].* had \['n'\]"),
    ],
)
def test_transforms_make_the_same_columns_of_every_batch(
    ds: Untyped, changed: Callable[[Untyped], Untyped], message: str
) -> None:
    def transform(batch: Untyped) -> Untyped:
        return batch if batch["n"][0] == 0 else changed(batch["n"])

    loader = ds.select_columns(["n"]).loader(BATCH_SIZE, transform=transform)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(fr.tf.dataset(loader))


@pytest.mark.usefixtures("threads_end")
def test_threads_end_where_an_iterator_is_dropped(ds: Untyped) -> None:
    loader = ds.select_columns(["n"]).loader(BATCH_SIZE, num_threads=5, prefetch=2)
    iterator = iter(fr.tf.dataset(loader))
    next(iterator)
    running = loader._running()
    assert running is not None
    del running, iterator
    assert loader._running() is None


def test_a_function_of_tensorflow_may_loop_over_it(ds: Untyped) -> None:
    made = fr.tf.dataset(ds.select_columns(["n", "ids"]).loader(BATCH_SIZE))

    def added(batches: Untyped) -> Untyped:
        found = tf.constant(0, tf.int64)
        for batch in batches:
            found += tf.reduce_sum(batch["n"]) + tf.reduce_sum(batch["ids"])
        return found

    total = tf.function(added)
    ids = sum(sum(range(2 * (n % 3))) for n in range(N))
    for _ in range(2):
        assert int(total(made)) == N * (N - 1) // 2 + ids


def test_errors_say_the_file_and_the_record_and_end_the_pass(
    write: Callable[[bytes], Path],
) -> None:
    records = [record(n) for n in range(N)]
    records[9] = example({b"n": ("float", [0.5])})
    path = write(tfrecord_file(records))
    ds = open_dataset(path, features={"n": SPEC["n"]})
    made = fr.tf.dataset(ds.loader(BATCH_SIZE))
    iterator = iter(made)
    assert numbers([next(iterator), next(iterator)]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for rest in (iterator, iter(made)):
        message = rf"feature 'n' holds float.*{path}, record 9"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            list(rest)
    # tf.data asks again and again for what it does not get.
    lists = ds.loader(batches=lambda *_: [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10]])
    for loader in (ds.loader(BATCH_SIZE), lists):
        ignoring = fr.tf.dataset(loader).ignore_errors()
        assert numbers(ignoring) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_fit_trains_on_every_record(ds: Untyped) -> None:
    keras: Any = pytest.importorskip("keras", reason="Keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow as the backend of Keras")
    loader = ds.select_columns(["floats", "n"]).loader(BATCH_SIZE, shuffle=True)
    train = fr.tf.dataset(loader, label_key="n").prefetch(2)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=[keras.metrics.MeanSquaredError(name="again")])
    seen: list[int] = []

    class Steps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Untyped = None) -> None:  # noqa: ARG002
            seen.append(batch)

    history = model.fit(train, epochs=2, shuffle=False, verbose=0, callbacks=[Steps()])
    assert seen == [*range(N_STEPS)] * 2
    assert np.isfinite(history.history["loss"]).all()
    assert np.isfinite(model.evaluate(train, verbose=0)).all()
    assert model.predict(train, verbose=0).shape == (N, 1)


def test_a_strategy_shards_nothing(ds: Untyped) -> None:
    made = fr.tf.dataset(ds.select_columns(["n"]).loader(BATCH_SIZE))
    policy = made.options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.OFF
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    found = numbers(strategy.experimental_distribute_dataset(made))
    assert [n for batch in found for n in batch] == [*range(N)]


def test_a_dataset_with_options_is_read_as_its_loader(ds: Untyped) -> None:
    some = ds.select_columns(["n"])
    made = fr.tf.dataset(some, BATCH_SIZE, shuffle=True, seed=3)
    wanted = some.loader(BATCH_SIZE, shuffle=True, seed=3)
    found = [batch["n"].numpy().tolist() for batch in made]
    assert found == [batch["n"].tolist() for batch in wanted]


def test_what_makes_no_dataset_is_refused(ds: Untyped) -> None:
    not_a_dataset: Untyped = None
    with pytest.raises(TypeError, match="with loader options, or a Loader, got None"):
        fr.tf.dataset(not_a_dataset)
    with pytest.raises(TypeError, match="only with a Dataset, got a Loader and seed"):
        fr.tf.dataset(ds.loader(BATCH_SIZE), seed=3)
    loader = ds.select_columns(["n"]).loader(BATCH_SIZE)
    with pytest.raises(KeyError, match="no column 'label'"):
        fr.tf.dataset(loader, label_key="label")
    with pytest.raises(KeyError, match=r"shapes= must name one of .*got 'm'"):
        fr.tf.dataset(loader, shapes={"m": ()})
    for shape in ((None,), (5,)):
        with pytest.raises(
            ValueError, match=r"for column 'n', but its rows are of shape"
        ):
            fr.tf.dataset(loader, shapes={"n": shape})
    with pytest.raises(ValueError, match="no batches"):
        fr.tf.dataset(ds.select([]).loader(BATCH_SIZE))

    no_tensors: list[tuple[Callable[[Untyped], Untyped], str]] = [
        (lambda batch: {"n": batch["n"].astype(object)}, "'n' is an array of object"),
        (lambda batch: {"in": batch}, "'in' is of type dict.* must return arrays"),
        (lambda batch: {"n": batch["n"].tolist()}, "'n' is of type list"),
    ]
    for transform, message in no_tensors:
        loader = ds.select_columns(["n"]).loader(4, transform=transform)
        with pytest.raises(fr.SchemaError, match=f"column {message}"):
            fr.tf.dataset(loader)


def test_the_type_of_a_batch_is_found_without_moving_the_loader(ds: Untyped) -> None:
    loader = ds.select_columns(["n"]).loader(BATCH_SIZE, shuffle=True)
    state: dict[str, Any] = loader.state_dict()
    fr.tf.dataset(loader)
    assert loader.state_dict() == state
    assert loader.stats.n_batches == 0
