"""Inputs and outputs as a caller sees them. In: a package's ports. Out: names, numpy types, sizes.

    x = exe.inputs[0]
    np.zeros(x.shape, x.dtype)        if all its sizes are static
    print(x)                          x: f32[batch, 4]

Used by executable.py, for `exe.inputs` and `exe.outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.package import Port


@dataclass(frozen=True)
class PortInfo:
    """One input or output of an executable.

    name    its name in the model
    shape   an int for each static size; the name of a dynamic dimension, or an expression over them
    dtype   numpy's; bf16, f8 and i4 are those of ml_dtypes, strings and maps are objects
    kind    "tensor"; "sequence …", "optional …", or "map" for what a call takes as such
    """

    name: str
    shape: tuple[Any, ...]  # of int and str: as Any, a type checker lets numpy take it
    dtype: np.dtype
    kind: str
    port: Port = field(repr=False)  # the compiler's own description

    @staticmethod
    def of(port: Port) -> PortInfo:
        is_map = port.dtype.startswith("map(")
        is_object = is_map or port.dtype == dtypes.str_.name
        dtype = np.dtype(object) if is_object else dtypes.of(port.dtype).numpy
        shape = tuple(map(_size, port.shape))
        return PortInfo(port.name, shape, dtype, "map" if is_map else port.kind, port)

    def __str__(self) -> str:
        return str(self.port)


def _size(size: arith.Expr) -> int | str:
    number = arith.as_int(size)
    return str(size) if number is None else number
