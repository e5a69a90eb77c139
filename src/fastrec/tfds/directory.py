"""TfdsDirectory: dataset_info.json, features.json and the names of shards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastrec.errors import SchemaError
from fastrec.tfds.connectors import StoredColumn, columns_of, proto_field
from fastrec.tfds.folder import Folder

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

    folder: Folder
    name: str
    version: str
    lengths: dict[str, tuple[int, ...]]
    _templates: dict[str, str]

    @classmethod
    def read(cls, folder: Folder) -> TfdsDirectory:
        """Read the metadata in a folder.

        Raises
        ------
        OSError
            If a file cannot be read.
        ValueError
            If the data set has no splits, or is stored in another format.
        """
        info, path = _json(folder, INFO), str(folder)
        try:
            formats = [
                proto_field(info, "file_format", "") or _TFRECORD,
                *proto_field(info, "alternative_file_formats", ()),
            ]
            splits = [_split(each) for each in proto_field(info, "splits", ())]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"{INFO} has another structure ({type(error).__name__}: {error})"
            raise ValueError(f"cannot read {path!r}: {reason}") from None
        if _TFRECORD not in formats:
            raise ValueError(
                f"cannot read {path!r}: its files are {formats[0]} files, not "
                "TFRecord files; convert it with: tfds convert_format --dataset_dir="
                f"{path} --out_file_format=tfrecord --out_path=NEW"
            )
        if not any(sum(lengths) for _, lengths, _ in splits):
            raise ValueError(
                f"cannot read {path!r}: {INFO} lists no split with shard lengths"
            )
        return cls(
            folder,
            str(info.get("name", "")),
            str(info.get("version", "")),
            {name: lengths for name, lengths, _ in splits},
            {name: template for name, _, template in splits},
        )

    def __str__(self) -> str:
        return f"TFDS {self.name} {self.version}"

    def shards(self, pieces: Iterable[tuple[str, int]]) -> list[str]:
        """Return the paths of shards, given by split and number.

        Raises
        ------
        FileNotFoundError
            If one does not exist.
        """
        wanted = [(split, self._shard_name(split, number)) for split, number in pieces]
        if not self.folder.is_listable:
            return [self.folder.path(name) for _, name in wanted]
        listed: dict[str, str] = {}
        for split in {split for split, _ in wanted}:
            listed |= self.folder.matches(self._shard_name(split, None))
        for split, name in wanted:
            if name not in listed:
                n_missing = len(
                    {each for s, each in wanted if s == split} - listed.keys()
                )
                raise self.folder.missing(
                    f"Missing {n_missing:,} of {len(self.lengths[split]):,} shards of "
                    f"split {split!r} that {INFO} lists",
                    name,
                )
        return [listed[name] for _, name in wanted]

    def _shard_name(self, split: str, number: int | None) -> str:
        """Return the name of a shard, or a glob of all shards of a split."""
        n_shards = len(self.lengths[split])
        n_digits = max(len(str(n_shards)), _MIN_DIGITS)
        index = "*" if number is None else f"{number:0{n_digits}}"
        total = f"{n_shards:0{n_digits}}"
        template = self._templates[split]
        values = {
            "DATASET": self.name,
            "SPLIT": split,
            "FILEFORMAT": _TFRECORD,
            "SHARD_INDEX": index,
            "NUM_SHARDS": total,
            "SHARD_X_OF_Y": f"{index}-of-{total}",
        }
        # Not str.format, whose fields may have any width.
        name = re.sub(r"{(\w+)}", lambda field: values.get(field[1], "{"), template)
        is_outside = os.path.isabs(name) or ".." in name.split("/")
        if "{" in name or "}" in name or is_outside:
            raise ValueError(
                f"cannot read {str(self.folder)!r}: unknown name of files {template!r}"
            )
        return name

    def columns(self) -> dict[str, StoredColumn]:
        """Return the columns that features.json describes.

        Raises
        ------
        FileNotFoundError
            If there is none: TFDS before version 4 wrote none.
        SchemaError
            If it has another structure.
        """
        return columns_of(_json(self.folder, _FEATURES))

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
                text = self.folder.read(file).decode()
            except FileNotFoundError:
                continue  # classes without names
            found[name] = [line.strip() for line in text.split("\n") if line.strip()]
            if len(found[name]) != column.n_classes:
                raise SchemaError(
                    f"{file} must have {column.n_classes:,} names, as {_FEATURES} "
                    f"lists, got {len(found[name]):,}",
                    str(self.folder.path(file)),
                )
        return found


def _split(proto: Mapping[str, Any]) -> tuple[str, tuple[int, ...], str]:
    """Return the name, the shard lengths and the names of files of a split."""
    lengths = tuple(int(n) for n in proto_field(proto, "shard_lengths", ()))
    if min(lengths, default=0) < 0:
        raise ValueError(f"shard lengths must not be negative, got {min(lengths)}")
    template = proto_field(proto, "filepath_template", "") or _TEMPLATE
    return str(proto["name"]), lengths, str(template)


def find_directory(top: Folder) -> Folder:
    """Return the folder of a version: `top`, or the only one below it.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If there are several.
    """
    try:
        top.read(INFO)
    except FileNotFoundError:
        pass
    else:
        return top
    names = []
    if top.is_listable:
        for above in ("*", "*/*"):  # version, or config and version
            names += [
                name.rpartition("/")[0] for name in top.matches(f"{above}/{INFO}")
            ]
    if len(names) == 1:
        return top.folder(names[0])
    if names:
        listed = ", ".join(map(repr, names[:_MAX_LISTED]))
        if len(names) > _MAX_LISTED:
            listed += f" and {len(names) - _MAX_LISTED:,} more"
        raise ValueError(
            f"directory must contain one version of one data set, got {str(top)!r} with "
            f"{listed}; pass one of them"
        )
    raise top.missing(
        f"No {INFO} in the directory. open_tfds() takes a directory, such as "
        "'tensorflow_datasets/mnist/3.0.1', and downloads nothing; fastrec.open reads "
        "TFRecord files without it"
    )


def _json(folder: Folder, name: str) -> Mapping[str, Any]:
    """Return the content of a JSON file, a dict."""
    try:
        content = json.loads(folder.read(name))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"cannot read {folder.path(name)!r}: it is not valid JSON ({error})"
        ) from None
    if not isinstance(content, Mapping):
        reason = "it must contain a dict"
        raise ValueError(f"cannot read {folder.path(name)!r}: {reason}")  # noqa: TRY004
    return content
