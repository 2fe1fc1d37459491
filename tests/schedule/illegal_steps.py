"""An illegal step for each primitive, as in docs/schedule.md; checked by test_illegal_steps.py.

REFUSALS["fuse"]()   makes the step, which raises
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.loops.script_parse import parse
from ingot.schedule import Schedule
from tests.schedule.instructions import DOT4

GEMM = """
@ingot.kernel
def product(A: f32[7, 6], B: f32[6, 20], bias: f32[20], Z: f32[7, 20]):
    Y = alloc(f32[7, 20])
    for i, j, k in grid(7, 20, 6):
        with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] += A[vi, vk] * B[vk, vj]
    for r, c in grid(7, 20):
        with block("Z", spatial=(r, c)) as (vr, vc):
            Z[vr, vc] = max(Y[vr, vc] + bias[vc], 0.0)
"""

ELEMENTWISE = """
@ingot.kernel
def doubled(n: size, X: f32[n, 100], Z: f32[n, 100]):
    for i, j in grid(n, 100):
        with block("Z", spatial=(i, j)) as (vi, vj):
            Z[vi, vj] = X[vi, vj] * 2.0
"""

WINDOW = """
@ingot.kernel
def window(X: f32[9], Z: f32[8]):
    S = alloc(f32[9])
    for i in serial(9):
        with block("S", spatial=(i,)) as (vi,):
            S[vi] = X[vi] * 2.0
    for o in serial(8):
        with block("Z", spatial=(o,)) as (vo,):
            Z[vo] = S[vo + 1] + X[vo] * X[vo + 1]
"""

SOFTMAX = """
@ingot.kernel
def softmax(X: f32[5, 11], Y: f32[5, 11]):
    power = alloc(f32[5, 11])
    total = alloc(f32[5])
    for i, j in grid(5, 11):
        with block("power", spatial=(i, j)) as (vi, vj):
            power[vi, vj] = exp(X[vi, vj])
    for r, k in grid(5, 11):
        with block("total", spatial=(r,), reduce=(k,)) as (vr, vk):
            with init():
                total[vr] = 0.0
            total[vr] += power[vr, vk]
    for o, p in grid(5, 11):
        with block("Y", spatial=(o, p)) as (vo, vp):
            Y[vo, vp] = power[vo, vp] / total[vo]
"""

TRIANGLE = """
@ingot.kernel
def triangle(X: f32[8, 8], Z: f32[8, 8]):
    for i in serial(8):
        for j in serial(i):
            with block("Z", spatial=(i, j)) as (vi, vj):
                Z[vi, vj] = X[vj, vi]
"""

SCAN = """
@ingot.kernel
def scan(X: f32[3, 6], out: f32[3, 6]):
    for i, t in grid(3, 6):
        with block("out", spatial=(i,), ordered=(t,)) as (vi, vt):
            out[vi, vt] = load(out[vi, vt - 1], mask=index(vt) >= 1, other=0.0) + X[vi, vt]
"""

LAST = """
@ingot.kernel
def last(X: f32[4, 5], best: f32[4]):
    for i, k in grid(4, 5):
        with block("best", spatial=(i,), reduce=(k,)) as (vi, vk):
            with init():
                best[vi] = 0.0
            best[vi] = select(X[vi, vk] > 0.0, X[vi, vk], best[vi])
"""


def _of(text: str, block: str, step: Callable[[Schedule, Any, list], Any]) -> Callable[[], Any]:
    """`step(sch, block, its loops)` on the kernel in `text`."""

    def make() -> Any:
        sch = Schedule(parse(text))
        at = sch.block(block)
        return step(sch, at, sch.loops(at))

    return make


def _thread_scope_outside(sch: Schedule, block: Any, loops: list) -> Any:
    sch.parallel(loops[0])
    return sch.set_scope("Y", "thread")


REFUSALS: dict[str, tuple[Callable[[], Any], ...]] = {
    "split": (
        _of(GEMM, "Y", lambda sch, y, at: sch.split(at[2], None, 4, tail="shift")),
        _of(GEMM, "Z", lambda sch, z, at: sch.split(at[0], None, 4, tail="pad")),
        _of(ELEMENTWISE, "Z", lambda sch, z, at: sch.split(at[1], None, 24, tail="none")),
    ),
    "reorder": (_of(SOFTMAX, "Y", lambda sch, y, at: _reorder_two(sch, at)),),
    "fuse": (_of(GEMM, "Y", lambda sch, y, at: sch.fuse(at[0], at[2])),),
    "parallel": (_of(GEMM, "Y", lambda sch, y, at: sch.parallel(at[2])),),
    "vectorize": (_of(TRIANGLE, "Z", lambda sch, z, at: sch.vectorize(at[0])),),
    "unroll": (_of(ELEMENTWISE, "Z", lambda sch, z, at: sch.unroll(at[0])),),
    "peel": (_of(ELEMENTWISE, "Z", lambda sch, z, at: sch.peel(at[0], 3)),),
    "partition": (_of(ELEMENTWISE, "Z", lambda sch, z, at: sch.partition(at[1], 101)),),
    "bind": (_of(ELEMENTWISE, "Z", lambda sch, z, at: sch.bind(at[0], "threadIdx.x")),),
    "pipeline": (_of(GEMM, "Y", lambda sch, y, at: sch.pipeline(at[2], 2)),),
    "prefetch": (_of(GEMM, "Y", lambda sch, y, at: sch.prefetch(at[1], "Y", at[0])),),
    "blockize": (_of(SOFTMAX, "Y", lambda sch, y, at: _blockize_two(sch, at)),),
    "tensorize": (
        _of(GEMM, "Y", lambda sch, y, at: sch.tensorize(sch.split(at[2], None, 3)[1], DOT4)),
    ),
    "compute_inline": (_of(GEMM, "Y", lambda sch, y, at: sch.compute_inline(y)),),
    "compute_at": (
        _of(SOFTMAX, "Y", lambda sch, y, at: sch.compute_at(sch.block("power"), at[0])),
    ),
    "reverse_compute_at": (_of(GEMM, "Y", lambda sch, y, at: _consume_inside(sch, at)),),
    "reverse_compute_inline": (_of(WINDOW, "Z", lambda sch, z, at: sch.reverse_compute_inline(z)),),
    "decompose_reduction": (_of(GEMM, "Y", lambda sch, y, at: _init_inside(sch, y, at)),),
    "rfactor": (_of(LAST, "best", lambda sch, b, at: sch.rfactor(at[1])),),
    "set_scope": (_of(GEMM, "Z", _thread_scope_outside),),
    "annotate": (_of(ELEMENTWISE, "Z", lambda sch, z, at: sch.annotate(at[0], "hint", [1, 2])),),
    "cache_read": (_of(GEMM, "Z", lambda sch, z, at: sch.cache_read(z, "A")),),
    "cache_write": (_of(SCAN, "out", lambda sch, b, at: sch.cache_write(b)),),
    "reindex": (_of(WINDOW, "Z", lambda sch, z, at: sch.reindex(z, "X")),),
    "transform_layout": (
        _of(GEMM, "Y", lambda sch, y, at: sch.transform_layout("Y", "i, j -> i")),
    ),
    "pad": (_of(GEMM, "Y", lambda sch, y, at: sch.pad(y, 1, 1, 4)),),
    "storage_align": (_of(GEMM, "Y", lambda sch, y, at: sch.storage_align("Y", 1, 8)),),
}


def _reorder_two(sch: Schedule, at: list) -> Any:
    sch.compute_at(sch.block("total"), at[0])
    return sch.reorder(at[1], at[0])


def _blockize_two(sch: Schedule, at: list) -> Any:
    sch.compute_at(sch.block("total"), at[0])
    return sch.blockize(at[0])


def _consume_inside(sch: Schedule, at: list) -> Any:
    sch.reorder(at[2], at[0], at[1])
    return sch.reverse_compute_at(sch.block("Z"), at[0])


def _init_inside(sch: Schedule, block: Any, at: list) -> Any:
    sch.reorder(at[2], at[0], at[1])
    return sch.decompose_reduction(block, at[0])
