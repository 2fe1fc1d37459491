"""Ingot as a benchmark runtime: compiled, or loaded from its cache. Loaded by child.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata
from typing import Any, ClassVar

import numpy as np

from ingot import api
from ingot.cli.peers.module_feeds import arrays_of, call_arguments
from ingot.cli.peers.task import Task
from ingot.runtime.module_call import ModuleExecutable
from ingot.support import lazy


class Runtime:
    version = metadata.version("ingot")
    options: ClassVar[Mapping[str, Any]] = {}
    _call: Callable[[], Any]

    @classmethod
    def prepare(cls, task: Task) -> None:
        """torch's import does not count as compiling; torch's own runtimes import it before too."""
        if task.torch and (cls is Module or task.model == task.torch):
            lazy.load("torch.tensors")

    def __init__(self, task: Task):
        sizes = {} if task.is_dynamic else task.sizes
        exe = api.compile(
            task.model, threads=task.threads, shapes=sizes, options={**self.options} or None
        )
        self._take(exe, task)

    def _take(self, exe: Any, task: Task) -> None:
        kernels = [row.kernel for row in exe.package.report]
        self.uses = ["winograd"] if any("winograd" in name for name in kernels) else []
        if isinstance(exe, ModuleExecutable):
            tensors = lazy.load("torch.tensors")  # a module's callers have tensors
            args, kwargs = call_arguments(task, exe.signature, tensors.to_tensor)
            self._call = partial(exe, *args, **kwargs)
        else:
            self._call = partial(exe.run, None, task.by_name())

    def run(self) -> None:
        self._call()

    def outputs(self) -> list[np.ndarray]:
        found = self._call()
        return arrays_of(found, _array)


def _array(leaf: Any) -> Any:
    """A module's results are tensors, and numbers."""
    return lazy.load("torch.tensors").to_array(leaf) if hasattr(leaf, "detach") else leaf


class WithoutWinograd(Runtime):
    options: ClassVar[Mapping[str, Any]] = {"off": "winograd"}


class Module(Runtime):
    """The same network from its torch.export file, which has the sizes of its export."""

    def __init__(self, task: Task):
        self._take(api.compile(task.torch, threads=task.threads), task)
