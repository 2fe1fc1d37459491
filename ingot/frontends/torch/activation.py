"""Converters of activation functions.

In: a float tensor, and numbers. Out: nodes of ops/activation.py where one has the formula, else
formulas. Called by the importer. relu and sigmoid are in elementwise.py.
"""

from __future__ import annotations

from typing import Any

from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import axis_of, cast
from ingot.frontends.torch.random import draws_of
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term, formula, where
from ingot.graph.ir import Value

# operator → Ingot's, {attribute: its value}
SAME: dict[str, tuple[str, dict[str, Any]]] = {
    "silu": ("silu", {}), "mish": ("mish", {}), "hardswish": ("hard_swish", {}),
    "hardsigmoid": ("hard_sigmoid", {"alpha": 1 / 6, "beta": 0.5}), "selu": ("selu", {}),
}  # fmt: skip


def same(op: str, attrs: dict[str, Any]) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value) -> Value:
        return ctx.g.add(op, [x], **attrs)

    return convert


for name, (op, attrs) in SAME.items():
    aten(f"aten.{name}.default")(same(op, attrs))


@aten("aten.gelu.default")
def gelu(ctx: Importer, node: TorchNode, x: Value, approximate: str = "none") -> Value:
    return ctx.g.add("gelu", [x], approximate=approximate)


@aten("aten.leaky_relu.default")
def leaky_relu(ctx: Importer, node: TorchNode, x: Value, slope: float = 0.01) -> Value:
    return ctx.g.add("leaky_relu", [x], alpha=float(slope))


@aten("aten.celu.default")
def celu(ctx: Importer, node: TorchNode, x: Value, alpha: float = 1.0) -> Value:
    return ctx.g.add("celu", [x], alpha=float(alpha))


@aten("aten.elu.default")
def elu(
    ctx: Importer, node: TorchNode, x: Value, alpha: float = 1, scale: float = 1,
    input_scale: float = 1,
) -> Value:  # fmt: skip
    if scale == 1 and input_scale == 1:
        return ctx.g.add("elu", [x], alpha=float(alpha))
    if input_scale == 1:
        return ctx.g.add("selu", [x], alpha=float(alpha), gamma=float(scale))
    return scaled_elu(ctx, node, x, alpha, scale, input_scale)


def scaled_elu(
    ctx: Importer, node: TorchNode, x: Value, alpha: float, scale: float, input_scale: float
) -> Value:
    term = Term(ctx, x)
    low = (term * input_scale).op("expm1") * (alpha * scale)
    return cast(ctx, where(term < 0, low, term * scale).value, node.output.dtype)


@formula("aten.softplus.default")
def softplus(x: Term, beta: float = 1, threshold: float = 20) -> Term:
    if beta == 1:
        return where(x > threshold, x, x.op("softplus"))
    scaled = x * beta
    return where(scaled > threshold, x, scaled.op("softplus") / beta)


@formula("aten.softshrink.default")
def softshrink(x: Term, size: float = 0.5) -> Term:
    return where(x > size, x - size, where(x < -size, x + size, x * 0))


@formula("aten.hardshrink.default")
def hardshrink(x: Term, size: float = 0.5) -> Term:
    return where((x >= -size) & (x <= size), x * 0, x)


@formula("aten.threshold.default")
def threshold(x: Term, limit: float, value: float) -> Term:
    return where(x <= limit, x.lifted(value), x)


def log_sigmoid_of(x: Term) -> Term:
    """min(x, 0) - log(1 + exp(-|x|))"""
    return x.op("min", 0) - (-abs(x)).op("exp").op("log1p")


formula("aten.log_sigmoid.default")(log_sigmoid_of)


@aten("aten.log_sigmoid_forward.default")
def log_sigmoid_forward(ctx: Importer, node: TorchNode, x: Value) -> tuple[Value, None]:
    wide = cast(ctx, x, node.output.dtype)
    return cast(ctx, log_sigmoid_of(Term(ctx, wide)).value, node.output.dtype), None


@aten("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(ctx: Importer, node: TorchNode, x: Value, slope: Value) -> Value:
    """One slope, or one for each channel, which is axis 1."""
    if slope.tensor.rank == 1 and x.tensor.rank != 1:
        shape = (slope.shape[0], *(1,) * (x.tensor.rank - 2))
        slope = reshape(ctx, slope, shape if x.tensor.rank > 1 else ())
    return ctx.g.add("prelu", [x, slope])


@aten("aten.glu.default")
def glu(ctx: Importer, node: TorchNode, x: Value, dim: int = -1) -> Value:
    """The first half of an axis times the sigmoid of the second."""
    axis = axis_of(dim, x.tensor.rank)
    half = node.output.shape
    starts: list[Any] = [0] * x.tensor.rank
    halves = []
    for start in (0, half[axis]):
        starts[axis] = start
        attrs: Any = {"starts": tuple(starts), "sizes": half, "steps": (1,) * x.tensor.rank}
        halves.append(ctx.g.add("slice", [x], **attrs))
    return ctx.g.add("mul", [halves[0], ctx.g.add("sigmoid", [halves[1]])])


@aten("aten.rrelu.default")
def rrelu(
    ctx: Importer, node: TorchNode, x: Value, lower: float = 0.125, upper: float = 1 / 3,
    training: bool = False, generator: Any = None,
) -> Value:  # fmt: skip
    """Slopes are random while training, else their mean."""
    if not training:
        return ctx.g.add("leaky_relu", [x], alpha=(lower + upper) / 2)
    draws = draws_of(ctx, x.dtype)
    wide = Term(ctx, cast(ctx, x, draws.wide))
    slope = Term(ctx, draws.uniform(x.shape)) * (upper - lower) + lower
    return cast(ctx, where(wide <= 0, wide * slope, wide).value, x.dtype)
