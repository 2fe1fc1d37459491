"""The text form of programs: every statement round-trips, and errors have a line."""

from __future__ import annotations

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef
from ingot.graph.types import Symbol
from ingot.program import ir
from ingot.program.text import parse, show
from tests.program.programs import BODY, HEAD, hand, planned
from tests.refusal import refused

n, m = arith.Var("n"), arith.Var("m")
EMPTY = ir.Seq(())

STATEMENTS = {
    "launch": ir.Launch("k", ("x", "y"), (n, n * 2 + 1), arith.ceildiv(n, 8)),
    "launch of one iteration": ir.Launch("k", ("x",), (), arith.Const(1)),
    "launch without buffers": ir.Launch("k", (), (n,), n),
    "barrier": ir.Barrier(),
    "copy": ir.Copy("y", "x"),
    "if": ir.If("flag", ir.Copy("y", "x"), ir.Barrier()),
    "if without else": ir.If("flag", ir.Barrier(), EMPTY),
    "if in if": ir.If("flag", ir.If("other", EMPTY, ir.Barrier()), EMPTY),
    "if by size": ir.IfSize(n * 2, 3, ir.Copy("y", "x"), ir.IfSize(n, 1, EMPTY, ir.Barrier())),
    "chunks by size": ir.Launch("k", ("x",), (n,), n, arith.minimum(n // 100, 8)),
    "loop": ir.Loop("i", "trips", "go", ir.Seq((ir.Barrier(), ir.Copy("y", "x")))),
    "loop by count": ir.Loop("i", "trips", None, ir.Barrier()),
    "loop by flag": ir.Loop("i", None, "go", EMPTY),
    "bind": ir.Bind("m", "x", 3),
    "reserve": ir.Reserve("late", arith.ceildiv(m * n, 64) * 64),
    "append": ir.Append("rows", "x"),
    "assign": ir.Assign("rows", "x"),
    "resize": ir.Resize("rows"),
    "swap": ir.Swap("rows", "more"),
    "par": ir.Par((ir.Barrier(), ir.Seq((ir.Copy("y", "x"), ir.Barrier())), EMPTY), (1, 2, 3)),
    "host step": ir.HostStep("print", ("x", None, "y")),
    "host step in two parts": ir.Seq(
        (
            ir.HostStep(
                "split", ("x",), ("y",), (("by", "a'b"), ("n", (1, 2))), "k", "", ((0, 1),)
            ),
            ir.HostStep("split", (), ("y",), (("by", None),), takes="k"),
        )
    ),
    "nested sequence": ir.Seq((ir.Seq((ir.Barrier(), ir.Barrier())), ir.Copy("y", "x"))),
    "sequence of one": ir.Seq((ir.Seq((ir.Barrier(),)), ir.Barrier())),
    "nothing": EMPTY,
}


def around(body: ir.Stmt) -> ir.Program:
    buffers = (
        ir.Buffer("x", dtypes.f32, (n, arith.Const(4)), ir.Storage.INPUT),
        ir.Buffer("w", dtypes.f32, (arith.Const(2),), ir.Storage.CONSTANT,
                  ConstRef("abc", "f32", (2,)), ir.Allocation("constants", arith.Const(64))),
        ir.Buffer("t", dtypes.i64, (), ir.Storage.TEMP, None, ir.Allocation("main", n * 64)),
        ir.Buffer("far", dtypes.bool_, (m,), ir.Storage.TEMP, space="gpu"),
        ir.Buffer("past", dtypes.f16, (m,), ir.Storage.STATE),
        ir.Buffer("rows", dtypes.f32, (m,), ir.Storage.DYNAMIC),
        ir.Buffer("y", dtypes.f32, (n, arith.Const(4)), ir.Storage.OUTPUT),
    )  # fmt: skip
    return ir.Program(
        "all", (Symbol("n", 1, 512, 2, "input"), Symbol("m", 0, None, 1, "node")), buffers, (),
        body, ("x", "past"), ("y", "past"), ("y", "present"), (("past", "present"),),
        (ir.Arena("main", n * 128), ir.Arena("late", m * 64, "gpu")), True,
    )  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_come_back(name: str):
    program = around(STATEMENTS[name])
    text = show(program)
    assert parse(text) == program, text
    assert show(parse(text)) == text
    assert parse(text).name == "all"


def test_every_statement_is_among_them():
    kinds = {type(s).__name__ for s in STATEMENTS.values()}
    assert kinds == {kind.__name__ for kind in ir.Stmt.__subclasses__()}


@pytest.mark.parametrize("name", ["loop", "residual_cnn", "nonzero_gather", "if_of_sizes"])
def test_planned_models_come_back_with_their_kernels(name: str):
    program, _ = planned(name)
    text = show(program)
    assert parse(text) == program
    assert show(parse(text)) == text, "origins included"


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "old, new, facts",
    [
        ("copy('s', 't')", "copy('s', ", ["'('"]),
        ("copy('s', 't')", "leap('s', 't')", ["'leap'"]),
        ("copy('s', 't')", "x = 3", ["'x = 3'"]),
        ("copy('s', 't')", "copy('s')", ["copy('s')"]),
        ("copy('s', 't')", "copy('s', t)", ["t"]),
        ("bind('m', 'i', 0)", "bind('m')", ["bind('m')"]),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x', 't'), 3, 16)", ["tuple"]),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x', 't'))", ["run("]),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x', 't'), (), f())", ["f()"]),
        ("with loop('i', 'n', 'go'):", "with loop('i', 'n'):", ["loop('i', 'n')"]),
        ("with loop('i', 'n', 'go'):", "with ring('i', 'n', 'go'):", ["'ring'"]),
        ("with loop('i', 'n', 'go'):", "with 3:", ["loop(...)", "par()", "with"]),
        ("if flag('go'):", "if go:", ["if go:"]),
        ("if flag('go'):", "if flag():", ["if flag():"]),
    ],
)
def test_errors_in_statements_say_the_line(old: str, new: str, facts: list[str]):
    text = HEAD + BODY
    assert text.count(old) >= 1
    line = text[: text.index(old)].count("\n") + 1
    with refused("bad-text", *facts, where=f"line {line}", hint=False):
        parse(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "old, new, facts",
    [
        ("buffer('t', f32,", "buffer('t', f33,", ["f33"]),
        ("buffer('t', f32, (16,), 'temp'", "buffer('t', f32, (16,), 'attic'", ["'attic'"]),
        ("buffer('t', f32, (16,), 'temp'", "buffer('t', f32, 'temp'", ["buffer("]),
        ("allocation=('main', 0)", "allocation='main'", ["tuple"]),
        ("symbol('m', low=0,", "symbol('m', lowest=0,", ["'lowest'"]),
        ("arena('main', 320, space='host')", "arena('main')", ["arena('main')"]),
        ("inputs=('x', 'n')", "inputs=x", ["x"]),
        ("outputs=('y', 'rows'), ", "", ["outputs"]),
        ("        b[i] = a[i] + a[i]", "        b[i] = = a[i]", []),
        ("        b[i] = a[i] + a[i]", "        b[i] = a[i] + c[i]", ["c"]),
    ],
)
def test_errors_in_declarations_say_the_line(old: str, new: str, facts: list[str]):
    text = HEAD + BODY
    line = text[: text.index(old)].count("\n") + 1
    with refused("bad-text", *facts, where=f"line {line}", hint=False):
        parse(text.replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "barrier()", "buffer('x', f32, (), 'temp')"])
def test_a_text_without_a_program(text: str):
    with refused("bad-text", "program(...)", where="line 1", hint=False):
        parse(text)


def test_the_hand_written_program_comes_back():
    assert parse(show(hand())) == hand()
