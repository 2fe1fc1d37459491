"""A PyTorch model → a graph. In: an ExportedProgram, a .pt2 file or an FxModel. Out: Graph, its
constants in a store. Called by the importer (importer.py).

Operators are checked first: one error lists all that have no converter, with the user's lines. Then
fx_walk visits the nodes once.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch

from ingot import ops
from ingot.frontends.common.solver import SizeSolver
from ingot.frontends.torch import hooks, program
from ingot.frontends.torch.converters import FAMILIES
from ingot.frontends.torch.fx_walk import Walker, check_devices, check_operators
from ingot.frontends.torch.model import FxModel, Placeholder
from ingot.frontends.torch.sizes import SizeTable
from ingot.frontends.torch.tensors import to_array
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.support.errors import IngotError

assert FAMILIES and ops.__all__  # importing them fills the two tables


def import_model(
    model: FxModel | torch.export.ExportedProgram | str | PathLike,
    store: ConstantStore,
    sizes: Mapping[str, Any] | None = None,
    kernels: Mapping[str, Any] | None = None,
    example: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """The model as a graph. `sizes` specialises or constrains dynamic dimensions, by the caller's
    names or `input_d0`. `kernels`: user kernels by operator."""
    found = fx_model(model)
    check_devices(found.module)
    check_operators(found.module, kernels or {})
    solver = SizeSolver([n.name for n in found.module.graph.nodes], sizes, example)
    graph = _walker(found, solver, store, kernels or {}).walk_model(found)
    solver.check_given([p.name for p in found.placeholders])
    if not found.is_part:
        hooks.refuse_unused(kernels or {}, (str(n.target) for n in found.module.graph.nodes))
    if found.signature is not None:
        store.signature = found.signature.text()
    held = [p for p in found.placeholders if p.kind == "state" and p.tensor is not None]
    store.initial = {p.name: _stored(p) for p in held}
    return solver.resolve_graph(graph)


def refused(model: FxModel, kernels: Mapping[str, Any] | None = None) -> dict[str, IngotError]:
    """The nodes that Ingot cannot run, each with the reason."""
    solver = SizeSolver([n.name for n in model.module.graph.nodes])
    return _walker(model, solver, ConstantStore(), kernels or {}).refused(model)


def _walker(
    model: FxModel, solver: SizeSolver, store: ConstantStore, kernels: Mapping[str, Any]
) -> Walker:
    table = SizeTable(solver, model.ranges)
    for node, about in zip(model.module.graph.find_nodes(op="placeholder"), model.placeholders):
        value = node.meta.get("val")
        if about.kind != "fixed" and isinstance(value, torch.Tensor):
            table.declare(value, node.name, model.names)
    return Walker(GraphBuilder(model.name, store, [], solver), table, None, kernels)


def _stored(held: Placeholder) -> np.ndarray:
    """A buffer's memory, with its axes in the order of the memory."""
    assert held.tensor is not None
    array = to_array(held.tensor, held.target)
    return array if held.order is None else array.transpose(held.order)


def fx_model(model: Any) -> FxModel:
    if isinstance(model, FxModel):
        return model
    if not isinstance(model, torch.export.ExportedProgram):
        model = program.read(model)
    return program.of_program(model)


def dim_names(model: Any) -> dict[str, tuple[str, ...]]:
    """Of each input, the names of its dimensions; empty for one that is known."""
    found = fx_model(model)
    values = {n.name: n.meta.get("val") for n in found.module.graph.nodes if n.op == "placeholder"}
    return {
        p.name: tuple(
            "" if isinstance(size, int) else f"{p.name}_d{axis}"
            for axis, size in enumerate(values[p.name].shape)
        )
        for p in found.placeholders
        if p.kind == "input" and isinstance(values[p.name], torch.Tensor)
    }
