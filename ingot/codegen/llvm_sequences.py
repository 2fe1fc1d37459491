"""Instruction sequences that a template names like an intrinsic (loops/emit.py): `ingot.…`.

In: the LLVM values of the operands. Out: the value of the result; the machine instructions are
calls and selects in the function. Used by llvm_kernel.py.

    ingot.lookup.permute   256 bytes in four registers: two VPERMI2B, and a select by the top bit
    ingot.lookup.shuffle   16 rows of 16 bytes: PSHUFB of each, then selects by the upper four bits
    ingot.lookup.table     AArch64's TBL of four registers, of which out-of-range indices give 0
    ingot.dot.columns      C += Σ A[k] · B[k], four rows of A interleaved, then VPDPBUSD
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.codegen.llvm_text import Function

PREFIX = "ingot."
ROW = 16  # bytes that a shuffle looks up in
_SHUFFLE = {
    16: "llvm.x86.ssse3.pshuf.b.128",
    32: "llvm.x86.avx2.pshuf.b",
    64: "llvm.x86.avx512.pshuf.b.512",
}


def emit(fn: Function, name: str, operands: Sequence[tuple[str, str]]) -> str:
    """The result of the sequence called `name`; operands are types and values."""
    return _SEQUENCES[name](fn, operands)


def _lanes(type: str) -> int:
    return int(type[1:].split()[0])


def _slice(fn: Function, value: tuple[str, str], picks: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {p}" for p in picks)
    type, name = value
    return fn.op(f"shufflevector {type} {name}, {type} poison, <{len(picks)} x i32> <{mask}>")


def _permute(fn: Function, operands: Sequence[tuple[str, str]]) -> str:
    table, (type, x) = operands
    quarters = [_slice(fn, table, range(at, at + 64)) for at in range(0, 256, 64)]
    halves = [
        fn.call(type, "llvm.x86.avx512.vpermi2var.qi.512", [(type, low), (type, x), (type, high)])
        for low, high in (quarters[:2], quarters[2:])
    ]
    return _by_top_bit(fn, type, x, *halves)


def _shuffle(fn: Function, operands: Sequence[tuple[str, str]]) -> str:
    table, (type, x) = operands
    lanes = _lanes(type)
    low = fn.op(f"and {type} {x}, {_splat(lanes, 15)}")
    rows = []
    for at in range(0, 256, ROW):
        row = _slice(fn, table, [at + n % ROW for n in range(lanes)])
        rows.append(fn.call(type, _SHUFFLE[lanes], [(type, row), (type, low)]))
    for bit in (4, 5, 6, 7):  # the lowest bit chooses between neighbours
        moved = fn.op(f"shl {type} {x}, {_splat(lanes, 7 - bit)}") if bit < 7 else x
        pairs = zip(rows[::2], rows[1::2])
        rows = [_by_top_bit(fn, type, moved, *pair) for pair in pairs]
    return rows[0]


def _table(fn: Function, operands: Sequence[tuple[str, str]]) -> str:
    table, (type, x) = operands
    parts = []
    for at in range(0, 256, 64):
        rows = [_slice(fn, table, range(at + n, at + n + ROW)) for n in range(0, 64, ROW)]
        index = fn.op(f"sub {type} {x}, {_splat(ROW, at - 256 if at > 127 else at)}") if at else x
        given = [*((type, row) for row in rows), (type, index)]
        parts.append(fn.call(type, "llvm.aarch64.neon.tbl4.v16i8", given))
    while len(parts) > 1:
        parts = [fn.op(f"or {type} {a}, {b}") for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def _dot_columns(fn: Function, operands: Sequence[tuple[str, str]]) -> str:
    sums, rows, taps = operands
    lanes = _lanes(sums[0])
    # words first, then the bytes within each 128-bit lane: an instruction each, or one with VBMI
    type = f"<{lanes} x i32>"
    words = type, fn.op(f"bitcast {rows[0]} {rows[1]} to {type}")
    in_lanes = _slice(fn, words, [n % 4 * (lanes // 4) + n // 4 for n in range(lanes)])
    grouped = rows[0], fn.op(f"bitcast {type} {in_lanes} to {rows[0]}")
    picks = [n // 16 * 16 + n % 4 * 4 + n % 16 // 4 for n in range(4 * lanes)]
    columns = rows[0], _slice(fn, grouped, picks)
    return fn.call(sums[0], f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", [sums, columns, taps])


def _by_top_bit(fn: Function, type: str, x: str, low: str, high: str) -> str:
    lanes = _lanes(type)
    is_high = fn.op(f"icmp slt {type} {x}, zeroinitializer")
    return fn.op(f"select <{lanes} x i1> {is_high}, {type} {high}, {type} {low}")


def _splat(lanes: int, number: int) -> str:
    return "<" + ", ".join([f"i8 {number}"] * lanes) + ">"


_SEQUENCES: dict[str, Callable[[Function, Sequence[tuple[str, str]]], str]] = {
    "ingot.lookup.permute": _permute,
    "ingot.lookup.shuffle": _shuffle,
    "ingot.lookup.table": _table,
    "ingot.dot.columns": _dot_columns,
}
