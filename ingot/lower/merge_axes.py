"""Merges (fuses) adjacent axes that every access indexes contiguously.

    for n, y, x, c: Z[n, y, x, c] = f(X[n, y, x, c], b[c])
    →  for p, c: Z[p, c] = f(X[p, c], b[c])

In: a kernel whose stages are plain nests. Out: the kernel with fewer axes; buffer shapes merge the
same way, without a copy. A matmul of (batch, rows, k) becomes a GEMM of (rows, k), and so does a
convolution over channels-last data: its input window is found by dividing the merged axis, once for
each row of a register tile, and tiles run across rows and images. A stage of
back ends, for every kernel of a program; later stages may ask it again, since
equal kernels are merged once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.build import nest
from ingot.loops.ir import Axis, AxisKind, Block, Buffer, Kernel, Stmt
from ingot.lower.abstract_sizes import Sizes, abstract_sizes
from ingot.lower.shift_sizes import shift_sizes
from ingot.lower.size_atoms import name_quotients
from ingot.lower.whole_reductions import order_whole_reductions
from ingot.program.ir import Launch, Program
from ingot.program.tables import map_launches
from ingot.support.stack import segmented

DEEP = 128  # terms of a sum that amortise the division of the merged index (heuristic)
LONG_ROW = 256  # elements that fill all vectors of partial results of a row (heuristic)
Pair = tuple[str, int]  # a buffer, and the first of two adjacent dimensions


def merge_program_axes(program: Program) -> Program:
    """Merge the axes of every kernel; composite sizes become parameters, which launches pass."""
    made = {name: simplify_axes(kernel) for name, kernel in program.kernels}

    def on_launch(s: Launch) -> Launch:
        kernel, values = program.kernel_map[s.kernel], made[s.kernel][1]
        given = dict(zip((size.name for size in kernel.sizes), s.sizes))
        return ir.replace(s, sizes=tuple(arith.substitute(e, given) for _, e in values))

    kernels = tuple((name, kernel) for name, (kernel, _) in made.items())
    return ir.replace(program, kernels=kernels, body=map_launches(program.body, on_launch))


def simplify_axes(kernel: Kernel) -> tuple[Kernel, Sizes]:
    """The kernel with merged axes and sizes of its own, and their values."""
    made = merge_axes(kernel)
    values: Sizes = tuple((size.name, arith.Var(size.name)) for size in kernel.sizes)
    for name_sizes in (name_quotients, abstract_sizes, shift_sizes):
        made, sizes = name_sizes(made)
        known = dict(values)
        values = tuple((name, arith.substitute(e, known)) for name, e in sizes)
    return _with_facts(made, kernel), values


def merge_axes(kernel: Kernel) -> Kernel:
    """Merge pairs of adjacent axes until none is left."""
    made = _merged_fully(kernel)
    if made == kernel:
        return kernel
    return _with_facts(made, kernel)


def _with_facts(made: Kernel, kernel: Kernel) -> Kernel:
    """A kernel that was made for an equal one: what equal kernels differ in is the kernel's own."""
    kept = ("name", "origin", "family", "plans", "remarks")
    return ir.replace(made, **{field: getattr(kernel, field) for field in kept})


@lru_cache(maxsize=1024)
def _merged_fully(kernel: Kernel) -> Kernel:
    if kernel.sizes:
        kernel = _without_single_taps(kernel)
    kernel = order_whole_reductions(kernel)
    while (pairs := _find(kernel)) is not None:
        kernel = _merged(kernel, pairs)
    return kernel


def _without_single_taps(kernel: Kernel) -> Kernel:
    """Indices without reduce axes of one point: x[n, y + t, x + u, c] of a 1 x 1 convolution is
    indexed by axes alone, so that dynamic ones merge without a division. (Merging static axes
    simplifies the indices anyway.)"""

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Block):
            return s
        reduced = (a for a in s.axes if a.kind is AxisKind.REDUCE)
        zeros = {a.var: arith.Const(0) for a in reduced if arith.is_const(a.extent, 1)}
        return ir.replace(s, body=_substituted(s.body, zeros)) if zeros else s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _substituted(s: Stmt, values: dict[str, arith.Const]) -> Stmt:
    def on_expr(e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.Load):
            return e
        return ir.replace(e, indices=tuple(arith.substitute(i, values) for i in e.indices))

    return visit.map_stmt(s, lambda x: x, on_expr)


def _find(kernel: Kernel) -> set[Pair] | None:
    """The dimensions to merge for the first pair of axes that can."""
    if not _is_plain(kernel.body):
        return None
    for block in visit.blocks(kernel.body):
        for a, b in zip(block.axes, block.axes[1:]):
            start = _pairs_of(block, a, b)
            closed = None if not start else _closed(kernel, start)
            if closed is not None:
                return closed
    return None


@segmented
def _is_plain(s: Stmt) -> bool:
    """Nests of one block each, as the builder makes them, with only loads and stores inside, and
    checks of scalars. No axis has extent 0, so that extents can be divisors."""
    match s:
        case ir.Block(axes=()):
            return all(access.buffer.rank == 0 for access in _accesses(s))
        case ir.Seq(stmts=stmts):
            return all(map(_is_plain, stmts))
        case ir.Alloc(body=body):
            return _is_plain(body)
        case Block(axes=(), where=None, body=body):  # one value: the end of a whole reduction
            return all(isinstance(x, PLAIN) for x in visit.walk_stmts(body))
        case ir.For():
            loops, inner = _nest(s)
            return (
                isinstance(inner, Block)
                and inner.where is None
                and not any(arith.is_const(a.extent, 0) for a in inner.axes)
                and [a.binding for a in inner.axes] == [arith.Var(n) for n in loops]
                and all(isinstance(x, PLAIN) for x in visit.walk_stmts(inner.body))
            )
    return False


PLAIN = (ir.Seq, ir.Store, ir.Let)


def _nest(s: Stmt) -> tuple[list[str], Stmt]:
    loops: list[str] = []
    while isinstance(s, ir.For):
        loops.append(s.var)
        s = s.body
    return loops, s


Access = ir.Load | ir.Store


def _accesses(block: Block) -> Iterator[Access]:
    whole = ir.seq(block.init, block.body)
    yield from visit.loads(whole)
    yield from visit.stores(whole)


def _pairs_of(block: Block, a: Axis, b: Axis) -> set[Pair] | None:
    """Where the block indexes by the two axes together; None if it also uses them otherwise."""
    if {a.kind, b.kind} != {AxisKind.SPATIAL} and not _is_long_row(block, a, b):
        return None
    if _axes_in_values(block) & {a.var, b.var}:
        return None
    found: set[Pair] = set()
    for access in _accesses(block):
        position = _position(access, a, b)
        if position is None and not _may_divide(block, access, b):
            return None
        if position is not None and position >= 0:
            found.add((access.buffer.name, position))
    return found


def _is_long_row(block: Block, a: Axis, b: Axis) -> bool:
    """Are they axes of a whole tensor that is reduced to one value? Its elements are a row in any
    order of the axes. A dynamic number of long rows stays that: rows need no guard."""
    if {x.kind for x in block.axes} != {AxisKind.REDUCE}:
        return False
    row = arith.as_int(b.extent) if b == block.axes[-1] else None
    return row is None or row < LONG_ROW or arith.as_int(a.extent) is not None


def _may_divide(block: Block, access: Access, b: Axis) -> bool:
    """May a contraction's input window be indexed by division? Each element is reused for many
    outputs, so the division costs little. Grouped convolutions reuse less and need long sums."""
    if not isinstance(access, ir.Load) or block.init is None or arith.as_int(b.extent) is None:
        return False
    spatial = [a for a in block.axes if a.kind is AxisKind.SPATIAL]
    if not spatial:
        return False  # a whole reduction
    lanes = spatial[-1]
    if any(_follows(i, lanes) for i in access.indices):
        return False  # depthwise: no operand reuse
    if _uses(access, lanes) and not _is_deep(block):
        return False
    others = [x for x in visit.loads(block.body) if x.buffer.name != access.buffer.name]
    return any(not _uses(x, b) and _uses_any(x, block.axes) for x in others)


def _is_deep(block: Block) -> bool:
    summed = [a.extent for a in block.axes if a.kind is AxisKind.REDUCE]
    terms = arith.as_int(arith.product(list(summed)))
    return terms is None or terms >= DEEP


@segmented
def _follows(index: arith.Expr, axis: Axis) -> bool:
    """Does the index change within a group of the axis (is it more than axis // group size)?"""
    match index:
        case arith.FloorDiv(a=arith.Var(), b=arith.Const()):
            return False
        case arith.Binary(a=a, b=b):
            return _follows(a, axis) or _follows(b, axis)
    return axis.var in visit.index_vars(index)


def _uses(access: Access, axis: Axis) -> bool:
    return any(axis.var in visit.index_vars(i) for i in access.indices)


def _uses_any(load: ir.Load, axes: Iterable[Axis]) -> bool:
    return any(_uses(load, a) for a in axes if a.kind is AxisKind.REDUCE)


def _position(access: Access, a: Axis, b: Axis) -> int | None:
    """The dimension indexed by (a, b); -1 if the access uses neither, else None. An index that is a
    loaded value uses what that load does, which is another access."""
    direct = ((d, i) for d, i in enumerate(access.indices) if not isinstance(i, arith.Opaque))
    used = [d for d, i in direct if visit.index_vars(i) & {a.var, b.var}]
    if not used:
        return -1
    d = used[0]
    pair = (arith.Var(a.var), arith.Var(b.var))
    whole = used == [d, d + 1] and access.indices[d : d + 2] == pair
    return d if whole and access.buffer.shape[d : d + 2] == (a.extent, b.extent) else None


def _axes_in_values(block: Block) -> set[str]:
    """Axes used as values (in a guard, an iota), not only in indices."""
    found: set[str] = set()
    for e in visit.all_exprs(ir.seq(block.init, block.body)):
        if isinstance(e, ir.Index):
            found |= visit.index_vars(e.expr)
    return found


def _closed(kernel: Kernel, start: set[Pair]) -> set[Pair] | None:
    """All dimensions that must merge with these (transitively); None if a stage cannot."""
    pairs, todo = set(start), [*visit.blocks(kernel.body)]
    changed = True
    while changed:
        changed = False
        for block in todo:
            for access in _accesses(block):
                for d in [d for name, d in pairs if name == access.buffer.name]:
                    more = _needed(block, access, d)
                    if more is None:
                        return None
                    changed |= not more <= pairs
                    pairs |= more
    return pairs if _are_disjoint(pairs) else None


def _needed(block: Block, access: Access, d: int) -> set[Pair] | None:
    """The pairs that must merge if dimensions d and d + 1 of the access do."""
    first, second = access.indices[d : d + 2]
    axes = {a.var: a for a in block.axes}
    if not (isinstance(first, arith.Var) and isinstance(second, arith.Var)):
        return None
    a, b = axes.get(first.name), axes.get(second.name)
    if a is None or b is None or block.axes.index(b) != block.axes.index(a) + 1:
        return None
    return _pairs_of(block, a, b)


def _are_disjoint(pairs: set[Pair]) -> bool:
    return not any((name, d + 1) in pairs for name, d in pairs)


# --- the rewrite --------------------------------------------------------------------------------


def _merged(kernel: Kernel, pairs: set[Pair]) -> Kernel:
    by_name: dict[str, list[int]] = {}
    for name, d in pairs:
        by_name.setdefault(name, []).append(d)
    buffers = {
        b.name: _with_merged_dims(b, by_name[b.name])
        for b in _all_buffers(kernel)
        if b.name in by_name
    }
    params = tuple(buffers.get(p.name, p) for p in kernel.params)
    return ir.replace(kernel, params=params, body=_stmt(kernel.body, by_name, buffers))


def _all_buffers(kernel: Kernel) -> list[Buffer]:
    made = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    return [*kernel.params, *made]


def _with_merged_dims(buffer: Buffer, positions: list[int]) -> Buffer:
    return ir.replace(buffer, shape=_merged_dims(buffer.shape, positions))


def _merged_dims(dims: tuple[arith.Expr, ...], positions: list[int]) -> tuple[arith.Expr, ...]:
    """Sizes with those at d and d + 1 multiplied, for d in `positions`."""
    out: list[arith.Expr] = []
    for d, size in enumerate(dims):
        if d - 1 in positions:
            out[-1] = simplify(out[-1] * size)
        else:
            out.append(size)
    return tuple(out)


@segmented
def _stmt(s: Stmt, by_name: dict[str, list[int]], buffers: dict[str, Buffer]) -> Stmt:
    match s:
        case ir.Seq() | ir.Alloc():
            new = visit.rebuild_stmt(
                s, lambda x: _stmt(x, by_name, buffers), lambda e: e, lambda i: i
            )
            if isinstance(new, ir.Alloc) and new.buffer.name in buffers:
                return ir.replace(new, buffer=buffers[new.buffer.name])
            return new
        case ir.For():
            loops, block = _nest(s)
            assert isinstance(block, Block)
            return _block(loops, block, by_name, buffers)
    return s


def _last(size: arith.Expr) -> int | None:
    number = arith.as_int(size)
    return None if number is None else number - 1


def _block(
    loops: list[str], block: Block, by_name: dict[str, list[int]], buffers: dict[str, Buffer]
) -> Stmt:
    second = {  # the axes that merge into the one before them
        access.indices[d + 1].name  # type: ignore[attr-defined]
        for access in _accesses(block)
        for d in by_name.get(access.buffer.name, ())
    }
    axes: list[Axis] = []
    names: list[str] = []
    old_axes: dict[str, arith.Expr] = {}  # by name, for accesses that divide the merged axis
    for axis, loop in zip(block.axes, loops):
        if axis.var in second:
            merged = ir.replace(axes[-1], extent=simplify(axes[-1].extent * axis.extent))
            old_axes[merged.var] = arith.Var(merged.var) // axis.extent
            old_axes[axis.var] = arith.Var(merged.var) % axis.extent
            axes[-1] = merged
        else:
            axes.append(axis)
            names.append(loop)
    ranges = {a.var: Interval(0, _last(a.extent)) for a in axes}

    def indices(access: Access) -> tuple[arith.Expr, ...]:
        positions = by_name[access.buffer.name]
        return tuple(i for d, i in enumerate(access.indices) if d - 1 not in positions)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load) and e.buffer.name in buffers:
            return ir.replace(e, buffer=buffers[e.buffer.name], indices=indices(e))
        if isinstance(e, ir.Load) and old_axes:
            divided = (simplify(arith.substitute(i, old_axes), ranges) for i in e.indices)
            return ir.replace(e, indices=tuple(divided))
        return e

    def on_stmt(x: Stmt) -> Stmt:
        if isinstance(x, ir.Store) and x.buffer.name in buffers:
            return ir.replace(x, buffer=buffers[x.buffer.name], indices=indices(x))
        return x

    body = visit.map_stmt(block.body, on_stmt, on_expr)
    init = None if block.init is None else visit.map_stmt(block.init, on_stmt, on_expr)
    made = ir.replace(block, body=body, init=init)
    given = iter(names)
    return nest(axes, lambda bound: ir.replace(made, axes=bound), lambda _: next(given))
