"""KeptCounts: a number for each record of some files, kept with their index."""

from __future__ import annotations

import io
import logging
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastrec.storage.atomic import replacement
from fastrec.storage.index_files import IndexPlace, Scope
from fastrec.storage.paths import versions_of
from fastrec.storage.remote import RemotePath, fetch, fetch_beginning
from fastrec.storage.stores import Entry

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("fastrec")

_BYTES_AT_ONCE = 1 << 20  # of a first request

Counts = npt.NDArray[np.int32]


class KeptCounts:
    """The counts with a key, in the place of the index or next to the data.

    The file is ``KEY.counts.npy``, an int32 array with one number per record. The name
    in the place of the index also depends on the versions of the files.
    """

    def __init__(self, place: IndexPlace, paths: Sequence[str], key: str) -> None:
        self._place = place
        self._name = f"{key}.counts.npy"
        self._scope = Scope.of(paths)

    @property
    def _target(self) -> Path | RemotePath:
        next_to_data = self._next_to_data() if self._place.is_next_to_data else None
        if next_to_data is not None:
            return next_to_data
        versions = zlib.crc32(versions_of(self._scope.paths).tobytes())
        return self._place.folder() / f"{versions:08x}.{self._name}"

    def _next_to_data(self) -> Path | RemotePath | None:
        index, _ = self._scope.next_to_data()
        if isinstance(index, RemotePath):
            directory = index.key[: index.key.rfind("/") + 1]
            return index.sibling(Entry(directory + self._name))
        return None if index is None else index.parent / self._name

    def _candidates(self) -> Iterator[Path | RemotePath | None]:
        yield self._target
        if not self._place.must_keep:
            yield self._next_to_data()

    def load(self, n_records: int) -> Counts | None:
        """Return the counts of `n_records` records, or None if they are not kept."""
        for path in self._candidates():
            if path is None:
                continue
            try:
                counts: Counts = np.lib.format.read_array(io.BytesIO(_content(path)))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                _log.info("cannot read the counts %s: %s", path, error)
                continue
            if counts.dtype == np.int32 and counts.shape == (n_records,):
                return counts
        return None

    def save(self, counts: Counts) -> None:
        """Write the counts; a failure is an error only if the place must keep them."""
        try:
            with (
                replacement(self._target) as temporary,
                open(temporary, "wb") as file,
            ):
                np.save(file, counts)
        except OSError as error:
            if self._place.must_keep:
                raise
            _log.info("cannot keep the counts of %d records: %s", len(counts), error)


def _content(path: Path | RemotePath) -> bytes:
    if not isinstance(path, RemotePath):
        return path.read_bytes()
    version = fetch_beginning(path, _BYTES_AT_ONCE, n_attempts=1).version
    content = bytes(path.beginning)
    return content + fetch(path, len(content), version[0], version)
