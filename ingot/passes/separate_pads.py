"""Makes a convolution's zero padding an explicit `pad`, so that the padded copy is elided: the
producer writes into the padded buffer (passes/alias_buffers.py), and only the border is filled.

    conv(x, w, pads)   →   conv(pad(x), w)

x must be produced by a kernel and read only by the convolution. In a padded buffer the rows of the
image are not contiguous, so the producer's register tiles end at each row instead of running across
rows: cost/contraction.py compares that loss with the cost of the copy. A producer with long sums
(large K) loses more than the copy, a 1 × 1 expansion from few channels does not. Called by the
pipeline after choose_layouts; INGOT_OFF=alias_buffers switches it off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType
from ingot.ops.conv import window
from ingot.ops.matmul import accumulator
from ingot.ops.views import is_view
from ingot.passes.edit import Editor, constant_ref, map_subgraphs
from ingot.support import options
from ingot.target import Target

COPY_CYCLES = 0.5  # cycles per element of a copy from L1 or L2 (heuristic)
MIN_ELEMENTS = 1 << 14  # copying fewer takes no longer than filling the border (heuristic)


def separate_pads(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    if not options.current().has("alias_buffers"):
        return graph
    edit = Editor(graph, store)
    producers = {v.name: n for n in graph.nodes for v in n.outputs}
    single_use = {name for name, readers in graph.uses().items() if len(readers) == 1}
    single_use -= {v.name for v in graph.outputs}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: separate_pads(g, store, target))
        source = original.inputs[0] if original.inputs else None
        if defn(node).zero_padded and source is not None and source.name in single_use:
            pads = _static_pads(node)
            if pads is not None and _is_worth(source, producers, target):
                node = _padded(edit, node, pads)
        edit.keep(node)
    return edit.finish()


def _static_pads(node: Node) -> tuple[list[int], list[int]] | None:
    """Zeros before and after each axis; None if there are none or they are not static."""
    source = node.inputs[0]
    assert source is not None
    slide = window(node.op, node.attr_map, len(source.shape) - 2)
    sides = [[arith.as_int(n) for n in side] for side in (slide.begins, slide.ends)]
    if None in (*sides[0], *sides[1]) or not any((*sides[0], *sides[1])):
        return None
    before, after = ([0, 0, *(n or 0 for n in side)] for side in sides)
    return before, after


def _padded(edit: Editor, node: Node, pads: tuple[list[int], list[int]]) -> Node:
    source = node.inputs[0]
    assert source is not None
    before, after = pads
    shape = tuple(n + lo + hi for n, lo, hi in zip(source.shape, before, after))
    type = TensorType(source.dtype, tuple(map(arith.wrap, shape)), source.tensor.layout)
    made = Value(edit.g.fresh(f"{source.name}_padded"), type)
    attrs = make_attrs({"before": tuple(before), "after": tuple(after), "mode": "constant"})
    edit.keep(Node("pad", (source, *node.inputs[3:]), (made,), attrs, node.origin))
    kept = {name: value for name, value in node.attr_map.items() if name != "pads"}
    return replace(node, inputs=(made, *node.inputs[1:3]), attrs=make_attrs(kept))


# --- profitability --------------------------------------------------------------------------------


def _is_worth(value: Value, producers: Mapping[str, Node], target: Target) -> bool:
    producer = producers.get(value.name)
    if producer is None or constant_ref(producer) is not None or is_view(producer):
        return False
    if defn(producer).kind_of(producer) is Kind.OPAQUE or len(producer.outputs) != 1:
        return False
    if (arith.as_int(arith.product(list(value.shape[1:]))) or 0) < MIN_ELEMENTS:
        return False
    anchors = [n for n in _fused(producer, producers) if defn(n).kind is Kind.CONTRACTION]
    return all(_lost_cycles(n, target) < COPY_CYCLES for n in anchors)


def _fused(producer: Node, producers: Mapping[str, Node]) -> Iterator[Node]:
    """The node and the elementwise chain before it: the epilogue that will fuse, and its anchor."""
    shape, todo, seen = producer.outputs[0].tensor.shape, [producer], {producer.outputs[0].name}
    while todo:
        node = todo.pop()
        yield node
        if defn(node).kind_of(node) is not Kind.ELEMENTWISE:
            continue
        for v in node.inputs:
            if v is not None and v.name in producers and v.name not in seen and v.shape == shape:
                seen.add(v.name)
                todo.append(producers[v.name])


def _lost_cycles(conv: Node, target: Target) -> float:
    """Cycles lost per output element if register tiles end at each row of the image."""
    out, weights = conv.outputs[0].tensor, conv.inputs[1]
    if weights is None or not defn(conv).channels_last:
        return COPY_CYCLES  # unknown: assume that it does not pay
    depth = arith.as_int(arith.product(list(weights.shape[1:])))
    row, columns = arith.as_int(out.shape[-1]), arith.as_int(out.shape[1])
    pixels = arith.as_int(arith.product(list(out.shape[2:])))
    if depth is None or row is None or columns is None or pixels is None:
        return COPY_CYCLES
    lanes = target.lanes(accumulator(out.dtype))
    cycles = [
        count
        * cost.gemm_cycles_per_k(rows, columns, lanes, target.vector_registers, target.machine.core)
        for count, rows in ((pixels // row, row), (1, pixels))
    ]
    return (cycles[0] - cycles[1]) * depth / (pixels * columns)
