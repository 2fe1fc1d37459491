"""`topk`: the k best elements along an axis, by a heap of the best so far.

In: a tensor, and k, which may be a dynamic size. Out: a row of `graph.opdef.TABLE`. Called by
ops/__init__.py; imported from ONNX by frontends/onnx/reduce.py.

The root of the heap is the worst of the best. An element enters where it is better, which few are,
so the elements are not compared one by one: of each column of DEPTH elements, LANES apart, the best
is computed first, in vectors, and only columns whose best may enter are looked through. At the end
the heap is sorted. That is n / DEPTH + k·log(k)·log(n / k) steps for elements in random order, and
n·log(k) at worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops.common import (
    floats,
    integers,
    normalize_axis,
    run_failed,
    stage,
    tensor_types,
    wide_dtype,
    widen,
    widen_array,
)
from ingot.ops.indexing import load_indexed, safe_index
from ingot.ops.order_keys import LAST, entry_of, index_in, is_less, is_packed
from ingot.ops.statements import Scalar, compare, let, loop, number, with_scalars

TOO_MANY = "topk asks for more elements than the axis has"
TOO_LONG = "topk: the axis has more than 2³² elements"
LANES = 16  # two vectors of AVX2: the columns of a group are computed side by side
DEPTH = 8  # elements of a column (measured: 4 and 16 are slower at 100,000 elements)


@register
class TopK(OpDef):
    """The k best along `axis`, best first, and their indices; equal values keep their order. NaN
    is the greatest value. k may be dynamic; a k larger than the axis is a run-time error."""

    name = "topk"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        axis, k = normalize_axis(self.name, attrs["axis"], x.rank), arith.wrap(attrs["k"])
        have, want = arith.as_int(x.shape[axis]), arith.as_int(k)
        if want is not None and (want < 0 or (have is not None and want > have)):
            raise type_error(self.name, f"k is {want}, the axis has {x.shape[axis]} elements")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return [TensorType(x.dtype, shape), TensorType(dtypes.i64, shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, axis, k = inputs[0], attrs["axis"], arith.as_int(attrs["k"])
        assert x is not None and k is not None
        if k > x.shape[axis]:
            raise run_failed(TOO_MANY)
        rows = np.moveaxis(x, axis, -1)
        indices = np.empty((*rows.shape[:-1], k), np.int64)
        for at in np.ndindex(*rows.shape[:-1]):
            row = [(v != v, v) for v in widen_array(rows[at]).tolist()]
            clean = [(nan, 0 if nan else v) for nan, v in row]
            order = sorted(range(len(row)), key=clean.__getitem__)
            if attrs.get("largest", True):  # a stable sort keeps the order of equal values
                order = sorted(range(len(row)), key=clean.__getitem__, reverse=True)
            indices[at] = order[:k]
        values = np.take_along_axis(rows, indices, axis=-1)
        return [np.ascontiguousarray(np.moveaxis(a, -1, axis)) for a in (values, indices)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        axis, largest = normalize_axis(self.name, attrs["axis"], x.rank), attrs.get("largest", True)
        count, k, shape = x.shape[axis], outputs[0].shape[axis], outputs[0].shape
        if arith.as_int(count) is None or arith.as_int(k) is None:
            ask, have = ir.Index(k), ir.Index(count)
            b.check((), lambda: ir.Compare("gt", ask, have), TOO_MANY, lambda: (ask, have))
        if is_packed(x.dtype) and arith.as_int(count) is None:
            b.check((), lambda: compare("gt", count, LAST), TOO_LONG)
        heaps = select(b, x, axis, k, largest)

        def index(*point: arith.Expr) -> Expr:
            at = (*point[:axis], *point[axis + 1 :], point[axis])
            return index_in([heap[at] for heap in heaps])

        indices = b.compute("indices", shape, index)

        def value(*point: arith.Expr) -> Expr:
            source = list(point)
            source[axis] = safe_index(indices[point], count)
            return load_indexed(x, source, [axis])

        return [b.compute("values", shape, value), indices]

    def samples(self) -> list[Sample]:
        ties = np.array([[3, 1, 3, 2, 1], [0, 0, -0.0, 0, 0], [np.nan, 1, np.nan, np.inf, -np.inf]])
        arrays: list[tuple[np.ndarray, int, int]] = [
            (ties.astype(np.float32), -1, 3), (ties.astype(np.float16), 0, 2),
            (integers(2, 5, 3, low=-2, high=2), 1, 5), (floats(7), 0, 0), (floats(3, 1), 1, 1),
            (floats(2, 300), 1, 9),
        ]  # fmt: skip
        return [
            Sample((x,), {"axis": axis, "k": k, "largest": largest})
            for x, axis, k in arrays
            for largest in (True, False)
        ]


def select(b: Build, x: Buffer, axis: int, k: Dim, largest: bool) -> list[Buffer]:
    """The sorted entries of each row, (sizes without the axis, k): one buffer or two."""
    lead = (*x.shape[:axis], *x.shape[axis + 1 :])
    count = x.shape[axis]
    names = ["heap"] if is_packed(x.dtype) else ["heap", "places"]
    heaps = [b.buffer(name, dtypes.i64, (*lead, k)) for name in names]
    groups = count // (LANES * DEPTH)

    def element(at: Sequence[arith.Expr], i: arith.Expr) -> Expr:
        return x[(*at[:axis], i, *at[axis:])]

    def column(*point: arith.Expr) -> Expr:
        *at, group, lane, step = point
        return widen(element(at, group * (LANES * DEPTH) + step * LANES + lane))

    op = "max" if largest else "min"
    best = b.reduce("best", (*lead, groups, LANES), (DEPTH,), op, column)

    def body(*at: arith.Expr) -> Stmt:
        row = Row(b, heaps, best, at, lambda i: element(at, i), largest)
        return row.select(count, arith.minimum(k, count), groups)

    stage(b, "select", lead, body)
    return heaps


class Row:
    """The statements that select and sort the best of one row."""

    def __init__(
        self,
        b: Build,
        heaps: list[Buffer],
        best: Buffer,
        at: tuple[arith.Expr, ...],
        element: Callable[[arith.Expr], Expr],
        largest: bool,
    ):
        self.b, self.heaps, self.best, self.at = b, heaps, best, at
        self.element, self.largest = element, largest
        self.hole, self.child = Scalar(b, "hole"), Scalar(b, "child")
        self.worst = Scalar(b, "worst", wide_dtype(best.dtype))

    def select(self, count: Dim, kept: arith.Expr, groups: Dim) -> Stmt:
        """The heap of the first `kept` elements, then the rest, then the sorted heap."""
        b, looked_through = self.b, groups * (LANES * DEPTH)
        fill = loop(b, kept, lambda i: self._put(i, self._entry(i)))
        heapify = loop(b, kept // 2, lambda i: self._sink(kept // 2 - 1 - i, kept))
        columns = loop(
            b, groups, lambda g: loop(b, LANES, lambda lane: self._column(g, lane, kept))
        )
        rest = loop(b, count, lambda i: self._offer(i, kept), arith.maximum(looked_through, kept))
        order = loop(b, kept - 1, lambda i: self._move_worst(kept - 1 - i))
        found = ir.seq(fill, heapify, self._set_worst(), columns, rest, order)
        some = ir.If(compare("gt", kept, 0), found)
        return with_scalars([self.hole, self.child, self.worst], some)

    def _entry(self, i: arith.Expr) -> list[Expr]:
        return entry_of(self.element(i), ir.Index(i), self.largest)

    def _at(self, i: arith.Expr) -> list[Expr]:
        return [heap[(*self.at, i)] for heap in self.heaps]

    def _put(self, i: arith.Expr, entry: Sequence[Expr]) -> Stmt:
        return ir.seq(*(ir.Store(h, (*self.at, i), e) for h, e in zip(self.heaps, entry)))

    def _held(self, entry: list[Expr], body: Callable[[list[Expr]], Stmt]) -> Stmt:
        """The entry, evaluated once."""
        if len(entry) == 1:
            return let(self.b, entry[0], lambda one: body([one]))
        first, second = entry
        return let(self.b, first, lambda a: let(self.b, second, lambda c: body([a, c])))

    def _set_worst(self) -> Stmt:
        """The element at the root."""
        index = ir.index_of(index_in(self._at(arith.Const(0))))
        return self.worst.set(widen(self.element(index)))

    def _column(self, group: arith.Expr, lane: arith.Expr, kept: arith.Expr) -> Stmt:
        """Offer the elements of a column, unless its best is worse than the root. NaN is not."""
        best = self.best[(*self.at, group, lane)]
        is_worse = ir.Compare("lt" if self.largest else "gt", best, self.worst.value)

        def each(step: arith.Expr) -> Stmt:
            i = group * (LANES * DEPTH) + step * LANES + lane
            return ir.If(compare("ge", i, kept), self._offer(i, kept))

        return ir.If(~is_worse, loop(self.b, DEPTH, each))

    def _offer(self, i: arith.Expr, kept: arith.Expr) -> Stmt:
        """The element replaces the root if it is better."""

        def enter(entry: list[Expr]) -> Stmt:
            place = ir.seq(self._sink_entry(arith.Const(0), entry, kept), self._set_worst())
            return ir.If(is_less(self._at(arith.Const(0)), entry), place)

        return self._held(self._entry(i), enter)

    def _sink(self, start: arith.Expr, size: arith.Expr) -> Stmt:
        return self._held(self._at(start), lambda e: self._sink_entry(start, e, size))

    def _sink_entry(self, start: arith.Expr, entry: list[Expr], size: arith.Expr) -> Stmt:
        """Put the entry at `start` or below: children that are worse move up."""
        hole, child, end = self.hole, self.child, ir.Index(size)

        def down(other: Expr) -> Stmt:
            moved = self._at(ir.index_of(other))

            def move(lower: list[Expr]) -> Stmt:
                steps = [self._put(hole.index, lower), hole.set(other)]
                return ir.If(
                    is_less(lower, entry),
                    ir.seq(*steps, child.set(other + other + number(1))),
                    child.set(end),
                )

            return self._held(moved, move)

        right = ir.Binary("min", child.value + number(1), end - number(1))
        is_right = is_less(self._at(ir.index_of(right)), self._at(child.index))
        chosen = ir.Select(is_right, right, child.value)
        return ir.seq(
            hole.set(ir.Index(start)),
            child.set(ir.Index(start * 2 + 1)),
            ir.While(ir.Compare("lt", child.value, end), let(self.b, chosen, down)),
            self._put(hole.index, entry),
        )

    def _move_worst(self, end: arith.Expr) -> Stmt:
        """The root goes to `end`, the entry from there sinks in what is left before it."""

        def swap(entry: list[Expr]) -> Stmt:
            root = self._put(end, self._at(arith.Const(0)))
            return ir.seq(root, self._sink_entry(arith.Const(0), entry, end))

        return self._held(self._at(end), swap)
