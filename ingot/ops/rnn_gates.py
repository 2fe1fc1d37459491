"""Gates of recurrent layers: activation functions by name, and graph-building helpers.

In: names of activations (those of the operators, where there is one); values. Out: a gate in numpy
and in operators. Called by rnn.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.types import Dim
from ingot.ops.common import is_narrow

# --- activations ----------------------------------------------------------------------------------

NumpyFunction = Callable[[np.ndarray, float, float], np.ndarray]
GraphFunction = Callable[[GraphBuilder, Value, float, float], Value]


@dataclass(frozen=True)
class Activation:
    """A gate's activation: default parameters, in numpy and in operators."""

    alpha: float
    beta: float
    numpy: NumpyFunction
    graph: GraphFunction


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _operator(op: str) -> GraphFunction:
    return lambda g, x, alpha, beta: g.add(op, [x])


def number(g: GraphBuilder, value: float, like: Value) -> Value:
    return g.constant(np.array(value, like.dtype.numpy))


def _affine(g: GraphBuilder, x: Value, alpha: float, beta: float) -> Value:
    return g.add("add", [g.add("mul", [x, number(g, alpha, x)]), number(g, beta, x)])


def _scaled_tanh(g: GraphBuilder, x: Value, alpha: float, beta: float) -> Value:
    inner = g.add("tanh", [g.add("mul", [x, number(g, beta, x)])])
    return g.add("mul", [inner, number(g, alpha, x)])


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(0, 0, lambda x, a, b: np.maximum(x, 0), _operator("relu")),
    "tanh": Activation(0, 0, lambda x, a, b: np.tanh(x), _operator("tanh")),
    "sigmoid": Activation(0, 0, lambda x, a, b: _sigmoid(x), _operator("sigmoid")),
    "affine": Activation(1, 0, lambda x, a, b: a * x + b, _affine),
    "scaled_tanh": Activation(1, 1, lambda x, a, b: a * np.tanh(b * x), _scaled_tanh),
    "leaky_relu": Activation(
        0.01, 0, lambda x, a, b: np.where(x < 0, a * x, x),
        lambda g, x, a, b: g.add("leaky_relu", [x], alpha=a),
    ),
    "thresholded_relu": Activation(
        1, 0, lambda x, a, b: np.where(x > a, x, 0 * x),
        lambda g, x, a, b: g.add("thresholded_relu", [x], alpha=a),
    ),
    "hard_sigmoid": Activation(
        0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1),
        lambda g, x, a, b: g.add("hard_sigmoid", [x], alpha=a, beta=b),
    ),
    "elu": Activation(
        1, 0, lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
        lambda g, x, a, b: g.add("elu", [x], alpha=a),
    ),
    "softsign": Activation(0, 0, lambda x, a, b: x / (1 + np.abs(x)), _operator("softsign")),
    "softplus": Activation(0, 0, lambda x, a, b: np.logaddexp(x, 0), _operator("softplus")),
}  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """An activation with its parameters, for one direction."""

    activation: Activation
    alpha: float
    beta: float
    clip: float | None

    def numpy(self, x: np.ndarray) -> np.ndarray:
        x = x if self.clip is None else np.clip(x, -self.clip, self.clip)
        return self.activation.numpy(x, self.alpha, self.beta).astype(x.dtype)

    def graph(self, g: GraphBuilder, x: Value) -> Value:
        if self.clip is not None:
            x = g.add("clip", [x, number(g, -self.clip, x), number(g, self.clip, x)])
        return self.activation.graph(g, x, self.alpha, self.beta)


def takes_alpha(name: str) -> bool:
    takers = ("affine", "scaled_tanh", "leaky_relu", "thresholded_relu", "hard_sigmoid", "elu")
    return name in takers


def takes_beta(name: str) -> bool:
    return name in ("affine", "scaled_tanh", "hard_sigmoid")


# --- graph-building helpers -----------------------------------------------------------------------


def cast(g: GraphBuilder, x: Value, dtype) -> Value:
    return x if x.dtype is dtype else g.add("cast", [x], to=dtype, mode="saturate")


def widen(g: GraphBuilder, x: Value) -> Value:
    return cast(g, x, dtypes.f32) if is_narrow(x.dtype) else x


def slice_axis(g: GraphBuilder, x: Value, axis: int, start, size) -> Value:
    """x[start : start + size] along one axis."""
    starts = tuple(start if i == axis else 0 for i in range(x.tensor.rank))
    sizes = tuple(arith.wrap(size) if i == axis else d for i, d in enumerate(x.shape))
    return g.add("slice", [x], starts=starts, sizes=sizes, steps=(1,) * x.tensor.rank)


def direction_of(g: GraphBuilder, x: Value, d: int) -> Value:
    own = x if arith.is_const(x.shape[0], 1) else slice_axis(g, x, 0, d, 1)
    return g.add("reshape", [own], shape=x.shape[1:])


def unsqueeze(g: GraphBuilder, x: Value, axis: int) -> Value:
    return g.add("reshape", [x], shape=(*x.shape[:axis], arith.Const(1), *x.shape[axis:]))


def concat(g: GraphBuilder, values: list[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else g.add("concat", values, axis=axis)


def reverse(g: GraphBuilder, x: Value, lens: Value | None) -> Value:
    """x reversed in time (axis 0), each sequence within its own length."""
    if lens is not None:
        return g.add("reverse_sequence", [x, lens], batch_axis=1, time_axis=0)
    rest = x.tensor.rank - 1
    starts = (x.shape[0] - 1, *(0,) * rest)
    return g.add("slice", [x], starts=starts, sizes=x.shape, steps=(-1, *(1,) * rest))


def split(g: GraphBuilder, x: Value, hidden: Dim, count: int) -> list[Value]:
    """The gates of a tensor that has them concatenated along its last axis."""
    axis = x.tensor.rank - 1
    return [slice_axis(g, x, axis, hidden * i, hidden) for i in range(count)]
