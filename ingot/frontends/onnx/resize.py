"""ONNX converters of the resize family: Resize of every opset, and Upsample.

In: ONNX nodes. Out: a `resize` node (ops/resize.py) for each axis that changes. Called by walker.
Sizes may be expressions over symbols; scales are numbers, quotients of sizes, or values that the
run computes: the output's sizes are then symbols that it binds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import axes_of, bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.runtime_axes import bound_sizes
from ingot.graph.ir import Value
from ingot.ops.common import same_dim

MAX_DENOMINATOR = 4096  # of a fraction that replaces an f32 scale; heuristic


@onnx_op("Upsample")
def upsample_image(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    scales = [1.0, 1.0, *(float(node.attr(f"{side}_scale", 1.0)) for side in ("height", "width"))]
    return [resized_asymmetric(ctx, node, Wanted.scaled(ctx, ctx.value(node, 0), scales))]


@onnx_op("Upsample", since=7)
def upsample_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    scales = [float(s) for s in node.attr("scales")]
    return [resized_asymmetric(ctx, node, Wanted.scaled(ctx, ctx.value(node, 0), scales))]


@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def resize_old(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axes = list(range(x.tensor.rank))
    return [resized_asymmetric(ctx, node, given_scales(ctx, node, 1, x, axes))]


def resized_asymmetric(ctx: Importer, node: OnnxNode, wanted: Wanted) -> Value:
    """Before opset 11: asymmetric coordinates; nearest rounds down, or up for down-sampling."""
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    if mode not in ("nearest", "linear"):
        raise bad_model(node, f"mode {mode!r} is not nearest or linear")
    given = ctx.value(node, 0)
    check_axes(node, given, range(len(wanted.sizes)))
    x = widened(ctx, given, mode)
    attrs = {"mode": mode, "coordinates": "asymmetric", "rounding": "by_scale"}
    for axis, (size, scale) in enumerate(zip(wanted.sizes, wanted.scales)):
        if isinstance(scale, float):
            attrs["rounding"] = "floor" if scale >= 1 else "ceil"
        x = resized(ctx, x, axis, size, scale, attrs)
    return cast(ctx, x, given.dtype)


@onnx_op("Resize", since=11)
def resize(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    given = ctx.value(node, 0)
    x, rank = widened(ctx, given, node.attr("mode", "nearest")), given.tensor.rank
    axes = axes_of(node, node.attr("axes", list(range(rank))), rank)
    wanted = wanted_sizes(ctx, node, x, axes)
    if len(wanted.sizes) != len(axes):
        raise bad_model(node, f"it has {len(wanted.sizes)} sizes or scales for {len(axes)} axes")
    attrs, roi = settings(ctx, node), region(ctx, node, len(axes))
    crops = attrs["coordinates"] == "tf_crop_and_resize"
    for position, (axis, size, scale) in enumerate(zip(axes, wanted.sizes, wanted.scales)):
        part = None
        if crops:
            attrs["extrapolation"] = float(node.attr("extrapolation_value", 0.0))
            if isinstance(roi, Value):
                part = ends_of(ctx, roi, position, len(axes))
            else:
                attrs["roi"] = (roi[position], roi[position + len(axes)])
        x = resized(ctx, x, axis, size, scale, attrs, part, always=crops)
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


def region(ctx: Importer, node: OnnxNode, count: int) -> list[float] | Value:
    """The region of interest: all starts, then all ends; the whole input if absent or empty. A
    value if it is known only at run time."""
    whole = [0.0] * count + [1.0] * count
    if node.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return whole
    given = ctx.known(node, 1)
    if given is None:
        late = ctx.optional(node, 1)
        if late is None or arith.is_const(late.tensor.numel, 0):
            return whole
        if arith.as_int(late.tensor.numel) != 2 * count:
            raise bad_model(node, f"roi {late.type} does not fit {count} axes")
        return cast(ctx, reshape(ctx, late, (2 * count,)), dtypes.f32)
    found = [float(v) for v in given.reshape(-1)]
    if found and len(found) != 2 * count:
        raise bad_model(node, f"roi has {len(found)} values for {count} axes")
    return found or whole


def ends_of(ctx: Importer, roi: Value, position: int, count: int) -> Value:
    """Start and end of one axis, f32[2]."""
    return ctx.g.add("slice", [roi], starts=(position,), sizes=(2,), steps=(count,))


@dataclass(frozen=True)
class Wanted:
    """Output sizes, and scales: numbers, values known at run time, or None if the sizes imply
    them."""

    sizes: list[arith.Expr]
    scales: Sequence[float | Value | None]

    @classmethod
    def scaled(
        cls, ctx: Importer, x: Value, scales: Sequence[float], axes: Sequence[int] | None = None
    ) -> Wanted:
        each = zip(range(x.tensor.rank) if axes is None else axes, scales)
        return cls([scaled_size(ctx, x.shape[axis], scale) for axis, scale in each], scales)


def wanted_sizes(ctx: Importer, node: OnnxNode, x: Value, axes: Sequence[int]) -> Wanted:
    if is_given(ctx, node, 2):
        if is_given(ctx, node, 3):
            raise bad_model(node, "it has both scales and sizes")
        return given_scales(ctx, node, 2, x, axes)
    if not is_given(ctx, node, 3):
        raise bad_model(node, "it has neither scales nor sizes")
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        sizes = list(ctx.dims(node, 3))
        return Wanted(sizes, [None] * len(sizes))
    if policy not in ("not_larger", "not_smaller"):
        raise bad_model(node, f"keep_aspect_ratio_policy {policy!r} is unknown")
    return kept_aspect(ctx, node, x, axes, policy)


def is_given(ctx: Importer, node: OnnxNode, index: int) -> bool:
    """Whether an operand is present; an empty one counts as absent."""
    value = ctx.optional(node, index)
    return value is not None and not any(arith.is_const(d, 0) for d in value.shape)


def kept_aspect(
    ctx: Importer, node: OnnxNode, x: Value, axes: Sequence[int], policy: str
) -> Wanted:
    """One scale for all axes: the smallest or the largest implied by the sizes."""
    known = ctx.known(node, 3)
    given = [arith.as_int(x.shape[a]) for a in axes]
    if known is None or None in given:
        return kept_aspect_at_run_time(ctx, node, x, axes, policy)
    wanted = known.reshape(-1).tolist()
    ratios = [np.float32(w) / np.float32(g) for w, g in zip(wanted, given)]  # type: ignore[arg-type]
    scale = float(min(ratios) if policy == "not_larger" else max(ratios))
    rounded: list[arith.Expr] = [arith.Const(math.floor(scale * g + 0.5)) for g in given]  # type: ignore[operator]
    return Wanted(rounded, [scale] * len(rounded))


def kept_aspect_at_run_time(
    ctx: Importer, node: OnnxNode, x: Value, axes: Sequence[int], policy: str
) -> Wanted:
    g, wanted = ctx.g, cast(ctx, ctx.value(node, 3), dtypes.f32)
    extents = float_sizes(ctx, x, axes)
    reduce = "reduce_min" if policy == "not_larger" else "reduce_max"
    scale = g.add(reduce, [g.add("div", [wanted, extents])], axes=(0,), keepdims=False)
    half = scalar(ctx, 0.5, dtypes.f32)
    sizes = g.add("add", [g.add("mul", [extents, scale]), half])
    return Wanted(bound_floors(ctx, sizes), [scale] * len(axes))


def float_sizes(ctx: Importer, x: Value, axes: Sequence[int]) -> Value:
    sizes = tuple(x.shape[axis] for axis in axes)
    return cast(ctx, ctx.g.add("index_tensor", [], values=sizes, shape=(len(sizes),)), dtypes.f32)


def bound_floors(ctx: Importer, sizes: Value) -> list[arith.Expr]:
    """Sizes that the run computes as floats, rounded down, as symbols."""
    return list(bound_sizes(ctx, cast(ctx, ctx.g.add("floor", [sizes]), dtypes.i64)))


def given_scales(
    ctx: Importer, node: OnnxNode, index: int, x: Value, axes: Sequence[int]
) -> Wanted:
    known = ctx.known(node, index)
    if known is not None:
        return Wanted.scaled(ctx, x, [float(v) for v in known.reshape(-1)], axes)
    scales = cast(ctx, ctx.value(node, index), dtypes.f32)
    if arith.as_int(scales.tensor.numel) != len(axes):
        raise bad_model(node, f"scales {scales.type} do not fit {len(axes)} axes")
    sizes = bound_floors(ctx, ctx.g.add("mul", [float_sizes(ctx, x, axes), scales]))
    parts = [
        ctx.g.add("slice", [scales], starts=(k,), sizes=(1,), steps=(1,)) for k in range(len(axes))
    ]
    return Wanted(sizes, [reshape(ctx, part, ()) for part in parts])


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


def check_axes(node: OnnxNode, x: Value, wanted: Iterable[int]) -> None:
    if any(axis >= x.tensor.rank for axis in wanted):
        raise bad_model(node, f"it resizes {len(list(wanted))} axes of {x.type}")


def resized(
    ctx: Importer,
    x: Value,
    axis: int,
    size: arith.Expr,
    scale: float | Value | None,
    attrs: Mapping[str, Any],
    roi: Value | None = None,
    always: bool = False,
) -> Value:
    """x with one axis resized; x itself if its size does not change."""
    if isinstance(scale, Value) or roi is not None:
        late = scale if isinstance(scale, Value) else None
        more = {**attrs, "scale": scale} if isinstance(scale, float) else attrs
        return ctx.g.add("resize", [x, late, roi], axis=axis, size=tidy(ctx, size), **more)
    if not always and same_dim(size, x.shape[axis]) and scale in (None, 1.0):
        return x
    given = attrs if scale is None else {**attrs, "scale": scale}
    return ctx.g.add("resize", [x], axis=axis, size=tidy(ctx, size), **given)
