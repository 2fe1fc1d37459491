"""The back end of torch.compile. In: graphs that TorchDynamo captured. Out: functions on tensors.

    torch.compile(model, backend="ingot", options={"threads": 2, "target": "x86-64-v3"})

A graph is compiled when Dynamo has captured it; what cannot be compiled raises its IngotError when
the graph is first called, so that the caller gets it as it is. Inference only: a result that would
need a gradient raises one in backward().
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch
from torch._dynamo import disable, register_backend

from ingot import api
from ingot.frontends.torch.aot import traced
from ingot.frontends.torch.model import FxModel
from ingot.support.errors import IngotError
from ingot.torch.gradients import refusing_backward
from ingot.torch.graph_call import GraphCall
from ingot.torch.mixed import mixed_call

OPTIONS = {
    "fallback",
    "kernels",
    "threads",
    "target",
    "jobs",
    "options",
    "profile",
    "time_limit_s",
    "memory_limit_bytes",
}


def ingot(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Any = None, mode: Any = None
) -> Callable[..., Any]:
    """The function that Dynamo calls in the place of a graph."""
    settings = _settings(options)
    has_fallback = settings.pop("fallback", False)
    kernels = settings.get("kernels")

    def compile(model: FxModel) -> Callable[[list[Any]], Sequence[Any]]:
        try:
            if has_fallback:
                mixed = mixed_call(model, lambda piece: api.compile(piece, **settings), kernels)
                if mixed is not None:
                    return mixed
            return GraphCall(model, api.compile(model, **settings))
        except IngotError as error:
            return _Failed(error)

    run = traced(module, inputs, compile)
    return disable(refusing_backward(run), reason="compiled by Ingot")


class _Failed:
    """A graph that cannot be compiled."""

    def __init__(self, error: IngotError):
        self._error = error

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        raise self._error


def _settings(options: Any) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        what = f"options is a {type(options).__name__}"
        raise IngotError("bad-option", what, hint='options={"threads": 2}')
    unknown = sorted(set(options or ()) - OPTIONS)
    if unknown:
        hint = "there are " + ", ".join(sorted(OPTIONS))
        raise IngotError("bad-option", f"options has no {unknown[0]!r}", hint=hint)
    return dict(options or {})


def _register() -> None:
    """PyTorch itself registers the back end of an entry point, and refuses a second of the name; a
    tree of sources that is not installed has no entry point."""
    if "ingot" not in entry_points(group="torch_dynamo_backends").names:
        register_backend(compiler_fn=ingot, name="ingot")


_register()
