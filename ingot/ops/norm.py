"""Normalisation: batch, layer, RMS, instance, group and local response.

In: x and its scales and biases. Out: x's shape and type. Layer and RMS norm are composite
operators, kept whole where the target keeps them; batch norm decomposes into one multiply and one
add, which fold into a convolution. Statistics of narrow floats are f32. Called through the operator
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, rows_align, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    broadcast_load,
    broadcast_shapes,
    floats,
    is_narrow,
    narrow,
    normalize_axis,
    require_same_dim,
    require_same_dtype,
    tensor_type,
    wide_dtype,
    widen,
    widen_array,
)
from ingot.ops.conv import inside
from ingot.ops.reduce import as_value, check_floats


def float_operands(op: str, inputs: Sequence[Type | None], least: int) -> list[TensorType]:
    """The operands that are present, all of one float type; the first `least` are mandatory."""
    if len(inputs) < least or any(t is None for t in inputs[:least]):
        raise type_error(op, f"expects at least {least} operands, got {len(inputs)}")
    found = [tensor_type(op, t) for t in inputs if t is not None]
    require_same_dtype(op, *found)
    check_floats(op, found[0])
    return found


def per_channel(op: str, x: TensorType, params: Sequence[TensorType]) -> None:
    if x.rank < 2:
        raise type_error(op, f"expects a batch and a channel axis, got {x}")
    for p in params:
        if p.rank != 1:
            raise type_error(op, f"{p} is not one value for each of {x.shape[1]} channels")
        require_same_dim(op, p.shape[0], x.shape[1], "there is one value for each channel")


def channels_shape(param: Value, rank: int) -> tuple[Dim, ...]:
    """(channels, 1, 1, …): a per-channel parameter, aligned with axis 1."""
    return (param.shape[0], *(arith.Const(1) for _ in range(rank - 2)))


def widened(g: GraphBuilder, x: Value) -> Value:
    return g.add("cast", [x], to=dtypes.f32, mode="saturate") if is_narrow(x.dtype) else x


def narrowed(g: GraphBuilder, x: Value, like: Value) -> Value:
    if x.dtype is like.dtype:
        return x
    return g.add("cast", [x], to=like.dtype, mode="saturate")


def scalar(g: GraphBuilder, value: float, like: Value) -> Value:
    return g.constant(np.array(value, like.dtype.numpy))


def tolerance(x: np.ndarray) -> tuple[float, float]:
    size = 2e-2 if x.dtype.itemsize == 2 else 2e-5
    return size, size


@register
class BatchNorm(OpDef):
    """(x - mean) / sqrt(var + epsilon) · scale + bias, as one multiply and one add, whose operands
    are folded if the parameters are constant."""

    name = "batch_norm"
    composite = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, *params = float_operands(self.name, inputs, 5)
        per_channel(self.name, x, params)
        return [TensorType(x.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, *params = (widen_array(a) for a in inputs if a is not None)
        along = (-1, *(1,) * (x.ndim - 2))
        scale, bias, mean, var = (p.reshape(along) for p in params)
        root = np.sqrt(var + var.dtype.type(attrs["epsilon"]))
        return [((x - mean) / root * scale + bias).astype(inputs[0].dtype)]  # type: ignore

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        like = inputs[0]
        x, scale, bias, mean, var = (widened(g, v) for v in inputs if v is not None)
        root = g.add("sqrt", [g.add("add", [var, scalar(g, attrs["epsilon"], var)])])
        factor = g.add("div", [scale, root])
        shift = g.add("sub", [bias, g.add("mul", [mean, factor])])
        shape = channels_shape(factor, x.tensor.rank)
        factor, shift = (g.add("reshape", [v], shape=shape) for v in (factor, shift))
        assert like is not None
        return [narrowed(g, g.add("add", [g.add("mul", [x, factor]), shift]), like)]

    def samples(self) -> list[Sample]:
        def case(x: np.ndarray) -> Sample:
            dtype = dtypes.from_numpy(x.dtype)
            scale, bias, mean = (floats(x.shape[1], dtype=dtype, key=i) for i in range(3))
            var = np.abs(floats(x.shape[1], dtype=dtype, key=4)) + x.dtype.type(0.1)
            return Sample((x, scale, bias, mean, var), {"epsilon": 1e-5}, *tolerance(x))

        return [
            case(floats(2, 3, 4, 5)), case(floats(4, 7)), case(floats(1, 2, 3)),
            case(floats(2, 3, 4, dtype=dtypes.f16)),
        ]  # fmt: skip


class RowNorm(OpDef):
    """A row reduction: normalise over the axes from `axis` on, then scale and shift (optional)."""

    kind = Kind.REDUCTION
    family = "norm"
    composite = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, *params = float_operands(self.name, inputs, 1)
        normalize_axis(self.name, attrs.get("axis", -1), x.rank)
        if any(broadcast_shapes(x.shape, p.shape) != x.shape for p in params):
            raise type_error(self.name, f"scale or bias does not broadcast to {x}")
        return [TensorType(x.dtype, x.shape)]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        x = tensor_type(self.name, inputs[0])
        return attrs if 0 not in self.axes(attrs, x.rank) and rows_align(inputs, batched) else None

    def axes(self, attrs: Attrs, rank: int) -> tuple[int, ...]:
        return tuple(range(normalize_axis(self.name, attrs.get("axis", -1), rank), rank))

    def affine(
        self,
        b: Build,
        x: Buffer,
        params: Sequence[Buffer | None],
        value: Callable[..., Expr],
    ) -> list[Buffer]:
        """The last stage: value(*point) · scale + bias, cast to x's type."""
        scale, bias = (*params, None, None)[:2]

        def out(*point: arith.Expr) -> Expr:
            result = value(*point)
            if scale is not None:
                result = result * widen(broadcast_load(scale, point))
            if bias is not None:
                result = result + widen(broadcast_load(bias, point))
            return narrow(result, x.dtype)

        return [b.compute("out", x.shape, out)]

    def graph_affine(
        self, g: GraphBuilder, x: Value, value: Value, params: Sequence[Value | None]
    ) -> list[Value]:
        for op, param in zip(("mul", "add"), params):
            if param is not None:
                value = g.add(op, [value, widened(g, param)])
        return [narrowed(g, value, x)]

    def cases(self, biased: bool) -> list[Sample]:
        def case(x: np.ndarray, axis: int, shape: tuple[int, ...] | None) -> Sample:
            dtype = dtypes.from_numpy(x.dtype)
            params = () if shape is None else (floats(*shape, dtype=dtype, key=1),)
            if biased and shape is not None:
                params = (*params, floats(*shape, dtype=dtype, key=2))
            return Sample((x, *params), {"axis": axis, "epsilon": 1e-5}, *tolerance(x))

        return [
            case(floats(3, 17), -1, (17,)),
            case(floats(2, 3, 5) + 100, 1, (3, 5)),
            case(floats(2, 3, 5), 2, None),
            case(floats(2, 3, 4), 0, (1, 4)),
            case(floats(2, 3, 1, dtype=dtypes.f64), -1, (1,)),
            case(floats(2, 9, dtype=dtypes.f16), -1, (9,)),
            case(floats(2, 9, dtype=dtypes.bf16), -1, (9,)),
        ]


@register
class LayerNorm(RowNorm):
    """(x - mean) / sqrt(variance + epsilon) · scale + bias; two-pass variance."""

    name = "layer_norm"

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, scale, bias = (*inputs, None, None)[:3]
        assert x is not None
        wide = widen_array(x)
        axes = self.axes(attrs, x.ndim)
        centred = wide - np.mean(wide, axis=axes, keepdims=True)
        variance = np.mean(centred * centred, axis=axes, keepdims=True)
        value = centred / np.sqrt(variance + wide.dtype.type(attrs["epsilon"]))
        value = value if scale is None else value * widen_array(scale)
        value = value if bias is None else value + widen_array(bias)
        return [value.astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, *params = inputs
        assert x is not None
        first, wide = len(x.shape) - len(self.axes(attrs, x.rank)), wide_dtype(x.dtype)
        rows, over = x.shape[:first], x.shape[first:]
        count = as_value(arith.product(list(over)), wide)
        total = b.reduce("total", rows, over, "add", lambda *p: widen(x[p]))
        mean = b.compute("mean", rows, lambda *p: total[p] / count)

        def square(*point: arith.Expr) -> Expr:
            centred = widen(x[point]) - mean[point[:first]]
            return centred * centred

        squares = b.reduce("squares", rows, over, "add", square)
        epsilon = ir.value_of(attrs["epsilon"], wide)
        inverse = b.compute(
            "inverse",
            rows,
            lambda *p: 1.0 / ir.Unary("sqrt", squares[p] / count + epsilon),
        )
        return self.affine(
            b, x, params, lambda *p: (widen(x[p]) - mean[p[:first]]) * inverse[p[:first]]
        )

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x, *params = inputs
        assert x is not None
        wide, axes = widened(g, x), self.axes(attrs, x.tensor.rank)
        centred = g.add("sub", [wide, g.add("reduce_mean", [wide], axes=axes, keepdims=True)])
        square = g.add("mul", [centred, centred])
        variance = g.add("reduce_mean", [square], axes=axes, keepdims=True)
        root = g.add("sqrt", [g.add("add", [variance, scalar(g, attrs["epsilon"], wide)])])
        return self.graph_affine(g, x, g.add("div", [centred, root]), params)

    def samples(self) -> list[Sample]:
        return self.cases(biased=True)


@register
class RmsNorm(RowNorm):
    """x / sqrt(mean(x²) + epsilon) · scale"""

    name = "rms_norm"

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, scale = (*inputs, None)[:2]
        assert x is not None
        wide = widen_array(x)
        square = np.mean(wide * wide, axis=self.axes(attrs, x.ndim), keepdims=True)
        value = wide / np.sqrt(square + wide.dtype.type(attrs["epsilon"]))
        return [(value if scale is None else value * widen_array(scale)).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, *params = inputs
        assert x is not None
        first, wide = len(x.shape) - len(self.axes(attrs, x.rank)), wide_dtype(x.dtype)
        rows, over = x.shape[:first], x.shape[first:]
        count, epsilon = (
            as_value(arith.product(list(over)), wide), ir.value_of(attrs["epsilon"], wide),
        )  # fmt: skip
        squares = b.reduce("squares", rows, over, "add", lambda *p: widen(x[p]) * widen(x[p]))
        inverse = b.compute(
            "inverse", rows, lambda *p: 1.0 / ir.Unary("sqrt", squares[p] / count + epsilon)
        )
        return self.affine(b, x, params, lambda *p: widen(x[p]) * inverse[p[:first]])

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x, *params = inputs
        assert x is not None
        wide, axes = widened(g, x), self.axes(attrs, x.tensor.rank)
        square = g.add("reduce_mean", [g.add("mul", [wide, wide])], axes=axes, keepdims=True)
        root = g.add("sqrt", [g.add("add", [square, scalar(g, attrs["epsilon"], wide)])])
        return self.graph_affine(g, x, g.add("div", [wide, root]), params)

    def samples(self) -> list[Sample]:
        return self.cases(biased=False)


class ChannelNorm(OpDef):
    """Each group of channels of a sample is normalised, then each channel scaled and shifted."""

    composite = True

    def groups(self, channels: Dim, attrs: Attrs) -> Dim:
        return channels

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, *params = float_operands(self.name, inputs, 3)
        per_channel(self.name, x, params)
        channels, groups = arith.as_int(x.shape[1]), arith.as_int(self.groups(x.shape[1], attrs))
        if channels is not None and groups is not None and (groups < 1 or channels % groups):
            raise type_error(self.name, f"{channels} channels are not divisible by {groups} groups")
        return [TensorType(x.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, scale, bias = (widen_array(a) for a in inputs if a is not None)
        groups = arith.as_int(self.groups(arith.Const(x.shape[1]), attrs))
        rows = x.reshape(x.shape[0], groups or 1, math.prod(x.shape[1:]) // (groups or 1))
        centred = rows - np.mean(rows, axis=2, keepdims=True)
        variance = np.mean(centred * centred, axis=2, keepdims=True)
        value = (centred / np.sqrt(variance + x.dtype.type(attrs["epsilon"]))).reshape(x.shape)
        along = (-1, *(1,) * (x.ndim - 2))
        value = value * scale.reshape(along) + bias.reshape(along)
        return [value.astype(inputs[0].dtype)]  # type: ignore[union-attr]

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x, scale, bias = inputs
        assert x is not None and scale is not None and bias is not None
        batch, channels, *space = x.shape
        groups = self.groups(channels, attrs)
        inner = arith.product([channels if groups != channels else 1, *space])
        inner = inner // groups if groups != channels else inner
        wide = widened(g, x)
        rows = g.add("reshape", [wide], shape=(batch, groups, inner))
        rows = g.add("layer_norm", [rows], axis=2, epsilon=attrs["epsilon"])
        value = g.add("reshape", [rows], shape=x.shape)
        for op, param in (("mul", scale), ("add", bias)):
            shape = channels_shape(param, x.tensor.rank)
            value = g.add(op, [value, g.add("reshape", [widened(g, param)], shape=shape)])
        return [narrowed(g, value, x)]

    def case(self, x: np.ndarray, **attrs) -> Sample:
        dtype = dtypes.from_numpy(x.dtype)
        params = (floats(x.shape[1], dtype=dtype, key=i) for i in range(2))
        return Sample((x, *params), {"epsilon": 1e-5, **attrs}, *tolerance(x))


@register
class InstanceNorm(ChannelNorm):
    """Each channel of each sample is normalised by itself."""

    name = "instance_norm"

    def samples(self) -> list[Sample]:
        return [
            self.case(floats(2, 3, 4, 5)), self.case(floats(1, 2, 9)),
            self.case(floats(2, 2, 5, dtype=dtypes.f16)), self.case(floats(1, 2, 2, 3, 2)),
        ]  # fmt: skip


@register
class GroupNorm(ChannelNorm):
    """Groups of neighbouring channels are normalised together, {groups}."""

    name = "group_norm"

    def groups(self, channels: Dim, attrs: Attrs) -> Dim:
        return arith.wrap(attrs["groups"])

    def samples(self) -> list[Sample]:
        return [
            self.case(floats(2, 6, 4, 5), groups=3), self.case(floats(2, 4, 3), groups=1),
            self.case(floats(1, 4, 3, dtype=dtypes.f16), groups=2),
            self.case(floats(2, 4, 3, 3), groups=4), self.case(floats(2, 6), groups=2),
        ]  # fmt: skip


@register
class LocalResponseNorm(OpDef):
    """x / (bias + alpha/size · Σ x² over `size` neighbouring channels) ** beta"""

    name = "lrn"
    kind = Kind.REDUCTION
    family = "norm"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = float_operands(self.name, inputs, 1)
        if x.rank < 2:
            raise type_error(self.name, f"expects a batch and a channel axis, got {x}")
        return [TensorType(x.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, size = inputs[0], attrs["size"]
        assert x is not None
        wide = widen_array(x)
        total, kind = np.zeros_like(wide), wide.dtype.type
        for c in range(x.shape[1]):
            low, high = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
            total[:, c] = np.sum(wide[:, low:high] ** 2, axis=1)
        base = kind(attrs["bias"]) + kind(attrs["alpha"] / size) * total
        return [(wide / base ** kind(attrs["beta"])).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, size = inputs[0], attrs["size"]
        assert x is not None
        wide = wide_dtype(x.dtype)

        def square(*point: arith.Expr) -> Expr:
            n, c, *space, tap = point
            near = c + tap - (size - 1) // 2
            zero = ir.value_of(0.0, x.dtype)
            load = ir.Load(x, (n, near, *space), mask=inside(near, x.shape[1]), other=zero)
            return widen(load) * widen(load)

        total = b.reduce("total", x.shape, (size,), "add", square)
        bias, scale, beta = (
            ir.value_of(v, wide) for v in (attrs["bias"], attrs["alpha"] / size, attrs["beta"])
        )

        def value(*point: arith.Expr) -> Expr:
            base = bias + scale * total[point]
            return narrow(widen(x[point]) / ir.Math("pow", (base, beta)), x.dtype)

        return [b.compute("out", x.shape, value)]

    def samples(self) -> list[Sample]:
        base = {"alpha": 0.3, "beta": 0.75, "bias": 1.5}
        return [
            Sample((floats(2, 5, 3, 4),), {**base, "size": 3}, *tolerance(floats(1))),
            Sample((floats(1, 4, 3),), {**base, "size": 4}, *tolerance(floats(1))),
            Sample((floats(1, 3, 2, 2),), {**base, "size": 9}, *tolerance(floats(1))),
        ]
