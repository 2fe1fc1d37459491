"""Sorting rows: argsort_rows, and run_starts, which marks the first of equal neighbours.

In: rows (m, w) of any element type. Out: rows of `graph.opdef.TABLE`. Called by ops/__init__.py;
Unique is made of them (frontends/onnx/unique.py). Rows are compared lexicographically by the keys
of ops/order_keys.py: NaN is the greatest value and equals itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.indexing import load_indexed, safe_index
from ingot.ops.order_keys import is_packed, order_key
from ingot.ops.statements import Scalar, compare, let, loop, number, with_scalars


def rows_type(op: str, type: TensorType) -> TensorType:
    if type.rank != 2:
        raise type_error(op, f"{type} are no rows of one length")
    return type


def key_rows(x: np.ndarray) -> list[tuple[Any, ...]]:
    """The rows as Python tuples that compare as the compiled code does."""
    wide = common.widen_array(x)
    return [tuple((v != v, 0 if v != v else v) for v in row) for row in wide.tolist()]


def sample_rows() -> list[np.ndarray]:
    edge = np.array([[np.nan, 1], [1, np.nan], [np.nan, 1], [-0.0, 2], [0.0, 2], [-np.inf, 0]])
    return [
        common.integers(9, 1, high=2, low=-1), common.integers(7, 3, dtype=dtypes.u8, high=1),
        edge.astype(np.float32), edge.astype(np.float64), common.floats(5, 1, dtype=dtypes.bf16),
        common.bools(6, 2), np.zeros((0, 2), np.float32), np.zeros((4, 0), np.int32),
    ]  # fmt: skip


@register
class ArgsortRows(OpDef):
    """The indices of the rows of x in ascending order; equal rows keep their order. Rows of one
    element are sorted by the bytes of their keys, longer ones by a merge sort."""

    name = "argsort_rows"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x = rows_type(self.name, common.tensor_types(self.name, inputs, 1)[0])
        return [TensorType(dtypes.i64, x.shape[:1])]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        rows = key_rows(np.asarray(inputs[0]))
        return [np.array(sorted(range(len(rows)), key=rows.__getitem__), np.int64)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        count = x.shape[0]
        order = b.buffer("order", dtypes.i64, (2, count))
        out = b.buffer("argsort", dtypes.i64, (count,))
        start = lambda i: ir.Store(order, (arith.Const(0), i), ir.Index(i))  # noqa: E731
        common.stage(b, "start", (count,), start)
        sorter: Radix | Merge
        if arith.is_const(x.shape[1], 1):
            sorter = Radix(b, x, order)
        else:
            sorter = Merge(b, x, order)
        common.stage(b, "sort", (1,), lambda _: sorter.sort(out), ir.AxisKind.OPAQUE)
        return [out]

    def samples(self) -> list[Sample]:
        return [Sample((x,), {}) for x in sample_rows()]


class Radix:
    """The statements of a radix sort: by each byte of the keys in turn, the lowest first. A byte
    that is the same in all keys is left out, so small integers take one pass or two."""

    def __init__(self, b: Build, x: Buffer, order: Buffer):
        self.b, self.order, self.count = b, order, x.shape[0]
        self.digits = 4 if is_packed(x.dtype) else 8
        bias = number(1 << 31) if is_packed(x.dtype) else number(-(1 << 63))
        self.keys = b.compute(  # not negative as unsigned integers
            "keys", (self.count,), lambda i: order_key(x[i, 0]) + bias
        )
        self.places = b.buffer("places", dtypes.i64, (self.digits, 256))
        self.plane, self.total = Scalar(b, "plane"), Scalar(b, "total")

    def sort(self, out: Buffer) -> Stmt:
        b, plane = self.b, self.plane
        clear = lambda d: loop(  # noqa: E731
            b, 256, lambda v: ir.Store(self.places, (d, v), number(0))
        )
        copy = lambda i: ir.Store(out, (i,), self.order[plane.index, i])  # noqa: E731
        passes = loop(b, self.digits, lambda d: ir.If(self._is_mixed(d), self._pass(d)))
        return with_scalars(
            [plane, self.total],
            plane.set(0),
            loop(b, self.digits, clear),
            loop(b, self.count, self._tally),
            ir.If(compare("gt", self.count, 0), passes),
            loop(b, self.count, copy),
        )

    def _digit(self, key: Expr, d: arith.Expr) -> arith.Expr:
        shifted = ir.Binary("shr", key, ir.Index(d * 8))
        return ir.index_of(ir.Binary("and", shifted, number(255)))

    def _tally(self, i: arith.Expr) -> Stmt:
        """Count the values of each byte."""

        def each(key: Expr) -> Stmt:
            cells = [(arith.Const(d), self._digit(key, arith.Const(d))) for d in range(self.digits)]
            return ir.seq(*(ir.Store(self.places, c, self.places[c] + number(1)) for c in cells))

        return let(self.b, self.keys[i], each)

    def _is_mixed(self, d: arith.Expr) -> Expr:
        """Whether the byte differs from that of the first key somewhere."""
        same = self.places[d, self._digit(self.keys[0], d)]
        return ir.Compare("ne", same, ir.Index(self.count))

    def _pass(self, d: arith.Expr) -> Stmt:
        plane, total = self.plane, self.total
        other = ir.index_of(number(1) - plane.value)

        def first_place(v: arith.Expr) -> Stmt:
            def store(found: Expr) -> Stmt:
                place = ir.Store(self.places, (d, v), total.value)
                return ir.seq(place, total.set(total.value + found))

            return let(self.b, self.places[d, v], store)

        def put(row: Expr, digit: Expr) -> Stmt:
            cell = (d, ir.index_of(digit))

            def move(place: Expr) -> Stmt:
                following = ir.Store(self.places, cell, place + number(1))
                return ir.seq(ir.Store(self.order, (other, ir.index_of(place)), row), following)

            return let(self.b, self.places[cell], move)

        def each(i: arith.Expr) -> Stmt:
            def with_row(row: Expr) -> Stmt:
                digit = ir.Index(self._digit(self.keys[ir.index_of(row)], d))
                return let(self.b, digit, lambda v: put(row, v))

            return let(self.b, self.order[plane.index, i], with_row)

        return ir.seq(
            total.set(0),
            loop(self.b, 256, first_place),
            loop(self.b, self.count, each),
            plane.set(number(1) - plane.value),
        )


class Merge:
    """The statements of a merge sort; the two planes of `order` are source and target in turn."""

    def __init__(self, b: Build, x: Buffer, order: Buffer):
        self.b, self.x, self.order = b, x, order
        names = ("plane", "width", "start", "left", "right", "column", "order_of")
        self.plane, self.width, self.start, self.left, self.right, self.column, self.sign = (
            Scalar(b, name) for name in names
        )

    def sort(self, out: Buffer) -> Stmt:
        count, width, plane = ir.Index(self.x.shape[0]), self.width, self.plane
        step = ir.seq(
            self.start.set(0),
            ir.While(ir.Compare("lt", self.start.value, count), self._merge_runs()),
            width.set(width.value + width.value),
            plane.set(number(1) - plane.value),
        )
        copy = lambda i: ir.Store(out, (i,), self.order[plane.index, i])  # noqa: E731
        return with_scalars(
            [plane, width, self.start, self.left, self.right, self.column, self.sign],
            plane.set(0),
            width.set(1),
            ir.While(ir.Compare("lt", width.value, count), step),
            loop(self.b, self.x.shape[0], copy),
        )

    def _merge_runs(self) -> Stmt:
        """Two neighbouring runs of `width` rows, from `start` on, become one."""
        count, start, width = ir.Index(self.x.shape[0]), self.start, self.width

        def merge(middle: Expr, end: Expr) -> Stmt:
            return ir.seq(
                self.left.set(start.value),
                self.right.set(middle),
                loop(
                    self.b,
                    ir.index_of(end),
                    lambda i: self._take(i, middle, end),
                    start=start.index,
                ),
                start.set(end),
            )

        middle = ir.Binary("min", start.value + width.value, count)
        end = ir.Binary("min", start.value + width.value + width.value, count)
        return let(self.b, middle, lambda m: let(self.b, end, lambda e: merge(m, e)))

    def _take(self, target: arith.Expr, middle: Expr, end: Expr) -> Stmt:
        """The row at `target` is the next of the left run, unless that of the right is less. Which
        of the two is no branch: it would be mispredicted half of the time."""
        left, right = self.left, self.right
        has_left = ir.Compare("lt", left.value, middle)
        has_right = ir.Compare("lt", right.value, end)
        plane = self.plane.index
        other = ir.index_of(number(1) - self.plane.value)

        def move(is_right: Expr) -> Stmt:
            source = ir.index_of(ir.Select(is_right, right.value, left.value))
            step = ir.Cast(is_right, dtypes.i64)
            return ir.seq(
                ir.Store(self.order, (other, target), self.order[plane, source]),
                right.set(right.value + step),
                left.set(left.value + (number(1) - step)),
            )

        decide = self._compare(self.order[plane, right.index], self.order[plane, left.index])
        only = self.sign.set(ir.Select(has_left, number(0), number(-1)))
        is_right = ir.Compare("lt", self.sign.value, number(0))
        return ir.seq(ir.If(has_left & has_right, decide, only), let(self.b, is_right, move))

    def _compare(self, a: Expr, c: Expr) -> Stmt:
        """sign := -1, 0 or 1, as row a is less than row c, equal or greater."""
        column, sign, width = self.column, self.sign, ir.Index(self.x.shape[1])

        def step(one: Expr, other: Expr) -> Stmt:
            keys = (self._key(row) for row in (one, other))
            return ir.seq(self._sign_of(*keys), column.set(column.value + number(1)))

        def rows(one: Expr, other: Expr) -> Stmt:
            is_open = ir.Compare("eq", sign.value, number(0))
            more = ir.Compare("lt", column.value, width) & is_open
            return ir.seq(sign.set(0), column.set(0), ir.While(more, step(one, other)))

        return let(self.b, a, lambda one: let(self.b, c, lambda other: rows(one, other)))

    def _key(self, row: Expr) -> Expr:
        return order_key(self.x[ir.index_of(row), self.column.index])

    def _sign_of(self, a: Expr, c: Expr) -> Stmt:
        def store(one: Expr, other: Expr) -> Stmt:
            greater = ir.Cast(ir.Compare("gt", one, other), dtypes.i64)
            return self.sign.set(greater - ir.Cast(ir.Compare("lt", one, other), dtypes.i64))

        return let(self.b, a, lambda one: let(self.b, c, lambda other: store(one, other)))


@register
class RunStarts(OpDef):
    """Whether row order[i] of x differs from row order[i-1]; true for the first."""

    name = "run_starts"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, order = common.tensor_types(self.name, inputs, 2)
        rows_type(self.name, x)
        common.require_dtype(self.name, order, dtypes.i64)
        if order.rank != 1:
            raise type_error(self.name, f"{order} is no vector of indices")
        return [TensorType(dtypes.bool_, order.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, order = (np.asarray(v) for v in inputs)
        rows = key_rows(x)
        pairs = zip(order[1:], order[:-1])
        found = [True, *(rows[a] != rows[c] for a, c in pairs)] if len(order) else []
        return [np.array(found, np.bool_)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, order = inputs
        assert x is not None and order is not None
        out = b.buffer("starts", dtypes.bool_, order.shape)

        def key(i: arith.Expr, column: arith.Expr) -> Expr:
            row = safe_index(order[i], x.shape[0])
            return order_key(load_indexed(x, (row, column), [0]))

        def body(i: arith.Expr) -> Stmt:
            before = arith.maximum(i - 1, 0)
            differ = Scalar(b, "differ", dtypes.bool_)
            is_other: Callable[[arith.Expr], Expr] = lambda c: ir.Compare(  # noqa: E731
                "ne", key(i, c), key(before, c)
            )
            step = lambda c: differ.set(differ.value | is_other(c))  # noqa: E731
            ends = ir.Store(out, (i,), differ.value)
            start = differ.set(compare("eq", i, 0))
            return with_scalars([differ], start, loop(b, x.shape[1], step), ends)

        common.stage(b, "starts", order.shape, body)
        return [out]

    def samples(self) -> list[Sample]:
        def sorted_rows(x: np.ndarray) -> np.ndarray:
            rows = key_rows(x)
            return np.array(sorted(range(len(rows)), key=rows.__getitem__), np.int64)

        return [Sample((x, sorted_rows(x)), {}) for x in sample_rows()]
