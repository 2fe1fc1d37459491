"""States that grow: the concat onto a cache is a write of rows in place, and reads are views."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.graph import interp as graph_interp
from ingot.graph.ir import Graph, Growth
from ingot.graph.text import show
from ingot.graph.verify import verify
from ingot.loops import visit
from ingot.passes.attach_state import attach_state
from ingot.program import interp as program_interp
from ingot.program import ir
from ingot.program.tables import walk
from ingot.support.options import Options
from tests.graph.graphs import graph
from tests.models.caches import HEADS, WIDTH, Cache
from tests.models.peers import assert_agree, onnxruntime_answers
from tests.refusal import refused

CACHE, CAPACITY = Cache(), 64
PAIR = {"past": "present"}

STEP = """
graph g(%x: f32[B, S, 4], %past: f32[B, P, 4]) {
  symbol B: 1..
  symbol S: 1..
  symbol P: 0..
  %new: f32[B, S, 4] = neg(%x)
  %present: f32[B, P + S, 4] = concat(%past, %new) {axis=1}
  %y: f32[B, P + S, 4] = exp(%present)
  return %y, %present
}
"""


def grown(text: str = STEP, pairs: dict[str, str] = PAIR, capacity=8) -> Graph:
    made = attach_state(graph(text), pairs, capacity)
    verify(made)
    return made


def test_a_concat_becomes_a_write_of_rows():
    lines = [line.strip() for line in show(grown()).splitlines()]
    assert lines[0] == "graph g(%x: f32[B, S, 4], %past: f32[B, 8, 4]) {"
    assert "symbol state_length: 1..8 from state" in lines[1]
    assert "symbol S: 1..8" in lines
    attrs = "{at=state_length - S, axis=1, fits=true}"
    assert f"%present: f32[B, 8, 4] = write_rows(%past, %new) {attrs}" in lines
    assert "%y: f32[B, state_length, 4] = exp(%present_rows)" in lines
    assert "grow [%past[1]] to state_length by S" in lines
    assert not any("P" in line for line in lines), "the old symbol is gone"


def test_several_new_rows_and_identities():
    """More operands of the concat are new rows too; an identity before the output is dropped."""
    text = STEP.replace("%present: f32", "%cat: f32").replace("P + S,", "P + S + S,")
    text = text.replace("concat(%past, %new)", "concat(%past, %new, %x)")
    text = text.replace("exp(%present)", "exp(%cat)")
    text = text.replace("return", "%present: f32[B, P + S + S, 4] = identity(%cat)\n  return")
    made = grown(text)
    assert made.growth == Growth("state_length", arith.Var("S") * 2, (("past", 1),))
    past, x = np.zeros((2, 8, 4), np.float32), np.ones((2, 3, 4), np.float32)
    y, present = graph_interp.run(made, api.make_session().store, [x, past], length=1)
    assert y.shape == (2, 7, 4) and np.array_equal(present[:, 1:4], -x)
    assert np.array_equal(present[:, 4:7], x) and not present[:, 7:].any()


def test_a_node_that_reads_the_old_rows_gets_a_copy():
    text = STEP.replace("exp(%present)", "exp(%present)\n  %z: f32[B, P, 4] = exp(%past)")
    made = grown(text.replace("return %y", "return %y, %z"))
    past, x = np.full((1, 8, 4), 2, np.float32), np.zeros((1, 3, 4), np.float32)
    _, z, _ = graph_interp.run(made, api.make_session().store, [x, past], length=2)
    assert z.shape == (1, 2, 4) and np.allclose(z, np.exp(2))


REFUSED = {
    "transposed": ("concat(%past, %new) {axis=1}", "transpose(%cat) {perm=[0, 1, 2]}", "transpose"),
    "prepended": ("concat(%past, %new)", "concat(%new, %past)", "first"),
    "of another": ("concat(%past, %new)", "concat(%x, %new)", "depend"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_successors_are_refused(case: str):
    old, new, fact = REFUSED[case]
    text = STEP.replace(old, new)
    if case == "transposed":
        cat = "%cat: f32[B, P + S, 4] = concat(%past, %new) {axis=1}"
        text = text.replace("  %present", f"  {cat}\n  %present", 1)
    if case == "of another":
        text = text.replace("P + S", "S + S")
    with refused("bad-option", "past", fact, where="present", hint="concat"):
        attach_state(graph(text), PAIR, 8)


def test_options_are_checked():
    g = graph(STEP)
    with refused("bad-option", "f32[B, P, 4]", hint="capacity"):
        attach_state(g, PAIR)
    with refused("bad-option", "x", hint="past"):
        attach_state(g, PAIR, {"x": 8})
    with refused("bad-option", "past"):
        attach_state(g, PAIR, {})
    with refused("bad-option", "past", 1, hint="P"):
        attach_state(graph(STEP.replace("symbol P: 0..", "symbol P: 1..")), PAIR, 8)
    with refused("bad-option", "capacity", hint=True):
        attach_state(g, {}, 8)
    for wrong in (0, -1, True, "8", 2.5, {"past": 0}):
        with refused("bad-option", "capacity" if not isinstance(wrong, dict) else "past"):
            api.make_session(state=PAIR, capacity=wrong)  # type: ignore[arg-type]
    with refused("bad-option", "capacity", hint="state"):
        api.make_session(capacity=8)


def test_states_have_one_length():
    """Two caches with symbols of their own share the length; other steps are refused."""
    text = """
graph g(%x: f32[S, 4], %a: f32[P, 4], %b: f32[4, Q]) {
  symbol S: 1..
  symbol P: 0..
  symbol Q: 0..
  %t: f32[4, S] = transpose(%x) {perm=[1, 0]}
  %c: f32[P + S, 4] = concat(%a, %x) {axis=0}
  %d: f32[4, Q + S] = concat(%b, %t) {axis=1}
  return %c, %d
}
"""
    pairs = {"a": "c", "b": "d"}
    made = grown(text, pairs, 8)
    assert [s.name for s in made.symbols] == ["state_length", "S"]
    assert made.growth is not None and made.growth.axes == (("a", 0), ("b", 1))
    twice = text.replace("concat(%b, %t)", "concat(%b, %t, %t)").replace("Q + S", "Q + S + S")
    with refused("bad-option", "d", "c", "S"):
        attach_state(graph(twice), pairs, 8)


def test_growth_is_verified():
    made = grown()
    assert made.growth is not None
    bad = (
        replace(made, growth=None),
        replace(made, growth=replace(made.growth, rows="S")),
        replace(made, growth=replace(made.growth, axes=(("x", 1),))),
        replace(made, growth=replace(made.growth, axes=(("past", 3),))),
        replace(made, growth=replace(made.growth, axes=(("past", 2),))),
        replace(made, growth=replace(made.growth, added=arith.Var("state_length"))),
    )
    for wrong in bad:
        with refused("bad-graph", hint=False):
            verify(wrong)


# --- the whole pipeline ---------------------------------------------------------------------------


def stage(name: str, off: str = "", **shapes: int):
    session = api.make_session(shapes=shapes, state=CACHE.state, capacity=CAPACITY)
    session.options = Options.of({"off": off})
    return pipeline.run_stages(CACHE.proto(), session, stop_after=name), session.store


STAGES = ["attach_state", "sink_reshapes", "alias_buffers", "lower", "chunk_launches"]


@pytest.mark.parametrize("name", STAGES)
def test_every_level_is_interpreted_alike(name: str):
    """The graph and the program of a stage, at two lengths: the outputs of ONNX Runtime, and a
    cache in which only the new rows differ."""
    made, store = stage(name)
    for length, new in ((0, 3), (5, 1)):
        feeds, r = CACHE.call(length, 2, new, length), np.random.default_rng(1)
        past = {n: r.standard_normal((2, HEADS, CAPACITY, WIDTH), np.float32) for n in CACHE.state}
        rows = {n: a[:, :, :length] for n, a in past.items()}
        want = onnxruntime_answers(CACHE.proto(), {**feeds, **rows})
        given = {**feeds, **past}
        if isinstance(made, Graph):
            arrays = [given[v.name] for v in made.inputs]
            got = graph_interp.run(made, store, arrays, length)
        else:
            got = program_interp.run(made, store, given, length)
        assert_agree(got[0], want[0])
        for cache, before, after in zip(got[1:], past.values(), want[1:]):
            assert_agree(cache[:, :, : length + new], after)
            assert np.array_equal(cache[:, :, length + new :], before[:, :, length + new :])


def largest_temporary(program: ir.Program) -> int:
    """Elements of the largest buffer in an arena, packed panels included, with a full cache."""
    sizes = {s.name: s.high or 1 for s in program.symbols}
    temps = [b for b in program.buffers if b.storage is ir.Storage.TEMP]
    return max(prod(arith.evaluate(d, sizes) for d in b.shape) for b in temps)


def test_a_step_copies_no_cache():
    whole = HEADS * WIDTH * CAPACITY
    program, _ = stage("chunk_launches", seq=1, batch=1)
    assert largest_temporary(program) < whole / 4
    assert not any(isinstance(s, ir.Copy) for s in walk(program.body))
    copied, _ = stage("chunk_launches", off="alias_buffers", seq=1, batch=1)
    assert largest_temporary(copied) >= whole, "this is how a copy would show"


def test_only_the_new_rows_are_written():
    program, _ = stage("lower", seq=1, batch=1)
    states = {b.name for b in program.buffers if b.storage is ir.Storage.STATE}
    assert states == CACHE.state.keys()
    writers = [
        s
        for s in walk(program.body)
        if isinstance(s, ir.Launch)
        for name, param in zip(s.args, program.kernel_map[s.kernel].params)
        if name in states and param.name in visit.written(program.kernel_map[s.kernel].body)
    ]
    assert len(writers) == len(states)
    for launch in writers:
        (block,) = visit.blocks(program.kernel_map[launch.kernel].body)
        assert prod(arith.evaluate(a.extent, {}) for a in block.axes) == HEADS * WIDTH


@pytest.mark.parametrize("sizes", [{}, {"seq": 1}])
def test_no_kernel_that_reads_the_cache_is_scalar(sizes: dict[str, int]):
    package, _ = stage("codegen", **sizes)
    rows = [row for row in package.report if f" {CAPACITY} x {WIDTH}" in row.layouts]
    assert len(rows) >= 4 and all(row.lanes > 1 for row in rows)


def test_unsqueezed_rows_are_read_in_place():
    """Grouped queries: an axis is inserted, along which the heads are then repeated."""
    shape, shapes = "f32[B, 1, P + S, 4]", "{shape=[B, 1, P + S, 4]}"
    text = STEP.replace("%y: f32[B, P + S, 4] = exp(%present)", f"%y: {shape} = exp(%u)")
    text = text.replace("  %y:", f"  %u: {shape} = reshape(%present) {shapes}\n  %y:")
    session = api.make_session(state=PAIR, capacity=8)
    program = pipeline.run_stages(graph(text), session, stop_after="lower")
    found = [s.kernel for s in walk(program.body) if isinstance(s, ir.Launch)]
    assert found == ["neg", "write_rows", "slice_exp"], "no kernel only copies rows"
    past, x = np.ones((2, 8, 4), np.float32), np.zeros((2, 3, 4), np.float32)
    y, present = program_interp.run(program, session.store, {"x": x, "past": past}, length=2)
    assert np.allclose(y[:, 0], np.exp(present[:, :5])) and not present[:, 2:5].any()
