"""Decision-tree ensembles: every row walks every tree, and the weights of its leaves are combined.

In: rows of features and tables of nodes (made by ops/tree_tables.py, constants of the model). Out:
the score of each target, a row of `graph.opdef.TABLE`. The loops are in ops/tree_loops.py. Called
by ops/__init__.py; ONNX's operators become it in frontends/onnx/trees.py.

Tables are trusted: they come from an importer that has checked the model's trees. The number of
features is checked when the model runs.
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
from ingot.ops.tree_loops import TreeLoops
from ingot.ops.tree_tables import (
    COMPARES,
    FORMS,
    GENERAL,
    Tables,
    equal_flag,
    sample_tables,
    word_type,
)

COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum}
TOO_FEW_FEATURES = "tree_ensemble: the trees read more features than a row has"


@register
class TreeEnsemble(OpDef):
    """scores[i, k] = the weights of target k in the leaves that row i reaches, one for each tree,
    combined by `aggregate` (add, min, max) in the order of the trees. A target that no leaf gives a
    weight has score 0.

    Operands: rows, nodes, roots, steps, and leaf weights. The last is one weight for each node
    (internal nodes have none that is used), with `targets` of nodes where there are several; or a
    row of weights for each leaf, with `targets` the row of each node (attribute `dense`).
    """

    name = "tree_ensemble"
    kind = Kind.OPAQUE
    family = "trees"
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        if len(inputs) != 6:
            raise type_error(self.name, f"expects 6 operands, got {len(inputs)}")
        x, nodes, roots, steps, weights = common.tensor_types(self.name, inputs[:5], 5)
        common.require_dtype(self.name, x, dtypes.f32, dtypes.f64)
        common.require_dtype(self.name, nodes, word_type(x.dtype))
        if attrs["form"] not in FORMS or attrs["aggregate"] not in COMBINE:
            raise type_error(self.name, f"form {attrs['form']!r}, {attrs['aggregate']!r}")
        ranks = (x.rank, nodes.rank, roots.rank, steps.rank, weights.rank)
        if ranks != (2, 2, 1, 1, 1 + bool(attrs["dense"])):
            raise type_error(self.name, f"operands of ranks {ranks}")
        return [TensorType(weights.dtype, (x.shape[0], arith.Const(attrs["outputs"])))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if set(batched) == {0} else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, nodes, roots, steps, weights = (np.asarray(v) for v in inputs[:5])
        targets = inputs[5]
        if attrs["features"] > x.shape[1] and len(x):
            raise common.run_failed(TOO_FEW_FEATURES)
        combine = COMBINE[attrs["aggregate"]]
        start = 0.0 if attrs["aggregate"] == "add" else np.inf
        start = -start if attrs["aggregate"] == "max" else start
        out = np.full((len(x), attrs["outputs"]), start, weights.dtype)
        every = np.arange(len(x))
        for tree in range(attrs["trees"]):
            at = np.full(len(x), roots[tree], np.int64)
            for _ in range(int(steps[tree])):
                at = _next(x, nodes, at, attrs)
            if attrs["dense"]:
                assert targets is not None
                out = combine(out, weights[targets[at]])
            else:
                column = np.zeros(len(x), np.int64) if targets is None else targets[at]
                out[every, column] = combine(out[every, column], weights[at])
        return [np.where(out == start, 0, out).astype(weights.dtype) if start else out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        have, want = arith.as_int(x.shape[1]), attrs["features"]
        enough: ir.Expr | None = None
        if have is None or have < want:
            enough = ir.Compare("ge", ir.Index(x.shape[1]), ir.value_of(want, dtypes.i64))
            few = ~enough & ir.Compare("gt", ir.Index(x.shape[0]), ir.value_of(0, dtypes.i64))
            b.check((), lambda: few, TOO_FEW_FEATURES)
        return [TreeLoops(b, inputs, outputs[0], attrs).emit(enough)]

    def samples(self) -> list[Sample]:
        found = [_sample(*row) for row in SAMPLED]
        first = found[0]
        narrow = np.ascontiguousarray(np.asarray(first.inputs[0])[:, :1])
        few = Sample((narrow, *first.inputs[1:]), first.attrs, fails=TOO_FEW_FEATURES)
        return [*found, few]


def _next(x: np.ndarray, nodes: np.ndarray, at: np.ndarray, attrs: Attrs) -> np.ndarray:
    """The child that each row goes to from its node `at`."""
    bits, form = attrs["feature_bits"], attrs["form"]
    word = nodes[at, 1].astype(np.uint64)
    limit = nodes[at, 0].view(x.dtype)
    value = x[np.arange(len(x)), (word & np.uint64((1 << bits) - 1)).astype(np.int64)]
    width = nodes.dtype.itemsize * 8
    sign = (word >> np.uint64(width - 1)).astype(bool)
    if form == GENERAL:
        equal = (word & np.uint64(equal_flag(nodes.dtype))) != 0
        go = np.where(equal, value == limit, value <= limit) | (sign & np.isnan(value))
        return nodes[at, np.where(go, 2, 3)].astype(np.int64)
    if form == "mixed":
        value = np.where(sign, -value, value)
        word = word & np.uint64((1 << (width - 1)) - 1)
    go = value > limit if COMPARES[form] == "gt" else value <= limit
    return at + (word >> np.uint64(bits)).astype(np.int64) + go


# rows, features, trees, depth, targets, dense, form, aggregate, element type
SAMPLED = (
    (19, 3, 9, 2, 1, False, "le", "add", dtypes.f32),
    (3, 2, 1, 12, 3, False, "gt", "add", dtypes.f32),
    (9, 2, 2, 2, 3, True, "mixed", "add", dtypes.f32),
    (9, 3, 2, 2, 2, False, GENERAL, "max", dtypes.f32),
    (1, 3, 2, 2, 2, True, "mixed", "min", dtypes.f64),
    (0, 3, 1, 0, 1, False, "le", "add", dtypes.f32),
)


def _sample(
    rows: int, features: int, trees: int, depth: int, targets: int, dense: bool, form: str,
    aggregate: str, dtype: dtypes.DType,
) -> Sample:  # fmt: skip
    rng = common.rng(rows, trees, form)
    x = np.asarray(rng.standard_normal((rows, features))).astype(dtype.numpy)
    x[rng.random(x.shape) < 0.1] = np.nan
    made: Tables = sample_tables(rng, features, trees, depth, targets, dense, form, aggregate, x)
    return Sample((x, *made.arrays), made.attrs)
