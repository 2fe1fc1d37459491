"""The grammar of the linear IR. Every worker thread runs the whole program, and of each launch its
own range of iterations.

    program ::= Program(name, symbols, buffers, kernels, body, inputs, outputs, state, offsets,
                        growth, bundles)
    stmt    ::= Launch(kernel, args, sizes, extent, chunks) | Barrier() | Copy(dst, src)
              | If(flag, then, orelse) | IfSize(size, most, then, orelse)
              | Loop(counter, trips, keep_going, body, count)
              | Bind(symbol, buffer, index) | Reserve(arena, size_bytes) | Append(dst, src)
              | Assign(dst, src) | Resize(buffer) | Swap(a, b) | Par(branches) | Seq(stmts)
              | HostStep(name, args, results, attrs, keeps, takes, sizes)

A Launch splits the kernel's parallel loop 0 … extent-1 evenly over the threads. Each thread's range
is split into chunks, and a thread without chunks of its own steals from the others (work stealing).
The number of chunks may depend on dynamic sizes; with 0 chunks, thread 0 runs the whole launch. A
kernel without a parallel loop has extent 1 and runs on thread 0. All threads read flags, trip
counts and bound symbols, so a barrier separates their writer from the statement. An unplanned
program has no allocations, barriers or reservations: `plan` adds them, and `verify` recomputes
which are needed. `plan` sets the chunks too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.ir import Bundle, ConstRef, Growth
from ingot.graph.types import Symbol
from ingot.loops.ir import Kernel
from ingot.support.node import Node, node


class Storage(Enum):
    """The owner of the bytes."""

    INPUT = "input"  # the caller's array, read only
    OUTPUT = "output"  # the caller's array, or one the runtime made for them
    STATE = "state"  # the caller's array, read and then written in place
    CONSTANT = "constant"  # the constant blob
    TEMP = "temp"  # an arena
    DYNAMIC = "dynamic"  # its own allocation, grown while running: what loops collect or carry


@node
class Allocation(Node):
    """The memory of a planned buffer: an arena, and a byte offset in it."""

    arena: str
    offset: arith.Expr


@node
class Buffer(Node):
    name: str
    dtype: DType
    shape: tuple[arith.Expr, ...]
    storage: Storage
    constant: ConstRef | None = None
    allocation: Allocation | None = None
    space: str = "host"  # the memory space of a device

    @property
    def size_bytes(self) -> arith.Expr:
        return arith.product(list(self.shape)) * self.dtype.storage_bytes


@node
class Arena(Node):
    """One block of memory in a space. `size_bytes` may mention only symbols known when reserved."""

    name: str
    size_bytes: arith.Expr
    space: str = "host"


class Stmt(Node):
    __slots__ = ()


MAX_CHUNKS = 64  # per thread and launch; the counter in a thread's shared word holds no more


@node
class Launch(Stmt):
    """`args` are buffer names, one for each parameter; `sizes` the kernel's symbolic sizes."""

    kernel: str
    args: tuple[str, ...]
    sizes: tuple[arith.Expr, ...] = ()
    extent: arith.Expr = arith.Const(1)
    chunks: arith.Expr = arith.Const(
        1
    )  # of each thread's range, for work stealing: 0 to MAX_CHUNKS
    origin: str = field(default="", compare=False)


@node
class Barrier(Stmt):
    """No thread continues before all threads have arrived."""


SHORT_COPY_BYTES = 4096  # one thread copies them from L1 in less time than a barrier takes: 0.1 µs


@node
class Copy(Stmt):
    """dst[:] = src, without conversion; a device transfer where the memory spaces differ. Thread 0
    copies up to SHORT_COPY_BYTES, the threads share more."""

    dst: str
    src: str


@node
class If(Stmt):
    """`flag` is a bool buffer of one element."""

    flag: str
    then: Stmt
    orelse: Stmt


@node
class IfSize(Stmt):
    """`then` where 1 <= size <= most, else `orelse`. Sizes are the same on all threads, so it needs
    no barrier. It chooses between variants of a kernel."""

    size: arith.Expr
    most: int
    then: Stmt
    orelse: Stmt


@node
class Loop(Stmt):
    """Repeat the body while counter < trips (if given) and `keep_going` (if given) is true.

    `counter` is an i64 buffer of one element: the iteration number, and after the loop the number
    of iterations done. Entering the loop clears the buffers that its body appends to. All threads
    wait at a barrier before each test and before each iteration.
    """

    counter: str
    trips: str | None
    keep_going: str | None
    body: Stmt
    count: arith.Expr | None = None  # of iterations, where sizes tell it: for estimates only


@node
class Bind(Stmt):
    """symbol := buffer[index]; valid from here to the end of the enclosing sequence."""

    symbol: str
    buffer: str
    index: int = 0
    origin: str = field(default="", compare=False)


@node
class Reserve(Stmt):
    """Grow the arena to at least this size, through the allocation service; content is lost."""

    arena: str
    size_bytes: arith.Expr


@node
class Append(Stmt):
    """Add `src` as one more row at the end of the DYNAMIC buffer `dst`."""

    dst: str
    src: str


@node
class Assign(Stmt):
    """The DYNAMIC buffer `dst` becomes a copy of `src`, whatever size it had. A loop carries a
    value of changing size in such a buffer: its shape is over symbols that each iteration binds."""

    dst: str
    src: str


@node
class Resize(Stmt):
    """Room in a DYNAMIC buffer for its shape at the sizes of now; content is lost."""

    buffer: str


@node
class Swap(Stmt):
    """Two DYNAMIC buffers exchange their memory: what an iteration made becomes what the next one
    is given, without a copy."""

    a: str
    b: str


@node
class Par(Stmt):
    """Independent branches, each run by its own subset of the threads."""

    branches: tuple[Stmt, ...]
    weights: tuple[int, ...]


@node
class HostStep(Stmt):
    """A step of the host (runtime/host_steps.py), done by thread 0 through the service table: it
    reads `args` and writes `results`. If its sizes depend on data it is two statements. The first
    runs it, keeps what it made under the name `keeps`, and writes `sizes`, (result, axis) each,
    into an i64 buffer; the second `takes` what was kept and writes it into the results."""

    name: str
    args: tuple[str | None, ...]  # None: an operand that is absent
    results: tuple[str, ...] = ()
    attrs: tuple[tuple[str, object], ...] = ()  # numbers, strings, None, and tuples of these
    keeps: str = ""
    takes: str = ""
    sizes: tuple[tuple[int, int], ...] = ()
    origin: str = field(default="", compare=False)

    @property
    def buffers(self) -> tuple[str, ...]:
        return (*(name for name in self.args if name is not None), *self.results)


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


class _WithMaps(Node):
    """Tables of a program by name, made once."""

    __slots__ = ("_buffer_map", "_kernel_map")
    buffers: tuple[Buffer, ...]
    kernels: tuple[tuple[str, Kernel], ...]
    _buffer_map: Mapping[str, Buffer]
    _kernel_map: Mapping[str, Kernel]

    @property
    def buffer_map(self) -> Mapping[str, Buffer]:
        if not hasattr(self, "_buffer_map"):
            object.__setattr__(self, "_buffer_map", {b.name: b for b in self.buffers})
        return self._buffer_map

    @property
    def kernel_map(self) -> Mapping[str, Kernel]:
        if not hasattr(self, "_kernel_map"):
            object.__setattr__(self, "_kernel_map", dict(self.kernels))
        return self._kernel_map


@node
class Program(_WithMaps):
    name: str = field(compare=False)
    symbols: tuple[Symbol, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[tuple[str, Kernel], ...]
    body: Stmt
    inputs: tuple[str, ...]  # buffer names, in the model's order
    outputs: tuple[str, ...]
    output_names: tuple[str, ...]  # the model's names for them; two may share one buffer
    state: tuple[tuple[str, str], ...] = ()
    arenas: tuple[Arena, ...] = ()
    is_planned: bool = False  # allocations and barriers are set: the verifier checks them
    growth: Growth | None = None  # states that gain rows in a run
    offsets: tuple[tuple[str, arith.Expr], ...] = ()  # of a dynamic memory plan: offsets.py
    bundles: tuple[Bundle, ...] = ()  # by the model's names of inputs and outputs


def seq(*stmts: Stmt | None) -> Stmt:
    """A flattened sequence; a single statement is returned as it is."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


__all__ = [name for name in dir() if not name.startswith("_")] + ["replace"]
