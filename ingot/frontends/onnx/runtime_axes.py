"""Axes that a model computes at run time: sizes that depend on them, as symbols bound by the run.

In: a tensor and its axes as a value, i64[k]. Out: the tensor under a shape in which the axes are
static, so that no operator needs axes at run time:

    reduce      (a, b, c)  →  (kept_0, reduced_0, kept_1, reduced_1, …): of each pair one is 1
    cumsum      (a, b, c)  →  (sizes before the axis, the axis, sizes behind it)
    unsqueeze   (a, b)     →  the sizes with ones among them

A reshape checks when running that the sizes fit. Called by converters of operators whose axes are
an operand, where it is not constant.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import HasBuilder, cast, scalar
from ingot.frontends.onnx.registry import Importer
from ingot.graph.ir import Value

OUT_OF_RANGE = "an axis is out of range"


def bound_sizes(ctx: HasBuilder, sizes: Value) -> tuple[arith.Expr, ...]:
    """The elements of an i64 vector as symbols, known when it has been computed."""
    count = arith.as_int(sizes.tensor.numel) or 0
    symbols = tuple(ctx.g.symbol("d") for _ in range(count))
    ctx.g.add("bind", [sizes], symbols=symbols)
    return tuple(arith.Var(name) for name in symbols)


def sizes_of(ctx: Importer, x: Value) -> Value:
    return ctx.g.add("index_tensor", [], values=x.shape, shape=(x.tensor.rank,))


class RuntimeAxes:
    """Axes of a tensor of so many axes; `mask` is 1 where an axis is among them, i64[rank]."""

    def __init__(self, ctx: Importer, axes: Value, rank: int):
        self.ctx, self.g, self.rank = ctx, ctx.g, rank
        self.axes = self._not_negative(cast(ctx, axes, dtypes.i64))
        positions = self.g.constant(np.arange(rank, dtype=np.int64).reshape(rank, 1))
        is_named = self.g.add("eq", [self.axes, positions])
        named = self.g.add("reduce_max", [is_named], axes=(1,), keepdims=False)
        self.mask = cast(ctx, named, dtypes.i64)

    def _not_negative(self, axes: Value) -> Value:
        """Counted from the front; one out of range fails the run."""
        g = self.g
        axes = g.add("reshape", [axes], shape=(axes.tensor.numel,))
        lowest, end = (scalar(self.ctx, n, dtypes.i64) for n in (-self.rank, self.rank))
        inside = g.add("and", [g.add("ge", [axes, lowest]), g.add("lt", [axes, end])])
        flag = g.add("reduce_min", [inside], axes=(0,), keepdims=False)
        axes = g.add("require", [axes, flag], expected=True, reason=OUT_OF_RANGE)
        is_negative = g.add("lt", [axes, scalar(self.ctx, 0, dtypes.i64)])
        return g.add("where", [is_negative, g.add("add", [axes, end]), axes])

    def bound(self, sizes: Value) -> tuple[arith.Expr, ...]:
        return bound_sizes(self.ctx, sizes)

    def sizes_of(self, x: Value) -> Value:
        return sizes_of(self.ctx, x)

    def spread(self, values: Value, elsewhere: Value) -> Value:
        """One element for each axis of the tensor: that of a named axis, or the one `elsewhere`."""
        positions = self.g.constant(np.arange(self.rank, dtype=np.int64).reshape(self.rank, 1))
        here = cast(self.ctx, self.g.add("eq", [self.axes, positions]), dtypes.i64)
        given = self.g.add("mul", [here, cast(self.ctx, values, dtypes.i64)])
        found = self.g.add("reduce_sum", [given], axes=(1,), keepdims=False)
        return self.choose(found, elsewhere)

    def choose(self, where_named: Value, elsewhere: Value) -> Value:
        is_other = self.g.add("eq", [self.mask, scalar(self.ctx, 0, dtypes.i64)])
        return self.g.add("where", [is_other, elsewhere, where_named])

    def number_of_others(self) -> Value:
        """Of each axis, how many axes up to it are not named: their new positions, from 1 on."""
        others = self.g.add("sub", [scalar(self.ctx, 1, dtypes.i64), self.mask])
        return self.g.add("cumsum", [others], axis=0, exclusive=False, reverse=False)


def split_pairs(ctx: Importer, x: Value, axes: RuntimeAxes) -> Value:
    """x as (kept_0, reduced_0, kept_1, …): a named axis is the second of its pair, any other the
    first; the rest are ones."""
    g, one = ctx.g, scalar(ctx, 1, dtypes.i64)
    sizes = axes.sizes_of(x)
    kept = axes.bound(axes.choose(one, sizes))
    named = axes.bound(axes.choose(sizes, one))
    return g.add("reshape", [x], shape=tuple(n for pair in zip(kept, named) for n in pair))


def without_named(ctx: Importer, x: Value, axes: RuntimeAxes, count: int) -> Value:
    """x without the named axes, which have size 1: `count` axes are left."""
    g = ctx.g
    positions = g.constant(np.arange(1, count + 1, dtype=np.int64).reshape(count, 1))
    is_here = g.add("eq", [axes.number_of_others(), positions])  # also at named axes behind it
    is_other = g.add("eq", [axes.mask, scalar(ctx, 0, dtypes.i64)])
    here = cast(ctx, g.add("and", [is_here, is_other]), dtypes.i64)
    found = g.add("mul", [here, axes.sizes_of(x)])
    sizes = g.add("reduce_sum", [found], axes=(1,), keepdims=False)
    return g.add("reshape", [x], shape=axes.bound(sizes) if count else ())


def with_named(ctx: Importer, x: Value, axes: RuntimeAxes) -> Value:
    """x with an axis of size 1 at each named position of the result."""
    g, one = ctx.g, scalar(ctx, 1, dtypes.i64)
    if not x.tensor.rank:
        return g.add("reshape", [x], shape=(1,) * axes.rank)
    last = scalar(ctx, x.tensor.rank - 1, dtypes.i64)
    position = g.add("sub", [axes.number_of_others(), one])
    inside = g.add("clip", [position, scalar(ctx, 0, dtypes.i64), last])
    sizes = g.add("gather", [axes.sizes_of(x), inside], axis=0)
    return g.add("reshape", [x], shape=axes.bound(axes.choose(one, sizes)))


def around_axis(ctx: Importer, x: Value, axis: Value) -> Value:
    """x as (sizes before the axis, the axis, sizes behind it)."""
    g, one = ctx.g, scalar(ctx, 1, dtypes.i64)
    axes = RuntimeAxes(ctx, axis, x.tensor.rank)
    sizes = axes.sizes_of(x)
    passed = g.add("cumsum", [axes.mask], axis=0, exclusive=False, reverse=False)
    is_before = g.add("eq", [passed, scalar(ctx, 0, dtypes.i64)])
    behind = axes.choose(one, g.add("where", [is_before, one, sizes]))
    parts = [g.add("where", [is_before, sizes, one]), axes.choose(sizes, one), behind]
    products = [g.add("reduce_prod", [part], axes=(0,), keepdims=True) for part in parts]
    return g.add("reshape", [x], shape=axes.bound(g.add("concat", products, axis=0)))
