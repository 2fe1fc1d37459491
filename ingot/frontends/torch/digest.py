"""The digest of an FxModel, for the model cache: its graph, types, constants and call."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from ingot.frontends.torch.hooks import CONVERTERS, LIBRARY
from ingot.frontends.torch.model import FxModel
from ingot.frontends.torch.tensors import to_array
from ingot.support.file_digest import ModelIdentity


def identity(model: FxModel) -> ModelIdentity | None:
    """None for a graph that its text does not define: one of sub-graphs, of user's converters."""
    targets = {str(node.target) for node in model.module.graph.nodes}
    if targets & CONVERTERS or any(n.op == "get_attr" for n in model.module.graph.nodes):
        return None
    digest = hashlib.sha256(torch.__version__.encode())
    for node in model.module.graph.nodes:
        row = (node.name, node.op, str(node.target), node.args, node.kwargs, _type(node))
        digest.update(repr(row).encode())
    for target in sorted(targets & LIBRARY.keys()):
        digest.update(repr((target, LIBRARY[target]({}))).encode())
    tied = dict[int, str]()  # address → the first placeholder there
    for placeholder in model.placeholders:
        digest.update(repr((placeholder.name, placeholder.kind, placeholder.order)).encode())
        if placeholder.tensor is not None:
            _add(digest, placeholder.tensor)
            first = tied.setdefault(placeholder.tensor.data_ptr(), placeholder.name)
            digest.update(first.encode())
    call = model.signature.text() if model.signature else ""
    ranges = sorted((str(symbol), str(found)) for symbol, found in model.ranges.items())
    digest.update(repr((model.outputs, ranges, sorted(model.names.items()), call)).encode())
    return ModelIdentity(digest.hexdigest())


def _type(node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return [
        (str(v.dtype), str(tuple(v.shape)), str(v.stride())) if isinstance(v, torch.Tensor) else v
        for v in values
    ]


def _add(digest: Any, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(to_array(tensor.contiguous()).reshape(-1).view("u1").data)
