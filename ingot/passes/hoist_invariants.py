"""Loop-invariant code motion for carried values: one that no iteration changes is not carried.

    loop(…, w, h){carried: (w, h) → (w, f(w, h))}  →  loop(…, h){carried: h → f(w, h)}, w captured

Keras and Paddle export the weights of a cell as carried values of its loop: each would be copied in
every iteration, and could not be packed for the GEMM. A captured constant becomes one of the body.
In: a Graph. Out: a Graph whose loops carry only what changes. Called by the pipeline.
"""

from __future__ import annotations

from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, constant_ref, map_subgraphs, same_type

HEADS = 2  # inputs of a body before the carried values: iteration number and condition


def hoist_invariants(graph: Graph, store: ConstantStore) -> Graph:
    """Turn carried values that stay as they are into captured ones, in all loops."""
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: hoist_invariants(g, store))
        edit.g.origin = node.origin
        found = _invariants(node) if node.op == "loop" else []
        if found:
            _hoist(edit, node, found)
        else:
            edit.keep(node)
    return edit.finish()


def _invariants(loop: Node) -> list[int]:
    """The positions of carried values that every iteration passes on."""
    body: Graph = loop.attr("body")
    producers, found = body.producers(), []
    for i in range(loop.attr("carried")):
        value, formal, entered = body.outputs[1 + i], body.inputs[HEADS + i], loop.inputs[HEADS + i]
        while value.name in producers and producers[value.name].op == "identity":
            (source,) = producers[value.name].inputs
            assert source is not None
            value = source
        if value.name == formal.name and entered and same_type(entered.type, formal.type):
            found.append(i)
    return found


def _hoist(edit: Editor, loop: Node, found: list[int]) -> None:
    body, count = loop.attr("body"), loop.attr("carried")
    kept = [i for i in range(count) if i not in found]
    entered = {i: loop.inputs[HEADS + i] for i in found}
    constants = {i: ref for i, v in entered.items() if (ref := _constant(edit, v)) is not None}
    captured = [i for i in found if i not in constants]
    inputs = [
        *loop.inputs[:HEADS], *(loop.inputs[HEADS + i] for i in kept),
        *loop.inputs[HEADS + count :], *(entered[i] for i in captured),
    ]  # fmt: skip
    attrs = {**loop.attr_map, "body": _body(body, count, kept, captured, constants)}
    outputs = (*(loop.outputs[i] for i in kept), *loop.outputs[count:])
    attrs["carried"] = len(kept)
    made = replace(loop, inputs=tuple(inputs), outputs=outputs, attrs=make_attrs(attrs))
    edit.keep(made)
    results = [entered.get(i, out) for i, out in enumerate(loop.outputs)]
    edit.replace(loop, [v for v in results if v is not None])


def _constant(edit: Editor, value: Value | None) -> ConstRef | None:
    producer = edit.producer(value)
    return None if producer is None else constant_ref(producer)


def _body(
    body: Graph, count: int, kept: list[int], captured: list[int], constants: dict[int, ConstRef]
) -> Graph:
    """The body with the kept values carried, the others captured or constants of its own."""
    formals = body.inputs[HEADS : HEADS + count]
    inputs = (
        *body.inputs[:HEADS], *(formals[i] for i in kept), *body.inputs[HEADS + count :],
        *(formals[i] for i in captured),
    )  # fmt: skip
    own = [
        Node("constant", (), (formals[i],), make_attrs({"value": ref}))
        for i, ref in constants.items()
    ]
    outputs = (body.outputs[0], *(body.outputs[1 + i] for i in kept), *body.outputs[1 + count :])
    return replace(body, inputs=inputs, nodes=(*own, *body.nodes), outputs=outputs)
