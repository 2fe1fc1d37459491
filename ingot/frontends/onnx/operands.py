"""What an ONNX name stands for: a tensor, a sequence or an optional, all made of graph values.

The graph IR has tensors only. A sequence is a list of values where its length is known when
importing (`SequenceList`), else two tensors (`Ragged`): its elements one after the other, and their
shapes. An optional is a flag and its content. `parts` gives the values that an operand is made of
and `rebuilt` makes the same kind of operand of others, so that captures, sub-graphs and graph
outputs handle every kind alike. Where two control-flow paths meet, `joined` is the kind that both
can be converted to. Used by graph_walk and the converters of control flow, sequences and optionals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import HasBuilder, reshape
from ingot.graph.ir import Value
from ingot.graph.types import Dim, TensorType
from ingot.support.errors import IngotError

ABSENT = -1  # in `Ragged.shapes`: an element of lower rank does not have this axis


@dataclass(frozen=True)
class SequenceList:
    """A sequence with a known number of elements; `dtype` is their type, also if there is none."""

    items: tuple[Value, ...]
    dtype: DType


@dataclass(frozen=True)
class Ragged:
    """`data` T[total] has the elements one after the other, `shapes` i64[count, rank] their shapes.
    If `is_mixed`, ranks may differ: a shape begins with an `ABSENT` for each axis it lacks."""

    data: Value
    shapes: Value
    is_mixed: bool = False

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    @property
    def count(self) -> Dim:
        return self.shapes.shape[0]

    @property
    def rank(self) -> int:
        rank = arith.as_int(self.shapes.shape[1])
        assert rank is not None
        return rank


@dataclass(frozen=True)
class OptionalValue:
    """`flag` says whether there is an element: a bool scalar, or known when importing. Without one,
    `content` is a placeholder, or None where its type is not known."""

    flag: Value | bool
    content: Value | SequenceList | Ragged | None


AnySequence = SequenceList | Ragged
Operand = Value | SequenceList | Ragged | OptionalValue


def parts(x: Operand | None) -> tuple[Value, ...]:
    match x:
        case SequenceList(items=items):
            return items
        case Ragged():
            return (x.data, x.shapes)
        case OptionalValue():
            flag = (x.flag,) if isinstance(x.flag, Value) else ()
            return (*flag, *parts(x.content))
    return () if x is None else (x,)


def rebuilt(x: Operand, values: Iterator[Value]) -> Operand:
    """An operand of the same kind as x, whose parts are the next of these values."""
    match x:
        case SequenceList():
            return SequenceList(tuple(next(values) for _ in x.items), x.dtype)
        case Ragged():
            return Ragged(next(values), next(values), x.is_mixed)
        case OptionalValue():
            flag = next(values) if isinstance(x.flag, Value) else x.flag
            content = None if x.content is None else rebuilt(x.content, values)
            assert not isinstance(content, OptionalValue)
            return OptionalValue(flag, content)
    return next(values)


def mapped(x: Operand, function: Callable[[Value], Value]) -> Operand:
    return function(x) if isinstance(x, Value) else rebuilt(x, map(function, parts(x)))


def part_names(x: Operand, name: str) -> list[str]:
    """Names for the parts of the operand that ONNX calls `name`."""
    match x:
        case SequenceList(items=items):
            return [f"{name}.{i}" for i in range(len(items))]
        case Ragged():
            return [f"{name}.data", f"{name}.shapes"]
        case OptionalValue():
            flag = [f"{name}.present"] if isinstance(x.flag, Value) else []
            return flag + ([] if x.content is None else part_names(x.content, name))
    return [name]


def described(x: Operand) -> str:
    match x:
        case Value():
            return f"a tensor of type {x.type}"
        case OptionalValue():
            return "an optional"
    return f"a sequence of {x.dtype} tensors"


# --- kinds, and conversion to one ---------------------------------------------------------------


@dataclass(frozen=True)
class SequenceKind:
    """Of a Ragged. `rank` is None if no element is known to be in it."""

    dtype: DType
    rank: int | None
    is_mixed: bool = False


@dataclass(frozen=True)
class OptionalKind:
    content: TensorType | SequenceKind | None


OperandKind = TensorType | SequenceKind | OptionalKind


def kind_of(x: Operand) -> OperandKind:
    match x:
        case SequenceList():
            ranks = {item.tensor.rank for item in x.items}
            return SequenceKind(x.dtype, max(ranks, default=None), len(ranks) > 1)
        case Ragged():
            return SequenceKind(x.dtype, x.rank, x.is_mixed)
        case OptionalValue():
            kind = None if x.content is None else kind_of(x.content)
            assert not isinstance(kind, OptionalKind)
            return OptionalKind(kind)
    return x.type


def joined(a: OperandKind, b: OperandKind) -> OperandKind:
    """The kind that both convert to. Of two tensors it is the first: their sizes are compared
    elsewhere."""
    match a, b:
        case SequenceKind(), SequenceKind():
            if a.dtype is not b.dtype:
                raise _mismatch(f"sequences of {a.dtype} and of {b.dtype}")
            ranks = [r for r in (a.rank, b.rank) if r is not None]
            is_mixed = a.is_mixed or b.is_mixed or len(set(ranks)) > 1
            return SequenceKind(a.dtype, max(ranks, default=None), is_mixed)
        case OptionalKind(content=x), OptionalKind(content=y):
            return OptionalKind(y if x is None else x if y is None else _content(joined(x, y)))
        case OptionalKind(), _:
            return joined(a, OptionalKind(_content(b)))
        case _, OptionalKind():
            return joined(OptionalKind(_content(a)), b)
        case TensorType(), TensorType():
            return a
    raise _mismatch("a tensor and a sequence")


def _content(kind: OperandKind) -> TensorType | SequenceKind:
    assert not isinstance(kind, OptionalKind)
    return kind


def _mismatch(what: str) -> IngotError:
    return IngotError("bad-type", f"{what} meet in one value")


def converted(ctx: HasBuilder, x: Operand, kind: OperandKind) -> Operand:
    """x as an operand of this kind, of which `joined` says that it can be."""
    match kind:
        case SequenceKind():
            if isinstance(x, OptionalValue):  # its content, where one is needed
                x = SequenceList((), kind.dtype) if x.content is None else x.content
            assert not isinstance(x, Value | OptionalValue)
            return as_ragged(ctx, x, kind)
        case OptionalKind(content=content):
            return _as_optional(ctx, x, content)
    return x


def as_ragged(ctx: HasBuilder, x: AnySequence, kind: SequenceKind | None = None) -> Ragged:
    own = kind_of(x)
    assert isinstance(own, SequenceKind)
    wanted = own if kind is None else kind
    rank = wanted.rank or 0
    ragged = x if isinstance(x, Ragged) else _packed(ctx, x, rank)
    missing = rank - ragged.rank
    if missing > 0:
        none = ctx.g.constant(np.array(ABSENT, np.int64))
        front = ctx.g.add("expand", [none], shape=(ragged.count, missing))
        shapes = ctx.g.add("concat", [front, ragged.shapes], axis=1)
        ragged = Ragged(ragged.data, shapes)
    return Ragged(ragged.data, ragged.shapes, wanted.is_mixed)


def _packed(ctx: HasBuilder, x: SequenceList, rank: int) -> Ragged:
    flat = [reshape(ctx, item, (item.tensor.numel,)) for item in x.items]
    none = arith.Const(ABSENT)
    rows = [(*(none,) * (rank - item.tensor.rank), *item.shape) for item in x.items]
    sizes = tuple(size for row in rows for size in row)
    shapes = ctx.g.add("index_tensor", [], values=sizes, shape=(len(x.items), rank))
    if not flat:
        return Ragged(ctx.g.constant(np.zeros(0, x.dtype.numpy)), shapes)
    return Ragged(flat[0] if len(flat) == 1 else ctx.g.add("concat", flat, axis=0), shapes)


def _as_optional(
    ctx: HasBuilder, x: Operand, kind: TensorType | SequenceKind | None
) -> OptionalValue:
    given = x if isinstance(x, OptionalValue) else OptionalValue(True, x)
    flag = given.flag
    if isinstance(flag, bool):
        flag = ctx.g.constant(np.array(flag))
    content = given.content
    match kind:
        case SequenceKind():
            assert not isinstance(content, Value)
            content = as_ragged(ctx, content or SequenceList((), kind.dtype), kind)
        case TensorType():
            content = placeholder(ctx, kind) if content is None else content
    return OptionalValue(flag, content)


def placeholder(ctx: HasBuilder, type: TensorType) -> Value:
    """A tensor that is never read, of as few elements as the type allows."""
    shape = tuple(d if arith.as_int(d) is not None else arith.Const(0) for d in type.shape)
    zero = ctx.g.constant(np.zeros((), type.dtype.numpy))
    return ctx.g.add("expand", [zero], shape=shape)


def flag_value(ctx: HasBuilder, x: OptionalValue) -> Value:
    return ctx.g.constant(np.array(x.flag)) if isinstance(x.flag, bool) else x.flag


def all_parts(operands: Sequence[Operand]) -> list[Value]:
    return [value for x in operands for value in parts(x)]


def all_rebuilt(operands: Sequence[Operand], values: Sequence[Value]) -> list[Operand]:
    rest = iter(values)
    return [rebuilt(x, rest) for x in operands]


FLAG = TensorType(dtypes.bool_, ())
