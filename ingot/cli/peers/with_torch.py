"""torch.compile as a benchmark runtime, for a model that is also given as a torch.export file.

It compiles in the first call, which therefore counts as load time. Loaded by child.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch._inductor.config
from torch.utils import _pytree

from ingot.cli.peers.module_feeds import arguments, arrays_of
from ingot.cli.peers.task import Task
from ingot.frontends.torch.program import call_signature
from ingot.frontends.torch.tensors import to_array, to_tensor


class Runtime:
    version = torch.__version__

    def __init__(self, task: Task):
        torch.set_num_threads(task.threads)
        torch._inductor.config.freezing = True  # weights are constants, like in the other runtimes
        program = torch.export.load(task.torch)
        self._call = torch.compile(program.module(), dynamic=task.is_dynamic)
        self._args: tuple[Any, ...] = tuple(map(to_tensor, task.arrays()))
        self._kwargs: dict[str, Any] = {}
        if task.model == task.torch:  # else the inputs are those of another export, by position
            signature = call_signature(program)
            self._args, self._kwargs = arguments(signature, task.by_name(), to_tensor)
        self.run()

    def run(self) -> None:
        with torch.no_grad():
            self._call(*self._args, **self._kwargs)

    def outputs(self) -> list[np.ndarray]:
        with torch.no_grad():
            results = self._call(*self._args, **self._kwargs)
        found = [to_array(x) if isinstance(x, torch.Tensor) else x for x in _leaves(results)]
        return arrays_of(found)


def _leaves(results: Any) -> list[Any]:
    return _pytree.tree_leaves(results)
