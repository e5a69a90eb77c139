"""A program that reads a dataset once through a cache directory.

usage: python tests/support/remote_cache.py PATH CACHE_DIR CACHE_BYTES
"""

from __future__ import annotations

import sys

import fastrec as fr

if __name__ == "__main__":
    path, cache, n_bytes = sys.argv[1:]
    dataset = fr.open(path, cache_dir=cache, cache_bytes=int(n_bytes))
    for _ in dataset.loader(100):
        pass
