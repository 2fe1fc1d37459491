"""Calls of instructions: those the target has are prepared for the printer, the others become what
they mean. A step, before blocks are lowered.

    call(dot4, A[i:i + 1, 0:4], B[0:4], C[i:i + 1])  →  for k in 4: C[i] += A[i, k] * B[k]

An instruction stays where its `emit` is for the printer and the target has the features. Its boxes
then are copied to buffers of their own, flat and whole, and its meaning is flat too: the printer
loads each as one vector. Copies also stand between boxes of one buffer that is written.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.arith import expr as arith
from ingot.legalize.context import Context, Names
from ingot.legalize.flatten import flatten
from ingot.legalize.lower_blocks import lower_blocks
from ingot.loops import emit as emits
from ingot.loops import ir, rename, visit
from ingot.loops.ir import Buffer, Call, Kernel, LoopKind, Slice, Stmt
from ingot.target import Target

PRINTER = "llvm"
MAX_ROWS = 64  # elements of a row that becomes a vector, rows that are written out
Indices = tuple[arith.Expr, ...]


def expand_calls(kernel: Kernel, ctx: Context) -> Kernel:
    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Call):
            return s
        if may_stay(s.instruction, ctx.target):
            return _on_copies(s, ctx.names, lambda boxes: _ready(s, boxes, ctx))
        return _meaning(s, ctx.names)

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def expand_body(body: Stmt, names: Names) -> Stmt:
    """Every call as what it means, for those who ask what a statement touches."""
    return visit.map_stmt(body, lambda s: _meaning(s, names) if isinstance(s, Call) else s)


def may_stay(instruction: ir.Instruction, target: Target) -> bool:
    emit = emits.parse(instruction.emit)
    if emit is None or emit.printer != PRINTER:
        return False
    is_known = not emits.fault(instruction.emit, instruction.meaning)
    return is_known and all(target.has(feature) for feature in emit.features)


def _ready(s: Call, boxes: list[Slice], ctx: Context) -> Stmt:
    """The call on whole flat buffers, with a meaning over flat parameters."""
    flat = flatten(lower_blocks(s.instruction.meaning, ctx), ctx)
    return Call(ir.replace(s.instruction, meaning=flat), tuple(boxes))


# --- the meaning in place -----------------------------------------------------------------------


def _meaning(s: Call, names: Names) -> Stmt:
    if _needs_copies(s):
        return _on_copies(s, names, lambda boxes: _inlined(s, boxes, names, is_flat=True))
    return _inlined(s, list(s.args), names, is_flat=False)


def _needs_copies(s: Call) -> bool:
    """Boxes of one buffer, one of them written, may overlap; wide accesses need whole rows."""
    meaning = s.instruction.meaning
    written = visit.written(meaning.body)
    homes = [box.buffer.name for box in s.args]
    for param, home in zip(meaning.params, homes):
        if param.name in written and homes.count(home) > 1:
            return True
    wide = any(x.width > 1 for x in visit.loads(meaning.body))
    return wide or any(x.value.lanes > 1 for x in visit.stores(meaning.body))


def _inlined(s: Call, boxes: list[Slice], names: Names, is_flat: bool) -> Stmt:
    """The body of the meaning, each parameter replaced by its box."""
    meaning = s.instruction.meaning
    sizes = _sizes(meaning, s.args)
    homes = {p.name: (p, box) for p, box in zip(meaning.params, boxes)}

    def place(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        param, box = homes[buffer.name]
        found = _flat(param, indices) if is_flat else _placed(param, box, indices)
        return box.buffer, tuple(arith.substitute(i, sizes) for i in found)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.Load) or e.buffer.name not in homes:
            return e
        buffer, indices = place(e.buffer, e.indices)
        return ir.replace(e, buffer=buffer, indices=indices)

    def on_stmt(x: Stmt) -> Stmt:
        if not isinstance(x, ir.Store) or x.buffer.name not in homes:
            return x
        buffer, indices = place(x.buffer, x.indices)
        return ir.replace(x, buffer=buffer, indices=indices)

    plain = expand_body(meaning.body, names)  # a meaning may call other instructions
    body = rename.copy_of(visit.substitute(plain, sizes), names.fresh)
    return visit.map_stmt(body, on_stmt, on_expr)


def _sizes(meaning: Kernel, args: tuple[Slice, ...]) -> dict[str, arith.Expr]:
    """The sizes of the meaning, read off the boxes."""
    sizes: dict[str, arith.Expr] = {}
    for param, box in zip(meaning.params, args):
        for dim, extent in zip(param.shape, _matched(param, box)):
            if isinstance(dim, arith.Var):
                sizes.setdefault(dim.name, extent)
    return sizes


def _matched(param: Buffer, box: Slice) -> list[arith.Expr]:
    """The extent of the box in each dimension of the parameter; those of 1 may be extra."""
    if param.rank == len(box.extents):
        return list(box.extents)
    wide = iter([e for e in box.extents if not arith.is_const(e, 1)])
    one = arith.Const(1)
    return [one if arith.is_const(d, 1) else next(wide) for d in param.shape]


def _placed(param: Buffer, box: Slice, indices: Indices) -> Indices:
    """Where in the buffer an element of the parameter lies."""
    if param.rank == len(box.extents):
        return tuple(o + i for o, i in zip(box.offsets, indices))
    inner = iter([i for i, d in zip(indices, param.shape) if not arith.is_const(d, 1)])
    return tuple(
        o if arith.is_const(e, 1) else o + next(inner) for o, e in zip(box.offsets, box.extents)
    )


def _flat(param: Buffer, indices: Indices) -> Indices:
    place: arith.Expr = arith.Const(0)
    for extent, index in zip(param.shape, indices):
        place = place * extent + index
    return (place,)


# --- boxes in buffers of their own --------------------------------------------------------------


def _on_copies(s: Call, names: Names, run: Callable[[list[Slice]], Stmt]) -> Stmt:
    """Copies in, what `run` makes of whole flat boxes, copies out."""
    meaning = s.instruction.meaning
    written = visit.written(meaning.body)
    sizes = _sizes(meaning, s.args)
    before: list[Stmt] = []
    after: list[Stmt] = []
    boxes: list[Slice] = []
    for param, box in zip(meaning.params, s.args):
        shape = tuple(arith.substitute(d, sizes) for d in param.shape)
        count = arith.product(list(shape))
        own = Buffer(names.fresh(param.name), param.dtype, (count,), ir.THREAD)
        boxes.append(Slice(own, (arith.Const(0),), (count,)))
        whole = ir.replace(param, shape=shape)
        before.append(_copy(own, whole, box, names, is_in=True))
        if param.name in written:
            after.append(_copy(own, whole, box, names, is_in=False))
    body = ir.seq(*before, run(boxes), *after)
    for box in reversed(boxes):
        body = ir.Alloc(box.buffer, body)
    return body


def _copy(own: Buffer, param: Buffer, box: Slice, names: Names, is_in: bool) -> Stmt:
    vars_ = [names.fresh("place") for _ in param.shape]
    point = tuple(arith.Var(v) for v in vars_)
    here, there = _flat(param, point), _placed(param, box, point)
    if is_in:
        stmt: Stmt = ir.Store(own, here, ir.Load(box.buffer, there))
    else:
        stmt = ir.Store(box.buffer, there, ir.Load(own, here))
    for depth, (var, extent) in enumerate(reversed(list(zip(vars_, param.shape)))):
        stmt = ir.For(var, arith.Const(0), extent, stmt, _kind(depth, extent))
    return stmt


def _kind(depth: int, extent: arith.Expr) -> LoopKind:
    """Rows are vectors, and few of them are written out: then the copy lives in registers."""
    count = arith.as_int(extent)
    if count is None or count > MAX_ROWS:
        return LoopKind.SERIAL
    return LoopKind.VECTOR if depth == 0 else LoopKind.UNROLL
