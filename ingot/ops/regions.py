"""Pooling over regions of interest: RoiAlign and MaxRoiPool.

In: x and a table of regions. Out: a small map for each region. `layout` says where x has its
channels: "last" (n, h, w, c), which makes vectors of them, or "first" (n, c, h, w); the result has
them at the same place. Called through the operator table; imported from ONNX by
frontends/onnx/detection.py, which transposes x where that pays.

A first stage computes what a region needs once. The second loops over the samples of a bin, as
many as the region asks for, with all channels of a vector at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.sample_points import clamp, floor, load_tap, size_of, with_lets

NO_BATCH = "a region is in batch {0}, of {1} batches"
TOO_LARGE = "a region has more samples than its bins have room for"
MAX_SAMPLES = 1 << 16  # of a bin along one axis: a region as large as any tensor asks for less
I64 = dtypes.i64


class RegionPool(OpDef):
    """Types and layouts that both operators share."""

    python_reference = True

    def check(self, x: TensorType, rois: TensorType, attrs: Attrs) -> list[TensorType]:
        if x.rank != 4 or x.dtype not in (dtypes.f32, dtypes.f64) or rois.dtype is not x.dtype:
            raise type_error(self.name, f"cannot pool regions {rois} of {x}")
        if attrs.get("layout", "first") not in ("first", "last"):
            raise type_error(self.name, f"layout {attrs['layout']!r} is neither first nor last")
        height, width = (arith.wrap(n) for n in attrs["shape"])
        shape = ordered((rois.shape[0], height, width, sizes(x.shape, attrs)[3]), attrs)
        return [TensorType(x.dtype, shape)]

    def samples_of(self, *operands: np.ndarray, **attrs: Any) -> list[Sample]:
        x = operands[0]
        last = np.ascontiguousarray(np.moveaxis(x, 1, 3))
        return [
            Sample((x, *operands[1:]), {"layout": "first", **attrs}, rtol=1e-4, atol=1e-4),
            Sample((last, *operands[1:]), {"layout": "last", **attrs}, rtol=1e-4, atol=1e-4),
        ]


def ordered(point: Sequence[Any], attrs: Attrs) -> tuple[Any, ...]:
    """A point (n, y, x, c) in the order of the layout."""
    n, y, x, c = point
    return (n, y, x, c) if attrs.get("layout", "first") == "last" else (n, c, y, x)


def sizes(shape: Sequence[Any], attrs: Attrs) -> tuple[Any, ...]:
    """The sizes of x as (n, h, w, c)."""
    is_last = attrs.get("layout", "first") == "last"
    return tuple(shape) if is_last else (shape[0], *shape[2:], shape[1])


def first_layout(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return np.moveaxis(x, 3, 1) if attrs.get("layout", "first") == "last" else x


def in_layout(out: np.ndarray, attrs: Attrs) -> np.ndarray:
    moved = np.moveaxis(out, 1, 3) if attrs.get("layout", "first") == "last" else out
    return np.ascontiguousarray(moved)


def clamped(index: Expr, count: arith.Expr) -> Expr:
    return clamp(index, ir.Lit(0, I64), ir.Index(count - 1))


def check_batch(b: Build, batch: Buffer, count: arith.Expr) -> None:
    """Fail where a region names a batch that there is not."""

    def bad(r: arith.Expr) -> Expr:
        low = ir.Compare("lt", batch[r], ir.Lit(0, I64))
        return low | ir.Compare("ge", batch[r], ir.Index(count))

    b.check(batch.shape, bad, NO_BATCH, lambda r: (batch[r], ir.Index(count)))


class Lets:
    """Names for values, in order."""

    def __init__(self, b: Build):
        self.b, self.made = b, list[tuple[str, Expr]]()

    def __call__(self, name: str, value: Expr) -> Expr:
        self.made.append((self.b.fresh(name), value))
        return ir.Ref(self.made[-1][0], value.dtype)

    def around(self, body: Stmt) -> Stmt:
        return with_lets(self.made, body)


@register
class RoiAlign(RegionPool):
    """(x, regions (r, 4) as x and y of two corners, batch of each region) → bins of interpolated
    samples. {shape: (height, width) of the result, mode: avg | max, samples: of a bin along an
    axis, 0 for as many as the region has elements there, scale: of x's elements to coordinates,
    half_pixel: elements have their centres at halves, layout}."""

    name = "roi_align"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, rois, batch = common.tensor_types(self.name, inputs, 3)
        if rois.rank != 2 or arith.as_int(rois.shape[1]) != 4 or batch.rank != 1:
            raise type_error(self.name, f"regions {rois} with batches {batch} do not fit")
        common.require_dtype(self.name, batch, I64)
        common.require_same_dim(self.name, rois.shape[0], batch.shape[0], "regions and batches")
        if attrs.get("mode", "avg") not in ("avg", "max"):
            raise type_error(self.name, f"mode {attrs['mode']!r} is neither avg nor max")
        return self.check(x, rois, attrs)

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, rois, batch = (np.asarray(v) for v in inputs)
        x = first_layout(x, attrs)
        height, width = attrs["shape"]
        out = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
        if ((batch < 0) | (batch >= len(x))).any():
            raise common.run_failed(NO_BATCH.split("{")[0])
        for r, (roi, n) in enumerate(zip(rois, batch)):
            ys, xs = (
                sample_arrays(roi[1 - k], roi[3 - k], bins, attrs, x.dtype.type)
                for k, bins in enumerate((height, width))
            )
            for h, w in np.ndindex(height, width):
                out[r, :, h, w] = bin_array(x[n], ys[h], xs[w], attrs.get("mode", "avg"))
        return [in_layout(out, attrs)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, rois, batch = inputs
        assert x is not None and rois is not None and batch is not None
        count, height, width, channels = sizes(x.shape, attrs)
        check_batch(b, batch, count)
        regions, grids = self.region_stage(b, rois, attrs)
        out = b.buffer("roi_align", x.dtype, outputs[0].shape)
        axes = [(height, attrs["shape"][0]), (width, attrs["shape"][1])]
        is_max = attrs.get("mode", "avg") == "max"
        start = identity("max", x.dtype) if is_max else ir.value_of(0.0, x.dtype)
        extents = (rois.shape[0], *attrs["shape"], channels)

        def body(r: arith.Expr, h: arith.Expr, w: arith.Expr, c: arith.Expr) -> Stmt:
            to, outer = ordered((r, h, w, c), attrs), Lets(b)
            n = outer("n", clamped(batch[r], count))
            number = [outer("samples", grids[r, k]) for k in range(2)]
            names = [b.fresh("sy"), b.fresh("sx")]
            taps, scopes = [], []
            for k, (bin, (size, _)) in enumerate(zip((h, w), axes)):
                scope = Lets(b)
                first = outer("first", regions[r, k] + float_of(bin, x.dtype) * regions[r, k + 2])
                step, own = outer("step", regions[r, k + 2]), float_of(arith.Var(names[k]), x.dtype)
                at = scope("at", first + (own + 0.5) * step / ir.Cast(number[k], x.dtype))
                taps.append(axis_of(scope, at, size))
                scopes.append(scope)
            total = sample_value(b, x, n, c, taps, attrs, is_max)
            op = "max" if is_max else "add"
            add = ir.Store(out, to, ir.Binary(op, out[to], total))
            rows = scopes[1].around(add)
            rows = ir.serial(names[1], ir.index_of(number[1]), rows)
            rows = ir.serial(names[0], ir.index_of(number[0]), scopes[0].around(rows))
            last = ir.Store(out, to, finished(out[to], number, is_max))
            return outer.around(ir.seq(ir.Store(out, to, start), rows, last))

        common.stage(b, "roi_align", extents, body)
        return [out]

    def region_stage(self, b: Build, rois: Buffer, attrs: Attrs) -> tuple[Buffer, Buffer]:
        """(y and x of the first corner, height and width of a bin), (samples along y and x)."""
        dtype, count = rois.dtype, rois.shape[0]
        regions, grids = b.buffer("regions", dtype, (count, 4)), b.buffer("grids", I64, (count, 2))
        scale = ir.value_of(float(attrs.get("scale", 1.0)), dtype)
        is_half = bool(attrs.get("half_pixel", False))

        def body(r: arith.Expr) -> Stmt:
            stores, lets = [], Lets(b)
            for k, bins in enumerate(attrs["shape"]):
                ends = [rois[r, 1 - k] * scale, rois[r, 3 - k] * scale]
                low, high = (e - 0.5 if is_half else e for e in ends)
                size = high - low
                if not is_half:
                    size = ir.Binary("max", size, ir.value_of(1.0, dtype))
                size = lets("size", size / float(bins))
                number: Expr = ir.Lit(int(attrs.get("samples", 0)), I64)
                if not attrs.get("samples", 0):
                    number = ir.Cast(ir.Unary("ceil", size), I64)
                    number = clamp(number, ir.Lit(0, I64), ir.Lit(MAX_SAMPLES + 1, I64))
                stores += [
                    ir.Store(regions, (r, arith.Const(k)), low),
                    ir.Store(regions, (r, arith.Const(k + 2)), size),
                    ir.Store(grids, (r, arith.Const(k)), number),
                ]
            return lets.around(ir.seq(*stores))

        common.stage(b, "regions", (count,), body)
        if not attrs.get("samples", 0):
            most = ir.Lit(MAX_SAMPLES, I64)
            b.check((count, 2), lambda r, k: ir.Compare("gt", grids[r, k], most), TOO_LARGE)
        return regions, grids

    def samples(self) -> list[Sample]:
        x, batch = common.floats(2, 5, 7, 6), np.array([1, 0, 1])
        rois = np.array([[0.5, 1, 5, 4.5], [-3, 2, 2.2, 9], [1, 1, 1.5, 1.2]], np.float32)
        adaptive = {"shape": (2, 3), "scale": 0.9, "half_pixel": True}
        return [
            *self.samples_of(x, rois, batch, **adaptive),
            *self.samples_of(x, rois, batch, shape=(3, 2), samples=2, mode="max"),
            Sample((x, rois, np.array([0, 2, 1])), adaptive, fails="a region is in batch"),
        ]


def float_of(index: arith.Expr, dtype: DType) -> Expr:
    return ir.Cast(ir.Index(index), dtype)


def axis_of(let: Lets, at: Expr, size: arith.Expr) -> tuple[list[Expr], list[Expr]]:
    """The two indices along an axis, and their weights: 0 more than one element outside."""
    extent = size_of(size, at.dtype)
    zero, last = ir.value_of(0.0, at.dtype), extent - 1.0
    is_in = ir.Compare("ge", at, zero - 1.0) & ir.Compare("le", at, extent)
    inside = let("inside", clamp(at, zero, last))
    low = let("low", floor(inside))
    high = ir.Binary("min", low + 1.0, last)
    part = let("part", ir.Select(is_in, inside - low, zero))
    rest = let("rest", ir.Select(is_in, 1.0 - (inside - low), zero))
    indices = [let(name, ir.Cast(i, I64)) for name, i in (("i0", low), ("i1", high))]
    return indices, [rest, part]


def sample_value(
    b: Build,
    x: Buffer,
    n: Expr,
    c: arith.Expr,
    taps: Sequence[tuple[list[Expr], list[Expr]]],
    attrs: Attrs,
    is_max: bool,
) -> Expr:
    """The value of one sample: the sum of its four taps, or the largest of them."""
    (ys, hs), (xs, ws) = taps
    total: Expr | None = None
    for y, h in zip(ys, hs):
        for x_at, w in zip(xs, ws):
            if attrs.get("layout", "first") == "last":
                value = load_tap(b, x, (ir.index_of(n),), (y, x_at), (c,))
            else:
                value = load_tap(b, x, (ir.index_of(n), c), (y, x_at))
            term = value * (h * w)
            if total is not None:
                term = ir.Binary("max", total, term) if is_max else total + term
            total = term
    assert total is not None
    return total


def finished(total: Expr, number: Sequence[Expr], is_max: bool) -> Expr:
    count = ir.Binary("mul", number[0], number[1])
    if is_max:
        some = ir.Compare("gt", count, ir.Lit(0, I64))
        return ir.Select(some, total, ir.value_of(0.0, total.dtype))
    return total / ir.Cast(ir.Binary("max", count, ir.Lit(1, I64)), total.dtype)


def sample_arrays(low: Any, high: Any, bins: int, attrs: Attrs, one: Any) -> list[list[Any]]:
    """The coordinates of the samples of each bin."""
    scale, offset = one(attrs.get("scale", 1.0)), one(0.5 if attrs.get("half_pixel") else 0)
    low, high = low * scale - offset, high * scale - offset
    size = (high - low if attrs.get("half_pixel") else max(high - low, one(1))) / one(bins)
    count = int(attrs.get("samples", 0)) or max(0, int(np.ceil(size)))
    return [
        [low + one(k) * size + one(i + 0.5) * size / one(count) for i in range(count)]
        for k in range(bins)
    ]


def bin_array(x: np.ndarray, ys: Sequence[Any], xs: Sequence[Any], mode: str) -> np.ndarray:
    """One bin of x (c, h, w)."""
    if not len(ys) or not len(xs) or 0 in x.shape[1:]:
        return np.zeros(x.shape[0])
    found = []
    for y in ys:
        for at in xs:
            (y0, y1, hy, ly), (x0, x1, hx, lx) = _taps(y, x.shape[1]), _taps(at, x.shape[2])
            found.append([x[:, y0, x0] * (hy * hx), x[:, y0, x1] * (hy * lx),
                          x[:, y1, x0] * (ly * hx), x[:, y1, x1] * (ly * lx)])  # fmt: skip
    values = np.array(found)
    return values.max((0, 1)) if mode == "max" else values.sum(1).mean(0)


def _taps(at: Any, size: int) -> tuple[int, int, float, float]:
    if size == 0 or not -1 <= at <= size:
        return 0, 0, 0.0, 0.0
    inside = min(max(at, 0), size - 1)
    low = int(inside)
    return low, min(low + 1, size - 1), 1 - (inside - low), inside - low


@register
class MaxRoiPool(RegionPool):
    """(x, regions (r, 5): batch, x and y of the first corner and of the last) → the maxima of the
    elements in each bin, 0 for a bin without any. {shape, scale, layout}."""

    name = "max_roi_pool"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, rois = common.tensor_types(self.name, inputs, 2)
        if rois.rank != 2 or arith.as_int(rois.shape[1]) != 5:
            raise type_error(self.name, f"regions {rois} have not five columns")
        return self.check(x, rois, attrs)

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, rois = (np.asarray(v) for v in inputs)
        x, one = first_layout(x, attrs), rois.dtype.type
        bins = attrs["shape"]
        out = np.zeros((len(rois), x.shape[1], *bins), x.dtype)
        for r, (n, *corners) in enumerate(rois):
            if not 0 <= n < len(x):
                raise common.run_failed(NO_BATCH.split("{")[0])
            x1, y1, x2, y2 = (int(half_away(v * one(attrs.get("scale", 1.0)))) for v in corners)
            for at in np.ndindex(*bins):
                part = []
                for k, (low, high) in enumerate(((y1, y2), (x1, x2))):
                    size = one(max(high - low + 1, 1)) / one(bins[k])
                    ends = np.floor(one(at[k]) * size), np.ceil(one(at[k] + 1) * size)
                    part.append([int(min(max(e + low, 0), x.shape[2 + k])) for e in ends])
                (h0, h1), (w0, w1) = part
                if h0 < h1 and w0 < w1:
                    out[(r, slice(None), *at)] = x[int(n), :, h0:h1, w0:w1].max((1, 2))
        return [in_layout(out, attrs)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, rois = inputs
        assert x is not None and rois is not None
        n, height, width, channels = sizes(x.shape, attrs)
        batch = b.compute("batch", (rois.shape[0],), lambda r: ir.Cast(rois[r, 0], I64))
        check_batch(b, batch, n)
        out = b.buffer("max_roi_pool", x.dtype, outputs[0].shape)
        extents = (rois.shape[0], *attrs["shape"], channels)
        low, zero = identity("max", x.dtype), ir.value_of(0.0, x.dtype)

        def body(r: arith.Expr, h: arith.Expr, w: arith.Expr, c: arith.Expr) -> Stmt:
            to, let = ordered((r, h, w, c), attrs), Lets(b)
            image = let("n", clamped(batch[r], n))
            spans = [
                bin_span(let, rois, r, k, bin, size, attrs)
                for k, (bin, size) in enumerate(((h, height), (w, width)))
            ]
            names = [b.fresh("y"), b.fresh("x")]
            at = ordered((ir.index_of(image), arith.Var(names[0]), arith.Var(names[1]), c), attrs)
            rows: Stmt = ir.Store(out, to, ir.Binary("max", out[to], ir.Load(x, at)))
            for name, (first, end) in reversed(list(zip(names, spans))):
                rows = ir.For(name, ir.index_of(first), ir.index_of(end), rows)
            some = [ir.Compare("lt", first, end) for first, end in spans]
            last = ir.Store(out, to, ir.Select(some[0] & some[1], out[to], zero))
            return let.around(ir.seq(ir.Store(out, to, low), rows, last))

        common.stage(b, "max_roi_pool", extents, body)
        return [out]

    def samples(self) -> list[Sample]:
        rois = [[1, 0, 1, 5, 4], [0, 2, -3, 8, 9], [1, 9, 9, 12, 12], [0, 1, 1, 1, 1]]
        table = np.array(rois, np.float32)
        bad = table[:1] + np.float32(2)
        x = common.floats(2, 5, 7, 6)
        return [
            *self.samples_of(x, table, shape=(3, 2), scale=0.8),
            Sample((x, bad), {"shape": (1, 1)}, fails="a region is in batch"),
        ]


def half_away(x: Any) -> Any:
    """Rounded to nearest, halves away from zero."""
    return np.floor(x + 0.5) if x >= 0 else np.ceil(x - 0.5)


def bin_span(
    let: Lets,
    rois: Buffer,
    r: arith.Expr,
    k: int,
    bin: arith.Expr,
    size: arith.Expr,
    attrs: Attrs,
) -> tuple[Expr, Expr]:
    """The first element of a bin along an axis, and the end, inside x."""
    dtype, scale = rois.dtype, float(attrs.get("scale", 1.0))
    zero = ir.value_of(0.0, dtype)

    def rounded(x: Expr) -> Expr:
        is_positive = ir.Compare("ge", x, zero)
        return ir.Select(is_positive, floor(x + 0.5), ir.Unary("ceil", x - 0.5))

    low, high = (let("end", rounded(rois[r, column] * scale)) for column in (2 - k, 4 - k))
    length = ir.Binary("max", high - low + 1.0, ir.value_of(1.0, dtype))
    step = let("step", length / float(attrs["shape"][k]))
    ends = floor(float_of(bin, dtype) * step), ir.Unary("ceil", (float_of(bin, dtype) + 1.0) * step)
    first, end = (let("at", ir.Cast(clamp(e + low, zero, size_of(size, dtype)), I64)) for e in ends)
    return first, end
