"""The operator definition: type inference, reference, loops or decomposition, and samples.

An operator is defined once, in `ops/<family>.py`, by subclassing `OpDef` under `@register`. Passes
ask the definition (`defn(node).kind`), never the name. The table is here, its entries are in ops/.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.graph.builder import GraphBuilder


class Kind(Enum):
    """An operator's access pattern, which decides how it may fuse."""

    ELEMENTWISE = "elementwise"  # output point p needs input point p (after broadcasting) only
    INJECTIVE = "injective"  # each output point needs one point of each input: transpose, gather
    REDUCTION = "reduction"  # each output point needs many points; producers can be inlined
    CONTRACTION = "contraction"  # a sum of products: matmul, conv; takes an epilogue
    OPAQUE = "opaque"  # never fuses: control flow, sorting, user kernels


PYTHON_WORK = 1000  # work of a pure-Python reference per byte, where numpy's is 1 (heuristic)

Attrs = Mapping[str, Any]
RunGraph = Callable[[Graph, Sequence[np.ndarray]], list[np.ndarray]]


class Use(Enum):
    """What an operator uses a dimension as."""

    BATCH = "batch"
    LENGTH = "length"


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
    composite: bool = False  # kept whole only if the target keeps it; otherwise decomposed
    is_view: bool = False  # the output is the first operand's bytes under another shape
    permutes: bool = False  # a transpose: the operand's elements with its axes permuted
    reads_axes: bool = False  # operands are indexed by plain output and reduction axes (matmul)
    keeps_axes: bool = False  # output axes are the first operand's: both can have one layout
    is_concat: bool = False  # the operands, one after the other along `axis`
    is_pad: bool = False  # the operand with `before` and `after` elements around it
    zero_padded: bool = False  # the first operand is zero-padded by the attribute `pads`
    is_slice: bool = False  # a strided slice of the operand: `starts`, `sizes`, `steps`
    channels_last: bool = False  # prefers channels-last layout for (batch, channels, *space)
    infers_layouts: bool = False  # `infer` gives exact types, layouts included
    python_reference: bool = False  # loops over elements in Python instead of calling numpy
    is_host_step: bool = False  # done by the host: runtime/host_steps.py has it, by this name
    takes_strings: bool = False  # moves or compares elements, so that these may be strings
    folds_late: bool = False  # of constants: kept at first, for passes that use its operands
    family: str = "by_structure"  # schedule rule of the groups that it anchors
    cheap: bool = False  # cheaper to recompute than to store (transposes, casts, adds)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        """Output types; raise `type_error` if the operands do not fit. Symbols are allowed."""
        raise NotImplementedError(self.name)

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        """The outputs, computed with numpy: the oracle of tests and of constant folding."""
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
        """Append equivalent primitive operators to `g` and return the outputs."""
        raise NotImplementedError(self.name)

    def bind(self, b: Build, inputs: Sequence[Buffer | None], attrs: Attrs) -> Buffer:
        """For data-dependent output sizes: stages that compute an i64 buffer with the value of each
        symbol in attrs["symbols"]. They run before `compute`, which may use the symbols."""
        raise NotImplementedError(self.name)

    def bound_values(
        self, outputs: Sequence[np.ndarray], types: Sequence[Type], attrs: Attrs
    ) -> list[int]:
        """The interpreter's counterpart of `bind`: each symbol's value, taken from the outputs. The
        default is the size of an output axis declared as the bare symbol."""
        sizes: dict[str, int] = {}
        for array, type in zip(outputs, types):
            dims = zip(type.shape, array.shape)
            sizes |= {d.name: n for d, n in dims if isinstance(d, arith.Var)}
        return [sizes[name] for name in attrs["symbols"]]

    def resolved_symbols(
        self, attrs: Attrs, sizes: Mapping[str, arith.IntLike]
    ) -> dict[str, arith.Expr]:
        """Symbols the node binds that become expressions of other symbols once `sizes` are
        substituted, and their values. Operators with sub-graphs override it."""
        return {}

    def evaluate(
        self, inputs: Sequence[np.ndarray | None], attrs: Attrs, run: RunGraph
    ) -> list[np.ndarray]:
        """The reference of an operator with sub-graphs: `run` interprets one."""
        return self.reference(inputs, attrs)

    def size_uses(self, inputs: Sequence[Type | None], attrs: Attrs) -> Iterable[tuple[Dim, Use]]:
        """What sizes of its operands are used as, where the operator knows: batches are probably 1,
        lengths are not."""
        return ()

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        """The attributes of the operator on `rows` rows (along axis 0) of the operands at positions
        `batched`, if row i of its result needs no other row of them than row i. None if it mixes
        rows, or is not known not to. passes/split_batch.py asks."""
        is_independent = self.kind is Kind.ELEMENTWISE and rows_align(inputs, batched)
        return attrs if is_independent else None

    def may_fold(self, attrs: Attrs) -> bool:
        """Whether constant folding may run the reference."""
        return True

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        """The reference's time per byte of operands and results, relative to a numpy copy."""
        return PYTHON_WORK if self.python_reference else 1

    def kind_of(self, node: Node) -> Kind:
        """The kind of this node; most operators have one kind for all nodes."""
        return self.kind

    def multiply_adds(
        self, inputs: Sequence[Type | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> Dim:
        """The multiplications of a contraction, each added to a sum; 0 for other operators. The
        default is a sum over the last axis of the first operand."""
        if self.kind is not Kind.CONTRACTION or inputs[0] is None:
            return arith.Const(0)
        return outputs[0].numel * inputs[0].shape[-1]

    def samples(self) -> list[Sample]:
        return []

    @property
    def has_compute(self) -> bool:
        return type(self).compute is not OpDef.compute

    @property
    def has_decompose(self) -> bool:
        return type(self).decompose is not OpDef.decompose


def rows_align(inputs: Sequence[Type | None], batched: Collection[int]) -> bool:
    """Whether axis 0 of the batched operands is axis 0 of what all operands broadcast to, and the
    other operands have the same value in all its rows."""
    rank = max(type.rank for type in inputs if type is not None)
    return rank > 0 and all(
        type.rank == rank if i in batched else type.rank < rank or arith.is_const(type.shape[0], 1)
        for i, type in enumerate(inputs)
        if type is not None
    )


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


def infer_types(op: OpDef, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
    """Output types of an operator; an error if it needs numbers and an operand holds strings."""
    has_strings = any(type is not None and type.dtype.is_string for type in inputs)
    if has_strings and not op.takes_strings:
        raise type_error(op.name, "it is not defined on strings")
    return op.infer(inputs, attrs)


class SizeMismatch(IngotError):
    """Two sizes that an operator requires to be equal (or, to broadcast, one of them to be 1). A
    front end may know or assume more about them (GraphBuilder.unifier) and infer again."""

    def __init__(
        self, a: Dim, b: Dim, op: str = "broadcast", what: str = "", is_broadcast: bool = False
    ):
        what = what or f"sizes {a} and {b} are neither equal nor 1"
        hint = "give both dimensions one name if they are always equal"
        super().__init__("bad-type", f"{op}: {what}", hint=hint)
        self.sizes, self.is_broadcast = (a, b), is_broadcast
