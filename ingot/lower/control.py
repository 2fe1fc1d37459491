"""Control flow: `if` and `loop` nodes become the program's own If and Loop statements."""

from __future__ import annotations

from ingot.graph.ir import Node, Value
from ingot.lower.lower import Lowering, control
from ingot.ops.control import open_sizes
from ingot.program import ir


@control("if")
def lower_if(walk: Lowering, node: Node) -> None:
    """Each branch is lowered in place and leaves its results in the node's own buffers. Sizes in
    which the branches differ are symbols that each branch binds to its own."""
    cond, *captures = node.inputs
    assert cond is not None
    outputs = [walk.temporary(out.name, out) for out in node.outputs]
    graphs = [node.attr("then_branch"), node.attr("else_branch")]
    sizes = list(zip(*open_sizes(*graphs))) or [(), ()]
    branches = []
    for graph, own_sizes in zip(graphs, sizes):
        homes = {formal.name: walk.home[v.name] for formal, v in zip(graph.inputs, captures) if v}
        body, results = walk.nested(graph, homes)
        binds = walk.bind_sizes(node.attr("symbols", ()), own_sizes, node.origin)
        copies = [ir.Copy(out, result) for out, result in zip(outputs, results)]
        branches.append(ir.seq(body, *binds, *copies))
    walk.stmts.append(ir.If(walk.home[cond.name], branches[0], branches[1]))
    walk.home.update(zip((out.name for out in node.outputs), outputs))


@control("loop")
def lower_loop(walk: Lowering, node: Node) -> None:
    """Carried values live in buffers that the body reads and a copy renews at its end; collected
    values are appended to growing buffers."""
    body, carried_count = node.attr("body"), node.attr("carried")
    trips, cond, *rest = node.inputs
    carried_in, captures = rest[:carried_count], rest[carried_count:]
    counter_in, cond_in, *formals = body.inputs
    counter = walk.temporary("iteration", Value("iteration", counter_in.type))
    carried = [walk.temporary(v.name, v) for v in body.inputs[2 : 2 + carried_count]]
    for home, value in zip(carried, carried_in):
        assert value is not None
        walk.stmts.append(ir.Copy(home, walk.home[value.name]))
    keep_going = walk.temporary("keep_going", cond_in)
    first = walk.home[cond.name] if cond is not None else walk.true_flag()
    walk.stmts.append(ir.Copy(keep_going, first))
    homes = {counter_in.name: counter, cond_in.name: keep_going}
    homes.update(zip((v.name for v in formals), carried))
    captured = formals[carried_count:]
    homes.update({f.name: walk.home[v.name] for f, v in zip(captured, captures) if v is not None})
    inside, (new_cond, *results) = walk.nested(body, homes)
    renew, fresh = _renewals(walk, carried, results[:carried_count])
    collected = results[carried_count:]
    growing = [_growing(walk, out) for out in node.outputs[carried_count:]]
    appends = [ir.Append(dst, src) for dst, src in zip(growing, collected)]
    test = None if new_cond == keep_going and cond is None else keep_going
    if new_cond != keep_going:
        renew = [*renew, ir.Copy(keep_going, new_cond)]
    stmt = ir.seq(inside, *appends, *fresh, *renew)
    walk.stmts.append(ir.Loop(counter, walk.home[trips.name] if trips else None, test, stmt))
    for index, symbol in enumerate(node.attr("symbols", ())):
        assert index == 0, "a loop binds one symbol: the number of its iterations"
        walk.stmts.append(ir.Bind(symbol, counter, 0, origin=node.origin))
    walk.home.update(zip((out.name for out in node.outputs), (*carried, *growing)))


def _growing(walk: Lowering, out: Value) -> str:
    name = walk.fresh(out.name, walk.buffers)
    walk.buffers[name] = ir.Buffer(name, out.dtype, out.shape, ir.Storage.DYNAMIC)
    return name


def _renewals(
    walk: Lowering, carried: list[str], results: list[str]
) -> tuple[list[ir.Stmt], list[ir.Stmt]]:
    """Copies into the carried buffers. A result that lies in another carried buffer (a swap) is
    first saved, since all are renewed at once."""
    renew: list[ir.Stmt] = []
    save: list[ir.Stmt] = []
    for home, result in zip(carried, results):
        if home == result:
            continue
        if result in carried:
            spare = walk.temporary(result, walk.buffers[result])
            save.append(ir.Copy(spare, result))
            result = spare
        renew.append(ir.Copy(home, result))
    return renew, save
