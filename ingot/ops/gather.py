"""Indexed reads: gather in its three forms, reverse_sequence, one_hot. Scatter is in scatter.py.

In: a tensor and an integer tensor of indices. Out: rows of `graph.opdef.TABLE`, INJECTIVE. Called
by ops/__init__.py; imported from ONNX by frontends/onnx/gather.py.

A negative index counts from the end. An index out of range is a run-time error: a check stage
reports it, and the formula clamps the index too, because the check may run concurrently.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.ops import common
from ingot.ops.indexing import (
    OUT_OF_RANGE,
    as_i64,
    check_indices,
    check_inside,
    index_depth,
    inside_point,
    load_indexed,
    point_size,
    require_index,
    require_inside,
    safe_index,
    unproven_axes,
    wrapped,
)
from ingot.ops.movement import SAMPLED


@register
class Gather(OpDef):
    """Slices of x along `axis`: out[…, i…, …] = x[…, idx[i…], …]."""

    name = "gather"
    takes_strings = True
    kind = Kind.INJECTIVE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, indices = common.tensor_types(self.name, inputs, 2)
        require_index(self.name, indices)
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.rank)
        return [TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        x, _ = common.tensor_types(self.name, inputs, 2)
        is_inside = common.normalize_axis(self.name, attrs.get("axis", 0), x.rank) > 0
        return attrs if is_inside and set(batched) == {0} else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, indices = (np.asarray(v) for v in inputs)
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.ndim)
        found = wrapped(self.name, indices, x.shape[axis])
        if not found.size:
            shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
            return [np.zeros(shape, x.dtype)]
        return [np.take(x, found, axis)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, indices = inputs
        assert x is not None and indices is not None
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.rank)
        check_indices(b, self.name, indices, [x.shape[axis]])

        def formula(*point):
            head, middle, tail = np_split(point, axis, indices.rank)
            index = safe_index(indices[middle], x.shape[axis])
            return load_indexed(x, (*head, index, *tail), [axis])

        return [b.compute("gather", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        indices = np.array([[0, -1, 2], [1, 1, -3]])
        x = common.floats(3, 4)
        found = [Sample((x, indices), {"axis": 0}), Sample((x, indices), {"axis": -1})]
        found += [Sample((common.data(3, 2, dtype=d), indices), {"axis": 0}) for d in SAMPLED]
        found += [
            Sample((x, np.array(-2, np.int32)), {"axis": 1}),
            Sample((x, np.zeros((0,), np.int64)), {"axis": 1}),
            Sample((common.floats(0, 3), np.array([[2]])), {"axis": 1}),
            Sample((common.floats(2, 0), np.zeros((0, 2), np.int64)), {"axis": 1}),
            Sample((x, np.array([3])), {"axis": 0}, fails=OUT_OF_RANGE),
            Sample((x, np.array([0, -5], np.int32)), {"axis": 1}, fails=OUT_OF_RANGE),
            Sample((common.floats(0), np.array([0])), {"axis": 0}, fails=OUT_OF_RANGE),
        ]
        return found


def np_split(point: tuple, axis: int, count: int) -> tuple[tuple, tuple, tuple]:
    """A point as (before axis, the `count` entries there, the rest)."""
    return point[:axis], point[axis : axis + count], point[axis + count :]


@register
class GatherElements(OpDef):
    """out[i, j, k] = x[idx[i, j, k], j, k] for axis 0, and so on; the result has idx's shape."""

    name = "gather_elements"
    takes_strings = True
    kind = Kind.INJECTIVE
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, indices = common.tensor_types(self.name, inputs, 2)
        require_index(self.name, indices)
        require_inside(self.name, x, indices, attrs.get("axis", 0))
        return [TensorType(x.dtype, indices.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, indices = (np.asarray(v) for v in inputs)
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.ndim)
        found = wrapped(self.name, indices, x.shape[axis])
        out = np.zeros(indices.shape, x.dtype)
        for point in np.ndindex(*indices.shape):
            out[point] = x[(*point[:axis], int(found[point]), *point[axis + 1 :])]
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, indices = inputs
        assert x is not None and indices is not None
        axis = common.normalize_axis(self.name, attrs.get("axis", 0), x.rank)
        check_indices(b, self.name, indices, [x.shape[axis]])
        check_inside(b, self.name, x, indices, axis)

        def formula(*point):
            source = inside_point(x, indices, point)
            source[axis] = safe_index(indices[point], x.shape[axis])
            return load_indexed(x, source, [axis, *unproven_axes(x, indices, axis)])

        return [b.compute("gather_elements", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        x, indices = common.floats(3, 4), np.array([[0, -1, 2, 1], [1, 1, -3, 0]])
        found = [Sample((x, indices), {"axis": 0}), Sample((x, indices % 3), {"axis": 1})]
        found += [Sample((common.data(3, 4, dtype=d), indices), {"axis": 0}) for d in SAMPLED]
        found += [
            Sample((x, np.array([[3]], np.int32)), {"axis": -1}),
            Sample((x, np.zeros((0, 4), np.int64)), {"axis": 0}),
            Sample((x, np.array([[0, 3]])), {"axis": 0}, fails=OUT_OF_RANGE),
            Sample((common.floats(0), np.array([0])), {"axis": 0}, fails=OUT_OF_RANGE),
        ]
        return found


@register
class GatherND(OpDef):
    """out[b…, i…, …] = x[b…, idx[b…, i…, 0], idx[b…, i…, 1], …, …]: the last axis is a point."""

    name = "gather_nd"
    takes_strings = True
    kind = Kind.INJECTIVE
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, indices = common.tensor_types(self.name, inputs, 2)
        require_index(self.name, indices)
        batch = attrs.get("batch_dims", 0)
        depth = index_depth(self.name, x, indices, batch)
        return [TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch + depth :]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, indices = (np.asarray(v) for v in inputs)
        batch, depth = attrs.get("batch_dims", 0), indices.shape[-1]
        out = np.zeros((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
        for point in np.ndindex(*indices.shape[:-1]):
            where = [
                int(wrapped(self.name, indices[point][j], x.shape[batch + j])) for j in range(depth)
            ]
            out[point] = x[(*point[:batch], *where)]
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, indices = inputs
        assert x is not None and indices is not None
        batch = attrs.get("batch_dims", 0)
        depth = point_size(indices)
        axes = list(range(batch, batch + depth))
        check_indices(b, self.name, indices, [x.shape[axis] for axis in axes])

        def formula(*point):
            at, window = point[: indices.rank - 1], point[indices.rank - 1 :]
            found = [safe_index(indices[(*at, j)], x.shape[batch + j]) for j in range(depth)]
            return load_indexed(x, (*at[:batch], *found, *window), axes)

        return [b.compute("gather_nd", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        x = common.floats(2, 3, 4)
        found = [
            Sample((x, np.array([[0, 1], [-1, -3]])), {"batch_dims": 0}),
            Sample((x, np.array([[[0, 1, 3]], [[1, 2, -4]]])), {"batch_dims": 0}),
            Sample((x, np.array([[1], [-3]])), {"batch_dims": 1}),
            Sample((x, np.array([[[0], [1]], [[2], [-1]]], np.int32)), {"batch_dims": 1}),
            Sample((x, np.array([1])), {"batch_dims": 0}),
            Sample((x, np.zeros((0, 2), np.int64)), {"batch_dims": 0}),
            Sample((x, np.array([[0, 3]])), {"batch_dims": 0}, fails=OUT_OF_RANGE),
            Sample((x, np.array([[2, 0]])), {"batch_dims": 0}, fails=OUT_OF_RANGE),
        ]
        at = np.array([[0, 1], [1, -2]])
        return found + [Sample((common.data(2, 3, dtype=d), at), {}) for d in SAMPLED]


@register
class ReverseSequence(OpDef):
    """For each b of `batch_axis`, the first lens[b] elements of `time_axis` reversed."""

    name = "reverse_sequence"
    takes_strings = True
    kind = Kind.INJECTIVE
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, lengths = common.tensor_types(self.name, inputs, 2)
        require_index(self.name, lengths)
        batch, time = self._axes(x.rank, attrs)
        if batch == time:
            raise type_error(self.name, f"the batch axis and the time axis are both {batch}")
        if lengths.rank != 1:
            raise type_error(self.name, f"lengths {lengths} do not fit axis {batch} of {x}")
        common.require_same_dim(self.name, lengths.shape[0], x.shape[batch], "one length for each")
        return [x]

    def _axes(self, rank: int, attrs: Attrs) -> tuple[int, int]:
        names = ("batch_axis", "time_axis")
        first, second = (common.normalize_axis(self.name, attrs[n], rank) for n in names)
        return first, second

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, lengths = (np.asarray(v) for v in inputs)
        batch, time = self._axes(x.ndim, attrs)
        if ((lengths < 0) | (lengths > x.shape[time])).any():
            raise common.run_failed(f"{self.name}: length out of range")
        out = x.copy()
        rows, source = (
            np.moveaxis(out, (batch, time), (0, 1)),
            np.moveaxis(x, (batch, time), (0, 1)),
        )
        for row, before, length in zip(rows, source, lengths):
            row[:length] = before[:length][::-1]
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, lengths = inputs
        assert x is not None and lengths is not None
        batch, time = self._axes(x.rank, attrs)
        zero, extent = ir.Lit(0, dtypes.i64), ir.Index(x.shape[time])

        def bad(i):
            length = as_i64(lengths[i])
            return ir.Compare("lt", length, zero) | ir.Compare("gt", length, extent)

        def formula(*point):
            t, length = ir.Index(point[time]), as_i64(lengths[point[batch]])
            mirrored = ir.Select(ir.Compare("lt", t, length), length - t - 1, t)
            source = list(point)
            source[time] = safe_index(mirrored, x.shape[time])
            return x[tuple(source)]

        b.check(lengths.shape, bad, f"{self.name}: length out of range")
        return [b.compute("reverse_sequence", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        lengths = np.array([0, 3, 1, 4])
        time_first = {"batch_axis": 1, "time_axis": 0}
        batch_first = {"batch_axis": 0, "time_axis": 1}
        found = [
            Sample((common.floats(4, 4), lengths), time_first),
            Sample((common.floats(4, 5, 2), lengths.astype(np.int32)), batch_first),
            Sample((common.floats(4, 4), np.array([1, 5, 0, 0])), time_first, fails="out of range"),
        ]  # fmt: skip
        return found + [Sample((common.data(4, 4, dtype=d), lengths), time_first) for d in SAMPLED]


@register
class OneHot(OpDef):
    """values[1] where the new axis equals the index, values[0] elsewhere. An index out of range
    gives values[0] everywhere."""

    name = "one_hot"
    takes_strings = True
    kind = Kind.INJECTIVE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        indices, values = common.tensor_types(self.name, inputs, 2)
        require_index(self.name, indices)
        if values.rank != 1 or not arith.is_const(values.shape[0], 2):
            raise type_error(self.name, f"the off and on values are {values}, not two elements")
        axis = common.normalize_axis(self.name, attrs.get("axis", -1), indices.rank + 1)
        depth = arith.wrap(attrs["depth"])
        return [TensorType(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        indices, values = (np.asarray(v) for v in inputs)
        (depth,) = common.numbers(self.name, [attrs["depth"]])
        axis = common.normalize_axis(self.name, attrs.get("axis", -1), indices.ndim + 1)
        front = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
        positions = np.arange(depth).reshape([-1 if k == axis else 1 for k in range(front.ndim)])
        return [np.where(front == positions, values[1], values[0]).astype(values.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        indices, values = inputs
        assert indices is not None and values is not None
        axis = common.normalize_axis(self.name, attrs.get("axis", -1), indices.rank + 1)
        depth, zero = ir.Index(arith.wrap(attrs["depth"])), ir.Lit(0, dtypes.i64)

        def formula(*point):
            index = as_i64(indices[(*point[:axis], *point[axis + 1 :])])
            front = ir.Select(ir.Compare("lt", index, zero), index + depth, index)
            is_here = ir.Compare("eq", front, ir.Index(point[axis]))
            return ir.Select(is_here, values[1], values[0])

        return [b.compute("one_hot", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        indices, pair = np.array([[0, -1, 2], [1, 7, -9]]), np.array([0.5, 3], np.float32)
        found = [Sample((indices, pair), {"depth": 3, "axis": axis}) for axis in (-1, 0, 1)]
        found += [
            Sample((np.array(1, np.int32), pair), {"depth": 3, "axis": -1}),
            Sample((indices, pair), {"depth": 0, "axis": -1}),
        ]
        off_on = [np.array([0, 1]).astype(d.numpy) for d in SAMPLED]
        return found + [Sample((indices, v), {"depth": 4, "axis": -1}) for v in off_on]
