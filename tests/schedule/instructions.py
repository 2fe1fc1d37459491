"""Instructions for tests: a dot product, a matrix unit, a row, and widening dot products."""

from ingot import dtypes
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.schedule import instruction

DOT4 = instruction(
    "dot4",
    """
    @ingot.kernel
    def dot4(A: f32[4], B: f32[4], C: f32[1]):
        for k in serial(4):
            C[0] += A[k] * B[k]
    """,
)

MATRIX8 = instruction(
    "matrix8",
    """
    @ingot.kernel
    def matrix8(A: f32[8, 8], B: f32[8, 8], C: f32[8, 8]):
        for i, j, k in grid(8, 8, 8):
            C[i, j] += A[i, k] * B[k, j]
    """,
)

# four u8·i8 multiplications accumulated in each of four i32: vpdpbusd with VNNI
DOT_BYTES = instruction(
    "dot_bytes",
    """
    @ingot.kernel
    def dot_bytes(A: u8[4], B: i8[4, 4], C: i32[4]):
        for j, k in grid(4, 4):
            C[j] += cast(A[k], i32) * cast(B[j, k], i32)
    """,
    emit="llvm[avx512vnni,avx512vl]: C = llvm.x86.avx512.vpdpbusd.128(C, A*4, B)",
)

# two i16 multiplications accumulated in each of four i32: pmaddwd, on every x86-64
DOT_PAIRS = instruction(
    "dot_pairs",
    """
    @ingot.kernel
    def dot_pairs(A: i16[2], B: i16[4, 2], C: i32[4]):
        for j, k in grid(4, 2):
            C[j] += cast(A[k], i32) * cast(B[j, k], i32)
    """,
    emit="llvm[sse2]: C += llvm.x86.sse2.pmadd.wd(A*4, B)",
)


def build_outer() -> ir.Instruction:
    """C[i, j] = Σ A[k, i] · B[k, j], with a zero init; made by the builder."""
    b = Build("outer")
    x, y = b.param("A", dtypes.f32, (2, 3)), b.param("B", dtypes.f32, (2, 4))
    out = b.reduce("C", (3, 4), (2,), "add", lambda i, j, k: x[k, i] * y[k, j])
    return instruction("outer", b.finish([out]))


def packed_gemm(rows: int, cols: int, depth: int, group: int, a, b_) -> ir.Kernel:
    """Integers widened to i32, floats to f32; B is packed so that `group` of them are adjacent."""
    b = Build("packed_gemm")
    x = b.param("A", a, (rows, depth))
    y = b.param("B", b_, (depth // group, cols, group))

    def wide(e: ir.Expr) -> ir.Expr:
        return ir.Cast(e, dtypes.f32 if a.is_float else dtypes.i32)

    out = b.reduce(
        "Y", (rows, cols), (depth // group, group), "add",
        lambda i, j, p, q: wide(x[i, p * group + q]) * wide(y[p, j, q]),
    )  # fmt: skip
    return b.finish([out])
