"""Legalizing kernels pass by pass: after every pass they must verify and mean the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ingot import dtypes, target
from ingot.arith import expr as arith
from ingot.legalize import PASSES
from ingot.legalize.context import PassContext
from ingot.legalize.split_kernels import SplitKernel, split_kernel
from ingot.loops import interp, ir, visit
from ingot.loops.verify import verify

AVX2 = target.parse("x86-64-v3")
PLAIN = target.parse("x86-64-v2+no-sse4.1")  # no fma, no f16 conversions, no rounding
Arrays = dict[str, np.ndarray]


def data(kernel: ir.Kernel, sizes: Mapping[str, int], seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    written = visit.written(kernel.body)
    arrays: Arrays = {}
    for p in kernel.params:
        shape = tuple(arith.evaluate(d, sizes) for d in p.shape)
        if p.name in written:
            arrays[p.name] = np.full(shape, 77).astype(p.dtype.numpy)
        elif p.dtype.is_float:
            arrays[p.name] = rng.standard_normal(shape).astype(p.dtype.numpy)
        else:
            arrays[p.name] = rng.integers(0, 3, shape).astype(p.dtype.numpy)
    return arrays


def run_all(kernels: Sequence[ir.Kernel], arrays: Arrays, sizes: Mapping[str, int]) -> None:
    for kernel in kernels:
        used = {s.name: sizes[s.name] for s in kernel.sizes}
        interp.run(kernel, [arrays[p.name] for p in kernel.params], used)


def run_split(split: SplitKernel, arrays: Arrays, sizes: Mapping[str, int]) -> Arrays:
    arrays = {name: a.copy() for name, a in arrays.items()}
    for b in split.temporaries:
        shape = tuple(arith.evaluate(d, sizes) for d in b.shape)
        poison = np.nan if b.dtype.is_float else 99
        arrays[b.name] = np.full(shape, poison).astype(b.dtype.numpy)
    run_all(split.kernels, arrays, sizes)
    return arrays


def check(
    kernel: ir.Kernel,
    sizes: Mapping[str, int] | None = None,
    on: target.Target = AVX2,
    given: Arrays | None = None,
    rtol: float = 1e-5,
) -> tuple[list[ir.Kernel], list[str]]:
    """Legalize pass by pass; verify and run after each. Returns the legal kernels and remarks."""
    sizes = dict(sizes or {})
    arrays = data(kernel, sizes) | (given or {})
    want = {name: a.copy() for name, a in arrays.items()}
    run_all([kernel], want, sizes)
    split = split_kernel(kernel)
    contexts = [PassContext.of(k, on) for k in split.kernels]
    _agree(want, split, arrays, sizes, rtol, "split_kernel")
    for each in PASSES:
        new = tuple(each.function(k, ctx) for k, ctx in zip(split.kernels, contexts))
        split = SplitKernel(new, split.temporaries)
        _agree(want, split, arrays, sizes, rtol, each.name)
    for k in split.kernels:
        assert_legal(k)
    return list(split.kernels), [r.why for ctx in contexts for r in ctx.remarks]


def _agree(
    want: Arrays,
    split: SplitKernel,
    arrays: Arrays,
    sizes: Mapping[str, int],
    rtol: float,
    name: str,
) -> None:
    for k in split.kernels:
        verify(k)
    got = run_split(split, arrays, sizes)
    for key, value in want.items():
        wide = np.float64 if dtypes.from_numpy(value.dtype).is_float else value.dtype
        a, b = got[key].astype(wide), value.astype(wide)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6, err_msg=f"{key} after {name}")


def assert_legal(kernel: ir.Kernel) -> None:
    """What a printer may rely on."""
    allocs = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    assert all(b.rank == 1 for b in (*kernel.params, *allocs))
    assert all(b.scope != ir.GLOBAL for b in allocs)
    for s in visit.walk_stmts(kernel.body):
        assert not isinstance(s, ir.Block)
        if isinstance(s, ir.For):
            assert s.kind not in (ir.LoopKind.VECTOR, ir.LoopKind.UNROLL)
            assert s.kind is not ir.LoopKind.PARALLEL or s is kernel.body
    for e in visit.all_exprs(kernel.body):
        assert not isinstance(e, ir.Math)
        small = not isinstance(e, ir.Load | ir.Ref | ir.Lit | ir.Select | ir.Bitcast)
        if small and e.lanes > 1 and isinstance(e, ir.Binary):
            assert e.b.lanes == e.lanes


def widths(kernel: ir.Kernel) -> set[int]:
    """Lanes of the kernel's stores."""
    return {s.value.lanes for s in visit.stores(kernel.body)}
