"""Moves between channels and places: `depth_to_space`, and `interleave` of several tensors.

In: tensors (batch, channels, *space). Out: a tensor of as many axes, spread out in space. Both read
whole rows of channels where these lie last in memory. Called by ops/__init__.py; decompositions
(ops/conv_transpose.py) and front ends use them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.movement import SAMPLED, Move, Point


@register
class DepthToSpace(Move):
    """y[n, c, p] = x[n, phase · channels + c, p // block], where the phase counts p % block, the
    last axis fastest; blocks[i] for each spatial axis."""

    name = "depth_to_space"
    keeps_axes = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        blocks = attrs["blocks"]
        channels = arith.as_int(x.shape[1]) if x.rank > 2 else None
        if len(blocks) != x.rank - 2 or any(block < 1 for block in blocks):
            raise type_error(self.name, f"blocks {blocks} do not fit the spatial axes of {x}")
        if channels is not None and channels % prod(blocks):
            raise type_error(self.name, f"{channels} channels do not make blocks of {blocks}")
        return (x.shape[0], x.shape[1] // prod(blocks), *map(_times, x.shape[2:], blocks))

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, blocks = np.asarray(inputs[0]), attrs["blocks"]
        space, rank = x.shape[2:], len(blocks)
        channels = x.shape[1] // prod(blocks)
        split = x.reshape(x.shape[0], *blocks, channels, *space)
        pairs = [axis for i in range(rank) for axis in (2 + rank + i, 1 + i)]
        shape = (x.shape[0], channels, *(n * b for n, b in zip(space, blocks)))
        return [split.transpose(0, 1 + rank, *pairs).reshape(shape)]

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        n, c, *place = point
        phase: arith.Expr = arith.Const(0)
        for p, block in zip(place, attrs["blocks"]):
            phase = phase * block + p % block
        source = (p // block for p, block in zip(place, attrs["blocks"]))
        return x[(n, phase * shape[1] + c, *source)]

    def samples(self) -> list[Sample]:
        rows = [((1, 12, 2, 3), (2, 3)), ((2, 8, 3), (4,)), ((1, 8, 1, 2, 2), (2, 2, 1)),
                ((0, 4, 2), (2,)), ((1, 4, 0, 2), (2, 2)), ((1, 3, 4), (1,))]  # fmt: skip
        found = [Sample((common.floats(*shape),), {"blocks": b}) for shape, b in rows]
        blocks = {"blocks": (2, 1)}
        return found + [Sample((common.data(1, 4, 2, 3, dtype=d),), blocks) for d in SAMPLED]


def _times(size: Dim, block: int) -> Dim:
    return size * block


@register
class Interleave(OpDef):
    """y[n, c, p] = x_phase[n, c, p // stride] where the phase counts p % stride, the last axis
    fastest; `sizes` of the output. Each x has what its phase needs: ceil((size - place) / stride).
    """

    name = "interleave"
    kind = Kind.INJECTIVE
    keeps_axes = True
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        strides, sizes = attrs["strides"], common.dims(attrs["sizes"])
        parts = common.tensor_types(self.name, inputs, prod(strides))
        dtype, first = common.require_same_dtype(self.name, *parts), parts[0]
        if len(strides) != first.rank - 2 or len(sizes) != len(strides):
            raise type_error(self.name, f"strides {strides}, sizes {sizes} do not fit {first}")
        for part, places in zip(parts, _places(strides)):
            wanted = (*first.shape[:2], *map(_phase_size, sizes, places, strides))
            known = [(arith.as_int(a), arith.as_int(b)) for a, b in zip(part.shape, wanted)]
            if part.rank != first.rank or any(a != b for a, b in known if None not in (a, b)):
                raise type_error(self.name, f"the part at {places} is {part}, not {wanted}")
        return [TensorType(dtype, (*first.shape[:2], *sizes))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        parts = [np.asarray(x) for x in inputs]
        sizes = common.numbers(self.name, attrs["sizes"])
        out = np.zeros((*parts[0].shape[:2], *sizes), parts[0].dtype)
        for part, places in zip(parts, _places(attrs["strides"])):
            cut = (slice(p, None, s) for p, s in zip(places, attrs["strides"]))
            out[(slice(None), slice(None), *cut)] = part
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        parts = [x for x in inputs if x is not None]
        strides = attrs["strides"]

        def value(*point: arith.Expr) -> Expr:
            return _pick(parts, point, strides, ())

        return [b.compute(self.name, outputs[0].shape, value)]

    def samples(self) -> list[Sample]:
        def case(shape, strides, sizes, dtype=dtypes.f32) -> Sample:
            parts = []
            for places in _places(strides):
                space = [-(-(n - p) // s) for n, p, s in zip(sizes, places, strides)]
                parts.append(common.data(*shape, *space, dtype=dtype, key=places))
            return Sample(tuple(parts), {"strides": strides, "sizes": sizes})

        found = [case((1, 3), (2,), (7,)), case((2, 9), (2, 3), (5, 6)), case((1, 2), (4,), (2,)),
                 case((1, 1), (2, 1, 2), (3, 2, 2)), case((0, 2), (2,), (4,)),
                 case((1, 2), (1,), (3,))]  # fmt: skip
        return found + [case((1, 3), (2, 2), (4, 3), dtype) for dtype in SAMPLED]


def _places(strides: Sequence[int]) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*map(range, strides))


def _phase_size(size: Dim, place: int, stride: int) -> Dim:
    return arith.ceildiv(size - place, stride)


def _pick(
    parts: Sequence[Buffer], point: Point, strides: Sequence[int], places: tuple[int, ...]
) -> Expr:
    """The element of the part that holds `point`; one axis after the other. Each load is guarded,
    so that only the part that is chosen is touched."""
    axis = len(places)
    if axis == len(strides):
        here = [_is_at(p, s, place) for p, s, place in zip(point[2:], strides, places) if s > 1]
        source = (*point[:2], *(p // s for p, s in zip(point[2:], strides)))
        if not here:
            return parts[0][source]
        mask = here[0]
        for more in here[1:]:
            mask = mask & more
        return ir.Load(parts[0], source, mask=mask, other=ir.value_of(0, parts[0].dtype))
    each = len(parts) // strides[axis]
    chosen = [
        _pick(parts[place * each : (place + 1) * each], point, strides, (*places, place))
        for place in range(strides[axis])
    ]
    result = chosen[-1]
    for place in reversed(range(strides[axis] - 1)):
        result = ir.Select(_is_at(point[2 + axis], strides[axis], place), chosen[place], result)
    return result


def _is_at(p: arith.Expr, stride: int, place: int) -> Expr:
    return ir.Compare("eq", ir.Index(p % stride), ir.Lit(place, dtypes.i64))
