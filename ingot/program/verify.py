"""The invariants of the program IR. In: a Program, planned or not. Raises
IngotError("bad-program").

Names: every buffer, kernel, arena and symbol is declared once; launches match their kernels. For a
planned program the verifier recomputes, from the kernels and allocations alone, that a barrier
separates all conflicting accesses, and that no buffer is read after another one overwrote its
memory.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, Relation, prove
from ingot.program import ir
from ingot.program.access import AccessAnalysis, ByteAccess
from ingot.program.races import check_races
from ingot.program.tables import walk
from ingot.support.abi import ALIGNMENT
from ingot.support.errors import IngotError

HOOKS: list[Callable[[ir.Program], None]] = []


def verify(program: ir.Program) -> None:
    _check_names(program)
    symbols = {s.name for s in program.symbols}
    for s in walk(program.body):
        _check_stmt(program, s, symbols)
    if program.is_planned:
        accesses = AccessAnalysis(program)
        _check_allocations(program, accesses)
        check_races(program, accesses)
        _Contents(program, accesses).check()
    for hook in HOOKS:
        hook(program)


def bad(what: str, where: str = "", why: str = "") -> IngotError:
    return IngotError("bad-program", what, where=where, why=why)


def _check_names(program: ir.Program) -> None:
    for kind, names in (
        ("buffer", [b.name for b in program.buffers]),
        ("kernel", [name for name, _ in program.kernels]),
        ("arena", [a.name for a in program.arenas]),
        ("symbol", [s.name for s in program.symbols]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise bad(f"{kind} {twice[0]!r} is declared twice")
    known = program.buffer_map
    for name in (*program.inputs, *program.outputs):
        if name not in known:
            raise bad(f"input or output {name!r} is not a buffer of the program")
    arenas = {a.name for a in program.arenas} | {"constants"}
    for b in program.buffers:
        if b.allocation is not None and b.allocation.arena not in arenas:
            raise bad(f"buffer {b.name!r} is in arena {b.allocation.arena!r}, which does not exist")
        if b.storage is ir.Storage.OUTPUT and b.name not in program.outputs:
            raise bad(f"buffer {b.name!r} has storage output, but is not an output of the program")
        if (b.constant is None) == (b.storage is ir.Storage.CONSTANT):
            raise bad(f"buffer {b.name!r}: exactly the constants refer to the constant store")


def _check_allocations(program: ir.Program, accesses: AccessAnalysis) -> None:
    sizes = {a.name: a.size_bytes for a in program.arenas}
    for b in program.buffers:
        if b.allocation is None or b.allocation.arena not in sizes:
            continue
        start, stop = b.allocation.offset, b.allocation.offset + b.size_bytes
        within = _may_hold("le", stop, sizes[b.allocation.arena], accesses.env)
        if not (within and _may_hold("ge", start, arith.Const(0), accesses.env)):
            raise bad(
                f"buffer {b.name!r} is outside its arena",
                where=f"bytes {start} to {stop} of {b.allocation.arena!r}",
                why=f"the arena has {sizes[b.allocation.arena]} bytes",
            )
        if not _may_hold("eq", start % ALIGNMENT, arith.Const(0), accesses.env):
            raise bad(f"buffer {b.name!r} is not aligned", where=f"offset {start}")


_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "le": operator.le,
    "ge": operator.ge,
    "eq": operator.eq,
}


def _may_hold(relation: Relation, a: arith.Expr, b: arith.Expr, env: dict[str, Interval]) -> bool:
    """Proved, or true for each of 24 samples of the sizes: the prover cannot order long sums of
    rounded products."""
    if prove(relation, a, b, env):
        return True
    names = sorted(arith.free_vars(a) | arith.free_vars(b))
    for sample in range(24):
        sizes = {}
        for number, name in enumerate(names):
            low, high = env[name].low or 0, env[name].high
            value = low + (sample * (number * 2 + 1) + number) % 24
            sizes[name] = value if high is None else min(value, high)
        if not _HOLDS[relation](arith.evaluate(a, sizes), arith.evaluate(b, sizes)):
            return False
    return True


def _check_stmt(program: ir.Program, s: ir.Stmt, symbols: set[str]) -> None:
    for name in _buffer_names(s):
        if name not in program.buffer_map:
            raise bad(f"{type(s).__name__} uses buffer {name!r}, which does not exist")
    match s:
        case ir.Launch():
            _check_launch(program, s, symbols)
        case ir.Copy(dst=dst, src=src):
            a, b = program.buffer_map[dst], program.buffer_map[src]
            if not _same_size(program, a.size_bytes, b.size_bytes):
                raise bad(f"copy of {src!r} to {dst!r}: sizes {b.size_bytes} and {a.size_bytes}")
        case ir.Bind(symbol=symbol):
            if symbol not in symbols:
                raise bad(f"bind of {symbol!r}, which is not a symbol of the program")
        case ir.Reserve(arena=arena):
            if arena not in {a.name for a in program.arenas}:
                raise bad(f"reserve of {arena!r}, which is not an arena")
        case ir.If(flag=flag):
            _check_scalar(program, flag, "bool")
        case ir.Loop(counter=counter, trips=trips, keep_going=keep):
            _check_scalar(program, counter, "i64")
            if trips is not None:
                _check_scalar(program, trips, "i64")
            if keep is not None:
                _check_scalar(program, keep, "bool")


def _buffer_names(s: ir.Stmt) -> Iterable[str]:
    match s:
        case ir.Launch(args=args) | ir.HostStep(args=args):
            return args
        case ir.Copy(dst=dst, src=src) | ir.Append(dst=dst, src=src):
            return (dst, src)
        case ir.If(flag=flag):
            return (flag,)
        case ir.Bind(buffer=buffer):
            return (buffer,)
        case ir.Loop(counter=counter, trips=trips, keep_going=keep):
            return tuple(n for n in (counter, trips, keep) if n is not None)
    return ()


def _check_scalar(program: ir.Program, name: str, dtype: str) -> None:
    b = program.buffer_map[name]
    if b.dtype.name != dtype or any(not arith.is_const(d, 1) for d in b.shape):
        raise bad(f"{name!r} must be one {dtype}, not {b.dtype}{list(b.shape)}")


def _check_launch(program: ir.Program, s: ir.Launch, symbols: set[str]) -> None:
    where = f"launch of {s.kernel}" + (f" for {s.origin}" if s.origin else "")
    kernel = program.kernel_map.get(s.kernel)
    if kernel is None:
        raise bad(f"kernel {s.kernel!r} does not exist", where)
    if len(kernel.params) != len(s.args) or len(kernel.sizes) != len(s.sizes):
        raise bad(f"{len(s.args)} buffers and {len(s.sizes)} sizes do not match {s.kernel}", where)
    if not 1 <= s.chunks <= ir.MAX_CHUNKS:
        raise bad(f"{s.chunks} chunks per thread, not 1 to {ir.MAX_CHUNKS}", where)
    sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
    for expr in (*s.sizes, s.extent):
        unknown = arith.free_vars(expr) - symbols
        if unknown:
            raise bad(f"size {expr} mentions unknown symbols: {', '.join(sorted(unknown))}", where)
    for param, name in zip(kernel.params, s.args):
        b = program.buffer_map[name]
        count = arith.substitute(arith.product(list(param.shape)), sizes)
        if b.dtype is not param.dtype or not _same_size(
            program, count, arith.product(list(b.shape))
        ):
            raise bad(
                f"parameter {param.name} is {param.dtype}{list(param.shape)}, "
                f"buffer {name!r} is {b.dtype}{list(b.shape)}",
                where,
            )


def _same_size(program: ir.Program, a: arith.Expr, b: arith.Expr) -> bool:
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    return a == b or prove("eq", a, b, env) or not _is_decidable(a, b)


def _is_decidable(a: arith.Expr, b: arith.Expr) -> bool:
    """Dynamic sizes of different form may be equal at run time; static sizes must be equal."""
    return not (arith.free_vars(a) or arith.free_vars(b))


class _Contents:
    """Tracks which buffers still hold what was last written to them."""

    def __init__(self, program: ir.Program, accesses: AccessAnalysis):
        self.program, self.accesses = program, accesses

    def check(self) -> None:
        given = (ir.Storage.INPUT, ir.Storage.STATE, ir.Storage.CONSTANT, ir.Storage.DYNAMIC)
        valid = {b.name for b in self.program.buffers if b.storage in given}
        valid = self.stmt(self.program.body, valid)
        for name in self.program.outputs:
            if name not in valid and not self.is_empty(name):
                why = "it was never written, or another buffer overwrote it"
                raise bad(f"output {name!r} has no content at the end", why=why)

    def stmt(self, s: ir.Stmt, valid: set[str]) -> set[str]:
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    valid = self.stmt(each, valid)
                return valid
            case ir.If(then=then, orelse=orelse):
                self.read(s, self.accesses.of(s), valid)
                return self.stmt(then, set(valid)) & self.stmt(orelse, set(valid))
            case ir.Loop():
                return self.loop(s, valid)
        touched = self.accesses.of(s)
        self.read(s, touched, valid)
        return self.write(s, touched, valid)

    def loop(self, s: ir.Loop, valid: set[str]) -> set[str]:
        """Fixed point over the iterations; each reads the tests, then writes the counter."""
        touched = self.accesses.of(s)
        while True:
            self.read(s, touched, valid)
            inside = self.write(s, touched, valid)
            left = valid & self.stmt(s.body, set(inside))
            if left == valid:
                return inside
            valid = left

    def read(self, s: ir.Stmt, touched: list[ByteAccess], valid: set[str]) -> None:
        for access in touched:
            is_there = access.is_write or access.buffer in valid or self.is_empty(access.buffer)
            if not is_there:
                raise bad(
                    f"{_name(s)} reads {access.buffer!r}, which has no content",
                    why="it was never written, or another buffer overwrote it",
                )

    def is_empty(self, name: str) -> bool:
        """An empty buffer has no content that could be missing."""
        size = self.program.buffer_map[name].size_bytes
        return prove("le", size, 0, self.accesses.env)

    def write(self, s: ir.Stmt, touched: list[ByteAccess], valid: set[str]) -> set[str]:
        writes = [a for a in touched if a.is_write]
        reads = [a for a in touched if not a.is_write]
        for w in writes:
            for r in reads:
                if r.buffer != w.buffer and self.accesses.may_overlap(r, w):
                    raise bad(f"{_name(s)} writes {w.buffer!r} over {r.buffer!r}, which it reads")
        kept = {name for name in valid if not self.is_clobbered(name, writes)}
        return kept | {w.buffer for w in writes if w.buffer}

    def is_clobbered(self, name: str, writes: list[ByteAccess]) -> bool:
        mine = self.accesses.access(name, False, writes[0].threads) if writes else None
        return any(w.buffer != name and self.accesses.may_overlap(mine, w) for w in writes)  # type: ignore[arg-type]


def _name(s: ir.Stmt) -> str:
    return f"launch of {s.kernel}" if isinstance(s, ir.Launch) else type(s).__name__
