"""OpenVINO's CPU plug-in as a benchmark runtime. Loaded by child.py."""

from __future__ import annotations

import numpy as np
import openvino

from ingot.cli.peers.task import Task


class Runtime:
    version = openvino.__version__.partition("-")[0]

    def __init__(self, task: Task):
        core = openvino.Core()
        model = core.read_model(task.model)
        if not task.is_dynamic:
            model.reshape(dict(zip(task.names, map(list, task.shapes))))
        settings = {
            "INFERENCE_NUM_THREADS": task.threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",  # like the others, even where bf16 is faster
        }
        self._request = core.compile_model(model, "CPU", settings).create_infer_request()
        self._feeds = task.by_name()

    def run(self) -> None:
        self._request.infer(self._feeds, share_inputs=True, share_outputs=True)

    def outputs(self) -> list[np.ndarray]:
        found = self._request.infer(self._feeds, share_inputs=True, share_outputs=False)
        return [found[i] for i in range(len(found))]
