"""torch's TreeSpecs → trees of plain values (runtime/trees.py), and containers that only torch can
make. Called by program.py and, by name, by runtime/module_call.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch.utils._pytree as pytree

from ingot.runtime.module_signature import ModuleSignature
from ingot.runtime.trees import LEAF, Mismatch, Tree, unflatten
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

_KINDS = {tuple: "tuple", list: "list", dict: "dict"}


@segmented
def tree_of(spec: pytree.TreeSpec) -> Tree:
    if spec.is_leaf():
        return LEAF
    children = [tree_of(child) for child in spec.children()]
    kind = _KINDS.get(spec.type)
    if kind is None and spec.type is type(None):
        kind = "none"
    keys = _keys(spec.context, len(children))
    if kind is None or (kind == "dict" and keys is None):
        return [f"{spec.type.__module__}.{spec.type.__qualname__}", keys, children]
    return [kind, keys if kind == "dict" else None, children]


def _keys(context: object, count: int) -> list | None:
    """The names of a container's fields, if its context is or has a list of them."""
    candidates = [context, *(context if isinstance(context, tuple | list) else ())]
    for found in candidates:
        is_list = isinstance(found, tuple | list) and len(found) == count
        if is_list and all(isinstance(key, str | int) for key in found):  # type: ignore[union-attr]
            return list(found)  # type: ignore[call-overload]
    return None


def torch_text(spec: pytree.TreeSpec) -> str:
    """torch's own text of the tree, of which it makes the user's classes; empty if it has none."""
    try:
        return pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return ""


def flattened(
    signature: ModuleSignature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The leaves of arguments that have containers of the user's own classes."""
    leaves, found = pytree.tree_flatten((args, kwargs))
    wanted = _spec(signature.torch_trees[0], "arguments")
    if found != wanted:
        raise Mismatch(f"they are nested as {found}, not as {wanted}")
    return leaves


def unflattened(signature: ModuleSignature, leaves: list[Any]) -> Any:
    """The results, in containers of the user's own classes."""
    if not signature.torch_trees[1]:  # a class without a name for torch
        return unflatten(signature.returned, iter(leaves))
    return pytree.tree_unflatten(leaves, _spec(signature.torch_trees[1], "results"))


@cache
def _spec(text: str, which: str) -> pytree.TreeSpec:
    if not text:
        what = f"the {which} have a class that torch cannot name"
        hint = "torch.utils._pytree.register_pytree_node(..., serialized_type_name=...)"
        raise IngotError("bad-input", what, hint=hint)
    try:
        return pytree.treespec_loads(text)
    except (NotImplementedError, KeyError, ValueError) as error:
        what = f"the {which} have a class that is not registered here"
        hint = "import the library that the model comes from, first"
        raise IngotError("bad-input", what, why=str(error), hint=hint) from error
