"""Matrix multiplication with weights of 2, 4 or 8 bits that stay packed: weight-only quantisation.

    out[m, n] = Σ_s scale[n, s] · (Σ_{k in block s} x[m, k] · code[n, k] - zero[n, s] · Σ x[m, k])

Codes are unsigned; a block is `block` codes of one column n, with one scale and one zero point
(without an operand the middle of the range). A block is whole, whatever K is. With
activations="i8", each block of a row of x is quantised first, to -127 … 127 with one scale. In: f32
rows x; the codes, as rows of bytes (unit=0) or in panels of words of units (packed_codes.py);
`scale` and `zero`, in rows or panels too. Out: f32. An infinite x gives NaN. packed_loops.py has
the loops. Called by graph, lower and front ends through the operator table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.ops import packed_codes as packed
from ingot.ops.common import floats, integers, require_dtype, rng, tensor_type
from ingot.ops.packed_loops import PackedLoops

ACTIVATIONS = ("f32", "i8")
UNIT_TYPES = {0: dtypes.u8, 8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}
MOST = 127  # of a quantised activation


@register
class MatMulPacked(OpDef):
    """x · dequantised(weights)ᵀ. Attributes: `columns`, `bits`, `block`, `activations`; of packed
    weights `unit`, the bits of a unit, and `panel`, the columns of a panel."""

    name = "matmul_packed"
    kind = Kind.CONTRACTION
    family = "matmul_packed"

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return max(1, np.asarray(inputs[0]).shape[-1] / 16)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, weights, scale = (tensor_type(self.name, t) for t in inputs[:3])
        zero = tensor_type(self.name, inputs[3]) if len(inputs) > 3 and inputs[3] else None
        depth = arith.as_int(x.shape[-1]) if x.rank == 2 else None
        if depth is None:
            raise type_error(self.name, f"expects rows of a static length, got {x}")
        self.check_attrs(attrs)
        require_dtype(self.name, x, dtypes.f32)
        require_dtype(self.name, weights, UNIT_TYPES[attrs.get("unit", 0)])
        require_dtype(self.name, scale, dtypes.f32)
        if zero is not None:
            require_dtype(self.name, zero, dtypes.u8, dtypes.f32)
        codes, params = shapes(depth, attrs)
        operands = (("weights", weights, codes), ("scale", scale, params), ("zero", zero, params))
        for what, type, shape in operands:
            if type is not None and type.shape != tuple(map(arith.Const, shape)):
                raise type_error(self.name, f"{what} {type} should have the shape {shape}")
        return [TensorType(dtypes.f32, (x.shape[0], arith.Const(attrs["columns"])))]

    def check_attrs(self, attrs: Attrs) -> None:
        bits, block, unit = attrs["bits"], attrs["block"], attrs.get("unit", 0)
        if bits not in packed.BITS or block < 1 or block * bits % packed.WORD:
            raise type_error(self.name, f"blocks of {block} codes of {bits} bits are not supported")
        has_units = unit in UNIT_TYPES and (unit == 0) == (attrs.get("panel", 0) == 0)
        if not has_units or attrs.get("activations", "f32") not in ACTIVATIONS:
            raise type_error(self.name, f"attributes {dict(attrs)} are not supported")

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if set(batched) == {0} else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, weights, scale, zero = (*inputs, None)[:4]
        assert x is not None and weights is not None and scale is not None
        bits, block, columns = attrs["bits"], attrs["block"], attrs["columns"]
        if attrs.get("unit", 0):
            codes = packed.unpack_panels(weights, bits, columns)
            scale = packed.param_rows(scale, columns)
            zero = None if zero is None else packed.param_rows(zero, columns)
        else:
            codes = packed.unpack_rows(weights, bits)
        centre = np.float32(1 << (bits - 1)) if zero is None else zero.astype(np.float32)[..., None]
        real = (codes.reshape(columns, -1, block).astype(np.float32) - centre) * scale[..., None]
        whole = np.zeros((x.shape[0], codes.shape[1]), np.float32)
        whole[:, : x.shape[1]] = x
        with np.errstate(all="ignore"):
            if attrs.get("activations", "f32") == "i8":
                whole = quantised(whole, block)
            return [np.asarray(whole @ real.reshape(columns, -1).T, np.float32)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, weights, scale, zero = (*inputs, None)[:4]
        assert x is not None and weights is not None and scale is not None
        return [PackedLoops(b, x, weights, scale, zero, attrs).result()]

    def samples(self) -> list[Sample]:
        return [
            sample(1, 64, 32, 32, 4, unit=32), sample(3, 70, 33, 32, 4, "u8", unit=32),
            sample(9, 48, 17, 16, 4, "f32", unit=32, panel=32), sample(2, 64, 20, 64, 8, "u8", 32),
            sample(1, 40, 5, 16, 2, unit=32), sample(2, 40, 5, 16, 4, "u8"),
            sample(3, 70, 33, 32, 4, "u8", 8), sample(1, 64, 16, 32, 2, "f32", 8),
            sample(2, 40, 5, 16, 8, "f32", activations="i8"),
            sample(3, 70, 33, 32, 4, "u8", 8, activations="i8"),
            sample(2, 64, 20, 32, 8, "f32", 8, activations="i8"),
            sample(7, 96, 16, 32, 2, "", 8, activations="i8"),
            sample(1, 70, 33, 32, 4, "u8", 16, activations="i8"),
            sample(7, 96, 16, 32, 8, "", 16, activations="i8"),
            sample(2, 70, 17, 32, 4, "f32", 32, activations="i8"),
        ]  # fmt: skip


def shapes(depth: int, attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the weights, and of the scales and zero points."""
    bits, block, columns = attrs["bits"], attrs["block"], attrs["columns"]
    blocks, unit, panel = -(-depth // block), attrs.get("unit", 0), attrs.get("panel", 0)
    bytes_ = blocks * block * bits // 8
    if not unit:
        return (columns, bytes_), (columns, blocks)
    panels = -(-columns // panel)
    return (panels, bytes_ * 8 // packed.WORD, panel, packed.WORD // unit), (panels, blocks, panel)


def quantised(x: np.ndarray, block: int) -> np.ndarray:
    """Rows of x rounded to a multiple of 1/127 of the largest of each block."""
    blocks = x.reshape(len(x), -1, block)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    steps = np.rint(blocks * (np.float32(MOST) / largest))
    whole = np.where(np.isnan(steps), np.float32(0), np.clip(steps, -MOST - 1, MOST))
    return (whole * (largest / np.float32(MOST))).reshape(x.shape).astype(np.float32)


def sample(
    rows: int, depth: int, columns: int, block: int, bits: int, zero: str = "", unit: int = 0,
    panel: int = 16, activations: str = "f32",
) -> Sample:  # fmt: skip
    """A case; `zero` is the type of the zero points, if there are any."""
    blocks, key = -(-depth // block), ("packed", columns, depth)
    codes = integers(columns, blocks * block * bits // 8, dtype=dtypes.u8, high=255)
    scale = rng("scale", *key).uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    zeros: np.ndarray | None = None
    if zero:
        whole = integers(columns, blocks, dtype=dtypes.u8, high=(1 << bits) - 1)
        zeros = whole if zero == "u8" else whole.astype(np.float32) + np.float32(0.25)
    if unit:
        codes = packed.pack_panels(codes, bits, panel, unit)
        scale = packed.param_panels(scale, panel)
        zeros = zeros if zeros is None else packed.param_panels(zeros, panel)
    attrs = {"columns": columns, "bits": bits, "block": block, "activations": activations}
    attrs |= {"unit": unit, "panel": panel} if unit else {}
    return Sample((floats(rows, depth), codes, scale, zeros), attrs, 1e-4, 1e-4)
