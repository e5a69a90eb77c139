"""Detect directories that mix splits (train, test, ...), by file name."""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

_log = logging.getLogger("fastrec")

_SPLIT_WORDS = frozenset(("train", "test", "valid", "validation", "val", "dev", "eval"))

# Shard numbers: decimal or hexadecimal, optionally with a total.
_NUMBER = re.compile(
    r"(?<![A-Za-z])[0-9A-Fa-f]*[0-9][0-9A-Fa-f]*(?![A-Za-z])(?:-of-[0-9]+)?|[0-9]+"
)
# Directories of a table that Hive or Spark has partitioned: key=value.
_PARTITION = re.compile(r"(?<![^/])([^/=]+)=([^/]*)(?=/)")
_MAX_LISTED = 10


def check_one_split(directory: str, files: Iterable[str]) -> None:
    """Raise a ValueError if the names of `files` below it differ by a split word.

    The message lists a glob for each group of names. If names differ otherwise than by
    numbers, a warning is logged.
    """
    names = [file[len(directory) :].lstrip(os.sep) for file in files]
    groups = Counter(map(_literal_parts, names))
    if len(groups) == 1:
        return
    globs = [
        f"{os.path.join(glob.escape(directory), _glob(parts, count, names))!r} "
        f"({count:,} file{'s' * (count > 1)})"
        for parts, count in [*groups.items()][:_MAX_LISTED]
    ]
    if len(groups) > _MAX_LISTED:
        globs.append(f"and {len(groups) - _MAX_LISTED:,} more")
    listed = ", ".join(globs)
    if len({_split_words(parts) for parts in groups}) > 1:
        hint = "Pass the glob of one split, or a list of globs to join several"
        if os.path.exists(os.path.join(directory, "dataset_info.json")):
            hint = f"TFDS wrote it: call fastrec.open_tfds({directory!r}, split)"
        raise ValueError(
            f"cannot read directory {directory!r} as one dataset: its file names "
            f"differ by a split word (train, test, ...): {listed}. {hint}"
        )
    _log.warning(
        "joining %d groups of files in directory %r: %s; pass a glob to read only one",
        len(groups),
        directory,
        listed,
    )


def _literal_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name between the numbers and partition values in it."""

    def without_value(found: re.Match[str]) -> str:
        is_split = found[2].lower() in _SPLIT_WORDS
        return found[0] if is_split else f"{found[1]}=0"

    return tuple(_NUMBER.split(_PARTITION.sub(without_value, name)))


def _split_words(parts: Iterable[str]) -> frozenset[str]:
    words = re.findall(r"[a-z]+", " ".join(parts).lower())
    return _SPLIT_WORDS.intersection(words)


def _glob(parts: Iterable[str], count: int, names: Sequence[str]) -> str:
    """Return a glob that matches only the `count` names with these parts."""
    literals = [glob.escape(part) for part in parts]
    pattern = "*".join(literals)
    n_matches = sum(fnmatch.fnmatchcase(name, pattern) for name in names)
    return pattern if n_matches == count else "[0-9]*".join(literals)
