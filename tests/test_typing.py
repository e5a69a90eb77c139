"""A user's program, which a strict type checker must accept as it is.

Goal
    The annotations of the public names suit the code that users write.
Method
    This file is checked by ``mypy --strict`` with all others, and runs as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fastrec as fr
from fastrec.compat import tf_io
from fastrec.loader.options import LoaderKeywords


def double(batch: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {"label": batch["label"] * 2}


def test_a_program_as_users_write_it(write: Callable[[bytes], Path]) -> None:
    path = write(b"")
    with fr.Writer(path, overwrite=True) as writer:
        for n in range(6):
            writer.write({"image": bytes(4), "label": n, "tags": ["a"]})
    spec = {
        "image": fr.Raw((2, 2), np.uint8),
        "label": fr.FixedLen((), np.int64),
        "tags": fr.VarLen("bytes"),
    }
    ds = fr.open(path, features=spec)
    again = fr.open([path], features=ds.schema).with_features({b"label": spec["label"]})
    assert len(again) == 6

    total = 0
    for batch in ds.loader(4):
        pixels = batch["image"] / 255
        assert pixels.shape[1:] == (2, 2)
        total += int(batch["label"].sum())
    assert total == 15
    (first, _) = ds.select_columns(["label"]).loader(4, transform=double)
    assert first["label"].tolist() == [0, 2, 4, 6]
    rows = fr.per_row(
        lambda row: row["label"] + 1, out={"next": fr.FixedLen((), "int32")}
    )
    assert ds.loader(2, transform=rows).peek()["next"].tolist() == [1, 2]


def test_a_program_that_writes(tmp_path: Path) -> None:
    images = np.zeros((6, 2, 2), np.uint8)
    spec = {"image": fr.Raw((2, 2), np.uint8)}
    pattern = tmp_path / "t-{shard}-of-{num_shards}.tfrecord"
    with fr.Writer(pattern, features=spec, max_shard_records=4) as writer:
        writer.write_batch({"image": images, "name": ["a", None, "c", "d", "e", "f"]})
    files: list[str] = writer.files
    assert fr.open(files)[2]["name"] == b"c"
    with fr.Writer(tmp_path / "s", compression="GZIP", num_threads=0) as writer:
        writer.write_sequence_example(
            context={"n": 2}, feature_lists={"words": ["a", "b"]}
        )
        writer.write_record(fr.encode_sequence_example(feature_lists={"words": []}))
    written: list[str] = fr.write(
        tmp_path / "w", {b"x": np.arange(3), b"t": [tf_io.serialize_tensor([1.5])] * 3}
    )
    assert fr.open(written).head(1)[0]["x"] == 0


def test_adapters_know_all_options_of_a_loader() -> None:
    parameters = inspect.signature(fr.Dataset.loader).parameters
    options = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert set(LoaderKeywords.__annotations__) == options


def arrays_of_adapters(ds: fr.Dataset) -> tuple[fr.Loader, fr.Loader]:
    """Type checkers know what adapters return: strict ones refuse to return Any."""
    by_torch: fr.Loader = fr.torch.loader(ds, batch_size=4)
    return by_torch, fr.jax.loader(ds.loader(4))


def test_adapters_and_submodules_have_their_types(
    write: Callable[[bytes], Path],
) -> None:
    ds = fr.open(write(b""), features={"n": fr.FixedLen((), "int64")})
    reader: fr.arrow.RecordBatchReader = fr.arrow.RecordBatchReader(ds, text=())
    assert list(reader) == []
    spec: fr.compat.tf_io.VarLenFeature = fr.compat.tf_io.VarLenFeature("int64")
    assert spec.dtype == "int64"
    assert callable(fr.convert.write_table)
    with pytest.raises(AttributeError):
        fr.theano  # type: ignore[attr-defined]  # noqa: B018
