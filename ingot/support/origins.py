"""Reading origins: where a node of a graph or a kernel comes from, in the model's own names.

    node 'conv1' (Conv); node 'relu1' (Relu)                   of an ONNX file
    linear (aten.linear.default), in module fc (Linear), …     of a PyTorch module

The importers write them (frontends/), fused nodes and kernels join those of their parts by "; ".
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

_ONNX = re.compile(
    r"""(?:^|; )node (?P<name>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") \((?P<operator>[^()]*)\)"""
)
_TORCH = re.compile(
    r"(?:^|; )(?P<name>\w+) \((?P<operator>\w+\.[\w.]+)\)(?:, in module (?P<module>[\w.]+) \()?"
)


class ModelNode(NamedTuple):
    name: str
    operator: str
    module: str = ""  # of PyTorch: the module that made the call

    @property
    def layer(self) -> str:
        """What a person would call it: the node's name, or of PyTorch the module and the node."""
        return f"{self.module}:{self.name}" if self.module else self.name


def model_nodes(origin: str) -> list[ModelNode]:
    """The model's nodes that an origin names, in order."""
    rows = _ONNX.finditer(origin)
    found = [ModelNode(ast.literal_eval(m["name"]), m["operator"]) for m in rows]
    if found:
        return found
    calls = _TORCH.finditer(origin)
    return [ModelNode(m["name"], m["operator"], m["module"] or "") for m in calls]


def layer_names(origin: str) -> str:
    """The nodes of an origin in a few words: "conv1 + relu1"."""
    return " + ".join(node.layer for node in model_nodes(origin)) or origin
