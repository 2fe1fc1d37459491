"""Random numbers of one node: uniform and normal ones, made of `random_bits` (ops/random.py).

In: a key, u64[2], and a stream of it. Out: values of f32 or f64. Called by converters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import HasBuilder, cast, scalar
from ingot.graph.ir import Value
from ingot.ops.random import STREAMS

Shape = Sequence[arith.Expr | int]
SECOND_BLOCK = STREAMS >> 1  # added to a stream: another 64 bits for each element


class Draws:
    """The random numbers of one node, of f64 for that type, else of f32."""

    def __init__(self, ctx: HasBuilder, key: Value, stream: int, dtype: DType):
        self.ctx, self.g, self.key, self.stream = ctx, ctx.g, key, stream
        self.wide = dtypes.f64 if dtype is dtypes.f64 else dtypes.f32

    def bits(self, shape: Shape, block: int = 0) -> Value:
        stream = self.stream + block * SECOND_BLOCK
        return self.g.add("random_bits", [self.key], shape=tuple(shape), stream=stream)

    def fraction(self, bits: Value, shift: int, count: int, offset: float = 0.0) -> Value:
        """(n + offset) / 2^count, where n are `count` of the bits, from bit `shift` on."""
        ctx, g = self.ctx, self.g
        number = g.add("shr", [bits, scalar(ctx, shift, dtypes.u64)]) if shift else bits
        if shift + count < 64:
            number = g.add("and", [number, scalar(ctx, (1 << count) - 1, dtypes.u64)])
        whole = dtypes.i32 if count < 32 else dtypes.i64  # i32 converts to f32 by one instruction
        number = g.add("cast", [number], to=whole, mode="wrap")
        value = cast(ctx, number, self.wide)
        if offset:
            value = g.add("add", [value, scalar(ctx, offset, self.wide)])
        return g.add("mul", [value, scalar(ctx, 2.0**-count, self.wide)])

    def uniform(self, shape: Shape) -> Value:
        """Multiples of 2^-24, or 2^-53 in f64, in [0, 1)."""
        count = 53 if self.wide is dtypes.f64 else 24
        return self.fraction(self.bits(shape), 64 - count, count)

    def normal(self, shape: Shape) -> Value:
        """Mean 0 and variance 1, by Box and Muller: sqrt(-2 log u) cos(2 pi v)."""
        bits = self.bits(shape)
        if self.wide is dtypes.f64:
            u = self.fraction(bits, 11, 53, 0.5)
            v = self.fraction(self.bits(shape, 1), 11, 53)
        else:  # 31 bits of u: up to 6.6 standard deviations
            u, v = self.fraction(bits, 33, 31, 0.5), self.fraction(bits, 0, 24)
        g, number = self.g, lambda value: scalar(self.ctx, value, self.wide)
        radius = g.add("sqrt", [g.add("mul", [g.add("log", [u]), number(-2.0)])])
        return g.add("mul", [radius, g.add("cos", [g.add("mul", [v, number(2 * math.pi)])])])
