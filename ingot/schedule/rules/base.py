"""What a table of schedule rules is made of: rows for families of kernels and for algorithms.

A family's rule prepares the kernel (inlining), decides a plan for each contraction block, and
applies the plans with schedule primitives. An algorithm is one way to schedule one reduction block:
`decide` maps its analysis and the target to plans, `apply` schedules a block by such a plan. A back
end passes its table to the stages that plan and schedule; schedule/table.py holds the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ingot.cost.plan import ContractionPlan
from ingot.cost.shape import Contraction, Given
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import BlockInfo
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target

Decide = Callable[[Contraction, Target], list[ContractionPlan]]
Apply = Callable[[Schedule, Target, BlockInfo, ContractionPlan, BlockRef | None], LoopRef]


@dataclass(frozen=True)
class Algorithm:
    """A way to schedule one reduction. `decide` gives the plans that it offers, the best first;
    `apply` gives the loop to parallelise and raises where a step is refused."""

    name: str
    decide: Decide
    apply: Apply


@dataclass(frozen=True)
class FamilyRule:
    """The rule of a family of kernels: `plan` fills `sch.plans`, `apply` reads it. Each raises
    where a kernel has another structure than the family's; it is then scheduled by structure."""

    prepare: Callable[[Schedule], None]
    plan: Callable[[Schedule, Target, Rules, Given], None]
    apply: Callable[[Schedule, Target, Rules], None]
    has_variants: bool = False  # where rows are dynamic, one row has a plan of its own
    has_short_variants: bool = False  # so do few steps of a dynamic sequence


@dataclass(frozen=True)
class Rules:
    """The schedule rules of a back end. Earlier algorithms are preferred."""

    families: Mapping[str, FamilyRule]
    by_structure: FamilyRule  # for families without a row
    algorithms: tuple[Algorithm, ...]
    as_written: tuple[str, ...] = ("kernel",)  # user kernels: scheduled by the user or not at all

    def of(self, family: str) -> tuple[FamilyRule, ...]:
        """The rules to try, one after the other."""
        own = self.families.get(family)
        return (self.by_structure,) if own is None else (own, self.by_structure)

    def has_variants(self, family: str) -> bool:
        return family in self.families and self.families[family].has_variants

    def has_short_variants(self, family: str) -> bool:
        return family in self.families and self.families[family].has_short_variants

    def decide(self, c: Contraction | None, target: Target) -> list[ContractionPlan]:
        """The plans that the algorithms offer."""
        if c is None:
            return []
        return [plan for rule in self.algorithms for plan in rule.decide(c, target)]

    def algorithm(self, name: str) -> Algorithm:
        found = next((rule for rule in self.algorithms if rule.name == name), None)
        if found is None:
            have = ", ".join(rule.name for rule in self.algorithms)
            what = f"no rule schedules one block by the algorithm {name}"
            raise IngotError("bad-schedule", what, hint=f"one of: {have}")
        return found
