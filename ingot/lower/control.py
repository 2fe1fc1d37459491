"""Lowers control flow: `if` and `loop` nodes become the program's If and Loop statements."""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.graph.ir import Node, Value
from ingot.lower.lower import Lowering, control
from ingot.ops.control import differing_sizes
from ingot.program import ir


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
    outputs are appended to growing buffers."""
    body, carried_count = node.attr("body"), node.attr("carried")
    trips, cond, *rest = node.inputs
    carried_in, captures = rest[:carried_count], rest[carried_count:]
    counter_in, cond_in, *formals = body.inputs
    counter = walk.temporary("iteration", Value("iteration", counter_in.type))
    carried = [walk.temporary(v.name, v) for v in body.inputs[2 : 2 + carried_count]]
    for buffer, value in zip(carried, carried_in):
        assert value is not None
        walk.stmts.append(ir.Copy(buffer, walk.buffer_of[value.name]))
    keep_going = walk.temporary("keep_going", cond_in)
    first = walk.buffer_of[cond.name] if cond is not None else walk.true_flag()
    walk.stmts.append(ir.Copy(keep_going, first))
    buffer_of = {counter_in.name: counter, cond_in.name: keep_going}
    buffer_of.update(zip((v.name for v in formals), carried))
    captured = zip(formals[carried_count:], captures)
    buffer_of.update({f.name: walk.buffer_of[v.name] for f, v in captured if v is not None})
    inside, (new_cond, *results) = walk.nested(body, buffer_of)
    updates, saves = _carried_updates(walk, carried, results[:carried_count])
    scanned = results[carried_count:]
    growing = [_growing(walk, out) for out in node.outputs[carried_count:]]
    appends = [ir.Append(dst, src) for dst, src in zip(growing, scanned)]
    test = None if new_cond == keep_going and cond is None else keep_going
    if new_cond != keep_going:
        updates = [*updates, ir.Copy(keep_going, new_cond)]
    stmt = ir.seq(inside, *appends, *saves, *updates)
    number, count = walk.buffer_of[trips.name] if trips else None, node.attr("count")
    known = None if count is None else arith.wrap(count)
    walk.stmts.append(ir.Loop(counter, number, test, stmt, known))
    for index, symbol in enumerate(node.attr("symbols", ())):
        assert index == 0, "a loop binds one symbol: the number of its iterations"
        walk.stmts.append(ir.Bind(symbol, counter, 0, origin=node.origin))
    walk.buffer_of.update(zip((out.name for out in node.outputs), (*carried, *growing)))


def _growing(walk: Lowering, out: Value) -> str:
    name = walk.fresh(out.name, walk.buffers)
    walk.buffers[name] = ir.Buffer(name, out.dtype, out.shape, ir.Storage.DYNAMIC)
    return name


def _carried_updates(
    walk: Lowering, carried: list[str], results: list[str]
) -> tuple[list[ir.Stmt], list[ir.Stmt]]:
    """Copies into the carried buffers, and copies to run before them. A result that is in another
    carried buffer (a swap) is saved first, since all buffers are updated together."""
    updates: list[ir.Stmt] = []
    saves: list[ir.Stmt] = []
    for buffer, result in zip(carried, results):
        if buffer == result:
            continue
        if result in carried:
            spare = walk.temporary(result, walk.buffers[result])
            saves.append(ir.Copy(spare, result))
            result = spare
        updates.append(ir.Copy(buffer, result))
    return updates, saves
