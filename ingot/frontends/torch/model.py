"""What every entry point for PyTorch makes of a model: an FX graph of ATen operators, and what its
placeholders and results are. Read by walker; made by program.py (torch.export) and by the backend
of torch.compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Placeholder:
    """kind "input": the caller gives it; "constant": a tensor that the compiler may fold and pack;
    "state": a tensor that a run updates in place; "fixed": a number or None that tracing assumed.
    `target` is the tensor's name in the module."""

    name: str
    kind: str
    target: str = ""
    tensor: torch.Tensor | None = None


@dataclass(frozen=True)
class FxModel:
    """`updates`: for each leading result, the placeholder whose memory it replaces; the others are
    the results of a call. `ranges`: sympy symbol → range. `names`: symbol's name → the caller's."""

    module: torch.fx.GraphModule
    placeholders: tuple[Placeholder, ...]
    updates: tuple[str, ...] = ()
    ranges: Mapping[Any, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    name: str = "module"

    @property
    def results(self) -> tuple[Any, ...]:
        """What the graph returns: nodes, and constants that are no tensors."""
        (output,) = (n for n in self.module.graph.nodes if n.op == "output")
        found = output.args[0]
        return tuple(found) if isinstance(found, tuple | list) else (found,)
