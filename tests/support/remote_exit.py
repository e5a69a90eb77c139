"""A program that exits while it reads the URL in its argument.

usage: python tests/support/remote_exit.py URL
"""

from __future__ import annotations

import faulthandler
import sys

import fastrec as fr
from children import SECONDS_TO_HANG

if __name__ == "__main__":
    faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
    ds = fr.open(sys.argv[1], features={"n": fr.FixedLen((), "int64")})
    batches = iter(ds.loader(4, memory_limit="300KB"))
    next(batches)
