"""`write_rows`: a tensor with some rows replaced, from a row that may be a dynamic size.

In: a tensor and the new rows. Out: a row of `graph.opdef.TABLE`, OPAQUE (two stages on one buffer):
a copy, then the rows. passes/attach_state.py makes it of the concat that appends to a KV cache;
there the copy is elided (lower/inplace.py), and only the new rows are written. Called by
ops/__init__.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import prove
from ingot.arith.interval import Interval
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Stmt
from ingot.ops import common

OUT_OF_BOUNDS = "write_rows: the rows do not fit"


@register
class WriteRows(OpDef):
    """x with x[at : at + rows.shape[axis]] = rows, along `axis`; `at` is a size. `fits`: they are
    known to fit before a run (the runtime checks a state's capacity), so no kernel checks it."""

    name = "write_rows"
    kind = Kind.OPAQUE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, rows = common.tensor_types(self.name, inputs, 2)
        common.require_same_dtype(self.name, x, rows)
        axis = common.normalize_axis(self.name, attrs["axis"], x.rank)
        why = f"{rows} are not rows of {x} along axis {axis}"
        if rows.rank != x.rank:
            raise type_error(self.name, why)
        for k, (a, b) in enumerate(zip(x.shape, rows.shape)):
            if k != axis:
                common.require_same_dim(self.name, a, b, why)
        ends = [arith.as_int(n) for n in (arith.wrap(attrs["at"]), rows.shape[axis], x.shape[axis])]
        if None not in ends and not 0 <= ends[0] <= ends[2] - ends[1]:  # type: ignore[operator]
            raise type_error(self.name, f"{ends[1]} rows at {ends[0]} do not fit {ends[2]}")
        return [x]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, rows = (np.asarray(v) for v in inputs)
        (at,) = common.numbers(self.name, (attrs["at"],))
        axis = common.normalize_axis(self.name, attrs["axis"], x.ndim)
        if not 0 <= at <= x.shape[axis] - rows.shape[axis]:
            raise common.run_failed(OUT_OF_BOUNDS)
        out = x.copy()
        out[(slice(None),) * axis + (slice(at, at + rows.shape[axis]),)] = rows
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, rows = inputs
        assert x is not None and rows is not None
        axis, at = common.normalize_axis(self.name, attrs["axis"], x.rank), arith.wrap(attrs["at"])
        end, is_known = at + rows.shape[axis], bool(attrs.get("fits", False))
        fits = None if is_known else self._fits(b, at, end, x.shape[axis])
        out = b.compute(self.name, x.shape, lambda *point: x[point])

        def body(*point: arith.Expr) -> Stmt:
            target = (*point[:axis], at + point[axis], *point[axis + 1 :])
            store = ir.Store(out, target, rows[point])
            return store if fits is None else ir.If(fits, store)

        common.stage(b, "rows", rows.shape, body)
        return [out]

    def _fits(
        self, b: Build, at: arith.Expr, end: arith.Expr, extent: arith.Expr
    ) -> ir.Expr | None:
        """The condition that the rows fit, checked once; None if that is proved."""
        names = {n for e in (at, end, extent) for n in arith.free_vars(e)}
        env = {name: b.ranges.get(name, Interval(0, None)) for name in names}
        conditions: list[ir.Expr] = []
        if not prove("ge", at, 0, env):
            conditions.append(ir.Compare("ge", ir.Index(at), ir.value_of(0, dtypes.i64)))
        if not prove("le", end, extent, env):
            conditions.append(ir.Compare("le", ir.Index(end), ir.Index(extent)))
        for fits in conditions:
            bad = ir.Unary("not", fits)
            b.check((), lambda bad=bad: bad, OUT_OF_BOUNDS, lambda: (ir.Index(at), ir.Index(end)))
        if not conditions:
            return None
        return conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]

    def samples(self) -> list[Sample]:
        x = common.floats(2, 5, 3)
        found = [
            Sample((x, common.floats(2, n, 3, key="r")), {"axis": 1, "at": at})
            for n, at in ((1, 0), (2, 3), (5, 0), (0, 5))
        ]
        found.append(Sample((x, common.floats(1, 5, 3, key="r")), {"axis": -3, "at": 1}))
        kinds = (dtypes.f16, dtypes.bf16, dtypes.i8, dtypes.i64, dtypes.bool_)
        for dtype in kinds:
            pair = common.data(4, 3, dtype=dtype), common.data(4, 1, dtype=dtype, key="r")
            found.append(Sample(pair, {"axis": 1, "at": 2}))
        return found
