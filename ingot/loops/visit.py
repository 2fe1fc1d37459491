"""Visitors and mutators of the loop IR: the one module that knows every node's children.

Rebuilding shares unchanged subtrees. Functions passed to `map_expr` and `map_stmt` are called in
post-order. Values inside index arithmetic (`arith.Opaque`) are visited too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, assert_never

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.support.stack import segmented

ExprFn = Callable[[Expr], Expr]
StmtFn = Callable[[Stmt], Stmt]
IndexFn = Callable[[arith.Expr], arith.Expr]
N = TypeVar("N", Expr, Stmt)


def rebuild_expr(e: Expr, on_expr: ExprFn, on_index: IndexFn) -> Expr:
    """`e` with the two functions applied to its direct children."""
    match e:  # the most frequent values first
        case ir.Lit() | ir.Ref():
            return e
        case (
            ir.Broadcast(a=a) | ir.Unary(a=a) | ir.Bitcast(a=a) | ir.Cast(a=a) | ir.LaneReduce(a=a)
        ):
            return _change(e, a=on_expr(a))
        case ir.Binary(a=a, b=b) | ir.Compare(a=a, b=b) | ir.Shuffle(a=a, b=b):
            return _change(e, a=on_expr(a), b=on_expr(b))
        case ir.Load():
            return _change(
                e,
                indices=_each(e.indices, on_index),
                stride=on_index(e.stride),
                mask=on_expr(e.mask) if e.mask is not None else None,
                other=on_expr(e.other) if e.other is not None else None,
            )
        case ir.Fma(a=a, b=b, c=c):
            return _change(e, a=on_expr(a), b=on_expr(b), c=on_expr(c))
        case ir.Select(cond=cond, a=a, b=b):
            return _change(e, cond=on_expr(cond), a=on_expr(a), b=on_expr(b))
        case ir.Index(expr=i):
            return _change(e, expr=on_index(i))
        case ir.Math(args=args):
            return _change(e, args=_each(args, on_expr))
        case ir.Lanes(items=items):
            return _change(e, items=_each(items, on_expr))
        case ir.Ramp(base=base, stride=stride):
            return _change(e, base=on_index(base), stride=on_index(stride))
        case _:
            assert_never(e)  # type: ignore[arg-type]


def rebuild_stmt(s: Stmt, on_stmt: StmtFn, on_expr: ExprFn, on_index: IndexFn) -> Stmt:
    """`s` with the three functions applied to its direct children."""
    match s:
        case ir.For():
            return _change(s, start=on_index(s.start), stop=on_index(s.stop), body=on_stmt(s.body))
        case ir.While(cond=cond, body=body):
            return _change(s, cond=on_expr(cond), body=on_stmt(body))
        case ir.If(cond=cond, then=then, orelse=orelse):
            other = on_stmt(orelse) if orelse is not None else None
            return _change(s, cond=on_expr(cond), then=on_stmt(then), orelse=other)
        case ir.Let(value=value, body=body):
            return _change(s, value=on_expr(value), body=on_stmt(body))
        case ir.Alloc(body=body):
            return _change(s, body=on_stmt(body))
        case ir.Store():
            return _change(
                s,
                indices=_each(s.indices, on_index),
                value=on_expr(s.value),
                stride=on_index(s.stride),
                mask=on_expr(s.mask) if s.mask is not None else None,
            )
        case ir.Block():
            return _change(
                s,
                axes=_each(s.axes, lambda axis: _map_axis(axis, on_index)),
                init=on_stmt(s.init) if s.init is not None else None,
                body=on_stmt(s.body),
                where=on_expr(s.where) if s.where is not None else None,
            )
        case ir.Seq(stmts=stmts):
            new = _each(stmts, on_stmt)
            return s if new is stmts else ir.seq(*new)
        case ir.Call(args=args):
            return _change(s, args=_each(args, lambda box: _map_slice(box, on_index)))
        case ir.CopyAsync(dst=dst, src=src):
            return _change(s, dst=_map_slice(dst, on_index), src=_map_slice(src, on_index))
        case ir.Prefetch(box=box):
            return _change(s, box=_map_slice(box, on_index))
        case ir.Fail(values=values):
            return _change(s, values=_each(values, on_expr))
        case ir.Sync() | ir.Wait():
            return s
        case _:
            assert_never(s)  # type: ignore[arg-type]


def map_index(index: arith.Expr, on_expr: ExprFn) -> arith.Expr:
    """Rewrite the values inside an index; one that becomes an `Index` is merged into it."""
    if not isinstance(index, arith.Binary | arith.Opaque):
        return index
    return arith.substitute(index, {}, lambda payload: ir.index_of(map_expr(payload, on_expr)))


@segmented
def map_expr(e: Expr, fn: ExprFn) -> Expr:
    """Rewrite an expression bottom-up."""
    return fn(rebuild_expr(e, lambda x: map_expr(x, fn), lambda i: map_index(i, fn)))


def map_stmt(s: Stmt, on_stmt: StmtFn | None = None, on_expr: ExprFn | None = None) -> Stmt:
    """Rewrite a statement bottom-up, and its expressions if `on_expr` is given."""

    return _Map(on_stmt, on_expr).stmt(s)


class _Map:
    def __init__(self, on_stmt: StmtFn | None, on_expr: ExprFn | None):
        self.on_stmt, self.on_expr = on_stmt, on_expr

    @segmented
    def stmt(self, s: Stmt) -> Stmt:
        new = rebuild_stmt(s, self.stmt, self.expr, self.index)
        return self.on_stmt(new) if self.on_stmt else new

    def expr(self, x: Expr) -> Expr:
        return map_expr(x, self.on_expr) if self.on_expr else x

    def index(self, i: arith.Expr) -> arith.Expr:
        return map_index(i, self.on_expr) if self.on_expr else i


def substitute(n: N, env: Mapping[str, arith.IntLike]) -> N:
    """Replace loop variables and sizes by index expressions, wherever they are used.

    Names are unique within a kernel, so nothing is captured.
    """

    return _Substitute(env).node(n) if env else n  # type: ignore[return-value]


class _Substitute:
    def __init__(self, env: Mapping[str, arith.IntLike]):
        self.env = env

    @segmented
    def node(self, n: Expr | Stmt) -> Any:
        if isinstance(n, Stmt):
            return rebuild_stmt(n, self.node, self.node, self.index)
        return rebuild_expr(n, self.node, self.index)

    def index(self, i: arith.Expr) -> arith.Expr:
        return arith.substitute(i, self.env, lambda payload: ir.index_of(self.node(payload)))


def replace_buffers(n: N, env: Mapping[str, Buffer]) -> N:
    """Replace buffers by name; indices are kept, so the new buffer has the same rank."""

    def on_expr(e: Expr) -> Expr:
        if isinstance(e, ir.Load) and e.buffer.name in env:
            return ir.replace(e, buffer=env[e.buffer.name])
        return e

    def box(s: ir.Slice) -> ir.Slice:
        return ir.replace(s, buffer=env.get(s.buffer.name, s.buffer))

    def on_stmt(s: Stmt) -> Stmt:
        match s:
            case ir.Store() | ir.Alloc() if s.buffer.name in env:
                return ir.replace(s, buffer=env[s.buffer.name])
            case ir.Call(args=args):
                return ir.replace(s, args=tuple(box(a) for a in args))
            case ir.CopyAsync(dst=dst, src=src):
                return ir.replace(s, dst=box(dst), src=box(src))
            case ir.Prefetch():
                return ir.replace(s, box=box(s.box))
        return s

    new = map_stmt(n, on_stmt, on_expr) if isinstance(n, Stmt) else map_expr(n, on_expr)
    return new  # type: ignore[return-value]


def replace_stmt(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt:
    """`root` with `old` replaced, compared by identity; None removes it from its Seq.

    Copies only the path to the root.
    """

    return _replace_stmt(root, old, ir.Seq(()) if new is None else new)


@segmented
def _replace_stmt(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if s is old:
        return new
    changed = {id(child): _replace_stmt(child, old, new) for child in sub_stmts(s)}
    if all(id(child) == key for key, child in changed.items()):
        return s
    return rebuild_stmt(s, lambda child: changed[id(child)], lambda e: e, lambda i: i)


def walk_exprs(e: Expr) -> Iterator[Expr]:
    """Every value in an expression in pre-order, including those inside indices."""
    todo = [e]  # a stack: nested generators would cost the depth for each value
    while todo:
        value = todo.pop()
        yield value
        todo.extend(reversed(sub_exprs(value)))


def sub_exprs(e: Expr) -> list[Expr]:
    """The direct operands of a value in order, including those inside its indices."""
    match e:
        case ir.Lit() | ir.Ref():
            return []
        case (
            ir.Broadcast(a=a) | ir.Unary(a=a) | ir.Bitcast(a=a) | ir.Cast(a=a) | ir.LaneReduce(a=a)
        ):
            return [a]
        case ir.Binary(a=a, b=b) | ir.Compare(a=a, b=b) | ir.Shuffle(a=a, b=b):
            return [a, b]
        case ir.Load(indices=indices, stride=stride, mask=mask, other=other):
            inside = [x for i in (*indices, stride) for x in opaque_values(i)]
            return [*inside, *(x for x in (mask, other) if x is not None)]
        case ir.Fma(a=a, b=b, c=c):
            return [a, b, c]
        case ir.Select(cond=cond, a=a, b=b):
            return [cond, a, b]
        case ir.Index(expr=i):
            return opaque_values(i)
        case ir.Math(args=items) | ir.Lanes(items=items):
            return list(items)
        case ir.Ramp(base=base, stride=stride):
            return [*opaque_values(base), *opaque_values(stride)]
        case _:
            assert_never(e)  # type: ignore[arg-type]


def opaque_values(i: arith.Expr) -> list[Expr]:
    return [x.payload for x in arith.opaques(i)]


def index_vars(i: arith.Expr) -> set[str]:
    """Names of the variables and sizes an index depends on, including those inside its values."""
    names = set(arith.free_vars(i))
    for payload in opaque_values(i):
        names |= value_vars(payload)
    return names


def value_vars(e: Expr) -> set[str]:
    """Names of the variables and sizes a value depends on."""
    return {name for x in walk_exprs(e) for i in own_indices(x) for name in arith.free_vars(i)}


def own_indices(e: Expr) -> tuple[arith.Expr, ...]:
    """The indices that a value itself has, not those of its operands."""
    match e:
        case ir.Index(expr=i):
            return (i,)
        case ir.Load(indices=indices, stride=stride):
            return (*indices, stride)
        case ir.Ramp(base=base, stride=stride):
            return (base, stride)
    return ()


def walk_stmts(s: Stmt) -> Iterator[Stmt]:
    """Every statement in program order, parents before children."""
    todo = [s]
    while todo:
        stmt = todo.pop()
        yield stmt
        todo.extend(reversed(sub_stmts(stmt)))


def sub_stmts(s: Stmt) -> list[Stmt]:
    """The direct sub-statements, in program order (a block's init before its body)."""
    match s:
        case ir.For(body=body) | ir.While(body=body) | ir.Let(body=body) | ir.Alloc(body=body):
            return [body]
        case ir.If(then=then, orelse=orelse):
            return [then] if orelse is None else [then, orelse]
        case ir.Block(init=init, body=body):
            return [body] if init is None else [init, body]
        case ir.Seq(stmts=stmts):
            return list(stmts)
    return []


def own_exprs(s: Stmt) -> list[Expr]:
    """The values a statement itself reads, not those of its sub-statements."""
    found: list[Expr] = []

    def on_expr(x: Expr) -> Expr:
        found.append(x)
        return x

    def on_index(i: arith.Expr) -> arith.Expr:
        found.extend(opaque_values(i))
        return i

    rebuild_stmt(s, lambda x: x, on_expr, on_index)
    return found


def all_exprs(s: Stmt) -> Iterator[Expr]:
    """Every value anywhere in a statement."""
    for sub in walk_stmts(s):
        for e in own_exprs(sub):
            yield from walk_exprs(e)


def loads(s: Stmt) -> Iterator[ir.Load]:
    return (e for e in all_exprs(s) if isinstance(e, ir.Load))


def stores(s: Stmt) -> Iterator[ir.Store]:
    return (x for x in walk_stmts(s) if isinstance(x, ir.Store))


def blocks(s: Stmt) -> Iterator[ir.Block]:
    return (x for x in walk_stmts(s) if isinstance(x, ir.Block))


def written(s: Stmt) -> set[str]:
    """Names of buffers written anywhere in `s`, including boxes of instructions and copies."""
    return {name for sub in _down_to_blocks(s) for name in _writes(sub)}


def read(s: Stmt) -> set[str]:
    """Names of buffers read anywhere in `s`."""
    return {name for sub in _down_to_blocks(s) for name in _reads(sub)}


def _down_to_blocks(s: Stmt) -> Iterator[Stmt]:
    """Every statement of `s` outside blocks, and the blocks themselves: their sets are cached."""
    todo = [s]
    while todo:
        stmt = todo.pop()
        yield stmt
        if not isinstance(stmt, ir.Block):
            todo.extend(sub_stmts(stmt))


def _writes(s: Stmt) -> frozenset[str]:
    return _written_by_block(s) if isinstance(s, ir.Block) else _written_itself(s)


def _reads(s: Stmt) -> frozenset[str]:
    return _read_by_block(s) if isinstance(s, ir.Block) else _read_itself(s)


@lru_cache(maxsize=1 << 12)
def _written_by_block(block: ir.Block) -> frozenset[str]:
    return frozenset().union(*map(_written_itself, walk_stmts(block)))


@lru_cache(maxsize=1 << 12)
def _read_by_block(block: ir.Block) -> frozenset[str]:
    return frozenset().union(*map(_read_itself, walk_stmts(block)))


def _written_itself(s: Stmt) -> frozenset[str]:
    """Buffers written by the statement itself, without its sub-statements."""
    match s:
        case ir.Store(buffer=buffer):
            return frozenset((buffer.name,))
        case ir.CopyAsync(dst=dst):
            return frozenset((dst.buffer.name,))
        case ir.Call():
            return _boxes(s, written(s.instruction.meaning.body))
    return frozenset()


def _read_itself(s: Stmt) -> frozenset[str]:
    values = (e for value in own_exprs(s) for e in walk_exprs(value))
    loaded = frozenset(e.buffer.name for e in values if isinstance(e, ir.Load))
    match s:
        case ir.CopyAsync(src=src):
            return loaded | {src.buffer.name}
        case ir.Call():
            return loaded | _boxes(s, read(s.instruction.meaning.body))
    return loaded


def _boxes(call: ir.Call, params: set[str]) -> frozenset[str]:
    """The buffers that a call passes as these parameters of its instruction."""
    given = zip(call.instruction.meaning.params, call.args)
    return frozenset(box.buffer.name for p, box in given if p.name in params)


def read_before_write(body: Stmt) -> set[str]:
    """Buffers read before they are written, in textual order (live-in). An accumulator, which is
    initialised and then read back, is not one."""
    found: set[str] = set()
    stored: set[str] = set()
    for stmt in walk_stmts(body):
        for value in own_exprs(stmt):
            for e in walk_exprs(value):
                if isinstance(e, ir.Load) and e.buffer.name not in stored:
                    found.add(e.buffer.name)
        if isinstance(stmt, ir.Store):
            stored.add(stmt.buffer.name)
        elif isinstance(stmt, ir.Call | ir.CopyAsync):
            found |= read(stmt) - stored
            stored |= written(stmt)
    return found


def _change(n, **fields):
    """`replace`, but the same object if nothing changed."""
    for name, value in fields.items():
        if getattr(n, name) is not value:
            return ir.replace(n, **fields)
    return n


def _each(items, fn):
    new = [fn(x) for x in items]
    for old, changed in zip(items, new):
        if old is not changed:
            return tuple(new)
    return items


def _map_axis(axis: ir.Axis, on_index: IndexFn) -> ir.Axis:
    return _change(axis, extent=on_index(axis.extent), binding=on_index(axis.binding))


def _map_slice(box: ir.Slice, on_index: IndexFn) -> ir.Slice:
    return _change(box, offsets=_each(box.offsets, on_index), extents=_each(box.extents, on_index))


# --- conditions ----------------------------------------------------------------------------------


def conjuncts(e: ir.Expr) -> list[ir.Expr]:
    """a and b and c  →  [a, b, c]"""
    found: list[ir.Expr] = []
    todo = [e]
    while todo:
        term = todo.pop()
        if isinstance(term, ir.Binary) and term.op == "and" and term.dtype.is_bool:
            todo += (term.b, term.a)
        else:
            found.append(term)
    return found


def conjoin(terms: Iterable[ir.Expr]) -> ir.Expr | None:
    """[a, b, c]  →  a and b and c; None for no terms."""
    total: ir.Expr | None = None
    for term in terms:
        total = term if total is None else ir.Binary("and", total, term)
    return total
