"""What a value in the graph is: element type, logical shape, layout, device, quantisation.

A dimension is an integer expression: a constant, or one over the graph's symbols. Everything an
operator sees is logical; `layout` says how the elements lie in memory and only lower reads it.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Union

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.support.node import Node, node

Dim = arith.Expr
DimLike = Union[int, arith.Expr]


@node
class Layout(Node):
    """Logical axes → physical axes. Each physical axis is (logical axis, block): block 0 is the
    whole axis or its outer part, a positive block is an inner tile of that many, zero-padded."""

    axes: tuple[tuple[int, int], ...]


@node
class Quant(Node):
    """stored = round(real / scale) + zero_point, clamped; `axis` when scales are per channel."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None
    block: int | None = None


@node
class TensorType(Node):
    dtype: DType
    shape: tuple[Dim, ...]
    layout: Layout | None = None
    device: str = "cpu"
    quant: Quant | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers, if it has no symbols."""
        sizes = [arith.as_int(d) for d in self.shape]
        return None if None in sizes else tuple(sizes)  # type: ignore[arg-type]

    @property
    def numel(self) -> Dim:
        return arith.product(list(self.shape))

    def __str__(self) -> str:
        dims = ", ".join(arith.show(d) for d in self.shape)
        extra = [f"layout={self.layout.axes}"] if self.layout else []
        extra += [f"device={self.device}"] if self.device != "cpu" else []
        extra += [f"quant={_show_quant(self.quant)}"] if self.quant else []
        return f"{self.dtype}[{dims}]" + (f"{{{'; '.join(extra)}}}" if extra else "")


@node
class SequenceType(Node):
    """A list of values of one type (ONNX sequences); nothing emits it yet."""

    element: TensorType

    def __str__(self) -> str:
        return f"seq<{self.element}>"


@node
class OptionalType(Node):
    element: TensorType | SequenceType

    def __str__(self) -> str:
        return f"opt<{self.element}>"


Type = Union[TensorType, SequenceType, OptionalType]


@node
class Symbol(Node):
    """A size known only later: its range, a divisor, and where its value comes from.

    `source` is "input" (a dimension of some graph input) or "node" (bound when the node that
    names it in its `symbols` attribute has run).
    """

    name: str
    low: int = 0
    high: int | None = None
    divisor: int = 1
    source: str = "input"
    origin: str = field(default="", compare=False)


def tensor(dtype: DType, *shape: DimLike) -> TensorType:
    return TensorType(dtype, tuple(arith.wrap(d) for d in shape))


def with_shape(type: TensorType, shape: tuple[DimLike, ...] | list[DimLike]) -> TensorType:
    return replace(type, shape=tuple(arith.wrap(d) for d in shape))


def _show_quant(quant: Quant) -> str:
    return f"({quant.scale}, {quant.zero_point}, {quant.axis}, {quant.block})"
