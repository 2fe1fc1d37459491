"""Matrix multiplication with weights of 2, 4 or 8 bits that stay packed: weight-only quantisation.

    out[m, n] = Σ_s scale[n, s] · (Σ_{k in block s} x[m, k] · code[n, k] - zero[n, s] · Σ x[m, k])

Codes are unsigned; a block is `block` codes of one column n, with one scale and one zero point
(without an operand the middle of the range). In: f32 rows x, the codes in bytes, the low bits
first, as a row for each column; `scale` and `zero`. A block is whole, whatever K is. Out: f32.

passes/pack_weights.py repacks the codes into words for the loops below: `panel` columns make a
panel, whose word [panel, k // P, column] holds the P codes k, k + 1, … of a column, code j at bit
j · bits. A code is masked and converted where it is, worth 2^(j · bits) times its value, and x[k]
is scaled down by that power of two, which is exact: no shift is needed. The last code of a word
would be a negative integer; it is shifted down.

An infinite x gives NaN. Called by graph, lower and front ends through the operator table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import floats, integers, require_dtype, rng, tensor_type
from ingot.ops.statements import compare

WORD = 32  # bits of a word of packed codes
BITS = (2, 4, 8)


def codes_per_word(bits: int) -> int:
    return WORD // bits


def unpack_codes(rows: np.ndarray, bits: int) -> np.ndarray:
    """Bytes as the codes they hold, the low bits first: the last axis grows 8 / bits times."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = rows[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*rows.shape[:-1], -1)


def pack_panels(rows: np.ndarray, panel: int) -> np.ndarray:
    """Bytes of each column as words in panels of columns, padded with zeros."""
    words = np.ascontiguousarray(rows).view("<u4")
    return np.ascontiguousarray(_panels(words, panel).transpose(0, 2, 1))


def param_panels(param: np.ndarray, panel: int) -> np.ndarray:
    """A scale or zero point of each column and block in panels of columns, padded with zeros."""
    return np.ascontiguousarray(_panels(param, panel).transpose(0, 2, 1))


def _panels(rows: np.ndarray, panel: int) -> np.ndarray:
    columns, length = rows.shape
    padded = np.zeros((-(-columns // panel) * panel, length), rows.dtype)
    padded[:columns] = rows
    return padded.reshape(-1, panel, length)


def _unpanelled(panels: np.ndarray, columns: int) -> np.ndarray:
    rows = panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])
    return np.ascontiguousarray(rows[:columns])


@register
class MatMulPacked(OpDef):
    """x · dequantised(weights)ᵀ. Attributes: `columns`, `bits`, `block`, and `panel`, the columns
    of a panel, 0 while the weights are rows of bytes."""

    name = "matmul_packed"
    kind = Kind.CONTRACTION
    family = "matmul_packed"

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return max(1, np.asarray(inputs[0]).shape[-1] / 16)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, weights, scale = (tensor_type(self.name, t) for t in inputs[:3])
        require_dtype(self.name, x, dtypes.f32)
        require_dtype(self.name, scale, dtypes.f32)
        bits, block, columns = attrs["bits"], attrs["block"], attrs["columns"]
        depth = arith.as_int(x.shape[-1]) if x.rank == 2 else None
        if depth is None:
            raise type_error(self.name, f"expects rows of a static length, got {x}")
        if bits not in BITS or block < 1 or block % codes_per_word(bits):
            raise type_error(self.name, f"blocks of {block} codes of {bits} bits are not supported")
        blocks, panel = -(-depth // block), attrs.get("panel", 0)
        words = blocks * block // codes_per_word(bits)
        panels = -(-columns // panel) if panel else 0
        rows = (panels, words, panel) if panel else (columns, blocks * block * bits // 8)
        params = (panels, blocks, panel) if panel else (columns, blocks)
        require_dtype(self.name, weights, dtypes.u32 if panel else dtypes.u8)
        zero = tensor_type(self.name, inputs[3]) if len(inputs) > 3 and inputs[3] else None
        if zero is not None:
            require_dtype(self.name, zero, dtypes.u8, dtypes.f32)
        for what, type, shape in (
            ("weights", weights, rows), ("scale", scale, params), ("zero point", zero, params)
        ):  # fmt: skip
            if type is not None and type.shape != tuple(map(arith.wrap, shape)):
                raise type_error(self.name, f"{what} {type} should have the shape {shape}")
        return [TensorType(dtypes.f32, (x.shape[0], arith.Const(columns)))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if set(batched) == {0} else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, weights, scale, zero = (*inputs, None)[:4]
        assert x is not None and weights is not None and scale is not None
        bits, block, columns = attrs["bits"], attrs["block"], attrs["columns"]
        if attrs.get("panel", 0):
            weights = _unpanelled(weights, columns).view(np.uint8)
            scale, zero = (v if v is None else _unpanelled(v, columns) for v in (scale, zero))
        codes = unpack_codes(weights, bits).reshape(columns, -1, block).astype(np.float32)
        middle = np.float32(1 << (bits - 1))
        centre = middle if zero is None else zero.astype(np.float32)[..., None]
        real = ((codes - centre) * scale[..., None]).reshape(columns, -1)[:, : x.shape[1]]
        with np.errstate(all="ignore"):
            return [np.asarray(x @ real.T, np.float32)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, weights, scale, zero = (*inputs, None)[:4]
        assert x is not None and weights is not None and scale is not None
        return [_Loops(b, x, weights, scale, zero, attrs).result()]

    def samples(self) -> list[Sample]:
        def case(
            rows: int, depth: int, columns: int, block: int, bits: int, zero: str, panel: int
        ) -> Sample:
            blocks = -(-depth // block)
            weights = integers(columns, blocks * block * bits // 8, dtype=dtypes.u8, high=255)
            scale = rng("scale", columns).uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
            high = (1 << bits) - 1
            zeros: np.ndarray | None = None
            if zero:
                dtype = dtypes.of(zero)
                zeros = integers(columns, blocks, dtype=dtypes.u8, high=high).astype(dtype.numpy)
                zeros = zeros + np.array(0.25 if dtype.is_float else 0, dtype.numpy)
            if panel:
                weights = pack_panels(weights, panel)
                scale = param_panels(scale, panel)
                zeros = zeros if zeros is None else param_panels(zeros, panel)
            attrs = {"columns": columns, "bits": bits, "block": block, "panel": panel}
            return Sample((floats(rows, depth), weights, scale, zeros), attrs, 1e-4, 1e-4)

        return [
            case(1, 64, 32, 32, 4, "", 16), case(3, 70, 33, 32, 4, "u8", 16),
            case(9, 48, 17, 16, 4, "f32", 32), case(2, 64, 20, 64, 8, "u8", 16),
            case(1, 40, 5, 16, 2, "", 16), case(2, 40, 5, 16, 4, "u8", 0),
        ]  # fmt: skip


class _Loops:
    """The loops of one product with packed weights."""

    def __init__(
        self, b: Build, x: Buffer, weights: Buffer, scale: Buffer, zero: Buffer | None, attrs: Attrs
    ):
        self.b, self.x, self.weights, self.scale, self.zero = b, x, weights, scale, zero
        self.bits, self.block, self.panel = attrs["bits"], attrs["block"], attrs.get("panel", 0)
        self.per_word = (WORD if self.panel else 8) // self.bits
        self.blocks = -(-(arith.as_int(x.shape[1]) or 0) // self.block)
        self.depth = self.blocks * self.block
        self.rows, self.columns = x.shape[0], arith.Const(attrs["columns"])
        # whole panels are computed; the last stage drops the columns that pad the last one
        self.padded = arith.Const(-(-attrs["columns"] // (self.panel or 1)) * (self.panel or 1))

    def result(self) -> Buffer:
        scaled, codes, sums = self.scaled_rows(), self.codes(), self.row_sums()
        start = identity("add", dtypes.f32)

        def add_product(m, s, n, j, total) -> list[Expr]:
            k = s * self.block + j  # products of integer data are not contracted to FMAs later
            return [ir.Fma(scaled[m, k], codes[k, n], total)]

        shape = (self.rows, arith.Const(self.blocks), self.padded)
        (partial,) = self.b.fold(["block_sums"], shape, [self.block], [start], add_product)

        def term(m, n, s) -> Expr:
            middle: Expr = ir.value_of(1 << (self.bits - 1), dtypes.f32)
            if self.zero is not None:
                middle = ir.Cast(self.param(self.zero, s, n), dtypes.f32)
            centred = ir.Fma(ir.Unary("neg", middle), sums[m, s], partial[m, s, n])
            return centred * self.param(self.scale, s, n)

        shape, over = (self.rows, self.padded), [arith.Const(self.blocks)]
        whole = self.b.reduce("matmul_packed", shape, over, "add", term, start)
        if self.padded == self.columns:
            return whole
        return self.b.compute("columns", (self.rows, self.columns), lambda m, n: whole[m, n])

    def param(self, of: Buffer, s: arith.Expr, n: arith.Expr) -> Expr:
        return of[n // self.panel, s, n % self.panel] if self.panel else of[n, s]

    def scaled_rows(self) -> Buffer:
        """x[m, k] divided by what a code is worth at its place in the word."""

        def value(m, k) -> Expr:
            if not self.panel:
                return self.x_or_zero(m, k)
            place = k % self.per_word
            place = place * (1 - place // (self.per_word - 1))  # the last code is shifted down
            exponent = ir.Cast(ir.Index(127 - self.bits * place), dtypes.u32)
            factor = ir.Bitcast(ir.Binary("shl", exponent, ir.value_of(23, dtypes.u32)), dtypes.f32)
            return self.x_or_zero(m, k) * factor

        return self.b.compute("scaled", (self.rows, arith.Const(self.depth)), value)

    def x_or_zero(self, m: arith.Expr, k: arith.Expr) -> Expr:
        if arith.is_const(self.x.shape[1], self.depth):
            return self.x[m, k]
        inside = compare("lt", k, self.x.shape[1])
        return ir.Load(self.x, (m, k), mask=inside, other=ir.value_of(0, dtypes.f32))

    def row_sums(self) -> Buffer:
        """The sum of each block of a row."""

        def term(m, s, j) -> Expr:
            return self.x_or_zero(m, s * self.block + j)

        shape, start = (self.rows, arith.Const(self.blocks)), identity("add", dtypes.f32)
        return self.b.reduce("row_sums", shape, [self.block], "add", term, start)

    def codes(self) -> Buffer:
        """The code of row k and column n, times what it is worth at its place in the word."""
        code = self.code_in_word if self.panel else self.code_in_byte
        return self.b.compute("codes", (arith.Const(self.depth), self.padded), code)

    def code_in_word(self, k: arith.Expr, n: arith.Expr) -> Expr:
        word = self.weights[n // self.panel, k // self.per_word, n % self.panel]
        mask = ir.Binary("shl", _number((1 << self.bits) - 1), _shift(k, self.per_word, self.bits))
        is_last = compare("eq", k % self.per_word, self.per_word - 1)
        last = ir.Binary("shr", word, _number(WORD - self.bits))
        return ir.Cast(ir.Cast(ir.Select(is_last, last, word & mask), dtypes.i32), dtypes.f32)

    def code_in_byte(self, k: arith.Expr, n: arith.Expr) -> Expr:
        byte = ir.Cast(self.weights[n, k // self.per_word], dtypes.u32)
        code = ir.Binary("shr", byte, _shift(k, self.per_word, self.bits))
        return ir.Cast(ir.Cast(code & ((1 << self.bits) - 1), dtypes.i32), dtypes.f32)


def _number(value: int) -> Expr:
    return ir.value_of(value, dtypes.u32)


def _shift(k: arith.Expr, per_word: int, bits: int) -> Expr:
    """The first bit of code k in its word."""
    return ir.Cast(ir.Index(k % per_word * bits), dtypes.u32)
