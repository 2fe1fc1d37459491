"""Kernel variants for long sizes: where only a short input makes an index wrap around.

    run("pad", (…), (n,))   →   if 1 <= size(n) <= 65:
                                    run("pad", (…), (n,))
                                else:
                                    run("pad_long", (…), (n,))

A border of 64 elements that mirrors its input reads x[i % (2 * n - 2)], for any n. From n = 66 on,
i is below 2 * n - 2: a kernel that knows this has no division, as a kernel for one n has none. In:
a program before its kernels are scheduled. Out: the same with `IfSize` statements. Part of the
stage split_variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.arith.simplify import simplifier
from ingot.loops import visit
from ingot.loops.ir import Block, Expr, Kernel, Load, Size, Stmt, replace
from ingot.program import ir
from ingot.program.tables import map_launches

MAX_SHORT = 1 << 12  # elements; an index that wraps around beyond them does so in most calls


def split_long_sizes(program: ir.Program) -> ir.Program:
    """Choose at each launch between a kernel for any sizes and one for long ones."""
    least = {name: least_lengths(kernel) for name, kernel in program.kernels}
    long = {name: _long(program.kernel_map[name], found) for name, found in least.items() if found}

    def on_launch(s: ir.Launch) -> ir.Stmt:
        if s.kernel not in long:
            return s
        chosen: ir.Stmt = ir.replace(s, kernel=long[s.kernel].name)
        for size, given in zip(program.kernel_map[s.kernel].sizes, s.sizes):
            if size.name in least[s.kernel]:
                chosen = ir.IfSize(given, least[s.kernel][size.name] - 1, s, chosen)
        return chosen

    kernels = (*program.kernels, *((kernel.name, kernel) for kernel in long.values()))
    return ir.replace(program, kernels=kernels, body=map_launches(program.body, on_launch))


def least_lengths(kernel: Kernel) -> dict[str, int]:
    """The sizes from which on no index of the kernel wraps around, where that is not so for all of
    their values; none where some index always may."""
    found: dict[str, int] = {}
    for block in visit.blocks(kernel.body) if not kernel.plans else ():
        for size, wrapped in _wrapped(kernel, block):
            least = _least(kernel, block, size, wrapped)
            if least is None:
                return {}
            found[size.name] = max(found.get(size.name, size.low), least)
    return {name: n for name, n in found.items() if n > _size(kernel, name).low}


def _wrapped(kernel: Kernel, block: Block) -> Iterator[tuple[Size, arith.Mod]]:
    """Remainders by one size, in the indices of loads, with that size."""
    sizes = {size.name: size for size in kernel.sizes}
    indices = [i for load in visit.loads(block.body) for i in load.indices]
    found = dict.fromkeys(e for i in indices for e in arith.walk(i))
    for e in found:
        if isinstance(e, arith.Mod) and len(names := arith.free_vars(e.b) & sizes.keys()) == 1:
            yield sizes[next(iter(names))], e


def _least(kernel: Kernel, block: Block, size: Size, wrapped: arith.Mod) -> int | None:
    """The least value of `size` from which on the remainder is the index itself."""
    if size.low < 1:
        return None  # IfSize takes 0 for a long size
    high = MAX_SHORT if size.high is None else min(MAX_SHORT, size.high)
    if not _is_plain(kernel, block, {size.name: high}, wrapped):
        return None
    low = size.low - 1
    while high - low > 1:
        middle = (low + high) // 2
        is_plain = _is_plain(kernel, block, {size.name: middle}, wrapped)
        low, high = (low, middle) if is_plain else (middle, high)
    return high


def _is_plain(kernel: Kernel, block: Block, least: Mapping[str, int], e: arith.Mod) -> bool:
    known = _facts(kernel, block, least)
    return prove("ge", e.a, 0, *known) and prove("lt", e.a, e.b, *known)


def _facts(
    kernel: Kernel, block: Block, least: Mapping[str, int]
) -> tuple[dict[str, Interval], dict[str, arith.Expr]]:
    """Ranges of sizes and axes, and the limits of the axes."""
    env = {s.name: Interval(least.get(s.name, s.low), s.high) for s in kernel.sizes}
    env |= {axis.var: Interval(0, None) for axis in block.axes}
    return env, {axis.var: axis.extent for axis in block.axes}


def _long(kernel: Kernel, least: Mapping[str, int]) -> Kernel:
    """The kernel for sizes from `least` on. Its indices are simplified here: of a partial vector,
    some elements lie beyond the axis, and later stages could not."""

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Block):
            return s
        facts = simplifier(*_facts(kernel, s, least))

        def on_expr(e: Expr) -> Expr:
            if not isinstance(e, Load):
                return e
            return replace(e, indices=tuple(map(facts.simplify, e.indices)))

        return visit.map_stmt(s, on_expr=on_expr)

    sizes = tuple(replace(s, low=least.get(s.name, s.low)) for s in kernel.sizes)
    body = visit.map_stmt(kernel.body, on_stmt)
    return replace(kernel, name=f"{kernel.name}_long", sizes=sizes, body=body)


def _size(kernel: Kernel, name: str) -> Size:
    return next(size for size in kernel.sizes if size.name == name)
