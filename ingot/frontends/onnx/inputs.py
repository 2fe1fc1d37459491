"""Graph inputs → typed values: element type, shape, and a symbol for each size that is not given.

In: ValueInfoProtos. Out: names with types, and the symbols they mention. Called by walker.

A dimension's name becomes the symbol of that name, made an identifier and kept apart from the names
of values; one without a name (or called "?", or written as -1) becomes `<input>_d<axis>`. An open
size is at least 1; a size written in the file may be 0. What the caller or the model's own
operators say of an open size (it is 8, it is at most 512, it equals another) is in `SizeRules`.
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

# words of the loop language's text form, where sizes appear as plain names
_RESERVED = {"min", "max", "grid", "block", "init", "alloc", "range", "true", "false", "inf", "nan"}


Range = tuple[int, int | None]  # from, to (None: no limit), both included
LONGEST = 1 << 14  # sizes up to this are tried one by one where a range is looked for
LONGEST_STEP = 256


@dataclass(frozen=True)
class SizeRules:
    """What is said of open sizes, by the name of the dimension or its symbol."""

    given: Mapping[str, int | Range] = field(default_factory=dict)  # by the caller
    equal: Mapping[str, Dim] = field(default_factory=dict)  # learnt: symbol → what it equals
    ranges: Mapping[str, Range] = field(default_factory=dict)  # learnt: symbol → where it must be
    steps: Mapping[str, int] = field(default_factory=dict)  # learnt: symbol → it is a multiple

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
            if isinstance(x, arith.Var) and x.name in symbols:
                number = arith.as_int(y)
                if (number is not None and number > 0) or _explains(y, x.name, symbols):
                    return replace(self, equal={**self.equal, x.name: y})
        return self._narrowed(a, b, symbols)

    def _narrowed(self, a: Dim, b: Dim, symbols: Mapping[str, Symbol]) -> SizeRules | None:
        """The one open size that both mention, kept to the range in which they are equal, or to the
        multiples of which that is so."""
        names = arith.free_vars(a) | arith.free_vars(b)
        if len(names) != 1 or not names <= symbols.keys():
            return None
        (name,) = names
        before = (symbols[name].low, symbols[name].high)
        found = only_run(lambda n: _is_equal_at(a, b, name, n), symbols[name])
        if found == before:  # as far as was tried: a limit beyond that stands in a min
            found = _both(before, (0, _smallest_limit(a, b)))
        if found is None:
            step = smallest_step(lambda n: _is_equal_at(a, b, name, n), symbols[name])
            return None if step is None else replace(self, steps={**self.steps, name: step})
        return None if found == before else replace(self, ranges={**self.ranges, name: found})


def _explains(size: Dim, name: str, symbols: Mapping[str, Symbol]) -> bool:
    """Whether `past`, or a size such as `past + 1`, says what `name` is by other open sizes."""
    names = arith.free_vars(size)
    is_plain = not any(isinstance(part, arith.Opaque) for part in arith.walk(size))
    return is_plain and bool(names) and names <= symbols.keys() - {name}


def _smallest_limit(*sizes: Dim) -> int | None:
    """The smallest number that a min holds one of the sizes to."""
    mins = [part for size in sizes for part in arith.walk(size) if isinstance(part, arith.Min)]
    limits = [arith.as_int(side) for part in mins for side in (part.a, part.b)]
    return min((limit for limit in limits if limit is not None), default=None)


def _is_equal_at(a: Dim, b: Dim, name: str, number: int) -> bool:
    try:
        return arith.evaluate(a, {name: number}) == arith.evaluate(b, {name: number})
    except ZeroDivisionError:
        return False


def only_run(holds: Callable[[int], bool], symbol: Symbol) -> Range | None:
    """The range of a size in which `holds` is true, if it is a single one: a condition that comes
    and goes is no range. Beyond `LONGEST` it is taken to stay as it is there."""
    last = LONGEST if symbol.high is None else min(symbol.high, LONGEST)
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


def smallest_step(holds: Callable[[int], bool], symbol: Symbol) -> int | None:
    """The smallest step of whose multiples all are such, as far as trying some shows: a network
    that halves a size five times and doubles it back wants multiples of 32."""
    for step in range(2, LONGEST_STEP + 1):
        multiples = range(-(-symbol.low // step) * step, step * 40, step)
        tried = [n for n in multiples if symbol.high is None or n <= symbol.high]
        if len(tried) > 1 and all(map(holds, tried)):
            return step
    return None


class SymbolTable:
    """Dimension names of the file → symbols, one each."""

    def __init__(self, taken: Iterable[str], rules: SizeRules):
        self._taken, self._rules = set(taken), rules
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

    def settled(self, type: TensorType) -> TensorType:
        """The type by symbols alone, once all inputs are known: what it says of a size may be by
        the name of another that is a number, or a multiple of a symbol."""
        return replace(type, shape=tuple(map(self._settled, type.shape)))

    def _settled(self, size: Dim) -> Dim:
        while others := arith.free_vars(size) - self.symbols.keys():
            size = simplify(arith.substitute(size, {name: self._by_name[name] for name in others}))
        return size

    def check_given(self) -> None:
        """Refuse rules for sizes that the model does not have."""
        unknown = sorted(set(self._rules.given) - self._known_names)
        if unknown:
            hint = "its sizes are: " + (", ".join(sorted(self._known_names)) or "none")
            what = f"the model has no size called {unknown[0]!r}"
            raise IngotError("bad-option", what, where="shapes", hint=hint)

    def _size(self, param: str, where: str) -> Dim:
        name = self._name(param)
        self._known_names |= {param, name}
        low, high = self._rules.range_of(param, name)
        if low < 1 or (high is not None and high < low):
            what = f"size {param!r} cannot be in {_shown((low, high))}"
            why = "an open size is at least 1" if low < 1 else f"{low} is above {high}"
            raise IngotError("bad-option", what, why=why)
        return self._known(name, low, high, param, where)

    def _known(self, name: str, low: int, high: int | None, param: str, where: str) -> Dim:
        size = self._by_name[name] = self._open_size(name, low, high, param, where)
        return size

    def _open_size(self, name: str, low: int, high: int | None, param: str, where: str) -> Dim:
        """The size called `name`: a symbol, what it is known to be, or a multiple of a symbol."""
        if name in self._rules.equal:
            return self._equal(self._rules.equal[name], low, high, param)
        if name in self._rules.steps and low != high:
            step = self._rules.steps[name]
            most = None if high is None else high // step
            part = self._name(f"{name}_by_{step}")
            self._known_names.add(part)
            low, high = _both((-(-low // step), most), self._rules.range_of(part))
            if high is not None and high < low:
                what = f"size {param!r} must be a multiple of {step} in this model"
                raise IngotError("bad-option", what, where=where)
            return self._known(part, low, high, param, where) * step
        low, high = _both((low, high), self._rules.ranges.get(name, (0, None)))
        if high is not None and high < low:
            what = f"size {param!r} must be in {_shown(self._rules.ranges[name])} in this model"
            raise IngotError("bad-option", what, where=where)
        if low == high:
            return arith.Const(low)
        self.symbols[name] = Symbol(name, low, high, source="input", origin=where)
        return arith.Var(name)

    def _equal(self, size: Dim, low: int, high: int | None, param: str) -> Dim:
        """Another size, or one made of others, or a number: what is said of both must fit."""
        number = arith.as_int(size)
        if number is not None and (number < low or (high is not None and number > high)):
            raise IngotError("bad-option", f"size {param!r} must be {number} in this model")
        return size

    def _name(self, base: str) -> str:
        base = identifier(base)
        name, count = base, 1
        while name in self._taken:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
        return name


def _both(a: Range, b: Range) -> Range:
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(a[0], b[0]), min(highs) if highs else None


def _shown(range_: Range) -> str:
    return f"{range_[0]}..{'' if range_[1] is None else range_[1]}"


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
            if dim.dim_value == -1:  # what Paddle's exporter writes for an open size
                return table.unnamed(value, axis, where)
            if dim.dim_value < 0:
                what = f"size {dim.dim_value} of axis {axis} is negative"
                raise IngotError("bad-model", what, where=where)
            return arith.Const(dim.dim_value)
        case "dim_param" if any(c.isalnum() for c in dim.dim_param):
            return table.named(dim.dim_param, where)
    return table.unnamed(value, axis, where)
