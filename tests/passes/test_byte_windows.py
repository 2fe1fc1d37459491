"""Depthwise and grouped convolutions of bytes: exact at the extremes, by the right instruction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import ingot
from ingot import pipeline
from ingot.codegen.llvm import kernel_assembly
from ingot.dtypes import DType, f32, i8, i32, u8
from ingot.graph import interp as graph_interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.passes.byte_windows import byte_windows
from ingot.program import interp as program_interp
from tests.native import BACKEND

VNNI, AVX_VNNI, AVX2 = "x86-64-v4+avx512vnni", "x86-64-v3+avxvnni", "x86-64-v3"


class Case(NamedTuple):
    channels: int = 32
    size: tuple[int, int] = (9, 10)
    kernel: int = 3
    stride: int = 1
    group: int | None = None  # None: depthwise
    x: DType = u8
    w: DType = i8
    bias: int = 3000
    requantise: bool = True


CASES = {
    "3x3": Case(),
    "3x3 stride 2": Case(stride=2, size=(11, 14)),
    "5x5": Case(kernel=5, channels=16),
    "5x5 stride 2": Case(kernel=5, stride=2, channels=48),
    "7x7, odd row": Case(kernel=7, size=(8, 7)),
    "long odd row": Case(size=(3, 37), channels=16),
    "one column": Case(size=(5, 1), channels=16),
    "signed map": Case(x=i8),
    "unsigned weights": Case(w=u8),
    "few channels": Case(channels=12),
    "grouped": Case(group=4, channels=16),
    "i32 is read": Case(requantise=False),
    "large bias": Case(bias=1 << 24),
}
BY_COLUMNS = {"3x3", "3x3 stride 2", "5x5", "5x5 stride 2", "7x7, odd row", "long odd row",
              "one column", "i32 is read", "large bias", "signed map"}  # fmt: skip


def graph_of(case: Case) -> tuple[Graph, ConstantStore, dict[str, np.ndarray]]:
    """All operands at their extremes, so that every sum is as large as it can be somewhere."""
    store, rng = ConstantStore(), np.random.default_rng(0)
    g = GraphBuilder("windows", store)
    group = case.group or case.channels
    shape = (2, case.channels, *case.size)
    x = g.input("x", tensor(case.x, *shape))
    ends = [int(case.w.lowest), int(case.w.highest), 1]
    weights = rng.choice(ends, (case.channels, case.channels // group, case.kernel, case.kernel))
    weights[:2], weights[2:4] = ends[1], ends[0]
    bias = rng.integers(-case.bias, case.bias, case.channels, endpoint=True).astype(np.int32)
    bias[0] = case.bias
    fill = g.constant(np.array(case.x.highest, case.x.numpy))
    operands = [x, g.constant(weights.astype(case.w.numpy)), g.constant(bias), fill]
    pads = (case.kernel // 2,) * 4
    y = g.add("conv", operands, group=group, strides=(case.stride,) * 2, pads=pads)
    if case.requantise:
        scales = g.constant(np.full((case.channels, 1, 1), 2.0**-10, np.float32))
        real = g.add("mul", [g.add("cast", [y], to=f32), scales])
        one = [g.constant(np.float32(0.5)), g.constant(np.array(5, case.x.numpy))]
        y = g.add("quantize_linear", [real, *one], dtype=case.x)
    ends_x = [int(case.x.lowest), int(case.x.highest), 1]
    given = rng.choice(ends_x, shape, p=[0.2, 0.7, 0.1]).astype(case.x.numpy)
    given[1] = case.x.highest
    return g.finish([y]), store, {"x": given}


@pytest.mark.parametrize("target", [VNNI, AVX_VNNI, AVX2])
@pytest.mark.parametrize("name", CASES)
def test_every_way_is_exact(name, target):
    case = CASES[name]
    graph, store, feeds = graph_of(case)
    (want,) = graph_interp.run(graph, store, [feeds["x"]])
    session = pipeline.open_session(target, store=store, jobs=1)
    program = pipeline.run_stages(graph, session, stop_after="chunk_launches")
    if BACKEND.why_not_here(session.target):
        (got,) = program_interp.run(program, store, feeds)
    else:
        package = pipeline.run_stages(program, session, start_from="codegen")
        (got,) = ingot.Executable(package, 2).run(None, feeds)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CASES)
def test_the_rule_that_fits(name):
    graph, store, feeds = graph_of(CASES[name])
    for target in (VNNI, AVX2):
        made = byte_windows(graph, store, BACKEND.target(target))
        ops = [n for n in made.nodes if n.op in ("conv", "window_dot")]
        assert [n.op for n in ops] == ["window_dot" if suits_columns(name, target) else "conv"]
        is_float = ops[0].outputs[0].dtype is f32
        assert is_float == (name != "large bias" and ops[0].op == "conv")
        # the sums are read as floats, without a conversion there and back
        assert not is_float or name == "i32 is read" or "cast" not in {n.op for n in made.nodes}
        (want,) = graph_interp.run(graph, store, [feeds["x"]])
        np.testing.assert_array_equal(graph_interp.run(made, store, [feeds["x"]])[0], want)


def suits_columns(name: str, target: str) -> bool:
    return target == VNNI and name in BY_COLUMNS


@pytest.mark.parametrize(
    "target, word, other", [(VNNI, "vpdpbusd", "vpmulld"), (AVX2, "vfmadd231ps", "vpmulld")]
)
def test_the_inner_loop_is_the_instruction(target, word, other):
    graph, store, _ = graph_of(Case(size=(28, 28)))
    session = pipeline.open_session(target, store=store, jobs=1)
    program = pipeline.run_stages(graph, session, stop_after="chunk_launches")
    texts = [kernel_assembly(k, session.target) for _, k in program.kernels]
    (text,) = [text for text in texts if word in text]  # the others copy and transpose
    assert not any(n in text for n in (other, "vpinsrb", "vpextrb", "vcvttss2si"))


def test_the_interpreter_has_the_meaning_of_the_instruction():
    case = Case(channels=16, size=(3, 4))
    graph, store, feeds = graph_of(case)
    session = pipeline.open_session(VNNI, store=store, jobs=1)
    program = pipeline.run_stages(graph, session, stop_after="chunk_launches")
    (want,) = graph_interp.run(graph, store, [feeds["x"]])
    np.testing.assert_array_equal(program_interp.run(program, store, feeds)[0], want)


def test_sums_that_are_read_as_integers_are_cast_back():
    graph, store, _ = graph_of(Case(requantise=False))
    made = byte_windows(graph, store, BACKEND.target(AVX2))
    assert made.outputs[0].dtype is i32 and made.nodes[-1].op == "cast"
