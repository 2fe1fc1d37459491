"""Write graphs as text in tests: `@name` stands for a constant given by that name."""

from __future__ import annotations

import re

import numpy as np

import ingot.ops  # noqa: F401  the operator table
from ingot.arith import expr as arith
from ingot.graph.interp import run
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.text import parse, show
from ingot.graph.verify import verify


def graph(text: str, store: ConstantStore | None = None, **arrays: np.ndarray) -> Graph:
    """The verified graph of a text in which constants are named."""
    store = store if store is not None else ConstantStore()
    for name, array in arrays.items():
        digest = store.add(np.asarray(array)).digest
        text = re.sub(rf"@{name}\b", f"@{digest}", text)
    made = parse(text)
    verify(made)
    return made


def expect(got: Graph, text: str, store: ConstantStore, **arrays: np.ndarray) -> None:
    """`got` is, node for node, the graph of the text."""
    verify(got)
    assert show(got) == show(graph(text, store, **arrays))


def inputs_for(g: Graph, seed: int = 0) -> list[np.ndarray]:
    """Random inputs; symbolic sizes are small numbers that their declarations allow."""
    rng = np.random.default_rng(seed)
    sizes = {}
    for symbol in g.symbols:
        top = symbol.low + 6 if symbol.high is None else min(symbol.high, symbol.low + 6)
        count = max(1, rng.integers(symbol.low, top, endpoint=True) // symbol.divisor)
        sizes[symbol.name] = int(count) * symbol.divisor
    arrays = []
    for value in g.inputs:
        shape = [arith.evaluate(d, sizes) for d in value.shape]
        if value.dtype.is_float:
            array = rng.standard_normal(shape)
        else:
            array = rng.integers(0, 2 if value.dtype.is_bool else 5, shape)
        arrays.append(np.asarray(array).astype(value.dtype.numpy))
    return arrays


def agree(
    before: Graph, after: Graph, store: ConstantStore, rtol: float = 0.0, seeds: int = 3
) -> None:
    """Both graphs have the same outputs under the same names; `rtol` is relative to the largest."""
    verify(after)
    assert [v.name for v in before.inputs] == [v.name for v in after.inputs]
    assert [v.name for v in before.outputs] == [v.name for v in after.outputs]
    for seed in range(seeds):
        arrays = inputs_for(after, seed)
        for a, b in zip(run(before, store, arrays), run(after, store, arrays), strict=True):
            scale = float(np.max(np.abs(a.astype(np.float64)), initial=0.0))
            np.testing.assert_allclose(
                b.astype(np.float64), a.astype(np.float64), rtol=rtol, atol=rtol * scale
            )
