"""Run by the arm64 Python: every plan of a folder, on its feeds, with several thread counts.

In: NAME.plan, NAME.feeds.npz. Out: NAME.T.npz for each thread count T, or NAME.T.error with the
error's code. An array is stored as bytes and a shape, since numpy cannot store every element type.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np

import ingot
from ingot.runtime.cpu import pool
from tests.aarch64.arrays import read_arrays, write_arrays

THREADS = (1, 3)


def main(folder: Path) -> None:
    assert platform.machine() == "aarch64"
    pool._current["pool"] = pool.Pool(2)  # whatever the machine has
    for plan in sorted(folder.glob("*.plan")):
        exe = ingot.load(plan)
        types = {port.name: port.dtype for port in exe.inputs}
        feeds = read_arrays(folder / f"{plan.stem}.feeds.npz", types)
        for threads in THREADS:
            exe.threads = threads
            try:
                # the third run goes through the native fast path, where there is one
                results = [exe.run(None, dict(feeds)) for _ in range(3)][-1]
            except ingot.IngotError as error:
                (folder / f"{plan.stem}.{threads}.error").write_text(str(error))
                continue
            assert plan.stem != "digits" or exe._loaded._fast_paths, "the fast path was not taken"
            names = [port.name for port in exe.outputs]
            write_arrays(folder / f"{plan.stem}.{threads}.npz", dict(zip(names, results)))
    missing = {m for m in sys.modules if m.split(".")[0] in ("onnx", "llvmlite", "torch")}
    assert not missing, missing
    print("done", np.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
