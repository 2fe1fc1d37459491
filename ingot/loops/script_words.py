"""Words of the kernel language under other names. In: a function's syntax, the Python names around
it. Out: the same syntax with the plain words, which is all that the parser knows.

    import ingot.script as T                  T.grid(n, m) → grid(n, m)
    from ingot.script import grid as loops    loops(n, m) → grid(n, m)
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from ingot.loops.script_scope import MISSING, SCRIPT_MODULE, look_up

Syntax = TypeVar("Syntax", bound=ast.AST)


def plain_words(node: Syntax, outside: Mapping[str, Any]) -> Syntax:
    script = sys.modules.get(SCRIPT_MODULE)
    if script is None:  # nobody has imported it
        return node
    bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_bound(n)}
    bound |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return _PlainWords(script, outside, bound).visit(copy.deepcopy(node))


def _is_bound(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


class _PlainWords(ast.NodeTransformer):
    def __init__(self, script: Any, outside: Mapping[str, Any], bound: set[str]):
        self.script, self.outside, self.bound = script, outside, bound
        values = {name: getattr(script, name) for name in script.__all__}
        self.words = {id(v): n for n, v in values.items() if not isinstance(v, float)}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = MISSING if self._root(node) in self.bound else look_up(node.value, self.outside)
        if owner is self.script and node.attr in self.script.__all__:
            return self._word(node, node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.bound:
            return node
        word = self.words.get(id(self.outside.get(node.id)), node.id)
        return node if word == node.id else self._word(node, word)

    def _root(self, node: ast.expr) -> str:
        while isinstance(node, ast.Attribute):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ""

    def _word(self, node: ast.expr, word: str) -> ast.AST:
        return ast.copy_location(ast.Name(word, ast.Load()), node)
