"""Symbolic evaluation of movement operators and reductions on arrays of size expressions.

In: a node and its operands as arrays of elements (symbolic_arithmetic.py). Out: the result's
elements, or None if they cannot be derived. Called by shape_values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.arith.expr import Expr
from ingot.graph.ir import Node

SymbolicOp = Callable[[Node, Sequence["np.ndarray | None"], "tuple[int, ...]"], "np.ndarray | None"]


def _slice(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    starts, steps = _ints(node.attr("starts")), _ints(node.attr("steps"))
    if starts is None or steps is None:
        return None
    indices = [s + np.arange(n) * step for s, n, step in zip(starts, shape, steps)]
    inside = all(((p >= 0) & (p < n)).all() for p, n in zip(indices, operands[0].shape))
    return operands[0][np.ix_(*indices)] if inside and indices else None


def _gather(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    table, axis = operands[0], node.attr("axis", 0)
    indices = [arith.as_int(e) for e in operands[1].reshape(-1).tolist()]
    size = table.shape[axis]
    if any(p is None or not -size <= p < size for p in indices):
        return None
    index = np.array(indices, np.int64).reshape(operands[1].shape)
    return np.asarray(np.take(table, index, axis=axis), dtype=object).reshape(shape)


def _concat(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate(list(operands), axis=node.attr("axis"))


def _tile(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    repeats = _ints(node.attr("repeats"))
    return None if repeats is None else np.tile(operands[0], repeats)


def _fill(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """Of a scalar operand; a fill by an attribute is no size."""
    return np.broadcast_to(operands[0], shape) if operands else None


def _range(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """Of integers; a float one is rounded where a fraction is not."""
    start, _, delta = (operand.item() for operand in operands)
    if not isinstance(start, Expr) or not isinstance(delta, Expr):
        return None
    return object_array([start + delta * i for i in range(math.prod(shape))], shape)


def _reduction(combine: Callable[[Expr, Expr], Expr], identity: int) -> SymbolicOp:
    def reduce(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
        data = operands[0]
        if any(depends_on_data(e) for e in data.reshape(-1).tolist()):
            return None  # one opaque leaf for the result, not an expression over many
        axes = node.attr("axes")
        axes = tuple(range(data.ndim)) if axes is None else tuple(a % data.ndim for a in axes)
        kept = [a for a in range(data.ndim) if a not in axes]
        rows = data.transpose(*kept, *axes).reshape(math.prod(shape), -1)
        totals = []
        for row in rows:
            total: Expr = arith.Const(identity) if not row.size or identity >= 0 else row[0]
            for element in row if identity >= 0 else row[1:]:
                total = combine(total, element)
            totals.append(total)
        return object_array(totals, shape)

    return reduce


def _extreme(combine: Callable[[Expr, Expr], Expr]) -> SymbolicOp:
    """A reduction that starts from its first element; undefined for an empty axis."""
    inner = _reduction(combine, -1)

    def reduce(node: Node, operands: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
        return inner(node, operands, shape) if operands[0].size else None

    return reduce


SYMBOLIC_OPS: dict[str, SymbolicOp] = {
    "reshape": lambda node, operands, shape: operands[0].reshape(shape),  # type: ignore[union-attr]
    "transpose": lambda node, operands, shape: operands[0].transpose(node.attr("perm")),  # type: ignore[union-attr]
    "expand": lambda node, operands, shape: np.broadcast_to(operands[0], shape),  # type: ignore[arg-type]
    "fill": _fill,
    "slice": _slice,
    "gather": _gather,
    "concat": _concat,
    "tile": _tile,
    "range": _range,
    "reduce_prod": _reduction(arith.mul, 1),
    "reduce_sum": _reduction(arith.add, 0),
    "reduce_max": _extreme(arith.maximum),
    "reduce_min": _extreme(arith.minimum),
}


def object_array(items: Sequence[Any], shape: Sequence[int] | None) -> np.ndarray:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array if shape is None else array.reshape(tuple(shape))


def depends_on_data(element: Any) -> bool:
    if not isinstance(element, Expr):
        return True
    return bool(arith.opaques(element))


def _ints(values: Sequence[Any]) -> list[int] | None:
    numbers = [arith.as_int(v) for v in values]
    return None if None in numbers else numbers  # type: ignore[return-value]
