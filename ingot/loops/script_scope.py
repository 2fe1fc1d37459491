"""Name resolution of scripts: source positions, and the Python names around a script.

In: Python `ast` nodes and functions. Out: positions for errors, numbers, element types and the
syntax trees of helper functions. User code is never executed: attributes are looked up statically
and functions are only parsed. Used by script_values and script_parse.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.support.errors import IngotError

MISSING: Any = object()
SCRIPT_MODULE = "ingot.script"  # its functions are the language's keywords, never helpers


@dataclass(frozen=True)
class Source:
    """The source text of syntax trees; `file` is "" for a string."""

    lines: tuple[str, ...]
    file: str = ""

    def error(self, node: ast.AST, what: str, hint: str = "") -> IngotError:
        """An error with its position; for a file also the line with a caret below it."""
        row, byte = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        line = self.lines[row - 1] if row <= len(self.lines) else ""
        column = len(line.encode()[:byte].decode(errors="ignore"))
        if not self.file:
            where = f"line {row}, column {column + 1}: {line.strip()}"
            return IngotError("bad-text", what, where=where, hint=hint)
        where = f"{shown_path(self.file)}:{row}:{column + 1}"
        marked = _marked(line, column, _width(node, line, byte))
        return IngotError("bad-text", what, where=where, why=marked, hint=hint)

    def location(self, node: ast.AST) -> str:
        return self.error(node, "").where


def shown_path(file: str) -> str:
    """The path relative to the working directory, if it is below it."""
    try:
        short = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if short.startswith("..") or not os.path.exists(file) else short


def _width(node: ast.AST, line: str, byte: int) -> int:
    """The length of the node's text on its first line, in characters."""
    last = getattr(node, "end_lineno", None)
    end = getattr(node, "end_col_offset", None) if last == getattr(node, "lineno", 1) else None
    text = line.encode()[byte:end].decode(errors="ignore")
    return max(1, len(text.rstrip()))


def _marked(line: str, column: int, width: int) -> str:
    """The line, and carets below it, indented as IngotError indents the `why`."""
    text = line.expandtabs(1).rstrip()
    indent = len(text) - len(text.lstrip())
    mark = " " * (column - min(indent, column)) + "^" * width
    return f"{text.strip()}\n         {mark}"


# --- names --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """A loop variable, axis or size: its name in the kernel; `stop` for a loop from 0."""

    name: str
    stop: arith.Expr | None = None


@dataclass(frozen=True)
class Env:
    """A scope: the source text, the names in scope, and the enclosing Python names."""

    source: Source
    names: Mapping[str, Binding]
    outside: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Alias:
    """A helper's parameter: the argument's syntax and the caller's scope."""

    node: ast.expr
    env: Env


@dataclass(frozen=True, eq=False)
class Helper:
    """A function with a single return statement, inlined at its calls."""

    function: ast.FunctionDef
    env: Env


Binding = Variable | ir.Buffer | ir.Ref | Alias | Helper


# --- Python objects -----------------------------------------------------------------------------


def look_up(node: ast.expr, outside: Mapping[str, Any]) -> Any:
    """The Python object of a dotted name outside the script, or MISSING."""
    match node:
        case ast.Name(id=name):
            return outside.get(name, MISSING)
        case ast.Attribute(value=base, attr=name):
            owner = look_up(base, outside)
            return MISSING if owner is MISSING else inspect.getattr_static(owner, name, MISSING)
    return MISSING


def number_of(found: Any) -> int | float | None:
    """A Python or numpy number as a Python number; None for other objects and for bool."""
    if isinstance(found, np.integer | np.floating):
        return found.item()
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    return None


def dtype_of(found: Any) -> DType | None:
    """An element type given as a DType, as a name of ingot.script, or as a numpy dtype."""
    if isinstance(found, DType):
        return found
    inner = getattr(found, "dtype", None) if type(found).__module__ == SCRIPT_MODULE else None
    if isinstance(inner, DType):
        return inner
    if isinstance(found, np.dtype) or (isinstance(found, type) and issubclass(found, np.generic)):
        try:
            return dtypes.from_numpy(found)
        except (KeyError, TypeError):
            return None
    return None


def is_helper(found: Any) -> bool:
    return isinstance(found, FunctionType) and found.__module__ != SCRIPT_MODULE


def scope_of(function: FunctionType) -> dict[str, Any]:
    """The names visible in a function: its module's globals and its closure."""
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not bound yet
            names.pop(name, None)
    return names


def read_function(function: FunctionType) -> tuple[ast.FunctionDef, Source]:
    """The syntax tree of a function, with positions in its file."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(function)
    except OSError:
        raise _unreadable(function, "Python cannot find its source") from None
    source = Source(tuple(line.rstrip("\r\n") for line in lines), code.co_filename)
    for node in ast.walk(_tree("".join(lines))):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node, source
    why = (
        "it is a lambda" if code.co_name == "<lambda>" else "the file has changed since it was run"
    )
    raise _unreadable(function, why)


def _unreadable(function: FunctionType, why: str) -> IngotError:
    return IngotError(
        "bad-text",
        f"the source of {function.__name__} cannot be read",
        where=f"{shown_path(function.__code__.co_filename)}:{function.__code__.co_firstlineno}:1",
        why=why,
        hint="write it as a def in a file, or give its text to ingot.kernels.parse",
    )


@lru_cache(maxsize=8)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)
