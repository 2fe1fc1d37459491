"""The ONNX converter of Loop: carried tensors, sequences and optionals, and sizes that change.

In: a Loop node. Out: a `loop` node (ops/control.py). Called by walker. A carried value enters the
body with the type that it has before the loop. If an iteration returns another, the body is
imported again under a more general one (`BodyTypes`): a size that changes becomes a symbol of the
body (`growing`), a list becomes a Ragged of unknown length. This ends, since types only widen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import bounds_of, prove
from ingot.arith.interval import Interval
from ingot.frontends.common.elements import as_scalar, cast
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.control import copied, with_kinds
from ingot.frontends.onnx.loop_scans import changing_scans, collected
from ingot.frontends.onnx.operands import (
    FLAG,
    Operand,
    OperandKind,
    OptionalKind,
    Ragged,
    SequenceKind,
    all_parts,
    all_rebuilt,
    converted,
    described,
    joined,
    kind_of,
    parts,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, SubGraph, onnx_op
from ingot.graph.ir import ConstRef, Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import Dim, Symbol, TensorType, tensor
from ingot.graph.verify import sizes_agree, types_agree
from ingot.ops.control import local_symbols
from ingot.support.errors import IngotError

COUNTER = tensor(dtypes.i64)
MAX_ROUNDS = 12  # imports of one body; each makes its types more general; heuristic

Axis = tuple[int, int]  # the number of a carried part, and an axis of it


@onnx_op("Loop")
def convert_loop(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    trips, cond = ctx.optional(node, 0), ctx.optional(node, 1)
    given = [ctx.operand(node, i) for i in range(2, len(node.inputs))]
    if None in given:
        raise bad_model(node, f"operand {2 + given.index(None)} is missing")
    found = import_body(ctx, node, [x for x in given if x is not None])
    carried, body = all_parts(found.entered), scalar_condition(found.sub.graph, ctx.g.store)
    count = known_count(ctx, node, body, cond)
    operands = [
        None if trips is None else cast(ctx, as_scalar(ctx, trips), dtypes.i64),
        None if cond is None else as_scalar(ctx, cond),
        *carried,
        *found.sub.captures,
    ]
    attrs: dict[str, Any] = {"body": body, "carried": len(carried)}
    symbols = [ctx.g.symbol("n", low=s.low) for s in found.growing]
    if found.growing:
        attrs["growing"] = tuple(s.name for s in found.growing)
    if len(body.outputs) > 1 + len(carried):
        if count is not None:
            attrs["count"] = count
        else:
            symbols.append(ctx.g.symbol("trips"))
    if symbols:
        attrs["symbols"] = tuple(symbols)
    scans = changing_scans(body, len(carried), found.growing)
    if scans:
        outputs = collected(ctx, operands, attrs, scans)
    else:
        check_types(ctx, node, body, len(carried), attrs.get("growing", ()))
        outputs = ctx.g.add_all("loop", operands, **attrs)
    return [*all_rebuilt(found.entered, outputs), *outputs[len(carried) :]]


# --- the types of a body ------------------------------------------------------------------------


@dataclass
class BodyTypes:
    """What is assumed of the carried values, and becomes more general from import to import."""

    kinds: list[OperandKind]
    groups: dict[Axis, str] = field(default_factory=dict)  # sizes that change; equal ones by group
    lows: dict[str, int] = field(default_factory=dict)  # by group, where it is not the entry's
    shapes: dict[int, tuple[Dim, ...]] = field(default_factory=dict)  # of placeholders, on entry


@dataclass
class Body:
    """An import of the body: the values that enter the loop, and the symbols of changing sizes."""

    entered: list[Operand]
    sub: SubGraph
    growing: list[Symbol]
    symbol_of: dict[str, Symbol]  # by group


def import_body(ctx: Importer, node: OnnxNode, given: Sequence[Operand]) -> Body:
    """The body, imported until every iteration returns what it is given."""
    types = BodyTypes([kind_of(x) for x in given])
    restore = ctx.mark()
    first: IngotError | None = None
    for _ in range(MAX_ROUNDS):
        try:
            body = _import(ctx, node, given, types)
        except IngotError as error:
            restore()
            if first is not None or not _generalised(ctx, node, given, types):
                raise first or error from None
            first = error
            continue
        if not _widened(ctx, node, body, types):
            return body
        restore()
    raise ctx.unsupported(node, "the types of its carried values could not be determined")


def _import(ctx: Importer, node: OnnxNode, given: Sequence[Operand], types: BodyTypes) -> Body:
    entered = [_entered(ctx, x, kind) for x, kind in zip(given, types.kinds)]
    values = [_placeholder(ctx, v, types.shapes.get(i)) for i, v in enumerate(all_parts(entered))]
    entered = all_rebuilt(entered, values)
    for axis in _ragged_axes(entered):
        types.groups.setdefault(axis, f"axis {axis}")
    symbols = _symbols(ctx, values, types)
    formals = []
    for i, value in enumerate(values):
        shape = tuple(
            arith.Var(symbols[types.groups[i, a]].name) if (i, a) in types.groups else d
            for a, d in enumerate(value.shape)
        )
        formals.append(Value(value.name, TensorType(value.dtype, shape)))
    heads = [Value("iteration", COUNTER), Value("condition", FLAG)]
    inputs = [*heads, *all_rebuilt(entered, formals)]
    sub = ctx.subgraph(node, "body", inputs, symbols.values())
    if len(sub.results) < 1 + len(entered):
        what = f"its body has {len(sub.results)} outputs and {len(entered)} carried values"
        raise bad_model(node, what)
    for number, x in enumerate(sub.results[1 + len(entered) :]):
        if not isinstance(x, Value):
            raise bad_model(node, f"its scan output {number} is {described(x)}, not a tensor")
    return Body(entered, sub, list(symbols.values()), symbols)


def _entered(ctx: Importer, x: Operand, kind: OperandKind) -> Operand:
    match kind:
        case SequenceKind(rank=None) | OptionalKind(content=None):
            return x  # nothing is known of its elements; the body shows what they are
        case TensorType():
            return x
    return converted(ctx, x, kind)


def _placeholder(ctx: Importer, value: Value, shape: tuple[Dim, ...] | None) -> Value:
    """A value of one element in the shape that an iteration gives it."""
    if shape is None:
        return value
    if all(arith.is_const(d, 1) for d in shape):
        return ctx.g.add("reshape", [value], shape=shape)
    return ctx.g.add("expand", [as_scalar(ctx, value)], shape=shape)


def _ragged_axes(entered: Sequence[Operand]) -> list[Axis]:
    """The lengths of sequences, which are expected to change."""
    found, number = [], 0
    for x in entered:
        content = getattr(x, "content", x)
        last = number + len(parts(x))
        if isinstance(content, Ragged):
            found += [(last - 2, 0), (last - 1, 0)]
        number = last
    return found


def _symbols(ctx: Importer, values: Sequence[Value], types: BodyTypes) -> dict[str, Symbol]:
    """A symbol for each group of sizes; no iteration is given less than the loop, unless known."""
    ranges = {s.name: Interval(s.low, s.high) for s in ctx.g.symbols.values()}
    found: dict[str, Symbol] = {}
    for (i, axis), group in types.groups.items():
        low = max(0, bounds_of(values[i].shape[axis], ranges).low or 0)
        low = types.lows.get(group, low)
        if group not in found:
            name = ctx.g.symbol("size")
            del ctx.g.symbols[name]  # it is the body's
            ctx.g.fresh(name)
            found[group] = Symbol(name, low, source="node", origin=ctx.g.origin)
    return found


def _generalised(ctx: Importer, node: OnnxNode, given: Sequence[Operand], types: BodyTypes) -> bool:
    """After a failed import: sequences have the rank that the body declares, and every size of a
    tensor may change. False if there is nothing to change."""
    before = (list(types.kinds), dict(types.groups))
    declared = [info.type for info in node.attr("body").input][2:]
    for i, (kind, type) in enumerate(zip(types.kinds, declared)):
        if isinstance(kind, SequenceKind) and kind.rank is None:
            shape = type.sequence_type.elem_type.tensor_type
            if shape.HasField("shape"):
                types.kinds[i] = SequenceKind(kind.dtype, len(shape.shape.dim))
    number = 0
    for x in given:
        if isinstance(x, Value):
            for axis, d in enumerate(x.shape):
                types.groups.setdefault((number, axis), str(d))
        number += len(parts(x))
    return (types.kinds, types.groups) != before


def _widened(ctx: Importer, node: OnnxNode, body: Body, types: BodyTypes) -> bool:
    """Compare what an iteration returns with what it is given. True if `types` had to change;
    else the results of the body are converted to the kinds of its inputs."""
    count = len(body.entered)
    results = body.sub.results[1 : 1 + count]
    kinds = [joined(kind, kind_of(x)) for kind, x in zip(types.kinds, results)]
    if kinds != types.kinds:
        types.kinds = kinds
        types.groups.clear()
        return True
    wanted = [None if isinstance(x, Value) else k for x, k in zip(results, kinds)]
    wanted = [None if is_unknown(kind) else kind for kind in wanted]
    scans = [None] * (len(body.sub.results) - 1 - count)
    body.sub = with_kinds(ctx, body.sub, [None, *wanted, *scans])
    return _resized(ctx, node, body, types)


def is_unknown(kind: OperandKind | None) -> bool:
    match kind:
        case SequenceKind(rank=None) | OptionalKind(content=None):
            return True
    return False


def _resized(ctx: Importer, node: OnnxNode, body: Body, types: BodyTypes) -> bool:
    """The same for the sizes of tensors."""
    graph, is_changed = body.sub.graph, False
    given = graph.inputs[2 : 2 + len(all_parts(body.entered))]
    local = local_symbols(graph)
    exits: dict[str, list[tuple[Axis, Dim]]] = {}
    for i, (formal, out) in enumerate(zip(given, graph.outputs[1:])):
        shape = _shape_on_exit(graph, formal, out, local)
        if shape is not None and types.shapes.get(i) != shape:
            types.shapes[i], is_changed = shape, True
            continue
        if formal.dtype is not out.dtype or formal.type.rank != out.type.rank:
            raise ctx.unsupported(
                node,
                f"carried value {formal.name!r} has type {formal.type} on entry and {out.type} "
                "on exit; it must keep its element type and rank",
            )
        for axis, (a, b) in enumerate(zip(formal.shape, out.shape)):
            if (i, axis) in types.groups:
                exits.setdefault(types.groups[i, axis], []).append(((i, axis), b))
            elif arith.free_vars(b) & local or not sizes_agree(a, b, {}):
                entry = all_parts(body.entered)[i].shape[axis]
                types.groups[i, axis], is_changed = str(entry), True
    return _regrouped(ctx, body, types, exits) or is_changed


def _regrouped(
    ctx: Importer, body: Body, types: BodyTypes, exits: dict[str, list[tuple[Axis, Dim]]]
) -> bool:
    """Sizes of one group must stay equal, and no less than the lower bound of their symbol."""
    is_changed = False
    ranges = {s.name: Interval(s.low, s.high) for s in ctx.g.symbols.values()}
    ranges |= {s.name: Interval(s.low, s.high) for s in body.sub.graph.symbols}
    for group, rows in exits.items():
        first = rows[0][1]
        for axis, size in rows[1:]:
            if size != first and not sizes_agree(size, first, {}):
                types.groups[axis], is_changed = f"{group}, then {size}", True
        low = body.symbol_of[group].low
        if low and not all(prove("ge", size, low, ranges) for _, size in rows):
            types.lows[group], is_changed = 0, True
    return is_changed


def _shape_on_exit(
    body: Graph, formal: Value, out: Value, local: set[str]
) -> tuple[Dim, ...] | None:
    """The shape that a carried value of one element must have on entry, if it is another one.
    Exporters let one have rank 0 before the loop and rank 1 after it, or enter a placeholder that
    no iteration reads for a tensor that is made inside. (After no iteration it has that shape.)"""
    is_one = all(arith.is_const(d, 1) for d in formal.type.shape)
    if formal.dtype is not out.dtype or formal.type.shape == out.type.shape or not is_one:
        return None
    if all(arith.is_const(d, 1) for d in out.type.shape):
        return tuple(out.type.shape)
    read = {v.name for n in body.nodes for v in n.inputs if v is not None}
    read |= {v.name for v in body.outputs}
    if formal.name in read:
        return None
    own = local | {s.name for s in body.symbols}
    if not any(arith.free_vars(d) & own for d in out.type.shape):
        return tuple(out.type.shape)
    is_lower = formal.type.rank != out.type.rank
    return (arith.Const(1),) * out.type.rank if is_lower else None


# --- the condition, and checks ------------------------------------------------------------------


def scalar_condition(body: Graph, store: ConstantStore) -> Graph:
    """Reshape the condition to rank 0: exporters write one element of any shape."""
    if body.outputs[0].type == FLAG:
        return body
    g, outputs = copied(body, store)
    return g.finish([g.add("reshape", [outputs[0]], shape=()), *outputs[1:]])


def check_types(
    ctx: Importer, node: OnnxNode, body: Graph, carried: int, growing: Sequence[str] = ()
) -> None:
    if len(body.outputs) < 1 + carried:
        raise bad_model(
            node, f"its body has {len(body.outputs)} outputs and {carried} carried values"
        )
    for before, after in zip(body.inputs[2:], body.outputs[1 : 1 + carried]):
        free = {n for d in before.type.shape for n in arith.free_vars(d)}
        if not free & set(growing) and not types_agree(before.type, after.type, {}):
            raise ctx.unsupported(
                node,
                f"carried value {before.name!r} has type {before.type} on entry and {after.type} "
                "on exit; it must keep its type and shape",
            )
    local = local_symbols(body)
    for value in body.outputs[1 + carried :]:
        if any(arith.free_vars(d) & local for d in value.shape):
            raise ctx.unsupported(
                node, f"the size of scan output {value.name!r} may change between iterations"
            )


def known_count(
    ctx: Importer, node: OnnxNode, body: Graph, cond: Value | None
) -> arith.Expr | None:
    """The number of iterations, if only a constant trip count can end the loop."""
    starts = cond is None or is_true(ctx.known(node, 1))
    if ctx.optional(node, 0) is None or not starts or not is_condition_invariant(body, ctx.g.store):
        return None
    number = ctx.known(node, 0)
    if number is not None:
        return arith.Const(max(0, int(number.reshape(()))))
    return None


def is_true(array) -> bool:
    return array is not None and bool(array.reshape(()))


def is_condition_invariant(body: Graph, store: ConstantStore) -> bool:
    """Whether the body returns its condition unchanged, or a constant true."""
    producers, value = body.producers(), body.outputs[0]
    while value.name in producers:
        producer = producers[value.name]
        ref = producer.attr("value")
        if isinstance(ref, ConstRef):
            return bool(store.get(ref).reshape(()))
        if producer.op not in ("identity", "reshape") or producer.inputs[0] is None:
            return False
        value = producer.inputs[0]
    return value.name == body.inputs[1].name
