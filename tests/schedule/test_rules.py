"""The default rules on awkward shapes and dynamic sizes: semantics, and the loops they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import ingot.ops.conv
import ingot.ops.matmul
import ingot.ops.movement
import ingot.ops.norm
import ingot.ops.pool
import ingot.ops.reduce
import ingot.ops.softmax  # noqa: F401
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.graph import opdef
from ingot.graph.types import TensorType
from ingot.legalize.split_kernels import split_kernel
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.loops.ir import LoopKind
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from ingot.schedule.default import schedule_kernel
from ingot.support import options
from ingot.target import parse
from tests.schedule.common import (
    assert_same,
    backwards,
    conv1d,
    cumsum,
    elementwise,
    exp,
    f32,
    matmul,
    softmax,
)

n, m = arith.Var("n"), arith.Var("m")
TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64")
CONV = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
POOL = {
    "kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1),
    "ceil_mode": False, "count_include_pad": False,
}  # fmt: skip
Case = tuple[str, list[tuple], dict, dict]
CASES: list[Case] = [
    ("matmul", [(5, 7), (7, 6)], {}, {}),
    ("matmul", [(1, 9), (9, 33)], {}, {}),
    ("matmul", [(2, 3, 4), (4, 17)], {}, {}),
    ("matmul", [(4,), (4,)], {}, {}),
    ("matmul", [(13, 3), (3, 1)], {}, {}),
    ("matmul", [(1, 8), (8, 64)], {}, {}),
    ("matmul", [(3, 10), (10, 96)], {}, {}),
    ("matmul", [(3, 7), (7, 70)], {}, {}),
    ("matmul", [(2, 5, 11), (2, 11, 80)], {}, {}),
    ("matmul", [(n, 6), (6, 64)], {}, {"n": 3}),
    ("matmul", [(2, n, 4), (2, 4, m)], {}, {"n": 7, "m": 11}),
    ("matmul", [(n, m), (m, 16)], {}, {"n": 1, "m": 3}),
    ("conv", [(2, 3, 5, 9), (5, 3, 3, 3), (5,)], CONV, {}),
    ("conv", [(1, 4, 5, 7), (4, 1, 3, 3)], {**CONV, "group": 4}, {}),
    ("conv", [(1, 4, 7, 9), (6, 2, 3, 3)], {**CONV, "group": 2, "strides": (2, 2)}, {}),
    ("conv", [(1, 3, 4, 5), (7, 3, 1, 1)], {**CONV, "pads": (0,) * 4}, {}),
    ("conv", [(n, 2, 5, m), (3, 2, 3, 3)], CONV, {"n": 2, "m": 6}),
    ("conv", [(1, 3, 9), (4, 3, 3)],
     {"strides": (2,), "pads": (1, 1), "dilations": (1,), "group": 1}, {}),
    ("conv", [(1, 2, 3, 4, 5), (2, 2, 2, 2, 2)],
     {"strides": (1,) * 3, "pads": (0,) * 6, "dilations": (1,) * 3, "group": 1}, {}),
    ("interleave", [(1, 3, 3, 4), (1, 3, 2, 4)],
     {"runs": ((1, 1), (1,)), "sizes": (5, 4), "starts": (0, 0)}, {}),
    ("interleave", [(1, 12, 3, n)],
     {"runs": ((2,), (2,)), "sizes": (6, n * 2), "starts": (0, 0)}, {"n": 4}),
    ("softmax", [(3, 2, 10)], {"axis": -1}, {}),
    ("softmax", [(2, 5, 2, 9)], {"axis": 1}, {}),
    ("softmax", [(n, 3, m)], {"axis": 1}, {"n": 2, "m": 11}),
    ("softmax", [(n, m)], {"axis": -1}, {"n": 3, "m": 13}),
    ("layer_norm", [(3, n, m), (m,), (m,)], {"axis": -1, "epsilon": 1e-5}, {"n": 2, "m": 9}),
    ("reduce_mean", [(3, 4, 10)], {"axes": (2,), "keepdims": True}, {}),
    ("reduce_mean", [(3, 4, 40)], {"axes": (0, 1), "keepdims": False}, {}),
    ("reduce_sum", [(n, 2, m)], {"axes": (0,), "keepdims": False}, {"n": 3, "m": 13}),
    ("reduce_sum", [(5, 7)], {"axes": (0, 1), "keepdims": False}, {}),
    ("max_pool", [(1, 2, 9, 11)], POOL, {}),
    ("max_pool", [(1, 2, 5, 11)], {**POOL, "strides": (1, 1)}, {}),
    ("avg_pool", [(1, 2, n, m)], POOL, {"n": 5, "m": 8}),
    ("transpose", [(3, 4, n)], {"perm": (2, 0, 1)}, {"n": 5}),
]  # fmt: skip


def op_kernel(name: str, shapes: Sequence[tuple], attrs: dict) -> tuple[ir.Kernel, str]:
    """The operator's blocks and an epilogue, as `lower` would build them; its family."""
    op = opdef.TABLE[name]
    b = Build(name)
    types = [TensorType(dtypes.f32, tuple(arith.wrap(d) for d in s)) for s in shapes]
    inputs = [b.param(f"x{k}", t.dtype, t.shape) for k, t in enumerate(types)]
    results = op.compute(b, inputs, op.infer(types, attrs), attrs)
    outs = [b.compute(f"{r.name}_out", r.shape, lambda *p, r=r: r[p] * 2.0 + 1.0) for r in results]
    used = {v for t in types for d in t.shape for v in arith.free_vars(d)}
    sizes = [ir.Size(v, 1) for v in sorted(used)]
    return b.finish(outs, sizes), type(op).__module__.rpartition(".")[2]


def kinds(sch: Schedule) -> set[LoopKind]:
    return {s.kind for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.For)}


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]}")
def test_rules_preserve_semantics(case: Case):
    name, shapes, attrs, sizes = case
    kernel, family = op_kernel(name, shapes, attrs)
    sch = schedule_kernel(kernel, parse("x86-64-v3"), family)
    verify(sch.kernel)
    assert_same(kernel, sch.kernel, **sizes)
    assert_same(kernel, backwards(sch.kernel), **sizes)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [elementwise, matmul, softmax, conv1d, cumsum])
def test_every_target_and_no_family(make, target):
    sch = schedule_kernel(make(), parse(target), None)
    verify(sch.kernel)
    assert_same(make(), sch.kernel)


def test_a_gemm_is_tiled_with_its_epilogue():
    sch = schedule_kernel(matmul(120, 64, 32), parse("x86-64-v3"), "matmul")
    assert kinds(sch) >= {LoopKind.PARALLEL, LoopKind.VECTOR, LoopKind.UNROLL}
    y, z = sch.loops(sch.block("Y")), sch.loops(sch.block("Z"))
    assert y[0] == z[0] and sch.at_loop(y[0]).kind is LoopKind.PARALLEL
    marks = [sch.at_loop(x).kind.value for x in y]
    assert marks == ["parallel", "serial", "unroll", "unroll", "vector"]
    extents = [arith.as_int(sch.at_loop(x).extent) for x in y]
    assert extents[2:] == [6, 2, 8]  # twelve accumulators of sixteen registers
    assert sch.at_block(sch.block("Y")).where is None


@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 256, 32), (7, 256, 16), (9, 250, 15)])
def test_small_m_gemm_reads_b_in_place(rows, columns, depth):
    """A few rows of B at a time, in vectors; a block of C is zeroed before."""
    sch = schedule_kernel(matmul(rows, columns, depth), parse("x86-64-v3"), "matmul")
    step = 8 if rows == 1 else 4
    marks = [(sch.at_loop(x).kind.value, arith.as_int(sch.at_loop(x).extent)) for x in
             sch.loops(sch.block("Y"))]  # fmt: skip
    assert marks[1] == ("serial", 4) and marks[3:] == [
        ("serial", rows), ("unroll", step), ("unroll", 2), ("vector", 8),
    ]  # fmt: skip
    assert sch.at_block(sch.block("Y")).init is None
    assert_same(matmul(rows, columns, depth), sch.kernel)


@pytest.mark.parametrize(("columns", "depth"), [(256, 200), (300, 131), (250, 229)])
def test_gemv_is_parallel_over_k(columns, depth):
    """split-K: each thread reads whole rows of B; their sum is fused with the consumer."""
    target = replace(parse("x86-64-v3"), cores=2)
    sch = schedule_kernel(matmul(1, columns, depth), target, "matmul")
    parts = sch.loops(sch.block("Y_rf"))[0]
    assert sch.at_loop(parts).kind is LoopKind.PARALLEL
    assert arith.as_int(sch.at_loop(parts).extent) == 2
    assert sch.loops(sch.block("Y"))[0] == sch.loops(sch.block("Z"))[0] != parts
    assert sch.at_block(sch.block("Y_rf")).init is None
    assert_same(matmul(1, columns, depth), sch.kernel)


def test_a_target_given_by_name_has_several_cores():
    sch = schedule_kernel(matmul(1, 256, 1024), parse("x86-64-v3"), "matmul")
    assert sch.at_loop(sch.loops(sch.block("Y_rf"))[0]).kind is LoopKind.PARALLEL


@pytest.mark.parametrize(
    ("batch", "op", "is_shared"), [(1, "add", True), (1, "max", True), (3, "add", False)]
)
def test_global_pool_is_parallel_over_rows(batch, op, is_shared):
    """Of one image; with several, each thread has some of its own."""
    target = replace(parse("x86-64-v3"), cores=2)
    b = Build("pool")
    x = b.param("x", f32, (batch, 31, 33, 35))
    y = b.reduce("y", (batch, 35), (31, 33), op, lambda n, c, h, w: x[n, h, w, c])
    kernel = b.finish([b.compute("z", y.shape, lambda *p: y[p])])
    sch = schedule_kernel(kernel, target, "reduce")
    names = [sch.at_block(block).name for block in sch.blocks()]
    assert ("y_rf" in names) == is_shared
    if is_shared:
        parts = sch.at_loop(sch.loops(sch.block("y_rf"))[0])
        assert parts.kind is LoopKind.PARALLEL and arith.as_int(parts.extent) == 2
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize(("columns", "cores"), [(2253, 2), (260, 4), (4090, 3)])
def test_column_blocks_are_a_multiple_of_the_cores(columns, cores):
    target = replace(parse("x86-64-v3"), cores=cores)
    sch = schedule_kernel(matmul(2, columns, 64), target, "matmul")
    shared = sch.at_loop(sch.loops(sch.block("Y"))[0])
    assert shared.kind is LoopKind.PARALLEL and (arith.as_int(shared.extent) or 1) % cores == 0


def packed(batch: int, rows: int, columns: int, depth: int) -> ir.Kernel:
    """A GEMM with weights in panels of 16."""
    b = Build("packed")
    x, w = b.param("X", f32, (batch, rows, depth)), b.param("W", f32, (columns // 16, depth, 16))
    y = b.reduce("Y", (batch, rows, columns), (depth,), "add",
                 lambda n, i, j, k: x[n, i, k] * w[j // 16, k, j % 16])  # fmt: skip
    return b.finish([b.compute("Z", y.shape, lambda *p: y[p])])


@pytest.mark.parametrize(
    ("batch", "rows", "cache", "is_on", "hinted"),
    [
        (1, 24, 1 << 13, True, True),
        (3, 24, 1 << 13, True, True),
        (1, 24, 1 << 13, False, False),  # switched off
        (1, 24, 1 << 20, True, False),  # all weights stay in the second-level cache
        (1, 5, 1 << 13, True, False),  # one tile of rows: memory is read from end to end
    ],
)
def test_the_next_panel_of_weights_is_prefetched(batch, rows, cache, is_on, hinted):
    target = replace(parse("x86-64-v3"), caches=(4096, cache, 1 << 22))
    with options.override(off=() if is_on else {"prefetch"}):
        sch = schedule_kernel(packed(batch, rows, 96, 48), target, "matmul")
    found = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Prefetch)]
    assert len(found) == hinted
    assert_same(packed(batch, rows, 96, 48), sch.kernel)


@pytest.mark.parametrize(
    ("depth", "is_on", "parts"), [(60, True, 4), (15, True, 0), (60, False, 0)]
)
def test_long_sums_become_partial_sums(depth, is_on, parts, monkeypatch):
    """All in the register tile: the total is complete where the consumer is fused."""
    monkeypatch.setattr(cost, "LONG_SUM_TERMS", 30)
    monkeypatch.setattr(cost, "PARTIAL_SUM_TERMS", 7)
    kernel = packed(1, 13, 32, depth)
    with options.override(off=() if is_on else {"partial_sums"}):
        sch = schedule_kernel(kernel, parse("x86-64-v3"), "matmul")
    found = [x for x in visit.walk_stmts(sch.kernel.body) if isinstance(x, ir.Block)]
    spread = [x for x in found if x.name == "Y_rf"]
    assert [arith.as_int(x.axes[0].extent) for x in spread] == ([parts] if parts else [])
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize(("cores", "is_near"), [(1, True), (8, False)])
def test_each_panel_is_packed_inside_the_panel_loop(cores, is_near):
    """If there are enough panels for the threads; else all are packed first."""
    target = replace(parse("x86-64-v3"), cores=cores, caches=(1024, 2048, 65536))
    sch = schedule_kernel(matmul(48, 250, 8), target, "matmul")
    copies = [x for x in sch.blocks() if sch.at_block(x).name.startswith("B_global")]
    product = sch.loops(sch.block("Y"))[0]
    assert sch.loops(sch.block("Z"))[0] == product
    assert [sch.loops(x)[0] == product for x in copies] == [is_near] * len(copies) != []
    assert_same(matmul(48, 250, 8), sch.kernel)


@pytest.mark.parametrize(
    ("columns", "is_copied"), [(16, False), (48, False), (13, True), (50, True)]
)
def test_narrow_operands_are_packed_unless_rows_are_whole_panels(columns, is_copied):
    """Packing a few columns is cheaper than masks in every iteration."""
    sch = schedule_kernel(matmul(48, columns, 33), parse("x86-64-v3"), "matmul")
    copies = [x for x in sch.blocks() if sch.at_block(x).name.startswith("B_global")]
    assert bool(copies) == is_copied
    assert_same(matmul(48, columns, 33), sch.kernel)


@pytest.mark.parametrize(("known", "tiled"), [(112, "w"), (3, "b")])
def test_rows_of_a_tile_are_along_a_known_long_axis(known, tiled):
    """Not along a dynamic batch, which may be 1."""
    b = Build("pixels", ["n"])
    x, w = b.param("x", f32, (n, known, 16)), b.param("w", f32, (1, 16, 16))
    y = b.reduce("y", (n, known, 16), (16,), "add",
                 lambda b, w_, c, k: x[b, w_, k] * w[c // 16, k, c % 16])  # fmt: skip
    kernel = b.finish([b.compute("z", y.shape, lambda *p: y[p])], [ir.Size("n", 1)])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), "matmul")
    axes = [a for a in sch.at_block(sch.block("y")).axes if a.kind is ir.AxisKind.SPATIAL]
    rows = axes["bw".index(tiled)]
    unrolled = [x.name for x in sch.loops(sch.block("y"))
                if sch.at_loop(x).kind is LoopKind.UNROLL]  # fmt: skip
    assert arith.free_vars(rows.binding) & set(unrolled)
    assert_same(kernel, sch.kernel, n=2)


def test_small_work_stays_on_one_thread():
    small = schedule_kernel(elementwise(8, 8), parse("x86-64-v3"), "elementwise")
    large = schedule_kernel(elementwise(512, 512), parse("x86-64-v3"), "elementwise")
    assert LoopKind.PARALLEL not in kinds(small) and LoopKind.VECTOR in kinds(small)
    assert LoopKind.PARALLEL in kinds(large)


def test_contiguous_elementwise_axes_are_fused():
    b = Build("flat")
    x, y = b.param("X", f32, (6, 7, 4)), b.param("Y", f32, (6, 7, 4))
    kernel = b.finish([b.compute("Z", (6, 7, 4), lambda *p: x[p] + y[p])])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), "elementwise")
    assert [arith.as_int(sch.at_loop(x).extent) for x in sch.loops(sch.block("Z"))] == [21, 8]
    assert sch.at_block(sch.block("Z")).where is None


def test_axes_of_extent_one_do_not_prevent_fusion():
    """(1, 128, 1), as an activation after a convolution of one pixel is: vectors along the 128."""
    b = Build("unit")
    x = b.param("X", f32, (1, 128, 1))
    kernel = b.finish([b.compute("Z", (1, 128, 1), lambda i, j, k: x[0, j, 0] + 1.0)])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), "elementwise")
    assert LoopKind.VECTOR in kinds(sch)
    assert_same(kernel, sch.kernel)


def test_row_reductions_have_one_parallel_row_loop():
    sch = schedule_kernel(softmax(256, 128), parse("x86-64-v3"), "softmax")
    outer = {sch.loops(ref)[0] for ref in sch.blocks()}
    assert len(outer) == 1
    assert sch.at_loop(outer.pop()).kind is LoopKind.PARALLEL
    assert sch.at_loop(sch.loops(sch.block("power"))[-1]).kind is LoopKind.VECTOR


@pytest.mark.parametrize("size", [1, 7, 40])
def test_dynamic_row_reductions_use_thread_scope(size):
    kernel = softmax(m, n, [ir.Size("m", 1), ir.Size("n", 1)])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), "softmax")
    parts = split_kernel(sch.kernel)
    assert len(parts.kernels) == 1 and not parts.temporaries
    assert_same(kernel, sch.kernel, m=3, n=size)


@pytest.mark.parametrize("size", [16, 17, 100])
def test_the_padded_last_panel_is_peeled(size):
    kernel = matmul(30, n, 3, [ir.Size("n", 1)])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), "matmul")
    assert [ref.name for ref in sch.blocks()][:2] == ["B_global", "B_global_tail"]
    assert_same(kernel, sch.kernel, n=size)
    whole = schedule_kernel(matmul(30, 96, 3), parse("x86-64-v3"), "matmul")
    assert "B_global_tail" not in [ref.name for ref in whole.blocks()]


def test_a_padded_copy_is_a_nest_of_its_own():
    kernel, family = op_kernel("conv", [(1, 3, 16, 16), (4, 3, 3, 3)], CONV)
    sch = schedule_kernel(kernel, parse("x86-64-v3"), family)
    assert sch.loops(sch.block("padded"))[0] != sch.loops(sch.block("conv"))[0]
    assert sch.at_loop(sch.loops(sch.block("padded"))[-1]).kind is LoopKind.VECTOR


def test_math_calls_are_not_recomputed():
    b = Build("twice")
    x = b.param("X", f32, (8, 8))
    s = b.compute("S", (8, 8), lambda i, j: exp(x[i, j]))
    z = b.compute("Z", (8, 8), lambda i, j: s[i, j] + s[j, i])
    kernel = b.finish([z])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), None)
    maths = [e for e in visit.all_exprs(sch.kernel.body) if isinstance(e, ir.Math)]
    assert len(maths) == 1
    assert_same(kernel, sch.kernel)


def test_long_chains_do_not_explode():
    b = Build("chain")
    value = b.param("X", f32, (8,))
    for step in range(24):
        before = value
        value = b.compute(f"S{step}", (8,), lambda i, x=before: x[i] * x[i] + 0.5)
    kernel = b.finish([value])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), None)
    assert sum(1 for _ in visit.all_exprs(sch.kernel.body)) < 10_000


def test_opaque_nests_stay_serial():
    b = Build("opaque")
    x, z = b.param("X", f32, (1 << 16,)), b.buffer("Z", f32, (1 << 16,))
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.OPAQUE, arith.Const(1 << 16), arith.Var("i"))
    b.emit(ir.serial("i", 1 << 16, ir.Block("Z", (axis,), ir.Store(z, (v,), x[v]))))
    sch = schedule_kernel(b.finish([z]), parse("x86-64-v3"), None)
    assert kinds(sch) == {LoopKind.SERIAL}


@pytest.mark.parametrize("target", TARGETS)
def test_panels_narrower_than_a_vector(target):
    """Attention with heads of four elements: an operand's index is j % 4 along the lanes."""
    b = Build("heads")
    x, w = b.param("X", f32, (9, 6)), b.param("W", f32, (3, 6, 4))
    y = b.reduce("Y", (9, 12), (6,), "add", lambda i, j, k: x[i, k] * w[j // 4, k, j % 4])
    kernel = b.finish([y])
    made = schedule_kernel(kernel, parse(target), "matmul").finished()
    assert_same(kernel, made)
    assert any(
        s.kind is LoopKind.VECTOR for s in visit.walk_stmts(made.body) if isinstance(s, ir.For)
    )


def test_no_more_loops_are_fused_than_threads_need():
    """Recovering the indices of a fused loop costs more than a short row's copy."""
    kernel, family = op_kernel("transpose", [(8, 53, 111, 32)], {"perm": (0, 2, 1, 3)})
    sch = schedule_kernel(kernel, parse("x86-64-v3"), family)
    loops = [sch.at_loop(x) for x in sch.loops(sch.blocks()[0])]
    assert [arith.as_int(x.extent) for x in loops] == [8 * 111, 53, 4, 8]
    assert [x.kind.value for x in loops[:2]] == ["parallel", "serial"]


def test_a_gemm_operand_may_be_a_scalar():
    b = Build("scaled")
    x, y = b.param("X", f32, (40, 64)), b.param("Y", f32, (64, 48))
    scale = b.param("scale", f32, ())
    z = b.reduce("Z", (40, 48), (64,), "add", lambda i, j, k: x[i, k] * scale[()] * y[k, j])
    kernel = b.finish([z])
    sch = schedule_kernel(kernel, parse("x86-64-v3"), "matmul")
    assert LoopKind.VECTOR in kinds(sch)
    assert_same(kernel, sch.kernel)
