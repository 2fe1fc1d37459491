"""Loop values and statements of any depth: parsed, printed, verified, rewritten, run, compiled."""

from __future__ import annotations

import importlib.util
from copy import copy, deepcopy
from pathlib import Path

import numpy as np
import pytest

from ingot import dtypes
from ingot.loops import interp, ir, verify, visit
from ingot.loops.canonical import canonical
from ingot.loops.script_parse import parse
from ingot.loops.script_print import show
from tests.refusal import refused

DEPTH = 2_000
HEAD = """\
import ingot
from ingot.script import *

@ingot.kernel
def deep(A: f32[16], B: f32[16]):
    for i in grid(16):
        with block("B", spatial=(i,)) as (vi,):
"""


def kernel(folder: Path, *lines: str):
    file = folder / "deep_kernel.py"
    file.write_text(HEAD + "".join(f"            {line}\n" for line in lines))
    spec = importlib.util.spec_from_file_location("deep_kernel", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.deep


LINES = {
    "one expression": ["B[vi] = A[vi]" + " + 1.0" * DEPTH],
    "a Let in each line": [
        "t0 = A[vi]",
        *(f"t{n + 1} = t{n} + 1.0" for n in range(DEPTH)),
        f"B[vi] = t{DEPTH}",
    ],
}


@pytest.mark.parametrize("form", LINES)
def test_a_users_kernel_of_depth_2_000(tmp_path, form: str):
    deep = kernel(tmp_path, *LINES[form])
    a, b = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    deep(a, b)
    np.testing.assert_array_equal(b, a + DEPTH)
    again = parse(str(deep))
    assert parse(show(again)) == again


def chain(depth: int, buffer: ir.Buffer) -> ir.Expr:
    """x, 1 + x, -(1 + x), … with every other value selected, cast or compared."""
    value: ir.Expr = buffer[0]
    for n in range(depth):
        match n % 4:
            case 0:
                value = 1.0 + value
            case 1:
                value = ir.Unary("neg", value)
            case 2:
                value = ir.Select(ir.Lit(True, dtypes.bool_), value, ir.value_of(0, dtypes.f32))
            case 3:
                value = ir.Cast(value, dtypes.f64 if value.dtype is dtypes.f32 else dtypes.f32)
                value = ir.Cast(value, dtypes.f32)
    return value


def one_store(depth: int) -> ir.Kernel:
    a, b = (ir.Buffer(name, dtypes.f32, (ir.index_of(4),)) for name in "AB")
    return ir.Kernel("deep", (a, b), (), ir.Store(b, (ir.index_of(0),), chain(depth, a)))


def test_nodes_compare_hash_and_copy():
    buffer = ir.Buffer("A", dtypes.f32, (ir.index_of(4),))
    one, other = chain(4_000, buffer), chain(4_000, buffer)
    assert one == other and hash(one) == hash(other) and one is not other
    assert one != chain(4_001, buffer)
    assert one.dtype is dtypes.f32 and one.lanes == 1
    assert copy(one) is one and deepcopy(one) is one
    assert repr(one).count("Unary") == 1_000


def test_values_are_walked_and_rewritten():
    deep = one_store(4_000)
    assert sum(isinstance(e, ir.Unary) for e in visit.all_exprs(deep.body)) == 1_000
    assert visit.map_stmt(deep.body, None, lambda e: e) is deep.body
    moved = visit.replace_buffers(deep.body, {"A": ir.replace(deep.params[0], name="C")})
    assert visit.read(moved) == {"C"}
    assert canonical(deep) == canonical(one_store(4_000))


def test_values_are_verified_printed_and_run(monkeypatch):
    monkeypatch.setattr(verify, "HOOKS", [])  # no round trip: this text is too deep for Python
    deep = one_store(4_000)
    verify.verify(deep)
    assert show(deep).count("select(") == 1_000
    a, b = np.full(4, 0.25, np.float32), np.zeros(4, np.float32)
    interp.run(deep, [a, b])
    assert b[0] == 0.25  # -(1 + x) twice is x


def test_a_text_too_deep_for_pythons_parser_is_refused():
    """The text form is Python; its parser reads 200 nested parentheses at most."""
    with refused("bad-text", hint=False):
        parse(show(one_store(4_000)))
