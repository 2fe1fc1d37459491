"""Sequences and optionals among the inputs and outputs of a model, as tensors of the graph.

In: the type that the file declares, or an operand. Out: an operand in the form of a call's
arguments and results: of a sequence `data` and `shapes` (operands.Ragged), of an optional its flag
and its content; `bundle` names the form for the runtime, which packs and unpacks Python lists.
Called by walker and graph_walk.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from ingot import dtypes
from ingot.frontends.common.elements import HasBuilder
from ingot.frontends.common.solver import SizeSolver
from ingot.frontends.onnx.inputs import input_type, tensor_type
from ingot.frontends.onnx.operands import (
    FLAG,
    Operand,
    OptionalValue,
    Ragged,
    SequenceList,
    as_ragged,
    flag_value,
)
from ingot.frontends.onnx.tensors import dtype_of, type_proto
from ingot.graph.ir import Bundle, Value
from ingot.graph.types import TensorType, tensor
from ingot.support.errors import IngotError

MAX_RANK = 8  # of elements of an input whose rank the file does not give; heuristic


def input_operand(info: onnx.ValueInfoProto, table: SizeSolver) -> Operand:
    """A graph input: a tensor, a sequence or an optional."""
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return _sequence(info.name, info.type, table)
    if kind != "optional_type":
        return Value(info.name, input_type(info, table))
    where, inner = f"input {info.name!r}", info.type.optional_type.elem_type
    match inner.WhichOneof("value"):
        case "tensor_type":
            type = tensor_type(inner.tensor_type, info.name, table, where, is_optional=True)
            content: Operand = Value(info.name, type)
        case "sequence_type":
            content = _sequence(info.name, inner, table)
        case _:
            what = "an optional of this type is not supported"
            raise IngotError("unsupported-op", what, where=where)
    assert not isinstance(content, OptionalValue)
    return OptionalValue(Value(f"{info.name}.present", FLAG), content)


def _sequence(name: str, type: onnx.TypeProto, table: SizeSolver) -> Ragged:
    where, element = f"input {name!r}", type.sequence_type.elem_type
    if element.WhichOneof("value") != "tensor_type":
        what = "a sequence of anything but tensors is not supported"
        raise IngotError("unsupported-op", what, where=where)
    dtype = dtype_of(element.tensor_type.elem_type, where)
    has_rank = element.tensor_type.HasField("shape")
    rank = len(element.tensor_type.shape.dim) if has_rank else MAX_RANK
    total = table.unnamed(f"{name}.data", 0, where, least=0)
    count = table.unnamed(f"{name}.shapes", 0, where, least=0)
    data = Value(f"{name}.data", TensorType(dtype, (total,)))
    return Ragged(data, Value(f"{name}.shapes", tensor(dtypes.i64, count, rank)), not has_rank)


def at_border(ctx: HasBuilder, x: Operand, declared: onnx.TypeProto) -> Operand:
    """An output of the model in the form of a call's results."""
    if isinstance(x, OptionalValue) and declared.WhichOneof("value") in _NOT_OPTIONAL:
        x = x if x.content is None else x.content  # a loop carried it as an optional
    match x:
        case SequenceList():
            return as_ragged(ctx, x)
        case OptionalValue(content=content):
            inside = as_ragged(ctx, content) if isinstance(content, SequenceList) else content
            return OptionalValue(flag_value(ctx, x), inside)
    return x


_NOT_OPTIONAL = ("sequence_type", "tensor_type")


def bundle(name: str, x: Operand) -> Bundle | None:
    """How the runtime makes one argument or result of the parts; None for a tensor."""
    kinds = tuple(_kinds(x))
    return None if isinstance(x, Value) else Bundle(name, kinds, tuple(_names(x)))


def _kinds(x: Operand | None) -> Iterator[str]:
    match x:
        case OptionalValue():
            yield "optional"
            yield from _kinds(x.content)
        case Ragged():
            yield "mixed sequence" if x.is_mixed else "sequence"
        case Value():
            yield "tensor"


def _names(x: Operand | None) -> Iterator[str]:
    match x:
        case OptionalValue(flag=Value() as flag):
            yield flag.name
            yield from _names(x.content)
        case Ragged():
            yield from (x.data.name, x.shapes.name)
        case Value():
            yield x.name


def operand_type_proto(x: Operand) -> onnx.TypeProto:
    """The type as the standard writes it, for functions that depend on it."""
    match x:
        case Value():
            return type_proto(x.type)
        case SequenceList() | Ragged():
            element = type_proto(TensorType(x.dtype, ()))
            element.tensor_type.ClearField("shape")
            return onnx.helper.make_sequence_type_proto(element)
    inner = onnx.TypeProto() if x.content is None else operand_type_proto(x.content)
    return onnx.helper.make_optional_type_proto(inner)
