"""torch tensors among the arguments of a call: tensors in, tensors out, over the same memory.

Nothing here imports torch: a caller with a tensor has. Used by executable.py and kernels/.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ingot.support import lazy


def is_tensor(value: Any) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # absent while torch is being imported
    return kind is not None and isinstance(value, kind)


def has_tensor(values: Iterable[Any]) -> bool:
    """Is there one, also in a sequence among them?"""
    if sys.modules.get("torch") is None:
        return False
    each = (v if isinstance(v, list | tuple) else (v,) for v in values)
    return any(is_tensor(value) for values in each for value in values)


def as_tensors(
    results: Sequence[Any], given: Sequence[Any] = (), arrays: Sequence[Any] = ()
) -> list[Any]:
    """Results, or sequences of them, as tensors; one that is an argument, a state, as the caller's
    own. What torch has no type for stays an array. `arrays` are what the arguments became."""
    own = {id(array): value for array, value in zip(arrays, given) if is_tensor(value)}
    to_tensor = lazy.load("torch.tensors").to_tensor_if_any

    def convert(result: Any) -> Any:
        if id(result) in own:
            return own[id(result)]
        return to_tensor(result) if isinstance(result, np.ndarray) else result

    return [list(map(convert, r)) if isinstance(r, list) else convert(r) for r in results]
