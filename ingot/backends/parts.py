"""How finely launches are shared out. In: a planned program. Out: the same, launches with parts.

A thread's share of a launch is cut into parts, so that one that is done can help one that is not
(codegen/llvm_claims.py). A part costs a call and a step on a shared counter, so it must last: the
estimate of backends/report.py says how long a launch takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as arith
from ingot.backends.report import Facts, report, work_ns
from ingot.legalize.program import map_launches
from ingot.program import ir
from ingot.support import knobs

PART_NS = 4000  # a fiftieth of it is what a part costs
OF_OPEN_SIZES = 8


def cut_launches(program: ir.Program, facts: Mapping[str, Facts]) -> ir.Program:
    """Every launch with as many parts as pay, if two threads share it."""
    rows = iter(report(program, facts))

    def cut(s: ir.Launch) -> ir.Stmt:
        estimate = work_ns([next(rows)])
        return ir.replace(s, parts=_parts(s.extent, estimate))

    return ir.replace(program, body=map_launches(program.body, cut))


def _parts(extent: arith.Expr, estimate: arith.Expr | None) -> int:
    pieces = arith.as_int(extent)
    if pieces == 1:
        return 1
    time_ns = None if estimate is None else arith.as_int(estimate)
    most = knobs.current().parts  # the last part is what others wait for
    most = most if pieces is None else min(most, pieces)
    if time_ns is None:
        return min(OF_OPEN_SIZES, most)
    return max(1, min(most, time_ns // (2 * PART_NS)))
