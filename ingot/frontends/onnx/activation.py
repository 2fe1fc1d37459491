"""ONNX converters of the activations, and of those in ONNX Runtime's com.microsoft domain.

In: ONNX nodes. Out: nodes of ops/activation.py. Called by walker. Relu, Sigmoid and Tanh are in
elementwise.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, scalar
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.activation import SELU_ALPHA, SELU_GAMMA

MICROSOFT = "com.microsoft"

# ONNX name → operator, {attribute: its default}
TABLE: dict[str, tuple[str, dict[str, float | str]]] = {
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}),
    "Celu": ("celu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}),
    "Softplus": ("softplus", {}),
    "Softsign": ("softsign", {}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
    "Gelu": ("gelu", {"approximate": "none"}),
    "Mish": ("mish", {}),
}


def converter(op: str, defaults: dict[str, float | str]) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        attrs = {name: node.attr(name, default) for name, default in defaults.items()}
        return [ctx.g.add(op, [ctx.value(node, 0)], **attrs)]

    return convert


for name, (op, defaults) in TABLE.items():
    onnx_op(name)(converter(op, defaults))
onnx_op("Selu", since=6)(converter("selu", {"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}))
onnx_op("Selu")(converter("selu", {"alpha": 1.6732, "gamma": 1.0507}))
onnx_op("Gelu", domain=MICROSOFT)(converter("gelu", {}))


@onnx_op("PRelu")
def prelu_per_channel(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Before opset 7 the slope is a scalar or one value for each channel (axis 1)."""
    x, slope = ctx.value(node, 0), ctx.value(node, 1)
    if slope.tensor.rank == 1 and x.tensor.rank > 1 and not arith.is_const(slope.shape[0], 1):
        slope = reshape(ctx, slope, (*slope.shape, *[1] * (x.tensor.rank - 2)))
    return [ctx.g.add("prelu", [x, slope])]


@onnx_op("PRelu", since=7)
def prelu(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("prelu", [ctx.value(node, 0), ctx.value(node, 1)])]


@onnx_op("Swish")
def swish(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [scaled_silu(ctx, ctx.value(node, 0), node.attr("alpha", 1.0))]


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [scaled_silu(ctx, ctx.value(node, 0), node.attr("alpha", 1.702))]


def scaled_silu(ctx: Importer, x: Value, alpha: float) -> Value:
    """x · sigmoid(alpha · x)."""
    if alpha == 1:
        return ctx.g.add("silu", [x])
    inner = ctx.g.add("mul", [x, scalar(ctx, alpha, x.dtype)])
    return ctx.g.add("mul", [x, ctx.g.add("sigmoid", [inner])])


@onnx_op("BiasGelu", "FastGelu", domain=MICROSOFT)
def bias_gelu(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, bias = ctx.value(node, 0), ctx.optional(node, 1)
    biased = x if bias is None else ctx.g.add("add", [x, bias])
    approximate = "tanh" if node.op == "FastGelu" else "none"
    return [ctx.g.add("gelu", [biased], approximate=approximate)]
