"""The functional form of an exported graph for inference, without tracing it again.

    add_(x, y)                              →  add(x, y)            where nothing else sees x change
    batch_norm(x, …, training=False)        →  _native_batch_norm_legit_no_training(x, …)[0]
    dropout(x, p, False), dropout_(…)       →  alias(x)
    to(x, dtype=…)                          →  _to_copy(x, dtype=…), or alias(x)
    x & y                                   →  bitwise_and(x, y)
    _assert_tensor_metadata(x, …)           →  (what the types of the graph say already)

`run_decompositions` does the same by tracing the whole program, which takes torch seconds. In: the
graph module of an ExportedProgram. Out: a copy; nodes keep their names, which the program's
signature mentions. What is not shown to be safe stays, and is decomposed. Called by program.py.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten
DROPOUTS = (aten.dropout.default, aten.dropout_.default)
CONVERSIONS = (aten.to.dtype, aten.to.dtype_layout, aten.to.device)
SPELLINGS = {
    getattr(aten, f"__{word}__").Tensor: getattr(aten, f"bitwise_{word}").Tensor
    for word in ("and", "or", "xor")
}
# operators of a CompositeImplicitAutograd kernel may return an argument; these never do
FRESH = (
    aten.batch_norm.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.group_norm.default, aten.layer_norm.default, aten.linear.default, aten.matmul.default,
)  # fmt: skip
COMPOSITE = "CompositeImplicitAutograd"


def inference_form(module: GraphModule) -> GraphModule:
    """Apply the rules above to a copy of the graph."""
    made = GraphModule(module, copy.deepcopy(module.graph))
    made.meta = dict(module.meta)
    for node, original in zip(made.graph.nodes, module.graph.nodes, strict=True):
        node.name = original.name  # a copy renames what is also the name of a Python function
    order = {node: i for i, node in enumerate(made.graph.nodes)}
    for node in list(made.graph.nodes):
        if node.op == "call_function":
            _rewrite(made.graph, node, order)
    return made


def _rewrite(graph: Graph, node: Node, order: dict[Node, int]) -> None:
    if node.target is aten._assert_tensor_metadata.default and not node.users:
        graph.erase_node(node)
    elif node.target in DROPOUTS:
        if len(node.args) == 3 and not node.args[2]:
            _be_alias(node)
    elif node.target in CONVERSIONS:
        _convert(node)
    elif node.target in SPELLINGS:
        node.target = SPELLINGS[node.target]
    elif node.target is aten.batch_norm.default:
        _split_batch_norm(graph, node)
    elif (twin := _functional(node)) is not None and _is_unseen(node, order):
        node.target = twin


def _argument(node: Node, index: int) -> Any:
    return node.args[index] if len(node.args) > index else None


def _be_alias(node: Node) -> None:
    if any(user.op == "output" for user in node.users):
        return  # the result may be an argument itself, which tracing finds out
    node.target, node.args, node.kwargs = aten.alias.default, (node.args[0],), {}


def _convert(node: Node) -> None:
    """A conversion of the element type alone, to memory of the same order; on one device."""
    x = node.args[0]
    before = x.meta.get("val") if isinstance(x, Node) else None
    after = node.meta.get("val")
    if not (isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)):
        return
    if before.device != after.device or before.stride() != after.stride():
        return
    if _argument_of(node, "copy"):
        return
    if before.dtype == after.dtype:
        _be_alias(node)
    else:
        node.target, node.args = aten._to_copy.default, (x,)
        node.kwargs = {"dtype": after.dtype}


def _argument_of(node: Node, name: str) -> Any:
    """An argument by its name in the schema."""
    if name in node.kwargs:
        return node.kwargs[name]
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    return _argument(node, names.index(name)) if name in names else None


def _split_batch_norm(graph: Graph, node: Node) -> None:
    if len(node.args) < 8 or node.kwargs or node.args[5]:
        return
    x, weight, bias, mean, variance, _, momentum, epsilon = node.args[:8]
    if mean is None or variance is None:
        return
    target = aten._native_batch_norm_legit_no_training.default
    with graph.inserting_before(node):
        found = graph.call_function(target, (x, weight, bias, mean, variance, momentum, epsilon))
    found.meta = dict(node.meta)
    value = node.meta.get("val")
    found.meta["val"] = None if value is None else (value, value.new_empty(0), value.new_empty(0))
    node.target, node.args = operator.getitem, (found, 0)


def _functional(node: Node) -> Any:
    """The operator that returns what an in-place one writes to its first argument."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return None
    name = op._schema.name.removeprefix("aten::")
    if not name.endswith("_") or name.startswith("_") or _written(op) != [0]:
        return None
    packet = getattr(aten, name[:-1], None)
    twin = getattr(packet, op._overloadname, None)
    same = twin is not None and [a.name for a in twin._schema.arguments] == [
        a.name for a in op._schema.arguments
    ]
    return twin if same else None


def _written(op: Any) -> list[int]:
    arguments = enumerate(op._schema.arguments)
    return [i for i, a in arguments if a.alias_info is not None and a.alias_info.is_write]


def _is_unseen(node: Node, order: dict[Node, int]) -> bool:
    """Whether no other node can see that the first argument changes: it is memory of its own, and
    every other reader comes before and makes no view of it. Its size and type stay."""
    x = _argument(node, 0)
    if not isinstance(x, Node) or not _is_fresh(x):
        return False
    if any(_argument(node, i) is x for i in range(1, len(node.args))):
        return False
    others = [user for user in x.users if user is not node]
    if any(order[user] > order[node] or not _is_fresh(user) for user in others):
        return False
    before, after = x.meta.get("val"), node.meta.get("val")
    if before is None or after is None:
        return False
    return (before.shape, before.dtype) == (after.shape, after.dtype)


def _is_fresh(node: Node) -> bool:
    """Whether a node's result is memory that no other value shares."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]  # one of several results, as `_split_batch_norm` makes them
    op = node.target
    if not isinstance(op, torch._ops.OpOverload):
        return False
    if op in FRESH:
        return True
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), COMPOSITE):
        return False
    return all(value.alias_info is None for value in op._schema.returns)
