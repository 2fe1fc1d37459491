"""The keys of random numbers: a seed and the number of a call, as a u64[2] array for each call.

In: a seed, or none. Out: the array that executable.py passes as the input RANDOM_KEY. Taking a
number is one step of CPython, so callers in several threads get different ones. A forked process
starts somewhere else, unless a seed was given.
"""

from __future__ import annotations

import itertools
import os
import secrets

import numpy as np


class RandomKeys:
    """Shared by an executable, its contexts, its versions and its builds."""

    def __init__(self) -> None:
        self._calls = itertools.count()
        self._seed, self._process = secrets.randbits(64), os.getpid()
        self.is_seeded = False

    def seed(self, value: int) -> None:
        self._seed, self.is_seeded = value % (1 << 64), True
        self._calls = itertools.count()

    def next(self) -> np.ndarray:
        if not self.is_seeded and self._process != os.getpid():
            self.__init__()  # type: ignore[misc]
        return np.array([self._seed, next(self._calls)], np.uint64)
