"""Runtimes limited to an instruction set, in a process of their own:

    python -m benchmarks.quantised.runtimes ingot@x86-64-v3      Ingot, compiled for that target
    python -m benchmarks.quantised.runtimes openvino@AVX2        OpenVINO, its oneDNN capped
    python -m benchmarks.quantised.runtimes onnxruntime          without a limit

It is ingot/cli/peers/child.py with these names. ONNX Runtime has no such limit: its kernels ask the
processor. `reference` is ONNX Runtime without optimisations, for outputs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ingot.cli.peers import child
from ingot.cli.peers.task import Task
from ingot.support import lazy

HERE = "benchmarks.quantised.runtimes"
LIMIT = sys.argv[1].partition("@")[2] if len(sys.argv) > 1 else ""


class IngotForTarget:
    version = "0"

    def __init__(self, task: Task):
        from ingot import api

        self._exe = api.compile(task.model, target=LIMIT, threads=task.threads, shapes=task.sizes)
        self._feeds = task.by_name()

    def run(self) -> None:
        self._exe.run(None, self._feeds)

    def outputs(self) -> list[np.ndarray]:
        return self._exe.run(None, self._feeds)


def capped_openvino(task: Task) -> Any:
    """Its oneDNN and its own kernels read the limit when they are first used."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = LIMIT
    return lazy.load("peer.openvino")(task)


class Reference:
    version = ""

    def __init__(self, task: Task):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = task.threads
        options.log_severity_level = 3
        for name, size in task.file_sizes.items():
            options.add_free_dimension_override_by_name(name, size)
        self._session = onnxruntime.InferenceSession(
            task.model, options, providers=["CPUExecutionProvider"]
        )
        self._feeds = task.by_name()

    def run(self) -> None:
        self._session.run(None, self._feeds)

    def outputs(self) -> list[np.ndarray]:
        return self._session.run(None, self._feeds)


if __name__ == "__main__":
    lazy.TABLE["peer.reference"] = f"{HERE}:Reference"
    if LIMIT:
        capped = {"ingot": "IngotForTarget", "openvino": "capped_openvino"}
        lazy.TABLE[f"peer.{sys.argv[1]}"] = f"{HERE}:{capped[sys.argv[1].partition('@')[0]]}"
    child.main(sys.argv[1])
