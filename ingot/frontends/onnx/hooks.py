"""The user's kernels as spellings of operators. In: `ingot.compile(…, kernels={…})`, made into
functions from a node's attributes to those of the graph's `kernel` node. Called by functions, which
asks here before it looks anywhere else.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ingot.frontends.onnx.registry import Importer, OnnxNode, Spelling
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

SHOWN = 3  # keys that a hint spells out

Hook = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Hooks:
    """By "domain:Op", or by "Op" for that operator of any domain."""

    def __init__(self, hooks: Mapping[str, Hook]):
        self._spellings: dict[tuple[str | None, str], Spelling] = {}
        self._unused: dict[tuple[str | None, str], str] = {}
        for key, hook in hooks.items():
            domain, colon, op = key.rpartition(":")
            domain = "" if domain == "ai.onnx" else domain
            self._spellings[(domain if colon else None, op)] = _spelling(hook)
            self._unused[(domain if colon else None, op)] = key

    def lookup(self, domain: str, op: str) -> Spelling | None:
        key = (domain, op) if (domain, op) in self._spellings else (None, op)
        self._unused.pop(key, None)
        return self._spellings.get(key)

    def refuse_unused(self, ops: Iterable[str]) -> None:
        """After every node was looked up. `ops`: the model's operators, to guess what was meant."""
        if not self._unused:
            return
        names = ", ".join(map(repr, self._unused.values()))
        near = difflib.get_close_matches(next(iter(self._unused))[1], sorted(set(ops)), n=1)
        hint = f"did you mean {near[0]!r}?" if near else 'the keys are "Op" or "domain:Op"'
        what = f"kernels= names {names}, and the model has no such node"
        raise IngotError("bad-option", what, hint=hint)


def _spelling(hook: Hook) -> Spelling:
    def spell(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        operands = [ctx.optional(node, index) for index in range(len(node.inputs))]
        while operands and operands[-1] is None:
            operands.pop()
        results = ctx.g.add_all("kernel", operands, **hook(node.attrs))
        if len(node.outputs) > len(results):
            what = f"the node has {len(node.outputs)} outputs, its kernel makes {len(results)}"
            raise IngotError("bad-option", what, where=node.where)
        return results

    return spell


def how_to_hook(missing: Iterable[tuple[str, str]]) -> str:
    """What to try for operators that are missing, by domain and name."""
    keys = sorted({f"{domain}:{op}" if domain else op for domain, op in missing})
    given = ", ".join([f'"{key}": kernel' for key in keys[:SHOWN]] + ["…"] * (len(keys) > SHOWN))
    words = "one" if len(keys) == 1 else "those"
    return f"ingot.compile(model, kernels={{{given}}}) takes {words} written with @ingot.kernel"
