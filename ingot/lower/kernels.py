"""A fusion group → one unscheduled kernel: the stages of each operator's `compute`, in order.

A contraction or reduction that ends its group gets a copy stage after it. So its accumulator is
always an intermediate: schedules keep it in registers and store finished register tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.graph import opdef
from ingot.graph.ir import Node, Value
from ingot.graph.opdef import Kind
from ingot.graph.types import Symbol
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.lower.aliases import AliasedView, Border, PlacedKernel, in_base_buffers
from ingot.lower.layouts import realise_layouts
from ingot.lower.merge_axes import merge_axes


def open_build(name: str, symbols: dict[str, Symbol]) -> Build:
    return Build(name, symbols, {s.name: Interval(s.low, s.high) for s in symbols.values()})


def group_kernel(
    name: str, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value],
    symbols: dict[str, Symbol], views: Mapping[str, AliasedView],
) -> PlacedKernel:  # fmt: skip
    """The kernel of a group. Its parameters are `inputs`, then `outputs`, or the base buffers of
    those that are aliased views. A group without nodes copies its input."""
    b = open_build(name, symbols)
    made: dict[str, ir.Buffer] = {
        value.name: b.param(value.name, value.dtype, value.shape) for value in inputs
    }
    for node in nodes:
        operands = [made[v.name] if v is not None else None for v in node.inputs]
        types = [out.tensor for out in node.outputs]
        results = opdef.defn(node).compute(b, operands, types, node.attr_map)
        made.update(zip((out.name for out in node.outputs), results))
    if not nodes:
        made[outputs[0].name] = made[inputs[0].name]
    finals = [_final(b, made[v.name], nodes) for v in outputs]
    origin = "; ".join(dict.fromkeys(n.origin for n in nodes if n.origin))
    buffers = [*(made[v.name] for v in inputs), *finals]
    layouts = {
        buffer.name: value.tensor.layout
        for buffer, value in zip(buffers, (*inputs, *outputs))
        if value.tensor.layout is not None
    }
    params = {
        buffer.name: views[value.name]
        for buffer, value in zip(buffers, (*inputs, *outputs))
        if value.name in views
    }
    kernel = realise_layouts(close(b, finals, symbols, origin), layouts, len(finals))
    placed = in_base_buffers(kernel, params)
    return PlacedKernel(merge_axes(placed.kernel), placed.offsets)


def zeros_kernel(
    name: str, dtype: dtypes.DType, border: Border, symbols: dict[str, Symbol]
) -> PlacedKernel:
    """The kernel that fills one box of a padded value's border with zeros."""
    b = open_build(name, symbols)
    out = b.compute("border", border.shape, lambda *point: ir.value_of(0, dtype))
    placed = in_base_buffers(close(b, [out], symbols, ""), {out.name: border.view})
    return PlacedKernel(merge_axes(placed.kernel), placed.offsets)


def bind_kernel(name: str, node: Node, symbols: dict[str, Symbol]) -> ir.Kernel:
    """The kernel that computes the symbols a node binds (data-dependent sizes): one i64 output."""
    b = open_build(name, symbols)
    operands = [None if v is None else b.param(v.name, v.dtype, v.shape) for v in node.inputs]
    out = opdef.defn(node).bind(b, operands, node.attr_map)
    return close(b, [_final(b, out, [node])], symbols, node.origin)


def sizes_kernel(
    name: str, sizes: Sequence[arith.Expr], symbols: dict[str, Symbol], origin: str
) -> ir.Kernel:
    """The kernel that writes size expressions into an i64 table."""
    b = open_build(name, symbols)
    out = b.buffer("sizes", dtypes.i64, (len(sizes),))
    for index, size in enumerate(sizes):
        b.emit(ir.Store(out, (arith.Const(index),), ir.Index(size)))
    return close(b, [out], symbols, origin)


def close(b: Build, outputs: list[ir.Buffer], symbols: dict[str, Symbol], origin: str) -> ir.Kernel:
    draft = b.finish(outputs, (), origin)
    used = kernel_symbols(draft)
    sizes = tuple(
        ir.Size(s.name, s.low, s.high, s.divisor) for s in symbols.values() if s.name in used
    )
    return ir.replace(draft, sizes=sizes)


def kernel_symbols(kernel: ir.Kernel) -> set[str]:
    """The free variables of a kernel: its size parameters."""
    bound: set[str] = set()
    used: set[str] = set()
    shapes = [d for p in kernel.params for d in p.shape]
    for stmt in visit.walk_stmts(kernel.body):
        match stmt:
            case ir.For(var=var):
                bound.add(var)
            case ir.Block(axes=axes):
                bound.update(axis.var for axis in axes)
            case ir.Alloc(buffer=buffer):
                shapes.extend(buffer.shape)
        visit.rebuild_stmt(stmt, lambda s: s, lambda e: e, lambda i: shapes.append(i) or i)  # type: ignore[func-returns-value]
    for e in visit.all_exprs(kernel.body):
        visit.rebuild_expr(e, lambda x: x, lambda i: shapes.append(i) or i)  # type: ignore[func-returns-value]
    for expr in shapes:
        used |= arith.free_vars(expr)
    return used - bound


def _final(b: Build, buffer: ir.Buffer, nodes: Sequence[Node]) -> ir.Buffer:
    """The buffer that the group stores. A parameter (an operator that returned its operand) or an
    accumulator is copied, so that each output is a separate buffer."""
    kinds = [opdef.defn(last).kind_of(last) for last in nodes[-1:]]
    if buffer not in b.params and kinds[0] not in (Kind.CONTRACTION, Kind.REDUCTION):
        return buffer
    return b.compute(f"{buffer.name}_out", buffer.shape, lambda *point: buffer[point])
