"""The loops of `tree_ensemble` (ops/trees.py). In: buffers of rows and tables. Out: one block.

    for tile of rows:                       # parallel
        for tree:                           # its table stays in cache for the whole tile
            for group of 8 rows:            # 8 walks in flight hide the latency of loads
                8 times at[lane] = root
                for step: 8 times at[lane] = child of at[lane]
                8 times scores[row] += weight of at[lane]
        for row of an incomplete group:
            for group of 8 trees:           # one row: the walks of 8 trees are in flight
                …

A walk has no branch: a step computes the next node, and a leaf leads to itself. Trees of even depth
take a fixed number of steps; in others a walk goes on until no lane moves. A row adds up its trees
in their order on either path, so scores depend neither on the batch nor on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs
from ingot.graph.types import TensorType
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.tree_tables import COMPARES, GENERAL, LANES, equal_flag

STEPS_BETWEEN_TESTS = 2  # steps of a deep walk between tests whether all lanes are done; heuristic
MIN_GROUPS = 2  # groups of rows in a tile: less is not worth a thread's turn; heuristic
SMALL_TILES, LARGE_TILES = 64, 16  # tiles of a large batch: of trees that fit caches, of others
CACHED_STEPS = 16  # paths up to this length: the tables of a tree fit the first-level cache

At = Callable[[arith.Expr], arith.Expr]


class TreeLoops:
    def __init__(self, b: Build, inputs: Sequence[Buffer | None], output: TensorType, attrs: Attrs):
        x, nodes, roots, steps, weights, targets = inputs
        assert x is not None and nodes is not None and roots is not None
        assert steps is not None and weights is not None
        self.b, self.attrs = b, attrs
        self.x, self.nodes, self.roots = x, nodes, roots
        self.steps, self.weights, self.targets = steps, weights, targets
        self.out = b.buffer("scores", output.dtype, output.shape)
        self.rows = x.shape[0]

    def emit(self, may_run: Expr | None = None) -> Buffer:
        """`may_run`: whether the rows have the features that the trees read."""
        cap = SMALL_TILES if self.attrs["steps"] <= CACHED_STEPS else LARGE_TILES
        groups = arith.maximum(self.rows // (LANES * cap), MIN_GROUPS)
        tile = groups * LANES

        def body(at: arith.Expr) -> Stmt:
            made = self.tile(at, groups)
            return made if may_run is None else ir.If(may_run, made)

        common.stage(self.b, "trees", ((self.rows + tile - 1) // tile,), body)
        return self.out

    def tile(self, tile: arith.Expr, groups: arith.Expr) -> Stmt:
        g, h, t = (arith.Var(self.b.fresh(n)) for n in ("g", "h", "tree"))
        of = lambda group: (tile * groups + group) * LANES  # noqa: E731  the first row of a group
        whole = ir.Compare("le", ir.Index(of(h) + LANES), ir.Index(self.rows))
        by_rows = ir.serial(h.name, groups, ir.If(whole, self.rows_of_group(of(h), t)))
        by_trees = ir.serial(t.name, self.attrs["trees"], by_rows)
        some = ir.Compare("ge", ir.Index(self.rows), ir.value_of(LANES, dtypes.i64))
        last = ir.serial(g.name, groups, self.rest_of_group(of(g)))
        return ir.seq(
            self.each_row(tile, groups, self.start),
            ir.If(some, by_trees),
            last,
            self.finish(tile, groups),
        )

    # --- every element of the scores ------------------------------------------------------------

    def each_row(self, tile: arith.Expr, groups: arith.Expr, value: Callable[[Expr], Expr]) -> Stmt:
        i, k = (arith.Var(self.b.fresh(n)) for n in ("i", "k"))
        row = tile * groups * LANES + i
        store = ir.Store(self.out, (row, k), value(self.out[row, k]))
        inside = ir.Compare("lt", ir.Index(row), ir.Index(self.rows))
        inner = ir.If(inside, ir.serial(k.name, self.out.shape[1], store))
        return ir.serial(i.name, groups * LANES, inner)

    def start(self, old: Expr) -> Expr:
        value = {"add": 0.0, "min": float("inf"), "max": -float("inf")}[self.attrs["aggregate"]]
        return ir.Lit(value, self.out.dtype)

    def finish(self, tile: arith.Expr, groups: arith.Expr) -> Stmt | None:
        """Targets without a weight, of which min and max leave the identity, score 0."""
        if self.attrs["aggregate"] == "add":
            return None
        zero = ir.Lit(0.0, self.out.dtype)
        return self.each_row(
            tile,
            groups,
            lambda old: ir.Select(ir.Compare("eq", old, self.start(old)), zero, old),
        )

    # --- walks ----------------------------------------------------------------------------------

    def rows_of_group(self, row: arith.Expr, tree: arith.Expr) -> Stmt:
        """Eight rows walk one tree."""
        return self.walk(lambda r: row + r, lambda r: tree, self.steps[tree])

    def rest_of_group(self, first: arith.Expr) -> Stmt:
        """Rows that are no whole group, one by one, walk eight trees at a time."""
        i, t = (arith.Var(self.b.fresh(n)) for n in ("i", "trees"))
        row = first + i
        steps: Expr = self.steps[t * LANES]
        for lane in range(1, LANES):
            steps = ir.Binary("max", steps, self.steps[t * LANES + lane])
        body = self.walk(lambda r: row, lambda r: t * LANES + r, steps)
        walks = ir.serial(t.name, self.roots.shape[0] // LANES, body)
        partial = ir.Compare("gt", ir.Index(first + LANES), ir.Index(self.rows))
        inside = ir.Compare("lt", ir.Index(row), ir.Index(self.rows))
        return ir.If(partial, ir.serial(i.name, LANES, ir.If(inside, walks)))

    def walk(self, row: At, tree: At, steps: Expr) -> Stmt:
        """Eight walks from the roots of `tree(lane)` with the features of `row(lane)`."""
        at = Buffer(self.b.fresh("at"), dtypes.i64, (arith.Const(LANES),), ir.THREAD)
        begin = self.lanes(lambda r: ir.Store(at, (r,), _i64(self.roots[tree(r)])))
        step = lambda: self.lanes(lambda r: self.step(at, r, row(r)))  # noqa: E731
        end = self.lanes(lambda r: self.add_leaf(at[r], row(r)))
        if not self.attrs["deep"]:
            n = arith.Var(self.b.fresh("step"))
            walks: Stmt = ir.serial(n.name, ir.index_of(_i64(steps)), step())
        else:
            walks = self.until_still(at, step)
        return ir.Alloc(at, ir.seq(begin, walks, end))

    def until_still(self, at: Buffer, step: Callable[[], Stmt]) -> Stmt:
        """Steps while some lane moves: only leaves lead to themselves."""
        moves = Buffer(self.b.fresh("moves"), dtypes.bool_, (arith.Const(1),), ir.THREAD)
        zero = arith.Const(0)
        before = [ir.Ref(self.b.fresh("was"), dtypes.i64) for _ in range(LANES)]
        changed: Expr = ir.Compare("ne", before[0], at[0])
        for lane in range(1, LANES):
            changed = changed | ir.Compare("ne", before[lane], at[lane])
        steps = [step() for _ in range(STEPS_BETWEEN_TESTS)]
        body = ir.seq(*steps, ir.Store(moves, (zero,), changed))
        for lane, was in enumerate(before):
            body = ir.Let(was.name, at[lane], body)
        start = ir.Store(moves, (zero,), ir.Lit(True, dtypes.bool_))
        return ir.Alloc(moves, ir.seq(start, ir.While(moves[0], body)))

    def lanes(self, body: Callable[[arith.Expr], Stmt]) -> Stmt:
        lane = arith.Var(self.b.fresh("lane"))
        zero, count = arith.Const(0), arith.Const(LANES)
        return ir.For(lane.name, zero, count, body(lane), ir.LoopKind.UNROLL)

    def step(self, at: Buffer, lane: arith.Expr, row: arith.Expr) -> Stmt:
        """at[lane] = the child that the row goes to. Leaves compare with NaN and have offset 0."""
        form, bits = self.attrs["form"], self.attrs["feature_bits"]
        node, word = (
            ir.Ref(self.b.fresh("node"), dtypes.i64),
            ir.Ref(self.b.fresh("word"), dtypes.i64),
        )
        feature = word & ((1 << bits) - 1)
        value: Expr = self.x[row, ir.index_of(feature)]
        limit = ir.Bitcast(self.nodes[node, 0], self.x.dtype)
        if form == GENERAL:
            chosen = self.general_child(node, word, value, limit)
        else:
            offset: Expr = word
            if form == "mixed":
                value, offset = self.signed(word, value)
            go = ir.Compare(COMPARES[form], value, limit)
            step = ir.Binary("shr", offset, ir.value_of(bits, dtypes.i64))
            chosen = node + step + ir.Cast(go, dtypes.i64)
        store = ir.Store(at, (lane,), chosen)
        load = ir.Let(word.name, _i64(self.nodes[node, 1]), store)
        return ir.Let(node.name, at[lane], load)

    def signed(self, word: Expr, value: Expr) -> tuple[Expr, Expr]:
        """(the value, negated where the word's top bit is set; the word without that bit)"""
        type = self.nodes.dtype
        top = 1 << (type.bits - 1)
        signed = dtypes.i32 if type.bits == 32 else dtypes.i64
        flag = ir.Cast(word, signed) & ir.value_of(-top, signed)
        flipped = ir.Bitcast(ir.Binary("xor", ir.Bitcast(value, signed), flag), value.dtype)
        return flipped, word & (top - 1)

    def general_child(self, node: Expr, word: Expr, value: Expr, limit: Expr) -> Expr:
        bits = self.nodes.dtype.bits
        zero = ir.value_of(0, dtypes.i64)
        equal = ir.Compare("ne", word & equal_flag(self.nodes.dtype.numpy), zero)
        top = -(1 << 63) if bits == 64 else 1 << (bits - 1)
        missing = ir.Compare("ne", word & top, zero)
        less = ir.Compare("lt", value, limit) & ~equal
        go = less | ir.Compare("eq", value, limit) | (missing & ir.Unary("isnan", value))
        side = ir.Select(go, ir.value_of(2, dtypes.i64), ir.value_of(3, dtypes.i64))
        return _i64(self.nodes[node, ir.index_of(side)])

    def add_leaf(self, leaf: Expr, row: arith.Expr) -> Stmt:
        op = self.attrs["aggregate"]
        if not self.attrs["dense"]:
            targets = self.targets
            column = arith.Const(0) if targets is None else ir.index_of(_i64(targets[leaf]))
            sum = ir.Binary(op, self.out[row, column], self.weights[leaf])
            return ir.Store(self.out, (row, column), sum)
        assert self.targets is not None
        k = arith.Var(self.b.fresh("k"))
        own = ir.Ref(self.b.fresh("own"), dtypes.i64)
        sum = ir.Binary(op, self.out[row, k], self.weights[own, k])
        loop = ir.serial(k.name, self.out.shape[1], ir.Store(self.out, (row, k), sum))
        return ir.Let(own.name, _i64(self.targets[leaf]), loop)


def _i64(e: Expr) -> Expr:
    return e if e.dtype is dtypes.i64 else ir.Cast(e, dtypes.i64)
