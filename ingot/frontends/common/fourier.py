"""Discrete Fourier transforms of static length, as GEMMs with constant matrices.

In: rows, real or complex (the last axis of size 1 or 2), and a length. Out: their transforms.
Called by converters. The cheapest of these is taken, by the multiplications of a row:

    direct       one GEMM with the matrix of the transform, N² terms; that of a real row is two
                 GEMMs of half the size, on x[n] + x[N-n] and x[n] - x[N-n]
    two factors  N = A·B: transforms of length A, twiddle factors, transforms of length B, each a
                 GEMM over all rows; again in factors where B is long (Cooley and Tukey)
    halves       a real row of even length is a complex one of half the length
    chirp        a convolution with a chirp, by transforms of a power of two: lengths with large
                 prime factors (Bluestein)

Matrices and twiddle factors are computed in f64 and rounded once.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import HasBuilder, cast, reshape, tidy
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

LARGEST_GEMM = 64  # the longest transform that is one factor: 64 KB of f32 (heuristic)
# Multiplications of a GEMM in the time that the passes of a factor (twiddle factors, transposes,
# the GEMM's own reads and writes) take for an element. Measured on one core of an EPYC (Zen 4):
# frames of 256 to 1024 take 0.8 to 1.5 ns, and a GEMM does 50 multiplications a ns.
PASS_COST = 60
TABLE_LIMIT = 1 << 22  # the longest row with tables of twiddle factors; they take 64 MB in f64
DIRECT_LIMIT = 2048  # the longest row with a matrix of its own: 32 MB of f32


@dataclass(frozen=True)
class Complex:
    """Two tensors of one shape, (rows, length)."""

    re: Value
    im: Value


def transform(
    ctx: HasBuilder, x: Value, length: arith.Expr, inverse: bool, onesided: bool
) -> Value:
    """The transform of x[…, n, 1 or 2] along axis -2, as the operator `dft` defines it; that
    operator itself where the length is known only when running, or very large."""
    size = arith.as_int(tidy(ctx, length))
    if not size or size < 0 or size > TABLE_LIMIT:
        return ctx.g.add("dft", [x], length=length, inverse=inverse, onesided=onesided)
    lead, parts, dtype = x.shape[:-2], arith.as_int(x.shape[-1]), x.dtype
    of_half = inverse and onesided
    x = resized(ctx, cast(ctx, x, wide_dtype(dtype)), size // 2 + 1 if of_half else size)
    rows = reshape(ctx, x, (tidy(ctx, arith.product(list(lead))), *x.shape[-2:]))
    if of_half:
        made = from_half(ctx, rows, size)
    elif parts == 1:
        made = of_real(ctx, plane(ctx, rows, 0), size, inverse, onesided)
    else:
        made = of_complex(ctx, rows, size, inverse)
    return cast(ctx, reshape(ctx, made, (*lead, *made.shape[1:])), dtype)


def resized(ctx: HasBuilder, x: Value, size: int) -> Value:
    """Axis -2 cropped or zero-padded to `size`."""
    more = tidy(ctx, size - x.shape[-2])
    if arith.is_const(more, 0):
        return x
    before = (0,) * x.tensor.rank
    after = tuple(more if axis == x.tensor.rank - 2 else 0 for axis in range(x.tensor.rank))
    return ctx.g.add("pad", [x, None], before=before, after=after, mode="constant")


def plane(ctx: HasBuilder, x: Value, part: int) -> Value:
    """Part 0 or 1 of x[rows, n, parts], as (rows, n)."""
    if arith.is_const(x.shape[-1], 1):
        return reshape(ctx, x, x.shape[:-1])
    starts, sizes = (0, 0, part), (*x.shape[:-1], 1)
    found = ctx.g.add("slice", [x], starts=starts, sizes=sizes, steps=(1, 1, 1))
    return reshape(ctx, found, x.shape[:-1])


def interleaved(ctx: HasBuilder, x: Complex) -> Value:
    """(rows, n, 2)"""
    parts = [reshape(ctx, v, (*v.shape, 1)) for v in (x.re, x.im)]
    return ctx.g.add("concat", parts, axis=2)


# --- real rows ----------------------------------------------------------------------------------


def of_real(ctx: HasBuilder, x: Value, size: int, inverse: bool, onesided: bool) -> Value:
    """x is (rows, size); the result (rows, size or size // 2 + 1, 2)."""
    scale = 1 / size if inverse else 1.0
    if size > DIRECT_LIMIT or cost_of_halves(size) < cost_of_folded(size):
        half = halves(ctx, x, size, inverse, scale)
    else:
        half = folded(ctx, (x, mirrored(ctx, x, size)), size, inverse, scale)
    if onesided:
        return interleaved(ctx, half)
    return interleaved(ctx, whole_spectrum(ctx, half, size))


def whole_spectrum(ctx: HasBuilder, half: Complex, size: int) -> Complex:
    """The second half of a real row's spectrum is the conjugate of the first."""
    k = np.arange(size)
    source = ctx.g.constant(np.minimum(k, size - k))
    re, im = (ctx.g.add("gather", [v, source], axis=1) for v in (half.re, half.im))
    sign = np.where(k <= size // 2, 1, -1)
    return Complex(re, ctx.g.add("mul", [im, constant(ctx, sign, im.dtype)]))


def mirrored(ctx: HasBuilder, x: Value, size: int) -> Value:
    """x[(size - n) % size] for the first size // 2 + 1 n."""
    source = (size - np.arange(size // 2 + 1)) % size
    return ctx.g.add("gather", [x, ctx.g.constant(source)], axis=1)


def folded(
    ctx: HasBuilder,
    x: tuple[Value, Value],
    size: int,
    inverse: bool,
    scale: float = 1.0,
    window: Value | None = None,
) -> Complex:
    """The half spectrum of windowed real rows, given x[n] and x[(size - n) % size] for the first
    half of n: cosines are even and sines odd, so each GEMM has half the terms. An element that is
    its own mirror image counts half in both."""
    g, dtype, n = ctx.g, x[0].dtype, np.arange(size // 2 + 1)
    own = np.where(n == (size - n) % size, 0.5, 1.0)
    sides = [first_columns(ctx, x[0], len(n)), x[1]]
    if window is not None:
        row = cast(ctx, reshape(ctx, window, (1, size)), dtype)
        windows = first_columns(ctx, row, len(n)), mirrored(ctx, row, size)
        sides = [g.add("mul", [v, w]) for v, w in zip(sides, windows)]
    even, odd = (g.add(op, sides) for op in ("add", "sub"))
    roots = exact_roots(size)[np.outer(n, n) % size]
    cosines = roots.real * (own * scale)[:, None]
    sines = roots.imag * (scale if inverse else -scale)
    matrices = (constant(ctx, m, dtype) for m in (cosines, sines))
    return Complex(*(g.add("matmul", [v, m]) for v, m in zip((even, odd), matrices)))


def first_columns(ctx: HasBuilder, x: Value, count: int) -> Value:
    if arith.is_const(x.shape[1], count):
        return x
    sizes = (x.shape[0], count)
    return ctx.g.add("slice", [x], starts=(0, 0), sizes=sizes, steps=(1, 1))


def halves(ctx: HasBuilder, x: Value, size: int, inverse: bool, scale: float) -> Complex:
    """The half spectrum of real rows of even length, by a complex transform of half the length:
    even elements are the real parts. Rows of odd length have imaginary parts of zero."""
    if size % 2:
        zero = ctx.g.add("fill", [], value=0, to=x.dtype, shape=x.shape)
        found = factored(ctx, Complex(x, zero), size, inverse, scale)
        return Complex(*(first_columns(ctx, v, size // 2 + 1) for v in (found.re, found.im)))
    g, half = ctx.g, size // 2
    pairs = reshape(ctx, x, (x.shape[0], half, 2))
    z = factored(ctx, Complex(plane(ctx, pairs, 0), plane(ctx, pairs, 1)), half, inverse, scale)
    k = np.arange(half + 1)
    re, im = (wrapped(ctx, v) for v in (z.re, z.im))  # Z[k % half]
    re_back, im_back = (reversed_columns(ctx, v) for v in (re, im))  # Z[-k % half]
    # X[k] = (Z[k] + Z*[-k]) / 2 + w^k (Z[k] - Z*[-k]) / 2i
    roots = exact_roots(size)[k] / 2
    c, s = (constant(ctx, v, x.dtype) for v in (roots.real, roots.imag * (1 if inverse else -1)))
    by_two = constant(ctx, np.array(0.5), x.dtype)
    even_re, even_im = g.add("add", [re, re_back]), g.add("sub", [im, im_back])
    odd_re, odd_im = g.add("add", [im, im_back]), g.add("sub", [re_back, re])
    turned = times(ctx, Complex(odd_re, odd_im), c, s)
    parts = ((even_re, turned.re), (even_im, turned.im))
    return Complex(*(g.add("add", [g.add("mul", [e, by_two]), o]) for e, o in parts))


def wrapped(ctx: HasBuilder, x: Value) -> Value:
    """x with its first column once more at the end."""
    return ctx.g.add("concat", [x, first_columns(ctx, x, 1)], axis=1)


def reversed_columns(ctx: HasBuilder, x: Value) -> Value:
    start = (0, tidy(ctx, x.shape[1] - 1))
    return ctx.g.add("slice", [x], starts=start, sizes=x.shape, steps=(1, -1))


def from_half(ctx: HasBuilder, x: Value, size: int) -> Value:
    """Real rows (rows, size, 1) of their half spectra (rows, size // 2 + 1, 2)."""
    dtype, count = x.dtype, size // 2 + 1
    k = np.arange(count)
    if size > DIRECT_LIMIT or cost_of_factors(size) < 2 * count * size:
        both = whole_spectrum(ctx, Complex(plane(ctx, x, 0), plane(ctx, x, 1)), size)
        made = factored(ctx, both, size, True, 1 / size).re
    else:
        weight = np.where(k == (size - k) % size, 1.0, 2.0) / size
        roots = exact_roots(size)[np.outer(k, np.arange(size)) % size]
        matrix = np.stack([roots.real, -roots.imag], 1) * weight[:, None, None]
        rows = reshape(ctx, x, (x.shape[0], 2 * count))
        made = ctx.g.add("matmul", [rows, constant(ctx, matrix.reshape(-1, size), dtype)])
    return reshape(ctx, made, (*made.shape, 1))


# --- complex rows -------------------------------------------------------------------------------


def of_complex(ctx: HasBuilder, x: Value, size: int, inverse: bool) -> Value:
    """x and the result are (rows, size, 2)."""
    scale = 1 / size if inverse else 1.0
    if size <= DIRECT_LIMIT and 4 * size * size <= cost_of_factors(size):
        rows = reshape(ctx, x, (x.shape[0], 2 * size))
        matrix = constant(ctx, complex_matrix(size, inverse) * scale, x.dtype)
        return reshape(ctx, ctx.g.add("matmul", [rows, matrix]), x.shape)
    parts = Complex(plane(ctx, x, 0), plane(ctx, x, 1))
    return interleaved(ctx, factored(ctx, parts, size, inverse, scale))


def complex_matrix(size: int, inverse: bool, planes: bool = False) -> np.ndarray:
    """The transform as a real matrix, (2·size, 2·size): pairs of a real and an imaginary part, or
    all real parts and then all imaginary ones."""
    n = np.arange(size)
    roots = exact_roots(size)[np.outer(n, n) % size]
    c, s = roots.real, roots.imag * (1 if inverse else -1)
    blocks = np.array([[c, s], [-s, c]])  # part in, part out, n, k
    order = (0, 2, 1, 3) if planes else (2, 0, 3, 1)
    return blocks.transpose(order).reshape(2 * size, 2 * size)


def factored(ctx: HasBuilder, x: Complex, size: int, inverse: bool, scale: float = 1.0) -> Complex:
    """The transform of x, (rows, size) each, times a factor."""
    first = largest_factor(size)
    if size <= LARGEST_GEMM:
        return small(ctx, x, size, inverse, scale)
    if first == 1:
        return chirped(ctx, x, size, inverse, scale)
    g, rows, second = ctx.g, x.re.shape[0], size // first
    # n = n1·second + n2, k = k1 + first·k2: transforms along n1, for each n2
    columns = Complex(
        *(
            reshape(ctx, swapped(ctx, v, (rows, first, second)), (rows * second, first))
            for v in (x.re, x.im)
        )
    )
    made = small(ctx, columns, first, inverse, scale)
    k1, n2 = np.arange(first), np.arange(second)
    roots = exact_roots(size)[np.outer(n2, k1)]
    c, s = (constant(ctx, v, x.re.dtype) for v in (roots.real, roots.imag * (1 if inverse else -1)))
    grid = (reshape(ctx, v, (rows, second, first)) for v in (made.re, made.im))
    turned = times(ctx, Complex(*grid), c, s)
    lines = (
        reshape(ctx, g.add("transpose", [v], perm=(0, 2, 1)), (rows * first, second))
        for v in (turned.re, turned.im)
    )
    ends = factored(ctx, Complex(*lines), second, inverse)
    found = (swapped(ctx, v, (rows, first, second)) for v in (ends.re, ends.im))
    return Complex(*(reshape(ctx, v, (rows, size)) for v in found))


def swapped(ctx: HasBuilder, x: Value, shape: tuple[arith.IntLike, ...]) -> Value:
    """x under a shape of three axes, the last two of them swapped."""
    return ctx.g.add("transpose", [reshape(ctx, x, shape)], perm=(0, 2, 1))


def small(ctx: HasBuilder, x: Complex, size: int, inverse: bool, scale: float = 1.0) -> Complex:
    """One GEMM: a row of it is the real parts, then the imaginary ones."""
    row = ctx.g.add("concat", [x.re, x.im], axis=1)
    matrix = constant(ctx, complex_matrix(size, inverse, planes=True) * scale, row.dtype)
    made = ctx.g.add("matmul", [row, matrix])
    sizes = (made.shape[0], size)
    return Complex(
        *(ctx.g.add("slice", [made], starts=(0, at), sizes=sizes, steps=(1, 1)) for at in (0, size))
    )


def chirped(ctx: HasBuilder, x: Complex, size: int, inverse: bool, scale: float) -> Complex:
    """nk = (n² + k² - (k-n)²) / 2: a convolution with a chirp, circular in a power of two."""
    g, dtype, n = ctx.g, x.re.dtype, np.arange(size)
    wide = 1 << (2 * size - 2).bit_length()
    angle = np.pi * (n * n % (2 * size)) / size * (1 if inverse else -1)
    chirp = np.exp(1j * angle)
    kernel = np.zeros(wide, np.complex128)
    kernel[:size] = chirp.conj()
    kernel[wide - size + 1 :] = chirp.conj()[1:][::-1]
    spectrum = np.fft.fft(kernel) / wide
    c, s = (constant(ctx, v, dtype) for v in (chirp.real, chirp.imag))
    started = times(ctx, x, c, s)
    pad: Any = {"before": (0, 0), "after": (0, wide - size), "mode": "constant"}
    padded = Complex(*(g.add("pad", [v, None], **pad) for v in (started.re, started.im)))
    there = factored(ctx, padded, wide, False)
    parts = (constant(ctx, v, dtype) for v in (spectrum.real, spectrum.imag))
    back = factored(ctx, times(ctx, there, *parts), wide, True)
    kept = Complex(*(first_columns(ctx, v, size) for v in (back.re, back.im)))
    ends = (constant(ctx, v * scale, dtype) for v in (chirp.real, chirp.imag))
    return times(ctx, kept, *ends)


def times(ctx: HasBuilder, x: Complex, c: Value, s: Value) -> Complex:
    """x · (c + i·s)"""
    g = ctx.g
    products = [g.add("mul", [v, w]) for v, w in ((x.re, c), (x.im, s), (x.re, s), (x.im, c))]
    return Complex(g.add("sub", products[:2]), g.add("add", products[2:]))


@functools.lru_cache(maxsize=8)
def exact_roots(size: int) -> np.ndarray:
    """e^(2πi j / size). Each quadrant is that of the first octant, so that roots which are 0, ±1 or
    equal in magnitude are so exactly."""
    j = np.arange(size)
    quadrant, rest = np.divmod(4 * j, size)  # of a turn, in quarters: rest / size
    is_late = 2 * rest > size
    angle = np.pi / 2 * np.where(is_late, size - rest, rest) / size
    c, s = (
        np.where(is_late, np.sin(angle), np.cos(angle)),
        np.where(is_late, np.cos(angle), np.sin(angle)),
    )
    return np.choose(quadrant, [c + 1j * s, -s + 1j * c, -c - 1j * s, s - 1j * c])


def constant(ctx: HasBuilder, x: np.ndarray, dtype: DType) -> Value:
    return ctx.g.constant(np.ascontiguousarray(x).astype(dtype.numpy))


# --- costs, in multiplications of a GEMM ---------------------------------------------------------


def cost_of_folded(size: int) -> float:
    return 2.0 * (size // 2 + 1) ** 2


def cost_of_halves(size: int) -> float:
    if size % 2:
        return cost_of_factors(size)
    return cost_of_factors(size // 2) + PASS_COST * size


@functools.cache
def cost_of_factors(size: int) -> float:
    if size <= LARGEST_GEMM:
        return 4.0 * size * size + PASS_COST * size
    first = largest_factor(size)
    if first == 1:
        wide = 1 << (2 * size - 2).bit_length()
        return 2 * cost_of_factors(wide) + 3 * PASS_COST * wide
    own = 4.0 * first * size + 2 * PASS_COST * size
    return own + first * cost_of_factors(size // first)


@functools.cache
def largest_factor(size: int) -> int:
    """The factor that is taken out: near the square root of a size that becomes two GEMMs; 1 if
    what is left after all small factors is a long transform with none."""
    rest = size
    for p in range(2, LARGEST_GEMM + 1):
        while rest % p == 0:
            rest //= p
    if rest > 1:
        return 1
    fitting = [p for p in range(2, LARGEST_GEMM + 1) if size % p == 0]
    root = math.isqrt(size)
    if root <= LARGEST_GEMM:
        return min(fitting, key=lambda p: p + size // p)
    return max(fitting)
