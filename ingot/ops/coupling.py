"""Probabilities of classes from those of pairs, as libsvm couples them.

In: the probability of the first class of each pair, (0, 1), (0, 2), … Out: one row of
`graph.opdef.TABLE`. Called by ops/__init__.py; frontends/onnx/svm.py uses it.

The method is the second of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification
by Pairwise Coupling" (2004): minimise Σᵢ Σⱼ (r_ji p_i - r_ij p_j)², p on the simplex, by a fixed
point iteration of at most 100 rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common

ROUNDS = 100
TOLERANCE = 0.005  # of the optimality condition, for all classes together


@register
class PairwiseCoupling(OpDef):
    """p[n, C] from r[n, C(C-1)/2]; `classes` is C."""

    name = "pairwise_coupling"
    kind = Kind.OPAQUE
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (r,) = common.tensor_types(self.name, inputs, 1)
        common.require_dtype(self.name, r, dtypes.f32)
        classes = attrs["classes"]
        if r.rank != 2 or classes < 1:
            raise type_error(self.name, f"{r} for {classes} classes")
        pairs = arith.Const(classes * (classes - 1) // 2)
        common.require_same_dim(self.name, r.shape[1], pairs, f"{classes} classes")
        return [TensorType(r.dtype, (r.shape[0], arith.Const(classes)))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        given, classes = np.asarray(inputs[0]), attrs["classes"]
        return [
            np.array([_coupled(row, classes) for row in given], np.float32).reshape(-1, classes)
        ]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        r = inputs[0]
        assert r is not None
        p = b.buffer("p", r.dtype, outputs[0].shape)
        common.stage(
            b, "coupling", (r.shape[0],), lambda n: _Row(b, r, p, n, attrs["classes"]).body()
        )
        return [p]

    def samples(self) -> list[Sample]:
        chance = lambda *shape: np.abs(np.sin(common.floats(*shape))) * 0.98 + 0.01  # noqa: E731
        return [
            Sample((chance(3, 3).astype(np.float32),), {"classes": 3}, rtol=1e-4, atol=1e-5),
            Sample((chance(2, 1).astype(np.float32),), {"classes": 2}, rtol=1e-4, atol=1e-5),
            Sample((chance(0, 6).astype(np.float32),), {"classes": 4}),
        ]


def _coupled(chances: np.ndarray, classes: int) -> np.ndarray:
    r = np.zeros((classes, classes), np.float32)
    above = np.triu_indices(classes, 1)
    r[above] = chances
    r.T[above] = 1 - chances
    q = -(r.T * r)
    q[np.diag_indices(classes)] = (r**2).sum(axis=0)
    p = np.full(classes, 1 / classes, np.float32)
    for _ in range(ROUNDS):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < TOLERANCE / classes:
            break
        for i in range(classes):
            diff = (pqp - qp[i]) / q[i, i]
            p[i] += diff
            pqp = (pqp + diff * (diff * q[i, i] + 2 * qp[i])) / (1 + diff) / (1 + diff)
            qp = (qp + diff * q[i]) / (1 + diff)
            p /= 1 + diff
    return p


class _Row:
    """The loops of one row."""

    def __init__(self, b: Build, r: Buffer, p: Buffer, row: arith.Expr, classes: int):
        self.b, self.r, self.p, self.row, self.classes = b, r, p, row, classes
        square, line, one = (classes, classes), (classes,), (1,)
        self.chance, self.q = self.scratch("chance", square), self.scratch("q", square)
        self.qp, self.pqp, self.worst = (
            self.scratch("qp", line), self.scratch("pqp", one), self.scratch("worst", one),
        )  # fmt: skip
        self.left = self.scratch("left", one, dtypes.i64)

    def scratch(
        self, name: str, shape: tuple[int, ...], dtype: dtypes.DType = dtypes.f32
    ) -> Buffer:
        dims = tuple(arith.Const(n) for n in shape)
        return Buffer(self.b.fresh(name), dtype, dims, ir.THREAD)

    def each(self, body: Callable[[arith.Expr], Stmt], start: arith.IntLike = 0) -> Stmt:
        """The body for every class from `start` on."""
        var = arith.Var(self.b.fresh("c"))
        return ir.For(var.name, arith.wrap(start), arith.Const(self.classes), body(var))

    def body(self) -> Stmt:
        left, zero = self.left, arith.Const(0)
        more = ir.Compare("gt", left[0], ir.Lit(0, dtypes.i64))
        stmts = ir.seq(
            self.each(lambda i: self.each(lambda j: self.pair(i, j), i + 1)),
            self.each(self.quadratic),
            ir.Store(left, (zero,), ir.Lit(ROUNDS, dtypes.i64)),
            ir.While(more, self.round()),
        )
        for buffer in (self.chance, self.q, self.qp, self.pqp, self.worst, left):
            stmts = ir.Alloc(buffer, stmts)
        return stmts

    def pair(self, i: arith.Expr, j: arith.Expr) -> Stmt:
        at = i * (2 * self.classes - i - 1) // 2 + (j - i - 1)
        chance = self.r[self.row, at]
        rest = ir.Lit(1.0, dtypes.f32) - chance
        return ir.seq(ir.Store(self.chance, (i, j), chance), ir.Store(self.chance, (j, i), rest))

    def quadratic(self, i: arith.Expr) -> Stmt:
        """Row i of Q, and the first guess of p."""
        zero, chance = ir.Lit(0.0, dtypes.f32), self.chance

        def element(j: arith.Expr) -> Stmt:
            square = self.q[i, i] + chance[j, i] * chance[j, i]
            product = -(chance[j, i] * chance[i, j])
            stores = ir.seq(ir.Store(self.q, (i, i), square), ir.Store(self.q, (i, j), product))
            return ir.If(ir.Compare("ne", ir.Index(i), ir.Index(j)), stores)

        guess = ir.Store(self.p, (self.row, i), ir.Lit(1 / self.classes, dtypes.f32))
        return ir.seq(ir.Store(self.q, (i, i), zero), self.each(element), guess)

    def round(self) -> Stmt:
        zero, nothing = arith.Const(0), ir.Lit(0.0, dtypes.f32)
        error = lambda i: ir.Unary("abs", self.qp[i] - self.pqp[0])  # noqa: E731
        most = lambda i: ir.Binary("max", self.worst[0], error(i))  # noqa: E731
        good = ir.Compare("lt", self.worst[0], ir.Lit(TOLERANCE / self.classes, dtypes.f32))
        one = ir.Lit(1, dtypes.i64)
        go_on = ir.seq(self.each(self.update), ir.Store(self.left, (zero,), self.left[0] - one))
        stop = ir.Store(self.left, (zero,), ir.Lit(0, dtypes.i64))
        return ir.seq(
            ir.Store(self.pqp, (zero,), nothing),
            self.each(self.product),
            ir.Store(self.worst, (zero,), nothing),
            self.each(lambda i: ir.Store(self.worst, (zero,), most(i))),
            ir.If(good, stop, go_on),
        )

    def product(self, i: arith.Expr) -> Stmt:
        """(Q p)[i], and its part of p·Qp."""
        sums = lambda j: self.qp[i] + self.q[i, j] * self.p[self.row, j]  # noqa: E731
        total = self.pqp[0] + self.p[self.row, i] * self.qp[i]
        return ir.seq(
            ir.Store(self.qp, (i,), ir.Lit(0.0, dtypes.f32)),
            self.each(lambda j: ir.Store(self.qp, (i,), sums(j))),
            ir.Store(self.pqp, (arith.Const(0),), total),
        )

    def update(self, i: arith.Expr) -> Stmt:
        """Move p[i], and normalise."""
        diff, scale = (ir.Ref(self.b.fresh(n), dtypes.f32) for n in ("diff", "scale"))
        own, qii, qpi = self.p[self.row, i], self.q[i, i], self.qp[i]
        pqp = (self.pqp[0] + diff * (diff * qii + qpi * 2.0)) / scale / scale

        def normalize(j: arith.Expr) -> Stmt:
            qp = (self.qp[j] + diff * self.q[i, j]) / scale
            p: Expr = self.p[self.row, j] / scale
            return ir.seq(ir.Store(self.qp, (j,), qp), ir.Store(self.p, (self.row, j), p))

        stmts = ir.seq(
            ir.Store(self.p, (self.row, i), own + diff),
            ir.Store(self.pqp, (arith.Const(0),), pqp),
            self.each(normalize),
        )
        inner = ir.Let(scale.name, diff + 1.0, stmts)
        return ir.Let(diff.name, (self.pqp[0] - qpi) / qii, inner)
