"""The loop IR interpreter: slow, simple, numpy-backed. In: a kernel and arrays, written in place.
Out: nothing, or an `IngotError`. The reference for schedules, legalize and code generation.

It runs any kernel that `verify` accepts, before and after scheduling and legalize. The tree is
compiled once to Python closures over a frame (a list with a slot for each name), so that no node is
matched at run time. `interp_values` has the expressions and `numeric` the arithmetic. Iterations of
a parallel loop run in order, or in lockstep if the body has a Sync. Uninitialised memory holds NaN
or a poison pattern, and an access out of range raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import assert_never

import numpy as np

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.loops.interp_memory import (
    FlatArray,
    RunState,
    out_of_range,
    poisoned,
    read_box,
    write_box,
)
from ingot.loops.interp_values import STATE, Frame, Value, ValueCompiler
from ingot.loops.ir import LoopKind, Stmt
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

CompiledStmt = Callable[[Frame], None]
ThreadBody = Callable[[Frame], Iterator[None]]


def run(
    kernel: ir.Kernel, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None
) -> None:
    """Execute `kernel` on one array for each parameter; missing sizes are inferred from shapes."""
    program = _compiled(kernel)
    known = _sizes(kernel, arrays, dict(sizes or {}))
    with np.errstate(all="ignore"):
        _execute(program, kernel, arrays, known)


def _execute(
    program: _Program, kernel: ir.Kernel, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> None:
    frame: Frame = [None] * len(program.slots)
    frame[STATE] = RunState(kernel)
    for size in kernel.sizes:
        frame[program.slots[size.name]] = sizes[size.name]
    copies: list[tuple[np.ndarray, FlatArray]] = []
    for param, array in zip(kernel.params, arrays):
        memory = _argument(kernel, param, array, sizes)
        frame[program.slots[param.name]] = memory
        if (
            param.name in program.written
            and not np.shares_memory(memory.flat, array)
            and array.size
        ):
            copies.append((array, memory))
    program.body(frame)
    frame[STATE].finish()
    for array, memory in copies:
        array[...] = memory.flat.reshape(array.shape)


def _argument(
    kernel: ir.Kernel, param: ir.Buffer, array: np.ndarray, sizes: Mapping[str, int]
) -> FlatArray:
    shape = tuple(arith.evaluate(d, sizes) for d in param.shape)
    if array.dtype != param.dtype.numpy:
        what = f"{param.name} is {param.dtype}, the array given is {array.dtype}"
        raise IngotError("bad-input", what, where=kernel.name)
    # a legal kernel's buffers are flat: they accept any array of the same size
    if array.shape != shape and not (len(shape) == 1 and array.size == shape[0]):
        what = f"{param.name} has shape {shape}, the array given has {array.shape}"
        raise IngotError("bad-input", what, where=kernel.name)
    return FlatArray(np.ascontiguousarray(array).reshape(-1), shape)


def _sizes(
    kernel: ir.Kernel, arrays: Sequence[np.ndarray], known: dict[str, int]
) -> dict[str, int]:
    if len(arrays) != len(kernel.params):
        what = f"{len(kernel.params)} arrays are needed, {len(arrays)} were given"
        raise IngotError("bad-input", what, where=kernel.name)
    for param, array in zip(kernel.params, arrays):
        if array.ndim == param.rank:
            for dim, found in zip(param.shape, array.shape):
                if isinstance(dim, arith.Var):
                    known.setdefault(dim.name, found)
    for size in kernel.sizes:
        if size.name not in known:
            raise IngotError("bad-input", f"no value for size {size.name}", where=kernel.name)
        number = known[size.name]
        high = size.high if size.high is not None else number
        if not size.low <= number <= high or number % size.divisor:
            what = f"size {size.name} = {number} is outside its range or not divisible"
            raise IngotError("bad-input", what, where=kernel.name, why=f"declared: {size}")
    return known


class _Program(ValueCompiler):
    """A compiled kernel: a slot for each name, and the body as one closure."""

    def __init__(self, kernel: ir.Kernel):
        super().__init__()
        for name in (*(s.name for s in kernel.sizes), *(p.name for p in kernel.params)):
            self.slot(name)
        self.body = self.stmt(kernel.body)
        self.written = visit.written(kernel.body)

    # --- statements ---

    @segmented
    def stmt(self, s: Stmt) -> CompiledStmt:
        compiled = self.flat(s)
        if len(compiled) == 1:
            return compiled[0]

        def each(frame: Frame) -> None:
            for run_stmt in compiled:
                run_stmt(frame)

        return each

    def flat(self, s: Stmt) -> list[CompiledStmt]:
        """A statement as a list of closures: nested Seq, Let and Alloc are flattened."""
        found: list[CompiledStmt] = []
        rest = [s]
        while rest:
            item = rest.pop()
            match item:
                case ir.Seq(stmts=stmts):
                    rest.extend(reversed(stmts))
                case ir.Let() | ir.Alloc():
                    found.append(self.bind(item))
                    rest.append(item.body)
                case _:
                    found.append(self.single(item))
        return found

    def bind(self, s: ir.Let | ir.Alloc) -> CompiledStmt:
        if isinstance(s, ir.Let):
            slot, bound = self.slot(s.name), self.value(s.value)

            def let(frame: Frame) -> None:
                frame[slot] = bound(frame)

            return let
        slot, dims = self.slot(s.buffer.name), [self.index(d) for d in s.buffer.shape]
        dtype: DType = s.buffer.dtype

        def alloc(frame: Frame) -> None:
            frame[slot] = poisoned(dtype, tuple(d(frame) for d in dims))

        return alloc

    def single(self, s: Stmt) -> CompiledStmt:
        match s:
            case ir.For():
                return self.loop(s)
            case ir.While(cond=cond, body=body):
                test, inner = self.value(cond), self.stmt(body)

                def repeat(frame: Frame) -> None:
                    while test(frame):
                        inner(frame)

                return repeat
            case ir.If(cond=cond, then=then, orelse=orelse):
                return _branch(self.value(cond), self.stmt(then), self.stmt(orelse or ir.Seq(())))
            case ir.Store():
                return self.store(s)
            case ir.Block():
                return self.block(s)
            case ir.Call(instruction=instruction, args=args):
                return self.call(instruction, args)
            case ir.Sync() | ir.Prefetch():
                return lambda frame: None
            case ir.CopyAsync(dst=dst, src=src, token=token):
                source, target = self.box(src), self.box(dst)
                return lambda frame: frame[STATE].start(token, target(frame), source(frame))
            case ir.Wait(token=token):
                return lambda frame: frame[STATE].wait(token)
            case ir.Fail(reason=reason, values=values):
                return _fail(reason, [self.value(v) for v in values])
            case ir.Seq() | ir.Let() | ir.Alloc():
                return self.stmt(s)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def store(self, s: ir.Store) -> CompiledStmt:
        slot, value = self.slot(s.buffer.name), self.value(s.value)
        mask = None if s.mask is None else self.value(s.mask)
        if s.value.lanes > 1:
            positions = self.lanes(s, s.value.lanes)

            def wide(frame: Frame) -> None:
                lanes, chosen = value(frame), None if mask is None else mask(frame)
                kept = lanes if chosen is None else lanes[chosen]
                frame[slot].flat[positions(frame, chosen)] = kept

            return wide
        position = self.flat_index(s.buffer, s.indices)

        def one(frame: Frame) -> None:
            if mask is None or mask(frame):
                frame[slot].flat[position(frame)] = value(frame)

        return one

    def loop(self, s: ir.For) -> CompiledStmt:
        if _is_threads(s) and _has_sync(s.body):
            threads = self.lockstep(s)

            def together(frame: Frame) -> None:
                for _ in threads(frame):
                    pass

            return together
        start, stop, slot = self.index(s.start), self.index(s.stop), self.slot(s.var)
        body = self.stmt(s.body)

        def loop(frame: Frame) -> None:
            for i in range(start(frame), stop(frame)):
                frame[slot] = i
                body(frame)

        return loop

    def enter(self, s: ir.Block) -> Callable[[Frame], bool]:
        """Bind the axes; false if the block instance is skipped."""
        axes = [(self.slot(a.var), self.index(a.binding), self.index(a.extent)) for a in s.axes]
        where = None if s.where is None else self.value(s.where)

        def enter(frame: Frame) -> bool:
            for slot, binding, _ in axes:
                frame[slot] = binding(frame)
            if where is not None and not where(frame):
                return False
            for axis, (slot, _, extent) in zip(s.axes, axes):
                if not 0 <= frame[slot] < extent(frame):
                    what = f"axis {axis.var} of block {s.name} is {frame[slot]}, outside its extent"
                    raise IngotError("run-failed", what, where=frame[STATE].where)
            return True

        return enter

    def is_first(self, s: ir.Block) -> Callable[[Frame], bool]:
        """Whether an instance is the first of its reduction: every reduce axis is 0."""
        slots = [self.slot(a.var) for a in s.axes if a.kind is ir.AxisKind.REDUCE]
        return lambda frame: not any(frame[slot] for slot in slots)

    def block(self, s: ir.Block) -> CompiledStmt:
        enter, body = self.enter(s), self.stmt(s.body)
        init = None if s.init is None else self.stmt(s.init)
        first = self.is_first(s)

        def block(frame: Frame) -> None:
            if enter(frame):
                if init is not None and first(frame):
                    init(frame)
                body(frame)

        return block

    def box(self, box: ir.Slice) -> Callable[[Frame], tuple[FlatArray, tuple[slice, ...]]]:
        slot, name = self.slot(box.buffer.name), box.buffer.name
        dims = [(self.index(o), self.index(n)) for o, n in zip(box.offsets, box.extents)]

        def found(frame: Frame) -> tuple[FlatArray, tuple[slice, ...]]:
            ranges = [(o(frame), n(frame)) for o, n in dims]
            memory = frame[slot]
            for (offset, extent), dim in zip(ranges, memory.shape):
                if extent > 0 and not 0 <= offset <= offset + extent <= dim:
                    point = tuple(o for o, _ in ranges)
                    raise out_of_range(name, point, memory.shape, frame[STATE].where)
            return memory, tuple(slice(o, o + n) for o, n in ranges)

        return found

    def call(self, instruction: ir.Instruction, args: Sequence[ir.Slice]) -> CompiledStmt:
        """Run the meaning on copies of the boxes, then write back what it wrote."""
        meaning = instruction.meaning
        program, boxes = _compiled(meaning), [self.box(a) for a in args]
        stores = [param.name in program.written for param in meaning.params]

        def call(frame: Frame) -> None:
            regions = [box(frame) for box in boxes]
            arrays = [read_box(*region) for region in regions]
            sizes = _match(meaning, args, arrays)
            shaped = [
                a.reshape([arith.evaluate(d, sizes) for d in p.shape])
                for a, p in zip(arrays, meaning.params)
            ]
            _execute(program, meaning, shaped, sizes)
            for stored, region, array in zip(stores, regions, shaped):
                if stored:
                    write_box(*region, array)

        return call

    # --- lockstep: threads with a Sync ---

    def lockstep(self, s: Stmt) -> ThreadBody:
        """`s` as a generator that yields at each Sync."""
        if not _has_sync(s):
            plain = self.stmt(s)

            def run_through(frame: Frame) -> Iterator[None]:
                plain(frame)
                return
                yield

            return run_through
        match s:
            case ir.Sync():
                return _sync
            case ir.Seq(stmts=stmts):
                inner_stmts = [self.lockstep(x) for x in stmts]
                return lambda frame: (None for inner in inner_stmts for _ in inner(frame))
            case ir.Let() | ir.Alloc():
                bind, body = self.bind(s), self.lockstep(s.body)
                return lambda frame: _after(bind, body, frame)
            case ir.If(cond=cond, then=then, orelse=orelse):
                test, yes = self.value(cond), self.lockstep(then)
                no = self.lockstep(orelse or ir.Seq(()))
                return lambda frame: yes(frame) if test(frame) else no(frame)
            case ir.While(cond=cond, body=inner):
                test, again = self.value(cond), self.lockstep(inner)
                return lambda frame: _repeat(test, again, frame)
            case ir.Block():
                return self.lockstep_block(s)
            case ir.For():
                return self.lockstep_loop(s)
        raise AssertionError(f"no Sync can be inside {s}")

    def lockstep_block(self, s: ir.Block) -> ThreadBody:
        enter, first, body = self.enter(s), self.is_first(s), self.lockstep(s.body)
        init = self.lockstep(s.init or ir.Seq(()))

        def block(frame: Frame) -> Iterator[None]:
            if enter(frame):
                if first(frame):
                    yield from init(frame)
                yield from body(frame)

        return block

    def lockstep_loop(self, s: ir.For) -> ThreadBody:
        start, stop, slot = self.index(s.start), self.index(s.stop), self.slot(s.var)
        body, is_parallel = self.lockstep(s.body), _is_threads(s)

        def serial(frame: Frame) -> Iterator[None]:
            for i in range(start(frame), stop(frame)):
                frame[slot] = i
                yield from body(frame)

        def threads(frame: Frame) -> Iterator[None]:
            running = []
            for i in range(start(frame), stop(frame)):
                own = list(frame)
                own[slot] = i
                running.append(body(own))
            while running:
                running = [t for t in running if next(t, True) is None]
                if running:
                    yield

        return threads if is_parallel else serial


@lru_cache(maxsize=256)
def _compiled(kernel: ir.Kernel) -> _Program:
    return _Program(kernel)


def _match(
    meaning: ir.Kernel, args: Sequence[ir.Slice], arrays: Sequence[np.ndarray]
) -> dict[str, int]:
    """The sizes of an instruction, inferred from its boxes; dimensions of constant extent 1 may be
    missing or extra."""
    sizes: dict[str, int] = {}
    for param, box, array in zip(meaning.params, args, arrays):
        dims, found = param.shape, list(array.shape)
        if len(dims) != len(found):
            dims = tuple(d for d in dims if not arith.is_const(d, 1))
            found = [n for n, e in zip(found, box.extents) if not arith.is_const(e, 1)]
        for dim, extent in zip(dims, found):
            if isinstance(dim, arith.Var):
                sizes.setdefault(dim.name, extent)
    return sizes


def _branch(cond: Value, then: CompiledStmt, orelse: CompiledStmt) -> CompiledStmt:
    return lambda frame: then(frame) if cond(frame) else orelse(frame)


def _fail(reason: str, values: Sequence[Value]) -> CompiledStmt:
    def fail(frame: Frame) -> None:
        numbers = [int(v(frame)) for v in values]
        if "{0}" in reason:  # the reason has placeholders for the values
            what = reason.format(*numbers)
        else:
            what = f"{reason} ({', '.join(map(str, numbers))})" if numbers else reason
        raise IngotError("run-failed", what, where=frame[STATE].where)

    return fail


def _is_threads(s: ir.For) -> bool:
    return s.kind in (LoopKind.PARALLEL, LoopKind.BOUND)


def _has_sync(s: Stmt) -> bool:
    return any(isinstance(x, ir.Sync) for x in visit.walk_stmts(s))


def _sync(frame: Frame) -> Iterator[None]:
    yield


def _after(bind: CompiledStmt, body: ThreadBody, frame: Frame) -> Iterator[None]:
    bind(frame)
    yield from body(frame)


def _repeat(test: Value, again: ThreadBody, frame: Frame) -> Iterator[None]:
    while test(frame):
        yield from again(frame)
