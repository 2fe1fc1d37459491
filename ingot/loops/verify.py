"""The laws of the loop IR. In: a kernel. Out: nothing, or `IngotError("bad-loops")` with the
statement that breaks a law and why. Run by the pipeline after every stage that makes kernels.

Laws about names and scopes are here; those about types are in `verify_values`. What cannot be
decided (that an index is in range, that instances are independent) is no law here: the interpreter
and the schedule's checks see to it. `HOOKS` run on every kernel that passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import assert_never

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, LoopKind, Stmt
from ingot.loops.verify_values import ValueLaws

HOOKS: list[Callable[[ir.Kernel], None]] = []


def verify(kernel: ir.Kernel) -> None:
    """Raise IngotError("bad-loops") unless the kernel obeys every law."""
    _Laws(kernel).check()
    for hook in HOOKS:
        hook(kernel)


class _Laws(ValueLaws):
    """Walks the statements once, with the names in sight."""

    def __init__(self, kernel: ir.Kernel):
        super().__init__(kernel)
        self.taken: set[str] = set()
        self.in_parallel = False
        copies = (s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.CopyAsync))
        self.tokens = {s.token for s in copies}

    def check(self) -> None:
        for size in self.kernel.sizes:
            self.size(size)
        for param in self.kernel.params:
            self.buffer(param)
            self.declare(param.name, "buffer")
            self.buffers[param.name] = param
        self.stmt(self.kernel.body)

    # --- names ---

    def declare(self, name: str, what: str) -> None:
        self.require(ir.is_name(name), f"{name!r} cannot be the name of a {what}")
        unique = name not in self.taken
        self.require(unique, f"the name {name} is given twice: names are unique within a kernel")
        self.taken.add(name)

    @contextmanager
    def scope(self):
        """Names bound inside are forgotten outside."""
        before = self.variables, self.lets, self.buffers, self.hidden
        self.variables, self.lets, self.buffers, self.hidden = (
            set(self.variables), dict(self.lets), dict(self.buffers), set(self.hidden),
        )  # fmt: skip
        yield
        self.variables, self.lets, self.buffers, self.hidden = before

    def size(self, size: ir.Size) -> None:
        self.declare(size.name, "size")
        self.variables.add(size.name)
        self.sizes.add(size.name)
        self.require(size.divisor >= 1, f"size {size.name} has divisor {size.divisor}")
        fits = size.low >= 0 and (size.high is None or size.low <= size.high)
        self.require(fits, f"size {size.name} has no value: its range is {size.low} … {size.high}")

    def buffer(self, buffer: ir.Buffer) -> None:
        for dim in buffer.shape:
            self.index(dim)
            number = arith.as_int(dim)
            negative = number is not None and number < 0
            self.require(not negative, f"buffer {buffer.name} has a negative extent")
            self.require(not visit.opaque_values(dim), f"{buffer.name}'s shape depends on data")
        self.require(bool(buffer.scope), f"buffer {buffer.name} has no memory scope")

    # --- statements ---

    def stmt(self, s: Stmt) -> None:
        with self.scope():
            while isinstance(s, ir.Let | ir.Alloc):  # a loop, not recursion: chains are long
                self.current = s
                self.bind(s)
                s = s.body
            self.current = s
            self.inner(s)

    def bind(self, s: ir.Let | ir.Alloc) -> None:
        if isinstance(s, ir.Let):
            self.value(s.value)
            self.declare(s.name, "let")
            self.lets[s.name] = (s.value.dtype, s.value.lanes)
        else:
            self.buffer(s.buffer)
            self.declare(s.buffer.name, "buffer")
            self.buffers[s.buffer.name] = s.buffer

    def inner(self, s: Stmt) -> None:
        match s:
            case ir.For():
                self.loop(s)
            case ir.While(cond=cond, body=body):
                self.condition(cond, "a while loop")
                self.guarded(body)
            case ir.If(cond=cond, then=then, orelse=orelse):
                self.condition(cond, "an if")
                self.guarded(then)
                if orelse is not None:
                    self.guarded(orelse)
            case ir.Store():
                self.store(s)
            case ir.Block():
                self.block(s)
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    self.stmt(item)
            case ir.Call():
                self.call(s)
            case ir.Sync(scope=scope):
                self.require(bool(scope), "a sync names the scope whose threads meet")
            case ir.CopyAsync(dst=dst, src=src):
                self.copy(dst, src)
            case ir.Wait(token=token):
                self.require(token in self.tokens, f"no copy has the token {token!r}")
            case ir.Prefetch(box=box):
                self.box(box, is_hint=True)
            case ir.Fail(values=values):
                self.fail_values(values)
            case ir.Let() | ir.Alloc():
                self.stmt(s)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def guarded(self, s: Stmt) -> None:
        """Statements that may not run: a constant index out of range is no error among them."""
        before, self.may_be_skipped = self.may_be_skipped, True
        self.stmt(s)
        self.may_be_skipped = before

    def loop(self, s: ir.For) -> None:
        self.index(s.start)
        self.index(s.stop)
        self.notes(s.annotations)
        parallel = s.kind is LoopKind.PARALLEL
        self.require(
            not (parallel and self.in_parallel),
            f"the parallel loop {s.var} is inside another: threads are shared out once",
        )
        tagged = bool(s.tag) == (s.kind is LoopKind.BOUND)
        self.require(tagged, f"loop {s.var}: a bound loop has a tag, and no other kind has")
        self.declare(s.var, "loop")
        before, self.in_parallel = self.in_parallel, self.in_parallel or parallel
        self.variables.add(s.var)
        self.stmt(s.body)
        self.in_parallel = before

    def block(self, s: ir.Block) -> None:
        self.notes(s.annotations)
        for axis in s.axes:
            self.index(axis.extent)
            self.index(axis.binding)
        reduces = {axis.var for axis in s.axes if axis.kind is AxisKind.REDUCE}
        noted = any(name == ir.ACCUMULATES for name, _ in s.annotations)
        self.require(
            not reduces or s.init is not None or noted,
            f"block {s.name} reduces but has no init",
            why=f"without one it must say, by the note {ir.ACCUMULATES!r}, who initialises",
        )
        for axis in s.axes:
            self.declare(axis.var, "axis")
        axes = {axis.var for axis in s.axes}
        if s.where is not None:  # evaluated where the block stands: sees outer loops and axes
            self.variables |= axes
            self.condition(s.where, f"block {s.name}'s where")
            self.current = s
        skipped = self.may_be_skipped
        self.may_be_skipped = skipped or s.where is not None
        if s.init is not None:
            with self.scope():
                self.enter(axes - reduces)
                self.hidden |= reduces
                self.stmt(s.init)
        with self.scope():
            self.enter(axes)
            self.stmt(s.body)
        self.may_be_skipped = skipped

    def enter(self, axes: set[str]) -> None:
        """A block sees its axes, the sizes and the buffers: nothing else from outside."""
        self.hidden |= (self.variables | set(self.lets)) - self.sizes
        self.hidden -= axes
        self.variables = set(self.sizes) | axes
        self.lets = {}

    def call(self, s: ir.Call) -> None:
        meaning = s.instruction.meaning
        _Laws(meaning).check()
        needed, given = len(meaning.params), len(s.args)
        self.require(needed == given, f"{s.instruction.name} takes {needed} boxes, not {given}")
        for param, box in zip(meaning.params, s.args):
            self.box(box)
            same = param.dtype is box.buffer.dtype
            self.require(same, f"{box.buffer.name} is {box.buffer.dtype}, not {param.dtype}")
            fits = _fits(box.extents, param.shape)
            self.require(fits, f"the box of {box.buffer.name} has not the shape of {param.name}")

    def copy(self, dst: ir.Slice, src: ir.Slice) -> None:
        self.box(dst)
        self.box(src)
        same = dst.buffer.dtype is src.buffer.dtype
        self.require(same, "a copy does not convert: its sides have different types")
        self.require(_fits(dst.extents, src.extents), "the sides of a copy differ in shape")

    def notes(self, annotations: ir.Annotations) -> None:
        names = [name for name, _ in annotations]
        self.require(len(set(names)) == len(names), "an annotation is given twice")
        for name, item in annotations:
            self.require(
                _is_note(item), f"annotation {name} holds {item!r}, which has no text form"
            )
            outside = _note_vars(item) - self.sizes
            self.require(not outside, f"annotation {name} mentions {outside}: only sizes may be")


def _fits(a: Sequence[arith.Expr], b: Sequence[arith.Expr]) -> bool:
    """Whether two shapes may agree, extents of 1 aside; symbolic ones are taken on trust."""
    left, right = _numbers(a), _numbers(b)
    if None in left or None in right:
        return True
    return [n for n in left if n != 1] == [n for n in right if n != 1]


def _numbers(shape: Iterable[arith.Expr]) -> list[int | None]:
    return [arith.as_int(dim) for dim in shape]


def _note_vars(item: object) -> set[str]:
    """Rewrites do not look into notes, so a note's expression is over sizes only."""
    if isinstance(item, tuple):
        return set().union(*map(_note_vars, item))
    return visit.index_vars(item) if isinstance(item, arith.Expr) else set()


def _is_note(item: object) -> bool:
    if isinstance(item, tuple):
        return all(_is_note(part) for part in item)
    return item is None or isinstance(item, bool | int | float | str | DType | arith.Expr)
