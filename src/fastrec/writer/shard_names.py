"""Names of shards: a pattern -> the names of files, while they are written and after.

::

    . NAME . PID-N - SHARD .tmp       a shard that is being written
    . NAME . PID-N - SHARD .done      a complete one, whose name is not known yet
    . NAME . lock                     locked by whoever writes these shards

NAME is that of the one file, or the pattern itself, and SHARD the number of the shard.
The number of shards, which a pattern may ask for, is known at the end only. So names are
all that it takes to finish what a process left that was killed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass

from fastrec.storage.paths import is_remote, path_of_url

__all__ = [
    "COMPLETE",
    "UNFINISHED",
    "Leftover",
    "ShardNames",
    "leftovers_in",
    "new_token",
    "refuse_existing",
]

UNFINISHED, COMPLETE = ".tmp", ".done"

# Of the 255 that a name may have, to leave room for the rest.
_MOST_NAME_BYTES = 200

_LEFTOVER = re.compile(
    r"\.(?P<name>.+)\.(?P<token>\d+-\d+)-(?P<shard>\d{1,18})(?P<state>\.tmp|\.done)",
    re.DOTALL,
)
_NUM_SHARDS = re.compile(r"\{num_shards(?::[^{}]*)?\}")
# The formats of an int that can be found again in a name.
_FORMAT = re.compile(r"0?\d{0,2}d?")


class ShardNames:
    """The names that a path or a pattern of paths stands for.

    A pattern has ``{shard}`` in its last component, and maybe ``{num_shards}``, with the
    format of an int: ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``. Any other path
    is the name of one file, as it is.

    Raises
    ------
    ValueError
        If a pattern is malformed, or the path is a remote URL.
    """

    def __init__(self, path: str) -> None:
        if is_remote(path):
            msg = (
                f"cannot write remote path {path!r}: remote paths are not supported; write "
                "to a local disk and copy the files, or mount the bucket"
            )
            raise ValueError(msg)
        path = self.path = path_of_url(path)
        self.is_pattern = re.search(r"\{(shard|num_shards)[:}]", path) is not None
        self.has_num_shards = False
        if not self.is_pattern:
            return
        try:
            parts = list(string.Formatter().parse(path))
            fields = [field for _, field, _, _ in parts]
            _check_formats(parts)
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

    def existing(self, within: str = "") -> list[str]:
        """Return the files that bear such names, whatever numbers they have.

        A relative path is one from the directory `within`.
        """
        directory, pattern = os.path.split(os.path.join(within, self.path))  # noqa: PTH118
        if not self.is_pattern:
            path = os.path.join(within, self.path)  # noqa: PTH118
            return [path] if os.path.lexists(path) else []
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
        return _lock(directory, _short(name))

    def temporary(self, directory: str, token: str, shard: int) -> str:
        """Return what a shard is called until it has its name, without the state."""
        name = _short(os.path.basename(os.path.realpath(self.path)))  # noqa: PTH119
        return os.path.join(directory, f".{name}.{token}-{shard}")  # noqa: PTH118


def new_token() -> str:
    """Return what the temporary names of one writer have in common.

    The number of the process says who it is. In containers all have the same, so that
    what one left that was killed must not stand in the way of the next.
    """
    return f"{os.getpid()}-{secrets.randbelow(10**12)}"


def _check_formats(
    parts: Iterable[tuple[str, str | None, str | None, str | None]],
) -> None:
    for _, field, form, conversion in parts:
        if field and (conversion or not _FORMAT.fullmatch(form or "")):
            msg = f"{{{field}}} has another format than such as 05d"
            raise ValueError(msg)


def _lock(directory: str, name: str) -> str:
    return os.path.join(directory, f".{name}.lock")  # noqa: PTH118


def _short(name: str) -> str:
    """Return `name`, or what stands for it where that is too long to be added to."""
    encoded = os.fsencode(name)
    if len(encoded) <= _MOST_NAME_BYTES:
        return name
    # Two names may differ in what is cut.
    mark = "~" + hashlib.sha256(encoded).hexdigest()[:8]
    return os.fsdecode(encoded[: _MOST_NAME_BYTES - len(mark)]) + mark


@dataclass(frozen=True)
class Leftover:
    """A file that a writer left which did not end.

    Attributes
    ----------
    directory : str
    name : str
        What it would have been called; of a shard, the pattern. One of more than 200
        bytes was cut.
    token : str
        What all files of one writer have in common; begins with the number of its
        process.
    shard : int
        The number of its shard; 0 for a file that is none.
    is_complete : bool
        Whether that is complete.
    """

    directory: str
    name: str
    token: str
    shard: int
    is_complete: bool

    @property
    def path(self) -> str:
        """Where it is."""
        state = COMPLETE if self.is_complete else UNFINISHED
        name = f".{self.name}.{self.token}-{self.shard}{state}"
        return os.path.join(self.directory, name)  # noqa: PTH118

    @property
    def lock(self) -> str:
        """The file that is locked while somebody writes under its name."""
        return _lock(self.directory, self.name)

    def final_name(self, num_shards: int) -> str:
        """Return its name as one of so many shards."""
        try:
            names = ShardNames(self.name)
        except ValueError:  # a pattern that was cut in the middle of a field
            names = None
        if names is not None and (names.is_pattern or self.shard == 0):
            return names.name(self.shard, num_shards)
        return f"{self.name}-{self.shard:05d}"


def leftovers_in(directory: str) -> list[Leftover]:
    """Return what writers left in a directory, or are at, by name, writer and shard.

    Raises
    ------
    OSError
        If the directory cannot be read.
    """
    found = []
    with os.scandir(directory) as entries:
        names = [e.name for e in entries if e.is_file(follow_symlinks=False)]
    for name in names:
        match = _LEFTOVER.fullmatch(name)
        if match:
            left = Leftover(
                directory,
                match["name"],
                match["token"],
                int(match["shard"]),
                match["state"] == COMPLETE,
            )
            if os.path.basename(left.path) == name:  # noqa: PTH119 (no 007)
                found.append(left)
    return sorted(found, key=lambda left: (left.name, left.token, left.shard))


def refuse_existing(names: ShardNames) -> None:
    """Raise a FileExistsError if a file bears one of the names."""
    for path in names.existing():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
