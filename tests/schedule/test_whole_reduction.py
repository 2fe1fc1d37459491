"""Reductions of a whole tensor to one value: vectors, parallel chunks, the result of numpy."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot import dtypes, pipeline
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType
from ingot.loops import ir, visit

CASES = {
    "one row": ((98304,), ()),
    "a tensor": ((2, 64, 56, 56), ()),
    "short": ((32, 768), ()),
    "no equal chunks": ((1000, 333), ()),
    "tiny": ((3, 5), ()),
    "less than all partial results": ((60,), ()),
    "fewer than the partial results": ((4, 5), ()),
    "as many as the partial results": ((64,), ()),
    "dynamic rows": (("batch", "steps", 768), (3, 50)),
    "rows of one length": ((1, 512, "steps"), (70,)),
    "dynamic everything": (("batch", 3, "steps"), (2, 20001)),
}


def graph_of(op: str, dtype: dtypes.DType, shape: tuple[int | str, ...]) -> Graph:
    g = GraphBuilder("whole", ConstantStore())
    for name in shape:
        if isinstance(name, str):
            g.symbols[name] = Symbol(name, 1)
    dims = tuple(arith.Var(d) if isinstance(d, str) else arith.Const(d) for d in shape)
    x = g.input("x", TensorType(dtype, dims))
    return g.finish([g.add(op, [x], axes=tuple(range(len(shape))), keepdims=False)])


def compiled(graph: Graph) -> tuple[ingot.Executable, list[ir.Kernel]]:
    session = pipeline.open_session("cpu", jobs=1)
    names = [stage.name for stage in session.stages]
    program = pipeline.run_stages(graph, session, stop_after="chunk_launches")
    rest = names[names.index("chunk_launches") + 1]
    package = pipeline.run_stages(program, session, start_from=rest)
    return ingot.Executable(package, 2), [kernel for _, kernel in program.kernels]


@pytest.mark.parametrize("case", CASES)
def test_extrema_are_those_of_numpy(case):
    shape, sizes = CASES[case]
    given = iter(sizes)
    static = tuple(d if isinstance(d, int) else next(given) for d in shape)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(static, np.float32) - 100
    x.flat[-1], x.flat[x.size // 2] = -1, -300  # the last element is the largest
    for op, want in (("reduce_min", np.min), ("reduce_max", np.max)):
        exe, kernels = compiled(graph_of(op, dtypes.f32, shape))
        assert exe.run(None, {"x": x})[0] == want(x)
        odd = x.copy()
        odd.flat[x.size // 3] = np.nan
        assert np.isnan(exe.run(None, {"x": odd})[0])
        assert case == "tiny" or any(e.lanes > 1 for k in kernels for e in visit.all_exprs(k.body))


def test_a_long_reduction_is_parallel_and_bytes_fill_vectors():
    exe, kernels = compiled(graph_of("reduce_max", dtypes.u8, (64, 4096)))
    x = np.random.default_rng(0).integers(0, 200, (64, 4096)).astype(np.uint8)
    x[63, 4095] = 255
    assert exe.run(None, {"x": x})[0] == 255
    loops = [s for k in kernels for s in visit.walk_stmts(k.body) if isinstance(s, ir.For)]
    assert any(s.kind is ir.LoopKind.PARALLEL for s in loops)
    lanes = pipeline.open_session("cpu").target.lanes(dtypes.u8)
    assert lanes in {e.lanes for k in kernels for e in visit.all_exprs(k.body)}


@pytest.mark.parametrize("count", [16, 32, 48, 64, 128])
def test_a_row_of_a_few_vectors(count):
    exe, _ = compiled(graph_of("reduce_sum", dtypes.f32, (2, count // 2)))
    x = np.arange(count, dtype=np.float32).reshape(2, -1)
    assert exe.run(None, {"x": x})[0] == x.sum()


def test_sums_do_not_depend_on_the_number_of_threads():
    exe, _ = compiled(graph_of("reduce_sum", dtypes.f32, (512, 700)))
    x = np.random.default_rng(0).standard_normal((512, 700), np.float32)
    found = set()
    for threads in (1, 2):
        exe.threads = threads
        found.add(float(exe.run(None, {"x": x})[0]))
    assert len(found) == 1
    np.testing.assert_allclose(found.pop(), x.astype(np.float64).sum(), rtol=1e-4, atol=1e-2)
