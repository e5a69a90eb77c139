"""Names of shards: a pattern -> the names of files, while they are written and after.

A shard is written as ``.NAME.TOKEN.tmp`` in the directory of NAME. Where NAME has the
number of shards, which only the last one tells, a complete one waits as
``.NAME.TOKEN.done``, with ``{num_shards:05d}`` still in it. So names are all that it takes
to finish what a process left that was killed.
"""

from __future__ import annotations

import errno
import os
import re
import string
from dataclasses import dataclass

__all__ = [
    "COMPLETE",
    "UNFINISHED",
    "Leftover",
    "ShardNames",
    "leftovers_in",
    "refuse_existing",
    "temporary",
]

UNFINISHED, COMPLETE = ".tmp", ".done"

# Of the 255 that a name may have, to leave room for the rest.
_MOST_NAME_BYTES = 200

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<token>\d+-\d+)(?P<state>\.tmp|\.done)")
_NUM_SHARDS = re.compile(r"\{num_shards(?::[^{}]*)?\}")


class ShardNames:
    """The names that a path or a pattern of paths stands for.

    A pattern has ``{shard}`` in its last component, and maybe ``{num_shards}``, with the
    format of an int: ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``. Any other path
    is the name of one file, as it is.

    Raises
    ------
    ValueError
        If a pattern is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_pattern = re.search(r"\{(shard|num_shards)[:}]", path) is not None
        self.has_num_shards = False
        if not self.is_pattern:
            return
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(path)]
            path.format(shard=0, num_shards=1)
        except (IndexError, KeyError, ValueError) as error:
            msg = (
                f"{path!r} is no pattern of shards, such as "
                f'"train-{{shard:05d}}-of-{{num_shards:05d}}.tfrecord": {error!r}'
            )
            raise ValueError(msg) from None
        self.has_num_shards = "num_shards" in fields
        if "shard" not in fields:
            msg = f"{path!r} has {{num_shards}}, but not {{shard}}"
            raise ValueError(msg)
        if "{" in os.path.dirname(path):  # noqa: PTH120 (the path is kept as given)
            msg = (
                f"{path!r} must have {{shard}} and {{num_shards}} in its last part only"
            )
            raise ValueError(msg)

    def name(self, shard: int, num_shards: int | None = None) -> str:
        """Return the path of a shard; without `num_shards`, its field stays in it."""
        if not self.is_pattern:
            return self.path
        if num_shards is None and self.has_num_shards:
            fields = _NUM_SHARDS.findall(self.path)
            kept = _NUM_SHARDS.sub("\0", self.path).format(shard=shard)
            for field in fields:
                kept = kept.replace("\0", field, 1)
            return kept
        return self.path.format(shard=shard, num_shards=num_shards)

    def existing(self) -> list[str]:
        """Return the files that bear such names, whatever numbers they have."""
        if not self.is_pattern:
            return [self.path] if os.path.lexists(self.path) else []
        directory, pattern = os.path.split(self.path)
        expression = "".join(
            re.escape(text) + (r"(\d+)" if field else "")
            for text, field, _, _ in string.Formatter().parse(pattern)
        )
        try:
            names = sorted(os.listdir(directory or "."))  # noqa: PTH208
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            match = re.fullmatch(expression, name)
            if match and self._would_be(pattern, name, match):
                found.append(os.path.join(directory, name))  # noqa: PTH118
        return found

    @staticmethod
    def _would_be(pattern: str, name: str, match: re.Match[str]) -> bool:
        """Tell whether the numbers in `name` are written as the pattern writes them."""
        fields = [field for _, field, _, _ in string.Formatter().parse(pattern)]
        numbers = dict(
            zip([field for field in fields if field], match.groups(), strict=True)
        )
        values = {field: int(number) for field, number in numbers.items()}
        return pattern.format(**values) == name

    def lock(self) -> str:
        """Return the path of the file that whoever writes these shards has locked."""
        directory, name = os.path.split(os.path.realpath(self.path))
        return os.path.join(directory, f".{_short(name)}.lock")  # noqa: PTH118


def temporary(path: str, token: str, state: str) -> str:
    """Return what the file `path` is called while it is not complete, or waits."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{_short(name)}.{token}{state}")  # noqa: PTH118


def _short(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_MOST_NAME_BYTES])


@dataclass(frozen=True)
class Leftover:
    """A file that a writer left which did not end.

    Attributes
    ----------
    path : str
    name : str
        What it would have been called; may have ``{num_shards}`` in it.
    token : str
        What all files of one writer have in common.
    is_complete : bool
        Whether its shard is.
    """

    path: str
    name: str
    token: str
    is_complete: bool

    def final_name(self, num_shards: int) -> str:
        """Return its name as one of so many shards."""
        return _NUM_SHARDS.sub(
            lambda field: field[0].format(num_shards=num_shards), self.name
        )


def leftovers_in(directory: str) -> list[Leftover]:
    """Return what writers left in a directory, by writer and name.

    Raises
    ------
    OSError
        If the directory cannot be read.
    """
    found = []
    for name in sorted(os.listdir(directory)):  # noqa: PTH208
        match = _LEFTOVER.fullmatch(name)
        if match:
            path = os.path.join(directory, name)  # noqa: PTH118
            found.append(
                Leftover(
                    path, match["name"], match["token"], match["state"] == COMPLETE
                )
            )
    return sorted(found, key=lambda left: (left.token, left.name))


def refuse_existing(names: ShardNames) -> None:
    """Raise a FileExistsError if a file bears one of the names."""
    for path in names.existing():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
