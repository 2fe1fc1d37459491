"""Custom operators of torch.nn that stand for a composite one: their decompositions.

torch writes them to save memory and to find gradients in the forward pass, in pieces that update
tensors in place. For inference they are what they are defined to equal. Out: decompositions, by
operator. Called by program.py and aot.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy, linear, log_softmax


def reduced_loss(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    class_weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    smoothing: float,
    *options: Any,
) -> tuple[torch.Tensor, ...]:
    """The loss; the gradients that are asked for are not computed."""
    if any(options[-3:]):
        raise NotImplementedError("gradients of linear_cross_entropy")
    loss = cross_entropy(
        linear(x, weight, bias),
        target,
        weight=class_weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=smoothing,
    )
    return loss, x.new_empty((0, 0)), weight.new_empty((0, 0)), weight.new_empty((0,))


def losses(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    class_weight: torch.Tensor | None,
    ignore_index: int,
    *options: Any,
) -> torch.Tensor:
    """The loss of each sample."""
    shares = log_softmax(linear(x, weight, bias), 1)
    kept = target != ignore_index
    known = torch.where(kept, target, 0)
    found = -shares.gather(1, known[:, None])[:, 0]
    found = found if class_weight is None else found * class_weight[known]
    return torch.where(kept, found, 0)


BODIES = {
    "_linear_cross_entropy_batch_chunked": reduced_loss,
    "_linear_cross_entropy_batch_chunked_no_reduction": losses,
}


def bodies() -> dict[Any, Any]:
    """Those of them that this torch has."""
    try:
        from torch.nn.modules import linear_cross_entropy as module
    except ImportError:
        return {}
    found = {name: getattr(module, name, None) for name in BODIES}
    return {op._opoverload: BODIES[name] for name, op in found.items() if op is not None}
