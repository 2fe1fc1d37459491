"""Index maps of layout transformations: the indices of one layout → those of another.

    IndexMap.of("i, k -> i // 6, k, i % 6")      IndexMap.of(lambda i, k: (i // 6, k, i % 6))

In: text or a function, and the extents of the dimensions. Out: new indices, the new shape, and the
inverse map. A map must be bijective up to padding: every new index is a sum of digits of the old
ones (itermap.py), without gaps, and each digit of an old index appears once. `transform_layout` and
the caches use it; a trace keeps the text.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.arith import expr as arith
from ingot.arith import parse
from ingot.arith.expr import Expr
from ingot.loops import ir
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.itermap import Digit, IterMap
from ingot.support.errors import IngotError

MapLike = str | Callable[..., Any]  # names -> new indices; a function gives one or a tuple


@dataclass(frozen=True)
class InvertedMap:
    """A map on a given shape: the new shape, and each old index as a function of the new ones."""

    shape: tuple[Expr, ...]
    inverse: tuple[Expr, ...]  # over the variables `point`
    point: tuple[str, ...]


@dataclass(frozen=True)
class IndexMap:
    """names → outs, one name for each dimension of the old layout."""

    names: tuple[str, ...]
    outs: tuple[Expr, ...]

    @staticmethod
    def of(what: MapLike) -> IndexMap:
        if isinstance(what, str):
            return _parsed(what)
        if not callable(what):
            raise _bad(repr(what), "it is neither text nor a function")
        names = tuple(inspect.signature(what).parameters)
        made = what(*(arith.Var(n) for n in names))
        outs = made if isinstance(made, tuple | list) else (made,)
        return IndexMap(names, tuple(arith.wrap(e) for e in outs))

    def text(self) -> str:
        return f"{', '.join(self.names)} -> {', '.join(map(str, self.outs))}"

    def apply(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        env = dict(zip(self.names, indices, strict=True))
        return tuple(arith.substitute(e, env) for e in self.outs)

    def inverted_on(self, shape: Sequence[Expr], analyzer: Analyzer) -> InvertedMap | str:
        """The inverse of the map on a buffer of that shape; a text if it has none: why."""
        if len(shape) != len(self.names):
            return f"it takes {len(self.names)} indices, the buffer has {len(shape)}"
        loops = [ir.serial(n, size, ir.Seq(())) for n, size in zip(self.names, shape)]
        for loop in loops:
            analyzer.add(loop)
        return _Inverter(self, loops, analyzer).layout()


class _Inverter:
    """Finds the digits of every new index and rebuilds the old indices from them."""

    def __init__(self, map_: IndexMap, loops: list[ir.For], analyzer: Analyzer):
        self.map, self.loops, self.analyzer = map_, loops, analyzer
        self.reader = IterMap(loops, analyzer)
        self.found: dict[str, list[tuple[Digit, Expr]]] = {n: [] for n in map_.names}

    def layout(self) -> InvertedMap | str:
        point = tuple(f"v{n}" for n in range(len(self.map.outs)))
        shape = []
        for e, var in zip(self.map.outs, point):
            size = self._read(self.analyzer.simplify(e), arith.Var(var))
            if isinstance(size, str):
                return size
            shape.append(size)
        inverse = [self._old_index(loop) for loop in self.loops]
        lost = next((e for e in inverse if isinstance(e, str)), None)
        if lost is not None:
            return lost
        return InvertedMap(tuple(shape), tuple(e for e in inverse if isinstance(e, Expr)), point)

    def _read(self, e: Expr, out: Expr) -> Expr | str:
        """Record the digits of `e`; the size of its dimension."""
        if arith.is_const(e, 0):
            return arith.Const(1)  # a dimension of one element, or the upper part of a short one
        zero = arith.substitute(e, dict.fromkeys(self.map.names, 0))
        if not arith.is_const(self.analyzer.simplify(zero), 0):
            return f"{e} does not start at 0"
        digits = self.reader.decodes(e)
        if not digits or any(d.var not in self.found for d in digits):
            return f"{e} is not a sum of digits of {', '.join(self.map.names)}"
        for n, d in enumerate(digits):
            part = out // d.scale
            if n + 1 < len(digits):
                above = digits[n + 1].scale
                if not self.analyzer.equal(above, d.scale * d.count):
                    return f"{e} leaves gaps"
                part = part % d.count
            self.found[d.var].append((d, part))
        return self.analyzer.simplify(
            sum((d.scale * (d.count - 1) for d in digits), arith.Const(1))
        )

    def _old_index(self, loop: ir.For) -> Expr | str:
        """The old index: the sum of its digits, each times its weight."""
        total: Expr = arith.Const(0)
        reached: Expr = arith.Const(1)
        digits = list(self.found[loop.var])
        while digits:
            found = next((x for x in digits if self.analyzer.equal(x[0].lower, reached)), None)
            if found is None:
                return f"{loop.var} has a digit twice, or one is missing"
            digits.remove(found)
            total = total + found[1] * found[0].lower
            reached = self.analyzer.simplify(reached * found[0].count)
        if not self.analyzer.at_most(loop.stop, reached):
            return f"the upper part of {loop.var} is lost"
        return total


def _parsed(text: str) -> IndexMap:
    left, arrow, right = text.partition("->")
    names = tuple(n.strip() for n in left.split(","))
    if not arrow or not all(ir.is_name(n) for n in names) or len(set(names)) < len(names):
        raise _bad(text, "the part before -> must be the names of the old indices")
    try:
        tree = ast.parse(right.strip(), mode="eval").body
    except SyntaxError as error:
        raise _bad(text, str(error)) from None
    items = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    outs = tuple(parse.read(x) for x in items)
    unsupported = {v for e in outs for v in arith.free_vars(e)} - set(names)
    if unsupported:
        raise _bad(text, f"{min(unsupported)} is not one of {', '.join(names)}")
    return IndexMap(names, outs)


def _bad(text: str, why: str) -> IngotError:
    hint = '"i, k -> i // 6, k, i % 6", or lambda i, k: (i // 6, k, i % 6)'
    return IngotError("bad-schedule", f"not an index map: {text}", why=why, hint=hint)
