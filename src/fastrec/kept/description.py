"""Describe the rows that a directory keeps."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path
from typing import Any

from fastrec.kept.store import VERSION, checksums, described, part_types
from fastrec.printable import printable


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
    if key["version"] != VERSION:
        raise ValueError(
            f"{printable(str(directory))} keeps rows in the format {key['version']}, which "
            f"this version of fastrec cannot read (its own is {VERSION}); delete the "
            "directory to decode the rows again"
        )
    n_kept = int((checksums(directory, key) != 0).sum())
    columns: dict[str, dict[str, Any]] = {}
    for name, (levels, parts) in key["columns"].items():
        dtype, shape, _ = parts[-1]
        is_bytes = bool(levels) and levels[-1][0] == "bytes"
        sides = [[None] if kind == "ragged" else given for kind, given in levels]
        columns[name] = {
            "dtype": "bytes" if is_bytes else dtype,
            "shape": [*itertools.chain(*sides), *shape],
            "n_bytes": 0,
        }
    for part in part_types(key["columns"]):
        dtype, shape = part.field
        n_bytes = n_kept * dtype.itemsize * math.prod(shape)
        if not part.is_small:
            n_bytes += _disk_bytes(part.path(directory))
        columns[part.column]["n_bytes"] += n_bytes
    return {
        "path": str(directory),
        "n_rows": key["n_rows"],
        "n_kept": n_kept,
        "n_bytes": sum(map(_disk_bytes, directory.iterdir())),
        "columns": columns,
        "features": {name: spec for name, (spec, _) in key["features"].items()},
        "transforms": key["transforms"],
    }


def _disk_bytes(path: Path) -> int:
    """Return the size of a file on disk, where rows that are not kept need no space."""
    return path.stat().st_blocks * 512
