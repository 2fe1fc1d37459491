"""Interpolation taps of one axis, for operators that read a tensor at points computed from data.

In: a coordinate (a float expression in elements of the axis) and the axis' size. Out: `Tap`s: an
index inside the axis and its weight. Used by grid_sample.py, deform_conv.py and crop_resize.py;
the numpy versions serve their references.

A tap of weight zero is never read, so that what is outside may be NaN or infinite.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.dtypes import DType
from ingot.graph.types import Dim
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt

CUBIC_A = -0.75  # the free parameter of Keys' kernel, as PyTorch and ONNX fix it
TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
PADDINGS = ("zeros", "border", "reflection")


@dataclass(frozen=True)
class Tap:
    """An index inside the axis (a float expression of integer value) and its weight."""

    index: Expr
    weight: Expr


def floor(x: Expr) -> Expr:
    return ir.Unary("floor", x)


def clamp(x: Expr, low: Expr, high: Expr) -> Expr:
    return ir.Binary("min", ir.Binary("max", x, low), high)


def less(a: Expr, b: Expr) -> Expr:
    return ir.Compare("lt", a, b)


def size_of(dim: Dim, dtype: DType) -> Expr:
    """A size as a float."""
    number = arith.as_int(dim)
    return ir.Cast(ir.Index(dim), dtype) if number is None else ir.value_of(number, dtype)


@dataclass(frozen=True)
class Axis:
    """One axis that is sampled: its size, and what is read outside of it."""

    size: Expr  # as a float
    mode: str  # a row of TAPS
    padding: str = "zeros"
    align_corners: bool = True

    @property
    def dtype(self) -> DType:
        return self.size.dtype

    @property
    def last(self) -> Expr:
        return self.size - 1.0

    @property
    def border(self) -> tuple[Expr, Expr]:
        """The outermost coordinates that are inside."""
        zero = ir.value_of(0.0, self.dtype)
        if self.align_corners:
            return zero, self.last
        return zero - 0.5, self.size - 0.5

    def denormalized(self, at: Expr) -> Expr:
        """A coordinate in -1 … 1 as one in elements."""
        if self.align_corners:
            return (at + 1.0) / 2.0 * self.last
        return ((at + 1.0) * self.size - 1.0) / 2.0

    def reflected(self, x: Expr) -> Expr:
        """x mirrored at the borders until it is inside."""
        low, high = self.border
        span = high - low
        is_below = less(x, low)
        beyond = ir.Select(is_below, low - x, x - high)
        turns = floor(beyond / span)
        rest = beyond - turns * span
        is_odd = ir.Compare("ne", turns - floor(turns / 2.0) * 2.0, ir.value_of(0.0, self.dtype))
        to_low = ir.Binary("xor", is_below, is_odd)
        inside = ir.Select(to_low, low + rest, high - rest)
        inside = ir.Select(ir.Compare("gt", span, ir.value_of(0.0, self.dtype)), inside, low)
        return ir.Select(is_below | ir.Compare("gt", x, high), inside, x)

    def brought_inside(self, x: Expr) -> Expr:
        """The coordinate, where padding moves one that is outside. Cubic interpolation beyond the
        border has taps inside, so there it is each tap that is moved, as in PyTorch."""
        low, high = self.border
        if self.padding == "reflection":
            return self.reflected(x)
        if self.padding == "zeros" or self.mode == "cubic":
            return x
        is_outside = less(x, low) | ir.Compare("gt", x, high)
        return ir.Select(is_outside, self.inside(x), x)

    def inside(self, index: Expr) -> Expr:
        return clamp(index, ir.value_of(0.0, self.dtype), self.last)

    def taps(
        self, b: Build, x: Expr, weights_in: DType
    ) -> tuple[list[tuple[str, Expr]], list[Tap]]:
        """The taps at coordinate x. Lets (name, value) that they use come first."""
        lets: list[tuple[str, Expr]] = []

        def let(name: str, value: Expr) -> Expr:
            lets.append((b.fresh(name), value))
            return ir.Ref(lets[-1][0], value.dtype)

        x = let("at", self.brought_inside(ir.Unary("round", x) if self.mode == "nearest" else x))
        low = x if self.mode == "nearest" else let("low", floor(x))
        fraction = ir.value_of(0.0, self.dtype) if self.mode == "nearest" else let("part", x - low)
        found = []
        for step, weight in zip(TAPS[self.mode], weights(self.mode, fraction)):
            index = low + float(step) if step else low
            if self.padding == "reflection":
                index = self.reflected(index)
            kept = weight if weight.dtype is weights_in else ir.Cast(weight, weights_in)
            if self.padding == "zeros":
                from_zero = ir.Compare("ge", index, ir.value_of(0.0, self.dtype))
                is_in = from_zero & ir.Compare("le", index, self.last)
                kept = ir.Select(is_in, kept, ir.value_of(0.0, weights_in))
            found.append(Tap(self.inside(index), kept))
        return lets, found


def weights(mode: str, t: Expr) -> list[Expr]:
    """The weights of a mode's taps at fraction t behind floor(x)."""
    if mode == "nearest":
        return [ir.value_of(1.0, t.dtype)]
    if mode == "linear":
        return [1.0 - t, t]
    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def near(d: Expr) -> Expr:
    """Keys' kernel at a distance below 1."""
    return (d * (CUBIC_A + 2.0) - (CUBIC_A + 3.0)) * d * d + 1.0


def far(d: Expr) -> Expr:
    """Keys' kernel at a distance from 1 to 2."""
    return ((d * CUBIC_A - 5.0 * CUBIC_A) * d + 8.0 * CUBIC_A) * d - 4.0 * CUBIC_A


def with_lets(lets: Sequence[tuple[str, Expr]], body: Stmt) -> Stmt:
    for name, value in reversed(lets):
        body = ir.Let(name, value, body)
    return body


def accumulator(dtype: DType) -> DType:
    """The element type of sums over taps."""
    is_wide = dtype is dtypes.f64 or (dtype.is_int and dtype.bits >= 32)
    return dtypes.f64 if is_wide else dtypes.f32


def is_never_empty(b: Build, dims: Sequence[Dim]) -> bool:
    ranges = {n: b.ranges.get(n, Interval(0, None)) for d in dims for n in arith.free_vars(d)}
    return all(prove("ge", d, 1, ranges) for d in dims)


def load_tap(
    b: Build,
    x: Buffer,
    head: Sequence[arith.Expr],
    at: Sequence[Expr],
    tail: Sequence[arith.Expr] = (),
) -> Expr:
    """x at `head`, loaded indices and `tail`; 0 where the space of x is empty."""
    indices = (*head, *(ir.index_of(i) for i in at), *tail)
    space = x.shape[len(head) : len(head) + len(at)]
    if is_never_empty(b, space):
        return ir.Load(x, indices)
    size = arith.product(list(space))
    some = ir.Compare("gt", ir.Index(size), ir.Lit(0, dtypes.i64))
    return ir.Load(x, indices, mask=some, other=ir.value_of(0, x.dtype))


def unless_zero(weight: Expr, value: Expr) -> Expr:
    """value, or 0 where the tap has no weight."""
    zero = ir.value_of(0.0, weight.dtype)
    return ir.Select(ir.Compare("ne", weight, zero), value, ir.value_of(0, value.dtype))


# --- numpy ---------------------------------------------------------------------------------------


def reflect_array(x: np.ndarray, low: float, high: float) -> np.ndarray:
    if high <= low:
        return np.where((x < low) | (x > high), low, x)
    beyond = np.where(x < low, low - x, x - high)
    turns = np.floor(beyond / (high - low))
    rest = beyond - turns * (high - low)
    to_low = (x < low) ^ (turns % 2 != 0)
    inside = np.where(to_low, low + rest, high - rest)
    return np.where((x < low) | (x > high), inside, x)


def axis_taps(
    at: np.ndarray, size: int, mode: str, padding: str, align_corners: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(index, weight) of each tap, for coordinates in elements."""
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    x = np.rint(at) if mode == "nearest" else at
    if padding == "border" and mode != "cubic":
        x = np.where((x < low) | (x > high), np.clip(x, 0, size - 1), x)
    elif padding == "reflection":
        x = reflect_array(x, low, high)
    first = np.floor(x)
    found = []
    for step, weight in zip(TAPS[mode], weight_arrays(mode, x - first)):
        index = first + step
        if padding == "reflection":
            index = reflect_array(index, low, high)
        if padding == "zeros":
            weight = np.where((index >= 0) & (index <= size - 1), weight, 0)
        index = np.nan_to_num(index)  # a coordinate may be NaN or infinite; its weight says so
        found.append((np.clip(index, 0, max(size - 1, 0)).astype(np.int64), weight))
    return found


def weight_arrays(mode: str, t: np.ndarray) -> list[np.ndarray]:
    def cubic(d: np.ndarray) -> np.ndarray:
        a = CUBIC_A
        inner = ((a + 2) * d - (a + 3)) * d * d + 1
        return np.where(d < 1, inner, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)

    if mode == "nearest":
        return [np.ones_like(t)]
    return [1 - t, t] if mode == "linear" else [cubic(abs(t - s)) for s in TAPS["cubic"]]


def sampled(x: np.ndarray, taps: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]]) -> np.ndarray:
    """Σ weight · x[…, indices], where `taps` has a list for each of the last axes of x; indices and
    weights have one shape."""
    if not taps:
        return x
    shape, total = taps[0][0][0].shape, None
    if 0 in x.shape:
        return np.zeros((*x.shape[: -len(taps)], *shape))
    for chosen in itertools.product(*taps):
        weight = np.ones(shape)
        for _, part in chosen:
            weight = weight * part
        at: tuple[Any, ...] = (..., *(index for index, _ in chosen))
        value = x[at].astype(np.float64)
        with np.errstate(invalid="ignore"):
            term = np.where(weight != 0, value * weight, 0)
        total = term if total is None else total + term
    assert total is not None
    return total
