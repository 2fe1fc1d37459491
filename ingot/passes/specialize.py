"""Shape specialisation: fixes or constrains dynamic dimensions, as `ingot.compile(shapes=…)` asks.

Runs first. The import of a model file applies `shapes` already, since sizes may decide what a node
means; only dimensions that are dynamic in an edited dump are left. A Graph passed as the model has
all of them dynamic.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.graph.ir import Graph, replace
from ingot.graph.substitute import substitute_graph
from ingot.graph.types import Symbol
from ingot.support.errors import IngotError
from ingot.support.names import check_dimensions

Wanted = int | tuple[int, int | None]


def specialize(graph: Graph, shapes: Mapping[str, Wanted]) -> Graph:
    """Replace a symbol given an integer by it everywhere; constrain one given (low, high) to that
    range. Both must be within the model's range. Only dimensions of inputs can be given."""
    check_names(graph, shapes)
    known = _of_inputs(graph)
    narrowed = {n: _constrained(known[n], want) for n, want in shapes.items() if _is_range(want)}
    fixed = {n: _fixed(known[n], want) for n, want in shapes.items() if not _is_range(want)}
    fixed |= {n: s.low for n, s in narrowed.items() if s.low == s.high}
    symbols = tuple(narrowed.get(s.name, s) for s in graph.symbols)
    return substitute_graph(replace(graph, symbols=symbols), fixed)


def check_names(graph: Graph, shapes: Mapping[str, Wanted]) -> None:
    """Raise an error for a name that is not a dynamic dimension of the graph's inputs."""
    check_dimensions(shapes, _of_inputs(graph), {value.name for value in graph.inputs})


def still_dynamic(graph: Graph, shapes: Mapping[str, Wanted]) -> dict[str, Wanted]:
    """The entries of `shapes` whose dimension is still dynamic in the graph."""
    known = _of_inputs(graph)
    return {name: want for name, want in shapes.items() if name in known}


def _of_inputs(graph: Graph) -> dict[str, Symbol]:
    return {s.name: s for s in graph.symbols if s.source == "input"}


def _is_range(want: Wanted) -> bool:
    return not isinstance(want, int)


def _fixed(symbol: Symbol, want: Wanted) -> int:
    assert isinstance(want, int)
    _constrained(symbol, (want, want))
    return want


def _constrained(symbol: Symbol, want: Wanted) -> Symbol:
    assert not isinstance(want, int)
    step = symbol.divisor
    low = -(-want[0] // step) * step
    wanted = symbol.high if want[1] is None else want[1]
    high = None if wanted is None else wanted // step * step
    is_outside = want[0] < symbol.low or (
        symbol.high is not None and wanted is not None and wanted > symbol.high
    )
    if is_outside or (high is not None and high < low):
        limit = "" if symbol.high is None else symbol.high
        why = f"the model allows {symbol.low}..{limit}"
        why += f" in steps of {step}" if step != 1 else ""
        top = "…" if want[1] is None else want[1]
        given = top if want[0] == top else f"{want[0]} to {top}"
        if want[1] is not None and want[1] < want[0]:
            why = "the range ends before it begins"
        raise IngotError(
            "bad-option", f"dynamic dimension {symbol.name!r} cannot be {given}", why=why
        )
    return replace(symbol, low=low, high=high)
