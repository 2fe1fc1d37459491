"""Training is not supported: a backward() through a compiled graph raises an IngotError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ingot.support.errors import IngotError


class _Refusal(torch.autograd.Function):
    """The identity; its backward raises."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, *results: torch.Tensor) -> Any:
        return tuple(r.view_as(r) for r in results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        what = "a graph compiled by Ingot has no backward: it is for inference"
        hint = "call the model under torch.no_grad(), and train it with another back end"
        raise IngotError("unsupported-op", what, hint=hint)


def refusing_backward(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, with results that require a gradient where eager's would."""

    def call(*args: Any) -> Any:
        results = run(*args)
        if not torch.is_grad_enabled():
            return results
        anchor = next((a for a in args if isinstance(a, torch.Tensor) and a.requires_grad), None)
        return results if anchor is None else _marked(anchor, results)

    return call


def _marked(anchor: torch.Tensor, results: Any) -> Any:
    """Results that are new tensors of floats get a backward that raises; views of inputs have
    eager's."""
    found = list(results)
    places = [
        i
        for i, r in enumerate(found)
        if isinstance(r, torch.Tensor) and r.is_floating_point() and not r.requires_grad
    ]
    if places:
        made = _Refusal.apply(anchor, *(found[i] for i in places))
        for place, tensor in zip(places, made):
            found[place] = tensor
    return type(results)(found) if isinstance(results, tuple | list) else found
