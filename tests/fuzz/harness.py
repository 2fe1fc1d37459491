"""Random cases, compiled many at a time and held against the graph interpreter's numpy answers.

In: `Case`s, each a few arrays and a function that appends nodes. Out: nothing, or an AssertionError
that names the case. Inputs and outputs lie right beside unreadable pages, so that native code that
touches an element too many dies at once; outputs are filled with noise first, so that an element
never stored is seen.
"""

from __future__ import annotations

import ctypes
import mmap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import ingot
import ingot.ops
from ingot import api, dtypes, pipeline
from ingot.arith import expr as arith
from ingot.graph import interp as graph_interp
from ingot.graph import text as graph_text
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType

Build = Callable[[GraphBuilder, list[Value]], list[Value]]

# Allowed distance, in parts of an output's largest value. Integers and moves are equal.
RESIZED = 2  # further runs of a build with symbols
LIMITS = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}


@dataclass(frozen=True)
class Case:
    """`fixed`: axes whose size must stay a number, input by input. `may_resize`: the values of the
    inputs (indices) do not depend on their sizes."""

    label: str
    arrays: Sequence[np.ndarray]
    build: Build
    fixed: Mapping[int, Sequence[int]] = field(default_factory=dict)
    limit: float | None = None  # instead of LIMITS; 0 wants equal bits
    may_resize: bool = True


@dataclass
class Suite:
    """Cases in one graph."""

    graph: Graph
    store: ConstantStore
    feeds: dict[str, np.ndarray]
    owner: dict[str, Case]  # output name → case


def collect(cases: Sequence[Case], rng: np.random.Generator | None = None) -> Suite:
    """One graph of all cases. With `rng`, about half of the sizes that may be are symbols."""
    store = ConstantStore()
    g = GraphBuilder("fuzz", store)
    suite = Suite(g.finish([]), store, {}, {})
    outputs: list[Value] = []
    for number, case in enumerate(cases):
        known = _known(case, rng)
        values = []
        for index, array in enumerate(case.arrays):
            shape = tuple(_size(g, number, size, known) for size in array.shape)
            type = TensorType(dtypes.from_numpy(array.dtype), shape)
            values.append(g.input(f"c{number}_x{index}", type))
            suite.feeds[f"c{number}_x{index}"] = array
        try:
            made = case.build(g, values)
        except ingot.IngotError as error:
            raise AssertionError(f"{case.label} does not build: {error}") from error
        for value in made:
            suite.owner[value.name] = case
        outputs += made
    suite.graph = g.finish(outputs)
    return suite


def _known(case: Case, rng: np.random.Generator | None) -> set[int]:
    """Sizes of a case that stay numbers; equal sizes are treated alike, so operands still fit."""
    sizes = sorted({n for array in case.arrays for n in array.shape})
    if rng is None:
        return set(sizes)
    pairs = [(case.arrays[i], axis) for i, axes in case.fixed.items() for axis in axes]
    fixed = {1} | {array.shape[axis] for array, axis in pairs if axis < array.ndim}
    return fixed | {n for n in sizes if rng.random() < 0.4}


def _size(g: GraphBuilder, number: int, size: int, known: set[int]) -> arith.Expr:
    if size in known:
        return arith.Const(size)
    name = f"c{number}_n{size}"
    g.symbols.setdefault(name, Symbol(name, source="input"))
    return arith.Var(name)


def check(
    cases: Sequence[Case], rng: np.random.Generator | None = None, target: str = "cpu"
) -> None:
    """Compile the cases together; one thread and two must give what numpy gives. With `rng` the
    same build then serves other sizes."""
    suite = collect(cases, rng)
    session = api.make_session(target, jobs=1)
    session.store = suite.store
    exe = ingot.Executable(pipeline.run_stages(suite.graph, session))
    wants = answers(suite, suite.feeds)
    run_and_compare(exe, suite, suite.feeds, wants)
    if rng is None or not all(case.may_resize for case in cases):
        return
    for _ in range(RESIZED):
        feeds = resized(suite, rng)
        try:
            wants = answers(suite, feeds)
        except (ValueError, ingot.IngotError):  # numpy has no answer for these sizes
            continue
        run_and_compare(exe, suite, feeds, wants)


def answers(suite: Suite, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    inputs = [feeds[value.name] for value in suite.graph.inputs]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return graph_interp.run(suite.graph, suite.store, inputs)


def resized(suite: Suite, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The inputs again with other values of the symbols."""
    sizes: dict[str, int] = {}
    feeds: dict[str, np.ndarray] = {}
    for value in suite.graph.inputs:
        old = suite.feeds[value.name]
        for dim, size in zip(value.shape, old.shape):
            if isinstance(dim, arith.Var) and dim.name not in sizes:
                choices = (0, 1, 1, size + 1, 2 * size, size + 7, max(1, size - 1))
                sizes[dim.name] = choices[int(rng.integers(len(choices)))]
        shape = tuple(arith.evaluate(dim, sizes) for dim in value.shape)
        feeds[value.name] = np.resize(old, shape)
    return feeds


def run_and_compare(
    exe: ingot.Executable,
    suite: Suite,
    feeds: Mapping[str, np.ndarray],
    wants: Sequence[np.ndarray],
) -> None:
    names = [value.name for value in suite.graph.outputs]
    found = []
    for threads in (2, 1):
        exe.threads = threads
        walled = {name: beside_a_wall(a, at_end=threads == 2) for name, a in feeds.items()}
        out = [_noise(w, threads == 2) if _is_slot(exe, i) else None for i, w in enumerate(wants)]
        got = exe.run(names, walled, out=out)
        for name, have, want in zip(names, got, wants):
            compare(suite, name, have, want, feeds)
        for name, before in feeds.items():
            assert walled[name].tobytes() == before.tobytes(), f"input {name} was overwritten"
        found.append([a.tobytes() for a in got])
    for name, one, two in zip(names, *found):
        assert one == two, f"threads change the answer\n{describe(suite, name, feeds)}"


def compare(
    suite: Suite,
    name: str,
    have: np.ndarray,
    want: np.ndarray,
    feeds: Mapping[str, np.ndarray],
) -> None:
    case = suite.owner[name]
    assert (have.dtype, have.shape) == (want.dtype, want.shape), describe(suite, name, feeds)
    error = distance(have, want)
    dtype = dtypes.from_numpy(want.dtype)
    limit = case.limit if case.limit is not None else LIMITS.get(dtype.name, 0.0)
    assert error <= limit, f"off by {error:.2e} of the largest\n{describe(suite, name, feeds)}"


def distance(have: np.ndarray, want: np.ndarray) -> float:
    """max|a-b| in parts of max(1, max|b|); infinite where NaNs, infinities or integers differ."""
    if not dtypes.from_numpy(want.dtype).is_float:
        return 0.0 if np.array_equal(have, want) else float("inf")
    if have.tobytes() == want.tobytes():
        return 0.0
    a, b = have.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(a[finite]).all():
        return float("inf")
    largest = max(1.0, np.abs(b[finite]).max(initial=0.0))
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / largest)


def describe(suite: Suite, name: str, feeds: Mapping[str, np.ndarray]) -> str:
    """The case of an output and the nodes that made it."""
    case = suite.owner[name]
    made = suite.graph.producers()
    todo, seen = [name], set()
    while todo:
        node = made.get(todo.pop())
        if node is not None and node not in seen:
            seen.add(node)
            todo += [v.name for v in node.inputs if v is not None]
    nodes = tuple(n for n in suite.graph.nodes if n in seen)
    used = {v.name for n in nodes for v in n.inputs if v is not None}
    inputs = tuple(v for v in suite.graph.inputs if v.name in used)
    outputs = tuple(v for v in suite.graph.outputs if v.name == name)
    part = Graph(case.label, inputs, outputs, nodes, suite.graph.symbols)
    shapes = ", ".join(f"{v.name}{list(feeds[v.name].shape)}" for v in inputs)
    return f"{case.label}: {name} from {shapes}\n{graph_text.show(part)}"


# --- memory with walls --------------------------------------------------------------------------

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def beside_a_wall(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy that ends (or begins) where unreadable memory begins (or ends)."""
    made = _walled(array.shape, array.dtype, at_end)
    made[...] = array
    return made


def _walled(shape: tuple[int, ...], dtype: np.dtype, at_end: bool) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    inner = max(1, -(-count // _PAGE)) * _PAGE
    memory = mmap.mmap(-1, inner + 2 * _PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for wall in (start, start + _PAGE + inner):
        failed = _libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(_PAGE), 0)
        assert failed == 0, "mprotect"
    offset = _PAGE + (inner - count if at_end else 0)
    return np.ndarray(shape, dtype, buffer=memory, offset=offset)


def _noise(like: np.ndarray, at_end: bool) -> np.ndarray:
    made = _walled(like.shape, like.dtype, at_end)
    if made.size:
        made.reshape(-1).view(np.uint8)[...] = 0xA5
    return made


def _is_slot(exe: ingot.Executable, index: int) -> bool:
    return exe.outputs[index].port.storage.kind == "slot"
