"""Integer contractions, u8 · i8 with constant weights:  python benchmarks/int8.py [--target T]

For each shape: GOP/s of its kernels on one thread, the share of the dot-product instruction's peak
(that of f32, measured, times its multiplications per f32 lane), and how many times as fast as
Ingot's f32 of the same shape. Only the contraction's own kernels count: a model stores its maps
channels-last, this benchmark's input is not. Two operations are a multiplication and an addition.
Times are first quartiles, since a core that is shared is no faster at times; the clock of a
profile is calibrated by each run, so that the least is none. For a quick look: --few 4.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is run by its path

from ingot import dtypes, pipeline
from ingot.cost.dot_products import dot_product
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.types import tensor
from ingot.runtime.executable import Executable
from ingot.target import Target

RUNS = 40
CONTRACTIONS = ("matmul", "conv", "winograd")  # how the names of their kernels begin


@dataclass(frozen=True)
class Shape:
    """A GEMM of m rows, or a convolution of a map of size × size."""

    columns: int
    depth: int  # input channels of a convolution
    rows: int = 0
    size: int = 0
    taps: int = 1
    stride: int = 1

    @property
    def name(self) -> str:
        if self.rows:
            return f"{self.rows} x {self.columns} x {self.depth}"
        what = f"conv {self.taps}x{self.taps}" + (f" / {self.stride}" if self.stride > 1 else "")
        return f"{what}, {self.size}² x {self.depth} → {self.columns}"

    @property
    def operations(self) -> int:
        rows = self.rows or (-(-self.size // self.stride)) ** 2
        return 2 * rows * self.columns * self.depth * self.taps**2

    def build(self, g: GraphBuilder, dtype: DType) -> tuple[Graph, np.ndarray]:
        random = np.random.default_rng(0)
        shape = (self.rows, self.depth) if self.rows else (1, self.depth, self.size, self.size)
        x = g.input("x", tensor(dtype, *shape))
        taps = () if self.rows else (self.taps,) * 2
        w = random.integers(-127, 128, (self.columns, self.depth, *taps))
        weights = w.astype(np.float32 if dtype.is_float else np.int8)
        if self.rows:
            y = g.add("matmul", [x, g.constant(np.ascontiguousarray(weights.T))])
        else:
            pads = (self.taps // 2,) * 4
            y = g.add("conv", [x, g.constant(weights)], pads=pads, strides=(self.stride,) * 2)
        return g.finish([y]), random.integers(0, 128, shape).astype(dtype.numpy)


SHAPES = (
    Shape(256, 1024, rows=64),
    Shape(1024, 1024, rows=1),
    Shape(768, 768, rows=7),
    Shape(768, 768, rows=32),
    Shape(3072, 768, rows=128),
    Shape(768, 3072, rows=128),
    Shape(1000, 250, rows=100),
    *(Shape(n, n, size=s, taps=1) for n, s in ((64, 56), (128, 28), (256, 14), (512, 7))),
    *(Shape(n, n, size=s, taps=3) for n, s in ((64, 56), (128, 28), (256, 14), (512, 7))),
    Shape(256, 64, size=56),
    Shape(128, 128, size=56, taps=3, stride=2),
    Shape(64, 3, size=224, taps=7, stride=2),
    Shape(32, 3, size=224, taps=3, stride=2),
    Shape(24, 144, size=56),
)


def measured(shape: Shape, dtype: DType, target: str) -> tuple[float, float]:
    """The contraction's µs, and the peak of f32 in FLOP/µs."""
    session = pipeline.open_session(target, profile=True)
    graph, x = shape.build(GraphBuilder("g", session.store), dtype)
    exe = Executable(pipeline.run_stages(graph, session), 1, {}, None)
    times, peaks = [], []
    for _ in range(RUNS):
        profile = exe.profile({"x": x})
        peaks.append(profile.peak.flops_per_us)
        own = (r.time_us for r in profile.rows if r.kernel.startswith(CONTRACTIONS))
        times.append(sum(own))
    return sorted(times)[RUNS // 4], sorted(peaks)[-RUNS // 4]


def per_f32_lane(target: Target) -> float:
    """Multiplications of a dot-product instruction for each of an FMA's."""
    row = dot_product(target, dtypes.u8, dtypes.i8) or dot_product(target, dtypes.i16, dtypes.i16)
    return 1.0 if row is None else row.group * row.lanes / target.lanes(dtypes.f32)


def main(shapes: tuple[Shape, ...], target: str, write: Callable[[str], object] = print) -> None:
    factor = per_f32_lane(pipeline.open_session(target).target)
    write(f"{target}, one thread; {'':<14}      GOP/s  of peak  f32 GOP/s  int8/f32")
    for shape in shapes:
        ours, peak = measured(shape, dtypes.u8, target)
        floats, other_peak = measured(shape, dtypes.f32, target)
        rate, f32_rate = (shape.operations / t / 1e3 for t in (ours, floats))
        share = rate / (max(peak, other_peak) * factor / 1e3)
        line = f"{rate:8.0f}  {share:6.0%}  {f32_rate:9.0f}  {floats / ours:7.2f}"
        write(f"{shape.name:<34} {line}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--few", type=int, default=len(SHAPES))
    given = parser.parse_args()
    main(SHAPES[:: max(1, len(SHAPES) // given.few)], given.target)
