"""Lowers control flow: `if` and `loop` nodes become the program's If and Loop statements."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.graph.ir import Node, Value
from ingot.graph.types import Symbol, TensorType
from ingot.lower.lower import Lowering, control
from ingot.ops.control import differing_sizes, growing_sizes, is_growing
from ingot.program import ir
from ingot.program.tables import walk as walk_stmts


@control("if")
def lower_if(walk: Lowering, node: Node) -> None:
    """Each branch is lowered to a statement that copies its results into the node's buffers. Sizes
    that differ between the branches are symbols, which each branch binds to its own sizes."""
    cond, *captures = node.inputs
    assert cond is not None
    outputs = [walk.temporary(out.name, out) for out in node.outputs]
    graphs = [node.attr("then_branch"), node.attr("else_branch")]
    sizes = list(zip(*differing_sizes(*graphs))) or [(), ()]
    branches = []
    for graph, own_sizes in zip(graphs, sizes):
        formals = zip(graph.inputs, captures)
        buffer_of = {formal.name: walk.buffer_of[v.name] for formal, v in formals if v}
        body, results = walk.nested(graph, buffer_of)
        binds = walk.bind_sizes(node.attr("symbols", ()), own_sizes, node.origin)
        copies = [ir.Copy(out, result) for out, result in zip(outputs, results)]
        branches.append(ir.seq(body, *binds, *copies))
    walk.stmts.append(ir.If(walk.buffer_of[cond.name], branches[0], branches[1]))
    walk.buffer_of.update(zip((out.name for out in node.outputs), outputs))


@control("loop")
def lower_loop(walk: Lowering, node: Node) -> None:
    """Loop-carried values have buffers that the body reads and copies update at its end. Scan
    outputs are appended to growing buffers. Sizes that change are in a table: it is written before
    the loop and at the end of each iteration, and read at the start of one and after the loop."""
    body, carried_count = node.attr("body"), node.attr("carried")
    trips, cond, *rest = node.inputs
    carried_in, captures = rest[:carried_count], rest[carried_count:]
    counter_in, cond_in, *formals = body.inputs
    counter = walk.temporary("iteration", Value("iteration", counter_in.type))
    sizes = _ChangingSizes(walk, node)
    carried = [sizes.buffer(v) for v in formals[:carried_count]]
    entered = [walk.buffer_of[value.name] for value in carried_in if value is not None]
    walk.stmts += sizes.before
    walk.stmts += [sizes.update(buffer, value) for buffer, value in zip(carried, entered)]
    keep_going = walk.temporary("keep_going", cond_in)
    first = walk.buffer_of[cond.name] if cond is not None else walk.true_flag()
    walk.stmts.append(ir.Copy(keep_going, first))
    buffer_of = {counter_in.name: counter, cond_in.name: keep_going}
    buffer_of.update(zip((v.name for v in formals), carried))
    captured = zip(formals[carried_count:], captures)
    buffer_of.update({f.name: walk.buffer_of[v.name] for f, v in captured if v is not None})
    inside, (new_cond, *results) = walk.nested(body, buffer_of)
    shared = [*results[carried_count:], new_cond]
    inside, swaps = _swapped(walk, inside, carried, results[:carried_count], shared)
    updates, saves = _carried_updates(walk, sizes, carried, results[:carried_count], swaps)
    scanned = results[carried_count:]
    growing = [_growing(walk, out) for out in node.outputs[carried_count:]]
    appends = [ir.Append(dst, src) for dst, src in zip(growing, scanned)]
    test = None if new_cond == keep_going and cond is None else keep_going
    if new_cond != keep_going:
        updates = [*updates, ir.Copy(keep_going, new_cond)]
    ends = sizes.after_iteration()
    stmt = ir.seq(*sizes.binds, inside, *appends, *saves, *ends, *updates)
    number, count = walk.buffer_of[trips.name] if trips else None, node.attr("count")
    known = None if count is None else arith.wrap(count)
    walk.stmts.append(ir.Loop(counter, number, test, stmt, known))
    walk.stmts += sizes.after
    for symbol in node.attr("symbols", ())[len(sizes.symbols) :]:
        walk.stmts.append(ir.Bind(symbol, counter, 0, origin=node.origin))
    walk.buffer_of.update(zip((out.name for out in node.outputs), (*carried, *growing)))


class _ChangingSizes:
    """The sizes of a loop's carried values that change between iterations. `before`, `binds` and
    `after` are statements: before the loop, at the start of an iteration, after the loop. The
    carried buffers have shapes over symbols of their own (`held`), since the body's are unknown
    outside of the loop, and those of the node inside."""

    def __init__(self, walk: Lowering, node: Node):
        self.walk, self.origin = walk, node.origin
        types = [None if v is None else v.type for v in node.inputs]
        pairs = growing_sizes(node.attr("body"), types, node.attr_map)
        self.symbols = node.attr("growing", ())
        self.before: list[ir.Stmt] = []
        self.binds: list[ir.Stmt] = []
        self.after: list[ir.Stmt] = []
        self.held: dict[str, arith.Var] = {}
        self.exits = [pairs[name][1] for name in self.symbols]
        if self.symbols:
            self.table = walk.size_table(len(self.symbols))
            entries = [pairs[name][0] for name in self.symbols]
            self.before = [walk.write_sizes(self.table, entries, self.origin)]
            self.held = {name: self.held_symbol(name) for name in self.symbols}
            held = self.bind([symbol.name for symbol in self.held.values()])
            self.binds = [*held, *self.bind(self.symbols)]
            self.after = [*held, *self.bind(node.attr("symbols"))]

    def held_symbol(self, name: str) -> arith.Var:
        held = f"{name}_held"
        while held in self.walk.symbols:
            held += "_"  # an identifier
        self.walk.symbols[held] = Symbol(held, source="node", origin=self.origin)
        return arith.Var(held)

    def bind(self, symbols: Sequence[str]) -> list[ir.Stmt]:
        pairs = enumerate(symbols[: len(self.symbols)])
        return [ir.Bind(name, self.table, i, origin=self.origin) for i, name in pairs]

    def after_iteration(self) -> list[ir.Stmt]:
        """Called when the body is lowered, whose symbols the sizes mention."""
        if not self.symbols:
            return []
        return [self.walk.write_sizes(self.table, self.exits, self.origin)]

    def buffer(self, formal: Value) -> str:
        """The buffer of a carried value: of its own allocation, if its size changes."""
        if not any(is_growing(d, self.symbols) for d in formal.shape):
            return self.walk.temporary(formal.name, formal)
        shape = tuple(arith.substitute(d, self.held) for d in formal.shape)
        return _growing(self.walk, Value(formal.name, TensorType(formal.dtype, shape)))

    def update(self, buffer: str, value: str) -> ir.Stmt:
        if self.walk.buffers[buffer].storage is ir.Storage.DYNAMIC:
            return ir.Assign(buffer, value)
        return ir.Copy(buffer, value)


def _swapped(
    walk: Lowering, inside: ir.Stmt, carried: list[str], results: list[str], shared: list[str]
) -> tuple[ir.Stmt, set[str]]:
    """Results of changing size that a launch of the body makes, each for one carried value, have
    an allocation of their own: it changes places with the carried one instead of being copied.
    Returns the body, in which it gets its size before that launch, and these results."""
    stmts = list(inside.stmts) if isinstance(inside, ir.Seq) else [inside]
    found: set[str] = set()
    for buffer, result in zip(carried, results):
        own = walk.buffers[result]
        is_alone = results.count(result) == 1 and result not in shared
        is_growing = walk.buffers[buffer].storage is ir.Storage.DYNAMIC
        if not is_growing or not is_alone or own.storage is not ir.Storage.TEMP:
            continue
        users = (i for i, s in enumerate(stmts) if _mentions(s, result))
        first = next(users, None)
        if first is not None and isinstance(stmts[first], ir.Launch):
            walk.buffers[result] = ir.replace(own, storage=ir.Storage.DYNAMIC)
            stmts.insert(first, ir.Resize(result))
            found.add(result)
    return ir.seq(*stmts), found


def _mentions(s: ir.Stmt, buffer: str) -> bool:
    for each in walk_stmts(s):
        match each:
            case ir.Launch(args=args) if buffer in args:
                return True
            case ir.Copy() | ir.Append() | ir.Assign() if buffer in (each.dst, each.src):
                return True
            case ir.Swap(a=a, b=b) if buffer in (a, b):
                return True
            case ir.Bind() | ir.Resize() if buffer == each.buffer:
                return True
            case ir.If(flag=flag) if buffer == flag:
                return True
            case ir.Loop() if buffer in (each.counter, each.trips, each.keep_going):
                return True
    return False


def _growing(walk: Lowering, out: Value) -> str:
    name = walk.fresh(out.name, walk.buffers)
    walk.buffers[name] = ir.Buffer(name, out.dtype, tuple(out.shape), ir.Storage.DYNAMIC)
    return name


def _carried_updates(
    walk: Lowering, sizes: _ChangingSizes, carried: list[str], results: list[str], swaps: set[str]
) -> tuple[list[ir.Stmt], list[ir.Stmt]]:
    """Copies into the carried buffers, and copies to run before them. A result that is in another
    carried buffer is saved first, since all buffers are updated together."""
    updates: list[ir.Stmt] = []
    saves: list[ir.Stmt] = []
    for buffer, result in zip(carried, results):
        if buffer == result:
            continue
        if result in swaps:
            updates.append(ir.Swap(buffer, result))
            continue
        if result in carried:
            spare = walk.temporary(result, walk.buffers[result])
            saves.append(ir.Copy(spare, result))
            result = spare
        updates.append(sizes.update(buffer, result))
    return updates, saves
