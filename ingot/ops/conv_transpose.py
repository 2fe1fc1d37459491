"""Transposed convolution (deconvolution), decomposed into convolutions by output phase.

In: x (batch, channels, *space), weights (in, out / group, *kernel), maybe a bias. Out: (batch, out,
*space). All outputs p of one phase p % stride use the same taps, so each phase is a convolution of
x with a flipped subset of the weights, and x is not dilated with zeros (sub-pixel convolution).
One convolution computes all phases that read the same elements of x, side by side as channels;
`interleave` moves them into space. A kernel that is a multiple of the stride is one convolution.
Called by the decompose pass; layouts, packed panels and register tiles are those of conv.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.ops.common import floats, same_dim, tensor_type
from ingot.ops.conv import ConvBase, NumpyIndex, Window, window
from ingot.ops.matmul import accumulator, result_dtype

if TYPE_CHECKING:
    from ingot.graph.builder import GraphBuilder

MAX_WASTE = 0.1  # fraction of the FLOPs spent on outputs that are never read; heuristic
MAX_CONVOLUTIONS = 8  # per grouped convolution, one for each phase; heuristic


@dataclass(frozen=True)
class Phase:
    """Outputs of one axis, `stride` apart: out[z] = Σ_j x[z + first - j·step] · w[tap + j·skip].

    `first` is the index in x that `tap` reads for z = 0; `taps` may be 0."""

    tap: int
    skip: int
    taps: int
    first: int
    step: int

    @property
    def reach(self) -> tuple[int, int, int]:
        """Phases of equal reach read the same elements of x; a phase without taps reads none."""
        return (self.taps, self.first, self.step) if self.taps else (0, 0, 0)

    @property
    def begin(self) -> int:
        """The padding of x for a convolution with the flipped taps; negative crops x."""
        return (self.taps - 1) * self.step - self.first


def phase(kernel: int, stride: int, dilation: int, offset: int) -> Phase:
    """The phase of the outputs offset, offset + stride, … before the leading pad is removed:
    taps t with t · dilation = offset - i · stride for some i."""
    divisor = gcd(stride, dilation)
    skip = stride // divisor
    tap = next((t for t in range(skip) if (offset - t * dilation) % stride == 0), kernel)
    taps = max(0, -(-(kernel - tap) // skip))
    return Phase(tap, skip, taps, (offset - tap * dilation) // stride, dilation // divisor)


@register
class ConvTranspose(ConvBase):
    """The gradient of conv with respect to its input: each x[n, c, i] adds w[c, o, t] to
    y[n, o, i·stride + t·dilation - begin]."""

    name = "conv_transpose"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, w, bias = self.operands(inputs)
        if not same_dim(x.shape[1], w.shape[0]):
            raise type_error(self.name, f"{x.shape[1]} channels do not fit weights {w}")
        group = attrs.get("group", 1)
        if (arith.as_int(w.shape[0]) or 0) % group:
            raise type_error(
                self.name, f"{w.shape[0]} channels are not divisible by {group} groups"
            )
        space = self.sizes(x.shape[2:], w.shape[2:], attrs)
        channels, dtype = w.shape[1] * group, result_dtype(x.dtype)
        self.check_bias(bias, channels, dtype)
        return [TensorType(dtype, (x.shape[0], channels, *space))]

    def multiply_adds(
        self, inputs: Sequence[Type | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> Dim:
        x, w = (tensor_type(self.name, t) for t in inputs[:2])
        return x.numel * arith.product(list(w.shape[1:]))

    def sizes(self, space: Sequence[Dim], kernel: Sequence[Dim], attrs: Attrs) -> tuple[Dim, ...]:
        w = window(self.name, attrs, len(space))
        extra = attrs.get("output_padding") or (0,) * len(space)
        if len(extra) != len(space):
            raise type_error(self.name, f"output_padding {extra} does not fit {len(space)} axes")
        rows = zip(space, kernel, w.strides, w.dilations, w.begins, w.ends, extra)
        return tuple(
            simplify((n - 1) * s + more + ((k - 1) * d + 1) - lo - hi)
            for n, k, s, d, lo, hi, more in rows
        )

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, w, bias = (*inputs, None)[:3]
        assert x is not None and w is not None
        dtype, slide = dtypes.from_numpy(x.dtype), window(self.name, attrs, x.ndim - 2)
        acc, group = accumulator(dtype).numpy, attrs.get("group", 1)
        begins = [arith.as_int(p) or 0 for p in slide.begins]
        shape = [arith.wrap(n) for n in x.shape[2:]], [arith.wrap(k) for k in w.shape[2:]]
        sizes = [arith.as_int(n) or 0 for n in self.sizes(*shape, attrs)]
        per_in, per_out = w.shape[0] // group, w.shape[1]
        out = np.zeros((x.shape[0], per_out * group, *sizes), acc)
        for at in itertools.product(*map(range, x.shape[2:])):
            for taps in itertools.product(*map(range, w.shape[2:])):
                per_axis = zip(at, taps, slide.strides, slide.dilations, begins)
                position = tuple(i * s + t * d - lo for i, t, s, d, lo in per_axis)
                if not all(0 <= p < n for p, n in zip(position, sizes)):
                    continue
                for g in range(group):
                    ins = slice(g * per_in, (g + 1) * per_in)
                    outs = slice(g * per_out, (g + 1) * per_out)
                    source: NumpyIndex = (slice(None), ins, *at)
                    weight: NumpyIndex = (ins, slice(None), *taps)
                    target: NumpyIndex = (slice(None), outs, *position)
                    out[target] += x[source].astype(acc) @ w[weight].astype(acc)
        if bias is not None:
            out = out + bias.astype(acc).reshape(1, -1, *(1,) * (x.ndim - 2))
        return [out.astype(result_dtype(dtype).numpy)]

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x, w, bias = (*inputs, None)[:3]
        assert x is not None and w is not None
        slide = window(self.name, attrs, x.tensor.rank - 2)
        if any(arith.as_int(lo) is None for lo in slide.begins):
            return [self.cropped(g, inputs, slide, outputs[0], attrs)]
        group = attrs.get("group", 1)
        return [PhaseConvolutions(g, x, w, bias, slide, group, outputs[0]).interleaved()]

    def cropped(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        slide: Window,
        output: TensorType,
        attrs: Attrs,
    ) -> Value:
        """With dynamic pads the phases are unknown: compute the unpadded output, then slice it."""
        rank = output.rank - 2
        whole = g.add(self.name, inputs, **{**attrs, "pads": (0,) * (2 * rank)})
        starts = (0, 0, *slide.begins)
        return g.add("slice", [whole], starts=starts, sizes=output.shape, steps=(1,) * output.rank)

    def samples(self) -> list[Sample]:
        def case(x, w, bias=None, **attrs) -> Sample:
            loose = 1e-2 if x.dtype.itemsize == 2 else 1e-5
            return Sample((x, w, bias), attrs, rtol=loose, atol=loose)

        half = dtypes.f16
        return [
            case(floats(1, 2, 3, 4), floats(2, 3, 3, 3), floats(3)),
            case(floats(1, 2, 3, 3), floats(2, 3, 3, 2), strides=(2, 3), pads=(1, 0, 0, 1)),
            case(floats(1, 4, 3), floats(4, 2, 3), group=2, strides=(2,), output_padding=(1,)),
            case(floats(2, 2, 3, 3), floats(2, 1, 2, 2), dilations=(2, 3), pads=(1, 2, 1, 0)),
            case(floats(1, 1, 2, 2, 2), floats(1, 2, 2, 1, 3), floats(2), strides=(2, 1, 2)),
            case(floats(1, 2, 3, 3), floats(2, 2, 1, 1), strides=(3, 3), pads=(1, 1, 0, 0)),
            case(floats(1, 2, 4, dtype=half), floats(2, 2, 3, dtype=half), strides=(2,)),
            case(floats(1, 2, 5, 4), floats(2, 3, 4, 2), floats(3), strides=(2, 2)),
            case(floats(1, 2, 3), floats(2, 3, 2), floats(3), strides=(3,), output_padding=(2,)),
            case(floats(1, 3, 4), floats(3, 2, 5), dilations=(4,), strides=(6,), pads=(5, 3)),
        ]


@dataclass(frozen=True)
class PhaseConvolutions:
    """The decomposition of one node: a convolution for each run of phases of equal reach."""

    g: GraphBuilder
    x: Value
    w: Value
    bias: Value | None
    slide: Window
    group: int
    output: TensorType

    def interleaved(self) -> Value:
        """The outputs of all phases, interleaved in space."""
        begins = [arith.as_int(lo) or 0 for lo in self.slide.begins]
        starts = [lo % s for lo, s in zip(begins, self.slide.strides)]
        whole = [self.runs(axis, lo - start)
                 for axis, (lo, start) in enumerate(zip(begins, starts))]  # fmt: skip
        if not self.is_dense(starts):
            starts = [0] * len(starts)
            whole = [self.runs(axis, lo) for axis, lo in enumerate(begins)]
        if self.group > 1 and prod(self.slide.strides) <= MAX_CONVOLUTIONS:
            # one convolution for each phase: the groups of channels stay contiguous
            whole = [[[phase] for run in runs for phase in run] for runs in whole]
        chosen = itertools.product(*map(_with_offsets, whole))
        convolved = [self.convolution(runs, starts) for runs in chosen]
        if prod(self.slide.strides) == 1:
            return convolved[0]
        return self.g.add(
            "interleave", convolved, runs=tuple(tuple(map(len, runs)) for runs in whole),
            starts=tuple(starts), sizes=self.output.shape[2:], group=self.group,
        )  # fmt: skip

    def runs(self, axis: int, first: int) -> list[list[Phase]]:
        """The phases of an axis, grouped into runs that read the same elements of x."""
        kernel, stride = arith.as_int(self.w.shape[2 + axis]), self.slide.strides[axis]
        assert kernel is not None, "infer requires a static kernel"
        phases = [
            phase(kernel, stride, self.slide.dilations[axis], first + offset)
            for offset in range(stride)
        ]
        return [list(run) for _, run in itertools.groupby(phases, lambda p: p.reach)]

    def is_dense(self, starts: Sequence[int]) -> bool:
        """Whether few outputs are wasted if the phases begin before the first output."""
        computed: arith.Expr = arith.Const(1)
        used = computed
        for size, start, stride in zip(self.output.shape[2:], starts, self.slide.strides):
            padded = arith.ceildiv(size + start, stride) * stride
            computed, used = computed * padded, used * size
        sizes = arith.as_int(simplify(computed)), arith.as_int(simplify(used))
        return None in sizes or sizes[0] <= sizes[1] * (1 + MAX_WASTE)  # type: ignore[operator]

    def convolution(
        self, chosen: Sequence[tuple[int, list[Phase]]], starts: Sequence[int]
    ) -> Value:
        """One convolution with an output channel for each channel and phase of these runs."""
        rows = zip(self.output.shape[2:], starts, chosen, self.slide.strides)
        sizes = [simplify(arith.ceildiv(n + lo - first, s)) for n, lo, (first, _), s in rows]
        every = list(itertools.product(*(run for _, run in chosen)))
        bias = self.bias and self.repeated(self.bias, len(every))
        if all(p.taps for p in every[0]):
            return self.convolved(self.weights(every), bias, every[0], sizes)
        channels = self.output.shape[1] * len(every)
        fill = bias or self.g.constant(np.zeros((1,), self.output.dtype.numpy))
        column = self.g.add("reshape", [fill], shape=(1, fill.shape[0], *(1,) * len(sizes)))
        return self.g.add("expand", [column], shape=(self.x.shape[0], channels, *sizes))

    def convolved(
        self, w: Value, bias: Value | None, phases: Sequence[Phase], sizes: Sequence[Dim]
    ) -> Value:
        """The convolution with exactly these output sizes."""
        x = self.x
        begins: list[Dim] = [arith.Const(p.begin) for p in phases]
        rows = zip(x.shape[2:], begins, sizes, phases)
        ends = [simplify(size + (p.taps - 1) * p.step - n - lo) for n, lo, size, p in rows]
        pads = [*begins, *ends]
        if any(arith.as_int(p) is None or (arith.as_int(p) or 0) < 0 for p in pads):
            none = (0, 0)
            x = self.g.add("pad", [x], before=(*none, *begins), after=(*none, *ends))
            pads = [arith.Const(0)] * len(pads)
        return self.g.add(
            "conv", [x, w] if bias is None else [x, w, bias], group=self.group,
            strides=(1,) * len(phases), dilations=tuple(p.step for p in phases),
            pads=tuple(pads),
        )  # fmt: skip

    def weights(self, every: Sequence[Sequence[Phase]]) -> Value:
        """The flipped taps of the phases as conv weights: (group · phases · out, in, *taps)."""
        g, (ins, outs), taps = self.g, self.w.shape[:2], tuple(p.taps for p in every[0])
        slices = []
        for phases in every:
            last = tuple(p.tap + (p.taps - 1) * p.skip for p in phases)
            steps, sizes = (1, 1, *(-p.skip for p in phases)), (ins, outs, *taps)
            slices.append(g.add("slice", [self.w], starts=(0, 0, *last), sizes=sizes, steps=steps))
        stacked = g.add("concat", slices, axis=1) if len(slices) > 1 else slices[0]
        wide = outs * len(slices)
        grouped = g.add("reshape", [stacked], shape=(self.group, ins // self.group, wide, *taps))
        transposed = g.add("transpose", [grouped], perm=(0, 2, 1, *range(3, 3 + len(taps))))
        return g.add("reshape", [transposed], shape=(wide * self.group, ins // self.group, *taps))

    def repeated(self, bias: Value, count: int) -> Value:
        """The bias repeated for each phase, in the order of the weights."""
        if count == 1:
            return bias
        row = self.g.add("reshape", [bias], shape=(self.group, 1, self.w.shape[1]))
        tiled = self.g.add("tile", [row], repeats=(1, count, 1))
        return self.g.add("reshape", [tiled], shape=(bias.shape[0] * count,))


def _with_offsets(runs: Sequence[list[Phase]]) -> list[tuple[int, list[Phase]]]:
    """Each run with the number of phases before it."""
    ends = itertools.accumulate(map(len, runs), initial=0)
    return list(zip(ends, runs))
