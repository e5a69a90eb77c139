"""Describe the rows that a directory keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastrec.kept.store import described, part_paths, runs_path


def descriptions(directory: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Describe the rows that a directory keeps, as JSON; empty if it keeps none.

    The result has one dict, or one for each of several datasets that were joined before
    `Dataset.cache`.
    """
    path = Path(directory)
    joined = [part for part in path.glob("[0-9]*") if part.is_dir()]
    parts = [path, *sorted(joined, key=lambda part: (len(part.name), part.name))]
    return [*filter(None, map(_description, parts if path.is_dir() else []))]


def _description(directory: Path) -> dict[str, Any]:
    """Return the rows, columns, features and transforms; empty without kept rows."""
    if (key := described(directory)) is None:
        return {}
    checksums = np.load(directory / "checksums.npy", mmap_mode="r", allow_pickle=False)
    columns: dict[str, dict[str, Any]] = {}
    for name, kind in key["columns"].items():
        dtype, shape = _dtype_and_shape(kind)
        columns[name] = {"dtype": dtype, "shape": shape, "n_bytes": 0}
    for name, path, kind in part_paths(directory, key["columns"]):
        paths = [path, runs_path(path)] if kind.is_run else [path]
        columns[name]["n_bytes"] += sum(map(_disk_bytes, paths))
    return {
        "path": str(directory),
        "n_rows": key["n_rows"],
        "n_kept": int((checksums != 0).all(1).sum()),
        "n_bytes": sum(map(_disk_bytes, directory.iterdir())),
        "columns": columns,
        "features": {name: spec for name, (spec, _) in key["features"].items()},
        "transforms": key["transforms"],
    }


def _disk_bytes(path: Path) -> int:
    """Return the size of a file on disk, where rows that are not kept need no space."""
    return path.stat().st_blocks * 512


def _dtype_and_shape(kind: Sequence[Any]) -> tuple[str, list[int | None]]:
    """Return the dtype and shape of a row; None is a length that differs by row."""
    name, *rest = kind
    if name == "bytes":
        return "bytes", rest[0]
    if name == "array":
        return rest[0], rest[1]
    dtype, shape = _dtype_and_shape(rest[1])
    return dtype, [None, *shape] if name == "ragged" else rest[0]
