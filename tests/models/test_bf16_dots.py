"""Contractions of bf16 by dot products, where the option `bf16_dots` asks for them.

Small integers are bf16 numbers whose sums are exact in any order, so outputs are bit-equal; sums of
other numbers are compared within the rounding of f32. Code of targets that this machine lacks runs
in the interpreter, with each instruction as its meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ingot import dtypes, pipeline
from ingot.arith import expr as arith
from ingot.backends.cpu import BACKEND
from ingot.codegen.llvm import kernel_assembly
from ingot.graph import interp as graph_interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.types import Symbol, tensor
from ingot.program import interp as program_interp
from ingot.runtime.executable import Executable

AVX512, NEON = "x86-64-v4+avx512bf16", "aarch64+bf16"
PADS = (1, 1, 1, 1)
MATMULS = [(7, 64, 33), (1, 100, 40), (50, 258, 96), (3, 5, 2)]  # rows, K, columns
CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 8, 9, 7), (24, 8, 3, 3), {"pads": PADS}),
    ((2, 20, 8, 8), (16, 20, 1, 1), {"strides": (2, 2)}),
    ((1, 3, 9, 9), (16, 3, 3, 3), {"pads": PADS}),  # an odd number of channels: f32
]


def small_integers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(ml_dtypes.bfloat16)


def normal(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)


def lowered(build, on: str, stop: str | None = None, asked: bool = True) -> tuple[Any, Any, Any]:
    session = pipeline.open_session(on, jobs=1)
    session.options = replace(session.options, bf16_dots=asked)
    g = GraphBuilder("g", session.store)
    graph = g.finish([build(g)])
    return graph, session.store, pipeline.run_stages(graph, session, stop_after=stop)


def matmul(rows, depth: int, columns: int, make=small_integers):
    def build(g):
        size = rows
        if isinstance(rows, str):
            g.symbols[rows] = Symbol(rows, 1, None, likely=1)
            size = arith.Var(rows)
        x = g.input("x", tensor(dtypes.bf16, size, depth))
        return g.add("relu", [g.add("matmul", [x, g.constant(make(0, (depth, columns)))])])

    return build


def conv(shape, weights, attrs):
    def build(g):
        x = g.input("x", tensor(dtypes.bf16, *shape))
        bias = g.constant(small_integers(2, weights[:1]))
        return g.add("conv", [x, g.constant(small_integers(0, weights)), bias], **attrs)

    return build


CASES = [(matmul(*sizes), (sizes[0], sizes[1])) for sizes in MATMULS]
CASES += [(conv(*case), case[0]) for case in CONVS]


def can(on: str) -> bool:
    return not BACKEND.why_not_here(BACKEND.target(on))


@pytest.mark.parametrize("build, shape", CASES)
def test_compiled_code_is_exact_on_integers(build, shape):
    if not can(AVX512):
        pytest.skip("this machine lacks it")
    graph, store, package = lowered(build, AVX512)
    given = small_integers(1, shape)
    (want,) = graph_interp.run(graph, store, [given])
    (got,) = Executable(package, 1, {}, None).run(None, {"x": given})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("on", [AVX512, NEON])
@pytest.mark.parametrize("build, shape", [CASES[1], CASES[4]])
def test_legal_kernels_are_exact_on_integers(build, shape, on):
    graph, store, program = lowered(build, on, "barriers")
    assert "dot=2" in plans_of(program)
    given = small_integers(1, shape)
    (want,) = graph_interp.run(graph, store, [given])
    (got,) = program_interp.run(program, store, {"x": given})
    np.testing.assert_array_equal(got, want)


def test_a_dynamic_number_of_rows():
    graph, store, program = lowered(matmul("n", 100, 48), AVX512, "plan_kernels")
    plans = plans_of(program)
    assert plans.count("dot=2") == 2 and "when=rows<=1" in plans
    if not can(AVX512):
        return
    exe = Executable(lowered(matmul("n", 100, 48), AVX512)[2], 1, {}, None)
    for rows in (1, 2, 17):
        given = small_integers(rows, (rows, 100))
        (want,) = graph_interp.run(graph, store, [given])
        np.testing.assert_array_equal(exe.run(None, {"x": given})[0], want)


def test_sums_round_as_f32():
    if not can(AVX512):
        pytest.skip("this machine lacks it")
    _, _, package = lowered(matmul(20, 512, 64, normal), AVX512)
    x, w = normal(1, (20, 512)), normal(0, (512, 64)).astype(np.float64)
    (got,) = Executable(package, 1, {}, None).run(None, {"x": x})
    exact = np.maximum(x.astype(np.float64) @ w, 0)
    # one rounding to bf16, and sums of 512 terms in f32
    bound = 2.0**-8 * exact + 512 * 2.0**-24 * (np.abs(x.astype(np.float64)) @ np.abs(w))
    assert (np.abs(got.astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize("on, word", [(AVX512, "vdpbf16ps"), (NEON, "bfdot")])
def test_only_where_it_is_asked_for(on, word):
    for asked in (True, False):
        _, _, program = lowered(matmul(7, 64, 33), on, "legalize", asked)
        texts = [kernel_assembly(kernel, BACKEND.target(on)) for _, kernel in program.kernels]
        assert any(word in text for text in texts) is asked


def plans_of(program) -> str:
    return " ".join(str(plan) for _, kernel in program.kernels for _, plan in kernel.plans)
