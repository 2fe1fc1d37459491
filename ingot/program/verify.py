"""The invariants of the program IR. In: a Program, planned or not. Raises
IngotError("bad-program").

Names: every buffer, kernel, arena and symbol is declared once; launches match their kernels. For a
planned program the verifier recomputes, from the kernels and allocations alone, that a barrier
separates all conflicting accesses, and that no buffer is read after another one overwrote its
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.program import ir
from ingot.program.access import AccessAnalysis, ByteAccess
from ingot.program.bounds import checked_per_call, counterexample, unproved
from ingot.program.races import check_races
from ingot.program.tables import walk
from ingot.support.errors import IngotError

HOOKS: list[Callable[[ir.Program], None]] = []


def verify(program: ir.Program) -> None:
    _check_names(program)
    symbols = {s.name for s in program.symbols}
    for s in walk(program.body):
        _check_stmt(program, s, symbols)
    if program.is_planned:
        accesses = AccessAnalysis(program)
        _check_allocations(program)
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


def _check_allocations(program: ir.Program) -> None:
    """Every bound is proved, or no sample refutes it and the runtime can check it (bounds.py)."""
    for bound in unproved(program):
        sizes = counterexample(bound, program)
        if sizes is not None:
            which = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            why = bound.why + (f", with {which}" if which else "")
            raise bad(f"buffer {bound.buffer!r} is {bound.fault}", bound.where, why)
    checked_per_call(program)


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
        case ir.Assign(dst=dst, src=src):
            a, b = program.buffer_map[dst], program.buffer_map[src]
            if a.storage is not ir.Storage.DYNAMIC or a.dtype is not b.dtype or dst == src:
                raise bad(f"assignment of {src!r} to {dst!r}, which cannot hold it")
        case ir.Resize() | ir.Swap():
            held = [program.buffer_map[name] for name in _buffer_names(s)]
            is_dynamic = all(b.storage is ir.Storage.DYNAMIC for b in held)
            if not is_dynamic or len({b.dtype for b in held}) > 1:
                raise bad(f"{type(s).__name__} of {', '.join(b.name for b in held)}")
        case ir.Bind(symbol=symbol):
            if symbol not in symbols:
                raise bad(f"bind of {symbol!r}, which is not a symbol of the program")
        case ir.Reserve(arena=arena):
            if arena not in {a.name for a in program.arenas}:
                raise bad(f"reserve of {arena!r}, which is not an arena")
        case ir.If(flag=flag):
            _check_scalar(program, flag, "bool")
        case ir.IfSize(size=size):
            unknown = arith.free_vars(size) - symbols
            if unknown:
                raise bad(f"size {size} mentions unknown symbols: {', '.join(sorted(unknown))}")
        case ir.Loop(counter=counter, trips=trips, keep_going=keep, count=count):
            missing = sorted(arith.free_vars(arith.wrap(count or 0)) - symbols)
            if missing:
                raise bad(f"a loop's count mentions unknown symbols: {', '.join(missing)}")
            _check_scalar(program, counter, "i64")
            if trips is not None:
                _check_scalar(program, trips, "i64")
            if keep is not None:
                _check_scalar(program, keep, "bool")


def _buffer_names(s: ir.Stmt) -> Iterable[str]:
    match s:
        case ir.Launch(args=args):
            return args
        case ir.HostStep():
            return s.buffers
        case ir.Copy(dst=dst, src=src) | ir.Append(dst=dst, src=src) | ir.Assign(dst=dst, src=src):
            return (dst, src)
        case ir.Swap(a=a, b=b):
            return (a, b)
        case ir.If(flag=flag):
            return (flag,)
        case ir.Bind(buffer=buffer) | ir.Resize(buffer=buffer):
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
    _check_chunks(program, s, where)
    sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
    for expr in (*s.sizes, s.extent, s.chunks):
        unknown = arith.free_vars(expr) - symbols
        if unknown:
            raise bad(f"size {expr} mentions unknown symbols: {', '.join(sorted(unknown))}", where)
    for param, name in zip(kernel.params, s.args):
        b = program.buffer_map[name]
        count = arith.substitute(arith.product(list(param.shape)), sizes)
        if b.dtype.stored is not param.dtype or not _same_size(
            program, count, arith.product(list(b.shape))
        ):
            raise bad(
                f"parameter {param.name} is {param.dtype}{list(param.shape)}, "
                f"buffer {name!r} is {b.dtype}{list(b.shape)}",
                where,
            )


def _check_chunks(program: ir.Program, s: ir.Launch, where: str) -> None:
    count = arith.as_int(s.chunks)
    is_bounded = count is None and prove("le", s.chunks, ir.MAX_CHUNKS, _ranges(program))
    if not is_bounded and not (count is not None and 0 <= count <= ir.MAX_CHUNKS):
        raise bad(f"{s.chunks} chunks per thread, not 0 to {ir.MAX_CHUNKS}", where)


def _ranges(program: ir.Program) -> dict[str, Interval]:
    return {s.name: Interval(s.low, s.high) for s in program.symbols}


def _same_size(program: ir.Program, a: arith.Expr, b: arith.Expr) -> bool:
    return a == b or prove("eq", a, b, _ranges(program)) or not _is_decidable(a, b)


def _is_decidable(a: arith.Expr, b: arith.Expr) -> bool:
    """Dynamic sizes of different form may be equal at run time; static sizes must be equal."""
    return not (arith.free_vars(a) or arith.free_vars(b))


class _Contents:
    """Tracks which buffers still hold what was last written to them."""

    def __init__(self, program: ir.Program, accesses: AccessAnalysis):
        self.program, self.accesses = program, accesses
        self.lasting: set[str] = set()  # given, and in memory that no statement writes

    def check(self) -> None:
        storages = (ir.Storage.INPUT, ir.Storage.STATE, ir.Storage.CONSTANT, ir.Storage.DYNAMIC)
        given = [b for b in self.program.buffers if b.storage in storages]
        written = self.written_arenas()
        self.lasting = {
            b.name for b in given if b.allocation is None or b.allocation.arena not in written
        }
        valid = self.stmt(self.program.body, {b.name for b in given} - self.lasting)
        for name in self.program.outputs:
            if name not in valid and name not in self.lasting and not self.is_empty(name):
                why = "it was never written, or another buffer overwrote it"
                raise bad(f"output {name!r} has no content at the end", why=why)

    def written_arenas(self) -> set[str]:
        accesses = (a for s in walk(self.program.body) for a in self.accesses.of(s))
        return {a.base for a in accesses if a.is_write}

    def stmt(self, s: ir.Stmt, valid: set[str]) -> set[str]:
        """The valid buffers after `s`, from those before it, which this changes."""
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    valid = self.stmt(each, valid)
                return valid
            case ir.If(then=then, orelse=orelse) | ir.IfSize(then=then, orelse=orelse):
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
            inside = self.write(s, touched, set(valid))
            left = valid & self.stmt(s.body, set(inside))
            if left == valid:
                return inside
            valid = left

    def read(self, s: ir.Stmt, touched: list[ByteAccess], valid: set[str]) -> None:
        for access in touched:
            name = access.buffer
            is_there = access.is_write or name in valid or name in self.lasting
            if not is_there and not self.is_empty(name):
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
        valid -= {name for name in valid if self.is_clobbered(name, writes)}
        valid |= {w.buffer for w in writes if w.buffer}
        return valid

    def is_clobbered(self, name: str, writes: list[ByteAccess]) -> bool:
        mine = self.accesses.access(name, False, writes[0].threads) if writes else None
        return any(w.buffer != name and self.accesses.may_overlap(mine, w) for w in writes)  # type: ignore[arg-type]


def _name(s: ir.Stmt) -> str:
    if not isinstance(s, ir.Launch):
        return type(s).__name__
    return f"launch of {s.kernel}" + (f" for {s.origin}" if s.origin else "")
