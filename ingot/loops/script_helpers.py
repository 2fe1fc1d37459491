"""The scope of a script, and helper functions, which are inlined at their calls.

In: calls as Python `ast` nodes. Out: the helper's expression, in a scope that binds its parameters
to the arguments. An argument is evaluated in the caller's scope and the helper's body in its own,
each with its file for errors. The base class of script_values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NoReturn

from ingot.loops.script_scope import (
    MISSING,
    Alias,
    Binding,
    Env,
    Helper,
    Source,
    is_helper,
    look_up,
    read_function,
    scope_of,
)
from ingot.loops.script_words import plain_words


class Scoped:
    """The current source text, the names in scope, and the enclosing Python names."""

    def __init__(self, source: Source, outside: Mapping[str, Any], folds: bool = False):
        self.source = source
        self.outside = outside
        self.folds = folds
        self.names: dict[str, Binding] = {}
        self.helpers: dict[FunctionType, Helper] = {}  # of the user's functions
        self.calls: list[ast.FunctionDef] = []  # the helpers being inlined

    def fail(self, node: ast.AST, what: str, hint: str = "") -> NoReturn:
        raise self.source.error(node, what, hint)

    # --- the current scope ---

    @property
    def env(self) -> Env:
        return Env(self.source, self.names, self.outside)

    @contextmanager
    def within(self, env: Env) -> Iterator[None]:
        before = self.source, self.names, self.outside
        self.source, self.names, self.outside = env.source, dict(env.names), env.outside
        yield
        self.source, self.names, self.outside = before

    def alias(self, node: ast.expr) -> Alias | None:
        """The argument that a helper's parameter is bound to."""
        found = self.names.get(node.id) if isinstance(node, ast.Name) else None
        return found if isinstance(found, Alias) else None

    def python(self, node: ast.expr) -> Any:
        """The Python object of a name that the script does not bind, or MISSING."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        is_bound = isinstance(root, ast.Name) and root.id in self.names
        return MISSING if is_bound else look_up(node, self.outside)

    # --- helpers ---

    def helper(self, node: ast.Call) -> Helper | None:
        """The function to inline, if the call is to one of the user's functions."""
        if isinstance(node.func, ast.Name) and node.func.id in self.names:
            found = self.names[node.func.id]
            return found if isinstance(found, Helper) else None
        function = self.python(node.func)
        if not is_helper(function):
            return None
        if function not in self.helpers:  # one tree for each: `calls` compares them
            (tree, source), outside = read_function(function), scope_of(function)
            env = Env(source, {}, outside)
            self.helpers[function] = Helper(plain_words(tree, outside), env)
        return self.helpers[function]

    @contextmanager
    def inlined(self, node: ast.Call, helper: Helper) -> Iterator[ast.expr]:
        """The helper's result as syntax, in a scope that binds its parameters to the arguments."""
        f, a = helper.function, helper.function.args
        names = [arg.arg for arg in a.args]
        if f in self.calls:
            self.fail(node, f"{f.name} calls itself: helpers are inlined and cannot be recursive")
        if node.keywords or len(node.args) != len(names):
            wanted = ", ".join(names)
            self.fail(node, f"{f.name} takes {len(names)} positional arguments: {wanted}")
        aliases = {name: Alias(arg, self.env) for name, arg in zip(names, node.args)}
        inner = Env(helper.env.source, {**helper.env.names, **aliases}, helper.env.outside)
        with self.within(inner):
            self.calls.append(f)
            yield self.result(f)
            self.calls.pop()

    def result(self, f: ast.FunctionDef) -> ast.expr:
        """The expression that a helper returns; it may have no other statement."""
        a = f.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            self.fail(f, "a helper has plain parameters only: no defaults, *args or keyword-only")
        match f.body:
            case [ast.Return(value=ast.expr() as value)]:
                return value
            case [ast.Expr(value=ast.Constant()), ast.Return(value=ast.expr() as value)]:
                return value
        self.fail(f, f"the helper {f.name} must be one return of an expression")
