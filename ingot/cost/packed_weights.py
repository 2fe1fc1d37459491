"""Decide: matrix products with weights of 2, 4 or 8 bits, which are decoded in registers.

    few rows    packed_rows:  the codes of a panel are decoded where they are used, for all rows
    many rows   packed_tiles: the codes of a block of k are decoded once, to scratch in the L1 cache

A code takes two instructions to decode and one FMA per row; with one row the loop waits for memory,
and it reads each panel from end to end. With x quantised to i8, an instruction multiplies 4 codes
of 8 bits by it, or 2 of 16 bits. Where the target has neither, the product is computed in f32,
which is exact too. In: the numbers of rows and of panel columns, the target. Out: a plan of the
block that sums the products; the layout of the packed weights.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot import dtypes
from ingot.cost.dot_products import DotRow
from ingot.cost.plan import Blocking, ContractionPlan, Packing
from ingot.cost.tile import Tile
from ingot.target import Target

WORD = 32  # bits of a word of packed codes
# Registers besides the accumulators where codes are decoded: words or masks, a code, an x; heuristic
OTHER_REGISTERS = 8
# Vectors of a panel of f32 products, each with a chain of FMAs, for 32 registers, and for 16, where
# as many words are in registers too; measured
VECTORS, FEW_VECTORS = 8, 6
TILE_VECTORS = 4  # of integer products, and of a tile of several rows; heuristic
MOST_PADDING = 1.1  # columns with those that fill the last panel, of the columns; heuristic
MAX_ROWS = 6  # of a tile; heuristic
DIGITS = 4  # of an f32 x in products of integers
F32_UNIT = 32  # bits of a unit whose codes are multiplied in f32
DOT_ROWS = (  # x is broadcast, codes are packed; of 4 bits and 8 bits, unsigned
    DotRow("i8", "u8", 4, 16, "avx512vnni", "C = llvm.x86.avx512.vpdpbusd.512(C, B, A*16)"),
    DotRow("i8", "u8", 4, 8, "avx512vnni,avx512vl", "C = llvm.x86.avx512.vpdpbusd.256(C, B, A*8)"),
    DotRow("i8", "u8", 4, 8, "avxvnni", "C = llvm.x86.avx512.vpdpbusd.256(C, B, A*8)"),
    DotRow("i8", "u8", 4, 4, "i8mm", "C = llvm.aarch64.neon.usdot.v4i32.v16i8(C, B, A*4)"),
    DotRow("i16", "i16", 2, 16, "avx512bw", "C += llvm.x86.avx512.pmaddw.d.512(A*16, B)"),
    DotRow("i16", "i16", 2, 8, "avx2", "C += llvm.x86.avx2.pmadd.wd(A*8, B)"),
    DotRow("i16", "i16", 2, 4, "sse2", "C += llvm.x86.sse2.pmadd.wd(A*4, B)"),
)


def code_dots(target: Target) -> Iterator[DotRow]:
    """The instructions of the target that multiply codes by a quantised x, the best first."""
    for row in DOT_ROWS if target.printer == "llvm" else ():
        if all(map(target.has, row.features.split(","))) and row.lanes <= target.lanes(dtypes.i32):
            yield row


def unit_bits(bits: int, is_integer: bool, target: Target) -> int:
    """The bits of a unit of a word: what is multiplied. An f32 x has four digits of 8 bits where
    that takes fewer instructions than to convert the codes: 5 for 64 codes of 4 bits, not 12."""
    row = next(code_dots(target), None)
    if row is None or (row.group == 2 and bits == 2):  # 2-bit codes in place exceed 16 bits
        return F32_UNIT
    if not is_integer and (row.group == 2 or bits == 8):
        return F32_UNIT
    return WORD // row.group


def digits_of_x(unit: int, is_integer: bool) -> int:
    """The digits of an x, each multiplied by the codes."""
    return DIGITS if unit == 8 and not is_integer else 1


def panel_columns(columns: int, unit: int, digits: int, target: Target) -> int:
    """Columns of a panel of packed weights: the vectors of a tile of one row."""
    lanes = target.lanes(dtypes.f32)
    most = min(TILE_VECTORS, _room(target) // digits)
    if unit == F32_UNIT:
        most = VECTORS if target.vector_registers >= 32 else FEW_VECTORS
    needed = -(-columns // lanes)
    widths = range(min(max(1, most), needed), 0, -1)
    padded = {n: -(-needed // n) * n for n in widths}
    return next(n for n in widths if padded[n] <= MOST_PADDING * needed) * lanes


def decide_packed(
    rows: int | None, panel: int, unit: int, digits: int, target: Target
) -> ContractionPlan:
    """The plan for so many rows, each of some digits; None: it is a dynamic size."""
    lanes = min(target.lanes(dtypes.f32), panel)
    dot = None if unit == F32_UNIT else WORD // unit
    found = None if rows is None else _row_vectors(rows * digits, panel // lanes, target)
    if rows is not None and found is not None:
        tile, algorithm = Tile(rows, found, lanes), "packed_rows"
    else:
        tile, algorithm = _tile(panel // lanes, lanes, digits, target), "packed_tiles"
    return ContractionPlan(
        algorithm, 0, 1, tile=tile, packing=Packing("given", panel), blocking=Blocking("panels"),
        dot=dot, tail="pad",
    )  # fmt: skip


def _room(target: Target) -> int:
    """Accumulators of a tile that decodes its codes."""
    return max(1, target.vector_registers - OTHER_REGISTERS)


def _row_vectors(rows: int, available: int, target: Target) -> int | None:
    """Vectors of a tile of so many rows; None where two of them, or the whole panel, do not fit."""
    fits = [n for n in _divisors(available) if rows * n <= _room(target)]
    return fits[-1] if fits and fits[-1] >= min(2, available) else None


def _tile(available: int, lanes: int, digits: int, target: Target) -> Tile:
    """A tile of decoded codes: the more vectors, the fewer broadcasts."""
    most = TILE_VECTORS if target.vector_registers >= 32 and digits == 1 else TILE_VECTORS // 2
    vectors = [n for n in _divisors(available) if n <= most][-1]
    rows = (target.vector_registers - vectors - 2) // (vectors * digits)
    return Tile(max(1, min(MAX_ROWS, rows)), vectors, lanes)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
