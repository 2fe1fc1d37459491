"""The discrete Fourier transform of rows whose length is known only when running, and framing.

In: real or complex rows, the last axis of size 1 or 2. Out: rows of `graph.opdef.TABLE`. Called by
ops/__init__.py; imported from ONNX by frontends/onnx/signal.py, which makes GEMMs of a transform
of static length (frontends/common/fourier.py).

`dft` is a mixed-radix Stockham transform: while the length n left is more than 1, a factor p of it
(4, else the smallest prime) is taken out,

    y[q + s(pj + r)] = Σ_t x[q + s(j + mt)] · w_n^(r(j + mt))      j < m = n / p,  r, t < p,  q < s

with s the product of the factors before, in f64. That is N · (sum of the factors) terms: a length
that is a large prime costs N².
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.statements import Scalar, compare, loop, number, with_scalars

Point = tuple[arith.Expr, ...]
NO_LENGTH = "dft: the length is less than 1"
NO_STEP = "frame: the step is less than 1"


@register
class Dft(OpDef):
    """The transform of x[…, n, 1 or 2] along axis -2, cropped or zero-padded to `length`:
    […, length, 2], or with `onesided` the first length // 2 + 1 of them. The inverse is divided by
    the length; `inverse` and `onesided`: of the half spectrum of a real row, […, length, 1]."""

    name = "dft"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        parts = arith.as_int(x.shape[-1]) if x.rank >= 2 else None
        if parts not in (1, 2) or not x.dtype.is_float:
            raise type_error(self.name, f"{x} is no tensor of real or complex rows")
        length, inverse, onesided = options_of(attrs)
        if onesided and parts == (1 if inverse else 2):
            raise type_error(self.name, f"{x} has no one-sided transform")
        if inverse and onesided:
            return [TensorType(x.dtype, common.dims((*x.shape[:-2], length, 1)))]
        count = length // 2 + 1 if onesided else length
        return [TensorType(x.dtype, common.dims((*x.shape[:-2], count, 2)))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        length, inverse, onesided = options_of(attrs)
        (n,), wide = common.numbers(self.name, (length,)), x.astype(np.float64)
        if n < 1:
            raise common.run_failed(NO_LENGTH)
        signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
        if inverse and onesided:
            return [np.fft.irfft(signal, n)[..., None].astype(x.dtype)]
        found = np.fft.ifft(signal, n) if inverse else np.fft.fft(signal, n)
        found = found[..., : n // 2 + 1] if onesided else found
        return [np.stack([found.real, found.imag], -1).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        length, inverse, onesided = options_of(attrs)
        b.check((), lambda: compare("lt", length, 1), NO_LENGTH)
        dtype, lead = dtypes.f64, x.shape[:-2]  # scalar code: no dearer than f32
        roots = b.compute(
            "roots", (length, 2), lambda j, part: root(j, part, length, inverse, dtype)
        )
        work = b.buffer("work", dtype, (*lead, 2, length, 2))
        fill = mirrored_element if inverse and onesided else padded_element

        def load(*point: arith.Expr) -> Stmt:
            *at, k, part = point
            return ir.Store(work, (*at, arith.Const(0), k, part), fill(x, at, k, part, length))

        common.stage(b, "load", (*lead, length, 2), load)
        out = b.buffer("dft", x.dtype, outputs[0].shape)

        def body(*at: arith.Expr) -> Stmt:
            transform = Transform(b, work, roots, tuple(at), length)

            def store(k: arith.Expr) -> Stmt:
                found = [work[(*at, transform.plane.index, k, p)] for p in range(2)]
                parts = found[: 1 if inverse and onesided else 2]
                scale = ir.Cast(ir.Index(length), dtype)
                values = [v / scale if inverse else v for v in parts]
                if arith.is_const(x.shape[-1], 1):  # these two of a real row's spectrum are real
                    is_real = compare("eq", k, 0) | compare("eq", 2 * k, length)
                    values[1] = ir.Select(is_real, ir.value_of(0, dtype), values[1])
                return ir.seq(
                    *(
                        ir.Store(out, (*at, k, arith.Const(p)), common.narrow(v, x.dtype))
                        for p, v in enumerate(values)
                    )
                )

            return transform.whole(loop(b, outputs[0].shape[-2], store))

        common.stage(b, "transform", lead, body)
        return [out]

    def samples(self) -> list[Sample]:
        def case(shape: tuple[int, ...], length: int, inverse: bool, onesided: bool) -> Sample:
            attrs = {"length": length, "inverse": inverse, "onesided": onesided}
            return Sample((common.floats(*shape),), attrs, 1e-4, 1e-5)

        half = Sample((common.floats(2, 6, 1, dtype=dtypes.f16),), {"length": 6}, 1e-2, 1e-2)
        wide = Sample((common.floats(9, 2, dtype=dtypes.f64),), {"length": 9}, 1e-12, 1e-12)
        return [
            case((2, 12, 1), 12, False, False), case((3, 7, 2), 7, True, False),
            case((2, 10, 1), 16, False, True), case((2, 9, 1), 5, False, True),
            case((2, 6, 2), 10, True, True), case((1, 3, 2), 9, True, True),
            case((2, 1, 2), 1, False, False), half, wide,
        ]  # fmt: skip


def options_of(attrs: Attrs) -> tuple[arith.Expr, bool, bool]:
    flags = (bool(attrs.get(name, False)) for name in ("inverse", "onesided"))
    return (arith.wrap(attrs["length"]), *flags)  # type: ignore[return-value]


def root(j: arith.Expr, part: arith.Expr, length: Dim, inverse: bool, dtype: dtypes.DType) -> Expr:
    """Part 0 or 1 of e^(∓2πi j / length), computed in f64 and rounded once."""
    turn = ir.Cast(ir.Index(j), dtypes.f64) / ir.Cast(ir.Index(length), dtypes.f64)
    angle = turn * ir.value_of(2 * math.pi if inverse else -2 * math.pi, dtypes.f64)
    values = ir.Math("cos", (angle,)), ir.Math("sin", (angle,))
    return ir.Cast(ir.Select(compare("eq", part, 0), *values), dtype)


def padded_element(
    x: Buffer, at: Sequence[arith.Expr], k: arith.Expr, part: arith.Expr, n: Dim
) -> Expr:
    """Element k of a row, or 0 beyond its end; a real row has no second part."""
    is_inside = compare("lt", k, x.shape[-2]) & compare("lt", part, x.shape[-1])
    last = arith.maximum(arith.minimum(k, x.shape[-2] - 1), 0)
    column = arith.minimum(part, x.shape[-1] - 1)
    zero = ir.value_of(0, x.dtype)
    return ir.Cast(ir.Load(x, (*at, last, column), mask=is_inside, other=zero), dtypes.f64)


def mirrored_element(
    x: Buffer, at: Sequence[arith.Expr], k: arith.Expr, part: arith.Expr, n: Dim
) -> Expr:
    """Element k of the whole spectrum of a real row: the second half is the conjugate of the
    first."""
    is_first = compare("le", k, n // 2)
    source = arith.minimum(k, n - k)
    value = padded_element(x, at, source, part, n)
    is_negated = ~is_first & compare("eq", part, 1)
    return ir.Select(is_negated, ir.Unary("neg", value), value)


class Transform:
    """The statements that transform one row of `work`, whose two planes are input and output in
    turn. `plane` is the one with the result."""

    def __init__(self, b: Build, work: Buffer, roots: Buffer, at: Point, length: Dim):
        self.b, self.work, self.roots, self.at, self.length = b, work, roots, at, length
        self.plane, self.left, self.stride = (Scalar(b, n) for n in ("plane", "left", "stride"))
        self.factor, self.turn = Scalar(b, "factor"), Scalar(b, "turn")
        self.sums = [Scalar(b, "sum", work.dtype) for _ in range(2)]

    def whole(self, *after: Stmt) -> Stmt:
        scalars = [self.plane, self.left, self.stride, self.factor, self.turn, *self.sums]
        start = [self.plane.set(0), self.left.set(ir.Index(self.length)), self.stride.set(1)]
        more = ir.Compare("gt", self.left.value, number(1))
        return with_scalars(scalars, *start, ir.While(more, self._step()), *after)

    def _step(self) -> Stmt:
        """One factor."""
        left, factor, stride, plane = self.left, self.factor, self.stride, self.plane
        groups = ir.index_of(ir.Binary("floordiv", left.value, factor.value))
        return ir.seq(
            self._find_factor(),
            loop(
                self.b,
                groups,
                lambda j: loop(self.b, factor.index, lambda r: self._row(j, r, groups)),
            ),
            left.set(ir.Index(groups)),
            stride.set(stride.value * factor.value),
            plane.set(number(1) - plane.value),
        )

    def _find_factor(self) -> Stmt:
        left, factor = self.left, self.factor
        rest = ir.Binary("mod", left.value, factor.value)
        is_open = ir.Compare("ne", rest, number(0))
        is_past_root = ir.Compare("gt", factor.value * factor.value, left.value)
        following = ir.Select(is_past_root, left.value, factor.value + number(1))
        by_four = ir.Compare("eq", ir.Binary("mod", left.value, number(4)), number(0))
        return ir.seq(
            factor.set(ir.Select(by_four, number(4), number(2))),
            ir.While(is_open, factor.set(following)),
        )

    def _row(self, j: arith.Expr, r: arith.Expr, groups: arith.Expr) -> Stmt:
        """The outputs r of group j, for every q."""
        factor, stride = self.factor, self.stride

        def each(q: arith.Expr) -> Stmt:
            target = (*self.at, ir.index_of(number(1) - self.plane.value), self._target(j, r, q))
            ends = [
                ir.Store(self.work, (*target, arith.Const(p)), self.sums[p].value) for p in (0, 1)
            ]
            zero = ir.value_of(0, self.work.dtype)
            return ir.seq(
                *(s.set(zero) for s in self.sums),
                self.turn.set(ir.Index(r * j)),
                loop(self.b, factor.index, lambda t: self._term(j, r, t, q, groups)),
                *ends,
            )

        return loop(self.b, stride.index, each)

    def _target(self, j: arith.Expr, r: arith.Expr, q: arith.Expr) -> arith.Expr:
        return q + self.stride.index * (self.factor.index * j + r)

    def _term(
        self, j: arith.Expr, r: arith.Expr, t: arith.Expr, q: arith.Expr, groups: arith.Expr
    ) -> Stmt:
        """sum += x · w; the exponent r(j + mt) modulo n grows by rm < n from term to term."""
        source = q + self.stride.index * (j + groups * t)
        x = [self.work[(*self.at, self.plane.index, source, p)] for p in (0, 1)]
        exponent = ir.index_of(self.turn.value * self.stride.value)
        w = [self.roots[exponent, p] for p in (0, 1)]
        grown = self.turn.value + ir.Index(r * groups)
        wrapped = ir.Select(
            ir.Compare("ge", grown, self.left.value), grown - self.left.value, grown
        )
        return ir.seq(
            self.sums[0].set(self.sums[0].value + (x[0] * w[0] - x[1] * w[1])),
            self.sums[1].set(self.sums[1].value + (x[0] * w[1] + x[1] * w[0])),
            self.turn.set(wrapped),
        )


@register
class Frame(OpDef):
    """Overlapping frames of the last axis: out[…, f, i] = x[…, f·step + i], for the whole frames of
    `length` elements; `mirrored`: x[…, f·step + (length - i) % length]. The first `count` elements
    of each frame."""

    name = "frame"
    kind = Kind.INJECTIVE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        if x.rank == 0:
            raise type_error(self.name, "a scalar has no frames")
        length, step, count = (arith.wrap(attrs[n]) for n in ("length", "step", "count"))
        if (arith.as_int(step) or 1) < 1 or (arith.as_int(length) or 1) < 1:
            raise type_error(self.name, f"frames of {length} at every {step} are not defined")
        frames = arith.maximum((x.shape[-1] - length) // arith.maximum(step, 1) + 1, 0)
        return [TensorType(x.dtype, common.dims((*x.shape[:-1], frames, count)))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        length, step, count = common.numbers(
            self.name, [attrs[n] for n in ("length", "step", "count")]
        )
        if step < 1:
            raise common.run_failed(NO_STEP)
        frames = max(0, (x.shape[-1] - length) // step + 1)
        inside = np.arange(count)
        inside = (length - inside) % length if attrs.get("mirrored", False) else inside
        return [x[..., np.arange(frames)[:, None] * step + inside]]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        length, step = (arith.wrap(attrs[n]) for n in ("length", "step"))
        if arith.as_int(step) is None:
            b.check((), lambda: compare("lt", step, 1), NO_STEP)

        def formula(*point: arith.Expr) -> Expr:
            *at, f, i = point
            if not attrs.get("mirrored", False):
                return x[(*at, f * step + i)]
            first = compare("eq", i, 0)
            inside = ir.index_of(ir.Select(first, number(0), ir.Index(length - i)))
            return x[(*at, f * step + inside)]

        return [b.compute("frame", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        plain = {"length": 4, "step": 3, "count": 4}
        mirrored = {"length": 5, "step": 2, "count": 3, "mirrored": True}
        return [
            Sample((common.floats(2, 11),), plain), Sample((common.floats(13),), mirrored),
            Sample((common.floats(3, 3),), plain), Sample((common.integers(2, 1, 9),), plain),
        ]  # fmt: skip
