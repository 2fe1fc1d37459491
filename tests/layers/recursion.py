"""Finds recursive functions by their names: cycles of calls within a module.

In: the source of a module. Out: groups of functions that call each other, without those whose every
cycle passes through a function marked `@segmented` (support/stack.py). `f(x)`, `map(f, xs)` and
`self.f(x)` all count as calls; a local variable of the same name does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Calls = dict[str, set[str]]


def cycles(source: str) -> list[frozenset[str]]:
    """The groups of functions that are recursive and not segmented."""
    calls = _calls(ast.parse(source))
    found = []
    for name in calls:
        group = frozenset(n for n in _reached(calls, name) if name in _reached(calls, n))
        if name in group and group not in found:
            found.append(group)
    return found


def _reached(calls: Calls, name: str) -> set[str]:
    found: set[str] = set()
    todo = list(calls[name])
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += calls[one]
    return found


def _calls(tree: ast.Module) -> Calls:
    functions = dict(_functions(tree, ()))
    open_ = {path: f for path, f in functions.items() if not _is_segmented(f)}
    return {
        ".".join(path): {".".join(p) for p in _mentioned(path, f, functions) if p in open_}
        for path, f in open_.items()
    }


Path = tuple[str, ...]


def _functions(tree: ast.AST, path: Path) -> Iterator[tuple[Path, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        inner = (*path, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else path
        if isinstance(child, ast.FunctionDef):
            yield inner, child
        yield from _functions(child, inner)


def _is_segmented(f: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "segmented" for d in f.decorator_list)


def _mentioned(
    path: Path, f: ast.FunctionDef, functions: dict[Path, ast.FunctionDef]
) -> Iterator[Path]:
    own = list(_own_nodes(f))
    local = {a.arg for a in ast.walk(f.args) if isinstance(a, ast.arg)}
    local |= {n.id for n in own if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for node in own:
        if isinstance(node, ast.Name) and node.id not in local:
            scopes = (path[:n] for n in range(len(path), -1, -1))
            visible = ((*scope, node.id) for scope in scopes if not scope or scope in functions)
            yield from (p for p in visible if p in functions)
        elif isinstance(node, ast.Attribute) and _is_self(node.value):
            holders = (path[:n] for n in range(len(path)))
            yield from (p for holder in holders if (p := (*holder, node.attr)) in functions)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _own_nodes(f: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions inside it."""
    todo: list[ast.AST] = list(f.body)
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef):
            yield node
            todo += ast.iter_child_nodes(node)
