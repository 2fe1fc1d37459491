"""Inputs for a run from the command line: from files if given, else seeded random numbers.

In: a model's inputs, its dynamic dimensions, and a `FeedSpec`. Out: an array for every input.
Called by run.py, profile.py and bench.py.
"""

from __future__ import annotations

import math
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.runtime.failure import no_memory
from ingot.runtime.package import Growth, Port
from ingot.support.errors import IngotError

_WORDS = ("a", "b", "c", "")  # random strings
_UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)


class DynamicDim(Protocol):
    """A dynamic dimension of a graph or of a package."""

    @property
    def name(self) -> str: ...
    @property
    def low(self) -> int: ...
    @property
    def divisor(self) -> int: ...


@dataclass(frozen=True)
class FeedSpec:
    """The command line's options about the inputs."""

    files: Mapping[str, str] = field(default_factory=dict)  # input → .npy file
    bundle: Path | None = None  # .npz file
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of random values
    seed: int = 0


def make_feeds(
    ports: Sequence[Port], dynamic_dims: Iterable[DynamicDim], sizes: Mapping[str, Any],
    spec: FeedSpec, growth: Growth | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Arrays by input name; a name that is no input of the model is an error. States that grow
    are empty before the call."""
    given = {} if spec.bundle is None else read_bundle(spec.bundle, "--feeds")
    given |= {name: _read_array(name, file) for name, file in spec.files.items()}
    known = {port.name for port in ports}
    unknown = [name for name in (*given, *spec.ranges) if name not in known]
    if unknown:
        is_option = any(name in spec.files or name in spec.ranges for name in unknown)
        raise IngotError(
            "bad-option" if is_option else "bad-input",
            f"no input is called {', '.join(map(repr, unknown))}",
            hint="the inputs are " + ", ".join(map(str, ports)),
        )
    chosen = choose_sizes(ports, dynamic_dims, sizes, given)
    if growth is not None:
        chosen[growth.rows] = arith.evaluate(growth.added, chosen)
    rng = np.random.default_rng(spec.seed)
    return {
        port.name: given[port.name]
        if port.name in given
        else _random(port, chosen, rng, spec.ranges.get(port.name))
        for port in ports
    }


def choose_sizes(
    ports: Iterable[Port], dynamic_dims: Iterable[DynamicDim], sizes: Mapping[str, Any],
    given: Mapping[str, np.ndarray],
) -> dict[str, int]:  # fmt: skip
    """Values of the dynamic dimensions: from the given arrays, else as requested by name, else the
    smallest allowed."""
    pairs = [
        (dim, size)
        for port in ports
        if port.name in given
        for dim, size in zip(port.shape, given[port.name].shape)
    ]
    requested = {name: size for name, size in sizes.items() if isinstance(size, int)}
    solved = solve(pairs, {**requested, **solve(pairs)})
    smallest = {symbol.name: max(1, symbol.low, symbol.divisor) for symbol in dynamic_dims}
    return smallest | {name: arith.evaluate(size, {}) for name, size in solved.items()}


def _random(
    port: Port, sizes: Mapping[str, int], rng: np.random.Generator, span: tuple[float, float] | None
) -> np.ndarray:
    """Standard normal floats; 0 or 1 for integers, which are valid indices into any table; short
    words for strings."""
    if port.dtype not in dtypes.TABLE:
        what = f"input {port.name!r} is a {port.dtype}, which the command line cannot give"
        raise IngotError("bad-option", what, hint="call exe.run(None, {name: dict}) in Python")
    shape = tuple(arith.evaluate(dim, sizes) for dim in port.shape)
    if min(shape, default=0) < 0:
        names = sorted(set().union(*map(arith.free_vars, port.shape)))
        why = "with " + ", ".join(f"{name}={sizes[name]}" for name in names)
        what = f"input {port.name!r} cannot have shape {list(shape)}"
        raise IngotError("bad-option", what, where=str(port), why=why)
    dtype = dtypes.of(port.dtype)
    try:
        return _random_array(shape, dtype, rng, span)
    except MemoryError as error:
        needed = math.prod(shape) * dtype.numpy.itemsize
        why = f"input {port.name!r} of shape {list(shape)} takes {needed} bytes"
        raise no_memory(why, str(port)) from error


def _random_array(
    shape: tuple[int, ...], dtype: dtypes.DType, rng: np.random.Generator,
    span: tuple[float, float] | None,
) -> np.ndarray:  # fmt: skip
    if math.prod(shape) > sys.maxsize // 8:  # the number of bytes overflows
        raise MemoryError
    if dtype.is_string:
        return np.array(_WORDS, object)[rng.integers(0, len(_WORDS), shape)].reshape(shape)
    if dtype.is_float:
        values = rng.uniform(span[0], span[1], shape) if span else rng.standard_normal(shape)
        return np.asarray(values).astype(dtype.numpy)
    low, high = span or (0, 2)
    return rng.integers(int(low), max(int(high), int(low) + 1), shape).astype(dtype.numpy)


# --- files ----------------------------------------------------------------------------------------


def read_bundle(file: Path, option: str) -> dict[str, np.ndarray]:
    """The arrays of a .npz, by name."""
    try:
        data = np.load(file, allow_pickle=False)
        if isinstance(data, np.ndarray):
            raise ValueError("it holds one unnamed array: use --input NAME=FILE")
        with data:
            return {name: data[name] for name in data.files}
    except _UNREADABLE as error:
        raise _unreadable(f"{option} {file}", error) from error


def _read_array(name: str, file: str) -> np.ndarray:
    try:
        data = np.load(file, allow_pickle=False)
        if not isinstance(data, np.ndarray):
            data.close()
            raise ValueError("it holds several arrays: use --feeds")
        return data
    except _UNREADABLE as error:
        raise _unreadable(f"--input {name}={file}", error) from error


def _unreadable(what: str, error: BaseException) -> IngotError:
    why = str(error) or type(error).__name__
    if "pickle" in why:  # numpy's message for any unknown format
        why = "it is neither a .npy nor a .npz file, or it holds Python objects"
    code = "bad-option" if isinstance(error, FileNotFoundError) else "bad-input"
    return IngotError(code, f"{what} cannot be read", why=why)
