"""Custom operators: kernels that implement operators of a model. In: `ingot.compile(kernels={…})`.
Out: for each operator, a function from its attributes to those of the graph's `kernel` node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ingot.kernels.function import KernelFunction, wrap
from ingot.loops import ir
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError

Hook = Callable[[Mapping[str, Any]], dict[str, Any]]


def hooks(kernels: Mapping[str, Any]) -> dict[str, Hook]:
    """By operator, "domain:Op" or "Op": a kernel, or a function from attributes to a kernel."""
    if not isinstance(kernels, Mapping):
        what = f"kernels= is a {type(kernels).__name__}"
        raise IngotError("bad-option", what, hint='give {"domain:Op": kernel}')
    return {name: _hook(name, given) for name, given in kernels.items()}


def _hook(name: str, given: Any) -> Hook:
    if isinstance(given, KernelFunction | ir.Kernel | Schedule):
        attrs = wrap(given).attrs
        return lambda node_attrs: attrs
    if callable(given):
        return lambda node_attrs: wrap(given(dict(node_attrs))).attrs
    what = f"kernels[{name!r}] is a {type(given).__name__}"
    hint = "give a kernel, or a function from the node's attributes to one"
    raise IngotError("bad-option", what, hint=hint)
