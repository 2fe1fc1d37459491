"""`@ingot.kernel`: a Python function, read and never run → a KernelFunction.

The function's own file is parsed, so errors point into it. Names it does not bind are Python's, as
they are when the decorator runs: numbers, element types, and functions of one return, which are
written out where they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, overload

from ingot.kernels.function import KernelFunction
from ingot.loops import script_parse
from ingot.loops.reach import check_reach
from ingot.loops.script_parse import Script
from ingot.loops.script_scope import read_function, scope_of
from ingot.loops.signature import Reference
from ingot.loops.verify_values import LawBroken
from ingot.support.errors import IngotError

Decorator = Callable[[FunctionType], KernelFunction]


@overload
def kernel(function: Callable[..., Any]) -> KernelFunction: ...


@overload
def kernel(
    function: None = None,
    *,
    name: str = "",
    origin: str = "",
    family: str = "",
    reference: Reference | None = None,
) -> Decorator: ...


def kernel(
    function: Any = None,
    *,
    name: str = "",
    origin: str = "",
    family: str = "",
    reference: Reference | None = None,
) -> KernelFunction | Decorator:
    """A kernel from a function written in the kernel language (docs/kernels.md).

    name       what it is called; None: as the function
    reference  a function of the inputs that gives the outputs, by numpy
    origin, family  for later stages: which node of a model, which default schedule
    """

    def define(f: Any) -> KernelFunction:
        if not isinstance(f, FunctionType):
            what = f"@ingot.kernel stands above a def, not a {type(f).__name__}"
            raise IngotError("bad-text", what)
        around = sys._getframe(2 if function is not None else 1).f_locals
        return _defined(f, around, {"name": name, "origin": origin, "family": family}, reference)

    return define if function is None else define(function)


def _defined(
    f: FunctionType, around: Mapping[str, Any], options: dict[str, str], reference: Reference | None
) -> KernelFunction:
    tree, source = read_function(f)
    # names that stand in annotations alone are in no closure: the frame around has them
    script = script_parse.parse_script(tree, source, {**around, **scope_of(f)}, options)
    try:
        made = KernelFunction(script.kernel, reference)
        check_reach(made.ir)
        return made
    except LawBroken as error:
        raise _placed(error, script) from None


def _placed(error: LawBroken, script: Script) -> IngotError:
    """A broken law, said of the user's line."""
    node = script.place(error.stmt)
    if node is None:
        return error
    at = script.source.error(node, error.what)
    why = f"{at.why}\n         {error.why}" if error.why else at.why
    return IngotError("bad-loops", error.what, where=at.where, why=why, hint=error.hint)


def parse(text: str, **constants: Any) -> KernelFunction:
    """A kernel from text, such as `print(kernel)` gives; `constants` are names it may mention."""
    return KernelFunction(script_parse.parse(text, constants))
