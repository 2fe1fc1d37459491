"""Converters of interpolation: nearest, linear and cubic, with or without anti-aliasing.

In: x (batch, channels, *space), and sizes or factors. Out: one `resize` node for each axis that
changes, or a gather for nearest elements, whose rounding is torch's own. Called by the importer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import tidy
from ingot.frontends.torch.common import cast
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype
from ingot.ops.resize_interpolation import KERNELS, TAPS

Factors = Sequence[float | None]


def factors_of(given: Any, axes: int, sizes: Any) -> Factors:
    """A factor for each axis, None where the sizes imply it."""
    values = [v for v in given if isinstance(v, int | float | list | tuple)]
    flat = [f for v in values for f in (v if isinstance(v, list | tuple) else [v])]
    return flat if len(flat) == axes else [None] * axes


# --- nearest ------------------------------------------------------------------------------------


def nearest(axes: int, is_exact: bool) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value, sizes: Any, *more: Any) -> Value:
        factors = factors_of(more, axes, sizes)
        for k in range(axes):
            axis = x.tensor.rank - axes + k
            x = nearest_along(ctx, x, axis, node.output.shape[axis], factors[k], is_exact)
        return x

    return convert


def nearest_along(
    ctx: Importer, x: Value, axis: int, size: arith.Expr, factor: float | None, is_exact: bool
) -> Value:
    if tidy(ctx, size) == x.shape[axis] and factor in (None, 1.0):
        return x
    count, extent = arith.as_int(size), arith.as_int(x.shape[axis])
    whole = count is not None and extent and count % extent == 0
    if whole and factor in (None, count // extent):  # type: ignore[operator]
        return resized(ctx, x, axis, size, None, {"mode": "nearest"})
    if count is None or extent is None:
        at = {"coordinates": "half_pixel" if is_exact else "asymmetric", "rounding": "floor"}
        if is_exact:
            at["rounding"] = "round_prefer_ceil"
        return resized(ctx, x, axis, size, factor, {"mode": "nearest", **at})
    step = np.float32(1 / factor) if factor else np.float32(extent) / np.float32(count)
    k = np.arange(count, dtype=np.float32)
    place = np.floor((k + np.float32(0.5)) * step if is_exact else k * step).astype(np.int64)
    return ctx.g.add("gather", [x, ctx.g.constant(np.minimum(place, extent - 1))], axis=axis)


def resized(
    ctx: Importer, x: Value, axis: int, size: arith.Expr, factor: float | None,
    attrs: dict[str, Any],
) -> Value:  # fmt: skip
    more = {} if factor is None else {"scale": float(factor)}
    defaults = {"coordinates": "asymmetric", "rounding": "floor"}
    found = {**defaults, **attrs, **more}
    return ctx.g.add("resize", [x], axis=axis, size=tidy(ctx, size), **found)


for _axes in (1, 2, 3):
    for _overload in ("default", "vec"):
        aten(f"aten.upsample_nearest{_axes}d.{_overload}")(nearest(_axes, False))
        aten(f"aten._upsample_nearest_exact{_axes}d.{_overload}")(nearest(_axes, True))


# --- interpolated -------------------------------------------------------------------------------


def interpolated(axes: int, mode: str, antialias: bool) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, sizes: Any, align: bool, *more: Any
    ) -> Value:
        factors, dtype = factors_of(more, axes, sizes), x.dtype
        y = cast(ctx, x, interpolation_type(dtype))
        for k in range(axes):
            axis = x.tensor.rank - axes + k
            size = node.output.shape[axis]
            if tidy(ctx, size) == y.shape[axis] and factors[k] in (None, 1.0):
                continue
            attrs = attributes(mode, align, antialias)
            extent, count = arith.as_int(y.shape[axis]), arith.as_int(size)
            exact = dtype is dtypes.f64 and not antialias
            if exact and extent is not None and count is not None:
                y = mixed(ctx, y, axis, positions_of(extent, count, factors[k], align), mode)
                continue
            y = resized(ctx, y, axis, size, None if align else factors[k], attrs)
        if not dtype.is_float:
            y = ctx.g.add("clip", [ctx.g.add("round", [y]), *limits(ctx, dtype, y.dtype)])
        return cast(ctx, y, dtype)

    return convert


def positions_of(size: int, count: int, factor: float | None, align: bool) -> np.ndarray:
    """Where each of `count` results lies among `size` elements, in f64."""
    k = np.arange(count, dtype=np.float64)
    if align:
        return k * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (k + 0.5) * (1 / factor if factor else size / count) - 0.5


def mixed(ctx: Importer, x: Value, axis: int, at: np.ndarray, mode: str) -> Value:
    """Sums of the elements around each position, with weights in f64: `resize` has f32 ones."""
    size = arith.as_int(x.shape[axis])
    assert size is not None
    at = np.maximum(at, 0.0) if mode == "linear" else at
    first = np.floor(at)
    total: Term | None = None
    for tap in TAPS[mode]:
        weight = np.asarray(KERNELS[mode](np.abs(at - first - tap), -0.75))
        place = np.clip(first + tap, 0, size - 1).astype(np.int64)
        taken = Term(ctx, ctx.g.add("gather", [x, ctx.g.constant(place)], axis=axis))
        shape = (len(at), *(1,) * (x.tensor.rank - axis - 1))
        part = taken * Term(ctx, ctx.g.constant(weight.reshape(shape)))
        total = part if total is None else total + part
    assert total is not None
    return total.value


def interpolation_type(dtype: DType) -> DType:
    return wide_dtype(dtype) if dtype.is_float else dtypes.f32


def limits(ctx: Importer, dtype: DType, wide: DType) -> list[Value]:
    return [ctx.scalar(v, wide) for v in (dtype.lowest, dtype.highest)]


def attributes(mode: str, align: bool, antialias: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "mode": mode, "coordinates": "align_corners" if align else "half_pixel",
        "antialias": antialias,
    }  # fmt: skip
    if mode == "cubic":
        found |= {"cubic_a": -0.5 if antialias else -0.75, "exclude_outside": False}
    return found


MODES = {
    "upsample_linear1d": (1, "linear", False), "upsample_bilinear2d": (2, "linear", False),
    "upsample_trilinear3d": (3, "linear", False), "upsample_bicubic2d": (2, "cubic", False),
    "_upsample_bilinear2d_aa": (2, "linear", True), "_upsample_bicubic2d_aa": (2, "cubic", True),
}  # fmt: skip
for _name, _row in MODES.items():
    aten(f"aten.{_name}.default", f"aten.{_name}.vec")(interpolated(*_row))


# --- grids --------------------------------------------------------------------------------------

GRID_MODES = ("linear", "nearest", "cubic")
GRID_PADDING = ("zeros", "border", "reflection")


@aten("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default", "aten.grid_sampler.default")
def grid_sampler(
    ctx: Importer, node: TorchNode, x: Value, grid: Value, mode: int, padding: int, align: bool
) -> Value:
    points = arith.product(list(grid.shape[1:-1]))
    flat = ctx.g.add("reshape", [grid], shape=(grid.shape[0], tidy(ctx, points), grid.shape[-1]))
    names: Any = {"mode": GRID_MODES[mode], "padding": GRID_PADDING[padding]}
    made = ctx.g.add("grid_sample", [x, flat], align_corners=align, **names)
    return ctx.g.add("reshape", [made], shape=node.output.shape)
