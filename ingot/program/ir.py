"""The grammar of the linear IR. Every worker thread runs the whole program, on its share of each
launch.

    program ::= Program(name, symbols, buffers, kernels, body, inputs, outputs, state)
    stmt    ::= Launch(kernel, args, sizes, extent, parts) | Barrier() | Copy(dst, src)
              | If(flag, then, orelse) | Loop(counter, trips, keep_going, body)
              | Bind(symbol, buffer, index) | Reserve(arena, size_bytes) | Append(dst, src)
              | Par(branches) | HostStep(name, args) | Seq(stmts)

A Launch splits 0 … extent-1 of the kernel's parallel loop evenly over the threads; each share is
cut into parts, and a thread that has done its own takes what is left of the others'. A kernel
without a parallel loop has extent 1 and runs on thread 0. Flags, trip counts and bound symbols are
read by all threads, so a barrier stands between their writer and the statement. Before planning,
buffers have no place and there are no barriers or reservations; `plan` adds both and `verify`
recomputes the need. The back end chooses the parts.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.ir import ConstRef
from ingot.graph.types import Symbol
from ingot.loops.ir import Kernel
from ingot.support.node import Node, node


class Storage(Enum):
    """Who owns the bytes."""

    INPUT = "input"  # the caller's array, read only
    OUTPUT = "output"  # the caller's array, or one the runtime made for them
    STATE = "state"  # the caller's array, read and then written in place
    CONSTANT = "constant"  # the constant blob
    TEMP = "temp"  # an arena
    DYNAMIC = "dynamic"  # its own allocation, grown while running: loop-collected results


@node
class Place(Node):
    """Where a planned buffer lies: an arena, and a byte offset in it."""

    arena: str
    offset: arith.Expr


@node
class Buffer(Node):
    name: str
    dtype: DType
    shape: tuple[arith.Expr, ...]
    storage: Storage
    constant: ConstRef | None = None
    place: Place | None = None
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


MAX_PARTS = 64  # what the shared word of a thread has room to count, and more than pays


@node
class Launch(Stmt):
    """`args` are buffer names, one for each parameter; `sizes` the kernel's symbolic sizes."""

    kernel: str
    args: tuple[str, ...]
    sizes: tuple[arith.Expr, ...] = ()
    extent: arith.Expr = arith.Const(1)
    parts: int = 1  # of a thread's share: 1 to MAX_PARTS
    origin: str = field(default="", compare=False)


@node
class Barrier(Stmt):
    """All threads have come here before any goes on."""


@node
class Copy(Stmt):
    """dst[:] = src, bytes as they are; between devices where the spaces differ."""

    dst: str
    src: str


@node
class If(Stmt):
    """`flag` is a bool buffer of one element."""

    flag: str
    then: Stmt
    orelse: Stmt


@node
class Loop(Stmt):
    """While trips (if any) are left and `keep_going` (if any) is true: body, then count up.

    `counter` is an i64 buffer of one element that holds the number of the iteration, and after the
    loop that of iterations done. Entering the loop empties the buffers its body appends to. All
    threads meet before each test and again before each turn.
    """

    counter: str
    trips: str | None
    keep_going: str | None
    body: Stmt


@node
class Bind(Stmt):
    """symbol := buffer[index]; in force from here to the end of the enclosing sequence's run."""

    symbol: str
    buffer: str
    index: int = 0
    origin: str = field(default="", compare=False)


@node
class Reserve(Stmt):
    """Make the arena at least that large, through the allocation service; old content is gone."""

    arena: str
    size_bytes: arith.Expr


@node
class Append(Stmt):
    """Add `src` as one more row at the end of the DYNAMIC buffer `dst`."""

    dst: str
    src: str


@node
class Par(Stmt):
    """Independent branches, each run by its own subset of the threads."""

    branches: tuple[Stmt, ...]
    weights: tuple[int, ...]


@node
class HostStep(Stmt):
    """A step done by the host through the service table, on thread 0."""

    name: str
    args: tuple[str, ...]


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@node
class Program(Node):
    name: str = field(compare=False)
    symbols: tuple[Symbol, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[tuple[str, Kernel], ...]
    body: Stmt
    inputs: tuple[str, ...]  # buffer names, in the model's order
    outputs: tuple[str, ...]
    output_names: tuple[str, ...]  # what the model calls them; two may lie in one buffer
    state: tuple[tuple[str, str], ...] = ()
    arenas: tuple[Arena, ...] = ()
    is_planned: bool = False  # places and barriers are in: the verifier holds it to them

    @property
    def buffer_map(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @property
    def kernel_map(self) -> dict[str, Kernel]:
        return dict(self.kernels)


def seq(*stmts: Stmt | None) -> Stmt:
    """A sequence, flattened; one statement stays itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


__all__ = [name for name in dir() if not name.startswith("_")] + ["replace"]
