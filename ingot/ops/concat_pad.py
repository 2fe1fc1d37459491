"""`concat` and `pad`: movement operators with masked loads. The others are in movement.py.

In: tensors of any element type. Out: rows of `graph.opdef.TABLE`, INJECTIVE, one stage each. Called
by ops/__init__.py. A masked load reads no memory where its mask is false.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from functools import reduce

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.movement import SAMPLED, per_axis

Side = tuple[Dim, arith.IntLike, arith.IntLike]  # an axis: extent, elements before, after
NO_BORDER = "pad: an empty axis has no border to repeat"


def at_least(i: arith.Expr, bound: arith.IntLike) -> Expr:
    return ir.Compare("ge", ir.Index(i), ir.Index(arith.wrap(bound)))


def less(i: arith.Expr, bound: arith.IntLike) -> Expr:
    return ir.Compare("lt", ir.Index(i), ir.Index(arith.wrap(bound)))


@register
class Concat(OpDef):
    """Tensors concatenated along `axis`; empty operands are allowed."""

    name = "concat"
    takes_strings = True
    keeps_axes = True
    is_concat = True
    kind = Kind.INJECTIVE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        types = common.tensor_types(self.name, inputs, max(1, len(inputs)))
        dtype = common.require_same_dtype(self.name, *types)
        first = types[0]
        axis = common.normalize_axis(self.name, attrs["axis"], first.rank)
        for other in types[1:]:
            why = f"{first} and {other} differ outside axis {axis}"
            if other.rank != first.rank:
                raise type_error(self.name, why)
            for k, (a, b) in enumerate(zip(first.shape, other.shape)):
                if k != axis:
                    common.require_same_dim(self.name, a, b, why)
        shape = list(first.shape)
        shape[axis] = sum((t.shape[axis] for t in types[1:]), shape[axis])
        return [TensorType(dtype, common.dims(shape))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        first = common.tensor_type(self.name, inputs[0])
        is_inside = common.normalize_axis(self.name, attrs["axis"], first.rank) > 0
        return attrs if is_inside and len(batched) == len(inputs) else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return [np.concatenate([np.asarray(x) for x in inputs], attrs["axis"])]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        operands = [x for x in inputs if x is not None]
        axis = common.normalize_axis(self.name, attrs["axis"], operands[0].rank)
        starts: list[arith.Expr] = [arith.Const(0)]
        for operand in operands:
            starts.append(starts[-1] + operand.shape[axis])

        def formula(*point):
            return select_operand(operands, common.dims(starts), point, axis)

        return [b.compute("concat", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        rows: list[tuple[list[tuple[int, ...]], int]] = [
            ([(2, 3), (2, 1)], 1), ([(2, 3), (4, 3), (1, 3)], 0), ([(2, 2)], -1),
            ([(0, 2), (3, 2)], 0), ([(1,)] * 5, 0), ([(2, 1, 3), (2, 2, 3)], -2),
            ([(2, 0), (2, 0)], 0),
        ]  # fmt: skip
        found = []
        for shapes, axis in rows:
            operands = [common.floats(*s, key=i) for i, s in enumerate(shapes)]
            found.append(Sample(tuple(operands), {"axis": axis}))
        for dtype in SAMPLED:
            pair = common.data(2, 3, dtype=dtype), common.data(2, 2, dtype=dtype)
            found.append(Sample(pair, {"axis": 1}))
        return found


def select_operand(
    operands: Sequence[Buffer], starts: Sequence[Dim], point: Sequence[arith.Expr], axis: int
) -> Expr:
    """The element at `point`: a binary search over the operands, as nested selects."""
    if len(operands) > 1:
        middle = len(operands) // 2
        left = select_operand(operands[:middle], starts[: middle + 1], point, axis)
        right = select_operand(operands[middle:], starts[middle:], point, axis)
        return ir.Select(less(point[axis], starts[middle]), left, right)
    inside = at_least(point[axis], starts[0]) & less(point[axis], starts[1])
    source = (*point[:axis], point[axis] - starts[0], *point[axis + 1 :])
    return ir.Load(operands[0], source, mask=inside, other=ir.value_of(0, operands[0].dtype))


MODES = ("constant", "reflect", "edge", "wrap")


@register
class Pad(OpDef):
    """Axis i padded by before[i] and after[i] elements; a negative count crops, before padding.

    `constant` pads with the scalar operand `value` (zero if absent), `edge` repeats the border,
    `reflect` mirrors at the border without repeating it, `wrap` is periodic.
    """

    name = "pad"
    takes_strings = True
    keeps_axes = True
    is_pad = True
    kind = Kind.INJECTIVE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x = common.tensor_type(self.name, inputs[0])
        for value in inputs[1:]:
            if value is not None:
                fill = common.tensor_type(self.name, value)
                common.require_same_dtype(self.name, x, fill)
                if fill.rank:
                    raise type_error(self.name, f"the padding value is {fill}, not a scalar")
        mode = attrs.get("mode", "constant")
        if mode not in MODES:
            raise type_error(self.name, f"mode {mode!r} is not one of {MODES}")
        before = per_axis(self.name, attrs, "before", x.rank)
        after = per_axis(self.name, attrs, "after", x.rank)
        shape = common.dims([d + lo + hi for d, lo, hi in zip(x.shape, before, after)])
        for old, new in zip(x.shape, shape):
            size = arith.as_int(new)
            if size is not None and size < 0:
                raise type_error(self.name, f"{before}, {after} crop {x} to a negative size")
            if mode != "constant" and arith.is_const(old, 0) and not arith.is_const(new, 0):
                raise type_error(self.name, f"mode {mode!r} cannot pad the empty axis of {x}")
        return [TensorType(x.dtype, shape)]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        keeps_rows = all(arith.is_const(arith.wrap(attrs[n][0]), 0) for n in ("before", "after"))
        return attrs if keeps_rows and set(batched) == {0} else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        out = np.asarray(inputs[0])
        value = inputs[1] if len(inputs) > 1 and inputs[1] is not None else np.zeros((), out.dtype)
        before = common.numbers(self.name, attrs["before"])
        after = common.numbers(self.name, attrs["after"])
        for axis, (low, high) in enumerate(zip(before, after)):
            kept = np.arange(max(0, -low), out.shape[axis] - max(0, -high))
            if out.shape[axis] < max(0, -low) + max(0, -high):  # crops more than there is
                low, high = 0, max(0, out.shape[axis] + low + high)
            out = np.take(out, kept, axis)
            out = _pad_axis(out, axis, max(0, low), max(0, high), attrs.get("mode"), value)
        return [out]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, value = (*inputs, None)[:2]
        assert x is not None
        mode = attrs.get("mode", "constant")
        sides = list(zip(x.shape, attrs["before"], attrs["after"]))

        empty = [] if mode == "constant" else self._refuse_empty(b, sides, outputs[0].shape)

        def formula(*point):
            if mode != "constant":
                source = tuple(_border(i, *side, mode) for i, side in zip(point, sides))
                mask = all_of([at_least(size, 1) for size in empty])
                other = None if mask is None else ir.value_of(0, x.dtype)
                return ir.Load(x, source, mask=mask, other=other)
            source = tuple(i - low for i, (_, low, _) in zip(point, sides))
            masks = [m for j, side in zip(source, sides) for m in _inside(j, *side)]
            mask = all_of(masks)
            if mask is None:
                return x[source]
            other = value[()] if value is not None else ir.value_of(0, x.dtype)
            return ir.Load(x, source, mask=mask, other=other)

        if mode != "constant" and any(arith.is_const(d, 0) for d in x.shape):  # no element is read
            return [b.compute("pad", outputs[0].shape, lambda *point: ir.value_of(0, x.dtype))]
        return [b.compute("pad", outputs[0].shape, formula)]

    def _refuse_empty(self, b: Build, sides: Sequence[Side], shape: Sequence[Dim]) -> list[Dim]:
        """The kept sizes that may be 0 although the output has elements, each checked."""
        padded = [side for side in sides if any(arith.as_int(n) != 0 for n in side[1:])]
        kept = [extent - _cropped(low) - _cropped(high) for extent, low, high in padded]
        return [d for d in kept if common.refuse_empty(b, d, shape, NO_BORDER)]

    def samples(self) -> list[Sample]:
        rows: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
            ((3, 4), (1, 0), (0, 2)), ((3, 4), (-1, 2), (2, -1)), ((5,), (7,), (9,)), ((), (), ()),
            ((1, 3), (2, 0), (3, 0)), ((4,), (-2,), (5,)), ((4,), (3,), (-2,)),
            ((3, 4), (0, 1), (0, 2)),
        ]  # fmt: skip
        found = []
        for mode in MODES:
            for shape, before, after in rows:
                attrs = {"before": before, "after": after, "mode": mode}
                found.append(Sample((common.floats(*shape),), attrs))
            attrs = {"before": (1, 0), "after": (2, 0), "mode": mode}
            found.append(Sample((common.floats(3, 0),), attrs))
        attrs = {"before": (1, 2), "after": (0, 1), "mode": "constant"}
        for dtype in SAMPLED:
            x = common.data(2, 3, dtype=dtype)
            found.append(Sample((x, common.scalar(1, dtype)), attrs))
        return [*found, Sample((common.floats(0, 2), common.scalar(7)), attrs)]


def _border(
    i: arith.Expr, extent: Dim, low: arith.IntLike, high: arith.IntLike, mode: str
) -> arith.Expr:
    """The source index of output index `i`: crop first, then mirror, clamp or wrap. An axis that is
    not padded, the batch for instance, has no border."""
    crop = _cropped(low)
    size = extent - crop - _cropped(high)
    j = i - arith.maximum(low, 0)
    amounts = [arith.as_int(amount) for amount in (low, high)]
    if all(amount is not None and amount <= 0 for amount in amounts):
        return crop + j
    if mode == "edge":
        return crop + arith.maximum(arith.minimum(j, size - 1), 0)
    if mode == "wrap":
        return crop + j % arith.maximum(size, 1)  # an empty axis is refused
    if not arith.is_const(arith.maximum(low, 0), 0):  # the mirror image is even: no negative index
        j = arith.maximum(arith.maximum(j, -j), 0)
    period = arith.maximum((size - 1) * 2, 1)
    return crop + arith.minimum(j % period, period - j % period)


def _cropped(amount: arith.IntLike) -> Dim:
    return arith.maximum(-arith.wrap(amount), 0)


def all_of(masks: Sequence[Expr]) -> Expr | None:
    """The conjunction; None if there is none."""
    return reduce(operator.and_, masks) if masks else None


def _inside(j: arith.Expr, extent: Dim, low: arith.IntLike, high: arith.IntLike) -> list[Expr]:
    """The bounds checks of source index `j`; none on a side that is known to crop."""
    lowest, highest = arith.as_int(low), arith.as_int(high)
    from_low = [] if lowest is not None and lowest <= 0 else [at_least(j, 0)]
    from_high = [] if highest is not None and highest <= 0 else [less(j, extent)]
    return from_low + from_high


def _pad_axis(
    x: np.ndarray, axis: int, low: int, high: int, mode: str | None, value: np.ndarray
) -> np.ndarray:
    size = x.shape[axis]
    wanted = range(-low, size + high)
    if mode in (None, "constant"):
        shapes = [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in (low, high)]
        ends = [np.full(shape, value, x.dtype) for shape in shapes]
        return np.concatenate([ends[0], x, ends[1]], axis)
    if size == 0:
        if len(wanted) and np.delete(x.shape, axis).all():
            raise common.run_failed(NO_BORDER)
        return np.zeros((*x.shape[:axis], len(wanted), *x.shape[axis + 1 :]), x.dtype)
    return np.take(x, [_source(j, size, mode) for j in wanted], axis)


def _source(j: int, size: int, mode: str | None) -> int:
    if mode == "wrap":
        return j % size
    if mode == "edge" or size == 1:
        return min(max(j, 0), size - 1)
    while not 0 <= j < size:  # mirror at the border that was crossed, until inside
        j = -j if j < 0 else 2 * (size - 1) - j
    return j
