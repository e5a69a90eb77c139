"""Import fastrec in subinterpreters, which must raise an ImportError each time.

usage: subinterpreters.py before|after isolated|legacy

`before` and `after` say when: relative to the import in the main interpreter. Legacy
subinterpreters share the GIL and allow extension modules of every kind.
"""

from __future__ import annotations

import faulthandler
import importlib
import sys
from typing import Any

from children import SECONDS_TO_HANG

IMPORT_TWICE = """
import warnings
warnings.simplefilter("ignore")
for _ in range(2):
    try:
        import fastrec
    except ImportError as error:
        assert "subinterpreter" in str(error), error
    else:
        raise AssertionError("fastrec was imported")
"""


def import_in_a_subinterpreter(kind: str) -> None:
    if sys.version_info >= (3, 13):
        interpreters: Any = importlib.import_module("_interpreters")
        other, run = interpreters.create(kind), interpreters.exec
    else:
        interpreters = importlib.import_module("_xxsubinterpreters")
        other = interpreters.create(isolated=kind == "isolated")
        run = interpreters.run_string
    failure = run(other, IMPORT_TWICE)  # before 3.13, raises instead
    interpreters.destroy(other)
    assert failure is None, failure


if __name__ == "__main__":
    faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
    order, kind = sys.argv[1:]
    if order == "after":
        import fastrec
    for _ in range(3):
        import_in_a_subinterpreter(kind)
    import fastrec

    assert fastrec.encode_example({"n": 1})
