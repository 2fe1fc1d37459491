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


class _Numbers(dict):
    """String → number. What is looked up for the first time enters, bytes as their text too."""

    def __init__(self, known: dict, texts: list[str], first: int):
        self._known, self._texts, self._first = known, texts, first

    def __missing__(self, key: object) -> int:
        text = key if type(key) is str else _as_text(key)
        number = self._known.get(text)
        if number is None and text is not key:
            number = self[text]
        if number is None:
            number = self._first + len(self._texts)
            self._texts.append(text)
        self[key] = number
        return number


class StringTable:
    """`base`: a table whose strings keep their numbers; it is read and never changed."""

    def __init__(self, base: StringTable | None = None, texts: Iterable[str] = ()):
        self._base_texts: list[str] = [] if base is None else base._texts
        self._known: dict[object, int] = {} if base is None else base._numbers
        self._texts: list[str] = []
        self._numbers: dict[object, int] = _Numbers(self._known, self._texts, len(self._base_texts))
        for text in texts if base is not None else ("", *texts):
            self.add(text)

    def __len__(self) -> int:
        return len(self._base_texts) + len(self._texts)

    def __iter__(self) -> Iterator[str]:
        yield from self._base_texts
        yield from self._texts

    def add(self, text: str) -> int:
        """The number of a string, which enters the table if it is new."""
        return self._numbers[text]

    def encode(self, array: np.ndarray) -> np.ndarray:
        """Numbers of an array of str or bytes (UTF-8); a TypeError names an element that is
        neither, a UnicodeDecodeError has bytes that are not UTF-8."""
        flat = array.reshape(-1).tolist()
        try:  # mostly, a model knows the strings that it is given
            numbers = np.fromiter(map(self._known.__getitem__, flat), np.int64, len(flat))
        except (KeyError, TypeError):
            numbers = np.fromiter(map(self._numbers.__getitem__, flat), np.int64, len(flat))
        return numbers.view(dtypes.str_.numpy).reshape(array.shape)

    def decode(self, numbers: np.ndarray) -> np.ndarray:
        """An object array of str."""
        flat = numbers.reshape(-1).view(np.int64)
        texts = np.empty(flat.size, object)
        known = self._base_texts
        if not known or (flat.size and flat.max() >= len(known)):
            known = [*known, *self._texts]
        texts[:] = list(map(known.__getitem__, flat.tolist()))
        return texts.reshape(numbers.shape)


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    raise TypeError(f"an element is {value!r}, of type {type(value).__name__}")
