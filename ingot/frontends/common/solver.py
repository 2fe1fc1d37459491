"""Dynamic dimensions of a model, solved by unification while its graph is built.

In: the dimensions that inputs declare, what the caller gives of them, and pairs of sizes that an
operator requires to be equal. Out: every size in terms of the free symbols, with their ranges.
Used by importers; `GraphBuilder.unifier` is one.

A dimension is in the class of those it equals. The class has one representative: a number, a free
symbol, or an expression over free symbols (`past + 1`, `4 * n_by_4`). Two sizes that meet are made
equal by the first of these that applies: one joins the other's class; or the only symbol of both
keeps to the range, or else to the multiples, for which they are equal. Types built before are
stale, not wrong: `resolve` expresses a size by representatives, `resolve_graph` all in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as with_changes
from typing import Any

from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplifier
from ingot.frontends.common.names import claim
from ingot.graph.ir import Graph, Node, Value, make_attrs, replace
from ingot.graph.opdef import SizeMismatch
from ingot.graph.types import Dim, Symbol, Type
from ingot.support.errors import IngotError
from ingot.support.names import check_dimensions

Range = tuple[int, int | None]  # lower and upper bound (None: unbounded), both inclusive
MAX_SEARCHED_SIZE = 1 << 14  # largest size tried in the search for a range; heuristic
MAX_DIVISOR = 256  # largest divisor tried in the search for one; heuristic


class SizeSolver:
    """Equalities, ranges and divisors of the dynamic dimensions of one model's inputs."""

    def __init__(
        self,
        taken: Iterable[str],
        given: Mapping[str, int | Range] | None = None,
        example: Mapping[str, tuple[int, ...]] | None = None,
    ):
        self.given = dict(given or {})  # by the caller: name → number or range
        self.example = dict(example or {})  # input → shape
        self._example_sizes: dict[str, int] = {}  # symbol → size
        self.symbols: dict[str, Symbol] = {}  # the free ones, in the order of the inputs
        self.learnt = 0  # how many facts have been added since the inputs were declared
        self._equal: dict[str, Dim] = {}  # the others: name → representative
        self._taken, self._known_names = set(taken), set[str]()
        self._by_param: dict[tuple[str, int | None], Dim] = {}
        self._tables: list[dict[str, Symbol]] = []

    # --- declarations ---------------------------------------------------------------------------

    def named(
        self, param: str, value: str, axis: int, where: str, likely: int | None = None
    ) -> Dim:
        """The dimension that the model calls `param`: the same everywhere, unless the example has
        several sizes for it. A name is a hint, which exporters may give to dimensions that differ.
        """
        size = self._example_size(value, axis)
        if (param, size) not in self._by_param:
            self._by_param[param, size] = self._declare(param, size, where, likely)
        return self._by_param[param, size]

    def unnamed(
        self, value: str, axis: int, where: str, likely: int | None = None, least: int = 1
    ) -> Dim:
        size = self._example_size(value, axis)
        return self._declare(f"{value}_d{axis}", size, where, likely, least)

    def _example_size(self, value: str, axis: int) -> int | None:
        shape = self.example.get(value, ())
        return shape[axis] if axis < len(shape) else None

    def check_example(self, value: str, shape: Sequence[Dim]) -> None:
        """An error if the model cannot take an input of the shape in the example."""
        wanted = self.example.get(value)
        if wanted is not None and (
            len(wanted) != len(shape)
            or any(n not in (None, size) for n, size in zip(map(self._value, shape), wanted))
        ):
            shown = ", ".join(map(str, shape))
            what = f"input {value!r} cannot have shape {list(wanted)}"
            raise IngotError("bad-input", what, hint=f"the model takes [{shown}]")

    def _value(self, size: Dim) -> int | None:
        """A size in the example; None if it has none."""
        if not arith.free_vars(size) <= self._example_sizes.keys():
            return None
        try:
            return arith.evaluate(size, self._example_sizes)
        except (ZeroDivisionError, KeyError, ValueError, TypeError):
            return None

    def _declare(
        self, param: str, size: int | None, where: str, likely: int | None, least: int = 1
    ) -> Dim:
        name = claim(param, self._taken)
        self._known_names |= {param, name}
        if size is not None:
            self._example_sizes[name] = size
        low, high = self._given_range(param, name, default=(least, None))
        if size == 0 and not self.given.keys() & {param, name}:
            low = 0
        if low < 0 or (high is not None and high < low):
            what = f"dimension {param!r} cannot be in {_shown((low, high))}"
            why = "no size is negative" if low < 0 else f"{low} exceeds {high}"
            raise IngotError("bad-option", what, why=why)
        if low == high:
            return arith.Const(low)
        likely = None if likely is None or not low <= likely <= (high or likely) else likely
        self.symbols[name] = Symbol(name, low, high, source="input", origin=where, likely=likely)
        return arith.Var(name)

    def _given_range(self, *names: str, default: Range = (1, None)) -> Range:
        found = next((self.given[name] for name in names if name in self.given), default)
        return (found, found) if isinstance(found, int) else found

    def check_given(self, inputs: Collection[str]) -> None:
        """An error for constraints on dimensions that the model does not have, or whose name is an
        input's too."""
        check_dimensions(sorted(self.given), self._known_names, inputs)

    def share_with(self, table: dict[str, Symbol]) -> None:
        """A builder's symbols: they get the free ones now, and follow what is learnt."""
        table.update(self.symbols)
        self._tables.append(table)

    def mark(self) -> Callable[[], None]:
        """What is known now, as a function that returns to it. Tables that builders share keep
        their own symbols: whoever returns restores those too."""
        names = ("symbols", "_equal", "_example_sizes", "_by_param")
        tables = {name: dict(getattr(self, name)) for name in names}
        learnt, shared = self.learnt, len(self._tables)

        def rewind() -> None:
            for name, table in tables.items():
                setattr(self, name, dict(table))
            self.learnt = learnt
            del self._tables[shared:]

        return rewind

    # --- sizes as they are known now --------------------------------------------------------------

    def resolve(self, size: Dim) -> Dim:
        """The size over free symbols, simplified with their ranges."""
        if not self.learnt or isinstance(size, arith.Const):
            return size
        if isinstance(size, arith.Var):
            return self._equal.get(size.name, size)
        ranges = {s.name: Interval(s.low, s.high) for s in self.symbols.values()}
        return simplifier(ranges).simplify(arith.substitute(size, self._equal))

    def resolve_type(self, type: Type) -> Type:
        if not self.learnt:
            return type
        shape = tuple(map(self.resolve, type.shape))
        return type if shape == type.shape else replace(type, shape=shape)

    def resolve_value(self, value: Value) -> Value:
        type = self.resolve_type(value.type)
        return value if type is value.type else Value(value.name, type)

    def resolve_attr(self, value: Any) -> Any:
        match value:
            case arith.Expr():
                new = self.resolve(value)
                return new.value if isinstance(new, arith.Const) and new != value else new
            case tuple() | list():
                return tuple(map(self.resolve_attr, value))
            case Graph():
                return self.resolve_graph(value)
        return value

    def resolve_graph(self, graph: Graph) -> Graph:
        """The graph with all its sizes over free symbols; each use has its definition's type."""
        if not self.learnt:
            return graph
        values = {v.name: self.resolve_value(v) for v in graph.inputs}
        nodes = tuple(self._resolve_node(node, values) for node in graph.nodes)
        inputs, outputs = (
            tuple(values[v.name] for v in vs) for vs in (graph.inputs, graph.outputs)
        )
        free = (s for s in graph.symbols if s.name not in self._equal)
        symbols = tuple(self.symbols.get(s.name, s) for s in free)
        return replace(graph, inputs=inputs, outputs=outputs, nodes=nodes, symbols=symbols)

    def _resolve_node(self, node: Node, values: dict[str, Value]) -> Node:
        inputs = tuple(None if v is None else values[v.name] for v in node.inputs)
        outputs = tuple(map(self.resolve_value, node.outputs))
        values.update((v.name, v) for v in outputs)
        attrs = {name: self.resolve_attr(value) for name, value in node.attrs}
        return replace(node, inputs=inputs, outputs=outputs, attrs=make_attrs(attrs))

    def exclude_negative_sizes(self, graph: Graph) -> None:
        """Raise each symbol's lower bound to the least for which no size is negative: a signal
        shorter than a filter has no valid run. Sub-graphs may not run, so they do not count."""
        shapes = [v.type.shape for n in graph.nodes for v in n.outputs]
        sizes = {self.resolve(size) for shape in shapes for size in shape}
        for name, symbol in list(self.symbols.items()):
            alone = [size for size in sizes if arith.free_vars(size) == {name}]
            low = least_valid(alone, symbol) if symbol.source == "input" else None
            if low is not None:
                self._restrict(name, (low, None))

    # --- what the operators require ---------------------------------------------------------------

    def unify(self, mismatch: SizeMismatch) -> bool:
        """Make two sizes equal. False: nothing that can be assumed of the inputs does that."""
        a, b = map(self.resolve, mismatch.sizes)
        if a == b or (mismatch.is_broadcast and any(arith.is_const(s, 1) for s in (a, b))):
            return True  # the operands' types are stale
        apart = self._apart_in_example(a, b)
        if apart is not None:
            return self._decide(mismatch, (a, b), apart)
        return self._equate(a, b) or (mismatch.is_broadcast and self._broadcast(a, b))

    def _broadcast(self, a: Dim, b: Dim) -> bool:
        """Sizes that cannot be equal: one that is 1 over a range, as that of x[2:3], is 1."""
        one = arith.Const(1)
        return any(not isinstance(size, arith.Var) and self._narrow(size, one) for size in (a, b))

    def _apart_in_example(self, a: Dim, b: Dim) -> tuple[int, int] | None:
        """The two sizes in the example, if they are known and differ."""
        x, y = self._value(a), self._value(b)
        return (x, y) if x is not None and y is not None and x != y else None

    def _decide(
        self, mismatch: SizeMismatch, sizes: tuple[Dim, Dim], values: tuple[int, int]
    ) -> bool:
        """Two sizes that differ in the example: one that is 1 there is 1, and broadcasts."""
        if mismatch.is_broadcast and 1 in values:
            return self._equate(sizes[values.index(1)], arith.Const(1))
        (a, b), (x, y) = mismatch.sizes, values
        rule = "neither equal nor 1" if mismatch.is_broadcast else "not equal"
        hint = "give inputs whose shapes fit each other; the node above needs it"
        raise IngotError("bad-input", f"sizes {a} = {x} and {b} = {y} are {rule}", hint=hint)

    def _equate(self, a: Dim, b: Dim) -> bool:
        """Make two sizes equal for all inputs."""
        rank: dict[Dim, int] = {arith.Var(name): index for index, name in enumerate(self.symbols)}
        if rank.get(a, -1) > rank.get(b, -1):
            a, b = b, a  # of two symbols, keep the one that comes first in the model
        for x, y in ((b, a), (a, b)):
            if isinstance(x, arith.Var) and x.name in self.symbols and self._may_be(x.name, y):
                self._join(x.name, y)
                return True
        return self._narrow(a, b)

    def _may_be(self, name: str, size: Dim) -> bool:
        """Whether a size such as 8 or `past + 1` can represent the symbol `name`."""
        number = arith.as_int(size)
        if number is not None:
            return number > 0 or self.symbols[name].low == 0
        names = arith.free_vars(size)
        is_plain = not arith.opaques(size)
        return is_plain and bool(names) and names <= self.symbols.keys() - {name}

    def _join(self, name: str, size: Dim) -> None:
        """`name` is represented by `size` from here on."""
        joined = self.symbols[name]
        number = arith.as_int(size)
        if number is not None and not _is_within(number, joined):
            what = f"dimension {name!r} must be {number} in this model"
            raise IngotError("bad-option", what, where=joined.origin)
        if isinstance(size, arith.Var):
            self._restrict(size.name, (joined.low, joined.high))
            size = self.resolve(size)
        self._represent(name, size)

    def _represent(self, name: str, size: Dim, *fresh: Symbol) -> None:
        """Replace a free symbol by an expression, over free symbols and the `fresh` one."""
        for table in (self.symbols, *self._tables):
            rows = list(table.items())
            table.clear()
            for key, symbol in rows:
                table.update({s.name: s for s in fresh} if key == name else {key: symbol})
        self.learnt += 1
        self._equal[name] = size
        self._equal = {other: self.resolve(known) for other, known in self._equal.items()}

    def _restrict(self, name: str, range_: Range) -> None:
        """Intersect the range of a free symbol."""
        symbol = self.symbols[name]
        low, high = _intersection((symbol.low, symbol.high), range_)
        if high is not None and high < low:
            what = f"dimension {name!r} must be in {_shown(range_)} in this model"
            raise IngotError("bad-option", what, where=symbol.origin)
        if low == high:
            self._represent(name, arith.Const(low))
        elif (low, high) != (symbol.low, symbol.high):
            narrower = with_changes(symbol, low=low, high=high)
            for table in (self.symbols, *self._tables):
                table.update({name: narrower} if name in table else {})
            self.learnt += 1

    def _narrow(self, a: Dim, b: Dim) -> bool:
        """Keep the only symbol of both sizes to a range or to multiples that make them equal."""
        names = arith.free_vars(a) | arith.free_vars(b)
        if len(names) != 1 or not names <= self.symbols.keys():
            return False
        (name,) = names
        symbol = self.symbols[name]
        before = (symbol.low, symbol.high)
        found = single_range(lambda n: _is_equal_at(a, b, name, n), symbol)
        if found == before:  # a bound beyond MAX_SEARCHED_SIZE is an operand of a min
            found = _intersection(before, (0, _smallest_limit(a, b)))
        if found is not None:
            self._restrict(name, found)
            return found != before
        divisor = smallest_divisor(lambda n: _is_equal_at(a, b, name, n), symbol)
        if divisor is not None:
            self._divide(symbol, divisor)
        return divisor is not None

    def _divide(self, symbol: Symbol, divisor: int) -> None:
        """A symbol is a multiple of a divisor: the quotient becomes the free symbol."""
        quotient = claim(f"{symbol.name}_by_{divisor}", self._taken)
        self._known_names.add(quotient)
        most = None if symbol.high is None else symbol.high // divisor
        low, high = _intersection((-(-symbol.low // divisor), most), self._given_range(quotient))
        if high is not None and high < low:
            what = f"dimension {symbol.name!r} must be a multiple of {divisor} in this model"
            raise IngotError("bad-option", what, where=symbol.origin)
        fresh = Symbol(quotient, low, high, source="input", origin=symbol.origin)
        if symbol.name in self._example_sizes:
            self._example_sizes[quotient] = self._example_sizes[symbol.name] // divisor
        self._represent(symbol.name, arith.Var(quotient) * divisor, fresh)
        self._restrict(quotient, (low, high))


# --- searches -----------------------------------------------------------------------------------


def least_valid(sizes: Sequence[Dim], symbol: Symbol) -> int | None:
    """The least value of a symbol from which none of the sizes, which depend on it alone, is
    negative; None if there is none up to `MAX_SEARCHED_SIZE`."""

    def is_valid(number: int) -> bool:
        return all(arith.evaluate(size, {symbol.name: number}) >= 0 for size in plain)

    plain = [size for size in sizes if not arith.opaques(size)]
    below, valid = symbol.low, symbol.low
    while not is_valid(valid):
        below, valid = valid, max(1, 2 * valid)
        if valid > MAX_SEARCHED_SIZE:
            return None
    while valid - below > 1:
        middle = (below + valid) // 2
        below, valid = (below, middle) if is_valid(middle) else (middle, valid)
    return valid


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


def _is_equal_at(a: Dim, b: Dim, name: str, number: int) -> bool:
    try:
        return arith.evaluate(a, {name: number}) == arith.evaluate(b, {name: number})
    except ZeroDivisionError:
        return False


def _smallest_limit(*sizes: Dim) -> int | None:
    """The smallest constant operand of a min in the sizes."""
    mins = [e for size in sizes for e in arith.walk(size) if isinstance(e, arith.Min)]
    limits = [arith.as_int(side) for e in mins for side in (e.a, e.b)]
    return min((limit for limit in limits if limit is not None), default=None)


def _is_within(number: int, symbol: Symbol) -> bool:
    return symbol.low <= number and (symbol.high is None or number <= symbol.high)


def _intersection(a: Range, b: Range) -> Range:
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(a[0], b[0]), min(highs) if highs else None


def _shown(range_: Range) -> str:
    return f"{range_[0]}..{'' if range_[1] is None else range_[1]}"
