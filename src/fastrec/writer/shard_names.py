"""Shard names: derive final, temporary and lock file names from a path or pattern.

::

    . NAME . TOKEN - SHARD .tmp       a shard before it gets its final name
    . NAME . lock                     locked by the writer of these shards

NAME is the file name or the pattern, and SHARD the number of the shard. All temporary
files of one writer have the same random TOKEN.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import string
import tempfile

from fastrec.storage.paths import is_remote, names_below, path_of_url
from fastrec.storage.remote import RemotePath, exists, remote_path
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import redacted, refuse_read_only

# File systems allow 255 bytes; the rest is for the affixes above.
_MAX_NAME_BYTES = 200

# A field of a pattern; "{{shard}}" is literal text.
_FIELD = re.compile(r"(?<!\{)(?:\{\{)*\{(shard|num_shards)[:}]")

# Integer formats that `existing` can match.
_FORMAT = re.compile(r"0?\d{0,2}d?")


class ShardNames:
    """The names of the files that a writer creates for a path or a shard pattern.

    A pattern has ``{shard}`` in its last component, and optionally ``{num_shards}``, with
    an integer format: ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``. Any other
    path names one file. Raises a ValueError for a malformed pattern or an unknown scheme.
    """

    def __init__(
        self, path: str, storage_options: StorageOptions | None = None
    ) -> None:
        self._remote: RemotePath | None = None
        if is_remote(path):
            refuse_read_only(path)
            self._remote = remote_path(path, storage_options)
            self.path, self._pattern = str(self._remote), self._remote.key
            # Shards are written here, and then uploaded.
            directory = os.path.realpath(tempfile.gettempdir())
            name = f"{self._pattern.rpartition('/')[2]}.{_hash(self.path.encode())}"
        else:
            self.path = self._pattern = path_of_url(path)
            directory, name = os.path.split(os.path.realpath(self.path))
        self._directory, self._name = directory, _short(name)  # of temporary files
        self.is_pattern = _FIELD.search(self.path) is not None
        self.has_num_shards = False
        if not self.is_pattern:
            return
        try:
            self.has_num_shards = "num_shards" in _fields(self.path)
        except ValueError as error:
            raise ValueError(
                "a shard pattern must look like "
                '"train-{shard:05d}-of-{num_shards:05d}.tfrecord", got '
                f"{redacted(path)!r}: {error}"
            ) from None

    def name(self, shard: int, num_shards: int | None) -> str:
        """Return the path of a shard, or the pattern if it has unknown fields."""
        name = self._pattern
        if self.is_pattern and not (self.has_num_shards and num_shards is None):
            name = name.format(shard=shard, num_shards=num_shards)
        return self._path_of(name)

    def existing(self) -> list[str]:
        """Return the existing files that match the path or pattern."""
        if not self.is_pattern:
            path = self.name(0, None)
            return [path] if exists(path) else []
        directory, pattern = os.path.split(self._pattern)
        remote = self._remote
        names = _listed(directory) if remote is None else names_below(remote, directory)
        parts = list(string.Formatter().parse(pattern))
        expression = "".join(
            re.escape(text) + (r"(\d+)" if field else "") for text, field, _, _ in parts
        )
        fields = [field for _, field, _, _ in parts if field]
        found = []
        for name in names:
            if match := re.fullmatch(expression, name):
                numbers = dict(zip(fields, map(int, match.groups()), strict=True))
                if pattern.format(**numbers) == name:  # "007" does not match {shard}
                    found.append(self._path_of(os.path.join(directory, name)))
        return found

    def _path_of(self, name: str) -> str:
        if self._remote is None:
            return name
        return self._remote.sibling(Entry(name))

    @property
    def is_remote(self) -> bool:
        """Whether the shards are objects in an object store, not local files."""
        return self._remote is not None

    @property
    def lock(self) -> str:
        """The path of the file that a writer locks while it writes these shards."""
        return os.path.join(self._directory, f".{self._name}.lock")

    def temporary(self, directory: str, token: str, shard: int) -> str:
        """Return the temporary path of a shard; remote shards ignore `directory`."""
        if self._remote is not None:
            directory = self._directory
        return os.path.join(directory, f".{self._name}.{token}-{shard}.tmp")

    def remove_leftovers(self) -> None:
        """Remove temporary files of these shards that killed writers left behind."""
        expression = re.compile(rf"\.{re.escape(self._name)}\.[0-9a-f]{{16}}-\d+\.tmp")
        for name in filter(expression.fullmatch, _listed(self._directory)):
            with contextlib.suppress(OSError):  # owned by another user
                os.unlink(os.path.join(self._directory, name))


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:8]


def new_token() -> str:
    """Return a random token for the temporary names of one writer."""
    return os.urandom(8).hex()


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory or "."))
    except FileNotFoundError:
        return []


def _fields(pattern: str) -> list[str]:
    """Return the fields of a shard pattern; raise a ValueError if it is malformed."""
    fields = []
    for _, field, form, conversion in string.Formatter().parse(pattern):
        if field is None:
            continue
        if field not in ("shard", "num_shards"):
            raise ValueError(f"{{{field}}} is neither {{shard}} nor {{num_shards}}")
        if conversion or not _FORMAT.fullmatch(form or ""):
            raise ValueError(f"the format of {{{field}}} must be like 05d")
        fields.append(field)
    if "shard" not in fields:
        raise ValueError("a pattern with {num_shards} must have {shard}")
    if "{" in os.path.dirname(pattern):
        raise ValueError(
            "{shard} and {num_shards} must be in the last component of the path"
        )
    return fields


def _short(name: str) -> str:
    """Return `name`, or a shorter form that ends with a hash if it is too long."""
    encoded = os.fsencode(name)
    if len(encoded) <= _MAX_NAME_BYTES:
        return name
    suffix = f"~{_hash(encoded)}"
    return os.fsdecode(encoded[: _MAX_NAME_BYTES - len(suffix)]) + suffix
