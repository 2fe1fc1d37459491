"""`interleave`: depth-to-space of several tensors (the phases of a transposed convolution).

In: tensors (batch, channels, *space), each with the outputs of some phases side by side as
channels. Out: one tensor with the phases interleaved in space. With a channels-last layout whole
rows of channels are contiguous. Called by ops/__init__.py; used by ops/conv_transpose.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.movement import SAMPLED, Point

Runs = Sequence[Sequence[int]]
ALL: Any = slice(None)


@register
class Interleave(OpDef):
    """y[n, c, p] = x_operand[n, slot · channels + c, (p + start) // stride].

    Along each axis the phase (p + start) % stride belongs to one of the axis' `runs`, whose lengths
    add up to the stride. The runs select the operand (the last axis fastest), the slot is the
    phase within the runs. With `group`, slots are within each group of channels. `sizes` are the
    output's; an operand's are ceil((size + start - first phase of its run) / stride)."""

    name = "interleave"
    takes_strings = True
    kind = Kind.INJECTIVE
    keeps_axes = True
    python_reference = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        runs, sizes, starts = attrs["runs"], common.dims(attrs["sizes"]), attrs["starts"]
        operands = common.tensor_types(self.name, inputs, prod(map(len, runs)))
        dtype, rank = common.require_same_dtype(self.name, *operands), operands[0].rank
        if {len(runs), len(sizes), len(starts)} != {rank - 2}:
            raise type_error(self.name, f"runs, sizes or starts do not fit {operands[0]}")
        channels = operands[0].shape[1] // prod(run[0] for run in runs)
        for operand, chosen in zip(operands, _run_choices(runs)):
            wanted = [operands[0].shape[0], channels * prod(map(_length, runs, chosen))]
            for run, i, size, start in zip(runs, chosen, sizes, starts):
                wanted.append(arith.ceildiv(size + start - sum(run[:i]), sum(run)))
            known = [(arith.as_int(a), arith.as_int(b)) for a, b in zip(operand.shape, wanted)]
            if operand.rank != rank or any(a != b for a, b in known if None not in (a, b)):
                raise type_error(self.name, f"operand {chosen} is {operand}, not {tuple(wanted)}")
        return [TensorType(dtype, (operands[0].shape[0], channels, *sizes))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if len(batched) == len(inputs) else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        operands, runs = [np.asarray(x) for x in inputs], attrs["runs"]
        sizes, group = common.numbers(self.name, attrs["sizes"]), attrs.get("group", 1)
        channels = operands[0].shape[1] // prod(run[0] for run in runs)
        out = np.zeros((operands[0].shape[0], channels, *sizes), operands[0].dtype)
        for point in itertools.product(*map(range, sizes)):
            which, slot, count = 0, 0, 1
            source: list[Any] = []
            for p, run, start in zip(point, runs, attrs["starts"]):
                at, phase = divmod(p + start, sum(run))
                i = next(i for i in range(len(run)) if phase < sum(run[: i + 1]))
                which, count = which * len(run) + i, count * run[i]
                slot = slot * run[i] + phase - sum(run[:i])
                source.append(at)
            shape = (len(out), group, count, channels // group, *operands[which].shape[2:])
            grouped = operands[which].reshape(shape)
            found = grouped[(ALL, ALL, slot, ALL, *source)]
            out[(ALL, ALL, *point)] = found.reshape(len(out), channels)
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        operands = [x for x in inputs if x is not None]
        shape = outputs[0].shape
        if any(arith.is_const(d, 0) for d in shape):  # no element is read
            return [b.compute(self.name, shape, lambda *_: ir.value_of(0, operands[0].dtype))]
        group = attrs.get("group", 1)
        per_group = shape[1] // group if group > 1 else None

        def value(*point: arith.Expr) -> Expr:
            positions = [p + start for p, start in zip(point[2:], attrs["starts"])]
            return OperandSelect(point, positions, attrs["runs"], per_group).select(operands)

        return [b.compute(self.name, shape, value)]

    def samples(self) -> list[Sample]:
        def case(shape, runs, sizes, starts=None, dtype=dtypes.f32, group=1) -> Sample:
            starts = starts or (0,) * len(runs)
            operands = []
            for chosen in _run_choices(runs):
                rows = zip(runs, chosen, sizes, starts)
                space = [-(-(n + lo - sum(r[:i])) // sum(r)) for r, i, n, lo in rows]
                channels = shape[1] * prod(map(_length, runs, chosen))
                operands.append(common.data(shape[0], channels, *space, dtype=dtype, key=chosen))
            attrs = {"runs": runs, "sizes": sizes, "starts": starts, "group": group}
            return Sample(tuple(operands), attrs)

        found = [
            case((1, 3), ((1, 1),), (7,)), case((2, 9), ((2,), (1, 2)), (5, 6), (1, 2)),
            case((1, 2), ((4,),), (2,)), case((1, 1), ((2,), (1,), (1, 1)), (3, 2, 2)),
            case((0, 2), ((2,),), (4,)), case((1, 2), ((1,),), (3,)), case((1, 2), ((2,),), (0,)),
            case((1, 6), ((2, 1), (1, 1)), (4, 5), (2, 0), group=3),
        ]  # fmt: skip
        pair = ((1, 1), (2,))
        return found + [case((1, 3), pair, (4, 3), (1, 0), dtype) for dtype in SAMPLED]


def _run_choices(runs: Runs) -> Iterator[tuple[int, ...]]:
    """For each operand, the index of its run along each axis."""
    return itertools.product(*(range(len(run)) for run in runs))


def _length(run: Sequence[int], i: int) -> int:
    return run[i]


class OperandSelect:
    """The element at one point: nested selects over the operands, axis by axis. Each load is
    masked, so that only the selected operand is read. `per_group`: channels of a group, if any."""

    def __init__(self, point: Point, positions: Sequence[Dim], runs: Runs, per_group: Dim | None):
        self.point, self.runs, self.per_group = point, runs, per_group
        strides = [sum(run) for run in runs]
        self.phases = [p % s for p, s in zip(positions, strides)]
        self.source = tuple(p // s for p, s in zip(positions, strides))

    def select(self, operands: Sequence[Buffer], chosen: tuple[int, ...] = ()) -> Expr:
        axis = len(chosen)
        if axis == len(self.runs):
            return self.load(operands[0], chosen)
        count = len(self.runs[axis])
        each = len(operands) // count
        slices = [operands[i * each : (i + 1) * each] for i in range(count)]
        found = [self.select(own, (*chosen, i)) for i, own in enumerate(slices)]
        result = found[-1]
        for i in reversed(range(count - 1)):
            end = sum(self.runs[axis][: i + 1])
            result = ir.Select(_is_less(self.phases[axis], end), found[i], result)
        return result

    def load(self, operand: Buffer, chosen: tuple[int, ...]) -> Expr:
        slot: arith.Expr = arith.Const(0)
        masks: list[Expr] = []
        for phase, run, i in zip(self.phases, self.runs, chosen):
            first, end = sum(run[:i]), sum(run[: i + 1])
            slot = slot * run[i] + (phase - first if run[i] > 1 else 0)
            masks += [ir.Unary("not", _is_less(phase, first))] if first else []
            masks += [_is_less(phase, end)] if end < sum(run) else []
        n, c = self.point[:2]
        count = prod(map(_length, self.runs, chosen))
        channel = slot * (operand.shape[1] // count) + c
        if self.per_group is not None:
            group, inside = c // self.per_group, c % self.per_group
            channel = (group * count + slot) * self.per_group + inside
        mask: Expr | None = None
        for each in masks:
            mask = each if mask is None else mask & each
        other = None if mask is None else ir.value_of(0, operand.dtype)
        return ir.Load(operand, (n, channel, *self.source), mask=mask, other=other)


def _is_less(phase: arith.Expr, end: int) -> Expr:
    return ir.Compare("lt", ir.Index(phase), ir.Lit(end, dtypes.i64))
