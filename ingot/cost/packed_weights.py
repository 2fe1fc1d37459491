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

# Registers of a tile besides its accumulators: words, masks, a code and a broadcast; heuristic
OTHER_REGISTERS = 8
WORD = 32  # bits of a word of packed codes
MOST_VECTORS = 8  # of a panel: with a chain of FMAs each, 8 keep two ports busy; Tile.cycles_per_k
TILE_VECTORS = 4  # of a tile of several rows; heuristic
MAX_ROWS = 6  # of a tile; heuristic


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


def panel_columns(columns: int, unit: int, target: Target) -> int:
    """Columns of a panel of packed weights: as many vectors as one row's tile has accumulators."""
    lanes = target.lanes(dtypes.f32)
    most = MOST_VECTORS if unit == F32_UNIT and target.vector_registers >= 32 else TILE_VECTORS
    vectors = 1
    while vectors < most and vectors * lanes < columns:
        vectors *= 2
    return vectors * lanes


def decide_packed(
    rows: int | None, panel: int, unit: int, digits: int, target: Target
) -> ContractionPlan:
    """The plan for so many rows, each of some digits; None: it is a dynamic size."""
    lanes = min(target.lanes(dtypes.f32), panel)
    dot = None if unit == F32_UNIT else WORD // unit
    tile_vectors = max(1, min(TILE_VECTORS // (2 if digits > 1 else 1), panel // lanes))
    most = _most_rows(tile_vectors, digits, target)
    if rows is not None and rows <= most:
        vectors = _vectors(panel // lanes, rows * digits, target)
        tile, algorithm = Tile(rows, vectors, lanes), "packed_rows"
    else:
        tile, algorithm = Tile(most, tile_vectors, lanes), "packed_tiles"
    return ContractionPlan(
        algorithm, 0, 1, tile=tile, packing=Packing("given", panel), blocking=Blocking("panels"),
        dot=dot, tail="pad",
    )  # fmt: skip


def _vectors(available: int, rows: int, target: Target) -> int:
    """Vectors of a tile of so many rows, whose accumulators are in registers."""
    room = target.vector_registers - OTHER_REGISTERS
    while available > 1 and rows * available > room:
        available //= 2
    return available


def _most_rows(vectors: int, digits: int, target: Target) -> int:
    room = target.vector_registers - OTHER_REGISTERS
    return max(1, min(MAX_ROWS, room // (vectors * digits)))
