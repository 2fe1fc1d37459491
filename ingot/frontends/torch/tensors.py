"""torch tensors ↔ numpy arrays over the same memory. bf16 and f8 go by views: numpy lacks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ingot.frontends.torch.types import TORCH_DTYPES, dtype_of
from ingot.support.errors import IngotError

_BY_BYTES = {1: torch.uint8, 2: torch.int16}
_FOREIGN = {torch.bfloat16: np.int16, torch.float8_e4m3fn: np.uint8, torch.float8_e5m2: np.uint8}
_BY_NUMPY = {dtype.numpy: kind for dtype, kind in TORCH_DTYPES.items()}
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1  # of a seed drawn from torch's generator


def to_array(tensor: torch.Tensor, where: str = "") -> np.ndarray:
    """The tensor's memory as an array; a dense CPU tensor of any strides is not copied."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    dtype = dtype_of(tensor.dtype, where)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.dtype in _FOREIGN:
        return tensor.view(_BY_BYTES[tensor.element_size()]).numpy().view(dtype.numpy)
    return tensor.numpy()


def parts(given: torch.Tensor, name: str) -> torch.Tensor:
    """The parts of a complex argument, as the last axis."""
    _check(given, name)
    return torch.view_as_real(given.detach().resolve_conj().resolve_neg())


def of_parts(given: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(given)


def argument(given: Any, name: str) -> np.ndarray:
    """What a caller gives for an input: a dense CPU tensor, without a copy, or a number."""
    try:
        return given.numpy()
    except (TypeError, RuntimeError, AttributeError):
        pass  # one of bf16, one that requires a gradient, or none at all
    if isinstance(given, bool | int | float | list | tuple | np.generic):
        return np.asarray(given)
    return shared(given, f"input {name!r}")


def shared(given: Any, where: str) -> np.ndarray:
    """A dense CPU tensor's memory as an array; else an error that begins with `where`."""
    _check(given, where)
    return to_array(given, where)


def _check(given: Any, where: str) -> None:
    what, hint = "", "give a dense tensor in the memory of the CPU"
    if not isinstance(given, torch.Tensor):
        what, hint = f"is a {type(given).__name__}", "give a tensor or an array"
    elif given.device.type != "cpu":
        what, hint = f"is on the device {given.device}", "give its .cpu()"
    elif given.layout is not torch.strided:
        what, hint = f"is a tensor of {given.layout}", "give its .to_dense()"
    elif given.is_quantized:
        what, hint = "is a quantised tensor", "give its .dequantize()"
    elif isinstance(given, torch._subclasses.FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(given):  # fmt: skip  # noqa: E501
        what = "is a tensor of tracing or of torch.func, which has no memory"
    if what:
        raise IngotError("bad-input", f"{where} {what}", hint=hint)


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """The array's memory as a tensor."""
    try:
        return torch.from_numpy(array)
    except TypeError:
        kind = _BY_NUMPY[array.dtype]
        return torch.from_numpy(array.view(_FOREIGN[kind])).view(kind)


def to_tensor_if_any(array: np.ndarray) -> Any:
    """The same, or the array itself if torch has no such element type."""
    return to_tensor(array) if array.dtype in _BY_NUMPY else array


def random_key() -> np.ndarray:
    """A key of random numbers (ops/random.py) from torch's generator, which torch.manual_seed
    starts again."""
    drawn = torch.empty((), dtype=torch.int64).random_(_LOWEST, _HIGHEST)
    return np.array([int(drawn) % (1 << 64), 0], np.uint64)
