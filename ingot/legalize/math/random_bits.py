"""Philox4x32-10, the counter-based generator (Salmon, Moraes, Dror, Shaw 2011), on u64 values.

In: a 128-bit counter as two u64, and a key. Out: the first 64 bits of its block. A pure function,
so a draw depends on nothing but its counter: not on threads, not on the vector width. The words of
32 bits are kept in 64, where a product has both of its halves; `loops/numeric.py` is its reference.
"""

from __future__ import annotations

from ingot.legalize.math.code import V
from ingot.loops.numeric import PHILOX_FACTORS, PHILOX_ROUNDS, PHILOX_WEYL

WORD = 0xFFFFFFFF


def philox(low: V, high: V, key: V) -> V:
    c0, c1, c2, c3 = low & WORD, low >> 32, high & WORD, high >> 32
    k0, k1 = (key & WORD).keep(), (key >> 32).keep()
    for _ in range(PHILOX_ROUNDS):
        p, q = (c0 * PHILOX_FACTORS[0]).keep(), (c2 * PHILOX_FACTORS[1]).keep()
        c0, c2 = ((q >> 32) ^ c1 ^ k0).keep(), ((p >> 32) ^ c3 ^ k1).keep()
        c1, c3 = q & WORD, p & WORD
        k0, k1 = ((k0 + PHILOX_WEYL[0]) & WORD).keep(), ((k1 + PHILOX_WEYL[1]) & WORD).keep()
    return c0 | (c1 << 32)
