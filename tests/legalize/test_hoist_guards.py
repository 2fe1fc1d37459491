"""Guards are hoisted out of inner loops: which loops are versioned, which are not; same results."""

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize.context import PassContext
from ingot.legalize.flatten import flatten
from ingot.legalize.hoist_guards import hoist_guards
from ingot.legalize.lower_blocks import lower_blocks
from ingot.legalize.place_allocs import place_allocs
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.loops.script_print import show
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from tests.legalize.common import AVX2, check
from tests.schedule.common import matmul


def hoisted(sch: Schedule) -> ir.Kernel:
    """The kernel after `hoist_guards` and the passes that it needs."""
    kernel, ctx = sch.kernel, PassContext.of(sch.kernel, AVX2)
    for each in (lower_blocks, place_allocs, flatten, hoist_guards):
        kernel = each(kernel, ctx)
    verify(kernel)
    return kernel


def branches(kernel: ir.Kernel) -> list[ir.If]:
    found = (s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.If))
    return [s for s in found if s.orelse is not None]


def streamed(rows: int, columns: int, depth: int) -> Schedule:
    """Blocks of 16 columns, two k at a time, the rows inside."""
    sch = Schedule(matmul(rows, columns, depth))
    i, j, k = sch.loops(sch.block("Y"))
    j_outer, j_inner = sch.split(j, None, 16)
    k_outer, k_inner = sch.split(k, None, 2)
    sch.reorder(k_outer, j_outer, i, k_inner, j_inner)
    sch.decompose_reduction(sch.block("Y"), k_outer)
    sch.vectorize(j_inner)
    sch.unroll(k_inner)
    return sch


def test_a_guard_is_tested_once_for_all_rows():
    (by_k,) = [b for b in branches(hoisted(streamed(3, 20, 7))) if "k" in show(b.cond)]
    assert not any("k_0" in show(s.cond) for s in visit.walk_stmts(by_k.then)
                   if isinstance(s, ir.If))  # fmt: skip
    (by_column,) = [s for s in visit.walk_stmts(by_k.then) if isinstance(s, ir.If) and s.orelse]
    assert not any(isinstance(s, ir.If) for s in visit.walk_stmts(by_column.then))
    assert any(isinstance(s, ir.If) for s in visit.walk_stmts(by_column.orelse))


@pytest.mark.parametrize("shape", [(3, 20, 7), (1, 16, 8), (2, 15, 3), (5, 33, 2), (4, 1, 3)])
def test_results_stay(shape):
    check(streamed(*shape).kernel)


def test_a_guard_with_no_loop_below_it_stays():
    b = Build("map")
    x = b.param("x", dtypes.f32, (20,))
    sch = Schedule(b.finish([b.compute("y", (20,), lambda i: x[i] + x[i])]))
    _, inner = sch.split(sch.loops(sch.block("y"))[0], None, 8)
    sch.vectorize(inner)
    assert not branches(hoisted(sch))
    check(sch.kernel)


def test_a_guard_on_loaded_data_stays():
    """It may change while the loop runs."""
    b = Build("held")
    x, limit = b.param("x", dtypes.f32, (20, 3)), b.param("limit", dtypes.i64, (1,))
    kernel = b.finish([b.compute("y", (20, 3), lambda i, j: x[i, j])])
    (loop,) = [s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For) and s.var == "i"]
    inner = loop.body
    held = ir.Index(ir.index_of(limit[0]))
    guard = ir.Compare("lt", ir.Index(arith.Var("i")), held)
    assert isinstance(inner, ir.For)
    guarded = ir.replace(inner, body=ir.If(guard, inner.body))
    kernel = ir.replace(kernel, body=visit.replace_stmt(kernel.body, inner, guarded))
    assert not branches(hoisted(Schedule(kernel)))


def test_masks_of_loads_are_tested_once_for_all_rows():
    sch = Schedule(matmul(3, 20, 8))
    sch.pad(sch.block("Y"), 1, 16, 1, beyond="zero")
    i, j, k = sch.loops(sch.block("Y"))
    j_outer, lanes = sch.split(j, None, 16)
    sch.reorder(j_outer, i, k, lanes)
    sch.vectorize(lanes)
    (by_column,) = branches(hoisted(sch))
    assert by_column.orelse is not None
    masks = [[x.mask for x in visit.loads(s) if x.buffer.name == "B"]
             for s in (by_column.then, by_column.orelse)]  # fmt: skip
    assert masks[0] and not any(masks[0])
    assert masks[1] and all(masks[1])
    check(sch.kernel)


def test_a_large_body_is_not_duplicated():
    sch = streamed(3, 20, 300)
    _, update = [x for x in sch.blocks() if sch.at_block(x).name.startswith("Y")]
    k_outer = sch.loops(update)[0]
    sch.unroll(k_outer)
    assert not any("k_0" in show(b.cond) for b in branches(hoisted(sch)))


def bordered(size: arith.Expr | int, is_parallel: bool = False) -> ir.Kernel:
    """Three neighbours of each row in an order that is not affine, zero outside of x."""
    b = Build("bordered")
    x = b.param("x", dtypes.f32, (size, 8))

    def value(t: arith.Expr, i: arith.Expr, j: arith.Expr) -> ir.Expr:
        row = ir.Index(i + t // 2 - 1)
        inside = ir.Compare("ge", row, ir.Lit(0, dtypes.i64)) & ir.Compare(
            "lt", row, ir.Index(arith.wrap(size))
        )
        return ir.Load(x, (row.expr, j), mask=inside, other=ir.value_of(0, dtypes.f32))

    y = b.compute("y", (6, size, 8), value)
    kernel = b.finish([y], [ir.Size("n", 1)] if isinstance(size, arith.Var) else [])
    sch = Schedule(kernel)
    point, row, lane = sch.loops(sch.block("y"))
    sch.reorder(row, point, lane)
    sch.unroll(point)
    sch.vectorize(lane)
    if is_parallel:
        sch.parallel(row)
    return sch.kernel


@pytest.mark.parametrize("is_parallel", [False, True])
def test_masks_of_unrolled_points_are_tested_once_for_all_where_sizes_are_dynamic(is_parallel):
    (inside,) = branches(hoisted(Schedule(bordered(arith.Var("n"), is_parallel))))
    assert inside.orelse is not None
    assert [x.mask for x in visit.loads(inside.then)] == [None]
    assert all(x.mask is not None for x in visit.loads(inside.orelse))
    assert len(visit.conjuncts(inside.cond)) == 2  # the first and the last neighbour
    assert not branches(hoisted(Schedule(bordered(9, is_parallel))))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_results_of_masked_points_stay(rows):
    check(bordered(arith.Var("n")), {"n": rows})
