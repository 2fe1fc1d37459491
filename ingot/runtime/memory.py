"""What a run needs of memory, before it. In: a package. Out: bytes, or expressions over dynamic
dimensions. Called by executable.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.arith import expr as arith
from ingot.arith.tape import definitions
from ingot.runtime.package import Package
from ingot.runtime.sizes import refuse_unknown
from ingot.support.errors import IngotError


def memory(package: Package) -> dict[str, Any]:
    figures: dict[str, Any] = {"weights": package.constants.nbytes}
    for arena in package.arenas:
        figures[f"arena {arena.name}"] = _number(arena.size_bytes)
    figures["scratch per thread"] = _number(package.scratch_bytes)
    return figures


def memory_for(package: Package, symbols: Mapping[str, int]) -> dict[str, int]:
    """The same at given dynamic dimensions; an error for one that is missing or out of range."""
    refuse_unknown(package, symbols)
    offsets, figures = dict(package.offsets), memory(package)
    used = [*figures.values(), *offsets.values()]
    missing = {v for value in used for v in arith.free_vars(value)} - offsets.keys()
    missing -= symbols.keys()
    if missing:
        hint = f"exe.memory_for({', '.join(f'{s.name}=…' for s in package.symbols)})"
        what = f"memory_for: no value for {', '.join(sorted(missing))}"
        why = "the memory depends on these dynamic dimensions"
        raise IngotError("bad-option", what, why=why, hint=hint)
    for s in package.symbols:
        value, top = symbols.get(s.name, s.low), "…" if s.high is None else s.high
        if value < s.low or (s.high is not None and value > s.high):
            what = f"memory_for: {s.name!r} is {value}, outside {s.low} to {top}"
            raise IngotError("bad-option", what)
    known = definitions(package.offsets).evaluate(symbols)
    return {name: arith.evaluate(value, known) for name, value in figures.items()}


def _number(size: arith.Expr) -> int | arith.Expr:
    number = arith.as_int(size)
    return size if number is None else number
