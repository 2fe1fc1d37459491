"""One operator on its own: as a graph of one node, and as kernels. Used by the operator suite.

`COLUMNS` are the ways to run a sample; each takes the operator and the sample and gives the output
arrays. The reference is what they are compared with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph import interp as graph_interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.opdef import OpDef, Sample
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType, tensor
from ingot.loops import interp as loop_interp
from ingot.loops import ir
from ingot.loops.build import Build

Arrays = list[np.ndarray]


def input_types(sample: Sample) -> list[TensorType | None]:
    return [
        None if x is None else tensor(dtypes.from_numpy(x.dtype), *x.shape) for x in sample.inputs
    ]


def present(sample: Sample) -> Arrays:
    return [np.asarray(x) for x in sample.inputs if x is not None]


def reference(op: OpDef, sample: Sample) -> Arrays:
    """The outputs of the operator's reference; its sub-graphs are interpreted."""
    store = ConstantStore()

    def run(graph: Graph, arrays: Sequence[np.ndarray]) -> Arrays:
        return graph_interp.run(graph, store, arrays)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(x) for x in op.evaluate(sample.inputs, sample.attrs, run)]


def single_op_graph(op: OpDef, sample: Sample, store: ConstantStore) -> Graph:
    """A graph of one node whose inputs are the sample's."""
    g = GraphBuilder(op.name, store)
    for name in sample.attrs.get("symbols", ()):
        g.symbols[name] = Symbol(name, source="node")
    operands: list[Value | None] = []
    for index, type in enumerate(input_types(sample)):
        operands.append(None if type is None else g.input(f"x{index}", type))
    return g.finish(g.add_all(op.name, operands, **sample.attrs))


def decomposed_graph(op: OpDef, sample: Sample, store: ConstantStore) -> Graph:
    """The decomposition of the operator."""
    g = GraphBuilder(op.name, store)
    types = input_types(sample)
    pairs = enumerate(types)
    operands = [None if type is None else g.input(f"x{k}", type) for k, type in pairs]
    return g.finish(op.decompose(g, operands, op.infer(types, sample.attrs), sample.attrs))


def single_op_kernel(op: OpDef, sample: Sample) -> ir.Kernel:
    """The operator's own loops: parameters are the inputs that are present, then the outputs."""
    b, operands = _open(op, sample)
    outputs = op.infer(input_types(sample), sample.attrs)
    results = op.compute(b, operands, outputs, sample.attrs)
    sizes = tuple(ir.Size(name) for name in sample.attrs.get("symbols", ()))
    return b.finish(results, sizes)


def binding_kernel(op: OpDef, sample: Sample) -> ir.Kernel:
    """The loops that compute the sizes the operator binds."""
    b, operands = _open(op, sample)
    return b.finish([op.bind(b, operands, sample.attrs)])


def _open(op: OpDef, sample: Sample) -> tuple[Build, list[ir.Buffer | None]]:
    b = Build(op.name)
    operands: list[ir.Buffer | None] = []
    for index, type in enumerate(input_types(sample)):
        operands.append(None if type is None else b.param(f"x{index}", type.dtype, type.shape))
    return b, operands


# --- the columns --------------------------------------------------------------------------------


def run_graph_interpreter(op: OpDef, sample: Sample) -> Arrays:
    store = ConstantStore()
    return graph_interp.run(single_op_graph(op, sample, store), store, present(sample))


def run_decomposed(op: OpDef, sample: Sample) -> Arrays:
    store = ConstantStore()
    return graph_interp.run(decomposed_graph(op, sample, store), store, present(sample))


def run_loop_interpreter(op: OpDef, sample: Sample) -> Arrays:
    names = sample.attrs.get("symbols", ())
    sizes: dict[str, int] = {}
    if names:
        bound = np.full(len(names), -1, np.int64)
        loop_interp.run(binding_kernel(op, sample), [*present(sample), bound])
        sizes = {name: int(value) for name, value in zip(names, bound)}
    kernel = single_op_kernel(op, sample)
    outputs = []
    for buffer in kernel.params[len(present(sample)) :]:
        shape = tuple(arith.evaluate(d, sizes) for d in buffer.shape)
        outputs.append(np.zeros(shape, buffer.dtype.numpy))
    loop_interp.run(kernel, [*present(sample), *outputs], sizes)
    return outputs


COLUMNS: dict[str, Callable[[OpDef, Sample], Arrays]] = {
    "graph interpreter": run_graph_interpreter,
    "decomposed": run_decomposed,
    "loop interpreter": run_loop_interpreter,
}


def applies(column: str, op: OpDef) -> bool:
    """Whether an operator has what a column runs."""
    needs = {"decomposed": op.has_decompose, "loop interpreter": op.has_compute}
    return needs.get(column, True)
