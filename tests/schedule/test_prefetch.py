"""prefetch: which lines are prefetched, illegal steps, and that no value changes."""

import pytest

from ingot.arith import expr as arith
from ingot.codegen.llvm import kernel_text
from ingot.loops import ir, visit
from ingot.loops.script_parse import parse
from ingot.loops.script_print import show
from ingot.schedule import Schedule
from tests.native import legal_kernels
from tests.schedule.common import elementwise, matmul, refused_step, softmax
from tests.schedule.equivalence import assert_everywhere


def hints(kernel: ir.Kernel) -> list[str]:
    return [line.strip() for line in show(kernel).splitlines() if "prefetch" in line]


def rows(ahead: int = 1) -> tuple[ir.Kernel, Schedule]:
    """Rows of a softmax; the loop of the sum prefetches the next row."""
    kernel = softmax(6, 40)
    sch = Schedule(kernel)
    row, _ = sch.loops(sch.block("out"))
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), row)
    step = sch.loops(sch.block("total"))[-1]
    sch.prefetch(sch.split(step, 5, None)[0], "X", row, ahead)
    return kernel, sch


def test_iterations_divide_the_next_row():
    kernel, sch = rows()
    assert len(hints(sch.kernel)) == 1
    assert "8:" in hints(sch.kernel)[0], hints(sch.kernel)  # a fifth of 40
    assert parse(show(sch.kernel)) == sch.kernel
    assert_everywhere(kernel, sch)


def test_a_cache_line_is_prefetched_once():
    kernel = elementwise(4, 100)
    sch = Schedule(kernel)
    i, _ = sch.loops(sch.blocks()[0])
    sch.prefetch(i, "X", i)
    part = legal_kernels(sch.kernel).kernels[0]
    found = [s for s in visit.walk_stmts(part.body) if isinstance(s, ir.Prefetch)]
    assert len(found) == 7  # 400 bytes
    assert kernel_text(part).count("call void @llvm.prefetch") == 7
    assert_everywhere(kernel, sch)


def test_loops_between_divide_the_row_too():
    """Each j and k prefetches its own part of the next row, all of them the whole row."""
    sch = Schedule(kernel := matmul(4, 20, 40))
    i, j, k = sch.loops(sch.block("Y"))
    j_outer, j_inner = sch.split(j, 4, None)
    k_outer, _ = sch.split(k, 5, None)
    sch.reorder(i, j_outer, k_outer, j_inner)
    sch.prefetch(k_outer, "A", i)
    (hint,) = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Prefetch)]
    assert [arith.as_int(e) for e in hint.box.extents] == [1, 2]
    starts = {
        arith.as_int(arith.substitute(hint.box.offsets[1], {j_outer.name: arith.Const(a),
                                                            k_outer.name: arith.Const(b)}))
        for a in range(4) for b in range(5)
    }  # fmt: skip
    assert starts == set(range(0, 40, 2))
    assert_everywhere(kernel, sch)


def test_rows_with_a_prefetch_may_still_be_split_and_parallel():
    kernel, sch = rows()
    row = sch.loops(sch.block("out"))[0]
    outer, _ = sch.split(row, None, 4)
    sch.parallel(outer)
    assert len(hints(sch.kernel)) == 1
    assert_everywhere(kernel, sch)


def test_a_column_is_divided_by_rows():
    sch = Schedule(matmul(4, 20, 12))
    _, j, k = sch.loops(sch.block("Y"))
    sch.prefetch(k, "B", j)
    (hint,) = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Prefetch)]
    assert [arith.as_int(e) for e in hint.box.extents] == [1, 1]
    assert hint.box.offsets[0] == arith.Var(k.name)


def test_outputs_are_prefetched_for_writing():
    _, sch = rows()
    row = sch.loops(sch.block("out"))[0]
    step = sch.loops(sch.block("total"))[-2]
    sch.prefetch(step, "out", row, 0)
    assert any(line.startswith("prefetch_write(out") for line in hints(sch.kernel))


def test_a_prefetch_under_a_vector_loop_is_dropped():
    kernel = elementwise(16, 8)
    sch = Schedule(kernel)
    i, j = sch.loops(sch.blocks()[0])
    sch.vectorize(i)
    sch.prefetch(j, "X", i)
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(
    ("buffer", "loop", "over", "ahead", "why"),
    [
        ("Y", 1, 0, 1, ("Y",)),
        ("Z", 2, 1, 1, ("i_2", "Z")),
        ("A", 0, 1, 1, ("i", "i_2")),
        ("A", 2, 0, 1, (240, 12, "A")),
        ("A", 1, 0, 1, (20, 12, "A")),
        ("A", 0, 0, 0, (0,)),
        ("A", 1, 0, -1, (-1,)),
    ],
)
def test_refusals(buffer, loop, over, ahead, why):
    sch = Schedule(matmul(4, 20, 12))
    at = sch.loops(sch.block("Y"))
    step = f"prefetch({at[loop].name}, '{buffer}', {at[over].name}, {ahead})"
    with refused_step(step, *why):
        sch.prefetch(at[loop], buffer, at[over], ahead)
