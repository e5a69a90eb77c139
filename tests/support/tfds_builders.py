"""Data sets that tensorflow-datasets generates, for tests that compare with it.

Importing it skips the tests of a module if TensorFlow or TFDS is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from columns import Untyped

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow")
tfds: Any = pytest.importorskip("tensorflow_datasets", reason="TFDS")


def generate(
    directory: Path,
    name: str,
    features: Mapping[str, Any],
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    n_shards: int = 1,
) -> Any:
    """Write a data set below `directory`, and return its builder."""

    def info(self: Untyped) -> Untyped:
        of_dict = tfds.features.FeaturesDict(features)
        return tfds.core.DatasetInfo(builder=self, features=of_dict)

    def generators(_: object, _manager: object) -> Untyped:
        return {split: enumerate(rows) for split, rows in splits.items()}

    members = {
        "VERSION": tfds.core.Version("1.0.0"),
        "_info": info,
        "_split_generators": generators,
        "_generate_examples": None,
        "__module__": __name__,
    }
    with tfds.core.registered.skip_registration():
        cls = type(name, (tfds.core.GeneratorBasedBuilder,), members)
    builder = cls(data_dir=str(directory))
    config = tfds.download.DownloadConfig(num_shards=n_shards)
    builder.download_and_prepare(download_config=config)
    return tfds.builder_from_directory(builder.data_path)


def examples(builder: Untyped, split: str) -> list[dict[str, Any]]:
    """Return the rows that TFDS reads, in file order, by the names of columns."""
    config = tfds.ReadConfig(
        interleave_cycle_length=1, try_autocache=False, add_tfds_id=False
    )
    rows = builder.as_dataset(split=split, shuffle_files=False, read_config=config)
    return [dict(_columns(row, "")) for row in rows]


def _columns(value: Untyped, name: str) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _columns(inner, f"{name}/{key}" if name else key)
    elif isinstance(value, tf.data.Dataset):
        steps = [dict(_columns(step, name)) for step in value]
        names = _names(value.element_spec, name)
        yield from ((key, [step[key] for step in steps]) for key in names)
    elif isinstance(value, tf.RaggedTensor):
        yield name, [_plain(row) for row in value]
    else:
        yield name, value.numpy()


def _names(spec: Untyped, name: str) -> list[str]:
    if not isinstance(spec, dict):
        return [name]
    return [
        path for key, inner in spec.items() for path in _names(inner, f"{name}/{key}")
    ]


def _plain(value: Untyped) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return [_plain(row) for row in value]
    return np.asarray(value)
