"""relayout: a tensor copied to another memory layout. Only the layout pass inserts it.

In: a tensor; `axes` as in graph.types.Layout, or none for row-major. Out: the same tensor, whose
type has that layout. Its loops are a copy at logical indices: lower/ maps both sides to physical
ones.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np

from ingot.graph.ir import Node
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register
from ingot.graph.types import Layout, TensorType, Type
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.ops.common import floats, tensor_types


@register
class Relayout(OpDef):
    """x, stored in the layout `axes`."""

    name = "relayout"
    takes_strings = True
    kind = Kind.OPAQUE  # the copy is intended: nothing may fuse it away

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        axes = attrs.get("axes")
        return [replace(x, layout=None if axes is None else Layout(tuple(map(tuple, axes))))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        (x,) = inputs
        assert x is not None
        return [x]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        return [b.compute("out", x.shape, lambda *point: x[point])]

    def samples(self) -> list[Sample]:
        # a graph output has no layout: those cases are in tests/passes/test_choose_layouts.py
        return [Sample((floats(2, 3, 4, 5),)), Sample((floats(7),))]


def packs_constant(node: Node, constants: Container[str]) -> bool:
    """Whether a node stores one of these constants in another layout: done when compiling."""
    if node.op != Relayout.name or node.inputs[0] is None:
        return False
    return node.inputs[0].name in constants and node.outputs[0].tensor.layout is not None
