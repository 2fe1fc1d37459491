"""Inputs for a run from the command line: files where given, seeded random numbers otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.executable import Executable
from ingot.runtime.package import Port
from ingot.support.errors import IngotError


def read_feeds(
    exe: Executable, files: Mapping[str, str], bundle: Path | None,
    shapes: Mapping[str, int | tuple[int, int]], seed: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    given: dict[str, np.ndarray] = {}
    if bundle is not None:
        with np.load(bundle, allow_pickle=False) as data:
            given.update({name: data[name] for name in data.files})
    for name, file in files.items():
        given[name] = _load(name, file)
    rng = np.random.default_rng(seed)
    sizes = _sizes(exe, given, shapes)
    return {
        port.name: given[port.name] if port.name in given else _random(port, sizes, rng)
        for port in exe.inputs
    } | {name: array for name, array in given.items() if name not in {p.name for p in exe.inputs}}


def _load(name: str, file: str) -> np.ndarray:
    try:
        return np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise IngotError(
            "bad-option", f"--input {name}={file} cannot be read", why=str(error)
        ) from error


def _sizes(exe: Executable, given: Mapping[str, np.ndarray], shapes: Mapping[str, Any]) -> dict:
    """Sizes from the arrays given, then the low end of each symbol's range (at least 1)."""
    sizes: dict[str, int] = {}
    for port in exe.inputs:
        if port.name in given:
            for dim, size in zip(port.shape, given[port.name].shape):
                if isinstance(dim, arith.Var):
                    sizes.setdefault(dim.name, size)
    for symbol in exe.package.symbols:
        chosen = shapes.get(symbol.name)
        low = max(1, symbol.low, symbol.divisor)
        sizes.setdefault(symbol.name, chosen if isinstance(chosen, int) else low)
    return sizes


def _random(port: Port, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    """Normal floats, zeros and ones for integers: in range for any table they may index."""
    shape = tuple(arith.evaluate(dim, sizes) for dim in port.shape)
    dtype = dtypes.of(port.dtype)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)
