"""A brute-force oracle for the legality checks: apply a step without its check, and test.

A step is legal if the new kernel verifies, its loop kinds can be realised, and it computes what the
unscheduled kernel does: on several inputs and sizes, with parallel and vector loops in several
orders, and after legalize with parallel iterations isolated from each other. The oracle may accept
an illegal step by chance; steps that the checks accept are tested in test_random.py.
"""

from __future__ import annotations

import random
from collections import Counter

from ingot.loops import ir, visit
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.native import legal_kernels
from tests.schedule.equivalence import assert_close, feeds, in_any_order, interpreted, run_legal
from tests.schedule.sequences import Case, Step, propose, take

# an illegal rewrite may fail in any of these ways
FAILURES = (IngotError, AssertionError, ArithmeticError, LookupError, ValueError, AttributeError,
            TypeError, StopIteration, RecursionError)  # fmt: skip
# these have no check apart from the rewrite, or no effect on the result
UNDECIDED = ("tensorize", "pipeline", "annotate", "prefetch")
INDEX = "Idx."  # loops bound to GPU indices always leave a remark here
LENGTH = 3  # steps of a sequence
DRAWS = 12  # of a step, until this position of the sequence is skipped


def is_legal(case: Case, sch: Schedule, step: Step) -> bool:
    """Does the step, unchecked, preserve the semantics of the kernel?"""
    if step.op in UNDECIDED or step.options.get("tail") == "none":  # an error by definition
        return False
    saved = sch.save()
    before = sch.kernel
    try:
        take(sch, step, unsafe=True)
        is_step = sch.kernel != before and _non_serial_loops(before) <= _non_serial_loops(
            sch.kernel
        )
        return is_step and _is_equivalent(case, sch, len(_complaints(before)))
    except FAILURES:
        return False
    finally:
        sch.restore(saved)


def _non_serial_loops(kernel: ir.Kernel) -> int:
    """The number of parallel, vector, unrolled and bound loops: a step must not lose one."""
    loops = (s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For))
    return sum(x.kind is not ir.LoopKind.SERIAL for x in loops)


def _complaints(kernel: ir.Kernel) -> list[str]:
    remarks = [r.why for k in legal_kernels(kernel).kernels for r in k.remarks]
    return [why for why in remarks if INDEX not in why]


def _is_equivalent(case: Case, sch: Schedule, complaints: int) -> bool:
    verify(sch.kernel)
    if len(_complaints(sch.kernel)) > complaints:
        return False
    plain, split = case.make(), legal_kernels(sch.kernel)
    for seed, sizes in enumerate(case.sizes * 2):
        given = feeds(plain, sizes, seed)
        want = interpreted(plain, given, sizes)
        for order, variant in in_any_order(sch.kernel, random.Random(seed)):
            assert_close(interpreted(variant, given, sizes), want, order)
        assert_close(run_legal(split, given, sizes, True), want, "legal")
    return True


def try_sequence(case: Case, rng: random.Random, refused: Counter) -> bool | None:
    """A sequence of steps that the oracle finds legal: is every one accepted? None: none found.

    A refused legal step ends the sequence, and is counted in `refused`.
    """
    sch = Schedule(case.make())
    taken = 0
    for _ in range(LENGTH):
        for _ in range(DRAWS):
            step = propose(sch, rng)
            if step is None:
                continue
            try:
                take(sch, step)
                taken += 1
                break
            except IngotError as error:
                if is_legal(case, sch, step):
                    refused[step.op, error.why] += 1
                    return False
    return True if taken else None
