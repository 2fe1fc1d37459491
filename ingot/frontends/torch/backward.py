"""Converters of the gradients among the core operators: convolutions, pools.

In: the gradient of a result, and what the operator read. Out: gradients of its operands. Called by
the importer. Gradients of normalisations and of embeddings are torch's decompositions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import cast, filled, known_int, moved_axis, numbers_for
from ingot.frontends.torch.movement import part
from ingot.frontends.torch.pool import adaptive_places
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

# --- pools --------------------------------------------------------------------------------------


@aten("aten.max_pool2d_with_indices_backward.default")
def max_pool_backward(
    ctx: Importer, node: TorchNode, grad: Value, x: Value, kernel: Any, stride: Any, padding: Any,
    dilation: Any, ceil: bool, places: Value,
) -> Value:  # fmt: skip
    """Each gradient is added at the place of its maximum."""
    wide = wide_dtype(grad.dtype)
    maps = arith.product(list(x.shape[:-2]))
    zeros = filled(ctx, 0, wide, (tidy(ctx, maps), tidy(ctx, x.shape[-2] * x.shape[-1])))
    shape = (maps, grad.shape[-2] * grad.shape[-1])
    operands = [zeros, reshape(ctx, places, shape), cast(ctx, reshape(ctx, grad, shape), wide)]
    made = ctx.g.add("scatter_elements", operands, axis=1, reduction="add")
    return cast(ctx, reshape(ctx, made, x.shape), node.output.dtype)


@aten("aten.avg_pool2d_backward.default")
def avg_pool_backward(
    ctx: Importer, node: TorchNode, grad: Value, x: Value, kernel: Any, stride: Any, padding: Any,
    ceil: bool, with_pad: bool, divisor: int | None,
) -> Value:  # fmt: skip
    """Each gradient is shared by the elements of its window."""
    sizes, pads = numbers_for(kernel, 2), numbers_for(padding, 2)
    steps = numbers_for(stride, 2) if stride else sizes
    *lead, rows, columns = x.shape
    count = tidy(ctx, arith.product([arith.Const(1), *lead]))
    wide = reshape(ctx, cast(ctx, grad, wide_dtype(grad.dtype)), (count, 1, 1, 1, *grad.shape[-2:]))
    counts = []
    for k, (n, m) in enumerate(zip((rows, columns), grad.shape[-2:])):
        size, count_of = (known_int(ctx, node, v, "a size") for v in (n, m))
        counts.append(window_counts(size, count_of, sizes[k], steps[k], pads[k], with_pad))
    table = np.outer(counts[0], counts[1]) if divisor is None else np.full((1, 1), divisor)
    shared = Term(ctx, wide) / Term(ctx, ctx.g.constant(table.astype(wide.dtype.numpy)))
    shape = (count, 1, *sizes, *grad.shape[-2:])
    windows = ctx.g.add("expand", [shared.value], shape=tuple(map(arith.wrap, shape)))
    attrs: Any = {"strides": tuple(steps), "dilations": (1, 1), "pads": (*pads, *pads)}
    made = ctx.g.add("col2im", [windows], image=(rows, columns), **attrs)
    return cast(ctx, reshape(ctx, made, x.shape), node.output.dtype)


def window_counts(
    size: int, count: int, kernel: int, step: int, pad: int, with_pad: bool
) -> np.ndarray:
    """The number of elements of each window of an axis that its mean is divided by."""
    starts = np.arange(count) * step - pad
    ends = np.minimum(starts + kernel, size + pad)
    if with_pad:
        return ends - starts
    return np.minimum(ends, size) - np.maximum(starts, 0)


@aten("aten._adaptive_avg_pool2d_backward.default")
def adaptive_backward(ctx: Importer, node: TorchNode, grad: Value, x: Value) -> Value:
    """A matrix of shares for each axis."""
    made = cast(ctx, grad, wide_dtype(grad.dtype))
    for axis in (-1, -2):
        size, count = (known_int(ctx, node, v.shape[axis], "a size") for v in (x, grad))
        places, own = adaptive_places(size, count)
        shares = np.zeros((count, size))
        for row, (at, is_own) in enumerate(zip(places, own)):
            shares[row, at[is_own]] = 1 / is_own.sum()
        matrix = ctx.g.constant(shares.astype(made.dtype.numpy))
        rows = moved_axis(ctx, made, made.tensor.rank + axis, made.tensor.rank - 1)
        product = ctx.g.add("matmul", [rows, matrix])
        made = moved_axis(ctx, product, product.tensor.rank - 1, product.tensor.rank + axis)
    return cast(ctx, made, node.output.dtype)


# --- convolutions -------------------------------------------------------------------------------


@aten("aten.convolution_backward.default")
def convolution_backward(
    ctx: Importer, node: TorchNode, grad: Value, x: Value, w: Value, bias_sizes: Any, stride: Any,
    padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
    mask: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    """Gradients of the map, the weights and the bias, where they are asked for. A transposed
    convolution is one whose map and result have changed places."""
    axes = w.tensor.rank - 2
    attrs: dict[str, Any] = {
        "strides": numbers_for(stride, axes), "dilations": numbers_for(dilation, axes),
        "pads": numbers_for(padding, axes) * 2, "group": groups,
    }  # fmt: skip
    of_map = of_weights = of_bias = None
    if mask[0]:
        of_map = (
            ctx.g.add("conv", [grad, w], **attrs)
            if transposed
            else map_gradient(ctx, grad, x, w, attrs)
        )
    if mask[1]:
        small, large = (x, grad) if transposed else (grad, x)
        of_weights = weight_gradient(ctx, small, large, w, attrs)
    if mask[2]:
        over = tuple(k for k in range(grad.tensor.rank) if k != 1)
        of_bias = ctx.g.add("reduce_sum", [grad], axes=over, keepdims=False)
    return of_map, of_weights, of_bias


def map_gradient(ctx: Importer, grad: Value, x: Value, w: Value, attrs: dict[str, Any]) -> Value:
    """The transposed convolution, up to the size of the map."""
    axes = w.tensor.rank - 2
    rows = zip(
        x.shape[2:], grad.shape[2:], w.shape[2:], attrs["strides"], attrs["dilations"],
        attrs["pads"],
    )  # fmt: skip
    extra = tuple(
        tidy(ctx, n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)) for n, m, k, s, d, p in rows
    )
    assert len(extra) == axes
    return ctx.g.add("conv_transpose", [grad, w], output_padding=extra, **attrs)


def weight_gradient(
    ctx: Importer, small: Value, large: Value, w: Value, attrs: dict[str, Any]
) -> Value:
    """A convolution of the larger map with the smaller one, where batch and channels have changed
    places, and so have strides and dilations; for each group."""
    groups, found = attrs["group"], []
    swapped: Any = {"strides": attrs["dilations"], "dilations": attrs["strides"], "group": 1}
    for k in range(groups):
        own = []
        for x in (large, small):
            size = tidy(ctx, x.shape[1] // groups)
            own.append(moved_axis(ctx, part(ctx, x, 1, tidy(ctx, size * k), size), 1, 0))
        made = ctx.g.add("conv", own, pads=attrs["pads"], **swapped)
        for axis, size in enumerate(w.shape[2:], start=2):
            made = part(ctx, made, axis, 0, size)
        found.append(moved_axis(ctx, made, 1, 0))
    return found[0] if groups == 1 else ctx.g.add("concat", found, axis=0)
