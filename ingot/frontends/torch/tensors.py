"""torch tensors ↔ numpy arrays over the same memory. bf16 and f8 go by views: numpy lacks them."""

from __future__ import annotations

import numpy as np
import torch

from ingot.dtypes import DType
from ingot.frontends.torch.types import TORCH_DTYPES, dtype_of

_BY_BYTES = {1: torch.uint8, 2: torch.int16}
_FOREIGN = frozenset({torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2})


def to_array(tensor: torch.Tensor, where: str = "") -> np.ndarray:
    """The tensor's memory as an array; a dense CPU tensor of any strides is not copied."""
    dtype = dtype_of(tensor.dtype, where)
    tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.dtype in _FOREIGN:
        return tensor.view(_BY_BYTES[tensor.element_size()]).numpy().view(dtype.numpy)
    return tensor.numpy()


def to_tensor(array: np.ndarray, dtype: DType) -> torch.Tensor:
    """The array's memory as a tensor."""
    kind = TORCH_DTYPES[dtype]
    if kind in _FOREIGN:
        bits = array.view(np.uint8 if array.itemsize == 1 else np.int16)
        return torch.from_numpy(bits).view(kind)
    return torch.from_numpy(array)
