"""What no tensor of a model may exceed. In: types just read or inferred. Out: nothing, or an error
that names the node. Called by walker and graph_walk.

Sizes become 64-bit offsets in the emitted code and numpy shapes in the folding, so a model that
declares more than either can hold is refused where it says so.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.graph.types import TensorType, Type
from ingot.support.errors import IngotError

MAX_RANK = 32  # numpy's own, before version 2
MAX_TENSOR_BYTES = 1 << 46  # what a process can address, with room for many tensors in one arena


def check_size(type: Type, where: str) -> None:
    """Refuse a tensor of too many axes or bytes. Open sizes count as 1: the run checks them. So do
    empty axes: the products of the others are strides all the same."""
    if not isinstance(type, TensorType):
        return
    check_rank(type.rank, where)
    known = [size for size in map(arith.as_int, type.shape) if size]
    if math.prod(known) * type.dtype.storage_bytes > MAX_TENSOR_BYTES:
        raise IngotError(
            "limit",
            f"a tensor of type {type} would take more than {MAX_TENSOR_BYTES >> 40} TB",
            where=where,
            why="its size is a mistake, or made to exhaust memory",
        )


def check_rank(rank: int, where: str) -> None:
    if rank > MAX_RANK:
        what = f"a tensor of {rank} axes; at most {MAX_RANK} are possible"
        raise IngotError("limit", what, where=where)
