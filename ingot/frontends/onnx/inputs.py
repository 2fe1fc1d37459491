"""Graph inputs → typed values: element type, shape, and a symbol for each size that is not given.

In: ValueInfoProtos. Out: names with types, and the symbols they mention. Called by walker.

A dimension's name becomes the symbol of that name, made an identifier and kept apart from the names
of values; one without a name becomes `<input>_d<axis>`. An open size is at least 1; a size written
in the file may be 0. What the caller or the model's own operators say of an open size (it is 8, it
is at most 512, it equals another) is in `SizeRules`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import onnx

from ingot.arith import expr as arith
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.types import Dim, Symbol, TensorType
from ingot.support.errors import IngotError

# words of the loop language's text form, where sizes appear as plain names
_RESERVED = {"min", "max", "grid", "block", "init", "alloc", "range", "true", "false", "inf", "nan"}


Range = tuple[int, int | None]  # from, to (None: no limit), both included


@dataclass(frozen=True)
class SizeRules:
    """What is said of open sizes, by the name of the dimension or its symbol."""

    given: Mapping[str, int | Range] = field(default_factory=dict)  # by the caller
    equal: Mapping[str, Dim] = field(default_factory=dict)  # learnt: symbol → what it equals
    highs: Mapping[str, int] = field(default_factory=dict)  # learnt: symbol → its largest value

    def range_of(self, *names: str) -> Range:
        for name in names:
            if name in self.given:
                found = self.given[name]
                return (found, found) if isinstance(found, int) else found
        return (1, None)

    def learn(self, a: Dim, b: Dim, symbols: Mapping[str, Symbol]) -> SizeRules | None:
        """The rules under which two sizes are equal, or None if nothing simple makes them so."""
        place: dict[Dim, int] = {arith.Var(name): index for index, name in enumerate(symbols)}
        if place.get(a, -1) > place.get(b, -1):
            a, b = b, a  # of two names, the one that comes first in the model stays
        for x, y in ((b, a), (a, b)):
            if not isinstance(x, arith.Var) or x.name not in symbols:
                continue
            number = arith.as_int(y)
            same_kind = isinstance(y, arith.Var) and y.name in symbols
            if same_kind or (number is not None and number > 1):
                return replace(self, equal={**self.equal, x.name: y})
            if isinstance(y, arith.Min) and x in (y.a, y.b):
                limit = arith.as_int(y.b if x == y.a else y.a)
                if limit is not None and 1 <= limit != self.highs.get(x.name):
                    return replace(self, highs={**self.highs, x.name: limit})
        return None


class SymbolTable:
    """Dimension names of the file → symbols, one each."""

    def __init__(self, taken: Iterable[str], rules: SizeRules):
        self._taken, self._rules = set(taken), rules
        self._by_param: dict[str, Dim] = {}
        self.symbols: dict[str, Symbol] = {}
        self._known_names: set[str] = set()

    def named(self, param: str, where: str) -> Dim:
        if param not in self._by_param:
            self._by_param[param] = self._size(param, where)
        return self._by_param[param]

    def unnamed(self, value: str, axis: int, where: str) -> Dim:
        return self._size(f"{value}_d{axis}", where)

    def check_given(self) -> None:
        """Refuse rules for sizes that the model does not have."""
        unknown = sorted(set(self._rules.given) - self._known_names)
        if unknown:
            open_sizes = ", ".join(sorted(self._known_names)) or "none"
            what = f"the model has no open size {unknown[0]!r}"
            raise IngotError("bad-option", what, hint=f"its open sizes: {open_sizes}")

    def _size(self, param: str, where: str) -> Dim:
        name = self._name(param)
        self._known_names |= {param, name}
        low, high = self._rules.range_of(param, name)
        limit = self._rules.highs.get(name)
        if low < 0 or (high is not None and high < low):
            raise IngotError("bad-option", f"size {param!r} cannot be in {low}..{high}")
        if limit is not None and (low > limit or (high or 0) > limit):
            what = f"size {param!r} can be at most {limit} in this model, not {high or low}"
            raise IngotError("bad-option", what, where=where)
        if name in self._rules.equal:
            return self._equal(self._rules.equal[name], low, high, param)
        if low == high:
            return arith.Const(low)
        top = high if limit is None else limit if high is None else min(high, limit)
        self.symbols[name] = Symbol(name, low, top, source="input", origin=where)
        return arith.Var(name)

    def _equal(self, size: Dim, low: int, high: int | None, param: str) -> Dim:
        """Another size under two names, or a number: what is said of both must fit."""
        number = arith.as_int(size)
        if number is not None and (number < low or (high is not None and number > high)):
            raise IngotError("bad-option", f"size {param!r} must be {number} in this model")
        while isinstance(size, arith.Var) and size.name in self._rules.equal:
            size = self._rules.equal[size.name]
        return size

    def _name(self, base: str) -> str:
        base = identifier(base)
        name, count = base, 1
        while name in self._taken:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
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
