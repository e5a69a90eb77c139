"""Files: in their order, with what is found of each once it is needed."""

from __future__ import annotations

from fastrec import _core, index
from fastrec.counting import Count, counted
from fastrec.located import Located

__all__ = ["Files"]


class Files:
    """Files in their order, and what is found of each: once, for all views of them.

    Parameters
    ----------
    located : Located
        The files, and where their contents are.
    io, index_dir
        As `fastrec.open` has them.
    """

    def __init__(self, located: Located, io: str, index_dir: str | None) -> None:
        self.located = located
        self.io = io
        self._index_dir = index_dir
        self._indexes: list[_core.Index] | None = None
        self._counts: list[Count] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return Files, (self.located, self.io, self._index_dir)

    def __len__(self) -> int:
        return len(self.located.files)

    def indexes(self) -> list[_core.Index]:
        """Return where every record is, building the indexes that are missing."""
        if self._indexes is None:
            self._indexes = index.make_indexes(
                self.located.paths,
                names=self.located.files,
                io=self.io,
                index_dir=self._index_dir,
            )
        return self._indexes

    def indexes_if_cheap(self) -> list[_core.Index] | None:
        """Return where every record is, if that is known without walking the files."""
        if self._indexes is None:
            self._indexes = index.load_indexes(self.located.paths, self._index_dir)
        return self._indexes

    def counts(self) -> list[Count]:
        """Return how many records each file has, by a pass over those not counted."""
        if self._counts is None:
            self._counts = counted(self.located.to_stream(), self._index_dir)
        return self._counts
