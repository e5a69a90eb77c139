"""Names of shards: a path or pattern -> final, temporary and lock file names.

::

    . NAME . TOKEN - SHARD .tmp       a shard before it gets its final name
    . NAME . lock                     locked by the writer of these shards

NAME is the file name or the pattern, and SHARD the number of the shard. All files of one
writer share a random TOKEN.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import string
import tempfile
from collections.abc import Iterable

from fastrec.storage.paths import is_remote, names_below, path_of_url
from fastrec.storage.remote import RemotePath, exists, remote_path
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import is_http, redacted

# File systems allow 255; the rest is for the additions above.
_MAX_NAME_BYTES = 200

# A field of a pattern; "{{shard}}" is text.
_FIELD = re.compile(r"(?<!\{)(?:\{\{)*\{(shard|num_shards)[:}]")

# Integer formats that `existing` can match.
_FORMAT = re.compile(r"0?\d{0,2}d?")


class ShardNames:
    """The file names of a path or a shard pattern.

    A pattern has ``{shard}`` in its last component, and optionally ``{num_shards}``, with
    an integer format: ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``. Any other
    path names one file. Raises a ValueError for a malformed pattern or an unknown scheme.
    """

    def __init__(
        self, path: str, storage_options: StorageOptions | None = None
    ) -> None:
        self._remote: RemotePath | None = None
        if is_remote(path):
            if is_http(path):
                raise ValueError(
                    f"cannot write {redacted(path)!r}: HTTP servers are read-only"
                )
            self._remote = remote_path(path, storage_options)
            # Shards are written here, and then uploaded.
            directory = os.path.realpath(tempfile.gettempdir())
            name = f"{self._remote.key.rpartition('/')[2]}.{_hash(self._remote)}"
            path = self.path = str(self._remote)
        else:
            path = self.path = path_of_url(path)
            directory, name = os.path.split(os.path.realpath(path))
        self._directory, self._name = directory, _short(name)  # of temporary files
        self.is_pattern = _FIELD.search(path) is not None
        self.has_num_shards = False
        if not self.is_pattern:
            return
        try:
            parts = list(string.Formatter().parse(path))
            _check_formats(parts)
            path.format(shard=0, num_shards=1)
        except (IndexError, KeyError, ValueError) as error:
            raise ValueError(
                "a shard pattern must look like "
                f'"train-{{shard:05d}}-of-{{num_shards:05d}}.tfrecord", got {redacted(path)!r}: '
                f"{error!r}"
            ) from None
        fields = [field for _, field, _, _ in parts]
        self.has_num_shards = "num_shards" in fields
        if "shard" not in fields:
            raise ValueError(
                f"a pattern with {{num_shards}} must have {{shard}}, got {redacted(path)!r}"
            )
        if "{" in os.path.dirname(path):
            raise ValueError(
                "{shard} and {num_shards} must be in the last component of the path, "
                f"got {redacted(path)!r}"
            )

    def name(self, shard: int, num_shards: int | None) -> str:
        """Return the final path of a shard, or the pattern if `num_shards` is unknown."""
        is_known = not (self.has_num_shards and num_shards is None)
        if self._remote is not None:
            key = self._remote.key
            if self.is_pattern and is_known:
                key = key.format(shard=shard, num_shards=num_shards)
            return self._remote.sibling(Entry(key, -1, ""))
        if not self.is_pattern or not is_known:
            return self.path
        return self.path.format(shard=shard, num_shards=num_shards)

    def existing(self) -> list[str]:
        """Return the existing files that match, with any numbers."""
        if not self.is_pattern:
            path = self.name(0, None)
            return [path] if exists(path) else []
        remote = self._remote
        directory, pattern = os.path.split(self.path if remote is None else remote.key)
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
                    path = os.path.join(directory, name)
                    if remote is not None:
                        path = remote.sibling(Entry(path, -1, ""))
                    found.append(path)
        return found

    @property
    def is_remote(self) -> bool:
        """Whether the shards are objects of a store."""
        return self._remote is not None

    @property
    def lock(self) -> str:
        """The file that the writer of these shards locks."""
        return os.path.join(self._directory, f".{self._name}.lock")

    def temporary(self, directory: str, token: str, shard: int) -> str:
        """Return the temporary path of a shard; `directory` is that of a local target."""
        if self._remote is not None:
            directory = self._directory
        return os.path.join(directory, f".{self._name}.{token}-{shard}.tmp")

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers of these shards."""
        expression = re.compile(rf"\.{re.escape(self._name)}\.[0-9a-f]{{16}}-\d+\.tmp")
        for name in filter(expression.fullmatch, _listed(self._directory)):
            with contextlib.suppress(OSError):  # owned by another user
                os.unlink(os.path.join(self._directory, name))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def new_token() -> str:
    """Return a random token for the temporary names of one writer."""
    return os.urandom(8).hex()


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory or "."))
    except FileNotFoundError:
        return []


def _check_formats(
    parts: Iterable[tuple[str, str | None, str | None, str | None]],
) -> None:
    for _, field, form, conversion in parts:
        if field and (conversion or not _FORMAT.fullmatch(form or "")):
            raise ValueError(f"the format of {{{field}}} must be like 05d")


def _short(name: str) -> str:
    """Return `name`, abbreviated with a hash if it is too long to be extended."""
    encoded = os.fsencode(name)
    if len(encoded) <= _MAX_NAME_BYTES:
        return name
    suffix = "~" + hashlib.sha256(encoded).hexdigest()[:8]
    return os.fsdecode(encoded[: _MAX_NAME_BYTES - len(suffix)]) + suffix
