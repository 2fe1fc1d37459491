"""reverse_compute_inline: a consumer is inlined into its producer. Legal and illegal cases."""

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule
from tests.schedule.common import check_step, cumsum, elementwise, f32, matmul, relu, softmax
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.test_caches import refusal


def test_the_consumer_goes_into_the_producers_loops():
    kernel = elementwise(6, 20)
    sch = Schedule(kernel)
    _, lane = sch.split(sch.loops(sch.block("S"))[1], None, 8)
    sch.vectorize(lane)
    sch.reverse_compute_inline(sch.block("Z"))
    assert [b.name for b in visit.blocks(sch.kernel.body)] == ["Z"]
    assert not any(isinstance(s, ir.Alloc) for s in visit.walk_stmts(sch.kernel.body))
    assert lane in sch.loops(sch.block("Z"))
    assert_everywhere(kernel, sch)


def transposed(rows: int = 3, cols: int = 5) -> ir.Kernel:
    b = Build("transposed")
    x = b.param("X", f32, (rows, cols))
    s = b.compute("S", (rows, cols), lambda i, j: x[i, j] * 2.0)
    return b.finish([b.compute("Z", (cols, rows), lambda j, i: relu(s[i, j]) + s[i, j])])


def test_axes_may_be_transposed():
    kernel = transposed()
    sch = Schedule(kernel)
    sch.reverse_compute_inline(sch.block("Z"))
    assert_everywhere(kernel, sch)


def test_a_chain_from_the_end():
    b = Build("chain")
    x = b.param("X", f32, (9,))
    s = b.compute("S", (9,), lambda i: x[i] * 2.0)
    t = b.compute("T", (9,), lambda i: s[i] + 1.0)
    kernel = b.finish([b.compute("Z", (9,), lambda i: relu(t[i]))])
    sch = Schedule(kernel)
    sch.reverse_compute_inline(sch.block("Z"))
    sch.reverse_compute_inline(sch.block("Z"))
    assert visit.read(sch.at_block(sch.block("Z"))) == {"X"}
    assert_everywhere(kernel, sch)


def part(of: int = 9) -> ir.Kernel:
    b = Build("part")
    x = b.param("X", f32, (of,))
    s = b.compute("S", (of,), lambda i: x[i] * 2.0)
    return b.finish([b.compute("Z", (4,), lambda i: s[i])])


def shifted() -> ir.Kernel:
    b = Build("shifted")
    x = b.param("X", f32, (9,))
    s = b.compute("S", (9,), lambda i: x[i] * 2.0)
    return b.finish([b.compute("Z", (8,), lambda i: s[i + 1])])


def read_twice() -> ir.Kernel:
    b = Build("twice")
    x = b.param("X", f32, (9,))
    s = b.compute("S", (9,), lambda i: x[i] * 2.0)
    z = b.compute("Z", (9,), lambda i: s[i] + 1.0)
    return b.finish([z, b.compute("W", (9,), lambda i: s[i] * z[i])])


@pytest.mark.parametrize(
    ("make", "block", "why"),
    [
        (matmul, "Z", ("Y",)),
        (softmax, "out", ("total",)),
        (cumsum, "out", ("vt", "out", "ordered")),
        (part, "Z", (4, 9, "S")),
        (shifted, "Z", ("S", "[vi_2 + 1]")),
        (read_twice, "Z", (0, "Z")),
    ],
)
def test_reverse_inline_refuses(make, block, why):
    error = refusal(sch := Schedule(make()), "reverse_compute_inline", sch.block(block))
    check_step(error, f"reverse_compute_inline({block})", *why)
    assert "← here" in error.where


def test_reverse_inline_refuses_to_run_before_what_it_reads():
    b = Build("order")
    x = b.param("X", f32, (4,))
    s = b.compute("S", (4,), lambda i: x[i] * 2.0)
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, arith.Const(4), arith.Var("w"))
    b.emit(ir.serial("w", 4, ir.Block("X", (axis,), ir.Store(x, (v,), ir.Lit(0.0, f32)))))
    sch = Schedule(b.finish([b.compute("Z", (4,), lambda i: s[i] + x[i])]))
    error = refusal(sch, "reverse_compute_inline", sch.block("Z"))
    check_step(error, "reverse_compute_inline(Z)", "X", hint="X")
