"""Files: in their order, with what is found of each once it is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fastrec import _core
from fastrec.errors import Error, advise_on_error
from fastrec.limits import Limits
from fastrec.on_error import Gap, OnError, log_gaps, recovery_of
from fastrec.storage import index
from fastrec.storage.counting import Count, counted
from fastrec.storage.located import Located

__all__ = ["Files"]


class Files:
    """Files in their order, and what is found of each: once, for all views of them.

    Parameters
    ----------
    located : Located
        The files, and where their contents are.
    io, index_dir, on_error, limits
        As `fastrec.open` has them.
    """

    def __init__(
        self,
        located: Located,
        io: str,
        index_dir: str | None,
        on_error: OnError,
        limits: Limits,
    ) -> None:
        self.located = located
        self.io = io
        self._index_dir = index_dir
        self.on_error = on_error
        self.limits = limits
        self._indexes: list[_core.Index] | None = None
        self._counts: list[Count] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        options = (self.io, self._index_dir, self.on_error, self.limits)
        return Files, (self.located, *options)

    def __len__(self) -> int:
        return len(self.located.files)

    def with_on_error(self, on_error: OnError) -> Files:
        """Return the same files, whose damage is treated in another way."""
        if on_error == self.on_error:
            return self
        files = Files(self.located, self.io, self._index_dir, on_error, self.limits)
        if not self.gaps_if_known():  # whole files are the same either way
            files._indexes, files._counts = self._indexes, self._counts
        return files

    def indexes(self) -> list[_core.Index]:
        """Return where every record is, building the indexes that are missing."""
        if self._indexes is None:
            with self._advice():
                indexes = index.make_indexes(
                    self.located.paths,
                    names=self.located.files,
                    io=self.io,
                    index_dir=self._index_dir,
                    recovery=recovery_of(self.on_error),
                )
            for found in indexes:
                log_gaps(found.gaps)
            self._indexes = indexes
        return self._indexes

    def indexes_if_cheap(self) -> list[_core.Index] | None:
        """Return where every record is, if that is known without walking the files."""
        if self._indexes is None:
            self._indexes = index.load_indexes(self.located.paths, self._index_dir)
        return self._indexes

    def counts(self) -> list[Count]:
        """Return how many records each file has, by a pass over those not counted."""
        if self._counts is None:
            with self._advice():
                counts = counted(
                    self.located.to_stream(),
                    self._index_dir,
                    recovery_of(self.on_error),
                )
            gaps = [gap for found in counts for gap in found.gaps]
            log_gaps(gaps)
            self._counts = counts
        return self._counts

    @contextlib.contextmanager
    def _advice(self) -> Iterator[None]:
        """Name ``on_error=`` in the hints of errors, for the caller of `open`."""
        try:
            yield
        except Error as error:
            advise_on_error(error)
            raise

    def gaps_if_known(self) -> list[Gap]:
        """Return what is left out of the files, as far as somebody has looked."""
        found = [*(self._indexes or ()), *(self._counts or ())]
        return [gap for of_file in found for gap in of_file.gaps]
