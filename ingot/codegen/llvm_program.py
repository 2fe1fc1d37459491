"""A planned program → LLVM IR text of its entry `i32 run(ctx*)`. Called by codegen/llvm.py.

Every thread runs the whole entry (SPMD). A thread that fails marks the call as failed and returns;
the others leave at their next barrier. Offsets and table numbers are constants here; sizes are read
from the thread's symbol table. support/abi.py has the layout of ctx, work_stealing.py in
runtime/cpu/native/ assigns work to threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import assert_never

from ingot.arith import expr as arith
from ingot.codegen.llvm_sizes import SizePrinter
from ingot.codegen.llvm_text import Function
from ingot.program import ir
from ingot.program.tables import CONSTANTS, Tables, tables, walk
from ingot.program.waits import Waits
from ingot.runtime.cpu.native.work_stealing import STATE, UNPUBLISHED, barrier_text, next_chunk_text
from ingot.support.abi import (
    BAD_SIZE,
    CTX,
    DYNAMIC,
    DYNAMIC_BYTES,
    ERROR,
    EVENT,
    EVENT_BYTES,
    HOST_FAILED,
    NO_MEMORY,
    PROFILE,
    PROFILE_BYTES,
    SERVICES,
    TRACE,
)
from ingot.support.errors import IngotError

# Launches from which LLVM does not optimise the entry, only its helpers: a launch is a dozen loads
# and a call, and LLVM takes 2 to 7 ms to optimise each of many. A speech model of 343 launches, 144
# of them in loops, took 2.73 ms a call on one thread, and 2.78 before (least of three, measured).
LONG_ENTRY = 32


def print_entry(
    program: ir.Program, symbol: str, triple: str, spin_count: int, profile: bool = False
) -> str:
    """`profile` compiles cycle counters in: see support/abi.py, PROFILE and TRACE."""
    printer = _Entry(program, profile)
    printer.prologue()
    printer.define_offsets()
    printer.stmt(program.body)
    printer.finish()
    is_long = len(printer.tables.launches) > LONG_ENTRY
    attributes = "optnone noinline nounwind" if is_long else "nounwind"
    head = f'define i32 @{symbol}(ptr noalias %ctx) {attributes} "no-builtins"'
    declares = "\n".join(printer.fn.declares)
    helpers = [_copy(), next_chunk_text(), barrier_text(triple, spin_count)]
    helpers += [_count()] if profile else []
    return "\n".join([printer.fn.text(head), *helpers, declares, ""])


class _Entry:
    def __init__(self, program: ir.Program, profile: bool):
        self.profile, self.latest = profile, 0  # the number of the launch last printed
        self.program, self.buffers = program, program.buffer_map
        self.tables: Tables = tables(program)
        self.fn = Function()
        self.fields: dict[str, str] = {}
        self.offsets: dict[str, str] = {}
        self.numbers = {id(s): n for n, s in enumerate(self.tables.launches)}
        self.host_numbers = {id(s): n for n, s in enumerate(self.tables.host_steps)}
        self.begun = self.fn.alloca("i64", 1, 8)  # launches begun so far
        self.wanted = self.fn.alloca("i64", 1, 8)  # chunks of those launches, over all threads
        self.chunk = self.fn.alloca(STATE, 1, 8)
        self.waits = Waits(program)
        self.for_all = self.waits.everywhere  # do barriers wait for every thread here?
        self.is_lazy = any(map(self.may_be_alone, walk(program.body)))
        self.is_shared = self.fn.alloca("i8", 1, 1)  # have other threads run since a barrier?
        self.is_due = self.fn.alloca("i8", 1, 1)  # is a barrier due before other threads run?

    def may_be_alone(self, s: ir.Stmt) -> bool:
        """Do the sizes of a call decide whether other threads take part?"""
        if isinstance(s, ir.Copy):
            return arith.as_int(self.buffers[s.dst].size_bytes) is None
        return isinstance(s, ir.Launch) and arith.as_int(s.chunks) is None

    # --- building blocks ----------------------------------------------------------------------

    def prologue(self) -> None:
        for name, offset in CTX.items():
            address = self.fn.op(f"getelementptr i8, ptr %ctx, i64 {offset}")
            type = "i64" if name in ("thread", "threads", "arena_count") else "ptr"
            self.fields[name] = self.fn.op(f"load {type}, ptr {address}, align 8")
        self.index = SizePrinter(self.fn, self.program, self.read_symbol)
        for counter in (self.begun, self.wanted, self.chunk_field(UNPUBLISHED)):
            self.fn.do(f"store i64 0, ptr {counter}, align 8")
        self.set_flags(is_shared=0, is_due=0)

    def define_offsets(self) -> None:
        """The offsets of a dynamic memory plan, computed once."""
        for name, expr in self.program.offsets:
            self.offsets[name] = self.index.index(expr)

    def finish(self) -> None:
        self.fn.do("ret i32 0")

    @contextmanager
    def counted(self, what: str, low: str = "0", high: str = "1") -> Iterator[None]:
        """Add the cycles spent inside to this thread's count for the launch last printed, and an
        event to its trace: of the iterations low … high-1."""
        if not self.profile:
            yield
            return
        start = self.fn.call("i64", "llvm.readcyclecounter", [])
        yield
        stop = self.fn.call("i64", "llvm.readcyclecounter", [])
        event = f"i64 {self.latest}, i64 {PROFILE[what]}, i64 {low}, i64 {high}"
        self.fn.do(f"call void @count(ptr %ctx, {event}, i64 {start}, i64 {stop})")

    def entry_of(self, table: str, number: int, type: str = "ptr") -> str:
        base = self.fields[table]
        address = self.fn.op(f"getelementptr i8, ptr {base}, i64 {8 * number}")
        return self.fn.op(f"load {type}, ptr {address}, align 8")

    def read_symbol(self, name: str) -> str:
        if name in self.offsets:
            return self.offsets[name]
        return self.entry_of("symbols", self.tables.symbols[name], "i64")

    def pointer(self, name: str) -> str:
        buffer = self.buffers[name]
        if name in self.tables.slots:
            return self.entry_of("buffers", self.tables.slots[name])
        if name in self.tables.dynamics:
            return self.fn.op(f"load ptr, ptr {self.dynamic(name)}, align 8")
        assert buffer.allocation is not None, f"buffer {name} was not planned"
        if buffer.allocation.arena == CONSTANTS:
            base = self.fields["constants"]
        else:
            base = self.entry_of("arenas", self.tables.arenas[buffer.allocation.arena])
        return self.fn.op(
            f"getelementptr i8, ptr {base}, i64 {self.index.index(buffer.allocation.offset)}"
        )

    def dynamic(self, name: str) -> str:
        offset = DYNAMIC_BYTES * self.tables.dynamics[name]
        return self.fn.op(f"getelementptr i8, ptr {self.fields['dynamics']}, i64 {offset}")

    def fail_if(
        self, cond: str, launch: int, reason: int | None, values: tuple[str, ...] = ()
    ) -> None:
        """If `cond`, write this thread's error record, except what a kernel has written (reason
        None), mark the call as failed and return."""
        fn, bad, good = self.fn, self.fn.label("bad"), self.fn.label("good")
        fn.branch_if(cond, bad, good)
        fn.start(bad)
        numbers = {"launch": str(launch)} | ({} if reason is None else {"reason": str(reason)})
        for field, number in {**numbers, **{f"value{n}": v for n, v in enumerate(values)}}.items():
            address = fn.op(f"getelementptr i8, ptr {self.fields['error']}, i64 {ERROR[field]}")
            fn.do(f"store i64 {number}, ptr {address}, align 8")
        fn.do(f"call void @fail(ptr {self.fields['sync']}, ptr {self.fields['services']})")
        fn.do("ret i32 1")
        fn.start(good)

    def when(self, cond: str, then: Callable[[], None]) -> None:
        inside, after = self.fn.label("then"), self.fn.label("after")
        self.fn.branch_if(cond, inside, after)
        self.fn.start(inside)
        then()
        self.fn.branch(after)
        self.fn.start(after)

    def is_first_thread(self) -> str:
        return self.fn.op(f"icmp eq i64 {self.fields['thread']}, 0")

    def add_to(self, counter: str, step: str) -> str:
        value = self.fn.op(f"add i64 {self.fn.op(f'load i64, ptr {counter}, align 8')}, {step}")
        self.fn.do(f"store i64 {value}, ptr {counter}, align 8")
        return value

    # --- statements ---------------------------------------------------------------------------

    def stmt(self, s: ir.Stmt) -> None:
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.Launch():
                self.launch(s)
            case ir.Barrier():
                self.barrier_if_shared()
            case ir.Copy(dst=dst, src=src):
                self.copy(dst, src)
            case ir.If(flag=flag, then=then, orelse=orelse):
                self.let_others_run()
                self.choose(
                    self.read_flag(flag), partial(self.stmt, then), partial(self.stmt, orelse)
                )
            case ir.IfSize(size=size, most=most, then=then, orelse=orelse):
                is_small = self.fn.op(f"icmp ult i64 {self.index.index(size - 1)}, {most}")
                self.choose(is_small, partial(self.stmt, then), partial(self.stmt, orelse))
            case ir.Loop():
                self.loop(s)
            case ir.Bind():
                self.bind(s)
            case ir.Reserve(arena=arena, size_bytes=size):
                self.reserve(arena, size)
            case ir.Append(dst=dst, src=src):
                self.on_first_thread(lambda: self.append(dst, src))
            case ir.Assign(dst=dst, src=src):
                self.on_first_thread(lambda: self.assign(dst, src))
            case ir.Resize(buffer=name):
                size = self.buffers[name].size_bytes
                self.on_first_thread(lambda: self.grow(name, self.index.checked(size)))
            case ir.Swap(a=a, b=b):
                self.on_first_thread(lambda: self.swap(a, b))
            case ir.HostStep():
                self.on_first_thread(lambda: self.host_step(s))
            case ir.Par():
                raise IngotError(
                    "codegen-failed", f"the CPU entry has no {type(s).__name__} statement yet"
                )
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def launch(self, s: ir.Launch) -> None:
        extent = self.index.index(s.extent)
        chunks = self.index.index(s.chunks)
        is_split = self.fn.op(f"icmp sgt i64 {chunks}, 0")
        is_alone = arith.is_const(s.extent, 1) or arith.is_const(s.chunks, 0)
        if not is_alone and arith.as_int(s.chunks) is not None:
            self.let_others_run()
        elif not is_alone:
            self.when(is_split, self.let_others_run)
        callee = self.arguments(s)

        def whole() -> None:
            self.call_kernel(s, callee, "0", extent)

        def if_any() -> None:  # a kernel is not called for no iterations
            self.when(self.fn.op(f"icmp sgt i64 {extent}, 0"), whole)

        def alone() -> None:
            if not is_alone:  # every second launch goes backwards: not by the sizes of a call
                self.add_to(self.begun, "1")
            self.on_first_thread(whole if arith.as_int(s.extent) else if_any)

        def together() -> None:
            self.in_chunks(extent, chunks, lambda ends: self.call_kernel(s, callee, *ends))

        if is_alone:
            alone()
        elif arith.as_int(s.chunks) is not None:
            together()
        else:  # sizes are the same on all threads, so all take the same branch
            self.choose(is_split, together, alone)

    def on_first_thread(self, do: Callable[[], None]) -> None:
        """`do` on thread 0, as one chunk that the next barrier waits for."""

        def work() -> None:
            do()
            self.add_to(self.chunk_field(UNPUBLISHED), "1")

        self.add_to(self.wanted, "1")
        self.when(self.is_first_thread(), work)

    def in_chunks(self, extent: str, chunks: str, do: Callable[[tuple[str, str]], None]) -> None:
        """`do` for chunks of 0 … extent-1 until none is left (work_stealing.py)."""
        fn = self.fn
        number = self.add_to(self.begun, "1")
        sync, thread, threads = (self.fields[n] for n in ("sync", "thread", "threads"))
        self.add_to(self.wanted, fn.op(f"mul i64 {threads}, {chunks}"))
        fn.do(f"store i64 0, ptr {self.chunk}, align 8")
        args = f"ptr {sync}, i64 {thread}, i64 {threads}, i64 {extent}, "
        args += f"i64 {number}, i64 {chunks}, ptr {self.chunk}"
        head, body, done = (fn.label(n) for n in ("chunks", "chunk", "done"))
        fn.branch(head)
        fn.start(head)
        fn.branch_if(fn.op(f"call i1 @next_chunk({args})"), body, done)
        fn.start(body)
        low, high = (fn.op(f"load i64, ptr {self.chunk_field(n)}, align 8") for n in (1, 2))
        do((low, high))
        fn.branch(head)
        fn.start(done)

    def chunk_field(self, number: int) -> str:
        return self.fn.op(f"getelementptr {STATE}, ptr {self.chunk}, i64 0, i32 {number}")

    def arguments(self, s: ir.Launch) -> tuple[str, list[str]]:
        """The kernel's address, and its arguments except the bounds of the parallel loop."""
        args = [f"ptr {self.pointer(name)}" for name in s.args]
        args += [f"i64 {self.index.index(size)}" for size in s.sizes]
        return self.entry_of("kernels", self.tables.kernels[s.kernel]), args

    def call_kernel(self, s: ir.Launch, callee: tuple[str, list[str]], low: str, high: str) -> None:
        fn, (kernel, args) = self.fn, callee
        error = fn.op(f"getelementptr i8, ptr {self.fields['error']}, i64 {ERROR['reason']}")
        last = [f"i64 {low}", f"i64 {high}", f"ptr {self.fields['scratch']}", f"ptr {error}"]
        self.latest = self.numbers[id(s)]
        with self.counted("busy", low, high):
            code = fn.op(f"call i32 {kernel}({', '.join([*args, *last])})")
        self.fail_if(fn.op(f"icmp ne i32 {code}, 0"), self.numbers[id(s)], None)

    def barrier_if_shared(self) -> None:
        """A barrier between launches. With dynamic sizes, thread 0 may have run alone before it,
        and may go on alone: it is passed only where other threads run on either side. Launches of
        thread 0 are in order without it, and it comes before and after all others."""
        if not self.is_lazy or self.for_all:
            self.barrier()
            return
        self.choose(self.flag(self.is_shared), self.barrier, lambda: self.set_flags(is_due=1))

    def let_others_run(self) -> None:
        """Before a statement that every thread takes part in, or reads memory for."""
        if self.is_lazy:
            self.when(self.flag(self.is_due), self.barrier)
            self.set_flags(is_shared=1)

    def flag(self, place: str) -> str:
        return self.fn.op(f"trunc i8 {self.fn.op(f'load i8, ptr {place}, align 1')} to i1")

    def set_flags(self, **flags: int) -> None:
        for name, value in flags.items() if self.is_lazy else ():
            self.fn.do(f"store i8 {value}, ptr {getattr(self, name)}, align 1")

    def barrier(self) -> None:
        fn = self.fn
        self.set_flags(is_shared=0, is_due=0)
        sync, threads, services = (self.fields[n] for n in ("sync", "threads", "services"))
        if self.for_all:
            self.add_to(self.wanted, threads)
            self.add_to(self.chunk_field(UNPUBLISHED), "1")
        unpublished_at = self.chunk_field(UNPUBLISHED)
        unpublished, wanted = (
            fn.op(f"load i64, ptr {x}, align 8") for x in (unpublished_at, self.wanted)
        )
        fn.do(f"store i64 0, ptr {unpublished_at}, align 8")
        args = f"ptr {sync}, i64 {threads}, ptr {services}, i64 {unpublished}, i64 {wanted}"
        with self.counted("wait"):
            failed = fn.op(f"call i1 @barrier({args})")
        leave, stay = fn.label("leave"), fn.label("stay")
        fn.branch_if(failed, leave, stay)
        fn.start(leave)
        fn.do("ret i32 1")
        fn.start(stay)

    def copy(self, dst: str, src: str) -> None:
        def do(low: str, high: str) -> None:
            to, source = self.pointer(dst), self.pointer(src)
            self.fn.do(f"call void @copy(ptr {to}, ptr {source}, i64 {low}, i64 {high})")

        def alone() -> None:
            self.on_first_thread(lambda: do("0", size))

        def together() -> None:
            self.let_others_run()
            self.in_chunks(size, "1", lambda ends: do(*ends))

        number = arith.as_int(self.buffers[dst].size_bytes)
        size = self.index.index(self.buffers[dst].size_bytes)
        if number is None:
            is_short = self.fn.op(f"icmp sle i64 {size}, {ir.SHORT_COPY_BYTES}")
            self.choose(is_short, alone, together)
        else:
            (alone if number <= ir.SHORT_COPY_BYTES else together)()

    def read_flag(self, name: str) -> str:
        value = self.fn.op(f"load i8, ptr {self.pointer(name)}, align 1")
        return self.fn.op(f"icmp ne i8 {value}, 0")

    def choose(self, cond: str, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        fn, yes, no, done = self.fn, *(self.fn.label(n) for n in ("yes", "no", "done"))
        fn.branch_if(cond, yes, no)
        for label, branch in ((yes, then), (no, orelse)):
            fn.start(label)
            branch()
            fn.branch(done)
        fn.start(done)

    def loop(self, s: ir.Loop) -> None:
        outside = self.for_all
        self.for_all = outside or self.waits.in_loop(s)
        self.print_loop(s)
        self.for_all = outside

    def print_loop(self, s: ir.Loop) -> None:
        """One barrier stands before each test, another after the counter is set."""
        fn = self.fn
        slot = fn.alloca("i64", 1, 8)
        fn.do(f"store i64 0, ptr {slot}, align 8")
        self.on_first_thread(lambda: self.empty_appended(s.body))
        head, body, done = fn.label("head"), fn.label("body"), fn.label("done")
        fn.branch(head)
        fn.start(head)
        self.barrier()
        trip = fn.op(f"load i64, ptr {slot}, align 8")
        more = "true"
        if s.trips is not None:
            trips = fn.op(f"load i64, ptr {self.pointer(s.trips)}, align 8")
            more = fn.op(f"icmp slt i64 {trip}, {trips}")
        if s.keep_going is not None:
            more = fn.op(f"and i1 {more}, {self.read_flag(s.keep_going)}")
        self.on_first_thread(
            lambda: fn.do(f"store i64 {trip}, ptr {self.pointer(s.counter)}, align 8")
        )
        self.barrier()
        fn.branch_if(more, body, done)
        fn.start(body)
        self.stmt(s.body)
        fn.do(f"store i64 {fn.op(f'add i64 {trip}, 1')}, ptr {slot}, align 8")
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
        self.let_others_run()
        address = fn.op(f"getelementptr i64, ptr {self.pointer(s.buffer)}, i64 {s.index}")
        value = fn.op(f"load i64, ptr {address}, align 8")
        symbol = next(x for x in self.program.symbols if x.name == s.symbol)
        bad = fn.op(f"icmp slt i64 {value}, {symbol.low}")
        if symbol.high is not None:
            over = fn.op(f"icmp sgt i64 {value}, {symbol.high}")
            bad = fn.op(f"or i1 {bad}, {over}")
        self.fail_if(bad, self.numbers[id(s)], BAD_SIZE, (value,))
        number = 8 * self.tables.symbols[s.symbol]
        place = fn.op(f"getelementptr i8, ptr {self.fields['symbols']}, i64 {number}")
        fn.do(f"store i64 {value}, ptr {place}, align 8")

    def service(self, name: str) -> str:
        services = self.fields["services"]
        address = self.fn.op(f"getelementptr i8, ptr {services}, i64 {SERVICES[name]}")
        return self.fn.op(f"load ptr, ptr {address}, align 8")

    def reserve(self, arena: str, size: arith.Expr) -> None:
        def allocate() -> None:
            number = self.tables.arenas[arena]
            need, services = self.index.checked(size), self.fields["services"]
            args = f"ptr {services}, ptr %ctx, i64 {number}, i64 {need}"
            got = self.fn.op(f"call ptr {self.service('alloc')}({args})")
            self.fail_if(self.fn.op(f"icmp eq ptr {got}, null"), self.latest, NO_MEMORY)

        self.on_first_thread(allocate)

    def host_step(self, s: ir.HostStep) -> None:
        """Call the host with a table of the buffers: for each its address and sizes."""
        fn, words = self.fn, []
        for name in s.buffers:
            words.append(fn.op(f"ptrtoint ptr {self.pointer(name)} to i64"))
            words += [self.index.index(size) for size in self.buffers[name].shape]
        table = fn.alloca("i64", max(1, len(words)), 8)
        for i, word in enumerate(words):
            place = fn.op(f"getelementptr i64, ptr {table}, i64 {i}")
            fn.do(f"store i64 {word}, ptr {place}, align 8")
        service, self.latest = self.service("host"), self.numbers[id(s)]
        self.fail_if(fn.op(f"icmp eq ptr {service}, null"), self.latest, HOST_FAILED)
        number = self.host_numbers[id(s)]
        with self.counted("busy"):
            code = fn.op(f"call i32 {service}(i64 {number}, ptr {table})")
        self.fail_if(fn.op(f"icmp ne i32 {code}, 0"), self.latest, HOST_FAILED)

    def append(self, dst: str, src: str) -> None:
        fn, row = self.fn, self.index.index(self.buffers[src].size_bytes)
        record = self.dynamic(dst)
        place = fn.op(f"getelementptr i8, ptr {record}, i64 {DYNAMIC['rows']}")
        rows = fn.op(f"load i64, ptr {place}, align 8")
        used = fn.op(f"mul i64 {rows}, {row}")
        needed = fn.op(f"add i64 {used}, {row}")
        self.grow(dst, needed)
        end = fn.op(f"getelementptr i8, ptr {self.pointer(dst)}, i64 {used}")
        fn.do(f"call void @copy(ptr {end}, ptr {self.pointer(src)}, i64 0, i64 {row})")
        fn.do(f"store i64 {fn.op(f'add i64 {rows}, 1')}, ptr {place}, align 8")

    def assign(self, dst: str, src: str) -> None:
        size = self.index.checked(self.buffers[src].size_bytes)
        self.grow(dst, size)
        to, source = self.pointer(dst), self.pointer(src)
        self.fn.do(f"call void @copy(ptr {to}, ptr {source}, i64 0, i64 {size})")

    def swap(self, a: str, b: str) -> None:
        """Exchange the memory of two buffers, and its size; neither has rows."""
        fn, records = self.fn, [self.dynamic(name) for name in (a, b)]
        for field in ("data", "capacity"):
            offset = DYNAMIC[field]
            places = [fn.op(f"getelementptr i8, ptr {r}, i64 {offset}") for r in records]
            values = [fn.op(f"load i64, ptr {place}, align 8") for place in places]
            for place, value in zip(places, reversed(values)):
                fn.do(f"store i64 {value}, ptr {place}, align 8")

    def grow(self, dst: str, needed: str) -> None:
        """Room for this many bytes in a buffer with an allocation of its own."""
        number = self.tables.dynamics[dst]
        args = f"ptr {self.fields['services']}, ptr %ctx, i64 {number}, i64 {needed}"
        code = self.fn.op(f"call i32 {self.service('grow')}({args})")
        self.fail_if(self.fn.op(f"icmp ne i32 {code}, 0"), self.latest, NO_MEMORY)


def _count() -> str:
    """Add an event's cycles to the count of its launch, and the event to the trace if it has room.
    `what` is the offset of the count."""
    fields = ("launch", "what", "low", "high", "start", "stop")
    places = [
        f"""  %to_{name} = getelementptr i8, ptr %event, i64 {offset}
  store i64 %{name}, ptr %to_{name}, align 8"""
        for name, offset in zip(fields, EVENT.values(), strict=True)
    ]
    return f"""
define internal void @count(ptr %ctx, {", ".join(f"i64 %{name}" for name in fields)})
    noinline nounwind "no-builtins" {{
entry:
  %profile_at = getelementptr i8, ptr %ctx, i64 {CTX["profile"]}
  %profile = load ptr, ptr %profile_at, align 8
  %row = mul i64 %launch, {PROFILE_BYTES}
  %offset = add i64 %row, %what
  %place = getelementptr i8, ptr %profile, i64 %offset
  %before = load i64, ptr %place, align 8
  %spent = sub i64 %stop, %start
  %after = add i64 %before, %spent
  store i64 %after, ptr %place, align 8
  %trace_at = getelementptr i8, ptr %ctx, i64 {CTX["trace"]}
  %trace = load ptr, ptr %trace_at, align 8
  %count_at = getelementptr i8, ptr %trace, i64 {TRACE["count"]}
  %n = load i64, ptr %count_at, align 8
  %n_next = add i64 %n, 1
  store i64 %n_next, ptr %count_at, align 8
  %capacity_at = getelementptr i8, ptr %trace, i64 {TRACE["capacity"]}
  %capacity = load i64, ptr %capacity_at, align 8
  %fits = icmp slt i64 %n, %capacity
  br i1 %fits, label %keep, label %done
keep:
  %events_at = getelementptr i8, ptr %trace, i64 {TRACE["events"]}
  %events = load ptr, ptr %events_at, align 8
  %used = mul i64 %n, {EVENT_BYTES}
  %event = getelementptr i8, ptr %events, i64 %used
{chr(10).join(places)}
  br label %done
done:
  ret void
}}"""


def _copy() -> str:
    """Copy bytes low … high-1 between two buffers that do not overlap."""
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
