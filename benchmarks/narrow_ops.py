"""Operators on bytes that are not dense dot products, against the same operators on f32.

    python -m benchmarks.narrow_ops [target]      one thread, half a second for each row

Both run in turns; the least time of each is printed, with the rate of the bytes version: GB/s of
operands and result, or GOP/s (two for a multiplication) of convolutions. In: nothing. Called by
hand.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ingot
from ingot import pipeline
from ingot.dtypes import DType, f32, i8, u8
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor

SECONDS = 0.5  # of alternating runs for each row
SHAPE = (512, 512)
# MobileNet-v2's and EfficientNet-B0's: channels, size, stride, window
WINDOWS = ((96, 112, 2, 3), (144, 56, 1, 3), (192, 28, 1, 3), (384, 14, 1, 3), (960, 7, 1, 3),
           (240, 28, 1, 5), (672, 14, 1, 5))  # fmt: skip
Build = Callable[["Net"], Value]


class Net:
    """A graph under construction, for maps of f32 or of quantised bytes."""

    def __init__(self, dtype: DType):
        self.dtype, self.store = dtype, ConstantStore()
        self.g = GraphBuilder("narrow", self.store)

    def array(self, *shape: int, name: str = "x") -> Value:
        return self.g.input(name, tensor(self.dtype, *shape))

    def parameters(self) -> list[Value]:
        zero = np.array(117 if self.dtype is u8 else -5, self.dtype.numpy)
        return [self.g.constant(np.array(0.05, np.float32)), self.g.constant(zero)]

    def real(self, x: Value) -> Value:
        return x if self.dtype is f32 else self.g.add("dequantize_linear", [x, *self.parameters()])

    def stored(self, x: Value) -> Value:
        if self.dtype is f32:
            return x
        return self.g.add("quantize_linear", [x, *self.parameters()], dtype=self.dtype)


def unary(op: str) -> Build:
    return lambda net: net.stored(net.g.add(op, [net.real(net.array(*SHAPE))]))


def addition(net: Net) -> Value:
    x, y = (net.real(net.array(*SHAPE, name=name)) for name in "xy")
    return net.stored(net.g.add("add", [x, y]))


def movement(op: str, shape: tuple[int, ...], **attrs: Any) -> Build:
    return lambda net: net.g.add(op, [net.array(*shape)], **attrs)


def window(channels: int, size: int, stride: int, kernel: int) -> Build:
    """A channels-last depthwise convolution with its requantisation, or ReLU."""

    def build(net: Net) -> Value:
        g, rng, pads = net.g, np.random.default_rng(0), (kernel // 2,) * 4
        x = g.add("transpose", [net.array(1, size, size, channels)], perm=(0, 3, 1, 2))
        weights = rng.integers(-127, 128, (channels, 1, kernel, kernel))
        attrs = {"group": channels, "strides": (stride,) * 2, "pads": pads}
        if net.dtype is f32:
            made = g.add("conv", [x, g.constant(weights.astype(np.float32))], **attrs)
            y = g.add("relu", [made])
        else:
            fill = net.parameters()[1]
            sums = g.add("conv", [x, g.constant(weights.astype(np.int8)), None, fill], **attrs)
            scales = g.constant(np.full((channels, 1, 1), 2.0**-8, np.float32))
            y = net.stored(g.add("mul", [g.add("cast", [sums], to=f32), scales]))
        return g.add("transpose", [y], perm=(0, 2, 3, 1))

    return build


def rows() -> Iterator[tuple[str, Build, float | None]]:
    """Names, graphs, and operations where these are counted."""
    for op in ("relu", "hard_swish", "sigmoid", "gelu"):
        yield op, unary(op), None
    yield "add", addition, None
    yield "transpose", movement("transpose", SHAPE, perm=(1, 0)), None
    yield "NCHW to NHWC", movement("transpose", (1, 64, 56, 56), perm=(0, 2, 3, 1)), None
    yield "maximum", movement("reduce_max", SHAPE, axes=(0, 1), keepdims=False), None
    for c, size, stride, k in WINDOWS:
        work = 2.0 * c * (size // stride) ** 2 * k * k
        yield f"depthwise {k}x{k}/{stride}, {c} x {size}²", window(c, size, stride, k), work


def compiled(build: Build, dtype: DType, target: str) -> tuple[ingot.Executable, dict]:
    net, rng = Net(dtype), np.random.default_rng(0)
    graph = net.g.finish([build(net)])
    session = pipeline.open_session(target, store=net.store)
    feeds = {}
    for value in graph.inputs:
        shape = value.tensor.static_shape or ()
        low, high = (-3, 3) if dtype is f32 else (int(dtype.lowest), int(dtype.highest))
        feeds[value.name] = rng.uniform(low, high, shape).astype(dtype.numpy)
    return ingot.Executable(pipeline.run_stages(graph, session), 1), feeds


def least_us(runs: list[tuple[ingot.Executable, dict]]) -> list[float]:
    found, end = [float("inf")] * len(runs), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for n, (exe, feeds) in enumerate(runs):
            start = time.perf_counter()
            exe.run(None, feeds)
            found[n] = min(found[n], time.perf_counter() - start)
    return [1e6 * seconds for seconds in found]


def main(target: str = "cpu") -> None:
    print(f"{target}: {'':26} f32 µs   u8 µs   i8 µs   f32/u8   rate of u8")
    for name, build, operations in rows():
        runs = [compiled(build, dtype, target) for dtype in (f32, u8, i8)]
        wide, plain, signed = least_us(runs)
        exe, feeds = runs[1]
        moved = sum(x.nbytes for x in (*feeds.values(), *exe.run(None, feeds)))
        rate = f"{(operations or moved) / plain / 1e3:.0f} {'GOP/s' if operations else 'GB/s'}"
        ratio = wide / plain
        print(f"{name:32} {wide:8.1f} {plain:7.1f} {signed:7.1f} {ratio:8.2f}   {rate}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
