"""The table of converters: ATen operator → function that builds it from Ingot's operators.

    @aten("aten.softmax.int", "aten._softmax.default")
    def softmax(ctx: Importer, node: TorchNode, x: Value, dim: int, *rest, **kwargs) -> Value:
        return ctx.g.add("softmax", [x], axis=dim)

A converter gets the importer (its graph builder is `ctx.g`), the node, and the operator's arguments
as its schema lists them, defaults filled in: positional ones by position, keyword-only ones by name
(those of `DROPPED` only if it declares them). A tensor is a `Value`, None if absent; a list of
tensors a list of those; an integer or a size that is known an int, another an `arith.Expr`; a
dynamic float or bool a `Value` of rank 0; an element type a torch.dtype, which `dtype_of` maps;
everything else is raw. It returns the operator's result, or a sequence of several (None: not
produced). An operator of the table is not decomposed: adding a converter keeps it whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from ingot.arith.expr import Expr
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.types import TensorType
from ingot.support.errors import IngotError

Scalar = int | float | bool | Expr | Value


@dataclass(frozen=True)
class TorchNode:
    """A call of an FX graph. `outputs`: the types that tracing found, None for what is no tensor;
    `where`: the node's name, its module and the user's source line."""

    target: str
    name: str
    where: str
    outputs: tuple[TensorType | None, ...]
    fx: torch.fx.Node

    @property
    def output(self) -> TensorType:
        """The type of the only, or first, result."""
        found = self.outputs[0]
        assert found is not None, f"{self.target} has no tensor as its first result"
        return found


class Importer(Protocol):
    """The interface of the walker for converters."""

    g: GraphBuilder

    def scalar(self, value: Scalar, dtype: DType) -> Value:
        """A number, size or scalar tensor as a value of rank 0 and this type."""
        ...

    def known(self, value: Value) -> np.ndarray | None:
        """The value's elements if it is a constant, else None."""
        ...

    def size_of(self, value: Value) -> Expr:
        """A data-dependent integer scalar as a size: a symbol, bound when the model runs."""
        ...

    def subgraph(
        self, node: TorchNode, module: torch.fx.GraphModule, inputs: Sequence[Value]
    ) -> SubGraph:
        """Import the body of a control-flow operator, whose formal inputs have these types."""
        ...

    def random_key(self) -> Value:
        """The key of random numbers of the call (ops/random.py)."""
        ...

    def random_stream(self) -> int:
        """A stream that no other node of the model has."""
        ...

    def unsupported(self, node: TorchNode, why: str, hint: str = "") -> IngotError:
        """The error for an unsupported variant of an operator."""
        ...


@dataclass(frozen=True)
class SubGraph:
    graph: Graph
    captures: tuple[Value, ...]  # values of the outer graph, passed after the formal inputs


Converter = Callable[..., Any]
AnyConverter = TypeVar("AnyConverter", bound=Converter)
TABLE: dict[str, Converter] = {}
COMPLEX: dict[str, Converter] = {}  # of calls with a complex operand or result

# keyword arguments that say where and how memory is allocated: a converter may leave them out
DROPPED = frozenset(
    {"layout", "device", "pin_memory", "memory_format", "generator", "non_blocking"}
)


def aten(*names: str) -> Callable[[AnyConverter], AnyConverter]:
    """Register a converter for operators, by their full names: "aten.add.Tensor"."""

    def add(fn: AnyConverter) -> AnyConverter:
        for name in names:
            assert name not in TABLE, f"{name} has two converters"
            TABLE[name] = fn
        return fn

    return add


def complex_aten(*names: str) -> Callable[[AnyConverter], AnyConverter]:
    """Register a converter for calls with complex tensors (complex.py)."""

    def add(fn: AnyConverter) -> AnyConverter:
        COMPLEX.update(dict.fromkeys(names, fn))
        return fn

    return add


def is_complex_call(node: torch.fx.Node) -> bool:
    """Whether an operand or a result is a complex tensor."""
    metas = [node.meta, *(n.meta for n in node.all_input_nodes)]
    values = [v for meta in metas for v in torch.utils._pytree.tree_leaves(meta.get("val"))]
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)


def has_converter(name: str) -> bool:
    """Whether an operator stays whole: of real numbers, or of complex ones."""
    return name in TABLE or name in COMPLEX


def converter_of(node: torch.fx.Node) -> Converter | None:
    table = COMPLEX if is_complex_call(node) else TABLE
    return table.get(str(node.target))


def call(fn: Converter, ctx: Importer, node: TorchNode, args: list, kwargs: Mapping) -> Any:
    """Call a converter, without the dropped arguments that it does not declare."""
    declared = inspect.signature(fn).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in declared.values())
    kept = {k: v for k, v in kwargs.items() if takes_all or k in declared or k not in DROPPED}
    return fn(ctx, node, *args, **kept)
