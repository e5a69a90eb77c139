"""Yardstick: copying the bytes of the files from memory into a recycled batch.

Of compressed files, the bytes that were compressed. Not a reader: it parses nothing. It shows what one pass over the bytes costs on this
machine at this moment.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.reader import Reader, Setup
from truth import Columns, MismatchError

__all__ = ["PeerReader"]


class PeerReader(Reader):
    """Copies batch-sized pieces, on as many threads as asked."""

    checks = "-"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(shuffled="copies in file order only")
        super().__init__(setup)
        threads = setup.threads
        self.form = "numpy.copyto, batch-sized pieces"
        self.versions = {"numpy": np.__version__}
        read = [f.read_bytes() for f in setup.prepared.files]
        if self.workload.is_gzip:
            read = [gzip.decompress(data) for data in read]
        self.source = np.concatenate([np.frombuffer(data, np.uint8) for data in read])
        self.piece = max(1, self.nbytes * setup.batch_size // self.n_records)
        self.targets = [np.zeros(self.piece, np.uint8) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def copies(
        self, thread: int
    ) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        """Copy this thread's part of the source, piece by piece."""
        begin = self.nbytes * thread // self.threads
        end = self.nbytes * (thread + 1) // self.threads
        for start in range(begin, end, self.piece):
            source = self.source[start : min(start + self.piece, end)]
            target = self.targets[thread][: len(source)]
            np.copyto(target, source)
            yield target, source

    def count(self, thread: int) -> int:
        """Copy and count the pieces."""
        return sum(1 for _ in self.copies(thread))

    def epoch(self) -> Iterable[Any]:
        """One item per piece, or per thread where there are several."""
        if self.pool is None:
            return self.copies(0)
        return self.pool.map(self.count, range(self.threads))

    def columns(self, batch: Any) -> Columns:  # noqa: ARG002
        """Nothing: bytes are not columns."""
        return {}

    def verify(self) -> int:
        """Raise unless every copy equals its source."""
        for thread in range(self.threads):
            for target, source in self.copies(thread):
                if not np.array_equal(target, source):
                    msg = "a copy differs from its source"
                    raise MismatchError(msg)
        return sum(1 for _ in self.epoch())
