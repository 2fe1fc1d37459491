"""Graph → the same graph where a scale for each channel is applied to a convolution's weights and
not to its input, if there are fewer of them.

    conv(mul(x, s), w)   →   conv(x, mul(w, s))

So ends a squeeze-and-excite: x is a map of pixels, s one number for each of its channels, which
depends on x and so comes late. To multiply x by it would be one more pass over the map. It takes
the one image of a batch, whose s it is; an s that is no larger than 1, so that no weight becomes
infinite; and numbers of 32 bits or more, where hardly a weight becomes too small. Called by the
pipeline after choose_layouts: the product lies in panels as the weights do. INGOT_SCALE_WEIGHTS=0
leaves the pass over the map.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, constant_ref, map_subgraphs
from ingot.support import knobs

BOUNDED = ("sigmoid", "hard_sigmoid", "softmax", "tanh")  # no result is larger than 1


class Scaled(NamedTuple):
    """A convolution's input before it is scaled, and the scale."""

    x: Value
    scale: Value


def scale_weights(graph: Graph, store: ConstantStore) -> Graph:
    if not knobs.current().scale_weights:
        return graph
    edit = Editor(graph, store)
    found = _scaled_inputs(graph)
    for original in graph.nodes:
        if any(v.name in found for v in original.outputs):
            continue  # its one reader scales its weights instead
        moved = (
            found.get(original.inputs[0].name) if original.inputs and original.inputs[0] else None
        )
        node = original if moved is None else _with_scaled_weights(edit, original, moved)
        edit.keep(map_subgraphs(edit.current(node), lambda g: scale_weights(g, store)))
    return edit.finish()


def _scaled_inputs(graph: Graph) -> dict[str, Scaled]:
    """What only a convolution reads, and is better not made: by its name."""
    makers = {v.name: n for n in graph.nodes for v in n.outputs}
    uses = graph.uses()
    outputs = {v.name for v in graph.outputs}
    found: dict[str, Scaled] = {}
    for conv in graph.nodes:
        source = conv.inputs[0] if conv.op == "conv" else None
        if source is None or source.name in outputs or len(uses[source.name]) != 1:
            continue
        maker = makers.get(source.name)
        parts = _parts(maker) if maker is not None and maker.op == "mul" else None
        if parts is not None and _is_worth(conv, parts, makers):
            found[source.name] = parts
    return found


def _parts(mul: Node) -> Scaled | None:
    """The map and the number for each channel that a product is made of."""
    (out,) = mul.outputs
    a, b = mul.inputs
    assert a is not None and b is not None
    for x, scale in ((a, b), (b, a)):
        channels = (out.shape[1], *(arith.Const(1),) * (out.tensor.rank - 2))
        if x.type == out.type and scale.shape in (channels, (arith.Const(1), *channels)):
            return Scaled(x, scale)
    return None


def _is_worth(conv: Node, parts: Scaled, makers: dict[str, Node]) -> bool:
    """Is there one image, and are there fewer weights than pixels of all channels?"""
    weights = conv.inputs[1]
    assert weights is not None
    maker = makers.get(weights.name)
    if maker is not None and maker.op == "relayout" and maker.inputs[0] is not None:
        maker = makers.get(maker.inputs[0].name)
    is_constant = maker is not None and constant_ref(maker) is not None
    of_weights, of_x = arith.as_int(weights.tensor.numel), arith.as_int(parts.x.tensor.numel)
    if not is_constant or conv.attr("group", 1) != 1 or of_weights is None or of_x is None:
        return False
    bound = makers.get(parts.scale.name)
    is_safe = bound is not None and bound.op in BOUNDED and weights.dtype.bits >= 32
    is_one_image = parts.x.shape[0] == 1 and weights.dtype == parts.x.dtype == parts.scale.dtype
    return is_safe and is_one_image and of_weights < of_x


def _with_scaled_weights(edit: Editor, conv: Node, moved: Scaled) -> Node:
    weights = conv.inputs[1]
    assert weights is not None
    made = Value(edit.g.fresh(f"{weights.name}_scaled"), weights.type)
    scale = Node("mul", (weights, moved.scale), (made,), (), conv.origin)
    edit.keep(edit.current(scale))
    return replace(conv, inputs=(moved.x, made, *conv.inputs[2:]))
