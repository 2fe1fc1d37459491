"""Convolutions whose terms fill dot-product instructions: channels padded, taps of a row merged.

    conv(x, w), C = 3              →  conv(pad(x), w), C = 4
    conv(x, w), few channels       →  conv(x', w'), C = 1
        x'[n, 0, y, col · C + c] = x[n, c, y, col]     strides along x' are C times as long
        w'[o, 0, t, u · C + c] = w[o, c, t, u]         padded with zeros to a multiple of the group

In a channels-last map the taps of a row of the window are adjacent, all channels of each. As one
axis of C · u terms they are a loop long enough for a register tile, and one channel needs no padding
to four. x' is a view of the padded map. In: a convolution with constant weights, and the size of
the instruction's groups. Out: operands and attributes. Called by passes/fit_dot_operands.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Node, Value
from ingot.ops.conv import window

MIN_GROUPS = 4  # iterations over the channels from which a loop over them alone pays; heuristic


@dataclass(frozen=True)
class Operands:
    """Of a convolution; what it reads has its padding already where `fill` is None."""

    x: Value
    weights: np.ndarray
    fill: Value | None
    attrs: dict[str, Any]


class Windows:
    """The fitted convolutions of one graph; a value is padded and moved once for all readers."""

    def __init__(self, g: GraphBuilder):
        self.g = g
        self._padded: dict[tuple, Value] = {}
        self._rows: dict[str, Value] = {}

    def fitted(
        self, node: Node, x: Value, w: np.ndarray, fill: Value | None, group: int
    ) -> Operands:
        """The convolution over x and w with a multiple of `group` terms along one axis."""
        if self._merges(node, x, w, group):
            return self._merged(node, x, w, fill, group)
        extra = -w.shape[1] % group
        if not extra:
            return Operands(x, w, fill, node.attr_map)
        w = np.pad(w, [(0, 0), (0, extra), *[(0, 0)] * (w.ndim - 2)])
        pads = _static_pads(node, x)
        if pads is None:
            none = [0] * x.tensor.rank
            return Operands(self.pad(x, none, _at(none, 1, extra), None), w, fill, node.attr_map)
        x = self.pad(x, pads[0], _at(pads[1], 1, extra), fill)
        return Operands(x, w, None, _without_pads(node))

    def pad(self, x: Value, before: list[int], after: list[int], fill: Value | None) -> Value:
        if not any((*before, *after)):
            return x
        key = x.name, tuple(before), tuple(after), fill and fill.name
        if key not in self._padded:
            operands = [x] if fill is None else [x, fill]
            self._padded[key] = self.g.add(
                "pad", operands, before=tuple(before), after=tuple(after), mode="constant"
            )
        return self._padded[key]

    def _merges(self, node: Node, x: Value, w: np.ndarray, group: int) -> bool:
        """Are the channels few, and the taps of a row adjacent?"""
        *_, taps = w.shape
        dilation = (node.attr("dilations") or (1,))[-1]
        is_static = arith.as_int(x.shape[-1]) is not None and _static_pads(node, x) is not None
        is_short = _whole_pixel(w.shape[1], group) < MIN_GROUPS * group
        return taps > 1 and dilation == 1 and is_static and is_short

    def _merged(
        self, node: Node, x: Value, w: np.ndarray, fill: Value | None, group: int
    ) -> Operands:
        pads, rank = _static_pads(node, x), x.tensor.rank
        assert pads is not None
        channels = _whole_pixel(w.shape[1], group)
        w = np.pad(w, [(0, 0), (0, channels - w.shape[1]), *[(0, 0)] * (rank - 2)])
        w = np.moveaxis(w, 1, -1)
        w = w.reshape(w.shape[0], 1, *w.shape[1:-2], -1)
        extra = -w.shape[-1] % group
        w = np.pad(w, [*[(0, 0)] * (rank - 1), (0, extra)])
        after = _at(pads[1], 1, channels - arith_int(x.shape[1]))
        after[-1] += -(-extra // channels)  # the last window reads so far, times zeros
        padded = self.pad(x, pads[0], after, fill)
        attrs = _without_pads(node)
        strides = tuple(node.attr("strides") or (1,) * (rank - 2))
        attrs["strides"] = (*strides[:-1], strides[-1] * channels)
        return Operands(self._in_rows(padded), np.ascontiguousarray(w), None, attrs)

    def _in_rows(self, x: Value) -> Value:
        """x with its channels next to its columns."""
        if x.name not in self._rows:
            rank = x.tensor.rank
            last = self.g.add("transpose", [x], perm=(0, *range(2, rank), 1))
            (n, *space, columns), channels = last.shape[:-1], last.shape[-1]
            shape = (n, arith.Const(1), *space, columns * channels)
            self._rows[x.name] = self.g.add("reshape", [last], shape=shape)
        return self._rows[x.name]


def arith_int(size: arith.Expr) -> int:
    number = arith.as_int(size)
    assert number is not None, "a convolution with constant weights has static channels"
    return number


def _whole_pixel(channels: int, group: int) -> int:
    """Channels so that the groups of a row of taps begin at a pixel, or at a part of one."""
    return channels if group % channels == 0 else channels + -channels % group


def _at(sizes: list[int], axis: int, size: int) -> list[int]:
    return [size if i == axis else n for i, n in enumerate(sizes)]


def _static_pads(node: Node, x: Value) -> tuple[list[int], list[int]] | None:
    """Elements before and after each axis; None where they are dynamic."""
    slide = window("conv", node.attr_map, x.tensor.rank - 2)
    sides = [[arith.as_int(n) for n in side] for side in (slide.begins, slide.ends)]
    if None in (*sides[0], *sides[1]):
        return None
    before, after = ([0, 0, *(n or 0 for n in side)] for side in sides)
    return before, after


def _without_pads(node: Node) -> dict[str, Any]:
    return {key: value for key, value in node.attr_map.items() if key != "pads"}
