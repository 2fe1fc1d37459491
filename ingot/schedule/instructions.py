"""Tensor intrinsics for `tensorize`. In: a kernel that gives the semantics, as text or built. Out:
an `ir.Instruction`.

    dot4 = instruction("dot4", '''
    @ingot.kernel
    def dot4(A: f32[4], B: f32[4], C: f32[1]):
        for k in serial(4):
            C[0] += A[k] * B[k]
    ''')

The interpreter runs the meaning; a back end prints `emit` (see loops/emit.py) on targets that have
the instruction, and the meaning on others. A trace contains the whole definition.
"""

from __future__ import annotations

import textwrap
from typing import Any

from ingot.loops import emit as emits
from ingot.loops import ir, script_parse
from ingot.loops.script_print import show
from ingot.loops.verify import verify
from ingot.schedule.matching import nest_of
from ingot.support.errors import IngotError


def instruction(name: str, meaning: ir.Kernel | str | Any, emit: str = "") -> ir.Instruction:
    """An instruction with the semantics of `meaning`: a kernel, its text, or an `@ingot.kernel`.

    A meaning is one nest of loops around one store, with an init if it does not accumulate.
    """
    kernel = _kernel(meaning)
    verify(kernel)
    nest = nest_of(kernel.body)
    if isinstance(nest, str):
        raise _bad(name, nest, "one nest of loops around one store")
    problem = emits.fault(emit, kernel) if emit else ""
    if problem:
        raise _bad(name, f"emit {emit!r}: {problem}", "see ingot/loops/emit.py")
    return ir.Instruction(name, kernel, emit)


def _kernel(meaning: ir.Kernel | str | Any) -> ir.Kernel:
    if isinstance(meaning, str):
        return script_parse.parse(textwrap.dedent(meaning).strip() + "\n")
    return meaning if isinstance(meaning, ir.Kernel) else meaning.ir


def _bad(name: str, why: str, hint: str) -> IngotError:
    return IngotError("bad-schedule", f"instruction({name!r})", why=why, hint=hint)


def to_data(made: ir.Instruction) -> dict[str, str]:
    """The instruction as strings; `from_data` makes an equal one in any process."""
    return {"name": made.name, "meaning": show(made.meaning), "emit": made.emit}


def from_data(data: dict[str, str]) -> ir.Instruction:
    return instruction(data["name"], data["meaning"], data["emit"])
