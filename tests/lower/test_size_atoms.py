"""Quotients of dynamic sizes as a kernel's own sizes: numbered in the order of its sizes."""

from __future__ import annotations

from ingot.arith.expr import Const, Var
from ingot.dtypes import f32
from ingot.loops import ir
from ingot.lower.size_atoms import name_quotients

SIZES = ("height", "width", "depth", "time", "batch", "rows")


def halved() -> ir.Kernel:
    """One element per half of each size, rounded up; some are also quarters."""
    halves = tuple((Var(name) + 1) // 2 for name in SIZES)
    quarters = tuple((Var(name) + 3) // 4 for name in SIZES)
    params = (ir.Buffer("x", f32, halves), ir.Buffer("y", f32, quarters))
    sizes = tuple(ir.Size(name, 1, None) for name in SIZES)
    zeros = tuple(Const(0) for _ in SIZES)
    store = ir.Store(params[1], zeros, ir.Load(params[0], zeros))
    return ir.Kernel("halved", params, sizes, store)


def test_names_follow_the_order_of_the_sizes_whatever_the_hash_seed():
    kernel, values = name_quotients(halved())
    assert values == tuple((f"q{n}", (Var(name) + 1) // 2) for n, name in enumerate(SIZES))
    assert kernel.params[0].shape == tuple(Var(f"q{n}") for n in range(len(SIZES)))
    assert kernel.params[1].shape == tuple((Var(f"q{n}") + 1) // 2 for n in range(len(SIZES)))
