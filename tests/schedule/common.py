"""Small kernels, and equality in the interpreter; shared by the schedule tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import interp, ir, visit
from ingot.loops.build import Build
from ingot.support.errors import IngotError
from tests.refusal import Fact, Facts, check, refused

f32 = dtypes.f32


def relu(x: ir.Expr) -> ir.Expr:
    return ir.Binary("max", x, ir.value_of(0, x.dtype))


def exp(x: ir.Expr) -> ir.Expr:
    return ir.Math("exp", (x,))


def elementwise(m=12, n=20, sizes: Sequence[ir.Size] = ()) -> ir.Kernel:
    b = Build("elementwise")
    x, y = b.param("X", f32, (m, n)), b.param("B", f32, (n,))
    s = b.compute("S", (m, n), lambda i, j: x[i, j] * 2.0)
    z = b.compute("Z", (m, n), lambda i, j: relu(s[i, j] + y[j]))
    return b.finish([z], sizes)


def matmul(m=7, n=20, k=5, sizes: Sequence[ir.Size] = ()) -> ir.Kernel:
    b = Build("matmul")
    x, y, c = b.param("A", f32, (m, k)), b.param("B", f32, (k, n)), b.param("bias", f32, (n,))
    acc = b.reduce("Y", (m, n), (k,), "add", lambda i, j, p: x[i, p] * y[p, j])
    z = b.compute("Z", (m, n), lambda i, j: relu(acc[i, j] + c[j]))
    return b.finish([z], sizes)


def softmax(rows=5, cols=11, sizes: Sequence[ir.Size] = ()) -> ir.Kernel:
    b = Build("softmax")
    x = b.param("X", f32, (rows, cols))
    top = b.reduce("top", (rows,), (cols,), "max", lambda i, k: x[i, k])
    power = b.compute("power", (rows, cols), lambda i, j: exp(x[i, j] - top[i]))
    total = b.reduce("total", (rows,), (cols,), "add", lambda i, k: power[i, k])
    out = b.compute("out", (rows, cols), lambda i, j: power[i, j] / total[i])
    return b.finish([out], sizes)


def conv1d(n=19, taps=3, sizes: Sequence[ir.Size] = ()) -> ir.Kernel:
    """A padded copy, a sliding sum, an epilogue."""
    b = Build("conv1d")
    x, w = b.param("X", f32, (n,)), b.param("W", f32, (taps,))
    size = arith.wrap(n)

    def guarded(i: arith.Expr) -> ir.Expr:
        at = ir.Index(i - 1)
        low = ir.Compare("ge", at, ir.Lit(0, dtypes.i64))
        high = ir.Compare("lt", at, ir.Index(size))
        return ir.Load(x, (i - 1,), mask=low & high, other=ir.Lit(0.0, f32))

    padded = b.compute("padded", (size + 2,), guarded)
    out = size + 3 - taps
    acc = b.reduce("acc", (out,), (taps,), "add", lambda i, t: padded[i + t] * w[t])
    z = b.compute("Z", (out,), lambda i: relu(acc[i]))
    return b.finish([z], sizes)


def cumsum(rows=4, cols=6) -> ir.Kernel:
    """out[i, t] = out[i, t-1] + X[i, t], in order along t."""
    b = Build("cumsum")
    x = b.param("X", f32, (rows, cols))
    out = b.buffer("out", f32, (rows, cols))
    vi, vt = arith.Var("vi"), arith.Var("vt")
    first = ir.Compare("gt", ir.Index(vt), ir.Lit(0, dtypes.i64))
    before = ir.Load(out, (vi, vt - 1), mask=first, other=ir.Lit(0.0, f32))
    axes = (
        ir.Axis("vi", ir.AxisKind.SPATIAL, arith.Const(rows), arith.Var("i")),
        ir.Axis("vt", ir.AxisKind.ORDERED, arith.Const(cols), arith.Var("t")),
    )
    block = ir.Block("out", axes, ir.Store(out, (vi, vt), before + x[vi, vt]))
    b.emit(ir.serial("i", rows, ir.serial("t", cols, block)))
    return b.finish([out])


def data(kernel: ir.Kernel, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    """One array for each parameter; outputs are filled with 77."""
    rng = np.random.default_rng(seed)
    written = visit.written(kernel.body)
    arrays = []
    for p in kernel.params:
        shape = tuple(arith.evaluate(d, sizes) for d in p.shape)
        if p.name in written:
            arrays.append(np.full(shape, 77, p.dtype.numpy))
        elif p.dtype.is_float:
            arrays.append(rng.standard_normal(shape).astype(p.dtype.numpy))
        else:
            arrays.append(rng.integers(0, 3, shape).astype(p.dtype.numpy))
    return arrays


def outputs(kernel: ir.Kernel, sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    sizes = dict(sizes or {})
    arrays = data(kernel, sizes)
    interp.run(kernel, arrays, sizes)
    written = visit.written(kernel.body)
    return [a for p, a in zip(kernel.params, arrays) if p.name in written]


def assert_same(before: ir.Kernel, after: ir.Kernel, **sizes: int) -> None:
    """Both kernels give equal outputs on the same data (reductions may be reassociated)."""
    for a, b in zip(outputs(before, sizes), outputs(after, sizes), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def refused_step(step: str, *why: Fact, hint: bool | Facts = True):
    """A context in which `step`, as it was called, is refused for a reason with the facts `why`."""
    return refused("bad-schedule", where=step, why=why, hint=hint)


def check_step(error: IngotError, step: str, *why: Fact, hint: bool | Facts = True) -> None:
    check(error, "bad-schedule", where=step, why=why, hint=hint)


def backwards(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with parallel and vector loops reversed, which must not change the result."""

    def on_stmt(s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, ir.For) and s.kind in (ir.LoopKind.PARALLEL, ir.LoopKind.VECTOR):
            mirrored = s.start + s.stop - 1 - arith.Var(s.var)
            return ir.replace(s, body=visit.substitute(s.body, {s.var: mirrored}))
        return s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))
