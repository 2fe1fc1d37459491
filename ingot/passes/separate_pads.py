"""Graph → the same graph where a convolution's zeros are a `pad` of their own, if its input can be
made inside the padded array (lower/parts.py): no padded copy is left then, only the border.

    conv(x, w, pads)   →   conv(pad(x), w)

x must be made by a kernel and read by the convolution alone. Inside a padded array pixels of
different rows are no longer neighbours, so tiles that went over all of them as one axis end with
each row of pixels: tiles.py says what that costs beside the copy. Long sums do not pay for it, an
expansion from few channels does. Called by the pipeline after choose_layouts; INGOT_IN_PLACE=0
leaves pads in convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ingot import tiles
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType
from ingot.ops.conv import window
from ingot.ops.matmul import accumulator
from ingot.passes.edit import Editor, constant_ref, map_subgraphs
from ingot.passes.fuse import is_view
from ingot.support import knobs
from ingot.target import Target

COPY_CYCLES = 0.5  # of an element that is read and written once more, from a near cache
LEAST_ELEMENTS = 1 << 14  # a copy of fewer takes no longer than filling the border


def separate_pads(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    if not knobs.current().in_place:
        return graph
    edit = Editor(graph, store)
    makers = {v.name: n for n in graph.nodes for v in n.outputs}
    alone = {name for name, readers in graph.uses().items() if len(readers) == 1}
    alone -= {v.name for v in graph.outputs}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: separate_pads(g, store, target))
        source = original.inputs[0] if original.inputs else None
        if defn(node).zero_padded and source is not None and source.name in alone:
            pads = _numbers(node)
            if pads is not None and _is_worth(source, makers, target):
                node = _padded(edit, node, pads)
        edit.keep(node)
    return edit.finish()


def _numbers(node: Node) -> tuple[list[int], list[int]] | None:
    """Zeros before and after, for each axis; None where there are none or they are not known."""
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
    edit.keep(Node("pad", (source,), (made,), attrs, node.origin))
    kept = {name: value for name, value in node.attr_map.items() if name != "pads"}
    return replace(node, inputs=(made, *node.inputs[1:]), attrs=make_attrs(kept))


# --- does it pay? ---------------------------------------------------------------------------------


def _is_worth(value: Value, makers: Mapping[str, Node], target: Target) -> bool:
    maker = makers.get(value.name)
    if maker is None or constant_ref(maker) is not None or is_view(maker):
        return False
    if defn(maker).kind_of(maker) is Kind.OPAQUE or len(maker.outputs) != 1:
        return False
    if (arith.as_int(arith.product(list(value.shape[1:]))) or 0) < LEAST_ELEMENTS:
        return False
    products = [n for n in _riding(maker, makers) if defn(n).kind is Kind.CONTRACTION]
    return all(_lost_cycles(n, target) < COPY_CYCLES for n in products)


def _riding(maker: Node, makers: Mapping[str, Node]) -> Iterator[Node]:
    """The node, and what is before it as far as it is the same shape, element by element."""
    shape, todo, seen = maker.outputs[0].tensor.shape, [maker], {maker.outputs[0].name}
    while todo:
        node = todo.pop()
        yield node
        if defn(node).kind_of(node) is not Kind.ELEMENTWISE:
            continue
        for v in node.inputs:
            if v is not None and v.name in makers and v.name not in seen and v.shape == shape:
                seen.add(v.name)
                todo.append(makers[v.name])


def _lost_cycles(product: Node, target: Target) -> float:
    """For each result, by tiles that end with each row of pixels, where they need not end now."""
    out, weights = product.outputs[0].tensor, product.inputs[1]
    if weights is None or not defn(product).channels_last:
        return COPY_CYCLES  # not known
    depth = arith.as_int(arith.product(list(weights.shape[1:])))
    row, columns = arith.as_int(out.shape[-1]), arith.as_int(out.shape[1])
    pixels = arith.as_int(arith.product(list(out.shape[2:])))
    if depth is None or row is None or columns is None or pixels is None:
        return COPY_CYCLES
    lanes = target.lanes(accumulator(out.dtype))
    cycles = [
        count * tiles.product_cycles(rows, columns, lanes, target.vector_registers)
        for count, rows in ((pixels // row, row), (1, pixels))
    ]
    return (cycles[0] - cycles[1]) * depth / (pixels * columns)
