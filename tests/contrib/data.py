"""Seeded arrays for the cases of com.microsoft's operators."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from onnx import NodeProto, helper


def rng(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def real(*shape: int, key: object = 0, scale: float = 1.0, dtype: Any = np.float32) -> np.ndarray:
    return (rng(shape, key).standard_normal(shape) * scale).astype(dtype)


def whole(
    *shape: int, key: object = 0, low: int = 0, high: int = 10, dtype: Any = np.int32
) -> np.ndarray:
    """Integers in low … high - 1."""
    return np.asarray(rng(shape, key, "int").integers(low, high, shape)).astype(dtype)


def bytes_(*shape: int, key: object = 0, dtype: Any = np.uint8) -> np.ndarray:
    """All values of an 8-bit type."""
    limits = np.iinfo(dtype)
    return whole(*shape, key=key, low=limits.min, high=limits.max + 1, dtype=dtype)


def one(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def made_of(op: str, inputs: str, output: str = "o0", **attrs: Any) -> NodeProto:
    """A node of a composition; `inputs` are names, separated by blanks."""
    return helper.make_node(op, inputs.split(), output.split(), **attrs)
