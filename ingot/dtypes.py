"""Element types: width, family, limits and numpy dtype. Level 0; used by every IR.

A `DType` is a value: compare with `==` or `is` (they are interned). Packing of
sub-byte types is explicit in the loop IR. bfloat16, float8 and int4 come from `ml_dtypes`.
`str` is a string: its element is a number into a table of strings (strings.py), which loops
and printers see as i64.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import ml_dtypes
import numpy as np


class Family(Enum):
    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"
    STRING = "string"


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. `name` is its name in every text form: f32, i64, bf16, f8e4m3fn."""

    name: str
    family: Family
    bits: int
    numpy: np.dtype

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return (of, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.family is Family.FLOAT

    @property
    def is_int(self) -> bool:
        """Integers of either sign; bool is neither."""
        return self.family in (Family.INT, Family.UINT)

    @property
    def is_signed(self) -> bool:
        return self.family in (Family.INT, Family.FLOAT)

    @property
    def is_bool(self) -> bool:
        return self.family is Family.BOOL

    @property
    def is_string(self) -> bool:
        return self.family is Family.STRING

    @property
    def stored(self) -> DType:
        """The element type that loops see in memory."""
        return i64 if self.is_string else self

    @property
    def storage_bytes(self) -> int:
        """Bytes of one element in memory; sub-byte elements take a byte each unless packed."""
        return max(1, self.bits // 8)

    @cached_property
    def lowest(self) -> float | int:
        """The identity of max: -inf where there is one, else the smallest finite value."""
        if self.is_float:
            return -float("inf") if _has_inf(self) else float(ml_dtypes.finfo(self.numpy).min)
        return 0 if not self.is_signed else -(1 << (self.bits - 1))

    @cached_property
    def highest(self) -> float | int:
        """The identity of min."""
        if self.is_float:
            return float("inf") if _has_inf(self) else float(ml_dtypes.finfo(self.numpy).max)
        if self.is_bool:
            return 1
        return (1 << (self.bits - (1 if self.is_signed else 0))) - 1


def _has_inf(dtype: DType) -> bool:
    return dtype.name in ("f16", "bf16", "f32", "f64", "f8e5m2")


def _table() -> dict[str, DType]:
    rows = [
        ("bool", Family.BOOL, 8, np.bool_),
        ("i2", Family.INT, 2, ml_dtypes.int2),
        ("u2", Family.UINT, 2, ml_dtypes.uint2),
        ("i4", Family.INT, 4, ml_dtypes.int4),
        ("u4", Family.UINT, 4, ml_dtypes.uint4),
        ("i8", Family.INT, 8, np.int8),
        ("u8", Family.UINT, 8, np.uint8),
        ("i16", Family.INT, 16, np.int16),
        ("u16", Family.UINT, 16, np.uint16),
        ("i32", Family.INT, 32, np.int32),
        ("u32", Family.UINT, 32, np.uint32),
        ("i64", Family.INT, 64, np.int64),
        ("u64", Family.UINT, 64, np.uint64),
        ("f4e2m1fn", Family.FLOAT, 4, ml_dtypes.float4_e2m1fn),
        ("f8e4m3fn", Family.FLOAT, 8, ml_dtypes.float8_e4m3fn),
        ("f8e4m3fnuz", Family.FLOAT, 8, ml_dtypes.float8_e4m3fnuz),
        ("f8e5m2", Family.FLOAT, 8, ml_dtypes.float8_e5m2),
        ("f8e5m2fnuz", Family.FLOAT, 8, ml_dtypes.float8_e5m2fnuz),
        ("f8e8m0fnu", Family.FLOAT, 8, ml_dtypes.float8_e8m0fnu),
        ("f16", Family.FLOAT, 16, np.float16),
        ("bf16", Family.FLOAT, 16, ml_dtypes.bfloat16),
        ("f32", Family.FLOAT, 32, np.float32),
        ("f64", Family.FLOAT, 64, np.float64),
        # 64-bit integers that numpy compares, moves and sorts, and does not take for numbers
        ("str", Family.STRING, 64, np.timedelta64),
    ]
    return {name: DType(name, family, bits, np.dtype(kind)) for name, family, bits, kind in rows}


TABLE = _table()
LOOP_TYPES = {name: dtype for name, dtype in TABLE.items() if not dtype.is_string}
_BY_NUMPY = {dtype.numpy: dtype for dtype in TABLE.values()}

bool_, i4, u4 = TABLE["bool"], TABLE["i4"], TABLE["u4"]
i8, u8, i16, u16 = TABLE["i8"], TABLE["u8"], TABLE["i16"], TABLE["u16"]
i32, u32, i64, u64 = TABLE["i32"], TABLE["u32"], TABLE["i64"], TABLE["u64"]
f16, bf16, f32, f64 = TABLE["f16"], TABLE["bf16"], TABLE["f32"], TABLE["f64"]
str_ = TABLE["str"]
f8e4m3fn, f8e5m2 = TABLE["f8e4m3fn"], TABLE["f8e5m2"]


def of(name: str) -> DType:
    """The element type called `name`; KeyError if there is none."""
    return TABLE[name]


def from_numpy(dtype: np.dtype | type) -> DType:
    """The element type stored by a numpy dtype; KeyError if Ingot has none (strings, complex)."""
    return _BY_NUMPY[np.dtype(dtype)]
