"""torch.compile as a benchmark runtime, for a model that is also given as a torch.export file.

It compiles in the first call, which therefore counts as load time. Loaded by child.py.
"""

from __future__ import annotations

import numpy as np
import torch
import torch._inductor.config
from torch.utils import _pytree

from ingot.cli.peers.task import Task


class Runtime:
    version = torch.__version__

    def __init__(self, task: Task):
        torch.set_num_threads(task.threads)
        torch._inductor.config.freezing = True  # weights are constants, like in the other runtimes
        module = torch.export.load(task.torch).module()
        self._call = torch.compile(module, dynamic=task.is_dynamic)
        self._feeds = [torch.from_numpy(array) for array in task.arrays()]
        self.run()

    def run(self) -> None:
        with torch.no_grad():
            self._call(*self._feeds)

    def outputs(self) -> list[np.ndarray]:
        with torch.no_grad():
            found = _pytree.tree_leaves(self._call(*self._feeds))
        return [tensor.numpy() for tensor in found]
