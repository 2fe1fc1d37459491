"""One violation of each invariant, told by names and place; and the hand-written kernels pass."""

from __future__ import annotations

import pytest

from ingot.arith import expr as arith
from ingot.dtypes import bool_, f32, f64, i8, i32, i64, u8
from ingot.loops import ir, verify
from ingot.loops.build import Build, identity
from ingot.loops.ir import Axis, AxisKind, Index, LoopKind, Ref
from tests.loops import kernels
from tests.loops.kernels import W, X, Y, box, buf, const, i, j, kernel, loop, n, num, store
from tests.refusal import is_told, refused

true, wide = num(True, bool_), ir.Load(X, (const(0),), 4)
ok = store(X, 0, num(1.0))


def block(*axes: Axis, body: ir.Stmt = ok, **more) -> ir.Stmt:
    return loop("i", 4, ir.Block("b", axes, body, **more))


def axis(name: str, kind: AxisKind = AxisKind.SPATIAL, binding: arith.Expr = i) -> Axis:
    return Axis(name, kind, const(4), binding)


def value(e: ir.Expr, to: ir.Buffer = X) -> ir.Stmt:
    return store(to, 0, e)


q4, q8 = buf("q", f32, 4), buf("q", f32, 8)
DOT = ir.Instruction("dot", kernel([q4], store(q4, 0, num(0.0))))
BROKEN = ir.Instruction("dot", kernel([q4], store(q4, 9, num(0.0))))
v = arith.Var("v")

REFUSALS: dict[str, tuple] = {  # a statement, and the facts that its refusal tells
    "name": (loop("nan", 4, ok), "'nan'"),
    "keyword": (loop("for", 4, ok), "'for'"),
    "twice": (ir.seq(loop("i", 4, ok), loop("i", 4, ok)), "i"),
    "alloc twice": (ir.Alloc(X, ok), "X"),
    "size twice": (loop("n", 4, ok), "n"),
    "let twice": (ir.Let("X", num(1.0), ok), "X"),
    "unbound": (store(X, i, num(1.0)), "i"),
    "out of scope": (ir.seq(loop("i", 4, ok), store(X, i, num(1.0))), "i"),
    "let out of scope": (ir.seq(ir.Let("t", num(1.0), ok), value(Ref("t", f32))), "t"),
    "let type": (ir.Let("t", num(1.0), value(Ref("t", f32, 4))), "t"),
    "undeclared": (store(buf("Q", f32, 4), 0, num(1.0)), "Q"),
    "other buffer": (store(buf("X", f32, 8), 0, num(1.0)), "X"),
    "rank": (store(X, 0, 0, num(1.0)), "X", "rank", 1, 2),
    "store type": (value(num(1, i32)), "i32", "X", "f32"),
    "operands": (value(X[0] + num(1.0, f64)), "add", "f32", "f64"),
    "lanes": (value(ir.Binary("add", wide, X[0])), "add", "lanes", 1, 4),
    "operator": (value(ir.Binary("plus", X[0], X[0])), "plus"),
    "float bits": (value(X[0] & X[0]), "and", "f32"),
    "float mod": (value(ir.Binary("mod", X[0], X[0])), "mod", "f32"),
    "bool add": (value(ir.Select(true + true, X[0], X[0])), "add", "bool"),
    "int floor": (value(ir.Unary("floor", W[0]), W), "floor", "i64"),
    "float not": (value(~X[0]), "not", "f32"),
    "bool neg": (value(ir.Select(-true, X[0], X[0])), "neg", "bool"),
    "comparison": (value(ir.Select(ir.Compare("is", X[0], X[0]), X[0], X[0])), "is"),
    "math arity": (value(ir.Math("pow", (X[0],))), "pow", 1),
    "math type": (value(ir.Math("exp", (W[0],)), W), "exp"),
    "select": (value(ir.Select(X[0], X[0], X[0])), "select", "bool"),
    "select lanes": (
        ir.Store(X, (const(0),), ir.Select(ir.Broadcast(true, 2), wide, wide)),
        "select",
        4,
        2,
    ),
    "cast mode": (value(ir.Cast(W[0], f32, "clamp")), "cast", "'clamp'"),
    "bitcast": (value(ir.Bitcast(W[0], f32)), "bitcast", "i64", "f32"),
    "literal": (value(ir.Cast(num(300, u8), f32)), 300, "u8"),
    "mask": (store(X, 0, wide, mask=true), "mask", "X", "bool", 4),
    "load mask": (value(ir.Load(X, (const(0),), mask=X[0])), "mask", "X", "bool", 1),
    "other alone": (value(ir.Load(X, (const(0),), other=X[0])), "X", "other", "mask"),
    "other type": (
        value(ir.Load(X, (const(0),), mask=true, other=num(1, i32))),
        "other",
        "X",
        "f32",
    ),
    "broadcast": (store(X, 0, ir.Broadcast(wide, 4)), "broadcast"),
    "no lanes": (value(ir.Lanes(())), "lanes(…)"),
    "shuffle": (value(ir.Shuffle(X[0], X[1], (2,))), "shuffle", 2),
    "lane reduce": (value(ir.LaneReduce("sub", wide)), "sub"),
    "condition": (ir.If(X[0], ok), "if", "bool"),
    "while": (ir.While(ir.Broadcast(true, 2), ok), "while", "bool"),
    "constant index": (store(X, 16, num(1.0)), "X[16]"),
    "negative index": (value(X[-1]), "X[-1]"),
    "last lane": (store(X, 13, wide), 4, "X[13]"),
    "zero division": (store(X, arith.Mod(n, const(0)), num(1.0)), "n % 0"),
    "index value": (store(X, arith.Opaque(num(1, i32)), num(1.0)), "i64"),
    "outer loop": (block(axis("v"), body=store(X, i, num(1.0))), "i"),
    "outer let": (ir.Let("t", num(1.0), block(axis("v"), body=value(Ref("t", f32)))), "t"),
    "outer axis": (
        block(
            axis("v"),
            body=ir.Block("c", (axis("w", binding=v),), store(X, v, num(1.0))),
        ),
        "v",
    ),
    "no init": (block(axis("v", AxisKind.REDUCE)), "b", "init"),
    "init axis": (block(axis("v", AxisKind.REDUCE), init=store(X, v, num(0.0))), "v"),
    "where": (block(axis("v"), where=X[0]), "b's where", "bool"),
    "parallel": (
        loop("i", 4, loop("j", 4, ok, LoopKind.PARALLEL), LoopKind.PARALLEL),
        "j",
        "parallel",
    ),
    "tag": (loop("i", 4, ok, LoopKind.BOUND), "i", "tag"),
    "tag of serial": (loop("i", 4, ok, tag="x"), "i", "tag"),
    "annotation twice": (loop("i", 4, ok, annotations=(("a", 1), ("a", 2))),),
    "annotation of a loop": (
        loop("i", 4, loop("j", 4, ok, annotations=(("a", (i,)),))),
        "a",
        "'i'",
    ),
    "annotation": (loop("i", 4, ok, annotations=(("a", frozenset()),)), "a", "frozenset()"),
    "scope": (ir.Alloc(buf("T", f32, 4, scope=""), ok), "T", "scope"),
    "extent": (ir.Alloc(buf("T", f32, -4), ok), "T", "extent"),
    "data shape": (ir.Alloc(buf("T", f32, arith.Opaque(W[0])), ok), "T"),
    "sync": (ir.Sync(""), "scope"),
    "token": (ir.Wait("t"), "token", "'t'"),
    "copy type": (ir.CopyAsync(box(X, (0, 4)), box(W, (0, 4)), "t"), "type"),
    "copy shape": (ir.CopyAsync(box(X, (0, 4)), box(Y, (0, 5)), "t"), "shape"),
    "box range": (ir.CopyAsync(box(X, (14, 4)), box(Y, (0, 4)), "t"), "X"),
    "box rank": (ir.CopyAsync(box(X, (0, 4), (0, 1)), box(Y, (0, 4)), "t"), "X", "rank", 1),
    "arguments": (ir.Call(DOT, ()), "dot", 1, 0),
    "argument type": (ir.Call(DOT, (box(W, (0, 4)),)), "W", "i64", "f32"),
    "argument shape": (ir.Call(DOT, (box(X, (0, 5)),)), "X", "shape", "q"),
    "meaning": (ir.Call(BROKEN, (box(X, (0, 4)),)), "q[9]"),
    "fail count": (ir.Fail("no", (W[0], W[1], W[2])),),
    "fail type": (ir.Fail("no", (X[0],)),),
}


@pytest.mark.parametrize("invariant", REFUSALS)
def test_refuses(invariant):
    body, *facts = REFUSALS[invariant]
    with refused("bad-loops", *facts, hint=False) as caught:
        verify.verify(kernel([X, Y, W], body, [ir.Size("n")]))
    assert is_told("k", caught.value.where), "the kernel"


@pytest.mark.parametrize("make", kernels.ALL, ids=lambda make: make.__name__)
def test_accepts(make):
    verify.verify(make())


def test_the_error_shows_the_statement():
    with refused("bad-loops", "j", where="X[i + j] = 1.0", hint=False):
        verify.verify(kernel([X], loop("i", 4, store(X, i + j, num(1.0)))))


@pytest.mark.parametrize(
    ("size", "facts"),
    [
        (ir.Size("n", divisor=0), ("n", "divisor", 0)),
        (ir.Size("n", 5, 4), ("n", 5, 4)),
        (ir.Size("X"), ("X",)),
    ],
)
def test_refuses_sizes(size, facts):
    with refused("bad-loops", *facts, where="k", hint=False):
        verify.verify(kernel([X], ok, [size]))


def test_params_mention_sizes_only():
    with refused("bad-loops", "m", where="k", hint=False):
        verify.verify(kernel([X, buf("P", f32, arith.Var("m"))], ok))


def test_guarded_constant_indices_may_be_out_of_range():
    never = ir.Compare("lt", Index(n), num(0, i64))
    outside = store(X, 99, num(1.0))
    verify.verify(kernel([X], ir.If(never, outside), [ir.Size("n")]))
    verify.verify(kernel([X], ir.If(never, ir.Block("b", (), outside)), [ir.Size("n")]))
    verify.verify(kernel([X], ir.Block("b", (), outside, where=never), [ir.Size("n")]))
    verify.verify(kernel([X], store(X, 99, num(1.0), mask=never), [ir.Size("n")]))


def test_an_accumulating_reduction_needs_no_init():
    accumulating = block(axis("v", AxisKind.REDUCE), annotations=((ir.ACCUMULATES, True),))
    verify.verify(kernel([X], accumulating))


def test_where_may_mention_outer_loops_and_axes():
    where = ir.Compare("lt", Index(i), Index(v))
    verify.verify(kernel([X], block(axis("v"), where=where)))


def test_hooks_run_on_legal_kernels(monkeypatch):
    seen: list[ir.Kernel] = []
    monkeypatch.setattr(verify, "HOOKS", [seen.append])
    made = kernels.matmul()
    verify.verify(made)
    assert seen == [made]
    with refused("bad-loops", "'t'", hint=False):
        verify.verify(kernel([X], ir.Wait("t")))
    assert len(seen) == 1


def test_long_chains_of_lets_do_not_recurse():
    body: ir.Stmt = ok
    for number in range(150):
        body = ir.Let(f"t{number}", num(1.0), body)
    verify.verify(kernel([X], body))


# --- names made by the builder -------------------------------------------------------------


def test_the_builder_avoids_keywords_and_sizes():
    b = Build("k", reserved=["vi"])
    a = b.param("lambda", f32, (n,))
    again = b.param("n", f32, (4,))
    out = b.compute("inf", (n,), lambda p: a[p] + again[0])
    made = b.finish([out], [ir.Size("n"), ir.Size("vi")])
    verify.verify(made)
    assert [p.name for p in made.params] == ["v", "n_2", "v_2"]


def test_fresh_names_are_unique():
    b = Build("k")
    names = [b.fresh(base) for base in ("i", "i", "i_2", "i", "i_2", "i_2_2", "i")]
    assert len(set(names)) == len(names)


def test_a_buffer_is_renamed_if_a_later_size_has_its_name():
    b = Build("k")
    a = b.param("m", f32, (4,))
    out = b.compute("out", (arith.Var("m"),), lambda p: a[0])
    made = b.finish([out], [ir.Size("m")])
    verify.verify(made)
    assert made.params[0].name == "m_2"


@pytest.mark.parametrize("dtype", [bool_, u8, i8], ids=str)
def test_identities_are_values_of_their_type(dtype):
    for op in ("and", "or", "min", "max"):
        verify.verify(kernel([q := buf("q", dtype, 1)], store(q, 0, identity(op, dtype))))
