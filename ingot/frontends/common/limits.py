"""Limits on untrusted models: node count, rank, tensor size, size expressions.

In: counts, and types just read or inferred. Out: nothing, or an error that names the node. Called
by loading, functions, walker and graph_walk.

Sizes become 64-bit offsets in the emitted code and numpy shapes in constant folding; a model that
declares more than either supports is rejected at that node.
"""

from __future__ import annotations

import math
from itertools import islice

from ingot.arith import expr as arith
from ingot.graph.types import Type
from ingot.support.errors import IngotError

MAX_NODES = 200_000  # with functions inlined, which may grow exponentially; heuristic
MAX_TERMS = 256  # nodes of one size expression; heuristic
MAX_CASES = 8  # min and max nodes in it: a proof splits into two cases at each
MAX_RANK = 32  # numpy's limit before version 2
MAX_TENSOR_BYTES = 1 << 46  # half of the 47-bit user address space of x86-64


def check_count(nodes: int, where: str) -> None:
    if nodes > MAX_NODES:
        what = f"the model has more than {MAX_NODES} nodes, with its functions inlined"
        raise IngotError("limit", what, where=where)


def check_size(type: Type, where: str) -> None:
    """An error for a tensor with a negative size, too many axes or too many bytes. Dynamic
    dimensions count as 1: they are checked at run time. So do axes of size 0: the products of the
    other sizes are still strides."""
    check_rank(type.rank, where)
    if not all(is_small_expr(size, MAX_TERMS) for size in type.shape):
        what = f"a dimension is an expression of more than {MAX_TERMS} terms, or overflows"
        raise IngotError("limit", what, where=where)
    known = [size for size in map(arith.as_int, type.shape) if size]
    if min(known, default=0) < 0:
        what = f"a tensor of type {type} would have a negative size"
        raise IngotError("bad-model", what, where=where)
    if math.prod(known) * type.dtype.storage_bytes > MAX_TENSOR_BYTES:
        raise IngotError(
            "limit",
            f"a tensor of type {type} would take more than {MAX_TENSOR_BYTES >> 40} TB",
            where=where,
            why="the declared shape is wrong or malicious",
        )


def is_small_expr(size: arith.Expr, most_cases: int = MAX_CASES) -> bool:
    """Whether an expression has few terms and its constants fit 64 bits. A size squared repeatedly
    violates both."""
    terms = list(islice(arith.walk(size), MAX_TERMS + 1))
    numbers = [term.value for term in terms if isinstance(term, arith.Const)]
    cases = sum(isinstance(term, arith.Min | arith.Max) for term in terms)
    return (
        len(terms) <= MAX_TERMS and cases <= most_cases and all(abs(n) < 1 << 63 for n in numbers)
    )


def check_rank(rank: int, where: str) -> None:
    if rank > MAX_RANK:
        what = f"a tensor of rank {rank}; the limit is {MAX_RANK}"
        raise IngotError("limit", what, where=where)
