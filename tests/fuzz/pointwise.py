"""Random elementwise chains, casts and moves, of sizes that fill vectors and leave tails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from tests.fuzz.harness import Case

Rng = np.random.Generator
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 100, 127, 128]
BIG = 40_000  # elements of the largest array

FLOATS = (dtypes.f32, dtypes.f32, dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16)
INTS = (dtypes.i8, dtypes.u8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.u32, dtypes.u64)


def pick(rng: Rng, items):
    return items[int(rng.integers(len(items)))]


def shape_of(rng: Rng, rank: int, limit: int = BIG) -> tuple[int, ...]:
    """Awkward sizes, as large as `limit` elements allow."""
    while True:
        shape = tuple(pick(rng, SIZES) for _ in range(rank))
        if np.prod(shape) <= limit:
            return shape


def array(rng: Rng, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    low, high = max(int(dtype.lowest), -100), min(int(dtype.highest), 100)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)


def narrowed(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`: some sizes 1, some leading axes gone."""
    if rng.random() < 0.5:
        return shape
    cut = int(rng.integers(0, len(shape) + 1)) if rng.random() < 0.5 else 0
    return tuple(1 if rng.random() < 0.3 else n for n in shape[cut:])


# --- chains -------------------------------------------------------------------------------------

Step = Callable[[Rng, GraphBuilder, Value, Value], Value]


def _binary(*names: str) -> Step:
    return lambda rng, g, x, y: g.add(pick(rng, names), [x, y])


def _unary(*names: str) -> Step:
    return lambda rng, g, x, y: g.add(pick(rng, names), [x])


def _choose(rng: Rng, g: GraphBuilder, x: Value, y: Value) -> Value:
    test = g.add(pick(rng, ("lt", "le", "gt", "ge", "eq")), [x, y])
    return g.add("where", [test, x, y])


def _divide(rng: Rng, g: GraphBuilder, x: Value, y: Value) -> Value:
    one = g.constant(np.ones((), y.dtype.numpy))
    return g.add("div", [x, g.add("add", [g.add("abs", [y]), one])])


def _divide_ints(rng: Rng, g: GraphBuilder, x: Value, y: Value) -> Value:
    one = g.constant(np.ones((), y.dtype.numpy))
    return g.add(pick(rng, ("div", "mod")), [x, g.add("or", [y, one])])


def _clip(rng: Rng, g: GraphBuilder, x: Value, y: Value) -> Value:
    low = g.constant(np.array(0, x.dtype.numpy)) if rng.random() < 0.7 else None
    high = g.constant(np.array(1, x.dtype.numpy)) if rng.random() < 0.7 else None
    return g.add("clip", [x, low, high])


def _square_root(rng: Rng, g: GraphBuilder, x: Value, y: Value) -> Value:
    return g.add("sqrt", [g.add("abs", [x])])


FLOAT_STEPS: list[Step] = [
    _binary("add", "sub", "mul", "min", "max"),
    _binary("add", "mul"),
    _unary("relu", "neg", "abs", "tanh", "sigmoid", "erf"),
    _unary("floor", "ceil", "round", "sign", "sin", "cos", "atan", "softplus", "softsign"),
    _unary("gelu", "silu", "mish", "hard_swish", "asinh"),
    _choose, _divide, _clip, _square_root,
]  # fmt: skip
INT_STEPS: list[Step] = [
    _binary("add", "sub", "mul", "min", "max", "and", "or", "xor"),
    _unary("neg", "abs", "sign", "bitwise_not", "relu"),
    _choose, _divide_ints, _clip,
]  # fmt: skip
BOOL_STEPS: list[Step] = [_binary("and", "or", "xor", "eq"), _unary("not"), _binary("and", "xor")]
UNSIGNED_STEPS = [s for s in INT_STEPS if s is not INT_STEPS[1]]


def steps_for(dtype: DType) -> list[Step]:
    if dtype.is_bool:
        return BOOL_STEPS
    if dtype.is_float:
        return FLOAT_STEPS
    return INT_STEPS if dtype.is_signed else UNSIGNED_STEPS


def chain(rng: Rng) -> Case:
    """A few arrays that broadcast together, a few operators, one or two results."""
    dtype = pick(rng, (*FLOATS, *INTS, dtypes.bool_))
    shape = shape_of(rng, int(rng.integers(1, 5)))
    arrays = [array(rng, shape, dtype)]
    arrays += [array(rng, narrowed(rng, shape), dtype) for _ in range(int(rng.integers(1, 4)))]
    seed = int(rng.integers(1 << 30))

    def build(g: GraphBuilder, values: list[Value]) -> list[Value]:
        again = np.random.default_rng(seed)
        last = values[0]
        made = list(values)
        for _ in range(int(again.integers(2, 8))):
            last = pick(again, steps_for(dtype))(again, g, last, pick(again, made))
            if last.dtype is dtype:
                made.append(last)
        return [last]

    return Case(f"chain {dtype} {shape} seed {seed}", arrays, build)


def cast(rng: Rng) -> Case:
    """Any type to any type, from numbers of every size."""
    kinds = (dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.bool_, *INTS)
    source, to = pick(rng, kinds), pick(rng, kinds)
    shape = shape_of(rng, int(rng.integers(1, 3)))
    x = array(rng, shape, source)
    if source.is_float:
        with np.errstate(over="ignore"):
            x = (x.astype(np.float64) * 10.0 ** rng.integers(-8, 24, shape)).astype(source.numpy)
    elif not source.is_bool:
        x = rng.integers(0, 256, (*shape, source.numpy.itemsize)).astype(np.uint8)
        x = x.view(source.numpy)[..., 0].copy()
    mode = pick(rng, ("saturate", "wrap"))
    return Case(
        f"cast {source} to {to} {mode}", [x],
        lambda g, v: [g.add("cast", v, to=to, mode=mode)], limit=0.0,
    )  # fmt: skip


# --- moves --------------------------------------------------------------------------------------


def move(rng: Rng) -> Case:
    """One to three moves after each other, maybe with arithmetic between: they fuse."""
    dtype = pick(rng, (dtypes.f32, dtypes.f32, dtypes.f16, dtypes.i8, dtypes.i64, dtypes.bool_))
    shape = shape_of(rng, int(rng.integers(1, 5)), 20_000)
    seed = int(rng.integers(1 << 30))

    def build(g: GraphBuilder, values: list[Value]) -> list[Value]:
        again = np.random.default_rng(seed)
        x = values[0]
        for _ in range(int(again.integers(1, 4))):
            x = pick(again, MOVES)(again, g, x) if x.tensor.rank else g.add("identity", [x])
            if again.random() < 0.3 and not dtype.is_bool:
                x = g.add("mul", [x, x])
        return [x]

    return Case(f"move {dtype} {shape} seed {seed}", [array(rng, shape, dtype)], build)


def transpose(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    return g.add("transpose", [x], perm=tuple(int(i) for i in rng.permutation(x.tensor.rank)))


def slice_(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    starts, sizes, steps = [], [], []
    for size in x.shape:
        number = arith.as_int(size)
        if number is None or number == 0 or rng.random() < 0.3:
            back = rng.random() < 0.2
            starts.append(size - 1 if back else arith.Const(0))
            sizes.append(size)
            steps.append(-1 if back else 1)
            continue
        start, step = int(rng.integers(0, number)), pick(rng, (1, 1, 1, 2, 3, -1, -2))
        room = (number - start + step - 1) // step if step > 0 else start // -step + 1
        starts.append(arith.Const(start))
        sizes.append(arith.Const(int(rng.integers(1, room + 1))))
        steps.append(step)
    return g.add("slice", [x], starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def concat(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    axis = int(rng.integers(x.tensor.rank))
    parts = [x, slice_along(rng, g, x, axis), x][: int(rng.integers(2, 4))]
    return g.add("concat", [parts[i] for i in rng.permutation(len(parts))], axis=axis)


def slice_along(rng: Rng, g: GraphBuilder, x: Value, axis: int) -> Value:
    """A piece of x that differs from it along one axis only."""
    zero, sizes = arith.Const(0), list(x.shape)
    number = arith.as_int(sizes[axis])
    if number:
        sizes[axis] = arith.Const(int(rng.integers(1, number + 1)))
    ones = (1,) * x.tensor.rank
    return g.add("slice", [x], starts=(zero,) * len(sizes), sizes=tuple(sizes), steps=ones)


def pad(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    smallest = min((n for n in map(arith.as_int, x.shape) if n is not None), default=1)
    is_open = any(arith.as_int(n) is None for n in x.shape)
    mode = "constant" if is_open or smallest < 4 else pick(rng, PAD_MODES)
    most = 3 if mode != "constant" else 9
    before, after = (tuple(int(n) for n in rng.integers(0, most, x.tensor.rank)) for _ in range(2))
    operands: list[Value | None] = [x]
    if mode == "constant" and rng.random() < 0.5:
        operands.append(g.constant(np.array(1).astype(x.dtype.numpy)))
    return g.add("pad", operands, before=before, after=after, mode=mode)


PAD_MODES = ("constant", "reflect", "edge", "wrap")


def expand(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    extra = (3,) if _elements(x) < 8000 else (1,)
    return g.add("expand", [x], shape=(*extra, *x.shape))


def tile(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    repeats = [1] * x.tensor.rank
    repeats[int(rng.integers(x.tensor.rank))] = int(rng.integers(1, 4))
    return g.add("tile", [x], repeats=tuple(repeats))


def reshape(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    """Two neighbouring axes merged, or all of them."""
    if x.tensor.rank < 2 or rng.random() < 0.3:
        return g.add("reshape", [x], shape=(x.tensor.numel,))
    at = int(rng.integers(x.tensor.rank - 1))
    shape = (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
    return g.add("reshape", [x], shape=shape)


def trilu(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    if x.tensor.rank < 2:
        return x
    return g.add("trilu", [x], upper=bool(rng.integers(2)), k=int(rng.integers(-3, 4)))


def gather(rng: Rng, g: GraphBuilder, x: Value) -> Value:
    axis = int(rng.integers(x.tensor.rank))
    size = arith.as_int(x.shape[axis])
    if not size:
        return x
    shape = tuple(int(n) for n in rng.integers(1, 8, int(rng.integers(0, 3))))
    indices = g.constant(rng.integers(-size, size, shape).astype(np.int64))
    return g.add("gather", [x, indices], axis=axis)


def _elements(x: Value) -> int:
    return int(np.prod([arith.as_int(n) or 100 for n in x.shape]))


MOVES = [
    transpose, transpose, slice_, concat, pad, expand, tile, reshape, trilu, gather,
]  # fmt: skip
