"""The walk: fusion groups become launches, views share a buffer, control flow becomes statements.

In: a graph and its groups. Out: an unplanned Program. Called by pipeline.STAGES["lower"].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import gcd

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.layouts import pack_into, packed_shape, physical_shape
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore, Later
from ingot.graph.types import Symbol, tensor
from ingot.loops import ir as loops
from ingot.lower.constants import constants_to_place
from ingot.lower.inplace import state_to_update, update_in_place
from ingot.lower.kernels import bind_kernel, group_kernel, sizes_kernel, zeros_kernel
from ingot.lower.parts import NO_PARTS, find_parts
from ingot.passes.fuse import Group, fuse, is_view
from ingot.program import ir
from ingot.support import knobs


def lower(graph: Graph, store: ConstantStore) -> ir.Program:
    """Graph → kernels + program without places or barriers."""
    return Lowering(graph, store).program()


class Lowering:
    """One program under construction: buffers, kernels and the statements so far."""

    def __init__(self, graph: Graph, store: ConstantStore):
        self.graph, self.store = graph, store
        self.symbols: dict[str, Symbol] = dict(graph.symbol_map)
        self.buffers: dict[str, ir.Buffer] = {}
        self.kernels: dict[str, loops.Kernel] = {}
        self.constants: dict[ConstRef, str] = {}
        self.stmts: list[ir.Stmt] = []
        self.parts = NO_PARTS  # of the graph being walked
        self.home: dict[str, str] = {}  # value name → buffer name, in the graph being walked
        self.made_for: dict[str, str] = {}  # OUTPUT buffer → the graph output it is made for

    def program(self) -> ir.Program:
        state = dict(self.graph.state)
        for value in self.graph.inputs:
            storage = ir.Storage.STATE if value.name in state else ir.Storage.INPUT
            self.home[value.name] = self.buffer(value.name, value, storage)
        wanted = {value.name: ir.Storage.OUTPUT for value in self.graph.outputs}
        for output in state.values():
            wanted.pop(output, None)
        self.walk(self.graph, wanted)
        outputs: list[str] = []
        for value in self.graph.outputs:
            outputs.append(self.output(value, outputs))
        outputs = self.update_state(state, outputs)
        return ir.Program(
            self.graph.name,
            tuple(self.symbols.values()),
            tuple(self.buffers.values()),
            tuple(self.kernels.items()),
            ir.seq(*self.stmts),
            tuple(value.name for value in self.graph.inputs),
            tuple(outputs),
            tuple(value.name for value in self.graph.outputs),
            self.graph.state,
        )

    def output(self, value: Value, others: list[str]) -> str:
        """The buffer a graph output is in; one that lies in an input, a constant or another output
        is copied."""
        home = self.buffers[self.home[value.name]]
        if self.made_for.get(home.name) == value.name and home.name not in others:
            return home.name
        if value.name in dict(self.graph.state).values():
            return home.name
        if self.is_unknown(value):
            return self.fetched(value, home)
        if home.storage is ir.Storage.TEMP:  # made in place: the caller's array takes its role
            self.buffers[home.name] = ir.replace(
                home, storage=ir.Storage.OUTPUT, shape=tuple(value.shape)
            )
            return home.name
        name = self.buffer(value.name, value, ir.Storage.OUTPUT)
        self.stmts.append(ir.Copy(name, home.name))
        return name

    def fetched(self, value: Value, home: ir.Buffer) -> str:
        """A buffer of the value's own shape, known only after the run: the runtime reads it off."""
        is_held = home.storage in (ir.Storage.TEMP, ir.Storage.DYNAMIC)
        if is_held and home.shape == tuple(value.shape):
            return home.name
        name = self.temporary(value.name, value)
        self.stmts.append(ir.Copy(name, home.name))
        return name

    def update_state(self, state: dict[str, str], outputs: list[str]) -> list[str]:
        """After the run each state array holds its successor."""
        homes = {value.name: home for value, home in zip(self.graph.outputs, outputs)}
        copies = [ir.Copy(old, homes[new]) for old, new in state.items() if homes[new] != old]
        # a state that is another's successor is read before it is overwritten
        for copy in copies:
            if any(copy.src == other.dst for other in copies):
                spare = self.temporary(copy.src, self.buffers[copy.src])
                self.stmts.append(ir.Copy(spare, copy.src))
                copies = [ir.Copy(c.dst, spare) if c.src == copy.src else c for c in copies]
        self.stmts.extend(copies)
        back = {new: old for old, new in state.items()}
        return [back.get(value.name, home) for value, home in zip(self.graph.outputs, outputs)]

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

    def is_unknown(self, value: Value) -> bool:
        """Whether the value's size depends on data, so that no caller can provide the array."""
        names = {n for d in value.shape for n in arith.free_vars(d)}
        return any(self.symbols[n].source == "node" for n in names)

    # --- the walk -----------------------------------------------------------------------------

    def walk(self, graph: Graph, wanted: dict[str, ir.Storage]) -> None:
        """Lower a graph's groups in order. `wanted` gives the storage of outputs made in place."""
        for symbol in graph.symbols:
            self.symbols[symbol.name] = wider(self.symbols.get(symbol.name, symbol), symbol)
        self.place_constants(graph)
        groups = fuse(graph)
        self.parts = find_parts(graph, groups) if knobs.current().in_place else NO_PARTS
        for position, group in enumerate(groups):
            node = group.nodes[-1]
            handler = CONTROL.get(node.op) if len(group.nodes) == 1 else None
            if handler is not None:
                handler(self, node)
            elif node.outputs[0].name in self.parts.copies:
                self.join(node, wanted)
            elif node.outputs[0].name in self.parts.borders:
                self.surround(node, wanted)
            elif node.outputs[0].name in self.home:
                continue  # a packed constant
            elif is_view(node) and len(group.nodes) == 1:
                source = next(v for v in node.inputs if v is not None)
                self.home[node.outputs[0].name] = self.home[source.name]
            elif node.outputs[0].name in self.parts.cuts:
                root = self.parts.places[node.outputs[0].name].root
                self.home[node.outputs[0].name] = self.home[root.name]
            else:
                self.launch_group(group, wanted, groups[position + 1 :])

    def place_constants(self, graph: Graph) -> None:
        """A buffer for each constant that is read as it is, and for each one packed."""
        for out, ref, is_packed in constants_to_place(graph):
            made = self.packed(ref, out) if is_packed else ref
            self.home[out.name] = self.constant(out, made)

    def packed(self, ref: ConstRef, out: Value) -> ConstRef:
        """A constant in the layout of `out`."""
        layout = out.tensor.layout
        assert layout is not None
        array, fill = self.store.get(ref), partial(pack_into, layout)
        later = Later(array, packed_shape(layout, array.shape), fill)
        return self.store.derive(ref, f"pack {layout.axes}", later)

    def constant(self, value: Value, ref: ConstRef) -> str:
        """The buffer of a constant; equal ones share it."""
        if ref not in self.constants:
            self.constants[ref] = self.buffer(value.name, value, ir.Storage.CONSTANT, ref)
        return self.constants[ref]

    def true_flag(self) -> str:
        return self.constant(Value("true", tensor(dtypes.bool_)), self.store.add(np.array(True)))

    def launch_group(self, group: Group, wanted: dict[str, ir.Storage], later: list[Group]) -> None:
        for node in group.nodes:
            if node.attr("symbols"):
                self.bind_symbols(node)
        for value in group.outputs:
            self.make_room(value, wanted)
        name = self.fresh(kernel_name(group), self.kernels)
        places = self.parts.places
        placed = group_kernel(name, group.nodes, group.inputs, group.outputs, self.symbols, places)
        kernel = placed.kernel
        args = tuple(self.home[value.name] for value in (*group.inputs, *group.outputs))
        state = state_to_update(self.graph, group, later, self.home)
        updated = None
        if state is not None:
            params = kernel.params[group.inputs.index(state)], kernel.params[-1]
            updated = update_in_place(kernel, params[0].name, params[1].name)
        if state is not None and updated is not None:
            del self.buffers[self.home[group.outputs[0].name]]
            self.home[group.outputs[0].name] = self.home[state.name]
            kernel, args = updated, args[:-1]
        self.launch(loops.replace(kernel, family=group.family), args, placed.offsets)

    def launch(
        self, kernel: loops.Kernel, args: tuple[str, ...], offsets: Mapping[str, int]
    ) -> None:
        """Call a kernel: its sizes are symbols of the program, or say where in a root it writes."""
        self.kernels[kernel.name] = kernel
        sizes = tuple(
            arith.Const(offsets[size.name]) if size.name in offsets else arith.Var(size.name)
            for size in kernel.sizes
        )
        self.stmts.append(ir.Launch(kernel.name, args, sizes, origin=kernel.origin))

    def make_room(self, value: Value, wanted: dict[str, ir.Storage]) -> None:
        """A buffer for what is about to be made: of its own, or the root that it is a part of."""
        part = self.parts.places.get(value.name)
        whole = value if part is None else part.root
        if whole.name not in self.home:
            storage = wanted.get(whole.name, ir.Storage.TEMP)
            if self.is_unknown(whole) and storage is ir.Storage.OUTPUT:
                storage = ir.Storage.TEMP
            home = self.home[whole.name] = self.buffer(whole.name, whole, storage)
            if storage is ir.Storage.OUTPUT:
                self.made_for[home] = whole.name
        self.home[value.name] = self.home[whole.name]

    def join(self, node: Node, wanted: dict[str, ir.Storage]) -> None:
        """A concat in place: only what was made elsewhere is copied to where it belongs."""
        (out,) = node.outputs
        self.make_room(out, wanted)
        for value, place in self.parts.copies[out.name]:
            name = self.fresh(f"{node.op}_part", self.kernels)
            type = replace(value.tensor, layout=out.tensor.layout)
            part = Value(f"{out.name}_part", type)
            places = {**self.parts.places, part.name: place}
            placed = group_kernel(name, (), (value,), (part,), self.symbols, places)
            kernel = loops.replace(placed.kernel, family="movement", origin=node.origin)
            self.launch(kernel, (self.home[value.name], self.home[out.name]), placed.offsets)

    def surround(self, node: Node, wanted: dict[str, ir.Storage]) -> None:
        """A pad in place: zeros around what lies there."""
        (out,) = node.outputs
        self.make_room(out, wanted)
        for strip in self.parts.borders[out.name]:
            name = self.fresh(f"{node.op}_border", self.kernels)
            placed = zeros_kernel(name, out.dtype, strip, self.symbols)
            kernel = loops.replace(placed.kernel, family="movement", origin=node.origin)
            self.launch(kernel, (self.home[out.name],), placed.offsets)

    def bind_symbols(self, node: Node) -> None:
        """Run the kernel that computes a node's data-dependent sizes, then bind them."""
        names = node.attr("symbols")
        name = self.fresh(f"{node.op}_sizes", self.kernels)
        kernel = bind_kernel(name, node, self.symbols)
        result = self.fresh(f"{node.outputs[0].name}_sizes", self.buffers)
        out = kernel.params[-1]
        self.buffers[result] = ir.Buffer(result, out.dtype, out.shape, ir.Storage.TEMP)
        args = [self.home[v.name] for v in node.inputs if v is not None]
        self.kernels[name] = kernel
        sizes = tuple(arith.Var(size.name) for size in kernel.sizes)
        self.stmts.append(ir.Launch(name, (*args, result), sizes, origin=node.origin))
        for index, symbol in enumerate(names):
            self.stmts.append(ir.Bind(symbol, result, index, origin=node.origin))

    def bind_sizes(
        self, symbols: Sequence[str], sizes: Sequence[arith.Expr], origin: str
    ) -> list[ir.Stmt]:
        """Statements that give symbols the values of size expressions."""
        if not symbols:
            return []
        name = self.fresh("sizes", self.kernels)
        kernel = self.kernels[name] = sizes_kernel(name, sizes, self.symbols, origin)
        table = self.fresh("sizes", self.buffers)
        out = kernel.params[-1]
        self.buffers[table] = ir.Buffer(table, out.dtype, out.shape, ir.Storage.TEMP)
        given = tuple(arith.Var(size.name) for size in kernel.sizes)
        binds = [ir.Bind(s, table, i, origin=origin) for i, s in enumerate(symbols)]
        return [ir.Launch(name, (table,), given, origin=origin), *binds]

    def nested(self, graph: Graph, homes: dict[str, str]) -> tuple[ir.Stmt, list[str]]:
        """Lower a sub-graph into a statement of its own; gives the buffers of its outputs."""
        outer_home, outer_stmts, outer_parts = self.home, self.stmts, self.parts
        self.home, self.stmts = dict(homes), []
        self.walk(graph, {})
        results = [self.home[value.name] for value in graph.outputs]
        body = ir.seq(*self.stmts)
        self.home, self.stmts, self.parts = outer_home, outer_stmts, outer_parts
        return body, results


def wider(a: Symbol, b: Symbol) -> Symbol:
    """Both branches of an `if` may bind a symbol of one name: its range covers both."""
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return replace(a, low=min(a.low, b.low), high=high, divisor=gcd(a.divisor, b.divisor))


def kernel_name(group: Group) -> str:
    """A readable name: the operators of the group, in order; of attention, the heavy ones."""
    heavy = [n.op for n in group.nodes if defn(n).kind in (Kind.CONTRACTION, Kind.REDUCTION)]
    ops = heavy if group.family == "attention" else [n.op for n in group.nodes]
    name = "_".join(ops[:4]) + (f"_and_{len(ops) - 4}_more" if len(ops) > 4 else "")
    return name


Handler = Callable[[Lowering, Node], None]
CONTROL: dict[str, Handler] = {}


def control(op: str) -> Callable[[Handler], Handler]:
    """Register how a control-flow operator becomes statements."""

    def add(handler: Handler) -> Handler:
        CONTROL[op] = handler
        return handler

    return add
