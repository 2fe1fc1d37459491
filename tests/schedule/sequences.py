"""Random sequences of schedule steps on small kernels: what test_random and others draw from.

    sch = Schedule(CASES["matmul"].make());  step = propose(sch, rng);  take(sch, step)

Every primitive is proposed, with arguments that are often right and sometimes not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule, instruction
from ingot.schedule.handles import LoopRef
from tests.schedule.common import conv1d, cumsum, elementwise, f32, matmul, softmax

n = arith.Var("n")


# --- kernels ------------------------------------------------------------------------------------


def conv2d(height: Any = 5, width: Any = 4, sizes: tuple[ir.Size, ...] = ()) -> ir.Kernel:
    """Two channels in, two out, 2×3 taps, and an epilogue."""
    b = Build("conv2d")
    x = b.param("X", f32, (2, height, width))
    w = b.param("W", f32, (2, 2, 2, 3))
    shape = (2, arith.wrap(height) - 1, arith.wrap(width) - 2)
    acc = b.reduce(
        "acc", shape, (2, 2, 3), "add",
        lambda o, i, j, c, p, q: x[c, i + p, j + q] * w[o, c, p, q],
    )  # fmt: skip
    z = b.compute("Z", shape, lambda o, i, j: acc[o, i, j] * 0.5)
    return b.finish([z], sizes)


def stencil(rows: Any = 6, cols: Any = 5, sizes: tuple[ir.Size, ...] = ()) -> ir.Kernel:
    """Two sweeps of a five-point stencil, each over what the one before leaves whole."""
    b = Build("stencil")
    x = b.param("X", f32, (arith.wrap(rows) + 4, arith.wrap(cols) + 4))

    def sweep(y: ir.Buffer) -> Callable[..., ir.Expr]:
        return lambda i, j: (
            y[i + 1, j + 1] + y[i, j + 1] + y[i + 2, j + 1] + y[i + 1, j] + y[i + 1, j + 2]
        )

    once = b.compute("once", (arith.wrap(rows) + 2, arith.wrap(cols) + 2), sweep(x))
    twice = b.compute("twice", (rows, cols), sweep(once))
    return b.finish([twice], sizes)


def row_sums(rows: Any = 5, cols: Any = 7, sizes: tuple[ir.Size, ...] = ()) -> ir.Kernel:
    """Sums and maxima of rows, then their difference."""
    b = Build("row_sums")
    x = b.param("X", f32, (rows, cols))
    total = b.reduce("total", (rows,), (cols,), "add", lambda i, k: x[i, k])
    top = b.reduce("top", (rows,), (cols,), "max", lambda i, k: x[i, k] * 2.0)
    out = b.compute("out", (rows,), lambda i: total[i] - top[i])
    return b.finish([out], sizes)


def argmax(rows: int = 4, cols: int = 5) -> ir.Kernel:
    b = Build("argmax")
    x = b.param("X", f32, (rows, cols))

    def better(i, k, value, place):
        here = x[i, k]
        wins = ir.Compare("gt", here, value)
        return [ir.Select(wins, here, value), ir.Select(wins, ir.Index(k), place)]

    start = [ir.Lit(float("-inf"), f32), ir.Lit(-1, dtypes.i64)]
    outs = b.fold(["best", "place"], (rows,), (cols,), start, better)
    return b.finish(outs)


def running(rows: Any = 3, cols: Any = 5, sizes: tuple[ir.Size, ...] = ()) -> ir.Kernel:
    """A recurrence along columns over a scaled copy, then an element-wise block."""
    b = Build("running")
    x = b.param("X", f32, (rows, cols))
    scaled = b.compute("scaled", (rows, cols), lambda i, j: x[i, j] * 0.5)
    out = b.buffer("state", f32, (rows, cols))
    vi, vt = arith.Var("vi_s"), arith.Var("vt")
    later = ir.Compare("gt", ir.Index(vt), ir.Lit(0, dtypes.i64))
    before = ir.Load(out, (vi, vt - 1), mask=later, other=ir.Lit(0.0, f32))
    axes = (
        ir.Axis("vi_s", ir.AxisKind.SPATIAL, arith.wrap(rows), arith.Var("i_s")),
        ir.Axis("vt", ir.AxisKind.ORDERED, arith.wrap(cols), arith.Var("t")),
    )
    block = ir.Block("state", axes, ir.Store(out, (vi, vt), before * 0.5 + scaled[vi, vt]))
    b.emit(ir.serial("i_s", rows, ir.serial("t", cols, block)))
    z = b.compute("Z", (rows, cols), lambda i, j: out[i, j] + 1.0)
    return b.finish([z], sizes)


def gather(rows: int = 4, cols: int = 6) -> ir.Kernel:
    b = Build("gather")
    x, at = b.param("X", f32, (3, cols)), b.param("at", dtypes.i64, (rows,))
    doubled = b.compute("doubled", (3, cols), lambda i, j: x[i, j] * 2.0)
    out = b.compute("out", (rows, cols), lambda i, j: doubled[ir.index_of(at[i]), j])
    return b.finish([out])


IN_PLACE = """
@ingot.kernel
def in_place(X: f32[7], Z: f32[7]):
    T = alloc(f32[7])
    for i in serial(7):
        with block("T", spatial=(i,)) as (vi,):
            T[vi] = X[vi] + load(X[vi - 1], mask=index(vi) >= 1, other=0.0)
    for j in serial(7):
        with block("X", spatial=(j,)) as (vj,):
            X[vj] = T[vj] * 0.5
    for k in serial(7):
        with block("Z", spatial=(k,)) as (vk,):
            Z[vk] = X[vk] + T[vk]
"""


@dataclass(frozen=True)
class Case:
    """A kernel, and the values its sizes are tried with."""

    make: Callable[[], ir.Kernel]
    sizes: tuple[Mapping[str, int], ...] = field(default=({},))


def _open(make: Callable[..., ir.Kernel], *args: Any, low: int = 1) -> Case:
    """The kernel with `n` among its extents."""
    values = tuple({"n": k} for k in (low, low + 4, low + 7))
    return Case(lambda: make(*args, (ir.Size("n", low),)), values)


CASES: dict[str, Case] = {
    "elementwise": Case(lambda: elementwise(6, 5)),
    "elementwise, threes": Case(lambda: elementwise(4, 3)),
    "elementwise, open": _open(elementwise, n, 5),
    "matmul": Case(lambda: matmul(5, 6, 4)),
    "matmul, pairs": Case(lambda: matmul(4, 3, 2)),
    "matmul, open rows": _open(matmul, n, 6, 4),
    "matmul, open depth": _open(matmul, 4, 6, n, low=3),
    "softmax": Case(lambda: softmax(4, 5)),
    "softmax, open": _open(softmax, 3, n),
    "row sums": Case(row_sums),
    "row sums, open": _open(row_sums, 4, n, low=2),
    "argmax": Case(argmax),
    "conv1d": Case(lambda: conv1d(9)),
    "conv1d, open": _open(conv1d, n, 3),
    "conv2d": Case(conv2d),
    "conv2d, open": _open(conv2d, n, 5, low=3),
    "stencil": Case(lambda: stencil(4, 5)),
    "stencil, open": _open(stencil, n, 4, low=2),
    "scan": Case(lambda: cumsum(3, 4)),
    "recurrence": Case(running),
    "recurrence, open": _open(running, n, 4),
    "gather": Case(gather),
    "in place": Case(lambda: parse(IN_PLACE)),
}

INSTRUCTIONS = (
    instruction(
        "dot2",
        """
        @ingot.kernel
        def dot2(A: f32[2], B: f32[2], C: f32[1]):
            for k in serial(2):
                C[0] += A[k] * B[k]
        """,
    ),
    instruction(
        "outer2",
        """
        @ingot.kernel
        def outer2(A: f32[2, 2], B: f32[2, 2], C: f32[2, 2]):
            for i, j, k in grid(2, 2, 2):
                C[i, j] += A[i, k] * B[k, j]
        """,
    ),
    instruction(
        "double3",
        """
        @ingot.kernel
        def double3(A: f32[3], B: f32[3]):
            for i in serial(3):
                B[i] = A[i] * 2.0
        """,
    ),
)


# --- steps --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    op: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def take(sch: Schedule, step: Step, unsafe: bool = False) -> None:
    getattr(sch.unsafe_ if unsafe else sch, step.op)(*step.args, **step.options)


class Proposer:
    """Draws steps for a schedule as it is now."""

    def __init__(self, sch: Schedule, rng: random.Random):
        self.sch, self.rng = sch, rng
        blocks = sch.blocks()
        self.block, self.other = rng.choice(blocks), rng.choice(blocks)
        self.loops = sch.loops(self.block)
        self.foreign = sch.loops(self.other)

    def loop(self) -> LoopRef:
        return self.rng.choice(self.loops)

    def buffers(self) -> list[str]:
        touched = sorted(visit.read(self.sch.kernel.body) | visit.written(self.sch.kernel.body))
        own = self.sch.at_block(self.block)
        mine = sorted(visit.read(own) | visit.written(own))
        return self.rng.choice([mine, touched]) or touched

    def split(self) -> Step:
        factors = self.rng.choice([(None, 2), (None, 3), (None, 4), (2, None), (None, 2, 2)])
        tail = self.rng.choice(["guard", "guard", "peel", "mask", "shift", "pad", "none"])
        return Step("split", (self.loop(), *factors), {"tail": tail})

    def reorder(self) -> Step:
        count = self.rng.randint(2, len(self.loops)) if len(self.loops) > 1 else 1
        return Step("reorder", tuple(self.rng.sample(self.loops, count)))

    def fuse(self) -> Step:
        start = self.rng.randrange(len(self.loops))
        return Step("fuse", tuple(self.loops[start : start + 2]))

    def peel(self) -> Step:
        side = self.rng.choice(["end", "start"])
        return Step("peel", (self.loop(), self.rng.randint(1, 3)), {"side": side})

    def partition(self) -> Step:
        return Step("partition", (self.loop(), self.rng.randint(0, 4)))

    def bind(self) -> Step:
        return Step("bind", (self.loop(), self.rng.choice(["blockIdx.x", "threadIdx.x"])))

    def pipeline(self) -> Step:
        return Step("pipeline", (self.loop(), self.rng.randint(2, 3)))

    def prefetch(self) -> Step:
        inner, outer = sorted(self.rng.choices(range(len(self.loops)), k=2), reverse=True)
        name = self.rng.choice(self.buffers())
        return Step("prefetch", (self.loops[inner], name, self.loops[outer], 1))

    def tensorize(self) -> Step:
        return Step("tensorize", (self.loop(), self.rng.choice(INSTRUCTIONS)))

    def at(self, op: str) -> Step:
        return Step(op, (self.block, self.rng.choice(self.foreign)))

    def cache_read(self) -> Step:
        return Step("cache_read", (self.block, self.rng.choice(self.buffers())))

    def cache_write(self) -> Step:
        return Step("cache_write", (self.block,))

    def reindex(self) -> Step:
        return Step("reindex", (self.block, self.rng.choice(self.buffers())))

    def transform_layout(self) -> Step:
        name = self.rng.choice(self.buffers())
        rank = self._rank(name)
        maps = {
            1: ["i -> i // 2, i % 2"],
            2: ["i, j -> j, i", "i, j -> i, j // 3, j % 3", "i, j -> i // 2, j, i % 2"],
            3: ["i, j, k -> i, k, j", "i, j, k -> i, j, k // 2, k % 2"],
        }
        return Step("transform_layout", (name, self.rng.choice(maps.get(rank, ["i -> i"]))))

    def _rank(self, name: str) -> int:
        for s in visit.walk_stmts(self.sch.kernel.body):
            if isinstance(s, ir.Alloc) and s.buffer.name == name:
                return s.buffer.rank
        return next((p.rank for p in self.sch.kernel.params if p.name == name), 1)

    def pad(self) -> Step:
        count = len(self.sch.at_block(self.block).axes)
        multiples = [self.rng.choice([1, 2, 4]) for _ in range(count)]
        return Step("pad", (self.block, *multiples), self.rng.choice([{}, {"beyond": "zero"}]))

    def storage_align(self) -> Step:
        name = self.rng.choice(self.buffers())
        dim = self.rng.randrange(max(1, self._rank(name)))
        return Step("storage_align", (name, dim, 4, self.rng.choice([0, 1])))

    def set_scope(self) -> Step:
        scope = self.rng.choice([ir.THREAD, ir.GLOBAL])
        return Step("set_scope", (self.rng.choice(self.buffers()), scope))

    def annotate(self) -> Step:
        return Step("annotate", (self.rng.choice([self.block, self.loop()]), "note", 1))

    def rfactor(self) -> Step:
        return Step("rfactor", (self.loop(), self.rng.randint(0, 1), self.rng.random() < 0.4))


# how often each is drawn
WEIGHTS = {
    "split": 6, "reorder": 5, "fuse": 3, "parallel": 3, "vectorize": 4, "unroll": 2, "bind": 1,
    "peel": 2, "partition": 2, "pipeline": 1, "blockize": 1, "tensorize": 2, "compute_inline": 2,
    "reverse_compute_inline": 2, "compute_at": 4, "reverse_compute_at": 4,
    "decompose_reduction": 2, "rfactor": 2, "cache_read": 2, "cache_write": 2, "reindex": 1,
    "transform_layout": 2, "pad": 1, "storage_align": 1, "set_scope": 1, "annotate": 1,
    "prefetch": 1,
}  # fmt: skip
ON_LOOP = ("parallel", "vectorize", "unroll", "blockize")
ON_BLOCK = ("compute_inline", "reverse_compute_inline")
AT = ("compute_at", "reverse_compute_at", "decompose_reduction")


def propose(sch: Schedule, rng: random.Random) -> Step | None:
    """A random step, or None where the block drawn has no loops."""
    draw = Proposer(sch, rng)
    op = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if not draw.loops or not draw.foreign:
        return None
    if op in ON_LOOP:
        return Step(op, (draw.loop(),))
    if op in ON_BLOCK:
        return Step(op, (draw.block,))
    if op in AT:
        return draw.at(op)
    return getattr(draw, op)()


def random_step(sch: Schedule, rng: random.Random) -> None:
    step = propose(sch, rng)
    if step is not None:
        take(sch, step)
