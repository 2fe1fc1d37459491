"""ONNX converters of optionals: Optional, OptionalHasElement, OptionalGetElement.

In: ONNX nodes. Out: operands (operands.OptionalValue); whether there is an element is often known
when importing, and needs no code then. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from ingot.arith import expr as arith
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.operands import (
    Operand,
    OptionalValue,
    SequenceList,
    flag_value,
    placeholder,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.sequence import element_of
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.types import TensorType


@onnx_op("Optional")
def optional(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x = ctx.operand(node, 0)
    if x is None:
        return [_absent(ctx, node)]
    return [x if isinstance(x, OptionalValue) else OptionalValue(True, x)]


def _absent(ctx: Importer, node: OnnxNode) -> OptionalValue:
    """No element, of the type that the node declares."""
    type = node.attr("type")
    if not isinstance(type, onnx.TypeProto):
        raise bad_model(node, "it has neither an operand nor a type")
    match type.WhichOneof("value"):
        case "sequence_type":
            code = type.sequence_type.elem_type.tensor_type.elem_type
            return OptionalValue(False, SequenceList((), dtype_of(code, node.where)))
        case "tensor_type" if type.tensor_type.HasField("shape"):
            dims = [arith.Const(max(0, dim.dim_value)) for dim in type.tensor_type.shape.dim]
            made = TensorType(dtype_of(type.tensor_type.elem_type, node.where), tuple(dims))
            return OptionalValue(False, placeholder(ctx, made))
    return OptionalValue(False, None)


@onnx_op("OptionalHasElement")
def optional_has_element(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x = ctx.operand(node, 0)
    if isinstance(x, OptionalValue):
        return [flag_value(ctx, x)]
    return [ctx.g.constant(np.array(x is not None))]


@onnx_op("OptionalGetElement")
def optional_get_element(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x = ctx.operand(node, 0)
    if x is None:
        raise bad_model(node, "operand 0 is missing")
    return [element_of(ctx, node, x) if isinstance(x, OptionalValue) else x]
