"""Element types of torch, and the types of traced values. In: torch's. Out: Ingot's."""

from __future__ import annotations

import torch

from ingot import dtypes
from ingot.dtypes import DType
from ingot.support.errors import IngotError

DTYPES: dict[torch.dtype, DType] = {
    torch.float64: dtypes.f64, torch.float32: dtypes.f32, torch.float16: dtypes.f16,
    torch.bfloat16: dtypes.bf16, torch.bool: dtypes.bool_,
    torch.int64: dtypes.i64, torch.int32: dtypes.i32, torch.int16: dtypes.i16,
    torch.int8: dtypes.i8, torch.uint8: dtypes.u8,
    torch.uint16: dtypes.u16, torch.uint32: dtypes.u32, torch.uint64: dtypes.u64,
    torch.float8_e4m3fn: dtypes.f8e4m3fn, torch.float8_e5m2: dtypes.f8e5m2,
}  # fmt: skip
# the element types of the two parts of a complex tensor, which are its last axis (complex.py)
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
TORCH_DTYPES = {dtype: kind for kind, dtype in DTYPES.items()}


def dtype_of(kind: torch.dtype, where: str = "") -> DType:
    """The element type; an error for one that Ingot does not have."""
    found = DTYPES.get(kind)
    if found is None:
        what = f"tensors of {kind} are not supported"
        hint = "cast them, or run that part of the model in PyTorch: fallback=True"
        raise IngotError("unsupported-op", what, where=where, hint=hint)
    return found
