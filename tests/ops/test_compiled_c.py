"""The C column of the operator suite: samples compiled from C99 text equal the reference.

All samples of an operator are one graph and one C file, with sizes known and with sizes as symbols,
as in test_compiled.py. The compiler runs with -std=c99 -pedantic -Wall -Wextra -Werror, so that a
warning in any text fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import ingot
from ingot import api, pipeline
from ingot.graph.opdef import TABLE
from ingot.support import options
from ingot.support.errors import IngotError
from tests.ops.many import Batch, batch
from tests.ops.test_compiled import BUILDS, CASES, FAILING, check


@pytest.fixture(autouse=True)
def strict_compiler() -> Iterator[None]:
    with options.override(cc_flags="-O1 -pedantic -Wall -Wextra -Werror"):
        yield


def build(case: Batch) -> ingot.Executable:
    """Only the planned program is verified: test_compiled.py has the stages before it."""
    session = api.make_session("c")
    session.store = case.store
    session.options = replace(session.options, verify=False)
    planned = pipeline.run_stages(case.graph, session, stop_after="barriers")
    pipeline.check(planned)
    return ingot.Executable(pipeline.run_stages(planned, session, "codegen"))


@pytest.mark.parametrize("name, symbolic", CASES)
def test_samples_in_c(name: str, symbolic: bool) -> None:
    op = TABLE[name]
    case = batch(op, [s for s in op.samples() if not s.fails], symbolic)
    names = [value.name for value in case.graph.outputs]
    check(case, names, build(case).run(names, case.feeds), "C")


@BUILDS
@pytest.mark.parametrize("name", FAILING)
def test_samples_that_fail_in_c(name: str, symbolic: bool) -> None:
    for sample in TABLE[name].samples():
        if sample.fails:
            case = batch(TABLE[name], [sample], symbolic)
            with pytest.raises(IngotError, match=sample.fails) as caught:
                build(case).run(None, case.feeds)
            assert caught.value.code == "run-failed"
            assert caught.value.where
