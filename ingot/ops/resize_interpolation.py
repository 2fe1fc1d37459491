"""Interpolation for `resize` (resize.py): coordinate transforms, kernels, weights, and their nodes.

The source coordinate of each output is computed in f32, as in ONNX Runtime: nearest-neighbour
rounding depends on the last bit. `COORDINATES` holds the transforms; the same formulas run on numpy
arrays (the reference) and on graph values (the decomposition, `AxisResampler`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs
from ingot.graph.types import Dim
from ingot.ops import common

# --- formulas on numpy arrays or graph values ---------------------------------------------------


@dataclass(frozen=True)
class CoordinateInputs:
    """The operands of a coordinate transform: f32 numpy arrays, or graph values (`Term`)."""

    i: Any  # the output index
    scale: Any  # output size / input size
    in_size: Any
    out_size: Any
    roi: tuple[Any, Any]


COORDINATES: dict[str, Callable[[CoordinateInputs], Any]] = {
    "half_pixel": lambda p: (p.i + 0.5) / p.scale - 0.5,
    "half_pixel_symmetric": lambda p: (
        (p.i + 0.5) / p.scale + p.in_size * 0.5 * (1.0 - p.out_size / (p.scale * p.in_size)) - 0.5
    ),
    "pytorch_half_pixel": lambda p: p.i * 0.0,  # for an output size of 1; otherwise half_pixel
    "align_corners": lambda p: p.i * (p.in_size - 1.0) / maximum(p.out_size - 1.0, 1.0),
    "asymmetric": lambda p: p.i / p.scale,
    # the identity for a scale of 1, as in ONNX Runtime
    "tf_half_pixel_for_nn": lambda p: where(
        less(absolute(p.scale - 1.0), 1e-7), p.i, (p.i + 0.5) / p.scale
    ),
    # a single output is the region's centre
    "tf_crop_and_resize": lambda p: where(
        less(p.out_size, 1.5),
        p.i * 0.0 + (p.in_size - 1.0) * (p.roi[0] + p.roi[1]) * 0.5,
        (p.in_size - 1.0) * p.roi[0]
        + p.i * ((p.in_size - 1.0) * (p.roi[1] - p.roi[0])) / maximum(p.out_size - 1.0, 1.0),
    ),
}

ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "floor": lambda x: floor(x),
    "ceil": lambda x: -floor(-x),
    "round_prefer_floor": lambda x: -floor(0.5 - x),
    "round_prefer_ceil": lambda x: floor(x + 0.5),
}
BY_SCALE = "by_scale"  # before opset 11: down, or up for down-sampling


def rounded(rounding: str, at: Any, scale: Any) -> Any:
    """Coordinates as indices, by a row of ROUNDINGS or by the scale."""
    if rounding != BY_SCALE:
        return ROUNDINGS[rounding](at)
    return where(less(scale, 1.0), -floor(-at), floor(at))


def keys_cubic(distance: Any, a: float) -> Any:
    """The cubic convolution kernel of Keys: a polynomial below 1, another below 2, zero beyond."""
    d = distance
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    return where(less(d, 1.0), near, where(less(d, 2.0), far, d * 0.0))


def triangle(distance: Any, a: float) -> Any:
    return maximum(1.0 - distance, 0.0)


KERNELS: dict[str, Callable[[Any, float], Any]] = {"linear": triangle, "cubic": keys_cubic}
TAPS = {"linear": (0, 1), "cubic": (-1, 0, 1, 2)}  # input elements, relative to floor(position)


@dataclass(frozen=True)
class Term:
    """A graph value with numpy's arithmetic operators; Python numbers become f32 constants."""

    g: GraphBuilder
    value: Value

    def __add__(self, other: Any) -> Term:
        return self.with_("add", other)

    def __sub__(self, other: Any) -> Term:
        return self.with_("sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self.lifted(other) - self

    def __mul__(self, other: Any) -> Term:
        return self.with_("mul", other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Term:
        return self.with_("div", other)

    def __neg__(self) -> Term:
        return Term(self.g, self.g.add("neg", [self.value]))

    def lifted(self, other: Any) -> Term:
        return other if isinstance(other, Term) else number(self.g, other)

    def with_(self, op: str, *others: Any) -> Term:
        values = [self.lifted(other).value for other in others]
        return Term(self.g, self.g.add(op, [self.value, *values]))

    def shaped(self, *shape: arith.IntLike) -> Term:
        return Term(self.g, self.g.add("reshape", [self.value], shape=shape))


def number(g: GraphBuilder, value: float) -> Term:
    return Term(g, g.constant(np.array(value, np.float32)))


def floor(x: Any) -> Any:
    return x.with_("floor") if isinstance(x, Term) else np.floor(x)


def maximum(x: Any, y: float) -> Any:
    return x.with_("max", y) if isinstance(x, Term) else np.maximum(x, np.float32(y))


def minimum(x: Any, y: Any) -> Any:
    return x.with_("min", y) if isinstance(x, Term) else np.minimum(x, y)


def less(x: Any, y: Any) -> Any:
    return x.with_("lt", y) if isinstance(x, Term) else x < y


def absolute(x: Any) -> Any:
    return x.with_("abs") if isinstance(x, Term) else np.abs(x)


def where(condition: Any, x: Any, y: Any) -> Any:
    return (
        condition.with_("where", x, y) if isinstance(condition, Term) else np.where(condition, x, y)
    )


# --- attributes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The attributes, with their defaults."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    scale: float | None = None
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, float] = (0.0, 1.0)
    extrapolation: float | None = None

    @classmethod
    def of(cls, attrs: Attrs) -> Settings:
        return cls(**{n: v for n, v in attrs.items() if n not in ("axis", "size")})

    @property
    def drops_outside(self) -> bool:
        """Whether taps outside the input have weight 0, rather than the border's value."""
        return self.mode == "cubic" and self.exclude_outside

    def coordinates_of(self, inputs: CoordinateInputs, size: Dim | int) -> Any:
        """The source coordinate of each output. pytorch_half_pixel maps a single output to 0."""
        formula = self.coordinates
        if formula == "pytorch_half_pixel" and not arith.is_const(arith.wrap(size), 1):
            half = COORDINATES["half_pixel"](inputs)
            if arith.as_int(size) is not None:
                return half
            return where(less(inputs.out_size, 1.5), half * 0.0, half)
        return COORDINATES[formula](inputs)


# --- the numpy reference ------------------------------------------------------------------------


def coordinate_inputs(given: int, size: int, settings: Settings) -> CoordinateInputs:
    one = np.float32
    scale = one(size) / one(given) if settings.scale is None else one(settings.scale)
    start, end = settings.roi
    roi = (one(start), one(end))
    index = np.arange(size, dtype=one)
    return CoordinateInputs(index, scale, one(given), one(size), roi)  # type: ignore[arg-type]


def weight_matrix(at: np.ndarray, given: int, size: int, settings: Settings) -> np.ndarray:
    """The weight of every input element in every output, (size, given)."""
    weights = np.zeros((size, given))
    kernel, a = KERNELS[settings.mode], settings.cubic_a
    scale = size / given if settings.scale is None else settings.scale
    shrink = min(scale, 1.0) if settings.antialias else 1.0
    reach = int(np.ceil(max(TAPS[settings.mode]) / shrink)) + 1
    for o, centre in enumerate(at.astype(np.float64)):
        for j in range(int(np.floor(centre)) - reach, int(np.floor(centre)) + reach + 1):
            weight = kernel(np.float64(abs(j - centre) * shrink), a)
            if 0 <= j < given:
                weights[o, j] += weight
            elif not settings.drops_outside:
                weights[o, min(max(j, 0), given - 1)] += weight
    if settings.drops_outside or settings.antialias:
        with np.errstate(all="ignore"):
            weights /= weights.sum(1, keepdims=True)
    return weights


# --- the decomposition --------------------------------------------------------------------------


def integer_factor(given: Dim, size: Dim, settings: Settings) -> int | None:
    """k such that output i is input i // k for every i and every input size, else None."""
    exact = {  # transforms and roundings that give i // k
        "asymmetric": ("floor",),
        "tf_half_pixel_for_nn": ("floor",),
        "half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
        "half_pixel_symmetric": ("round_prefer_floor", "round_prefer_ceil"),
    }
    if settings.mode != "nearest" or settings.rounding not in exact.get(settings.coordinates, ()):
        return None
    factor = arith.as_int(simplify(size // given)) if settings.scale is None else settings.scale
    if not factor or factor != int(factor) or not common.same_dim(size, given * int(factor)):
        return None
    return int(factor)


def repeated(g: GraphBuilder, x: Value, axis: int, factor: int) -> Value:
    """Every element repeated `factor` times."""
    head, (given, *tail) = x.shape[:axis], x.shape[axis:]
    column = g.add("reshape", [x], shape=(*head, given, 1, *tail))
    wide = g.add("expand", [column], shape=(*head, given, factor, *tail))
    return g.add("reshape", [wide], shape=(*head, simplify(given * factor), *tail))


def cast(g: GraphBuilder, x: Value, to: DType) -> Value:
    return x if x.dtype is to else g.add("cast", [x], to=to, mode="saturate")


def as_float(g: GraphBuilder, size: Dim) -> Term:
    """A size as an f32 value."""
    count = g.add("index_tensor", [], values=(size,), shape=())
    return Term(g, cast(g, count, dtypes.f32))


class AxisResampler:
    """The resampling of one axis: source coordinates as graph values of shape (size,)."""

    def __init__(
        self, g: GraphBuilder, given: Dim, size: Dim, settings: Settings,
        scale: Value | None = None, roi: Value | None = None,
    ):  # fmt: skip
        """`scale` (a scalar) and `roi` (two numbers), where they are known only at run time."""
        self.g, self.given, self.size, self.settings = g, given, size, settings
        self.is_late = scale is not None
        self.extent, out_size = as_float(g, given), as_float(g, size)
        if scale is not None:
            self.scale = Term(g, scale)
        elif settings.scale is not None:
            self.scale = number(g, settings.scale)
        else:
            self.scale = out_size / self.extent
        index = self.iota(size)
        ends: tuple[Any, Any] = settings.roi
        if roi is not None:
            ends = self.element(roi, 0), self.element(roi, 1)
        inputs = CoordinateInputs(index, self.scale, self.extent, out_size, ends)
        self.at: Term = settings.coordinates_of(inputs, size)

    def element(self, x: Value, index: int) -> Term:
        part = self.g.add("slice", [x], starts=(index,), sizes=(1,), steps=(1,))
        return Term(self.g, part).shaped()

    def iota(self, size: Dim) -> Term:
        """0, 1, 2, … as f32."""
        g = self.g
        zero, one = (g.constant(np.array(n, np.int64)) for n in (0, 1))
        limit = g.add("index_tensor", [], values=(size,), shape=())
        return Term(g, cast(g, g.add("range", [zero, limit, one], size=size), dtypes.f32))

    def index(self, coordinate: Term) -> Value:
        """Coordinates as indices, clamped to the input."""
        inside = minimum(maximum(coordinate, 0.0), self.extent - 1.0)
        return cast(self.g, inside.value, dtypes.i64)

    def nearest(self) -> Value:
        return self.index(rounded(self.settings.rounding, self.at, self.scale))

    def along(self, weights: Value, x: Value, axis: int) -> Value:
        """Weights of shape (size,), reshaped to broadcast along `axis` of x."""
        weights = cast(self.g, weights, x.dtype)
        return self.g.add(
            "reshape", [weights], shape=(self.size, *[1] * (x.tensor.rank - axis - 1))
        )

    def by_taps(self, x: Value, axis: int) -> Value:
        """Σ weight · x[tap], over the few taps of each output."""
        low, terms = floor(self.at), []
        fraction = self.at - low
        weights = [
            KERNELS[self.settings.mode](absolute(float(tap) - fraction), self.settings.cubic_a)
            for tap in TAPS[self.settings.mode]
        ]
        if self.settings.drops_outside:
            weights = self.without_outside(low, weights)
        for tap, weight in zip(TAPS[self.settings.mode], weights):
            taken = self.g.add("gather", [x, self.index(low + float(tap))], axis=axis)
            terms.append(self.g.add("mul", [taken, self.along(weight.value, x, axis)]))
        total = terms[0]
        for term in terms[1:]:
            total = self.g.add("add", [total, term])
        return total

    def without_outside(self, low: Term, weights: Sequence[Term]) -> list[Term]:
        """Weights with those of taps outside the input set to 0, normalised to sum 1."""
        kept = []
        for tap, weight in zip(TAPS[self.settings.mode], weights):
            tap_index = low + float(tap)
            inside = minimum(tap_index, self.extent - 1.0 - tap_index)
            kept.append(where(less(inside, 0.0), weight * 0.0, weight))
        total = kept[0]
        for weight in kept[1:]:
            total = total + weight
        return [weight / total for weight in kept]

    def by_matrix(self, x: Value, axis: int) -> Value:
        """A matmul with the weight matrix: down-sampling with anti-aliasing has many taps. x is
        extended at both ends by its border elements."""
        rank, reach = x.tensor.rank, self.reach()
        span = simplify(self.given + reach * 2)
        coordinate = self.iota(span) - as_float(self.g, reach)
        distance = coordinate.shaped(span, 1) - self.at
        shrink = minimum(self.scale, number(self.g, 1.0))
        weights = KERNELS[self.settings.mode](absolute(distance) * shrink, self.settings.cubic_a)
        total = self.g.add("reduce_sum", [weights.value], axes=(0,), keepdims=True)
        matrix = cast(self.g, (weights / Term(self.g, total)).value, x.dtype)
        last = (*range(axis), *range(axis + 1, rank), axis)
        back = (*range(axis), rank - 1, *range(axis, rank - 1))
        wide = self.g.add("gather", [x, self.index(coordinate)], axis=axis)
        transposed = self.g.add("transpose", [wide], perm=last)
        return self.g.add("transpose", [self.g.add("matmul", [transposed, matrix])], perm=back)

    def reach(self) -> Dim:
        """How far beyond the border a tap may be. A scale is at least 1 / input size, so the
        stretched kernel is at most input size times its own width; a scale of which the size was
        rounded up may be half of that."""
        width = max(TAPS[self.settings.mode])
        if self.settings.drops_outside:
            return arith.Const(0)
        given, size = arith.as_int(self.given), arith.as_int(self.size)
        if given is None or size is None or self.is_late:
            return simplify(self.given * (width * 2 if self.is_late else width))
        scale = size / given if self.settings.scale is None else self.settings.scale
        return arith.Const(math.ceil(width / min(scale, 1.0)) + 1)

    def extrapolated(self, x: Value, axis: int) -> Value:
        """x, with the extrapolation value where the source coordinate is outside the input."""
        if self.settings.extrapolation is None:
            return x
        depth = minimum(self.at, self.extent - 1.0 - self.at)
        outside = less(depth, 0.0).shaped(self.size, *[1] * (x.tensor.rank - axis - 1))
        fill = self.g.constant(np.array(self.settings.extrapolation, x.dtype.numpy))
        return self.g.add("where", [outside.value, fill, x])
