"""Results of a graph that share memory with an argument or with each other. Called by aot.py.

In: a graph of ATen operators that AOTAutograd traced. Out: the graph without the operators that
only make views of arguments and results, and a wrapper for its compiled function that makes these
views of what it is given and returns. So they have eager's strides and offsets, and a write to one
of two views is seen in the other. AOTAutograd makes an alias of an argument again, by the strides
and the offset of what the graph returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._guards import TracingContext

from ingot.frontends.torch.model import hints, is_dense, results_of

FxNode = torch.fx.Node
# the first node of a chain of views, and what is in its place: an argument or the node itself
Origin = tuple[FxNode, FxNode]
Run = Callable[[list[Any]], Sequence[Any]]
MAX_COMPARED = 1 << 26  # elements of a tensor whose views are compared; a byte each; heuristic


def lift_views(module: torch.fx.GraphModule) -> Callable[[Run], Run]:
    """Take what only makes views out of the graph; the wrapper that makes them."""
    results = results_of(module)
    origins = _origins(module, results)
    if not origins:
        return lambda run: run
    wanted = [origins[p][1] if p in origins else result for p, result in enumerate(results)]
    kept = list(dict.fromkeys(r for r in wanted if _is_computed(r)))
    names = [n.name for n in module.graph.find_nodes(op="placeholder")]
    rebuilt = _Rebuilt(kept)
    views = rebuilt.graph_of(results, origins)
    (output,) = module.graph.find_nodes(op="output")
    output.args = (tuple(kept),)
    module.graph.eliminate_dead_code()
    places = [names.index(name) for name in rebuilt.arguments]
    restore = torch.fx.GraphModule(torch.nn.Module(), views)
    return lambda run: _restoring(run, restore.forward, places)


def _restoring(run: Run, restore: Callable[..., Any], places: list[int]) -> Run:
    def call(args: list[Any]) -> Sequence[Any]:
        given = [args[place] for place in places]
        return restore(*run(args), *given)

    return call


def _is_computed(result: Any) -> bool:
    return isinstance(result, FxNode) and result.op != "placeholder"


# --- which results are views, and of what -------------------------------------------------------


def _origins(module: torch.fx.GraphModule, results: Sequence[Any]) -> dict[int, Origin]:
    """By the position of a result that is a view: the argument, or the node that it is a view of.
    Views of what is not returned stay in the graph, unless two of them overlap."""
    updates = _updates(module)
    found = dict[int, Origin]()
    for place, result in enumerate(results):
        origin = _origin(result, updates, _is_alias(place))
        if origin is not None and _needs(result, origin[0]) is not None:
            found[place] = origin
    returned = {r for r in results if _is_computed(r)}
    shared = _overlapping(results, found)
    return {
        place: origin
        for place, origin in found.items()
        if origin[1].op == "placeholder"
        or (origin[1] is not results[place] and origin[1] in returned)
        or origin[1] in shared
    }


def _updates(module: torch.fx.GraphModule) -> dict[FxNode, FxNode]:
    """The new value of each argument that the run updates → the argument."""
    copies = [n for n in module.graph.nodes if str(n.target) == "aten.copy_.default"]
    return {n.args[1]: n.args[0] for n in copies if n.args[0].op == "placeholder"}


def _is_alias(place: int) -> bool:
    """Is the result an alias of an argument in eager mode? AOTAutograd knows."""
    context = TracingContext.try_get()
    about = None if context is None else context.fw_metadata
    if about is None:
        return False
    own = place - len(about.mutated_inp_runtime_indices)
    if not 0 <= own < len(about.output_info):
        return False
    return about.output_info[own].output_type.name in ("alias_of_input", "is_input")


def _origin(result: Any, updates: Mapping[FxNode, FxNode], is_alias: bool) -> Origin | None:
    """The first node of a chain of views; of an alias of what the run updates, the argument."""
    if not isinstance(result, FxNode) or not isinstance(result.meta.get("val"), torch.Tensor):
        return None
    if result.op == "placeholder":
        return None
    node = result
    while True:
        if is_alias and node in updates:
            return node, updates[node]
        before = _viewed(node)
        if before is None:
            break
        node = before
    if node.op == "placeholder":  # its old value, if the run updates it
        return None if node in updates.values() else (node, node)
    is_usable = node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
    return (node, node) if is_usable and is_dense(node.meta["val"]) else None


def _viewed(node: FxNode) -> FxNode | None:
    """What a node is a view of; None if it is none."""
    if node.op != "call_function":
        return None
    schema = getattr(node.target, "_schema", None)
    is_item = schema is None and getattr(node.target, "__name__", "") == "getitem"
    is_view = schema is not None and any(
        r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
    )
    first = node.args[0] if node.args and (is_item or is_view) else None
    if is_item and isinstance(first, FxNode):  # of a list of views, or of several results
        return first if _viewed(first) is not None else None
    return first if isinstance(first, FxNode) else None


def _overlapping(results: Sequence[Any], origins: Mapping[int, Origin]) -> set[FxNode]:
    """The nodes of which two views share an element."""
    found = set()
    for origin in {source for _, source in origins.values()}:
        views = [results[place].meta["val"] for place, (_, o) in origins.items() if o is origin]
        if len(views) > 1 and _may_overlap(origin.meta["val"], views):
            found.add(origin)
    return found


def _may_overlap(whole: torch.Tensor, views: Sequence[torch.Tensor]) -> bool:
    """With the sizes of the example."""
    count = hints([whole.numel()])
    if count is None or count[0] > MAX_COMPARED:
        return True
    seen = np.zeros(count[0], bool)
    for view in views:
        sizes, strides = hints(view.shape), hints(view.stride())
        start = hints([view.storage_offset() - whole.storage_offset()])
        if sizes is None or strides is None or start is None or view.dtype != whole.dtype:
            return True
        own = np.lib.stride_tricks.as_strided(seen[start[0] :], sizes, strides)
        if own.any():
            return True
        own[...] = True
    return False


# --- making them --------------------------------------------------------------------------------


def _needs(result: FxNode, origin: FxNode) -> list[FxNode] | None:
    """The nodes that make a view of its origin, in order; None if one of them is neither a view nor
    a size computed from arguments."""
    found: dict[FxNode, None] = {}
    todo: list[tuple[FxNode, bool]] = [(result, False)]
    while todo:
        node, is_done = todo.pop()
        if node is origin or node.op == "placeholder" or node in found:
            continue
        value = node.meta.get("val")
        is_size = isinstance(value, torch.SymInt | int)
        if not is_size and _viewed(node) is None:
            return None
        if is_done:
            found[node] = None
            continue
        todo.append((node, True))
        todo += [(n, False) for n in node.all_input_nodes]
    return list(found)


class _Rebuilt:
    """A graph of views. Its inputs are `kept`, then the arguments that it needs."""

    def __init__(self, kept: Sequence[FxNode]):
        self.arguments: list[str] = []
        self._graph = torch.fx.Graph()
        self._copies = {n: self._graph.placeholder(f"result_{n.name}") for n in kept}

    def graph_of(self, results: Sequence[Any], origins: Mapping[int, Origin]) -> torch.fx.Graph:
        needed = {p: _needs(results[p], stop) or [] for p, (stop, _) in origins.items()}
        inputs = [n for nodes in needed.values() for node in nodes for n in node.all_input_nodes]
        for node in dict.fromkeys([*results, *(source for _, source in origins.values()), *inputs]):
            if isinstance(node, FxNode) and node.op == "placeholder":
                self._copies[node] = self._graph.placeholder(node.name)
                self.arguments.append(node.name)
        made = [
            self._view(result, *origins[place], needed[place])
            if place in origins
            else self._copies.get(result, result)
            for place, result in enumerate(results)
        ]
        self._graph.output(tuple(made))
        return self._graph

    def _view(self, result: FxNode, stop: FxNode, source: FxNode, nodes: list[FxNode]) -> FxNode:
        copies = {**self._copies, stop: self._copies[source]}
        for node in nodes:
            copies[node] = self._graph.node_copy(node, copies.__getitem__)
        return copies[result]
