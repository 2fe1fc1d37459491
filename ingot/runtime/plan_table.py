"""A package's tables ↔ JSON values, for the plan file.

In: a Package. Out: numbers, strings, lists and dicts; the bytes of modules and constants are stored
elsewhere. Called by plan_file.py. An integer expression is a number, or a list of tokens in postfix
order: 3*n + 1 is [3, "$n", "*", 1, "+"].
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.runtime.package import (
    ArenaSpec,
    Bundle,
    Growth,
    HostStep,
    LaunchInfo,
    Module,
    Package,
    Port,
    SizeSymbol,
    Storage,
)
from ingot.runtime.report import LaunchRow, MachineModel

_SYMBOLS = {kind.symbol: kind for kind in arith.BINARY}
_PLAIN = ("name", "max_threads", "signature", "fingerprint")


def table_of(package: Package) -> dict[str, Any]:
    """The whole package but its modules and constants."""
    table = {name: getattr(package, name) for name in _PLAIN}
    return table | {
        "inputs": [_from_port(port) for port in package.inputs],
        "outputs": [_from_port(port) for port in package.outputs],
        "notes": list(package.notes),
        "constant_places": [list(place) for place in package.constant_places],
        "borrowed": [list(row) for row in package.borrowed],
        "strings": list(package.strings),
        "map_inputs": list(package.map_inputs),
        "map_outputs": [[name, list(labels)] for name, labels in package.map_outputs],
        "host_steps": [list(astuple(step)) for step in package.host_steps],
        "state": [list(pair) for pair in package.state],
        "growth": package.growth and _from_growth(package.growth),
        "bundles": [[b.name, list(b.kinds), list(b.values)] for b in package.bundles],
        "symbols": [list(astuple(symbol)) for symbol in package.symbols],
        "arenas": [[a.name, from_expr(a.size_bytes), a.is_host_reserved] for a in package.arenas],
        "scratch_bytes": from_expr(package.scratch_bytes),
        "launches": [[x.kernel, x.origin, list(x.reasons), x.is_kernel] for x in package.launches],
        "work_ns": from_expr(package.work_ns),
        "maybe_negative_sizes": [
            [name, from_expr(size)] for name, size in package.maybe_negative_sizes
        ],
        "memory_bounds": [[name, from_expr(room)] for name, room in package.memory_bounds],
        "offsets": [[name, from_expr(at)] for name, at in package.offsets],
        "machine_model": package.machine_model and list(astuple(package.machine_model)),
        "report": [[_from_cell(row, f.name) for f in fields(row)] for row in package.report],
    }


def package_of(
    table: dict[str, Any],
    modules: tuple[Module, ...],
    constants: np.ndarray,
    initial: tuple[tuple[str, np.ndarray], ...] = (),
) -> Package:
    """The package of a table; KeyError, TypeError or ValueError if the table is invalid."""
    return Package(
        **{name: table[name] for name in _PLAIN},
        modules=modules,
        constants=constants,
        initial=initial,
        inputs=tuple(map(_to_port, table["inputs"])),
        outputs=tuple(map(_to_port, table["outputs"])),
        notes=tuple(table["notes"]),
        constant_places=tuple((name, at) for name, at in table["constant_places"]),
        borrowed=tuple((port, name, own) for port, name, own in table["borrowed"]),
        strings=tuple(table["strings"]),
        map_inputs=tuple(table["map_inputs"]),
        map_outputs=tuple((name, tuple(labels)) for name, labels in table["map_outputs"]),
        host_steps=tuple(map(_to_host_step, table["host_steps"])),
        state=tuple((old, new) for old, new in table["state"]),
        growth=_to_growth(table["growth"]),
        bundles=tuple(Bundle(n, tuple(k), tuple(v)) for n, k, v in table["bundles"]),
        symbols=tuple(SizeSymbol(*symbol) for symbol in table["symbols"]),
        arenas=tuple(
            ArenaSpec(name, to_expr(size), reserved) for name, size, reserved in table["arenas"]
        ),
        scratch_bytes=to_expr(table["scratch_bytes"]),
        launches=tuple(
            LaunchInfo(kernel, origin, tuple(reasons), is_kernel)
            for kernel, origin, reasons, is_kernel in table["launches"]
        ),
        work_ns=_to_optional(table["work_ns"]),
        maybe_negative_sizes=tuple(
            (name, to_expr(size)) for name, size in table["maybe_negative_sizes"]
        ),
        memory_bounds=tuple((name, to_expr(room)) for name, room in table["memory_bounds"]),
        offsets=tuple((name, to_expr(at)) for name, at in table["offsets"]),
        report=tuple(map(_to_row, table["report"])),
        machine_model=_to_machine_model(table["machine_model"]),
    )


def from_expr(e: arith.Expr | None) -> int | list | None:
    """The tokens of an expression; without recursion, since the tree of a long sum is deep."""
    if e is None or isinstance(e, arith.Const):
        return None if e is None else e.value
    tokens: list[int | str] = []
    pending: list[arith.Expr] = [e]
    while pending:  # operator, right operand, left operand: reversed below
        match pending.pop():
            case arith.Const(value=value):
                tokens.append(value)
            case arith.Var(name=name):
                tokens.append(f"${name}")
            case arith.Binary(a=a, b=b) as binary:
                tokens.append(binary.symbol)
                pending += [a, b]
            case other:
                raise TypeError(f"not a size of a package: {other!r}")
    return tokens[::-1]


def to_expr(tokens: int | list) -> arith.Expr:
    if isinstance(tokens, int):
        return arith.Const(tokens)
    stack: list[arith.Expr] = []
    for token in tokens:
        if isinstance(token, int):
            stack.append(arith.Const(token))
        elif token.startswith("$"):
            stack.append(arith.Var(token[1:]))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(_SYMBOLS[token](a, b))
    (whole,) = stack
    return whole


def _to_optional(tokens: int | list | None) -> arith.Expr | None:
    return None if tokens is None else to_expr(tokens)


def _to_host_step(row: list) -> HostStep:
    name, attrs, inputs, outputs, keeps, takes, sizes = row
    return HostStep(
        name,
        tuple((key, tuple(v) if isinstance(v, list) else v) for key, v in attrs),
        tuple(None if type is None else (type[0], type[1]) for type in inputs),
        tuple((dtype, rank) for dtype, rank in outputs),
        keeps,
        takes,
        tuple((result, axis) for result, axis in sizes),
    )


def _from_growth(growth: Growth) -> list:
    return [growth.rows, from_expr(growth.added), [list(pair) for pair in growth.axes]]


def _to_growth(row: list | None) -> Growth | None:
    if row is None:
        return None
    rows, added, axes = row
    return Growth(rows, to_expr(added), tuple((name, axis) for name, axis in axes))


def _from_port(port: Port) -> list:
    storage = [port.storage.kind, port.storage.number, from_expr(port.storage.offset)]
    return [port.name, port.dtype, [from_expr(dim) for dim in port.shape], storage, port.device]


def _to_port(row: list) -> Port:
    name, dtype, shape, (kind, number, offset), device = row
    storage = Storage(kind, number, _to_optional(offset))
    return Port(name, dtype, tuple(map(to_expr, shape)), storage, device)


_SIZES = [f.name in ("parallel_extent", "flops", "arg_bytes") for f in fields(LaunchRow)]


def _from_cell(row: LaunchRow, name: str) -> Any:
    value = getattr(row, name)
    return from_expr(value) if isinstance(value, arith.Expr) else value


def _to_row(cells: list) -> LaunchRow:
    return LaunchRow(*map(_to_cell, cells, _SIZES))


def _to_cell(value: Any, is_size: bool) -> Any:
    if is_size:
        return _to_optional(value)
    return tuple(value) if isinstance(value, list) else value


def _to_machine_model(values: list[Any] | None) -> MachineModel | None:
    if values is None:
        return None
    flops_per_ns, lanes, levels = values
    return MachineModel(flops_per_ns, lanes, tuple((size, rate) for size, rate in levels))
