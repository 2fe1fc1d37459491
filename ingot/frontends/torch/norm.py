"""Converters of normalisation: batch, layer, group, RMS.

In: x, and scales and shifts, which may be absent. Out: nodes of ops/norm.py, and statistics in f32
or wider where a result has them. Called by the importer. While training, a batch norm's statistics
are the batch's own, and the running ones are results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import cast, filled
from ingot.frontends.torch.reduce import variance
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

Results = tuple[Value | None, ...]


def widest(*values: Value | None) -> DType:
    """x and its parameters may differ in type."""
    kinds = {v.dtype for v in values if v is not None}
    return kinds.pop() if len(kinds) == 1 else max(map(wide_dtype, kinds), key=lambda d: d.bits)


def parameter(ctx: Importer, given: Value | None, value: float, shape: Any, dtype: DType) -> Value:
    """A scale or shift; one that is absent is constant."""
    if given is None:
        return filled(ctx, value, dtype, shape)
    return cast(ctx, reshape(ctx, given, shape), dtype)


def row_statistics(
    ctx: Importer, x: Value, axes: Sequence[int], eps: float
) -> tuple[Value, Value, Value]:
    """x in f32 or wider, its mean and the inverse of its deviation, over the axes that are kept."""
    wide = cast(ctx, x, wide_dtype(x.dtype))
    var, centre = variance(ctx, wide, axes, 0, True)
    return wide, centre, (Term(ctx, var) + eps).op("rsqrt").value


def affine(
    ctx: Importer, x: Value, weight: Value | None, bias: Value | None, dtype: DType
) -> Value:
    term = Term(ctx, x)
    term = term if weight is None else term * Term(ctx, cast(ctx, weight, x.dtype))
    term = term if bias is None else term + Term(ctx, cast(ctx, bias, x.dtype))
    return cast(ctx, term.value, dtype)


# --- layers and rows ----------------------------------------------------------------------------


@aten("aten.layer_norm.default")
def layer_norm(
    ctx: Importer, node: TorchNode, x: Value, shape: Sequence[Any], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn: bool = True,
) -> Value:  # fmt: skip
    axis = x.tensor.rank - len(shape)
    wide = widest(x, weight, bias)
    scale = parameter(ctx, weight, 1, x.shape[axis:], wide)
    shift = None if bias is None else cast(ctx, bias, wide)
    made = ctx.g.add("layer_norm", [cast(ctx, x, wide), scale, shift], axis=axis, epsilon=eps)
    return cast(ctx, made, node.output.dtype)


@aten("aten.native_layer_norm.default")
def native_layer_norm(
    ctx: Importer, node: TorchNode, x: Value, shape: Sequence[Any], weight: Value | None,
    bias: Value | None, eps: float,
) -> Results:  # fmt: skip
    y = layer_norm(ctx, node, x, shape, weight, bias, eps)
    if not reads(node, 1, 2):
        return y, None, None
    axes = range(x.tensor.rank - len(shape), x.tensor.rank)
    _, centre, inverse = row_statistics(ctx, x, axes, eps)
    return y, typed(ctx, node, centre, 1), typed(ctx, node, inverse, 2)


def reads(node: TorchNode, *results: int) -> bool:
    """Whether any of these results has a reader, or the node's results are one argument."""
    used = {u.args[1] if getattr(u.target, "__name__", "") == "getitem" else None
            for u in node.fx.users}  # fmt: skip
    return None in used or not used.isdisjoint(results)


def typed(ctx: Importer, node: TorchNode, x: Value, result: int) -> Value:
    """Statistics in the shape and type that tracing found."""
    wanted = node.outputs[result]
    assert wanted is not None
    return cast(ctx, reshape(ctx, x, wanted.shape), wanted.dtype)


@aten("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    ctx: Importer, node: TorchNode, x: Value, shape: Sequence[Any], weight: Value | None = None,
    eps: float | None = None,
) -> Any:  # fmt: skip
    """The default of eps is that of the type in which the norm is computed."""
    axis = x.tensor.rank - len(shape)
    wide = widest(x, weight)
    limit = {dtypes.f64: 2.220446049250313e-16}.get(wide_dtype(x.dtype), 1.1920928955078125e-07)
    scale = parameter(ctx, weight, 1, x.shape[axis:], wide)
    epsilon = limit if eps is None else eps
    made = ctx.g.add("rms_norm", [cast(ctx, x, wide), scale], axis=axis, epsilon=epsilon)
    made = cast(ctx, made, node.output.dtype)
    if len(node.outputs) == 1:
        return made
    square = Term(ctx, cast(ctx, x, wide_dtype(x.dtype)))
    axes = tuple(range(axis, x.tensor.rank))
    mean = ctx.g.add("reduce_mean", [(square * square).value], axes=axes, keepdims=True)
    return made, typed(ctx, node, (Term(ctx, mean) + epsilon).op("rsqrt").value, 1)


# --- groups -------------------------------------------------------------------------------------


@aten("aten.group_norm.default")
def group_norm(
    ctx: Importer, node: TorchNode, x: Value, groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn: bool = True,
) -> Value:  # fmt: skip
    wide, channels = widest(x, weight, bias), (x.shape[1],)
    operands = [
        cast(ctx, x, wide), parameter(ctx, weight, 1, channels, wide),
        parameter(ctx, bias, 0, channels, wide),
    ]  # fmt: skip
    if x.tensor.rank == 2:
        operands[0] = reshape(ctx, operands[0], (*x.shape, 1))
    made = ctx.g.add("group_norm", operands, groups=groups, epsilon=eps)
    return cast(ctx, reshape(ctx, made, x.shape), node.output.dtype)


@aten("aten.native_group_norm.default")
def native_group_norm(
    ctx: Importer, node: TorchNode, x: Value, weight: Value | None, bias: Value | None, n: Any,
    c: Any, space: Any, groups: int, eps: float,
) -> Results:  # fmt: skip
    y = group_norm(ctx, node, x, groups, weight, bias, eps)
    if not reads(node, 1, 2):
        return y, None, None
    size = tidy(ctx, x.tensor.numel // tidy(ctx, x.shape[0] * groups))
    rows = reshape(ctx, x, (x.shape[0], groups, size))
    _, centre, inverse = row_statistics(ctx, rows, (2,), eps)
    return y, typed(ctx, node, centre, 1), typed(ctx, node, inverse, 2)


# --- batches ------------------------------------------------------------------------------------


def batch_norm(
    ctx: Importer, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value,
    eps: float, dtype: DType,
) -> Value:  # fmt: skip
    """With given statistics: one multiplication and one addition."""
    wide, channels = widest(x, weight, bias, mean, var), (x.shape[1],)
    operands = [
        cast(ctx, x, wide), parameter(ctx, weight, 1, channels, wide),
        parameter(ctx, bias, 0, channels, wide), cast(ctx, mean, wide), cast(ctx, var, wide),
    ]  # fmt: skip
    return cast(ctx, ctx.g.add("batch_norm", operands, epsilon=eps), dtype)


@aten(
    "aten._native_batch_norm_legit_no_training.default", "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit_functional.default", "aten.native_batch_norm.default",
    "aten._batch_norm_with_update_functional.default", "aten._batch_norm_no_update.default",
    "aten._batch_norm_with_update.default",
)  # fmt: skip
def native_batch_norm(
    ctx: Importer, node: TorchNode, x: Value, weight: Value | None, bias: Value | None,
    mean: Value | None, var: Value | None, *more: Any,
) -> Results:  # fmt: skip
    has_flag = isinstance(more[0], bool)
    is_training = more[0] if has_flag else "with_update" in node.target
    momentum, eps = more[1:] if has_flag else more
    return batch_norm_of(ctx, node, x, weight, bias, mean, var, is_training, momentum, eps)


@aten("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    ctx: Importer, node: TorchNode, x: Value, weight: Value | None, bias: Value | None,
    training: bool, momentum: float, eps: float,
) -> Results:  # fmt: skip
    return batch_norm_of(ctx, node, x, weight, bias, None, None, True, momentum, eps)


def batch_norm_of(
    ctx: Importer, node: TorchNode, x: Value, weight: Value | None, bias: Value | None,
    mean: Value | None, var: Value | None, is_training: bool, momentum: float, eps: float,
) -> Results:  # fmt: skip
    dtype = node.output.dtype
    if not is_training and mean is not None and var is not None:
        y = batch_norm(ctx, x, weight, bias, mean, var, eps, dtype)
        kept = (
            fitted(ctx, node, v, 3 + k) for k, v in enumerate((mean, var)[: len(node.outputs) - 3])
        )
        return y, *saved(ctx, node, mean, var, eps), *kept
    axes = tuple(k for k in range(x.tensor.rank) if k != 1)
    wide, centre, inverse = row_statistics(ctx, x, axes, eps)
    shape = (x.shape[1], *(1,) * (x.tensor.rank - 2))
    scale, shift = (None if p is None else reshape(ctx, p, shape) for p in (weight, bias))
    unit = (Term(ctx, wide) - Term(ctx, centre)) * Term(ctx, inverse)
    y = affine(ctx, unit.value, scale, shift, dtype)
    own = [fitted(ctx, node, v, k) for k, v in ((1, centre), (2, inverse))]
    given = (mean, var) if mean is not None and var is not None else ()
    running = updated(ctx, wide, axes, given, momentum)[: len(node.outputs) - 3]
    return y, *own, *(fitted(ctx, node, v, 3 + k) for k, v in enumerate(running))


def saved(ctx: Importer, node: TorchNode, mean: Value, var: Value, eps: float) -> Results:
    """Without training: nothing, or what a backward pass would read."""
    found: list[Value | None] = []
    for k in (1, 2):
        wanted = node.outputs[k] if k < len(node.outputs) else None
        is_empty = wanted is not None and arith.is_const(wanted.numel, 0)
        found.append(filled(ctx, 0, wanted.dtype, wanted.shape) if wanted and is_empty else None)
    if found == [None, None]:
        inverse = (Term(ctx, cast(ctx, var, wide_dtype(var.dtype))) + eps).op("rsqrt").value
        found = [fitted(ctx, node, v, k) for k, v in ((1, mean), (2, inverse))]
    return tuple(found)


def fitted(ctx: Importer, node: TorchNode, x: Value, result: int) -> Value | None:
    return None if node.outputs[result] is None else typed(ctx, node, x, result)


def updated(
    ctx: Importer, x: Value, axes: tuple[int, ...], given: Sequence[Value], momentum: float
) -> list[Value]:
    """The running mean and unbiased variance after this batch."""
    if not given:
        return []
    var, centre = variance(ctx, x, axes, 1, False)
    found = []
    for old, new in zip(given, (centre, var)):
        running = Term(ctx, cast(ctx, old, x.dtype)) * (1 - momentum) + Term(ctx, new) * momentum
        found.append(running.value)
    return found
