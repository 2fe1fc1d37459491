"""What a script of common.py runs with: packages read back, without the compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ingot.runtime import plan_file
from ingot.runtime.cpu import pool as pools
from ingot.runtime.executable import Executable
from ingot.runtime.package import Package

_cases: dict[str, tuple[Package, dict[str, np.ndarray]]] = {}


def load(folder: str) -> None:
    for plan in Path(folder).glob("*.plan"):
        with np.load(plan.with_suffix(".npz")) as arrays:
            _cases[plan.stem] = (plan_file.read(str(plan)).package, dict(arrays))
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
