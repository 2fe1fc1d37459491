"""Columns of sliding windows: their sums in an image (Col2Im), and windows whose elements are moved
by offsets (the sampling half of DeformConv).

In: columns, or an image and offsets. Out: an image, or columns for a matmul with weights. Called
through the operator table; imported from ONNX by frontends/onnx/vision.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.conv import all_of, inside
from ingot.ops.grid_sample import SampledAxes
from ingot.ops.sample_points import Axis, accumulator, axis_taps, sampled, size_of


@register
class Col2Im(OpDef):
    """(n, c, *kernel, *blocks) → (n, c, *image): every element is the sum of the window elements
    that lie on it. {image, strides, dilations, pads: all begins, then all ends}."""

    name = "col2im"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        axes = len(attrs["image"])
        lengths = {len(attrs["strides"]), len(attrs["dilations"]), len(attrs["pads"]) // 2}
        if x.rank != 2 + 2 * axes or lengths != {axes} or x.dtype.is_bool:
            raise type_error(self.name, f"{x} are no columns of an image {attrs['image']}")
        if min(*attrs["strides"], *attrs["dilations"]) < 1:
            raise type_error(self.name, "strides and dilations must be positive")
        return [TensorType(x.dtype, (*x.shape[:2], *common.dims(attrs["image"])))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = common.widen_array(np.asarray(inputs[0]))
        image = common.numbers(self.name, attrs["image"])
        axes = len(image)
        out = np.zeros((*x.shape[:2], *image), x.dtype)
        for taps in itertools.product(*map(range, x.shape[2 : 2 + axes])):
            for blocks in itertools.product(*map(range, x.shape[2 + axes :])):
                rows = zip(blocks, taps, attrs["strides"], attrs["dilations"], attrs["pads"])
                at = tuple(k * s + t * d - lo for k, t, s, d, lo in rows)
                if all(0 <= i < n for i, n in zip(at, image)):
                    source: tuple[Any, ...] = (slice(None), slice(None), *taps, *blocks)
                    out[(slice(None), slice(None), *at)] += x[source]
        return [out.astype(np.asarray(inputs[0]).dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        axes = len(attrs["image"])
        kernel, blocks = x.shape[2 : 2 + axes], x.shape[2 + axes :]
        wide = common.wide_dtype(x.dtype)
        # the sum has a stage of its own for zeros: a kernel without elements gives zeros too
        out = b.compute("image", outputs[0].shape, lambda *point: ir.value_of(0, wide))

        def term(*args: arith.Expr) -> Expr:
            point, taps = args[: 2 + axes], args[2 + axes :]
            at, tests = [], []
            rows = zip(point[2:], taps, blocks, attrs["strides"], attrs["dilations"], attrs["pads"])
            for i, t, count, stride, dilation, low in rows:
                ahead = i + low - t * dilation
                at.append(ahead // stride)
                tests.append(inside(ahead // stride, count))
                if stride > 1:
                    rest = ir.Index(ahead % stride)
                    tests.append(ir.Compare("eq", rest, ir.Lit(0, dtypes.i64)))
            value = ir.Load(
                x, (*point[:2], *taps, *at), mask=all_of(tests), other=ir.value_of(0, x.dtype)
            )
            return common.widen(value)

        def body(*args: arith.Expr) -> ir.Stmt:
            point = args[: 2 + axes]
            return ir.Store(out, point, out[point] + term(*args))

        kinds = [ir.AxisKind.SPATIAL] * (2 + axes) + [ir.AxisKind.ORDERED] * axes
        common.stage(b, "col2im", (*outputs[0].shape, *kernel), body, kinds)
        if wide is x.dtype:
            return [out]
        return [b.compute("out", out.shape, lambda *point: common.narrow(out[point], x.dtype))]

    def samples(self) -> list[Sample]:
        plain = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
        moved = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 1)}
        return [
            Sample((common.floats(2, 3, 2, 3, 4, 2),), {"image": (5, 4), **plain}),
            Sample((common.floats(1, 2, 2, 2, 4, 4),), {"image": (5, 5), **moved}),
            Sample(
                (common.integers(2, 1, 3, 5),),
                {"image": (7,), "strides": (1,), "dilations": (1,), "pads": (0, 0)},
            ),
        ]


@register
class DeformColumns(OpDef):
    """(x (n, c, h, w), offsets (n, 2 · groups · taps, points), mask (n, groups · taps, points) or
    none) → (n, c, taps, points): the elements of every window, interpolated where offsets move
    them, times the mask. {kernel, strides, dilations, pads, groups: of channels with offsets of
    their own, width: of the output map}."""

    name = "deform_columns"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, offsets = (common.tensor_type(self.name, t) for t in inputs[:2])
        mask = inputs[2] if len(inputs) > 2 else None
        taps, groups = int(np.prod(attrs["kernel"])), attrs["groups"]
        if x.rank != 4 or offsets.rank != 3 or not x.dtype.is_float:
            raise type_error(self.name, f"offsets {offsets} do not fit {x}")
        common.require_same_dim(self.name, x.shape[0], offsets.shape[0], "batches")
        wanted = ((offsets, 2 * groups * taps), (mask, groups * taps))
        for type, count in wanted:
            if type is not None and arith.as_int(type.shape[1]) != count:
                raise type_error(self.name, f"{type} has not {count} rows")
        channels = arith.as_int(x.shape[1])
        if groups > 1 and (channels is None or channels % groups):
            raise type_error(self.name, f"{x} has no {groups} groups of channels")
        if mask is not None:
            common.require_same_dim(self.name, mask.shape[2], offsets.shape[2], "points")
        return [TensorType(x.dtype, (*x.shape[:2], arith.Const(taps), offsets.shape[2]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, offsets, mask = (*inputs, None)[:3]
        assert x is not None and offsets is not None
        kernel, taps = attrs["kernel"], int(np.prod(attrs["kernel"]))
        (width,) = common.numbers(self.name, [attrs["width"]])
        points = np.arange(offsets.shape[2])
        out = np.zeros((*x.shape[:2], taps, len(points)))
        per_group = max(x.shape[1] // attrs["groups"], 1)
        for n, c, tap in np.ndindex(*out.shape[:3]):
            row = c // per_group * taps + tap
            found = []
            for axis, place in enumerate((points // max(width, 1), points % max(width, 1))):
                step = divmod(tap, kernel[1])[axis] * attrs["dilations"][axis]
                at = place * attrs["strides"][axis] - attrs["pads"][axis] + step
                moved = at + common.widen_array(offsets)[n, 2 * row + axis]
                found.append(axis_taps(moved, x.shape[2 + axis], "linear", "zeros", True))
            out[n, c, tap] = sampled(common.widen_array(x)[n, c], found)
            if mask is not None:
                out[n, c, tap] *= common.widen_array(mask)[n, row]
        return [out.astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, offsets, mask = (*inputs, None)[:3]
        assert x is not None and offsets is not None
        kernel, taps, groups = attrs["kernel"], int(np.prod(attrs["kernel"])), attrs["groups"]
        width, wide = arith.maximum(arith.wrap(attrs["width"]), 1), common.wide_dtype(offsets.dtype)
        axes = [Axis(size_of(d, wide), "linear") for d in x.shape[2:]]
        rows = (x.shape[0], arith.Const(groups * taps), offsets.shape[2])
        found = SampledAxes(b, rows, axes, accumulator(x.dtype))

        def coordinates(n: arith.Expr, row: arith.Expr, p: arith.Expr) -> list[Expr]:
            places, tap = (p // width, p % width), row % taps
            steps, values = (tap // kernel[1], tap % kernel[1]), []
            for axis in range(2):
                at = places[axis] * attrs["strides"][axis] - attrs["pads"][axis]
                at = at + steps[axis] * attrs["dilations"][axis]
                offset = common.widen(offsets[n, row * 2 + axis, p])
                values.append(ir.Cast(ir.Index(at), wide) + offset)
            return values

        found.fill(coordinates)
        per_group = (arith.as_int(x.shape[1]) or 1) // groups if groups > 1 else 0

        def formula(n: arith.Expr, c: arith.Expr, tap: arith.Expr, p: arith.Expr) -> Expr:
            row = c // per_group * taps + tap if per_group else tap
            value = found.sum(x, (n, c), (), (n, row, p))
            if mask is None:
                return value
            product = common.widen(value) * common.widen(mask[n, row, p])
            return common.narrow(product, x.dtype)

        return [b.compute("columns", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        attrs: dict[str, Any] = {
            "kernel": (2, 3), "strides": (1, 2), "dilations": (2, 1), "pads": (1, 0, 0, 1),
            "width": 3,
        }  # fmt: skip
        x = common.floats(2, 4, 5, 6)
        offsets, mask = common.floats(2, 24, 12), common.floats(2, 12, 12)
        few = common.floats(2, 12, 9, key="few")
        return [
            Sample((x, offsets, mask), {**attrs, "groups": 2}, 1e-4, 1e-4),
            Sample((x, few, None), {**attrs, "groups": 1}, 1e-4, 1e-4),
        ]
