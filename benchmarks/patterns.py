"""Memory-bound operators in f32, versus ONNX Runtime and torch:  python benchmarks/patterns.py

Softmax, layer-norm, depthwise convolutions with their activation, transposes, reductions, chains of
element-wise operators. torch runs eagerly, one operator at a time. Sizes come from a seed that is
printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is run by its path

from benchmarks.convs import IMPLEMENTATIONS
from benchmarks.micro import command
from benchmarks.micro.models import Case, node

EACH = 4  # cases of every kind
PERMUTATIONS = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3))


def cases(random: np.random.Generator) -> list[Case]:
    makers = (softmax, layer_norm, depthwise, transpose, reduction, chain, gelu)
    return [maker(random) for maker in makers for _ in range(EACH)]


def _rows(r: np.random.Generator) -> tuple[int, int]:
    return int(r.integers(64, 2048)), int(r.choice((64, 77, 128, 197, 384, 512, 768, 1000, 1024)))


def _named(kind: str, nodes: tuple, *shape: int, about: str = "", **weights: tuple) -> Case:
    name = f"{kind} {'x'.join(map(str, shape))}{about}"
    return Case(name, kind, nodes, {"x": shape}, weights)


def softmax(r: np.random.Generator) -> Case:
    return _named("softmax", (node("Softmax", "x", axis=-1),), *_rows(r))


def layer_norm(r: np.random.Generator) -> Case:
    rows, width = _rows(r)
    made = node("LayerNormalization", "xwb", axis=-1, epsilon=1e-5)
    return _named("layer-norm", (made,), rows, width, w=(width,), b=(width,))


def depthwise(r: np.random.Generator) -> Case:
    """A depthwise convolution and its activation."""
    channels, side, taps = int(r.choice((32, 96, 144, 192, 384))), int(r.integers(14, 113)), 3
    stride = int(r.choice((1, 2)))
    attrs = {"kernel_shape": [taps] * 2, "strides": [stride] * 2, "dilations": [1, 1],
             "group": channels, "pads": [taps // 2] * 4}  # fmt: skip
    nodes = (node("Conv", "xwb", "c", **attrs), node("Relu", "c"))
    return _named("depthwise", nodes, 1, channels, side, side, about=f" s{stride}",
                  w=(channels, 1, taps, taps), b=(channels,))  # fmt: skip


def transpose(r: np.random.Generator) -> Case:
    perm = PERMUTATIONS[int(r.integers(len(PERMUTATIONS)))]
    shape = (int(r.choice((1, 8))), int(r.integers(8, 65)), int(r.integers(16, 129)),
             int(r.choice((32, 64, 77, 96))))  # fmt: skip
    about = f" by {''.join(map(str, perm))}"
    return _named("transpose", (node("Transpose", "x", perm=perm),), *shape, about=about)


def reduction(r: np.random.Generator) -> Case:
    """Mean or maximum along rows or along columns."""
    op, axes = (("ReduceMean", [1]), ("ReduceMax", [0]), ("ReduceMean", [0]), ("ReduceMax", [1]))[
        int(r.integers(4))
    ]
    made = node(op, "x", axes=axes, keepdims=0)
    return _named("reduction", (made,), *_rows(r), about=f" {op} {axes[0]}")


def chain(r: np.random.Generator) -> Case:
    """(x · scale + shift) through a SiLU gate, plus x: one pass over memory if it is fused."""
    rows, width = _rows(r)
    nodes = (node("Mul", "xs", "a"), node("Add", "at", "b"), node("Sigmoid", "b", "c"),
             node("Mul", "bc", "d"), node("Add", "dx"))  # fmt: skip
    return _named("chain", nodes, rows, width, s=(width,), t=(width,))


def gelu(r: np.random.Generator) -> Case:
    """GELU as primitive operators, as exporters write it."""
    nodes = (node("Div", "xr", "a"), node("Erf", "a", "b"), node("Add", "bo", "c"),
             node("Mul", "xc", "d"), node("Mul", "dh"))  # fmt: skip
    return _named("gelu", nodes, *_rows(r), r=(), o=(), h=())


if __name__ == "__main__":
    command.main("patterns", cases, IMPLEMENTATIONS)
