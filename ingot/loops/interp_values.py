"""Index expressions and values → closures: the expression half of the interpreter.

In: `arith` and `ir` expressions. Out: functions of a frame, a list with a slot for each name; its
first slot holds the run's state. The base class of `interp`'s statement compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, assert_never

import numpy as np

from ingot.arith import expr as arith
from ingot.loops import ir, numeric
from ingot.loops.interp_memory import out_of_range
from ingot.loops.ir import Expr
from ingot.support.stack import on_new_stack, segmented

Frame = list[Any]
Value = Callable[[Frame], Any]
Number = Callable[[Frame], int]

STATE = 0  # the slot of the RunState
RUN_LEVELS = 64  # nested closures of one stack: the closure of a deeper value runs on its own
C = TypeVar("C", bound=Callable[[Frame], Any])


class ValueCompiler:
    """Compiles expressions; assigns a slot to each name."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {"": STATE}
        self.nesting = 0

    def slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    # --- indices ---

    @segmented
    def index(self, i: arith.Expr) -> Number:
        return self._nested(self._index, i)

    @segmented
    def value(self, e: Expr) -> Value:
        return self._nested(self._value, e)

    def _nested(self, compile_: Callable[[Any], C], e: Any) -> C:
        self.nesting += 1
        made = compile_(e)
        self.nesting -= 1
        return made if (self.nesting + 1) % RUN_LEVELS else on_new_stack(made)

    def _index(self, i: arith.Expr) -> Number:
        match i:
            case arith.Const(value=number):
                return lambda frame: number
            case arith.Var(name=name):
                slot = self.slot(name)
                return lambda frame: frame[slot]
            case arith.Opaque(payload=payload):
                load = self.value(payload)
                return lambda frame: int(load(frame))
            case arith.Binary(a=a, b=b):
                return _index_binary(arith.FOLD[type(i)], type(i), self.index(a), self.index(b))
        raise TypeError(f"not an index: {i!r}")

    def flat_index(self, buffer: ir.Buffer, indices: Sequence[arith.Expr]) -> Number:
        """The flat index of one element; an index out of range in any dimension raises."""
        slot, name = self.slot(buffer.name), buffer.name
        compiled = [self.index(i) for i in indices]
        if len(compiled) == 1:
            only = compiled[0]

            def one(frame: Frame) -> int:
                i = only(frame)
                if 0 <= i < frame[slot].shape[0]:
                    return i
                raise out_of_range(name, (i,), frame[slot].shape, frame[STATE].where)

            return one

        if len(compiled) == 2:
            row, column = compiled

            def two(frame: Frame) -> int:
                i, j = row(frame), column(frame)
                rows, columns = frame[slot].shape
                if 0 <= i < rows and 0 <= j < columns:
                    return i * columns + j
                raise out_of_range(name, (i, j), (rows, columns), frame[STATE].where)

            return two

        def many(frame: Frame) -> int:
            shape = frame[slot].shape
            position = 0
            for index, dim in zip(compiled, shape):
                i = index(frame)
                if not 0 <= i < dim:
                    point = tuple(p(frame) for p in compiled)
                    raise out_of_range(name, point, shape, frame[STATE].where)
                position = position * dim + i
            return position

        return many

    def lanes(
        self, x: ir.Load | ir.Store, width: int
    ) -> Callable[[Frame, np.ndarray | None], np.ndarray]:
        """The flat indices of a vector access, without the lanes whose mask is false."""
        slot, name = self.slot(x.buffer.name), x.buffer.name
        compiled = [self.index(i) for i in x.indices]
        stride = self.index(x.stride)
        lane = np.arange(width)

        def positions(frame: Frame, mask: np.ndarray | None) -> np.ndarray:
            memory = frame[slot]
            first = 0
            for index, dim in zip(compiled, memory.shape):
                first = first * dim + index(frame)
            found = first + stride(frame) * lane
            found = found if mask is None else found[mask]
            if len(found) and not (found.min() >= 0 and found.max() < len(memory.flat)):
                point = tuple(p(frame) for p in compiled)
                raise out_of_range(name, point, memory.shape, frame[STATE].where)
            return found

        return positions

    # --- values ---

    def _value(self, e: Expr) -> Value:
        match e:
            case ir.Lit(value=number, type=dtype):
                made = numeric.constant(number, dtype)
                return lambda frame: made
            case ir.Index(expr=i):
                compute = self.index(i)
                return lambda frame: np.int64(compute(frame))
            case ir.Ref(name=name):
                slot = self.slot(name)
                return lambda frame: frame[slot]
            case ir.Unary(op=op, a=a):
                return _apply1(numeric.unary(op, a.dtype), self.value(a))
            case ir.Binary(op=op, a=a, b=b):
                fn = numeric.binary(op, a.dtype, a.lanes)
                return _apply2(fn, self.value(a), self.value(b))
            case ir.Compare(op=op, a=a, b=b):
                fn = numeric.compare(op, a.dtype, a.lanes)
                return _apply2(fn, self.value(a), self.value(b))
            case ir.Math(fn=name, args=args):
                fn, values = numeric.math_function(name, e.dtype), [self.value(a) for a in args]
                return lambda frame: fn(*[v(frame) for v in values])
            case ir.Select():
                return self.select(e)
            case ir.Cast(a=a, type=dtype, mode=mode):
                return _apply1(numeric.cast(a.dtype, dtype, mode), self.value(a))
            case ir.Bitcast(a=a, type=dtype):
                return _apply1(numeric.bitcast(a.dtype, dtype), self.value(a))
            case ir.Fma(a=a, b=b, c=c):
                fn, values = numeric.fma(e.dtype), [self.value(x) for x in (a, b, c)]
                return lambda frame: fn(*[v(frame) for v in values])
            case ir.Load():
                return self.load(e)
            case ir.LaneReduce(op=op, a=a):
                whole = self.value(a)
                fn = numeric.lane_reduce(op, a.dtype)
                return whole if a.lanes == 1 else lambda frame: fn(whole(frame))
            case ir.Ramp() | ir.Broadcast() | ir.Lanes() | ir.Shuffle():
                return self.vector(e)
            case _:
                assert_never(e)  # type: ignore[arg-type]

    def select(self, e: ir.Select) -> Value:
        cond, a, b = self.value(e.cond), self.value(e.a), self.value(e.b)
        if e.cond.lanes > 1:
            return lambda frame: np.where(cond(frame), a(frame), b(frame))

        def choose(frame: Frame) -> Any:  # both sides are evaluated: the semantics of Select
            yes, no = a(frame), b(frame)
            return yes if cond(frame) else no

        return choose

    def vector(self, e: ir.Ramp | ir.Broadcast | ir.Lanes | ir.Shuffle) -> Value:
        match e:
            case ir.Ramp(base=base, stride=stride, width=width):
                lanes = _ramp(self.index(base), self.index(stride), np.arange(width))
            case ir.Broadcast(a=a, width=width):
                lanes = _apply1(partial(np.full, width, dtype=a.dtype.numpy), self.value(a))
            case ir.Lanes(items=items):
                lanes = _gather([self.value(x) for x in items], e.dtype.numpy)
            case ir.Shuffle(a=a, b=b, picks=picks):
                both = _apply2(_concatenated, self.value(a), self.value(b))
                lanes = _apply1(itemgetter(list(picks)), both)
        return lanes if e.lanes > 1 else lambda frame: lanes(frame)[0]

    def load(self, e: ir.Load) -> Value:
        slot = self.slot(e.buffer.name)
        if e.width > 1:
            return self.wide_load(e)
        position = self.flat_index(e.buffer, e.indices)
        if e.mask is None:
            return lambda frame: frame[slot].flat[position(frame)]
        mask, other = self.value(e.mask), self.other(e)
        return lambda frame: frame[slot].flat[position(frame)] if mask(frame) else other(frame)

    def wide_load(self, e: ir.Load) -> Value:
        slot, positions = self.slot(e.buffer.name), self.lanes(e, e.width)
        if e.mask is None:
            return lambda frame: frame[slot].flat[positions(frame, None)]
        mask, other = self.value(e.mask), self.other(e)

        def guarded(frame: Frame) -> np.ndarray:
            chosen, lanes = mask(frame), other(frame).copy()
            lanes[chosen] = frame[slot].flat[positions(frame, chosen)]
            return lanes

        return guarded

    def other(self, e: ir.Load) -> Value:
        """The value of a masked load where its mask is false: zero unless `other` is given."""
        if e.other is not None:
            return self.value(e.other)
        zero = np.zeros(e.width, e.dtype.numpy)
        return lambda frame: zero if e.width > 1 else zero[0]


def _index_binary(fold: Callable[[int, int], int], kind: type, a: Number, b: Number) -> Number:
    # special cases for speed: one call less for each Add and Mul
    if kind is arith.Add:
        return lambda frame: a(frame) + b(frame)
    if kind is arith.Mul:
        return lambda frame: a(frame) * b(frame)
    return lambda frame: fold(a(frame), b(frame))


def _apply1(fn: Callable[[Any], Any], a: Value) -> Value:
    return lambda frame: fn(a(frame))


def _apply2(fn: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
    return lambda frame: fn(a(frame), b(frame))


def _concatenated(a: Any, b: Any) -> np.ndarray:
    return np.concatenate([np.atleast_1d(a), np.atleast_1d(b)])


def _ramp(first: Number, step: Number, count: np.ndarray) -> Value:
    return lambda frame: np.int64(first(frame)) + np.int64(step(frame)) * count


def _gather(items: Sequence[Value], kind: np.dtype) -> Value:
    return lambda frame: np.array([item(frame) for item in items], kind)
