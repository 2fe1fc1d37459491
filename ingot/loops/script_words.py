"""Words of the kernel language under other names. In: a function's syntax, the Python names around
it. Out: the syntax, changed in place, with the plain words, which is all that the parser knows.

    import ingot.script as T                  T.grid(n, m) → grid(n, m)
    from ingot.script import grid as loops    loops(n, m) → grid(n, m)
"""

from __future__ import annotations

import ast
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
    words = _PlainWords(script, outside, bound)
    for parent in list(ast.walk(node)):  # no recursion: expressions are as deep as users write them
        words.replace_children(parent)
    return words.plain(node)


def _is_bound(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


class _PlainWords:
    def __init__(self, script: Any, outside: Mapping[str, Any], bound: set[str]):
        self.script, self.outside, self.bound = script, outside, bound
        values = {name: getattr(script, name) for name in script.__all__}
        self.words = {id(v): n for n, v in values.items() if not isinstance(v, float)}

    def replace_children(self, parent: ast.AST) -> None:
        """Write the plain words in place of the nodes that mean them."""
        for name, value in ast.iter_fields(parent):
            if isinstance(value, list):
                value[:] = [self.plain(item) for item in value]
            else:
                setattr(parent, name, self.plain(value))

    def plain(self, node: Any) -> Any:
        word = None
        if isinstance(node, ast.Attribute):
            word = self._of_attribute(node)
        elif isinstance(node, ast.Name) and node.id not in self.bound:
            word = self.words.get(id(self.outside.get(node.id)))
        return node if word is None else ast.copy_location(ast.Name(word, ast.Load()), node)

    def _of_attribute(self, node: ast.Attribute) -> str | None:
        owner = MISSING if self._root(node) in self.bound else look_up(node.value, self.outside)
        return node.attr if owner is self.script and node.attr in self.script.__all__ else None

    def _root(self, node: ast.expr) -> str:
        while isinstance(node, ast.Attribute):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ""
