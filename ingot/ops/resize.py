"""Resizing one axis: nearest, linear and cubic interpolation, with or without anti-aliasing.

In: x, {axis, size, …}, and the scale or the region where they are known only at run time. Out: the
row `resize` of `graph.opdef.TABLE`, which decomposes into gathers and sums (nearest by an integer
factor into an expand, anti-aliasing into a matmul with a matrix of weights;
resize_interpolation.py). Called by ops/__init__.py; imported from ONNX by frontends/onnx/resize.py,
one node for each axis that changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.arith.simplify import simplify
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.ops import common
from ingot.ops.resize_interpolation import (
    BY_SCALE,
    COORDINATES,
    ROUNDINGS,
    AxisResampler,
    Settings,
    cast,
    coordinate_inputs,
    integer_factor,
    repeated,
    rounded,
    weight_matrix,
)

NO_ELEMENT = "resize: an empty axis has no element to interpolate"


@register
class Resize(OpDef):
    """(x, scale: f32 or none, roi: f32[2] or none) → x with `axis` resampled to `size`. {mode:
    nearest | linear | cubic, coordinates: a row of COORDINATES, rounding: a row of ROUNDINGS or
    BY_SCALE, scale: f32 or none for size / extent, cubic_a, exclude_outside, antialias, roi:
    (start, end), extrapolation: value outside the roi or none}; operands take precedence."""

    name = "resize"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, scale, roi = operands(inputs)
        x = common.tensor_type(self.name, x)
        for late, shape in ((scale, ()), (roi, (2,))):
            if late is not None and (late.dtype is not dtypes.f32 or late.static_shape != shape):
                raise type_error(self.name, f"{late} is no scale or region")
        axis = common.normalize_axis(self.name, attrs["axis"], x.rank)
        settings = Settings.of(attrs)
        if settings.mode != "nearest" and not x.dtype.is_float:
            raise type_error(self.name, f"{settings.mode} interpolation needs floats, got {x}")
        roundings = {*ROUNDINGS, BY_SCALE}
        for name, table in (("coordinates", {*COORDINATES}), ("rounding", roundings)):
            if getattr(settings, name) not in table:
                raise type_error(
                    self.name,
                    f"{name} {getattr(settings, name)!r} is unknown",
                    f"one of {sorted(table)}",
                )
        size = simplify(arith.wrap(attrs["size"]))
        return [TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        given_x, scale, roi = operands(inputs)
        x, settings = np.asarray(given_x), Settings.of(attrs)
        if scale is not None:
            settings = replace(settings, scale=float(scale))
        if roi is not None:
            settings = replace(settings, roi=tuple(roi.tolist()))
        axis = common.normalize_axis(self.name, attrs["axis"], x.ndim)
        (size,) = common.numbers(self.name, [attrs["size"]])
        given = x.shape[axis]
        if given == 0 and size:
            raise common.run_failed(NO_ELEMENT)
        terms = coordinate_inputs(given, size, settings)
        at = settings.coordinates_of(terms, size)
        if settings.mode == "nearest":
            index = np.clip(rounded(settings.rounding, at, terms.scale), 0, given - 1)
            index = index.astype(np.int64)
            out = np.take(x, index, axis)
        else:
            weights = weight_matrix(at, given, size, settings)
            mixed = np.tensordot(weights, x.astype(np.float64), (1, axis))
            out = np.moveaxis(mixed, 0, axis).astype(x.dtype)
        if settings.extrapolation is not None:
            outside = ((at < 0) | (at > given - 1)).reshape(-1, *[1] * (x.ndim - axis - 1))
            out = np.where(outside, np.array(settings.extrapolation, x.dtype), out)
        return [out]

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x, scale, roi = operands(inputs)
        settings = Settings.of(attrs)
        assert x is not None
        axis = common.normalize_axis(self.name, attrs["axis"], x.tensor.rank)
        size = outputs[0].shape[axis]
        factor = None if scale else integer_factor(x.shape[axis], size, settings)
        if factor is not None:
            return [repeated(g, x, axis, factor)]
        x = _not_empty(g, x, axis, size)
        resampler = AxisResampler(g, x.shape[axis], size, settings, scale, roi)
        if settings.mode == "nearest":
            return [
                resampler.extrapolated(g.add("gather", [x, resampler.nearest()], axis=axis), axis)
            ]
        wide = x if x.dtype in (dtypes.f32, dtypes.f64) else cast(g, x, dtypes.f32)
        interpolate = resampler.by_matrix if settings.antialias else resampler.by_taps
        return [cast(g, resampler.extrapolated(interpolate(wide, axis), axis), x.dtype)]

    def samples(self) -> list[Sample]:
        return [*_nearest_samples(), *_smooth_samples(), *_crop_samples()]


def operands(given: Sequence[Any]) -> tuple[Any, Any, Any]:
    """x, the scale and the region; those that are absent are None."""
    x, scale, roi = (*given, None, None)[:3]
    return x, scale, roi


def _not_empty(g: GraphBuilder, x: Value, axis: int, size: Dim) -> Value:
    """x; an error at run time if the axis, which may be empty, is, and the resized one is not."""
    extent = x.shape[axis]
    ranges = {s.name: Interval(s.low, s.high) for s in g.symbols.values()}
    if prove("ge", extent, 1, ranges):
        return x
    is_fine = arith.maximum(extent, 1 - arith.minimum(size, 1))
    fine = g.add("index_tensor", [], values=(is_fine,), shape=())
    flag = g.add("gt", [fine, g.constant(np.zeros((), np.int64))])
    return g.add("require", [x, flag], expected=True, reason=NO_ELEMENT)


# --- samples ------------------------------------------------------------------------------------


def _case(x: np.ndarray, size: int, axis: int = -1, **attrs: Any) -> Sample:
    loose = 1e-2 if x.dtype.itemsize == 2 else 2e-4
    return Sample((x,), {"axis": axis, "size": size, **attrs}, rtol=loose, atol=loose)


def _nearest_samples() -> list[Sample]:
    x, kinds = common.floats(2, 5, 3), (dtypes.i8, dtypes.bool_, dtypes.f16)
    rules = [c for c in COORDINATES if c != "tf_crop_and_resize"]
    pairs = zip(rules, itertools.cycle(ROUNDINGS), itertools.cycle((3, 8)))
    found = [_case(x, size, 1, coordinates=c, rounding=r) for c, r, size in pairs]
    found += [_case(x, 10, 1, coordinates="asymmetric", rounding="floor"), _case(x, 15, 1)]
    found += [_case(common.data(2, 4, dtype=d), 6) for d in kinds]
    return [*found, _case(x, 7, 1, scale=1.5), _case(x, 1, 2, coordinates="align_corners")]


def _smooth_samples() -> list[Sample]:
    x, found = common.floats(3, 6, 2), []
    for mode, sizes in (("linear", (4, 9, 1)), ("cubic", (9, 1, 4))):
        pairs = zip(COORDINATES, itertools.cycle(sizes))
        found += [_case(x, size, 1, mode=mode, coordinates=c) for c, size in pairs]
        found += [_case(x, 2, 0, mode=mode, antialias=True)]
    found += [_case(x, 2, 1, mode="linear", antialias=True, scale=0.4)]
    found += [_case(x, 9, 1, mode="cubic", exclude_outside=True, cubic_a=-0.5)]
    kinds = (dtypes.f64, dtypes.f16)
    return found + [_case(common.floats(2, 4, dtype=d), 7, mode="linear") for d in kinds]


def _crop_samples() -> list[Sample]:
    x = common.floats(2, 6)
    crop: dict[str, Any] = {"coordinates": "tf_crop_and_resize", "roi": (0.4, 1.3)}
    found = [_case(x, 5, mode=m, extrapolation=7.5, **crop) for m in ("nearest", "linear", "cubic")]
    scale, roi = np.array(0.8, np.float32), np.array([0.4, 1.3], np.float32)
    late = {"axis": -1, "size": 4, "mode": "linear", "coordinates": "half_pixel_symmetric"}
    crop |= {"axis": -1, "size": 4, "mode": "cubic"}
    old = {"axis": -1, "size": 4, "coordinates": "asymmetric", "rounding": "by_scale"}
    return [
        *found, Sample((x, scale, None), late, 2e-4, 2e-4), Sample((x, scale, None), old),
        Sample((x, scale, None), {**late, "antialias": True}, 2e-4, 2e-4),
        Sample((x, None, roi), crop, 2e-4, 2e-4),
    ]  # fmt: skip
