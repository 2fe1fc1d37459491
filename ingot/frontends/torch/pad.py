"""Converters of padding: constant, reflected, replicated and circular.

In: a tensor, and pairs of amounts from the last axis on; negative ones crop. Out: nodes of
ops/concat_pad.py. Called by the importer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.arith import expr as arith
from ingot.frontends.common.elements import tidy
from ingot.frontends.torch.movement import part
from ingot.frontends.torch.registry import Converter, Importer, Scalar, TorchNode, aten
from ingot.graph.ir import Value

Amounts = Sequence[arith.IntLike]
MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded(
    ctx: Importer, x: Value, amounts: Amounts, mode: str, value: Value | None = None
) -> Value:
    before, after = [arith.wrap(0)] * x.tensor.rank, [arith.wrap(0)] * x.tensor.rank
    for k in range(len(amounts) // 2):
        axis = x.tensor.rank - 1 - k
        before[axis], after[axis] = arith.wrap(amounts[2 * k]), arith.wrap(amounts[2 * k + 1])
    if mode == "edge":
        return bordered(ctx, x, before, after)
    sides: Any = {"before": tuple(before), "after": tuple(after)}
    return ctx.g.add("pad", [x, value], mode=mode, **sides)


def bordered(
    ctx: Importer, x: Value, before: Sequence[arith.Expr], after: Sequence[arith.Expr]
) -> Value:
    """The border repeated, then cropped where an amount is negative."""
    sides: Any = {
        name: tuple(tidy(ctx, arith.maximum(n, 0)) for n in amounts)
        for name, amounts in (("before", before), ("after", after))
    }
    wide = ctx.g.add("pad", [x, None], mode="edge", **sides)
    for axis, (low, high) in enumerate(zip(before, after)):
        size = tidy(ctx, x.shape[axis] + low + high)
        wide = part(ctx, wide, axis, tidy(ctx, arith.maximum(-low, 0)), size)
    return wide


@aten("aten.constant_pad_nd.default")
def constant_pad(
    ctx: Importer, node: TorchNode, x: Value, pad: Amounts, value: Scalar = 0
) -> Value:
    return padded(ctx, x, pad, "constant", ctx.scalar(value, x.dtype))


@aten("aten.pad.default")
def pad_by_mode(
    ctx: Importer, node: TorchNode, x: Value, pad: Amounts, mode: str = "constant",
    value: Scalar | None = None,
) -> Value:  # fmt: skip
    if mode == "constant":
        return constant_pad(ctx, node, x, pad, 0 if value is None else value)
    return padded(ctx, x, pad, MODES[mode])


def by_border(mode: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value, pad: Amounts) -> Value:
        return padded(ctx, x, pad, mode)

    return convert


for name, mode in (("reflection", "reflect"), ("replication", "edge")):
    aten(*(f"aten.{name}_pad{axes}d.default" for axes in (1, 2, 3)))(by_border(mode))
aten("aten._pad_circular.default")(by_border("wrap"))
