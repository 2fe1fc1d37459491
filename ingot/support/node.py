"""Frozen tree nodes with a cached hash: the base of the loop and program grammars.

`@node` makes a frozen, slotted dataclass. Equality is structural over the fields with
`compare=True`; ids and origins are declared with `compare=False`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


class Node:
    """Base class: structural equality, hash computed once."""

    __slots__ = ("_hash",)
    _hash: int

    def _key(self) -> tuple:
        return tuple(getattr(self, name) for name in compared_fields(type(self)))

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self).__name__, self._key()))
            object.__setattr__(self, "_hash", value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self._key() == other._key()  # type: ignore[attr-defined]

    def __reduce__(self):
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return (type(self), tuple(getattr(self, name) for name in names))


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def node(cls: type[T]) -> type[T]:
    return dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=True)(cls)


_COMPARED: dict[type, tuple[str, ...]] = {}


def compared_fields(cls: type) -> tuple[str, ...]:
    names = _COMPARED.get(cls)
    if names is None:
        fields: tuple[Any, ...] = dataclasses.fields(cls)
        names = _COMPARED[cls] = tuple(f.name for f in fields if f.compare)
    return names
