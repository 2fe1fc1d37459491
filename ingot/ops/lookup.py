"""Look-ups of elements in tables of constants. Encoders of labels and categories, and counts of
n-grams, are made of them (frontends/onnx/encoders.py); native on strings too, whose numbers are
looked up.

lookup(x, keys, values)          values[i] where x is keys[i], which ascend; binary search
dense_lookup(x, values){low}     values[x - low]; one load
    The last of the values is the default, for what is no key.
byte_lookup(x, values)           values[x], a signed x as its bits: any function of one byte
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.common import floats, integers
from ingot.ops.indexing import as_i64

BYTES = 256  # different values of a byte


@register
class Lookup(OpDef):
    """values[i] where x is keys[i], else the last of the values. The keys are distinct and ascend,
    a NaN comes last and is found by any NaN; their number is static."""

    name = "lookup"
    kind = Kind.OPAQUE
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, keys, values = common.tensor_types(self.name, inputs, 3)
        dtype = common.require_same_dtype(self.name, x, keys)
        if dtype.is_bool or keys.rank != 1 or arith.as_int(keys.shape[0]) is None:
            raise type_error(self.name, f"the keys are {keys}, not a vector of static size")
        if values.rank != 1 or not common.same_dim(values.shape[0], keys.shape[0] + 1):
            raise type_error(self.name, f"the values are {values}: one for each key, and a default")
        return [TensorType(values.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, keys = (common.widen_array(np.asarray(v)) for v in inputs[:2])
        values = np.asarray(inputs[2])
        if not keys.size:
            return [np.full(x.shape, values[0], values.dtype)]
        at = np.minimum(np.searchsorted(keys, x), keys.size - 1)
        found = keys[at]
        is_same = (found == x) | ((found != found) & (x != x))
        return [values[np.where(is_same, at, keys.size)]]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, keys, values = inputs
        assert x is not None and keys is not None and values is not None
        count = arith.as_int(keys.shape[0])
        if not count:
            return [b.compute("lookup", x.shape, lambda *point: values[0])]
        out = b.buffer("lookup", values.dtype, x.shape)

        def body(*point: arith.Expr) -> Stmt:
            def store(at: Expr) -> Stmt:
                return ir.Store(out, point, values[(ir.index_of(at),)])

            name = b.fresh("x")
            value = ir.Ref(name, common.widen(x[point]).dtype)
            return ir.Let(name, common.widen(x[point]), _search(b, value, keys, count, store))

        common.stage(b, "lookup", x.shape, body)
        return [out]

    def samples(self) -> list[Sample]:
        some, values = np.array([-3, 0, 5, 6, 40]), np.arange(6, dtype=np.float32)
        numbers = [integers(4, 7, low=-4, high=8), integers(3, low=-9, high=50)]
        found = [Sample((x, some[:n], values[: n + 1])) for n in (0, 1, 2, 5) for x in numbers]
        odd = np.array([np.nan, 1, -np.inf, 2, np.inf, -0.0], np.float32)
        keys = np.array([-np.inf, 0, 1, np.nan], np.float32)
        return [
            *found,
            Sample((odd, keys, np.arange(5))),
            Sample((odd, keys[:3], np.arange(4, dtype=np.uint8))),
            Sample((floats(2, 3, dtype=dtypes.f64), np.array([0.5]), np.array([True, False]))),
            Sample((integers(3, 0, dtype=dtypes.i32), some.astype(np.int32), values)),
        ]


@register
class DenseLookup(OpDef):
    """values[x - low] where that is in range, else the last of the values."""

    name = "dense_lookup"
    kind = Kind.INJECTIVE
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, values = common.tensor_types(self.name, inputs, 2)
        common.require_dtype(self.name, x, dtypes.i64, dtypes.i32, dtypes.i16, dtypes.str_)
        if values.rank != 1 or not arith.as_int(values.shape[0]):
            raise type_error(self.name, f"the values are {values}, not a vector of static size")
        return [TensorType(values.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, values = (np.asarray(v) for v in inputs)
        last = len(values) - 1
        with np.errstate(all="ignore"):
            at = x.astype(np.int64) - attrs["low"]
        return [values[np.where((at >= 0) & (at < last), at, last)]]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, values = inputs
        assert x is not None and values is not None
        zero, low = ir.Lit(0, dtypes.i64), ir.Lit(attrs["low"], dtypes.i64)
        last = ir.Index(values.shape[0] - 1)

        def formula(*point: arith.Expr) -> Expr:
            at = as_i64(x[point]) - low
            is_below = ir.Compare("lt", at, zero)
            place = ir.Binary("min", ir.Select(is_below, last, at), last)
            return values[(ir.index_of(ir.Binary("max", place, zero)),)]

        return [b.compute("dense_lookup", x.shape, formula)]

    def samples(self) -> list[Sample]:
        ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 3, 4])
        values = np.arange(5, dtype=np.float32)
        return [
            Sample((integers(4, 7, low=-4, high=8), values), {"low": -2}),
            Sample((ends, values), {"low": 3}),
            Sample((ends, np.array([7])), {"low": -1}),
            Sample((integers(0, 2, dtype=dtypes.i32), values.astype(np.int8)), {"low": 0}),
        ]


@register
class ByteLookup(OpDef):
    """values[x] of 8-bit x, a signed one taken as its bits: 256 bytes, the table of a function. It
    fuses with nothing: alone, its loop is the look-up instruction of the target."""

    name = "byte_lookup"
    kind = Kind.OPAQUE
    keeps_axes = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, values = common.tensor_types(self.name, inputs, 2)
        common.require_dtype(self.name, x, dtypes.u8, dtypes.i8)
        common.require_dtype(self.name, values, dtypes.u8, dtypes.i8)
        if values.static_shape != (BYTES,):
            raise type_error(self.name, f"the values are {values}: one for each byte")
        return [TensorType(values.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, values = (np.asarray(v) for v in inputs)
        return [values[x.view(np.uint8)]]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if set(batched) == {0} else None

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, values = inputs
        assert x is not None and values is not None

        def formula(*point: arith.Expr) -> Expr:
            code = x[point] if x.dtype is dtypes.u8 else ir.Bitcast(x[point], dtypes.u8)
            return values[(ir.index_of(ir.Cast(code, dtypes.i64)),)]

        return [b.compute("byte_lookup", x.shape, formula)]

    def samples(self) -> list[Sample]:
        values = np.random.default_rng(0).permutation(BYTES).astype(np.uint8)
        every = np.arange(BYTES, dtype=np.uint8)
        return [
            Sample((every.reshape(4, 64), values)),
            Sample((np.tile(every, 3).view(np.int8)[:700].reshape(7, 100), values.view(np.int8))),
            Sample((integers(3, 5, dtype=dtypes.u8, high=255), values.view(np.int8))),
            Sample((integers(2, 0, dtype=dtypes.i8), values)),
        ]


def _search(b: Build, x: Expr, keys: Buffer, count: int, store: Callable[[Expr], Stmt]) -> Stmt:
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
    body: Stmt = store(ir.Select(is_same, place, ir.Lit(count, dtypes.i64)))
    for name, value in reversed(lets):
        body = ir.Let(name, value, body)
    return body
