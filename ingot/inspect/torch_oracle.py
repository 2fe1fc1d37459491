"""Every value of an exported PyTorch program as torch computes it, node by node.

In: a .pt2 file or an ExportedProgram; inputs by name. Out: arrays by the names of the program's own
nodes. Loaded by name: it imports torch. Called by imported.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch

from ingot.support.errors import IngotError


class _Recorder(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule):
        super().__init__(module)
        self.found: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.found[n.name] = value.detach().clone()
        return value


def values(model: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs and all values that are tensors, in the order of the nodes."""
    if isinstance(model, str | PathLike):
        model = torch.export.load(fspath(model))
    if not isinstance(model, torch.export.ExportedProgram):
        hint = "give a .pt2 file, or an ExportedProgram"
        raise IngotError("bad-option", f"torch cannot run a {type(model).__name__}", hint=hint)
    names = model.graph_signature.user_inputs
    missing = [name for name in names if name not in feeds]
    if missing:
        raise IngotError("bad-input", f"no array is given for {missing[0]!r}")
    module = model.module()
    recorder = _Recorder(module)
    tensors = [_tensor(feeds[name]) for name in names]
    with torch.no_grad():
        recorder.run(*tensors)
    found = {name: _array(tensor) for name, tensor in recorder.found.items()}
    return {**feeds, **{name: array for name, array in found.items() if array is not None}}


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _array(tensor: torch.Tensor) -> np.ndarray | None:
    """None for what numpy has no type for."""
    if tensor.dtype == torch.bfloat16:
        return tensor.to(torch.float32).numpy()
    return tensor.numpy() if tensor.layout == torch.strided and not tensor.is_complex() else None
