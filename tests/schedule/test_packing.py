"""A matrix product packed, tiled and blocked, as benchmarks/mm_relu.py does it: on awkward sizes,
to machine code; in another process too."""

import subprocess
import sys
from pathlib import Path

import pytest

from ingot import target
from ingot.arith import expr as arith
from ingot.codegen.llvm import kernel_assembly
from ingot.legalize import legalize_kernel
from ingot.legalize.split_kernels import split_kernel
from ingot.loops import ir, visit
from ingot.loops.script_print import show
from ingot.schedule import Schedule
from tests.schedule.common import matmul
from tests.schedule.equivalence import assert_everywhere

ROOT = Path(__file__).parents[2]
MR, NR = 6, 16
HASWELL = target.parse("x86-64-v3")  # sixteen registers of eight lanes hold the tile


def packed(kernel: ir.Kernel, tiles: int = 2) -> Schedule:
    """A packed by each thread, for a block of tiles; B packed once, in parallel."""
    sch = Schedule(kernel)
    y, z = sch.block("Y"), sch.block("Z")
    a, b = sch.cache_read(y, "A", "thread"), sch.cache_read(y, "B")
    sch.pad(y, MR, NR, 1)
    sch.transform_layout(a, lambda i, k: (i // MR, k, i % MR))
    sch.transform_layout(b, lambda k, j: (j // NR, k, j % NR))
    i, j, k = sch.loops(y)
    io, ii = sch.split(i, None, MR)
    block, tile = sch.split(io, None, tiles)
    panel, half, lane = sch.split(j, None, 2, 8)
    sch.reorder(block, panel, tile, k, ii, half, lane)
    sch.compute_at(a, block)
    sch.reverse_compute_at(z, tile)
    zi, zj = sch.loops(z)[-2:]
    zh, zl = sch.split(zj, 2, 8)
    sch.set_scope("Y", "register")
    bh, bl = sch.split(sch.loops(b)[2], 2, 8)
    for loop in (ii, half, zi, zh, bh, sch.loops(a)[-1]):
        sch.unroll(loop)
    for loop in (lane, zl, bl):
        sch.vectorize(loop)
    sch.parallel(sch.loops(b)[0])
    sch.parallel(block)
    return sch


def blocked(kernel: ir.Kernel, depth: int = 4, tiles: int = 2) -> Schedule:
    """The reduction in blocks as well: a register tile is one partial result, added to a block of
    Y that stays in the thread's cache until it is complete."""
    sch = Schedule(kernel)
    y, z = sch.block("Y"), sch.block("Z")
    a, b = sch.cache_read(y, "A", "thread"), sch.cache_read(y, "B")
    sch.pad(y, MR, NR, depth)
    sch.transform_layout(a, lambda i, k: (i // MR, k, i % MR))
    sch.transform_layout(b, lambda k, j: (j // NR, k, j % NR))
    ko, _ = sch.split(sch.loops(y)[2], None, depth)
    tile = sch.rfactor(ko)
    i, j, ko = sch.loops(y)
    io, ii = sch.split(i, None, MR)
    rows, ir_ = sch.split(io, None, tiles)
    panel, half, lane = sch.split(j, None, 2, 8)
    sch.reorder(rows, ko, panel, ir_, ii, half, lane)
    sch.compute_at(tile, ir_)
    one, ti, tj, ki = sch.loops(tile)[-4:]
    th, tl = sch.split(tj, 2, 8)
    sch.reorder(one, ki, ti, th, tl)
    sch.compute_at(a, rows)
    sch.reverse_compute_at(z, rows)
    sch.set_scope(tile, "register")
    for loop in (ii, half, ti, th):
        sch.unroll(loop)
    for loop in (lane, tl):
        sch.vectorize(loop)
    sch.parallel(rows)
    return sch


def held(kernel: ir.Kernel) -> dict[str, tuple[str, int | None]]:
    """The allocations of the legalized kernel: scope and elements."""
    allocs = (s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc))
    return {b.name: (b.scope, arith.as_int(b.shape[0])) for b in allocs}


@pytest.mark.parametrize(("m", "n", "k"), [(24, 32, 8), (23, 33, 7), (7, 3, 1)])
def test_packed_tiles(m, n, k):
    kernel = matmul(m, n, k)
    parts = assert_everywhere(kernel, packed(kernel), target=HASWELL).split[0]
    tiles = min(2, -(-m // MR))
    found = held(parts.kernels[-1])
    assert found.pop("A_thread") == ("thread", tiles * MR * k)
    assert set(found.values()) == {("register", MR * NR)}  # whole tiles may have their own


@pytest.mark.parametrize(("m", "n", "k"), [(24, 32, 8), (23, 33, 7)])
def test_packed_tiles_of_a_blocked_reduction(m, n, k):
    kernel = matmul(m, n, k)
    parts = assert_everywhere(kernel, blocked(kernel), target=HASWELL).split[0]
    found = held(parts.kernels[-1])
    assert found["Y_rf"] == ("register", MR * NR)
    assert found["Y"] == ("thread", 2 * MR * -(-n // NR) * NR)


def test_the_inner_loop_is_twelve_fmas_in_registers():
    """Per iteration of k: two vectors of B, six elements of A, twelve FMAs, no spills."""
    kernel = split_kernel(packed(matmul(96, 64, 64), 8).kernel).kernels[-1]
    text = kernel_assembly(legalize_kernel(kernel, HASWELL), HASWELL)
    loop = next(part for part in text.split("\n.L") if "vfmadd" in part)
    words = [line.split()[0] for line in loop.splitlines() if line.startswith("\t")]
    words = words[: next(n for n, w in enumerate(words) if w.startswith("j"))]
    count = {w: words.count(w) for w in ("vbroadcastss", "vmovups", "vmovaps")}
    assert sum(w.startswith("vfmadd") for w in words) == 12
    assert count == {"vbroadcastss": 6, "vmovups": 2, "vmovaps": 0}


def test_a_trace_replays_in_another_process():
    sch = packed(matmul(23, 33, 7))
    code = (
        "import sys; from ingot.schedule import Trace, replay\n"
        "from ingot.loops.script_print import show\n"
        "from tests.schedule.common import matmul\n"
        "print(show(replay(matmul(23, 33, 7), Trace.from_json(sys.stdin.read())).kernel), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=sch.trace.to_json(),
        capture_output=True, text=True, cwd=ROOT, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == show(sch.kernel)


def test_a_trace_is_the_python_that_made_it():
    sch = packed(matmul(23, 33, 7))
    again = Schedule(matmul(23, 33, 7))
    exec(sch.trace.text(), {"sch": again})
    assert again.kernel == sch.kernel
