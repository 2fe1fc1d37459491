"""Crops of a batch of images, resized to one size (TensorFlow's and ONNX Runtime's CropAndResize).

In: x (batch, channels, h, w), boxes (r, 4) as y and x of two corners in 0 … 1, and the batch of
each. Out: (r, channels, points). Called through the operator table; imported from ONNX by
frontends/onnx/detection.py.
"""

from __future__ import annotations

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
from ingot.ops.grid_sample import SampledAxes
from ingot.ops.regions import NO_BATCH, check_batch, clamped
from ingot.ops.sample_points import Axis, axis_taps, sampled, size_of


@register
class CropResize(OpDef):
    """(x, boxes, batch of each box) → the boxes' contents. {shape: (height, width), mode: linear |
    nearest, fill: the value of points outside x}."""

    name = "crop_resize"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, boxes, batch = common.tensor_types(self.name, inputs, 3)
        if x.rank != 4 or boxes.rank != 2 or arith.as_int(boxes.shape[1]) != 4 or batch.rank != 1:
            raise type_error(self.name, f"boxes {boxes} of {x} do not fit")
        if x.dtype not in (dtypes.f32, dtypes.f64) or boxes.dtype is not x.dtype:
            raise type_error(self.name, f"cannot interpolate {x} in {boxes}")
        common.require_dtype(self.name, batch, dtypes.i64)
        common.require_same_dim(self.name, boxes.shape[0], batch.shape[0], "boxes and batches")
        points = arith.product([arith.wrap(n) for n in attrs["shape"]])
        return [TensorType(x.dtype, common.dims((boxes.shape[0], x.shape[1], points)))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, boxes, batch = (np.asarray(v) for v in inputs)
        height, width = common.numbers(self.name, attrs["shape"])
        out = np.full((len(boxes), x.shape[1], height * width), attrs.get("fill", 0.0), x.dtype)
        one = x.dtype.type
        if ((batch < 0) | (batch >= len(x))).any():
            raise common.run_failed(NO_BATCH.split("{")[0])
        for r, n in enumerate(batch):
            taps, keeps = [], []
            places = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
            for k, (size, steps) in enumerate(zip((height, width), places)):
                low, high, last = boxes[r, k], boxes[r, k + 2], one(x.shape[2 + k] - 1)
                at = one(0.5) * (low + high) * last + np.zeros(steps.size, x.dtype)
                if size > 1:
                    step = (high - low) * last / one(size - 1)
                    at = low * last + steps.reshape(-1).astype(x.dtype) * step
                keeps.append((at >= 0) & (at <= last))
                mode = attrs.get("mode", "linear")
                at = np.floor(at + one(0.5)) if mode == "nearest" else at
                taps.append(axis_taps(at, x.shape[2 + k], mode, "border", True))
            inside = keeps[0] & keeps[1]
            out[r] = np.where(inside, sampled(x[n], taps), out[r])
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, boxes, batch = inputs
        assert x is not None and boxes is not None and batch is not None
        check_batch(b, batch, x.shape[0])
        dtype, mode = x.dtype, attrs.get("mode", "linear")
        axes = [Axis(size_of(d, dtype), mode, "border") for d in x.shape[2:]]
        count, channels, points = outputs[0].shape
        crop = [arith.wrap(n) for n in attrs["shape"]]
        width = arith.maximum(crop[1], 1)
        found = SampledAxes(b, (count, points), axes, dtype)

        def coordinates(r: arith.Expr, p: arith.Expr) -> list[Expr]:
            places = (p // width, p % width)
            values: list[Expr] = []
            for k, (axis, place) in enumerate(zip(axes, places)):
                low, high = boxes[r, k], boxes[r, k + 2]
                one, size = ir.value_of(1.0, dtype), size_of(crop[k], dtype)
                step = (high - low) * axis.last / ir.Binary("max", size - 1.0, one)
                along = low * axis.last + ir.Cast(ir.Index(place), dtype) * step
                middle = (low + high) * 0.5 * axis.last
                values.append(ir.Select(ir.Compare("gt", size, one), along, middle))
            return values

        def is_inside(r: arith.Expr, p: arith.Expr) -> Expr:
            tests = []
            for axis, at in zip(axes, coordinates(r, p)):
                tests.append(ir.Compare("ge", at, ir.value_of(0.0, dtype)))
                tests.append(ir.Compare("le", at, axis.last))
            return tests[0] & tests[1] & tests[2] & tests[3]

        def rounded(r: arith.Expr, p: arith.Expr) -> list[Expr]:
            if mode != "nearest":
                return coordinates(r, p)
            return [ir.Unary("floor", at + 0.5) for at in coordinates(r, p)]

        found.fill(rounded)
        fill = ir.value_of(float(attrs.get("fill", 0.0)), dtype)
        one = ir.value_of(1.0, dtype)
        flag = b.compute(
            "inside", (count, points), lambda r, p: ir.Select(is_inside(r, p), one, one * 0.0)
        )

        def formula(r: arith.Expr, c: arith.Expr, p: arith.Expr) -> Expr:
            image = ir.index_of(clamped(batch[r], x.shape[0]))
            value = found.sum(x, (image, c), (), (r, p))
            return ir.Select(ir.Compare("gt", flag[r, p], one * 0.5), value, fill)

        return [b.compute("crops", (count, channels, points), formula)]

    def samples(self) -> list[Sample]:
        x, batch = common.floats(2, 3, 5, 6), np.array([1, 0])
        boxes = np.array([[0.1, 0.2, 0.9, 1.1], [0.8, -0.2, 0.3, 0.7]], np.float32)
        loose: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
        return [
            Sample((x, boxes, batch), {"shape": (3, 4), "fill": 7.0}, **loose),
            Sample((x, boxes, batch), {"shape": (1, 5), "mode": "nearest"}, **loose),
            Sample((x, boxes, batch + 1), {"shape": (1, 1)}, fails="a region is in batch"),
        ]
