"""ONNX converters of the domain ai.onnx.preview.training: Adagrad, Adam, Momentum, Gradient.

In: ONNX nodes. Out: element-wise arithmetic; of Gradient, the derivatives of the nodes before it
(frontends/common/derivatives.py). Called by walker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot import dtypes
from ingot.frontends.common.derivatives import T, gradients
from ingot.frontends.common.elements import as_scalar, cast
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value

DOMAIN = "ai.onnx.preview.training"


def updated(
    ctx: Importer, node: OnnxNode, kinds: int, step: Callable[[T, T, list[T]], Sequence[T]]
) -> list[Value]:
    """`step` of R, T and the `kinds` tensors of each variable, which come kind by kind:
    X1, X2, G1, G2, …; and so do the results."""
    rate, time = (as_scalar(ctx, ctx.value(node, i)) for i in range(2))
    count, rest = divmod(len(node.inputs) - 2, kinds)
    if rest or not count:
        what = f"it has {len(node.inputs)} operands, not 2 and a multiple of {kinds}"
        raise bad_model(node, what)
    made = []
    for i in range(count):
        own = [T(ctx.g, ctx.value(node, 2 + i + kind * count)) for kind in range(kinds)]
        dtype = own[0].v.dtype
        made.append(step(T(ctx.g, cast(ctx, rate, dtype)), T(ctx.g, time), own))
    return [results[kind].v for kind in range(kinds - 1) for results in made]


def regularised(node: OnnxNode, x: T, g: T) -> T:
    factor = node.attr("norm_coefficient", 0.0)
    return x * factor + g if factor else g


@onnx_op("Adagrad", domain=DOMAIN)
def adagrad(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    decay, epsilon = node.attr("decay_factor", 0.0), node.attr("epsilon", 1e-6)

    def step(rate: T, time: T, own: list[T]) -> Sequence[T]:
        x, g, h = own
        count = T(ctx.g, cast(ctx, time.v, rate.v.dtype))
        slope = regularised(node, x, g)
        squares = h + slope * slope
        r = rate / (count * decay + 1.0)
        return [x - r * slope / (squares.op("sqrt") + epsilon), squares]

    return updated(ctx, node, 3, step)


@onnx_op("Adam", domain=DOMAIN)
def adam(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    epsilon, post = node.attr("epsilon", 1e-6), node.attr("norm_coefficient_post", 0.0)

    def corrected(rate: T, time: T) -> T:
        """The rate without the bias of the averages' first values, if the count T is above 0. In
        f64: 1 - beta^T is small."""
        wide, count = (T(ctx.g, cast(ctx, v.v, dtypes.f64)) for v in (rate, time))
        rest = [1.0 - count.like(base).op("pow", count) for base in (beta, alpha)]
        factor = wide * rest[0].op("sqrt") / rest[1]
        return T(ctx.g, cast(ctx, factor.where(time.op("gt", 0), wide).v, rate.v.dtype))

    def step(rate: T, time: T, own: list[T]) -> Sequence[T]:
        x, g, v, h = own
        slope = regularised(node, x, g)
        mean = v * alpha + slope * (1 - alpha)
        square = h * beta + slope * slope * (1 - beta)
        moved = x - corrected(rate, time) * (mean / (square.op("sqrt") + epsilon))
        return [moved * (1 - post) if post else moved, mean, square]

    return updated(ctx, node, 4, step)


@onnx_op("Momentum", domain=DOMAIN)
def momentum(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    alpha, beta, mode = node.attr("alpha"), node.attr("beta"), node.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise bad_model(node, f"mode {mode!r} is neither 'standard' nor 'nesterov'")

    def step(rate: T, time: T, own: list[T]) -> Sequence[T]:
        x, g, v = own
        slope = regularised(node, x, g)
        factor = x.like(beta).where(time.op("gt", 0), 1.0)
        speed = v * alpha + slope * factor
        return [x - rate * (slope + speed * alpha if mode == "nesterov" else speed), speed]

    return updated(ctx, node, 3, step)


@onnx_op("Gradient", domain=DOMAIN)
def gradient(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The derivatives of y by xs, where the tensors xs and zs have the values of the operands."""
    xs, zs, y = node.attr("xs") or [], node.attr("zs") or [], node.attr("y")
    if not xs or len(xs) + len(zs) != len(node.inputs):
        what = f"{len(xs)} xs and {len(zs)} zs are named, and {len(node.inputs)} operands given"
        raise bad_model(node, what)
    named = [ctx.named(node, name) for name in (*xs, *zs)]
    points = [ctx.value(node, i) for i in range(len(node.inputs))]
    for value, point in zip(named, points):
        if value.type != point.type:
            raise bad_model(node, f"{value.name!r} is {value.type}, its operand {point.type}")
    result = ctx.named(node, y)
    if not result.dtype.is_float or not all(v.dtype.is_float for v in points[: len(xs)]):
        raise bad_model(node, "only floats have derivatives")
    return list(gradients(ctx.g, result, named, points, len(xs)))
