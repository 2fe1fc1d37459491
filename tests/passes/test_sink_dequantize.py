"""sink_dequantize: what moves 8-bit elements, what stays; equal outputs."""

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
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.sink_dequantize import sink_dequantize

SCALE, ZERO = np.float32(0.1), np.uint8(7)


class Real:
    """A graph over dequantised inputs."""

    def __init__(self, *shape: int, scales: tuple[float, ...] = (SCALE,), zero: int = ZERO):
        self.g = GraphBuilder("real", ConstantStore())
        self.x = [self.real(f"x{i}", shape, s, zero) for i, s in enumerate(scales)]

    def real(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> Value:
        x = self.g.input(name, tensor(dtypes.u8, *shape))
        params = [np.array(scale, np.float32), np.array(zero, np.uint8)]
        return self.g.add("dequantize_linear", [x, *map(self.g.constant, params)])

    def scalar(self, number: float) -> Value:
        return self.g.constant(np.array(number, np.float32))

    def finish(self, y: Value) -> tuple[Graph, Graph]:
        """Before and after the pass: verified, with equal outputs."""
        before = self.g.finish([y])
        after = sink_dequantize(before, self.g.store)
        verify(after)
        rng = np.random.default_rng(0)
        for _ in range(2):
            feeds = [rng.integers(0, 256, v.tensor.static_shape, np.uint8) for v in before.inputs]
            for a, b in zip(run(before, self.g.store, feeds), run(after, self.g.store, feeds)):
                np.testing.assert_array_equal(a, b)
        return before, after


def last(graph: Graph) -> str:
    return graph.producers()[graph.outputs[0].name].op


MOVES: dict[str, Callable[[Real, Value], Value]] = {
    "transpose": lambda r, x: r.g.add("transpose", [x], perm=(1, 0, 2, 3)),
    "reshape": lambda r, x: r.g.add("reshape", [x], shape=(2, 3 * 36)),
    "slice": lambda r, x: r.g.add(
        "slice", [x], starts=(0, 1, 5, 0), sizes=(2, 1, 3, 6), steps=(1, 1, -2, 1)
    ),
    "gather": lambda r, x: r.g.add("gather", [x, r.g.constant(np.array([2, 0, 2]))], axis=1),
    "max_pool": lambda r, x: r.g.add("max_pool", [x], kernel=(3, 3), pads=(1, 1, 1, 1)),
    "relu": lambda r, x: r.g.add("relu", [x]),
    "clip": lambda r, x: r.g.add("clip", [x, r.scalar(0.0), None]),
    "pad": lambda r, x: r.g.add("pad", [x], before=(0, 0, 1, 2), after=(0, 0, 0, 1)),
    "pad_reflect": lambda r, x: r.g.add(
        "pad", [x], before=(0, 0, 1, 2), after=(0, 0, 0, 1), mode="reflect"
    ),
    "resize": lambda r, x: r.g.add(
        "resize", [x], axis=2, size=9, mode="nearest", coordinates="asymmetric", rounding="floor"
    ),
    "two": lambda r, x: r.g.add("relu", [r.g.add("transpose", [x], perm=(0, 1, 3, 2))]),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_movement_of_bytes(name: str) -> None:
    r = Real(2, 3, 6, 6)
    _, after = r.finish(MOVES[name](r, r.x[0]))
    assert last(after) == "dequantize_linear"
    alive = remove_dead_code(after, r.g.store)
    assert sum(n.op == "dequantize_linear" for n in alive.nodes) == 1


STAYS: dict[str, Callable[[Real, Value], Value]] = {
    "off the grid": lambda r, x: r.g.add("clip", [x, None, r.scalar(0.123)]),
    "not stored": lambda r, x: r.g.add("pad", [x, r.scalar(-3.0)], before=(0,) * 4, after=(1,) * 4),
    "linear": lambda r, x: r.g.add(
        "resize", [x], axis=2, size=9, mode="linear", coordinates="asymmetric", rounding="floor"
    ),
    "extrapolated": lambda r, x: r.g.add(
        "resize", [x], axis=2, size=9, mode="nearest", coordinates="tf_crop_and_resize",
        rounding="floor", roi=(0.0, 2.0), extrapolation=9.0,
    ),
    "arithmetic": lambda r, x: r.g.add("neg", [x]),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    r = Real(2, 3, 6, 6)
    before, after = r.finish(STAYS[name](r, r.x[0]))
    assert last(after) == last(before)


@pytest.mark.parametrize("scale", [-0.1, 0.0, np.inf, np.nan, 1e-40])
def test_order_is_that_of_positive_scales(scale: float) -> None:
    """A maximum of reals is one of the stored numbers only where a larger one is a larger real."""
    r = Real(1, 2, 4, 4, scales=(scale,))
    pooled = r.g.add("max_pool", [r.x[0]], kernel=(2, 2))
    _, after = r.finish(pooled)
    assert last(after) == "max_pool"


@pytest.mark.parametrize("scales", [(0.1, 0.1), (0.1, 0.2)])
def test_concat_of_one_scale(scales: tuple[float, float]) -> None:
    r = Real(2, 3, scales=scales)
    _, after = r.finish(r.g.add("concat", r.x, axis=1))
    assert last(after) == ("dequantize_linear" if scales[0] == scales[1] else "concat")


def test_several_readers_and_an_output() -> None:
    """A dequantised value that others read too stays for them."""
    r = Real(4, 6)
    moved = r.g.add("transpose", [r.x[0]], perm=(1, 0))
    before = r.g.finish([r.x[0], moved, r.g.add("neg", [r.x[0]])])
    after = sink_dequantize(before, r.g.store)
    verify(after)
    ops = [after.producers()[v.name].op for v in after.outputs]
    assert ops == ["dequantize_linear", "dequantize_linear", "neg"]


def test_per_channel_and_other_types_stay() -> None:
    g = GraphBuilder("g", ConstantStore())
    x, y = g.input("x", tensor(dtypes.u8, 3, 4)), g.input("y", tensor(dtypes.i16, 3, 4))
    scales, one = g.constant(np.ones(3, np.float32)), g.constant(np.array(0.5, np.float32))
    reals = [
        g.add("dequantize_linear", [x, scales], axis=0),
        g.add("dequantize_linear", [y, one]),
        g.add("dequantize_linear", [x, g.constant(np.array(0.5, np.float16))]),
    ]
    graph = g.finish([g.add("transpose", [r], perm=(1, 0)) for r in reals])
    assert sink_dequantize(graph, g.store) == graph
