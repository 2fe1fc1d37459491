"""Types of graph values: element type, logical shape, layout, device, quantisation.

A dimension is an integer expression: a constant, or a dynamic dimension over the graph's symbols.
Operators see logical shapes; `layout` maps them to memory, and only lower applies it.
"""

from __future__ import annotations

import json
from dataclasses import field, replace

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.dtypes import DType
from ingot.support.node import Node, node

Dim = arith.Expr
DimLike = int | arith.Expr


@node
class Layout(Node):
    """Logical axes → physical axes. Each physical axis is (logical axis, block): block 0 is the
    whole axis or its outer tiles, a positive block is an inner tile of that size, zero-padded."""

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
        """The shape as integers, if it has no dynamic dimension."""
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


Type = TensorType  # of any value: a sequence or an optional is a bundle of tensors (ir.Bundle)


@node
class Symbol(Node):
    """A dynamic dimension: its range, a divisor, and where its value comes from.

    `source` is "input" (a dimension of some graph input), "state" (the rows in use of a state that
    grows, known before a run) or "node" (data-dependent: bound when the node that lists it in its
    `symbols` attribute has run). `likely` is the size that decisions
    assume (1 for a batch); correct code does not depend on it.
    """

    name: str
    low: int = 0
    high: int | None = None
    divisor: int = 1
    source: str = "input"
    origin: str = field(default="", compare=False)
    likely: int | None = None


def tensor(dtype: DType, *shape: DimLike) -> TensorType:
    return TensorType(dtype, tuple(arith.wrap(d) for d in shape))


def stored(type: TensorType) -> TensorType:
    """The type as loops see it: strings are numbers into a table."""
    return replace(type, dtype=type.dtype.stored) if type.dtype.is_string else type


def same_size(a: Dim, b: Dim) -> bool:
    """Whether two sizes are known to be equal, for every value of the symbols."""
    return a == b or (bool(arith.free_vars(a)) and simplify(a) == simplify(b))


# Keywords of the text format; a symbol with such a name is quoted.
WORDS = frozenset(dtypes.TABLE) | {
    "none", "true", "false", "inf", "nan", "min", "max", "graph",
}  # fmt: skip


def show_dim(dim: DimLike) -> str:
    """Text of a dimension: as `arith.show`, with names quoted that are not identifiers."""
    return arith.show(dim, name_text=_show_name)


def _show_name(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and name not in WORDS
    return name if plain else "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def _show_list(items: object) -> str:
    if isinstance(items, tuple):
        return f"[{', '.join(_show_list(i) for i in items)}]"
    return "none" if items is None else repr(items)


def _show_quant(quant: Quant) -> str:
    return _show_list((quant.scale, quant.zero_point, quant.axis, quant.block))
