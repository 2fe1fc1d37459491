"""Ingot as a benchmark runtime: compiled, or loaded from its cache. Loaded by child.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from ingot import api
from ingot.cli.peers.module_feeds import arguments, arrays_of
from ingot.cli.peers.task import Task
from ingot.runtime.module_call import ModuleExecutable


class Runtime:
    version = metadata.version("ingot")
    _call: Callable[[], Any]

    def __init__(self, task: Task):
        sizes = {} if task.is_dynamic else task.sizes
        exe = api.compile(task.model, threads=task.threads, shapes=sizes)
        if isinstance(exe, ModuleExecutable):
            args, kwargs = arguments(exe.signature, task.by_name(), lambda array: array)
            self._call = partial(exe, *args, **kwargs)
        else:
            self._call = partial(exe.run, None, task.by_name())

    def run(self) -> None:
        self._call()

    def outputs(self) -> list[np.ndarray]:
        found = self._call()
        return found if isinstance(found, list) else arrays_of(found)
