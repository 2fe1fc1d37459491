"""Hand-written kernels that together use every node of the loop grammar; many tests use them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType, bool_, f32, f64, i32, i64, u8
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Axis, AxisKind, Buffer, Index, Lit, LoopKind, Slice, Stmt

# --- constructors -------------------------------------------------------------------------------


def num(value: float, dtype: DType = f32) -> Lit:
    return Lit(value, dtype)


def const(value: int) -> arith.Expr:
    return arith.Const(value)


def buf(name: str, dtype: DType, *shape: arith.IntLike, scope: str = ir.GLOBAL) -> Buffer:
    return Buffer(name, dtype, tuple(arith.wrap(d) for d in shape), scope)


def store(b: Buffer, *rest, **options) -> ir.Store:
    *indices, value = rest
    return ir.Store(b, tuple(ir.index_of(x) for x in indices), value, **options)


def kernel(params: Sequence[Buffer], body: Stmt, sizes: Sequence[ir.Size] = ()) -> ir.Kernel:
    return ir.Kernel("k", tuple(params), tuple(sizes), body)


def loop(var: str, stop: arith.IntLike, body: Stmt, kind=LoopKind.SERIAL, **more) -> ir.For:
    return ir.For(var, const(0), arith.wrap(stop), body, kind, **more)


def box(b: Buffer, *ranges: tuple[arith.IntLike, arith.IntLike]) -> Slice:
    offsets, extents = zip(*ranges)
    return Slice(b, tuple(map(arith.wrap, offsets)), tuple(map(arith.wrap, extents)))


i, j, n = arith.Var("i"), arith.Var("j"), arith.Var("n")
X, Y, Z = buf("X", f32, 16), buf("Y", f32, 16), buf("Z", f32, 16)
W = buf("W", i64, 16)

# --- the kernels -------------------------------------------------------------------------------


def matmul() -> ir.Kernel:
    """A GEMM with an epilogue, as the builder makes it, with a dynamic dimension."""
    b = Build("matmul")
    a, w = b.param("a", f32, (4, n)), b.param("w", f32, (n, 6))
    y = b.reduce("y", (4, 6), (n,), "add", lambda r, c, k: a[r, k] * w[k, c])
    z = b.compute("z", (4, 6), lambda r, c: ir.Binary("max", y[r, c], num(0.0)))
    return b.finish([z], [ir.Size("n", 1, 64, 2)], origin="MatMul_3")


def argmax() -> ir.Kernel:
    """A reduction of a tuple: lets inside a block."""
    b = Build("argmax")
    a = b.param("a", f32, (5, 7))

    def step(r, c, best, at):
        better = ir.Compare("gt", a[r, c], best)
        return [ir.Select(better, a[r, c], best), ir.Select(better, Index(c), at)]

    return b.finish(b.fold(["best", "at"], (5,), (7,), [num(-math.inf), num(0, i64)], step))


def gather() -> ir.Kernel:
    """Loaded values in indices, and a check that fails."""
    b = Build("gather")
    a, rows = b.param("a", f32, (5, 3)), b.param("rows", i32, (4,))
    b.check(
        (4,),
        lambda p: ir.Compare("ge", rows[p], num(5, i32)),
        "row out of range",
        lambda p: (rows[p], Index(p)),
    )
    return b.finish([b.compute("out", (4, 3), lambda p, c: a[rows[p], c])])


def padded() -> ir.Kernel:
    """A masked load: no access out of range."""
    b = Build("padded")
    a = b.param("a", f32, (6,))

    def value(p):
        at = Index(p - 2)
        inside = ir.Compare("ge", at, num(0, i64)) & ir.Compare("lt", at, num(6, i64))
        return ir.Load(a, (p - 2,), mask=inside, other=num(-1.0))

    return b.finish([b.compute("out", (10,), value)])


def scheduled() -> ir.Kernel:
    """Split, bound and guarded blocks: extents that differ from the loops', alternating kinds."""
    vi, vk, vj = (arith.Var(name) for name in ("vi", "vk", "vj"))
    a, y = buf("a", f32, 10, 3, 5), buf("y", f32, 10, 5)
    io, ii, jj, kk = (arith.Var(name) for name in ("io", "ii", "jj", "kk"))
    body = store(y, vi, vj, y[vi, vj] + a[vi, vk, vj])
    block = ir.Block(
        "y",
        (
            Axis("vi", AxisKind.SPATIAL, const(10), io * 4 + ii),
            Axis("vk", AxisKind.REDUCE, const(3), kk),
            Axis("vj", AxisKind.SPATIAL, const(5), jj),
        ),
        body,
        init=store(y, vi, vj, num(0.0)),
        where=ir.Compare("lt", Index(io * 4 + ii), num(10, i64)),
        annotations=(("rule", "matmul"), ("tile", (4, 2)), ("exact", True), ("none", None)),
    )
    nest = loop("kk", 3, block, annotations=(("pragma", -1.5), ("type", f32)))
    nest = loop("ii", 4, loop("jj", 5, nest, LoopKind.VECTOR), LoopKind.UNROLL)
    return kernel([a, y], loop("io", 3, nest, LoopKind.PARALLEL))


def nested_blocks() -> ir.Kernel:
    """A block inside a block, ordered and opaque axes, a block without axes."""
    a, s = buf("a", f32, 4, 6), buf("s", f32, 4, 6)
    vi, vt = arith.Var("vi"), arith.Var("vt")
    before = ir.Load(s, (vi, vt - 1), mask=ir.Compare("gt", Index(vt), num(0, i64)))
    inner = ir.Block(
        "scan",
        (Axis("vr", AxisKind.OPAQUE, const(4), vi), Axis("vt", AxisKind.ORDERED, const(6), j)),
        store(s, arith.Var("vr"), vt, visit_row(before, "vr") + a[arith.Var("vr"), vt]),
    )
    outer = ir.Block("row", (Axis("vi", AxisKind.SPATIAL, const(4), i),), loop("j", 6, inner))
    done = buf("done", bool_)
    return kernel(
        [a, s, done],
        ir.seq(loop("i", 4, outer), ir.Block("end", (), store(done, num(True, bool_)))),
    )


def visit_row(e: ir.Load, row: str) -> ir.Load:
    return ir.replace(e, indices=(arith.Var(row), *e.indices[1:]))


def vectors() -> ir.Kernel:
    """Wide, strided and masked accesses, and every expression over lanes."""
    x = ir.Load(X, (i * 4,), 4)
    ramp = ir.Ramp(i * 4, const(1), 4)
    mask = ir.Compare("lt", ramp, ir.Broadcast(Index(n), 4))
    masked = ir.Load(X, (i * 4,), 4, mask=mask, other=ir.Broadcast(num(0.5), 4))
    strided = ir.Load(X, (i,), 4, stride=const(4))
    mixed = ir.Shuffle(x, strided, (0, 4, 1, 5))
    total = ir.LaneReduce("add", ir.Fma(x, masked, mixed))
    lanes = ir.Lanes((total, num(1.0), X[i], num(-0.0)))
    return kernel(
        [X, Y, Z],
        loop(
            "i",
            4,
            ir.seq(
                ir.Store(Y, (i * 4,), lanes, mask=mask),
                ir.Store(Z, (i,), mixed, stride=const(4)),
            ),
            annotations=(("limit", n * 2), ("pair", (n + 1, "x"))),
        ),
        [ir.Size("n", 0, 16)],
    )


def operators() -> ir.Kernel:
    """Every operator on integers and floats, with literals of every kind."""
    x, w = X[i], W[i]
    floats = [ir.Unary(op, x) for op in ("neg", "abs", "floor", "ceil", "round", "trunc", "sqrt")]
    floats += [ir.Binary(op, x, num(2.5)) for op in ("add", "sub", "mul", "div", "min", "max")]
    floats += [ir.Math(fn, (x, num(2.0))[:arity]) for fn, arity in ir.MATH.items()]
    special = (
        math.inf,
        -math.inf,
        math.nan,
        -0.0,
        1e-300,
        struct.unpack("<d", b"\1" * 7 + b"\x7f")[0],
    )
    floats += [num(v) for v in special] + [
        ir.Unary("neg", num(1.0)),
        x - -x,
        (x + x) * (x - (x - x)),
    ]
    whole = [ir.Binary(op, w, num(3, i64)) for op in ir.BINARY]
    whole += [ir.Unary("not", w), num(-5, i64) - w, Index(i + 1), ir.Cast(x, i64, "wrap")]
    whole += [ir.Bitcast(ir.Cast(x, f64), i64), ir.Cast(num(200, u8), i64), (w & w) | ~w]
    flags = [ir.Compare(op, x, num(0.0)) for op in ir.COMPARE] + [ir.Unary("isnan", x)]
    flags += [ir.Compare("eq", ir.Compare("lt", num(1.0), num(2.0)), num(True, bool_))]
    chosen = [ir.Select(flag, x, num(0.0)) for flag in flags]
    stmts = [store(Y, i, e) for e in (*floats, *chosen)] + [store(W, i, e) for e in whole]
    return kernel([X, Y, W], loop("i", 16, ir.Seq(tuple(stmts))))


def control() -> ir.Kernel:
    """While, if, elif, let and alloc, flat and closed; odd sequences; fail."""
    t, c = buf("t", f32, 2, scope=ir.REGISTER), buf("c", i32, scope=ir.THREAD)
    step = store(c, c[()] + num(1, i32))
    less = ir.Compare("lt", c[()], num(3, i32))
    branch = ir.If(
        less, step, ir.If(ir.Compare("eq", X[0], X[1]), ir.Seq(()), ir.Fail("odd", (c[()],)))
    )
    twice = ir.Let("t2", X[i] * num(2.0), store(Y, i, ir.Ref("t2", f32)))
    flat = ir.Let(
        "t3", X[i], ir.Alloc(t, ir.seq(store(t, 0, ir.Ref("t3", f32)), store(Z, i, t[0])))
    )
    counted = ir.Let("at", num(1, i64), store(Y, ir.Ref("at", i64), num(1.0)))
    body = ir.Seq((twice, ir.Seq((ir.Seq(()), counted)), flat))
    ranged = ir.For("i", const(2), const(5), body)
    whole = ir.seq(store(c, num(0, i32)), ir.While(less, step), branch, ir.Seq((ranged,)))
    return kernel([X, Y, Z], ir.Alloc(c, whole))


def devices() -> ir.Kernel:
    """Bound loops, shared memory, asynchronous copies, sync, an instruction with its meaning."""
    p, q, r = buf("p", f32, 4, scope="spad"), buf("q", f32, 4), buf("r", f32)
    u = arith.Var("u")
    meaning = kernel([p, q, r], loop("u", 4, store(r, r[()] + p[u] * q[u])))
    dot = ir.Instruction("dot4", meaning, emit="llvm.dot4")
    odd = ir.Instruction("dot4", ir.replace(meaning, body=store(r, num(0.0))), emit="a 'b'")
    s, out = buf("s", f32, 16, scope=ir.SHARED), buf("out", f32, 4)
    tx = arith.Var("tx")
    inner = ir.seq(
        ir.CopyAsync(box(s, (tx * 4, 4)), box(X, (tx * 4, 4)), "tok"),
        ir.Wait("tok"),
        ir.Sync("shared"),
        ir.Prefetch(box(X, (tx * 4 + 4, 4))),
        ir.Prefetch(box(out, (tx + 1, 1)), writes=True),
        ir.Call(odd, (box(s, (0, 4)), box(Y, (4, 4)), box(out, (tx, 1)))),
        ir.Call(dot, (box(s, (12 - tx * 4, 4)), box(Y, (tx * 4, 4)), box(out, (tx, 1)))),
    )
    nest = ir.Alloc(s, loop("tx", 4, inner, LoopKind.BOUND, tag="threadIdx.x"))
    return kernel([X, Y, out], loop("bx", 1, nest, LoopKind.BOUND, tag="blockIdx.x"))


def types() -> ir.Kernel:
    """A load, a literal and a store of every element type."""
    params, stmts = [], []
    for dtype in dtypes.LOOP_TYPES.values():
        b = buf(f"b_{dtype.name}", dtype, 2)
        params.append(b)
        one = num(True if dtype.is_bool else 1.0 if dtype.is_float else 1, dtype)
        stmts += [store(b, 0, b[1]), store(b, 1, one), store(b, 1, ir.Cast(b[0], dtype))]
    return kernel(params, ir.Seq(tuple(stmts)))


def loaded_indices() -> ir.Kernel:
    """All forms of a value inside an index."""
    w32 = buf("w32", i32, 16)
    values = [W[i], ir.Cast(w32[i], i64), ir.Cast(w32[i], i64, "wrap"), W[i] + num(1, i64)]
    values += [ir.Load(W, (i,), mask=ir.Compare("lt", X[i], num(0.0))), Index(i), num(3, i64)]
    values += [W[arith.Opaque(W[arith.Opaque(W[i] * W[i])])]]
    indices = [arith.Opaque(v) for v in values]
    indices += [arith.Min(arith.Opaque(W[i]) * 2, i) - (i - 1), arith.Add(const(0), const(-3) + i)]
    indices += [(i + 1) // 2 % 3 * (i - (i + 2)), arith.Max(i, const(-1))]
    stmts = [store(Y, index, num(0.0)) for index in indices]
    bounded = ir.For("j", arith.Opaque(W[0]), arith.Opaque(W[1]), store(Z, j, num(1.0)))
    body = ir.seq(loop("i", 16, ir.Seq(tuple(stmts))), bounded)
    return kernel([X, Y, Z, W, w32], body)


ALL: list[Callable[[], ir.Kernel]] = [
    matmul, argmax, gather, padded, scheduled, nested_blocks, vectors, operators, control,
    devices, types, loaded_indices,
]  # fmt: skip
