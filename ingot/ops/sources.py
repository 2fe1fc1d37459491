"""Sources: constants, sizes as tensors, fill and range; and the operators whose output shape
depends on data (nonzero, bind).

In: nothing, scalars, or (nonzero, bind) a tensor. Out: rows of `graph.opdef.TABLE`. Called by
ops/__init__.py; imported from ONNX by frontends/onnx/sources.py.

`range`, `nonzero` and `bind` bind dynamic dimensions: attribute `symbols` names them, `bind()`
computes their values and `compute` may use them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type, tensor
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import AxisKind, Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.reduce import guard_empty
from ingot.support.errors import IngotError


@register
class Constant(OpDef):
    """A tensor of the constant store. It has no loops: consumers read the store's buffer."""

    name = "constant"
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        ref = attrs.get("value")
        if not isinstance(ref, ConstRef):
            raise type_error(self.name, f"value={ref!r} is not a reference into the constant store")
        return [tensor(dtypes.of(ref.dtype), *ref.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        raise IngotError("bad-graph", "a constant is read from the constant store")


@register
class IndexTensor(OpDef):
    """Sizes as an i64 tensor: `values` in row-major order under `shape`."""

    name = "index_tensor"
    kind = Kind.INJECTIVE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        count = int(np.prod(attrs["shape"], dtype=np.int64))
        if inputs or count != len(attrs["values"]):
            found = f"{len(inputs)} operands and {len(attrs['values'])} values"
            raise type_error(self.name, f"{found} for shape {attrs['shape']}")
        return [tensor(dtypes.i64, *attrs["shape"])]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        values = common.numbers(self.name, attrs["values"])
        return [np.array(values, np.int64).reshape(attrs["shape"])]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        values = [ir.Index(arith.wrap(v)) for v in attrs["values"]]

        def formula(*point):
            if not values:
                return ir.Lit(0, dtypes.i64)  # an empty tensor has no elements
            position: arith.Expr = arith.Const(0)
            for i, extent in zip(point, attrs["shape"]):
                position = position * extent + i
            return choose(position, values, 0)

        return [b.compute("index_tensor", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        rows = [
            ((2, 3, -1), (3,)),
            ((5,), ()),
            ((), (0,)),
            ((1, 2, 3, 4, 5, 6), (2, 3)),
            ((7,), (1,)),
        ]
        return [Sample((), {"values": values, "shape": shape}) for values, shape in rows]


def choose(position: arith.Expr, values: Sequence[Expr], start: int) -> Expr:
    """values[position - start], by binary search."""
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    is_left = ir.Compare("lt", ir.Index(position), ir.Lit(start + middle, dtypes.i64))
    left = choose(position, values[:middle], start)
    return ir.Select(is_left, left, choose(position, values[middle:], start + middle))


@register
class Fill(OpDef):
    """A tensor of `shape` filled with a scalar: the operand, or the number `value` of type `to`."""

    name = "fill"
    takes_strings = True
    kind = Kind.INJECTIVE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        if not inputs:
            return [TensorType(attrs["to"], common.dims(attrs["shape"]))]
        (value,) = common.tensor_types(self.name, inputs, 1)
        if value.rank:
            raise type_error(self.name, f"the value is {value}, not a scalar")
        return [TensorType(value.dtype, common.dims(attrs["shape"]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        value = np.asarray(inputs[0]) if inputs else attrs["to"].numpy.type(attrs["value"])
        return [np.full(common.numbers(self.name, attrs["shape"]), value, value.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        if not inputs:
            number = ir.value_of(attrs["value"], attrs["to"].stored)
            return [b.compute("fill", outputs[0].shape, lambda *point: number)]
        (value,) = inputs
        assert value is not None
        return [b.compute("fill", outputs[0].shape, lambda *point: value[()])]

    def samples(self) -> list[Sample]:
        shapes: list[tuple[int, ...]] = [(2, 3), (), (0, 4), (1,)]
        found = [Sample((common.scalar(2.5),), {"shape": shape}) for shape in shapes]
        kinds = (dtypes.f16, dtypes.bf16, dtypes.i64, dtypes.u8, dtypes.bool_)
        found += [Sample((), {"shape": (2, 3), "to": d, "value": 0}) for d in (dtypes.f32, *kinds)]
        return found + [Sample((common.scalar(1, d),), {"shape": (3,)}) for d in kinds]


ZERO_STEP = "range: the step is zero"


@register
class Range(OpDef):
    """start, start + delta, … up to but excluding limit. Binds its length to a symbol, unless
    attribute `size` gives it."""

    name = "range"
    kind = Kind.INJECTIVE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        types = common.tensor_types(self.name, inputs, 3)
        dtype = common.require_same_dtype(self.name, *types)
        if dtype.is_bool or any(t.rank for t in types):
            raise type_error(self.name, "start, limit and delta must be numeric scalars")
        if attrs.get("size") is not None:  # the length is known when compiling: no symbol is bound
            return [TensorType(dtype, common.dims((attrs["size"],)))]
        return [tensor(dtype, *symbol_dims(self.name, attrs, 1))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        start, limit, delta = (common.widen_array(np.asarray(x)) for x in inputs)
        if delta == 0:
            raise common.run_failed(ZERO_STEP)
        if np.issubdtype(start.dtype, np.integer):
            first, last, step = int(start), int(limit), int(delta)
            return [np.array(list(range(first, last, step)), start.dtype)]
        count = max(0, int(np.ceil(np.float64(limit - start) / np.float64(delta))))
        values = start + np.arange(count).astype(start.dtype) * delta
        return [values.astype(np.asarray(inputs[0]).dtype)]

    def bind(self, b: Build, inputs: Sequence[Buffer | None], attrs: Attrs) -> Buffer:
        start, limit, delta = (common.widen(x[()]) for x in inputs if x is not None)
        zero = ir.value_of(0, delta.dtype)
        b.check((), lambda: ir.Compare("eq", delta, zero), ZERO_STEP)
        count = count_of if start.dtype.is_int else float_count
        zero = ir.Lit(0, dtypes.i64)
        return b.compute(
            "count", (1,), lambda _: ir.Binary("max", count(start, limit, delta), zero)
        )

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        start, _, delta = (common.widen(x[()]) for x in inputs if x is not None)

        def formula(i):
            value = start + ir.Cast(ir.Index(i), start.dtype) * delta
            return common.narrow(value, outputs[0].dtype)

        return [b.compute("range", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        rows = [(0, 5, 1), (3, 10, 4), (10, 1, -3), (5, 5, 1), (2, -3, 1), (-7, 8, 5), (4, 4, -1)]
        found = []
        for dtype in (dtypes.i64, dtypes.i32, dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16):
            for row in rows:
                found.append(_range_sample(dtype, *row))
        zero_step = tuple(common.scalar(v, dtypes.i64) for v in (0, 5, 0))
        return [
            *found, _range_sample(dtypes.f32, 0.5, 2.25, 0.25),
            _range_sample(dtypes.f64, 1, 0, -0.3),
            Sample(zero_step, {"symbols": ("n0",)}, fails=ZERO_STEP),
            Sample(_range_sample(dtypes.i64, 3, 10, 4).inputs, {"size": 2}),
        ]  # fmt: skip


def _range_sample(dtype: dtypes.DType, start: float, limit: float, delta: float) -> Sample:
    values = tuple(common.scalar(v, dtype) for v in (start, limit, delta))
    return Sample(values, {"symbols": ("n0",)})


def symbol_dims(op: str, attrs: Attrs, count: int) -> list[arith.Expr]:
    """The dynamic dimensions that this node binds."""
    names = attrs.get("symbols", ())
    if len(names) != count:
        raise type_error(op, f"binds {count} symbols, attribute symbols has {tuple(names)}")
    return [arith.Var(name) for name in names]


def count_of(start: Expr, limit: Expr, delta: Expr) -> Expr:
    """ceil((limit - start) / delta) in integers, as -floor((start - limit) / delta)."""
    start, limit, delta = (ir.Cast(x, dtypes.i64) for x in (start, limit, delta))
    zero, minus = ir.Lit(0, dtypes.i64), ir.Lit(-1, dtypes.i64)
    down = ir.Compare("lt", delta, zero)  # so that the divisor is positive
    gap = ir.Select(down, limit - start, start - limit)
    size = ir.Select(down, -delta, delta)
    return minus * ir.Binary("floordiv", gap, ir.Binary("max", size, ir.Lit(1, dtypes.i64)))


def float_count(start: Expr, limit: Expr, delta: Expr) -> Expr:
    wide = ir.Cast(limit - start, dtypes.f64) / ir.Cast(delta, dtypes.f64)
    return ir.Cast(ir.Unary("ceil", wide), dtypes.i64)


BRANCH_FREE_AXES = 2  # up to so many stores for each element cost less than mispredicted branches


@register
class NonZero(OpDef):
    """The indices of the nonzero elements in row-major order, one column each: i64[rank, n]."""

    name = "nonzero"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        return [tensor(dtypes.i64, x.rank, *symbol_dims(self.name, attrs, 1))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        points = np.argwhere(common.widen_array(np.asarray(inputs[0])) != 0)
        return [points.T.astype(np.int64).copy(order="C")]

    def bind(self, b: Build, inputs: Sequence[Buffer | None], attrs: Attrs) -> Buffer:
        """The count of nonzero elements."""
        (x,) = inputs
        assert x is not None
        is_one = lambda _, *point: ir.Cast(is_nonzero(x[point]), dtypes.i64)  # noqa: E731
        count = b.reduce("count", (1,), x.shape, "add", is_one)
        return guard_empty(b, count, x.shape, ir.Lit(0, dtypes.i64))

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        """Every element is stored in the next column, which a nonzero one keeps: no branch depends
        on the data until all columns are taken. With many axes to store, the branch is cheaper."""
        (x,) = inputs
        assert x is not None
        out = b.buffer("nonzero", dtypes.i64, outputs[0].shape)
        found = b.compute("found", (1,), lambda _: ir.Lit(0, dtypes.i64))
        is_free = ir.Compare("lt", found[0], ir.Index(outputs[0].shape[1]))

        def body(*point: arith.Expr) -> Stmt:
            column = ir.index_of(found[0])
            stores = [
                ir.Store(out, (arith.Const(k), column), ir.Index(i)) for k, i in enumerate(point)
            ]
            flag = is_nonzero(x[point])
            if x.rank > BRANCH_FREE_AXES:
                count = ir.Store(found, (arith.Const(0),), found[0] + 1)
                return ir.If(flag, ir.seq(*stores, count))
            more = found[0] + ir.Cast(flag, dtypes.i64)
            return ir.If(is_free, ir.seq(*stores, ir.Store(found, (arith.Const(0),), more)))

        common.stage(b, "nonzero", x.shape, body, AxisKind.ORDERED)
        return [out]

    def samples(self) -> list[Sample]:
        kinds = (
            dtypes.f32,
            dtypes.f16,
            dtypes.bf16,
            dtypes.i64,
            dtypes.i8,
            dtypes.u8,
            dtypes.bool_,
        )
        rows = [np.array([[0, 1, 0], [2, 0, 3]]).astype(d.numpy) for d in kinds]
        rows += [common.edge_floats(), np.zeros((2, 2), np.float32), np.zeros((0, 3), np.int64)]
        rows += [common.scalar(3), common.scalar(0), common.bools(2, 3, 2)]
        return [Sample((x,), {"symbols": ("n0",)}) for x in rows]


def is_nonzero(x: Expr) -> Expr:
    """x != 0: true for NaN, false for +0 and -0."""
    if x.dtype.is_bool:
        return x
    wide = common.widen(x)
    return ir.Compare("ne", wide, ir.value_of(0, wide.dtype))


@register
class Bind(OpDef):
    """x; its elements become the values of the symbols (dynamic dimensions)."""

    name = "bind"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        count = len(attrs.get("symbols", ()))
        if x.dtype is not dtypes.i64 or x.static_shape != (count,):
            raise type_error(self.name, f"{x} does not hold {count} sizes")
        return [x]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return [np.array(inputs[0])]

    def bind(self, b: Build, inputs: Sequence[Buffer | None], attrs: Attrs) -> Buffer:
        (x,) = inputs
        assert x is not None
        return b.compute("sizes", x.shape, lambda i: x[i])

    def bound_values(
        self, outputs: Sequence[np.ndarray], types: Sequence[Type], attrs: Attrs
    ) -> list[int]:
        return [int(value) for value in outputs[0]]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        return [b.compute("bind", x.shape, lambda i: x[i])]

    def samples(self) -> list[Sample]:
        two = Sample((np.array([3, 5]),), {"symbols": ("n0", "n1")})
        return [two, Sample((np.array([0]),), {"symbols": ("n0",)})]
