"""A model with nodes that Ingot refuses → pieces, run one after the other: Ingot's and PyTorch's.

In: an FxModel, the names of the refused nodes. Out: pieces. A node is in the first piece of its
kind that follows all it depends on. Called by ingot/torch/mixed.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ingot.frontends.torch.fx_walk import is_size
from ingot.frontends.torch.model import FxModel, Output, Placeholder, memory_order

FxNode = torch.fx.Node


@dataclass(frozen=True)
class Piece:
    """`inputs`: for each placeholder the node, by its name in the whole graph, or the symbol that
    it is the value of; `outputs`: likewise the nodes of its results."""

    is_torch: bool
    model: FxModel
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def pieces(model: FxModel, refused: Container[str]) -> list[Piece]:
    nodes = [n for n in model.module.graph.nodes if n.op == "call_function" and not is_size(n)]
    levels = _levels(nodes, refused)
    results = {n for n in model.results if isinstance(n, FxNode)}
    return [
        _piece(model, [n for n in nodes if levels[n] == level], level % 2 == 1, results)
        for level in sorted(set(levels.values()))
    ]


def _levels(nodes: list[FxNode], refused: Container[str]) -> dict[FxNode, int]:
    """Even levels are Ingot's, odd ones PyTorch's. A getitem stays with its operand."""
    levels: dict[FxNode, int] = {}
    for node in nodes:
        level = max((levels[n] for n in node.all_input_nodes if n in levels), default=0)
        if not (_is_getitem(node) and node.args[0] in levels):
            level += (level % 2 == 1) != (node.name in refused)
        levels[node] = level
    return levels


def _is_getitem(node: FxNode) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _piece(model: FxModel, own: list[FxNode], is_torch: bool, results: set[FxNode]) -> Piece:
    """The graph of some nodes. Ingot knows sizes from metadata, PyTorch is given their values."""
    inside, about = set(own), {p.name: p for p in model.placeholders}
    graph, copies, placeholders = torch.fx.Graph(), dict[FxNode, Any](), list[Placeholder]()
    inputs: list[str] = []
    for node in _given(own, inside):
        if node.op == "get_attr":
            copies[node] = graph.node_copy(node)
        elif is_size(node) and not is_torch:
            copies[node] = node.meta["val"]
        else:
            copies[node] = _placeholder(graph, node.name, node.meta)
            placeholders.append(_about(node, about.get(node.name)))
            inputs.append(node.name)
    for name, size in ({} if is_torch else _missing_symbols(own, inputs, copies)).items():
        _placeholder(graph, f"size_{name}", {"val": size})
        placeholders.append(Placeholder(f"size_{name}", "input"))
        inputs.append(name)
    for node in own:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    given = [n for n in own if n in results or any(u not in inside for u in n.users)]
    graph.output(tuple(copies[n] for n in given))
    part = replace(
        model,
        module=torch.fx.GraphModule(model.module, graph),
        placeholders=tuple(placeholders),
        outputs=tuple(_output(n, i) for i, n in enumerate(given)),
        signature=None,
        is_part=True,
    )
    return Piece(is_torch, part, tuple(inputs), tuple(n.name for n in given))


def _given(own: list[FxNode], inside: Container[FxNode]) -> list[FxNode]:
    """What the nodes of a piece need from outside, in the graph's order of use."""
    found = dict.fromkeys(n for node in own for n in node.all_input_nodes)
    return [n for n in found if n not in inside]


def _placeholder(graph: torch.fx.Graph, name: str, meta: Mapping[str, Any]) -> FxNode:
    made = graph.placeholder(name)
    made.meta = dict(meta)
    return made


def _about(node: FxNode, original: Placeholder | None) -> Placeholder:
    if original is not None and original.kind in ("constant", "fixed"):
        return original
    return Placeholder(node.name, "input", order=_order(node))


def _output(node: FxNode, index: int) -> Output:
    return Output("value", f"output{index}", order=_order(node))


def _order(node: FxNode) -> Any:
    value = node.meta.get("val")
    return memory_order(value) if isinstance(value, torch.Tensor) else None


def _missing_symbols(
    own: list[FxNode], inputs: list[str], copies: Mapping[FxNode, Any]
) -> dict[str, torch.SymInt]:
    """Symbols of sizes in a piece that none of its tensors has."""
    known = {str(s) for n in copies if n.name in inputs for s, _ in symbols_of(n)}
    found = {str(s): size for n in (*own, *copies) for s, size in symbols_of(n)}
    return {name: size for name, size in found.items() if name not in known}


def symbols_of(node: FxNode) -> Iterator[tuple[Any, Any]]:
    """Each symbol in a node's sizes, with the size if it is the symbol itself."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    for v in values:
        sizes = v.shape if isinstance(v, torch.Tensor) else (v,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                for symbol in size.node.expr.free_symbols:
                    yield symbol, _as_symint(size, symbol)


def _as_symint(size: torch.SymInt, symbol: Any) -> torch.SymInt:
    """The symbol alone, in the environment of a size that has it."""
    if size.node.expr == symbol:
        return size
    environment = size.node.shape_env
    return environment.create_symintnode(symbol, hint=None)
