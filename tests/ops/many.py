"""Many samples of one operator as one graph, so that one build compiles them all.

In: an operator and samples. Out: a `Batch`: graph, feeds, and the expected arrays; the
name of an output says which sample it belongs to. With `symbolic`, every size but 1 is a symbol
(equal sizes of a sample share one, so operands still fit), since schedules differ where sizes are
unknown; `emptied` gives the feeds of a sample at size 0 of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.opdef import OpDef, Sample
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType
from tests.ops.single import reference


@dataclass
class Batch:
    graph: Graph
    store: ConstantStore
    feeds: dict[str, np.ndarray]
    wants: dict[str, tuple[Sample, np.ndarray]] = field(default_factory=dict)


# Sizes that stay numbers: operand → axes.
ALL = (0, 1, 2, 3, 4)
CONV = {0: (1,), 1: ALL, 2: ALL}
KNOWN: dict[str, Mapping[int, Sequence[int]]] = {
    "bind": {0: ALL},
    "conv": CONV,
    "crop_resize": {1: (-1,)},
    "deform_columns": {0: (1,), 1: (1, 2), 2: (1, 2)},
    "conv_transpose": CONV,
    "window_dot": {0: (1, 2, 3), 1: ALL, 2: ALL},
    "winograd_conv": {1: (2,)},
    "byte_lookup": {1: (0,)},
    "interleave": dict.fromkeys(range(9), ALL),
    "dft": {0: (-1,)},
    "gather_nd": {1: (-1,)},
    "grid_sample": {1: (-1,)},
    "nms_select": {0: (-1,)},
    "lookup": {1: (-1,), 2: (-1,)},
    "dense_lookup": {1: (-1,)},
    "one_hot": {1: (-1,)},
    "random_bits": {0: ALL},
    "max_roi_pool": {1: (-1,)},
    "pairwise_coupling": {0: (1,)},
    "rnn": {3: ALL},
    "resize": {2: ALL},
    "roi_align": {1: (-1,)},
    "scatter_nd": {1: (-1,)},
    "tree_ensemble": dict.fromkeys(range(1, 6), ALL),
}
STEPS_AND_BATCH = (3, 4)
ONLY = {
    "rnn": STEPS_AND_BATCH,
    "gru": STEPS_AND_BATCH,
    "lstm": STEPS_AND_BATCH,
}  # dynamic axes
SIZES = {"expand": "shape"}  # attributes that are sizes of operands, and so symbols where those are


def may_be_symbolic(op: OpDef, sample: Sample) -> bool:
    """Not if attributes fix the sizes: sub-graphs, and blocks of quantisation."""
    return op.name not in ("if", "loop", "fused") and "block" not in sample.attrs


def batch(op: OpDef, samples: Sequence[Sample], symbolic: bool = False) -> Batch:
    store = ConstantStore()
    g = GraphBuilder(op.name, store)
    feeds: dict[str, np.ndarray] = {}
    outputs: list[Value] = []
    made: list[list[Value]] = []
    for number, sample in enumerate(samples):
        operands: list[Value | None] = []
        for index, x in enumerate(sample.inputs):
            if x is None:
                operands.append(None)
                continue
            array = np.asarray(x)
            is_symbolic = symbolic and may_be_symbolic(op, sample)
            type = _type(g, op, number, index, array, is_symbolic)
            operands.append(g.input(f"s{number}_x{index}", type))
            feeds[f"s{number}_x{index}"] = array
        attrs = _attrs(g, op, number, sample, symbolic)
        results = g.add_all(op.name, operands, [f"s{number}_y{k}" for k in range(9)], **attrs)
        made.append(results)
        outputs += results
    result = Batch(g.finish(outputs), store, feeds)
    for sample, values in zip(samples, made):
        if not sample.fails:
            expected = reference(op, sample)
            result.wants |= {v.name: (sample, a) for v, a in zip(values, expected, strict=True)}
    return result


def emptied(case: Batch, number: int, symbol: str) -> dict[str, np.ndarray]:
    """The feeds with every axis of that symbol empty; only sample `number` has such."""
    feeds = dict(case.feeds)
    for value in case.graph.inputs:
        if value.name.startswith(f"s{number}_"):
            kept = tuple(slice(0 if d == arith.Var(symbol) else None) for d in value.tensor.shape)
            feeds[value.name] = feeds[value.name][kept]
    return feeds


def sample_at(case: Batch, op: OpDef, number: int, sample: Sample, symbol: str) -> Sample:
    """The sample at size 0 of that symbol."""
    feeds = emptied(case, number, symbol)
    inputs = [feeds.get(f"s{number}_x{index}") for index in range(len(sample.inputs))]
    attrs = dict(sample.attrs)
    if op.name in SIZES:
        size = int(symbol.rpartition("_d")[2])
        present = {n for x in sample.inputs if x is not None for n in np.asarray(x).shape}
        sizes = attrs[SIZES[op.name]]
        attrs[SIZES[op.name]] = tuple(0 if n == size and n in present else n for n in sizes)
    return replace(sample, inputs=tuple(inputs), attrs=attrs)


def _type(
    g: GraphBuilder, op: OpDef, number: int, index: int, array: np.ndarray, symbolic: bool
) -> TensorType:
    axes = KNOWN.get(op.name, {}).get(index, ())
    known = {axis % array.ndim for axis in axes if -array.ndim <= axis < array.ndim}
    shape = [
        _symbol(g, op, number, size) if symbolic and axis not in known else arith.Const(size)
        for axis, size in enumerate(array.shape)
    ]
    return TensorType(dtypes.from_numpy(array.dtype), tuple(shape))


def _symbol(g: GraphBuilder, op: OpDef, number: int, size: int) -> arith.Expr:
    if size == 1 or size not in ONLY.get(op.name, (size,)):
        return arith.Const(size)
    name = f"s{number}_d{size}"
    g.symbols[name] = Symbol(name, source="input")
    return arith.Var(name)


def _attrs(g: GraphBuilder, op: OpDef, number: int, sample: Sample, symbolic: bool) -> dict:
    """The symbols that a node binds get unique names in the combined graph."""
    own = dict(sample.attrs)
    if "symbols" in own:
        most = np.asarray(sample.inputs[0]).size if op.name == "nonzero" else None
        names = [g.symbol(f"s{number}_{name}", high=most) for name in own["symbols"]]
        own["symbols"] = tuple(names)
    if symbolic and op.name in SIZES:
        present = {size for x in sample.inputs if x is not None for size in x.shape}
        sizes = own[SIZES[op.name]]
        own[SIZES[op.name]] = tuple(_symbol(g, op, number, n) if n in present else n for n in sizes)
    return own
