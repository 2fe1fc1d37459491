"""`splice_rows`: new rows put behind the rows in use of each sequence of a cache.

In: a cache (batch, heads, capacity, size), new rows (batch, heads, rows, size), and how many rows
of each sequence are in use. Out: the cache with `size` rows, INJECTIVE. Sequences of one batch may
have different lengths, so a concat would leave gaps. Called through the operator table; imported
from ONNX by frontends/onnx/contrib/group_query.py.
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
from ingot.ops.indexing import as_i64, load_indexed, require_index, safe_index

DO_NOT_FIT = "splice_rows: the rows do not fit"


@register
class SpliceRows(OpDef):
    """Row t of sequence b is cache[t] for t < used[b], then the new rows, then zeros; or, if
    {keep}, what the cache has there."""

    name = "splice_rows"
    kind = Kind.INJECTIVE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        cache, new, used = common.tensor_types(self.name, inputs, 3)
        common.require_same_dtype(self.name, cache, new)
        require_index(self.name, used)
        if cache.rank != 4 or new.rank != 4 or used.rank != 1:
            raise type_error(self.name, f"{new} and {used} do not fit the cache {cache}")
        for axis in (0, 1, 3):
            why = f"{new} are no rows of {cache}"
            common.require_same_dim(self.name, cache.shape[axis], new.shape[axis], why)
        common.require_same_dim(self.name, used.shape[0], new.shape[0], "one length each")
        batch, heads, _, size = new.shape
        return [TensorType(cache.dtype, (batch, heads, *common.dims((attrs["size"],)), size))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        cache, new, used = (np.asarray(v) for v in inputs)
        (size,) = common.numbers(self.name, (attrs["size"],))
        batch, heads, rows, width = new.shape
        out = np.zeros((batch, heads, size, width), new.dtype)
        copied = min(cache.shape[2], size)
        for b, length in enumerate(used.astype(np.int64)):
            if not 0 <= length <= size - rows:
                raise common.run_failed(DO_NOT_FIT)
            kept = copied if attrs.get("keep", False) else min(copied, int(length))
            out[b, :, :kept] = cache[b, :, :kept]
            out[b, :, length : length + rows] = new[b]
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        cache, new, used = inputs
        assert cache is not None and new is not None and used is not None
        rows, size, zero = new.shape[2], outputs[0].shape[2], ir.value_of(0, new.dtype)

        def bad(batch: arith.Expr) -> Expr:
            length = as_i64(used[(batch,)])
            negative = ir.Compare("lt", length, ir.Lit(0, dtypes.i64))
            return negative | ir.Compare("gt", length + ir.Index(rows), ir.Index(size))

        def formula(batch: arith.Expr, head: arith.Expr, t: arith.Expr, at: arith.Expr) -> Expr:
            length, row = as_i64(used[(batch,)]), ir.Index(t)
            is_there = ir.Compare("lt", row, ir.Index(cache.shape[2]))
            old = ir.Load(cache, (batch, head, t, at), mask=is_there, other=zero)
            place = safe_index(ir.Binary("max", row - length, ir.Lit(0, dtypes.i64)), rows)
            fresh = load_indexed(new, (batch, head, place, at), [2])
            tail = old if attrs.get("keep", False) else zero
            behind = ir.Select(ir.Compare("lt", row, length + ir.Index(rows)), fresh, tail)
            return ir.Select(ir.Compare("lt", row, length), old, behind)

        b.check(used.shape, bad, DO_NOT_FIT)
        return [b.compute(self.name, outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        cache, new = common.floats(3, 2, 4, 2), common.floats(3, 2, 2, 2, key="new")
        used = np.array([0, 2, 1], np.int32)
        empty = common.floats(3, 2, 0, 2)
        half = [common.floats(*x.shape, dtype=dtypes.f16) for x in (cache, new)]
        return [
            Sample((cache, new, used), {"size": 4}),
            Sample((cache, new, used.astype(np.int64)), {"size": 4, "keep": True}),
            Sample((cache, new, used), {"size": 7, "keep": True}),
            Sample((empty, new, np.zeros(3, np.int32)), {"size": 2}),
            Sample((*half, used), {"size": 5}),
            Sample((cache, new, used + 1), {"size": 4}, fails=DO_NOT_FIT),
        ]
