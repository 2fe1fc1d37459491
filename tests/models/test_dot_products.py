"""Contractions of 8-bit integers by dot-product instructions: bit-equal to numpy on every target.

Targets whose code this machine can run are compiled; the legal kernels of the others, with each
instruction as its meaning, run in the interpreter on smaller sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ingot import dtypes, pipeline
from ingot.arith import expr as arith
from ingot.backends.cpu import BACKEND
from ingot.codegen.llvm import kernel_assembly
from ingot.graph import interp as graph_interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.types import Symbol, tensor
from ingot.program import interp as program_interp
from ingot.program.ir import Program
from ingot.runtime.executable import Executable

VNNI, AVX2, SSE2 = "x86-64-v4+avx512vnni", "x86-64-v3", "x86-64-v2"
COMPILED = (VNNI, AVX2, SSE2, "x86-64-v4", "x86-64-v3+avxvnni")
INTERPRETED = ("x86-64-v3+avxvnni", "aarch64+dotprod", "aarch64+dotprod+i8mm")
SIGNS = [("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8")]


def extremes(rng: np.random.Generator, shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray:
    """Random elements, with a block of lowest and of highest ones: sums of 255 x -128."""
    info = np.iinfo(dtype.numpy)
    array = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype.numpy)
    flat = array.reshape(-1)
    flat[: flat.size // 4] = info.max
    flat[flat.size // 4 : flat.size // 3] = info.min
    return array


@dataclass(frozen=True)
class MatMul:
    rows: int | arith.Var
    k: int
    columns: int

    def build(self, g: GraphBuilder, x_type: dtypes.DType, w_type: dtypes.DType) -> list[Value]:
        if isinstance(self.rows, arith.Var):
            g.symbols[self.rows.name] = Symbol(self.rows.name, 1, likely=1)
        x = g.input("x", tensor(x_type, self.rows, self.k))
        w = extremes(np.random.default_rng(0), (self.k, self.columns), w_type)
        return [g.add("matmul", [x, g.constant(w)])]

    def shape(self, rows: int = 0) -> tuple[int, ...]:
        return (rows if isinstance(self.rows, arith.Var) else self.rows, self.k)


@dataclass(frozen=True)
class Conv:
    channels: int
    outputs: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    attrs: dict[str, Any] = field(default_factory=dict, hash=False)
    fill: int | None = None
    has_bias: bool = True

    def build(self, g: GraphBuilder, x_type: dtypes.DType, w_type: dtypes.DType) -> list[Value]:
        rng = np.random.default_rng(0)
        x = g.input("x", tensor(x_type, *self.shape()))
        w = extremes(rng, (self.outputs, self.channels, *self.kernel), w_type)
        bias = rng.integers(-1000, 1000, self.outputs).astype(np.int32)
        fill = None if self.fill is None else g.constant(np.array(self.fill, x_type.numpy))
        operands = [x, g.constant(w), g.constant(bias) if self.has_bias else None, fill]
        return [g.add("conv", operands, **self.attrs)]

    def shape(self, rows: int = 0) -> tuple[int, ...]:
        return (1, self.channels, *self.space)


Case = MatMul | Conv
PADS = (1, 1, 1, 1)
BIG = (
    MatMul(7, 64, 33), MatMul(50, 256, 96), MatMul(1, 100, 40), MatMul(50, 27, 5), MatMul(3, 5, 2),
    MatMul(9, 4, 16), MatMul(64, 2, 64), MatMul(130, 36, 1),
    Conv(64, 48, (9, 7), (3, 3), {"pads": PADS}, fill=100),
    Conv(3, 33, (17, 15), (7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}, fill=127),
    Conv(3, 16, (8, 9), (3, 3), {"pads": PADS}),
    Conv(20, 24, (8, 8), (1, 1), has_bias=False),
    Conv(16, 20, (9, 9), (1, 1), {"strides": (2, 2)}),
    Conv(6, 16, (9, 8), (3, 2), {"dilations": (2, 3), "pads": (2, 1, 0, 3)}, fill=3),
    Conv(12, 18, (40,), (5,), {"pads": (2, 2), "strides": (3,)}, fill=1, has_bias=False),
    Conv(5, 17, (4, 5, 6), (2, 3, 3), {"pads": (0, 1, 1, 1, 0, 1)}, fill=9),
    Conv(1, 16, (12, 12), (5, 5), {"pads": (2, 2, 2, 2)}, fill=50),
    Conv(2, 16, (9, 9), (3, 3), {"pads": PADS, "strides": (2, 1)}, fill=11),
    Conv(8, 16, (7, 8), (2, 3), {"pads": (0, 1, 1, 0), "strides": (1, 2)}, fill=11),
)  # fmt: skip
SMALL = (
    MatMul(3, 9, 5), MatMul(1, 8, 17),
    Conv(4, 9, (4, 3), (3, 3), {"pads": PADS}, fill=100),
    Conv(3, 5, (5, 4), (2, 2), {"strides": (2, 1), "pads": (1, 0, 0, 1)}),
)  # fmt: skip


def graph_of(case: Case, x: str, w: str) -> Callable[[Any], Graph]:
    def build(store: Any) -> Graph:
        g = GraphBuilder("g", store)
        return g.finish(case.build(g, dtypes.of(x), dtypes.of(w)))

    return build


def feeds(case: Case, x: str, rows: int = 0) -> np.ndarray:
    return extremes(np.random.default_rng(1), case.shape(rows), dtypes.of(x))


def lowered(case: Case, x: str, w: str, on: str, stop: str | None = None) -> tuple[Graph, Any, Any]:
    session = pipeline.open_session(on, jobs=1)
    graph = graph_of(case, x, w)(session.store)
    return graph, session.store, pipeline.run_stages(graph, session, stop_after=stop)


def compiled_cases() -> list[Any]:
    """Every case on every target; most of them take long."""
    made = []
    for i, case in enumerate(BIG):
        for on in COMPILED:
            signs = SIGNS if on in (VNNI, AVX2) else SIGNS[:2]
            quick = {VNNI: i % 2 == 0, AVX2: i % 6 == 3}.get(on, i == 9)
            chosen = SIGNS.index(signs[i % len(signs)])
            for number, pair in enumerate(signs):
                is_quick = quick and number == chosen
                marks = () if is_quick else (pytest.mark.long,)
                made.append(pytest.param(case, on, *pair, marks=marks, id=f"{i}-{on}-{pair}"))
    return made


@pytest.mark.parametrize("case, on, x, w", compiled_cases())
def test_compiled_code_is_exact(case, on, x, w):
    if not can(on):
        pytest.skip("this machine lacks it")
    graph, store, package = lowered(case, x, w, on)
    given = feeds(case, x)
    (want,) = graph_interp.run(graph, store, [given])
    (got,) = Executable(package, 1, {}, None).run(None, {"x": given})
    np.testing.assert_array_equal(got, want)


def interpreted_cases() -> list[Any]:
    made = []
    for i, case in enumerate(SMALL):
        for n, on in enumerate(INTERPRETED):
            for number, pair in enumerate(SIGNS):
                is_quick = number == (n + i // 2) % len(SIGNS) and i % 2 == 0
                marks = () if is_quick else (pytest.mark.long,)
                made.append(pytest.param(case, on, *pair, marks=marks, id=f"{i}-{on}-{pair}"))
    return made


@pytest.mark.parametrize("case, on, x, w", interpreted_cases())
def test_legal_kernels_are_exact(case, on, x, w):
    graph, store, program = lowered(case, x, w, on, "barriers")
    assert "dot=" in shown_plans(program)
    given = feeds(case, x)
    (want,) = graph_interp.run(graph, store, [given])
    (got,) = program_interp.run(program, store, {"x": given})
    np.testing.assert_array_equal(got, want)


def shown_plans(program: Program) -> str:
    return " ".join(str(plan) for _, kernel in program.kernels for _, plan in kernel.plans)


@pytest.mark.parametrize(
    "on, word",
    [(VNNI, "vpdpbusd"), (AVX2, "vpmaddwd"), (SSE2, "pmaddwd"), ("x86-64-v3+avxvnni", "vpdpbusd"),
     ("aarch64+dotprod", "sdot"), ("aarch64+i8mm", "usdot")],
)  # fmt: skip
@pytest.mark.parametrize("case", [BIG[1], BIG[8]], ids=["matmul", "conv"])
def test_the_inner_loop_is_the_instruction(case, on, word):
    _, _, program = lowered(case, "u8", "i8", on, "legalize")
    texts = [kernel_assembly(k, BACKEND.target(on)) for _, k in program.kernels]
    (text,) = [text for text in texts if word in text]
    lines = [line.replace("{vex}", "").split() for line in text.splitlines()]
    last = max(i for i, line in enumerate(lines) if line[:1] == [word])
    start = max(i for i, line in enumerate(lines[:last]) if line and line[0].endswith(":"))
    inner = [line for line in lines[start + 1 : last] if line]
    assert not any("mul" in line[0] and "madd" not in line[0] for line in inner)
    assert not any("pmovzx" in line[0] or "pmovsx" in line[0] for line in inner)  # widened nothing


def test_a_dynamic_number_of_rows_has_a_plan_for_one():
    case = MatMul(arith.Var("n"), 100, 48)
    graph, store, package = lowered(case, "i8", "i8", VNNI if can(VNNI) else AVX2)
    exe = Executable(package, 1, {}, None)
    for rows in (1, 2, 17):
        given = feeds(case, "i8", rows)
        (want,) = graph_interp.run(graph, store, [given])
        np.testing.assert_array_equal(exe.run(None, {"x": given})[0], want)
    _, _, program = lowered(case, "u8", "i8", VNNI, "plan_kernels")
    plans = shown_plans(program)
    assert plans.count("dot=4") == 2 and "when=rows<=1" in plans


def can(on: str) -> bool:
    return not BACKEND.why_not_here(BACKEND.target(on))


def test_the_taps_of_a_row_are_one_axis_where_channels_are_few():
    """Three channels become four, and the 28 terms of seven taps one loop of seven groups."""
    _, _, made = lowered(BIG[9], "u8", "i8", VNNI, "fit_dot_operands")
    (conv,) = [n for n in made.nodes if n.op == "conv"]
    x, w = (v.tensor.static_shape for v in conv.inputs[:2] if v is not None)
    assert (w, x) == ((33, 1, 7, 28), (1, 1, 23, 21 * 4))
    assert conv.attr("strides") == (2, 8)


def test_a_change_of_sign_is_made_by_the_quantisation():
    def graph(store: Any) -> Graph:
        g = GraphBuilder("g", store)
        x = g.input("x", tensor(dtypes.f32, 5, 8))
        scale, zero = g.constant(np.float32(0.5)), g.constant(np.int8(-3))
        q = g.add("quantize_linear", [x, scale, zero], dtype=dtypes.i8)
        turned = g.add("transpose", [q], perm=(1, 0))
        w = g.constant(extremes(np.random.default_rng(0), (5, 16), dtypes.i8))
        real = g.add("dequantize_linear", [q, scale, zero])
        return g.finish([g.add("matmul", [turned, w]), real])

    session = pipeline.open_session(VNNI, jobs=1)
    before = graph(session.store)
    made = pipeline.run_stages(before, session, stop_after="fit_dot_operands")
    operators = [n.op for n in made.nodes if n.op != "constant"]
    assert "xor" not in operators and "bitcast" not in operators
    (quantised,) = [n for n in made.nodes if n.op == "quantize_linear"]
    assert quantised.attr("dtype") is dtypes.u8
    x = np.random.default_rng(1).normal(0, 40, (5, 8)).astype(np.float32)
    for got, want in zip(
        graph_interp.run(made, session.store, [x]), graph_interp.run(before, session.store, [x])
    ):
        np.testing.assert_array_equal(got, want)


def test_forms_around_contractions_of_signed_bytes():
    """A padding and a bias of run time, weights of u8, moved maps, readers of the old values."""

    def graph(store: Any) -> Graph:
        rng, g = np.random.default_rng(0), GraphBuilder("g", store)
        r, fill = g.input("r", tensor(dtypes.f32, 1, 6, 9, 9)), g.input("f", tensor(dtypes.i8))
        bias = g.input("b", tensor(dtypes.i32, 16))
        scale, zero = g.constant(np.array(0.5, np.float32)), g.constant(np.array(-5, np.int8))
        signed, unsigned = (
            g.constant(extremes(rng, (16, 6, 3, 3), t)) for t in (dtypes.i8, dtypes.u8)
        )
        q = g.add("quantize_linear", [r, scale, zero], dtype=dtypes.i8)
        a = g.add("conv", [q, signed, bias, fill], pads=PADS)
        b = g.add("conv", [q, unsigned, None, fill], pads=(1, 0, 1, 0), strides=(2, 2))
        pooled = g.add("max_pool", [q], kernel=(2, 2), strides=(2, 2))
        both = g.add("concat", [pooled, pooled], axis=1)
        wide = g.add("pad", [both], before=(0, 0, 1, 1), after=(0, 0, 0, 0), mode="constant")
        c = g.add("conv", [wide, g.constant(extremes(rng, (8, 12, 1, 1), dtypes.i8))])
        real = g.add("dequantize_linear", [both, scale, zero])
        return g.finish([a, b, c, q, real, wide])

    session = pipeline.open_session(VNNI, jobs=1)
    before = graph(session.store)
    made = pipeline.run_stages(before, session, stop_after="fit_dot_operands")
    convs = [n for n in made.nodes if n.op == "conv" and n.outputs[0].shape[1] != 1]
    assert [n.inputs[0].dtype for n in convs] == [dtypes.u8] * 3  # others: sums of x
    rng = np.random.default_rng(1)
    given = [rng.normal(0, 30, (1, 6, 9, 9)).astype(np.float32), np.array(-7, np.int8)]
    given.append(rng.integers(-(2**31), 2**31 - 1, 16).astype(np.int32))
    for got, want in zip(*(graph_interp.run(x, session.store, given) for x in (made, before))):
        np.testing.assert_array_equal(got, want)


def test_rows_of_a_dynamic_map_that_a_stride_skips_are_in_bounds():
    """(h + 1) // 2 rows 2 · i of h: the instruction reads what the plain nest reads."""

    def graph(store: Any) -> Graph:
        g = GraphBuilder("g", store)
        g.symbols["h"] = Symbol("h", 1)
        x = g.input("x", tensor(dtypes.u8, 1, 16, arith.Var("h"), 6))
        w = g.constant(extremes(np.random.default_rng(0), (16, 16, 1, 1), dtypes.i8))
        return g.finish([g.add("conv", [x, w], strides=(2, 2))])

    session = pipeline.open_session(VNNI, jobs=1)
    program = pipeline.run_stages(graph(session.store), session, stop_after="schedule")
    assert "dot=4" in shown_plans(program)


def test_without_an_instruction_the_contraction_stays():
    graph, _, made = lowered(MatMul(7, 64, 33), "u8", "i8", "aarch64", "fit_dot_operands")
    assert [n.op for n in made.nodes] == [n.op for n in graph.nodes]
