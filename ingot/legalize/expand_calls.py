"""Instruction calls: native instructions are prepared for the printer, others are inlined as their
meaning. A legalize pass, before lower_blocks.

    call(dot4, A[i:i + 1, 0:4], B[0:4], C[i:i + 1])  →  for k in 4: C[i] += A[i, k] * B[k]

An instruction is native if its `emit` is for this printer and the target has its features. Its
arguments are then copied to flat buffers, and its meaning is flattened too, so that the printer
loads each argument as one vector. Arguments that are boxes of one buffer, one of them written, are
also copied, since they may overlap.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.arith import expr as arith
from ingot.legalize.context import FreshNames, PassContext
from ingot.legalize.flatten import flatten
from ingot.legalize.lower_blocks import lower_blocks
from ingot.loops import emit as emits
from ingot.loops import ir, rename, visit
from ingot.loops.ir import Buffer, Call, Kernel, LoopKind, Slice, Stmt
from ingot.target import Target

MAX_EXTENT = 64  # of a copy loop that is vectorised or unrolled; heuristic
MAX_DENSE = 256  # of one that is contiguous: a few registers; heuristic
Indices = tuple[arith.Expr, ...]


def expand_calls(kernel: Kernel, ctx: PassContext) -> Kernel:
    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Call):
            return s
        if is_native(s.instruction, ctx.target):
            kept = frozenset(_overwritten(s.instruction))
            return _with_copies(s, ctx.names, lambda boxes: _native_call(s, boxes, ctx), kept)
        return _meaning(s, ctx.names)

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def expand_body(body: Stmt, names: FreshNames) -> Stmt:
    """Every call inlined as its meaning, for analyses of what a statement accesses."""
    return visit.map_stmt(body, lambda s: _meaning(s, names) if isinstance(s, Call) else s)


def is_native(instruction: ir.Instruction, target: Target) -> bool:
    emit = emits.parse(instruction.emit)
    if emit is None or emit.printer != target.printer:
        return False
    is_known = not emits.fault(instruction.emit, instruction.meaning)
    return is_known and all(target.has(feature) for feature in emit.features)


def _overwritten(instruction: ir.Instruction) -> set[str]:
    """The parameter that a native instruction writes without reading it: `C = …`, not `C += …`."""
    emit, body = emits.parse(instruction.emit), instruction.meaning.body
    if emit is None or emit.adds:
        return set()
    return {emit.result} - {x.buffer.name for x in visit.loads(body)}


def _native_call(s: Call, boxes: list[Slice], ctx: PassContext) -> Stmt:
    """The call on whole flat buffers, with a meaning over flat parameters."""
    flat = flatten(lower_blocks(s.instruction.meaning, ctx), ctx)
    return Call(ir.replace(s.instruction, meaning=flat), tuple(boxes))


# --- inlined meanings ---------------------------------------------------------------------------


def _meaning(s: Call, names: FreshNames) -> Stmt:
    if _needs_copies(s):
        return _with_copies(s, names, lambda boxes: _inlined(s, boxes, names, is_flat=True))
    return _inlined(s, list(s.args), names, is_flat=False)


def _needs_copies(s: Call) -> bool:
    """Boxes of one buffer, one of them written, may overlap; vector accesses need dense rows."""
    meaning = s.instruction.meaning
    written = visit.written(meaning.body)
    names = [box.buffer.name for box in s.args]
    for param, name in zip(meaning.params, names):
        if param.name in written and names.count(name) > 1:
            return True
    wide = any(x.width > 1 for x in visit.loads(meaning.body))
    return wide or any(x.value.lanes > 1 for x in visit.stores(meaning.body))


def _inlined(s: Call, boxes: list[Slice], names: FreshNames, is_flat: bool) -> Stmt:
    """The body of the meaning, each parameter replaced by its box."""
    meaning = s.instruction.meaning
    sizes = _sizes(meaning, s.args)
    box_of = {p.name: (p, box) for p, box in zip(meaning.params, boxes)}

    def translate(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        param, box = box_of[buffer.name]
        found = _flat_index(param, indices) if is_flat else _index_in_box(param, box, indices)
        return box.buffer, tuple(arith.substitute(i, sizes) for i in found)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.Load) or e.buffer.name not in box_of:
            return e
        buffer, indices = translate(e.buffer, e.indices)
        return ir.replace(e, buffer=buffer, indices=indices)

    def on_stmt(x: Stmt) -> Stmt:
        if not isinstance(x, ir.Store) or x.buffer.name not in box_of:
            return x
        buffer, indices = translate(x.buffer, x.indices)
        return ir.replace(x, buffer=buffer, indices=indices)

    plain = expand_body(meaning.body, names)  # a meaning may call other instructions
    body = rename.copy_of(visit.substitute(plain, sizes), names.fresh)
    return visit.map_stmt(body, on_stmt, on_expr)


def _sizes(meaning: Kernel, args: tuple[Slice, ...]) -> dict[str, arith.Expr]:
    """The sizes of the meaning, from the extents of the boxes."""
    sizes: dict[str, arith.Expr] = {}
    for param, box in zip(meaning.params, args):
        for dim, extent in zip(param.shape, _matched(param, box)):
            if isinstance(dim, arith.Var):
                sizes.setdefault(dim.name, extent)
    return sizes


def _matched(param: Buffer, box: Slice) -> list[arith.Expr]:
    """The extent of the box in each dimension of the parameter; extents of 1 may be extra."""
    if param.rank == len(box.extents):
        return list(box.extents)
    wide = iter([e for e in box.extents if not arith.is_const(e, 1)])
    one = arith.Const(1)
    return [one if arith.is_const(d, 1) else next(wide) for d in param.shape]


def _index_in_box(param: Buffer, box: Slice, indices: Indices) -> Indices:
    """The index into the buffer of an element of the parameter."""
    if param.rank == len(box.extents):
        return tuple(o + i for o, i in zip(box.offsets, indices))
    inner = iter([i for i, d in zip(indices, param.shape) if not arith.is_const(d, 1)])
    return tuple(
        o if arith.is_const(e, 1) else o + next(inner) for o, e in zip(box.offsets, box.extents)
    )


def _flat_index(param: Buffer, indices: Indices) -> Indices:
    offset: arith.Expr = arith.Const(0)
    for extent, index in zip(param.shape, indices):
        offset = offset * extent + index
    return (offset,)


# --- arguments copied to flat buffers -----------------------------------------------------------


def _with_copies(
    s: Call,
    names: FreshNames,
    run: Callable[[list[Slice]], Stmt],
    overwritten: frozenset[str] = frozenset(),
) -> Stmt:
    """Copies in, except of what is overwritten; the statement that `run` makes for flat boxes;
    copies out."""
    meaning = s.instruction.meaning
    written = visit.written(meaning.body)
    sizes = _sizes(meaning, s.args)
    before: list[Stmt] = []
    after: list[Stmt] = []
    boxes: list[Slice] = []
    for param, box in zip(meaning.params, s.args):
        if param.name not in written and _is_whole_row(box):
            boxes.append(box)
            continue
        shape = tuple(arith.substitute(d, sizes) for d in param.shape)
        count = arith.product(list(shape))
        flat = Buffer(names.fresh(param.name), param.dtype, (count,), ir.THREAD)
        boxes.append(Slice(flat, (arith.Const(0),), (count,)))
        whole = ir.replace(param, shape=shape)
        if param.name not in overwritten:
            before.append(_copy(flat, whole, box, names, is_in=True))
        if param.name in written:
            after.append(_copy(flat, whole, box, names, is_in=False))
    body = ir.seq(*before, run(boxes), *after)
    for box in reversed(boxes):
        if box not in s.args:
            body = ir.Alloc(box.buffer, body)
    return body


def _is_whole_row(box: Slice) -> bool:
    """Is it all of a flat buffer, such as a table? It needs no copy."""
    return len(box.extents) == 1 and box.extents == box.buffer.shape


def _copy(flat: Buffer, param: Buffer, box: Slice, names: FreshNames, is_in: bool) -> Stmt:
    count = arith.as_int(arith.product(list(param.shape)))
    if param.rank > 1 and count is not None and _is_dense(box):  # rows that follow each other
        var = names.fresh("place")
        there = _index_in_box(param, box, _element(param, arith.Var(var)))
        kind = LoopKind.VECTOR if count <= MAX_DENSE else LoopKind.SERIAL
        stmt = _moved(flat, (arith.Var(var),), box, there, is_in)
        return ir.For(var, arith.Const(0), arith.Const(count), stmt, kind)
    vars_ = [names.fresh("place") for _ in param.shape]
    element = tuple(arith.Var(v) for v in vars_)
    here, there = _flat_index(param, element), _index_in_box(param, box, element)
    stmt = _moved(flat, here, box, there, is_in)
    for depth, (var, extent) in enumerate(reversed(list(zip(vars_, param.shape)))):
        stmt = ir.For(var, arith.Const(0), extent, stmt, _kind(depth, extent))
    return stmt


def _moved(flat: Buffer, here: Indices, box: Slice, there: Indices, is_in: bool) -> Stmt:
    if is_in:
        return ir.Store(flat, here, ir.Load(box.buffer, there))
    return ir.Store(box.buffer, there, ir.Load(flat, here))


def _is_dense(box: Slice) -> bool:
    """Are its elements adjacent? Below its first dimension that is not 1, it is the whole buffer."""
    sizes = list(zip(box.extents, box.buffer.shape))
    while sizes and arith.is_const(sizes[0][0], 1):
        sizes.pop(0)
    return all(extent == size for extent, size in sizes[1:])


def _element(param: Buffer, place: arith.Expr) -> Indices:
    """The indices of an element of the parameter, by its position."""
    found: list[arith.Expr] = []
    for extent in reversed(param.shape):
        found.append(place % extent)
        place = place // extent
    return tuple(reversed(found))


def _kind(depth: int, extent: arith.Expr) -> LoopKind:
    """Rows become vectors and a few rows are unrolled, so that the copy stays in registers."""
    count = arith.as_int(extent)
    if count is None or count > MAX_EXTENT:
        return LoopKind.SERIAL
    return LoopKind.VECTOR if depth == 0 else LoopKind.UNROLL
