"""The first stage whose result is wrong. In: a case that goes wrong. Out: a `Finding`.

Every stage's result has an interpreter, and compiled code runs; the results before the guilty stage
are right and those after it are wrong, so a binary search finds it. Programs that would take long
to interpret are left out: the finding is then a range of stages. Called by verify.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ingot import pipeline
from ingot.arith import expr as arith
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.inspect.case import Case, Failure, Outcome, Setting, interpret, run_package, stages
from ingot.inspect.difference import Expected
from ingot.inspect.kernels import first_wrong_kernel
from ingot.inspect.launches import first_wrong_launch, named_launch
from ingot.inspect.order import backwards
from ingot.inspect.subgraph import run_sizes
from ingot.program import ir as program_ir
from ingot.program.estimate import launch_work
from ingot.program.tables import walk
from ingot.support.errors import IngotError

SLOW_STEPS = 2_000_000  # float operations and elements that interpreting a program may take; about
# 10 s of the loop interpreter


@dataclass(frozen=True)
class Finding:
    """`before` is the IR before `stage`, whose result is wrong, as `outcome` says; if the code of a
    kernel is wrong, a program of its launch alone. `expected` has its inputs and outputs. `until`
    is a later stage if those between were not interpreted."""

    stage: str
    until: str
    before: Any
    store: ConstantStore
    outcome: Outcome
    expected: Expected
    launch: program_ir.Launch | None = None


@dataclass(frozen=True)
class _Result:
    stage: str
    value: Any
    error: Exception | None


def first_wrong_stage(case: Case, setting: Setting) -> Finding | None:
    """None if no result is wrong: the error did not show this time."""
    session = setting.session(case.store)
    made = [_Result("import", case.graph, None)]
    made += [_Result(*row) for row in stages(case.graph, session)]
    is_slow = program_steps(case, made) > SLOW_STEPS
    known = [i for i, x in enumerate(made) if not (is_slow and _is_interpreted(x))]
    outcomes: dict[int, Outcome] = {}

    def judged(i: int) -> Outcome:
        if i not in outcomes:
            x = made[i]
            outcomes[i] = (
                Outcome(failure=Failure(x.stage, x.error))
                if x.error is not None
                else judge(case.expected, x.stage, x.value, session.store, setting.threads)
            )
        return outcomes[i]

    low, high = 0, len(known) - 1
    if not judged(known[high]).is_wrong:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if judged(known[middle]).is_wrong:
            high = middle
        else:
            low = middle
    right, wrong = made[known[low]], made[known[high]]
    launch = _launch(case, right, wrong, judged(known[high]), session.store)
    first, outcome = made[known[low] + 1].stage, judged(known[high])
    found = Finding(first, wrong.stage, right.value, session.store, outcome, case.expected, launch)
    is_code = first == wrong.stage and not isinstance(wrong.value, Graph | program_ir.Program)
    return _narrowed(found, setting) if is_code and outcome.failure is None else found


def _narrowed(found: Finding, setting: Setting) -> Finding:
    """The finding about one kernel's code, if one is wrong on its own."""
    one = first_wrong_kernel(found.before, found.store, found.expected, setting)
    if one is None:
        return found
    return replace(
        found, before=one.program, store=ConstantStore(), expected=one.expected, launch=one.launch
    )


def judge(
    expected: Expected, stage: str, value: Any, store: ConstantStore, threads: int | None
) -> Outcome:
    """The outcome of a stage's result, whatever it is."""
    if not isinstance(value, Graph | program_ir.Program):
        return run_package(expected, value, threads)
    if isinstance(value, program_ir.Program):
        fault = memory_fault(value)
        if fault is not None:
            return Outcome(failure=Failure(stage, fault))
    found = interpret(expected, value, store)
    opposite = backwards(value) if isinstance(value, program_ir.Program) else None
    return interpret(expected, opposite, store) if opposite and not found.is_wrong else found


def memory_fault(program: program_ir.Program) -> IngotError | None:
    """What the verifier finds in a memory plan before barriers are set: with a barrier everywhere,
    only buffers that overwrite each other are left to find."""
    if program.is_planned or not program.arenas:
        return None
    body = program_ir.seq(*_with_barriers(program.body))
    try:
        pipeline.check(program_ir.replace(program, body=body, is_planned=True))
    except IngotError as error:
        return error
    return None


def _with_barriers(s: program_ir.Stmt) -> list[program_ir.Stmt]:
    match s:
        case program_ir.Seq(stmts=stmts):
            return [x for each in stmts for x in _with_barriers(each)]
        case program_ir.If(then=a, orelse=b) | program_ir.IfSize(then=a, orelse=b):
            a, b = (program_ir.seq(*_with_barriers(x)) for x in (a, b))
            return [program_ir.Barrier(), program_ir.replace(s, then=a, orelse=b)]
        case program_ir.Loop(body=body):
            inner = program_ir.seq(*_with_barriers(body))
            return [program_ir.Barrier(), program_ir.replace(s, body=inner)]
    return [program_ir.Barrier(), s]


def _launch(
    case: Case, right: _Result, wrong: _Result, outcome: Outcome, store: ConstantStore
) -> program_ir.Launch | None:
    """The first launch that writes something wrong, or that an error is about."""
    program = wrong.value if isinstance(wrong.value, program_ir.Program) else right.value
    if not isinstance(program, program_ir.Program):
        return None
    if outcome.failure is not None:
        return named_launch(program, str(outcome.failure))
    if isinstance(wrong.value, program_ir.Program):
        return first_wrong_launch(case, right.value, wrong.value, store)
    name = outcome.first.name if outcome.first else ""
    buffer = dict(zip(program.output_names, program.outputs)).get(name, name)
    launches = [s for s in walk(program.body) if isinstance(s, program_ir.Launch)]
    return next((s for s in reversed(launches) if buffer in s.args), None)


def _is_interpreted(made: _Result) -> bool:
    return isinstance(made.value, program_ir.Program) and made.error is None


# --- what would take long -------------------------------------------------------------------------


def program_steps(case: Case, made: list[_Result]) -> int:
    """An estimate of the steps of the last program, which stands for all of them."""
    programs = [x.value for x in made if isinstance(x.value, program_ir.Program)]
    legal = [p for p in programs if p.arenas]
    if not legal:
        return sum(array.size for array in case.values.values())
    program, sizes = legal[-1], run_sizes(case.graph, case.values)
    total = 0
    for s in walk(program.body):
        if isinstance(s, program_ir.Launch):
            work = launch_work(program.kernel_map[s.kernel], program.buffer_map, s)
            parts = [arith.wrap(work.flops or 0), work.arg_bytes // 4, work.steps]
            total += sum(_value(part, sizes) for part in parts)
    return total


def _value(size: arith.Expr, sizes: dict[str, int]) -> int:
    """With 64 for what only the run knows."""
    unknown = dict.fromkeys(arith.free_vars(size) - sizes.keys(), 64)
    return arith.evaluate(size, {**unknown, **sizes})
