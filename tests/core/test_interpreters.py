"""Interpreters that import fastrec.

Goal
    A subinterpreter of any kind gets an ImportError, and the main interpreter works
    afterwards. A free-threaded interpreter stays without the GIL.
Method
    Programs with a time limit: without the check, the import in a subinterpreter of
    Python 3.11 waits for ever.
"""

from __future__ import annotations

import os
import sys
import sysconfig

import pytest

from children import run_program, run_python


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_subinterpreter_is_refused_with_a_message(order: str, kind: str) -> None:
    pytest.importorskip(
        "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    )
    run_program("subinterpreters.py", order, kind)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has the GIL"
)
def test_an_import_does_not_enable_the_gil() -> None:
    code = """if True:
        import sys
        import fastrec as fr
        for name in fr.__all__:
            getattr(fr, name)
        assert not sys._is_gil_enabled()
    """
    environ = {**os.environ}
    environ.pop("PYTHON_GIL", None)  # which keeps it disabled, whatever is imported
    run_python(code, env=environ)
