"""Bounds checks and clamping of index tensors, for gather.py and scatter.py.

In: index values and the extents of the indexed axes. Out: clamped index expressions for formulas,
check stages that fail on an index out of range, and the same for numpy references.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import type_error
from ingot.graph.types import Dim, TensorType
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common

OUT_OF_RANGE = "index out of range"


def as_i64(e: Expr) -> Expr:
    return e if e.dtype is dtypes.i64 else ir.Cast(e, dtypes.i64)


def safe_index(index: Expr, extent: Dim) -> arith.Expr:
    """The index, negative ones wrapped, clamped to 0 … extent-1."""
    index, size = as_i64(index), ir.Index(extent)
    zero = ir.Lit(0, dtypes.i64)
    front = ir.Select(ir.Compare("lt", index, zero), index + size, index)
    last = ir.Index(extent - 1)
    return ir.index_of(ir.Binary("max", ir.Binary("min", front, last), zero))


def is_nonempty(extents: Sequence[Dim]) -> Expr | None:
    """The mask of an access with clamped indices: all extents > 0. None if that is static."""
    mask: Expr | None = None
    for extent in extents:
        size = arith.as_int(extent)
        if size is None or size == 0:
            here = ir.Compare("gt", ir.Index(extent), ir.Lit(0, dtypes.i64))
            mask = here if mask is None else mask & here
    return mask


def load_indexed(x: Buffer, indices: Sequence[arith.Expr], indexed_axes: Sequence[int]) -> Expr:
    """x[indices], where the axes `indexed_axes` have clamped indices and may be of size 0."""
    mask = is_nonempty([x.shape[axis] for axis in indexed_axes])
    other = None if mask is None else ir.value_of(0, x.dtype)
    return ir.Load(x, tuple(indices), mask=mask, other=other)


def check_indices(b: Build, op: str, indices: Buffer, extent_of: Sequence[Dim]) -> None:
    """Fail if an index is out of range. `extent_of` has an extent for each entry of the last axis
    (gather_nd), or one extent for all."""

    def size_at(point: Sequence[arith.Expr]) -> Expr:
        size: Expr = ir.Index(extent_of[-1])
        for entry in range(len(extent_of) - 2, -1, -1):
            here = ir.Compare("eq", ir.Index(point[-1]), ir.Lit(entry, dtypes.i64))
            size = ir.Select(here, ir.Index(extent_of[entry]), size)
        return size

    def bad(*point: arith.Expr) -> Expr:
        index, size = as_i64(indices[point]), size_at(point)
        return ir.Compare("lt", index, ir.Unary("neg", size)) | ir.Compare("ge", index, size)

    if extent_of:
        values = lambda *point: (as_i64(indices[point]), size_at(point))  # noqa: E731
        reason = f"{op}: {OUT_OF_RANGE}: {{0}} where there are {{1}}"
        b.check(indices.shape, bad, reason, values)


def wrapped(op: str, indices: np.ndarray, extent: int) -> np.ndarray:
    """Indices, negative ones wrapped, for the references; fails as the check stage does."""
    indices = indices.astype(np.int64)
    if ((indices < -extent) | (indices >= extent)).any():
        raise common.run_failed(f"{op}: {OUT_OF_RANGE}")
    return np.where(indices < 0, indices + extent, indices)


def require_index(op: str, type: TensorType) -> None:
    common.require_dtype(op, type, dtypes.i32, dtypes.i64)


# --- index tensors of the data's rank (gather_elements, scatter_elements) ------------------------


def unproven_axes(x: Buffer, indices: Buffer, axis: int) -> list[int]:
    """Axes other than `axis` on which the index tensor may be larger than x."""

    def may_exceed(k: int) -> bool:
        size, have = arith.as_int(indices.shape[k]), arith.as_int(x.shape[k])
        if size is not None and have is not None:
            return False  # infer has compared them
        return not common.same_dim(indices.shape[k], x.shape[k])

    return [k for k in range(x.rank) if k != axis and may_exceed(k)]


def inside_point(x: Buffer, indices: Buffer, point: Sequence[arith.Expr]) -> list[arith.Expr]:
    """`point`, clamped on axes where it is not provably inside x."""
    source = list(point)
    for k in unproven_axes(x, indices, -1):
        source[k] = arith.maximum(arith.minimum(point[k], x.shape[k] - 1), 0)
    return source


def check_inside(b: Build, op: str, x: Buffer, indices: Buffer, axis: int) -> None:
    """Fail at run time if the index tensor is larger than x on an unproven axis."""
    for k in unproven_axes(x, indices, axis):
        size, have = ir.Index(indices.shape[k]), ir.Index(x.shape[k])
        too_large = ir.Compare("gt", size, have)
        reason = f"{op}: axis {k} of the indices is larger than the data"
        b.check((), lambda bad=too_large: bad, reason, lambda s=size, h=have: (s, h))


def _known(type: TensorType) -> list[int | None]:
    return [arith.as_int(d) for d in type.shape]


def require_inside(op: str, x: TensorType, indices: TensorType, axis: int) -> None:
    axis = common.normalize_axis(op, axis, x.rank)
    if x.rank != indices.rank:
        raise type_error(op, f"data {x} and indices {indices} differ in rank")
    for k, (have, size) in enumerate(zip(_known(x), _known(indices))):
        if k != axis and have is not None and size is not None and size > have:
            raise type_error(op, f"indices {indices} are larger than data {x} on axis {k}")


# --- index tensors whose last axis is a point (gather_nd, scatter_nd) ----------------------------


def point_size(indices: Buffer) -> int:
    depth = arith.as_int(indices.shape[-1])
    assert depth is not None, "infer requires a static last axis"
    return depth


def index_depth(op: str, x: TensorType, indices: TensorType, batch: int) -> int:
    """How many axes of x an index addresses: the last size of the index tensor, static."""
    depth = arith.as_int(indices.shape[-1]) if indices.rank else None
    if depth is None:
        raise type_error(op, f"the last axis of the indices {indices} must be static")
    if indices.rank <= batch or batch + depth > x.rank:
        raise type_error(op, f"{depth} indices after {batch} batch axes do not fit {x}")
    for a, b in zip(x.shape[:batch], indices.shape[:batch]):
        common.require_same_dim(op, a, b, "batch sizes of data and indices")
    return depth
