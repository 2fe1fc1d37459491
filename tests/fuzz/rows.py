"""Random reductions, softmaxes, normalisations, ordered operators, indexing and quantisation."""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from tests.fuzz.harness import Case
from tests.fuzz.pointwise import BIG, INTS, Rng, array, pick, shape_of

SUMS = (
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l1", "reduce_l2",
    "reduce_sum_square", "reduce_log_sum_exp", "reduce_prod",
)  # fmt: skip
WIDE = {"f32": 3e-5, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}  # sums of many


def reduce(rng: Rng) -> Case:
    """Over any set of axes, with a formula before and after."""
    op = pick(rng, SUMS)
    floats = (dtypes.f32, dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16)
    kinds = floats if op in ("reduce_l2", "reduce_log_sum_exp", "reduce_mean") else (
        *floats, dtypes.i32, dtypes.i64,
    )  # fmt: skip
    dtype = pick(rng, kinds)
    shape = shape_of(rng, int(rng.integers(1, 5)), 100_000)
    axes = tuple(i for i in range(len(shape)) if rng.random() < 0.5) or (len(shape) - 1,)
    keep, before, after = (bool(rng.integers(2)) for _ in range(3))
    x = array(rng, shape, dtype)
    if op == "reduce_prod":
        x = np.sign(x.astype(np.float64)).astype(dtype.numpy)
    scale = np.array(1 if op == "reduce_prod" else 2).astype(dtype.numpy)

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        y = g.add("mul", [v[0], g.constant(scale)]) if before else v[0]
        y = g.add(op, [y], axes=axes, keepdims=keep)
        return [g.add("abs", [y])] if after else [y]

    label = f"{op} {dtype} {shape} axes {axes} keep {keep} around {before}{after}"
    return Case(label, [x], build, limit=WIDE.get(dtype.name))


def softmax(rng: Rng) -> Case:
    dtype = pick(rng, (dtypes.f32, dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16))
    shape = shape_of(rng, int(rng.integers(1, 5)), BIG)
    axis, op = int(rng.integers(len(shape))), pick(rng, ("softmax", "log_softmax"))
    x = array(rng, shape, dtype)
    if rng.random() < 0.3:
        x[rng.random(shape) < 0.5] = -np.inf
    return Case(f"{op} {dtype} {shape} axis {axis}", [x], lambda g, v: [g.add(op, v, axis=axis)])


def masked_softmax(rng: Rng) -> Case:
    """softmax(x · scale + mask), as attention has it."""
    shape = shape_of(rng, 3, BIG)
    mask = np.where(rng.random(shape[1:]) < 0.3, -np.inf, 0.0).astype(np.float32)
    scale = np.float32(0.125).reshape(())

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        scaled = g.add("mul", [v[0], g.constant(scale)])
        return [g.add("softmax", [g.add("add", [scaled, v[1]])], axis=-1)]

    return Case(f"masked softmax {shape}", [array(rng, shape, dtypes.f32), mask], build)


def norm(rng: Rng) -> Case:
    dtype = pick(rng, (dtypes.f32, dtypes.f32, dtypes.f16, dtypes.f64))
    op = pick(rng, ("layer_norm", "rms_norm"))
    shape = shape_of(rng, int(rng.integers(2, 5)), BIG)
    axis = int(rng.integers(1, len(shape)))
    tail = shape[axis:]
    count = int(rng.integers(1, 3 if op == "rms_norm" else 4))
    arrays = [array(rng, shape, dtype), *(array(rng, tail, dtype) for _ in range(2))][:count]
    return Case(
        f"{op} {dtype} {shape} axis {axis} of {count}", arrays,
        lambda g, v: [g.add(op, v, axis=axis, epsilon=1e-5)],
    )  # fmt: skip


def channel_norm(rng: Rng) -> Case:
    op = pick(rng, ("instance_norm", "group_norm", "batch_norm", "lrn"))
    channels = pick(rng, (4, 6, 8, 12, 32))
    shape = (int(rng.integers(1, 4)), channels, *shape_of(rng, int(rng.integers(1, 3)), 1500))
    x = array(rng, shape, dtypes.f32)
    per_channel = [array(rng, (channels,), dtypes.f32) for _ in range(3)]
    variance = np.abs(array(rng, (channels,), dtypes.f32)) + 0.5
    attrs: dict = {"epsilon": 1e-5}
    arrays = [x, *per_channel[:2]]
    if op == "group_norm":
        attrs["groups"] = 2
    elif op == "batch_norm":
        arrays = [x, *per_channel, variance]
    elif op == "lrn":
        arrays, attrs = [x], {"size": 3, "alpha": 1e-2, "beta": 0.75, "bias": 1.0}
    fixed = {i: (1,) if i == 0 else (0,) for i in range(len(arrays))}
    return Case(f"{op} {shape}", arrays, lambda g, v: [g.add(op, v, **attrs)], fixed, limit=3e-5)


def ordered(rng: Rng) -> Case:
    """argmax, argmin, cumsum, topk."""
    dtype = pick(rng, (dtypes.f32, dtypes.f16, dtypes.i32, dtypes.i64, dtypes.f64))
    shape = shape_of(rng, int(rng.integers(1, 4)), 20_000)
    axis = int(rng.integers(len(shape)))
    x = array(rng, shape, dtype)
    op = pick(rng, ("argmax", "argmin", "cumsum", "topk"))
    if op == "cumsum":
        attrs = {"axis": axis, "exclusive": bool(rng.integers(2)), "reverse": bool(rng.integers(2))}
    elif op == "topk":
        attrs = {
            "axis": axis, "k": int(rng.integers(1, shape[axis] + 1)),
            "largest": bool(rng.integers(2)),
        }  # fmt: skip
    else:
        attrs = {
            "axis": axis, "keepdims": bool(rng.integers(2)), "select_last": bool(rng.integers(2)),
        }  # fmt: skip
        x = np.round(x.astype(np.float64)).astype(dtype.numpy)  # ties
    fixed = {0: (axis,)} if op == "topk" else {}
    return Case(
        f"{op} {dtype} {shape} {attrs}", [x], lambda g, v: g.add_all(op, v, **attrs), fixed,
        limit=WIDE.get(dtype.name),
    )  # fmt: skip


def indexed(rng: Rng) -> Case:
    """Gathers and scatters whose indices are inputs."""
    dtype = pick(rng, (dtypes.f32, dtypes.f16, dtypes.i64, dtypes.i8))
    shape = shape_of(rng, int(rng.integers(1, 4)), 10_000)
    axis, x = int(rng.integers(len(shape))), array(rng, shape, dtype)
    op = pick(rng, ("gather", "gather_elements", "gather_nd", "scatter_nd", "scatter_elements"))
    attrs: dict = {"axis": axis}
    fixed: dict = {}
    if op == "gather":
        places = rng.integers(-shape[axis], shape[axis], shape_of(rng, int(rng.integers(0, 3)), 80))
        arrays = [x, places]
    elif op in ("gather_elements", "scatter_elements"):
        rows = [int(rng.integers(1, n + 1)) for n in shape]
        places = rng.integers(-shape[axis], shape[axis], rows)
        arrays = [x, places]
        if op == "scatter_elements":
            attrs["reduction"] = pick(rng, ("add", "max", "min"))
            arrays.append(array(rng, tuple(rows), dtype))
    else:
        depth = int(rng.integers(1, len(shape) + 1))
        lead = shape_of(rng, int(rng.integers(1, 3)), 200)
        columns = [rng.integers(-n, n, lead) for n in shape[:depth]]
        arrays, attrs = [x, np.stack(columns, -1)], {}
        fixed = {1: (len(lead),)}
        if op == "scatter_nd":
            attrs = {"reduction": pick(rng, ("add", "max", "min"))}
            arrays.append(array(rng, (*lead, *shape[depth:]), dtype))
    arrays[1] = np.asarray(arrays[1], np.int64)
    return Case(
        f"{op} {dtype} {[a.shape for a in arrays]} {attrs}", arrays,
        lambda g, v: [g.add(op, v, **attrs)], fixed, may_resize=False,
    )  # fmt: skip


def quantised(rng: Rng) -> Case:
    """Quantise and back, by tensor or by channel."""
    to = pick(rng, (dtypes.i8, dtypes.u8, dtypes.i16, dtypes.u16))
    shape = shape_of(rng, int(rng.integers(2, 5)), 20_000)
    axis = int(rng.integers(len(shape)))
    per = (shape[axis],) if rng.random() < 0.6 else ()
    scale = (rng.random(per) * 0.1 + 0.01).astype(np.float32)
    zero = array(rng, per, to)

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        small = g.add("quantize_linear", v, axis=axis, dtype=to)
        return [small, g.add("dequantize_linear", [small, *v[1:]], axis=axis)]

    return Case(
        f"quantise {to} {shape} axis {axis}", [array(rng, shape, dtypes.f32), scale, zero], build
    )


def find(rng: Rng) -> Case:
    """nonzero, and what it finds gathered: a size only the run knows."""
    shape = shape_of(rng, 2, 5000)
    dtype = pick(rng, (dtypes.f32, dtypes.bool_, *INTS))
    x = (rng.random(shape) < pick(rng, (0.0, 0.1, 0.9))).astype(dtype.numpy)

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        points = g.add("nonzero", v, symbols=(g.symbol("found", high=x.size),))
        return [points, g.add("gather_nd", [v[0], g.add("transpose", [points], perm=(1, 0))])]

    return Case(f"nonzero {dtype} {shape}", [x], build, may_resize=False)
