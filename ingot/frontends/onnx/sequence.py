"""ONNX converters of sequences: SequenceConstruct, SequenceAt, SplitToSequence, … and SequenceMap.

In: ONNX nodes. Out: operands (operands.py): while the length and the positions are known, a
sequence is a list of values and its operators need no code; else ragged.py has them. Called by
walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, cast, reshape, tidy
from ingot.frontends.onnx import ragged
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.control import inline
from ingot.frontends.onnx.loop import convert_loop
from ingot.frontends.onnx.operands import (
    AnySequence,
    Operand,
    OptionalValue,
    Ragged,
    SequenceList,
    all_rebuilt,
    as_ragged,
    described,
    mapped,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

MAX_LIST = 64  # elements of a list made by splitting; longer sequences are ragged; heuristic
NO_ELEMENT = "the optional has no element"


def sequence_operand(ctx: Importer, node: OnnxNode, index: int) -> AnySequence:
    """Operand `index`, which must be a sequence (or an optional one, that has an element)."""
    x = ctx.operand(node, index)
    if isinstance(x, OptionalValue) and not isinstance(x.content, Value):
        x = element_of(ctx, node, x)
    if isinstance(x, SequenceList | Ragged):
        return x
    if x is None:
        raise bad_model(node, f"operand {index} is missing")
    what = f"operand {index} is {described(x)}, not a sequence"
    raise IngotError("bad-type", what, where=node.where)


def element_of(ctx: Importer, node: OnnxNode, x: OptionalValue) -> Operand:
    """The content of an optional; the run fails if there is none."""
    if x.content is None or x.flag is False:
        raise bad_model(node, NO_ELEMENT)
    flag = x.flag
    if isinstance(flag, bool):
        return x.content

    def required(value: Value) -> Value:
        return ctx.g.add("require", [value, flag], expected=True, reason=NO_ELEMENT)

    return mapped(x.content, required)


def position_of(ctx: Importer, node: OnnxNode, index: int) -> Value | None:
    value = ctx.optional(node, index)
    return None if value is None else cast(ctx, as_scalar(ctx, value), dtypes.i64)


def known_position(
    ctx: Importer, node: OnnxNode, index: int, x: AnySequence, last: int, default: int
) -> int | None:
    """A constant position in a list, counted from the front; None if it is known only when running,
    or the list is."""
    if not isinstance(x, SequenceList):
        return None
    given, known = ctx.optional(node, index), ctx.known(node, index)
    if given is not None and known is None:
        return None
    count = len(x.items)
    at = default if known is None else int(known.reshape(()))
    at = at + count if at < 0 else at
    if not 0 <= at <= last:
        raise bad_model(node, f"position {at} is outside a sequence of {count} elements")
    return at


@onnx_op("SequenceEmpty")
def sequence_empty(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    code = node.attr("dtype", onnx.TensorProto.FLOAT)
    return [SequenceList((), dtype_of(code, node.where))]


@onnx_op("SequenceConstruct")
def sequence_construct(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    items = tuple(ctx.value(node, i) for i in range(len(node.inputs)))
    if len({item.dtype for item in items}) != 1:
        raise IngotError("bad-type", "its operands have several element types", where=node.where)
    return [SequenceList(items, items[0].dtype)]


@onnx_op("SequenceLength")
def sequence_length(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x = sequence_operand(ctx, node, 0)
    count = x.count if isinstance(x, Ragged) else len(x.items)
    return [ragged.size_scalar(ctx, count)]


@onnx_op("SequenceAt")
def sequence_at(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x = sequence_operand(ctx, node, 0)
    count = len(x.items) if isinstance(x, SequenceList) else 0
    known = known_position(ctx, node, 1, x, count - 1, 0)
    if known is not None and isinstance(x, SequenceList):
        return [x.items[known]]
    position = position_of(ctx, node, 1)
    if position is None:
        raise bad_model(node, "operand 1 is missing")
    if isinstance(x, SequenceList) and len({item.type for item in x.items}) == 1:
        rows = [reshape(ctx, item, (1, *item.shape)) for item in x.items]
        table = ctx.g.add("concat", rows, axis=0) if count > 1 else rows[0]
        return [ctx.g.add("gather", [table, position], axis=0)]
    whole = as_ragged(ctx, x)
    return [ragged.element(ctx, whole, position, _rank(ctx, node, whole))]


def _rank(ctx: Importer, node: OnnxNode, x: Ragged) -> int:
    """The rank of an element: known, or what the file declares of the node's output."""
    if not x.is_mixed:
        return x.rank
    declared = ctx.declared(node.outputs[0])
    if declared is None or not declared.tensor_type.HasField("shape"):
        why = "the rank of the sequence's elements is not known"
        hint = "declare the shape of the input's elements, or of the node's output (value_info)"
        raise ctx.unsupported(node, why, hint)
    rank = len(declared.tensor_type.shape.dim)
    if rank > x.rank:
        raise bad_model(node, f"its output is declared of rank {rank}, elements have {x.rank}")
    return rank


@onnx_op("SequenceInsert")
def sequence_insert(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x, item = sequence_operand(ctx, node, 0), ctx.value(node, 1)
    if item.dtype is not x.dtype:
        what = f"a tensor of {item.dtype} does not fit a sequence of {x.dtype}"
        raise IngotError("bad-type", what, where=node.where)
    count = len(x.items) if isinstance(x, SequenceList) else 0
    at = known_position(ctx, node, 2, x, count, count)
    if at is not None and isinstance(x, SequenceList):
        return [SequenceList((*x.items[:at], item, *x.items[at:]), x.dtype)]
    return [ragged.inserted(ctx, as_ragged(ctx, x), item, position_of(ctx, node, 2))]


@onnx_op("SequenceErase")
def sequence_erase(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x = sequence_operand(ctx, node, 0)
    count = len(x.items) if isinstance(x, SequenceList) else 0
    at = known_position(ctx, node, 1, x, count - 1, count - 1)
    if at is not None and isinstance(x, SequenceList):
        return [SequenceList((*x.items[:at], *x.items[at + 1 :]), x.dtype)]
    return [ragged.erased(ctx, as_ragged(ctx, x), position_of(ctx, node, 1))]


@onnx_op("ConcatFromSequence")
def concat_from_sequence(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x, is_new = sequence_operand(ctx, node, 0), bool(node.attr("new_axis", 0))
    if isinstance(x, SequenceList):
        return [_list_concat(ctx, node, x, is_new)]
    if x.is_mixed:
        raise ctx.unsupported(node, "the ranks of the sequence's elements may differ")
    axis = axis_of(node, node.attr("axis"), x.rank + is_new)
    join = ragged.stacked if is_new else ragged.concatenated
    return [join(ctx, x, axis)]


def _list_concat(ctx: Importer, node: OnnxNode, x: SequenceList, is_new: bool) -> Value:
    if not x.items:
        raise bad_model(node, "it concatenates an empty sequence")
    rank = max(item.tensor.rank for item in x.items)
    axis = axis_of(node, node.attr("axis"), rank + is_new)
    items: Sequence[Value] = x.items
    if is_new:
        shapes = [(*v.shape[:axis], 1, *v.shape[axis:]) for v in items]
        items = [reshape(ctx, v, shape) for v, shape in zip(items, shapes)]
    return ctx.g.add("concat", items, axis=axis) if len(items) > 1 else items[0]


@onnx_op("SplitToSequence")
def split_to_sequence(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    x, given = ctx.value(node, 0), ctx.optional(node, 1)
    axis = axis_of(node, node.attr("axis", 0), x.tensor.rank)
    length = x.shape[axis]
    if given is None:
        return [_single_slices(ctx, node, x, axis)]
    if given.tensor.rank == 0:
        chunk, size = ctx.known(node, 1), arith.as_int(length)
        if chunk is None or size is None:
            widths = ragged.chunk_widths(ctx, length, cast(ctx, given, dtypes.i64))
            return [ragged.split(ctx, x, widths, axis)]
        step = int(chunk)
        if step < 1:
            raise bad_model(node, f"it splits into pieces of {step} elements")
        sizes = [arith.wrap(min(step, size - at)) for at in range(0, size, step)]
    else:
        count = arith.as_int(given.tensor.numel)
        if count is None or count > MAX_LIST:
            return [ragged.split(ctx, x, cast(ctx, given, dtypes.i64), axis)]
        sizes = list(ctx.dims(node, 1))
        x = _fitting(ctx, x, axis, sizes)
    return [SequenceList(tuple(_slices(ctx, x, axis, sizes)), x.dtype)]


def _single_slices(ctx: Importer, node: OnnxNode, x: Value, axis: int) -> AnySequence:
    """Slices of size 1; without their axis, unless keepdims."""
    keeps, size = bool(node.attr("keepdims", 1)), arith.as_int(x.shape[axis])
    if size is None or size > MAX_LIST:
        return ragged.single_slices(ctx, x, axis, keeps)
    items = _slices(ctx, x, axis, [arith.Const(1)] * size)
    if not keeps:
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        items = [reshape(ctx, item, shape) for item in items]
    return SequenceList(tuple(items), x.dtype)


def _slices(ctx: Importer, x: Value, axis: int, sizes: Sequence[arith.Expr]) -> list[Value]:
    made, start = [], arith.wrap(0)
    for size in sizes:
        starts = [arith.wrap(0)] * x.tensor.rank
        starts[axis] = start
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        steps = (1,) * x.tensor.rank
        made.append(ctx.g.add("slice", [x], starts=tuple(starts), sizes=shape, steps=steps))
        start = tidy(ctx, start + size)
    return made


def _fitting(ctx: Importer, x: Value, axis: int, sizes: Sequence[arith.Expr]) -> Value:
    """x, whose axis is the sum of these sizes: a reshape checks it where that is not known."""
    total = tidy(ctx, sum(sizes, start=arith.wrap(0)))
    return reshape(ctx, x, (*x.shape[:axis], total, *x.shape[axis + 1 :]))


# --- SequenceMap --------------------------------------------------------------------------------


@onnx_op("SequenceMap")
def sequence_map(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    """The body for each element: once for each of a list, else in a loop."""
    operands = [ctx.operand(node, i) for i in range(len(node.inputs))]
    lists = [x for x in operands if isinstance(x, SequenceList)]
    if not lists or any(isinstance(x, Ragged | OptionalValue) for x in operands):
        return _mapped_in_a_loop(ctx, node)
    count = len(lists[0].items)
    if any(len(x.items) != count for x in lists):
        raise bad_model(node, "its sequences have different lengths")
    if not count:
        codes = [info.type.tensor_type.elem_type for info in node.attr("body").output]
        return [SequenceList((), dtype_of(code, node.where)) for code in codes]
    rows: list[list[Operand]] = []
    for i in range(count):
        given = [x.items[i] if isinstance(x, SequenceList) else x for x in operands]
        sub = ctx.subgraph(node, "body", [x for x in given if x is not None])
        made = inline(ctx.g, sub.graph, [*(x for x in given if x is not None), *sub.captures])  # type: ignore[list-item]
        rows.append(all_rebuilt(sub.results, made))
    columns = [[v for v in column if isinstance(v, Value)] for column in zip(*rows)]
    return [SequenceList(tuple(column), column[0].dtype) for column in columns]


def _mapped_in_a_loop(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    """As the standard defines it: a Loop that takes an element of each sequence and inserts the
    results into sequences that are empty at first. `node.attr("body")` becomes its body."""
    body: onnx.GraphProto = node.attr("body")
    first = sequence_operand(ctx, node, 0)
    length = ragged.size_scalar(ctx, first.count if isinstance(first, Ragged) else len(first.items))
    prefix = f"{node.name}."
    count, go_on, at = prefix + "count", prefix + "condition", prefix + "i"
    ctx.define(count, length)
    graph = onnx.GraphProto(name=body.name)
    graph.input.add(name=at)
    graph.input.add(name=go_on)
    graph.value_info.extend(body.input)
    for formal, name, i in zip(body.input, node.inputs, range(len(node.inputs))):
        is_tensor = isinstance(ctx.operand(node, i), Value)
        op = "Identity" if is_tensor else "SequenceAt"
        operands = [name] if is_tensor else [name, at]
        graph.node.add(op_type=op, name=node.name, input=operands, output=[formal.name])
    graph.initializer.extend(body.initializer)
    graph.sparse_initializer.extend(body.sparse_initializer)
    graph.node.extend(body.node)
    graph.output.add(name=prefix + "more")
    graph.node.add(op_type="Identity", input=[go_on], output=[prefix + "more"])
    empties = []
    for info in body.output:
        before, after = f"{prefix}{info.name}.before", f"{prefix}{info.name}.after"
        graph.input.add(name=before)
        graph.output.add(name=after)
        row = [before, info.name]
        graph.node.add(op_type="SequenceInsert", name=node.name, input=row, output=[after])
        empty = f"{prefix}{info.name}.empty"
        dtype = dtype_of(info.type.tensor_type.elem_type, node.where)
        ctx.define(empty, SequenceList((), dtype))
        empties.append(empty)
    attrs = {"body": graph}
    inputs = [count, "", *empties]
    loop = OnnxNode("Loop", "", node.name, inputs, list(node.outputs), attrs, node.opset)
    return convert_loop(ctx, loop)
