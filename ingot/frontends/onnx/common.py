"""Helpers of all ONNX converters: errors, axes, operands that must be constant.

In: the importer and a node. Out: integers, or an error that names the node. Called by converters.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.support.errors import IngotError


def bad_model(node: OnnxNode, what: str) -> IngotError:
    return IngotError("bad-model", what, where=node.where)


def axis_of(node: OnnxNode, axis: int, rank: int) -> int:
    """`axis` as a non-negative number; a bad-model error if it is out of range."""
    if not -rank <= axis < rank:
        raise bad_model(node, f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank


def axes_of(node: OnnxNode, axes: Sequence[int], rank: int) -> list[int]:
    found = [axis_of(node, int(axis), rank) for axis in axes]
    if len(set(found)) != len(found):
        raise bad_model(node, f"duplicate axis in axes {list(axes)}")
    return found


def known_ints(ctx: Importer, node: OnnxNode, index: int, what: str) -> list[int] | None:
    """An integer operand that must be constant; None if it is absent."""
    if ctx.optional(node, index) is None:
        return None
    array = ctx.known(node, index)
    if array is None:
        raise ctx.unsupported(node, f"{what} are computed at run time, not constant")
    return [int(v) for v in array.reshape(-1)]


def known_int(ctx: Importer, node: OnnxNode, index: int, what: str, default: int) -> int:
    found = known_ints(ctx, node, index, what)
    return default if not found else found[0]
