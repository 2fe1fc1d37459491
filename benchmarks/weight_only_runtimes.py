"""Runtimes of models with weights of a few bits, in a process of their own:

    python -m benchmarks.weight_only_runtimes ingot@x86-64-v3   Ingot, compiled for that target
    python -m benchmarks.weight_only_runtimes openvino@f32      its activations stay f32
    python -m benchmarks.weight_only_runtimes openvino@i8       its default: quantised in groups

It is ingot/cli/peers/child.py with these names. A third word caps OpenVINO's instructions, as in
openvino@f32@AVX2. ONNX Runtime takes its setting from the file, and asks the processor.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from ingot.cli.peers import child
from ingot.cli.peers.task import Task
from ingot.support import lazy

HERE = "benchmarks.weight_only_runtimes"
NAME, SETTING, CAP = [*sys.argv[1].split("@"), "", ""][:3] if len(sys.argv) > 1 else ("", "", "")
GROUP = "DYNAMIC_QUANTIZATION_GROUP_SIZE"


class Ingot:
    version = "0"

    def __init__(self, task: Task):
        from ingot import api

        self._exe = api.compile(task.model, target=SETTING or "cpu", threads=task.threads)
        self._feeds = task.by_name()

    def run(self) -> None:
        self._exe.run(None, self._feeds)

    def outputs(self) -> list[np.ndarray]:
        return self._exe.run(None, self._feeds)


class OpenVino:
    def __init__(self, task: Task):
        if CAP:
            os.environ["ONEDNN_MAX_CPU_ISA"] = CAP
        import openvino

        self.version = openvino.__version__.partition("-")[0]
        settings = {
            "INFERENCE_NUM_THREADS": task.threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        if SETTING == "f32":
            settings[GROUP] = 0
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(task.model), "CPU", settings)
        self.version += f", group {compiled.get_property(GROUP)}"
        self._request = compiled.create_infer_request()
        self._feeds = task.by_name()

    def run(self) -> None:
        self._request.infer(self._feeds, share_inputs=True, share_outputs=True)

    def outputs(self) -> list[np.ndarray]:
        found = self._request.infer(self._feeds, share_inputs=True, share_outputs=False)
        return [found[i] for i in range(len(found))]


if __name__ == "__main__":
    own = {"ingot": "Ingot", "openvino": "OpenVino"}
    if NAME in own:
        lazy.TABLE[f"peer.{sys.argv[1]}"] = f"{HERE}:{own[NAME]}"
    child.main(sys.argv[1])
