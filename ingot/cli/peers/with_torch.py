"""PyTorch as benchmark runtimes, for a model that is also given as a torch.export file: eager,
eager in channels-last memory, torch.compile, torch.compile with freezing, and torch.compile with
Ingot as its back end. Loaded by child.py.

torch.compile compiles in the first call. It precompiles C++ headers once per machine; that is done
before the clock starts, with a function of one operator.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import torch
import torch._inductor.config
from torch.utils import _pytree

from ingot.cli.peers.module_feeds import arrays_of, call_arguments
from ingot.cli.peers.task import Task
from ingot.frontends.torch.program import call_signature
from ingot.frontends.torch.tensors import to_array, to_tensor


class Eager:
    version: str = torch.__version__

    def __init__(self, task: Task):
        torch.set_num_threads(task.threads)
        program = torch.export.load(task.torch)
        self._args, self._kwargs = call_arguments(task, call_signature(program), self._tensor)
        self._call = self._function(program.module(), task)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return to_tensor(array)

    def _function(self, module: torch.nn.Module, task: Task) -> Callable[..., Any]:
        return module

    def run(self) -> None:
        with torch.no_grad():
            self._call(*self._args, **self._kwargs)

    def outputs(self) -> list[np.ndarray]:
        with torch.no_grad():
            results = self._call(*self._args, **self._kwargs)
        leaves: list[Any] = _pytree.tree_leaves(results)
        return arrays_of([to_array(x) if isinstance(x, torch.Tensor) else x for x in leaves])


class ChannelsLast(Eager):
    """Images and weights of convolutions in channels-last memory."""

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = to_tensor(array)
        is_image = tensor.ndim == 4
        return tensor.contiguous(memory_format=torch.channels_last) if is_image else tensor

    def _function(self, module: torch.nn.Module, task: Task) -> Callable[..., Any]:
        for weight in module.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        return module


class Compiled(Eager):
    is_frozen = False

    def _function(self, module: torch.nn.Module, task: Task) -> Callable[..., Any]:
        torch._inductor.config.freezing = self.is_frozen
        return torch.compile(module, dynamic=task.is_dynamic)

    @staticmethod
    def prepare(task: Task) -> None:
        """The headers."""
        torch.compile(torch.relu)(torch.ones(8))
        torch._dynamo.reset()


class Frozen(Compiled):
    """Weights are constants, as in the other runtimes."""

    is_frozen = True


class IngotBackend(Eager):
    version = metadata.version("ingot")

    def _function(self, module: torch.nn.Module, task: Task) -> Callable[..., Any]:
        options: dict[str, Any] = {"threads": task.threads}
        return torch.compile(module, backend="ingot", dynamic=task.is_dynamic, options=options)
