"""move_zero_points: the canonical form of what front ends write for integer operators; every bit
of the sums is the same."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.move_zero_points import move_zero_points
from ingot.passes.remove_dead_code import remove_dead_code

I8, U8 = np.int8, np.uint8
RNG = np.random.default_rng(0)


class Integers:
    def __init__(self) -> None:
        self.g = GraphBuilder("g", ConstantStore())

    def x(self, *shape: int, dtype: type = U8) -> Value:
        return self.g.input(self.g.fresh("x"), tensor(dtypes.from_numpy(np.dtype(dtype)), *shape))

    def zero(self, number: int, dtype: type, rank: int = 0) -> Value:
        return self.g.constant(np.full((1,) * rank, number, dtype))

    def centred(self, x: Value, zero: Value | None) -> Value:
        wide = self.g.add("cast", [x], to=dtypes.i32)
        if zero is None:
            return wide
        return self.g.add("sub", [wide, self.g.add("cast", [zero], to=dtypes.i32)])

    def finish(self, y: Value) -> Graph:
        before = self.g.finish([y])
        after = remove_dead_code(move_zero_points(before, self.g.store), self.g.store)
        verify(after)
        for _ in range(2):
            feeds = [
                RNG.integers(
                    v.dtype.lowest, v.dtype.highest, v.tensor.static_shape, endpoint=True
                ).astype(v.dtype.numpy)
                for v in before.inputs
            ]
            for a, b in zip(run(before, self.g.store, feeds), run(after, self.g.store, feeds)):
                np.testing.assert_array_equal(a, b)
        return after


def codes(*shape: int, low: int = -128, high: int = 127, dtype: type = np.int32) -> np.ndarray:
    return RNG.integers(low, high, shape, endpoint=True).astype(dtype)


def plain(graph: Graph) -> Node | None:
    """The contraction of 8-bit operands, if there is one."""
    found = [
        n for n in graph.nodes
        if n.op in ("conv", "matmul") and all(v and v.dtype.bits == 8 for v in n.inputs[:2])
    ]  # fmt: skip
    assert sum(defn(n).kind is Kind.CONTRACTION for n in graph.nodes) <= 2
    return found[0] if found else None


CONVS = {
    "padded": ((2, 3, 5, 6), (4, 3, 3, 3), {"pads": (1, 0, 2, 1)}),
    "strided": ((1, 3, 7, 7), (4, 3, 3, 2), {"strides": (2, 1), "dilations": (1, 2)}),
    "depthwise": ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "pads": (1,) * 4}),
    "along one axis": ((2, 3, 9), (4, 3, 3), {"pads": (1, 1)}),
}


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("zero", ["none", "constant", "computed"])
@pytest.mark.parametrize("bias", ["none", "constant", "computed"])
def test_convolutions(name: str, zero: str, bias: str) -> None:
    i, (shape, weights, attrs) = Integers(), CONVS[name]
    x = i.x(*shape)
    zeros = {"none": None, "constant": i.zero(77, U8), "computed": i.x()}
    given = {"none": None, "constant": i.g.constant(codes(weights[0], high=9999))}
    given["computed"] = i.g.input("b", tensor(dtypes.i32, weights[0]))
    w = i.g.constant(codes(*weights))
    operands = [i.centred(x, zeros[zero]), w, given[bias]]
    after = i.finish(i.g.add("conv", operands if given[bias] else operands[:2], **attrs))
    conv = plain(after)
    assert conv is not None
    fill = conv.inputs[3] if len(conv.inputs) > 3 else None
    assert (fill is None) == (zero == "none")
    assert not any(n.op == "cast" and n.inputs[0] == x for n in after.nodes)


@pytest.mark.parametrize(
    ("low", "high", "group", "is_plain"),
    [(-128, 127, 1, True), (-60, 190, 1, True), (-60, 190, 2, False), (-128, 128, 1, False)],
)
def test_range_of_the_weights(low: int, high: int, group: int, is_plain: bool) -> None:
    """Weights of a channel that span 255 are i8 and a shift; a group's must be i8."""
    i = Integers()
    w = codes(4, 6 // group, 3, 3, low=low, high=high)
    w[:, 0, 0, :2] = low, high
    x = i.centred(i.x(1, 6, 8, 7), i.zero(130, U8))
    conv = i.g.add("conv", [x, i.g.constant(w)], pads=(1,) * 4, strides=(2, 1), group=group)
    assert (plain(i.finish(conv)) is not None) == is_plain


@pytest.mark.parametrize("shape", [(4, 7), (2, 3, 4, 7), (7,)])
@pytest.mark.parametrize(("w_type", "w_zero"), [(I8, None), (I8, 3), (U8, 128), (U8, 90)])
@pytest.mark.parametrize("zero", ["none", "constant", "vector", "computed"])
def test_matmuls(shape: tuple[int, ...], w_type: type, w_zero: int | None, zero: str) -> None:
    i = Integers()
    x = i.x(*shape, dtype=I8)
    limits = np.iinfo(w_type)
    w = i.g.constant(codes(7, 5, low=limits.min, high=limits.max, dtype=w_type))
    zeros = {"none": None, "constant": i.zero(-7, I8), "vector": i.zero(-7, I8, 1)}
    zeros["computed"] = i.x(dtype=I8)
    b_zero = None if w_zero is None else i.zero(w_zero, w_type)
    y = i.g.add("matmul_integer", [x, w, zeros[zero], b_zero])
    after = i.finish(y)
    assert plain(after) is not None


def test_zero_points_of_columns() -> None:
    i = Integers()
    w, zeros = codes(7, 5, dtype=I8), codes(5, low=-9, high=9, dtype=I8)
    y = i.g.add("matmul_integer", [i.x(4, 7), i.g.constant(w), None, i.g.constant(zeros)])
    assert plain(i.finish(y)) is not None


def test_what_is_left() -> None:
    """Rows with zero points of their own, operands that are both computed, wide integers."""
    i = Integers()
    rows = i.g.constant(codes(4, low=0, high=255, dtype=U8))
    y = i.g.add("matmul_integer", [i.x(4, 7), i.g.constant(codes(7, 5, dtype=I8)), rows])
    assert plain(i.finish(y)) is None
    i = Integers()
    y = i.g.add("matmul_integer", [i.x(4, 7), i.x(7, 5, dtype=I8)])
    assert plain(i.finish(y)) is None
    i = Integers()
    x = i.g.input("x", tensor(dtypes.i32, 1, 3, 5, 5))
    y = i.g.add("conv", [x, i.g.constant(codes(4, 3, 3, 3))])
    assert plain(i.finish(y)) is None
