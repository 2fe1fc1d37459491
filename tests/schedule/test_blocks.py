"""compute_inline, compute_at, reverse_compute_at: legal and illegal cases."""

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule
from tests.schedule.common import (
    assert_same,
    conv1d,
    cumsum,
    elementwise,
    f32,
    matmul,
    refused_step,
    softmax,
)

n = arith.Var("n")


def names(sch: Schedule, block: str) -> list[str]:
    return [loop.name for loop in sch.loops(sch.block(block))]


# compute_inline


def test_inline_puts_the_expression_into_the_consumer():
    kernel = elementwise()
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("S"))
    assert [b.name for b in visit.blocks(sch.kernel.body)] == ["Z"]
    assert not any(isinstance(s, ir.Alloc) for s in visit.walk_stmts(sch.kernel.body))
    assert_same(kernel, sch.kernel)


def test_inline_into_a_reduction():
    kernel = conv1d()
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("padded"))
    assert_same(kernel, sch.kernel)


def guarded_consumer(divide: bool) -> ir.Kernel:
    """Z = S[i - 2] where there is one; S gathers, and may divide by what it loads."""
    b = Build("guarded")
    x, p = b.param("X", dtypes.i64, (5,)), b.param("P", dtypes.i64, (5,))

    def value(i: arith.Expr) -> ir.Expr:
        total = x[ir.Binary("min", p[i], ir.Lit(4, dtypes.i64))] * 3
        one = ir.Binary("max", p[i], ir.Lit(1, dtypes.i64))
        return ir.Binary("div", total, one) if divide else total

    s = b.compute("S", (5,), value)

    def pad(i: arith.Expr) -> ir.Expr:
        low = ir.Compare("ge", ir.Index(i), ir.Lit(2, dtypes.i64))
        high = ir.Compare("lt", ir.Index(i), ir.Lit(7, dtypes.i64))
        return ir.Load(s, (i - 2,), mask=low & high, other=ir.Lit(-9, dtypes.i64))

    return b.finish([b.compute("Z", (9,), pad)])


@pytest.mark.parametrize("divide", [False, True])
def test_inline_through_a_guarded_load_guards_every_load(divide):
    kernel = guarded_consumer(divide)
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("S"))
    loads = list(visit.loads(sch.kernel.body))
    assert loads and all(x.mask is not None for x in loads)
    assert any(isinstance(e, ir.Select) for e in visit.all_exprs(sch.kernel.body))
    assert_same(kernel, sch.kernel)


def test_inline_keeps_an_existing_guard():
    b = Build("twice")
    x = b.param("X", f32, (4,))

    def pad(source: ir.Buffer, size: int):
        def value(i: arith.Expr) -> ir.Expr:
            low = ir.Compare("ge", ir.Index(i - 1), ir.Lit(0, dtypes.i64))
            high = ir.Compare("lt", ir.Index(i - 1), ir.Lit(size, dtypes.i64))
            return ir.Load(source, (i - 1,), mask=low & high, other=ir.Lit(float(size), f32))

        return value

    s = b.compute("S", (6,), pad(x, 4))
    kernel = b.finish([b.compute("Z", (8,), pad(s, 6))])
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("S"))
    assert_same(kernel, sch.kernel)


def test_inline_through_a_loaded_index():
    b = Build("gather")
    x, p = b.param("X", f32, (3, 4)), b.param("P", dtypes.i32, (5,))
    s = b.compute("S", (3, 4), lambda i, j: x[i, j] * x[i, 0])
    kernel = b.finish([b.compute("Z", (5, 4), lambda i, j: s[p[i], j])])
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("S"))
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize(
    ("make", "block", "why", "hint"),
    [
        (matmul, "Y", (), "compute_at"),
        (matmul, "Z", ("Z",), True),
        (cumsum, "out", ("out",), True),
    ],
)
def test_inline_refuses(make, block, why, hint):
    sch = Schedule(make())
    kernel = sch.kernel
    with refused_step(f"compute_inline({block})", *why, hint=hint):
        sch.compute_inline(sch.block(block))
    assert sch.kernel is kernel


def test_inline_refuses_a_reader_that_was_padded_beyond_the_block():
    """The row that `total` reads beyond the end of `power` is undefined; X has no such row."""
    sch = Schedule(softmax(3, 4))
    row, column = sch.loops(sch.block("total"))
    sch.reorder(column, row)
    sch.split(row, None, 2, 2, tail="pad")
    with refused_step("compute_inline(power)", "total", "power"):
        sch.compute_inline(sch.block("power"))


def test_inline_of_a_buffer_with_room_to_spare():
    kernel = elementwise(6, 5)
    sch = Schedule(kernel)
    sch.storage_align("S", 0, 8)
    sch.compute_inline(sch.block("S"))
    assert_same(kernel, sch.kernel)


def test_inline_refuses_a_store_that_is_not_at_its_axes():
    b = Build("shifted")
    x, s = b.param("X", f32, (4,)), b.buffer("S", f32, (5,))
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, arith.Const(4), arith.Var("i"))
    b.emit(ir.serial("i", 4, ir.Block("S", (axis,), ir.Store(s, (v + 1,), x[v]))))
    z = b.compute("Z", (4,), lambda i: s[i + 1])
    sch = Schedule(b.finish([z]))
    with refused_step("compute_inline(S)", hint="compute_at"):
        sch.compute_inline(sch.block("S"))


def test_inline_refuses_when_an_input_is_overwritten_before_the_reader():
    b = Build("overwritten")
    x = b.param("X", f32, (4,))
    s = b.compute("S", (4,), lambda i: x[i] * 2.0)
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, arith.Const(4), arith.Var("w"))
    b.emit(ir.serial("w", 4, ir.Block("X", (axis,), ir.Store(x, (v,), ir.Lit(0.0, f32)))))
    z = b.compute("Z", (4,), lambda i: s[i])
    sch = Schedule(b.finish([z]))
    with refused_step("compute_inline(S)", "X", "S"):
        sch.compute_inline(sch.block("S"))
    with refused_step("compute_at(S, i_2)", "X", "S"):
        sch.compute_at(sch.block("S"), sch.loops(sch.block("Z"))[0])


# compute_at


def test_compute_at_computes_only_what_is_read():
    kernel = conv1d(20)
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("acc"))[0], None, 5)
    sch.compute_at(sch.block("padded"), outer)
    inner = sch.loops(sch.block("padded"))
    assert inner[0] == outer
    assert arith.as_int(sch.at_loop(inner[1]).extent) == 7  # five outputs, two taps more
    assert_same(kernel, sch.kernel)


def test_compute_at_guards_the_last_tile():
    kernel = conv1d(19)
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("acc"))[0], None, 5)
    sch.compute_at(sch.block("padded"), outer)
    assert sch.at_block(sch.block("padded")).where is not None
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize("size", [3, 5, 12])
def test_compute_at_with_symbolic_sizes(size):
    kernel = conv1d(n, 3, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("acc"))[0], None, 5)
    sch.compute_at(sch.block("padded"), outer)
    assert_same(kernel, sch.kernel, n=size)


def test_compute_at_moves_reductions_whole():
    kernel = softmax()
    sch = Schedule(kernel)
    rows = sch.loops(sch.block("out"))[0]
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), rows)
    assert [b.name for b in visit.blocks(sch.kernel.body)] == ["top", "power", "total", "out"]
    assert all(names(sch, b)[0] == "i_5" for b in ("top", "power", "total", "out"))
    assert_same(kernel, sch.kernel)


def test_compute_at_computes_a_gathered_dimension_in_full():
    b = Build("gather")
    x, p = b.param("X", f32, (3, 4)), b.param("P", dtypes.i32, (5,))
    s = b.compute("S", (3, 4), lambda i, j: x[i, j] * 2.0)
    kernel = b.finish([b.compute("Z", (4, 5), lambda j, i: s[p[i], j])])
    sch = Schedule(kernel)
    sch.compute_at(sch.block("S"), sch.loops(sch.block("Z"))[0])
    extents = [arith.as_int(sch.at_loop(x).extent) for x in sch.loops(sch.block("S"))]
    assert extents == [4, 3, 1]
    assert_same(kernel, sch.kernel)


def test_compute_at_refuses_a_reader_elsewhere():
    sch = Schedule(softmax())
    with refused_step("compute_at(power, i_5)", "total", "i_5") as caught:
        sch.compute_at(sch.block("power"), sch.loops(sch.block("out"))[0])
    assert "for i_5 in range(5):  ← here" in caught.value.where


def test_compute_at_refuses_outputs_and_foreign_loops():
    sch = Schedule(matmul())
    with refused_step("compute_at(Z, i)", "Z"):
        sch.compute_at(sch.block("Z"), sch.loops(sch.block("Y"))[0])
    with refused_step("compute_at(Y, i)", "i"):
        sch.compute_at(sch.block("Y"), sch.loops(sch.block("Y"))[0])


def test_compute_at_refuses_to_lose_a_guard():
    sch = Schedule(elementwise(11, 6))
    _, inner = sch.split(sch.loops(sch.block("S"))[0], None, 4)
    sch.split(inner, None, 3)
    with refused_step("compute_at(S, i_3)", "guard"):
        sch.compute_at(sch.block("S"), sch.loops(sch.block("Z"))[0])


# reverse_compute_at


@pytest.mark.parametrize(("m", "k"), [(8, 20), (7, 19)])
def test_an_epilogue_is_fused_into_the_tile(m, k):
    kernel = matmul(m, k)
    sch = Schedule(kernel)
    i, j, p = sch.loops(sch.block("Y"))
    io, ii = sch.split(i, None, 4)
    jo, ji = sch.split(j, None, 8)
    sch.reorder(io, jo, p, ii, ji)
    tile = sch.fuse(io, jo)
    sch.reverse_compute_at(sch.block("Z"), tile)
    extents = [arith.as_int(sch.at_loop(x).extent) for x in sch.loops(sch.block("Z"))[1:]]
    assert extents == [4, 8]
    sch.parallel(tile)
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_an_epilogue_on_a_symbolic_tile(size):
    kernel = matmul(n, 8, 3, [ir.Size("n")])
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    sch.reverse_compute_at(sch.block("Z"), outer)
    assert_same(kernel, sch.kernel, n=size)


def transposed_epilogue() -> ir.Kernel:
    b = Build("transposed")
    x = b.param("X", f32, (6, 5))
    y = b.reduce("Y", (6, 5), (3,), "add", lambda i, j, k: x[i, j])
    return b.finish([b.compute("Z", (5, 2, 6), lambda j, c, i: y[i, j] + x[i, j])])


def test_a_consumer_may_permute_and_broadcast():
    kernel = transposed_epilogue()
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    sch.reverse_compute_at(sch.block("Z"), outer)
    extents = [arith.as_int(sch.at_loop(x).extent) for x in sch.loops(sch.block("Z"))]
    assert extents == [2, 5, 2, 4]
    assert_same(kernel, sch.kernel)


def test_reverse_refuses_an_unfinished_reduction():
    sch = Schedule(matmul())
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i, j)
    with refused_step("reverse_compute_at(Z, i)", "k", hint="k"):
        sch.reverse_compute_at(sch.block("Z"), i)


def test_reverse_refuses_a_window():
    b = Build("window")
    x = b.param("X", f32, (10,))
    y = b.compute("Y", (10,), lambda i: x[i] * 2.0)
    z = b.compute("Z", (9,), lambda i: y[i] + y[i + 1])
    sch = Schedule(b.finish([z]))
    with refused_step("reverse_compute_at(Z, i)", "Y", "vi_2 + 1"):
        sch.reverse_compute_at(sch.block("Z"), sch.loops(sch.block("Y"))[0])


def test_reverse_refuses_a_reduction():
    sch = Schedule(softmax())
    with refused_step("reverse_compute_at(total, i_2)", "vk_2", "reduce", hint="compute_at"):
        sch.reverse_compute_at(sch.block("total"), sch.loops(sch.block("power"))[0])


def test_reverse_refuses_inputs_computed_later():
    sch = Schedule(softmax())
    with refused_step("reverse_compute_at(out, i_2)", "total", "i_2", hint="total"):
        sch.reverse_compute_at(sch.block("out"), sch.loops(sch.block("power"))[0])


def test_reverse_refuses_a_loop_with_no_producer():
    b = Build("unrelated")
    x = b.param("X", f32, (4,))
    y = b.compute("Y", (4,), lambda i: x[i] * 2.0)
    w = b.compute("W", (4,), lambda i: x[i] + 1.0)
    z = b.compute("Z", (4,), lambda i: y[i] + 3.0)
    sch = Schedule(b.finish([w, z]))
    with refused_step("reverse_compute_at(Z, i_2)", "i_2"):
        sch.reverse_compute_at(sch.block("Z"), sch.loops(sch.block("W"))[0])


def test_reverse_refuses_a_tile_with_gaps():
    sch = Schedule(matmul(8, 4, 3))
    i = sch.loops(sch.block("Y"))[0]
    io, ii = sch.split(i, None, 4)
    sch.reorder(ii, io)
    with refused_step("reverse_compute_at(Z, i_1)", "Y"):
        sch.reverse_compute_at(sch.block("Z"), ii)


def test_reverse_refuses_a_tile_that_changes_its_size():
    """Row i of the producer has i + 1 elements; the consumer's rows are whole."""
    b = Build("triangle")
    x, y = b.param("X", f32, (6, 6)), b.buffer("Y", f32, (6, 6))
    vi, vj = arith.Var("vi"), arith.Var("vj")
    axes = tuple(
        ir.Axis(v, ir.AxisKind.SPATIAL, arith.Const(6), arith.Var(v[1:])) for v in ("vi", "vj")
    )
    block = ir.Block("Y", axes, ir.Store(y, (vi, vj), x[vi, vj]))
    b.emit(ir.serial("i", 6, ir.For("j", arith.Const(0), arith.Var("i") + 1, block)))
    z = b.compute("Z", (6, 6), lambda i, j: y[i, j])
    sch = Schedule(b.finish([z]))
    with refused_step("reverse_compute_at(Z, i)", "Y"):
        sch.reverse_compute_at(sch.block("Z"), sch.loops(sch.block("Y"))[0])
