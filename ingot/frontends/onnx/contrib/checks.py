"""Attributes of a domain without schemas, checked by name and type; helpers of these converters.

In: a decoded node. Out: its attributes as numbers, or a bad-model error that names the node. Called
by the converters of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.dtypes import DType
from ingot.frontends.common.elements import cast
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.operands import Operand
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, lookup
from ingot.graph.ir import Value

MICROSOFT = "com.microsoft"


def int_attr(node: OnnxNode, name: str, default: int | None = None) -> int:
    value = node.attr(name, default)
    if value is None:
        raise bad_model(node, f"attribute {name!r} is missing")
    if not isinstance(value, int):
        raise bad_model(node, f"attribute {name!r} is {value!r}, not an integer")
    return value


def count_attr(node: OnnxNode, name: str) -> int:
    """A required attribute that is at least 1."""
    value = int_attr(node, name)
    if value < 1:
        raise bad_model(node, f"attribute {name!r} is {value}, not at least 1")
    return value


def float_attr(node: OnnxNode, name: str, default: float) -> float:
    value = node.attr(name, default)
    if not isinstance(value, int | float):
        raise bad_model(node, f"attribute {name!r} is {value!r}, not a number")
    return float(value)


def text_attr(node: OnnxNode, name: str, default: str = "") -> str:
    value = node.attr(name, default)
    if not isinstance(value, str):
        raise bad_model(node, f"attribute {name!r} is {value!r}, not a string")
    return value


def has_output(node: OnnxNode, index: int) -> bool:
    return index < len(node.outputs) and bool(node.outputs[index])


def no_operand(ctx: Importer, node: OnnxNode, index: int, what: str) -> None:
    """An operand that Ingot does not take."""
    if ctx.optional(node, index) is not None:
        raise ctx.unsupported(node, f"{what} (operand {index})")


def rank_of(node: OnnxNode, value: Value, *ranks: int) -> int:
    if value.tensor.rank not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise bad_model(node, f"{value.name!r} is {value.type}, not of rank {wanted}")
    return value.tensor.rank


def as_standard(op: str, opset: int) -> Converter:
    """The converter of a standard operator, for one of this domain with the same operands."""

    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Operand | None]:
        standard = lookup("", op, opset)
        if standard is None:
            raise ctx.unsupported(node, f"there is no converter of {op}")
        return standard(ctx, node)

    return convert


def cast_all(ctx: Importer, values: Sequence[Value | None], to: DType) -> list[Value | None]:
    return [None if v is None else cast(ctx, v, to) for v in values]
