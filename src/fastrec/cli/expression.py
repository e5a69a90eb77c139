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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.cli.column_summary import flattened
from fastrec.hints import nearest

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


class Expression:
    """A condition on rows.

    For a feature of several values, a comparison is true if it is true for any of them; a
    record without the feature makes it false.

    Parameters
    ----------
    text : str
    names : sequence of str
        The columns that exist.

    Raises
    ------
    ExpressionError
        If the text is not an expression, or names another column.
    """

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._names = list(names)
        self._aliases: dict[str, str] = {}  # identifiers in place of other names
        self.columns: list[str] = []
        source = _TOKENS.sub(self._replaced, text).strip()
        try:
            self._tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            msg = f"cannot parse the expression {text!r}: {error.args[0]}"
            raise ExpressionError(msg) from None
        self._check(self._tree)
        if not self.columns:
            msg = f"the expression must name a column, got {text!r}"
            raise ExpressionError(msg)

    def mask(self, batch: Mapping[Any, Any], n_rows: int) -> _Mask:
        """Return for each row of a batch whether the condition is true.

        Raises
        ------
        ExpressionError
            If values of different kinds are compared.
        """
        try:
            with np.errstate(all="ignore"):
                return _Rows(batch, n_rows, self._aliases).mask(self._tree)
        except ExpressionError as error:
            raise ExpressionError(self._in_full(str(error))) from None

    def _replaced(self, match: re.Match[str]) -> str:
        """Return an identifier for a name that Python would not read as one name."""
        if match["string"] is not None:
            return match[0]
        if match["quoted"] is not None:
            return self._alias(match["quoted"])
        # A path may be a name, or a division: prefer the longest name that exists.
        text = match["path"]
        for end in range(len(text), 0, -1):
            is_whole = end == len(text) or text[end] in "/.-"
            if is_whole and text[:end] in self._names:
                return self._alias(text[:end]) + text[end:]
        if any(part in self._names for part in text.split("/")):
            return text
        return self._alias(text)

    def _alias(self, name: str) -> str:
        alias = f"_column_{len(self._aliases)}"
        self._aliases[alias] = name
        return f" {alias} "

    def _in_full(self, text: str) -> str:
        """Return a text with the names of columns."""
        return re.sub(r"_column_\d+", lambda match: self._aliases[match[0]], text)

    def _check(self, node: ast.AST) -> None:
        """Check that a node is supported, and collect the columns."""
        if isinstance(node, ast.Name):
            name = self._aliases.get(node.id, node.id)
            if name not in self._names:
                similar = nearest(name, self._names)
                listed = ", ".join(map(repr, self._names))
                hint = f"did you mean {similar!r}?" if similar else f"they are {listed}"
                msg = f"no column {name!r}; {hint}"
                raise ExpressionError(msg)
            if name not in self.columns:
                self.columns.append(name)
            return
        children: Sequence[ast.AST | None]
        if isinstance(node, ast.BoolOp):
            children = node.values
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Invert):
            children = [node.operand]
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            children = [node.left, node.right]
        elif isinstance(node, ast.Compare) and not any(
            isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops
        ):
            children = [node.left, *node.comparators]
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            children = node.elts
        elif isinstance(node, ast.Call) and _is_len(node):
            children = node.args
        elif isinstance(node, ast.Constant) and isinstance(
            node.value, (bool, int, float, str, bytes)
        ):
            children = []
        else:
            text = self._in_full(ast.unparse(node))
            msg = (
                f"cannot evaluate {text!r}: an expression has columns, numbers, texts, "
                "lists, comparisons, and, or, not, in, + - * / // %, and len(column)"
            )
            raise ExpressionError(msg)
        for child in children:
            if child is not None:
                self._check(child)


def _is_len(node: ast.Call) -> bool:
    is_name = isinstance(node.func, ast.Name) and node.func.id == "len"
    return is_name and len(node.args) == 1 and not node.keywords


class _Values:
    """The values of a column, or numbers computed from them; `counts` are per row."""

    def __init__(self, values: Any, counts: int | npt.NDArray[np.int64]) -> None:  # noqa: ANN401
        self.values = values
        self.counts = counts

    @property
    def is_text(self) -> bool:
        return isinstance(self.values, fr.BytesArray)

    def any_of(self, is_true: Any, n_rows: int) -> _Mask:  # noqa: ANN401
        """Return for each row whether any of its values is true."""
        is_true = np.asarray(is_true, np.bool_)
        if isinstance(self.counts, int):
            found: _Mask = is_true.reshape(n_rows, self.counts).any(axis=1)
            return found
        rows = np.repeat(np.arange(n_rows), self.counts)
        return np.bincount(rows[is_true], minlength=n_rows) > 0


class _Rows:
    """Evaluates the nodes of an expression on the rows of a batch."""

    def __init__(
        self, batch: Mapping[Any, Any], n_rows: int, aliases: Mapping[str, str]
    ) -> None:
        self._batch = batch
        self._n_rows = n_rows
        self._aliases = aliases

    def mask(self, node: ast.expr) -> _Mask:
        """Return for each row whether a node is true."""
        if isinstance(node, ast.BoolOp):
            masks = [self.mask(value) for value in node.values]
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            found: _Mask = combine.reduce(masks)
            return found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.mask(node.operand)
        if isinstance(node, ast.Compare):
            mask = np.ones(self._n_rows, np.bool_)
            left = node.left
            for op, right in zip(node.ops, node.comparators, strict=True):
                mask &= self._compared(left, op, right)
                left = right
            return mask
        value = self._value(node)
        if not isinstance(value, _Values):
            return np.full(self._n_rows, bool(value))
        is_true = value.values.lengths > 0 if value.is_text else value.values != 0
        return value.any_of(is_true, self._n_rows)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> _Mask:
        if isinstance(op, ast.NotIn):
            return ~self._compared(left, ast.In(), right)
        one, other = self._value(left), self._value(right)
        if isinstance(op, ast.In):
            return self._contained(one, other)
        compare = _COMPARISONS[type(op)]
        if not isinstance(one, _Values) and not isinstance(other, _Values):
            return np.full(self._n_rows, compare(one, other))
        a, b, of = _operands(one, other, ast.unparse(ast.Compare(left, [op], [right])))
        if of.is_text and not isinstance(op, (ast.Eq, ast.NotEq)):
            a, b = (
                np.array(each.tolist(), object)
                if isinstance(each, fr.BytesArray)
                else each
                for each in (a, b)
            )
        return of.any_of(compare(a, b), self._n_rows)

    def _contained(self, one: Any, other: Any) -> _Mask:  # noqa: ANN401
        """Evaluate ``column in [...]`` and ``value in column``."""
        if isinstance(one, _Values) and isinstance(other, list):
            is_equal = np.zeros(len(one.values), np.bool_)
            for item in other:
                a, b, _ = _operands(one, item, f"in {other}")
                is_equal |= np.asarray(a == b)
            return one.any_of(is_equal, self._n_rows)
        if isinstance(other, _Values) and not isinstance(one, (_Values, list)):
            a, b, _ = _operands(other, one, f"{one!r} in")
            if other.is_text:
                return other.any_of([b in text for text in a.tolist()], self._n_rows)
            return other.any_of(a == b, self._n_rows)
        msg = (
            "in requires a list, as in: label in [1, 2], or a text, as in: 'a' in name"
        )
        raise ExpressionError(msg)

    def _value(self, node: ast.expr) -> Any:  # noqa: ANN401
        """Return a constant, a list of constants, or the values of the rows."""
        if isinstance(node, ast.Constant):
            text = node.value
            return text.encode() if isinstance(text, str) else text
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [self._constant(each) for each in node.elts]
        if isinstance(node, ast.Name):
            name = self._aliases.get(node.id, node.id)
            values, counts = flattened(self._batch[name])
            if isinstance(values, fr.BytesArray):
                values = fr.BytesArray(values.data, values.offsets)  # of one dimension
            return _Values(values, counts)
        if isinstance(node, ast.Call):
            return self._length(self._value(node.args[0]))
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            zero = ast.Constant(0)
            op = ast.Sub() if isinstance(node.op, ast.USub) else ast.Add()
            return self._value(ast.BinOp(zero, op, node.operand))
        if isinstance(node, ast.BinOp):
            compute = _ARITHMETIC[type(node.op)]
            one, other = self._value(node.left), self._value(node.right)
            if any(
                isinstance(each, (bytes, list))
                or (isinstance(each, _Values) and each.is_text)
                for each in (one, other)
            ):
                msg = f"cannot compute with text or lists: {ast.unparse(node)}"
                raise ExpressionError(msg)
            if not isinstance(one, _Values) and not isinstance(other, _Values):
                try:
                    return compute(one, other)
                except ZeroDivisionError:
                    msg = f"division by zero: {ast.unparse(node)}"
                    raise ExpressionError(msg) from None
            a, b, of = _operands(one, other, ast.unparse(node))
            return _Values(compute(a, b), of.counts)
        return _Values(self.mask(node), 1)

    def _constant(self, node: ast.expr) -> Any:  # noqa: ANN401
        value = self._value(node)
        if isinstance(value, (_Values, list)):
            msg = f"a list must have constants only, got {ast.unparse(node)}"
            raise ExpressionError(msg)
        return value

    def _length(self, value: Any) -> _Values:  # noqa: ANN401
        """Return the bytes of each text, or the number of values of each row."""
        if not isinstance(value, _Values):
            msg = f"len() requires a column, got {value!r}"
            raise ExpressionError(msg)
        if value.is_text:
            return _Values(value.values.lengths.reshape(-1), value.counts)
        counts = value.counts
        if isinstance(counts, int):
            counts = np.full(self._n_rows, counts)
        return _Values(counts, 1)


def _operands(one: Any, other: Any, where: str) -> tuple[Any, Any, _Values]:  # noqa: ANN401
    """Return two operands, and the values that decide the rows; one is a `_Values`."""
    of = one if isinstance(one, _Values) else other
    assert isinstance(of, _Values)
    for each in (one, other):
        is_text = each.is_text if isinstance(each, _Values) else isinstance(each, bytes)
        if is_text != of.is_text or isinstance(each, list):
            msg = f"cannot compare text, numbers or lists with each other: {where}"
            raise ExpressionError(msg)
    pair = [each for each in (one, other) if isinstance(each, _Values)]
    if len(pair) == 2 and any(np.any(np.not_equal(each.counts, 1)) for each in pair):
        msg = f"both columns must have one value in each record: {where}"
        raise ExpressionError(msg)
    a, b = (each.values if isinstance(each, _Values) else each for each in (one, other))
    return a, b, of
