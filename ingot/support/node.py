"""Frozen tree nodes with a cached hash: the base of the loop and program grammars.

`@node` makes a frozen, slotted dataclass. Equality is structural over the fields with
`compare=True`; ids and origins are declared with `compare=False`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

from ingot.support.stack import segmented

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
            return _seal(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return _has_equal_fields(self, other)

    def __repr__(self) -> str:
        return _show(self)

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__} is not pickled: the text form is what is stored")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo: object):
        return self


@segmented
def _seal(n: Node) -> int:
    """Compute and keep the hash; those of the children first, through `hash`."""
    value = hash((type(n).__name__, n._key()))
    object.__setattr__(n, "_hash", value)
    return value


@segmented
def _has_equal_fields(a: Node, b: Any) -> bool:
    return a._key() == b._key()


@segmented
def _show(n: Node) -> str:
    fields = [f.name for f in dataclasses.fields(n) if f.repr]  # type: ignore[arg-type]
    return f"{type(n).__name__}({', '.join(f'{f}={getattr(n, f)!r}' for f in fields)})"


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def node(cls: type[T]) -> type[T]:
    return dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


_COMPARED: dict[type, tuple[str, ...]] = {}


def compared_fields(cls: type) -> tuple[str, ...]:
    names = _COMPARED.get(cls)
    if names is None:
        fields: tuple[Any, ...] = dataclasses.fields(cls)
        names = _COMPARED[cls] = tuple(f.name for f in fields if f.compare)
    return names
