"""TfdsDirectory: dataset_info.json, features.json and the names of shards."""

from __future__ import annotations

import errno
import glob
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastrec.errors import SchemaError
from fastrec.storage.paths import expand, local_path
from fastrec.tfds.connectors import StoredColumn, columns_of, proto_field

__all__ = ["INFO", "TfdsDirectory", "find_directory"]

INFO = "dataset_info.json"
_FEATURES = "features.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_TFRECORD = "tfrecord"
_MAX_LISTED = 5
_MIN_DIGITS = 5  # of the number of a shard


@dataclass(frozen=True)
class TfdsDirectory:
    """What the metadata of a data set of TFDS contains.

    `lengths` are the numbers of records in each shard of each split.
    """

    path: str
    name: str
    version: str
    lengths: dict[str, tuple[int, ...]]
    _templates: dict[str, str]

    @classmethod
    def read(cls, path: str) -> TfdsDirectory:
        """Read the metadata of a directory.

        Raises
        ------
        OSError
            If a file cannot be read.
        ValueError
            If the data set has no splits, or is stored in another format.
        """
        info = _json(path, INFO)
        formats = [
            proto_field(info, "file_format", "") or _TFRECORD,
            *proto_field(info, "alternative_file_formats", ()),
        ]
        if _TFRECORD not in formats:
            msg = (
                f"cannot read {path!r}: its files are {formats[0]} files, not "
                "TFRecord files; convert it with: tfds convert_format --dataset_dir="
                f"{path} --out_file_format=tfrecord --out_path=NEW"
            )
            raise ValueError(msg)
        lengths, templates = {}, {}
        for split in proto_field(info, "splits", ()):
            name = split["name"]
            counts = proto_field(split, "shard_lengths", ())
            lengths[name] = tuple(int(n) for n in counts)
            templates[name] = proto_field(split, "filepath_template", "") or _TEMPLATE
        if not any(map(sum, lengths.values())):
            msg = f"cannot read {path!r}: {INFO} lists no split with shard lengths"
            raise ValueError(msg)
        return cls(
            path, str(info.get("name", "")), info.get("version", ""), lengths, templates
        )

    def __str__(self) -> str:
        return f"TFDS {self.name} {self.version}"

    def shard(self, split: str, number: int) -> str:
        """Return the path of a shard."""
        n_shards = len(self.lengths[split])
        n_digits = max(len(str(n_shards)), _MIN_DIGITS)
        index, total = f"{number:0{n_digits}}", f"{n_shards:0{n_digits}}"
        template = self._templates[split]
        try:
            name = template.format(
                DATASET=self.name,
                SPLIT=split,
                FILEFORMAT=_TFRECORD,
                SHARD_INDEX=index,
                NUM_SHARDS=total,
                SHARD_X_OF_Y=f"{index}-of-{total}",
            )
        except (KeyError, IndexError, ValueError):
            msg = f"cannot read {self.path!r}: unknown filepath_template {template!r}"
            raise ValueError(msg) from None
        return _join(self.path, name)

    def columns(self) -> dict[str, StoredColumn]:
        """Return the columns that features.json describes.

        Raises
        ------
        FileNotFoundError
            If there is none: TFDS before version 4 wrote none.
        SchemaError
            If it has another structure.
        """
        return columns_of(_json(self.path, _FEATURES))

    def class_names(
        self, columns: Mapping[str, StoredColumn], names: Sequence[str]
    ) -> dict[str, list[str]]:
        """Return the names of the classes of the columns `names` that have such."""
        found = {}
        for name in names:
            column = columns[name]
            if column.n_classes is None:
                continue
            file = f"{column.names_file}.labels.txt"
            try:
                text = _content(_join(self.path, file)).decode()
            except FileNotFoundError:
                continue  # classes without names
            found[name] = [line.strip() for line in text.split("\n") if line.strip()]
            if len(found[name]) != column.n_classes:
                raise SchemaError(
                    f"{file} must have {column.n_classes:,} names, as {_FEATURES} "
                    f"lists, got {len(found[name]):,}",
                    _join(self.path, file),
                )
        return found


def find_directory(given: str | os.PathLike[str]) -> str:
    """Return the directory of a version: `given`, or the only one below it.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If there are several.
    """
    path: object = given
    if not isinstance(path, (str, os.PathLike)):
        msg = f"directory must be a path or URL, got {given!r}"
        raise TypeError(msg)
    top = local_path(os.fspath(given))
    if _exists(_join(top, INFO)):
        return top
    found: list[str] = []
    for above in ("*", os.path.join("*", "*")):  # version, or config and version  # noqa: PTH118
        try:
            found += expand(_join(glob.escape(top), _join(above, INFO)))
        except FileNotFoundError:
            continue
    directories = [os.path.dirname(file) for file in found]  # noqa: PTH120
    if len(directories) == 1:
        return directories[0]
    if directories:
        listed = ", ".join(map(repr, directories[:_MAX_LISTED]))
        if len(directories) > _MAX_LISTED:
            listed += f" and {len(directories) - _MAX_LISTED:,} more"
        msg = (
            f"directory must contain one version of one data set, got {top!r} with "
            f"{listed}; pass one of them"
        )
        raise ValueError(msg)
    reason = f"No {INFO} in the directory; fastrec.open reads TFRecord files without it"
    raise FileNotFoundError(errno.ENOENT, reason, top)


def _join(directory: str, name: str) -> str:
    return os.path.join(directory, name)  # noqa: PTH118 (a Path would normalise it)


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def _json(directory: str, name: str) -> Mapping[str, Any]:
    """Return the content of a JSON file, a dict."""
    path = _join(directory, name)
    try:
        content = json.loads(_content(path))
    except ValueError as error:
        msg = f"cannot read {path!r}: it is not valid JSON ({error})"
        raise ValueError(msg) from None
    if not isinstance(content, Mapping):
        msg = f"cannot read {path!r}: it must contain a dict"
        raise ValueError(msg)  # noqa: TRY004
    return content
