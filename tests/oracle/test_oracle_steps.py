"""Rows that are steps, value by value against TFDS and windows computed by TensorFlow.

Goal
    ``open_tfds(...).steps(...)`` has the rows that a pipeline of tf.data makes of the
    episodes that TFDS reads, in order and shuffled.
Method
    RLDS data sets that TFDS generates here: a robot with every kind of feature, fake
    episodes of every family of RLDS builders that TFDS ships with features, and of two
    data sets of Open X-Embodiment. The pipeline gathers the steps of an episode by
    clipped indices, as loaders for Open X-Embodiment do.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from tfds_builders import generate, tf, tfds

mocking = importlib.import_module("tensorflow_datasets.testing.mocking")

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore"),  # of TFDS and what it imports
]

F = tfds.features
N_STEPS = (4, 1, 9, 0, 2)  # of the episodes
MAX_STEPS = 1000
# Columns of steps get these windows in turn.
WINDOWS = ([-1, 0], range(4), 0, [2, -2], 1)

ROBOT = {
    "steps": F.Dataset(
        {
            "observation": {
                "image": F.Image(shape=(32, 48, 3), encoding_format="jpeg"),
                "wrist": F.Image(shape=(8, 8, 3), encoding_format="png"),
                "state": F.Tensor(shape=(8,), dtype=np.float32),
                "joints": {"left": F.Tensor(shape=(2, 3), dtype=np.float64)},
            },
            "action": F.Tensor(shape=(7,), dtype=np.float32),
            "reward": F.Scalar(dtype=np.float32),
            "discount": F.Scalar(dtype=np.float32),
            "is_first": np.bool_,
            "is_last": np.bool_,
            "is_terminal": np.bool_,
            "language_instruction": F.Text(),
            "language_embedding": F.Tensor(shape=(16,), dtype=np.float32),
            "mask": F.Tensor(shape=(4, 5), dtype=np.bool_, encoding="bytes"),
            "depth": F.Tensor(shape=(4, 5, 1), dtype=np.float32, encoding="zlib"),
        }
    ),
    "episode_metadata": {"file_path": F.Text(), "success": np.bool_},
}
STEP = dict.fromkeys(("is_first", "is_last", "is_terminal"), np.bool_)
# Builders of Open X-Embodiment read their features from a bucket, so two are repeated.
BRIDGE = {
    "steps": F.Dataset(
        {
            **STEP,
            "reward": F.Scalar(dtype=np.float32),
            "action": {
                "terminate_episode": np.float32,
                "world_vector": F.Tensor(shape=(3,), dtype=np.float32),
                "open_gripper": np.bool_,
                "rotation_delta": F.Tensor(shape=(3,), dtype=np.float32),
            },
            "observation": {
                "image": F.Image(shape=(480, 640, 3)),
                "natural_language_embedding": F.Tensor(shape=(512,), dtype=np.float32),
                "natural_language_instruction": np.str_,
                "state": F.Tensor(shape=(7,), dtype=np.float32),
            },
        }
    ),
    "episode_id": np.str_,
}
LANGUAGE_TABLE = {
    "steps": F.Dataset(
        {
            **STEP,
            "reward": F.Scalar(dtype=np.float32),
            "action": F.Tensor(shape=(2,), dtype=np.float32),
            "observation": {
                "effector_translation": F.Tensor(shape=(2,), dtype=np.float32),
                "effector_target_translation": F.Tensor(shape=(2,), dtype=np.float32),
                "instruction": F.Tensor(shape=(512,), dtype=np.int32),
                "rgb": F.Image(shape=(360, 640, 3), encoding_format="jpeg"),
            },
        }
    ),
    "episode_id": np.str_,
}
# One of each family; the features of the others differ in shapes only.
BUILDERS = [
    *("d4rl_adroit_door", "d4rl_antmaze", "d4rl_mujoco_ant", "locomotion", "mt_opt"),
    *("rlu_atari", "rlu_control_suite", "rlu_dmlab_rooms_watermaze"),
    *("rlu_locomotion", "robosuite_panda_pick_place_can"),
]
OPEN_X = {"robot": ROBOT, "bridge": BRIDGE, "language_table": LANGUAGE_TABLE}


def fake_row(features: Untyped, n_steps: int, seed: int) -> dict[str, Any]:
    """Return a fake episode of TFDS; pictures are those that decoders decode alike."""

    def fake(feature: Untyped, n: int) -> list[Any]:
        return list(mocking.RandomFakeGenerator(feature, n, seed=seed))

    others = F.FeaturesDict({k: features[k] for k in features if k != "steps"})
    steps = fake(features["steps"].feature, n_steps)
    tints = np.random.default_rng(seed).integers(0, 100, (n_steps, 3))
    return {
        **fake(others, 1)[0],
        "steps": [smooth(step, tint) for step, tint in zip(steps, tints, strict=True)],
    }


def smooth(value: Untyped, tint: Untyped) -> Any:
    """Return a step with smooth pictures, which decoders of JPEG decode nearly alike."""
    if isinstance(value, dict):
        return {name: smooth(inner, tint) for name, inner in value.items()}
    if getattr(value, "dtype", None) != np.uint8 or value.ndim != 3:
        return value
    height, width, n_channels = value.shape
    y, x = np.mgrid[:height, :width]
    picture = (100 * y / height + 50 * x / width)[..., None] + tint[:n_channels]
    return picture.astype(np.uint8)


def leaves(value: Untyped, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested dict, by the names of columns."""
    if not isinstance(value, (dict, F.FeaturesDict)):
        yield name, value
        return
    for key, inner in value.items():
        yield from leaves(inner, f"{name}/{key}" if name else key)


def rows_of_tf(
    builder: Untyped, windows: Mapping[str, Any], every: int, edge: str
) -> list[dict[str, Any]]:
    """Return the rows that a pipeline of tf.data makes of the episodes."""
    reach = [
        0,
        *itertools.chain.from_iterable(np.atleast_1d(w) for w in windows.values()),
    ]

    def rows_of_episode(episode: Any) -> Any:
        context = {k: v for k, v in episode.items() if k != "steps"}

        def gather(steps: Any) -> dict[str, Any]:
            n_steps = tf.shape(steps[next(iter(windows))])[0]
            step = tf.range(0, n_steps, every)
            if edge == "drop":
                fits = (step + min(reach) >= 0) & (step + max(reach) < n_steps)
                step = tf.boolean_mask(step, fits)
            rows = {
                name: tf.repeat(value[tf.newaxis], tf.size(step), axis=0)
                for name, value in leaves(context)
            }
            for name, offsets in windows.items():
                at = step[:, tf.newaxis] + tf.constant(np.atleast_1d(offsets), tf.int32)
                inside = (at >= 0) & (at < n_steps)
                window = tf.gather(steps[name], tf.clip_by_value(at, 0, n_steps - 1))
                if edge == "zero":
                    ones = tf.ones(len(window.shape) - 2, tf.int32)
                    mask = tf.reshape(inside, tf.concat([tf.shape(inside), ones], 0))
                    window = tf.where(mask, window, tf.zeros_like(window))
                    rows[f"{name}/mask"] = inside
                rows[name] = window
                if isinstance(offsets, int):
                    for each in {name, f"{name}/mask"} & rows.keys():
                        rows[each] = rows[each][:, 0]
            return rows

        def columns(step: Any) -> dict[str, Any]:
            return {k: v for k, v in leaves(step, "steps") if k in windows}

        return episode["steps"].map(columns).batch(MAX_STEPS).map(gather).unbatch()

    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    episodes = builder.as_dataset(
        split="train", shuffle_files=False, read_config=config
    )
    return list(episodes.flat_map(rows_of_episode).as_numpy_iterator())


def check_columns(
    batch: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], lossy: Sequence[str]
) -> int:
    """Compare a batch with rows of TensorFlow; return the number of values."""
    assert set(batch) == set(rows[0])
    n_values = 0
    for name, column in batch.items():
        is_text = isinstance(column, fr.BytesArray)
        expected = np.array([row[name] for row in rows], object if is_text else None)
        if is_text:
            column = np.array(column.tolist(), object)
        assert (column.shape, column.dtype) == (expected.shape, expected.dtype), name
        if name in lossy:
            # libjpeg may decode by another DCT than OpenCV's copy of it.
            assert np.max(np.abs(column.astype(int) - expected)) <= 3, name
        else:
            np.testing.assert_array_equal(column, expected, name)
        n_values += column.size
    return n_values


@pytest.mark.parametrize("name", [*OPEN_X, *BUILDERS])
def test_steps_are_the_rows_of_tensorflow(name: str, tmp_path: Path) -> None:
    if name in OPEN_X:
        features = F.FeaturesDict(OPEN_X[name])
    else:
        features = tfds.builder_cls(name)(data_dir=str(tmp_path / name)).info.features
    episodes = [fake_row(features, n, seed) for seed, n in enumerate(N_STEPS)]
    builder = generate(
        tmp_path, "Episodes", dict(features), {"train": episodes}, n_shards=2
    )
    ds = fr.open_tfds(builder.data_path)
    of_steps = dict(leaves(features["steps"].feature, "steps"))
    lossy = [
        k for k in of_steps if getattr(of_steps[k], "encoding_format", "") == "jpeg"
    ]
    windows: dict[str, Any] = {}
    for column, offsets in zip(of_steps, itertools.cycle(WINDOWS)):
        if None not in of_steps[column].shape:  # frames of several sizes
            windows[column] = offsets
    edges: Any = ("repeat", "zero", "drop")
    n_values = 0
    for edge, every in itertools.product(edges, (1, 3)):
        expected = rows_of_tf(builder, windows, every, edge)
        rows = ds.steps(windows, every=every, edge=edge)
        assert len(rows) == len(expected)
        n_values += check_columns(rows[:], expected, lossy)
        loader = rows.loader(
            3,
            shuffle=True,
            transform=lambda batch, info: {**batch, "row": info.records},
        )
        numbers = []
        for batch in loader:
            numbers += (found := batch.pop("row").tolist())
            check_columns(batch, [expected[i] for i in found], lossy)
        assert sorted(numbers) == [*range(len(rows))]
    assert n_values > 1000
