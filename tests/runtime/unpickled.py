"""What a script of common.py runs with: packages read back, without the compiler."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np

from ingot.runtime.cpu import pool as pools
from ingot.runtime.executable import Executable
from ingot.runtime.package import Package

_cases: dict[str, tuple[Package, dict[str, np.ndarray]]] = {}


def load(file: str) -> None:
    for name, (package, arrays) in pickle.loads(Path(file).read_bytes()).items():
        raw = np.zeros(package.constants.size + 64, np.uint8)
        blob = raw[-raw.ctypes.data % 64 :][: package.constants.size]
        blob[:] = package.constants
        _cases[name] = (replace(package, constants=blob), arrays)
    crowd(3)


def exe(name: str, threads: int = 2) -> Executable:
    return Executable(_cases[name][0], threads)


def feeds(name: str) -> dict[str, np.ndarray]:
    return dict(_cases[name][1])


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [a.tobytes() for a in arrays]


def crowd(workers: int) -> pools.Pool:
    """Another pool, of a size that does not depend on the machine."""
    pools._current["pool"] = pools.Pool(workers)
    return pools.pool()
