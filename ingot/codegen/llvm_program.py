"""A planned program → LLVM IR text of its entry `i32 run(ctx*)`. Called by codegen/llvm.py.

Every thread runs the whole entry. A failing thread remembers it, skips its further launches and
goes on to the next barrier, where all threads leave. Offsets and table numbers are constants here;
sizes are read from the thread's symbol table. See support/abi.py for the layout of ctx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import assert_never

from ingot.arith import expr as arith
from ingot.codegen.llvm_claims import STATE, next_part_text
from ingot.codegen.llvm_text import Function
from ingot.codegen.llvm_values import Values
from ingot.program import ir
from ingot.program.tables import CONSTANTS, Tables, tables, walk
from ingot.support.abi import (
    BAD_SIZE,
    CTX,
    DYNAMIC,
    DYNAMIC_BYTES,
    ERROR,
    NO_MEMORY,
    PROFILE,
    PROFILE_BYTES,
    SERVICES,
    SYNC,
)
from ingot.support.errors import IngotError


def print_entry(
    program: ir.Program, symbol: str, triple: str, spin_count: int, profile: bool = False
) -> str:
    """`profile` compiles cycle counters in: see support/abi.py, PROFILE."""
    printer = _Entry(program, profile)
    printer.prologue()
    printer.stmt(program.body)
    printer.finish()
    head = f'define i32 @{symbol}(ptr noalias %ctx) nounwind "no-builtins"'
    declares = "\n".join(printer.fn.declares)
    helpers = [_barrier(triple, spin_count), _copy(), next_part_text()]
    return "\n".join([printer.fn.text(head), *helpers, declares, ""])


class _Index(Values):
    """Index arithmetic over symbols, each read from the table where it is used."""

    symbol: Callable[[str], str]
    overflows: list[str] | None = None  # flags of checked steps; None: steps are known to fit

    def index(self, e: arith.Expr) -> str:
        if isinstance(e, arith.Var):
            return self.symbol(e.name)
        if self.overflows is not None and isinstance(e, arith.Add | arith.Sub | arith.Mul):
            return self._step(e, self.overflows)
        return super().index(e)

    def checked(self, e: arith.Expr) -> str:
        """The value of `e`, or -1 where a step of it does not fit 64 bits."""
        self.overflows = []
        value, flags, self.overflows = self.index(e), self.overflows, None
        for flag in flags:
            value = self.fn.op(f"select i1 {flag}, i64 -1, i64 {value}")
        return value

    def _step(self, e: arith.Binary, flags: list[str]) -> str:
        name = {"+": "sadd", "-": "ssub", "*": "smul"}[e.symbol]
        args = [("i64", self.index(e.a)), ("i64", self.index(e.b))]
        pair = self.fn.call("{i64, i1}", f"llvm.{name}.with.overflow.i64", args)
        flags.append(self.fn.op(f"extractvalue {{i64, i1}} {pair}, 1"))
        return self.fn.op(f"extractvalue {{i64, i1}} {pair}, 0")


class _Entry:
    def __init__(self, program: ir.Program, profile: bool):
        self.profile, self.latest = profile, 0  # the number of the launch last printed
        self.program, self.buffers = program, program.buffer_map
        self.tables: Tables = tables(program)
        self.fn = Function()
        self.index = _Index(self.fn)
        self.index.symbol = self.read_symbol
        self.fields: dict[str, str] = {}
        self.numbers = {id(s): n for n, s in enumerate(self.tables.launches)}
        self.failed = self.fn.alloca("i32", 1, 4)
        self.begun = self.fn.alloca("i64", 1, 8)  # launches so far
        self.part = self.fn.alloca(STATE, 1, 8)

    # --- small pieces -------------------------------------------------------------------------

    def prologue(self) -> None:
        for name, offset in CTX.items():
            address = self.fn.op(f"getelementptr i8, ptr %ctx, i64 {offset}")
            type = "i64" if name in ("thread", "threads", "arena_count") else "ptr"
            self.fields[name] = self.fn.op(f"load {type}, ptr {address}, align 8")
        self.fn.do(f"store i32 0, ptr {self.failed}, align 4")
        self.fn.do(f"store i64 0, ptr {self.begun}, align 8")

    def finish(self) -> None:
        self.fn.do(f"ret i32 {self.fn.op(f'load i32, ptr {self.failed}, align 4')}")

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Add the cycles spent inside to this thread's count for the launch last printed."""
        if not self.profile:
            yield
            return
        start = self.fn.call("i64", "llvm.readcyclecounter", [])
        yield
        stop = self.fn.call("i64", "llvm.readcyclecounter", [])
        spent = self.fn.op(f"sub i64 {stop}, {start}")
        offset = PROFILE_BYTES * self.latest + PROFILE[what]
        place = self.fn.op(f"getelementptr i8, ptr {self.fields['profile']}, i64 {offset}")
        before = self.fn.op(f"load i64, ptr {place}, align 8")
        self.fn.do(f"store i64 {self.fn.op(f'add i64 {before}, {spent}')}, ptr {place}, align 8")

    def entry_of(self, table: str, number: int, type: str = "ptr") -> str:
        base = self.fields[table]
        address = self.fn.op(f"getelementptr i8, ptr {base}, i64 {8 * number}")
        return self.fn.op(f"load {type}, ptr {address}, align 8")

    def read_symbol(self, name: str) -> str:
        return self.entry_of("symbols", self.tables.symbols[name], "i64")

    def pointer(self, name: str) -> str:
        buffer = self.buffers[name]
        if name in self.tables.slots:
            return self.entry_of("buffers", self.tables.slots[name])
        if name in self.tables.dynamics:
            return self.fn.op(f"load ptr, ptr {self.dynamic(name)}, align 8")
        assert buffer.place is not None, f"buffer {name} was not planned"
        if buffer.place.arena == CONSTANTS:
            base = self.fields["constants"]
        else:
            base = self.entry_of("arenas", self.tables.arenas[buffer.place.arena])
        return self.fn.op(
            f"getelementptr i8, ptr {base}, i64 {self.index.index(buffer.place.offset)}"
        )

    def dynamic(self, name: str) -> str:
        offset = DYNAMIC_BYTES * self.tables.dynamics[name]
        return self.fn.op(f"getelementptr i8, ptr {self.fields['dynamics']}, i64 {offset}")

    def record(self, launch: int, reason: str | int | None, values: list[str] = []) -> None:  # noqa: B006
        """Write this thread's error record (the kernel has written the rest if reason is None)."""
        numbers = {"launch": str(launch)}
        if reason is not None:
            numbers["reason"] = str(reason)
        for n, value in enumerate(values):
            numbers[f"value{n}"] = value
        for field, number in numbers.items():
            address = self.fn.op(
                f"getelementptr i8, ptr {self.fields['error']}, i64 {ERROR[field]}"
            )
            self.fn.do(f"store i64 {number}, ptr {address}, align 8")
        flag = self.fn.op(f"getelementptr i8, ptr {self.fields['sync']}, i64 {SYNC['failed']}")
        self.fn.do(f"store atomic i32 1, ptr {flag} release, align 4")
        self.fn.do(f"store i32 1, ptr {self.failed}, align 4")

    def when(self, cond: str, then: Callable[[], None]) -> None:
        inside, after = self.fn.label("then"), self.fn.label("after")
        self.fn.branch_if(cond, inside, after)
        self.fn.start(inside)
        then()
        self.fn.branch(after)
        self.fn.start(after)

    def is_first_thread(self) -> str:
        return self.fn.op(f"icmp eq i64 {self.fields['thread']}, 0")

    def is_sound(self) -> str:
        failed = self.fn.op(f"load i32, ptr {self.failed}, align 4")
        return self.fn.op(f"icmp eq i32 {failed}, 0")

    # --- statements ---------------------------------------------------------------------------

    def stmt(self, s: ir.Stmt) -> None:
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.Launch():
                self.launch(s)
            case ir.Barrier():
                self.barrier()
            case ir.Copy(dst=dst, src=src):
                self.copy(dst, src)
            case ir.If(flag=flag, then=then, orelse=orelse):
                self.if_else(self.read_flag(flag), then, orelse)
            case ir.Loop():
                self.loop(s)
            case ir.Bind():
                self.bind(s)
            case ir.Reserve(arena=arena, size_bytes=size):
                self.reserve(arena, size)
            case ir.Append(dst=dst, src=src):
                self.when(self.fn.op(f"and i1 {self.is_first_thread()}, {self.is_sound()}"),
                          lambda: self.append(dst, src))  # fmt: skip
            case ir.Par() | ir.HostStep():
                raise IngotError(
                    "codegen-failed", f"the CPU entry has no {type(s).__name__} statement yet"
                )
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def share(self, extent: str) -> tuple[str, str]:
        """This thread's part of 0 … extent-1: even, and the same for any run of so many threads."""
        fn, thread, threads = self.fn, self.fields["thread"], self.fields["threads"]
        next_thread = fn.op(f"add i64 {thread}, 1")
        ends = []
        for who in (thread, next_thread):
            product = fn.op(f"mul i64 {extent}, {who}")
            ends.append(fn.op(f"udiv i64 {product}, {threads}"))
        return ends[0], ends[1]

    def launch(self, s: ir.Launch) -> None:
        if arith.is_const(s.extent, 1):
            cond = self.fn.op(f"and i1 {self.is_first_thread()}, {self.is_sound()}")
            self.when(cond, lambda: self.call_kernel(s, self.arguments(s), "0", "1"))
        elif s.parts > 1:
            self.by_parts(s)
        else:
            low, high = self.share(self.index.index(s.extent))
            has_work = self.fn.op(f"icmp slt i64 {low}, {high}")
            cond = self.fn.op(f"and i1 {has_work}, {self.is_sound()}")
            self.when(cond, lambda: self.call_kernel(s, self.arguments(s), low, high))

    def by_parts(self, s: ir.Launch) -> None:
        """Parts, as long as there are any: llvm_claims.py. Failed threads count launches too."""
        fn = self.fn
        before = fn.op(f"load i64, ptr {self.begun}, align 8")
        number = fn.op(f"add i64 {before}, 1")
        fn.do(f"store i64 {number}, ptr {self.begun}, align 8")
        fn.do(f"store i64 0, ptr {self.part}, align 8")
        sync, thread, threads = (self.fields[n] for n in ("sync", "thread", "threads"))
        args = f"ptr {sync}, i64 {thread}, i64 {threads}, i64 {self.index.index(s.extent)}, "
        args += f"i64 {number}, i64 {s.parts}, ptr {self.part}"
        given = self.arguments(s)
        head, ask, body, done = (fn.label(n) for n in ("parts", "ask", "part", "done"))
        fn.branch(head)
        fn.start(head)
        fn.branch_if(self.is_sound(), ask, done)
        fn.start(ask)
        fn.branch_if(fn.op(f"call i1 @next_part({args})"), body, done)
        fn.start(body)
        low, high = (self.part_end(n) for n in (1, 2))
        self.call_kernel(s, given, low, high)
        fn.branch(head)
        fn.start(done)

    def part_end(self, field: int) -> str:
        place = self.fn.op(f"getelementptr {STATE}, ptr {self.part}, i64 0, i32 {field}")
        return self.fn.op(f"load i64, ptr {place}, align 8")

    def arguments(self, s: ir.Launch) -> tuple[str, list[str]]:
        """The kernel's address, and what it is called with but for its part of the loop."""
        args = [f"ptr {self.pointer(name)}" for name in s.args]
        args += [f"i64 {self.index.index(size)}" for size in s.sizes]
        return self.entry_of("kernels", self.tables.kernels[s.kernel]), args

    def call_kernel(self, s: ir.Launch, given: tuple[str, list[str]], low: str, high: str) -> None:
        fn, (kernel, args) = self.fn, given
        error = fn.op(f"getelementptr i8, ptr {self.fields['error']}, i64 {ERROR['reason']}")
        last = [f"i64 {low}", f"i64 {high}", f"ptr {self.fields['scratch']}", f"ptr {error}"]
        self.latest = self.numbers[id(s)]
        with self.counted("busy"):
            code = fn.op(f"call i32 {kernel}({', '.join([*args, *last])})")
        bad = fn.op(f"icmp ne i32 {code}, 0")
        self.when(bad, lambda: self.record(self.numbers[id(s)], None))

    def barrier(self) -> None:
        fn = self.fn
        sync, threads, services = (self.fields[n] for n in ("sync", "threads", "services"))
        args = f"ptr {sync}, i64 {threads}, ptr {services}"
        with self.counted("wait"):
            failed = fn.op(f"call i32 @barrier({args})")
        bad, leave, stay = fn.op(f"icmp ne i32 {failed}, 0"), fn.label("leave"), fn.label("stay")
        fn.branch_if(bad, leave, stay)
        fn.start(leave)
        fn.do("ret i32 1")
        fn.start(stay)

    def copy(self, dst: str, src: str) -> None:
        size = self.index.index(self.buffers[dst].size_bytes)
        low, high = self.share(size)
        target, source = self.pointer(dst), self.pointer(src)
        self.fn.do(f"call void @copy(ptr {target}, ptr {source}, i64 {low}, i64 {high})")

    def read_flag(self, name: str) -> str:
        value = self.fn.op(f"load i8, ptr {self.pointer(name)}, align 1")
        return self.fn.op(f"icmp ne i8 {value}, 0")

    def if_else(self, cond: str, then: ir.Stmt, orelse: ir.Stmt) -> None:
        fn, yes, no, done = self.fn, *(self.fn.label(n) for n in ("yes", "no", "done"))
        fn.branch_if(cond, yes, no)
        for label, branch in ((yes, then), (no, orelse)):
            fn.start(label)
            self.stmt(branch)
            fn.branch(done)
        fn.start(done)

    def loop(self, s: ir.Loop) -> None:
        """A barrier stands before each test and another after the counter is set."""
        fn = self.fn
        slot = fn.alloca("i64", 1, 8)
        fn.do(f"store i64 0, ptr {slot}, align 8")
        self.when(self.is_first_thread(), lambda: self.empty_appended(s.body))
        head, body, done = fn.label("head"), fn.label("body"), fn.label("done")
        fn.branch(head)
        fn.start(head)
        self.barrier()
        turn = fn.op(f"load i64, ptr {slot}, align 8")
        more = "true"
        if s.trips is not None:
            trips = fn.op(f"load i64, ptr {self.pointer(s.trips)}, align 8")
            more = fn.op(f"icmp slt i64 {turn}, {trips}")
        if s.keep_going is not None:
            more = fn.op(f"and i1 {more}, {self.read_flag(s.keep_going)}")
        self.when(
            self.is_first_thread(),
            lambda: fn.do(f"store i64 {turn}, ptr {self.pointer(s.counter)}, align 8"),
        )
        self.barrier()
        fn.branch_if(more, body, done)
        fn.start(body)
        self.stmt(s.body)
        fn.do(f"store i64 {fn.op(f'add i64 {turn}, 1')}, ptr {slot}, align 8")
        fn.branch(head)
        fn.start(done)

    def empty_appended(self, body: ir.Stmt) -> None:
        for s in walk(body):
            if isinstance(s, ir.Append):
                place = self.fn.op(
                    f"getelementptr i8, ptr {self.dynamic(s.dst)}, i64 {DYNAMIC['rows']}"
                )
                self.fn.do(f"store i64 0, ptr {place}, align 8")

    def bind(self, s: ir.Bind) -> None:
        fn = self.fn
        address = fn.op(f"getelementptr i64, ptr {self.pointer(s.buffer)}, i64 {s.index}")
        value = fn.op(f"load i64, ptr {address}, align 8")
        symbol = next(x for x in self.program.symbols if x.name == s.symbol)
        bad = fn.op(f"icmp slt i64 {value}, {symbol.low}")
        if symbol.high is not None:
            over = fn.op(f"icmp sgt i64 {value}, {symbol.high}")
            bad = fn.op(f"or i1 {bad}, {over}")
        self.when(bad, lambda: self.record(self.numbers[id(s)], BAD_SIZE, [value]))
        kept = fn.op(f"select i1 {bad}, i64 {symbol.low}, i64 {value}")
        number = 8 * self.tables.symbols[s.symbol]
        place = fn.op(f"getelementptr i8, ptr {self.fields['symbols']}, i64 {number}")
        fn.do(f"store i64 {kept}, ptr {place}, align 8")

    def service(self, name: str) -> str:
        services = self.fields["services"]
        address = self.fn.op(f"getelementptr i8, ptr {services}, i64 {SERVICES[name]}")
        return self.fn.op(f"load ptr, ptr {address}, align 8")

    def reserve(self, arena: str, size: arith.Expr) -> None:
        def ask() -> None:
            number = self.tables.arenas[arena]
            need, services = self.index.checked(size), self.fields["services"]
            args = f"ptr {services}, ptr %ctx, i64 {number}, i64 {need}"
            got = self.fn.op(f"call ptr {self.service('alloc')}({args})")
            failed = self.fn.op(f"icmp eq ptr {got}, null")
            self.when(failed, lambda: self.record(self.latest, NO_MEMORY))

        self.when(self.fn.op(f"and i1 {self.is_first_thread()}, {self.is_sound()}"), ask)

    def append(self, dst: str, src: str) -> None:
        fn, row = self.fn, self.index.index(self.buffers[src].size_bytes)
        record = self.dynamic(dst)
        place = fn.op(f"getelementptr i8, ptr {record}, i64 {DYNAMIC['rows']}")
        rows = fn.op(f"load i64, ptr {place}, align 8")
        used = fn.op(f"mul i64 {rows}, {row}")
        needed = fn.op(f"add i64 {used}, {row}")
        number = self.tables.dynamics[dst]
        args = f"ptr {self.fields['services']}, ptr %ctx, i64 {number}, i64 {needed}"
        code = fn.op(f"call i32 {self.service('grow')}({args})")
        grown, bad, done = fn.label("grown"), fn.label("bad"), fn.label("done")
        fn.branch_if(fn.op(f"icmp eq i32 {code}, 0"), grown, bad)
        fn.start(bad)
        self.record(self.latest, NO_MEMORY)
        fn.branch(done)
        fn.start(grown)
        end = fn.op(f"getelementptr i8, ptr {self.pointer(dst)}, i64 {used}")
        fn.do(f"call void @copy(ptr {end}, ptr {self.pointer(src)}, i64 0, i64 {row})")
        fn.do(f"store i64 {fn.op(f'add i64 {rows}, 1')}, ptr {place}, align 8")
        fn.branch(done)
        fn.start(done)


def _barrier(triple: str, spin_count: int) -> str:
    """All threads arrive; the last opens the gate by raising `generation`. Non-zero: leave.

    The last one also decides whether all leave: a thread that read `failed` by itself could see a
    failure of one that is already past the gate, and leave it alone at the next barrier.
    """
    pause = 'call void asm sideeffect "pause", ""()' if triple.startswith("x86") else ""
    return f"""
define internal i32 @barrier(ptr %sync, i64 %threads, ptr %services)
    noinline nounwind "no-builtins" {{
entry:
  %failed_at = getelementptr i8, ptr %sync, i64 {SYNC["failed"]}
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %by_itself, label %meet
by_itself:
  %mine_failed = load atomic i32, ptr %failed_at monotonic, align 4
  ret i32 %mine_failed
meet:
  %leave_at = getelementptr i8, ptr %sync, i64 {SYNC["leave"]}
  %gate = getelementptr i8, ptr %sync, i64 {SYNC["generation"]}
  %parked = getelementptr i8, ptr %sync, i64 {SYNC["parked"]}
  %seen = load atomic i32, ptr %gate acquire, align 4
  %before = atomicrmw add ptr %sync, i32 1 acq_rel
  %wide = zext i32 %before to i64
  %mine = add i64 %wide, 1
  %last = icmp eq i64 %mine, %threads
  br i1 %last, label %open, label %spin
open:
  store atomic i32 0, ptr %sync monotonic, align 4
  %any_failed = load atomic i32, ptr %failed_at monotonic, align 4
  store atomic i32 %any_failed, ptr %leave_at monotonic, align 4
  %next = add i32 %seen, 1
  %old = atomicrmw xchg ptr %gate, i32 %next seq_cst
  %sleepers = load atomic i32, ptr %parked seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %rouse, label %out
rouse:
  %wake_at = getelementptr i8, ptr %services, i64 {SERVICES["wake"]}
  %wake = load ptr, ptr %wake_at, align 8
  call void %wake(ptr %services, ptr %gate)
  br label %out
spin:
  %turn = phi i32 [0, %meet], [%turn_next, %again]
  %now = load atomic i32, ptr %gate acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %out, label %wait
wait:
  {pause}
  %turn_next = add i32 %turn, 1
  %long = icmp ugt i32 %turn_next, {spin_count}
  br i1 %long, label %sleep, label %again
again:
  br label %spin
sleep:
  %park_at = getelementptr i8, ptr %services, i64 {SERVICES["park"]}
  %park = load ptr, ptr %park_at, align 8
  %can = icmp ne ptr %park, null
  br i1 %can, label %doze, label %spin_on
doze:
  %ignored = atomicrmw add ptr %parked, i32 1 seq_cst
  call void %park(ptr %services, ptr %gate, i32 %seen)
  %ignored2 = atomicrmw sub ptr %parked, i32 1 seq_cst
  br label %spin_on
spin_on:
  %now2 = load atomic i32, ptr %gate acquire, align 4
  %changed2 = icmp ne i32 %now2, %seen
  br i1 %changed2, label %out, label %sleep
out:
  %leave = load atomic i32, ptr %leave_at monotonic, align 4
  ret i32 %leave
}}"""


def _copy() -> str:
    """Bytes low … high-1 from one place to another that does not overlap it."""
    return """
define internal void @copy(ptr noalias %dst, ptr noalias readonly %src, i64 %low, i64 %high)
    nounwind "no-builtins" {
entry:
  br label %words
words:
  %w = phi i64 [%low, %entry], [%w_next, %word]
  %w_next = add i64 %w, 32
  %fits = icmp sle i64 %w_next, %high
  br i1 %fits, label %word, label %bytes
word:
  %ws = getelementptr i8, ptr %src, i64 %w
  %wd = getelementptr i8, ptr %dst, i64 %w
  %wv = load <32 x i8>, ptr %ws, align 1
  store <32 x i8> %wv, ptr %wd, align 1
  br label %words
bytes:
  %b = phi i64 [%w, %words], [%b_next, %byte]
  %more = icmp slt i64 %b, %high
  br i1 %more, label %byte, label %done
byte:
  %bs = getelementptr i8, ptr %src, i64 %b
  %bd = getelementptr i8, ptr %dst, i64 %b
  %bv = load i8, ptr %bs, align 1
  store i8 %bv, ptr %bd, align 1
  %b_next = add i64 %b, 1
  br label %bytes
done:
  ret void
}"""
