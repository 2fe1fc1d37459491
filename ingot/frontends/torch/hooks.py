"""The user's operators: those of torch.library that a kernel or converter of the user's implements.

In: `ingot.compile(…, kernels={"mylib::odd": kernel})`, as functions from an operator's arguments to
the attributes of a `kernel` node; or operators that ingot.torch registered for good. Out:
converters that take precedence over all others. Called by fx_walk.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ingot.frontends.torch.registry import Converter, Importer, TorchNode
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

Hook = Callable[[Mapping[str, Any]], Mapping[str, Any]]

LIBRARY: dict[str, Hook] = {}  # operators that ingot.torch.operator made of kernels
CONVERTERS: set[str] = set()  # operators for which the user registered a converter


def full_name(name: str) -> str:
    """`mylib::odd` → `mylib.odd.default`; an overload is kept."""
    dotted = name.replace("::", ".")
    return dotted if dotted.count(".") > 1 else f"{dotted}.default"


def find(kernels: Mapping[str, Hook], target: str) -> Converter | None:
    """The converter of an operator that is implemented by a kernel."""
    given = {full_name(name): hook for name, hook in kernels.items()}
    hook = given.get(target) or LIBRARY.get(target)
    return None if hook is None else _converter(hook)


def _converter(hook: Hook) -> Converter:
    def convert(ctx: Importer, node: TorchNode, *args: Any, **kwargs: Any) -> Any:
        names = [a.name for a in node.fx.target._schema.arguments]  # type: ignore[union-attr]
        given = dict(zip(names, args)) | kwargs
        operands = [value for value in given.values() if isinstance(value, Value)]
        attrs = {name: v for name, v in given.items() if not isinstance(v, Value)}
        made = ctx.g.add_all("kernel", operands, **hook(attrs))
        if len(made) != len(node.outputs):
            what = f"the operator has {len(node.outputs)} results, its kernel has {len(made)}"
            raise IngotError("bad-option", what, where=node.where)
        return made[0] if len(made) == 1 else made

    return convert


def refuse_unused(kernels: Mapping[str, Hook], targets: Iterable[str]) -> None:
    """An error for a key that no node of the model has."""
    found = set(targets)
    unused = [name for name in kernels if full_name(name) not in found]
    if unused:
        near = difflib.get_close_matches(full_name(unused[0]), sorted(found), n=1)
        hint = f"did you mean {near[0]!r}?" if near else 'the keys are "library::operator"'
        what = f"kernels= has {unused[0]!r}, but the model has no such operator"
        raise IngotError("bad-option", what, hint=hint)
