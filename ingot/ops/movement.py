"""Data movement: reshape, transpose, expand, tile, trilu.

In: tensors of any element type. Out: rows of `graph.opdef.TABLE`, INJECTIVE, one stage each, so
that they inline into their consumers. Called by ops/__init__.py; imported from ONNX by
frontends/onnx/movement.py. Sizes and starts may be expressions over symbols. Operators with an
index tensor are in gather.py; those with masked loads in slicing.py and concat_pad.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import prove
from ingot.arith.interval import Interval
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common

SAMPLED = (dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.i8, dtypes.i64, dtypes.bool_)
Point = Sequence[arith.Expr]


class Move(OpDef):
    """Movement of one operand: a subclass gives the output shape and each output element."""

    kind = Kind.INJECTIVE
    cheap = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        raise NotImplementedError(self.name)

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        """The output element at `point`."""
        raise NotImplementedError(self.name)

    def check(self, b: Build, x: Buffer, shape: tuple[Dim, ...]) -> None:
        """Append run-time checks for shapes that cannot be verified when compiling."""

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        return [TensorType(x.dtype, common.dims(self.shape(x, attrs)))]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        shape = outputs[0].shape
        self.check(b, x, shape)
        if any(arith.is_const(d, 0) for d in (*shape, *x.shape)):  # no element is read
            return [b.compute(self.name, shape, lambda *point: ir.value_of(0, x.dtype))]
        return [b.compute(self.name, shape, lambda *point: self.value(x, point, shape, attrs))]


def per_axis(op: str, attrs: Attrs, name: str, rank: int) -> tuple:
    """An attribute with one entry for each axis."""
    values = attrs[name]
    if len(values) != rank:
        raise type_error(op, f"{name} has {len(values)} entries for a tensor of rank {rank}")
    return tuple(values)


# --- reshape ------------------------------------------------------------------------------------


def ravel(point: Point, shape: Sequence[Dim]) -> arith.Expr:
    """The row-major linear index of `point`."""
    total: arith.Expr = arith.Const(0)
    for i, extent in zip(point, shape):
        total = total * extent + i
    return total


def unravel(position: arith.Expr, shape: Sequence[Dim]) -> list[arith.Expr]:
    """The point at a row-major linear index, which must be inside `shape`."""
    found: list[arith.Expr] = []
    for extent in reversed(shape[1:]):
        found.append(position % extent)
        position = position // extent
    return [*([position] if shape else []), *reversed(found)]


def matching_groups(a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Split both shapes into groups of axes with equal products, so that a reshape needs few
    divisions: (2, n, 12) and (2, n, 3, 4) give ([0], [0]), ([1], [1]), ([2], [2, 3])."""
    tail = 0
    while tail < min(len(a), len(b)) and common.same_dim(a[-1 - tail], b[-1 - tail]):
        tail += 1
    ends = [([len(a) - t], [len(b) - t]) for t in range(tail, 0, -1)]
    return _groups(a[: len(a) - tail], b[: len(b) - tail]) + ends


def _groups(a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        run_a, run_b = [i], [j]
        size_a, size_b = a[i], b[j]
        i, j = i + 1, j + 1
        while not common.same_dim(size_a, size_b):
            x, y = arith.as_int(size_a), arith.as_int(size_b)
            if x is None or y is None or (i == len(a) if x < y else j == len(b)):
                rest_a, rest_b = list(range(run_a[0], len(a))), list(range(run_b[0], len(b)))
                return [*found, (rest_a, rest_b)]
            if x < y:
                size_a, run_a, i = size_a * a[i], [*run_a, i], i + 1
            else:
                size_b, run_b, j = size_b * b[j], [*run_b, j], j + 1
        found.append((run_a, run_b))
    rest = (list(range(i, len(a))), list(range(j, len(b))))  # only axes of size 1 remain
    return [*found, rest] if rest[0] or rest[1] else found


def kept_axes(a: Sequence[Dim], b: Sequence[Dim]) -> list[int | None] | None:
    """For each axis of shape `a` the axis of `b` that it becomes, where the others are 1 or must be
    1 at run time, as in a squeeze of a dynamic axis. None: it is another reshape."""
    found: list[int | None] = []
    rest = [axis for axis, size in enumerate(b) if not arith.is_const(size, 1)]
    for size in a:
        if rest and common.same_dim(size, b[rest[0]]):
            found.append(rest.pop(0))
        elif arith.as_int(size) in (None, 1):
            found.append(None)
        else:
            return None
    return None if rest else found


def is_within(shape: Sequence[Dim], whole: Sequence[Dim]) -> bool:
    """Whether `shape` provably has no more elements than `whole`."""
    sizes = [arith.product(list(dims)) for dims in (shape, whole)]
    names = {name for size in sizes for name in arith.free_vars(size)}
    return prove("le", sizes[0], sizes[1], {name: Interval(0, None) for name in sorted(names)})


UNEQUAL = "reshape: the shapes differ in their number of elements"


@register
class Reshape(Move):
    """The same elements in row-major order, under another shape."""

    name = "reshape"
    takes_strings = True
    is_view = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        before, after = arith.as_int(x.numel), arith.as_int(arith.product(list(attrs["shape"])))
        if before is not None and after is not None and before != after:
            raise type_error(self.name, f"{x} has {before} elements, {attrs['shape']} has {after}")
        return attrs["shape"]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, shape = np.asarray(inputs[0]), common.numbers(self.name, attrs["shape"])
        if x.size != math.prod(shape):
            raise common.run_failed(UNEQUAL)
        return [x.reshape(shape).copy()]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        (x,) = common.tensor_types(self.name, inputs, 1)
        shape = attrs["shape"]
        if not shape or not common.same_dim(x.shape[0], shape[0]):
            return None
        return {**attrs, "shape": (rows, *shape[1:])}

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        source: list[arith.Expr] = [arith.Const(0)] * x.rank
        kept = kept_axes(x.shape, shape)
        dropped = [d for d, axis in zip(x.shape, kept or ()) if axis is None and d != 1]
        if kept is not None and dropped:  # no division by a size that is 1
            zero, none = arith.Const(0), ir.value_of(0, x.dtype)
            at = tuple(zero if axis is None else point[axis] for axis in kept)
            product = ir.Index(arith.product([*dropped]))
            return ir.Load(x, at, mask=ir.Compare("gt", product, ir.Index(zero)), other=none)
        for into, outof in matching_groups(x.shape, shape):
            position = ravel([point[axis] for axis in outof], [shape[axis] for axis in outof])
            for axis, i in zip(into, unravel(position, [x.shape[axis] for axis in into])):
                source[axis] = i
        if is_within(shape, x.shape):
            return x[tuple(source)]
        linear = ir.Index(ravel(point, shape))
        mask = ir.Compare("lt", linear, ir.Index(arith.product(list(x.shape))))
        return ir.Load(x, tuple(source), mask=mask, other=ir.value_of(0, x.dtype))

    def check(self, b: Build, x: Buffer, shape: tuple[Dim, ...]) -> None:
        before, after = arith.product(list(x.shape)), arith.product(list(shape))
        if not common.same_dim(before, after):
            sizes = (ir.Index(before), ir.Index(after))
            b.check((), lambda: ir.Compare("ne", *sizes), UNEQUAL, lambda: sizes)

    def samples(self) -> list[Sample]:
        cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((2, 3, 4), (6, 4)), ((2, 3, 4), (4, 3, 2)), ((6,), (2, 1, 3)), ((), (1, 1)),
            ((1,), ()),
            ((0, 3), (3, 0)), ((0, 4), (2, 0)), ((2, 12), (2, 3, 4)), ((1, 1, 5, 1), (5,)),
            ((4, 6), (2, 2, 3, 2)), ((6, 4), (4, 6)), ((5, 1), (1, 5, 1)), ((12, 5), (3, 4, 5, 1)),
        ]  # fmt: skip
        found = [Sample((common.floats(*a),), {"shape": b}) for a, b in cases]
        return found + [Sample((common.data(4, 3, dtype=d),), {"shape": (2, 6)}) for d in SAMPLED]


# --- transpose, expand, tile, trilu -------------------------------------------------------------


@register
class Transpose(Move):
    """Output axis i is input axis perm[i]."""

    name = "transpose"
    takes_strings = True
    permutes = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        perm = per_axis(self.name, attrs, "perm", x.rank)
        if sorted(perm) != list(range(x.rank)):
            raise type_error(self.name, f"perm {perm} is not a permutation of {x.rank} axes")
        return [x.shape[axis] for axis in perm]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return [np.transpose(np.asarray(inputs[0]), attrs["perm"])]  # a view, copied when stored

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if attrs["perm"][0] == 0 else None

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        index = dict(zip(attrs["perm"], point))
        return x[tuple(index[axis] for axis in range(x.rank))]

    def samples(self) -> list[Sample]:
        cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 1, 3, 2), (0, 2, 1, 3)), ((), ()),
            ((0, 2), (1, 0)), ((3, 4), (0, 1)),
        ]  # fmt: skip
        found = [Sample((common.floats(*shape),), {"perm": perm}) for shape, perm in cases]
        return found + [Sample((common.data(2, 3, dtype=d),), {"perm": (1, 0)}) for d in SAMPLED]


@register
class Expand(Move):
    """x broadcast to `shape`, the full output shape."""

    name = "expand"
    takes_strings = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        wanted = tuple(arith.wrap(d) for d in attrs["shape"])
        found = common.broadcast_shapes(x.shape, wanted)
        if len(found) != len(wanted) or not all(map(common.same_dim, found, wanted)):
            raise type_error(self.name, f"{x} broadcasts to {found}, not to {wanted}")
        return wanted

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        return [np.broadcast_to(x, common.numbers(self.name, attrs["shape"])).copy()]

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        return common.broadcast_load(x, point)

    def samples(self) -> list[Sample]:
        cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((3, 1), (3, 4)), ((), (2, 2)), ((1,), (3, 1, 1)), ((4,), (2, 4)), ((1, 3), (0, 3)),
        ]  # fmt: skip
        found = [Sample((common.floats(*a),), {"shape": b}) for a, b in cases]
        return found + [Sample((common.data(1, 3, dtype=d),), {"shape": (2, 3)}) for d in SAMPLED]


@register
class Tile(Move):
    """Axis i repeated repeats[i] times."""

    name = "tile"
    takes_strings = True

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        repeats = per_axis(self.name, attrs, "repeats", x.rank)
        return [extent * r for extent, r in zip(x.shape, repeats)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return [np.tile(np.asarray(inputs[0]), common.numbers(self.name, attrs["repeats"]))]

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        def source(i: arith.Expr, extent: Dim, repeat: arith.IntLike) -> arith.Expr:
            return i if arith.is_const(repeat, 1) else i % extent

        return x[tuple(source(*each) for each in zip(point, x.shape, attrs["repeats"]))]

    def samples(self) -> list[Sample]:
        cases: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((2, 3), (2, 2)), ((1, 3), (4, 1)), ((2,), (0,)), ((0, 2), (3, 2)), ((), ()),
        ]  # fmt: skip
        found = [Sample((common.floats(*shape),), {"repeats": r}) for shape, r in cases]
        return found + [Sample((common.data(2, 3, dtype=d),), {"repeats": (1, 2)}) for d in SAMPLED]


@register
class Trilu(Move):
    """The upper (or lower) triangle of the last two axes, from diagonal `k`; zero elsewhere."""

    name = "trilu"

    def shape(self, x: TensorType, attrs: Attrs) -> Sequence[arith.IntLike]:
        if x.rank < 2:
            raise type_error(self.name, f"expects a rank of at least 2, got {x}")
        return x.shape

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        (k,) = common.numbers(self.name, [attrs["k"]])
        rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
        keep = columns - rows >= k if attrs["upper"] else columns - rows <= k
        return [np.where(keep, x, np.zeros((), x.dtype)).astype(x.dtype)]

    def value(self, x: Buffer, point: Point, shape: tuple[Dim, ...], attrs: Attrs) -> Expr:
        *_, row, column = point
        op = "ge" if attrs["upper"] else "le"
        keep = ir.Compare(op, ir.Index(column), ir.Index(row + attrs["k"]))
        return ir.Select(keep, x[tuple(point)], ir.value_of(0, x.dtype))

    def samples(self) -> list[Sample]:
        cases = [(True, 0), (True, 1), (True, -2), (False, 0), (False, -1), (False, 7)]
        found = [Sample((common.floats(2, 3, 4),), {"upper": u, "k": k}) for u, k in cases]
        attrs = {"upper": False, "k": 0}
        found += [Sample((common.data(3, 3, dtype=d),), attrs) for d in SAMPLED]
        return [
            *found,
            Sample((common.floats(0, 3),), attrs),
            Sample((common.floats(2, 0),), attrs),
        ]
