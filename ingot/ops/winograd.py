"""Winograd convolution F(2×2, 3×3): 16 multiplications for 2 × 2 outputs instead of 36.

    input transform   v[t, p, c] = (Bᵀ d B)[t]     d: the 4 × 4 input tile of 2 × 2 outputs
    batched GEMM      m[t, p, o] = Σ_c v[t, p, c] · u[o, c, t]
    output transform  y          = Aᵀ m A

t is one of the 16 elements of a tile, p the tile index over all images. B and A contain only 0, 1
and -1, so both transforms are sums. u = G w Gᵀ is computed once (`transform_weights`). Rounding of
floats differs from that of a direct convolution; sums have a ninth of the terms.

Integers of 8 bits are exact: 4·u is an integer of at most 12 bits and v has 11, so the products are
of i16, as dot-product instructions take them; sums are i32, and 4·y is divided by 4. Where a sum on
the way wraps, 4·y is right nevertheless, as long as it is itself an i32 (`MAX_INTEGER_CHANNELS`).

passes/use_winograd.py creates the operator; the schedule rule of its family does the cache
blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    floats,
    integers,
    narrow,
    require_same_dtype,
    same_dim,
    tensor_type,
)
from ingot.ops.conv import ConvBase, Window, all_of, inside, out_sizes, window
from ingot.ops.matmul import result_dtype
from ingot.ops.reduce import reduce_over

KERNEL, OUTPUT_TILE, INPUT_TILE = 3, 2, 4  # sizes along one axis
TRANSFORM_POINTS = INPUT_TILE**2  # values of a transformed tile: GEMMs of one convolution
INPUT_TRANSFORM = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))  # Bᵀ
WEIGHT_TRANSFORM = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))  # G
OUTPUT_TRANSFORM = ((1, 1, 1, 0), (0, 1, -1, 1))  # Aᵀ
INTEGER_SCALE = 4  # of transformed integer weights: G has halves
MAX_INTEGER_CHANNELS = (2**31 - 1) // (INTEGER_SCALE * KERNEL**2 * 255 * 128)  # 4·y fits in i32
Term = Callable[[arith.Expr], Expr]


def transform_weights(weights: np.ndarray) -> np.ndarray:
    """G w Gᵀ: (out, in, 3, 3) → (out, in, 16), computed in f64 and rounded once; of integers of 8
    bits 4 · G w Gᵀ in i16, which is exact."""
    both = np.kron(WEIGHT_TRANSFORM, WEIGHT_TRANSFORM)
    is_int = weights.dtype.kind in "iu"
    with np.errstate(invalid="ignore"):
        wide = weights.reshape(-1, KERNEL * KERNEL).astype(np.float64) @ both.T
    made = (wide * INTEGER_SCALE).astype(np.int16) if is_int else wide.astype(weights.dtype)
    return made.reshape(*weights.shape[:2], TRANSFORM_POINTS)


@register
class WinogradConv(ConvBase):
    """conv(x, w, bias, fill) with strides and dilations of 1, given u = transform_weights(w). x and
    u have one float type, or are integers of 8 bits and i16. `grid` is the number of tiles (rows,
    columns) of an image, if it is to be larger than needed; `tile_block`, which divides it, those
    that a thread takes through all stages at once. Without a grid, `tile_block` is a number of
    consecutive tiles of all images; the last block is padded."""

    name = "winograd_conv"
    family = "winograd"
    channels_last = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, u, bias = self.operands(inputs)
        if not same_dim(x.shape[1], u.shape[1]):
            raise type_error(self.name, f"{x.shape[1]} channels do not fit weights {u}")
        self.check_bias(bias, u.shape[0], result_dtype(x.dtype))
        if len(inputs) > 3 and inputs[3] is not None:
            self.check_fill(x, tensor_type(self.name, inputs[3]), attrs)
        taps = (arith.Const(KERNEL),) * 2
        space = out_sizes(self.name, x.shape[2:], taps, self.window(attrs))
        least = [arith.as_int(n) for n in self.grid(space, {})]
        if any(n is not None and a < n for a, n in zip(attrs.get("grid") or (), least)):
            what = f"a grid of {attrs['grid']} tiles does not cover {space}"
            raise type_error(self.name, what, f"give at least {tuple(least)}, or none")
        self.check_tile_block(attrs.get("tile_block"), attrs.get("grid") or ())
        return [TensorType(result_dtype(x.dtype), (x.shape[0], u.shape[0], *space))]

    def check_tile_block(self, block: Sequence[int] | None, grid: Sequence[int]) -> None:
        is_whole = len(grid) == 2 and all(n > 0 and g % n == 0 for g, n in zip(grid, block or ()))
        is_consecutive = not grid and len(block or ()) == 1 and min(block or (0,)) > 0
        if block is not None and not is_consecutive and not (len(block) == 2 and is_whole):
            what = f"blocks of {tuple(block)} tiles do not divide a grid of {tuple(grid)}"
            raise type_error(self.name, what, "give a grid of whole blocks, or no tile_block")

    def operands(
        self, inputs: Sequence[Type | None]
    ) -> tuple[TensorType, TensorType, TensorType | None]:
        x, u = (tensor_type(self.name, t) for t in inputs[:2])
        bias = tensor_type(self.name, inputs[2]) if len(inputs) > 2 and inputs[2] else None
        if x.dtype.is_int and x.dtype.bits == 8 and u.dtype is dtypes.i16:
            if (arith.as_int(x.shape[1]) or 0) > MAX_INTEGER_CHANNELS:
                why = f"{x.shape[1]} channels: sums of over {MAX_INTEGER_CHANNELS} may overflow"
                raise type_error(self.name, why, "use conv")
        else:
            require_same_dtype(self.name, x, u)
        if x.rank != 4 or u.rank != 3 or not same_dim(u.shape[2], arith.Const(TRANSFORM_POINTS)):
            what = f"expects images and weights (out, in, {TRANSFORM_POINTS}), got {x} and {u}"
            raise type_error(self.name, what, "use ops.winograd.transform_weights")
        is_exact = x.dtype.is_int and u.dtype is dtypes.i16
        if x.dtype not in (dtypes.f32, dtypes.f64) and not is_exact:  # f16: sums would need f32
            raise type_error(self.name, f"expects f32, f64 or 8-bit integers, got {x}", "use conv")
        return x, u, bias

    def window(self, attrs: Attrs) -> Window:
        return window(self.name, {"pads": attrs.get("pads")}, 2)

    def grid(self, space: Sequence[Dim], attrs: Attrs) -> tuple[Dim, ...]:
        """The number of tiles (rows, columns) of an image."""
        least = [simplify(arith.ceildiv(n, arith.Const(OUTPUT_TILE))) for n in space]
        return tuple(arith.wrap(n) for n in attrs.get("grid") or least)

    def padded_tiles(self, count: Dim, attrs: Attrs) -> Dim:
        """The number of tiles of all images, padded to whole blocks of consecutive tiles."""
        block: Sequence[int] = attrs.get("tile_block") or ()
        if len(block) != 1:
            return count
        return simplify(arith.ceildiv(count, arith.Const(block[0])) * block[0])

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, u, bias, fill = (*inputs, None, None)[:4]
        assert x is not None and u is not None
        slide, out_type = self.window(attrs), result_dtype(dtypes.from_numpy(x.dtype)).numpy
        lows, highs = ([arith.as_int(p) or 0 for p in pads] for pads in (slide.begins, slide.ends))
        sizes = [n + lo + hi - 2 for n, lo, hi in zip(x.shape[2:], lows, highs)]
        if min(sizes) < 1 or 0 in x.shape[:2]:  # no output tile, or no term: the bias alone
            empty = np.zeros((x.shape[0], u.shape[0], *sizes), out_type)
            return [empty if bias is None else empty + bias[:, None, None]]
        counts = [-(-size // OUTPUT_TILE) for size in sizes]
        room = [(lo, OUTPUT_TILE * k + 2 - n - lo) for n, lo, k in zip(x.shape[2:], lows, counts)]
        value = 0 if fill is None else fill
        padded = np.pad(x, [(0, 0), (0, 0), *room], constant_values=value).astype(out_type)
        windows = np.lib.stride_tricks.sliding_window_view(
            padded, (INPUT_TILE, INPUT_TILE), axis=(2, 3)
        )
        tiles = windows[:, :, ::OUTPUT_TILE, ::OUTPUT_TILE]
        b, a = (np.array(m, out_type) for m in (INPUT_TRANSFORM, OUTPUT_TRANSFORM))
        v = np.einsum("ai,ncyxij,bj->abncyx", b, tiles, b, optimize=True)
        weights = u.astype(out_type).reshape(*u.shape[:2], INPUT_TILE, INPUT_TILE)
        m = np.einsum("abncyx,ocab->abnoyx", v, weights, optimize=True)
        y = np.einsum("ia,abnoyx,jb->noyixj", a, m, a, optimize=True)
        y = y if out_type.kind == "f" else y // INTEGER_SCALE
        whole = y.reshape(*y.shape[:2], OUTPUT_TILE * counts[0], OUTPUT_TILE * counts[1])
        out = whole[:, :, : sizes[0], : sizes[1]]
        if bias is not None:
            out = out + bias.reshape(1, -1, 1, 1)
        return [np.ascontiguousarray(out, out_type)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, u, bias, fill = (*inputs, None, None)[:4]
        assert x is not None and u is not None
        acc_type = result_dtype(x.dtype)
        counts = self.grid(outputs[0].shape[2:], attrs)
        count = simplify(x.shape[0] * counts[0] * counts[1])
        tiles = self.padded_tiles(count, attrs)
        outside = ir.value_of(0, x.dtype) if fill is None else fill[()]
        v = self.input_transform(b, x, self.window(attrs), counts, tiles, outside)

        def term(t, p, o, c) -> Expr:
            return narrow(v[t, p, c], acc_type) * narrow(u[o, c, t], acc_type)

        shape, zero = (arith.Const(TRANSFORM_POINTS), tiles, u.shape[0]), identity("add", acc_type)
        m = reduce_over(b, "matmul", shape, [u.shape[1]], "add", term, zero)
        return self.finish(
            b, self.output_transform(b, m, outputs[0].shape, counts), bias, outputs[0]
        )

    def input_transform(
        self, b: Build, x: Buffer, slide: Window, counts: Sequence[Dim], tiles: Dim, outside: Expr
    ) -> Buffer:
        """Bᵀ d B for every tile and channel; masked loads give `outside` around the image."""
        dtype = x.dtype if x.dtype.is_float else dtypes.i16
        rows, columns = counts
        count = simplify(x.shape[0] * rows * columns)

        def value(t, p, c) -> Expr:
            image, row, column = p // (rows * columns), p // columns % rows, p % columns
            is_tile = [] if tiles == count else [ir.Compare("lt", ir.Index(p), ir.Index(count))]

            def pixel(i: arith.Expr, j: arith.Expr) -> Expr:
                at = [
                    OUTPUT_TILE * t + k - lo
                    for t, k, lo in zip((row, column), (i, j), slide.begins)
                ]
                within = all_of([*is_tile, *(inside(k, n) for k, n in zip(at, x.shape[2:]))])
                return narrow(ir.Load(x, (image, c, *at), mask=within, other=outside), dtype)

            def along_row(j: arith.Expr) -> Expr:
                return _input_row(t // INPUT_TILE, lambda i: pixel(i, j))

            return _input_row(t % INPUT_TILE, along_row)

        return b.compute("input_tiles", (TRANSFORM_POINTS, tiles, x.shape[1]), value)

    def output_transform(
        self, b: Build, m: Buffer, shape: Sequence[Dim], counts: Sequence[Dim]
    ) -> Buffer:
        """Aᵀ m A at every output."""
        rows, columns = counts

        def value(n, o, y, x) -> Expr:
            p = (n * rows + y // OUTPUT_TILE) * columns + x // OUTPUT_TILE

            def along_row(j: arith.Expr) -> Expr:
                return _output_row(y % OUTPUT_TILE, lambda i: m[i * INPUT_TILE + j, p, o])

            total = _output_row(x % OUTPUT_TILE, along_row)
            if total.dtype.is_float:
                return total
            return ir.Binary("shr", total, ir.value_of(2, total.dtype))  # exact: a multiple of 4

        return b.compute("conv", shape, value)

    def samples(self) -> list[Sample]:
        def case(x, out, bias=None, **attrs) -> Sample:
            u = transform_weights(floats(out, x.shape[1], KERNEL, KERNEL, dtype=dtypes.f32))
            return Sample((x, u, bias), attrs, rtol=1e-5, atol=1e-5)

        def exact(dtype, low, high, fill, **attrs) -> Sample:
            x = integers(1, 18, 5, 6, dtype=dtype, low=low, high=high)
            w = integers(9, 18, KERNEL, KERNEL, dtype=dtypes.i8, low=-128, high=127)
            bias = integers(9, dtype=dtypes.i32, low=-1000, high=1000)
            return Sample((x, transform_weights(w), bias, np.array(fill, x.dtype)), attrs)

        return [
            case(floats(1, 3, 6, 8), 5, pads=(1, 1, 1, 1)),
            case(floats(2, 4, 7, 5), 3, floats(3), pads=(1, 0, 2, 1)),
            case(floats(1, 2, 3, 3), 8),
            case(floats(1, 17, 9, 9), 33, floats(33), pads=(1, 1, 1, 1)),
            exact(dtypes.u8, 0, 255, 131, pads=(1, 1, 1, 1)),
            exact(dtypes.i8, -128, 127, -3, pads=(1, 0, 2, 1)),
        ]


def _input_row(i: arith.Expr, pixel: Term) -> Expr:
    """Row i of Bᵀ times a column: two nonzero terms, the second positive in row 1 only."""
    first, second = pixel(i), pixel(2 - i // 2)
    return first + _sign(i, 1, second.dtype) * second


def _output_row(i: arith.Expr, element: Term) -> Expr:
    """Row i of Aᵀ times a column of a tile."""
    last = element(arith.Const(2))
    return element(3 * i) + element(arith.Const(1)) + _sign(i, 0, last.dtype) * last


def _sign(i: arith.Expr, positive: int, dtype: DType) -> Expr:
    """1 where i equals `positive`, else -1."""
    is_positive = ir.Compare("eq", ir.Index(i), ir.Lit(positive, dtypes.i64))
    return ir.Select(is_positive, ir.value_of(1, dtype), ir.value_of(-1, dtype))
