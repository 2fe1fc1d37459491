"""Run with installed wheels of Ingot and of the example back end: see test_outside.py.

python -m tests.backends.outside samples     operators whose samples pass, as JSON
"""

from __future__ import annotations

import json
import sys

import ingot
from ingot import api, pipeline
from ingot.graph.opdef import TABLE
from tests.ops.many import batch
from tests.ops.test_compiled import SAMPLED, check

TARGET = "systolic"


def passes(name: str) -> bool:
    """All samples of an operator on the example's device; an error is the caller's to see."""
    op = TABLE[name]
    case = batch(op, [s for s in op.samples() if not s.fails], symbolic=False)
    names = [value.name for value in case.graph.outputs]
    session = api.make_session(TARGET)
    session.store = case.store
    exe = ingot.Executable(pipeline.run_stages(case.graph, session))
    assert exe.package.device == TARGET
    check(case, names, exe.run(names, case.feeds), TARGET)
    return True


if __name__ == "__main__":
    found = [name for name in SAMPLED if passes(name)]
    print(json.dumps({"passed": found, "ingot": ingot.__file__}))
    sys.exit(0)
