"""Nested containers of a call's arguments and results ↔ flat lists, as PyTorch's pytrees.

A tree is LEAF, or (kind, keys, children): "tuple", "list", "dict" with its keys, "none", or the
name of another class, whose fields are known by the keys (or not at all). Those other classes only
torch can make; here they become a dict by key, or a list. Trees are JSON values, kept in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingot.support.stack import segmented

LEAF = "*"
Tree = Any  # LEAF, or [kind, keys, children]

PLAIN = {"tuple": tuple, "list": list}


class Mismatch(Exception):
    """Arguments whose nesting is not that of the tree; says what is wrong."""


def is_flat(tree: Tree) -> bool:
    """A tuple or list of leaves."""
    return tree != LEAF and tree[0] in PLAIN and all(child == LEAF for child in tree[2])


@segmented
def is_plain(tree: Tree) -> bool:
    """Are all its containers Python's own?"""
    if tree == LEAF:
        return True
    return tree[0] in (*PLAIN, "dict", "none") and all(map(is_plain, tree[2]))


@segmented
def flatten(tree: Tree, value: Any, path: str, out: list[Any]) -> None:
    """Append the leaves of `value`, nested as the tree, to `out`."""
    if tree == LEAF:
        out.append(value)
        return
    kind, keys, children = tree
    for name, child, part in zip(
        _names(tree), children, _children(kind, keys, children, value, path)
    ):
        flatten(child, part, f"{path}{name}", out)


def _names(tree: Tree) -> list[str]:
    _, keys, children = tree
    return [f"[{k!r}]" for k in keys] if keys else [f"[{i}]" for i in range(len(children))]


def _children(
    kind: str, keys: Sequence[Any], children: Sequence[Tree], value: Any, path: str
) -> Sequence[Any]:
    if kind == "none":
        return ()
    if kind == "dict" or (keys and isinstance(value, Mapping)):
        if not isinstance(value, Mapping) or set(value) != set(keys):
            raise Mismatch(f"{path} is {_shown(value)}, not a dict with the keys {list(keys)}")
        return [value[key] for key in keys]
    if not isinstance(value, tuple | list) or len(value) != len(children):
        raise Mismatch(f"{path} is {_shown(value)}, not a {kind} of {len(children)}")
    return value


def _shown(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"a {kind} with the keys {list(value)}"
    return f"a {kind} of {len(value)}" if isinstance(value, tuple | list) else f"a {kind}"


@segmented
def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The leaves, nested as the tree."""
    if tree == LEAF:
        return next(leaves)
    kind, keys, children = tree
    made = [unflatten(child, leaves) for child in children]
    if kind == "none":
        return None
    if kind == "dict" or (keys and kind not in PLAIN):
        return dict(zip(keys, made))
    return tuple(made) if kind == "tuple" else made
