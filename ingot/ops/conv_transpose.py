"""Transposed convolution, as the plain convolutions that its output is made of.

In: x (batch, channels, *space), weights (in, out / group, *kernel), maybe a bias. Out: (batch, out,
*space). The outputs p, strides apart, of one phase p % stride meet the same taps, so each phase is
a convolution of x as it is with some of the weights, turned round; nothing is multiplied by zeros
between the elements of x. One convolution makes the phases that read the same elements side by
side as channels, `interleave` puts all of them in place: a kernel that is a multiple of the stride
is a single convolution. Called by the decompose pass; layouts, panels and tiles are those of conv.
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
from ingot.ops.common import floats, same_dim
from ingot.ops.conv import AnyConv, Place, Window, window
from ingot.ops.matmul import accumulator, result_dtype

if TYPE_CHECKING:
    from ingot.graph.builder import GraphBuilder

MAX_SPARE = 0.1  # of the arithmetic: outputs that phases side by side make and nobody reads
MAX_CONVOLUTIONS = 8  # in groups, one for each phase


@dataclass(frozen=True)
class Phase:
    """Along one axis, outputs `stride` apart: out[z] = Σ_j x[z + first - j·step] · w[tap + j·skip].

    `first` is where the tap falls for z = 0; `taps` may be none."""

    tap: int
    skip: int
    taps: int
    first: int
    step: int

    @property
    def reach(self) -> tuple[int, int, int]:
        """Phases of one reach read the same elements of x; those without taps none."""
        return (self.taps, self.first, self.step) if self.taps else (0, 0, 0)

    @property
    def begin(self) -> int:
        """What a convolution with the taps turned round has to pad x with; cropped if negative."""
        return (self.taps - 1) * self.step - self.first


def phase(kernel: int, stride: int, dilation: int, place: int) -> Phase:
    """The phase of the outputs that lie at place, place + stride, … before the begin is cut off:
    taps t with t · dilation = place - i · stride for some i."""
    shared = gcd(stride, dilation)
    skip = stride // shared
    tap = next((t for t in range(skip) if (place - t * dilation) % stride == 0), kernel)
    taps = max(0, -(-(kernel - tap) // skip))
    return Phase(tap, skip, taps, (place - tap * dilation) // stride, dilation // shared)


@register
class ConvTranspose(AnyConv):
    """The gradient of conv with respect to its input: each x[n, c, i] adds w[c, o, t] to
    y[n, o, i·stride + t·dilation - begin]."""

    name = "conv_transpose"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, w, bias = self.operands(inputs)
        if not same_dim(x.shape[1], w.shape[0]):
            raise type_error(self.name, f"{x.shape[1]} channels do not fit weights {w}")
        group = attrs.get("group", 1)
        if (arith.as_int(w.shape[0]) or 0) % group:
            raise type_error(self.name, f"{w.shape[0]} channels do not divide into {group} groups")
        space = self.sizes(x.shape[2:], w.shape[2:], attrs)
        channels, dtype = w.shape[1] * group, result_dtype(x.dtype)
        self.check_bias(bias, channels, dtype)
        return [TensorType(dtype, (x.shape[0], channels, *space))]

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
                moves = zip(at, taps, slide.strides, slide.dilations, begins)
                place = tuple(i * s + t * d - lo for i, t, s, d, lo in moves)
                if not all(0 <= p < n for p, n in zip(place, sizes)):
                    continue
                for g in range(group):
                    ins = slice(g * per_in, (g + 1) * per_in)
                    outs = slice(g * per_out, (g + 1) * per_out)
                    source: Place = (slice(None), ins, *at)
                    weight: Place = (ins, slice(None), *taps)
                    target: Place = (slice(None), outs, *place)
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
            return [self.cut(g, inputs, slide, outputs[0], attrs)]
        return [Parts(g, x, w, bias, slide, attrs.get("group", 1), outputs[0]).joined()]

    def cut(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        slide: Window,
        output: TensorType,
        attrs: Attrs,
    ) -> Value:
        """Phases that depend on a begin not known yet: all of it is made, then cut."""
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
class Parts:
    """One node on its way to convolutions."""

    g: GraphBuilder
    x: Value
    w: Value
    bias: Value | None
    slide: Window
    group: int
    output: TensorType

    def joined(self) -> Value:
        """The phases computed and put together."""
        begins = [arith.as_int(lo) or 0 for lo in self.slide.begins]
        starts = [lo % s for lo, s in zip(begins, self.slide.strides)]
        whole = [self.runs(axis, lo - start)
                 for axis, (lo, start) in enumerate(zip(begins, starts))]  # fmt: skip
        if not self.is_dense(starts):
            starts = [0] * len(starts)
            whole = [self.runs(axis, lo) for axis, lo in enumerate(begins)]
        if self.group > 1 and prod(self.slide.strides) <= MAX_CONVOLUTIONS:
            # groups of channels are best left as they are
            whole = [[[phase] for run in runs for phase in run] for runs in whole]
        parts = [self.part(chosen, starts) for chosen in itertools.product(*map(_placed, whole))]
        if prod(self.slide.strides) == 1:
            return parts[0]
        return self.g.add(
            "interleave", parts, runs=tuple(tuple(map(len, runs)) for runs in whole),
            starts=tuple(starts), sizes=self.output.shape[2:], group=self.group,
        )  # fmt: skip

    def runs(self, axis: int, first: int) -> list[list[Phase]]:
        """The phases of an axis, those that read the same elements of x together."""
        kernel, stride = arith.as_int(self.w.shape[2 + axis]), self.slide.strides[axis]
        assert kernel is not None, "known by the type rule"
        phases = [
            phase(kernel, stride, self.slide.dilations[axis], first + place)
            for place in range(stride)
        ]
        return [list(run) for _, run in itertools.groupby(phases, lambda p: p.reach)]

    def is_dense(self, starts: Sequence[int]) -> bool:
        """Is hardly more made than wanted, if phases begin before the first output?"""
        made: arith.Expr = arith.Const(1)
        wanted = made
        for size, start, stride in zip(self.output.shape[2:], starts, self.slide.strides):
            made, wanted = made * arith.ceildiv(size + start, stride) * stride, wanted * size
        sizes = arith.as_int(simplify(made)), arith.as_int(simplify(wanted))
        return None in sizes or sizes[0] <= sizes[1] * (1 + MAX_SPARE)  # type: ignore[operator]

    def part(self, chosen: Sequence[tuple[int, list[Phase]]], starts: Sequence[int]) -> Value:
        """One convolution with an output for each channel and phase of these runs."""
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
        """A convolution that makes exactly these sizes."""
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
        """The taps of phases turned round, for a convolution: (group · phases · out, in, *taps)."""
        g, (ins, outs), taps = self.g, self.w.shape[:2], tuple(p.taps for p in every[0])
        cuts = []
        for phases in every:
            last = tuple(p.tap + (p.taps - 1) * p.skip for p in phases)
            steps, sizes = (1, 1, *(-p.skip for p in phases)), (ins, outs, *taps)
            cuts.append(g.add("slice", [self.w], starts=(0, 0, *last), sizes=sizes, steps=steps))
        joined = g.add("concat", cuts, axis=1) if len(cuts) > 1 else cuts[0]
        wide = outs * len(cuts)
        grouped = g.add("reshape", [joined], shape=(self.group, ins // self.group, wide, *taps))
        turned = g.add("transpose", [grouped], perm=(0, 2, 1, *range(3, 3 + len(taps))))
        return g.add("reshape", [turned], shape=(wide * self.group, ins // self.group, *taps))

    def repeated(self, bias: Value, count: int) -> Value:
        """The bias for each phase, in the order of the weights."""
        if count == 1:
            return bias
        row = self.g.add("reshape", [bias], shape=(self.group, 1, self.w.shape[1]))
        tiled = self.g.add("tile", [row], repeats=(1, count, 1))
        return self.g.add("reshape", [tiled], shape=(bias.shape[0] * count,))


def _placed(runs: Sequence[list[Phase]]) -> list[tuple[int, list[Phase]]]:
    """Each run with the phases before it counted."""
    ends = itertools.accumulate(map(len, runs), initial=0)
    return list(zip(ends, runs))
