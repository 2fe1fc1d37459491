"""Convolutions in f32, versus ONNX Runtime and torch (oneDNN):  python benchmarks/convs.py

Weights are constants. Shapes come from a seed that is printed: 1×1, 3×3, larger kernels, strided,
dilated, grouped, depthwise, first layers with few input channels, 1-D, 3-D, transposed. For a quick
look: --few 6.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is run by its path

from benchmarks.micro import command
from benchmarks.micro.models import Case, node
from benchmarks.micro.rounds import Implementation

IMPLEMENTATIONS = (
    Implementation("Ingot", "ingot", is_ours=True),
    Implementation("ONNX Runtime", "onnxruntime"),
    Implementation("torch", "torch_eager"),
)
EACH = 7  # cases of every kind
CHANNELS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True)
class ConvShape:
    inputs: int
    outputs: int
    space: tuple[int, ...]
    taps: int
    stride: int = 1
    dilation: int = 1
    group: int = 1
    transposed: bool = False


def one_by_one(r: np.random.Generator) -> ConvShape:
    return ConvShape(_channels(r), _channels(r), _square(r), 1, stride=_of(r, 1, 1, 2))


def three_by_three(r: np.random.Generator) -> ConvShape:
    return ConvShape(_channels(r), _channels(r), _square(r), 3)


def larger_window(r: np.random.Generator) -> ConvShape:
    return ConvShape(_of(r, 16, 32, 64), _of(r, 16, 32, 64), _square(r), _of(r, 5, 7))


def first_layer(r: np.random.Generator) -> ConvShape:
    return ConvShape(
        _of(r, 1, 3, 4), _of(r, 16, 32, 64), _square(r, 96, 225), _of(r, 3, 7), _of(r, 1, 2)
    )


def strided(r: np.random.Generator) -> ConvShape:
    return ConvShape(_channels(r), _channels(r), _square(r), 3, stride=2)


def dilated(r: np.random.Generator) -> ConvShape:
    return ConvShape(_channels(r), _channels(r), _square(r), 3, dilation=_of(r, 2, 3, 4))


def grouped(r: np.random.Generator) -> ConvShape:
    group, wide = _of(r, 2, 4, 8, 32), _of(r, 4, 8, 16)
    return ConvShape(group * wide, group * wide, _square(r), 3, stride=_of(r, 1, 2), group=group)


def depthwise(r: np.random.Generator) -> ConvShape:
    channels = _channels(r)
    size = _square(r)
    return ConvShape(channels, channels, size, _of(r, 3, 5), stride=_of(r, 1, 2), group=channels)


def one_dimension(r: np.random.Generator) -> ConvShape:
    length = int(r.integers(100, 3000))
    return ConvShape(_channels(r), _channels(r), (length,), _of(r, 3, 5, 9), _of(r, 1, 1, 2))


def three_dimensions(r: np.random.Generator) -> ConvShape:
    side = int(r.integers(12, 29))
    return ConvShape(
        _of(r, 3, 16, 32), _of(r, 16, 32, 64), (_of(r, 8, 16), side, side), 3, _of(r, 1, 2)
    )


def transposed(r: np.random.Generator) -> ConvShape:
    taps = _of(r, 2, 3, 4)
    return ConvShape(_channels(r), _channels(r), _square(r, 7, 33), taps, 2, transposed=True)


KINDS: tuple[Callable[[np.random.Generator], ConvShape], ...] = (
    one_by_one, three_by_three, larger_window, first_layer, strided, dilated, grouped, depthwise,
    one_dimension, three_dimensions, transposed,
)  # fmt: skip


def _of(r: np.random.Generator, *choices: int) -> int:
    return int(r.choice(choices))


def _channels(r: np.random.Generator) -> int:
    """70 % common channel counts, 30 % uniform."""
    return _of(r, *CHANNELS) if r.random() < 0.7 else int(r.integers(8, 400))


def _square(r: np.random.Generator, low: int = 7, high: int = 57) -> tuple[int, ...]:
    side = int(r.integers(low, high))
    return side, side


def cases(random: np.random.Generator) -> list[Case]:
    return [_case(kind.__name__, kind(random)) for kind in KINDS for _ in range(EACH)]


def _case(kind: str, s: ConvShape) -> Case:
    rank, side = len(s.space), "x".join(map(str, s.space))
    extent = s.dilation * (s.taps - 1) + 1
    pad = 0 if s.transposed else extent // 2
    ends = (s.outputs, s.inputs) if not s.transposed else (s.inputs, s.outputs)
    weights = (ends[0], ends[1] // s.group, *(s.taps,) * rank)
    attrs = {
        "kernel_shape": [s.taps] * rank,
        "strides": [s.stride] * rank,
        "dilations": [s.dilation] * rank,
        "group": s.group,
        "pads": [pad] * 2 * rank,
    }
    op = "ConvTranspose" if s.transposed else "Conv"
    name = f"{s.inputs}→{s.outputs} {side} k{s.taps} s{s.stride} d{s.dilation} g{s.group}"
    return Case(
        name, kind, (node(op, "xwb", **attrs),), {"x": (1, s.inputs, *s.space)},
        {"w": weights, "b": (s.outputs,)}, _flops(s, pad, extent, weights),
    )  # fmt: skip


def _flops(s: ConvShape, pad: int, extent: int, weights: tuple[int, ...]) -> int:
    if s.transposed:
        points = [s.inputs, *s.space]
    else:
        points = [s.outputs, *((n + 2 * pad - extent) // s.stride + 1 for n in s.space)]
    return 2 * int(np.prod(points)) * int(np.prod(weights[1:]))


if __name__ == "__main__":
    command.main("convs", cases, IMPLEMENTATIONS)
