"""The loops of a matrix product with packed weights (ops/matmul_packed.py).

    scaled[m, k]        x, or its quantised value, divided by what a code is worth at its place
    codes[k, n]         decoded: f32, or the integers that a dot-product instruction takes
    block_sums[m, s, n] Σ over the k of a block
    row_sums[m, s]      Σ of the block of x
    result[m, n]        Σ_s (block_sums - zero · row_sums) · scale

A code is masked where it is in its word and not shifted down: it counts 2^place times its value,
for which x is scaled down (f32) or the others are scaled up (i16). Both are exact. Only the last
code of a word, where the sign is, is shifted.

    unit   code   x         product              largest sum of a block of 256
    32     f32    f32, i8   f32, exact for i8    2^23
    8      u8     i8        i32 by 4 terms       2^23
    8      u8     f32       the same, 4 digits   2^31, as two digits are joined
    16     i16    i8        i32 by 2 terms       2^27, as 4-bit codes count 256 times

Four digits are one f32 as an integer of 31 bits in base 256, as in Ozaki's scheme: x[m, k] = step ·
Σ_d 256^(3 - d) · digit[m, d, k], step a power of two for each block. It is exact for an x of at
least 2^-7 of the block's largest, else rounded to 2^-31 of it; sums of products are exact.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.packed_codes import WORD
from ingot.ops.statements import compare

CODE_TYPES = {0: dtypes.f32, 8: dtypes.u8, 16: dtypes.i16, 32: dtypes.f32}
OPERAND_TYPES = {0: dtypes.f32, 8: dtypes.i8, 16: dtypes.i16, 32: dtypes.f32}
DIGITS = 4  # of 8 bits, signed
INTEGER_BITS = 30  # an x is less than 2^30 steps
HALVES = 0x00808080  # makes the signed digits below the first one the bytes of a sum


class PackedLoops:
    def __init__(
        self, b: Build, x: Buffer, weights: Buffer, scale: Buffer, zero: Buffer | None, attrs: Attrs
    ):
        self.b, self.x, self.weights, self.scale, self.zero = b, x, weights, scale, zero
        self.bits, self.block, self.panel = attrs["bits"], attrs["block"], attrs.get("panel", 0)
        self.unit, self.is_quantised = attrs.get("unit", 0), attrs.get("activations") == "i8"
        self.units = WORD // self.unit if self.unit else 1  # of a word
        self.fields = (self.unit or 8) // self.bits  # codes of a unit
        self.per_word = self.units * self.fields
        self.blocks = -(-(arith.as_int(x.shape[1]) or 0) // self.block)
        self.rows, self.depth = x.shape[0], arith.Const(self.blocks * self.block)
        # whole panels are computed; the last stage drops the columns that pad the last one
        columns, width = attrs["columns"], self.panel or 1
        self.columns, self.padded = arith.Const(columns), arith.Const(-(-columns // width) * width)
        # what a product counts: codes of 16-bit units are worth up to 2^up times their value
        self.up = self.bits * (self.fields - 2) if self.unit == 16 else 0

    def result(self) -> Buffer:
        start = identity("add", dtypes.f32)
        is_split = self.unit == 8 and not self.is_quantised
        steps: Buffer | None = None
        if is_split:
            partial, sums, steps = self.split_sums()
        else:
            operand, steps = (
                self.quantised_rows() if self.is_quantised else (self.rows_of_x(), None)
            )
            partial, sums = self.block_sums(self.scaled(operand)), self.row_sums(operand)

        def add_block(m, n, s, total) -> list[Expr]:
            scale = self.param(self.scale, s, n)
            if steps is not None:
                scale = scale * steps[m, s]
            found = joined(partial, m, s, n) if is_split else partial[m, s, n]
            return [ir.Fma(self.centred(found, sums[m, s], s, n), scale, total)]

        shape, over = (self.rows, self.padded), [arith.Const(self.blocks)]
        (whole,) = self.b.fold(["matmul_packed"], shape, over, [start], add_block)
        if self.padded == self.columns:
            return whole
        return self.b.compute("columns", (self.rows, self.columns), lambda m, n: whole[m, n])

    def param(self, of: Buffer, s: arith.Expr, n: arith.Expr) -> Expr:
        return of[n // self.panel, s, n % self.panel] if self.unit else of[n, s]

    def centred(self, total: Expr, row_sum: Expr, s: arith.Expr, n: arith.Expr) -> Expr:
        """total - zero · row_sum, in f32; exact if these are integers."""
        zero: Expr = ir.value_of(1 << (self.bits - 1), total.dtype)
        if self.zero is not None:
            zero = self.param(self.zero, s, n)
        if total.dtype.is_int and zero.dtype.is_int:
            return ir.Cast(total - ir.Cast(zero, dtypes.i32) * row_sum, dtypes.f32)
        zero, row_sum, total = (ir.Cast(v, dtypes.f32) for v in (zero, row_sum, total))
        return ir.Fma(ir.Unary("neg", zero), row_sum, total)

    # --- the rows of x -----------------------------------------------------------------------

    def element(self, m: arith.Expr, k: arith.Expr) -> Expr:
        """x[m, k], or 0 where the last block is longer than x."""
        if arith.is_const(self.x.shape[1], arith.as_int(self.depth) or 0):
            return self.x[m, k]
        inside = compare("lt", k, self.x.shape[1])
        return ir.Load(self.x, (m, k), mask=inside, other=ir.value_of(0, dtypes.f32))

    def rows_of_x(self) -> Buffer:
        if arith.is_const(self.x.shape[1], arith.as_int(self.depth) or 0):
            return self.x
        return self.b.compute("x_padded", (self.rows, self.depth), self.element)

    def largest(self) -> Buffer:
        """The largest absolute value of each block of a row."""

        def size(m, s, j) -> Expr:
            return ir.Unary("abs", self.element(m, s * self.block + j))

        shape, start = (self.rows, arith.Const(self.blocks)), ir.value_of(0, dtypes.f32)
        return self.b.reduce("largest", shape, [self.block], "max", size, start)

    def quantised_rows(self) -> tuple[Buffer, Buffer]:
        """i8 multiples of each block's step, and the steps: 1/127 of the block's largest."""
        shape, most = (self.rows, arith.Const(self.blocks)), ir.value_of(127, dtypes.f32)
        largest = self.largest()
        factor = self.b.compute("factors", shape, lambda m, s: most / largest[m, s])

        def value(m, k) -> Expr:
            steps = ir.Unary("round", self.element(m, k) * factor[m, k // self.block])
            return ir.Cast(steps, dtypes.i8)

        whole = self.b.compute("quantised", (self.rows, self.depth), value)
        unit = ir.value_of(2.0**-self.up, dtypes.f32)
        steps = self.b.compute("steps", shape, lambda m, s: largest[m, s] / most * unit)
        return whole, steps

    def split_sums(self) -> tuple[Buffer, Buffer, Buffer]:
        """The sums of each digit, the sums of rows in steps, and the steps."""
        shape = (self.rows, arith.Const(self.blocks))
        largest, x = self.largest(), self.rows_of_x()

        def factor_bits(m, s) -> Expr:
            exponent = ir.Binary("shr", ir.Bitcast(largest[m, s], dtypes.u32), _u32(23))
            least = _u32(2 * 127 + INTEGER_BITS - 1) - exponent
            return ir.Binary("min", least, _u32(253))  # its inverse is normal too

        def factor(m, s) -> Expr:
            return ir.Bitcast(ir.Binary("shl", factor_bits(m, s), _u32(23)), dtypes.f32)

        def step(m, s) -> Expr:
            inverse = ir.Binary("shl", _u32(254) - factor_bits(m, s), _u32(23))
            # NaN for a block that is not finite
            return ir.Bitcast(inverse, dtypes.f32) + largest[m, s] * ir.value_of(0, dtypes.f32)

        factors, steps = (
            self.b.compute(name, shape, f) for name, f in (("factors", factor), ("steps", step))
        )

        def integer(m, k) -> Expr:
            whole = ir.Unary("round", x[m, k] * factors[m, k // self.block])
            return ir.Cast(whole, dtypes.i32) + HALVES

        integers = self.b.compute("integers", (self.rows, self.depth), integer)

        def digit(m, d, k) -> Expr:
            place = ir.Cast(ir.Index((DIGITS - 1 - d) * 8), dtypes.i32)
            shifted = ir.Binary("shr", integers[m, k], place)
            is_first = compare("eq", d, 0)
            return ir.Cast(ir.Select(is_first, shifted, (shifted & 255) - 128), dtypes.i8)

        digits = self.b.compute("digits", (self.rows, arith.Const(DIGITS), self.depth), digit)

        def term(m, s, j) -> Expr:
            k = s * self.block + j
            return x[m, k] * factors[m, s]

        start = identity("add", dtypes.f32)
        sums = self.b.reduce("row_sums", shape, [self.block], "add", term, start)
        return self.block_sums(digits), sums, steps

    def scaled(self, operand: Buffer) -> Buffer:
        """The operand times 2^-place of the code that it meets, or 2^(up - place)."""
        dtype = OPERAND_TYPES[self.unit]
        if self.unit in (0, 8) and operand.dtype is dtype:
            return operand

        def value(m, k) -> Expr:
            wide = ir.Cast(operand[m, k], dtype)
            if self.unit not in (16, 32):
                return wide
            field = k % self.per_word // self.units
            place = self.bits * (field * (1 - field // (self.fields - 1)))  # the last is shifted
            if self.unit == 16:
                return ir.Binary("shl", wide, ir.Cast(ir.Index(self.up - place), dtype))
            exponent = ir.Cast(ir.Index(127 - place), dtypes.u32)
            return wide * ir.Bitcast(ir.Binary("shl", exponent, _u32(23)), dtypes.f32)

        return self.b.compute("scaled", (self.rows, self.depth), value)

    def row_sums(self, operand: Buffer) -> Buffer:
        """The sum of each block of a row, in the unit of the products."""
        dtype = dtypes.i32 if operand.dtype.is_int else dtypes.f32

        def term(m, s, j) -> Expr:
            value = ir.Cast(operand[m, s * self.block + j], dtype)
            return value * (1 << self.up) if self.up else value

        shape, start = (self.rows, arith.Const(self.blocks)), identity("add", dtype)
        return self.b.reduce("row_sums", shape, [self.block], "add", term, start)

    # --- products with codes -----------------------------------------------------------------

    def block_sums(self, scaled: Buffer) -> Buffer:
        """For each row, or each digit of a row."""
        codes, dtype = self.codes(), CODE_TYPES[self.unit]
        total = dtypes.i32 if dtype.is_int else dtypes.f32
        shape = (*scaled.shape[:-1], arith.Const(self.blocks), self.padded)

        def add_product(*point) -> list[Expr]:
            *row, s, n, j, acc = point
            k = s * self.block + j
            if dtype.is_int:
                product = ir.Cast(codes[k, n], total) * ir.Cast(scaled[(*row, k)], total)
                return [acc + product]
            # products of integer data are not contracted to FMAs later
            return [ir.Fma(scaled[(*row, k)], codes[k, n], acc)]

        start = [identity("add", total)]
        return self.b.fold(["block_sums"], shape, [self.block], start, add_product)[0]

    def codes(self) -> Buffer:
        code = {0: self.code_in_row, 8: self.code_in_byte, 16: self.in_place, 32: self.in_place}
        return self.b.compute("codes", (self.depth, self.padded), code[self.unit])

    def code_in_row(self, k: arith.Expr, n: arith.Expr) -> Expr:
        byte = ir.Cast(self.weights[n, k // self.fields], dtypes.u32)
        code = ir.Binary("shr", byte, ir.Cast(ir.Index(k % self.fields * self.bits), dtypes.u32))
        return ir.Cast(ir.Cast(code & ((1 << self.bits) - 1), dtypes.i32), dtypes.f32)

    def unit_of(self, k: arith.Expr, n: arith.Expr) -> tuple[Expr, arith.Expr]:
        """The unit that holds code k of column n, and the field of the unit."""
        word = n // self.panel, k // self.per_word, n % self.panel, k % self.units
        return self.weights[word], k % self.per_word // self.units

    def code_in_byte(self, k: arith.Expr, n: arith.Expr) -> Expr:
        byte, field = self.unit_of(k, n)
        if self.fields == 1:
            return byte
        moved = ir.Binary("shr", byte, ir.Cast(ir.Index(field * self.bits), dtypes.u8))
        return moved & ((1 << self.bits) - 1)

    def in_place(self, k: arith.Expr, n: arith.Expr) -> Expr:
        """The code times 2^place; the last one of the unit is shifted down."""
        unit, field = self.unit_of(k, n)
        place = ir.Cast(ir.Index(field * self.bits), unit.dtype)
        mask = ir.Binary("shl", ir.value_of((1 << self.bits) - 1, unit.dtype), place)
        last = ir.Binary("shr", unit, ir.value_of(self.unit - self.bits, unit.dtype))
        code = ir.Select(compare("eq", field, self.fields - 1), last, unit & mask)
        whole = ir.Cast(code, dtypes.i32 if self.unit == 32 else dtypes.i16)
        return ir.Cast(whole, CODE_TYPES[self.unit])


def joined(partial: Buffer, m: arith.Expr, s: arith.Expr, n: arith.Expr) -> Expr:
    """The sums of four digits as one f32: pairs of them are exact."""
    first, second = (
        ir.Cast(partial[m, d, s, n] * 256 + partial[m, d + 1, s, n], dtypes.f32) for d in (0, 2)
    )
    return ir.Fma(first, ir.value_of(65536, dtypes.f32), second)


def _u32(value: int) -> Expr:
    return ir.value_of(value, dtypes.u32)
