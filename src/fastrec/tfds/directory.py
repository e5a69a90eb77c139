"""TfdsDirectory: read dataset_info.json, features.json and shard names."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastrec.errors import SchemaError
from fastrec.storage.paths import expand, is_remote, path_of_url, version_of
from fastrec.storage.remote import RemotePath, fetch, remote_path
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import is_http
from fastrec.tfds.columns import StoredColumn, columns_of, proto_field

INFO = "dataset_info.json"
_FEATURES = "features.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_TFRECORD = "tfrecord"
_MAX_LISTED = 5
_MIN_DIGITS = 5  # of a shard number


@dataclass(frozen=True)
class _Folder:
    """A directory or a URL; its `str` has no credentials."""

    given: str
    top: str  # a RemotePath for a URL
    options: StorageOptions | None = None

    def __str__(self) -> str:
        return str(self.top)

    @property
    def is_listable(self) -> bool:
        """Whether `matches` works; plain HTTP servers cannot list files."""
        return not (isinstance(self.top, RemotePath) and is_http(self.given))

    def path(self, name: str) -> str:
        """Return the path of a file in the folder."""
        if isinstance(self.top, RemotePath):
            key = f"{self.top.key}/{name}".removeprefix("/")
            return self.top.sibling(Entry(key, -1, ""))
        return os.path.join(self.top, name)

    def matches(self, pattern: str) -> dict[str, str]:
        """Return a dict of names and paths of files in the folder that match a glob."""
        is_url = isinstance(self.top, RemotePath)
        top = self.given if is_url else glob.escape(self.top)
        try:
            found = expand(os.path.join(top, pattern), storage_options=self.options)
        except FileNotFoundError:
            return {}
        n_top = len(f"{self.top}/" if is_url else self.path(""))
        return {str(path)[n_top:]: path for path in found}

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise an OSError."""
        path = self.path(name)
        if isinstance(path, RemotePath):
            version = version_of(path)
            data: Any = fetch(path, 0, version[0], version)
            return bytes(data)
        with open(path, "rb") as file:
            return file.read()

    def json(self, name: str) -> Mapping[str, Any]:
        """Return the dict in a JSON file, or raise a ValueError if it is malformed."""
        try:
            content: object = json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            reason = f"it is not valid JSON ({error})"
        else:
            if isinstance(content, Mapping):
                return content
            reason = "it must contain a dict"
        raise ValueError(f"cannot read {self.path(name)!r}: {reason}")

    def missing(self, reason: str, name: str = "") -> FileNotFoundError:
        """Return a FileNotFoundError for a file or, without `name`, for the folder."""
        path = self.path(name) if name else self.top
        return FileNotFoundError(errno.ENOENT, reason, str(path))


def _found(
    given: str | os.PathLike[str], storage_options: StorageOptions | None
) -> _Folder:
    """Return the folder of a dataset version: `given`, or the only one below it."""
    path: object = given
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"directory must be a path or URL, got {type(given).__name__}")
    text = os.fspath(given)
    if is_remote(text):
        text = text.rstrip("/")
        top = _Folder(text, remote_path(text, storage_options), storage_options)
    else:
        top = _Folder(text, path_of_url(text))
    names: list[str] = []
    for above in ("", "*/", "*/*/"):  # below: a version, or a config and a version
        if above and not top.is_listable:
            break
        found = top.matches(f"{above}{INFO}")
        if found and not above:
            return top
        names += [name.rpartition("/")[0] for name in found]
    if len(names) == 1:
        below = f"{top.given.rstrip('/')}/{names[0]}"
        return _Folder(below, top.path(names[0]), top.options)
    if names:
        listed = ", ".join(map(repr, names[:_MAX_LISTED]))
        if len(names) > _MAX_LISTED:
            listed += f" and {len(names) - _MAX_LISTED:,} more"
        raise ValueError(
            f"directory must contain one version of one dataset, got {str(top)!r} with "
            f"{listed}; pass one of them"
        )
    raise top.missing(
        f"No {INFO} in the directory. open_tfds() requires a directory such as "
        "'tensorflow_datasets/mnist/3.0.1', and downloads nothing; fastrec.open "
        "reads TFRecord files without metadata"
    )


@dataclass(frozen=True)
class TfdsDirectory:
    """The metadata of a TFDS dataset.

    `lengths` contains the number of records in each shard, by split.
    """

    folder: _Folder
    name: str
    version: str
    lengths: dict[str, tuple[int, ...]]
    _templates: dict[str, str]

    @classmethod
    def read(
        cls,
        directory: str | os.PathLike[str],
        storage_options: StorageOptions | None = None,
    ) -> TfdsDirectory:
        """Read the metadata in a directory or URL, or in the only version below it.

        Raises an OSError if a file cannot be read, and a ValueError if there are several
        versions, no split with records, or no files of TFRecord format.
        """
        folder = _found(directory, storage_options)
        info, path = folder.json(INFO), str(folder)
        try:
            formats = [
                proto_field(info, "file_format", "") or _TFRECORD,
                *proto_field(info, "alternative_file_formats", ()),
            ]
            splits = [_split(each) for each in proto_field(info, "splits", ())]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"{INFO} is malformed ({type(error).__name__}: {error})"
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
        """Return the paths of shards; `pieces` are pairs of split and shard number.

        Raises a FileNotFoundError if a shard does not exist.
        """
        wanted = [(split, self._shard_name(split, number)) for split, number in pieces]
        if not self.folder.is_listable:
            return [self.folder.path(name) for _, name in wanted]
        listed: dict[str, str] = {}
        for split in {split for split, _ in wanted}:
            listed |= self.folder.matches(self._shard_name(split, None))
        missing = list(dict.fromkeys(each for each in wanted if each[1] not in listed))
        if missing:
            split, name = missing[0]
            n_missing = [split for split, _ in missing].count(split)
            raise self.folder.missing(
                f"Missing {n_missing:,} of {len(self.lengths[split]):,} shards of "
                f"split {split!r} that {INFO} lists",
                name,
            )
        return [listed[name] for _, name in wanted]

    def _shard_name(self, split: str, number: int | None) -> str:
        """Return the name of a shard; if `number` is None, a glob of all shards."""
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
        # Not str.format, because a template could request a huge width.
        name = re.sub(r"{(\w+)}", lambda field: values.get(field[1], "{"), template)
        is_outside = os.path.isabs(name) or ".." in name.split("/")
        if "{" in name or "}" in name or is_outside:
            raise ValueError(
                f"cannot read {str(self.folder)!r}: unknown file template {template!r}"
            )
        return name

    def columns(self) -> dict[str, StoredColumn]:
        """Return the columns of features.json, which TFDS 4 and later writes."""
        return columns_of(self.folder.json(_FEATURES))

    def class_names(
        self, columns: Mapping[str, StoredColumn], names: Sequence[str]
    ) -> dict[str, list[str]]:
        """Return class names by column; leave out columns without a file of names."""
        found = {}
        for name in names:
            column = columns[name]
            if column.n_classes is None:
                continue
            file = f"{column.names_file}.labels.txt"
            try:
                lines = self.folder.read(file).decode().split("\n")
            except FileNotFoundError:
                continue  # classes without names
            found[name] = [text for line in lines if (text := line.strip())]
            if len(found[name]) != column.n_classes:
                raise SchemaError(
                    f"{file} must have {column.n_classes:,} names, as {_FEATURES} "
                    f"lists, got {len(found[name]):,}",
                    str(self.folder.path(file)),
                )
        return found


def _split(proto: Mapping[str, Any]) -> tuple[str, tuple[int, ...], str]:
    """Return the name, the shard lengths and the file name template of a split."""
    lengths = tuple(int(n) for n in proto_field(proto, "shard_lengths", ()))
    if min(lengths, default=0) < 0:
        raise ValueError(f"shard lengths must not be negative, got {min(lengths)}")
    template = proto_field(proto, "filepath_template", "") or _TEMPLATE
    return str(proto["name"]), lengths, str(template)
