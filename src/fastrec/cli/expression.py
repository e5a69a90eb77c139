"""Expression: a condition on the columns of a record, such as ``label == 3``.

It has the syntax of Python: comparisons (also chained, and ``in`` a list), ``and``,
``or``, ``not``, arithmetic with ``+ - * / // %``, numbers, strings, column names, and
``len(column)``. A name that is not an identifier is written as it is if it contains only
letters, digits and ``_ . / -`` next to slashes, as in ``image/class/text``, or else in
backquotes. The expression is parsed and evaluated here, on whole batches; nothing in it is
run by Python.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Expression", "ExpressionError"]

_Mask = npt.NDArray[np.bool_]

# Strings, which stay as they are; backquoted names; names with slashes.
_TOKENS = re.compile(
    r"""(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"|`(?P<quoted>[^`]*)`"
    r"|(?P<path>[A-Za-z_][\w.-]*(?:/[A-Za-z_][\w.-]*)+)"
)

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class ExpressionError(ValueError):
    """An expression is invalid, or does not fit the columns."""
