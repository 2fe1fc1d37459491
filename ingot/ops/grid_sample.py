"""Sampling a tensor at the points of a grid, in two or more dimensions (GridSample).

In: x (batch, channels, *space) and a grid (batch, points, axes) of coordinates in -1 … 1, the last
axis of x first. Out: (batch, channels, points). Two stages: indices and weights of the taps of each
axis, then weighted sums of gathered elements, vectorised along the points, or along the channels
if those are x's last axis (`channels_last`). Called through the operator table; imported from ONNX
by frontends/onnx/vision.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.sample_points import (
    PADDINGS,
    TAPS,
    Axis,
    accumulator,
    axis_taps,
    load_tap,
    sampled,
    size_of,
    unless_zero,
    with_lets,
)

MAX_TAPS = 1024  # of one point: cubic in five dimensions


@register
class GridSample(OpDef):
    """out[n, c, p] = x[n, c] at the point grid[n, p]. {mode: nearest | linear | cubic, padding:
    zeros | border | reflection, align_corners: whether -1 and 1 are centres of border elements,
    channels_last: x is (n, *space, c) and the result (n, p, c)}."""

    name = "grid_sample"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, grid = common.tensor_types(self.name, inputs, 2)
        mode, padding = attrs.get("mode", "linear"), attrs.get("padding", "zeros")
        if mode not in TAPS or padding not in PADDINGS:
            raise type_error(self.name, f"mode {mode!r} with padding {padding!r} is unknown")
        if not grid.dtype.is_float or (x.dtype.is_bool and mode != "nearest"):
            raise type_error(self.name, f"cannot interpolate {x} at {grid}")
        axes = x.rank - 2
        if axes < 1 or grid.rank != 3 or arith.as_int(grid.shape[2]) != axes:
            raise type_error(self.name, f"a grid {grid} does not address the space of {x}")
        if len(TAPS[mode]) ** axes > MAX_TAPS:
            raise type_error(self.name, f"{mode} interpolation over {axes} axes has too many taps")
        common.require_same_dim(self.name, x.shape[0], grid.shape[0], "batches of x and the grid")
        if attrs.get("channels_last", False):
            return [TensorType(x.dtype, (*grid.shape[:2], x.shape[-1]))]
        return [TensorType(x.dtype, (*x.shape[:2], grid.shape[1]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, grid = (np.asarray(v) for v in inputs)
        is_last = bool(attrs.get("channels_last", False))
        x = np.moveaxis(x, -1, 1) if is_last else x
        mode, padding = attrs.get("mode", "linear"), attrs.get("padding", "zeros")
        align = bool(attrs.get("align_corners", False))
        wide = common.widen_array(grid)
        out = np.zeros((*x.shape[:2], grid.shape[1]))
        for n in range(x.shape[0]):
            taps = []
            for axis, size in enumerate(x.shape[2:]):
                at, one = wide[n, :, x.ndim - 3 - axis], wide.dtype.type
                scaled = (
                    (at + one(1)) / one(2) * one(size - 1)
                    if align
                    else ((at + one(1)) * one(size) - one(1)) / one(2)
                )
                taps.append(axis_taps(scaled, size, mode, padding, align))
            out[n] = sampled(x[n], taps)
        out = np.ascontiguousarray(np.moveaxis(out, 1, 2)) if is_last else out
        return [out.astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, grid = inputs
        assert x is not None and grid is not None
        mode, padding = attrs.get("mode", "linear"), attrs.get("padding", "zeros")
        wide = common.wide_dtype(grid.dtype)
        align = bool(attrs.get("align_corners", False))
        is_last = bool(attrs.get("channels_last", False))
        space = x.shape[1:-1] if is_last else x.shape[2:]
        axes = [Axis(size_of(d, wide), mode, padding, align) for d in space]
        found = SampledAxes(b, grid.shape[:2], axes, accumulator(x.dtype))

        def coordinates(n: arith.Expr, p: arith.Expr) -> list[Expr]:
            every = range(len(axes))
            values = [common.widen(grid[n, p, len(axes) - 1 - i]) for i in every]
            return [axes[i].denormalized(values[i]) for i in every]

        found.fill(coordinates)

        def formula(n: arith.Expr, c: arith.Expr, p: arith.Expr) -> Expr:
            if is_last:
                p, c = c, p
            return found.sum(x, (n,) if is_last else (n, c), (c,) if is_last else (), (n, p))

        return [b.compute("grid_sample", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        def case(x: np.ndarray, points: int, **attrs: Any) -> Sample:
            loose = 2e-2 if x.dtype.itemsize == 2 else 2e-4
            grid = common.floats(x.shape[0], points, x.ndim - 2, key="grid")
            return Sample((x, grid), attrs, rtol=loose, atol=loose)

        image = common.floats(2, 3, 5, 7)
        return [
            case(image, 19, mode="linear", padding="zeros"),
            case(image, 19, mode="linear", padding="reflection", align_corners=True),
            case(image, 9, mode="cubic", padding="border"),
            case(image, 9, mode="cubic", padding="reflection"),
            case(image, 9, mode="nearest", padding="reflection"),
            case(common.floats(1, 2, 3, 4, 5), 11, mode="linear", padding="border"),
            case(common.floats(1, 4, 5, 3), 9, mode="linear", channels_last=True),
            case(common.integers(1, 2, 4, 4, dtype=dtypes.u8), 5, mode="nearest"),
            case(common.floats(1, 1, 1, 3, dtype=dtypes.f16), 5, padding="reflection"),
        ]


class SampledAxes:
    """Workspaces with the index and the weight of every tap, (*rows, taps of all axes, points)."""

    def __init__(self, b: Build, shape: Sequence[Dim], axes: Sequence[Axis], weights: DType):
        self.b, self.axes, self.taps = b, axes, len(TAPS[axes[0].mode])
        count = arith.Const(self.taps * len(axes))
        self.shape: tuple[Dim, ...] = (*shape[:-1], count, shape[-1])
        self.may_miss = axes[0].padding == "zeros"  # taps outside have weight 0
        self.is_copy = self.taps == 1 and not self.may_miss
        self.indices = b.buffer("tap", dtypes.i32, self.shape)
        self.weights = b.buffer("weight", weights, self.shape)

    def fill(self, coordinates: Callable[..., Sequence[Expr]]) -> None:
        """The first stage: `coordinates(*row, point)` gives a coordinate for each axis."""

        def body(*point: arith.Expr) -> Stmt:
            *row, p = point
            stores: list[Stmt] = []
            lets: list[tuple[str, Expr]] = []
            for i, (axis, at) in enumerate(zip(self.axes, coordinates(*point))):
                more, taps = axis.taps(self.b, at, self.weights.dtype)
                lets += more
                for t, tap in enumerate(taps):
                    where = (*row, arith.Const(i * self.taps + t), p)
                    stores.append(ir.Store(self.indices, where, ir.Cast(tap.index, dtypes.i32)))
                    if not self.is_copy:
                        stores.append(ir.Store(self.weights, where, tap.weight))
            return with_lets(lets, ir.seq(*stores))

        common.stage(self.b, "taps", (*self.shape[:-2], self.shape[-1]), body)

    def sum(
        self, x: Buffer, head: Sequence[arith.Expr], tail: Sequence[arith.Expr],
        at: Sequence[arith.Expr],
    ) -> Expr:  # fmt: skip
        """The weighted sum of x[*head, taps, *tail] at row and point `at`, in x's element type."""
        *row, p = at
        nearest = self.taps == 1
        wide = x.dtype if nearest else self.weights.dtype

        def where(axis: int, tap: int) -> tuple[arith.Expr, ...]:
            return (*row, arith.Const(axis * self.taps + tap), p)

        values: dict[tuple[int, ...], Expr] = {}
        for chosen in itertools.product(range(self.taps), repeat=len(self.axes)):
            indices = [self.indices[where(axis, tap)] for axis, tap in enumerate(chosen)]
            value = load_tap(self.b, x, head, indices, tail)
            values[chosen] = value if nearest or value.dtype is wide else ir.Cast(value, wide)
        for axis in reversed(range(len(self.axes))):  # sums along one axis after the other
            sums: dict[tuple[int, ...], Expr] = {}
            for chosen, value in values.items():
                weight = self.weights[where(axis, chosen[-1])]
                if self.may_miss:
                    value = unless_zero(weight, value)
                term = value if nearest else value * weight
                rest = chosen[:-1]
                sums[rest] = sums[rest] + term if rest in sums else term
            values = sums
        return common.narrow(values[()], x.dtype)
