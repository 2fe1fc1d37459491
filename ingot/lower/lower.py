"""Lowering: fused nodes become launches, views alias buffers, control flow becomes statements.

In: a graph after `fuse`, whose values may be views of others. Out: an unplanned Program. A fused
node is one kernel and one launch, a view has its base's buffer, and what is in place needs nothing.
A stage of back ends (backends/shared.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import gcd
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.layouts import pack_into, packed_shape, physical_shape
from ingot.graph.opdef import defn
from ingot.graph.store import ConstantStore, LazyConstant
from ingot.graph.types import Symbol, tensor
from ingot.graph.verify import bound_symbols
from ingot.graph.views import Views
from ingot.loops import ir as loops
from ingot.lower.constants import constants_to_allocate
from ingot.lower.inplace import state_to_update, update_in_place
from ingot.lower.kernels import bind_kernel, group_kernel, place, reasons_for_float, sizes_kernel
from ingot.ops.fused import fused_node, parse_plans
from ingot.ops.views import is_view
from ingot.program import ir
from ingot.support.abi import RANDOM_KEY


def lower(graph: Graph, store: ConstantStore) -> ir.Program:
    """Graph → kernels + program without memory plan or barriers."""
    return Lowering(graph, store).program()


class Lowering:
    """One program under construction: buffers, kernels and the statements so far."""

    def __init__(self, graph: Graph, store: ConstantStore):
        self.graph, self.store = graph, store
        self.symbols: dict[str, Symbol] = dict(graph.symbol_map)
        self.buffers: dict[str, ir.Buffer] = {}
        self.kernels: dict[str, loops.Kernel] = {}
        self.kernel_names: dict[tuple, str] = {}  # by family, kernel and plans
        self.constants: dict[ConstRef, str] = {}
        self.stmts: list[ir.Stmt] = []
        self.views = Views(graph)  # of the graph being lowered
        self.buffer_of: dict[str, str] = {}  # value name → buffer name, in the graph being lowered
        self.output_of: dict[str, str] = {}  # OUTPUT buffer → the graph output allocated in it

    def program(self) -> ir.Program:
        state = dict(self.graph.state)
        for value in self.graph.inputs:
            storage = ir.Storage.STATE if value.name in state else ir.Storage.INPUT
            self.buffer_of[value.name] = self.buffer(value.name, value, storage)
        wanted = {value.name: ir.Storage.OUTPUT for value in self.graph.outputs}
        for output in state.values():
            wanted.pop(output, None)
        self.walk(self.graph, wanted)
        outputs, taken = list[str](), list[str]()  # a state's successor takes no output's buffer
        for value in self.graph.outputs:
            outputs.append(self.output(value, taken))
            if value.name not in state.values():
                taken.append(outputs[-1])
        outputs = self.update_state(state, outputs)
        return ir.Program(
            self.graph.name,
            tuple(self.symbols.values()),
            tuple(self.buffers.values()),
            tuple(self.kernels.items()),
            ir.seq(*self.stmts),
            self.inputs(),
            tuple(outputs),
            tuple(value.name for value in self.graph.outputs),
            self.graph.state,
            growth=self.graph.growth,
            bundles=self.graph.bundles,
        )

    def inputs(self) -> tuple[str, ...]:
        """The graph's, then what a module lends; the key of random numbers is the last."""
        names = [value.name for value in self.graph.inputs]
        key = [name for name in names if name == RANDOM_KEY]
        return (*(n for n in names if n != RANDOM_KEY), *self.store.borrowed, *key)

    def output(self, value: Value, others: list[str]) -> str:
        """The buffer of a graph output. An output that aliases an input, a constant or another
        output is copied."""
        buffer = self.buffers[self.buffer_of[value.name]]
        if self.output_of.get(buffer.name) == value.name and buffer.name not in others:
            return buffer.name
        if value.name in dict(self.graph.state).values():
            return buffer.name
        if self.is_data_dependent(value):
            return self.data_dependent_output(value, buffer)
        if buffer.storage is ir.Storage.TEMP:  # the kernel writes to the caller's array instead
            self.buffers[buffer.name] = ir.replace(
                buffer, storage=ir.Storage.OUTPUT, shape=tuple(value.shape)
            )
            return buffer.name
        name = self.buffer(value.name, value, ir.Storage.OUTPUT)
        self.stmts.append(ir.Copy(name, buffer.name))
        return name

    def data_dependent_output(self, value: Value, buffer: ir.Buffer) -> str:
        """A buffer of the output's exact shape, which is known only after the run."""
        is_owned = buffer.storage in (ir.Storage.TEMP, ir.Storage.DYNAMIC)
        if is_owned and buffer.shape == tuple(value.shape):
            return buffer.name
        name = self.temporary(value.name, value)
        self.stmts.append(ir.Copy(name, buffer.name))
        return name

    def update_state(self, state: dict[str, str], outputs: list[str]) -> list[str]:
        """Copy each state's successor into the state's buffer at the end of the run."""
        source = {value.name: name for value, name in zip(self.graph.outputs, outputs)}
        copies = [ir.Copy(old, source[new]) for old, new in state.items() if source[new] != old]
        # a state that is another's successor is read before it is overwritten
        for copy in copies:
            if any(copy.src == other.dst for other in copies):
                spare = self.temporary(copy.src, self.buffers[copy.src])
                self.stmts.append(ir.Copy(spare, copy.src))
                copies = [ir.Copy(c.dst, spare) if c.src == copy.src else c for c in copies]
        self.stmts.extend(copies)
        back = {new: old for old, new in state.items()}
        return [back.get(value.name, name) for value, name in zip(self.graph.outputs, outputs)]

    # --- buffers ------------------------------------------------------------------------------

    def fresh(self, base: str, taken: dict) -> str:
        name, count = base, 1
        while name in taken:
            name, count = f"{base}.{count}", count + 1
        return name

    def buffer(
        self, base: str, value: Value, storage: ir.Storage, constant: ConstRef | None = None
    ) -> str:
        name = self.fresh(base, self.buffers)
        shape = physical_shape(value.tensor)
        self.buffers[name] = ir.Buffer(name, value.dtype, shape, storage, constant)
        return name

    def temporary(self, base: str, like: ir.Buffer | Value) -> str:
        name = self.fresh(base, self.buffers)
        self.buffers[name] = ir.Buffer(name, like.dtype, tuple(like.shape), ir.Storage.TEMP)
        return name

    def is_data_dependent(self, value: Value) -> bool:
        """Whether the value's size depends on data, so that no caller can provide the array."""
        names = {n for d in value.shape for n in arith.free_vars(d)}
        return any(self.symbols[n].source == "node" for n in names)

    # --- groups -------------------------------------------------------------------------------

    def walk(self, graph: Graph, wanted: dict[str, ir.Storage]) -> None:
        """Lower a graph's groups in order. `wanted` has the storage of the graph's outputs."""
        for symbol in graph.symbols:
            self.symbols[symbol.name] = wider(self.symbols.get(symbol.name, symbol), symbol)
        self.allocate_constants(graph)
        self.views = Views(graph)
        for position, node in enumerate(graph.nodes):
            handler, name = CONTROL.get(node.op), node.outputs[0].name
            if handler is not None:
                handler(self, node)
            elif name in self.buffer_of or node.op == "constant":
                continue
            elif defn(node).is_host_step:
                self.host_step(node, wanted)
            elif is_view(node):
                source = next(v for v in node.inputs if v is not None)
                self.buffer_of[name] = self.buffer_of[source.name]
            elif self.views.is_in_place(node):
                self.allocate(node.outputs[0], wanted)
            else:
                self.launch_node(node, wanted, islice(graph.nodes, position + 1, None))

    def allocate_constants(self, graph: Graph) -> None:
        """Allocate a buffer for each constant that kernels read, plain or packed."""
        for out, ref, is_packed in constants_to_allocate(graph):
            made = self.packed(ref, out) if is_packed else ref
            self.buffer_of[out.name] = self.constant(out, made)

    def packed(self, ref: ConstRef, out: Value) -> ConstRef:
        """A constant packed into the layout of `out`, lazily."""
        layout = out.tensor.layout
        assert layout is not None
        array, fill = self.store.get(ref), partial(pack_into, layout)
        packed = LazyConstant(array, packed_shape(layout, array.shape), fill)
        return self.store.derive(ref, f"pack {layout.axes}", packed)

    def constant(self, value: Value, ref: ConstRef) -> str:
        """The buffer of a constant; equal constants have one buffer. One that a module lends is an
        input of the program."""
        if ref not in self.constants:
            if self.store.borrow(ref, self.fresh(value.name, self.buffers)):
                self.constants[ref] = self.buffer(value.name, value, ir.Storage.INPUT)
            else:
                self.constants[ref] = self.buffer(value.name, value, ir.Storage.CONSTANT, ref)
        return self.constants[ref]

    def true_flag(self) -> str:
        return self.constant(Value("true", tensor(dtypes.bool_)), self.store.add(np.array(True)))

    def launch_node(self, node: Node, wanted: dict[str, ir.Storage], later: Iterable[Node]) -> None:
        """One kernel, and one launch of it. A node outside a group is a group of one."""
        group = node if node.op == "fused" else fused_node([node], node.outputs, node)
        if bound_symbols(node):
            self.bind_symbols(node)
        for value in group.outputs:
            self.allocate(value, wanted)
        values = [v for v in (*group.inputs, *group.outputs) if v is not None]
        body = group.attr("body")
        placed = place(group_kernel(body, self.symbols), values, self.views)
        kernel, args = placed.kernel, tuple(self.buffer_of[value.name] for value in values)
        state = state_to_update(self.graph, group, later, self.buffer_of)
        updated = None
        if state is not None:
            params = kernel.params[group.inputs.index(state)], kernel.params[-1]
            updated = update_in_place(kernel, params[0].name, params[1].name)
        if state is not None and updated is not None:
            del self.buffers[self.buffer_of[group.outputs[0].name]]
            self.buffer_of[group.outputs[0].name] = self.buffer_of[state.name]
            kernel, args = updated, args[:-1]
        made = loops.replace(
            kernel,
            name=body.name,
            origin=node.origin,
            family=group.attr("family"),
            plans=parse_plans(group.attr("plans", ())),
            remarks=reasons_for_float(body),
        )
        self.launch(made, args, placed.offsets)

    def launch(
        self, kernel: loops.Kernel, args: tuple[str, ...], offsets: Mapping[str, int]
    ) -> None:
        """Launch a kernel. Its sizes are symbols of the program, or offsets in a base buffer."""
        name = self.kernel(kernel)
        sizes = tuple(
            arith.Const(offsets[size.name]) if size.name in offsets else arith.Var(size.name)
            for size in kernel.sizes
        )
        self.stmts.append(ir.Launch(name, args, sizes, origin=kernel.origin))

    def kernel(self, kernel: loops.Kernel) -> str:
        """The name under which the program has this kernel; equal kernels are one."""
        key = kernel.family, kernel, kernel.plans, kernel.remarks
        if key not in self.kernel_names:
            name = self.kernel_names[key] = self.fresh(kernel.name, self.kernels)
            self.kernels[name] = loops.replace(kernel, name=name)
        return self.kernel_names[key]

    def allocate(self, value: Value, wanted: dict[str, ir.Storage]) -> None:
        """Give a value its buffer: a new one, or the base buffer that it aliases."""
        base = self.views.region(value).base
        if base.name not in self.buffer_of:
            storage = wanted.get(base.name, ir.Storage.TEMP)
            if self.is_data_dependent(base) and storage is ir.Storage.OUTPUT:
                storage = ir.Storage.TEMP
            name = self.buffer_of[base.name] = self.buffer(base.name, base, storage)
            if storage is ir.Storage.OUTPUT:
                self.output_of[name] = base.name
        self.buffer_of[value.name] = self.buffer_of[base.name]

    def host_step(self, node: Node, wanted: dict[str, ir.Storage]) -> None:
        """A step of the host; if its sizes depend on data, a first part computes these."""
        args = tuple(None if v is None else self.buffer_of[v.name] for v in node.inputs)
        names = bound_symbols(node)
        attrs = tuple((n, _literal(a)) for n, a in node.attrs if n != "symbols")
        kept = ""
        if names:
            kept = self.fresh(f"{node.outputs[0].name}_sizes", self.buffers)
            shape = (arith.Const(len(names)),)
            self.buffers[kept] = ir.Buffer(kept, dtypes.i64, shape, ir.Storage.TEMP)
            places = {
                dim.name: (i, axis)
                for i, value in enumerate(node.outputs)
                for axis, dim in enumerate(value.shape)
                if isinstance(dim, arith.Var)
            }
            sizes = tuple(places[name] for name in names)
            self.stmts.append(
                ir.HostStep(node.op, args, (kept,), attrs, kept, "", sizes, node.origin)
            )
            binds = (ir.Bind(s, kept, i, origin=node.origin) for i, s in enumerate(names))
            self.stmts.extend(binds)
            args = ()
        for value in node.outputs:
            self.allocate(value, wanted)
        results = tuple(self.buffer_of[value.name] for value in node.outputs)
        self.stmts.append(ir.HostStep(node.op, args, results, attrs, "", kept, origin=node.origin))

    def bind_symbols(self, node: Node) -> None:
        """Launch the kernel that computes a node's data-dependent sizes, then bind the symbols."""
        names = node.attr("symbols")
        name = self.fresh(f"{node.op}_sizes", self.kernels)
        kernel = bind_kernel(name, node, self.symbols)
        result = self.fresh(f"{node.outputs[0].name}_sizes", self.buffers)
        out = kernel.params[-1]
        self.buffers[result] = ir.Buffer(result, out.dtype, out.shape, ir.Storage.TEMP)
        args = [self.buffer_of[v.name] for v in node.inputs if v is not None]
        self.kernels[name] = kernel
        sizes = tuple(arith.Var(size.name) for size in kernel.sizes)
        self.stmts.append(ir.Launch(name, (*args, result), sizes, origin=node.origin))
        for index, symbol in enumerate(names):
            self.stmts.append(ir.Bind(symbol, result, index, origin=node.origin))

    def bind_sizes(
        self, symbols: Sequence[str], sizes: Sequence[arith.Expr], origin: str
    ) -> list[ir.Stmt]:
        """Statements that bind symbols to the values of size expressions."""
        if not symbols:
            return []
        table = self.size_table(len(sizes))
        binds = [ir.Bind(s, table, i, origin=origin) for i, s in enumerate(symbols)]
        return [self.write_sizes(table, sizes, origin), *binds]

    def size_table(self, count: int) -> str:
        return self.temporary("sizes", Value("sizes", tensor(dtypes.i64, count)))

    def write_sizes(self, table: str, sizes: Sequence[arith.Expr], origin: str) -> ir.Stmt:
        """Writes the values of size expressions into a table."""
        name = self.fresh("sizes", self.kernels)
        kernel = self.kernels[name] = sizes_kernel(name, sizes, self.symbols, origin)
        given = tuple(arith.Var(size.name) for size in kernel.sizes)
        return ir.Launch(name, (table,), given, origin=origin)

    def nested(self, graph: Graph, buffer_of: dict[str, str]) -> tuple[ir.Stmt, list[str]]:
        """Lower a sub-graph to a statement; also returns the buffers of its outputs."""
        outer = self.buffer_of, self.stmts, self.views
        self.buffer_of, self.stmts = dict(buffer_of), []
        self.walk(graph, {})
        results = [self.buffer_of[value.name] for value in graph.outputs]
        body = ir.seq(*self.stmts)
        self.buffer_of, self.stmts, self.views = outer
        return body, results


def wider(a: Symbol, b: Symbol) -> Symbol:
    """The union of two symbols' ranges: both branches of an `if` may bind one symbol."""
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return replace(a, low=min(a.low, b.low), high=high, divisor=gcd(a.divisor, b.divisor))


def _literal(value: Any) -> Any:
    """An attribute as the program's text can have it: an element type is its name."""
    return value.name if isinstance(value, dtypes.DType) else value


Handler = Callable[[Lowering, Node], None]
CONTROL: dict[str, Handler] = {}


def control(op: str) -> Callable[[Handler], Handler]:
    """Decorator: register the lowering of a control-flow operator."""

    def add(handler: Handler) -> Handler:
        CONTROL[op] = handler
        return handler

    return add
