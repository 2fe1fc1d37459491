"""Trees → tables of nodes that compiled code walks. In: a `Forest`, checked. Out: `Tables`, the
operands and attributes of the operator `tree_ensemble`. Called by front ends and by its samples.

A node is two words of the width of a feature: the threshold's bits, and `offset << bits | feature`.
Its children are adjacent: the next node is at + offset + (feature <= threshold). A leaf has offset
0 and the threshold NaN, for which every comparison is false, so it leads to itself and rows may
take more steps than their path has. Sibling pairs are in depth-first order, the larger subtree
first, so that a path mostly stays in a cache line.

| form | next node | for trees whose |
|---|---|---|
| le | at + offset + (x <= t) | missing values (NaN) take the false branch |
| gt | at + offset + (x > t) | missing values take the true branch |
| mixed | at + offset + (±x <= ±t) | nodes differ in that: the sign is the word's top bit |
| general | both children in the node, 4 words | nodes test equality or membership, or are many |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType

LANES = 8  # walks in flight at once in compiled code: rows of one tree, or trees of one row
LE, LT, GE, GT, EQ, NE, LEAF, MEMBER = range(8)  # what a node tests
GENERAL = "general"
COMPARES = {"le": "le", "gt": "gt", "mixed": "le"}
FORMS = (*COMPARES, GENERAL)
SHALLOW_STEPS = 8  # trees up to this depth are walked without a test for leaves; heuristic
WASTED = 1.25  # of deeper ones, how many steps more than a mean path is worth no test; heuristic


def word_type(dtype: DType) -> DType:
    """The element type of node tables for features of `dtype`."""
    return dtypes.u32 if dtype is dtypes.f32 else dtypes.u64


def equal_flag(word: np.dtype) -> int:
    """The bit of a general node that tests for equality; the top bit is for missing values."""
    return 1 << (word.itemsize * 8 - 2)


class NotTrees(ValueError):
    """The nodes do not form trees; the message says why."""


@dataclass
class Forest:
    """Nodes of all trees as arrays. Children are positions in these arrays; those of a leaf are
    not read. A weight belongs to a leaf and a target."""

    feature: np.ndarray
    value: np.ndarray  # the threshold
    test: np.ndarray  # LE … MEMBER
    yes: np.ndarray
    no: np.ndarray
    missing_is_yes: np.ndarray
    roots: np.ndarray
    weight_leaf: np.ndarray
    weight_target: np.ndarray
    weight: np.ndarray
    targets: int
    sets: dict[int, np.ndarray] = field(default_factory=dict)  # of MEMBER nodes

    def levels(self) -> list[np.ndarray]:
        """The nodes of each depth, from the roots on; NotTrees where one is reached twice."""
        count, seen = 0, np.zeros(len(self.test), bool)
        found, now = [], self.roots
        while len(now):
            count += len(now)
            seen[now] = True
            if count > len(seen):
                break
            found.append(now)
            inner = now[self.test[now] != LEAF]
            now = np.concatenate([self.yes[inner], self.no[inner]])
        if count != np.count_nonzero(seen):
            raise NotTrees("the nodes form a cycle, or a node has two parents")
        return found


@dataclass
class Tables:
    """Operands after the rows, and attributes, of `tree_ensemble`."""

    nodes: np.ndarray
    roots: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    targets: np.ndarray | None
    attrs: dict[str, Any]

    @property
    def arrays(self) -> tuple[np.ndarray | None, ...]:
        return self.nodes, self.roots, self.steps, self.weights, self.targets


def make_tables(forest: Forest, dtype: DType, aggregate: str, form: str = "") -> Tables:
    """The tables for features of `dtype`; `form` is chosen unless it is given."""
    return _Maker(forest, dtype, aggregate, form).tables()


class _Maker:
    def __init__(self, forest: Forest, dtype: DType, aggregate: str, form: str):
        self.forest, self.dtype, self.aggregate = forest, dtype, aggregate
        self.word = word_type(dtype).numpy
        self.levels = forest.levels()
        self.is_leaf = forest.test == LEAF
        self.normalize()
        self.place()
        inner = ~self.is_leaf
        self.features = int(forest.feature[inner].max(initial=-1)) + 1
        self.bits = max(1, (self.features - 1).bit_length())
        self.form = form or self.choose_form(inner)
        if self.form == GENERAL:
            self.bits = self.word.itemsize * 8 - 2

    def normalize(self) -> None:
        """Every test as `x <= t` or `x == t`; what is negated has its children swapped."""
        f = self.forest
        t = f.value.astype(self.dtype.numpy)
        below = np.nextafter(t, -np.inf, dtype=t.dtype)
        below = np.where(t == -np.inf, np.nan, below)  # nothing is less than that
        self.limit = np.where(np.isin(f.test, (LT, GE)), below, t)
        self.equal = np.isin(f.test, (EQ, NE))
        negated = np.isin(f.test, (GE, GT, NE)) & ~np.isnan(t) | (f.test == NE)
        self.yes = np.where(negated, f.no, f.yes)
        self.no = np.where(negated, f.yes, f.no)
        tracks = f.missing_is_yes.astype(bool)
        self.missing = np.where(negated, ~tracks & (f.test != NE), tracks)

    def place(self) -> None:
        """The slot of every node, and the slot of the first child of every inner node."""
        f, n = self.forest, len(self.is_leaf)
        self.size = np.zeros(n, np.int64)  # inner nodes of the subtree
        for level in reversed(self.levels):
            inner = level[~self.is_leaf[level]]
            self.size[inner] = 1 + self.size[self.yes[inner]] + self.size[self.no[inner]]
        ends = np.cumsum(2 + 2 * self.size[f.roots]) if len(f.roots) else np.zeros(0, np.int64)
        self.slot, self.pair = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.slot[f.roots] = ends - 2 - 2 * self.size[f.roots]
        self.pair[f.roots] = self.slot[f.roots] + 2
        self.slots = int(ends[-1]) if len(ends) else 0
        for level in self.levels:
            inner = level[~self.is_leaf[level]]
            yes, no = self.yes[inner], self.no[inner]
            self.slot[yes], self.slot[no] = self.pair[inner], self.pair[inner] + 1
            is_first = self.size[yes] >= self.size[no]
            large, small = np.where(is_first, yes, no), np.where(is_first, no, yes)
            self.pair[large] = self.pair[inner] + 2
            self.pair[small] = self.pair[large] + 2 * self.size[large]

    def choose_form(self, inner: np.ndarray) -> str:
        missing, f = self.missing[inner], self.forest
        has_all = missing.all() and len(missing) > 0
        form = "gt" if has_all else "mixed" if missing.any() else "le"
        room = self.word.itemsize * 8 - self.bits - (form == "mixed")
        offsets = (self.pair - self.slot)[inner]
        is_odd = self.equal[inner].any() or bool(f.sets) or np.isnan(self.limit[inner]).any()
        return GENERAL if is_odd or (offsets.max(initial=0) + 1) >> room else form

    def tables(self) -> Tables:
        f = self.forest
        nodes, cost = self.general_nodes() if self.form == GENERAL else self.pair_nodes()
        steps, mean = self.depths(cost)
        trees = len(f.roots)
        idle = np.full(-trees % LANES, self.slots, np.int64)  # a leaf of its own, without a weight
        roots = np.concatenate([self.slot[f.roots], idle]).astype(np.int32)
        steps = np.concatenate([steps, np.zeros(len(idle), np.int64)]).astype(np.int32)
        longest = int(steps.max(initial=0))
        is_deep = longest > SHALLOW_STEPS and steps.sum() > WASTED * mean
        weights, targets, is_dense = self.leaf_weights(len(nodes))
        attrs = {
            "form": self.form, "aggregate": self.aggregate, "feature_bits": self.bits,
            "features": self.features, "trees": trees, "outputs": f.targets, "dense": is_dense,
            "deep": bool(is_deep), "steps": longest,
        }  # fmt: skip
        return Tables(nodes, roots, steps, weights, targets, attrs)

    def depths(self, cost: np.ndarray) -> tuple[np.ndarray, float]:
        """The longest path of each tree, and the sum over trees of the mean path to a leaf."""
        f, n = self.forest, len(self.is_leaf)
        depth, tree = np.zeros(n, np.int64), np.zeros(n, np.int64)
        tree[f.roots] = np.arange(len(f.roots))
        for level in self.levels:
            inner = level[~self.is_leaf[level]]
            for child in (self.yes[inner], self.no[inner]):
                depth[child], tree[child] = depth[inner] + cost[inner], tree[inner]
        reached = np.concatenate([*self.levels, np.zeros(0, np.int64)]).astype(np.int64)
        leaves = reached[self.is_leaf[reached]]
        longest = np.zeros(len(f.roots), np.int64)
        np.maximum.at(longest, tree[leaves], depth[leaves])
        counts = np.bincount(tree[leaves], minlength=len(longest))
        sums = np.bincount(tree[leaves], depth[leaves], minlength=len(longest))
        return longest, float((sums / np.maximum(counts, 1)).sum())

    # --- nodes --------------------------------------------------------------------------------

    def blank(self, width: int, extra: int) -> np.ndarray:
        """Leaves in every slot and one for idle lanes; then room for `extra` nodes."""
        nodes = np.zeros((self.slots + 1 + extra, width), self.word)
        nodes[:, 0] = np.array(np.nan, self.dtype.numpy).view(self.word)
        if width == 4:
            nodes[:, 2] = nodes[:, 3] = np.arange(len(nodes))
        return nodes

    def reached_inner(self) -> np.ndarray:
        reached = np.concatenate([*self.levels, np.zeros(0, np.int64)]).astype(np.int64)
        return reached[~self.is_leaf[reached]]

    def pair_nodes(self) -> tuple[np.ndarray, np.ndarray]:
        nodes, inner = self.blank(2, 0), self.reached_inner()
        missing = self.missing[inner]
        is_gt = missing if self.form == "mixed" else np.full(len(inner), self.form == "gt")
        # the child of a comparison that holds comes second: of x <= t it is `yes`, of x > t `no`
        second, first = self.yes[inner], self.no[inner]
        second, first = np.where(is_gt, first, second), np.where(is_gt, second, first)
        self.slot[first], self.slot[second] = self.pair[inner], self.pair[inner] + 1
        limit = self.limit[inner]
        flag = np.zeros(len(inner), np.uint64)
        if self.form == "mixed":  # x > t is -x < -t
            down = np.nextafter(-limit, np.array(-np.inf, limit.dtype))
            down = np.where(limit == np.inf, np.nan, down)
            limit = np.where(is_gt, down, limit)
            flag = is_gt.astype(np.uint64) << np.uint64(self.word.itemsize * 8 - 1)
        at, offset = self.slot[inner], (self.pair - self.slot)[inner].astype(np.uint64)
        feature = self.forest.feature[inner].astype(np.uint64)
        nodes[at, 0] = np.ascontiguousarray(limit.astype(self.dtype.numpy)).view(self.word)
        nodes[at, 1] = (flag | offset << np.uint64(self.bits) | feature).astype(self.word)
        return nodes, np.ones(len(self.is_leaf), np.int64)

    def general_nodes(self) -> tuple[np.ndarray, np.ndarray]:
        f, inner = self.forest, self.reached_inner()
        sets = {v: f.sets[v] for v in inner[f.test[inner] == MEMBER].tolist()}
        nodes = self.blank(4, sum(max(0, 2 * len(s) - 2) for s in sets.values()))
        top = np.uint64(self.word.itemsize * 8 - 1)
        flags = self.missing[inner].astype(np.uint64) << top
        flags |= self.equal[inner].astype(np.uint64) * np.uint64(equal_flag(self.word))
        at = self.slot[inner]
        nodes[at, 0] = np.ascontiguousarray(self.limit[inner]).view(self.word)
        nodes[at, 1] = (flags | f.feature[inner].astype(np.uint64)).astype(self.word)
        nodes[at, 2], nodes[at, 3] = self.slot[self.yes[inner]], self.slot[self.no[inner]]
        cost, free = np.ones(len(self.is_leaf), np.int64), self.slots + 1
        for node, values in sets.items():
            members = np.unique(values.astype(self.dtype.numpy))
            free = self.search(nodes, node, members[~np.isnan(members)], free)
            cost[node] = 1 + max(0, len(members) - 1).bit_length()
        return nodes, cost

    def search(self, nodes: np.ndarray, node: int, members: np.ndarray, free: int) -> int:
        """A member test as a binary search: `x <= middle` down to one value, then `x == value`."""
        f, width = self.forest, self.word.itemsize * 8
        missing = int(self.missing[node]) << (width - 1)
        yes, no = int(self.slot[self.yes[node]]), int(self.slot[self.no[node]])
        todo = [(int(self.slot[node]), members)]
        while todo:
            at, values = todo.pop()
            word = int(f.feature[node]) | missing
            if len(values) <= 1:
                limit = values[0] if len(values) else np.nan
                children, word = (yes, no), word | equal_flag(self.word)
            else:  # a missing value goes left, down to a test that knows what to do with it
                middle = (len(values) - 1) // 2
                limit, children = values[middle], (free, free + 1)
                todo += [(free, values[: middle + 1]), (free + 1, values[middle + 1 :])]
                free += 2
            nodes[at, 0] = np.array(limit, self.dtype.numpy).view(self.word)
            nodes[at, 1:] = (word, *children)
        return free

    # --- weights ------------------------------------------------------------------------------

    def leaf_weights(self, slots: int) -> tuple[np.ndarray, np.ndarray | None, bool]:
        """(weights, targets or rows of nodes, whether a leaf has a row of weights)"""
        f = self.forest
        start = {"add": 0.0, "min": np.inf, "max": -np.inf}[self.aggregate]
        combine = {"add": np.add, "min": np.minimum, "max": np.maximum}[self.aggregate]
        leaf, target, weight = f.weight_leaf, f.weight_target, f.weight
        is_dense = bool(np.bincount(leaf).max(initial=0) > 1)
        if is_dense:  # unless several weights of a leaf are of one target
            key = leaf * f.targets + target
            is_dense = len(np.unique(key)) > len(np.unique(leaf))
        if not is_dense:
            weights = np.full(slots, start, self.dtype.numpy)
            combine.at(weights, self.slot[leaf], weight.astype(self.dtype.numpy))
            if f.targets == 1:
                return weights, None, False
            targets = np.zeros(slots, np.int32)
            targets[self.slot[leaf]] = target
            return weights, targets, False
        own, row = np.unique(leaf, return_inverse=True)
        weights = np.full((len(own) + 1, f.targets), start, self.dtype.numpy)
        combine.at(weights, (row, target), weight.astype(self.dtype.numpy))
        rows = np.full(slots, len(own), np.int32)
        rows[self.slot[own]] = np.arange(len(own))
        return weights, rows, True


def sample_tables(
    rng: np.random.Generator, features: int, trees: int, depth: int, targets: int, is_dense: bool,
    form: str, aggregate: str, x: np.ndarray,
) -> Tables:  # fmt: skip
    """Tables of random trees with paths of up to `depth` steps, for samples."""
    rows: list[list[float]] = []  # feature, value, test, yes, no, missing
    roots = []
    tests = (LE, LT, GE, GT, EQ, NE, MEMBER) if form == GENERAL else (LE,)
    for _ in range(trees):
        roots.append(len(rows))
        todo = [(depth, len(rows))]
        rows.append([0] * 6)
        while todo:
            left, at = todo.pop()
            if not left:
                rows[at] = [0, 0, LEAF, 0, 0, 0]
                continue
            missing = {"le": 0, "gt": 1}.get(form, int(rng.integers(2)))
            value = float(np.float32(rng.standard_normal()))
            kids = (len(rows), len(rows) + 1)
            rows[at] = [rng.integers(features), value, rng.choice(tests), *kids, missing]
            rows += [[0] * 6, [0] * 6]
            long = bool(rng.integers(2))
            short = left - 1 if depth < 6 and rng.random() < 0.7 else 0
            todo += [(left - 1 if long else short, kids[0]), (short if long else left - 1, kids[1])]
    table = np.array(rows, np.float64)
    leaves = np.flatnonzero(table[:, 2] == LEAF)
    per_leaf = targets if is_dense else 1
    weight = np.asarray(rng.standard_normal(len(leaves) * per_leaf))
    every = np.tile(np.arange(targets), len(leaves))
    target = every if is_dense else rng.integers(0, targets, len(leaves))
    ints = table.astype(np.int64)
    forest = Forest(
        ints[:, 0], table[:, 1], ints[:, 2], ints[:, 3], ints[:, 4], ints[:, 5],
        np.array(roots), np.repeat(leaves, per_leaf), target, weight, targets,
    )  # fmt: skip
    for node in np.flatnonzero(ints[:, 2] == MEMBER).tolist():
        forest.sets[node] = np.array([0.5, *x[:2, ints[node, 0]]])
    return make_tables(forest, dtypes.from_numpy(x.dtype), aggregate, form)
