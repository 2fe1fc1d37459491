"""Functions between two quantised values: one table, exact for every byte in every way to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import ingot
from ingot import dtypes, pipeline, target
from ingot.codegen.llvm import kernel_assembly
from ingot.dtypes import DType, f32, i8, u8
from ingot.graph import interp as graph_interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.passes.lookup_tables import lookup_tables
from ingot.program import interp as program_interp
from tests.native import BACKEND

AVX2, VBMI = target.parse("x86-64-v3"), target.parse("x86-64-v4+avx512vbmi")
Chain = Callable[["Quantiser", Value], Value]


class Quantiser:
    """Adds per-tensor quantisations to a graph."""

    def __init__(self, dtype: DType, shape: tuple[int, ...]):
        self.store, self.dtype = ConstantStore(), dtype
        self.g = GraphBuilder("chain", self.store)
        self.x = self.g.input("x", tensor(dtype, *shape))

    def parameters(self, scale: float) -> list[Value]:
        zero = np.array(7 if self.dtype is u8 else -3, self.dtype.numpy)
        return [self.g.constant(np.array(scale, np.float32)), self.g.constant(zero)]

    def real(self, x: Value, scale: float = 0.04) -> Value:
        return self.g.add("dequantize_linear", [x, *self.parameters(scale)])

    def narrow(self, x: Value, scale: float = 0.03) -> Value:
        return self.g.add("quantize_linear", [x, *self.parameters(scale)], dtype=self.dtype)


def unary(op: str) -> Chain:
    return lambda q, x: q.narrow(q.g.add(op, [q.real(x)]))


def silu(q: Quantiser, x: Value) -> Value:
    gate = q.narrow(q.g.add("sigmoid", [q.real(x)]), 1 / 256)
    return q.narrow(q.g.add("mul", [q.real(x), q.real(gate, 1 / 256)]))


def scaled(q: Quantiser, x: Value) -> Value:
    half = q.g.constant(np.array([0.5], np.float32))
    return q.narrow(q.g.add("exp", [q.g.add("mul", [q.real(x), half])]))


CHAINS = {"sigmoid": unary("sigmoid"), "tanh": unary("tanh"), "gelu": unary("gelu"),
          "log": unary("log"), "silu": silu, "scaled": scaled}  # fmt: skip


def graph_of(chain: Chain, dtype: DType, shape: tuple[int, ...]) -> tuple[Graph, ConstantStore]:
    q = Quantiser(dtype, shape)
    return q.g.finish([chain(q, q.x)]), q.store


def ops_of(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


@pytest.mark.parametrize("dtype", [u8, i8], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_a_table_is_exact_for_every_byte_in_every_way(name, dtype):
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy).reshape(4, 64)
    graph, store = graph_of(CHAINS[name], dtype, every.shape)
    (want,) = graph_interp.run(graph, store, [every])
    session = pipeline.open_session("cpu", store=store, jobs=1)
    program = pipeline.run_stages(graph, session, stop_after="chunk_launches")
    package = pipeline.run_stages(program, session, start_from="codegen")
    table = lookup_tables(graph, store, VBMI)
    assert ops_of(table) == ["byte_lookup"]
    (by_graph,) = graph_interp.run(table, store, [every])
    (by_loops,) = program_interp.run(program, store, {"x": every})
    (compiled,) = ingot.Executable(package).run(None, {"x": every})
    for got in (by_graph, by_loops, compiled):
        assert got.dtype == dtype.numpy
        np.testing.assert_array_equal(got, want)


def cheap(q: Quantiser, x: Value) -> Value:
    return q.narrow(q.g.add("relu", [q.real(x)]))


def per_channel(q: Quantiser, x: Value) -> Value:
    scales = q.g.constant(np.linspace(0.5, 2, 64).astype(np.float32))
    return q.narrow(q.g.add("exp", [q.g.add("mul", [q.real(x), scales])]))


def two_sources(q: Quantiser, x: Value) -> Value:
    other = q.g.input("other", x.type)
    return q.narrow(q.g.add("exp", [q.g.add("add", [q.real(x), q.real(other)])]))


def from_floats(q: Quantiser, x: Value) -> Value:
    other = q.g.input("other", tensor(f32, *(4, 64)))
    return q.narrow(q.g.add("exp", [other]))


@pytest.mark.parametrize("chain", [cheap, per_channel, two_sources, from_floats])
def test_other_chains_stay_as_they_are(chain):
    graph, store = graph_of(chain, u8, (4, 64))
    assert ops_of(lookup_tables(graph, store, VBMI)) == ops_of(graph)


def test_a_composite_of_few_operations_is_a_table_where_that_is_one_instruction():
    graph, store = graph_of(unary("hard_swish"), u8, (4, 64))
    assert ops_of(lookup_tables(graph, store, VBMI)) == ["byte_lookup"]
    assert "hard_swish" in ops_of(lookup_tables(graph, store, AVX2))


def test_a_value_in_between_that_others_read_remains():
    q = Quantiser(u8, (4, 64))
    middle = q.narrow(q.g.add("sigmoid", [q.real(q.x)]))
    graph = q.g.finish([q.narrow(q.g.add("tanh", [q.real(middle)])), middle])
    made = lookup_tables(graph, q.store, VBMI)
    assert ops_of(made) == ["byte_lookup", "byte_lookup"]
    assert all(n.inputs[0] == q.x for n in made.nodes if n.op == "byte_lookup")
    every = np.arange(256, dtype=np.uint8).reshape(4, 64)
    for got, want in zip(*(graph_interp.run(g, q.store, [every]) for g in (made, graph))):
        np.testing.assert_array_equal(got, want)


# --- machine code ---------------------------------------------------------------------------------

WORDS = {
    "x86-64-v4+avx512vbmi": ("vpermt2b", "vpermi2b"),
    "x86-64-v4": ("vpshufb",),
    "x86-64-v3": ("vpshufb",),
    "x86-64-v2": ("pshufb",),
    "aarch64": ("tbl",),
}


def table_graph(dtype: DType, result: DType, count: int) -> tuple[Graph, ConstantStore, np.ndarray]:
    store = ConstantStore()
    g = GraphBuilder("table", store)
    x = g.input("x", tensor(dtype, count))
    table = np.random.default_rng(0).permutation(256).astype(np.uint8).view(result.numpy)
    return g.finish([g.add("byte_lookup", [x, g.constant(table)])]), store, table


@pytest.mark.parametrize("name", WORDS)
def test_a_target_looks_bytes_up_in_its_vectors(name):
    graph, store, table = table_graph(u8, u8, 64 * 700 + 13)
    session = pipeline.open_session(name, store=store, jobs=1)
    program = pipeline.run_stages(graph, session, stop_after="chunk_launches")
    text = "".join(kernel_assembly(k, session.target) for _, k in program.kernels)
    words = Counter(line.split()[0] for line in text.splitlines() if line.startswith("\t"))
    assert any(words[word] for word in WORDS[name]), words
    x = np.random.default_rng(1).integers(0, 256, 64 * 700 + 13).astype(np.uint8)
    if not BACKEND.why_not_here(session.target):
        package = pipeline.run_stages(program, session, start_from="codegen")
        (got,) = ingot.Executable(package, 2).run(None, {"x": x})
        np.testing.assert_array_equal(got, table[x])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_short_rows_and_remainders(count):
    for dtype, result in ((u8, i8), (i8, u8), (i8, dtypes.i8)):
        graph, store, table = table_graph(dtype, result, count)
        session = pipeline.open_session("cpu", store=store, jobs=1)
        exe = ingot.Executable(pipeline.run_stages(graph, session))
        x = np.resize(np.arange(255, -1, -1, dtype=np.uint8), count).view(dtype.numpy)
        np.testing.assert_array_equal(exe.run(None, {"x": x})[0], table[x.view(np.uint8)])
