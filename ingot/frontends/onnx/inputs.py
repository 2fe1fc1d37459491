"""Graph inputs → typed values: element type, shape, and a symbol for each size that is not given.

In: ValueInfoProtos. Out: names with types, and the symbols they mention. Called by walker.

A dimension's name becomes the symbol of that name, made an identifier and kept apart from the names
of values; one without a name becomes `<input>_d<axis>`. An open size is at least 1; a size written
in the file may be 0.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

import onnx

from ingot.arith import expr as arith
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.types import Dim, Symbol, TensorType
from ingot.support.errors import IngotError

# words of the loop language's text form, where sizes appear as plain names
_RESERVED = {"min", "max", "grid", "block", "init", "alloc", "range", "true", "false", "inf", "nan"}


class SymbolTable:
    """Dimension names of the file → symbols, one each."""

    def __init__(self, taken: Iterable[str]):
        self._taken = set(taken)
        self._by_param: dict[str, str] = {}
        self.symbols: dict[str, Symbol] = {}

    def named(self, param: str, where: str) -> Dim:
        if param not in self._by_param:
            self._by_param[param] = self._declare(param, where)
        return arith.Var(self._by_param[param])

    def unnamed(self, value: str, axis: int, where: str) -> Dim:
        return arith.Var(self._declare(f"{value}_d{axis}", where))

    def _declare(self, base: str, where: str) -> str:
        base = identifier(base)
        name, count = base, 1
        while name in self._taken:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
        self.symbols[name] = Symbol(name, low=1, source="input", origin=where)
        return name


def identifier(text: str) -> str:
    """`text` as a Python identifier that is no word of the language."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_") or "dim"
    name = f"d{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name.lower() in _RESERVED else name


def input_type(info: onnx.ValueInfoProto, table: SymbolTable) -> TensorType:
    """The type of a graph input; anything but a tensor of known rank is refused by name."""
    where = f"input {info.name!r}"
    kind = info.type.WhichOneof("value")
    if kind is None:
        raise IngotError("bad-model", "the input has no type", where=where)
    if kind != "tensor_type":
        what = f"inputs of kind {kind.removesuffix('_type')} are not supported"
        raise IngotError("unsupported-op", what, where=where, hint="give tensors")
    tensor = info.type.tensor_type
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        raise IngotError(
            "bad-model",
            "the input's number of dimensions is not given",
            where=where,
            hint="export with a shape; its sizes may be left open",
        )
    dims = enumerate(tensor.shape.dim)
    shape = tuple(_dim(dim, info.name, axis, table, where) for axis, dim in dims)
    return TensorType(dtype, shape)


def _dim(
    dim: onnx.TensorShapeProto.Dimension, value: str, axis: int, table: SymbolTable, where: str
) -> Dim:
    match dim.WhichOneof("value"):
        case "dim_value":
            if dim.dim_value < 0:
                what = f"size {dim.dim_value} of axis {axis} is negative"
                raise IngotError("bad-model", what, where=where)
            return arith.Const(dim.dim_value)
        case "dim_param" if dim.dim_param:
            return table.named(dim.dim_param, where)
    return table.unnamed(value, axis, where)
