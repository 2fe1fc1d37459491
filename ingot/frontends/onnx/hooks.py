"""The user's kernels as converters of operators. In: `ingot.compile(…, kernels={…})`, as functions
from a node's attributes to those of the graph's `kernel` node. Called by functions, where they take
precedence over all other converters.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

SHOWN = 3  # keys listed in a hint

Hook = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Hooks:
    """User kernels by "domain:Op", or by "Op" for that operator of any domain."""

    def __init__(self, hooks: Mapping[str, Hook]):
        self._converters: dict[tuple[str | None, str], Converter] = {}
        self._unused: dict[tuple[str | None, str], str] = {}
        for key, hook in hooks.items():
            domain, colon, op = key.rpartition(":")
            domain = "" if domain == "ai.onnx" else domain
            self._converters[(domain if colon else None, op)] = _converter(hook)
            self._unused[(domain if colon else None, op)] = key

    def lookup(self, domain: str, op: str) -> Converter | None:
        key = (domain, op) if (domain, op) in self._converters else (None, op)
        self._unused.pop(key, None)
        return self._converters.get(key)

    def refuse_unused(self, ops: Iterable[str]) -> None:
        """An error for unused keys, after all nodes were looked up. `ops`: the model's operators,
        for a suggestion."""
        if not self._unused:
            return
        names = ", ".join(map(repr, self._unused.values()))
        near = difflib.get_close_matches(next(iter(self._unused))[1], sorted(set(ops)), n=1)
        hint = f"did you mean {near[0]!r}?" if near else 'the keys are "Op" or "domain:Op"'
        what = f"kernels= has {names}, but the model has no such node"
        raise IngotError("bad-option", what, hint=hint)


def _converter(hook: Hook) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        operands = [ctx.optional(node, index) for index in range(len(node.inputs))]
        while operands and operands[-1] is None:
            operands.pop()
        results = ctx.g.add_all("kernel", operands, **hook(node.attrs))
        if len(node.outputs) > len(results):
            what = f"the node has {len(node.outputs)} outputs, its kernel has {len(results)}"
            raise IngotError("bad-option", what, where=node.where)
        return results

    return convert


def how_to_hook(missing: Iterable[tuple[str, str]]) -> str:
    """The hint for unsupported operators, given by domain and name."""
    keys = sorted({f"{domain}:{op}" if domain else op for domain, op in missing})
    given = ", ".join([f'"{key}": kernel' for key in keys[:SHOWN]] + ["…"] * (len(keys) > SHOWN))
    words = "one" if len(keys) == 1 else "those"
    return f"ingot.compile(model, kernels={{{given}}}) accepts {words} written with @ingot.kernel"
