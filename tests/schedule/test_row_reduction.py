"""Row reductions by the default rules: partial results, interleaved Math calls, prefetch."""

from __future__ import annotations

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.script_print import show
from ingot.schedule import Schedule
from ingot.schedule.default import schedule_kernel
from ingot.support import options
from ingot.target import parse
from tests.schedule.common import assert_same
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.test_rules import op_kernel

V3 = parse("x86-64-v3")  # vectors of eight, 512 kB of L2, 4 MB of L3
BEYOND_L2, WITHIN_L2 = (1200, 128), (300, 128)  # 1.2 MB read and written, 300 kB


def rows(name: str, *shapes: tuple, **attrs) -> tuple[ir.Kernel, Schedule]:
    kernel, family = op_kernel(name, shapes, {"axis": -1, **attrs})
    return kernel, schedule_kernel(kernel, V3, family)


def hints(sch: Schedule) -> list[str]:
    return [line.strip() for line in show(sch.kernel).splitlines() if "prefetch" in line]


def width(sch: Schedule, block: str) -> int | None:
    """Lanes of the block's vectors."""
    return arith.as_int(sch.at_loop(sch.loops(sch.block(block))[-1]).extent)


def partial_lanes(sch: Schedule) -> int | None:
    """Elements of a row's partial sums."""
    (store,) = visit.stores(sch.at_block(sch.block("total_rf")).body)
    return arith.as_int(store.buffer.shape[-1])


@pytest.mark.parametrize(
    ("columns", "lanes"),
    [(40, 8), (77, 16), (128, 32), (197, 32), (1000, 32), (arith.Var("n"), 16)],
)
def test_long_rows_have_more_vectors_of_partial_results(columns, lanes):
    """Whether or not they divide the row."""
    kernel, sch = rows("softmax", (3, columns))
    assert partial_lanes(sch) == lanes
    assert width(sch, "total") == lanes  # they are reduced in one tree
    sizes = {} if isinstance(columns, int) else {"n": 50}
    assert_same(kernel, sch.kernel, **sizes)


@pytest.mark.parametrize(("columns", "lanes"), [(16, 8), (28, 8), (31, 8), (32, 16)])
def test_rows_shorter_than_two_vectors_have_half_vectors(columns, lanes):
    kernel, family = op_kernel("softmax", [(3, columns)], {"axis": -1})
    sch = schedule_kernel(kernel, parse("x86-64-v4"), family)
    assert partial_lanes(sch) == width(sch, "total") == lanes
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize("columns", [16, 77, 1000])
def test_math_calls_are_interleaved_in_rows_too(columns):
    _, sch = rows("softmax", (3, columns))
    assert width(sch, "power") == 16
    assert width(sch, "out_out") == 8


def test_a_tail_of_two_registers_is_right_everywhere():
    kernel, sch = rows("softmax", (5, 77))
    assert_everywhere(kernel, sch)


def test_rows_beyond_the_cache_are_prefetched_during_exp():
    kernel, sch = rows("softmax", BEYOND_L2)
    read, written = hints(sch)
    assert read.startswith("prefetch(x0[") and "+ 1:" in read  # of the next row
    assert written.startswith("prefetch_write(out_out[") and "+ 1:" not in written
    assert hints(rows("softmax", WITHIN_L2)[1]) == []
    assert_same(kernel, sch.kernel)


def test_row_prefetch_can_be_switched_off():
    with options.override(off={"prefetch"}):
        assert hints(rows("softmax", BEYOND_L2)[1]) == []


def test_rows_without_math_are_prefetched_only_from_memory():
    """A layer-norm is as fast as the last-level cache, so only memory is prefetched; its scales are
    the same for every row."""

    def found(count: int) -> set[str]:
        _, sch = rows("layer_norm", (count, 1024), (1024,), (1024,), epsilon=1e-5)
        return {x.partition("[")[0] for x in hints(sch)}

    assert found(400) == set()  # 3.2 MB of 4
    assert found(1000) == {"prefetch_write(out_out", "prefetch(x0"}
