"""Keras: what `fit`, `evaluate` and `predict` get of a loader.

Goal
    Every epoch trains on each record once, in the loader's order, whatever Keras asks
    for besides; labels, weights and several outputs arrive where Keras wants them; what
    cannot be a tensor is refused with a cure. TensorFlow is not imported.
Method
    Models of one layer that counts the records it was trained on, fitted with whichever
    backend this process has; another process repeats all of it with the other backend.
    Requests in the order of Keras's own calls are compared with `loader.batch`.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from children import run_python
from columns import Untyped, open_dataset
from keras_backends import run_tests_with_backend
from oracle import example, tfrecord_file

pytestmark = [
    pytest.mark.frameworks,
    # Keras's own, where it makes arrays of its variables.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

# Keras has one backend in a process, chosen before it is imported.
INSTALLED = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]
BACKEND = os.environ.get("KERAS_BACKEND", INSTALLED[0] if INSTALLED else "")
if not BACKEND or not importlib.util.find_spec("keras"):
    pytest.skip("Keras with PyTorch or JAX", allow_module_level=True)
os.environ["KERAS_BACKEND"] = BACKEND
keras: Any = pytest.importorskip("keras", reason="Keras")

N = 23
BATCH_SIZE = 4
N_STEPS = 6
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "x": fr.FixedLen((2,), "float32"),
    "y": fr.FixedLen((), "float32"),
    "kind": fr.FixedLen((), "int64"),
    "weight": fr.FixedLen((), "float32"),
}
XS = np.array([[n / N, 1 - n / N] for n in range(N)], np.float32)
YS = np.array([(n * 7 % N) / N for n in range(N)], np.float32)
KINDS = np.arange(N) % 2
WEIGHTS = np.array([(n % 3) / 2 for n in range(N)], np.float32)


def record(n: int) -> bytes:
    return example(
        {
            b"n": ("int64", [n]),
            b"x": ("float", XS[n].tolist()),
            b"y": ("float", [float(YS[n])]),
            b"kind": ("int64", [int(KINDS[n])]),
            b"weight": ("float", [float(WEIGHTS[n])]),
            b"words": ("bytes", [b"w"] * (n % 3)),
            b"name": ("bytes", [b"name"]),
        }
    )


@pytest.fixture(scope="module")
def path(write: Callable[[bytes], Path]) -> Path:
    return write(tfrecord_file(map(record, range(N))))


@pytest.fixture(scope="module")
def ds(path: Path) -> Untyped:
    return open_dataset(path, features=SPEC)


class Counting(keras.layers.Layer):  # type: ignore[misc]
    """Passes `x` on, and counts how often each record was trained on."""

    def build(self, _: Untyped) -> None:
        self.counts = self.add_weight(shape=(N,), initializer="zeros", trainable=False)

    def call(self, n: Untyped, training: bool = False) -> Untyped:
        if training:
            # Records that fill a batch are numbered -1, and count nowhere.
            self.counts.assign_add(keras.ops.sum(keras.ops.one_hot(n, N), axis=0))
        return keras.ops.zeros_like(keras.ops.cast(n, "float32"))


def counting_model(**options: Untyped) -> Untyped:
    """A model of inputs "n" and "x", that is not built before Keras saw a batch."""

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.counting = Counting()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs: Untyped, training: bool = False) -> Untyped:
            nothing = self.counting(inputs["n"], training=training)
            return self.dense(inputs["x"])[:, 0] + nothing

    model = Model()
    model.compile(**{"loss": "mse", "metrics": ["mae"], **options})
    return model


def counts(model: Untyped) -> list[int]:
    found: list[int] = keras.ops.convert_to_numpy(model.counting.counts).tolist()
    return found


def training(ds: Untyped, **options: Untyped) -> Untyped:
    """Batches of n and x, and labels."""
    loader = ds.select_columns(["n", "x", "y"]).loader(BATCH_SIZE, seed=3, **options)
    return loader, fr.keras.PyDataset(loader, label_key="y")


PyDataset: Any = fr.keras.PyDataset


class Recording(PyDataset):  # type: ignore[misc]
    """Remembers which records were asked for."""

    def __init__(self, *arguments: Untyped, **options: Untyped) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[list[int]] = []

    def __getitem__(self, index: int) -> Untyped:
        item = super().__getitem__(index)
        self.asked.append(np.asarray(item[0]["n"]).tolist())
        return item


def epoch_of(ds: Untyped, epoch: int, **options: Untyped) -> list[list[int]]:
    loader = ds.select_columns(["n"]).loader(BATCH_SIZE, seed=3, **options)
    loader.set_epoch(epoch)
    return [batch["n"].tolist() for batch in loader]


def test_every_epoch_trains_on_each_record_once_and_validates(ds: Untyped) -> None:
    loader, train = training(ds, shuffle=True)
    valid = fr.keras.PyDataset(
        ds.select_columns(["n", "x", "y"]).loader(BATCH_SIZE), label_key="y"
    )
    model = counting_model()
    lines: list[int] = []
    history = model.fit(
        train,
        epochs=3,
        shuffle=False,
        verbose=0,
        validation_data=valid,
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_end=lambda n, _: lines.append(n)),
            keras.callbacks.EarlyStopping("val_loss", patience=9),
        ],
    ).history
    assert counts(model) == [3] * N
    assert lines == [0, 1, 2]
    assert loader.epoch == 3
    assert sorted(history) == ["loss", "mae", "val_loss", "val_mae"]
    evaluated = model.evaluate(valid, verbose=0, return_dict=True)
    assert evaluated["mae"] == pytest.approx(history["val_mae"][-1], rel=1e-6)
    assert evaluated == model.evaluate(valid, verbose=0, return_dict=True)


def test_batches_come_in_the_order_of_the_loader_and_are_read_ahead(
    ds: Untyped,
) -> None:
    loader = ds.select_columns(["n", "x", "y"]).loader(BATCH_SIZE, shuffle=True, seed=3)
    loader.set_epoch(4)
    train = Recording(loader, label_key="y")
    model = counting_model()
    model.fit(train, initial_epoch=4, epochs=6, shuffle=False, verbose=0)
    wanted = epoch_of(ds, 4, shuffle=True) + epoch_of(ds, 5, shuffle=True)
    # Before them, Keras looks at a batch or two, to build the model.
    assert train.asked[-2 * N_STEPS :] == wanted
    n_looked_at = len(train.asked) - 2 * N_STEPS
    assert 0 < n_looked_at <= 2
    assert loader.stats.n_batches == 2 * N_STEPS + n_looked_at
    assert (loader.epoch, loader.step) == (6, 0)


@pytest.mark.filterwarnings("ignore:Keras asks for batches in a shuffled order")
def test_batches_that_keras_shuffles_are_all_there(ds: Untyped) -> None:
    loader, train = training(ds)
    model = counting_model()
    model.fit(train, epochs=2, verbose=0)
    assert counts(model) == [2] * N
    assert loader.epoch == 2


def test_an_order_of_keras_own_is_advised_against(ds: Untyped) -> None:
    _, train = training(ds)
    train[3], train[1]
    train.on_epoch_begin()
    with pytest.warns(UserWarning, match=r"shuffle=False"):
        train[4]
    train[2]  # says it once


def test_a_pass_may_take_several_epochs_of_keras(ds: Untyped) -> None:
    loader, train = training(ds, shuffle=True)
    model = counting_model()
    model.fit(train, epochs=3, steps_per_epoch=2, shuffle=False, verbose=0)
    assert counts(model) == [1] * N
    assert loader.epoch == 1


def test_an_epoch_that_is_broken_off_begins_anew(ds: Untyped) -> None:
    loader, train = training(ds, shuffle=True)
    model = counting_model()

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Untyped = None) -> None:  # noqa: ARG002
            if batch == 2:
                self.model.stop_training = True

    model.fit(train, epochs=9, shuffle=False, verbose=0, callbacks=[Stop()])
    assert loader.epoch == 0
    assert sum(counts(model)) == 3 * BATCH_SIZE
    before = np.array(counts(model))
    model.fit(train, epochs=1, shuffle=False, verbose=0)
    assert (np.array(counts(model)) - before).tolist() == [1] * N
    assert loader.epoch == 1


@pytest.mark.parametrize("has_moved", [False, True])
def test_the_end_of_an_epoch_that_a_signal_interrupts_moves_the_loader_once(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch, has_moved: bool
) -> None:
    loader, data = training(ds)
    for i in range(len(data)):
        data[i]

    def interrupted(epoch: int) -> None:
        monkeypatch.undo()
        if has_moved:
            loader.set_epoch(epoch)
        raise KeyboardInterrupt

    monkeypatch.setattr(loader, "set_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.on_epoch_end()
    data.on_epoch_end()
    assert (loader.epoch, loader.step) == (1, 0)


def test_predictions_are_in_the_order_of_the_records(ds: Untyped) -> None:
    inputs = keras.Input((2,))
    model = keras.Model(inputs, inputs * 2)
    images = fr.keras.PyDataset(ds.select_columns(["x"]).loader(BATCH_SIZE))
    for _ in range(2):
        np.testing.assert_array_equal(model.predict(images, verbose=0), XS * 2)


def squared(ds: Untyped, **options: Untyped) -> Untyped:
    """The squared error of a model that predicts the sum of `x`, which is 1."""
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.ops.sum(inputs, axis=-1, keepdims=True))
    model.compile(loss="mse", weighted_metrics=["mse"])
    return model.evaluate(ds, verbose=0, return_dict=True, **options)["mse"]


def test_weights_weigh_rows(ds: Untyped) -> None:
    weighted = fr.keras.PyDataset(
        ds.select_columns(["x", "y", "weight"]).loader(BATCH_SIZE),
        label_key="y",
        weight_key="weight",
    )
    errors = (1 - YS) ** 2
    assert squared(weighted) == pytest.approx(np.average(errors, weights=WEIGHTS))


def test_the_source_of_rows_of_a_mix_is_no_input(ds: Untyped) -> None:
    columns = ds.select_columns(["x", "y"])
    mix = fr.mix({"a": (columns, 1), "b": (columns, 1)})
    assert "__source__" in next(iter(mix.loader(BATCH_SIZE)))
    (x, y) = fr.keras.PyDataset(mix, BATCH_SIZE, label_key="y")[0]
    assert x.shape == (BATCH_SIZE, 2)
    assert y.shape == (BATCH_SIZE,)


@pytest.mark.parametrize("weight_key", [None, "weight", "__valid__"])
def test_rows_that_fill_a_batch_weigh_nothing(
    ds: Untyped, weight_key: str | None
) -> None:
    padded = fr.keras.PyDataset(
        ds.select_columns(
            ["x", "y", "weight"] if weight_key == "weight" else ["x", "y"]
        ).loader(BATCH_SIZE, pad_last=True),
        label_key="y",
        weight_key=weight_key,
    )
    _, _, weights = padded[N_STEPS - 1]
    assert np.asarray(weights).dtype == np.float32
    want = WEIGHTS if weight_key == "weight" else np.ones(N)
    assert squared(padded) == pytest.approx(np.average((1 - YS) ** 2, weights=want))


def test_class_weights_weigh_classes(ds: Untyped) -> None:
    classes = fr.keras.PyDataset(
        ds.select_columns(["x", "kind"]).loader(N), label_key="kind"
    )
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(2, kernel_initializer="zeros")]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=keras.optimizers.SGD(0.0))
    history = model.fit(
        classes, class_weight={0: 2.0, 1: 0.5}, shuffle=False, verbose=0
    ).history
    wanted = np.mean(np.where(KINDS == 0, 2.0, 0.5)) * np.log(2)
    assert history["loss"] == [pytest.approx(wanted, rel=1e-5)]


def test_a_model_with_several_outputs_gets_a_label_for_each(ds: Untyped) -> None:
    inputs = keras.Input((2,))
    outputs = {
        "y": keras.layers.Dense(1, name="y")(inputs)[:, 0],
        "kind": keras.layers.Dense(2, activation="softmax", name="kind")(inputs),
    }
    model = keras.Model(inputs, outputs)
    model.compile(loss={"y": "mse", "kind": "sparse_categorical_crossentropy"})
    train = fr.keras.PyDataset(
        ds.select_columns(["x", "y", "kind"]).loader(BATCH_SIZE),
        label_key=["y", "kind"],
    )
    x, labels = train[0]
    assert tuple(x.shape) == (BATCH_SIZE, 2)
    assert list(labels) == ["y", "kind"]
    assert np.isfinite(model.fit(train, shuffle=False, verbose=0).history["loss"])


def test_ranks_share_every_batch(ds: Untyped) -> None:
    seen: list[int] = []
    for rank in range(2):
        loader = ds.select_columns(["n", "y"]).loader(
            2, rank=rank, world_size=2, pad_last=True
        )
        data = fr.keras.PyDataset(loader, label_key="y")
        assert len(data) == N_STEPS
        for n, _, weights in data:
            seen += np.asarray(n)[np.asarray(weights) > 0].tolist()
    assert sorted(seen) == list(range(N))


# What is asked for, and by whom.


def test_items_depend_on_their_number_alone(ds: Untyped) -> None:
    loader, train = training(ds, shuffle=True)
    wanted = [loader.batch(i, 0)["n"].tolist() for i in range(N_STEPS)]
    for i in [0, 1, 0, 0, 1, 2, 3, 2, 5, 4, 5, 0, 1, 1, 3, 4]:
        assert np.asarray(train[i][0]["n"]).tolist() == wanted[i]
    assert train.num_batches == len(train) == len([*train]) == N_STEPS
    for beyond in (N_STEPS, -1):
        with pytest.raises((IndexError, ValueError)):
            train[beyond]


def test_a_loader_that_was_used_meanwhile_gives_the_same_items(ds: Untyped) -> None:
    loader, train = training(ds, shuffle=True)
    wanted = [loader.batch(i, 0)["n"].tolist() for i in range(N_STEPS)]
    for i in range(N_STEPS):
        assert np.asarray(train[i][0]["n"]).tolist() == wanted[i]
        loader.seek(0)
        next(iter(loader))


def test_a_state_in_the_middle_of_an_epoch_is_its_beginning(ds: Untyped) -> None:
    other = ds.select_columns(["n", "x", "y"]).loader(3, shuffle=True, seed=3)
    other.seek(3)  # 9 records: no batch of 4 begins there
    loader, train = training(ds, shuffle=True)
    loader.load_state_dict(other.state_dict())
    assert len(train) == N_STEPS
    found = [np.asarray(x["n"]).tolist() for x, _ in train]
    assert found == epoch_of(ds, 0, shuffle=True)


@pytest.mark.filterwarnings("ignore:Keras .* loses records in fit")
def test_threads_may_ask_for_batches(ds: Untyped) -> None:
    loader = ds.select_columns(["n", "x", "y"]).loader(BATCH_SIZE, shuffle=True, seed=3)
    train = fr.keras.PyDataset(loader, label_key="y", workers=4)
    wanted = epoch_of(ds, 0, shuffle=True)
    indices = [*range(N_STEPS)] * 8
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda i: np.asarray(train[i][0]["n"]).tolist(), indices)
        assert [*found] == [wanted[i] for i in indices]


def test_workers_are_advised_against_and_predictions_are_right(ds: Untyped) -> None:
    loader = ds.select_columns(["x"]).loader(BATCH_SIZE)
    with pytest.warns(UserWarning, match=r"loses records in fit.*leave out workers="):
        images = fr.keras.PyDataset(loader, workers=2)
    with pytest.warns(UserWarning, match="use_multiprocessing="):
        fr.keras.PyDataset(loader, use_multiprocessing=True)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, inputs * 2)
    np.testing.assert_array_equal(model.predict(images, verbose=0), XS * 2)


@pytest.mark.usefixtures("threads_end")
def test_threads_end_with_the_dataset(ds: Untyped) -> None:
    _, train = training(ds, num_threads=3)
    train[0], train[1]


def test_a_copy_gives_the_same_items(ds: Untyped) -> None:
    loader, train = training(ds, shuffle=True)
    loader.set_epoch(2)
    train[0], train[1]
    copy = pickle.loads(pickle.dumps(train))
    found = [np.asarray(x["n"]).tolist() for x, _ in copy]
    assert found == epoch_of(ds, 2, shuffle=True)


def test_with_pytorch_tensors_are_the_memory_of_the_batch(ds: Untyped) -> None:
    if BACKEND != "torch":
        pytest.skip("PyTorch as the backend")
    kept: list[Untyped] = []

    def keep(batch: Untyped) -> Untyped:
        kept.append(batch)
        return batch

    loader = ds.select_columns(["x", "y"]).loader(BATCH_SIZE, transform=keep)
    x, y = fr.keras.PyDataset(loader, label_key="y")[2]
    addresses = {int(batch["x"].ctypes.data) for batch in kept}
    assert x.data_ptr() in addresses
    assert y.numpy().tolist() == YS[8:12].tolist()


# What is refused.


@pytest.mark.parametrize(
    ("column", "spec", "cure"),
    [
        ("words", fr.VarLen("bytes"), "type RaggedArray.*FixedLenSequence.*columns"),
        ("name", fr.FixedLen((), "bytes"), r"type BytesArray.*fr\.Raw.*columns"),
        ("n", fr.Sparse("n", "weight", "float32", N), r"type SparseArray.*to_dense"),
    ],
)
def test_a_column_that_cannot_be_a_tensor_is_refused_with_a_cure(
    path: Path, column: str, spec: Untyped, cure: str
) -> None:
    features = {"x": SPEC["x"], "y": SPEC["y"], column: spec}
    loader = open_dataset(path, features=features).loader(4)
    with pytest.raises(fr.SchemaError, match=f"column '{column}' is of {cure}"):
        fr.keras.PyDataset(loader, label_key="y")


@pytest.mark.parametrize(
    ("changed", "cure"),
    [
        (lambda x: x.tolist(), "type list.* transform= must return arrays"),
        (lambda x: {"x": x}, "type dict.* transform= must return arrays"),
        (keras.ops.convert_to_tensor, r"type .* the plain ds\.loader"),
        (lambda x: x.astype("U"), "dtype <U32.* transform= may convert it"),
    ],
)
def test_what_a_transform_makes_must_be_arrays_of_numbers(
    ds: Untyped, changed: Callable[[Untyped], Untyped], cure: str
) -> None:
    loader = ds.select_columns(["x", "y"]).loader(
        BATCH_SIZE, transform=lambda batch: batch | {"x": changed(batch["x"])}
    )
    with pytest.raises(fr.SchemaError, match=f"column 'x' is of {cure}"):
        fr.keras.PyDataset(loader, label_key="y")


def test_numbers_that_the_backend_does_not_have_are_refused(ds: Untyped) -> None:
    loader = ds.select_columns(["n", "y"]).loader(
        BATCH_SIZE, transform=lambda batch: batch | {"n": batch["n"].astype("uint64")}
    )
    if BACKEND != "torch":
        fr.keras.PyDataset(loader, label_key="y")
        return
    with pytest.raises(fr.SchemaError, match=r"'n' is of dtype uint64.* the backend"):
        fr.keras.PyDataset(loader, label_key="y")


def test_compressed_files_are_refused_with_a_cure(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.tfrecord.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    loader = open_dataset(packed, features=SPEC).loader(4)
    with pytest.raises(ValueError, match=r"random access.*cache_dir="):
        fr.keras.PyDataset(loader, label_key="y")


def test_a_dataset_with_options_is_read_as_its_loader(ds: Untyped) -> None:
    some = ds.select_columns(["x", "y"])
    made = fr.keras.PyDataset(some, BATCH_SIZE, shuffle=True, seed=3, label_key="y")
    wanted = some.loader(BATCH_SIZE, shuffle=True, seed=3)
    assert len(made) == len(wanted)
    for i, batch in enumerate(wanted):
        assert np.array_equal(np.asarray(made[i][1]), batch["y"])


def test_other_sources_are_refused(ds: Untyped) -> None:
    not_a_dataset: Untyped = None
    with pytest.raises(TypeError, match="with loader options, or a Loader, got None"):
        fr.keras.PyDataset(not_a_dataset, label_key="y")
    with pytest.raises(TypeError, match="only with a Dataset, got a Loader and seed"):
        fr.keras.PyDataset(ds.loader(BATCH_SIZE), label_key="y", seed=3)


def test_a_loader_given_to_keras_itself_names_what_to_write(ds: Untyped) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    for use in (model.fit, model.evaluate, model.predict):
        with pytest.raises(AttributeError) as caught:
            use(ds.loader(4))
        assert "model.fit(fr.keras.PyDataset(loader, label_key=" in str(caught.value)


NO_BACKEND = """
import sys

sys.modules["tensorflow"] = None
import fastrec as fr

try:
    import fastrec.keras
except ModuleNotFoundError as error:
    print(error)
assert not hasattr(fr, "keras")
"""


def test_without_the_backend_of_keras_the_error_names_the_variable(
    tmp_path: Path,
) -> None:
    env = {name: text for name, text in os.environ.items() if name != "KERAS_BACKEND"}
    said = run_python(NO_BACKEND, env=env | {"KERAS_HOME": str(tmp_path)})
    assert "its backend needs tensorflow, which is not installed" in said.stdout
    assert "set KERAS_BACKEND=" in said.stdout


def test_a_loader_without_batches_is_refused(ds: Untyped) -> None:
    with pytest.raises(ValueError, match="no batches"):
        fr.keras.PyDataset(ds.loader(N + 1, drop_last=True), label_key="y")


def test_a_batch_without_rows_says_where_it_is_and_what_to_do(
    write: Callable[[bytes], Path],
) -> None:
    good = tfrecord_file(map(record, range(8)))
    size = len(good) // 8
    data = bytearray(good)
    for n in range(4, 8):
        data[n * size + size // 2] ^= 1
    path, features = write(bytes(data)), {name: SPEC[name] for name in ("x", "y")}
    loader = open_dataset(path, features=features, on_error="skip").loader(4)
    loader.set_epoch(2)
    train = fr.keras.PyDataset(loader, label_key="y")
    assert len(train[0][0]) == 4
    with pytest.raises(ValueError, match=r'step 1 of epoch 2 has no rows.*"mask"'):
        train[1]
    masking = open_dataset(path, features=features, on_error="mask").loader(4)
    _, _, weights = fr.keras.PyDataset(masking, label_key="y")[1]
    assert np.asarray(weights).tolist() == [0] * 4


def test_columns_without_labels_warn_before_fit(ds: Untyped) -> None:
    with pytest.warns(
        UserWarning, match="no labels.* dict of 'x', 'y': pass label_key="
    ):
        fr.keras.PyDataset(ds.select_columns(["x", "y"]), batch_size=4)
    fr.keras.PyDataset(ds.select_columns(["x"]), batch_size=4, pad_last=True)


def test_keys_that_make_no_sense_are_refused(ds: Untyped) -> None:
    loader = ds.select_columns(["x", "y"]).loader(4)
    with pytest.raises(KeyError, match="no column 'label'; the batch has 'x', 'y'"):
        fr.keras.PyDataset(loader, label_key="label")
    with pytest.raises(ValueError, match="no input column"):
        fr.keras.PyDataset(loader, label_key=["x", "y"])
    with pytest.raises(ValueError, match="must name at least one column"):
        fr.keras.PyDataset(loader, label_key=[])
    with pytest.raises(ValueError, match="requires label_key="):
        fr.keras.PyDataset(loader, weight_key="y")
    with pytest.raises(TypeError, match="name of a column, got 3"):
        fr.keras.PyDataset(loader, label_key=[3])  # type: ignore[list-item]


def test_errors_say_the_file_and_the_record(
    write: Callable[[bytes], Path],
) -> None:
    records = [record(n) for n in range(12)]
    records[9] = example({b"n": ("float", [0.5])})
    path = write(tfrecord_file(records))
    loader = open_dataset(path, features={"n": SPEC["n"], "y": SPEC["y"]}).loader(4)
    train = fr.keras.PyDataset(loader, label_key="y")
    train[0], train[1]
    for _ in range(2):
        with pytest.raises(fr.SchemaError, match=rf"{path}, record 9"):
            train[2]


def test_tensorflow_is_not_imported() -> None:
    if BACKEND == "tensorflow":
        pytest.skip("another backend")
    assert "tensorflow" not in sys.modules


def test_all_of_this_holds_with_the_other_backend() -> None:
    others = [name for name in INSTALLED if name != BACKEND]
    if "KERAS_BACKEND_OF_PARENT" in os.environ or not others:
        pytest.skip("another backend of Keras")
    run_tests_with_backend(others[0], of_parent=BACKEND)
