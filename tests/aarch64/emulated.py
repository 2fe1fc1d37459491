"""Plans that an arm64 Python runs under qemu, all of them in one process: its start takes seconds.

plans = Plans(folder); plans.add(name, package, feeds) …; plans.run(); plans.outputs(name)
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ingot import dtypes
from ingot.runtime import plan_file
from ingot.runtime.package import Package
from tests.aarch64 import install
from tests.aarch64.arrays import read_arrays, write_arrays
from tests.aarch64.child import THREADS

LIMIT_S = 3600


class Plans:
    def __init__(self, folder: Path):
        if not install.emulator().exists():
            pytest.fail("qemu and the arm64 Python are missing: run `make aarch64`")
        self.folder = folder

    def add(self, name: str, package: Package, feeds: Mapping[str, np.ndarray]) -> None:
        plan_file.save(str(self.folder / f"{name}.plan"), package)
        write_arrays(self.folder / f"{name}.feeds.npz", feeds)

    def run(self) -> None:
        words = install.command("-m", "tests.aarch64.child", str(self.folder))
        done = subprocess.run(
            words, cwd=install.ROOT, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0 and done.stdout.startswith("done"), done.stdout + done.stderr

    def outputs(self, name: str) -> dict[str, np.ndarray]:
        """Of one thread, after a look whether those of other counts have equal bits."""
        first, *others = (self._outputs(name, threads) for threads in THREADS)
        for other in others:
            assert {k: v.tobytes() for k, v in first.items()} == {
                k: v.tobytes() for k, v in other.items()
            }
        return first

    def _outputs(self, name: str, threads: int) -> dict[str, np.ndarray]:
        error = self.folder / f"{name}.{threads}.error"
        assert not error.exists(), error.read_text()
        ports = plan_file.read(str(self.folder / f"{name}.plan")).package.outputs
        types = {port.name: dtypes.of(port.dtype).numpy for port in ports}
        return read_arrays(self.folder / f"{name}.{threads}.npz", types)
