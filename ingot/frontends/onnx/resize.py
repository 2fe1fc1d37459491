"""ONNX converters of the resize family: Resize of every opset, and Upsample.

In: ONNX nodes. Out: a `resize` node (ops/resize.py) for each axis that changes. Called by walker.
Sizes may be expressions over symbols; scales are numbers, or quotients of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import Dims, cast, tidy
from ingot.frontends.onnx.common import axes_of, bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import same_dim

MAX_DENOMINATOR = 4096  # of a fraction that replaces an f32 scale; heuristic


@onnx_op("Upsample", since=7)
def upsample_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [resized_asymmetric(ctx, node, [float(s) for s in node.attr("scales")])]


@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def resize_old(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [resized_asymmetric(ctx, node, given_scales(ctx, node, 1))]


def resized_asymmetric(ctx: Importer, node: OnnxNode, scales: Sequence[float]) -> Value:
    """Before opset 11: asymmetric coordinates; nearest rounds down, or up for down-sampling."""
    wanted = dict(enumerate(scales))
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    given = ctx.value(node, 0)
    check_axes(node, given, wanted)
    x = widened(ctx, given, mode)
    for axis, scale in wanted.items():
        rounding = "floor" if scale >= 1 else "ceil"
        attrs = {"mode": mode, "coordinates": "asymmetric", "rounding": rounding}
        x = resized(ctx, x, axis, scaled_size(ctx, x.shape[axis], scale), scale, attrs)
    return cast(ctx, x, given.dtype)


@onnx_op("Resize", since=11)
def resize(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    given = ctx.value(node, 0)
    x, rank = widened(ctx, given, node.attr("mode", "nearest")), given.tensor.rank
    axes = axes_of(node, node.attr("axes", list(range(rank))), rank)
    sizes, scales = wanted_sizes(ctx, node, x, axes)
    check_axes(node, x, dict(zip(axes, sizes)))
    attrs, roi = settings(ctx, node), region(ctx, node, len(axes))
    crops = attrs["coordinates"] == "tf_crop_and_resize"
    for position, (axis, size, scale) in enumerate(zip(axes, sizes, scales)):
        if crops:
            attrs["roi"] = (roi[position], roi[position + len(axes)])
            attrs["extrapolation"] = float(node.attr("extrapolation_value", 0.0))
        x = resized(ctx, x, axis, size, scale, attrs, always=crops)
    return [cast(ctx, x, given.dtype)]


def widened(ctx: Importer, x: Value, mode: str) -> Value:
    """x in f32 (or f64) for interpolation, which is rounded once after the last axis."""
    return x if mode == "nearest" or x.dtype is dtypes.f64 else cast(ctx, x, dtypes.f32)


def settings(ctx: Importer, node: OnnxNode) -> dict[str, Any]:
    mode = node.attr("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise bad_model(node, f"mode {mode!r} is not nearest, linear or cubic")
    found: dict[str, Any] = {
        "mode": mode,
        "coordinates": node.attr("coordinate_transformation_mode", "half_pixel"),
        "rounding": node.attr("nearest_mode", "round_prefer_floor"),
    }
    if mode == "cubic":
        found["cubic_a"] = float(node.attr("cubic_coeff_a", -0.75))
        found["exclude_outside"] = bool(node.attr("exclude_outside", 0))
    if mode != "nearest":
        found["antialias"] = bool(node.attr("antialias", 0))
    return found


def region(ctx: Importer, node: OnnxNode, count: int) -> list[float]:
    """The region of interest: all starts, then all ends; the whole input if absent or empty."""
    whole = [0.0] * count + [1.0] * count
    if node.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return whole
    given = ctx.known(node, 1)
    if given is None:
        if ctx.optional(node, 1) is not None:
            raise ctx.unsupported(node, "the region of interest is computed at run time")
        return whole
    found = [float(v) for v in given.reshape(-1)]
    if found and len(found) != 2 * count:
        raise bad_model(node, f"roi has {len(found)} values for {count} axes")
    return found or whole


def wanted_sizes(
    ctx: Importer, node: OnnxNode, x: Value, axes: Sequence[int]
) -> tuple[list[arith.Expr], list[float | None]]:
    """Output sizes, and scales if they are given rather than implied."""
    if is_given(ctx, node, 2):
        if is_given(ctx, node, 3):
            raise bad_model(node, "it has both scales and sizes")
        scales = given_scales(ctx, node, 2)
        sizes = [scaled_size(ctx, x.shape[axis], s) for axis, s in zip(axes, scales)]
        return sizes, list(scales)
    if not is_given(ctx, node, 3):
        raise bad_model(node, "it has neither scales nor sizes")
    sizes = list(ctx.dims(node, 3))
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, [None] * len(sizes)
    return kept_aspect(ctx, node, x, axes, sizes, policy)


def is_given(ctx: Importer, node: OnnxNode, index: int) -> bool:
    """Whether an operand is present; an empty one counts as absent."""
    value = ctx.optional(node, index)
    return value is not None and not any(arith.is_const(d, 0) for d in value.shape)


def kept_aspect(
    ctx: Importer, node: OnnxNode, x: Value, axes: Sequence[int], sizes: Dims, policy: str
) -> tuple[list[arith.Expr], list[float | None]]:
    """One scale for all axes: the smallest or the largest implied by the sizes."""
    given, wanted = [arith.as_int(x.shape[a]) for a in axes], [arith.as_int(d) for d in sizes]
    if None in given or None in wanted:
        raise ctx.unsupported(node, f"{policy} with dynamic sizes", "give shapes=")
    ratios = [np.float32(w) / np.float32(g) for w, g in zip(wanted, given)]  # type: ignore[arg-type]
    scale = float(min(ratios) if policy == "not_larger" else max(ratios))
    rounded: list[arith.Expr] = [arith.Const(math.floor(scale * g + 0.5)) for g in given]  # type: ignore[operator]
    return rounded, [scale] * len(rounded)


def given_scales(ctx: Importer, node: OnnxNode, index: int) -> list[float]:
    numbers = ctx.known(node, index)
    if numbers is None:
        raise ctx.unsupported(
            node,
            "its scales are computed at run time",
            "export with sizes, or give shapes=",
        )
    return [float(v) for v in numbers.reshape(-1)]


def scaled_size(ctx: Importer, size: arith.Expr, scale: float) -> arith.Expr:
    """⌊size · scale⌋ in f32 arithmetic. An f32 scale near a simple fraction is replaced by it: 0.7
    of 10 is 7, although the f32 nearest to 0.7 is a little less."""
    number = arith.as_int(size)
    if number is not None:
        return arith.Const(int(np.float32(number) * np.float32(scale)))
    exact = Fraction(float(np.float32(scale)))
    simple = exact.limit_denominator(MAX_DENOMINATOR)
    if np.float32(float(simple)) != np.float32(scale):
        simple = exact
    return tidy(ctx, size * simple.numerator // simple.denominator)


def check_axes(node: OnnxNode, x: Value, wanted: Mapping[int, Any]) -> None:
    if any(axis >= x.tensor.rank for axis in wanted):
        raise bad_model(node, f"it resizes {len(wanted)} axes of {x.type}")


def resized(
    ctx: Importer,
    x: Value,
    axis: int,
    size: arith.Expr,
    scale: float | None,
    attrs: Mapping[str, Any],
    always: bool = False,
) -> Value:
    """x with one axis resized; x itself if its size does not change."""
    if not always and same_dim(size, x.shape[axis]) and scale in (None, 1.0):
        return x
    given = attrs if scale is None else {**attrs, "scale": scale}
    return ctx.g.add("resize", [x], axis=axis, size=tidy(ctx, size), **given)
