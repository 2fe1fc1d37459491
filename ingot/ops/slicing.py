"""`slice`: a strided slice of each axis.

In: a tensor. Out: a row of `graph.opdef.TABLE`, INJECTIVE. Called by ops/__init__.py. Importers
clamp slice bounds, and most slices are provably in bounds. Where they are not (a static slice of a
dynamic dimension), a run-time check reports the error and the load is masked, so that no memory
outside the tensor is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import prove
from ingot.arith.interval import Interval
from ingot.graph.opdef import Attrs, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.movement import SAMPLED, Move, per_axis

OUT_OF_BOUNDS = "slice: an axis is too short"
NAMES = ("starts", "sizes", "steps")


@register
class SliceOp(Move):
    """sizes[i] elements of axis i, from starts[i], with step steps[i] (which may be negative)."""

    name = "slice"
    takes_strings = True
    keeps_axes = True
    is_slice = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        starts, sizes, steps = (per_axis(self.name, attrs, n, x.rank) for n in NAMES)
        for axis, bounds in enumerate(zip(starts, sizes, steps, x.shape)):
            start, size, step, extent = (arith.as_int(v) for v in bounds)
            if start is None or size is None or step is None or extent is None:
                continue
            ends = (start, start + (size - 1) * step)
            if size < 0 or (size > 0 and not (min(ends) >= 0 and max(ends) < extent)):
                raise type_error(
                    self.name,
                    f"slice {bounds[:3]} is out of bounds for axis {axis} of size {extent}",
                )
        return sizes

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        (x,) = common.tensor_types(self.name, inputs, 1)
        start, size, step = (arith.wrap(attrs[n][0]) for n in NAMES)
        is_whole = arith.is_const(start, 0) and arith.is_const(step, 1)
        if not is_whole or not common.same_dim(size, x.shape[0]):
            return None
        return {**attrs, "sizes": (rows, *attrs["sizes"][1:])}

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        out = np.asarray(inputs[0])
        triples = zip(*(common.numbers(self.name, attrs[n]) for n in NAMES))
        for axis, (start, size, step) in enumerate(triples):
            indices = start + step * np.arange(size)
            if ((indices < 0) | (indices >= out.shape[axis])).any():
                raise common.run_failed(OUT_OF_BOUNDS)
            out = np.take(out, indices, axis)
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        unproven = unproven_axes(x, attrs, b.ranges)
        for axis in unproven:
            start, size, step = (arith.wrap(attrs[n][axis]) for n in NAMES)
            check(b, x.shape[axis], start, size, step)

        def value(*point: arith.Expr) -> Expr:
            rows = zip(attrs["starts"], attrs["steps"], point)
            source = tuple(arith.wrap(start) + i * step for start, step, i in rows)
            mask: Expr | None = None
            for axis in unproven:
                here = inside(source[axis], x.shape[axis])
                mask = here if mask is None else mask & here
            other = None if mask is None else ir.value_of(0, x.dtype)
            return ir.Load(x, source, mask=mask, other=other)

        shape = outputs[0].shape
        if any(arith.is_const(d, 0) for d in (*shape, *x.shape)):  # no element is read
            return [b.compute(self.name, shape, lambda *point: ir.value_of(0, x.dtype))]
        return [b.compute(self.name, shape, value)]

    def samples(self) -> list[Sample]:
        rows = [
            ((3, 4), (1, 0), (2, 4), (1, 1)), ((5, 4), (4, 3), (3, 2), (-2, -3)),
            ((5, 2), (0, 1), (0, 1), (1, 1)), ((7,), (6,), (7,), (-1,)),
            ((0, 3), (0, 1), (0, 2), (1, 1)), ((), (), (), ()), ((3, 5), (0, 4), (3, 2), (1, -2)),
        ]  # fmt: skip
        found = []
        for shape, starts, sizes, steps in rows:
            attrs = {"starts": starts, "sizes": sizes, "steps": steps}
            found.append(Sample((common.floats(*shape),), attrs))
        attrs = {"starts": (1, 2), "sizes": (2, 2), "steps": (1, -1)}
        return found + [Sample((common.data(4, 3, dtype=d),), attrs) for d in SAMPLED]


def inside(index: arith.Expr, extent: Dim) -> Expr:
    """0 <= index < extent, as a value."""
    value = ir.Index(index)
    not_before = ir.Compare("ge", value, ir.value_of(0, value.dtype))
    return not_before & ir.Compare("lt", value, ir.Index(extent))


def check(b: Build, extent: Dim, start: Dim, size: Dim, step: Dim) -> None:
    """Fail unless the first and the last element are in bounds; an empty slice passes."""
    is_nonempty = ir.Compare("gt", ir.Index(size), ir.value_of(0, dtypes.i64))
    for index in (start, start + (size - 1) * step):
        bad = is_nonempty & ir.Unary("not", inside(index, extent))
        sizes = (ir.Index(index), ir.Index(extent))
        b.check((), lambda bad=bad: bad, OUT_OF_BOUNDS, lambda sizes=sizes: sizes)


def unproven_axes(x: Buffer, attrs: Attrs, ranges: Mapping[str, Interval]) -> list[int]:
    """Axes on which the slice is not provably in bounds for all sizes."""
    rows = zip(*(attrs[n] for n in NAMES), x.shape)
    return [axis for axis, row in enumerate(rows) if not _is_in_bounds(row, ranges)]


def _is_in_bounds(row: Sequence[arith.IntLike], ranges: Mapping[str, Interval]) -> bool:
    """Whether the first and last element are provably in bounds, or the slice is empty."""
    start, size, step, extent = (arith.wrap(value) for value in row)
    names = sorted({n for e in (start, size, extent) for n in arith.free_vars(e)})
    env = {name: ranges.get(name, Interval(0, None)) for name in names}
    if prove("le", size, 0, env):
        return True
    low, high = start, start + (size - 1) * step
    if (arith.as_int(step) or 1) < 0:
        low, high = high, low
    return prove("ge", low, 0, env) and prove("lt", high, extent, env)
