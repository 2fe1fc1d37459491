"""The invariants of the loop IR. In: a kernel. Out: nothing, or `IngotError("bad-loops")` with the
statement that violates an invariant and why. Run by the pipeline after every stage that makes
kernels.

Invariants of names and scopes are here; those of types are in `verify_values`. Undecidable
properties (an index is in range, instances are independent) are not checked here but by the
interpreter and the schedule's checks. `HOOKS` run on every kernel that passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import assert_never

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, LoopKind, Stmt
from ingot.loops.verify_values import ValueVerifier
from ingot.support.stack import segmented

HOOKS: list[Callable[[ir.Kernel], None]] = []


def verify(kernel: ir.Kernel) -> None:
    """Raise IngotError("bad-loops") unless the kernel satisfies every invariant."""
    _Verifier(kernel).check()
    for hook in HOOKS:
        hook(kernel)


class _Verifier(ValueVerifier):
    """Walks the statements once, tracking the names in scope."""

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
        self.require(ir.is_name(name), f"{name!r} is not a valid name of a {what}")
        unique = name not in self.taken
        self.require(unique, f"the name {name} is bound twice: names are unique within a kernel")
        self.taken.add(name)

    @contextmanager
    def scope(self):
        """Names bound inside are out of scope after it."""
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
        self.require(fits, f"size {size.name} has an empty range: {size.low} … {size.high}")

    def buffer(self, buffer: ir.Buffer) -> None:
        for dim in buffer.shape:
            self.index(dim)
            number = arith.as_int(dim)
            negative = number is not None and number < 0
            self.require(not negative, f"buffer {buffer.name} has a negative extent")
            self.require(not visit.opaque_values(dim), f"{buffer.name}'s shape depends on data")
        self.require(bool(buffer.scope), f"buffer {buffer.name} has no memory scope")

    # --- statements ---

    @segmented
    def stmt(self, s: Stmt) -> None:
        with self.scope():
            while isinstance(s, ir.Let | ir.Alloc):  # not recursive: chains are long
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
                self.require(bool(scope), "a sync has no thread scope")
            case ir.CopyAsync(dst=dst, src=src):
                self.copy(dst, src)
            case ir.Wait(token=token):
                self.require(token in self.tokens, f"no asynchronous copy has the token {token!r}")
            case ir.Prefetch(box=box):
                self.box(box, is_hint=True)
            case ir.Fail(values=values):
                self.fail_values(values)
            case ir.Let() | ir.Alloc():
                self.stmt(s)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def guarded(self, s: Stmt) -> None:
        """Statements that may be skipped: a constant index out of range is legal in them."""
        before, self.may_be_skipped = self.may_be_skipped, True
        self.stmt(s)
        self.may_be_skipped = before

    def loop(self, s: ir.For) -> None:
        self.index(s.start)
        self.index(s.stop)
        self.annotations(s.annotations)
        parallel = s.kind is LoopKind.PARALLEL
        self.require(
            not (parallel and self.in_parallel),
            f"the parallel loop {s.var} is inside another: parallel loops do not nest",
        )
        tagged = bool(s.tag) == (s.kind is LoopKind.BOUND)
        self.require(tagged, f"loop {s.var}: bound loops, and only these, have a tag")
        self.declare(s.var, "loop")
        before, self.in_parallel = self.in_parallel, self.in_parallel or parallel
        self.variables.add(s.var)
        self.stmt(s.body)
        self.in_parallel = before

    def block(self, s: ir.Block) -> None:
        self.annotations(s.annotations)
        for axis in s.axes:
            self.index(axis.extent)
            self.index(axis.binding)
        reduces = {axis.var for axis in s.axes if axis.kind is AxisKind.REDUCE}
        accumulates = any(name == ir.ACCUMULATES for name, _ in s.annotations)
        self.require(
            not reduces or s.init is not None or accumulates,
            f"block {s.name} reduces but has no init",
            why=f"it needs one, or the annotation {ir.ACCUMULATES!r} if another block initialises",
        )
        for axis in s.axes:
            self.declare(axis.var, "axis")
        axes = {axis.var for axis in s.axes}
        if s.where is not None:  # it may use outer loops as well as axes
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
        """A block may use its axes, the sizes and the buffers: nothing else from outside."""
        self.hidden |= (self.variables | set(self.lets)) - self.sizes
        self.hidden -= axes
        self.variables = set(self.sizes) | axes
        self.lets = {}

    def call(self, s: ir.Call) -> None:
        meaning = s.instruction.meaning
        _Verifier(meaning).check()
        needed, given = len(meaning.params), len(s.args)
        self.require(needed == given, f"{s.instruction.name} takes {needed} boxes, not {given}")
        for param, box in zip(meaning.params, s.args):
            self.box(box)
            same = param.dtype is box.buffer.dtype
            self.require(same, f"{box.buffer.name} is {box.buffer.dtype}, not {param.dtype}")
            fits = _fits(box.extents, param.shape)
            self.require(
                fits, f"the box of {box.buffer.name} does not have the shape of {param.name}"
            )

    def copy(self, dst: ir.Slice, src: ir.Slice) -> None:
        self.box(dst)
        self.box(src)
        same = dst.buffer.dtype is src.buffer.dtype
        self.require(same, "source and destination of a copy differ in type")
        self.require(
            _fits(dst.extents, src.extents), "source and destination of a copy differ in shape"
        )

    def annotations(self, annotations: ir.Annotations) -> None:
        names = [name for name, _ in annotations]
        self.require(len(set(names)) == len(names), "two annotations have the same name")
        for name, item in annotations:
            self.require(
                _is_annotation(item), f"annotation {name} holds {item!r}, which has no text form"
            )
            outside = _annotation_vars(item) - self.sizes
            self.require(not outside, f"annotation {name} uses {outside}, which are not sizes")


def _fits(a: Sequence[arith.Expr], b: Sequence[arith.Expr]) -> bool:
    """Whether two shapes may agree, ignoring extents of 1; dynamic shapes are not checked."""
    left, right = _numbers(a), _numbers(b)
    if None in left or None in right:
        return True
    return [n for n in left if n != 1] == [n for n in right if n != 1]


def _numbers(shape: Iterable[arith.Expr]) -> list[int | None]:
    return [arith.as_int(dim) for dim in shape]


def _annotation_vars(item: object) -> set[str]:
    """Rewrites do not change annotations, so their expressions may use sizes only."""
    if isinstance(item, tuple):
        return set().union(*map(_annotation_vars, item))
    return visit.index_vars(item) if isinstance(item, arith.Expr) else set()


def _is_annotation(item: object) -> bool:
    if isinstance(item, tuple):
        return all(_is_annotation(x) for x in item)
    return item is None or isinstance(item, bool | int | float | str | DType | arith.Expr)
