"""Modules through the importer and the graph interpreter: no code is generated.

In: a function of tensors, tensors, maybe the dynamic dimensions of each. Out: the results, for the
same or for other tensors. Used by tests of converters, and by the conformance suite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ingot.frontends.torch.model import FxModel
from ingot.frontends.torch.program import of_program
from ingot.frontends.torch.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.torch.graph_call import GraphCall


class Interpreted:
    """What a call needs of an executable."""

    def __init__(self, model: FxModel) -> None:
        self.store = ConstantStore()
        self.graph = import_model(model, self.store)
        ports = {"inputs": self.graph.inputs, "outputs": self.graph.outputs}
        self.package = SimpleNamespace(**ports, borrowed=())

    def _run(self, arrays: list[np.ndarray], outputs: None) -> list[np.ndarray]:
        found = interp.run(self.graph, self.store, arrays)
        given = {value.name: array for value, array in zip(self.graph.inputs, arrays)}
        for value, array in zip(self.graph.outputs, found):
            if value.name.endswith(".new"):
                given[value.name.removesuffix(".new")][...] = array
        return [np.array(array, order="C") for array in found]


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def imported(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor], dynamic: Any = None
) -> Callable[..., list[torch.Tensor]]:
    """The function by the interpreter. `dynamic`: for each tensor, its dynamic axes."""
    axes = torch.export.Dim.DYNAMIC
    shapes = None if dynamic is None else (tuple(dict.fromkeys(d, axes) for d in dynamic),)
    program = torch.export.export(
        Call(function).eval(), tuple(tensors), dynamic_shapes=shapes, strict=False
    )
    model = of_program(program)
    call = GraphCall(model, Interpreted(model))  # type: ignore[arg-type]

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        found = iter(given)
        inputs = [next(found) if p.kind == "input" else p.tensor for p in model.placeholders]
        return list(call(inputs))

    return run


def check(function: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """The importer's results are eager's."""
    compare(imported(function, tensors), function, tensors)


def compare(run: Callable, function: Callable, tensors: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        wanted = pytree.tree_leaves(function(*tensors))
    for have, want in zip(run(*tensors), wanted, strict=True):
        torch.testing.assert_close(have, want, equal_nan=True)
