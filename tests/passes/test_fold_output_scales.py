"""fold_output_scales: one multiply-add in the epilogue of integer sums; results within a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.fold_output_scales import fold_output_scales

F32 = np.float32
RNG = np.random.default_rng(0)


class Sums:
    """Scaled sums of a convolution of integers: about ±400 in units of the output's step."""

    def __init__(self) -> None:
        self.g = GraphBuilder("g", ConstantStore())
        self.image = self.g.input("x", tensor(dtypes.u8, 2, 3, 40, 40))
        w = self.g.constant(RNG.integers(-128, 128, (8, 3, 3, 3)).astype(np.int8))
        total = self.g.add("conv", [self.image, w])
        self.scales = RNG.uniform(0.01, 0.015, (8, 1, 1)).astype(F32)
        self.real = self.scaled(total, self.scales)

    def scaled(self, total: Value, scales: np.ndarray) -> Value:
        real = self.g.add("cast", [total], to=dtypes.f32)
        return self.g.add("mul", [real, self.g.constant(scales)])

    def number(self, array: float | np.ndarray) -> Value:
        return self.g.constant(np.asarray(array, F32))

    def q(
        self,
        x: Value,
        scale: float | np.ndarray = 0.37,
        zero: int | np.ndarray = 0,
        dtype: type = np.uint8,
    ) -> Value:
        to = dtypes.from_numpy(np.dtype(dtype))
        params = [self.number(scale), self.g.constant(np.array(zero, dtype))]
        return self.g.add("quantize_linear", [x, *params], dtype=to)

    def finish(self, *outputs: Value, steps: int = 1) -> Graph:
        before = self.g.finish(outputs)
        after = fold_output_scales(before, self.g.store)
        verify(after)
        feeds = [RNG.integers(0, 256, self.image.tensor.static_shape).astype(np.uint8)]
        for a, b in zip(run(before, self.g.store, feeds), run(after, self.g.store, feeds)):
            off = np.abs(a.astype(np.int64) - b)
            assert off.max(initial=0) <= steps and np.count_nonzero(off) <= 1e-3 * off.size
            assert a.dtype == b.dtype and len(np.unique(a)) > 20
        return after


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


BIAS = RNG.standard_normal((8, 1, 1)) * 5
FORMS: dict[str, tuple[Callable[[Sums], Value], int, list[str]]] = {
    "sums": (lambda s: s.real, 0, []),
    "zero point": (lambda s: s.real, 100, []),
    "bias": (lambda s: s.g.add("add", [s.real, s.number(BIAS)]), 3, ["add"]),
    "relu": (lambda s: s.g.add("relu", [s.real]), 0, []),
    "relu above": (lambda s: s.g.add("relu", [s.real]), 50, ["clip"]),
    "clip": (lambda s: s.g.add("clip", [s.real, s.number(0), s.number(60.0)]), 0, ["clip"]),
    "wide clip": (lambda s: s.g.add("clip", [s.real, s.number(0), s.number(600.0)]), 0, []),
    "norm": (
        lambda s: s.g.add(
            "add", [s.g.add("mul", [s.real, s.number(BIAS / 9)]), s.number(BIAS)]
        ), 90, ["add"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_one_multiply_add(name: str, dtype: type) -> None:
    real, zero, more = FORMS[name]
    s = Sums()
    shift = 128 if dtype is np.int8 else 0
    made = ops(s.finish(s.q(real(s), zero=zero - shift, dtype=dtype)))
    last = ["round", *(["add"] if zero - shift else []), "cast"]
    assert made[-len(last) :] == last  # the zero point comes after rounding: ties stay as they are
    assert sorted(made) == sorted(["conv", "cast", "mul", *more, *last])


CHANNELS = RNG.uniform(0.2, 0.5, 8).astype(F32)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("zero", [0, 90, np.arange(8) * 20])
def test_scales_of_channels(name: str, zero: int | np.ndarray) -> None:
    """What NNCF writes before a depthwise convolution."""
    s = Sums()
    zeros = np.broadcast_to(np.asarray(zero), (8,))
    made = ops(s.finish(s.q(FORMS[name][0](s), scale=CHANNELS, zero=zeros)))
    assert "quantize_linear" not in made and "div" not in made
    assert made.count("mul") == 1


def test_other_functions_are_divided_by_no_scale() -> None:
    s = Sums()
    silu = s.g.add("mul", [s.real, s.g.add("sigmoid", [s.real])])
    made = ops(s.finish(s.q(silu, zero=3)))
    assert "quantize_linear" not in made and made[-3:] == ["round", "add", "cast"]


def test_rounding_steps_inside() -> None:
    """A residual: quantised, dequantised and added to another stored value."""
    s = Sums()
    params = [s.number(0.37), s.g.constant(np.array(100, np.uint8))]
    first = s.g.add("dequantize_linear", [s.q(s.real, zero=100), *params])
    other = s.g.input("y", tensor(dtypes.u8, 2, 8, 38, 38))
    added = s.g.add("add", [first, s.g.add("dequantize_linear", [other, *params])])
    y = s.q(s.g.add("relu", [added]), scale=0.61)
    before = s.g.finish([y])
    after = fold_output_scales(before, s.g.store)
    verify(after)
    assert "quantize_linear" not in ops(after) and ops(after).count("round") == 2
    feeds = [RNG.integers(0, 256, v.tensor.static_shape).astype(np.uint8) for v in before.inputs]
    (a,), (b,) = (run(graph, s.g.store, feeds) for graph in (before, after))
    assert np.mean(a != b) < 1e-3


def test_floats_are_divided() -> None:
    """Only in an epilogue of integer sums is x · (1 / s) for x / s."""
    g = GraphBuilder("g", ConstantStore())
    x, scale = g.input("x", tensor(dtypes.f32, 4)), g.constant(np.array(0.1, F32))
    graph = g.finish([g.add("quantize_linear", [x, scale], dtype=dtypes.u8)])
    assert fold_output_scales(graph, g.store) == graph


def test_another_reader_keeps_the_sums() -> None:
    s = Sums()
    quantised = s.q(s.g.add("relu", [s.real]))
    before = s.g.finish([quantised, s.real])
    after = fold_output_scales(before, s.g.store)
    verify(after)
    feeds = [RNG.integers(0, 256, s.image.tensor.static_shape).astype(np.uint8)]
    pair = [run(graph, s.g.store, feeds) for graph in (before, after)]
    np.testing.assert_array_equal(pair[0][1], pair[1][1])
    assert np.mean(pair[0][0] != pair[1][0]) < 1e-3


@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_a_scale_of_one_is_exact(zero: int) -> None:
    """Requantised sums of QLinear operators: halves round to even before the zero point."""
    g = GraphBuilder("g", ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1000))
    params = [g.constant(np.array(1, F32)), g.constant(np.array(zero, np.uint8))]
    graph = g.finish([g.add("quantize_linear", [x, *params], dtype=dtypes.u8)])
    after = fold_output_scales(graph, g.store)
    assert "quantize_linear" not in ops(after)
    feeds = np.arange(-400, 600, dtype=F32) / 2
    feeds[:4] = np.nan, np.inf, -np.inf, 1e30
    (a,), (b,) = (run(each, g.store, [feeds]) for each in (graph, after))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("scale", [0.0, -0.37, np.nan, np.inf, 1e-38])
def test_odd_scales_stay(scale: float) -> None:
    s = Sums()
    graph = s.g.finish([s.q(s.real, scale=scale)])
    assert "quantize_linear" in ops(fold_output_scales(graph, s.g.store))
