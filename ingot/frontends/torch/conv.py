"""Converters of convolutions, transposed ones and sums of windows (col2im).

In: x (batch, channels, *space) or without a batch, weights, maybe a bias. Out: nodes of ops/conv.py
and ops/conv_transpose.py. Called by the importer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import cast, numbers_for
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.graph.ir import Value

Numbers = int | Sequence[int]


@aten("aten.convolution.default")
def convolution(
    ctx: Importer, node: TorchNode, x: Value, w: Value, bias: Value | None, stride: Numbers,
    padding: Any, dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
) -> Value:  # fmt: skip
    """A map without a batch is a batch of one."""
    axes = w.tensor.rank - 2
    batch = x if x.tensor.rank == axes + 2 else reshape(ctx, x, (1, *x.shape))
    begins, ends = pads_of(ctx, w, padding, numbers_for(dilation, axes), numbers_for(stride, axes))
    attrs = {
        "strides": numbers_for(stride, axes), "dilations": numbers_for(dilation, axes),
        "pads": (*begins, *ends), "group": groups,
    }  # fmt: skip
    made = (transposed_conv if transposed else plain_conv)(
        ctx, batch, w, bias, attrs, numbers_for(output_padding, axes)
    )
    made = cast(ctx, made, x.dtype)
    return made if x.tensor.rank == axes + 2 else reshape(ctx, made, made.shape[1:])


def pads_of(
    ctx: Importer, w: Value, padding: Any, dilation: Sequence[int], stride: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Numbers, "valid" or "same": an odd element goes to the end."""
    axes = w.tensor.rank - 2
    if padding == "valid":
        return (0,) * axes, (0,) * axes
    if padding == "same":
        totals = [tidy(ctx, (k - 1) * d) for k, d in zip(w.shape[2:], dilation)]
        halves = tuple(tidy(ctx, total // 2) for total in totals)
        return halves, tuple(tidy(ctx, total - half) for total, half in zip(totals, halves))
    found = numbers_for(padding, axes)
    return found, found


def plain_conv(
    ctx: Importer, x: Value, w: Value, bias: Value | None, attrs: dict[str, Any], extra: Any
) -> Value:
    """Sums of 8-bit integers are i32, and wrap."""
    operands = [x, w] if bias is None else [x, w, bias]
    if x.dtype.is_int and x.dtype.bits < 32:
        operands = [cast(ctx, v, dtypes.i32) for v in operands]
    return ctx.g.add("conv", operands, **attrs)


def transposed_conv(
    ctx: Importer, x: Value, w: Value, bias: Value | None, attrs: dict[str, Any], extra: Any
) -> Value:
    operands = [x, w] if bias is None else [x, w, bias]
    return ctx.g.add("conv_transpose", operands, output_padding=extra, **attrs)


for _axes in (1, 2, 3):

    @aten(f"aten.conv{_axes}d.default", f"aten.conv{_axes}d.padding")
    def conv_nd(
        ctx: Importer, node: TorchNode, x: Value, w: Value, bias: Value | None = None,
        stride: Numbers = 1, padding: Any = 0, dilation: Numbers = 1, groups: int = 1,
    ) -> Value:  # fmt: skip
        return convolution(ctx, node, x, w, bias, stride, padding, dilation, False, 0, groups)

    _suffix = "default" if _axes == 1 else "input"

    @aten(f"aten.conv_transpose{_axes}d.{_suffix}")
    def conv_transpose_nd(
        ctx: Importer, node: TorchNode, x: Value, w: Value, bias: Value | None = None,
        stride: Numbers = 1, padding: Any = 0, output_padding: Numbers = 0, groups: int = 1,
        dilation: Numbers = 1,
    ) -> Value:  # fmt: skip
        return convolution(
            ctx, node, x, w, bias, stride, padding, dilation, True, output_padding, groups
        )


@aten("aten.col2im.default")
def col2im(
    ctx: Importer, node: TorchNode, x: Value, size: Sequence[Any], kernel: Sequence[int],
    dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int],
) -> Value:  # fmt: skip
    """(n, c · kernel, blocks): the sums of the elements of windows that lie on each other."""
    batch = x if x.tensor.rank == 3 else reshape(ctx, x, (1, *x.shape))
    taps = kernel[0] * kernel[1]
    rows = zip(size, padding, dilation, kernel, stride)
    blocks = [tidy(ctx, (n + 2 * p - d * (k - 1) - 1) // s + 1) for n, p, d, k, s in rows]
    channels = tidy(ctx, batch.shape[1] // taps)
    windows = reshape(ctx, batch, (batch.shape[0], channels, *kernel, *blocks))
    attrs: dict[str, Any] = {
        "strides": tuple(stride), "dilations": tuple(dilation), "pads": (*padding, *padding)
    }  # fmt: skip
    image = tuple(map(arith.wrap, size))
    return reshape(ctx, ctx.g.add("col2im", [windows], image=image, **attrs), node.output.shape)
