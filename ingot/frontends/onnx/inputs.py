"""Graph inputs → typed values: element type, shape, and a symbol for each dynamic dimension.

In: ValueInfoProtos. Out: names with types, and the symbols they use. Called by walker.

A dimension's name becomes the symbol of that name, made an identifier and distinct from the names
of values; one without a name (or called "?", or written as -1) becomes `<input>_d<axis>`. A dynamic
dimension is at least 1; a static one may be 0. What the caller gives or the importer infers of a
dynamic dimension (it is 8, it is at most 512, it equals another) is in `DimConstraints`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import onnx

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.types import Dim, Symbol, TensorType
from ingot.support.errors import IngotError

# reserved words of the loop IR's text form, where symbols are identifiers
_RESERVED = {"min", "max", "grid", "block", "init", "alloc", "range", "true", "false", "inf", "nan"}


Range = tuple[int, int | None]  # lower and upper bound (None: unbounded), both inclusive
MAX_SEARCHED_SIZE = 1 << 14  # largest size tried in the search for a range; heuristic
MAX_DIVISOR = 256  # largest divisor tried in the search for one; heuristic


@dataclass(frozen=True)
class DimConstraints:
    """Constraints on dynamic dimensions, by the name of the dimension or its symbol."""

    given: Mapping[str, int | Range] = field(default_factory=dict)  # by the caller
    equal: Mapping[str, Dim] = field(default_factory=dict)  # inferred: symbol → expression
    ranges: Mapping[str, Range] = field(default_factory=dict)  # inferred: symbol → range
    divisors: Mapping[str, int] = field(default_factory=dict)  # inferred: symbol → divisor

    def range_of(self, *names: str) -> Range:
        for name in names:
            if name in self.given:
                found = self.given[name]
                return (found, found) if isinstance(found, int) else found
        return (1, None)

    def equated(self, a: Dim, b: Dim, symbols: Mapping[str, Symbol]) -> DimConstraints | None:
        """These constraints and one under which two sizes are equal; None if none is found."""
        rank: dict[Dim, int] = {arith.Var(name): index for index, name in enumerate(symbols)}
        if rank.get(a, -1) > rank.get(b, -1):
            a, b = b, a  # of two symbols, keep the one that comes first in the model
        for x, y in ((b, a), (a, b)):
            if isinstance(x, arith.Var) and x.name in symbols:
                number = arith.as_int(y)
                if (number is not None and number > 0) or _is_defined_by(y, x.name, symbols):
                    return replace(self, equal={**self.equal, x.name: y})
        return self._narrowed(a, b, symbols)

    def _narrowed(self, a: Dim, b: Dim, symbols: Mapping[str, Symbol]) -> DimConstraints | None:
        """The only symbol of both sizes, constrained to the range in which they are equal, or to
        multiples of a divisor."""
        names = arith.free_vars(a) | arith.free_vars(b)
        if len(names) != 1 or not names <= symbols.keys():
            return None
        (name,) = names
        before = (symbols[name].low, symbols[name].high)
        found = single_range(lambda n: _is_equal_at(a, b, name, n), symbols[name])
        if found == before:  # a bound beyond MAX_SEARCHED_SIZE is an operand of a min
            found = _intersection(before, (0, _smallest_limit(a, b)))
        if found is None:
            divisor = smallest_divisor(lambda n: _is_equal_at(a, b, name, n), symbols[name])
            if divisor is None:
                return None
            return replace(self, divisors={**self.divisors, name: divisor})
        return None if found == before else replace(self, ranges={**self.ranges, name: found})


def _is_defined_by(size: Dim, name: str, symbols: Mapping[str, Symbol]) -> bool:
    """Whether a size such as `past + 1` defines `name` by other symbols."""
    names = arith.free_vars(size)
    is_plain = not any(isinstance(e, arith.Opaque) for e in arith.walk(size))
    return is_plain and bool(names) and names <= symbols.keys() - {name}


def _smallest_limit(*sizes: Dim) -> int | None:
    """The smallest constant operand of a min in the sizes."""
    mins = [e for size in sizes for e in arith.walk(size) if isinstance(e, arith.Min)]
    limits = [arith.as_int(side) for e in mins for side in (e.a, e.b)]
    return min((limit for limit in limits if limit is not None), default=None)


def _is_equal_at(a: Dim, b: Dim, name: str, number: int) -> bool:
    try:
        return arith.evaluate(a, {name: number}) == arith.evaluate(b, {name: number})
    except ZeroDivisionError:
        return False


def single_range(holds: Callable[[int], bool], symbol: Symbol) -> Range | None:
    """The range of sizes for which `holds` is true, if that is one contiguous range. Beyond
    `MAX_SEARCHED_SIZE` it is assumed not to change."""
    last = MAX_SEARCHED_SIZE if symbol.high is None else min(symbol.high, MAX_SEARCHED_SIZE)
    run: list[int] = []
    for number in range(symbol.low, last + 1):
        if not holds(number):
            continue
        if run and number != run[-1] + 1:
            return None
        run = [run[0], number] if run else [number]
    if not run:
        return None
    return (run[0], symbol.high if run[-1] == last else run[-1])


def smallest_divisor(holds: Callable[[int], bool], symbol: Symbol) -> int | None:
    """The smallest divisor such that `holds` is true for its multiples (the first 40 are tried): a
    network that halves a size five times and doubles it again needs multiples of 32."""
    for divisor in range(2, MAX_DIVISOR + 1):
        multiples = range(-(-symbol.low // divisor) * divisor, divisor * 40, divisor)
        tried = [n for n in multiples if symbol.high is None or n <= symbol.high]
        if len(tried) > 1 and all(map(holds, tried)):
            return divisor
    return None


class SymbolTable:
    """Dimension names of the file → symbols."""

    def __init__(self, taken: Iterable[str], constraints: DimConstraints):
        self._taken, self._constraints = set(taken), constraints
        self._by_param: dict[str, Dim] = {}
        self._by_name: dict[str, Dim] = {}
        self.symbols: dict[str, Symbol] = {}
        self._known_names: set[str] = set()

    def named(self, param: str, where: str) -> Dim:
        if param not in self._by_param:
            self._by_param[param] = self._size(param, where)
        return self._by_param[param]

    def unnamed(self, value: str, axis: int, where: str) -> Dim:
        return self._size(f"{value}_d{axis}", where)

    def resolved(self, type: TensorType) -> TensorType:
        """The type in terms of declared symbols, once all inputs are known: a constraint may use
        the name of a dimension that is constant, or a multiple of a symbol."""
        return replace(type, shape=tuple(map(self._resolved, type.shape)))

    def _resolved(self, size: Dim) -> Dim:
        while others := arith.free_vars(size) - self.symbols.keys():
            size = simplify(arith.substitute(size, {name: self._by_name[name] for name in others}))
        return size

    def check_given(self) -> None:
        """An error for constraints on dimensions that the model does not have."""
        unknown = sorted(set(self._constraints.given) - self._known_names)
        if unknown:
            hint = "its dynamic dimensions are: " + (", ".join(sorted(self._known_names)) or "none")
            what = f"the model has no dynamic dimension {unknown[0]!r}"
            raise IngotError("bad-option", what, where="shapes", hint=hint)

    def _size(self, param: str, where: str) -> Dim:
        name = self._name(param)
        self._known_names |= {param, name}
        low, high = self._constraints.range_of(param, name)
        if low < 1 or (high is not None and high < low):
            what = f"dimension {param!r} cannot be in {_shown((low, high))}"
            why = "a dynamic dimension is at least 1" if low < 1 else f"{low} exceeds {high}"
            raise IngotError("bad-option", what, why=why)
        return self._define(name, low, high, param, where)

    def _define(self, name: str, low: int, high: int | None, param: str, where: str) -> Dim:
        size = self._by_name[name] = self._dim(name, low, high, param, where)
        return size

    def _dim(self, name: str, low: int, high: int | None, param: str, where: str) -> Dim:
        """The dimension `name`: a symbol, a multiple of a symbol, or what it is known to equal."""
        if name in self._constraints.equal:
            return self._equal(self._constraints.equal[name], low, high, param)
        if name in self._constraints.divisors and low != high:
            divisor = self._constraints.divisors[name]
            most = None if high is None else high // divisor
            quotient = self._name(f"{name}_by_{divisor}")
            self._known_names.add(quotient)
            given = self._constraints.range_of(quotient)
            low, high = _intersection((-(-low // divisor), most), given)
            if high is not None and high < low:
                what = f"dimension {param!r} must be a multiple of {divisor} in this model"
                raise IngotError("bad-option", what, where=where)
            return self._define(quotient, low, high, param, where) * divisor
        low, high = _intersection((low, high), self._constraints.ranges.get(name, (0, None)))
        if high is not None and high < low:
            allowed = _shown(self._constraints.ranges[name])
            what = f"dimension {param!r} must be in {allowed} in this model"
            raise IngotError("bad-option", what, where=where)
        if low == high:
            return arith.Const(low)
        self.symbols[name] = Symbol(name, low, high, source="input", origin=where)
        return arith.Var(name)

    def _equal(self, size: Dim, low: int, high: int | None, param: str) -> Dim:
        """The constant or expression that a dimension equals, checked against its range."""
        number = arith.as_int(size)
        if number is not None and (number < low or (high is not None and number > high)):
            raise IngotError("bad-option", f"dimension {param!r} must be {number} in this model")
        return size

    def _name(self, base: str) -> str:
        base = identifier(base)
        name, count = base, 1
        while name in self._taken:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
        return name


def _intersection(a: Range, b: Range) -> Range:
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(a[0], b[0]), min(highs) if highs else None


def _shown(range_: Range) -> str:
    return f"{range_[0]}..{'' if range_[1] is None else range_[1]}"


def identifier(text: str) -> str:
    """`text` as a Python identifier that is not reserved."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_") or "dim"
    name = f"d{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name.lower() in _RESERVED else name


def input_type(info: onnx.ValueInfoProto, table: SymbolTable) -> TensorType:
    """The type of a graph input; an error unless it is a tensor of known rank."""
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
            "the rank of the input is not given",
            where=where,
            hint="export with a shape; its dimensions may be dynamic",
        )
    dims = enumerate(tensor.shape.dim)
    shape = tuple(_dim(dim, info.name, axis, table, where) for axis, dim in dims)
    return TensorType(dtype, shape)


def _dim(
    dim: onnx.TensorShapeProto.Dimension, value: str, axis: int, table: SymbolTable, where: str
) -> Dim:
    match dim.WhichOneof("value"):
        case "dim_value":
            if dim.dim_value == -1:  # Paddle's exporter writes this for a dynamic dimension
                return table.unnamed(value, axis, where)
            if dim.dim_value < 0:
                what = f"size {dim.dim_value} of axis {axis} is negative"
                raise IngotError("bad-model", what, where=where)
            return arith.Const(dim.dim_value)
        case "dim_param" if any(c.isalnum() for c in dim.dim_param):
            return table.named(dim.dim_param, where)
    return table.unnamed(value, axis, where)
