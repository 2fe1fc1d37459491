"""Tables of element-wise operators: a row defines one, `define` registers it.

In: `Row`s from ops/elementwise.py and ops/activation.py. Out: one OpDef for each, complete with
type inference, numpy reference, loop formula and samples.

A row defines the operator twice: on numpy arrays (the reference) and on loop expressions. Both get
narrow floats widened to f32; the result is rounded back once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common

ACCEPTS: dict[str, Callable[[DType], bool]] = {
    "float": lambda d: d.is_float,
    "int": lambda d: d.is_int,
    "number": lambda d: d.is_float or d.is_int,
    "bool": lambda d: d.is_bool,
    "bits": lambda d: d.is_int or d.is_bool,
    "any": lambda d: True,
}

SAMPLED: dict[str, tuple[DType, ...]] = {  # the element types an operator's samples use
    "float": (dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16),
    "int": (dtypes.i64, dtypes.i32, dtypes.i8, dtypes.u8),
    "bool": (dtypes.bool_,),
}
SAMPLED["number"] = SAMPLED["float"] + SAMPLED["int"]
SAMPLED["bits"] = SAMPLED["bool"] + SAMPLED["int"]
SAMPLED["any"] = SAMPLED["number"] + SAMPLED["bool"]

# (rtol, atol) of samples: a few units of the last place of the type
TOLERANCE: dict[str, tuple[float, float]] = {"f16": (2e-3, 1e-4), "bf16": (2e-2, 1e-3)}

Shape = tuple[int, ...]

DIVISION_BY_ZERO = "integer division by zero"


@dataclass(frozen=True)
class Row:
    """One element-wise operator: `array` on numpy arrays, `value` on loop expressions."""

    name: str
    array: Callable[..., np.ndarray]
    value: Callable[..., Expr]
    accepts: str = "float"
    arity: int = 1
    result: DType | None = None  # None: the operands' own element type
    attrs: Mapping[str, Any] = field(default_factory=dict)  # names and defaults
    cheap: bool = False
    divides: bool = False  # the last operand, if integer, must not hold a zero
    more: Callable[[], list[Sample]] = list  # samples in addition to the common ones
    rtol: float = 1e-5


class Pointwise(OpDef):
    """The operator of a row; numpy broadcasting, operands of one element type."""

    kind = Kind.ELEMENTWISE
    row: Row

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        types = common.tensor_types(self.name, inputs, self.row.arity)
        dtype = common.require_same_dtype(self.name, *types)
        if not ACCEPTS[self.row.accepts](dtype):
            raise type_error(self.name, f"element type {dtype} is not {self.row.accepts}")
        shape = common.broadcast_shapes(*(t.shape for t in types))
        return [TensorType(self.row.result or dtype, shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        arrays = [np.asarray(x) for x in inputs]
        dtype = arrays[0].dtype
        if self.row.divides and dtypes.from_numpy(dtype).is_int and (arrays[-1] == 0).any():
            raise common.run_failed(DIVISION_BY_ZERO)
        with np.errstate(all="ignore"):
            out = self.row.array(*map(common.widen_array, arrays), **self._given(attrs))
            return [np.asarray(out).astype(self.row.result.numpy if self.row.result else dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        buffers = [x for x in inputs if x is not None]
        if self.row.divides and buffers[-1].dtype.is_int:
            check_nonzero(b, buffers[-1])

        def formula(*point):
            operands = [common.widen(common.broadcast_load(x, point)) for x in buffers]
            return common.narrow(self.row.value(*operands, **self._given(attrs)), outputs[0].dtype)

        return [b.compute(self.name, outputs[0].shape, formula)]

    def _given(self, attrs: Attrs) -> dict[str, Any]:
        return {name: attrs.get(name, default) for name, default in self.row.attrs.items()}

    def samples(self) -> list[Sample]:
        makers = {1: unary_samples, 2: binary_samples}
        found = makers[self.row.arity](self.row)
        return found + list(self.row.more())


def check_nonzero(b: Build, divisor: Buffer) -> None:
    zero = ir.Lit(0, divisor.dtype)
    b.check(divisor.shape, lambda *p: ir.Compare("eq", divisor[tuple(p)], zero), DIVISION_BY_ZERO)


def define(rows: Sequence[Row]) -> None:
    """Register an operator for each row."""
    for row in rows:
        body = {"name": row.name, "row": row, "cheap": row.cheap}
        body["takes_strings"] = row.accepts == "any"
        register(type(row.name, (Pointwise,), body))


# --- samples of every row -----------------------------------------------------------------------


def sample(row: Row, *inputs: np.ndarray, **attrs: Any) -> Sample:
    """A sample with the tolerance of its element type."""
    dtype = dtypes.from_numpy(inputs[0].dtype)
    rtol, atol = TOLERANCE.get(dtype.name, (row.rtol, 1e-6))
    return Sample(inputs, attrs or dict(row.attrs), rtol, atol)


def unary_samples(row: Row) -> list[Sample]:
    dtype_list = SAMPLED[row.accepts]
    found = [sample(row, common.data(2, 3, dtype=d, key=row.name)) for d in dtype_list]
    first = dtype_list[0]
    shapes: list[Shape] = [(), (0, 3), (1, 1, 5)]
    found += [sample(row, common.data(*s, dtype=first, key=row.name)) for s in shapes]
    found += [sample(row, common.edge_floats(d)) for d in dtype_list if d.is_float]
    found += [sample(row, limits(d)) for d in dtype_list if d.is_int]
    return found


def binary_samples(row: Row) -> list[Sample]:
    dtype_list = SAMPLED[row.accepts]
    pairs: list[tuple[Shape, Shape]] = [
        ((), ()), ((2, 3), ()), ((3,), (2, 3)), ((4, 1), (1, 3)), ((0, 3), (1, 3)), ((1,), (2, 1)),
    ]  # fmt: skip
    cases: list[tuple[Shape, Shape, DType]] = [((2, 3), (2, 3), d) for d in dtype_list]
    cases += [(a, b, dtype_list[0]) for a, b in pairs]
    found = []
    for a, b, dtype in cases:
        x, y = common.data(*a, dtype=dtype, key="a"), common.data(*b, dtype=dtype, key="b")
        found.append(sample(row, x, _without_zeros(row, y)))
    for dtype in dtype_list:
        edge = common.edge_floats(dtype) if dtype.is_float else limits(dtype)
        if not dtype.is_bool:
            found.append(sample(row, edge[:, None], _without_zeros(row, edge)[None, :]))
    if row.divides:
        zero = np.array([3, 0], np.int64)
        given = dict(row.attrs)
        found.append(Sample((zero + 1, zero), given, fails=DIVISION_BY_ZERO))
    return found


def limits(dtype: DType) -> np.ndarray:
    low, high = int(dtype.lowest), int(dtype.highest)
    values = {low, low + 1, high - 1, high, 0, 1, 2, 7, *([-1, -7] if dtype.is_signed else [])}
    return np.array(sorted(values), dtype.numpy)


def _without_zeros(row: Row, x: np.ndarray) -> np.ndarray:
    if not (row.divides and dtypes.from_numpy(x.dtype).is_int):
        return x
    return np.where(x == 0, np.array(3, x.dtype), x)
