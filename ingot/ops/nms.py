"""Non-maximum suppression: boxes of each class, best first, without those that overlap a better.

In: boxes (batch, n, 4), scores (batch, classes, n) and thresholds. Out: `nms_select` gives the
selected boxes of each class, `nms_rows` makes one table of them, whose length is a symbol bound
when the selection is known. Called through the operator table; imported from ONNX by
frontends/onnx/detection.py.

Candidates are a binary heap, whose keys join score and index into one integer: heapify is linear,
and only as many are sorted as selection looks at. A candidate is compared with the boxes selected
so far, eight at a time. Classes are independent and run in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import AxisKind, Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.sources import symbol_dims

LANES = 8  # selected boxes that a candidate is compared with at once
SIDES = 5  # of a box: y and x of its low corner, of its high corner, and its area
LAST = (1 << 31) - 1  # keys hold LAST - index, so that of equal scores the first box is the best
SHIFT = 1 << 32
LOWEST = -(1 << 63)  # below every key: ends the heap
I64, F32 = dtypes.i64, dtypes.f32


@register
class NmsSelect(OpDef):
    """(boxes, scores, iou threshold, score threshold or none, most boxes of a class) → indices of
    selected boxes (batch, class, limit), and their number. {center: boxes are (x, y, width, height)
    around their centre rather than two corners, limit: how many boxes of a class there is room
    for}."""

    name = "nms_select"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        boxes, scores, overlap, least, most = inputs
        boxes, scores = (common.tensor_type(self.name, t) for t in (boxes, scores))
        if boxes.rank != 3 or scores.rank != 3 or arith.as_int(boxes.shape[2]) != 4:
            raise type_error(self.name, f"boxes {boxes} and scores {scores} do not fit")
        for type, dtype in ((boxes, F32), (scores, F32), (overlap, F32), (least, F32), (most, I64)):
            if type is not None and type.dtype is not dtype:
                raise type_error(self.name, f"{type} is not of {dtype}")
        if any(t is not None and t.rank for t in (overlap, least, most)) or not overlap or not most:
            raise type_error(self.name, "thresholds and the number of boxes are scalars")
        common.require_same_dim(self.name, boxes.shape[0], scores.shape[0], "batches")
        common.require_same_dim(self.name, boxes.shape[1], scores.shape[2], "boxes and scores")
        room = (*scores.shape[:2], simplify(arith.wrap(attrs["limit"])))
        return [TensorType(I64, room), TensorType(I64, scores.shape[:2])]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        boxes, scores, overlap, least, most = inputs
        assert boxes is not None and scores is not None and overlap is not None
        (limit,) = common.numbers(self.name, [attrs["limit"]])
        batches, classes, _ = scores.shape
        found = np.zeros((batches, classes, limit), np.int64)
        counts = np.zeros((batches, classes), np.int64)
        for batch, c in np.ndindex(batches, classes):
            corners = corner_arrays(boxes[batch], bool(attrs.get("center", False)))
            row = scores[batch, c]
            order = sorted(range(len(row)), key=lambda i: (-row[i], i))
            kept: list[int] = []
            for i in order:
                if len(kept) >= min(int(most), limit):  # type: ignore[arg-type]
                    break
                if np.isnan(row[i]) or (least is not None and not row[i] > least):
                    continue
                if not any(overlap_of(corners[i], corners[k]) > overlap for k in kept):
                    kept.append(i)
            found[batch, c, : len(kept)], counts[batch, c] = kept, len(kept)
        return [found, counts]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        boxes, scores, overlap, least, most = inputs
        assert boxes is not None and scores is not None
        assert overlap is not None and most is not None
        corners = corner_stage(b, boxes, bool(attrs.get("center", False)))
        found = b.buffer("found", I64, outputs[0].shape)
        counts = b.buffer("counts", I64, outputs[1].shape)
        limit = outputs[0].shape[2]

        def unused(*point: arith.Expr) -> Stmt:
            return ir.Store(found, point, ir.Lit(0, I64))

        def body(batch: arith.Expr, c: arith.Expr) -> Stmt:
            one = ClassSelection(b, corners, batch, scores.shape[2], limit, overlap[()])
            wanted = ir.Binary("min", most[()], ir.Index(limit))

            def is_candidate(score: Expr) -> Expr:
                if least is None:
                    return ir.Compare("eq", score, score)
                return ir.Compare("gt", score, least[()])

            return one.statement(
                lambda i: scores[batch, c, i], is_candidate, wanted,
                lambda rank, index: ir.Store(found, (batch, c, rank), index),
                lambda count: ir.Store(counts, (batch, c), count),
            )  # fmt: skip

        common.stage(b, "unused", outputs[0].shape, unused)
        common.stage(b, "select", scores.shape[:2], body)
        return [found, counts]

    def samples(self) -> list[Sample]:
        def case(n: int, classes: int, most: int, least: float | None, **attrs: Any) -> Sample:
            boxes = common.rng(n, "boxes").uniform(0, 4, (2, n, 4)).astype(np.float32)
            scores = common.rng(n, "scores").integers(0, 9, (2, classes, n)) / np.float32(9)
            limits = common.scalar(0.3), None if least is None else common.scalar(least)
            operands = (boxes, scores.astype(np.float32), *limits, np.array(most))
            return Sample(operands, {"limit": min(n, 6), **attrs})

        return [case(23, 3, 6, None), case(17, 1, 4, 0.4, center=True), case(3, 2, 9, 0.1)]


def corner_arrays(boxes: np.ndarray, center: bool) -> np.ndarray:
    """(n, SIDES) of (n, 4)."""
    if center:
        x, y, w, h = boxes.T
        half = np.float32(2)
        sides = (y - h / half, x - w / half, y + h / half, x + w / half)
    else:
        y1, x1, y2, x2 = boxes.T
        sides = tuple(f(a, b) for f in (np.minimum, np.maximum) for a, b in ((y1, y2), (x1, x2)))
    return np.stack([*sides, (sides[2] - sides[0]) * (sides[3] - sides[1])], -1)


def overlap_of(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union; -1 where nothing intersects."""
    height = min(a[2], b[2]) - max(a[0], b[0])
    width = min(a[3], b[3]) - max(a[1], b[1])
    if not (height > 0 and width > 0 and a[4] > 0 and b[4] > 0):
        return -1.0
    return height * width / (a[4] + b[4] - height * width)


def corner_stage(b: Build, boxes: Buffer, center: bool) -> Buffer:
    """The sides of every box, (batch, SIDES, n)."""
    batches, n = boxes.shape[:2]
    corners = b.buffer("corners", F32, (batches, SIDES, n))

    def body(batch: arith.Expr, i: arith.Expr) -> Stmt:
        values = [boxes[batch, i, k] for k in range(4)]
        if center:
            x, y, w, h = values
            sides = [y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0]
        else:
            y1, x1, y2, x2 = values
            pairs = ((y1, y2), (x1, x2))
            sides = [ir.Binary(op, *pair) for op in ("min", "max") for pair in pairs]
        sides.append((sides[2] - sides[0]) * (sides[3] - sides[1]))
        return ir.seq(*(ir.Store(corners, (batch, arith.Const(k), i), v)
                        for k, v in enumerate(sides)))  # fmt: skip

    common.stage(b, "corners", (batches, n), body)
    return corners


class Cell:
    """A variable: a buffer of one element, private to the statement that allocates it."""

    def __init__(self, b: Build, name: str, dtype: dtypes.DType = I64):
        self.buffer = Buffer(b.fresh(name), dtype, (arith.Const(1),))

    @property
    def value(self) -> Expr:
        return self.buffer[0]

    def set(self, value: Expr) -> Stmt:
        return ir.Store(self.buffer, (arith.Const(0),), value)

    def step(self, by: int = 1) -> Stmt:
        return self.set(self.value + by)


class ClassSelection:
    """The statements that select the boxes of one class."""

    def __init__(
        self, b: Build, corners: Buffer, batch: arith.Expr, n: arith.Expr, limit: arith.Expr,
        overlap: Expr,
    ):  # fmt: skip
        self.b, self.corners, self.batch, self.n, self.overlap = b, corners, batch, n, overlap
        self.keys = Buffer(b.fresh("keys"), I64, (n + 2,))  # two LOWEST end it
        room = arith.ceildiv(limit, LANES) * LANES + LANES
        self.kept = Buffer(b.fresh("kept"), F32, (arith.Const(SIDES), room))
        names = ("size", "at", "next", "left", "number", "block")
        self.size, self.at, self.next, self.left, self.number, self.block = (
            Cell(b, name) for name in names
        )
        self.key, self.candidate = Cell(b, "key"), Cell(b, "candidate")
        self.is_hit = Cell(b, "is_hit", dtypes.bool_)

    def statement(self, score, is_candidate, wanted: Expr, store, finish) -> Stmt:  # type: ignore[no-untyped-def]
        body = ir.seq(
            self.collect(score, is_candidate), self.heapify(), self.number.set(ir.Lit(0, I64)),
            self.select(wanted, store), finish(self.number.value),
        )  # fmt: skip
        cells = (self.size, self.at, self.next, self.left, self.number, self.block, self.key,
                 self.candidate, self.is_hit)  # fmt: skip
        for buffer in (self.keys, self.kept, *(cell.buffer for cell in cells)):
            body = ir.Alloc(buffer, body)
        return body

    # --- the heap -------------------------------------------------------------------------------

    def put(self, at: Expr | arith.Expr, key: Expr) -> Stmt:
        return ir.Store(self.keys, (ir.index_of(at),), key)

    def collect(self, score, is_candidate) -> Stmt:  # type: ignore[no-untyped-def]
        """The keys of all candidates. Every key is stored; only those of candidates stay."""
        i = self.b.fresh("i")
        value = score(arith.Var(i))
        zero = ir.value_of(0.0, F32)
        plain = ir.Select(ir.Compare("eq", value, zero), zero, value)  # -0 equals 0
        bits = ir.Bitcast(plain, dtypes.i32)
        flipped = ir.Binary("xor", bits, ir.Lit(LAST, dtypes.i32))
        ordered = ir.Select(ir.Compare("lt", bits, ir.Lit(0, dtypes.i32)), flipped, bits)
        key = ir.Cast(ordered, I64) * SHIFT + (ir.Lit(LAST, I64) - ir.Index(arith.Var(i)))
        count = ir.Cast(is_candidate(value), I64)
        store = ir.seq(self.put(self.size.value, key), self.size.set(self.size.value + count))
        lowest = ir.Lit(LOWEST, I64)
        return ir.seq(
            self.size.set(ir.Lit(0, I64)), ir.serial(i, self.n, store),
            self.put(self.size.value, lowest), self.put(self.size.value + 1, lowest),
        )  # fmt: skip

    def larger_child(self) -> Stmt:
        """next = the child of `at` with the larger key; the end of the heap if it has none."""
        first = ir.Binary("min", self.at.value * 2 + 1, self.size.value)
        a, b = self.keys[self.next.value], self.keys[self.next.value + 1]
        second = ir.Select(ir.Compare("gt", b, a), self.next.value + 1, self.next.value)
        return ir.seq(self.next.set(first), self.next.set(second))

    def sift_down(self) -> Stmt:
        """`key` sinks from `at` to its place; larger keys below it rise."""
        rises = ir.Compare("gt", self.keys[self.next.value], self.key.value)
        rise = ir.seq(
            self.put(self.at.value, self.keys[self.next.value]),
            self.at.set(self.next.value),
            self.larger_child(),
        )
        return ir.seq(
            self.larger_child(), ir.While(rises, rise), self.put(self.at.value, self.key.value)
        )

    def heapify(self) -> Stmt:
        sink = ir.seq(
            self.left.step(-1), self.at.set(self.left.value),
            self.key.set(self.keys[self.left.value]), self.sift_down(),
        )  # fmt: skip
        some = ir.Compare("gt", self.left.value, ir.Lit(0, I64))
        half = ir.Binary("floordiv", self.size.value, ir.Lit(2, I64))
        return ir.seq(self.left.set(half), ir.While(some, sink))

    def pop(self) -> Stmt:
        """candidate = the index of the best box, which leaves the heap."""
        low = ir.Binary("and", self.keys[0], ir.Lit(SHIFT - 1, I64))
        return ir.seq(
            self.candidate.set(ir.Lit(LAST, I64) - low),
            self.size.step(-1),
            self.key.set(self.keys[self.size.value]),
            self.put(self.size.value, ir.Lit(LOWEST, I64)),
            ir.If(
                ir.Compare("gt", self.size.value, ir.Lit(0, I64)),
                ir.seq(self.at.set(ir.Lit(0, I64)), self.sift_down()),
            ),
        )

    # --- selection ------------------------------------------------------------------------------

    def select(self, wanted: Expr, store) -> Stmt:  # type: ignore[no-untyped-def]
        has_room = ir.Compare("lt", self.number.value, wanted)
        has_more = ir.Compare("gt", self.size.value, ir.Lit(0, I64))
        keep = ir.seq(
            self.keep(),
            store(ir.index_of(self.number.value), self.candidate.value),
            self.number.step(),
        )
        body = ir.seq(self.pop(), self.compare(), ir.If(~self.is_hit.value, keep))
        return ir.While(has_room & has_more, body)

    def side(self, k: int) -> Expr:
        return self.corners[self.batch, k, self.candidate.value]

    def compare(self) -> Stmt:
        """is_hit = does the candidate overlap a selected box?"""
        lane = self.b.fresh("lane")
        at = ir.index_of(self.block.value) + arith.Var(lane)
        zero = ir.value_of(0.0, F32)
        own = [self.side(k) for k in range(SIDES)]
        kept = [self.kept[arith.Const(k), at] for k in range(SIDES)]
        height, width = (
            ir.Binary("min", own[k + 2], kept[k + 2]) - ir.Binary("max", own[k], kept[k])
            for k in range(2)
        )
        shared = height * width
        hit: Expr = ir.Compare("gt", shared / (own[4] + kept[4] - shared), self.overlap)
        for size in (height, width, own[4], kept[4]):
            hit = hit & ir.Compare("gt", size, zero)
        found = self.is_hit.set(self.is_hit.value | hit)
        some = ir.Compare("lt", self.block.value, self.number.value)
        step = ir.seq(lanes(lane, found), self.block.step(LANES))
        return ir.seq(
            self.is_hit.set(ir.Lit(False, dtypes.bool_)),
            self.block.set(ir.Lit(0, I64)),
            ir.While(some & ~self.is_hit.value, step),
        )

    def keep(self) -> Stmt:
        """Append the candidate to the selected boxes; a new block of lanes begins with zeros, which
        overlap nothing."""
        at = ir.index_of(self.number.value)
        lane, zero = self.b.fresh("lane"), ir.value_of(0.0, F32)
        behind = at + arith.Var(lane)
        empty = [ir.Store(self.kept, (arith.Const(k), behind), zero) for k in range(SIDES)]
        rest = ir.Binary("mod", self.number.value, ir.Lit(LANES, I64))
        opens = ir.Compare("eq", rest, ir.Lit(0, I64))
        sides = [ir.Store(self.kept, (arith.Const(k), at), self.side(k)) for k in range(SIDES)]
        return ir.seq(ir.If(opens, lanes(lane, ir.seq(*empty))), *sides)


def lanes(var: str, body: Stmt) -> Stmt:
    return ir.For(var, arith.Const(0), arith.Const(LANES), body, ir.LoopKind.VECTOR)


@register
class NmsRows(OpDef):
    """(indices of selected boxes (batch, class, limit), their numbers) → rows (batch, class, box),
    i64[n, 3]; binds n."""

    name = "nms_rows"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        found, counts = common.tensor_types(self.name, inputs, 2)
        if found.rank != 3 or counts.rank != 2 or not found.dtype is counts.dtype is I64:
            raise type_error(self.name, f"{found} and {counts} are no selection")
        rows = symbol_dims(self.name, attrs, 1)
        return [TensorType(I64, (*rows, arith.Const(3)))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        found, counts = (np.asarray(x) for x in inputs)
        points = np.ndindex(*counts.shape)
        rows = [(*at, i) for at in points for i in found[at][: counts[at]]]
        return [np.array(rows, np.int64).reshape(-1, 3)]

    def bind(self, b: Build, inputs: Sequence[Buffer | None], attrs: Attrs) -> Buffer:
        found, counts = inputs
        assert found is not None and counts is not None
        total = b.compute("total", (1,), lambda _: ir.Lit(0, I64))

        def body(*point: arith.Expr) -> Stmt:
            return ir.Store(total, (arith.Const(0),), total[0] + count_of(found, counts, point))

        common.stage(b, "total", counts.shape, body, AxisKind.ORDERED)
        return total

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        found, counts = inputs
        assert found is not None and counts is not None
        out = b.buffer("rows", I64, outputs[0].shape)
        row = b.compute("row", (1,), lambda _: ir.Lit(0, I64))

        def body(batch: arith.Expr, c: arith.Expr) -> Stmt:
            i, at = b.fresh("i"), ir.index_of(row[0])
            point = (ir.Index(batch), ir.Index(c), found[batch, c, arith.Var(i)])
            stores = [ir.Store(out, (at, arith.Const(k)), v) for k, v in enumerate(point)]
            step = ir.Store(row, (arith.Const(0),), row[0] + 1)
            return ir.serial(
                i, ir.index_of(count_of(found, counts, (batch, c))), ir.seq(*stores, step)
            )

        common.stage(b, "rows", counts.shape, body, AxisKind.ORDERED)
        return [out]

    def samples(self) -> list[Sample]:
        found = common.integers(2, 3, 4, low=0)
        rows = [np.array([[0, 4, 2], [1, 0, 3]]), np.zeros((2, 3), np.int64)]
        return [Sample((found, counts), {"symbols": ("n0",)}) for counts in rows]


def count_of(found: Buffer, counts: Buffer, point: tuple[arith.Expr, ...]) -> Expr:
    """The number of boxes of a class, at most as many as there is room for."""
    inside = ir.Binary("min", counts[point], ir.Index(found.shape[2]))
    return ir.Binary("max", inside, ir.Lit(0, I64))
