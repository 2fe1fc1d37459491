"""Inputs for a run from the command line: files where given, seeded random numbers otherwise.

In: an Executable, files and a seed. Out: an array for every input. Called by main.py's `run`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.executable import Executable
from ingot.runtime.package import Port
from ingot.support.errors import IngotError

_UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)


def read_feeds(
    exe: Executable, files: Mapping[str, str], bundle: Path | None,
    shapes: Mapping[str, int | tuple[int, int]], seed: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Arrays by name; one that the model does not have is an error before anything runs."""
    given = {} if bundle is None else _read_bundle(bundle)
    given |= {name: _read_array(name, file) for name, file in files.items()}
    known = {port.name for port in exe.inputs}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise IngotError(
            "bad-input",
            f"no input is called {', '.join(map(repr, unknown))}",
            hint="the inputs are " + ", ".join(map(str, exe.inputs)),
        )
    rng = np.random.default_rng(seed)
    sizes = _sizes(exe, given, shapes)
    return {
        port.name: given[port.name] if port.name in given else _random(port, sizes, rng)
        for port in exe.inputs
    }


def _read_bundle(file: Path) -> dict[str, np.ndarray]:
    try:
        data = np.load(file, allow_pickle=False)
        if isinstance(data, np.ndarray):
            raise ValueError("it holds one array without a name: give it with --input NAME=FILE")
        with data:
            return {name: data[name] for name in data.files}
    except _UNREADABLE as error:
        raise _unreadable(f"--feeds {file}", error) from error


def _read_array(name: str, file: str) -> np.ndarray:
    try:
        data = np.load(file, allow_pickle=False)
        if not isinstance(data, np.ndarray):
            data.close()
            raise ValueError("it holds several arrays: give it with --feeds")
        return data
    except _UNREADABLE as error:
        raise _unreadable(f"--input {name}={file}", error) from error


def _unreadable(what: str, error: BaseException) -> IngotError:
    why = str(error) or type(error).__name__
    if "pickle" in why:  # numpy's word for anything that it does not know
        why = "it is neither a .npy nor a .npz file, or it holds Python objects"
    return IngotError("bad-input", f"{what} cannot be read", why=why)


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
