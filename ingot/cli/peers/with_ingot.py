"""Ingot as a benchmark runtime: compiled, or loaded from its cache. Loaded by child.py."""

from __future__ import annotations

from importlib import metadata

import numpy as np

from ingot import api
from ingot.cli.peers.task import Task


class Runtime:
    version = metadata.version("ingot")

    def __init__(self, task: Task):
        sizes = {} if task.is_dynamic else task.sizes
        self._exe = api.compile(task.model, threads=task.threads, shapes=sizes)
        self._feeds = task.by_name()

    def run(self) -> None:
        self._exe.run(None, self._feeds)

    def outputs(self) -> list[np.ndarray]:
        return self._exe.run(None, self._feeds)
