"""fused: a fusion group, the nodes that become one kernel.

fused(*operands){body, anchor, family}
    `body` is a graph of plain operators over the operands. `anchor` names the value in it whose
    operator decides the loop nest (a contraction, a reduction, an opaque operator), or is none.
    `family` is the key of the schedule rules. The node's outputs are the body's. `plans`, which the
    back end's planning stage adds, has a "block: plan" for each contraction (cost/plan.py).

Values of a body are named by position (`x0`, `x1`, … and the operators), so that equal groups have
equal bodies and lower builds one kernel for them. The body's name is the kernel's name. passes/fuse
makes these nodes, lower turns each into one launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ingot import dtypes
from ingot.cost.plan import ContractionPlan, parse_plan
from ingot.graph.ir import Graph, Node, Value, make_attrs, replace
from ingot.graph.opdef import (
    TABLE,
    Attrs,
    Kind,
    OpDef,
    RunGraph,
    Sample,
    defn,
    register,
    type_error,
)
from ingot.graph.types import TensorType, Type, stored, tensor
from ingot.graph.verify import bound_symbols
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.ops.common import floats

ELEMENTWISE, ATTENTION = "elementwise", "attention"  # families of groups without an anchor's own
NAMED_OPS = 4  # operators that a kernel's name lists before it counts the others


@register
class Fused(OpDef):
    name = "fused"
    infers_layouts = True
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        body, anchor, family = attrs["body"], attrs.get("anchor"), attrs.get("family")
        wanted = [v.type for v in body.inputs]
        if wanted != list(inputs):
            given = ", ".join(map(str, inputs))
            what = f"the body {body.name!r} takes ({', '.join(map(str, wanted))}), got ({given})"
            raise type_error(self.name, what, "operands repeat the types of the body's inputs")
        self.check_body(body)
        made = [v.name for n in body.nodes for v in n.outputs]
        if anchor is not None and anchor not in made:
            hint = f"a value that the body computes ({', '.join(made)}), or none"
            raise type_error(self.name, f"the anchor {anchor!r} is not in the body", hint)
        if family not in families():
            hint = f"the families are {', '.join(sorted(families()))}"
            raise type_error(self.name, f"the family {family!r} is unknown", hint)
        parse_plans(attrs.get("plans", ()))
        return [v.tensor for v in body.outputs]

    def check_body(self, body: Graph) -> None:
        """A body becomes one kernel that computes all its outputs."""
        for node in body.nodes:
            is_alone = bool(bound_symbols(node)) or any(True for _ in node.subgraphs)
            if is_alone or not defn(node).has_compute:
                hint = "constants, control flow and nodes that bind symbols stay outside of groups"
                raise type_error(self.name, f"{node.op} is no part of a kernel", hint)
        inputs = [v.name for v in body.outputs if v in body.inputs]
        if inputs or body.state or body.views:
            hint = "outputs are computed in the body; states and views belong to the outer graph"
            raise type_error(self.name, f"the body {body.name!r} is more than a kernel", hint)

    def evaluate(
        self, inputs: Sequence[np.ndarray | None], attrs: Attrs, run: RunGraph
    ) -> list[np.ndarray]:
        return run(attrs["body"], inputs)  # type: ignore[arg-type]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        body = attrs["body"]
        made = {v.name: buffer for v, buffer in zip(body.inputs, inputs)}
        for node in body.nodes:
            operands = [v and made[v.name] for v in node.inputs]
            types = [stored(v.tensor) for v in node.outputs]
            results = defn(node).compute(b, operands, types, node.attr_map)
            made.update(zip((v.name for v in node.outputs), results))
        return [made[v.name] for v in body.outputs]  # type: ignore[misc]

    def samples(self) -> list[Sample]:
        x, w, y, z = (Value(name, tensor(dtypes.f32, 4, 4)) for name in "xwyz")
        chain = (Node("exp", (x,), (y,)), Node("neg", (y,), (z,)))
        gemm = (Node("matmul", (x, w), (y,)), Node("relu", (y,), (z,)))
        return [
            Sample((floats(4, 4),), fused_node(chain, (z,), None).attr_map),
            Sample((floats(4, 4),), fused_node(chain, (y, z), None).attr_map),
            Sample((floats(4, 4), floats(4, 4)), fused_node(gemm, (z,), gemm[0]).attr_map),
            Sample((floats(4, 4), floats(4, 4)), fused_node(gemm, (y, z), gemm[0]).attr_map),
        ]


def show_plans(plans: Iterable[tuple[str, ContractionPlan]]) -> tuple[str, ...]:
    """The attribute `plans`."""
    return tuple(f"{block}: {plan}" for block, plan in plans)


def parse_plans(texts: Iterable[str]) -> tuple[tuple[str, ContractionPlan], ...]:
    """Block → plan, of the attribute `plans`."""
    pairs = (text.partition(": ") for text in texts)
    return tuple((block, parse_plan(plan)) for block, _, plan in pairs)


def families() -> set[str]:
    """The known keys of schedule rules."""
    return {ELEMENTWISE, ATTENTION} | {op.family for op in TABLE.values()}


def fused_node(
    nodes: Sequence[Node], outputs: Sequence[Value], anchor: Node | None, name: str = ""
) -> Node:
    """The group of these nodes, in topological order, that computes `outputs`."""
    made = {v.name for n in nodes for v in n.outputs}
    reads = (v for n in nodes for v in n.inputs if v is not None and v.name not in made)
    inputs = tuple(dict.fromkeys(reads))
    body, names = _body(nodes, inputs, outputs)
    family = _family(nodes, anchor)
    attrs = {
        "body": replace(body, name=name or _kernel_name(nodes, family)),
        "anchor": None if anchor is None else names[anchor.outputs[0].name],
        "family": family,
    }
    origin = "; ".join(dict.fromkeys(n.origin for n in nodes if n.origin))
    return Node("fused", inputs, tuple(outputs), make_attrs(attrs), origin)


def _body(
    nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]
) -> tuple[Graph, dict[str, str]]:
    """The nodes as a graph with canonical names, and the new name of each value."""
    names = {v.name: f"x{index}" for index, v in enumerate(inputs)}
    count: dict[str, int] = {}
    for node in nodes:
        for value in node.outputs:
            number = count[node.op] = count.get(node.op, 0) + 1
            names[value.name] = node.op if number == 1 else f"{node.op}.{number}"

    def renamed(values: Sequence[Value | None]) -> tuple:
        return tuple(v and Value(names[v.name], v.type) for v in values)

    inside = tuple(replace(n, inputs=renamed(n.inputs), outputs=renamed(n.outputs)) for n in nodes)
    return Graph("", renamed(inputs), renamed(outputs), inside), names


def _family(nodes: Sequence[Node], anchor: Node | None) -> str:
    if anchor is None:
        return ELEMENTWISE
    contractions = sum(defn(n).kind is Kind.CONTRACTION for n in nodes)
    return ATTENTION if contractions > 1 else defn(anchor).family


def _kernel_name(nodes: Sequence[Node], family: str) -> str:
    """A readable name: the operators in order; of attention, only matmuls and reductions."""
    heavy = [n.op for n in nodes if defn(n).kind in (Kind.CONTRACTION, Kind.REDUCTION)]
    ops = heavy if family == ATTENTION else [n.op for n in nodes]
    more = len(ops) - NAMED_OPS
    return "_".join(ops[:NAMED_OPS]) + (f"_and_{more}_more" if more > 0 else "")


def only_node(fused: Node) -> Node | None:
    """The one node of a group of one, over the operands and outputs of the group."""
    if fused.op != "fused" or len(fused.attr("body").nodes) != 1:
        return None
    body = fused.attr("body")
    outer = {v.name: w for v, w in zip(body.inputs, fused.inputs)}
    inputs = tuple(v and outer[v.name] for v in body.nodes[0].inputs)
    return replace(body.nodes[0], inputs=inputs, outputs=fused.outputs)
