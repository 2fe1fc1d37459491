"""Random graphs of mixed operators: shared values, several results, fusion, control flow, and sizes
known only when running.

Operators that jump (argmax, floor, comparisons) read only values that every order of evaluation
gives exactly; `bits` says how many bits of a float such a value needs, and a value not in it is
not exact. Values are kept near 1, so that one tolerance fits all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.support.errors import IngotError
from tests.fuzz import flow, pointwise
from tests.fuzz.harness import Case
from tests.fuzz.pointwise import Rng, pick

EXACT_BITS = 20
BATCH, FEATURES = (1, 2, 3, 5, 6), (4, 8, 9, 12, 16, 20, 33)
LIMIT = 2e-4


class World:
    """A graph under construction and the f32 values so far."""

    def __init__(self, rng: Rng, g: GraphBuilder, inputs: list[Value]):
        self.rng, self.g = rng, g
        self.pool = list(inputs)
        self.bits = {v.name: 4 for v in inputs}
        self.others: list[Value] = []  # of other element types, for outputs

    def any(self) -> Value:
        """A value; later ones more often."""
        recent = self.pool[-4:]
        return pick(self.rng, recent if self.rng.random() < 0.6 else self.pool)

    def exact(self) -> Value:
        return pick(self.rng, [v for v in self.pool if v.name in self.bits])

    def add(self, value: Value, bits: int | None = None) -> None:
        if _elements(value) > 60_000 or value.tensor.rank > 5:
            return
        self.pool.append(value)
        if bits is not None and bits <= EXACT_BITS:
            self.bits[value.name] = bits

    def bits_of(self, *values: Value) -> list[int] | None:
        found = [self.bits.get(v.name) for v in values]
        return None if None in found else found  # type: ignore[return-value]


def _elements(value: Value) -> int:
    return int(np.prod([arith.as_int(d) or 6 for d in value.shape]))


def _number(w: World, low: float, high: float) -> Value:
    return w.g.constant(np.float32(w.rng.uniform(low, high)).reshape(()))


# --- steps --------------------------------------------------------------------------------------


def unary(w: World) -> None:
    x = w.any()
    if w.rng.random() < 0.5:
        w.add(w.g.add(pick(w.rng, ("neg", "abs", "relu")), [x]), w.bits.get(x.name))
    else:
        ops = ("tanh", "sigmoid", "erf", "sin", "gelu", "silu", "softplus", "softsign", "atan")
        w.add(w.g.add(pick(w.rng, ops), [x]))


def binary(w: World) -> None:
    x, y = w.any(), w.any()
    op = pick(w.rng, ("add", "sub", "mul", "min", "max"))
    try:
        z = w.g.add(op, [x, y])
    except IngotError:  # sizes that do not fit
        z = w.g.add(op, [x, x])
        y = x
    bits = w.bits_of(x, y)
    w.add(z, None if bits is None else sum(bits) if op == "mul" else max(bits) + 1)


def move(w: World) -> None:
    x = w.any()
    if x.tensor.rank:
        w.add(pick(w.rng, pointwise.MOVES)(w.rng, w.g, x), w.bits.get(x.name))


def split_axis(w: World) -> None:
    """One axis as two."""
    x = w.any()
    for axis, size in enumerate(x.shape):
        number = arith.as_int(size)
        if number is not None and number % 4 == 0 and number > 4:
            shape = (*x.shape[:axis], 4, number // 4, *x.shape[axis + 1 :])
            w.add(w.g.add("reshape", [x], shape=shape), w.bits.get(x.name))
            return


def reduce(w: World) -> None:
    x = w.any()
    rank = x.tensor.rank
    if not rank or _is_empty(x):
        return
    axes = tuple(i for i in range(rank) if w.rng.random() < 0.4) or (rank - 1,)
    op = pick(w.rng, ("reduce_max", "reduce_min", "reduce_mean", "reduce_sum"))
    keep = bool(w.rng.random() < 0.7)
    y = w.g.add(op, [x], axes=axes, keepdims=keep)
    if op == "reduce_sum":
        y = w.g.add("tanh", [y])
    w.add(y, w.bits.get(x.name) if op in ("reduce_max", "reduce_min") else None)


def _is_empty(x: Value) -> bool:
    return any(arith.as_int(d) == 0 for d in x.shape)


def rows(w: World) -> None:
    x = w.any()
    rank = x.tensor.rank
    if not rank:
        return
    op = pick(w.rng, ("softmax", "log_softmax", "layer_norm", "rms_norm"))
    if op in ("softmax", "log_softmax"):
        w.add(w.g.add(op, [x], axis=int(w.rng.integers(rank))))
    else:
        w.add(w.g.add(op, [x], axis=rank - 1, epsilon=1e-1))


def project(w: World) -> None:
    """x @ weights, often with a bias and an activation after it."""
    x = w.any()
    size = arith.as_int(x.shape[-1]) if x.tensor.rank else None
    if not size:
        return
    n = pick(w.rng, FEATURES)
    weights = (w.rng.standard_normal((size, n)) / np.sqrt(size)).astype(np.float32)
    y = w.g.add("matmul", [x, w.g.constant(weights)])
    if w.rng.random() < 0.5:
        y = w.g.add("add", [y, w.g.constant(w.rng.standard_normal(n).astype(np.float32))])
    w.add(y)
    if w.rng.random() < 0.5:
        w.add(w.g.add(pick(w.rng, ("relu", "gelu", "tanh")), [y]))


def square(w: World) -> None:
    """x @ x transposed, scaled: scores."""
    x = w.any()
    rank = x.tensor.rank
    if rank < 2 or _elements(x) > 4000:
        return
    turned = w.g.add("transpose", [x], perm=(*range(rank - 2), rank - 1, rank - 2))
    w.add(w.g.add("tanh", [w.g.add("mul", [w.g.add("matmul", [x, turned]), _number(w, 0.1, 0.3)])]))


def convolve(w: World) -> None:
    x = w.any()
    channels = arith.as_int(x.shape[1]) if x.tensor.rank in (3, 4) else None
    if not channels or _elements(x) > 20_000:
        return
    space = x.tensor.rank - 2
    depthwise = w.rng.random() < 0.4
    out = channels if depthwise else pick(w.rng, (1, 3, 8))
    shape = (out, 1 if depthwise else channels, *(3,) * space)
    weights = (w.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    attrs = {"pads": (1,) * (2 * space), "strides": (pick(w.rng, (1, 2)),) * space}
    group = channels if depthwise else 1
    y = w.g.add("conv", [x, w.g.constant(weights), None], group=group, **attrs)
    w.add(w.g.add("relu", [y]) if w.rng.random() < 0.5 else y)


def pool(w: World) -> None:
    x = w.any()
    if x.tensor.rank not in (3, 4) or any(d.value < 3 for d in x.shape[2:] if _is_number(d)):
        return
    if not all(map(_is_number, x.shape[2:])):
        return
    space = x.tensor.rank - 2
    op = pick(w.rng, ("max_pool", "avg_pool"))
    attrs = {"kernel": (3,) * space, "strides": (2,) * space, "pads": (1,) * (2 * space)}
    first, *_ = w.g.add_all(op, [x], **attrs)
    w.add(first, w.bits.get(x.name) if op == "max_pool" else None)


def _is_number(d: arith.Expr) -> bool:
    return isinstance(d, arith.Const)


def choose(w: World) -> None:
    """where(a < b, x, y), the condition from exact values."""
    a, b = w.exact(), w.exact()
    try:
        test = w.g.add(pick(w.rng, ("lt", "gt", "le", "eq")), [a, b])
        if w.rng.random() < 0.3:
            test = w.g.add("not", [test])
        x, y = w.any(), w.any()
        z = w.g.add("where", [test, x, y])
    except IngotError:
        return
    bits = w.bits_of(x, y)
    w.others.append(test)
    w.add(z, max(bits) if bits else None)


def jump(w: World) -> None:
    """Operators whose answer jumps, on exact values."""
    x = w.exact()
    if not x.tensor.rank or _is_empty(x):
        return
    axis = int(w.rng.integers(x.tensor.rank))
    op = pick(w.rng, ("floor", "round", "sign", "argmax", "cast", "cumsum", "topk"))
    match op:
        case "argmax":
            places = w.g.add("argmax", [x], axis=axis, keepdims=True)
            w.others.append(places)
            w.add(w.g.add("sin", [w.g.add("cast", [places], to=dtypes.f32)]))
        case "cast":
            to = pick(w.rng, (dtypes.i32, dtypes.i64, dtypes.i8, dtypes.f16, dtypes.bf16))
            small = w.g.add("cast", [w.g.add("floor", [x])], to=to)
            w.others.append(small)
            if to.is_int and w.rng.random() < 0.5:
                small = w.g.add("add", [small, small])
            w.add(w.g.add("tanh", [w.g.add("cast", [small], to=dtypes.f32)]))
        case "cumsum":
            w.add(w.g.add("tanh", [w.g.add("cumsum", [x], axis=axis)]))
        case "topk":
            size = arith.as_int(x.shape[axis])
            if size:
                k = int(w.rng.integers(1, size + 1))
                values, places = w.g.add_all("topk", [x], axis=axis, k=k, largest=True)
                w.others.append(places)
                w.add(values, w.bits[x.name])
        case _:
            w.add(w.g.add(op, [x]), w.bits[x.name])


def found(w: World) -> None:
    """The rows of x where something holds: a size of the run's own."""
    x = w.exact()
    if x.tensor.rank < 2 or _is_empty(x):
        return
    others = tuple(range(1, x.tensor.rank))
    peak = w.g.add("reduce_max", [x], axes=others, keepdims=False)
    test = w.g.add("gt", [peak, _number(w, 0.3, 1.3)])
    name = w.g.symbol("found")
    points = w.g.add("nonzero", [test], symbols=(name,))
    places = w.g.add("reshape", [points], shape=(arith.Var(name),))
    w.others.append(places)
    kept = w.g.add("gather", [x, places], axis=0)
    w.add(kept, w.bits[x.name])


def branch(w: World) -> None:
    """if(max(a) > c): f(x) else g(x)"""
    a, x = w.exact(), w.any()
    if a.tensor.rank and not _is_empty(a):
        w.add(flow.choice(w.rng, w.g, a, x))


def repeat(w: World) -> None:
    """A loop that carries x and collects a row each turn."""
    x = w.any()
    if _elements(x) > 3000:
        return
    last, collected = flow.loop(w.rng, w.g, x)
    w.add(last)
    if x.tensor.rank < 4:
        w.add(collected)


STEPS: list[Callable[[World], None]] = [
    unary, unary, binary, binary, binary, move, move, move, split_axis, reduce, reduce, rows,
    project, project, square, convolve, pool, choose, jump, jump, found, branch, repeat,
]  # fmt: skip


def graph_case(rng: Rng) -> Case:
    """Ten or so steps from two or three inputs; a few of the values are the outputs."""
    batch = pick(rng, BATCH)
    arrays = []
    for _ in range(int(rng.integers(2, 4))):
        rank = int(rng.integers(0, 4))
        shape = (batch, *(pick(rng, FEATURES) for _ in range(rank)))
        if np.prod(shape) > 20_000:
            shape = shape[:3]
        arrays.append((rng.integers(-8, 9, shape) / 4).astype(np.float32))
    seed, steps = int(rng.integers(1 << 30)), int(rng.integers(4, 14))

    def build(g: GraphBuilder, values: list[Value]) -> list[Value]:
        w = World(np.random.default_rng(seed), g, values)
        for _ in range(steps):
            pick(w.rng, STEPS)(w)
        made = [*w.pool[len(values) :], *w.others]
        chosen = [pick(w.rng, made) for _ in range(int(w.rng.integers(1, 4)))] if made else []
        last = w.pool[-1]
        return list({v.name: v for v in (*chosen, last)}.values())

    label = f"graph seed {seed} of {steps} steps"
    known = {i: tuple(range(1, a.ndim)) for i, a in enumerate(arrays)}
    return Case(label, arrays, build, known, LIMIT)
