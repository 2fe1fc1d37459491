"""Interned strings: a tensor of strings holds numbers into a table, equal strings equal numbers.

In: arrays of str or bytes. Out: arrays of numbers of `dtypes.str_`, and back. The constant store
has a table of the model's strings, which the package keeps; a call has one on top of it (`base`),
which is freed after the call. Number 0 is the empty string: zeroed memory holds empty strings, and
what pads a tensor of numbers with zeros pads one of strings with empty ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from ingot import dtypes

_current: ContextVar[StringTable] = ContextVar("strings")


def current() -> StringTable:
    """The table of the graph that an interpreter runs now; a new one outside of any."""
    return _current.get(None) or StringTable()


@contextmanager
def using(table: StringTable) -> Iterator[None]:
    """What the references of operators take for the table of strings."""
    token = _current.set(table)
    try:
        yield
    finally:
        _current.reset(token)


class StringTable:
    """`base`: a table whose strings keep their numbers; it is read and never changed."""

    def __init__(self, base: StringTable | None = None, texts: Iterable[str] = ()):
        self._base = base
        self._known = {} if base is None else base._numbers
        self._first = len(self._known)
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        for text in texts if base is not None else ("", *texts):
            self.add(text)

    def __len__(self) -> int:
        return self._first + len(self._texts)

    def __iter__(self) -> Iterator[str]:
        if self._base is not None:
            yield from self._base
        yield from self._texts

    def add(self, text: str) -> int:
        """The number of a string, which enters the table if it is new."""
        number = self._known.get(text)
        if number is None:
            number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = self._first + len(self._texts)
            self._texts.append(text)
        return number

    def text(self, number: int) -> str:
        if number >= self._first:
            return self._texts[number - self._first]
        assert self._base is not None
        return self._base._texts[number]

    def encode(self, array: np.ndarray) -> np.ndarray:
        """Numbers of an array of str or bytes (UTF-8); a TypeError names the first element that is
        neither, a UnicodeDecodeError has bytes that are not UTF-8."""
        flat = array.reshape(-1).tolist()
        numbers = [self.add(t if type(t) is str else _as_text(t, i)) for i, t in enumerate(flat)]
        return np.array(numbers, np.int64).view(dtypes.str_.numpy).reshape(array.shape)

    def decode(self, numbers: np.ndarray) -> np.ndarray:
        """An object array of str."""
        texts = np.empty(numbers.size, object)
        texts[:] = [self.text(n) for n in numbers.reshape(-1).view(np.int64).tolist()]
        return texts.reshape(numbers.shape)


def _as_text(value: object, position: int) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    raise TypeError(f"element {position} is a {type(value).__name__}, not a string")
