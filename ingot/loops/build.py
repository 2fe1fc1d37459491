"""Formulas → loop nests: the `compute` / `reduce` builder. Operators and users write with it.

    b = Build("mm_relu")
    A, B = b.param("A", f32, (128, 64)), b.param("B", f32, (64, 32))
    Y = b.reduce("Y", (128, 32), (64,), "add", lambda i, j, k: A[i, k] * B[k, j])
    Z = b.compute("Z", (128, 32), lambda i, j: relu(Y[i, j]))
    kernel = b.finish([Z])

Each call appends a serial loop nest around one block that writes one new buffer. The nests say
nothing about speed; schedules do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.dtypes import DType
from ingot.loops import ir, rename
from ingot.loops.ir import Axis, AxisKind, Buffer, Expr, IndexLike, Stmt


def identity(op: str, dtype: DType) -> ir.Lit:
    """The neutral element of a named reduction."""
    values: dict[str, int | float] = {
        "add": 0, "mul": 1, "max": dtype.lowest, "min": dtype.highest, "or": 0, "xor": 0,
        "and": -1 if dtype.is_signed else dtype.highest,
    }  # fmt: skip
    return ir.Lit(float(values[op]) if dtype.is_float else int(values[op]), dtype)


class Build:
    """Collects loop nests; `finish` makes a kernel of them.

    `reserved` are names of sizes that formulas may mention before any shape does. `ranges` are the
    known ranges of sizes: an operator may omit a guard that they prove redundant.
    """

    def __init__(
        self, name: str, reserved: Iterable[str] = (), ranges: Mapping[str, Interval] | None = None
    ):
        self.name = name
        self.ranges = dict(ranges or {})
        self.params: list[Buffer] = []
        self.locals: list[Buffer] = []
        self.nests: list[Stmt] = []
        self._names: set[str] = set(reserved)
        self._count: Counter[str] = Counter()

    def fresh(self, base: str) -> str:
        """A name that this builder has not used yet."""
        base = base if ir.is_name(base) else "v"
        name = base
        while name in self._names:
            self._count[base] += 1
            name = f"{base}_{self._count[base] + 1}"
        self._names.add(name)
        return name

    def _dims(self, dims: Sequence[IndexLike]) -> tuple[arith.Expr, ...]:
        """Extents as index expressions; the names of the sizes they mention become reserved."""
        made = tuple(ir.index_of(d) for d in dims)
        for dim in made:
            self._names |= arith.free_vars(dim)
        return made

    def param(self, name: str, dtype: DType, shape: Sequence[IndexLike]) -> Buffer:
        dims = self._dims(shape)
        buffer = Buffer(self.fresh(name), dtype, dims)
        self.params.append(buffer)
        return buffer

    def buffer(self, name: str, dtype: DType, shape: Sequence[IndexLike]) -> Buffer:
        """A new intermediate, to be written by `emit`."""
        dims = self._dims(shape)
        made = Buffer(self.fresh(name), dtype, dims)
        self.locals.append(made)
        return made

    def emit(self, stmt: Stmt) -> None:
        """Append a statement built by the caller."""
        self.nests.append(stmt)

    def compute(
        self,
        name: str,
        shape: Sequence[IndexLike],
        fn: Callable[..., Expr],
        dtype: DType | None = None,
    ) -> Buffer:
        """out[i, …] = fn(i, …) for every point of `shape`."""
        axes = self._axes(shape, AxisKind.SPATIAL, "i")
        point = [arith.Var(axis.var) for axis in axes]
        value = fn(*point)
        out = self.buffer(name, dtype or value.dtype, shape)
        store = ir.Store(out, tuple(point), value)
        self.emit(nest(axes, lambda axes: ir.Block(out.name, axes, store), self.fresh))
        return out

    def reduce(
        self,
        name: str,
        shape: Sequence[IndexLike],
        over: Sequence[IndexLike],
        op: str,
        fn: Callable[..., Expr],
        init: Expr | None = None,
    ) -> Buffer:
        """out[i, …] = op over (k, …) of fn(i, …, k, …), from the op's identity or `init`."""

        def update(*point_and_acc: Expr | arith.Expr) -> list[Expr]:
            *point, acc = point_and_acc
            assert isinstance(acc, Expr)
            return [ir.Binary(op, acc, fn(*point))]

        probe = fn(*[arith.Const(0)] * (len(shape) + len(over)))
        start = init if init is not None else identity(op, probe.dtype)
        return self.fold([name], shape, over, [start], update)[0]

    def fold(
        self,
        names: Sequence[str],
        shape: Sequence[IndexLike],
        over: Sequence[IndexLike],
        init: Sequence[Expr],
        fn: Callable[..., Sequence[Expr]],
    ) -> list[Buffer]:
        """A reduction of a tuple, updated together: accs = fn(i, …, k, …, *accs), from `init`."""
        spatial = self._axes(shape, AxisKind.SPATIAL, "i")
        reduced = self._axes(over, AxisKind.REDUCE, "k")
        point = tuple(arith.Var(axis.var) for axis in spatial)
        outs = [self.buffer(n, value.dtype, shape) for n, value in zip(names, init)]
        accs = [out[point] for out in outs]
        values = fn(*point, *(arith.Var(axis.var) for axis in reduced), *accs)
        starts = ir.seq(*(ir.Store(out, point, value) for out, value in zip(outs, init)))
        body = self._store_together(outs, point, values)
        axes = (*spatial, *reduced)
        self.emit(nest(axes, lambda axes: ir.Block(outs[0].name, axes, body, starts), self.fresh))
        return outs

    def check(
        self,
        shape: Sequence[IndexLike],
        bad: Callable[..., Expr],
        reason: str,
        values: Callable[..., Sequence[Expr]] = lambda *point: (),
    ) -> None:
        """Fail with `reason` if `bad` holds anywhere in `shape`."""
        axes = self._axes(shape, AxisKind.SPATIAL, "c")
        point = [arith.Var(axis.var) for axis in axes]
        body = ir.If(bad(*point), ir.Fail(reason, tuple(values(*point))))
        self.emit(nest(axes, lambda axes: ir.Block("check", axes, body), self.fresh))

    def finish(
        self, outputs: Sequence[Buffer], sizes: Sequence[ir.Size] = (), origin: str = ""
    ) -> ir.Kernel:
        """The kernel: params are the inputs, then `outputs`; other intermediates are allocated."""
        names = {buffer.name for buffer in outputs}
        body = ir.seq(*self.nests)
        for buffer in reversed(self.locals):
            if buffer.name not in names:
                body = ir.Alloc(buffer, body)
        kernel = ir.Kernel(self.name, (*self.params, *outputs), tuple(sizes), body, origin)
        return self._without_clashes(kernel)

    def _without_clashes(self, kernel: ir.Kernel) -> ir.Kernel:
        """Rename buffers that have the name of a size which was declared later."""
        sizes = {size.name for size in kernel.sizes}
        self._names |= sizes
        clashing = [b.name for b in (*self.params, *self.locals) if b.name in sizes]
        return rename.rename_buffers(kernel, {name: self.fresh(name) for name in clashing})

    def _axes(self, extents: Sequence[IndexLike], kind: AxisKind, prefix: str) -> tuple[Axis, ...]:
        dims = self._dims(extents)
        names = [self.fresh(f"v{prefix}") for _ in dims]
        return tuple(Axis(n, kind, dim, arith.Var(n)) for n, dim in zip(names, dims))

    def _store_together(
        self, outs: Sequence[Buffer], point: tuple[arith.Expr, ...], values: Sequence[Expr]
    ) -> Stmt:
        """All values are computed before any is stored, as in a tuple assignment."""
        if len(outs) == 1:
            return ir.Store(outs[0], point, values[0])
        names = [self.fresh("t") for _ in outs]
        refs = [ir.Ref(n, value.dtype) for n, value in zip(names, values)]
        body = ir.seq(*(ir.Store(out, point, ref) for out, ref in zip(outs, refs)))
        for name, value in reversed(list(zip(names, values))):
            body = ir.Let(name, value, body)
        return body


def nest(
    axes: Sequence[Axis],
    make_block: Callable[[tuple[Axis, ...]], Stmt],
    fresh: Callable[[str], str],
) -> Stmt:
    """A serial loop for each axis, outermost first, and the block bound to them."""
    loops = [fresh(axis.var[1:]) for axis in axes]
    bound = tuple(ir.replace(a, binding=arith.Var(v)) for a, v in zip(axes, loops))
    body = make_block(bound)
    for axis, var in reversed(list(zip(axes, loops))):
        body = ir.serial(var, axis.extent, body)
    return body
