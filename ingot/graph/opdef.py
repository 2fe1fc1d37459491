"""What an operator is: one class holding its types, reference, loops or decomposition, and samples.

An operator is defined once, in `ops/<family>.py`, by subclassing `OpDef` under `@register`. Passes
ask the definition (`defn(node).kind`), never the name. The table is here, its rows are in ops/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.types import TensorType, Type
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.graph.builder import GraphBuilder


class Kind(Enum):
    """How an operator may fuse."""

    ELEMENTWISE = "elementwise"  # output point p needs input point p (after broadcasting) only
    INJECTIVE = "injective"  # each output point needs one point of each input: moves, gathers
    REDUCTION = "reduction"  # each output point needs many points; can take producers inline
    CONTRACTION = "contraction"  # a product summed over: matmul, conv; takes an epilogue
    OPAQUE = "opaque"  # fuses with nothing: control flow, sorting, hand-made loops


PYTHON_STEPS = 1000

Attrs = Mapping[str, Any]
RunGraph = Callable[[Graph, Sequence[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Sample:
    """A small case of an operator: the operator suite runs it on every back end."""

    inputs: tuple[np.ndarray | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6
    fails: str = ""  # the run-time error expected, if any


class OpDef:
    """Base of every operator. Give `infer`, `reference`, and one of `compute` and `decompose`."""

    name: str = ""
    kind: Kind = Kind.OPAQUE
    rich: bool = False  # stays whole only where the target keeps it; otherwise decomposes
    is_view: bool = False  # the output is the first operand's bytes under another shape
    permutes: bool = False  # the operand's elements under another order of axes
    reads_axes: bool = False  # operands are read at axes of the output and of the sum, as they are
    keeps_axes: bool = False  # output axes are the first operand's, so they can be stored alike
    joins: bool = False  # the operands' elements, one operand after the other along `axis`
    surrounds: bool = False  # the operand with `before` and `after` elements around it
    zero_padded: bool = False  # the first operand is read with zeros around it: `pads`
    cuts: bool = False  # elements of a box of the operand: `starts`, `sizes`, `steps`
    channels_last: bool = False  # (batch, channels, *space) is best stored with its channels last
    python_reference: bool = False  # it loops over elements, where others are whole-array numpy
    cheap: bool = False  # worth computing again rather than storing (moves, casts, adds)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        """Output types; raise `type_error` if the operands do not fit. Symbols are allowed."""
        raise NotImplementedError(self.name)

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        """The answer by numpy: slow, obvious, right."""
        raise NotImplementedError(self.name)

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        """Append stages to `b` and return the output buffers."""
        raise NotImplementedError(self.name)

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        """The same in smaller operators, appended to `g`."""
        raise NotImplementedError(self.name)

    def bind(self, b: Build, inputs: Sequence[Buffer | None], attrs: Attrs) -> Buffer:
        """For an operator whose output size depends on data: stages that compute an i64 buffer
        with the value of each symbol in attrs["symbols"]. It runs before `compute`, which may use
        them."""
        raise NotImplementedError(self.name)

    def bound_values(
        self, outputs: Sequence[np.ndarray], types: Sequence[Type], attrs: Attrs
    ) -> list[int]:
        """The same for the interpreter: each symbol's value, read off the results. Here it is the
        size of an output's axis whose declared size is the bare symbol."""
        sizes: dict[str, int] = {}
        for array, type in zip(outputs, types):
            if isinstance(type, TensorType):
                dims = zip(type.shape, array.shape)
                sizes |= {d.name: n for d, n in dims if isinstance(d, arith.Var)}
        return [sizes[name] for name in attrs["symbols"]]

    def settled(self, attrs: Attrs, sizes: Mapping[str, arith.IntLike]) -> dict[str, arith.Expr]:
        """Symbols the node binds that need no binding once `sizes` stand for other symbols, and
        what they are then. An operator whose sizes come from its sub-graphs answers."""
        return {}

    def evaluate(
        self, inputs: Sequence[np.ndarray | None], attrs: Attrs, run: RunGraph
    ) -> list[np.ndarray]:
        """The reference of an operator that holds sub-graphs: `run` interprets one."""
        return self.reference(inputs, attrs)

    def may_fold(self, attrs: Attrs) -> bool:
        """Whether the reference may compute constants while compiling."""
        return True

    def steps_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        """How long the reference takes for each byte in and out, in parts of what numpy takes to
        move one."""
        return PYTHON_STEPS if self.python_reference else 1

    def kind_of(self, node: Node) -> Kind:
        """The kind of this very node; most operators have one kind for all."""
        return self.kind

    def samples(self) -> list[Sample]:
        return []

    @property
    def has_compute(self) -> bool:
        return type(self).compute is not OpDef.compute

    @property
    def has_decompose(self) -> bool:
        return type(self).decompose is not OpDef.decompose


TABLE: dict[str, OpDef] = {}


def register(cls: type[OpDef]) -> type[OpDef]:
    """Class decorator: put the operator in the table."""
    assert cls.name and cls.name not in TABLE, f"operator {cls.name!r} is unnamed or defined twice"
    TABLE[cls.name] = cls()
    return cls


def lookup(op: str) -> OpDef:
    if op not in TABLE:
        raise IngotError(
            "bad-graph", f"no operator is called {op!r}", hint="import ingot.ops, or register it"
        )
    return TABLE[op]


def defn(node: Node) -> OpDef:
    return lookup(node.op)


def type_error(op: str, what: str, hint: str = "") -> IngotError:
    return IngotError("bad-type", f"{op}: {what}", hint=hint)
