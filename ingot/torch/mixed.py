"""fallback=True: a model of which some nodes run in PyTorch. In: an FxModel, the nodes that Ingot
refuses. Out: a function on the model's arguments, or an executable that is called as the module.

Pieces run one after the other (frontends/torch/partition.py). What passes between them are tensors,
over the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ingot.frontends.torch.fx_walk import is_size
from ingot.frontends.torch.hooks import refuse_unused
from ingot.frontends.torch.model import FxModel
from ingot.frontends.torch.origins import where_of
from ingot.frontends.torch.partition import pieces
from ingot.frontends.torch.walker import refused
from ingot.kernels.hooks import hooks
from ingot.runtime.executable import Executable
from ingot.support.errors import IngotError
from ingot.torch.graph_call import GraphCall

Compile = Callable[[FxModel], Executable]


class MixedCall:
    """Called with a list of arguments, one for each placeholder, like GraphCall."""

    _boxed_call = True

    def __init__(self, model: FxModel, reasons: Mapping[str, IngotError], compile: Compile):
        self._model = model
        self._pieces = pieces(model, reasons)
        self._calls: list[GraphCall] = []
        self._steps = [self._step(piece, compile) for piece in self._pieces]
        graph = model.module.graph
        self._given = [n.name for n in graph.find_nodes(op="placeholder")]
        self._attributes = {n.name: n for n in graph.find_nodes(op="get_attr")}
        self._sizes = {n.name: n.meta["val"] for n in graph.nodes if is_size(n)}
        self._symbols = _sources(model)
        nodes = {n.name: n for n in graph.nodes}
        self.fallback = {name: _why(nodes[name], error) for name, error in reasons.items()}

    def _step(self, piece: Any, compile: Compile) -> Callable[[list[Any]], Sequence[Any]]:
        if piece.is_torch:
            module = piece.model.module
            return lambda args: module(*args)
        call = GraphCall(piece.model, compile(piece.model))
        self._calls.append(call)
        return call

    @property
    def executables(self) -> list[Executable]:
        return [call.exe for call in self._calls]

    def refresh(self) -> None:
        for call in self._calls:
            call.refresh()

    def __call__(self, args: list[Any]) -> list[Any]:
        values = dict(zip(self._given, args))
        with torch.no_grad():
            for piece, step in zip(self._pieces, self._steps):
                given = [self._value(name, values) for name in piece.inputs]
                values.update(zip(piece.outputs, step(given)))
            results = [self._result(r, values) for r in self._model.results]
            return self._updated(results, values)

    def _result(self, result: Any, values: dict[str, Any]) -> Any:
        if not isinstance(result, torch.fx.Node):
            return result
        if result.op == "get_attr":
            return getattr(self._model.module, str(result.target))
        return self._value(result.name, values)

    def _updated(self, results: list[Any], values: Mapping[str, Any]) -> list[Any]:
        """Write what the run updates to its memory; the other results."""
        for about, result in zip(self._model.outputs, results):
            if about.kind == "update":
                values[about.updates].copy_(result)
        return [r for about, r in zip(self._model.outputs, results) if about.kind != "update"]

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        """A tensor, or the value of a size or symbol, found from tensors that are there."""
        if name in values and not isinstance(values[name], torch.SymInt):
            return values[name]
        if name in self._sizes:
            return self._size(self._sizes[name], values)
        return self._symbol(name, values)

    def _size(self, size: Any, values: dict[str, Any]) -> Any:
        if not isinstance(size, torch.SymInt):
            return size
        expr = size.node.expr
        return int(expr.xreplace({s: self._symbol(str(s), values) for s in expr.free_symbols}))

    def _symbol(self, name: str, values: Mapping[str, Any]) -> int:
        for source, axis in self._symbols[name]:
            if source in values:
                found = values[source]
                return found if axis is None else found.shape[axis]
        raise IngotError("unsupported-op", f"the size {name} is not known where it is needed")


def _sources(model: FxModel) -> dict[str, list[tuple[str, int | None]]]:
    """Where the value of a symbol can be read: a node, and an axis of it unless it is a number."""
    found: dict[str, list[tuple[str, int | None]]] = {}
    for node in model.module.graph.nodes:
        value = node.meta.get("val")
        is_tensor = isinstance(value, torch.Tensor)
        for axis, size in enumerate(value.shape if is_tensor else (value,)):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                row = (node.name, axis if is_tensor else None)
                found.setdefault(str(size.node.expr), []).append(row)
    return found


def _why(node: torch.fx.Node, error: IngotError) -> str:
    return f"{where_of(node)}: {error.what}" + (f" ({error.why})" if error.why else "")


def mixed_call(
    model: FxModel, compile: Compile, kernels: Mapping[str, Any] | None = None
) -> MixedCall | None:
    """None: Ingot runs all of it."""
    made = hooks(kernels or {})
    refuse_unused(made, (str(n.target) for n in model.module.graph.nodes))
    reasons = refused(model, made)
    return MixedCall(model, reasons, compile) if reasons else None
