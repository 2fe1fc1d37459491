"""Input shapes → every dynamic size of a run: symbols, output shapes, arena and scratch bytes.

Solved once for each distinct tuple of shapes. Errors name the inputs and axes that disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.tape import definitions, tape
from ingot.runtime.package import Growth, Package, Port
from ingot.support import options
from ingot.support.errors import IngotError
from ingot.support.names import did_you_mean

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """The sizes that one tuple of input shapes determines."""

    symbols: tuple[int, ...]  # data-dependent ones are 0 until the run computes them
    outputs: tuple[Shape | None, ...]  # None: known only after the run
    arenas: tuple[int, ...]  # bytes to reserve before the run; 0: the program reserves it
    scratch_bytes: int  # per thread
    useful_threads: int | None  # most threads worth waking for this much work; None: unknown
    length: int = 0  # rows in use of the states after the run
    is_empty: bool = False  # no output has an element: there is nothing to run


def refuse_unknown(package: Package, given: Iterable[str]) -> None:
    """Raise an error if a given name is not one of the model's dynamic dimensions."""
    names = [s.name for s in package.symbols]
    wrong = [name for name in given if name not in names]
    if wrong:
        unknown = ", ".join(map(repr, wrong))
        hint = did_you_mean(wrong[0], names)
        hint += f"the dynamic dimensions are {', '.join(names) or 'none: all shapes are static'}"
        raise IngotError("bad-option", f"no dynamic dimension is called {unknown}", hint=hint)


def prepare(package: Package) -> None:
    """Compile the expressions that `solve` evaluates: otherwise the first call would, in some
    milliseconds."""
    if any(symbol.source == "input" for symbol in package.symbols):
        definitions(package.offsets)
        for size in (*(a.size_bytes for a in package.arenas), package.scratch_bytes):
            tape(size)
        if package.work_ns is not None:
            tape(package.work_ns)


def solve(package: Package, shapes: Sequence[Shape], length: int = 0) -> Sizes:
    """`length`: rows in use of the states before the run."""
    values = _bind(package.inputs, shapes)
    rows = 0
    if package.growth is not None:
        rows = _bind_rows(package, package.growth, values, length)
    for port, shape in zip(package.inputs, shapes):
        _check_port(port, shape, values)
    known = {name: value for name, (value, _) in values.items()}
    outputs = tuple(_shape(port, known) for port in package.outputs)
    table = tuple(known.get(s.name, 0) for s in package.symbols)
    _check_maybe_negative_sizes(package, known)
    is_empty = all(shape is not None and 0 in shape for shape in outputs) and not package.state
    empty = _empty_symbols(package, known) if is_empty else set()
    for symbol in package.symbols:
        if symbol.source == "input" and symbol.name in known.keys() - empty:
            _check_range(package, symbol, known[symbol.name])
    if empty:
        return Sizes(table, outputs, (0,) * len(package.arenas), 0, 1, rows, is_empty=True)
    _check_memory_bounds(package, known)
    bounds = {s.name: s.high for s in package.symbols if s.source == "node" and s.high is not None}
    placed = definitions(package.offsets).evaluate(known) if package.offsets else known
    return Sizes(
        table,
        outputs,
        tuple(
            tape(a.size_bytes).evaluate(placed) if a.is_host_reserved else 0 for a in package.arenas
        ),
        _scratch(package, {**bounds, **known}),
        _useful_threads(package, known),
        rows,
    )


def _bind_rows(
    package: Package, growth: Growth, values: dict[str, tuple[int, str]], length: int
) -> int:
    """The rows in use after the run; an error if the inputs disagree or the states are full."""
    known = {name: value for name, (value, _) in values.items()}
    if arith.free_vars(growth.added) - known.keys():
        what = f"the inputs do not determine how many rows the states gain ({growth.added})"
        raise IngotError("bad-input", what)
    added = arith.evaluate(growth.added, known)
    rows, states = length + added, ", ".join(repr(name) for name, _ in growth.axes[:2])
    capacity = next(s.high for s in package.symbols if s.name == growth.rows)
    if capacity is not None and rows > capacity:
        raise IngotError(
            "bad-input",
            f"the state is full: {length} rows in use and {added} new ones exceed {capacity}",
            where=f"state {states}{', …' if len(growth.axes) > 2 else ''}",
            why="the state is as it was before the call",
            hint="compile with a larger capacity=, or shorten it: state.reset(length)",
        )
    value, there = values.setdefault(growth.rows, (rows, "the state"))
    if value != rows:
        raise IngotError(
            "bad-input",
            f"the inputs disagree about {growth.rows!r}: {there} is {value}, the state has {rows} "
            f"rows after this call",
            why=f"{length} are in use and {added} are new",
            hint=f"give {rows} along that axis",
        )
    return rows


def _bind(inputs: Sequence[Port], shapes: Sequence[Shape]) -> dict[str, tuple[int, str]]:
    """Symbol → (value, axis it was solved from), for dimensions of one symbol, such as n or 2*n."""
    values: dict[str, tuple[int, str]] = {}
    for port, shape in zip(inputs, shapes):
        if len(shape) != len(port.shape):
            raise _wrong_shape(port, shape, f"it has {len(shape)} axes, not {len(port.shape)}")
        for axis, (dim, size) in enumerate(zip(port.shape, shape)):
            found = arith.solve_var(dim, size)
            if found is None:
                continue
            name, number = found
            here = f"axis {axis} of input {port.name!r}"
            if name in values and values[name][0] != number:
                other, there = values[name]
                raise IngotError(
                    "bad-input",
                    f"the inputs disagree about {name!r}: {there} is {other}, {here} is {number}",
                    hint=f"give both the same size along {name!r}; where one is 1 or they are not "
                    "related, ingot.compile makes a version for them, a plan file has none",
                )
            values.setdefault(name, (number, here))
    return values


def _check_port(port: Port, shape: Shape, values: dict[str, tuple[int, str]]) -> None:
    known = {name: value for name, (value, _) in values.items()}
    for axis, (dim, size) in enumerate(zip(port.shape, shape)):
        if arith.free_vars(dim) - known.keys():
            raise _wrong_shape(port, shape, f"axis {axis} ({dim}) cannot be solved for its symbols")
        expected = arith.evaluate(dim, known)
        if expected != size:
            why = f"axis {axis} is {size}, not {expected}"
            raise _wrong_shape(port, shape, why + (f" ({dim})" if arith.free_vars(dim) else ""))


def _empty_symbols(package: Package, known: dict[str, int]) -> set[str]:
    """Dimensions that are 0 and otherwise unlimited: the code is for 1 and more, but where no
    output has an element, none of it need run. Shapes that were simplified for 1 and more, such as
    that of x[:1], may be wrong for 0: all such dimensions must be kept by every output."""
    free = {s.name for s in package.symbols if (s.low, s.high, s.divisor) == (1, None, 1)}
    empty = {name for name in free if known.get(name) == 0}
    ins, outs = (list(map(_plain_dims, ports)) for ports in (package.inputs, package.outputs))
    is_kept = all(empty <= set(names) for names in outs)
    is_unique = all(names.count(name) <= 1 for names in ins for name in empty)
    return empty if is_kept and is_unique else set()


def _plain_dims(port: Port) -> list[str]:
    return [dim.name for dim in port.shape if isinstance(dim, arith.Var)]


def _check_range(package: Package, symbol, value: int) -> None:
    where = next(
        f"input {p.name!r}, axis {axis}"
        for p in package.inputs
        for axis, dim in enumerate(p.shape)
        if symbol.name in arith.free_vars(dim)
    )
    top = "…" if symbol.high is None else symbol.high
    if value < symbol.low or (symbol.high is not None and value > symbol.high):
        wider = f"shapes={{{symbol.name!r}: (low, high)}}"
        hint = f"compile with {wider} for a wider range, if the model allows it"
        raise IngotError(
            "bad-input",
            f"{symbol.name!r} is {value}, outside its range {symbol.low} to {top}",
            where=where,
            hint=hint,
        )
    if value % symbol.divisor:
        raise IngotError(
            "bad-input",
            f"{symbol.name!r} is {value}, not a multiple of {symbol.divisor}",
            where=where,
            hint=f"pad that axis to {-(-value // symbol.divisor) * symbol.divisor}",
        )


def _check_maybe_negative_sizes(package: Package, known: dict[str, int]) -> None:
    for name, dim in package.maybe_negative_sizes:
        size = arith.evaluate(dim, known)
        if size < 0:
            what = f"the inputs are too small: {name!r} would have size {size} along an axis"
            hint = "give larger inputs"
            raise IngotError("bad-input", what, why=f"the size is {dim}", hint=hint)


def _check_memory_bounds(package: Package, known: dict[str, int]) -> None:
    """What the compiler could not prove of the memory plan (program/bounds.py)."""
    for name, room in package.memory_bounds:
        if arith.evaluate(room, known) < 0:
            sizes = ", ".join(f"{n} = {known[n]}" for n in sorted(arith.free_vars(room)))
            raise IngotError(
                "limit",
                f"the memory plan does not hold for {sizes}",
                where=f"buffer {name!r}",
                why=f"{room} must not be negative",
                hint="compile with shapes= for these sizes",
            )


def _shape(port: Port, known: dict[str, int]) -> Shape | None:
    if any(arith.free_vars(dim) - known.keys() for dim in port.shape):
        return None
    return tuple(arith.evaluate(dim, known) for dim in port.shape)


def _scratch(package: Package, known: dict[str, int]) -> int:
    missing = arith.free_vars(package.scratch_bytes) - known.keys()
    if missing:
        raise IngotError(
            "limit",
            f"a kernel's scratch size depends on {', '.join(sorted(missing))}",
            why="this data-dependent size has no upper bound",
        )
    return tape(package.scratch_bytes).evaluate(known)


def _useful_threads(package: Package, known: dict[str, int]) -> int | None:
    """One thread, and one more for every `work_per_thread_us` of estimated work."""
    min_ns = options.current().work_per_thread_us * 1e3
    if package.work_ns is None or arith.free_vars(package.work_ns) - known.keys() or not min_ns:
        return package.max_threads
    useful = 1 + int(tape(package.work_ns).evaluate(known) / min_ns)
    return useful if package.max_threads is None else min(useful, package.max_threads)


def _wrong_shape(port: Port, shape: Shape, why: str) -> IngotError:
    expected = ", ".join(map(str, port.shape))
    return IngotError(
        "bad-input", f"input {port.name!r} has shape {list(shape)}, expected [{expected}]", why=why
    )
