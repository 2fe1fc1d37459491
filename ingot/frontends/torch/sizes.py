"""Sizes of traced tensors → integer expressions. In: ints, SymInts, sympy. Out: arith, symbols.

Every free symbol of the program becomes a dynamic dimension, with the range that tracing guarantees
or the caller gives. It is named after the first input that has it: `x_d0`, or as the caller did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as special
from torch.utils._sympy.value_ranges import ValueRanges

from ingot.arith import expr as arith
from ingot.arith.expr import Expr
from ingot.frontends.common.solver import SizeSolver
from ingot.frontends.torch.types import PARTS, dtype_of
from ingot.graph.types import TensorType
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

TRACED_FROM = 2  # torch.fx: a dynamic size is not 0 or 1 while it is traced
LARGEST = 1 << 40  # a bound from here on is none: torch writes sys.maxsize or less; heuristic


class SizeTable:
    """Symbols of one program, by their names in torch. `unbacked` declares a data-dependent one."""

    def __init__(self, solver: SizeSolver, ranges: Mapping[sympy.Symbol, ValueRanges]):
        self.solver = solver
        self._ranges = {str(symbol): found for symbol, found in ranges.items()}
        self.known: dict[str, Expr] = {}

    def declare(self, value: torch.Tensor, of: str, names: Mapping[str, str]) -> None:
        """The dimensions of an input: symbols get the caller's names, or that of the first input
        and axis that has them."""
        for axis, size in enumerate(value.shape):
            for symbol in _symbols(size):
                if str(symbol) not in self.known:
                    self._declare(str(symbol), names.get(str(symbol), f"{of}_d{axis}"), of, axis)

    def _declare(self, symbol: str, param: str, of: str, axis: int) -> None:
        low, high = self.range_of(symbol)
        self.solver.given.setdefault(param, (low, high))
        likely = 1 if axis == 0 and low <= 1 else None
        where = f"input {of!r}"
        self.known[symbol] = self.solver.named(param, of, axis, where, likely)

    def range_of(self, name: str) -> tuple[int, int | None]:
        found = self._ranges.get(name)
        if found is None:
            return 0, None
        low = max(0, _bound(found.lower) or 0)
        # tracing assumes 2 or more of every size; torch, too, lets an exported program take 1
        return 1 if low == TRACED_FROM else low, _bound(found.upper)

    def expr(self, size: Any, where: str = "") -> Expr:
        """A size as an expression. One that is known is a constant."""
        if isinstance(size, torch.SymInt):
            size = size.node.expr
        if isinstance(size, int):
            return arith.Const(size)
        return self._convert(size, where)

    def number(self, size: Any, where: str = "") -> int | Expr:
        """The same, an int where it is known."""
        if isinstance(size, int):
            return size
        found = self.expr(size, where)
        known = arith.as_int(found)
        return found if known is None else known

    def type_of(self, tensor: torch.Tensor, where: str = "") -> TensorType:
        dtype = dtype_of(PARTS.get(tensor.dtype, tensor.dtype), where)
        parts = (arith.Const(2),) if tensor.dtype in PARTS else ()
        return TensorType(dtype, (*(self.expr(d, where) for d in tensor.shape), *parts))

    def has_unknown(self, tensor: torch.Tensor) -> bool:
        """Whether a size is data-dependent and not yet bound."""
        shape: Sequence[Any] = tensor.shape
        sizes = [d.node.expr for d in shape if isinstance(d, torch.SymInt)]
        return any(str(s) not in self.known for e in sizes for s in e.free_symbols)

    def learn(self, size: Any, found: Expr) -> None:
        """A data-dependent symbol of tracing is what the graph has bound."""
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
            self.known.setdefault(str(size.node.expr), found)

    @segmented
    def _convert(self, e: sympy.Expr, where: str) -> Expr:
        if isinstance(e, sympy.Integer):
            return arith.Const(int(e))
        if isinstance(e, sympy.Symbol):
            if str(e) not in self.known:
                what = f"the size {e} is not one of an input or of a node before"
                raise IngotError("unsupported-op", what, where=where)
            return self.known[str(e)]
        if isinstance(e, sympy.Pow) and isinstance(e.exp, sympy.Integer) and int(e.exp) > 0:
            base = self._convert(e.base, where)
            return arith.product([base] * int(e.exp))
        build = BUILD.get(type(e))
        if build is None:
            what = f"a size {e} has no integer expression"
            raise IngotError("unsupported-op", what, where=where)
        return build(*[self._convert(arg, where) for arg in e.args])


def _symbols(size: Any) -> list[sympy.Symbol]:
    return sorted(size.node.expr.free_symbols, key=str) if isinstance(size, torch.SymInt) else []


def _bound(value: Any) -> int | None:
    """A bound of a range, None if it is none."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return number if abs(number) < LARGEST else None


def _many(build: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    return lambda *args: reduce(build, args)


def _modular(base: Expr, divisor: Expr, modulus: Expr) -> Expr:
    return base // divisor % modulus


BUILD: dict[type, Callable[..., Expr]] = {
    sympy.Add: _many(arith.add),
    sympy.Mul: lambda *args: _many(arith.mul)(*reversed(args)),  # 2 * s → s * 2, as arith has it
    sympy.Max: _many(arith.maximum),
    sympy.Min: _many(arith.minimum),
    special.Max: _many(arith.maximum),
    special.Min: _many(arith.minimum),
    special.FloorDiv: arith.floordiv,
    special.CleanDiv: arith.floordiv,
    special.CeilDiv: arith.ceildiv,
    special.Mod: arith.mod,
    special.PythonMod: arith.mod,
    special.ModularIndexing: _modular,
    special.Identity: lambda e: e,
    special.PowByNatural: lambda base, exp: _power(base, exp),
}


def _power(base: Expr, exponent: Expr) -> Expr:
    count = arith.as_int(exponent)
    if count is None or count < 0:
        raise IngotError("unsupported-op", f"a size {base} ** {exponent}")
    return arith.product([base] * count)
