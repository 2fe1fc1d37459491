"""Random sequences of primitives: every accepted step preserves the kernel's semantics.

500 sequences in every run of the suite, 20,000 in the long form: in the interpreter, with parallel
and vector loops in any order, after legalize, and compiled, on one thread and on two. The fraction
accepted, among the sequences that a brute-force oracle finds legal, is printed.
"""

import random
from collections import Counter

import pytest

from ingot.loops import ir
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.native import Batch
from tests.schedule.equivalence import assert_close, feeds, in_any_order, interpreted, run_legal
from tests.schedule.oracle import is_legal, try_sequence
from tests.schedule.replay_process import replayed
from tests.schedule.sequences import CASES, Case, Step, propose, random_step, take

__all__ = ["CASES", "random_step"]
STEPS = 9
BATCH = 25  # kernels of one object


def scheduled(case: Case, rng: random.Random) -> Schedule:
    """A kernel after random steps; illegal ones raise and change nothing."""
    sch = Schedule(case.make())
    for _ in range(STEPS):
        step = propose(sch, rng)
        if step is None:
            continue
        before = sch.kernel
        try:
            take(sch, step)
        except IngotError as error:
            assert error.code == "bad-schedule" and error.why and sch.kernel is before, step
    return sch


def check_batch(drawn: list[tuple[str, int]]) -> None:
    """Sequences, each named by its case and seed, all the way to machine code."""
    kernels: list[ir.Kernel] = []
    for name, seed in drawn:
        rng = random.Random(f"{name} {seed}")
        sch = scheduled(CASES[name], rng)
        verify(sch.kernel)
        assert replayed(CASES[name].make(), sch.trace) == sch.kernel
        kernels.append(sch.kernel)
    batch = Batch(kernels)
    for number, ((name, seed), kernel) in enumerate(zip(drawn, kernels)):
        check_one(CASES[name], kernel, batch, number, f"{name} {seed}")


def check_one(case: Case, kernel: ir.Kernel, batch: Batch, number: int, what: str) -> None:
    plain = case.make()
    for sizes in case.sizes:
        given = feeds(plain, sizes)
        want = interpreted(plain, given, sizes)
        for order, variant in in_any_order(kernel, random.Random(what)):
            assert_close(interpreted(variant, given, sizes), want, f"{what}, {order}")
        assert_close(run_legal(batch.split[number], given, sizes, True), want, f"{what}, legal")
        for threads in (1, 2):
            got = {name: a.copy() for name, a in given.items()}
            batch.run(number, got, sizes, threads)
            assert_close(got, want, f"{what}, compiled, {threads} threads")


def draw(first: int, count: int) -> list[tuple[str, int]]:
    """`count` sequences, round robin over the cases, from number `first`."""
    names = list(CASES)
    return [(names[n % len(names)], n // len(names)) for n in range(first, first + count)]


@pytest.mark.parametrize("first", range(0, 500, BATCH))
def test_accepted_steps_preserve_semantics(first):
    check_batch(draw(first, BATCH))


@pytest.mark.long
@pytest.mark.parametrize("first", range(500, 20_500, BATCH))
def test_accepted_steps_preserve_semantics_long(first):
    check_batch(draw(first, BATCH))


def accepted_fraction(count: int) -> float:
    """Of the sequences that the oracle finds legal, the fraction whose steps are all accepted."""
    refused: Counter = Counter()
    results = Counter(
        try_sequence(CASES[name], random.Random(f"share {name} {seed}"), refused)
        for name, seed in draw(0, count)
    )
    legal = results[True] + results[False]
    fraction = results[True] / legal
    print(f"\n{results[True]} of {legal} legal sequences accepted: {fraction:.0%}. Most refused:")
    for (op, why), times in refused.most_common(8):
        print(f"  {times:4} {op}: {why}")
    return fraction


@pytest.mark.parametrize("count", [120, pytest.param(3000, marks=pytest.mark.long)])
def test_most_legal_sequences_are_accepted(count, capsys):
    with capsys.disabled():
        assert accepted_fraction(count) >= 0.6


def test_the_oracle_distinguishes_legal_from_illegal():
    """On steps of known legality: parallel, vectorize, split and reorder."""
    case = CASES["matmul"]
    sch = Schedule(case.make())
    i, j, k = sch.loops(sch.block("Y"))
    assert is_legal(case, sch, Step("parallel", (i,)))
    assert not is_legal(case, sch, Step("parallel", (k,)))
    assert not is_legal(case, sch, Step("split", (k, None, 3), {"tail": "shift"}))
    assert is_legal(case, sch, Step("reorder", (k, j, i)))
    assert sch.trace.text() == ""
    case = CASES["scan"]
    sch = Schedule(case.make())
    i, t = sch.loops(sch.block("out"))
    assert is_legal(case, sch, Step("parallel", (i,)))
    assert not is_legal(case, sch, Step("vectorize", (t,)))
