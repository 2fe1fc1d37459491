"""ONNX converters of signal processing: DFT, STFT, MelWeightMatrix. (Windows are functions of the
standard.)

In: ONNX nodes. Out: GEMMs (frontends/common/fourier.py), or nodes of ops/dft.py where a length is
known only when running. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common import fourier
from ingot.frontends.common.elements import as_scalar, cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import axis_of, bad_model, known_int, runtime_operand
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.runtime_axes import RuntimeAxes, around_axis
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

OTHER_WINDOW = "STFT: the window has another length than the frames"

# --- DFT ----------------------------------------------------------------------------------------


@onnx_op("DFT")
def dft_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [dft_along(ctx, node, node.attr("axis", 1))]


@onnx_op("DFT", since=20)
def dft_operand(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    axis = runtime_operand(ctx, node, 2)
    if axis is not None:
        return [dft_along_runtime_axis(ctx, node, axis)]
    return [dft_along(ctx, node, known_int(ctx, node, 2, "the axis", -2))]


def length_and_flags(
    ctx: Importer, node: OnnxNode, extent: arith.Expr
) -> tuple[arith.Expr, bool, bool]:
    inverse, onesided = (bool(node.attr(name, 0)) for name in ("inverse", "onesided"))
    if ctx.optional(node, 1) is not None:
        length = ctx.dims(node, 1)[0]
    else:
        length = 2 * (extent - 1) if inverse and onesided else extent
    size = arith.as_int(tidy(ctx, length))
    if size is not None and size < 1:
        raise bad_model(node, f"its length is {size}")
    return tidy(ctx, length), inverse, onesided


def rows_of(ctx: Importer, node: OnnxNode) -> Value:
    x = ctx.value(node, 0)
    parts = arith.as_int(x.shape[-1]) if x.tensor.rank >= 2 else None
    if parts not in (1, 2):
        raise bad_model(node, f"{x.type} has no last axis of 1 (real) or 2 (complex) parts")
    if node.attr("onesided", 0) and parts == (1 if node.attr("inverse", 0) else 2):
        raise bad_model(node, f"there is no one-sided transform of {x.type}")
    return x


def dft_along(ctx: Importer, node: OnnxNode, axis: int) -> Value:
    x = rows_of(ctx, node)
    rank = x.tensor.rank
    axis = axis_of(node, axis, rank)
    if axis == rank - 1:
        raise bad_model(node, "its axis is that of the real and imaginary parts")
    order = [*(k for k in range(rank) if k not in (axis, rank - 1)), axis, rank - 1]
    made = fourier.transform(ctx, moved(ctx, x, order), *length_and_flags(ctx, node, x.shape[axis]))
    return moved(ctx, made, np.argsort(order).tolist())


def moved(ctx: Importer, x: Value, order: Sequence[int]) -> Value:
    if list(order) == sorted(order):
        return x
    return ctx.g.add("transpose", [x], perm=tuple(order))


def dft_along_runtime_axis(ctx: Importer, node: OnnxNode, axis: Value) -> Value:
    """x under (sizes before the axis, the axis, sizes behind it, parts)."""
    g, x = ctx.g, rows_of(ctx, node)
    parts, rank = x.shape[-1], x.tensor.rank
    flat = reshape(ctx, x, x.shape[:-1]) if arith.is_const(parts, 1) else x
    split = around_axis(ctx, flat, as_vector(ctx, from_front(ctx, axis, rank)))
    before, extent, behind = split.shape
    rest = tidy(ctx, behind // parts)
    rows = moved(ctx, reshape(ctx, split, (before, extent, rest, parts)), (0, 2, 1, 3))
    made = fourier.transform(ctx, rows, *length_and_flags(ctx, node, extent))
    *_, count, out_parts = made.shape
    made = moved(ctx, made, (0, 2, 1, 3))
    named = RuntimeAxes(ctx, as_vector(ctx, axis), rank)
    given = g.add("index_tensor", [], values=(*x.shape[:-1], out_parts), shape=(rank,))
    length = g.add("index_tensor", [], values=(count,), shape=())
    return g.add("reshape", [made], shape=named.bound(named.choose(length, given)))


def from_front(ctx: Importer, axis: Value, rank: int) -> Value:
    """An axis counted from the front, as the last one may be dropped."""
    g, wide = ctx.g, cast(ctx, axis, dtypes.i64)
    is_negative = g.add("lt", [wide, scalar(ctx, 0, dtypes.i64)])
    ahead = g.add("add", [wide, scalar(ctx, rank, dtypes.i64)])
    return g.add("where", [is_negative, ahead, wide])


def as_vector(ctx: Importer, x: Value) -> Value:
    return reshape(ctx, x, (1,))


# --- STFT ---------------------------------------------------------------------------------------


@onnx_op("STFT")
def stft(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, window = ctx.value(node, 0), ctx.optional(node, 2)
    if x.tensor.rank == 2:  # as exporters write a real signal, and ONNX Runtime takes it
        x = reshape(ctx, x, (*x.shape, 1))
    parts, onesided = arith.as_int(x.shape[-1]), bool(node.attr("onesided", 1))
    if x.tensor.rank != 3 or parts not in (1, 2):
        raise bad_model(node, f"its signal is {x.type}, not (batch, length, 1 or 2)")
    onesided = onesided and parts == 1
    (step,) = ctx.dims(node, 1)
    length = frame_length(ctx, node, x, window)
    if window is not None and runtime_operand(ctx, node, 3) is not None:
        window = of_size(ctx, window, ctx.value(node, 3))
    size = arith.as_int(length)
    if parts == 1 and size is not None and is_short(size):
        return [stft_by_gemm(ctx, x, window, size, step, onesided)]
    frames = framed(ctx, x, length, step)
    if window is not None:
        column = reshape(ctx, window, (length, 1))
        frames = ctx.g.add("mul", [frames, cast(ctx, column, frames.dtype)])
    return [fourier.transform(ctx, frames, length, False, onesided)]


def frame_length(ctx: Importer, node: OnnxNode, x: Value, window: Value | None) -> arith.Expr:
    """That of the operand, else of the window, else of the signal."""
    if window is not None and window.tensor.rank != 1:
        raise bad_model(node, f"its window is {window.type}, not a vector")
    given = ctx.dims(node, 3)[0] if ctx.optional(node, 3) is not None else None
    if window is None:
        return tidy(ctx, x.shape[1] if given is None else given)
    own = window.shape[0]
    sizes = (None if given is None else arith.as_int(given), arith.as_int(own))
    if None not in sizes and sizes[0] != sizes[1]:
        raise bad_model(node, f"frames of {given} have a window of {own}")
    return tidy(ctx, own)


def of_size(ctx: Importer, window: Value, length: Value) -> Value:
    """The window; a run with frames of another length fails."""
    g, given = ctx.g, cast(ctx, as_scalar(ctx, length), dtypes.i64)
    own = g.add("index_tensor", [], values=window.shape, shape=())
    return g.add("require", [window, g.add("eq", [given, own])], expected=True, reason=OTHER_WINDOW)


def is_short(size: int) -> bool:
    """Whether the folded GEMM is the cheapest transform of a frame."""
    longest = size <= fourier.DIRECT_LIMIT
    return longest and fourier.cost_of_folded(size) <= fourier.cost_of_halves(size)


def stft_by_gemm(
    ctx: Importer, x: Value, window: Value | None, size: int, step: arith.Expr, onesided: bool
) -> Value:
    """Frames and their mirror images are read from the signal, windowed and added in one pass."""
    g, dtype = ctx.g, x.dtype
    signal = cast(ctx, reshape(ctx, x, x.shape[:2]), wide_dtype(dtype))
    attrs: Any = {"length": size, "step": step, "count": size // 2 + 1}
    sides = [g.add("frame", [signal], mirrored=m, **attrs) for m in (False, True)]
    batch, frames, count = sides[0].shape
    rows = [reshape(ctx, v, (tidy(ctx, batch * frames), count)) for v in sides]
    half = fourier.folded(ctx, (rows[0], rows[1]), size, False, window=window)
    made = half if onesided else fourier.whole_spectrum(ctx, half, size)
    pairs = fourier.interleaved(ctx, made)
    return cast(ctx, reshape(ctx, pairs, (batch, frames, *pairs.shape[1:])), dtype)


def framed(ctx: Importer, x: Value, length: arith.Expr, step: arith.Expr) -> Value:
    """(batch, frames, length, parts)"""
    parts = moved(ctx, x, (0, 2, 1))
    frames = ctx.g.add("frame", [parts], length=length, step=step, count=length, mirrored=False)
    return moved(ctx, frames, (0, 2, 3, 1))


# --- MelWeightMatrix ----------------------------------------------------------------------------


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """(dft_length // 2 + 1, bands): triangles between three neighbouring edges, in bins."""
    g = ctx.g
    (bands,), (length,) = ctx.dims(node, 0), ctx.dims(node, 1)
    bins = tidy(ctx, length // 2 + 1)
    low, center, high = mel_edges(ctx, node, bands)
    at = reshape(ctx, positions(ctx, bins), (bins, 1))

    def add(op: str, *operands: Value) -> Value:
        return g.add(op, list(operands))

    one, zero = (scalar(ctx, n, dtypes.f64) for n in (1, 0))
    width = add("sub", center, low)
    is_flat = add("eq", width, zero)
    rising = add("div", add("sub", at, low), add("where", is_flat, one, width))
    rising = add("where", is_flat, one, rising)
    is_rising = add("and", add("ge", at, low), add("le", at, center))
    fall = add("sub", high, center)
    is_falling = add("and", add("ge", at, center), add("lt", at, high))
    falling = add("div", add("sub", high, at), add("where", is_falling, fall, one))
    made = add("where", is_falling, falling, add("where", is_rising, rising, zero))
    to = dtype_of(node.attr("output_datatype", 1), node.where)
    return [cast(ctx, made, to)]


def mel_edges(ctx: Importer, node: OnnxNode, bands: arith.Expr) -> list[Value]:
    """The lower edge, the centre and the upper edge of each band in bins, f64[bands]."""
    g = ctx.g
    number = lambda n: scalar(ctx, n, dtypes.f64)  # noqa: E731
    operands = [cast(ctx, as_scalar(ctx, ctx.value(node, i)), dtypes.f64) for i in range(5)]
    count, length, rate, lowest, highest = operands

    def mel(hertz: Value) -> Value:
        ratio = g.add("add", [g.add("div", [hertz, number(700)]), number(1)])
        return g.add("mul", [g.add("log", [ratio]), number(2595 / np.log(10))])

    start = mel(lowest)
    span = g.add("sub", [mel(highest), start])
    step = g.add("div", [span, g.add("add", [count, number(2)])])
    bins_per_hertz = g.add("add", [length, number(1)])
    found = []
    for offset in range(3):
        edge = g.add("add", [positions(ctx, bands), number(offset)])
        mels = g.add("add", [g.add("mul", [edge, step]), start])
        power = g.add("exp", [g.add("mul", [mels, number(np.log(10) / 2595)])])
        hertz = g.add("mul", [g.add("sub", [power, number(1)]), number(700)])
        scaled = g.add("div", [g.add("mul", [bins_per_hertz, hertz]), rate])
        found.append(g.add("floor", [scaled]))
    return found


def positions(ctx: Importer, size: arith.Expr) -> Value:
    """0 … size-1 as f64."""
    zero, one = (scalar(ctx, n, dtypes.i64) for n in (0, 1))
    end = ctx.g.add("index_tensor", [], values=(size,), shape=())
    return cast(ctx, ctx.g.add("range", [zero, end, one], size=size), dtypes.f64)
