"""A user's program for type checkers: it is checked, and never runs.

mypy and pyright check it in the session ``typing``. `assert_type` fails where a checker
sees another type, such as Any.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type

import fastrec as fr
from fastrec.on_error import SkippedRegion


def datasets() -> None:
    ds = fr.open("train-*.tfrecord", features={"label": fr.FixedLen((), "int64")})
    assert_type(ds, fr.Dataset)
    assert_type(ds.column_names, list[str])
    assert_type(fr.open_tfds("mnist/3.0.1", "train[:80%]"), fr.Dataset)
    assert_type(ds.select_columns(["label"]), fr.Dataset)
    assert_type(ds.infer_schema(sample=None), fr.Schema)
    assert_type(ds[0], dict[str, Any])
    assert_type(ds[:3], dict[str, NDArray[Any] | Any])


def specs() -> None:
    image = fr.Image((224, 224), fit="random_resized_crop", channels=1)
    assert_type(image.shape, tuple[int, int])
    assert_type(fr.Schema({"image": image, "record": fr.Record()}), fr.Schema)
    assert_type(fr.List(image, 4).length, int | None)


def loaders(ds: fr.Dataset) -> None:
    loader = ds.loader(256, shuffle=True, on_error="skip")
    assert_type(loader, fr.Loader)
    for batch in loader:
        assert_type(batch, dict[str, NDArray[Any] | Any])
        column = batch["words"]
        if isinstance(column, fr.RaggedArray):
            assert_type(column.lengths, NDArray[np.int64])
    assert_type(loader.peek(), fr.Batch)
    location = loader.records_at(0)[0]
    assert_type(location.path, str)
    assert_type(location.offset, int)
    assert_type(loader.report.regions, tuple[SkippedRegion, ...])
    sampler = fr.samplers.weighted([0.5, 0.5], 32)
    packed = ds.loader(
        batches=fr.samplers.pack([3, 5], length=8, rows=2),
        transform=fr.pack_columns(["tokens"], length=8, rows=2),
    )
    assert_type(packed, fr.Loader)
    fr.samplers.balanced(["cat", "dog"], 32)
    assert_type(ds.loader(batches=sampler).stats, fr.LoaderStats)


def arrays(r: fr.RaggedArray, s: fr.SparseArray, b: fr.BytesArray) -> None:
    for array in (r, s, b):
        assert_type(array.tolist(), list[Any])
        assert_type(array.ndim, int)
        assert_type(array.equals(array), bool)


def errors(error: fr.Error) -> None:
    assert_type(error.code, str)
    assert_type(error.hint, str)


def adapters(ds: fr.Dataset) -> None:
    on_device = fr.torch.loader(ds, batch_size=256, shuffle=True, device="cuda")
    for tensors in on_device:
        assert_type(tensors, dict[str, torch.Tensor | Any])
    for placed in fr.jax.loader(ds, 256, drop_last=True):
        assert_type(placed, dict[str, jax.Array | Any])
    assert_type(fr.torch.IterableDataset(ds, 256), fr.torch.IterableDataset)
    assert_type(fr.grain.DataSource(ds), fr.grain.DataSource)
    assert_type(fr.ray.write_tfrecords(fr.ray.read_tfrecords(ds), "{shard}"), list[str])
    fr.ray.read_tfrecords(ds, columns=3)  # type: ignore[arg-type]
    assert_type(fr.arrow.RecordBatchReader(ds), fr.arrow.RecordBatchReader)
    fr.torch.loader(ds, batch_size=256, shufle=True)  # type: ignore[call-arg]
    fr.torch.loader(ds, batch_size="256")  # type: ignore[arg-type]
    fr.keras.PyDataset(ds, seed="x")  # type: ignore[arg-type]


def submodules() -> None:
    assert_type(
        fr.convert.write_tfrecords("a.csv", "b", types={"x": "int64"}), list[str]
    )
    assert_type(fr.compat.tf_io.VarLenFeature("int64"), fr.compat.tf_io.VarLenFeature)
    fr.theano  # type: ignore[attr-defined]  # noqa: B018
