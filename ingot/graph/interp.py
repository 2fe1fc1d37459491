"""The graph interpreter: runs each operator's numpy reference in order. It defines the meaning of
the IR. In: a Graph, the store of its constants, input arrays. Out: output arrays. Tests,
`fold_constants` and the search for the first wrong layer call it; a compiled model never does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot import dtypes, strings
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.opdef import lookup
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol
from ingot.graph.verify import bound_symbols, describe
from ingot.support.errors import IngotError

Sizes = dict[str, int]


def run(
    graph: Graph, store: ConstantStore, inputs: Sequence[np.ndarray], length: int = 0
) -> list[np.ndarray]:
    """The graph's outputs for these inputs; `length` is the rows in use of states that grow."""
    values = run_all(graph, store, inputs, length)
    return [values[v.name] for v in graph.outputs]


def run_all(
    graph: Graph, store: ConstantStore, inputs: Sequence[np.ndarray], length: int = 0
) -> dict[str, np.ndarray]:
    """Every value of the graph by name, inputs included."""
    return _run(graph, store, inputs, {}, length)


def run_node(
    node: Node, store: ConstantStore, inputs: Sequence[np.ndarray | None], sizes: Mapping[str, int]
) -> list[np.ndarray]:
    """One node's outputs; `sizes` holds the values of the symbols in its attributes."""
    ref = node.attr("value")
    if node.op == "constant" and isinstance(ref, ConstRef):
        return [store.get(ref)]
    attrs = {name: resolve(value, sizes) for name, value in node.attrs}

    def run_subgraph(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = _run(graph, store, arrays, sizes)
        return [values[v.name] for v in graph.outputs]

    try:
        with np.errstate(all="ignore"), strings.using(store.strings):
            outputs = lookup(node.op).evaluate(inputs, attrs, run_subgraph)
    except IngotError as error:
        if error.where:
            raise
        raise IngotError(
            error.code, error.what, where=describe(node), why=error.why, hint=error.hint
        ) from error
    return [np.asarray(array) for array in outputs]


def resolve(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with its symbolic sizes evaluated."""
    if isinstance(value, arith.Expr):
        return arith.evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(resolve(v, sizes) for v in value)
    return value


def _run(
    graph: Graph, store: ConstantStore, inputs: Sequence[np.ndarray], outer: Mapping[str, int],
    length: int = 0,
) -> dict[str, np.ndarray]:  # fmt: skip
    sizes = _bind_inputs(graph, inputs, outer, length)
    values = {v.name: np.asarray(a) for v, a in zip(graph.inputs, inputs)}
    for node in graph.nodes:
        operands = [None if v is None else values[v.name] for v in node.inputs]
        outputs = run_node(node, store, operands, sizes)
        sizes |= _bind_outputs(node, outputs, graph.symbol_map)
        for value, array in zip(node.outputs, outputs, strict=True):
            _check(value, array, sizes, "run-failed", describe(node))
            values[value.name] = array
    return values


def _bind_inputs(
    graph: Graph, inputs: Sequence[np.ndarray], outer: Mapping[str, int], length: int
) -> dict[str, int]:
    """Bind symbols to the input shapes. If two axes disagree, the error names both."""
    if len(inputs) != len(graph.inputs):
        what = f"{graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}"
        raise IngotError("bad-input", what)
    sizes: Sizes = dict(outer)
    sources = dict.fromkeys(outer, "the enclosing graph")
    for value, array in zip(graph.inputs, inputs):
        type = value.type
        if type.rank != np.ndim(array):
            continue  # _check below raises the error
        for axis, (dim, size) in enumerate(zip(type.shape, np.shape(array))):
            found = arith.solve_var(dim, size)
            if found is None:
                continue
            name, number = found
            here = f"axis {axis} of {value.name!r}"
            if sizes.setdefault(name, number) != number:
                why = f"{sources[name]} is {sizes[name]}, {here} is {number}"
                raise IngotError("bad-input", f"dynamic dimension {name!r} has two values", why=why)
            sources.setdefault(name, here)
    if graph.growth is not None:
        name, number = graph.growth.rows, length + arith.evaluate(graph.growth.added, sizes)
        if sizes.setdefault(name, number) != number:
            why = f"{sources[name]} is {sizes[name]}, the states have {number} rows after the run"
            raise IngotError("bad-input", f"dynamic dimension {name!r} has two values", why=why)
        sources.setdefault(name, "the states")
    for symbol in graph.symbols:
        if symbol.name in sources:
            _check_range(symbol, sizes[symbol.name], "bad-input", sources[symbol.name])
    for value, array in zip(graph.inputs, inputs):
        _check(value, np.asarray(array), sizes, "bad-input", f"input {value.name!r}")
    return sizes


def _bind_outputs(
    node: Node, outputs: Sequence[np.ndarray], symbols: Mapping[str, Symbol]
) -> Sizes:
    names = bound_symbols(node)
    if not names:
        return {}
    types = [v.type for v in node.outputs]
    found = lookup(node.op).bound_values(outputs, types, node.attr_map)
    for name, size in zip(names, found, strict=True):
        if name in symbols:
            _check_range(symbols[name], size, "run-failed", describe(node))
    return dict(zip(names, found))


def _check_range(symbol: Symbol, size: int, code: str, where: str) -> None:
    too_large = symbol.high is not None and size > symbol.high
    if size < symbol.low or too_large or size % symbol.divisor:
        high = "" if symbol.high is None else symbol.high
        step = f", a multiple of {symbol.divisor}" if symbol.divisor != 1 else ""
        why = f"{symbol.name} is in {symbol.low}..{high}{step}"
        raise IngotError(code, f"dynamic dimension {symbol.name!r} is {size}", where=where, why=why)


def _check(value: Value, array: np.ndarray, sizes: Sizes, code: str, where: str) -> None:
    """Check the array against the declared type."""
    type = value.type
    if array.dtype != type.dtype.numpy:
        got = dtypes.from_numpy(array.dtype) if _is_known(array.dtype) else array.dtype
        raise IngotError(code, f"{value.name!r} holds {got}, declared {type}", where=where)
    expected = tuple(arith.evaluate(d, sizes) for d in type.shape)
    if expected != array.shape:
        what = f"{value.name!r} has shape {array.shape}, declared {type}"
        known = {n: sizes[n] for d in type.shape for n in sorted(arith.free_vars(d))}
        why = f"with {', '.join(f'{n}={s}' for n, s in known.items())}" if known else ""
        raise IngotError(code, what, where=where, why=why)


def _is_known(dtype: np.dtype) -> bool:
    return dtype in {d.numpy for d in dtypes.TABLE.values()}
