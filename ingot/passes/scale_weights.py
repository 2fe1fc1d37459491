"""Moves a per-channel scale from a convolution's input to its weights, if these are fewer.

    conv(mul(x, s), w)   →   conv(x, mul(w, s))

This is the end of a squeeze-and-excite block: x is a feature map and s has one number per channel,
computed from x. Scaling x would be one more pass over the feature map. Conditions: a batch of one
image, since s depends on it; |s| ≤ 1, so that no weight overflows; elements of 32 bits or more, so
that few weights underflow. Called by the pipeline after choose_layouts: the scaled weights have the
packed layout of the weights. INGOT_OFF=scale_weights switches it off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, constant_ref, map_subgraphs
from ingot.support import options

BOUNDED = ("sigmoid", "hard_sigmoid", "softmax", "tanh")  # results are at most 1


class Scaled(NamedTuple):
    """A convolution's unscaled input, and its per-channel scale."""

    x: Value
    scale: Value


def scale_weights(graph: Graph, store: ConstantStore) -> Graph:
    if not options.current().has("scale_weights"):
        return graph
    edit = Editor(graph, store)
    found = _scaled_inputs(graph)
    for original in graph.nodes:
        if any(v.name in found for v in original.outputs):
            continue  # its only reader scales its weights instead
        scaled = (
            found.get(original.inputs[0].name) if original.inputs and original.inputs[0] else None
        )
        node = original if scaled is None else _with_scaled_weights(edit, original, scaled)
        edit.keep(map_subgraphs(edit.current(node), lambda g: scale_weights(g, store)))
    return edit.finish()


def _scaled_inputs(graph: Graph) -> dict[str, Scaled]:
    """Scaled feature maps that need not be computed: value name → its factors."""
    producers = {v.name: n for n in graph.nodes for v in n.outputs}
    uses = graph.uses()
    outputs = {v.name for v in graph.outputs}
    found: dict[str, Scaled] = {}
    for conv in graph.nodes:
        source = conv.inputs[0] if conv.op == "conv" else None
        if source is None or source.name in outputs or len(uses[source.name]) != 1:
            continue
        if conv.inputs[3:] not in ((), (None,)):
            continue  # the padding's value would be scaled too
        producer = producers.get(source.name)
        scaled = _factors(producer) if producer is not None and producer.op == "mul" else None
        if scaled is not None and _is_worth(conv, scaled, producers):
            found[source.name] = scaled
    return found


def _factors(mul: Node) -> Scaled | None:
    """The feature map and the per-channel scale of a mul, if it has these operands."""
    (out,) = mul.outputs
    a, b = mul.inputs
    assert a is not None and b is not None
    for x, scale in ((a, b), (b, a)):
        channels = (out.shape[1], *(arith.Const(1),) * (out.tensor.rank - 2))
        if x.type == out.type and scale.shape in (channels, (arith.Const(1), *channels)):
            return Scaled(x, scale)
    return None


def _is_worth(conv: Node, scaled: Scaled, producers: dict[str, Node]) -> bool:
    """Is the rewrite legal, and has the convolution fewer weights than input elements?"""
    weights = conv.inputs[1]
    assert weights is not None
    producer = producers.get(weights.name)
    if producer is not None and producer.op == "relayout" and producer.inputs[0] is not None:
        producer = producers.get(producer.inputs[0].name)
    is_constant = producer is not None and constant_ref(producer) is not None
    of_weights, of_x = arith.as_int(weights.tensor.numel), arith.as_int(scaled.x.tensor.numel)
    if not is_constant or conv.attr("group", 1) != 1 or of_weights is None or of_x is None:
        return False
    bound = producers.get(scaled.scale.name)
    is_safe = bound is not None and bound.op in BOUNDED and weights.dtype.bits >= 32
    is_one_image = scaled.x.shape[0] == 1
    is_same_dtype = weights.dtype == scaled.x.dtype == scaled.scale.dtype
    return is_safe and is_one_image and is_same_dtype and of_weights < of_x


def _with_scaled_weights(edit: Editor, conv: Node, scaled: Scaled) -> Node:
    weights = conv.inputs[1]
    assert weights is not None
    made = Value(edit.g.fresh(f"{weights.name}_scaled"), weights.type)
    scale = Node("mul", (weights, scaled.scale), (made,), (), conv.origin)
    edit.keep(edit.current(scale))
    return replace(conv, inputs=(scaled.x, made, *conv.inputs[2:]))
