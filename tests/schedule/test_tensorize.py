"""blockize, tensorize and instructions: nests that become blocks, and calls of equal meaning."""

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import interp, ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule, Trace, instruction, replay
from ingot.support.errors import IngotError
from tests.refusal import is_told
from tests.schedule.common import check_step, conv1d, cumsum, elementwise, f32, matmul
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.instructions import (
    DOT4,
    DOT_BYTES,
    DOT_PAIRS,
    MATRIX8,
    build_outer,
    packed_gemm,
)

n = arith.Var("n")


def refusal(step, *args) -> IngotError:
    with pytest.raises(IngotError) as caught:
        step(*args)
    assert caught.value.code == "bad-schedule"
    return caught.value


def calls(sch: Schedule) -> list[ir.Call]:
    return [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Call)]


# blockize


def tiled(kernel: ir.Kernel, *factors: int) -> tuple[Schedule, list, list]:
    """Y in tiles: the schedule, outer loops, inner loops."""
    sch = Schedule(kernel)
    pairs = [sch.split(x, None, f) for x, f in zip(sch.loops(sch.block("Y")), factors)]
    outer, inner = [p[0] for p in pairs], [p[1] for p in pairs]
    sch.reorder(*outer, *inner)
    return sch, outer, inner


@pytest.mark.parametrize("shape", [(4, 6, 4), (5, 7, 6)])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_tile_becomes_a_block(shape, depth):
    kernel = matmul(*shape)
    sch, outer, inner = tiled(kernel, 2, 3, 2)
    tile = sch.blockize(inner[depth])
    block = sch.at_block(tile)
    assert tile.name == "Y_tile" and [b.name for b in sch.blocks()] == ["Y_tile", "Z"]
    kinds = [axis.kind.value for axis in block.axes]
    assert kinds == ["spatial", "spatial", "reduce"] + ["spatial"] * depth
    assert block.init is not None
    sch.parallel(outer[0])
    assert_everywhere(kernel, sch)


def test_a_tile_that_holds_all_of_a_reduction_keeps_its_init_inside():
    kernel = matmul(4, 6, 5)
    sch = Schedule(kernel)
    _, j, _ = sch.loops(sch.block("Y"))
    block = sch.at_block(sch.blockize(j))
    assert block.init is None and [a.kind.value for a in block.axes] == ["spatial"]
    assert_everywhere(kernel, sch)


def test_blockize_of_a_dynamic_loop():
    kernel = matmul(n, 6, 4, [ir.Size("n", 1)])
    sch, _, inner = tiled(kernel, 2, 3, 2)
    sch.blockize(inner[0])
    assert_everywhere(kernel, sch, {"n": 1}, {"n": 5})


def test_blockize_refuses_more_than_one_block():
    sch = Schedule(elementwise(4, 6))
    i = sch.loops(sch.block("Z"))[0]
    sch.compute_at(sch.block("S"), i)
    check_step(refusal(sch.blockize, i), "blockize(i_3)", "i_3")


def test_blockize_refuses_loops_of_both_kinds():
    sch = Schedule(matmul(4, 6, 4))
    _, j, k = sch.loops(sch.block("Y"))
    both = sch.fuse(j, k)
    _, inner = sch.split(both, None, 3)
    error = refusal(sch.blockize, inner)
    check_step(error, "blockize(i_2_k_1)", "i_2_k_0", "reduce", "spatial", "Y")


def test_blockize_refuses_a_reduction_that_may_have_started():
    sch = Schedule(matmul(3, 4, n, [ir.Size("n", 1)]))
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i, j)
    sch.split(k, None, 4, tail="peel")
    rest = sch.loops(sch.block("Y_tail"))
    check_step(refusal(sch.blockize, rest[1]), "blockize(i_5)", "Y_tail")


def test_moves_stop_at_the_border_of_a_block():
    sch, _, inner = tiled(matmul(4, 6, 4), 2, 3, 2)
    sch.blockize(inner[0])
    error = refusal(sch.reverse_compute_at, sch.block("Z"), inner[0])
    check_step(error, "reverse_compute_at(Z, i_1)", "i_1", "Y_tile")


# tensorize


@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 5, 12)])
def test_a_gemm_of_dot_products(shape):
    kernel = matmul(*shape)
    sch = Schedule(kernel)
    i, _, k = sch.loops(sch.block("Y"))
    _, inner = sch.split(k, None, 4)
    sch.tensorize(inner, DOT4)
    sch.parallel(i)
    (call,) = calls(sch)
    assert call.instruction == DOT4
    assert [[str(e) for e in box.extents] for box in call.args] == [
        ["1", "4"],
        ["4", "1"],
        ["1"] * 2,
    ]
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("shape", [(8, 8, 8), (16, 24, 32)])
def test_a_gemm_on_a_matrix_unit(shape):
    kernel = matmul(*shape)
    sch, outer, inner = tiled(kernel, 8, 8, 8)
    sch.reorder(inner[2], inner[0])  # the instruction does not care
    tile = sch.tensorize(inner[2], MATRIX8)
    sch.parallel(outer[0])
    assert tile.name == "Y_tile" and len(calls(sch)) == 1
    assert_everywhere(kernel, sch)


def test_a_block_can_be_tensorized_too():
    kernel = matmul(8, 16, 8)
    sch, _, inner = tiled(kernel, 8, 8, 8)
    tile = sch.blockize(inner[0])
    sch.tensorize(tile, MATRIX8)
    assert len(calls(sch)) == 1
    assert_everywhere(kernel, sch)


def test_whole_tiles_on_the_unit_and_a_peeled_remainder():
    kernel = matmul(19, 8, 16)
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    outer, inner = sch.split(i, None, 8, tail="peel")
    deep, steps = sch.split(k, None, 8)
    sch.reorder(outer, deep, inner, j, steps)
    sch.tensorize(inner, MATRIX8)
    assert_everywhere(kernel, sch)


def test_an_instruction_with_an_init():
    b = Build("gemm")
    x, y = b.param("X", f32, (2, 6)), b.param("Y", f32, (2, 8))
    z = b.reduce("Z", (6, 8), (2,), "add", lambda i, j, k: y[k, j] * x[k, i])  # either way round
    kernel = b.finish([z])
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Z"))
    (io, ii), (jo, ji) = sch.split(i, None, 3), sch.split(j, None, 4)
    sch.reorder(io, jo, ii, ji, k)
    tile = sch.tensorize(ii, build_outer())
    assert sch.at_block(tile).init is None and isinstance(sch.at_block(tile).body, ir.Call)
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(
    ("made", "types", "group"),
    [(DOT_BYTES, (dtypes.u8, dtypes.i8), 4), (DOT_PAIRS, (dtypes.i16, dtypes.i16), 2)],
    ids=["bytes", "pairs"],
)
def test_widening_dot_products(made, types, group):
    kernel = packed_gemm(5, 8, 12, group, *types)
    sch = Schedule(kernel)
    i, j, p, q = sch.loops(sch.block("Y"))
    jo, ji = sch.split(j, None, 4)
    sch.reorder(i, jo, p, ji, q)
    sch.tensorize(ji, made)
    sch.parallel(i)
    text = assert_everywhere(kernel, sch).text
    assert ("pmadd.wd" in text) == (made is DOT_PAIRS)  # the other one is expanded on this machine


def test_widening_dot_products_do_not_saturate():
    """Extreme bytes: 4 · 255 · -128 fits into i32, and not into i16."""
    arrays = [np.full(4, 255, np.uint8), np.full((4, 4), -128, np.int8), np.zeros(4, np.int32)]
    interp.run(DOT_BYTES.meaning, arrays)
    assert (arrays[2] == 4 * 255 * -128).all()


def test_an_instruction_over_sizes():
    scale = instruction(
        "scale",
        """
        @ingot.kernel
        def scale(m: size(1), A: f32[m], B: f32[m]):
            for i in serial(m):
                B[i] = A[i] * 2.0
        """,
    )
    kernel = elementwise(4, n, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    sch.tensorize(sch.loops(sch.block("S"))[1], scale)
    assert_everywhere(kernel, sch, {"n": 1}, {"n": 6})


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (3, (3, 4)),
        (8, ("guard", "Y")),
    ],
)
def test_tensorize_refuses_other_loops(factor, why):
    sch = Schedule(matmul(3, 5, 12))
    _, inner = sch.split(sch.loops(sch.block("Y"))[2], None, factor)
    check_step(refusal(sch.tensorize, inner, DOT4), "tensorize(k_1, dot4)", *why)
    assert not calls(sch)


def test_tensorize_refuses_another_expression():
    b = Build("distance")
    x, y = b.param("X", f32, (3, 4)), b.param("Y", f32, (4,))
    z = b.reduce("Z", (3,), (4,), "add", lambda i, k: (x[i, k] - y[k]) * (x[i, k] - y[k]))
    sch = Schedule(b.finish([z]))
    error = refusal(sch.tensorize, sch.loops(sch.block("Z"))[1], DOT4)
    check_step(error, "tensorize(k, dot4)")


def test_tensorize_refuses_indices_that_are_not_a_box():
    """A stride of two along k is not what the instruction reads."""
    b = Build("strided")
    x, y = b.param("X", f32, (3, 8)), b.param("Y", f32, (4,))
    z = b.reduce("Z", (3,), (4,), "add", lambda i, k: x[i, k * 2] * y[k])
    sch = Schedule(b.finish([z]))
    error = refusal(sch.tensorize, sch.loops(sch.block("Z"))[1], DOT4)
    check_step(error, "tensorize(k, dot4)")


def test_tensorize_refuses_one_init_too_few_or_too_many():
    sch = Schedule(matmul(3, 4, 4))
    i, j, k = sch.loops(sch.block("Y"))
    (io, ii), (ko, ki) = sch.split(i, None, 3), sch.split(k, None, 2)
    sch.reorder(io, ko, ii, j, ki)
    error = refusal(sch.tensorize, ii, build_outer())
    check_step(error, "tensorize(i_1, outer)")


def test_tensorize_refuses_non_serial_loops_and_ordered_axes():
    sch = Schedule(matmul(3, 5, 4))
    _, j, k = sch.loops(sch.block("Y"))
    sch.unroll(k)
    check_step(refusal(sch.tensorize, j, DOT4), "tensorize(i_2, dot4)", "k", "unroll")
    sch = Schedule(cumsum(3, 4))
    error = refusal(sch.tensorize, sch.loops(sch.block("out"))[1], DOT4)
    check_step(error, "tensorize(t, dot4)", "vt", "out", "ordered")


def test_tensorize_refuses_boxes_beyond_their_buffers():
    """Guarded loads of the padded copy may reach outside; a box may not."""
    double = instruction(
        "double",
        """
        @ingot.kernel
        def double(A: f32[3], B: f32[3]):
            for i in serial(3):
                B[i] = max(A[i], 0.0)
        """,
    )
    sch = Schedule(conv1d(7))
    _, inner = sch.split(sch.loops(sch.block("Z"))[0], None, 3)
    error = refusal(sch.tensorize, inner, double)
    check_step(error, "tensorize(i_3_1, double)", "guard", "Z")
    sch.split(inner, 1, 3)
    sch = Schedule(conv1d(7))
    loops = sch.split(sch.loops(sch.block("Z"))[0], None, 3, tail="peel")
    sch.tensorize(loops[1], double)
    assert_everywhere(conv1d(7), sch)


# instructions


def test_a_meaning_is_one_nest():
    two = """
    @ingot.kernel
    def two(A: f32[4], B: f32[4]):
        for i in serial(4):
            B[i] = A[i]
        for j in serial(4):
            B[j] = A[j]
    """
    error = refusal(instruction, "two", two)
    check_step(error, "instruction('two')", "Seq")


@pytest.mark.parametrize(
    ("emit", "why"),
    [
        ("llvm.x86.something", "llvm[feature]: C += intrinsic(A, B*4)"),
        ("llvm: D = llvm.f(A)", "D"),
        ("llvm: A = llvm.f(B)", "A"),
        ("llvm: C = llvm.f(A, 4)", 4),
    ],
)
def test_an_emit_is_checked_when_it_is_written(emit, why):
    error = refusal(instruction, "dot4", DOT4.meaning, emit)
    told = error.why.replace(emit, "", 1)  # beside the text itself
    assert told != error.why and is_told(why, told), error
    check_step(error, "instruction('dot4')", emit)


def test_a_trace_holds_its_instructions_whole():
    kernel = matmul(3, 5, 12)
    sch = Schedule(kernel)
    _, inner = sch.split(sch.loops(sch.block("Y"))[2], None, 4)
    sch.tensorize(inner, DOT4)
    assert replay(kernel, Trace.from_json(sch.trace.to_json())).kernel == sch.kernel
    again = Schedule(kernel)
    exec(sch.trace.text(), {"sch": again, "instruction": instruction})
    assert again.kernel == sch.kernel
