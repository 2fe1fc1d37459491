"""Samples of core operators that no entry of op_db reaches. Called by entries.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Sample = tuple[Any, tuple, dict[str, Any]]
aten = torch.ops.aten


@dataclass(frozen=True)
class Own:
    """`make(tensor)` yields argument lists, where tensor(*shape) makes one of the type."""

    op: Any
    make: Callable[[Callable[..., torch.Tensor]], list[tuple]]
    dtypes: tuple[str, ...] = ("f32", "bf16", "f64")

    def samples(self, dtype: torch.dtype) -> Iterator[Sample]:
        from torch.testing import make_tensor

        def tensor(*shape: int, low: float | None = None) -> torch.Tensor:
            return make_tensor(shape, dtype=dtype, device="cpu", low=low)

        for args in self.make(tensor):
            yield self.op, args, {}


def index(*shape: int, below: int) -> torch.Tensor:
    return torch.randint(0, below, shape)


TABLE: dict[str, Own] = {
    "_adaptive_avg_pool2d": Own(
        aten._adaptive_avg_pool2d.default, lambda t: [(t(2, 3, 7, 9), [3, 4]), (t(3, 8, 8), [4, 1])]
    ),
}
