"""Samples of core operators that no entry of op_db reaches. Called by entries.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Sample = tuple[Any, tuple, dict[str, Any]]
Tensor = Callable[..., torch.Tensor]
aten = torch.ops.aten
FLOATS = ("f32", "bf16", "f64")


@dataclass(frozen=True)
class Own:
    """`make(tensor)` gives argument lists, where tensor(*shape) makes one of the case's type."""

    op: Any
    make: Callable[[Tensor], list[tuple]]
    dtypes: tuple[str, ...] = FLOATS

    def samples(self, dtype: torch.dtype) -> Iterator[Sample]:
        from torch.testing import make_tensor

        def tensor(*shape: int, low: float | None = None, high: float | None = None) -> Any:
            if dtype.is_floating_point and low is None:
                low, high = -1, 1
            return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)

        for args in self.make(tensor):
            yield self.op, args, {}


def places(*shape: int, below: int) -> torch.Tensor:
    return torch.randint(0, below, shape)


def pooled(x: torch.Tensor, *window: Any) -> tuple:
    """The arguments of the gradient of a max pool."""
    values, at = aten.max_pool2d_with_indices(x.float(), *window)
    return torch.randn_like(values).to(x.dtype), x, *window, at


def row_statistics(x: torch.Tensor, axes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.float() if x.dtype is torch.bfloat16 else x
    var, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
    return mean.to(x.dtype), torch.rsqrt(var + 1e-5).to(x.dtype)


def layer_norm_gradient(t: Tensor) -> list[tuple]:
    x = t(4, 6)
    return [(t(4, 6), x, [6], *row_statistics(x, (1,)), t(6), t(6), [True, True, True])]


def group_norm_gradient(t: Tensor) -> list[tuple]:
    x = t(2, 6, 5)
    mean, inverse = (v.view(2, 3) for v in row_statistics(x.view(2, 3, 10), (2,)))
    return [(t(2, 6, 5), x, mean, inverse, t(6), 2, 6, 5, 3, [True, True, True])]


def item(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def sizes(x: torch.Tensor) -> torch.Tensor:
    return x.new_full((2,), x.size(0) * x.numel())


PLAIN_WINDOW = ([3, 3], [2, 2], [1, 1], [1, 1], False)
CONV = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
STRIDED = ([2, 2], [1, 0], [1, 2], False, [0, 0], 2)
TRANSPOSED = ([2, 2], [1, 1], [1, 1], True, [1, 1], 1)
ALL = [True, True, True]

TABLE: dict[str, Own] = {
    "_adaptive_avg_pool2d": Own(
        aten._adaptive_avg_pool2d.default, lambda t: [(t(2, 3, 7, 9), [3, 4]), (t(3, 8, 8), [4, 1])]
    ),
    "_adaptive_avg_pool2d_backward": Own(
        aten._adaptive_avg_pool2d_backward.default,
        lambda t: [(t(2, 3, 3, 4), t(2, 3, 7, 9)), (t(3, 1, 1), t(3, 8, 8))],
    ),
    "_adaptive_avg_pool3d": Own(
        aten._adaptive_avg_pool3d.default, lambda t: [(t(2, 3, 4, 6, 8), [2, 3, 4])]
    ),
    "_cdist_forward": Own(
        aten._cdist_forward.default,
        lambda t: [(t(5, 3), t(4, 3), p, None) for p in (0.0, 1.0, 2.0, 3.5, float("inf"))],
        ("f32", "f64"),
    ),
    "_embedding_bag": Own(
        lambda *args: aten._embedding_bag.default(*args)[0],
        lambda t: [
            (t(9, 4), places(7, below=9), torch.tensor([0, 2, 2, 5]), False, mode)
            for mode in (0, 1, 2)
        ],
    ),
    "_fft_r2c": Own(
        aten._fft_r2c.default,
        lambda t: [(t(3, 8), [1], 0, True), (t(4, 6), [0, 1], 1, False), (t(7), [0], 2, True)],
        ("f32", "f64"),
    ),
    "_fft_c2r": Own(
        lambda x, *args: aten._fft_c2r.default(torch.view_as_complex(x), *args),
        lambda t: [(t(3, 5, 2), [1], 2, 8), (t(4, 4, 2), [0, 1], 1, 6)],
        ("f32", "f64"),
    ),
    "_local_scalar_dense": Own(item, lambda t: [(t(3),)], ("f32", "i64")),
    "_log_softmax": Own(
        aten._log_softmax.default, lambda t: [(t(3, 5), 1, False), (t(2, 3, 4), 0, False)]
    ),
    "_softmax": Own(aten._softmax.default, lambda t: [(t(3, 5), 1, False), (t(2, 3), -2, False)]),
    "_native_batch_norm_legit_no_training": Own(
        lambda *args: aten._native_batch_norm_legit_no_training.default(*args)[0],
        lambda t: [(t(2, 3, 4), t(3), t(3), t(3), t(3, low=0.5, high=2), 0.1, 1e-5)],
    ),
    "_pdist_forward": Own(
        aten._pdist_forward.default, lambda t: [(t(5, 3), 2.0), (t(4, 2), 1.0)], ("f32", "f64")
    ),
    "_to_copy": Own(
        lambda x, to: aten._to_copy.default(x, dtype=to),
        lambda t: [(t(3, 4), to) for to in (torch.float64, torch.int32, torch.bool, torch.half)],
        ("f32", "bf16", "f64", "i64", "bool"),
    ),
    "alias": Own(lambda x: aten.alias.default(x) + 1, lambda t: [(t(3),)], ("f32", "i64")),
    "avg_pool2d_backward": Own(
        aten.avg_pool2d_backward.default,
        lambda t: [
            (t(2, 3, 4, 4), t(2, 3, 8, 8), [2, 2], [2, 2], [0, 0], False, True, None),
            (t(2, 3, 4, 4), t(2, 3, 7, 7), [3, 3], [2, 2], [1, 1], False, False, None),
            (t(3, 4, 4), t(3, 7, 7), [3, 3], [2, 2], [1, 1], True, True, 5),
        ],
    ),
    "col2im": Own(
        aten.col2im.default,
        lambda t: [(t(2, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
                   (t(8, 4), [4, 4], [2, 2], [1, 1], [0, 0], [2, 2])],
    ),
    "convolution": Own(
        aten.convolution.default,
        lambda t: [(t(2, 4, 9, 9), t(6, 4, 3, 3), t(6), *CONV),
                   (t(2, 4, 9, 9), t(6, 2, 3, 3), None, *STRIDED),
                   (t(2, 4, 5, 5), t(4, 6, 3, 3), t(6), *TRANSPOSED)],
    ),
    "convolution_backward": Own(
        aten.convolution_backward.default,
        lambda t: [(t(2, 6, 9, 9), t(2, 4, 9, 9), t(6, 4, 3, 3), [6], *CONV, ALL),
                   (t(2, 6, 5, 3), t(2, 4, 9, 9), t(6, 2, 3, 3), [6], *STRIDED, ALL),
                   (t(2, 6, 10, 10), t(2, 4, 5, 5), t(4, 6, 3, 3), [6], *TRANSPOSED, ALL)],
        ("f32", "f64"),
    ),
    "copy": Own(aten.copy.default, lambda t: [(t(3, 4), t(4)), (t(2), t(2))], ("f32", "i64")),
    "elu": Own(aten.elu.default, lambda t: [(t(9), 1.5, 2.0, 0.5), (t(9),)]),
    "embedding": Own(aten.embedding.default, lambda t: [(t(9, 4), places(2, 3, below=9))]),
    "embedding_dense_backward": Own(
        aten.embedding_dense_backward.default,
        lambda t: [(t(2, 3, 4), places(2, 3, below=9), 9, 2, False)],
        ("f32", "f64"),
    ),
    "index": Own(
        aten.index.Tensor,
        lambda t: [(t(5, 6), [places(3, below=5)]),
                   (t(5, 6, 7), [None, places(2, 1, below=6), places(3, below=7)]),
                   (t(5, 6, 7), [places(2, below=5), None, places(2, below=7)])],
        ("f32", "bf16", "i64", "bool"),
    ),
    "max_pool2d_with_indices": Own(
        aten.max_pool2d_with_indices.default, lambda t: [(t(2, 3, 8, 8), *PLAIN_WINDOW)]
    ),
    "max_pool2d_with_indices_backward": Own(
        aten.max_pool2d_with_indices_backward.default,
        lambda t: [pooled(t(2, 3, 8, 8), *PLAIN_WINDOW)],
    ),
    "max_pool3d_with_indices": Own(
        aten.max_pool3d_with_indices.default, lambda t: [(t(2, 3, 6, 6, 6), [2, 2, 2])]
    ),
    "native_dropout": Own(
        aten.native_dropout.default, lambda t: [(t(3, 4), 0.5, True), (t(3, 4), 0.5, False)]
    ),
    "native_group_norm_backward": Own(
        aten.native_group_norm_backward.default, group_norm_gradient, ("f32", "f64")
    ),
    "native_layer_norm_backward": Own(
        aten.native_layer_norm_backward.default, layer_norm_gradient, ("f32", "f64")
    ),
    "rand": Own(lambda x: aten.rand.default([3, 4], dtype=x.dtype), lambda t: [(t(1),)]),
    "randperm": Own(lambda x: aten.randperm.default(x.shape[0]), lambda t: [(t(9),)], ("f32",)),
    "reflection_pad1d": Own(aten.reflection_pad1d.default, lambda t: [(t(2, 3, 5), [2, 1])]),
    "reflection_pad2d": Own(aten.reflection_pad2d.default, lambda t: [(t(3, 5, 6), [2, 1, 0, 3])]),
    "reflection_pad3d": Own(
        aten.reflection_pad3d.default, lambda t: [(t(2, 3, 4, 5, 6), [2, 1, 0, 3, 1, 1])]
    ),
    "replication_pad2d": Own(
        aten.replication_pad2d.default, lambda t: [(t(3, 5, 6), [2, 1, 0, 3])]
    ),
    "replication_pad3d": Own(
        aten.replication_pad3d.default, lambda t: [(t(2, 3, 4, 5, 6), [2, 1, 0, 3, 1, 1])]
    ),
    "sym_size": Own(sizes, lambda t: [(t(3, 4),)], ("f32",)),
    "upsample_bilinear2d": Own(
        aten.upsample_bilinear2d.vec,
        lambda t: [(t(1, 2, 4, 5), [7, 9], align, None) for align in (False, True)]
        + [(t(1, 2, 4, 5), None, False, [1.7, 0.6])],
    ),
    "upsample_nearest2d": Own(
        aten.upsample_nearest2d.vec,
        lambda t: [(t(1, 2, 4, 5), [7, 9], None), (t(1, 2, 4, 5), None, [1.7, 0.6])],
    ),
}  # fmt: skip
