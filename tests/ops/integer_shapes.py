"""The shapes of the micro-benchmarks as contractions of 8-bit integers, and their sums by numpy.

In: benchmarks/gemm.py, convs.py and int8.py, with the seed that their command line has. Out: for
each kind of a benchmark one graph with all its shapes, the feeds, and the exact results. Used for
code of this machine (test_micro_shapes.py) and of AArch64 (tests/aarch64).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper

from benchmarks import convs, gemm, int8
from benchmarks.micro.models import Case
from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from tests.ops.test_integer_products import convolved, full

SEED = 5  # the default of the benchmarks
SPREAD = {"conv": ("pads", "strides", "dilations", "group"),
          "conv_transpose": ("pads", "strides", "dilations", "group")}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """One contraction; `attrs` are those of the operator."""

    kind: str
    op: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def products(self) -> int:
        """Multiplications, without those by padding."""
        if self.op == "matmul":
            return math.prod(self.x) * self.w[1]
        strides = self.attrs["strides"] if self.op == "conv" else [1] * len(self.x[2:])
        points = math.prod(-(-n // s) for n, s in zip(self.x[2:], strides))
        return points * math.prod(self.w)

    def want(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        if self.op == "matmul":
            return exact(x @ w)
        if self.op == "conv":
            return exact(convolved(x, w, self.attrs))
        return exact(convolved(*as_conv(x, w, self.attrs)))


def exact(sums: np.ndarray) -> np.ndarray:
    """Sums of integers in f64, which has all integers below 2^53; those of i32 are i32."""
    assert np.abs(sums).max() < 1 << 31
    return sums.astype(np.int32)


def as_conv(
    x: np.ndarray, w: np.ndarray, attrs: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """A transposed convolution of one group as a convolution: zeros between the elements, and the
    window turned round."""
    rank, strides = x.ndim - 2, attrs["strides"]
    wide = np.zeros((*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides))))
    wide[(..., *(slice(None, None, s) for s in strides))] = x
    turned = np.flip(w.swapaxes(0, 1), tuple(range(2, w.ndim)))
    pads = [k - 1 - p for k, p in zip([*w.shape[2:]] * 2, attrs["pads"])]
    return wide, turned, {**attrs, "strides": [1] * rank, "pads": pads}


def of_benchmark(case: Case) -> Shape:
    """A MatMul, Conv or ConvTranspose of benchmarks/gemm.py and convs.py."""
    if "a" in case.inputs:
        return Shape(f"gemm {case.kind}", "matmul", case.inputs["a"], case.inputs["b"])
    (node,) = case.nodes
    op = "conv" if node.op_type == "Conv" else "conv_transpose"
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attrs = {name: given[name] for name in SPREAD[op]}
    return Shape(f"conv {case.kind}", op, case.inputs["x"], case.weights["w"], attrs)


def of_int8(shape: int8.Shape) -> Shape:
    if shape.rows:
        return Shape("int8", "matmul", (shape.rows, shape.depth), (shape.depth, shape.columns))
    pads, strides = [shape.taps // 2] * 4, [shape.stride] * 2
    attrs = {"pads": pads, "strides": strides, "dilations": [1, 1], "group": 1}
    window = (shape.columns, shape.depth, shape.taps, shape.taps)
    return Shape("int8", "conv", (1, shape.depth, shape.size, shape.size), window, attrs)


def shapes() -> Iterator[Shape]:
    for make in (gemm.cases, convs.cases):
        yield from map(of_benchmark, make(np.random.default_rng(SEED)))
    yield from map(of_int8, int8.SHAPES)


SHAPES = tuple(shapes())
NAMES = tuple(dict.fromkeys(shape.kind for shape in SHAPES))


@dataclass
class Suite:
    """Shapes in one graph; x is u8 or i8, w a constant."""

    graph: Graph
    store: ConstantStore
    feeds: dict[str, np.ndarray]
    wants: dict[str, np.ndarray]


def suite(chosen: Sequence[Shape], kinds: tuple[type, type]) -> Suite:
    store = ConstantStore()
    g, r = GraphBuilder("shapes", store), np.random.default_rng(SEED)
    made, outputs = Suite(g.finish([]), store, {}, {}), []
    for number, shape in enumerate(chosen):
        x, w = full(r, kinds[0], *shape.x), full(r, kinds[1], *shape.w)
        given = g.input(f"x{number}", tensor(dtypes.from_numpy(x.dtype), *shape.x))
        attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in shape.attrs.items()}
        y = g.add(shape.op, [given, g.constant(w)], **attrs)
        outputs.append(y)
        made.feeds[given.name] = x
        made.wants[y.name] = shape.want(x.astype(np.float64), w.astype(np.float64))
    made.graph = g.finish(outputs)
    return made
