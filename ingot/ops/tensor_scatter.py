"""`tensor_scatter`: a cache in which each sample's new rows are written from an index of its own.

In: a cache, new rows along `axis`, and an index for each sample (axis 0). Out: a row of
`graph.opdef.TABLE`, INJECTIVE: each element is read from one of the two, so the copy and the write
are one pass. Called by ops/__init__.py; imported from ONNX by frontends/onnx/gather.py.
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
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.statements import number

DOES_NOT_FIT = "tensor_scatter: the rows do not fit in the cache"


@register
class TensorScatter(OpDef):
    """x with rows[b] written at at[b] … along `axis`; modulo the axis if `circular`."""

    name = "tensor_scatter"
    kind = Kind.INJECTIVE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, rows, at = common.tensor_types(self.name, inputs, 3)
        common.require_same_dtype(self.name, x, rows)
        common.require_dtype(self.name, at, dtypes.i64)
        axis = common.normalize_axis(self.name, attrs["axis"], x.rank)
        if axis == 0 or rows.rank != x.rank or at.rank != 1:
            raise type_error(self.name, f"rows {rows} at {at} along axis {axis} do not fit {x}")
        for k, (a, b) in enumerate(zip(x.shape, rows.shape)):
            if k != axis:
                common.require_same_dim(self.name, a, b, f"rows {rows} of {x}")
        common.require_same_dim(self.name, at.shape[0], x.shape[0], "an index for each sample")
        return [x]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, rows, at = (np.asarray(v) for v in inputs)
        axis = common.normalize_axis(self.name, attrs["axis"], x.ndim)
        out, size, count = x.copy(), x.shape[axis], rows.shape[axis]
        is_outside = (at < 0) | (at + count > size)
        if count > size or (is_outside.any() and not attrs.get("circular", False)):
            raise common.run_failed(DOES_NOT_FIT)
        for sample in range(x.shape[0]):
            place = (at[sample] + np.arange(count)) % max(size, 1)
            moved = np.moveaxis(out[sample], axis - 1, 0)  # a view
            moved[place] = np.moveaxis(rows[sample], axis - 1, 0)
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, rows, at = inputs
        assert x is not None and rows is not None and at is not None
        axis = common.normalize_axis(self.name, attrs["axis"], x.rank)
        size, count = ir.Index(x.shape[axis]), ir.Index(rows.shape[axis])
        circular = bool(attrs.get("circular", False))

        def is_bad(i: arith.Expr) -> Expr:
            too_many = ir.Compare("gt", count, size)
            if circular:
                return too_many
            outside = ir.Compare("gt", at[i] + count, size)
            return too_many | ir.Compare("lt", at[i], number(0)) | outside

        def formula(*point: arith.Expr) -> Expr:
            back = ir.Index(point[axis]) - at[point[0]]
            row = ir.Binary("mod", back, ir.Binary("max", size, number(1))) if circular else back
            is_new = ir.Compare("ge", row, number(0)) & ir.Compare("lt", row, count)
            inside = ir.Binary("max", ir.Binary("min", row, count - number(1)), number(0))
            source = (*point[:axis], ir.index_of(inside), *point[axis + 1 :])
            new = ir.Load(rows, source, mask=is_new, other=ir.value_of(0, x.dtype))
            return ir.Select(is_new, new, x[point])

        b.check(at.shape, is_bad, DOES_NOT_FIT)
        return [b.compute(self.name, x.shape, formula)]

    def samples(self) -> list[Sample]:
        x, rows = common.floats(2, 3, 4, 2), common.floats(2, 3, 2, 2, key=1)
        linear, circular = {"axis": -2}, {"axis": 2, "circular": True}
        flat = common.integers(3, 5), common.integers(3, 1, key=1)
        return [
            Sample((x, rows, np.array([0, 2])), linear),
            Sample((x, rows, np.array([3, -1])), circular),
            Sample((x, rows, np.array([0, 3])), linear, fails=DOES_NOT_FIT),
            Sample((*flat, np.array([4, 0, 2])), {"axis": 1}),
            Sample((x, np.zeros((2, 3, 0, 2), np.float32), np.array([0, 4])), linear),
        ]
