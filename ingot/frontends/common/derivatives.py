"""Reverse-mode differentiation of a part of a graph, while it is built.

In: a builder, the value y and the values x to differentiate by. Out: the derivative of the sum of
y's elements by each x, as nodes appended to the builder. Called by importers (ONNX's Gradient).

The nodes between xs and y are appended once more, with the point of evaluation in place of xs
(merge_common removes what is computed twice); a composite operator without a rule is decomposed.
Then the rules, one for each operator, are applied from y back to xs. A rule gets the operands, the
results and the derivative by the first result, and gives one for each operand; the products that an
operand does not need are dead code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.frontends.common.elements import broadcast
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Node, Value
from ingot.graph.opdef import Attrs, lookup
from ingot.support.errors import IngotError


@dataclass(eq=False)
class T:
    """A value with arithmetic; numbers take its element type."""

    g: GraphBuilder
    v: Value

    def op(self, name: str, *others: T | float, **attrs: Any) -> T:
        operands = [self.v, *(self.like(other).v for other in others)]
        return T(self.g, self.g.add(name, operands, **attrs))

    def like(self, other: T | float) -> T:
        if isinstance(other, T):
            return other
        return T(self.g, self.g.constant(np.array(other).astype(self.v.dtype.numpy)))

    def __add__(self, other: T | float) -> T:
        return self.op("add", other)

    def __sub__(self, other: T | float) -> T:
        return self.op("sub", other)

    def __rsub__(self, other: float) -> T:
        return self.like(other) - self

    def __mul__(self, other: T | float) -> T:
        return self.op("mul", other)

    def __truediv__(self, other: T | float) -> T:
        return self.op("div", other)

    def __neg__(self) -> T:
        return self.op("neg")

    def where(self, cond: T, other: T | float) -> T:
        """self where the condition holds, else other"""
        return T(self.g, self.g.add("where", [cond.v, self.v, self.like(other).v]))

    def sum(self, axes: Sequence[int], keepdims: bool = True) -> T:
        return self.op("reduce_sum", axes=tuple(axes), keepdims=keepdims)

    def reshape(self, shape: Sequence[arith.Expr]) -> T:
        return self if tuple(shape) == self.v.shape else self.op("reshape", shape=tuple(shape))

    def expand(self, shape: Sequence[arith.Expr]) -> T:
        return self if tuple(shape) == self.v.shape else self.op("expand", shape=tuple(shape))

    def swapped(self) -> T:
        """The last two axes swapped."""
        rank = self.v.tensor.rank
        return self.op("transpose", perm=(*range(rank - 2), rank - 1, rank - 2))

    def sum_to(self, like: T) -> T:
        """The sum over the axes along which an operand was broadcast."""
        extra = self.v.tensor.rank - like.v.tensor.rank
        pairs = zip(self.v.shape[extra:], like.v.shape)
        ones = [
            extra + i
            for i, (size, own) in enumerate(pairs)
            if arith.is_const(own, 1) and not arith.is_const(size, 1)
        ]
        axes = [*range(extra), *ones]
        return (self.sum(axes) if axes else self).reshape(like.v.shape)


Rule = Callable[[Sequence[T], Sequence[T], T, Attrs], Sequence[T | None]]
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def add(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, fn))
        return fn

    return add


def define(op: str, slope: Callable[..., T]) -> None:
    """An operator of one operand: its derivative by x, of x, the result y and the attributes."""
    RULES[op] = lambda xs, ys, d, attrs: [d * slope(xs[0], ys[0], attrs)]


# --- element-wise -------------------------------------------------------------------------------

# results that do not change with the operand, or only in jumps
for name in ("eq", "lt", "le", "gt", "ge", "not", "and", "or", "xor", "isnan", "isinf", "floor",
             "ceil", "round", "sign", "argmax", "argmin", "random_bits"):  # fmt: skip
    RULES[name] = lambda xs, ys, d, attrs: [None] * len(xs)


def gelu_slope(x: T, y: T, attrs: Attrs) -> T:
    if attrs.get("approximate", "none") == "tanh":
        c = math.sqrt(2 / math.pi)
        t = ((x + x * x * x * 0.044715) * c).op("tanh")
        return (t + 1.0) * 0.5 + x * (1.0 - t * t) * (x * x * (3 * 0.044715) + 1.0) * (0.5 * c)
    density = (x * x * -0.5).op("exp") * (1 / math.sqrt(2 * math.pi))
    return ((x * math.sqrt(0.5)).op("erf") + 1.0) * 0.5 + x * density


def elu_slope(x: T, y: T, attrs: Attrs) -> T:
    alpha = attrs.get("alpha", 1.0)
    return (x.op("exp") * alpha).where(x.op("lt", 0.0), 1.0)


def silu_slope(x: T, y: T, attrs: Attrs) -> T:
    s = x.op("sigmoid")
    return s + y * (1.0 - s)


SLOPES: dict[str, Callable[[T, T, Attrs], T]] = {
    "identity": lambda x, y, attrs: x.like(1.0),
    "neg": lambda x, y, attrs: x.like(-1.0),
    "abs": lambda x, y, attrs: x.op("sign"),
    "reciprocal": lambda x, y, attrs: -(y * y),
    "exp": lambda x, y, attrs: y,
    "log": lambda x, y, attrs: x.op("reciprocal"),
    "sqrt": lambda x, y, attrs: x.like(0.5) / y,
    "sin": lambda x, y, attrs: x.op("cos"),
    "cos": lambda x, y, attrs: -x.op("sin"),
    "tan": lambda x, y, attrs: y * y + 1.0,
    "asin": lambda x, y, attrs: (1.0 - x * x).op("sqrt").op("reciprocal"),
    "acos": lambda x, y, attrs: -(1.0 - x * x).op("sqrt").op("reciprocal"),
    "atan": lambda x, y, attrs: (x * x + 1.0).op("reciprocal"),
    "sinh": lambda x, y, attrs: x.op("cosh"),
    "cosh": lambda x, y, attrs: x.op("sinh"),
    "tanh": lambda x, y, attrs: 1.0 - y * y,
    "sigmoid": lambda x, y, attrs: y * (1.0 - y),
    "erf": lambda x, y, attrs: (-(x * x)).op("exp") * (2 / math.sqrt(math.pi)),
    "relu": lambda x, y, attrs: x.like(1.0).where(x.op("gt", 0.0), 0.0),
    "leaky_relu": lambda x, y, attrs: x.like(1.0).where(x.op("ge", 0.0), attrs.get("alpha", 0.01)),
    "softplus": lambda x, y, attrs: x.op("sigmoid"),
    "silu": silu_slope,
    "elu": elu_slope,
    "gelu": gelu_slope,
}
for name, slope in SLOPES.items():
    define(name, slope)


@rule("add")
def add(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [d.sum_to(x) for x in xs]


@rule("sub")
def sub(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [d.sum_to(xs[0]), -d.sum_to(xs[1])]


@rule("mul")
def mul(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [(d * xs[1]).sum_to(xs[0]), (d * xs[0]).sum_to(xs[1])]


@rule("div")
def div(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    by_first = d / xs[1]
    return [by_first.sum_to(xs[0]), -(by_first * ys[0]).sum_to(xs[1])]


@rule("pow")
def power(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    """x^0 has the slope 0, also where x is 0; and 0^y that by y."""
    x, y = xs
    by_base = (y * x.op("pow", y - 1.0)).where(y.op("eq", 0.0).op("not"), 0.0)
    by_exponent = (ys[0] * x.op("log")).where(x.op("eq", 0.0).op("not"), 0.0)
    return [(d * by_base).sum_to(x), (d * by_exponent).sum_to(y)]


@rule("max", "min")
def extreme(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    """Equal operands share it."""
    tie = xs[0].op("eq", xs[1])
    each = (d * 0.5).where(tie, d)
    return [each.where(x.op("eq", ys[0]), 0.0).sum_to(x) for x in xs]


@rule("where")
def where(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    cond, a, b = xs
    return [None, d.where(cond, 0.0).sum_to(a), d.like(0.0).where(cond, d).sum_to(b)]


@rule("clip")
def clip(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    by_x = d.where(xs[0].op("eq", ys[0]), 0.0)
    return [by_x, *[None] * (len(xs) - 1)]


@rule("cast")
def cast(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    if not (attrs["to"].is_float and xs[0].v.dtype.is_float):
        return [None]
    return [d.op("cast", to=xs[0].v.dtype, mode="saturate")]


# --- contractions and reductions ----------------------------------------------------------------


@rule("matmul")
def matmul(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    """A vector is a matrix of one row, or of one column."""
    a, b = xs
    one = arith.Const(1)
    left = a.reshape((one, *a.v.shape)) if a.v.tensor.rank == 1 else a
    right = b.reshape((*b.v.shape, one)) if b.v.tensor.rank == 1 else b
    batch = broadcast(a, left.v.shape[:-2], right.v.shape[:-2])
    d = d.reshape((*batch, left.v.shape[-2], right.v.shape[-1]))
    by_left = d.op("matmul", right.swapped()).sum_to(left)
    by_right = left.swapped().op("matmul", d).sum_to(right)
    return [by_left.reshape(a.v.shape), by_right.reshape(b.v.shape)]


def spread(d: T, x: T, attrs: Attrs) -> T:
    """The derivative by a reduction's result, for each element of its operand."""
    axes = {axis % x.v.tensor.rank for axis in attrs["axes"]}
    kept = [arith.Const(1) if i in axes else size for i, size in enumerate(x.v.shape)]
    return d.reshape(kept).expand(x.v.shape)


@rule("reduce_sum")
def reduce_sum(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [spread(d, xs[0], attrs)]


@rule("reduce_mean")
def reduce_mean(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    (x,) = xs
    count = arith.product([x.v.shape[axis] for axis in attrs["axes"]])
    sizes = T(d.g, d.g.add("index_tensor", [], values=(d.g.simplified(count),), shape=()))
    return [spread(d / sizes.op("cast", to=d.v.dtype, mode="saturate"), x, attrs)]


@rule("reduce_max", "reduce_min")
def reduce_extreme(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    """Equal elements share it."""
    (x,) = xs
    hits = x.like(1.0).where(x.op("eq", spread(ys[0], x, attrs)), 0.0)
    return [hits / hits.sum(attrs["axes"]) * spread(d, x, attrs)]


@rule("softmax")
def softmax(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    weighted = d * ys[0]
    return [weighted - ys[0] * weighted.sum((attrs["axis"],))]


@rule("log_softmax")
def log_softmax(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [d - ys[0].op("exp") * d.sum((attrs["axis"],))]


# --- movement -----------------------------------------------------------------------------------


@rule("reshape")
def reshape(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [d.reshape(xs[0].v.shape)]


@rule("expand")
def expand(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    return [d.sum_to(xs[0])]


@rule("transpose")
def transpose(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    perm = attrs["perm"]
    return [d.op("transpose", perm=tuple(perm.index(i) for i in range(len(perm))))]


@rule("concat")
def concat(xs: Sequence[T], ys: Sequence[T], d: T, attrs: Attrs) -> Sequence[T | None]:
    rank = d.v.tensor.rank
    axis, start, made = attrs["axis"] % rank, arith.wrap(0), []
    for x in xs:
        starts = tuple(start if i == axis else arith.Const(0) for i in range(rank))
        made.append(d.op("slice", starts=starts, sizes=x.v.shape, steps=(1,) * rank))
        start = d.g.simplified(start + x.v.shape[axis])
    return made


# --- the walk back ------------------------------------------------------------------------------


def gradients(
    g: GraphBuilder, y: Value, xs: Sequence[Value], points: Sequence[Value], wanted: int
) -> list[Value]:
    """dy/dx for the first `wanted` of xs, where all xs have the values `points`."""
    # of its own name: what is also read elsewhere is not differentiated by there
    points = [g.add("identity", [point]) for point in points]
    before = len(g.nodes)
    made = replay(g, y, dict(zip((x.name for x in xs), points)))
    tape, y = g.nodes[before:], made.get(y.name, y)
    found: dict[str, T] = {y.name: T(g, _filled(g, 1, y))}
    needed = _reached(tape, {p.name for p in points[:wanted]})
    for node in reversed(tape):
        slopes = [found.get(v.name) for v in node.outputs]
        if slopes[0] is None or not any(v.name in needed for v in node.outputs):
            continue
        g.origin = node.origin
        operands = [T(g, v) for v in node.inputs if v is not None]
        results = [T(g, v) for v in node.outputs]
        parts = RULES[node.op](operands, results, slopes[0], node.attr_map)
        for operand, part in zip(operands, parts):
            if part is not None and operand.v.name in needed:
                known = found.get(operand.v.name)
                found[operand.v.name] = part if known is None else known + part
    zeros = [T(g, _filled(g, 0, p)) if p.name not in found else None for p in points[:wanted]]
    return [(zero or found[p.name]).v for zero, p in zip(zeros, points)]


def _filled(g: GraphBuilder, number: float, like: Value) -> Value:
    one = g.constant(np.array(number).astype(like.dtype.numpy))
    return g.add("fill", [one], shape=like.shape)


def _reached(tape: Sequence[Node], names: set[str]) -> set[str]:
    """The names, and those of all values on the tape that depend on them."""
    found = set(names)
    for node in tape:
        if any(v is not None and v.name in found for v in node.inputs):
            found |= {v.name for v in node.outputs}
    return found


def replay(g: GraphBuilder, y: Value, env: dict[str, Value]) -> Mapping[str, Value]:
    """Append the nodes between env's names and y again, on env's values. Out: all new values."""
    nodes = list(g.nodes)
    reached = _reached(nodes, set(env))
    used, between = {y.name}, []
    for node in reversed(nodes):
        if any(v.name in used and v.name in reached and v.name not in env for v in node.outputs):
            between.append(node)
            used |= {v.name for v in node.inputs if v is not None}
    _append(g, between, env)
    return env


def _append(g: GraphBuilder, todo: list[Node], env: dict[str, Value]) -> None:
    """Append the nodes, the last first. A composite operator without a rule becomes primitive ones,
    which are appended in its place, and an identity for each of its results."""
    saved = g.origin
    while todo:
        node = todo.pop()
        g.origin = node.origin
        operands = [None if v is None else env.get(v.name, v) for v in node.inputs]
        if node.op in RULES:
            made = g.add_all(node.op, operands, **node.attr_map)
            env.update(zip((v.name for v in node.outputs), made))
        elif node.op == "constant":
            g.nodes.append(node)
        else:
            todo += reversed(_decomposed(g, node, operands))
    g.origin = saved


def _decomposed(g: GraphBuilder, node: Node, operands: Sequence[Value | None]) -> list[Node]:
    definition = lookup(node.op)
    if not definition.has_decompose:
        what = f"the operator {node.op!r} has no derivative"
        hint = f"operators that have one: {', '.join(sorted(RULES))}"
        raise IngotError("unsupported-op", what, where=node.origin, hint=hint)
    start = len(g.nodes)
    made = definition.decompose(g, operands, [v.tensor for v in node.outputs], node.attr_map)
    smaller, g.nodes[start:] = g.nodes[start:], []
    pairs = zip(made, node.outputs)
    return [*smaller, *(Node("identity", (v,), (out,), (), node.origin) for v, out in pairs)]
