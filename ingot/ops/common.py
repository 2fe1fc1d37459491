"""Helpers of all operator families: broadcasting, axes, dtype checks, widening, sample data.

In: types, buffers and numpy arrays. Out: the same, checked or combined. Called by every ops/ file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.arith.simplify import simplify
from ingot.dtypes import DType
from ingot.graph.opdef import SizeMismatch, type_error
from ingot.graph.types import Dim, DimLike, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, nest
from ingot.loops.ir import Axis, AxisKind, Buffer, Expr, Load, Stmt
from ingot.support.errors import IngotError

# --- types --------------------------------------------------------------------------------------


def tensor_type(op: str, type: Type | None, what: str = "operand") -> TensorType:
    """The type of an operand; a type error if it is absent."""
    if type is None:
        raise type_error(op, f"{what} is absent, not a tensor")
    return type


def tensor_types(op: str, types: Sequence[Type | None], count: int) -> list[TensorType]:
    """Exactly `count` tensors, all present."""
    if len(types) != count:
        raise type_error(op, f"expects {count} operands, got {len(types)}")
    return [tensor_type(op, t, f"operand {i}") for i, t in enumerate(types)]


def require_same_dtype(op: str, *types: TensorType) -> DType:
    """The one element type of all operands."""
    names = {t.dtype.name for t in types}
    if len(names) != 1:
        raise type_error(op, f"operands differ in element type: {', '.join(sorted(names))}", "cast")
    return types[0].dtype


def require_dtype(op: str, type: TensorType, *allowed: DType) -> None:
    if type.dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise type_error(op, f"element type {type.dtype} is not one of {names}")


# --- shapes -------------------------------------------------------------------------------------


def normalize_axis(op: str, axis: int, rank: int) -> int:
    """`axis` as a non-negative number; a type error if it is out of range."""
    if not -rank <= axis < rank:
        raise type_error(op, f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def normalize_axes(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Every axis as a non-negative number, in the order given; a duplicate is a type error."""
    found = tuple(normalize_axis(op, axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise type_error(op, f"duplicate axis in {tuple(axes)}")
    return found


def same_dim(a: DimLike, b: DimLike) -> bool:
    """Whether two sizes are provably equal for every value of their symbols."""
    a, b = arith.wrap(a), arith.wrap(b)
    return a == b or arith.is_const(simplify(a - b), 0)


def dims(values: Sequence[DimLike]) -> tuple[Dim, ...]:
    """Sizes simplified to canonical form, so that equal sizes compare equal."""
    return tuple(simplify(arith.wrap(v)) for v in values)


def numbers(op: str, values: Sequence[DimLike]) -> tuple[int, ...]:
    """Sizes as integers, for a numpy reference; an error if a symbol is left."""
    found = [arith.as_int(v) for v in values]
    if None in found:
        raise IngotError("bad-graph", f"{op}: sizes {tuple(values)} are symbolic")
    return tuple(found)  # type: ignore[arg-type]


def broadcast_dims(a: Dim, b: Dim) -> Dim:
    """Numpy's rule for one dimension: equal, or one of them is 1."""
    if arith.is_const(a, 1):
        return b
    if arith.is_const(b, 1) or same_dim(a, b):
        return a
    raise SizeMismatch(a, b, is_broadcast=True)


def require_same_dim(op: str, a: Dim, b: Dim, why: str) -> None:
    """Require equal sizes; a dynamic size raises SizeMismatch, which the importer may resolve."""
    if same_dim(a, b):
        return
    if arith.as_int(a) is None or arith.as_int(b) is None:
        raise SizeMismatch(a, b, op)
    raise type_error(op, f"sizes {a} and {b} differ: {why}")


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape all `shapes` broadcast to, aligned at the last axis."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [arith.Const(1)] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            result[axis] = broadcast_dims(result[axis], arith.wrap(dim))
    return tuple(result)


def broadcast_load(buffer: Buffer, point: Sequence[arith.Expr]) -> Load:
    """The element of `buffer` at `point` of the broadcast shape."""
    tail = tuple(point)[len(point) - buffer.rank :]
    zero = arith.Const(0)
    pairs = zip(buffer.shape, tail)
    return Load(buffer, tuple(zero if arith.is_const(d, 1) else i for d, i in pairs))


# --- narrow floats ------------------------------------------------------------------------------
# f16, bf16 and float8 are storage formats: arithmetic on them is done in f32 and rounded once.


def is_narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits < 32


def wide_dtype(dtype: DType) -> DType:
    """The element type in which arithmetic on `dtype` is done."""
    return dtypes.f32 if is_narrow(dtype) else dtype


def widen(e: Expr) -> Expr:
    """`e` cast to f32 if it is a narrow float, otherwise `e`."""
    return ir.Cast(e, dtypes.f32) if is_narrow(e.dtype) else e


def narrow(e: Expr, dtype: DType) -> Expr:
    """`e` rounded back to the storage type `dtype`."""
    return e if e.dtype is dtype else ir.Cast(e, dtype)


def widen_array(x: np.ndarray) -> np.ndarray:
    """`widen`, for the numpy references."""
    return x.astype(np.float32) if is_narrow(dtypes.from_numpy(x.dtype)) else x


# --- run-time failure ---------------------------------------------------------------------------


def run_failed(reason: str) -> IngotError:
    """The error a reference raises where compiled code executes `Fail(reason)`."""
    return IngotError("run-failed", reason)


def refuse_empty(b: Build, extent: Dim, outputs: Sequence[Dim], reason: str) -> bool:
    """Fail at run time if an axis is empty and some output is not. False: it is never empty."""
    names = arith.free_vars(extent)
    if prove("ge", extent, 1, {n: b.ranges.get(n, Interval(0, None)) for n in names}):
        return False
    bad: Expr = ir.Compare("le", ir.Index(extent), ir.value_of(0, dtypes.i64))
    for size in outputs:
        if arith.as_int(size) is None:
            bad = bad & ir.Compare("gt", ir.Index(size), ir.value_of(0, dtypes.i64))
    b.check((), lambda: bad, reason)
    return True


# --- sample data --------------------------------------------------------------------------------


def rng(*key: object) -> np.random.Generator:
    """A generator seeded by `key`: deterministic across processes."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def floats(*shape: int, dtype: DType = dtypes.f32, key: object = 0) -> np.ndarray:
    """Normally distributed values of a float type."""
    return np.asarray(rng(shape, dtype.name, key).standard_normal(shape)).astype(dtype.numpy)


def integers(
    *shape: int, dtype: DType = dtypes.i64, low: int = -9, high: int = 9, key: object = 0
) -> np.ndarray:
    """Integers in low … high (low is raised to 0 for an unsigned type)."""
    start = low if dtype.is_signed else max(0, low)
    values = rng(shape, dtype.name, key).integers(start, high, shape, endpoint=True)
    return np.asarray(values).astype(dtype.numpy)


def bools(*shape: int, key: object = 0) -> np.ndarray:
    return np.asarray(rng(shape, "bool", key).integers(0, 2, shape)).astype(np.bool_)


def data(*shape: int, dtype: DType = dtypes.f32, key: object = 0) -> np.ndarray:
    """Random values of any element type."""
    if dtype.is_bool:
        return bools(*shape, key=key)
    make = floats if dtype.is_float else integers
    return make(*shape, dtype=dtype, key=key)


def scalar(value: float, dtype: DType = dtypes.f32) -> np.ndarray:
    """A tensor of rank 0."""
    return np.array(value).astype(dtype.numpy)


def edge_floats(dtype: DType = dtypes.f32) -> np.ndarray:
    """Floating-point edge cases: NaN, infinities, signed zeros, ties of rounding."""
    inf, nan = float("inf"), float("nan")
    values = [nan, inf, -inf, -0.0, 0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 88.0, -88.0]
    return np.array(values, dtype=np.float64).astype(dtype.numpy)


# --- stages built by hand -----------------------------------------------------------------------


def stage(
    b: Build,
    name: str,
    extents: Sequence[ir.IndexLike],
    body: Callable[..., Stmt],
    kinds: AxisKind | Sequence[AxisKind] = AxisKind.SPATIAL,
) -> None:
    """Append a serial loop nest over `extents` around one block with statement `body(i, …)`."""
    each = [kinds] * len(extents) if isinstance(kinds, AxisKind) else list(kinds)
    names = [b.fresh("vs") for _ in extents]
    pairs = zip(names, each, extents)
    axes = [Axis(n, kind, ir.index_of(e), arith.Var(n)) for n, kind, e in pairs]
    inner = body(*(arith.Var(n) for n in names))
    b.emit(nest(axes, lambda bound: ir.Block(b.fresh(name), bound, inner), b.fresh))
