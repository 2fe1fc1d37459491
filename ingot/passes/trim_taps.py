"""Cuts filter taps that only ever meet padding from a convolution's constant weights.

    conv(x[1 × 1], w[3 × 3], pads 1)  →  conv(x, w[1:2, 1:2], pads 0): a GEMM

On maps smaller than the filter most products have padding as one factor: on a 1 × 1 map eight of
nine taps of a 3 × 3 filter. A rule of simplify_algebra; it holds for finite taps, since 0 · inf is
NaN. In: a convolution of static spatial sizes. Out: one with a smaller filter, or None.

Where the height is dynamic, a depthwise convolution gets `clip_rows`: its kernel skips taps on rows
of the padding (legalize/skip_zero_terms.py), and only columns are padded. An OCR model runs 5 × 5
filters over three rows, where two of five taps meet padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.ir import Node, Value, make_attrs, replace
from ingot.ops.conv import Window, window
from ingot.passes.edit import Editor


@dataclass(frozen=True)
class Trim:
    """Along one axis: taps start … stop-1 stay, with this padding."""

    start: int
    stop: int
    begin: int
    end: int


def trim_taps(edit: Editor, conv: Node) -> Node | None:
    """The convolution without its useless taps; None if all are useful."""
    x, w, *bias = conv.inputs
    weights = edit.constant(w)
    is_filled = conv.inputs[3:] not in ((), (None,))  # such padding adds to the sums
    if x is None or weights is None or is_filled:
        return None
    taps = weights.shape[2:]
    if _may_clip(conv, x, weights):
        return replace(conv, attrs=make_attrs({**conv.attr_map, "clip_rows": True}))
    slide = window("conv", conv.attr_map, len(taps))
    trims = _trims(list(x.shape[2:]), list(conv.outputs[0].shape[2:]), taps, slide)
    if trims is None or all((t.start, t.stop) == (0, k) for t, k in zip(trims, taps)):
        return None
    kept = tuple(slice(t.start, t.stop) for t in trims)
    if not np.isfinite(weights).all():
        return None
    small = edit.g.constant(np.ascontiguousarray(weights[:, :, *kept]))
    pads = (*(t.begin for t in trims), *(t.end for t in trims))
    attrs = make_attrs({**conv.attr_map, "pads": pads})
    return replace(conv, inputs=(x, small, *bias), attrs=attrs)


def _may_clip(conv: Node, x: Value, weights: np.ndarray) -> bool:
    """Is it a depthwise convolution over maps of dynamic height, with padded rows? Others reuse a
    loaded row for many outputs, and their rows of taps are cheap to multiply."""
    is_depthwise = weights.shape[1] == 1 and conv.attr("group", 1) > 1 and weights.ndim == 4
    is_dynamic = is_depthwise and bool(arith.free_vars(x.shape[2]))
    if not is_dynamic or conv.attr("clip_rows", False):
        return False
    slide = window("conv", conv.attr_map, 2)
    pads = [arith.as_int(n) for n in (slide.begins[0], slide.ends[0])]
    return None not in pads and any(pads) and bool(np.isfinite(weights).all())


def _trims(
    space: Sequence[arith.Expr], out: Sequence[arith.Expr], taps: Sequence[int], slide: Window
) -> list[Trim] | None:
    """The trim of each axis; None unless all sizes are static and positive."""
    sizes = [arith.as_int(n) for n in (*space, *out, *slide.begins, *slide.ends)]
    known = [n for n in sizes if n is not None]
    rank = len(taps)
    if len(known) < len(sizes) or 0 in known[: 2 * rank]:
        return None
    inputs, outputs, begins, ends = (known[i * rank : (i + 1) * rank] for i in range(4))
    rows = zip(inputs, outputs, begins, ends, taps, slide.strides, slide.dilations)
    return [_trim(*row) for row in rows]


def _trim(
    size: int, count: int, begin: int, end: int, taps: int, stride: int, dilation: int
) -> Trim:
    """Taps at both ends that meet no element are cut, as far as the padding is not negative."""

    def is_useful(tap: int) -> bool:
        at = range(tap * dilation - begin, tap * dilation - begin + count * stride, stride)
        return any(0 <= i < size for i in at)

    useful = [tap for tap in range(taps) if is_useful(tap)] or [0]
    start = min(useful[0], begin // dilation)
    stop = max(useful[-1] + 1, taps - end // dilation)
    return Trim(start, stop, begin - start * dilation, end - (taps - stop) * dilation)
