"""ONNX Runtime's CPU execution provider as a benchmark runtime. Loaded by child.py."""

from __future__ import annotations

import numpy as np
import onnxruntime

from ingot.cli.peers.task import Task


class Runtime:
    version = onnxruntime.__version__

    def __init__(self, task: Task):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = task.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only: stderr is read as the error message
        if not task.is_dynamic:
            for name, size in task.file_sizes.items():
                options.add_free_dimension_override_by_name(name, size)
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(task.model, options, providers=providers)
        self._feeds = task.by_name()

    def run(self) -> None:
        self._session.run(None, self._feeds)

    def outputs(self) -> list[np.ndarray]:
        return self._session.run(None, self._feeds)
