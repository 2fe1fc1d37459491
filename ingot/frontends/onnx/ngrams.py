"""The converter of TfIdfVectorizer: counts of n-grams, by look-ups that the graph is made of.

The n-grams of the pool are a trie. Tokens become numbers of the pool's vocabulary; a prefix of t
tokens is a state, found among the pairs (state of t-1 tokens, token) by a look-up. A state that is
an n-gram of the pool has an output column, in which its occurrences are counted by a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.frontends.common.elements import cast, reshape
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.encoders import check_columns, positions
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value

MAX_SKIPS = 64  # each is a look-up of its own; heuristic
NONE = -1  # no token of the vocabulary, no state, no column


@dataclass
class _Level:
    """Prefixes of one length: the pairs that make them, ascending, and the column of each."""

    pairs: np.ndarray  # state of the prefix before * vocabulary + token
    columns: np.ndarray


@onnx_op("TfIdfVectorizer")
def tf_idf_vectorizer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    is_text = x.dtype.is_string
    pool = node.attr("pool_strings" if is_text else "pool_int64s")
    if not pool or x.type.rank not in (1, 2):
        raise bad_model(node, f"it has no pool of n-grams for a vector or matrix {x.type}")
    columns = node.attr("ngram_indexes")
    if not columns or min(columns) < 0:
        raise bad_model(node, "its ngram_indexes are not columns of the output")
    check_columns(max(columns), node)
    words = np.array(pool, object if is_text else np.int64)
    distinct = list(dict.fromkeys(words.tolist()))
    tokens = {word: i for i, word in enumerate(distinct)}
    levels = _trie(node, [tokens[word] for word in words.tolist()], len(distinct))
    x = x if is_text else cast(ctx, x, dtypes.i64)
    rows = x if x.type.rank == 2 else reshape(ctx, x, (1, *x.shape))
    ids = positions(ctx, rows, np.array(distinct, words.dtype))
    size = max(columns) + 1
    counts = _counted(ctx, _hits(ctx, node, ids, levels, len(distinct)), size)
    result = _weighted(ctx, node, counts, size)
    return [result if x.type.rank == 2 else reshape(ctx, result, (size,))]


def _trie(node: OnnxNode, pool: list[int], vocabulary: int) -> list[_Level]:
    """The levels of the trie; n-grams of other lengths than those wanted are left out."""
    low, high = node.attr("min_gram_length"), node.attr("max_gram_length")
    starts, columns = node.attr("ngram_counts"), node.attr("ngram_indexes")
    if low < 1 or high < low or any(not 0 <= s <= len(pool) for s in starts):
        raise bad_model(node, "its n-gram lengths and counts are inconsistent")
    high = min(high, len(starts))  # the pool has no longer ones
    states: list[dict[int, int]] = [{} for _ in range(high)]  # pair → state, by length - 1
    column_of: list[dict[int, int]] = [{} for _ in range(high)]
    number = 0
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), start=1):
        for at in range(begin, end - n + 1, n):
            if number >= len(columns):
                raise bad_model(node, f"it has {len(columns)} ngram_indexes for more n-grams")
            if low <= n <= high:
                state = 0
                for t, token in enumerate(pool[at : at + n]):
                    pair = state * vocabulary + token
                    state = states[t].setdefault(pair, len(states[t]))
                column_of[n - 1][state] = columns[number]
            number += 1
    levels, renumbered = [], {0: 0}  # states are numbered in the order of their pairs
    for known, column in zip(states, column_of):
        old = ((divmod(pair, vocabulary), state) for pair, state in known.items())
        pairs = sorted((renumbered[before] * vocabulary + token, s) for (before, token), s in old)
        found = [column.get(state, NONE) for _, state in pairs]
        keys = np.array([pair for pair, _ in pairs], np.int64)
        levels.append(_Level(keys, np.array([*found, NONE], np.int64)))
        renumbered = {state: i for i, (_, state) in enumerate(pairs)}
    return levels


def _hits(
    ctx: Importer, node: OnnxNode, ids: Value, levels: list[_Level], vocabulary: int
) -> Value:
    """The column of every occurrence of an n-gram in each row, or -1."""
    g, count = ctx.g, ids.shape[1]
    low, most = node.attr("min_gram_length"), node.attr("max_skip_count")
    if not 0 <= most <= MAX_SKIPS:
        raise bad_model(node, f"its max_skip_count is {most}, not 0 to {MAX_SKIPS}")
    none = g.constant(np.array(NONE, np.int64))
    ahead = (len(levels) - 1) * (most + 1)
    padded = g.add("pad", [ids, none], before=(0, 0), after=(0, ahead)) if ahead else ids
    found: list[Value] = []
    for skip in range(1, most + 2 if len(levels) > 1 else 2):
        state = None
        for t, level in enumerate(levels):
            at, sizes = (0, t * skip), (ids.shape[0], count)
            token = g.add("slice", [padded], starts=at, sizes=sizes, steps=(1, 1)) if t else ids
            state = _next_state(ctx, state, token, level, vocabulary)
            if t + 1 >= low and (t or skip == 1):  # a single token is counted once
                table = g.constant(level.columns)
                found.append(g.add("dense_lookup", [state, table], low=0))
    return found[0] if len(found) == 1 else g.add("concat", found, axis=1)


def _next_state(
    ctx: Importer, state: Value | None, token: Value, level: _Level, vocabulary: int
) -> Value:
    g = ctx.g
    pair = token
    if state is not None:
        zero, size = (g.constant(np.array(n, np.int64)) for n in (0, vocabulary))
        is_known = g.add("and", [g.add("ge", [state, zero]), g.add("ge", [token, zero])])
        joined = g.add("add", [g.add("mul", [state, size]), token])
        pair = g.add("where", [is_known, joined, g.constant(np.array(NONE, np.int64))])
    return positions(ctx, pair, level.pairs)


def _counted(ctx: Importer, hits: Value, size: int) -> Value:
    """How often each column is hit in each row; -1 hits a column behind the last."""
    g = ctx.g
    zero, one = (g.constant(np.array(v, np.float32)) for v in (0, 1))
    start = g.add("fill", [zero], shape=(hits.shape[0], size + 1))
    ones = g.add("fill", [one], shape=hits.shape)
    counts = g.add("scatter_elements", [start, hits, ones], axis=1, reduction="add")
    return g.add("slice", [counts], starts=(0, 0), sizes=(hits.shape[0], size), steps=(1, 1))


def _weighted(ctx: Importer, node: OnnxNode, counts: Value, size: int) -> Value:
    g, mode, columns = ctx.g, node.attr("mode"), node.attr("ngram_indexes")
    weights = node.attr("weights") or [1.0] * len(columns)
    if len(weights) != len(columns):
        raise bad_model(node, f"it has {len(weights)} weights for {len(columns)} n-grams")
    by_column = np.ones(size, np.float32)
    by_column[columns] = weights
    factor = g.constant(by_column)
    if mode == "TF":
        return counts
    if mode == "TFIDF":
        return g.add("mul", [counts, factor])
    if mode != "IDF":
        raise bad_model(node, f"its mode is {mode!r}, not TF, IDF or TFIDF")
    zero = g.constant(np.array(0, np.float32))
    return g.add("where", [g.add("gt", [counts, zero]), factor, zero])
