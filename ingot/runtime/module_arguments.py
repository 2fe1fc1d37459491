"""Arguments of a PyTorch module → a flat list, and results → nested as the module's.

In: a signature (module_signature.py). Used by module_call.py and by ingot/torch, which run what is
in between. Containers of classes that only torch can make go through torch, if it is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ingot.runtime.module_signature import Leaf, ModuleSignature
from ingot.runtime.trees import LEAF, Mismatch, flatten, is_flat, is_plain, unflatten
from ingot.support import lazy
from ingot.support.errors import IngotError


class Nesting:
    def __init__(self, signature: ModuleSignature):
        self.signature = signature
        positional, named = signature.arguments[2]
        self._is_flat = is_flat(positional) and not named[2]
        self._has_plain_arguments = is_plain(signature.arguments)
        self._has_plain_results = is_plain(signature.returned)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The arguments as one list; those given by name may stand for positional ones."""
        signature, out, by_name = self.signature, list[Any](), list[Any]()
        if self._is_flat and not kwargs and len(args) == len(signature.leaves):
            return args
        positional, named = signature.arguments[2]
        missing = signature.parameters[len(args) : len(positional[2])]
        if missing and all(name in kwargs for name in missing):
            args = (*args, *(kwargs[name] for name in missing))
            kwargs = {name: value for name, value in kwargs.items() if name not in missing}
        try:
            if not self._has_plain_arguments and has_torch():
                return lazy.load("torch.pytrees").flattened(signature, args, kwargs)
            flatten(named, kwargs, "kwargs", by_name)
            flatten(positional, args, "args", out)
            return [*out, *by_name]
        except Mismatch as error:
            what = f"the arguments are not those that the module was compiled for: {error}"
            names = ", ".join(signature.parameters)
            raise IngotError("bad-input", what, hint=names and f"it takes {names}") from error

    def nested(self, found: Sequence[Any], as_tensors: bool) -> Any:
        if self.signature.returned == LEAF:
            return found[0]
        if as_tensors and not self._has_plain_results:
            return lazy.load("torch.pytrees").unflattened(self.signature, list(found))
        return unflatten(self.signature.returned, iter(found))


def has_torch() -> bool:
    """Has something imported torch? Nothing here does."""
    return sys.modules.get("torch") is not None


def check_fixed(given: Any, leaf: Leaf) -> None:
    """An error for another value than the one that tracing assumed."""
    if given is leaf.value or (type(given) is type(leaf.value) and given == leaf.value):
        return
    is_plain_value = isinstance(given, bool | int | float | str | None)
    shown = repr(given) if is_plain_value else f"a {type(given).__name__}"
    what = f"an argument is {shown}; the module was compiled for {leaf.value!r} there"
    hint = "compile it again with that value, or give a tensor when compiling"
    raise IngotError("bad-input", what, hint=hint)
