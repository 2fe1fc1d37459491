"""integer_contractions: the canonical form, equal outputs, what stays in float and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from ingot.passes.integer_contractions import integer_contractions
from ingot.passes.remove_dead_code import remove_dead_code

I8, U8, F32 = np.int8, np.uint8, np.float32


class Quantised:
    """A graph over dequantised values."""

    def __init__(self) -> None:
        self.g, self.rng = GraphBuilder("g", ConstantStore()), np.random.default_rng(0)

    def x(self, *shape: int, zero: int | None = 117, dtype: type = U8, rank: int = 0) -> Value:
        """An activation; scale and zero point are scalars, or vectors of one element."""
        x = self.g.input(self.g.fresh("x"), tensor(dtypes.from_numpy(np.dtype(dtype)), *shape))
        params: list[Value | None] = [self.g.constant(np.full((1,) * rank, 0.03, F32))]
        params.append(None if zero is None else self.g.constant(np.full((1,) * rank, zero, dtype)))
        return self.g.add("dequantize_linear", [x, *params])

    def channels(
        self, *shape: int, scale: np.ndarray, zero: int | np.ndarray = 0, dtype: type = U8
    ) -> Value:
        """An activation with a scale of each channel."""
        of = dtypes.from_numpy(np.dtype(dtype))
        x = self.g.input(self.g.fresh("x"), tensor(of, *shape))
        zeros = np.broadcast_to(np.asarray(zero, dtype), scale.shape)
        return self.g.add("dequantize_linear", [x, *map(self.g.constant, (scale, zeros))], axis=1)

    def w(
        self, *shape: int, axis: int | None = 0, zero: int | np.ndarray | None = 0,
        dtype: type = I8, low: int | None = None, high: int | None = None,
    ) -> Value:  # fmt: skip
        """Weights with a scale for each index of the axis, or with one."""
        limits = np.iinfo(dtype)
        ends = limits.min if low is None else low, limits.max if high is None else high
        codes = self.rng.integers(*ends, shape, endpoint=True).astype(dtype)
        count = () if axis is None else (shape[axis],)
        scale = self.rng.uniform(0.01, 0.02, count).astype(F32)
        params = [self.g.constant(codes), self.g.constant(scale)]
        if zero is not None:
            params.append(self.g.constant(np.broadcast_to(np.asarray(zero, dtype), count)))
        return self.g.add("dequantize_linear", params, axis=axis or 0)

    def bias(self, w: Value, factor: float = 1.0) -> Value:
        """An i32 bias in units of the sum, times a factor."""
        node = next(n for n in self.g.nodes if w in n.outputs)
        scales = next(n for n in self.g.nodes if node.inputs[1] in n.outputs)
        scale = self.g.store.get(scales.attr("value")) * F32(0.03) * F32(factor)
        (count, *_) = node.inputs[0].tensor.static_shape
        codes = self.rng.integers(-5000, 5000, count).astype(np.int32)
        params = [codes, np.broadcast_to(scale, codes.shape).astype(F32)]
        return self.g.add("dequantize_linear", [*map(self.g.constant, params)], axis=0)

    def finish(self, y: Value) -> tuple[Graph, Graph]:
        """Before and after the pass: verified, and equal up to the rounding of float sums."""
        before = self.g.finish([y])
        after = remove_dead_code(integer_contractions(before, self.g.store), self.g.store)
        verify(after)
        feeds = []
        for value in before.inputs:
            limits = np.iinfo(value.dtype.numpy) if value.dtype.is_int else np.iinfo(I8)
            shape = value.tensor.static_shape
            feeds.append(
                self.rng.integers(limits.min, limits.max + 1, shape).astype(value.dtype.numpy)
            )
        (a,), (b,) = (run(graph, self.g.store, feeds) for graph in (before, after))
        np.testing.assert_allclose(b, a, rtol=0, atol=2e-6 * np.abs(a).max() * b.ndim + 1e-9)
        return before, after


def sums(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if defn(n).kind is Kind.CONTRACTION]


def assert_canonical(graph: Graph, contractions: int = 1) -> None:
    """One contraction of an 8-bit value and i8 weights, whose i32 sums are scaled."""
    eight = [n for n in sums(graph) if n.inputs[1].dtype is dtypes.i8]  # type: ignore[union-attr]
    assert len(sums(graph)) == contractions and len(eight) == 1
    (node,) = eight
    assert node.inputs[0].dtype in (dtypes.i8, dtypes.u8)  # type: ignore[union-attr]
    assert node.outputs[0].dtype is dtypes.i32
    assert not any(n.attr("in_float") for n in graph.nodes)


CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1x1": ((1, 5, 4, 4), (6, 5, 1, 1), {}),
    "padded": ((2, 3, 5, 6), (4, 3, 3, 3), {"pads": (1, 0, 2, 1)}),
    "strided": ((1, 3, 7, 7), (4, 3, 3, 2), {"strides": (2, 1), "dilations": (1, 2)}),
    "grouped": ((1, 4, 5, 5), (6, 2, 3, 3), {"group": 2, "pads": (1,) * 4}),
    "depthwise": ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "pads": (1,) * 4}),
    "along one axis": ((2, 3, 9), (4, 3, 3), {"pads": (1, 1)}),
    "in space": ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {}),
}


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize(("dtype", "zero"), [(U8, 117), (I8, -3), (U8, None)])
def test_convolutions(name: str, dtype: type, zero: int | None) -> None:
    q, (shape, weights, attrs) = Quantised(), CONVS[name]
    w = q.w(*weights)
    operands = [q.x(*shape, zero=zero, dtype=dtype), w, q.bias(w)]
    _, after = q.finish(q.g.add("conv", operands, **attrs))
    assert_canonical(after)
    (conv,) = sums(after)
    assert conv.inputs[2] is not None and not any(n.op == "add" for n in after.nodes)


def test_constants_of_vectors_and_scalars() -> None:
    for rank, axis, zero in ((0, None, 0), (1, None, None), (1, 0, 0)):
        q = Quantised()
        y = q.g.add("conv", [q.x(1, 3, 5, 5, rank=rank), q.w(4, 3, 3, 3, axis=axis, zero=zero)])
        assert_canonical(q.finish(y)[1])


MATMULS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int | None]] = {
    "per column": ((4, 7), (7, 5), 1),
    "per tensor": ((4, 7), (7, 5), None),
    "of a batch": ((2, 3, 4, 7), (7, 5), 1),
    "of a row": ((7,), (7, 5), 1),
    "with batched weights": ((2, 4, 7), (2, 7, 5), None),
}


@pytest.mark.parametrize("name", MATMULS)
@pytest.mark.parametrize(
    ("dtype", "zero", "sums_of_x"),
    [(I8, 0, False), (U8, 128, False), (U8, 131, True), (I8, -100, True), (I8, 7, True)],
)
def test_matmuls(name: str, dtype: type, zero: int, sums_of_x: bool) -> None:
    q, (shape, weights, axis) = Quantised(), MATMULS[name]
    y = q.g.add("matmul", [q.x(*shape), q.w(*weights, axis=axis, zero=zero, dtype=dtype)])
    _, after = q.finish(y)
    assert_canonical(after)
    assert any(n.op == "reduce_sum" for n in after.nodes) == sums_of_x


def test_weights_of_one_column() -> None:
    q = Quantised()
    assert_canonical(q.finish(q.g.add("matmul", [q.x(4, 7), q.w(7, axis=None)]))[1])


@pytest.mark.parametrize(("zero", "fits"), [(40, True), (100, False)])
def test_codes_in_use_decide_whether_weights_fit(zero: int, fits: bool) -> None:
    """u8 weights of which none is more than 127 above its zero point are i8."""
    q = Quantised()
    w = q.w(6, 3, 3, 3, zero=zero, dtype=U8, low=0, high=160 if fits else 255)
    _, after = q.finish(q.g.add("conv", [q.x(1, 3, 6, 6), w], pads=(1,) * 4, strides=(2, 2)))
    assert_canonical(after, 1 if fits else 2)
    assert any(n.op == "reduce_sum" for n in after.nodes) != fits


def test_zero_points_of_channels() -> None:
    q = Quantised()
    w = q.w(4, 3, 3, 3, zero=np.array([0, 128, 255, 60]), dtype=U8)
    assert_canonical(q.finish(q.g.add("conv", [q.x(1, 3, 6, 6), w], pads=(1,) * 4))[1], 2)


MOVED: dict[str, Callable[[Quantised], Value]] = {
    "transposed": lambda q: q.g.add("transpose", [q.w(5, 7, axis=0)], perm=(1, 0)),
    "reshaped": lambda q: q.g.add("reshape", [q.w(5, 7, 1, 1, axis=0)], shape=(5, 7)),
    "sliced": lambda q: q.g.add(
        "slice", [q.w(9, 5, axis=1)], starts=(8, 0), sizes=(7, 5), steps=(-1, 1)
    ),
    "joined": lambda q: q.g.add("concat", [q.w(7, 2, axis=1), q.w(7, 3, axis=1)], axis=1),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_weights_that_were_moved(name: str) -> None:
    q = Quantised()
    w = MOVED[name](q)
    w = q.g.add("transpose", [w], perm=(1, 0)) if name == "reshaped" else w
    assert_canonical(q.finish(q.g.add("matmul", [q.x(4, 7), w]))[1])


def test_weights_are_not_copied() -> None:
    """Weights of i8 without a zero point are the model's own constant."""
    q = Quantised()
    before, after = q.finish(q.g.add("conv", [q.x(1, 3, 5, 5), q.w(4, 3, 3, 3)]))
    assert sums(after)[0].inputs[1] == before.producers()[sums(before)[0].inputs[1].name].inputs[0]


def test_biases() -> None:
    """A bias in units of the sum is an i32 operand; of other units, or in f32, it is added."""
    for factor, is_operand in ((1.0, True), (1 + 1e-7, True), (1.01, False)):
        q = Quantised()
        w = q.w(4, 3, 3, 3)
        _, after = q.finish(q.g.add("conv", [q.x(1, 3, 5, 5, zero=0), w, q.bias(w, factor)]))
        assert (len(sums(after)[0].inputs) > 2) == is_operand
    q = Quantised()
    real = q.g.input("b", tensor(dtypes.f32, 4))
    _, after = q.finish(q.g.add("conv", [q.x(1, 3, 5, 5), q.w(4, 3, 3, 3), real]))
    assert_canonical(after)


def real(q: Quantised, *shape: int) -> Value:
    return q.g.constant(q.rng.standard_normal(shape).astype(F32))


def per_row(q: Quantised) -> Value:
    x = q.g.input("xs", tensor(dtypes.u8, 4, 7))
    return q.g.add("dequantize_linear", [x, q.g.constant(np.ones(4, F32))], axis=0)


def of_16_bits(q: Quantised) -> Value:
    x = q.g.input("xs", tensor(dtypes.TABLE["u16"], 4, 7))
    return q.g.add("dequantize_linear", [x, q.g.constant(np.array(0.1, F32))])


def blocked(q: Quantised) -> Value:
    codes = q.rng.integers(-9, 9, (8, 5)).astype(I8)
    scale = q.rng.uniform(0.1, 0.2, (2, 5)).astype(F32)
    inputs = [q.g.constant(codes), q.g.constant(scale)]
    return q.g.add("dequantize_linear", inputs, axis=0, block=4)


FLOATS: dict[str, tuple[Callable[[Quantised], list[Value]], str]] = {
    "attention": (lambda q: [q.x(4, 7), q.x(7, 5)], "both operands are activations"),
    "real weights": (lambda q: [q.x(4, 7), real(q, 7, 5)], "its weights are not"),
    "real input": (lambda q: [real(q, 4, 7), q.w(7, 5, axis=1)], "its input is not"),
    "along the sum": (lambda q: [q.x(4, 7), q.w(7, 5, axis=0)], "varies along the sum"),
    "per row": (lambda q: [per_row(q), q.w(7, 5, axis=1)], "its input is not"),
    "16 bits": (lambda q: [of_16_bits(q), q.w(7, 5, axis=1)], "its input is not"),
    "blocks": (lambda q: [q.x(4, 8), blocked(q)], "its weights are not"),
    "a vector": (lambda q: [q.x(4, 7), q.w(7, axis=0)], "varies along the sum"),
    "long": (lambda q: [q.x(1, 40000), q.w(40000, 1, axis=1)], "32 bits"),
}


@pytest.mark.parametrize("name", FLOATS)
def test_what_stays_in_float_has_its_reason(name: str) -> None:
    operands, reason = FLOATS[name]
    q = Quantised()
    before, after = q.finish(q.g.add("matmul", operands(q)))
    (node,) = sums(after)
    assert reason in node.attr("in_float")
    assert node.inputs == sums(before)[0].inputs


def test_wide_depthwise_weights_stay_in_float() -> None:
    q = Quantised()
    w = q.w(4, 1, 3, 3, zero=100, dtype=U8)
    _, after = q.finish(q.g.add("conv", [q.x(1, 4, 6, 6), w], group=4))
    assert "do not fit" in sums(after)[0].attr("in_float")


def test_floats_have_no_reason() -> None:
    q = Quantised()
    x = q.g.input("x", tensor(dtypes.f32, 4, 7))
    _, after = q.finish(q.g.add("matmul", [x, real(q, 7, 5)]))
    assert sums(after)[0].attr("in_float") is None


SIX = np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06], F32)
BY_GROUP = {
    "depthwise": (SIX, 6, 6),
    "two outputs of a channel": (SIX, 6, 12),
    "groups of two channels": (np.repeat(SIX[:3], 2), 3, 9),
}


@pytest.mark.parametrize("name", BY_GROUP)
@pytest.mark.parametrize("zero", [0, 117])
def test_an_input_with_scales_of_channels(name: str, zero: int) -> None:
    scale, group, outputs = BY_GROUP[name]
    q = Quantised()
    x = q.channels(2, 6, 9, 8, scale=scale, zero=zero)
    w = q.w(outputs, 6 // group, 3, 3)
    _, after = q.finish(q.g.add("conv", [x, w], pads=(1, 1, 1, 1), group=group))
    (conv,) = sums(after)
    assert conv.inputs[0].dtype is dtypes.u8 and conv.outputs[0].dtype is dtypes.i32


@pytest.mark.parametrize(
    "scale, zero, group",
    [(SIX, 0, 1), (SIX, 0, 3), (SIX, np.arange(6), 6), (np.zeros(6, F32), 0, 6)],
    ids=["one group", "two scales in a group", "several zero points", "scales of 0"],
)
def test_scales_of_channels_that_stay_in_float(
    scale: np.ndarray, zero: int | np.ndarray, group: int
) -> None:
    q = Quantised()
    x = q.channels(1, 6, 5, 5, scale=scale, zero=zero)
    y = q.g.add("conv", [x, q.w(6, 6 // group, 3, 3)], pads=(1, 1, 1, 1), group=group)
    before = q.g.finish([y])
    after = integer_contractions(before, q.g.store)
    (conv,) = [n for n in after.nodes if n.op == "conv"]
    assert conv.inputs[0].dtype is dtypes.f32 and conv.attr("in_float")


@pytest.mark.parametrize("scale", [SIX, SIX[:1]], ids=["of channels", "of the tensor"])
def test_activations_of_16_bits_stay_in_float(scale: np.ndarray) -> None:
    q = Quantised()
    x = q.channels(1, 6, 5, 5, scale=scale, zero=32768, dtype=np.uint16)
    _, after = q.finish(q.g.add("conv", [x, q.w(6, 1, 3, 3)], pads=(1, 1, 1, 1), group=6))
    (conv,) = [n for n in after.nodes if n.op == "conv"]
    assert conv.inputs[0].dtype is dtypes.f32 and conv.attr("in_float")
