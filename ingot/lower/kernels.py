"""A fusion group → one unscheduled kernel: the stages of each operator's `compute`, in order.

A contraction or reduction that ends its group gets a copy stage after it. So its accumulator is
always an intermediate: schedules keep it in registers and store finished register tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.graph import opdef
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import Kind
from ingot.graph.types import Symbol
from ingot.graph.verify import attr_dims, bound_symbols, type_dims
from ingot.graph.views import Views
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.lower.base_buffers import PlacedKernel, in_base_buffers
from ingot.lower.layouts import realise_layouts
from ingot.ops.fused import Fused


def open_build(name: str, symbols: dict[str, Symbol]) -> Build:
    return Build(name, symbols, {s.name: Interval(s.low, s.high) for s in symbols.values()})


def group_kernel(body: Graph, symbols: Mapping[str, Symbol]) -> ir.Kernel:
    """The kernel of a group. Its parameters are the body's inputs, then its outputs. Equal bodies
    have the same kernel."""
    names = {n for d in _dims(body) for n in arith.free_vars(d)}
    return _group_kernel(body, tuple(s for s in symbols.values() if s.name in names))


def _dims(body: Graph) -> Iterator[arith.Expr]:
    for value in (*body.inputs, *(v for n in body.nodes for v in n.outputs)):
        yield from type_dims(value.type)
    for node in body.nodes:
        yield from attr_dims(node.attrs)
        yield from map(arith.Var, bound_symbols(node))


@lru_cache(maxsize=1024)
def _group_kernel(body: Graph, symbols: tuple[Symbol, ...]) -> ir.Kernel:
    by_name = {s.name: s for s in symbols}
    b = open_build(body.name, by_name)
    params = [b.param(v.name, v.dtype.stored, v.shape) for v in body.inputs]
    made = Fused().compute(b, params, [v.tensor for v in body.outputs], {"body": body})
    producers = body.producers()
    finals = [_final(b, buffer, producers[v.name]) for buffer, v in zip(made, body.outputs)]
    kernel = close(b, finals, by_name, "")
    layouts = {
        param.name: value.tensor.layout
        for param, value in zip(kernel.params, (*body.inputs, *body.outputs))
        if value.tensor.layout is not None
    }
    return realise_layouts(kernel, layouts, len(finals))


def reasons_for_float(body: Graph) -> tuple[ir.Remark, ...]:
    """Why contractions of quantised tensors in a group are computed in float."""
    reasons = dict.fromkeys(n.attr("in_float") for n in body.nodes)
    return tuple(ir.Remark("", ir.IN_FLOAT, why) for why in reasons if why is not None)


def place(kernel: ir.Kernel, values: Sequence[Value], views: Views) -> PlacedKernel:
    """The kernel over the base buffers of those parameters that are views."""
    pairs = zip(kernel.params, values)
    regions = {p.name: views.regions[v.name] for p, v in pairs if v.name in views.regions}
    return in_base_buffers(kernel, regions)


def bind_kernel(name: str, node: Node, symbols: dict[str, Symbol]) -> ir.Kernel:
    """The kernel that computes the symbols a node binds (data-dependent sizes): one i64 output."""
    b = open_build(name, symbols)
    values = node.inputs
    operands = [None if v is None else b.param(v.name, v.dtype.stored, v.shape) for v in values]
    out = opdef.defn(node).bind(b, operands, node.attr_map)
    return close(b, [_final(b, out, node)], symbols, node.origin)


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
        ir.Size(s.name, s.low, s.high, s.divisor, s.likely)
        for s in symbols.values()
        if s.name in used
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


def _final(b: Build, buffer: ir.Buffer, producer: Node) -> ir.Buffer:
    """The buffer that the group stores. A parameter (an operator that returned its operand) or an
    accumulator is copied, so that each output is a separate buffer."""
    kind = opdef.defn(producer).kind_of(producer)
    if buffer not in b.params and kind not in (Kind.CONTRACTION, Kind.REDUCTION):
        return buffer
    return b.compute(f"{buffer.name}_out", buffer.shape, lambda *point: buffer[point])
