"""Graph inputs → typed values: element type, shape, and a symbol for each dynamic dimension.

In: ValueInfoProtos. Out: their types, the dynamic dimensions declared in the solver. Called by
walker. A dimension's name becomes a symbol; one without a name (or called "?", or written as -1)
becomes `<input>_d<axis>`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import onnx

from ingot.arith import expr as arith
from ingot.frontends.common.solver import SizeSolver
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.types import Dim, TensorType
from ingot.support.errors import IngotError


def input_type(info: onnx.ValueInfoProto, table: SizeSolver) -> TensorType:
    """The type of a graph input; an error unless it is a tensor of known rank."""
    where = f"input {info.name!r}"
    kind = info.type.WhichOneof("value")
    if kind is None:
        raise IngotError("bad-model", "the input has no type", where=where)
    if kind != "tensor_type":
        what = f"inputs of kind {kind.removesuffix('_type')} are not supported"
        raise IngotError("unsupported-op", what, where=where, hint="give tensors or sequences")
    return tensor_type(info.type.tensor_type, info.name, table, where)


def tensor_type(
    tensor: onnx.TypeProto.Tensor, name: str, table: SizeSolver, where: str, is_optional=False
) -> TensorType:
    """The type of a tensor of known rank. The sizes of one that may be absent are its own, and may
    be 0."""
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        raise IngotError(
            "bad-model",
            "the rank of the input is not given",
            where=where,
            hint="export with a shape; its dimensions may be dynamic",
        )
    dims = [*tensor.shape.dim]
    if is_optional:
        shape = tuple(_optional_dim(dim, axis, name, table, where) for axis, dim in enumerate(dims))
    else:
        shape = tuple(_dim(dims, axis, name, table, where) for axis in range(len(dims)))
    table.check_example(name, shape)
    return TensorType(dtype, shape)


def _optional_dim(
    dim: onnx.TensorShapeProto.Dimension, axis: int, value: str, table: SizeSolver, where: str
) -> Dim:
    is_number = dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
    if is_number:
        return arith.Const(dim.dim_value)
    return table.unnamed(value, axis, where, least=0)


def map_types(
    info: onnx.ValueInfoProto, table: SizeSolver
) -> tuple[tuple[str, TensorType], tuple[str, TensorType]]:
    """The two vectors of an input that is a map, by name: its keys and its values."""
    where, kind = f"input {info.name!r}", info.type.map_type
    value = kind.value_type.WhichOneof("value")
    if value != "tensor_type":
        what = "maps of other values than numbers or strings are not supported"
        raise IngotError("unsupported-op", what, where=where)
    types = (
        dtype_of(code, where) for code in (kind.key_type, kind.value_type.tensor_type.elem_type)
    )
    size = table.unnamed(info.name, 0, where)
    keys, values = (TensorType(dtype, (size,)) for dtype in types)
    return (f"{info.name}.keys", keys), (f"{info.name}.values", values)


def is_map(info: onnx.ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "map_type"


def input_names(infos: Iterable[onnx.ValueInfoProto], constants: Container[str]) -> list[str]:
    """The names of a graph's operands: of a map, the two of its vectors."""
    given = [info for info in infos if info.name not in constants]
    parts = ((f"{i.name}.keys", f"{i.name}.values") if is_map(i) else (i.name,) for i in given)
    return [name for names in parts for name in names]


def _dim(
    dims: Sequence[onnx.TensorShapeProto.Dimension], axis: int, value: str, table: SizeSolver,
    where: str,
) -> Dim:  # fmt: skip
    dim, likely = dims[axis], 1 if axis == 0 < len(dims) - 1 else None  # a batch, probably of 1
    match dim.WhichOneof("value"):
        case "dim_value":
            if dim.dim_value == -1:  # Paddle's exporter writes this for a dynamic dimension
                return table.unnamed(value, axis, where, likely)
            if dim.dim_value < 0:
                what = f"size {dim.dim_value} of axis {axis} is negative"
                raise IngotError("bad-model", what, where=where)
            return arith.Const(dim.dim_value)
        case "dim_param" if any(c.isalnum() for c in dim.dim_param):
            return table.named(dim.dim_param, value, axis, where, likely)
    return table.unnamed(value, axis, where, likely)
