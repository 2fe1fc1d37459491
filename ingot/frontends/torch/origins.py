"""Where an FX node comes from, for errors and reports: its module and the user's source line."""

from __future__ import annotations

import os
import re
from typing import Any

import torch

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_OWN = os.path.dirname(torch.__file__)


def where_of(node: torch.fx.Node) -> str:
    """`linear (aten.linear.default) in encoder.fc1 (Linear), model.py:12: h = self.fc1(x)`"""
    parts = [f"{node.name} ({node.target})", _module(node), _source(node)]
    return ", ".join(part for part in parts if part)


def _module(node: torch.fx.Node) -> str:
    """The innermost module that made the call."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    name = _kind_name(kind)
    path = re.sub(r"^L\['self'\]\.?|^L__self___?", "", str(path))
    return f"in module {path} ({name})" if path else f"in module {name}"


def _kind_name(kind: Any) -> str:
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return text.rpartition(".")[2]


def _source(node: torch.fx.Node) -> str:
    """The last line of the user's own code on the stack; torch's own if there is no other."""
    lines = (node.meta.get("stack_trace") or "").splitlines()
    frames = [(i, m) for i, line in enumerate(lines) if (m := _FRAME.search(line))]
    own = [f for f in frames if not f[1]["file"].startswith((_OWN, "torch/"))]
    if not frames:
        return ""
    index, frame = (own or frames)[-1]
    code = lines[index + 1].strip() if index + 1 < len(lines) else ""
    code = "" if _FRAME.search(code) else code
    return f"{frame['file']}:{frame['line']}" + (f": {code}" if code else "")
