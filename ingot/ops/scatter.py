"""Scatter: a copy of the data, then updates stored in order at the indices of an index tensor.

In: data, indices, updates. Out: rows of `graph.opdef.TABLE`, OPAQUE (two stages on one buffer).
Part of the gather family. Called by ops/__init__.py.

Of duplicate indices the later update in row-major order wins (or they combine, by `reduction`), so
the axes on which duplicates occur are ordered. Indices are checked and clamped as in gather.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import AxisKind, Buffer, Stmt
from ingot.ops import common
from ingot.ops.indexing import (
    OUT_OF_RANGE,
    check_indices,
    check_inside,
    index_depth,
    inside_point,
    is_nonempty,
    point_size,
    require_index,
    require_inside,
    safe_index,
    unproven_axes,
    wrapped,
)

REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


class Scatter(OpDef):
    """Type checks and the combination of an update with the stored element."""

    kind = Kind.OPAQUE
    python_reference = True

    def require(self, x: TensorType, updates: TensorType, attrs: Attrs) -> None:
        common.require_same_dtype(self.name, x, updates)
        reduction = attrs.get("reduction", "none")
        if reduction not in ("none", *REDUCTIONS):
            raise type_error(self.name, f"reduction {reduction!r} is not one of {[*REDUCTIONS]}")
        if reduction != "none" and not (x.dtype.is_float or x.dtype.is_int):
            raise type_error(self.name, f"reduction {reduction!r} needs numbers, not {x.dtype}")

    def combined(self, stored: np.ndarray, update: np.ndarray, attrs: Attrs) -> np.ndarray:
        reduction = attrs.get("reduction", "none")
        if reduction == "none":
            return update
        wide = REDUCTIONS[reduction](common.widen_array(stored), common.widen_array(update))
        return np.asarray(wide).astype(stored.dtype)

    def write(
        self, out: Buffer, target: Sequence[arith.Expr], update: ir.Expr,
        indexed_axes: Sequence[int], attrs: Attrs,
    ) -> Stmt:  # fmt: skip
        reduction = attrs.get("reduction", "none")
        if reduction != "none":
            stored = common.widen(out[tuple(target)])
            wide = ir.Binary(reduction, stored, common.widen(update))
            update = common.narrow(wide, out.dtype)
        store = ir.Store(out, tuple(target), update)
        guard = is_nonempty([out.shape[axis] for axis in indexed_axes])
        return store if guard is None else ir.If(guard, store)


@register
class ScatterND(Scatter):
    """x with x[idx[i…]] = updates[i…] for every point idx[i…] (a slice if the point is short)."""

    name = "scatter_nd"
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, indices, updates = common.tensor_types(self.name, inputs, 3)
        require_index(self.name, indices)
        self.require(x, updates, attrs)
        depth = index_depth(self.name, x, indices, 0)
        wanted = (*indices.shape[:-1], *x.shape[depth:])
        why = f"updates are {updates}, indices and data require {wanted}"
        if len(wanted) != updates.rank:
            raise type_error(self.name, why)
        for a, b in zip(wanted, updates.shape):
            common.require_same_dim(self.name, a, b, why)
        return [x]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, indices, updates = (np.asarray(v) for v in inputs)
        out = x.copy()
        for point in np.ndindex(*indices.shape[:-1]):
            pairs = zip(indices[point], x.shape)
            target = tuple(int(wrapped(self.name, index, extent)) for index, extent in pairs)
            out[target] = self.combined(out[target], updates[point], attrs)
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, indices, updates = inputs
        assert x is not None and indices is not None and updates is not None
        depth, outer = point_size(indices), indices.rank - 1
        check_indices(b, self.name, indices, x.shape[:depth])
        out = b.compute("scatter_nd", x.shape, lambda *point: x[point])

        def body(*point: arith.Expr) -> Stmt:
            at, window = point[:outer], point[outer:]
            found = [safe_index(indices[(*at, j)], x.shape[j]) for j in range(depth)]
            return self.write(out, (*found, *window), updates[point], range(depth), attrs)

        ordered = [AxisKind.ORDERED] * outer
        kinds = [*ordered, *[AxisKind.SPATIAL] * (updates.rank - outer)]
        common.stage(b, "update", updates.shape, body, kinds)
        return [out]

    def samples(self) -> list[Sample]:
        x, indices = common.floats(4, 3), np.array([[1], [-1], [1]])
        rows, one = common.floats(3, 3, key="u"), np.array([[0, 2], [3, -3], [0, -1]])
        found = [Sample((x, indices, rows), {"reduction": r}) for r in ("none", *REDUCTIONS)]
        found += [
            Sample((x, one, common.floats(3, key="u")), {"reduction": "none"}),
            Sample((x, np.array([2], np.int32), common.floats(3)), {}),
            Sample((x, np.zeros((0, 2), np.int64), common.floats(0)), {}),
            Sample((common.floats(3), np.zeros((2, 0), np.int64), common.floats(2, 3)), {}),
            Sample((x, np.array([[4]]), common.floats(1, 3)), {}, fails=OUT_OF_RANGE),
            Sample((common.floats(0), np.array([[0]]), common.floats(1)), {}, fails=OUT_OF_RANGE),
        ]
        return found + _typed(indices, rows)


def _typed(indices: np.ndarray, rows: np.ndarray) -> list[Sample]:
    """One sample for each element type; duplicate indices are summed unless bool."""
    kinds = (dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.i8, dtypes.i64, dtypes.u8, dtypes.bool_)
    found = []
    for dtype in kinds:
        x = common.data(4, 3, dtype=dtype)
        updates = common.data(*rows.shape, dtype=dtype, key="u")
        attrs = {"reduction": "none" if dtype.is_bool else "add"}
        found.append(Sample((x, indices, updates), attrs, rtol=1e-2 if dtype.bits == 16 else 1e-5))
    return found


@register
class ScatterElements(Scatter):
    """x with x[idx[i, j], j] = updates[i, j] for axis 0, and so on; updates has idx's shape."""

    name = "scatter_elements"
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, indices, updates = common.tensor_types(self.name, inputs, 3)
        require_index(self.name, indices)
        self.require(x, updates, attrs)
        require_inside(self.name, x, indices, attrs.get("axis", 0))
        why = f"updates {updates} and indices {indices} differ in shape"
        if indices.rank != updates.rank:
            raise type_error(self.name, why)
        for a, b in zip(indices.shape, updates.shape):
            common.require_same_dim(self.name, a, b, why)
        return [x]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, indices, updates = (np.asarray(v) for v in inputs)
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.ndim)
        found, out = wrapped(self.name, indices, x.shape[axis]), x.copy()
        for point in np.ndindex(*indices.shape):
            target = (*point[:axis], int(found[point]), *point[axis + 1 :])
            out[target] = self.combined(out[target], updates[point], attrs)
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, indices, updates = inputs
        assert x is not None and indices is not None and updates is not None
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.rank)
        unproven = unproven_axes(x, indices, axis)
        check_indices(b, self.name, indices, [x.shape[axis]])
        check_inside(b, self.name, x, indices, axis)
        out = b.compute("scatter_elements", x.shape, lambda *point: x[point])

        def body(*point: arith.Expr) -> Stmt:
            target = inside_point(x, indices, point)
            target[axis] = safe_index(indices[point], x.shape[axis])
            return self.write(out, target, updates[point], [axis, *unproven], attrs)

        duplicates = {axis, *unproven}  # clamped points may coincide before the check fails
        kinds = [AxisKind.ORDERED if k in duplicates else AxisKind.SPATIAL for k in range(x.rank)]
        common.stage(b, "update", indices.shape, body, kinds)
        return [out]

    def samples(self) -> list[Sample]:
        x, indices = common.floats(4, 3), np.array([[0, -1, 2], [1, 1, 2], [0, 3, -2]])
        updates = common.floats(3, 3, key="u")
        found = [
            Sample((x, indices, updates), {"axis": 0, "reduction": r})
            for r in ("none", *REDUCTIONS)
        ]
        found += [
            Sample((x, indices % 3, updates), {"axis": -1}),
            Sample((x, np.array([[2]], np.int32), common.floats(1, 1)), {"axis": 1}),
            Sample((x, np.zeros((0, 3), np.int64), common.floats(0, 3)), {"axis": 0}),
            Sample((x, np.array([[-5]]), common.floats(1, 1)), {"axis": 0}, fails=OUT_OF_RANGE),
        ]
        return found + _typed(indices, updates)
