"""A program that reads the URL in its argument, and reports an interrupt.

usage: python tests/support/remote_reader.py URL
"""

from __future__ import annotations

import sys

import fastrec as fr

if __name__ == "__main__":
    try:
        for _ in fr.read_records(sys.argv[1]):
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)  # noqa: T201
