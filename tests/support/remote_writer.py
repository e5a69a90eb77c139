"""A program that writes an object of several parts, and survives an interrupt.

usage: python tests/support/remote_writer.py URL
"""

from __future__ import annotations

import contextlib
import sys

import numpy as np

import fastrec as fr

if __name__ == "__main__":
    data = np.random.default_rng(1).bytes(20 << 20)
    with contextlib.suppress(KeyboardInterrupt), fr.Writer(sys.argv[1]) as writer:
        for _ in range(6):
            writer.write({"x": data})
        print("closing", flush=True)  # noqa: T201
