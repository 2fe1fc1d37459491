"""The brute-force oracle of the schedule's checks: make the step without its check, and look.

A step is legal if the kernel it makes verifies, can be realised as marked, and gives what the plain
kernel gives: on several inputs and sizes, with parallel and vector loops in several orders, and
after legalize with parallel iterations that see nothing of each other. What it finds legal may
still be luck; what the checks accept is tested elsewhere.
"""

from __future__ import annotations

import random
from collections import Counter

from ingot.loops import ir, visit
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.native import legal_parts
from tests.schedule.agree import assert_close, feeds, in_any_order, interpreted, run_legal
from tests.schedule.sequences import Case, Step, propose, take

# a rewrite that makes no sense may fail in any of these ways
FAILURES = (IngotError, AssertionError, ArithmeticError, LookupError, ValueError, AttributeError,
            TypeError, StopIteration, RecursionError)  # fmt: skip
# of these the check is the match itself, or there is nothing to see in the result
UNDECIDED = ("tensorize", "pipeline", "annotate", "prefetch")
UNREALISED = ("lane by lane", "is not written out", "runs on one thread")
LENGTH = 3  # steps of a sequence
DRAWS = 12  # until a place in the sequence is given up


def is_legal(case: Case, sch: Schedule, step: Step) -> bool:
    """Does the step, unchecked, keep the meaning of the kernel under schedule?"""
    if step.op in UNDECIDED or step.options.get("tail") == "none":  # which asks to be refused
        return False
    saved = sch.save()
    before = sch.kernel
    try:
        take(sch, step, unsafe=True)
        is_step = sch.kernel != before and _marks(before) <= _marks(sch.kernel)
        return is_step and _agrees(case, sch, len(_complaints(before)))
    except FAILURES:
        return False
    finally:
        sch.restore(saved)


def _marks(kernel: ir.Kernel) -> int:
    """How many loops are marked: a step that loses a mark has not done what it was asked."""
    loops = (s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For))
    return sum(x.kind is not ir.LoopKind.SERIAL for x in loops)


def _complaints(kernel: ir.Kernel) -> list[str]:
    notes: list[str] = []
    legal_parts(kernel, notes=notes)
    return [note for note in notes if any(words in note for words in UNREALISED)]


def _agrees(case: Case, sch: Schedule, complaints: int) -> bool:
    verify(sch.kernel)
    if len(_complaints(sch.kernel)) > complaints:
        return False
    plain, parts = case.make(), legal_parts(sch.kernel)
    for seed, sizes in enumerate(case.sizes * 2):
        given = feeds(plain, sizes, seed)
        want = interpreted(plain, given, sizes)
        for order, variant in in_any_order(sch.kernel, random.Random(seed)):
            assert_close(interpreted(variant, given, sizes), want, order)
        assert_close(run_legal(parts, given, sizes, True), want, "legal")
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
