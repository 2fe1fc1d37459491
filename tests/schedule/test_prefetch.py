"""prefetch: what is asked for, what is refused, and that no value changes."""

import pytest

from ingot.arith import expr as arith
from ingot.codegen.llvm import kernel_text
from ingot.loops import ir, visit
from ingot.loops.script_parse import parse
from ingot.loops.script_print import show
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.native import legal_parts
from tests.schedule.agree import assert_everywhere
from tests.schedule.common import elementwise, matmul, softmax


def hints(kernel: ir.Kernel) -> list[str]:
    return [line.strip() for line in show(kernel).splitlines() if "prefetch" in line]


def rows(ahead: int = 1) -> tuple[ir.Kernel, Schedule]:
    """Rows of a softmax; the loop that adds up powers asks for the next one."""
    kernel = softmax(6, 40)
    sch = Schedule(kernel)
    row, _ = sch.loops(sch.block("out"))
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), row)
    step = sch.loops(sch.block("total"))[-1]
    sch.prefetch(sch.split(step, 5, None)[0], "X", row, ahead)
    return kernel, sch


def test_iterations_share_out_the_next_row():
    kernel, sch = rows()
    assert len(hints(sch.kernel)) == 1
    assert "8:" in hints(sch.kernel)[0], hints(sch.kernel)  # a fifth of 40
    assert parse(show(sch.kernel)) == sch.kernel
    assert_everywhere(kernel, sch)


def test_a_line_of_cache_is_asked_for_once():
    kernel = elementwise(4, 100)
    sch = Schedule(kernel)
    i, _ = sch.loops(sch.blocks()[0])
    sch.prefetch(i, "X", i)
    part = legal_parts(sch.kernel).kernels[0]
    found = [s for s in visit.walk_stmts(part.body) if isinstance(s, ir.Prefetch)]
    assert len(found) == 7  # 400 bytes
    assert kernel_text(part).count("call void @llvm.prefetch") == 7
    assert_everywhere(kernel, sch)


def test_loops_between_share_out_too():
    """Each j and k asks for its own part of the next row, all of them for all of it."""
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


def test_rows_with_a_hint_between_their_loops_may_still_be_split_and_shared_out():
    kernel, sch = rows()
    row = sch.loops(sch.block("out"))[0]
    outer, _ = sch.split(row, None, 4)
    sch.parallel(outer)
    assert len(hints(sch.kernel)) == 1
    assert_everywhere(kernel, sch)


def test_a_column_is_shared_out_by_its_rows():
    sch = Schedule(matmul(4, 20, 12))
    _, j, k = sch.loops(sch.block("Y"))
    sch.prefetch(k, "B", j)
    (hint,) = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Prefetch)]
    assert [arith.as_int(e) for e in hint.box.extents] == [1, 1]
    assert hint.box.offsets[0] == arith.Var(k.name)


def test_what_is_written_is_fetched_for_writing():
    _, sch = rows()
    row = sch.loops(sch.block("out"))[0]
    step = sch.loops(sch.block("total"))[-2]
    sch.prefetch(step, "out", row, 0)
    assert any(line.startswith("prefetch_write(out") for line in hints(sch.kernel))


def test_a_hint_under_a_vector_goes():
    kernel = elementwise(16, 8)
    sch = Schedule(kernel)
    i, j = sch.loops(sch.blocks()[0])
    sch.vectorize(i)
    sch.prefetch(j, "X", i)
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(
    ("buffer", "loop", "over", "ahead", "why"),
    [
        ("Y", 1, 0, 1, "Y is not a parameter"),
        ("Z", 2, 1, 1, "nothing under i_2 touches Z"),
        ("A", 0, 1, 1, "i is not inside i_2"),
        ("A", 2, 0, 1, "240 iterations would share out 12 elements of A"),
        ("A", 1, 0, 1, "20 iterations would share out 12 elements of A"),
        ("A", 0, 0, 0, "0 iterations ahead"),
        ("A", 1, 0, -1, "-1 iterations ahead"),
    ],
)
def test_refusals(buffer, loop, over, ahead, why):
    sch = Schedule(matmul(4, 20, 12))
    at = sch.loops(sch.block("Y"))
    with pytest.raises(IngotError) as caught:
        sch.prefetch(at[loop], buffer, at[over], ahead)
    assert caught.value.code == "bad-schedule" and caught.value.why == why
