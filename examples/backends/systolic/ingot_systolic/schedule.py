"""The default schedule: GEMMs through the scratchpad and the matrix unit, the rest as it is.

    for i_0, j_0:  C tile = 0
        for k_0:   copy the 4 x 4 tiles of A and B into the scratchpad; call mma4
    epilogue from the C tile

In: a kernel. Out: the scheduled one. A GEMM whose indices are not plain axes (a convolution's
window) keeps its loops: a refused step changes nothing.
"""

from __future__ import annotations

from ingot.loops.ir import Kernel
from ingot.program import ir
from ingot.schedule.instructions import instruction
from ingot.schedule.rules.block_info import BlockInfo, block_info_of, block_infos
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.schedule import Schedule

SCRATCHPAD = "scratchpad"
TILE = 4  # rows, columns and depth of the matrix unit
MMA = instruction(
    "mma4",
    """
    @ingot.kernel
    def mma4(A: f32[4, 4], B: f32[4, 4], C: f32[4, 4]):
        for i, j, k in grid(4, 4, 4):
            C[i, j] += A[i, k] * B[k, j]
    """,
)


def schedule(program: ir.Program) -> ir.Program:
    """Every kernel of a program."""
    kernels = tuple((name, schedule_kernel(kernel)) for name, kernel in program.kernels)
    return ir.replace(program, kernels=kernels)


def schedule_kernel(kernel: Kernel) -> Kernel:
    sch = Schedule(kernel)
    inline_elementwise(sch)
    for info in block_infos(sch):
        if is_gemm(info):
            with sch.attempt():
                use_matrix_unit(sch, info)
    return sch.kernel


def is_gemm(info: BlockInfo) -> bool:
    """A reduction of two f32 operands over one axis, with rows and columns."""
    is_f32 = info.is_reduction and info.dtype.name == "f32"
    return is_f32 and len(info.loads) == 2 and len(info.reduced) == 1 and len(info.spatial) >= 2


def use_matrix_unit(sch: Schedule, info: BlockInfo) -> None:
    """Whole tiles of both operands in the scratchpad; the inner loops are one instruction."""
    gemm = info.ref
    copies = [sch.cache_read(gemm, x.buffer.name, scope=SCRATCHPAD) for x in info.loads]
    batch = len(info.spatial) - 2
    sch.pad(gemm, *[1] * batch, TILE, TILE, TILE, beyond="zero")
    *outer, i, j, k = sch.loops(gemm)
    (i, i_in), (j, j_in), (k, k_in) = (sch.split(loop, None, TILE) for loop in (i, j, k))
    sch.reorder(*outer, i, j, k, i_in, j_in, k_in)
    for copy in copies:
        sch.compute_at(copy, k)
    readers = [s for s in block_infos(sch) if reads(s, block_info_of(sch, gemm))]
    if len(readers) == 1 and readers[0].is_elementwise:
        with sch.attempt():
            sch.reverse_compute_at(readers[0].ref, j)
    sch.decompose_reduction(gemm, k)
    tile = sch.tensorize(i_in, MMA)
    sch.set_scope(tile, SCRATCHPAD)


def reads(info: BlockInfo, producer: BlockInfo) -> bool:
    return info.ref != producer.ref and any(x.buffer.name in producer.outputs for x in info.loads)
