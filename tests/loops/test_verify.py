"""One refusal for each law, by its words; and the hand-made kernels pass."""

from __future__ import annotations

import pytest

from ingot.arith import expr as arith
from ingot.dtypes import bool_, f32, f64, i8, i32, i64, u8
from ingot.loops import ir, verify
from ingot.loops.build import Build, identity
from ingot.loops.ir import Axis, AxisKind, Index, LoopKind, Ref
from ingot.support.errors import IngotError
from tests.loops import kernels
from tests.loops.kernels import W, X, Y, box, buf, const, i, j, kernel, loop, n, num, store

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

REFUSALS: dict[str, tuple[ir.Stmt, str]] = {
    "name": (loop("nan", 4, ok), "'nan' cannot be the name"),
    "keyword": (loop("for", 4, ok), "'for' cannot be the name"),
    "twice": (ir.seq(loop("i", 4, ok), loop("i", 4, ok)), "i is given twice"),
    "alloc twice": (ir.Alloc(X, ok), "X is given twice"),
    "size twice": (loop("n", 4, ok), "n is given twice"),
    "let twice": (ir.Let("X", num(1.0), ok), "X is given twice"),
    "unbound": (store(X, i, num(1.0)), "i is not bound"),
    "out of scope": (ir.seq(loop("i", 4, ok), store(X, i, num(1.0))), "i is not bound"),
    "let out of scope": (
        ir.seq(ir.Let("t", num(1.0), ok), value(Ref("t", f32))),
        "no let binds t",
    ),
    "let type": (ir.Let("t", num(1.0), value(Ref("t", f32, 4))), "another type than it was bound"),
    "undeclared": (store(buf("Q", f32, 4), 0, num(1.0)), "Q is not declared"),
    "other buffer": (store(buf("X", f32, 8), 0, num(1.0)), "used as another buffer"),
    "rank": (store(X, 0, 0, num(1.0)), "rank 1 and is indexed by 2"),
    "store type": (value(num(1, i32)), "a i32 is stored to X"),
    "operands": (value(X[0] + num(1.0, f64)), "add differ in type: f32, f64"),
    "lanes": (value(ir.Binary("add", wide, X[0])), "add differ in lanes: [1, 4]"),
    "operator": (value(ir.Binary("plus", X[0], X[0])), "no operator plus"),
    "float bits": (value(X[0] & X[0]), "and is not defined on f32"),
    "float mod": (value(ir.Binary("mod", X[0], X[0])), "mod is defined on integers only"),
    "bool add": (value(ir.Select(true + true, X[0], X[0])), "add is not defined on bool"),
    "int floor": (value(ir.Unary("floor", W[0]), W), "floor is defined on floats only"),
    "float not": (value(~X[0]), "not is not defined on f32"),
    "bool neg": (value(ir.Select(-true, X[0], X[0])), "neg is not defined on bool"),
    "comparison": (value(ir.Select(ir.Compare("is", X[0], X[0]), X[0], X[0])), "no comparison is"),
    "math arity": (value(ir.Math("pow", (X[0],))), "pow does not take 1"),
    "math type": (value(ir.Math("exp", (W[0],)), W), "exp is defined on floats only"),
    "select": (value(ir.Select(X[0], X[0], X[0])), "condition of a select is no bool"),
    "select lanes": (
        ir.Store(X, (const(0),), ir.Select(ir.Broadcast(true, 2), wide, wide)),
        "over 4 lanes has 2 conditions",
    ),
    "cast mode": (value(ir.Cast(W[0], f32, "clamp")), "no mode of cast 'clamp'"),
    "bitcast": (value(ir.Bitcast(W[0], f32)), "bitcast from i64 to f32"),
    "literal": (value(ir.Cast(num(300, u8), f32)), "300 is no value of u8"),
    "mask": (store(X, 0, wide, mask=true), "mask of X must be bool with 4 lanes"),
    "load mask": (value(ir.Load(X, (const(0),), mask=X[0])), "mask of X must be bool"),
    "other alone": (value(ir.Load(X, (const(0),), other=X[0])), "an other but no mask"),
    "other type": (
        value(ir.Load(X, (const(0),), mask=true, other=num(1, i32))),
        "other of X must be f32",
    ),
    "broadcast": (store(X, 0, ir.Broadcast(wide, 4)), "broadcast spreads one scalar"),
    "no lanes": (value(ir.Lanes(())), "at least one value"),
    "shuffle": (value(ir.Shuffle(X[0], X[1], (2,))), "picks among 2 lanes"),
    "lane reduce": (value(ir.LaneReduce("sub", wide)), "not reduced by sub"),
    "condition": (ir.If(X[0], ok), "condition of an if is no scalar bool"),
    "while": (ir.While(ir.Broadcast(true, 2), ok), "condition of a while loop is no scalar bool"),
    "constant index": (store(X, 16, num(1.0)), "X[16] is out of range"),
    "negative index": (value(X[-1]), "X[-1] is out of range"),
    "last lane": (store(X, 13, wide), "the last of 4 lanes of X[13] is outside"),
    "zero division": (store(X, arith.Mod(n, const(0)), num(1.0)), "divides by zero"),
    "index value": (store(X, arith.Opaque(num(1, i32)), num(1.0)), "no scalar i64"),
    "outer loop": (block(axis("v"), body=store(X, i, num(1.0))), "i is bound outside the block"),
    "outer let": (
        ir.Let("t", num(1.0), block(axis("v"), body=value(Ref("t", f32)))),
        "t is bound outside the block",
    ),
    "outer axis": (
        block(
            axis("v"),
            body=ir.Block("c", (axis("w", binding=v),), store(X, v, num(1.0))),
        ),
        "v is bound outside the block",
    ),
    "no init": (block(axis("v", AxisKind.REDUCE)), "b reduces but has no init"),
    "init axis": (
        block(axis("v", AxisKind.REDUCE), init=store(X, v, num(0.0))),
        "v is bound outside the block",
    ),
    "where": (block(axis("v"), where=X[0]), "b's where is no scalar bool"),
    "parallel": (
        loop("i", 4, loop("j", 4, ok, LoopKind.PARALLEL), LoopKind.PARALLEL),
        "parallel loop j is inside another",
    ),
    "tag": (loop("i", 4, ok, LoopKind.BOUND), "a bound loop has a tag"),
    "tag of serial": (loop("i", 4, ok, tag="x"), "no other kind has"),
    "note twice": (loop("i", 4, ok, annotations=(("a", 1), ("a", 2))), "given twice"),
    "note of a loop": (
        loop("i", 4, loop("j", 4, ok, annotations=(("a", (i,)),))),
        "annotation a mentions {'i'}",
    ),
    "note": (loop("i", 4, ok, annotations=(("a", frozenset()),)), "no text form"),
    "scope": (ir.Alloc(buf("T", f32, 4, scope=""), ok), "no memory scope"),
    "extent": (ir.Alloc(buf("T", f32, -4), ok), "negative extent"),
    "data shape": (ir.Alloc(buf("T", f32, arith.Opaque(W[0])), ok), "depends on data"),
    "sync": (ir.Sync(""), "names the scope"),
    "token": (ir.Wait("t"), "no copy has the token 't'"),
    "copy type": (ir.CopyAsync(box(X, (0, 4)), box(W, (0, 4)), "t"), "does not convert"),
    "copy shape": (ir.CopyAsync(box(X, (0, 4)), box(Y, (0, 5)), "t"), "differ in shape"),
    "box range": (ir.CopyAsync(box(X, (14, 4)), box(Y, (0, 4)), "t"), "box of X is out of range"),
    "box rank": (ir.CopyAsync(box(X, (0, 4), (0, 1)), box(Y, (0, 4)), "t"), "not its rank"),
    "arguments": (ir.Call(DOT, ()), "dot takes 1 boxes, not 0"),
    "argument type": (ir.Call(DOT, (box(W, (0, 4)),)), "W is i64, not f32"),
    "argument shape": (ir.Call(DOT, (box(X, (0, 5)),)), "not the shape of q"),
    "meaning": (ir.Call(BROKEN, (box(X, (0, 4)),)), "q[9] is out of range"),
    "fail count": (ir.Fail("no", (W[0], W[1], W[2])), "at most two"),
    "fail type": (ir.Fail("no", (X[0],)), "scalar integers"),
}


@pytest.mark.parametrize("law", REFUSALS)
def test_refuses(law):
    body, words = REFUSALS[law]
    with pytest.raises(IngotError) as caught:
        verify.verify(kernel([X, Y, W], body, [ir.Size("n")]))
    assert caught.value.code == "bad-loops"
    assert words in str(caught.value)
    assert "kernel k" in caught.value.where


@pytest.mark.parametrize("make", kernels.ALL, ids=lambda make: make.__name__)
def test_accepts(make):
    verify.verify(make())


def test_the_error_shows_the_statement():
    with pytest.raises(IngotError) as caught:
        verify.verify(kernel([X], loop("i", 4, store(X, i + j, num(1.0)))))
    assert "X[i + j] = 1.0" in caught.value.where


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (ir.Size("n", divisor=0), "divisor 0"),
        (ir.Size("n", 5, 4), "its range is 5 … 4"),
        (ir.Size("X"), "X is given twice"),
    ],
)
def test_refuses_sizes(size, words):
    with pytest.raises(IngotError, match=words):
        verify.verify(kernel([X], ok, [size]))


def test_params_mention_sizes_only():
    with pytest.raises(IngotError, match="m is not bound"):
        verify.verify(kernel([X, buf("P", f32, arith.Var("m"))], ok))


def test_guarded_constant_indices_may_be_out_of_range():
    never = ir.Compare("lt", Index(n), num(0, i64))
    outside = store(X, 99, num(1.0))
    verify.verify(kernel([X], ir.If(never, outside), [ir.Size("n")]))
    verify.verify(kernel([X], ir.If(never, ir.Block("b", (), outside)), [ir.Size("n")]))
    verify.verify(kernel([X], ir.Block("b", (), outside, where=never), [ir.Size("n")]))
    verify.verify(kernel([X], store(X, 99, num(1.0), mask=never), [ir.Size("n")]))


def test_a_noted_reduction_needs_no_init():
    noted = block(axis("v", AxisKind.REDUCE), annotations=((ir.ACCUMULATES, True),))
    verify.verify(kernel([X], noted))


def test_where_may_mention_outer_loops_and_axes():
    where = ir.Compare("lt", Index(i), Index(v))
    verify.verify(kernel([X], block(axis("v"), where=where)))


def test_hooks_run_on_what_passes(monkeypatch):
    seen: list[ir.Kernel] = []
    monkeypatch.setattr(verify, "HOOKS", [seen.append])
    made = kernels.product()
    verify.verify(made)
    assert seen == [made]
    with pytest.raises(IngotError):
        verify.verify(kernel([X], ir.Wait("t")))
    assert len(seen) == 1


def test_long_chains_of_lets_are_no_problem():
    body: ir.Stmt = ok
    for number in range(150):
        body = ir.Let(f"t{number}", num(1.0), body)
    verify.verify(kernel([X], body))


# --- the builder gives legal names -------------------------------------------------------------


def test_the_builder_avoids_words_and_sizes():
    b = Build("k", taken=["vi"])
    a = b.param("lambda", f32, (n,))
    again = b.param("n", f32, (4,))
    out = b.compute("inf", (n,), lambda p: a[p] + again[0])
    made = b.finish([out], [ir.Size("n"), ir.Size("vi")])
    verify.verify(made)
    assert [p.name for p in made.params] == ["v", "n_2", "v_2"]


def test_the_builder_never_gives_a_name_twice():
    b = Build("k")
    names = [b.fresh(base) for base in ("i", "i", "i_2", "i", "i_2", "i_2_2", "i")]
    assert len(set(names)) == len(names)


def test_a_buffer_makes_way_for_a_size_seen_later():
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
