"""`@ingot.kernel`: a Python function, parsed and not executed → a KernelFunction.

The source file is parsed, so that errors point into it. Free names have their Python values of the
time when the decorator runs: numbers, element types, and functions of one return statement, which
are inlined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, overload

from ingot.kernels.function import KernelFunction
from ingot.loops import script_parse
from ingot.loops.bounds_check import check_bounds
from ingot.loops.script_parse import Script
from ingot.loops.script_scope import read_function, scope_of
from ingot.loops.script_words import plain_words
from ingot.loops.signature import Reference
from ingot.loops.verify_values import InvariantError
from ingot.support.errors import IngotError

Decorator = Callable[[Callable[..., Any]], KernelFunction]


@overload
def kernel(function: Callable[..., Any]) -> KernelFunction: ...


@overload
def kernel(
    function: None = None,
    *,
    name: str = "",
    origin: str = "",
    family: str = "",
    plans: Mapping[str, str] | None = None,
    remarks: Sequence[tuple[str, str, str]] = (),
    reference: Reference | None = None,
) -> Decorator: ...


def kernel(
    function: Any = None,
    *,
    name: str = "",
    origin: str = "",
    family: str = "",
    plans: Mapping[str, str] | None = None,
    remarks: Sequence[tuple[str, str, str]] = (),
    reference: Reference | None = None,
) -> KernelFunction | Decorator:
    """A kernel from a function written in the kernel language (docs/kernels.md).

    name       the kernel's name; empty: the function's
    reference  a numpy function from inputs to outputs
    origin, family  the model's node, and the family that selects the default schedule
    plans      contraction block → its plan (docs/schedule.md), for the default schedule
    remarks    what the compiler has to say about blocks: (block, about, why)
    """

    def define(f: Any) -> KernelFunction:
        if not isinstance(f, FunctionType):
            what = f"@ingot.kernel decorates a function, not a {type(f).__name__}"
            raise IngotError("bad-text", what)
        around = sys._getframe(2 if function is not None else 1).f_locals
        options = {"name": name, "origin": origin, "family": family}
        return _defined(f, around, options | {"plans": plans, "remarks": remarks}, reference)

    return define if function is None else define(function)


def _defined(
    f: FunctionType, around: Mapping[str, Any], options: dict[str, Any], reference: Reference | None
) -> KernelFunction:
    tree, source = read_function(f)
    # names used only in annotations are in no closure: look them up in the enclosing frame
    outside = {**around, **scope_of(f)}
    script = script_parse.parse_script(plain_words(tree, outside), source, outside, options)
    try:
        made = KernelFunction(script.kernel, reference)
        check_bounds(made.ir)
        return made
    except InvariantError as error:
        raise _located(error, script) from None


def _located(error: InvariantError, script: Script) -> IngotError:
    """The violated invariant, reported at the user's line."""
    node = script.node_of(error.stmt)
    if node is None:
        return error
    at = script.source.error(node, error.what)
    why = f"{at.why}\n         {error.why}" if error.why else at.why
    return IngotError("bad-loops", error.what, where=at.where, why=why, hint=error.hint)


def parse(text: str, **constants: Any) -> KernelFunction:
    """Parse the text form that `print(kernel)` gives; `constants` are its free names."""
    return KernelFunction(script_parse.parse(text, constants))
