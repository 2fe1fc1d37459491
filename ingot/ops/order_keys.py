"""Elements as integers of the same order, and pairs of such a key and an index as sortable entries.

In: an element. Out: i64 expressions. Called by ops/topk.py and ops/sorting.py. -0 equals
+0, and NaN is the greatest value and equals itself, as numpy sorts.

An entry is (key, place), where the smaller index has the larger place, so that no two are equal. It
is one integer, key · 2³² + place, where the element has at most 32 bits, else two.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.loops.ir import Expr
from ingot.ops.common import widen
from ingot.ops.statements import number

INDEX_BITS = 32
LAST = (1 << INDEX_BITS) - 1


def is_packed(dtype: DType) -> bool:
    """Whether an entry of such elements is one integer."""
    return dtype.bits <= INDEX_BITS


def order_key(x: Expr) -> Expr:
    """An i64 of the same order; in -2³¹ … 2³¹-1 if the element has at most 32 bits."""
    x = widen(x)
    if x.dtype.is_float:
        return _float_key(x)
    if x.dtype is dtypes.u64:
        return ir.Bitcast(ir.Binary("xor", x, ir.Lit(1 << 63, dtypes.u64)), dtypes.i64)
    wide = ir.Cast(x, dtypes.i64)
    return wide - number(1 << 31) if x.dtype is dtypes.u32 else wide


def _float_key(x: Expr) -> Expr:
    """The bits of a float as an integer; those of a negative one are inverted but for the sign."""
    ints = dtypes.i32 if x.dtype is dtypes.f32 else dtypes.i64
    highest = ir.Lit(int(ints.highest), ints)
    bits = ir.Bitcast(x, ints)
    sign = ir.Binary("shr", bits, ir.Lit(ints.bits - 1, ints))
    key: Expr = ir.Binary("xor", bits, ir.Binary("and", sign, highest))
    is_zero = ir.Compare("eq", x, ir.value_of(0, x.dtype))
    key = ir.Select(is_zero, ir.Lit(0, ints), key)
    return ir.Cast(ir.Select(ir.Unary("isnan", x), highest, key), dtypes.i64)


def entry_of(x: Expr, index: Expr, largest: bool) -> list[Expr]:
    """The entry of an element: of two, the one that is sorted first is the greater."""
    key = order_key(x)
    key = key if largest else ir.Unary("not", key)
    if not is_packed(x.dtype):
        return [key, ir.Unary("not", index)]
    place = number(LAST) - index
    return [ir.Binary("add", ir.Binary("shl", key, number(INDEX_BITS)), place)]


def index_in(entry: Sequence[Expr]) -> Expr:
    if len(entry) == 2:
        return ir.Unary("not", entry[1])
    return number(LAST) - ir.Binary("and", entry[0], number(LAST))


def is_less(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """Whether entry a is sorted after entry b."""
    less: Expr = ir.Compare("lt", a[-1], b[-1])
    if len(a) == 2:
        less = ir.Compare("lt", a[0], b[0]) | (ir.Compare("eq", a[0], b[0]) & less)
    return less
