"""Directories in the layout of tensorflow-datasets, written without it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr

Json = dict[str, Any]

# Data sets of Open X-Embodiment that docs/tfds.md mixes.
_OPEN_X = [
    "fractal20220817_data",
    "kuka",
    "bridge_dataset",
    "taco_play",
    "jaco_play",
    "berkeley_cable_routing",
    "roboturk",
    "viola",
    "berkeley_autolab_ur5",
    "toto",
    "stanford_hydra_dataset_converted_externally_to_rlds",
]

_MODULES = {
    "Audio": "audio_feature",
    "BBoxFeature": "bounding_boxes",
    "ClassLabel": "class_label_feature",
    "Dataset": "dataset_feature",
    "FeaturesDict": "features_dict",
    "Image": "image_feature",
    "LabeledImage": "labeled_image",
    "Scalar": "scalar",
    "Sequence": "sequence_feature",
    "Tensor": "tensor_feature",
    "Text": "text_feature",
    "Translation": "translation_feature",
    "TranslationVariableLanguages": "translation_feature",
    "Video": "video_feature",
}


def node(
    connector: str, field: str = "jsonFeature", content: Json | None = None
) -> Json:
    """Return a feature as TFDS writes it: protos as JSON, integers as strings."""
    module = f"tensorflow_datasets.core.features.{_MODULES.get(connector, 'new')}"
    return {"pythonClassName": f"{module}.{connector}", field: content or {}}


def shape_of(*sizes: int | None) -> Json:
    if not sizes:
        return {}
    return {"dimensions": [str(-1 if size is None else size) for size in sizes]}


def tensor(
    dtype: str, *sizes: int | None, encoding: str = "none", **others: object
) -> Json:
    content = {
        "dtype": dtype,
        "shape": shape_of(*sizes),
        "encoding": encoding,
        **others,
    }
    return node("Tensor", "tensor", content)


def image(*sizes: int | None, dtype: str = "uint8", **others: object) -> Json:
    content = {"dtype": dtype, "shape": shape_of(*sizes), **others}
    return node("Image", "image", content)


def class_label(n_classes: int) -> Json:
    return node("ClassLabel", "classLabel", {"numClasses": str(n_classes)})


def sequence(feature: Json, length: int = -1, connector: str = "Sequence") -> Json:
    content = {"feature": feature, "length": str(length)}
    return node(connector, "sequence", content)


def dataset(feature: Json) -> Json:
    return sequence(feature, connector="Dataset")


def features_dict(features: Mapping[str, Json]) -> Json:
    return node("FeaturesDict", "featuresDict", {"features": dict(features)})


def write_directory(
    directory: Path,
    features: Mapping[str, Json] | None = None,
    splits: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]] | None = None,
    name: str = "things",
    **info: object,
) -> Path:
    """Write a data set; each split is a list of shards, which are lists of rows.

    Rows have the features that are stored. By default a split "train" has three shards,
    with 5, 0 and 4 records of one feature, ``number``, counted from 0.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if splits is None:
        numbers = [range(5), range(0), range(5, 9)]
        splits = {"train": [[{"number": n} for n in shard] for shard in numbers]}
    if features is None:
        features = {"number": tensor("int64")}
    (directory / "features.json").write_text(json.dumps(features_dict(features)))
    written = []
    for split, shards in splits.items():
        for i, rows in enumerate(shards):
            file = f"{name}-{split}.tfrecord-{i:05}-of-{len(shards):05}"
            with fr.Writer(directory / file) as writer:
                for row in rows:
                    writer.write(row)
        lengths = [str(len(rows)) for rows in shards]
        written.append({"name": split, "shardLengths": lengths, "numBytes": "1"})
    content = {
        "name": name,
        "version": "1.0.0",
        "fileFormat": "tfrecord",
        "splits": written,
        **info,
    }
    (directory / "dataset_info.json").write_text(json.dumps(content))
    return directory


def _file(*shape: int) -> bytes:
    """Return a PNG file of random pixels."""
    import cv2

    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    data: bytes = cv2.imencode(".png", pixels)[1].tobytes()
    return data


def write_examples(directory: Path) -> None:
    """Write the data sets that docs/tfds.md, docs/steps.md and docs/migration.md name."""
    digits = {"image": image(28, 28, 1), "label": class_label(10)}
    rows = [{"image": _file(28, 28, 1), "label": i % 10} for i in range(40)]
    mnist = directory / "mnist" / "3.0.1"
    write_directory(mnist, digits, {"train": [rows[:30]], "test": [rows[30:]]}, "mnist")
    (mnist / "label.labels.txt").write_text("".join(f"{n}\n" for n in range(10)))
    boxes = sequence(features_dict({"bbox": node("BBoxFeature")}))
    photo = {"image": _file(40, 60, 3), "objects/bbox": [0.0, 0.5, 0.5, 1.0] * 2}
    photos = {"image": image(None, None, 3), "objects": boxes}
    write_directory(directory / "photos" / "1.0.0", photos, {"train": [[photo] * 3]})
    steps = {
        "action": tensor("float32", 7),
        "is_last": tensor("bool"),
        "language_instruction": node("Text", "text"),
        "observation": features_dict({"image": image(60, 80, 3)}),
    }
    n = 10
    episode = {
        "episode_metadata/file_path": "success/episode.npy",
        "steps/action": np.arange(7 * n, dtype=np.float32) / n,
        "steps/is_last": [0] * (n - 1) + [1],
        "steps/language_instruction": ["open the drawer"] * n,
        "steps/observation/image": [_file(60, 80, 3)] * n,
    }
    features = {
        "episode_metadata": features_dict({"file_path": node("Text", "text")}),
        "steps": dataset(features_dict(steps)),
    }
    for i, name in enumerate(["robot", "droid", *_OPEN_X]):
        shards = {"train": [[episode] * (8 + i)]}
        write_directory(directory / name / "0.1.0", features, shards)
