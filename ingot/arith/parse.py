"""Parser of integer expressions: the inverse of `expr.show`. Used by the IRs' text forms.

It accepts Python integer expressions over + - * // % min max. Other subtrees (a loaded value) go to
the `opaque` callback as a Python syntax tree.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import reduce

from ingot.arith import expr as ir
from ingot.arith.expr import Expr
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

OpaqueReader = Callable[[ast.expr], Expr]

_OPERATORS: dict[type[ast.operator], type[ir.Binary]] = {
    ast.Add: ir.Add, ast.Sub: ir.Sub, ast.Mult: ir.Mul, ast.FloorDiv: ir.FloorDiv, ast.Mod: ir.Mod,
}  # fmt: skip
_CALLS: dict[str, type[ir.Binary]] = {"min": ir.Min, "max": ir.Max}


def parse(text: str, opaque: OpaqueReader | None = None) -> Expr:
    """The expression that `show` prints as `text`."""
    try:
        return read(ast.parse(text.strip(), mode="eval").body, opaque)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise IngotError(
            "bad-text", f"not an integer expression: {text!r}", why=str(error)
        ) from None


@segmented
def read(tree: ast.expr, opaque: OpaqueReader | None = None) -> Expr:
    """Convert a Python syntax tree; nothing is folded, so that printing gives the same text."""
    match tree:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return ir.Const(number)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return ir.Const(-number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ir.Sub(ir.Const(0), read(operand, opaque))
        case ast.Name(id=name):
            return ir.Var(name)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](read(left, opaque), read(right, opaque))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_], keywords=[]) if name in _CALLS:
            return reduce(_CALLS[name], [read(x, opaque) for x in tree.args])
    if opaque is not None:
        return opaque(tree)
    raise IngotError(
        "bad-text",
        f"not an integer expression: {ast.unparse(tree)}",
        hint="integers, names, + - * // %, min(a, b) and max(a, b) are",
    )
