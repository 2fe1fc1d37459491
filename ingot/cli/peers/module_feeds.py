"""The arrays of a benchmark → the arguments of a PyTorch module. In: a task, or arrays by the name
of Ingot's input. Out: positional and named arguments, nested as the module's. Called by the
runtimes in the other process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ingot.cli.peers.task import Task
from ingot.runtime.module_signature import ModuleSignature
from ingot.runtime.trees import unflatten


def call_arguments(
    task: Task, signature: ModuleSignature, make: Callable[[np.ndarray], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of the task's torch.export file. If the model is another file, its inputs are in the order of
    the module's positional arguments."""
    if task.model == task.torch:
        return arguments(signature, task.by_name(), make)
    return tuple(map(make, task.arrays())), {}


def arguments(
    signature: ModuleSignature, feeds: Mapping[str, np.ndarray], make: Callable[[np.ndarray], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`make` turns an array into what the runtime takes."""
    leaves: list[Any] = []
    for leaf in signature.leaves:
        if leaf.kind == "tensor":
            stored = feeds[leaf.port]
            order = leaf.order or tuple(range(stored.ndim))
            back = [order.index(axis) for axis in range(stored.ndim)]
            leaves.append(make(stored.transpose(back)))
        elif leaf.kind == "number":
            leaves.append(feeds[leaf.port].item() if leaf.port in feeds else None)
        else:
            leaves.append(leaf.value)
    positional, named = unflatten(signature.arguments, iter(leaves))
    return tuple(positional), dict(named)


def arrays_of(results: Any, plain: Callable[[Any], Any] = lambda leaf: leaf) -> list[np.ndarray]:
    """The arrays in nested results, numbers too, without what is neither. `plain` makes an array of
    a tensor."""
    found: list[np.ndarray] = []
    todo = [results]
    while todo:
        x = plain(todo.pop())
        if isinstance(x, Mapping):
            todo += reversed(list(x.values()))
        elif isinstance(x, tuple | list):
            todo += reversed(x)
        elif isinstance(x, np.ndarray | int | float) and not isinstance(x, bool):
            found.append(np.asarray(x))
    return found
