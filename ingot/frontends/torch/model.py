"""What every entry point for PyTorch makes of a model: an FX graph of ATen operators, and what its
placeholders and results are. Read by walker; made by program.py (torch.export) and by the back end
of torch.compile (ingot/torch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.runtime.module_signature import ModuleSignature, Order


@dataclass(frozen=True)
class Placeholder:
    """kind "input": the caller gives it; "constant": a tensor that the compiler may fold and pack;
    "state": a tensor of the module that a run updates in place, or returns; "fixed": a number or
    None that tracing assumed. `target` is the tensor's name in the module; `order` the axes of an
    input's memory, outermost first (None: C order)."""

    name: str
    kind: str
    target: str = ""
    tensor: torch.Tensor | None = None
    order: Order | None = None


@dataclass(frozen=True)
class Output:
    """What a result of the FX graph becomes. kind "value": an output of the graph, called `name`;
    "update": likewise, written to the memory of the placeholder `updates`; "none": no output."""

    kind: str
    name: str = ""
    updates: str = ""
    order: Order | None = None


@dataclass(frozen=True)
class FxModel:
    """`outputs`: one for each result of the FX graph. `ranges`: sympy symbol → range. `names`: name
    of a symbol in torch → the caller's."""

    module: torch.fx.GraphModule
    placeholders: tuple[Placeholder, ...]
    outputs: tuple[Output, ...]
    ranges: Mapping[Any, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    name: str = "module"
    signature: ModuleSignature | None = None
    is_part: bool = False  # of a model that others run the rest of
    owner: torch.nn.Module | None = None  # has the tensors of `target`s, which it may replace

    @property
    def results(self) -> tuple[Any, ...]:
        return results_of(self.module)


def results_of(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    """What an FX graph returns: nodes, and constants that are no tensors."""
    (output,) = module.graph.find_nodes(op="output")
    found = output.args[0]
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def memory_order(tensor: torch.Tensor) -> Order | None:
    """The axes of a traced tensor's memory, outermost first, if it is dense and not in C order:
    (0, 2, 3, 1) of a map in channels-last."""
    order = _dense_order(tensor)
    if order is None:
        return None
    sizes = hints(tensor.shape) or []
    real = [axis for axis in order if sizes[axis] != 1]
    parts = (len(order),) if tensor.is_complex() else ()  # the last axis, of two
    return None if real == sorted(real) else (*order, *parts)


def is_dense(tensor: torch.Tensor) -> bool:
    """Has a traced tensor neither gaps nor repeated elements?"""
    return _dense_order(tensor) is not None


def _dense_order(tensor: torch.Tensor) -> Order | None:
    sizes, strides = hints(tensor.shape), hints(tensor.stride())
    if sizes is None or strides is None or 0 in sizes:
        return None
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], -sizes[axis], axis))
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step:
            return None
        step *= sizes[axis]
    return tuple(order)


def hints(sizes: Any) -> list[int] | None:
    """Sizes as numbers, dynamic ones as those of the example; None if there is none."""
    found = [s if isinstance(s, int) else s.node.hint for s in sizes]
    return None if any(not isinstance(n, int) for n in found) else found
