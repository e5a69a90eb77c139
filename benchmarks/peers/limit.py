"""Limit: a compiled loop that does only what every reader must do, on one core.

It walks the frames, verifies both checksums with fastrec's kernel, and copies the payloads
into a recycled batch. Not a reader: it parses nothing. It needs a C++ compiler and the
sources of fastrec.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers.reader import MissingPeerError, Reader, Setup
from truth import Columns, MismatchError

__all__ = ["PeerReader"]

CORE = Path(__file__).parents[2] / "src" / "cpp"


def compiled() -> ctypes.CDLL:
    """Compile the loop with the checksums of the core, and load it."""
    sources = [
        Path(__file__).with_suffix(".cpp"),
        *sorted((CORE / "crc32c").glob("*.cpp")),
        *sorted((CORE / "base").glob("*.cpp")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "limit.so")
        command = ["c++", "-std=c++20", "-O3", "-shared", "-fPIC", f"-I{CORE}"]
        try:
            subprocess.run([*command, "-o", library, *sources], check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            msg = f"needs a C++ compiler for C++20: {error}"
            raise MissingPeerError(msg) from None
        return ctypes.CDLL(str(library))


class PeerReader(Reader):
    """Copies the payloads of one batch after another."""

    checks = "both"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(
            threads="runs on one thread only",
            shuffled="reads in file order only",
            gzip="does not decompress",
        )
        super().__init__(setup)
        self.form = "C++ loop"
        self.versions = {}
        self.copy_batch = compiled().copy_batch
        self.sources = [np.memmap(file, np.uint8, "r") for file in self.files]
        most = max(len(source) for source in self.sources)
        self.target = np.zeros(most, np.uint8)

    def epoch(self) -> Iterable[Any]:
        """The number of records in each batch."""
        return self.batches()

    def batches(self) -> Iterator[int]:
        """Fill one batch after another.

        A batch may continue in the next file: there, its payloads are copied to the
        beginning of the same memory again, which costs the same.
        """
        target, room = self.target.ctypes, ctypes.c_size_t(self.target.size)
        n_left = self.batch_size
        for source in self.sources:
            begin = ctypes.c_void_p(source.ctypes.data)
            end = ctypes.c_void_p(source.ctypes.data + source.size)
            while begin.value != end.value:
                n = self.copy_batch(ctypes.byref(begin), end, n_left, target, room)
                if n < 0:
                    raise MismatchError("a frame is damaged")
                n_left -= n
                if not n_left:
                    yield self.batch_size
                    n_left = self.batch_size
        if n_left < self.batch_size:
            yield self.batch_size - n_left

    def columns(self, batch: Any) -> Columns:  # noqa: ARG002
        """Nothing: payloads are not columns."""
        return {}

    def verify(self) -> int:
        """Raise unless an epoch has all records; count its batches."""
        sizes = [*self.batches()]
        if sum(sizes) != self.n_records:
            raise MismatchError(f"{sum(sizes)} of {self.n_records} records")
        return len(sizes)
