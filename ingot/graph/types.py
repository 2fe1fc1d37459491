"""What a value in the graph is: element type, logical shape, layout, device, quantisation.

A dimension is an integer expression: a constant, or one over the graph's symbols. Everything an
operator sees is logical; `layout` says how the elements lie in memory and only lower reads it.
"""

from __future__ import annotations

import json
from dataclasses import field, replace

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.support.node import Node, node

Dim = arith.Expr
DimLike = int | arith.Expr


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
        dims = ", ".join(show_dim(d) for d in self.shape)
        extra = [f"layout={_show_list(self.layout.axes)}"] if self.layout else []
        extra += [f"device={json.dumps(self.device)}"] if self.device != "cpu" else []
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


Type = TensorType | SequenceType | OptionalType


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


# Bare words that mean something else where a size may stand; a symbol so called is quoted.
WORDS = frozenset(dtypes.TABLE) | {
    "none", "true", "false", "inf", "nan", "min", "max", "graph",
}  # fmt: skip


def show_dim(dim: DimLike, outer: int = 0) -> str:
    """Text for a size: as `arith.show`, with symbol names quoted where they are not plain words."""
    match dim:
        case arith.Var(name=name):
            plain = name.isidentifier() and name.isascii() and name not in WORDS
            return name if plain else "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"
        case arith.Min() | arith.Max():
            return f"{dim.symbol}({show_dim(dim.a)}, {show_dim(dim.b)})"
        case arith.Binary(a=a, b=b):
            level = 2 if isinstance(dim, arith.Mul | arith.FloorDiv | arith.Mod) else 1
            text = f"{show_dim(a, level)} {dim.symbol} {show_dim(b, level + 1)}"
            return f"({text})" if level < outer else text
    return arith.show(dim, outer=outer)


def _show_list(items: object) -> str:
    if isinstance(items, tuple):
        return f"[{', '.join(_show_list(i) for i in items)}]"
    return "none" if items is None else repr(items)


def _show_quant(quant: Quant) -> str:
    return _show_list((quant.scale, quant.zero_point, quant.axis, quant.block))
