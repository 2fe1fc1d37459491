"""Instruction calls through legalize: kept where the target has them, else inlined."""

import pytest

from ingot import dtypes, target
from ingot.arith import expr as arith
from ingot.codegen.llvm import kernel_assembly, kernel_text
from ingot.loops import ir, visit
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule
from tests.legalize.common import AVX2, PLAIN, check
from tests.native import legal_kernels
from tests.refusal import is_told
from tests.schedule.common import matmul
from tests.schedule.instructions import DOT4, DOT_BYTES, DOT_PAIRS, packed_gemm

VNNI = target.parse("x86-64-v4+avx512vnni")


def calls(kernel: ir.Kernel) -> list[ir.Call]:
    return [s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Call)]


def widening(made: ir.Instruction) -> ir.Kernel:
    types = (dtypes.u8, dtypes.i8, 4) if made is DOT_BYTES else (dtypes.i16, dtypes.i16, 2)
    sch = Schedule(packed_gemm(3, 8, 8, types[2], *types[:2]))
    i, j, p, q = sch.loops(sch.block("Y"))
    jo, ji = sch.split(j, None, 4)
    sch.reorder(i, jo, p, ji, q)
    sch.tensorize(ji, made)
    sch.parallel(i)
    return sch.kernel


@pytest.mark.parametrize("on", [AVX2, PLAIN, VNNI], ids=["avx2", "plain", "vnni"])
@pytest.mark.parametrize("made", [DOT_BYTES, DOT_PAIRS], ids=["bytes", "pairs"])
def test_every_pass_keeps_the_meaning_of_a_call(made, on):
    (kernel,), remarks = check(widening(made), on=on)
    assert not remarks
    stays = on is VNNI or made is DOT_PAIRS
    assert len(calls(kernel)) == stays
    for call in calls(kernel):
        assert all(box.buffer.rank == 1 and box.buffer.scope == ir.THREAD for box in call.args)
    assert isinstance(kernel.body, ir.For) and kernel.body.kind is ir.LoopKind.PARALLEL


@pytest.mark.parametrize(
    ("made", "on", "word"),
    [(DOT_BYTES, VNNI, "vpdpbusd"), (DOT_PAIRS, AVX2, "vpmaddwd"), (DOT_PAIRS, PLAIN, "pmaddwd")],
)
def test_the_machine_code_has_the_instruction(made, on, word):
    (kernel,) = legal_kernels(widening(made), on).kernels
    assembly = kernel_assembly(kernel, on)
    assert word in assembly and "call" not in assembly.replace(".call", "")


def test_a_call_without_emit_is_inlined():
    sch = Schedule(matmul(3, 5, 8))
    _, inner = sch.split(sch.loops(sch.block("Y"))[2], None, 4)
    sch.tensorize(inner, DOT4)
    kernels, _ = check(sch.kernel)
    assert not any(calls(k) for k in kernels) and "llvm.x86" not in kernel_text(kernels[0])


def test_overlapping_boxes_of_one_buffer_are_copied():
    """Reversing in place: what is read is what was there before the call."""
    text = """
    @ingot.kernel
    def turned(X: f32[8]):
        @instruction
        def turn(A: f32[4], B: f32[4]):
            for i in serial(4):
                B[i] = A[3 - i]
        call(turn, X[0:4], X[1:5])
        call(turn, X[2:6], X[2:6])
    """
    (_, second), _ = check(parse(text))
    assert len([s for s in visit.walk_stmts(second.body) if isinstance(s, ir.Alloc)]) == 2


def test_vector_meanings_run_on_flat_copies():
    text = """
    @ingot.kernel
    def rows(X: f32[4, 6], Y: f32[4, 6]):
        @instruction
        def double(A: f32[2, 2], B: f32[2, 2]):
            B[0, 0] = load(A[0, 0], 4) + load(A[0, 0], 4)
        for i, j in grid(2, 3):
            call(double, X[i * 2:i * 2 + 2, j * 2:j * 2 + 2], Y[i * 2:i * 2 + 2, j * 2:j * 2 + 2])
    """
    check(parse(text))


def test_a_meaning_may_call_and_have_sizes():
    text = """
    @ingot.kernel
    def nested(n: size(1), X: f32[3, n], Y: f32[3, n]):
        @instruction
        def outer(m: size(1), A: f32[m], B: f32[m]):
            @instruction
            def inner(P: f32[1], Q: f32[1]):
                Q[0] = P[0] * 2.0
            for i in serial(m):
                call(inner, A[i:i + 1], B[i:i + 1])
        for r in serial(3):
            call(outer, X[r:r + 1, 0:n], Y[r:r + 1, 0:n])
    """
    for size in (1, 5):
        check(parse(text), {"n": size})


@pytest.mark.parametrize("kind", [ir.LoopKind.UNROLL, ir.LoopKind.VECTOR])
def test_calls_in_unrolled_and_vector_loops(kind):
    """Each unrolled copy has buffers of its own; a VECTOR loop with a call becomes serial."""
    a, b, c = DOT_PAIRS.meaning.params
    one = arith.Const(1)
    buffers = [
        ir.Buffer("A", a.dtype, (arith.Const(2),)),
        ir.Buffer("B", b.dtype, (arith.Const(3), arith.Const(4), arith.Const(2))),
        ir.Buffer("C", c.dtype, (arith.Const(3), arith.Const(4))),
    ]
    i, zero = arith.Var("i"), arith.Const(0)
    boxes = (
        ir.Slice(buffers[0], (zero,), (arith.Const(2),)),
        ir.Slice(buffers[1], (i, zero, zero), (one, arith.Const(4), arith.Const(2))),
        ir.Slice(buffers[2], (i, zero), (one, arith.Const(4))),
    )
    loop = ir.For("i", zero, arith.Const(3), ir.Call(DOT_PAIRS, boxes), kind)
    (kernel,), remarks = check(ir.Kernel("marked", tuple(buffers), (), loop))
    if kind is ir.LoopKind.UNROLL:
        assert len(calls(kernel)) == 3 and not remarks
    else:
        assert is_told("i", remarks[0])
