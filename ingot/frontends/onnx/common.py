"""Helpers of all ONNX converters: errors, axes, operands that must be constant.

In: the importer and a node. Out: integers, or an error that names the node. Called by converters.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value
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


def runtime_operand(ctx: Importer, node: OnnxNode, index: int) -> Value | None:
    """An operand whose elements are known only when the model runs; None if they are constant or
    the operand is absent."""
    value = ctx.optional(node, index)
    return value if value is not None and ctx.known(node, index) is None else None


def number_of_axes(ctx: Importer, node: OnnxNode, axes: Value) -> int:
    """Of axes that are known when running: the rank of the result depends on their number."""
    count = arith.as_int(axes.tensor.numel)
    if count is None:
        why = "the number of axes is known only when running"
        raise ctx.unsupported(node, why, "give the operand of axes a fixed size")
    return count


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
