"""What no model and no tensor of it may exceed. In: counts, and types just read or inferred. Out:
nothing, or an error that names the node. Called by loading, functions, walker and graph_walk.

Sizes become 64-bit offsets in the emitted code and numpy shapes in the folding, so a model that
declares more than either can hold is refused where it says so.
"""

from __future__ import annotations

import math
from itertools import islice

from ingot.arith import expr as arith
from ingot.graph.types import TensorType, Type
from ingot.support.errors import IngotError

MAX_NODES = 200_000  # with functions inlined: a small file may unfold without end
MAX_TERMS = 256  # of a formula for one size
MAX_CASES = 8  # minima and maxima in it: a proof looks at both sides of each
MAX_RANK = 32  # numpy's own, before version 2
MAX_TENSOR_BYTES = 1 << 46  # what a process can address, with room for many tensors in one arena


def check_count(nodes: int, where: str) -> None:
    if nodes > MAX_NODES:
        what = f"the model has more than {MAX_NODES} nodes, with its functions unfolded"
        raise IngotError("limit", what, where=where)


def check_size(type: Type, where: str) -> None:
    """Refuse a tensor of a negative size, or of too many axes or bytes. Open sizes count as 1: the
    run checks them. So do empty axes: the products of the others are strides all the same."""
    if not isinstance(type, TensorType):
        return
    check_rank(type.rank, where)
    if not all(is_modest(size, MAX_TERMS) for size in type.shape):
        what = f"the size of a tensor is a formula of more than {MAX_TERMS} terms, or overflows"
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
            why="its size is a mistake, or made to exhaust memory",
        )


def is_modest(size: arith.Expr, most_cases: int = MAX_CASES) -> bool:
    """Whether a formula is short and its numbers fit 64 bits: sizes multiplied by themselves a few
    dozen times over have neither."""
    parts = list(islice(arith.walk(size), MAX_TERMS + 1))
    numbers = [part.value for part in parts if isinstance(part, arith.Const)]
    cases = sum(isinstance(part, arith.Min | arith.Max) for part in parts)
    return (
        len(parts) <= MAX_TERMS and cases <= most_cases and all(abs(n) < 1 << 63 for n in numbers)
    )


def check_rank(rank: int, where: str) -> None:
    if rank > MAX_RANK:
        what = f"a tensor of {rank} axes; at most {MAX_RANK} are possible"
        raise IngotError("limit", what, where=where)
