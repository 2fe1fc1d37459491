"""use_winograd: which convolutions are replaced by Winograd, which are not; equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, tensor
from ingot.graph.verify import verify
from ingot.passes.use_winograd import use_winograd
from ingot.support import options
from ingot.target import parse

RNG = np.random.default_rng(0)


def convolution(
    ins: int = 32, outs: int = 32, size: int = 15, kernel: int = 3, group: int = 1,
    dtype: dtypes.DType = dtypes.f32, is_constant: bool = True, biased: bool = True, **attrs,
) -> tuple[Graph, ConstantStore]:  # fmt: skip
    def numbers(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape).astype(dtype.numpy)

    g = GraphBuilder("convolution", store := ConstantStore())
    x = g.input("x", tensor(dtype, 1, ins, size, size))
    shape = (outs, ins // group, kernel, kernel)
    w = g.constant(numbers(*shape)) if is_constant else g.input("w", tensor(dtype, *shape))
    bias = [g.constant(numbers(outs))] if biased else []
    return g.finish([g.add("conv", [x, w, *bias], group=group, **attrs)]), store


def dynamic_convolution(
    channels: int, outs: int, height: int | arith.Expr, **symbol
) -> tuple[Graph, ConstantStore]:
    """A map of dynamic width, and of dynamic height if it is given as a variable."""
    g = GraphBuilder("dynamic", store := ConstantStore())
    for name in ("h", "w"):
        g.symbols[name] = Symbol(name, 1, **symbol)
    x = g.input("x", tensor(dtypes.f32, 1, channels, height, arith.Var("w")))
    w = g.constant(RNG.standard_normal((outs, channels, 3, 3)).astype(np.float32))
    return g.finish([g.add("conv", [x, w], pads=(1, 1, 1, 1))]), store


def applied(graph: Graph, store: ConstantStore) -> Graph:
    made = use_winograd(graph, store, parse("x86-64-v3"))
    verify(made)
    return made


def operators(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


@pytest.mark.parametrize(
    "case",
    [{}, {"pads": (1, 1, 1, 1)}, {"pads": (0, 2, 1, 0)}, {"strides": (1, 1), "dilations": (1, 1)},
     {"biased": False}, {"ins": 17, "outs": 133}, {"size": 28, "ins": 24, "outs": 24}],
)  # fmt: skip
def test_winograd_outputs_are_equal(case):
    graph, store = convolution(**case)
    made = applied(graph, store)
    assert operators(made) == ["winograd_conv"]
    assert made.nodes[-1].outputs == graph.nodes[-1].outputs
    x = RNG.standard_normal([int(str(n)) for n in graph.inputs[0].shape]).astype(np.float32)
    (got,), (want,) = (interpret(g, store, [x]) for g in (made, graph))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "case",
    [{"strides": (2, 2)}, {"strides": (1, 2)}, {"dilations": (2, 2)}, {"group": 2}, {"kernel": 5},
     {"kernel": 1}, {"dtype": dtypes.f64}, {"dtype": dtypes.f16}, {"is_constant": False},
     {"ins": 3}, {"outs": 3}, {"ins": 512, "outs": 512, "size": 4}, {"size": 5}],
)  # fmt: skip
def test_others_stay(case):
    graph, store = convolution(**case)
    assert operators(applied(graph, store)) == ["conv"]


@pytest.mark.parametrize("name", ["winograd", "layouts"])
def test_can_be_switched_off(name):
    graph, store = convolution()
    with options.override(off={name}):
        assert applied(graph, store) == graph


def test_infinite_weights_stay():
    """Their transform would have NaN."""
    weights = np.zeros((32, 32, 3, 3), np.float32)
    weights[3, 4, 1, 1] = np.inf
    g = GraphBuilder("infinite", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, 32, 15, 15))
    infinite = g.finish([g.add("conv", [x, g.constant(weights)])])
    assert operators(applied(infinite, store)) == ["conv"]


@pytest.mark.parametrize("height", [arith.Var("h"), 14])
def test_of_dynamic_maps_nothing_is_assumed_but_that_they_are_long(height):
    """Their blocks are consecutive tiles of a grid that a run computes."""
    graph, store = dynamic_convolution(48, 56, height)
    made = applied(graph, store)
    assert operators(made) == ["winograd_conv"]
    attrs = made.nodes[-1].attr_map
    assert "grid" not in attrs and len(attrs["tile_block"]) == 1
    for size in (1, 2, 9):
        x = RNG.standard_normal((1, 48, 14, size)).astype(np.float32)
        (got,), (want,) = (interpret(g, store, [x]) for g in (made, graph))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "outs", "height", "likely"),
    [(3, 64, 14, None), (64, 3, 14, None), (64, 64, 1, None), (512, 512, 4, 4)],
)
def test_other_dynamic_maps_stay(channels, outs, height, likely):
    graph, store = dynamic_convolution(channels, outs, height, likely=likely)
    assert operators(applied(graph, store)) == ["conv"]


@pytest.mark.parametrize(
    ("signed", "channels"), [(False, 64), (True, 64), (False, 2048), (False, 65)]
)
def test_integer_maps(signed, channels):
    """Equal in every bit. With too many channels a sum might not fit in 32 bits; dot products of
    i16 take channels in pairs."""
    dtype = dtypes.i8 if signed else dtypes.u8
    g = GraphBuilder("integers", store := ConstantStore())
    x = g.input("x", tensor(dtype, 1, channels, 9, 9))
    w = RNG.integers(-128, 128, (64, channels, 3, 3)).astype(np.int8)
    fill, bias = np.array(-7 if signed else 200).astype(dtype.numpy), np.arange(64, dtype=np.int32)
    operands = [x, *(g.constant(v) for v in (w, bias, fill))]
    graph = g.finish([g.add("conv", operands, pads=(1, 1, 1, 1))])
    made = applied(graph, store)
    assert operators(made) == ["winograd_conv" if channels == 64 else "conv"]
    given = RNG.integers(dtype.lowest, dtype.highest + 1, (1, channels, 9, 9)).astype(dtype.numpy)
    (want,), (got,) = (interpret(each, store, [given]) for each in (graph, made))
    assert want.dtype == np.int32
    np.testing.assert_array_equal(got, want)
