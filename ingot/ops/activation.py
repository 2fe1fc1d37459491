"""Activation functions: element-wise operators with scalar attributes.

In: a float tensor (prelu: also slopes that broadcast). Out: rows of `graph.opdef.TABLE`. Called by
ops/__init__.py; imported from ONNX by frontends/onnx/activation.py. relu, sigmoid and tanh are in
elementwise.py.
"""

from __future__ import annotations

import math

import numpy as np

from ingot.graph.opdef import Sample
from ingot.loops import ir
from ingot.loops.ir import Expr
from ingot.ops import common
from ingot.ops.elementwise import erf_array, lit, precise, sigmoid_array
from ingot.ops.pointwise import Row, define

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # ONNX's defaults


def is_negative(x: Expr) -> Expr:
    """x < 0: false for NaN, so that a select on it returns x for NaN."""
    return ir.Compare("lt", x, lit(0, x))


def expm1(x: Expr) -> Expr:
    return ir.Math("expm1", (x,))


def sigmoid(x: Expr) -> Expr:
    return ir.Math("sigmoid", (x,))


def tanh(x: Expr) -> Expr:
    return ir.Math("tanh", (x,))


def clamp(x: Expr, low: float, high: float) -> Expr:
    return ir.Binary("min", ir.Binary("max", x, lit(low, x)), lit(high, x))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), in the form that does not overflow for large x."""
    tail = ir.Math("log1p", (ir.Math("exp", (-ir.Unary("abs", x),)),))
    return ir.Binary("max", x, lit(0, x)) + tail


def softplus_array(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def leaky_relu_array(x: np.ndarray, slope: np.ndarray | float) -> np.ndarray:
    return np.where(x < 0, slope * x, x)


def elu_array(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(x), x)


def elu_value(x: Expr, alpha: float) -> Expr:
    return ir.Select(is_negative(x), expm1(x) * alpha, x)


def celu_array(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


def celu_value(x: Expr, alpha: float) -> Expr:
    zero = lit(0, x)
    return ir.Binary("max", x, zero) + ir.Binary("min", expm1(x / alpha) * alpha, zero)


def hard_sigmoid_array(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return np.clip(alpha * x + beta, 0, 1)


def hard_sigmoid_value(x: Expr, alpha: float, beta: float) -> Expr:
    return clamp(x * alpha + beta, 0, 1)


def gelu_array(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf_array(x / math.sqrt(2)))


def gelu_value(x: Expr, approximate: str) -> Expr:
    if approximate == "tanh":  # (1 + tanh u) / 2 = sigmoid 2u: fewer operations, less rounding
        return x * sigmoid((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi)))
    return x * 0.5 * (ir.Math("erf", (x * math.sqrt(0.5),)) + 1)


def _slopes() -> list[Sample]:
    x = common.floats(2, 3, 4)
    shapes: list[tuple[int, ...]] = [(3, 1), (1, 3, 1), (1,), ()]
    return [Sample((x, common.floats(*shape, key="slope"))) for shape in shapes]


def _with(**attrs: float | str) -> list[Sample]:
    """Samples with attributes other than the defaults."""
    return [Sample((common.edge_floats(),), attrs), Sample((common.floats(3, 5),), attrs)]


ROWS = [
    Row(
        "leaky_relu", precise(lambda x, alpha: leaky_relu_array(x, alpha)),
        lambda x, alpha: ir.Select(is_negative(x), x * alpha, x),
        attrs={"alpha": 0.01}, cheap=True, more=lambda: _with(alpha=-1.5),
    ),
    Row("elu", precise(elu_array), elu_value, attrs={"alpha": 1.0}, more=lambda: _with(alpha=0.3)),
    Row(
        "selu", precise(lambda x, alpha, gamma: gamma * elu_array(x, alpha)),
        lambda x, alpha, gamma: elu_value(x, alpha) * gamma,
        attrs={"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}, more=lambda: _with(alpha=2.0, gamma=3.0),
    ),
    Row(
        "celu", precise(celu_array), celu_value,
        attrs={"alpha": 1.0}, more=lambda: _with(alpha=2.0),
    ),
    Row(
        "hard_sigmoid", precise(hard_sigmoid_array), hard_sigmoid_value,
        attrs={"alpha": 0.2, "beta": 0.5}, cheap=True, more=lambda: _with(alpha=0.5, beta=0.6),
    ),
    Row(
        "hard_swish", precise(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
        lambda x: x * clamp(x * (1 / 6) + 0.5, 0, 1), cheap=True,
    ),
    Row("softplus", precise(softplus_array), softplus),
    Row("softsign", precise(lambda x: x / (1 + np.abs(x))), lambda x: x / (ir.Unary("abs", x) + 1)),
    Row(
        "thresholded_relu", lambda x, alpha: np.where(x > alpha, x, 0),
        lambda x, alpha: ir.Select(ir.Compare("gt", x, lit(alpha, x)), x, lit(0, x)),
        attrs={"alpha": 1.0}, cheap=True, more=lambda: _with(alpha=0.25),
    ),
    Row(
        "prelu", leaky_relu_array, lambda x, slope: ir.Select(is_negative(x), x * slope, x),
        "number", 2, cheap=True, more=_slopes,
    ),
    Row(
        "gelu", precise(gelu_array), gelu_value,
        attrs={"approximate": "none"}, more=lambda: _with(approximate="tanh"),
    ),
    Row("silu", precise(lambda x: x * sigmoid_array(x)), lambda x: x * sigmoid(x)),
    Row(
        "mish", precise(lambda x: x * np.tanh(softplus_array(x))),
        lambda x: x * tanh(softplus(x)),
    ),
]  # fmt: skip

define(ROWS)
