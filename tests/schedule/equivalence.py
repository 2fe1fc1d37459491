"""Does a scheduled kernel compute what the unscheduled one does? In the interpreter, with parallel
and vector loops in any order; after legalize, with parallel iterations isolated from each other;
and compiled. Shared by the tests of primitives.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from math import gcd

import numpy as np

from ingot.arith import expr as arith
from ingot.legalize.split_kernels import SplitKernel
from ingot.loops import interp, ir, visit
from ingot.loops.interp_memory import poisoned
from ingot.loops.ir import LoopKind
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from ingot.target import Target
from tests.native import HOST, Batch
from tests.schedule.replay_process import replayed

Arrays = dict[str, np.ndarray]
ANY_ORDER = (LoopKind.PARALLEL, LoopKind.VECTOR, LoopKind.BOUND)


def feeds(kernel: ir.Kernel, sizes: Mapping[str, int], seed: int = 0) -> Arrays:
    """An array for each parameter; those only written are filled with 77."""
    rng = np.random.default_rng(seed)
    fresh = visit.written(kernel.body) - visit.read_before_write(kernel.body)
    arrays: Arrays = {}
    for p in kernel.params:
        shape = tuple(arith.evaluate(d, sizes) for d in p.shape)
        if p.name in fresh:
            arrays[p.name] = np.full(shape, 77, p.dtype.numpy)
        elif p.dtype.is_float:
            arrays[p.name] = rng.standard_normal(shape).astype(p.dtype.numpy)
        else:
            arrays[p.name] = rng.integers(0, 3, shape).astype(p.dtype.numpy)
    return arrays


def interpreted(kernel: ir.Kernel, given: Arrays, sizes: Mapping[str, int]) -> Arrays:
    arrays = {name: a.copy() for name, a in given.items()}
    interp.run(kernel, [arrays[p.name] for p in kernel.params], sizes)
    return arrays


def assert_close(got: Arrays, want: Arrays, what: str) -> None:
    """Equal up to the order of sums."""
    for name, a in want.items():
        np.testing.assert_allclose(
            got[name], a, rtol=2e-5, atol=2e-5, equal_nan=True, err_msg=f"{name}, {what}"
        )


# --- orders -------------------------------------------------------------------------------------


def in_any_order(kernel: ir.Kernel, rng: random.Random) -> Iterator[tuple[str, ir.Kernel]]:
    """The kernel as it is, and with parallel and vector iterations in other orders."""
    yield "in order", kernel
    if any(map(_is_in_any_order, visit.walk_stmts(kernel.body))):
        yield "backwards", _reordered(kernel, lambda s: s.start + s.stop - 1 - arith.Var(s.var))
        yield "shuffled", _reordered(kernel, lambda s: _shuffled(s, rng))


def _reordered(kernel: ir.Kernel, index) -> ir.Kernel:
    def on_stmt(s: ir.Stmt) -> ir.Stmt:
        if _is_in_any_order(s):
            assert isinstance(s, ir.For)
            return ir.replace(s, body=visit.substitute(s.body, {s.var: index(s)}))
        return s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _is_in_any_order(s: ir.Stmt) -> bool:
    """Not the lanes of a reduction: its init runs with the first of them."""
    if not isinstance(s, ir.For) or s.kind not in ANY_ORDER:
        return False
    axes = [a for b in visit.blocks(s.body) for a in b.axes]
    fed = [a for a in axes if s.var in arith.free_vars(a.binding)]
    is_reduced = any(a.kind is ir.AxisKind.REDUCE for a in fed)
    return s.kind is not LoopKind.VECTOR or not is_reduced


def _shuffled(s: ir.For, rng: random.Random) -> arith.Expr:
    """start + (a·i + c) mod extent, with a coprime to the extent."""
    count = arith.as_int(s.extent)
    if count is None:
        return s.start + (arith.Var(s.var) - s.start + 1) % s.extent
    multipliers = [a for a in range(1, max(2, count)) if gcd(a, count) == 1]
    multiplier, first = rng.choice(multipliers), rng.randrange(max(1, count))
    return s.start + ((arith.Var(s.var) - s.start) * multiplier + first) % max(1, count)


# --- after legalize -----------------------------------------------------------------------------


def run_legal(
    split: SplitKernel, given: Arrays, sizes: Mapping[str, int], isolated: bool
) -> Arrays:
    """Run the nests in order. `isolated`: each iteration of a parallel loop sees the memory as of
    before the loop, and no two iterations may change the same element."""
    arrays = {name: a.copy() for name, a in given.items()}
    for b in split.temporaries:
        shape = tuple(arith.evaluate(d, sizes) for d in b.shape)
        arrays[b.name] = poisoned(b.dtype, shape).flat
    for kernel in split.kernels:
        buffers = [arrays[p.name] for p in kernel.params]
        used = {s.name: sizes[s.name] for s in kernel.sizes}
        body = kernel.body
        if isolated and isinstance(body, ir.For) and body.kind is LoopKind.PARALLEL:
            _isolated(kernel, body, buffers, used)
        else:
            interp.run(kernel, buffers, used)
    return {name: arrays[name] for name in given}


def _isolated(
    kernel: ir.Kernel, loop: ir.For, buffers: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> None:
    iteration = ir.Size("the_iteration")
    at = arith.Var(iteration.name)
    one = ir.replace(
        kernel, sizes=(*kernel.sizes, iteration), body=ir.replace(loop, start=at, stop=at + 1)
    )
    before = [a.copy() for a in buffers]
    changed = [np.zeros(a.shape, bool) for a in buffers]
    for n in range(arith.evaluate(loop.start, sizes), arith.evaluate(loop.stop, sizes)):
        mine = [a.copy() for a in before]
        interp.run(one, mine, {**sizes, iteration.name: n})
        for p, a, b, mark, buffer in zip(kernel.params, mine, before, changed, buffers):
            new = _bits(a) != _bits(b)
            assert not (new & mark).any(), f"two iterations of {loop.var} write to {p.name}"
            mark |= new
            buffer[new] = a[new]


def _bits(a: np.ndarray) -> np.ndarray:
    """The elements as integers: NaN equals itself, and two zeros differ."""
    return a.view(f"u{a.dtype.itemsize}")


# --- all of these -------------------------------------------------------------------------------


def assert_everywhere(
    plain: ir.Kernel, sch: Schedule, *values: Mapping[str, int], target: Target = HOST
) -> Batch:
    """A schedule's kernel verifies, replays in another process, and computes what the unscheduled
    one does: interpreted in any order, legalized, and compiled, on one thread and on two, where
    this machine can run the target's code. Returns the compiled kernel."""
    verify(sch.kernel)
    assert replayed(plain, sch.trace) == sch.kernel
    batch = Batch([sch.kernel], level=1, target=target)
    for sizes in values or ({},):
        given = feeds(plain, sizes)
        want = interpreted(plain, given, sizes)
        for order, variant in in_any_order(sch.kernel, random.Random(0)):
            assert_close(interpreted(variant, given, sizes), want, order)
        assert_close(run_legal(batch.split[0], given, sizes, True), want, "legal")
        for threads in (1, 2) if batch.can_run else ():
            got = {name: a.copy() for name, a in given.items()}
            batch.run(0, got, sizes, threads)
            assert_close(got, want, f"compiled, {threads} threads")
    return batch
