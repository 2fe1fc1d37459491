"""The grammar of the loop IR on one page: the node classes that all passes match on.

    kernel ::= Kernel(name, params: Buffer*, sizes: Size*, body: stmt, plans, remarks)
    stmt   ::= For(var, start, stop, body, kind, tag) | While(cond, body) | If(cond, then, orelse)
             | Let(name, value, body) | Alloc(buffer, body) | Store(buffer, indices, value, ...)
             | Block(name, axes, body, init, where) | Seq(stmts) | Call(instruction, args)
             | Sync(scope) | CopyAsync(dst, src, token) | Wait(token) | Prefetch(box, writes)
             | Fail(reason, values)
    expr   ::= Lit | Index | Ref | Unary | Binary | Compare | Math | Select | Cast | Bitcast | Fma
             | Load | Ramp | Broadcast | Lanes | Shuffle | LaneReduce

Indices of a Load or Store are `arith` integer expressions. `arith.Opaque(expr)` puts a value into
an index, and `Index` makes a value of an index. The sum types are closed: every consumer matches
exhaustively and ends in `assert_never`. `docs/loops.md` gives the semantics of each node and
`loops/interp.py` executes them. loops/values.py defines buffers and expressions; this file
re-exports them.
"""

from __future__ import annotations

import itertools
from dataclasses import field, replace
from enum import Enum
from typing import Any

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.loops.values import *  # noqa: F403  one grammar in two files: this one exports all names
from ingot.loops.values import Buffer, Expr, IndexLike, Size, Slice, index_of
from ingot.support.node import Node, node

_ids = itertools.count(1)


def fresh_id() -> int:
    """An identity for a loop or block: schedule handles hold it; equality ignores it."""
    return next(_ids)


# --- statements ---------------------------------------------------------------------------------


class Stmt(Node):
    __slots__ = ()


class LoopKind(Enum):
    SERIAL = "serial"
    PARALLEL = "parallel"  # iterations are independent and run on several threads
    VECTOR = "vector"  # iterations become vector lanes
    UNROLL = "unroll"  # fully unrolled
    BOUND = "bound"  # to a GPU index: `tag` names it (blockIdx.x, threadIdx.y, …)


Annotations = tuple[tuple[str, Any], ...]
ACCUMULATES = "accumulates"  # annotation of a reduce block whose init is in another block
K_UNROLL = "k_unroll"  # annotation of a serial loop: the unroll factor, applied by LLVM
MASKED = ("tail", "mask")  # annotation of a loop: guards become masks, not branches


@node
class For(Stmt):
    """`body` for var = start … stop-1; no iteration if stop <= start."""

    var: str
    start: arith.Expr
    stop: arith.Expr
    body: Stmt
    kind: LoopKind = LoopKind.SERIAL
    tag: str = ""
    annotations: Annotations = ()
    uid: int = field(default_factory=fresh_id, compare=False, repr=False)

    @property
    def extent(self) -> arith.Expr:
        return self.stop - self.start


@node
class While(Stmt):
    cond: Expr
    body: Stmt


@node
class If(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """`name` is `value`, evaluated once, within `body`."""

    name: str
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """`buffer` exists within `body`; its content is undefined until stored."""

    buffer: Buffer
    body: Stmt


@node
class Store(Stmt):
    """Store `value.lanes` elements from `indices` on, `stride` apart, where `mask` is true."""

    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    value: Expr
    stride: arith.Expr = arith.Const(1)
    mask: Expr | None = None


class AxisKind(Enum):
    SPATIAL = "spatial"  # instances are independent
    REDUCE = "reduce"  # instances combine in any order
    ORDERED = "ordered"  # instances run in order (cumsum, recurrences)
    OPAQUE = "opaque"  # nothing is known (sort, NMS)


@node
class Axis(Node):
    """A block's iteration variable: its domain 0 … extent-1, and its value over the outer loops."""

    var: str
    kind: AxisKind
    extent: arith.Expr
    binding: arith.Expr


@node
class Block(Stmt):
    """One unit of computation (as in TensorIR): the body uses the axes and no outer loop.

    `init` runs before the body at the first instance of the reduce axes. `where` skips instances.
    """

    name: str
    axes: tuple[Axis, ...]
    body: Stmt
    init: Stmt | None = None
    where: Expr | None = None
    annotations: Annotations = ()
    uid: int = field(default_factory=fresh_id, compare=False, repr=False)


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@node
class Instruction(Node):
    """A machine instruction: its semantics as a kernel, and `emit`, its template for printers."""

    name: str
    meaning: Kernel
    emit: str = ""


@node
class Call(Stmt):
    """Execute an instruction on boxes of buffers."""

    instruction: Instruction
    args: tuple[Slice, ...]


@node
class Sync(Stmt):
    """A barrier for all threads of `scope` ("threads", "shared", …)."""

    scope: str


@node
class CopyAsync(Stmt):
    """Start an asynchronous copy; Wait(token) completes it."""

    dst: Slice
    src: Slice
    token: str


@node
class Wait(Stmt):
    token: str


@node
class Prefetch(Stmt):
    """A cache prefetch of a box that will be read (or written) soon. Results do not change."""

    box: Slice
    writes: bool = False


@node
class Fail(Stmt):
    """Leave the kernel with an error: `reason`, and up to two integers for the message."""

    reason: str
    values: tuple[Expr, ...] = ()


SERIAL_LOOPS, SCALAR_CODE, STEP, IN_FLOAT = "serial", "scalar", "step", "float"


@node
class Remark(Node):
    """Why a block is serial or scalar, why a step of its schedule was refused, or why a contraction
    of quantised tensors is in float. A remark on the whole kernel has no block."""

    block: str
    about: str  # SERIAL_LOOPS, SCALAR_CODE, STEP or IN_FLOAT
    why: str


@node
class Kernel(Node):
    """One function over buffers. Parameters are global; the body determines which are written.
    `plans` of contraction blocks, by name, are what the schedule rules apply."""

    name: str = field(compare=False)
    params: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    body: Stmt
    origin: str = field(default="", compare=False)
    family: str = field(default="", compare=False)  # of the anchor: selects the schedule rule
    plans: tuple[tuple[str, ContractionPlan], ...] = field(default=(), compare=False)
    remarks: tuple[Remark, ...] = field(default=(), compare=False)


def seq(*stmts: Stmt | None) -> Stmt:
    """A flattened sequence; a single statement is returned as it is."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def serial(var: str, extent: IndexLike, body: Stmt) -> For:
    return For(var, arith.Const(0), index_of(extent), body)


__all__ = [name for name in dir() if not name.startswith("_")] + ["replace"]
