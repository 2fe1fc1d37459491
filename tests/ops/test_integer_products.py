"""Integer products at random shapes: QLinearConv, QLinearMatMul, ConvInteger, MatMulInteger and
QGemm by each target's instructions, bit for bit what unoptimised ONNX Runtime gives, and numpy in
int64.

Sizes are around those of tiles and of dot products (4 terms, 16 lanes): one less, one more, one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot
from tests.models.test_targets import runs_here

onnxruntime.set_default_logger_severity(4)
TARGETS = ("x86-64-v4+avx512vnni", "x86-64-v3", "x86-64-v2")
KINDS = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)]
MANY = 40  # seeds of each operator, target and pair of types
Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """`want`: int64 sums by numpy, where the operator gives sums. `composed`: the same in operators
    that ONNX Runtime has for these types."""

    op: str
    inputs: tuple[np.ndarray, ...]  # the first one is given to each run, the others are constants
    attrs: dict[str, Any] = field(default_factory=dict)
    want: np.ndarray | None = None
    domain: str = ""

    def model(self) -> onnx.ModelProto:
        names = [f"i{k}" for k in range(len(self.inputs))]
        x, *others = self.inputs
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        graph = helper.make_graph(
            [helper.make_node(self.op, names, ["y"], "n", domain=self.domain, **self.attrs)],
            "products",
            [helper.make_tensor_value_info("i0", kind, x.shape)],
            [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(a, n) for a, n in zip(others, names[1:])],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def full(r: Rng, dtype: type, *shape: int) -> np.ndarray:
    """All values of the type; often its ends, where 16-bit sums of products overflow."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    ends = r.choice([low, high], shape)
    return np.where(r.random(shape) < 0.3, ends, r.integers(low, high + 1, shape)).astype(dtype)


def size(r: Rng, *choices: int) -> int:
    return int(r.choice(choices))


def zero_of(r: Rng, dtype: type, count: int | None = None) -> np.ndarray:
    """A zero point; often one that needs no correction."""
    plain = 128 if dtype is np.uint8 and r.random() < 0.3 else 0
    if r.random() < 0.3:
        return np.full(() if count is None else count, plain, dtype)
    return full(r, dtype, *(() if count is None else (count,)))


def scale_of(r: Rng, count: int | None = None) -> np.ndarray:
    return r.uniform(0.001, 0.02, () if count is None else count).astype(np.float32)


def matmul_shapes(r: Rng) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rows, depth = size(r, 1, 2, 5, 13, 16, 33), size(r, 1, 3, 4, 5, 63, 64, 65, 130)
    columns = size(r, 1, 7, 15, 16, 17, 48, 49, 95)
    batch = (size(r, 1, 2, 3),) if r.random() < 0.3 else ()
    return (*batch, rows, depth), (depth, columns)


def matmul_integer(r: Rng, kinds: tuple[type, type]) -> Case:
    (x_kind, w_kind), (x_shape, w_shape) = kinds, matmul_shapes(r)
    x, w = full(r, x_kind, *x_shape), full(r, w_kind, *w_shape)
    xz, wz = zero_of(r, x_kind), zero_of(r, w_kind, w_shape[1] if r.random() < 0.5 else None)
    want = (x.astype(np.int64) - xz) @ (w.astype(np.int64) - wz)
    return Case("MatMulInteger", (x, w, xz, wz), {}, want)


def qlinear_matmul(r: Rng, kinds: tuple[type, type]) -> Case:
    (x_kind, w_kind), (x_shape, w_shape) = kinds, matmul_shapes(r)
    columns = w_shape[1] if r.random() < 0.5 and w_kind is np.int8 else None
    wz = np.zeros(() if columns is None else columns, w_kind) if columns else zero_of(r, w_kind)
    inputs = (
        full(r, x_kind, *x_shape), scale_of(r), zero_of(r, x_kind), full(r, w_kind, *w_shape),
        scale_of(r, columns), wz, scale_of(r) * np.float32(9), zero_of(r, x_kind),
    )  # fmt: skip
    return Case("QLinearMatMul", inputs)


def conv_shapes(r: Rng) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    kind = r.choice(["plain", "point", "depthwise", "grouped"])
    channels = size(r, 1, 3, 4, 16, 17, 24) if kind != "grouped" else size(r, 8, 12)
    group = {"depthwise": channels, "grouped": 4}.get(str(kind), 1)
    out = channels * size(r, 1, 1, 2) if kind == "depthwise" else group * size(r, 1, 4, 5, 8)
    kernel = (1, 1) if kind == "point" else (size(r, 1, 3), size(r, 2, 3, 5))
    height, width = size(r, 5, 7, 9, 16), size(r, 5, 8, 11)
    pads = [int(r.integers(0, k)) for k in (*kernel, *kernel)]
    strides = [size(r, 1, 1, 2), size(r, 1, 1, 2)]
    dilations = [size(r, 1, 1, 2) if k < 3 else 1 for k in kernel]
    attrs = {"group": group, "pads": pads, "strides": strides, "dilations": dilations}
    images = size(r, 1, 1, 2)
    return (images, channels, height, width), (out, channels // group, *kernel), attrs


def conv_integer(r: Rng, kinds: tuple[type, type]) -> Case:
    (x_kind, w_kind), (x_shape, w_shape, attrs) = kinds, conv_shapes(r)
    x, w = full(r, x_kind, *x_shape), full(r, w_kind, *w_shape)
    xz, wz = zero_of(r, x_kind), zero_of(r, w_kind)
    want = convolved(x.astype(np.int64) - xz, w.astype(np.int64) - wz, attrs)
    return Case("ConvInteger", (x, w, xz, wz), attrs, want)


def convolved(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """A convolution of any rank, in the type of x: a sum over the taps of the window."""
    rank, group, (out, each, *window) = x.ndim - 2, attrs["group"], w.shape
    pads, strides, dilations = (attrs[k] for k in ("pads", "strides", "dilations"))
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    dims = list(zip(x.shape[2:], window, strides, dilations))
    sizes = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in dims]
    weights = w.reshape(group, out // group, each, *window)
    y = np.zeros((x.shape[0], group, out // group, math.prod(sizes)), x.dtype)
    for tap in np.ndindex(*window):
        starts = [t * d for t, d in zip(tap, dilations)]
        box = [slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, strides, sizes)]
        maps = x[(..., *box)].reshape(x.shape[0], group, each, -1)
        y += weights[(..., *tap)] @ maps
    return y.reshape(x.shape[0], out, *sizes)


def qlinear_conv(r: Rng, kinds: tuple[type, type]) -> Case:
    (x_kind, w_kind), (x_shape, w_shape, attrs) = kinds, conv_shapes(r)
    columns = w_shape[0] if r.random() < 0.5 else None
    wz = np.zeros(() if columns is None else columns, w_kind)
    inputs = [
        full(r, x_kind, *x_shape), scale_of(r), zero_of(r, x_kind), full(r, w_kind, *w_shape),
        scale_of(r, columns), wz, scale_of(r) * np.float32(9), zero_of(r, x_kind),
    ]  # fmt: skip
    if r.random() < 0.6:
        inputs.append(r.integers(-90_000, 90_000, w_shape[0]).astype(np.int32))
    return Case("QLinearConv", tuple(inputs), attrs)


def qgemm(r: Rng, kinds: tuple[type, type]) -> Case:
    x_kind, w_kind = kinds
    x_shape, w_shape = matmul_shapes(r)
    rows, depth, columns = x_shape[-2], *w_shape
    trans_a, trans_b = (int(v) for v in r.integers(0, 2, 2))
    x = full(r, x_kind, *((depth, rows) if trans_a else (rows, depth)))
    w = full(r, w_kind, *((columns, depth) if trans_b else (depth, columns)))
    inputs = [x, scale_of(r), zero_of(r, x_kind), w, scale_of(r), zero_of(r, w_kind)]
    inputs.append(r.integers(-90_000, 90_000, columns).astype(np.int32))
    if r.random() < 0.6:
        inputs += [scale_of(r) * np.float32(9), zero_of(r, x_kind)]
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": 1.0}
    return Case("QGemm", tuple(inputs), attrs, domain="com.microsoft")


MAKERS: list[Callable[[Rng, tuple[type, type]], Case]] = [
    matmul_integer, qlinear_matmul, conv_integer, qlinear_conv, qgemm,
]  # fmt: skip


def expected(case: Case) -> np.ndarray | None:
    """ONNX Runtime's answer; None where it has no kernel for these types."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(case.model().SerializeToString(), options)
        return session.run(None, {"i0": case.inputs[0]})[0]
    except Exception as error:
        assert any(word in str(error) for word in ("NOT_IMPLEMENTED", "INVALID_GRAPH")), error
        return None


def check(case: Case, target: str) -> None:
    reference = expected(case)
    assert reference is not None or case.want is not None or case.op in ("QLinearConv", "QGemm")
    exe = ingot.compile(case.model(), target=target, threads=2)
    got = exe.run(None, {"i0": case.inputs[0]})[0]
    if case.want is not None:
        np.testing.assert_array_equal(got, case.want, strict=False)
    if reference is not None:
        assert got.dtype == reference.dtype
        np.testing.assert_array_equal(got, reference)


WAYS = [  # all of them are in test_many_products
    *((make, TARGETS[0], KINDS[number % 3]) for number, make in enumerate(MAKERS)),
    *((make, TARGETS[1], KINDS[0]) for make in MAKERS),
]


def name_of(value: Any) -> str | None:
    if isinstance(value, tuple):
        return "x".join(kind.__name__ for kind in value)
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("make", "target", "kinds"), WAYS, ids=name_of)
def test_products(make: Callable, target: str, kinds: tuple[type, type]) -> None:
    """Each operator, target and pair of types has a seed of its own."""
    seed = 100 * MAKERS.index(make) + 10 * TARGETS.index(target) + KINDS.index(kinds)
    run(make, target, kinds, [seed])


@pytest.mark.long
@pytest.mark.parametrize("kinds", KINDS, ids=name_of)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", MAKERS, ids=name_of)
def test_many_products(make: Callable, target: str, kinds: tuple[type, type]) -> None:
    run(make, target, kinds, list(range(1000, 1000 + MANY)))


def run(make: Callable, target: str, kinds: tuple[type, type], seeds: list[int]) -> None:
    if not runs_here(target):
        pytest.skip(f"no {target} here")
    for seed in seeds:
        check(make(np.random.default_rng(seed), kinds), target)
