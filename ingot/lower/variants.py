"""Kernel variants by size: a contraction whose plan has several becomes as many kernels.

    run("matmul", (…), (batch,))   →   if 1 <= size(batch) <= 1:
                                           run("matmul_rows_1", (…), ())
                                       else:
                                           run("matmul", (…), (batch,))

A tile of eight rows computes seven for nothing where a call has one row, and a tile of one row
reads the weights eight times where it has eight. The plan names the sizes that each variant is for
(cost/plan.py): one row, or few steps of a sequence. A run compares its sizes, which are the same on
all threads. The kernel for one row has that size as a constant. In: a program whose kernels have
plans. Out: the same with `IfSize` statements, and one plan for each block. A stage of back ends
that plan contractions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.loops import visit
from ingot.loops.ir import Kernel, replace
from ingot.loops.specialize import with_size, without_likely
from ingot.program import ir
from ingot.program.tables import map_launches


@dataclass(frozen=True)
class Variant:
    """A kernel for at most `most` of the `rows`, an expression over the sizes of the original."""

    kernel: Kernel
    rows: arith.Expr
    most: int


def split_variants(program: ir.Program) -> ir.Program:
    """Choose between the variants of a kernel at each of its launches."""
    variants = {name: _variants(kernel) for name, kernel in program.kernels}
    kernels = {name: _general(kernel) for name, kernel in program.kernels}
    for special in variants.values():
        kernels |= {v.kernel.name: v.kernel for v in special}

    def on_launch(s: ir.Launch) -> ir.Stmt:
        given = dict(zip((size.name for size in program.kernel_map[s.kernel].sizes), s.sizes))
        chosen: ir.Stmt = s
        for v in reversed(variants[s.kernel]):
            sizes = tuple(given[size.name] for size in v.kernel.sizes)
            rows = arith.substitute(v.rows, given)
            chosen = ir.IfSize(
                rows, v.most, ir.replace(s, kernel=v.kernel.name, sizes=sizes), chosen
            )
        return chosen

    body = map_launches(program.body, on_launch)
    return ir.replace(program, kernels=tuple(kernels.items()), body=body)


def _variants(kernel: Kernel) -> list[Variant]:
    found = []
    for block, plan in kernel.plans:
        *special, general = plan.variants
        rows = rows_of(kernel, block, general)
        found += [_variant(kernel, block, v, rows) for v in special if rows is not None]
    return found


def rows_of(kernel: Kernel, block: str, plan: ContractionPlan) -> arith.Expr | None:
    """The extent of the axis along the rows of a block's register tile."""
    axes = next((b.axes for b in visit.blocks(kernel.body) if b.name == block), ())
    return axes[plan.rows].extent if plan.rows is not None and plan.rows < len(axes) else None


def _variant(kernel: Kernel, block: str, plan: ContractionPlan, rows: arith.Expr) -> Variant:
    assert plan.max_rows is not None
    plans = {**_general_plans(kernel), block: plan}
    made = replace(kernel, name=f"{kernel.name}_rows_{plan.max_rows}", plans=tuple(plans.items()))
    size = next((s for s in kernel.sizes if rows == arith.Var(s.name)), None)
    if plan.max_rows == 1 and size is not None and size.low >= 1:
        made = with_size(made, size.name, 1)
    return Variant(made, rows, plan.max_rows)


def _general(kernel: Kernel) -> Kernel:
    """The kernel with its general plans, which assume nothing about the rows."""
    made = replace(kernel, plans=tuple(_general_plans(kernel).items()))
    for v in _variants(kernel):
        if isinstance(v.rows, arith.Var):
            made = without_likely(made, v.rows.name)
    return made


def _general_plans(kernel: Kernel) -> dict[str, ContractionPlan]:
    return {block: plan.variants[-1] for block, plan in kernel.plans}
