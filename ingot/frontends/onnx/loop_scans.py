"""Scan outputs of a Loop whose rows have a size that only an iteration knows.

In: the operands and attributes of a `loop`, and the numbers of such outputs. Out: its outputs. Rows
must have one size in all iterations, but which is known only when the model runs. The loop then
carries the rows so far, one after the other, and their shape; the scan itself becomes one of the
iteration numbers. After the loop the rows are reshaped. Called by loop.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape
from ingot.frontends.onnx.control import Bare, copied
from ingot.frontends.onnx.registry import Importer
from ingot.frontends.onnx.runtime_axes import bound_sizes
from ingot.graph.ir import Graph, Value
from ingot.graph.types import Symbol, tensor
from ingot.ops.control import local_symbols

SIZES_DIFFER = "Loop: the rows of a scan output have different sizes"


def changing_scans(body: Graph, carried: int, growing: Sequence[Symbol]) -> list[int]:
    """The numbers of scan outputs with a size that only an iteration knows."""
    local = local_symbols(body) | {s.name for s in growing}
    scans = enumerate(body.outputs[1 + carried :])
    return [i for i, v in scans if any(arith.free_vars(d) & local for d in v.shape)]


def collected(
    ctx: Importer, operands: Sequence[Value | None], attrs: dict[str, Any], scans: Sequence[int]
) -> list[Value]:
    """Outputs of the loop: the carried values, then all scans."""
    carried, growing = attrs["carried"], attrs.get("growing", ())
    symbols = list(attrs.get("symbols", ()))
    g, outputs = copied(attrs["body"], ctx.g.store)
    head, state, rows = outputs[0], outputs[1 : 1 + carried], outputs[1 + carried :]
    captures = g.inputs[2 + carried :]
    del g.inputs[2 + carried :]
    entered: list[Value | None] = []
    for i in scans:
        row, name = rows[i], ctx.g.symbol("size")
        g.symbols[name] = ctx.g.symbols.pop(name)
        ctx.g.fresh(name)
        growing = (*growing, name)
        before = g.input("rows", tensor(row.dtype, arith.Var(name)))
        sizes = g.input("row_sizes", tensor(dtypes.i64, row.tensor.rank))
        flat = reshape(Bare(g), row, (row.tensor.numel,))
        state += [g.add("concat", [before, flat], axis=0), _checked(g, row, sizes)]
        rows[i] = g.add("identity", [g.inputs[0]])
        entered += [
            ctx.g.constant(np.zeros(0, row.dtype.numpy)),
            ctx.g.constant(np.full(row.tensor.rank, -1, np.int64)),
        ]
    g.inputs += captures
    ranks = [attrs["body"].outputs[1 + carried + i].tensor.rank for i in scans]
    finals = [ctx.g.symbol("n") for _ in scans]
    at = len(attrs.get("growing", ()))
    attrs = attrs | {
        "body": g.finish([head, *state, *rows]),
        "carried": carried + 2 * len(scans),
        "growing": growing,
        "symbols": (*symbols[:at], *finals, *symbols[at:]),
    }
    first = 2 + carried
    made = ctx.g.add_all("loop", [*operands[:first], *entered, *operands[first:]], **attrs)
    plain, extra, stacked = made[:carried], made[carried : first - 2 + 2 * len(scans)], []
    for i, value in enumerate(made[carried + 2 * len(scans) :]):
        if i in scans:
            at = 2 * list(scans).index(i)
            value = _unpacked(ctx, extra[at], extra[at + 1], value.shape[0], ranks[at // 2])
        stacked.append(value)
    return [*plain, *stacked]


def _checked(g: Any, row: Value, before: Value) -> Value:
    """The row's sizes; the run fails unless they are those of the rows before it."""
    sizes = g.add("index_tensor", [], values=row.shape, shape=(row.tensor.rank,))
    is_first = g.add("lt", [before, g.constant(np.array(0, np.int64))])
    same = g.add("or", [is_first, g.add("eq", [before, sizes])])
    flag = g.add("reduce_min", [same], axes=(0,), keepdims=False)
    return g.add("require", [sizes, flag], expected=True, reason=SIZES_DIFFER)


def _unpacked(ctx: Importer, rows: Value, sizes: Value, count: arith.Expr, rank: int) -> Value:
    """The rows, stacked. Of no iteration the sizes are unknown: they are 0."""
    zero = ctx.g.constant(np.array(0, np.int64))
    shape = bound_sizes(ctx, ctx.g.add("max", [sizes, zero])) if rank else ()
    return ctx.g.add("reshape", [rows], shape=(count, *shape))
