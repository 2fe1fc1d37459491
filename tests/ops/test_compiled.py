"""The compiled column of the operator suite: samples as native code equal the reference.

All samples of an operator are built as one graph (tests/ops/many.py), with sizes known and with
sizes as symbols, for an AVX2 and an AVX-512 description. The lowered program and the scheduled,
legal, planned one are interpreted on the way, so that a wrong output is attributed to lowering,
scheduling and planning, or code generation. Code that this machine cannot execute becomes objects,
and its planned program is interpreted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.backends.report import AS_WRITTEN, report, summarize_kernels
from ingot.graph.opdef import TABLE, OpDef
from ingot.program import interp
from ingot.program.ir import Program
from ingot.runtime.cpu import module
from ingot.runtime.package import Package
from ingot.schedule.rules.explain import UNEXPLAINED
from ingot.schedule.table import CPU_RULES
from ingot.support.errors import IngotError
from tests.ops.many import Batch, batch, emptied, sample_at
from tests.ops.single import reference
from tests.ops.test_samples import OPS, assert_same

BUILDS = pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
SAMPLED = [name for name in OPS if TABLE[name].samples()]
# a user's kernel has its sizes in its text: none can be symbols
OWN_SIZES = {"kernel"}
CASES = [
    pytest.param(name, symbolic, id=f"{name}-{'symbolic' if symbolic else 'known'}")
    for name in SAMPLED
    for symbolic in (False, True)
    if not (symbolic and name in OWN_SIZES)
]
TARGETS = ("x86-64-v3", "x86-64-v4")
BUILDS_BY_TARGET = [  # symbolic sizes for the second description: make long
    pytest.param(name, symbolic, target, marks=[pytest.mark.long] if is_long else [],
                 id=f"{name}-{'symbolic' if symbolic else 'known'}-{target}")
    for name, symbolic in (case.values for case in CASES)
    for target in TARGETS
    for is_long in [symbolic and target != TARGETS[0]]
]  # fmt: skip
FAILING = [name for name in SAMPLED if any(s.fails for s in TABLE[name].samples())]


def check(case: Batch, names: list[str], arrays: list[np.ndarray], column: str) -> None:
    for name, array in zip(names, arrays, strict=True):
        sample, want = case.wants[name]
        assert_same(f"{column}: {name} of", sample, [array], [want])


@pytest.mark.parametrize("name, symbolic, target", BUILDS_BY_TARGET)
def test_samples_compiled(name: str, symbolic: bool, target: str) -> None:
    op = TABLE[name]
    case = batch(op, [s for s in op.samples() if not s.fails], symbolic)
    names = [value.name for value in case.graph.outputs]
    session = api.make_session(target, jobs=1)
    session.store = case.store
    runs_here = not session.backend.why_not_here(session.target)
    is_first = target == TARGETS[0]
    # every stage is verified once; for the other target the planned program alone
    session.options = replace(session.options, verify=is_first)
    lowered = pipeline.run_stages(case.graph, session, stop_after="lower")
    planned = pipeline.run_stages(lowered, session, "merge_axes", "barriers")
    pipeline.check(planned)
    check_reasons(planned)
    if is_first or not runs_here:
        check(case, names, interp.run(lowered, session.store, case.feeds), "lowered")
        check(case, names, interp.run(planned, session.store, case.feeds), "planned")
    package = pipeline.run_stages(planned, session, "chunk_launches")
    if runs_here:
        check_native(op, case, names, package, symbolic and is_first)
    else:
        assert module.read(package).kernels or not planned.kernels


def check_native(
    op: OpDef, case: Batch, names: list[str], package: Package, at_size_0: bool
) -> None:
    exe = ingot.Executable(package)
    outputs = []
    for threads in (1, 2):
        exe.threads = threads
        outputs.append(exe.run(names, case.feeds))
        check(case, names, outputs[-1], f"compiled, {threads} threads")
    for label, one, two in zip(names, *outputs):
        assert one.tobytes() == two.tobytes(), f"{label}: the output depends on the thread count"
    if at_size_0:
        check_size_0(op, case, exe)


def check_reasons(planned: Program) -> None:
    """Every kernel that is serial or scalar says why."""
    for row in report(planned, summarize_kernels(planned)):
        assert bool(row.why_serial) == row.is_serial, row
        assert row.why_scalar or row.lanes > 1, row
        is_users = row.family in CPU_RULES.as_written
        assert is_users or not {row.why_serial, row.why_scalar} & {AS_WRITTEN, UNEXPLAINED}, row


def check_size_0(op: OpDef, case: Batch, exe: ingot.Executable) -> None:
    """Every sample again, with each dynamic axis empty in turn: what the reference gives, or an
    error where it has one."""
    samples = [s for s in op.samples() if not s.fails]
    for symbol in [s.name for s in case.graph.symbols if s.source == "input"]:
        number = int(symbol.removeprefix("s").partition("_")[0])
        empty = sample_at(case, op, number, samples[number], symbol)
        feeds = emptied(case, number, symbol)
        try:
            want = reference(op, empty)
        except (IngotError, ValueError, IndexError) as error:
            with pytest.raises(IngotError):
                exe.run(None, feeds)
                pytest.fail(f"{op.name}: sample {number}, {symbol} = 0: no error, but {error}")
            continue
        names = [v.name for v in case.graph.outputs if v.name.startswith(f"s{number}_")]
        assert_same(f"{symbol} = 0 of", empty, exe.run(names, feeds), want)


@BUILDS
@pytest.mark.parametrize("name", FAILING)
def test_samples_that_fail(name: str, symbolic: bool) -> None:
    """An error at run time is an error with its reason in every column, and not a crash."""
    op = TABLE[name]
    for sample in op.samples():
        if not sample.fails:
            continue
        case = batch(op, [sample], symbolic)
        session = api.make_session(jobs=1)
        session.store = case.store
        planned = pipeline.run_stages(case.graph, session, stop_after="barriers")
        with pytest.raises(IngotError, match=sample.fails):
            interp.run(planned, session.store, case.feeds)
        exe = ingot.Executable(pipeline.run_stages(planned, session, "codegen"))
        for threads in (1, 2):
            exe.threads = threads
            with pytest.raises(IngotError, match=sample.fails) as caught:
                exe.run(None, case.feeds)
            assert caught.value.code == "run-failed"
