"""Random matmuls, convolutions and pools, with what fuses before and after them."""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from tests.fuzz.harness import Case
from tests.fuzz.pointwise import Rng, array, pick

AWKWARD = [1, 1, 2, 3, 5, 6, 7, 8, 11, 13, 16, 17, 23, 24, 31, 32, 33, 47, 48, 49, 64, 65, 97, 128]
SUMMED = {"f32": 3e-5, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}
KINDS = (dtypes.f32, dtypes.f32, dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.i8)


def _sizes(rng: Rng, work: int) -> tuple[int, int, int]:
    while True:
        m, n, k = (pick(rng, AWKWARD) for _ in range(3))
        if m * n * k <= work:
            return m, n, k


def _after(rng: Rng, g: GraphBuilder, y: Value, bias: Value | None) -> Value:
    """An epilogue that keeps the shape."""
    if bias is not None:
        y = g.add("add", [y, bias])
    for op in ("relu", "sigmoid", "neg"):
        if rng.random() < 0.25 and y.dtype.is_float:
            y = g.add(op, [y])
    return y


def matmul(rng: Rng) -> Case:
    m, n, k = _sizes(rng, 200_000)
    dtype = pick(rng, (*KINDS, dtypes.i64, dtypes.i32))
    batch = tuple(int(b) for b in rng.integers(1, 4, int(rng.integers(0, 3))))
    batch_b = tuple(1 if rng.random() < 0.4 else b for b in batch)
    batch_b = batch_b if rng.random() < 0.5 else ()
    a_shape, b_shape = (*batch, m, k), (*batch_b, k, n)
    if rng.random() < 0.1:
        a_shape = (k,)
    elif rng.random() < 0.1:
        b_shape = (k,)
    turn_a, turn_b, has_bias = (rng.random() < 0.25 for _ in range(3))
    arrays = [_stored(rng, a_shape, dtype, turn_a), _stored(rng, b_shape, dtype, turn_b)]
    seed = int(rng.integers(1 << 30))

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        a, b = _turned(g, v[0], turn_a), _turned(g, v[1], turn_b)
        y = g.add("matmul", [a, b])
        bias = _bias(g, y, n) if has_bias and len(b_shape) > 1 else None
        return [_after(np.random.default_rng(seed), g, y, bias)]

    label = f"matmul {dtype} {a_shape} {b_shape} turned {turn_a} {turn_b} seed {seed}"
    fixed = {1: (0 if turn_b and len(b_shape) > 1 else len(b_shape) - 1,)} if has_bias else {}
    return Case(label, arrays, build, fixed, SUMMED.get(dtype.name))


def _bias(g: GraphBuilder, y: Value, n: int) -> Value:
    return g.constant(np.linspace(-1, 1, n).astype(y.dtype.numpy))


def _stored(rng: Rng, shape: tuple[int, ...], dtype: DType, turned: bool) -> np.ndarray:
    if turned and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return array(rng, shape, dtype)


def _turned(g: GraphBuilder, x: Value, turned: bool) -> Value:
    rank = x.tensor.rank
    if not turned or rank < 2:
        return x
    return g.add("transpose", [x], perm=(*range(rank - 2), rank - 1, rank - 2))


def matmul_integer(rng: Rng) -> Case:
    m, n, k = _sizes(rng, 100_000)
    a, b = array(rng, (m, k), pick(rng, (dtypes.u8, dtypes.i8))), array(rng, (k, n), dtypes.i8)
    zeros = [array(rng, (), dtypes.of("u8" if a.dtype == np.uint8 else "i8"))]
    if rng.random() < 0.5:
        zeros.append(array(rng, pick(rng, ((), (n,))), dtypes.i8))
    arrays = [a, b, *zeros][: int(rng.integers(2, 5))]
    return Case(
        f"matmul_integer {m} {n} {k} of {len(arrays)}", arrays,
        lambda g, v: [g.add("matmul_integer", v)],
    )  # fmt: skip


def conv(rng: Rng) -> Case:
    """One to three dimensions; plain, grouped, depthwise and pointwise."""
    rank = pick(rng, (1, 2, 2, 2, 3))
    group = pick(rng, (1, 1, 2, 4))
    per_group = pick(rng, (1, 2, 3, 4, 8))
    out_per_group = pick(rng, (1, 2, 3, 5, 8, 16))
    if rng.random() < 0.3:
        group, per_group, out_per_group = pick(rng, (3, 8, 16, 33)), 1, pick(rng, (1, 1, 2))
    kernel = tuple(pick(rng, (1, 2, 3, 3, 5)) for _ in range(rank))
    strides = tuple(pick(rng, (1, 1, 2, 3)) for _ in range(rank))
    dilations = tuple(pick(rng, (1, 1, 2)) for _ in range(rank))
    pads = tuple(int(p) for p in rng.integers(0, 3, 2 * rank)) if rng.random() < 0.7 else None
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    most = {1: 120, 2: 22, 3: 7}[rank]
    space = tuple(n + int(rng.integers(0, most)) for n in least)
    dtype = pick(rng, (*KINDS[:-1], dtypes.f32))
    arrays = [
        array(rng, (int(rng.integers(1, 3)), group * per_group, *space), dtype),
        array(rng, (group * out_per_group, per_group, *kernel), dtype),
    ]
    if rng.random() < 0.5:
        arrays.append(array(rng, (group * out_per_group,), dtype))
    attrs = {"group": group, "strides": strides, "dilations": dilations}
    attrs |= {"pads": pads} if pads else {}
    seed = int(rng.integers(1 << 30))

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        y = g.add("conv", [*v, None][:3], **attrs)
        return [_after(np.random.default_rng(seed), g, y, None)]

    shapes = [a.shape for a in arrays]
    fixed = {0: (1,), 1: tuple(range(rank + 2)), 2: (0,)}
    fixed = {i: axes for i, axes in fixed.items() if i < len(arrays)}
    return Case(f"conv {dtype} {shapes} {attrs}", arrays, build, fixed, SUMMED.get(dtype.name))


def conv_transpose(rng: Rng) -> Case:
    rank, group = pick(rng, (1, 2, 2, 3)), pick(rng, (1, 1, 2))
    kernel = tuple(pick(rng, (1, 2, 3, 4)) for _ in range(rank))
    strides = tuple(pick(rng, (1, 2, 3)) for _ in range(rank))
    dilations = tuple(pick(rng, (1, 1, 2)) for _ in range(rank))
    space = tuple(int(n) for n in rng.integers(2, {1: 60, 2: 13, 3: 6}[rank], rank))
    pads = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    extra = tuple(int(rng.integers(0, s)) for s in strides)
    pads = tuple(min(p, (n - 1) * s) for p, n, s in zip(pads, (*space, *space), strides * 2))
    if any((n - 1) * s + k + e - lo - hi < 1 for n, s, k, e, lo, hi in
           zip(space, strides, kernel, extra, pads[:rank], pads[rank:])):  # fmt: skip
        pads = (0,) * (2 * rank)
    channels, out = group * pick(rng, (1, 3, 8)), pick(rng, (1, 2, 5))
    arrays = [
        array(rng, (int(rng.integers(1, 3)), channels, *space), dtypes.f32),
        array(rng, (channels, out, *kernel), dtypes.f32),
    ]
    attrs = {
        "group": group, "strides": strides, "dilations": dilations, "pads": pads,
        "output_padding": extra,
    }  # fmt: skip
    fixed = {0: (1,), 1: tuple(range(rank + 2))}
    return Case(
        f"conv_transpose {[a.shape for a in arrays]} {attrs}", arrays,
        lambda g, v: [g.add("conv_transpose", [*v, None], **attrs)], fixed, 3e-5,
    )  # fmt: skip


def pool(rng: Rng) -> Case:
    op, rank = pick(rng, ("max_pool", "avg_pool", "lp_pool")), pick(rng, (1, 2, 2, 3))
    kernel = tuple(pick(rng, (1, 2, 3, 5)) for _ in range(rank))
    strides = tuple(pick(rng, (1, 2, 3)) for _ in range(rank))
    dilations = tuple(pick(rng, (1, 1, 2)) for _ in range(rank))
    pads = tuple(int(rng.integers(0, max(1, k // 2 + 1))) for k in (*kernel, *kernel))
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    space = tuple(n + int(rng.integers(0, {1: 200, 2: 30, 3: 9}[rank])) for n in least)
    shape = (int(rng.integers(1, 3)), pick(rng, (1, 3, 8, 17)), *space)
    attrs: dict = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    attrs["ceil_mode"] = bool(rng.integers(2))
    if op == "avg_pool":
        attrs["count_include_pad"] = bool(rng.integers(2))
    dtype = pick(rng, (dtypes.f32, dtypes.f32, dtypes.f16, dtypes.f64))
    return Case(
        f"{op} {dtype} {shape} {attrs}", [array(rng, shape, dtype)],
        lambda g, v: g.add_all(op, v, **attrs), limit=SUMMED.get(dtype.name),
    )  # fmt: skip
