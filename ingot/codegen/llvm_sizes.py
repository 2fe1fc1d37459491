"""Size expressions of a program → LLVM instructions in its entry. Used by llvm_program.py.

In: expressions over the symbols and the offsets of a program. Out: the names of i64 values.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval
from ingot.codegen.llvm_text import Function
from ingot.codegen.llvm_values import ValuePrinter
from ingot.program import ir
from ingot.program.tables import walk
from ingot.support.stack import segmented


class SizePrinter(ValuePrinter):
    """Index arithmetic over symbols. What depends only on sizes known before the run (`sizes`) is
    computed once, where the printer was made: offsets and sizes are long formulas that most
    launches have in common. A size bound during the run is read where it is used."""

    def __init__(self, fn: Function, program: ir.Program, symbol: Callable[[str], str]):
        super().__init__(fn)
        bound = {s.symbol for s in walk(program.body) if isinstance(s, ir.Bind)}
        self.symbol = symbol
        self.sizes = {s.name for s in program.symbols} - bound | dict(program.offsets).keys()
        self.ranges = {s.name: Interval(s.low, s.high) for s in program.symbols}
        self.overflows: list[str] | None = None  # flags of checked operations; None: no checks

    @segmented
    def index(self, e: arith.Expr) -> str:
        if self.overflows is not None and isinstance(e, arith.Add | arith.Sub | arith.Mul):
            return self._checked_operation(e, self.overflows)
        if self.overflows is None and arith.free_vars(e) <= self.sizes:
            return super().index(e)
        return self._new_index(e)

    def _new_index(self, e: arith.Expr) -> str:
        return self.symbol(e.name) if isinstance(e, arith.Var) else super()._new_index(e)

    def checked(self, e: arith.Expr) -> str:
        """The value of `e`, or -1 if an operation in it overflows 64 bits."""
        self.overflows = []
        value, flags, self.overflows = self.index(e), self.overflows, None
        for flag in flags:
            value = self.fn.op(f"select i1 {flag}, i64 -1, i64 {value}")
        return value

    def _checked_operation(self, e: arith.Binary, flags: list[str]) -> str:
        name = {"+": "sadd", "-": "ssub", "*": "smul"}[e.symbol]
        args = [("i64", self.index(e.a)), ("i64", self.index(e.b))]
        pair = self.fn.call("{i64, i1}", f"llvm.{name}.with.overflow.i64", args)
        flags.append(self.fn.op(f"extractvalue {{i64, i1}} {pair}, 1"))
        return self.fn.op(f"extractvalue {{i64, i1}} {pair}, 0")
