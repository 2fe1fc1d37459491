"""hoist_quantize: what is quantised before it moves; bounds and rounding steps that fall away."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.hoist_quantize import hoist_quantize
from ingot.passes.remove_dead_code import remove_dead_code


class Stored:
    """A graph that quantises its result."""

    def __init__(self) -> None:
        self.g = GraphBuilder("stored", ConstantStore())

    def input(self, *shape: int, name: str = "x", dtype: dtypes.DType = dtypes.f32) -> Value:
        return self.g.input(name, tensor(dtype, *shape))

    def params(self, scale: float, zero: int, dtype: type, shape: tuple = ()) -> list[Value]:
        arrays = np.full(shape, scale, np.float32), np.full(shape, zero, dtype)
        return [self.g.constant(a) for a in arrays]

    def q(self, x: Value, scale: float = 0.1, zero: int = 7, dtype: type = np.uint8) -> Value:
        to = dtypes.from_numpy(np.dtype(dtype))
        return self.g.add("quantize_linear", [x, *self.params(scale, zero, dtype)], dtype=to)

    def dq(self, x: Value, scale: float = 0.1, zero: int = 7, dtype: type = np.uint8) -> Value:
        return self.g.add("dequantize_linear", [x, *self.params(scale, zero, dtype)])

    def finish(self, *outputs: Value) -> Graph:
        """The graph after the pass: verified, with equal outputs for edges too."""
        before = self.g.finish(outputs)
        after = remove_dead_code(hoist_quantize(before, self.g.store), self.g.store)
        verify(after)
        rng = np.random.default_rng(0)
        feeds = []
        for value in before.inputs:
            array = rng.integers(0, 256, value.tensor.static_shape)
            if value.dtype.is_float:
                array = rng.standard_normal(array.shape) * 9
                array.reshape(-1)[:5] = [np.inf, -np.inf, np.nan, -0.0, 0.15]
            feeds.append(array.astype(value.dtype.numpy))
        for a, b in zip(run(before, self.g.store, feeds), run(after, self.g.store, feeds)):
            np.testing.assert_array_equal(a, b)
        return after


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


def test_movement_after_quantisation() -> None:
    s = Stored()
    moved = s.g.add("reshape", [s.g.add("transpose", [s.input(3, 4)], perm=(1, 0))], shape=(12,))
    assert ops(s.finish(s.q(moved))) == ["quantize_linear", "transpose", "reshape"]


def test_concat_of_other_scales() -> None:
    """What has the scale of the result is stored already, what has another is quantised again."""
    s = Stored()
    same, other = s.input(2, 3, dtype=dtypes.u8), s.input(2, 4, name="y", dtype=dtypes.u8)
    joined = s.g.add(
        "concat", [s.dq(same), s.dq(other, scale=0.3), s.input(2, 5, name="z")], axis=1
    )
    made = ops(s.finish(s.q(joined)))
    assert sorted(made) == sorted(["dequantize_linear", *["quantize_linear"] * 2, "concat"])
    assert made[-1] == "concat"


def test_padding_is_quantised() -> None:
    s = Stored()
    value = s.g.constant(np.array(-0.23, np.float32))
    padded = s.g.add("pad", [s.input(2, 5), value], before=(0, 1), after=(1, 0))
    assert ops(s.finish(s.q(padded)))[-1] == "pad"


def test_another_reader_keeps_the_floats() -> None:
    s = Stored()
    moved = s.g.add("transpose", [s.input(3, 4)], perm=(1, 0))
    made = ops(s.finish(s.q(moved), s.g.add("neg", [moved])))
    assert sorted(made) == ["neg", "quantize_linear", "transpose"]


@pytest.mark.parametrize(
    ("scale", "zero", "dtype", "falls"),
    [
        (0.1, 7, np.uint8, True), (0.2, 7, np.uint8, False), (0.1, 8, np.uint8, False),
        (0.1, 7, np.int8, False), (np.inf, 7, np.uint8, False), (1e-40, 7, np.uint8, False),
    ],
)  # fmt: skip
def test_rounding_to_the_same_numbers(scale: float, zero: int, dtype: type, falls: bool) -> None:
    s = Stored()
    first = scale if not 0.01 < scale < 1 else 0.1
    real = s.dq(s.input(256, dtype=dtypes.u8), scale=first)
    after = s.finish(s.q(real, scale, zero, dtype))
    assert ("quantize_linear" not in ops(after)) == falls


@pytest.mark.parametrize(
    ("op", "bounds", "zero", "dtype", "falls"),
    [
        ("relu", (), 0, np.uint8, True), ("relu", (), 1, np.uint8, False),
        ("relu", (), -128, np.int8, True), ("relu", (), 0, np.int8, False),
        ("clip", (0.0, 25.5), 0, np.uint8, True), ("clip", (0.0, 25.4), 0, np.uint8, False),
        ("clip", (0.0, 6.0), 0, np.uint8, False), ("clip", (None, 40.0), 0, np.uint8, True),
        ("clip", (5.0, -5.0), 0, np.uint8, False),
    ],
)  # fmt: skip
def test_bounds_that_eight_bits_have(
    op: str, bounds: tuple, zero: int, dtype: type, falls: bool
) -> None:
    s = Stored()
    values = [None if b is None else s.g.constant(np.array(b, np.float32)) for b in bounds]
    bounded = s.g.add(op, [s.input(64), *values])
    assert (op not in ops(s.finish(s.q(bounded, zero=zero, dtype=dtype)))) == falls


def test_a_constant_that_only_broadcasts() -> None:
    """Ones of another rank, expanded and quantised."""
    s = Stored()
    ones = s.g.add("expand", [s.g.constant(np.ones((1, 1), np.float32))], shape=(3, 4, 5))
    total = s.g.add("concat", [ones, s.input(3, 4, 5)], axis=0)
    assert s.finish(s.q(total)).outputs[0].shape == (6, 4, 5)


def test_per_channel_stays() -> None:
    s = Stored()
    moved = s.g.add("transpose", [s.input(3, 4)], perm=(1, 0))
    per_channel = s.params(0.1, 3, np.uint8, (4,))
    y = s.g.add("quantize_linear", [moved, *per_channel], dtype=dtypes.u8, axis=0)
    assert ops(s.finish(y)) == ["transpose", "quantize_linear"]
