"""Names of shards: a pattern -> the names of files, while they are written and after.

::

    . NAME . TOKEN - SHARD .tmp       a shard that does not have its final name yet
    . NAME . lock                     locked by the writer of these shards

NAME is that of the one file, or the pattern itself; SHARD is the number of the shard. All
files of one writer share a random TOKEN.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import string
from collections.abc import Iterable

from fastrec.storage.paths import is_remote, path_of_url

__all__ = ["ShardNames", "new_token"]

# Of the 255 that a name may have, to leave room for the rest.
_MAX_NAME_BYTES = 200

# The formats of an int that can be recognized in a name.
_FORMAT = re.compile(r"0?\d{0,2}d?")


class ShardNames:
    """The names that a path or a pattern of paths stands for.

    A pattern has ``{shard}`` in its last component, and optionally ``{num_shards}``, with
    the format of an int: ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``. Any other
    path is the name of one file. A malformed pattern or a remote URL is a ValueError.
    """

    def __init__(self, path: str) -> None:
        if is_remote(path):
            msg = (
                f"cannot write remote path {path!r}: remote paths are not supported; write "
                "to a local disk and copy the files, or mount the bucket"
            )
            raise ValueError(msg)
        path = self.path = path_of_url(path)
        directory, name = os.path.split(os.path.realpath(path))
        # Those of the temporary files.
        self._directory, self._name = directory, _short(name)
        self.is_pattern = re.search(r"\{(shard|num_shards)[:}]", path) is not None
        self.has_num_shards = False
        if not self.is_pattern:
            return
        try:
            parts = list(string.Formatter().parse(path))
            _check_formats(parts)
            path.format(shard=0, num_shards=1)
        except (IndexError, KeyError, ValueError) as error:
            msg = (
                "a pattern of shards must look like "
                f'"train-{{shard:05d}}-of-{{num_shards:05d}}.tfrecord", got {path!r}: '
                f"{error!r}"
            )
            raise ValueError(msg) from None
        fields = [field for _, field, _, _ in parts]
        self.has_num_shards = "num_shards" in fields
        if "shard" not in fields:
            msg = f"a pattern with {{num_shards}} must have {{shard}}, got {path!r}"
            raise ValueError(msg)
        if "{" in os.path.dirname(path):  # noqa: PTH120 (the path is kept as given)
            msg = (
                "{shard} and {num_shards} must be in the last part of the path only, "
                f"got {path!r}"
            )
            raise ValueError(msg)

    def name(self, shard: int, num_shards: int | None) -> str:
        """Return the final path of a shard, or the pattern where that is not known yet."""
        if not self.is_pattern or (self.has_num_shards and num_shards is None):
            return self.path
        return self.path.format(shard=shard, num_shards=num_shards)

    def existing(self) -> list[str]:
        """Return the files that have such names, with any numbers."""
        if not self.is_pattern:
            return [self.path] if os.path.lexists(self.path) else []
        directory, pattern = os.path.split(self.path)
        parts = list(string.Formatter().parse(pattern))
        expression = "".join(
            re.escape(text) + (r"(\d+)" if field else "") for text, field, _, _ in parts
        )
        fields = [field for _, field, _, _ in parts if field]
        found = []
        for name in _listed(directory):
            if match := re.fullmatch(expression, name):
                numbers = dict(zip(fields, map(int, match.groups()), strict=True))
                if pattern.format(**numbers) == name:  # 007 is not {shard}
                    found.append(os.path.join(directory, name))  # noqa: PTH118
        return found

    @property
    def lock(self) -> str:
        """The file that the writer of these shards has locked."""
        return os.path.join(self._directory, f".{self._name}.lock")  # noqa: PTH118

    def temporary(self, directory: str, token: str, shard: int) -> str:
        """Return the temporary path of a shard."""
        return os.path.join(directory, f".{self._name}.{token}-{shard}.tmp")  # noqa: PTH118

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers of these shards."""
        expression = re.compile(rf"\.{re.escape(self._name)}\.[0-9a-f]{{16}}-\d+\.tmp")
        for name in filter(expression.fullmatch, _listed(self._directory)):
            with contextlib.suppress(OSError):  # of another user
                os.unlink(os.path.join(self._directory, name))  # noqa: PTH108, PTH118


def new_token() -> str:
    """Return what the temporary names of one writer share."""
    return os.urandom(8).hex()


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory or "."))  # noqa: PTH208
    except FileNotFoundError:
        return []


def _check_formats(
    parts: Iterable[tuple[str, str | None, str | None, str | None]],
) -> None:
    for _, field, form, conversion in parts:
        if field and (conversion or not _FORMAT.fullmatch(form or "")):
            msg = f"{{{field}}} has another format than such as 05d"
            raise ValueError(msg)


def _short(name: str) -> str:
    """Return `name`, or a name that stands for it if it is too long to be extended."""
    encoded = os.fsencode(name)
    if len(encoded) <= _MAX_NAME_BYTES:
        return name
    # Two names may differ in what is cut.
    mark = "~" + hashlib.sha256(encoded).hexdigest()[:8]
    return os.fsdecode(encoded[: _MAX_NAME_BYTES - len(mark)]) + mark
