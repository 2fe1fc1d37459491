"""lookup: where each element is among sorted keys. Encoders of labels and categories, and counts of
n-grams, are made of it (frontends/onnx/encoders.py); it is native on strings too, whose numbers are
looked up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.common import floats, integers


@register
class Lookup(OpDef):
    """The position of each element of x in `keys`, or -1. The keys are distinct and ascending, a
    NaN comes last and is found by any NaN; their number is static."""

    name = "lookup"
    kind = Kind.OPAQUE
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, keys = common.tensor_types(self.name, inputs, 2)
        dtype = common.require_same_dtype(self.name, x, keys)
        if dtype.is_bool or keys.rank != 1 or arith.as_int(keys.shape[0]) is None:
            raise type_error(self.name, f"the keys are {keys}, not a vector of static size")
        return [TensorType(dtypes.i64, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, keys = (common.widen_array(np.asarray(v)) for v in inputs)
        if not keys.size:
            return [np.full(x.shape, -1, np.int64)]
        at = np.minimum(np.searchsorted(keys, x), keys.size - 1)
        found = keys[at]
        is_same = (found == x) | ((found != found) & (x != x))
        return [np.where(is_same, at, -1).astype(np.int64)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, keys = inputs
        assert x is not None and keys is not None
        count = arith.as_int(keys.shape[0])
        if not count:
            none = ir.Lit(-1, dtypes.i64)
            return [b.compute("lookup", x.shape, lambda *point: none)]
        out = b.buffer("lookup", dtypes.i64, x.shape)

        def body(*point: arith.Expr) -> Stmt:
            name = b.fresh("x")
            value = ir.Ref(name, common.widen(x[point]).dtype)
            found = _search(b, value, keys, count, lambda at: ir.Store(out, point, at))
            return ir.Let(name, common.widen(x[point]), found)

        common.stage(b, "lookup", x.shape, body)
        return [out]

    def samples(self) -> list[Sample]:
        some = np.array([-3, 0, 5, 6, 40])
        found = [Sample((integers(4, 7, low=-4, high=8), some[:n])) for n in (0, 1, 2, 5)]
        odd = np.array([np.nan, 1, -np.inf, 2, np.inf, -0.0], np.float32)
        keys = np.array([-np.inf, 0, 1, np.nan], np.float32)
        return [
            *found,
            Sample((odd, keys)),
            Sample((odd, keys[:3])),
            Sample((floats(2, 3, dtype=dtypes.f64), np.array([0.5], np.float64))),
            Sample((integers(3, 0, dtype=dtypes.i32), some.astype(np.int32))),
        ]


def _search(b: Build, x: Expr, keys: Buffer, count: int, store) -> Stmt:
    """Binary search without branches, unrolled: the steps halve, and `at` is the number of keys
    known to be no greater than x."""
    one = ir.Lit(1, dtypes.i64)
    at: Expr = ir.Lit(0, dtypes.i64)
    lets: list[tuple[str, Expr]] = []

    def let(value: Expr) -> Expr:
        lets.append((b.fresh("at"), value))
        return ir.Ref(lets[-1][0], value.dtype)

    def key(position: Expr) -> Expr:
        return common.widen(keys[(ir.index_of(position),)])

    step = 1 << (count.bit_length() - 1)
    while step:
        size, last = ir.Lit(step, dtypes.i64), ir.Lit(count - 1, dtypes.i64)
        probe = let(at + size - one)
        is_inside = ir.Compare("le", probe, last)
        is_below = ir.Compare("le", key(ir.Binary("min", probe, last)), x)
        at = let(ir.Select(is_inside & is_below, at + size, at))
        step //= 2
    zero, last = ir.Lit(0, dtypes.i64), ir.Lit(count - 1, dtypes.i64)
    place: Expr = ir.Binary("max", at - one, zero)
    if x.dtype.is_float:
        place = ir.Select(ir.Unary("isnan", x), last, place)
    place = let(place)
    found = let(key(place))
    is_same: Expr = ir.Compare("eq", found, x)
    if x.dtype.is_float:
        is_same = is_same | (ir.Unary("isnan", found) & ir.Unary("isnan", x))
    body: Stmt = store(ir.Select(is_same, place, ir.Lit(-1, dtypes.i64)))
    for name, value in reversed(lets):
        body = ir.Let(name, value, body)
    return body
