"""Emit templates: how a printer emits an instruction. In: the `emit` text of an `ir.Instruction`.
Out: the parsed template.

    llvm[avx2]: C += llvm.x86.avx2.pmadd.wd(A*8, B)

means: on targets with the feature avx2 the LLVM printer calls this intrinsic on two vectors, the
elements of A repeated 8 times and the elements of B, and adds the result to C (`=` stores it).
Operands are the meaning's parameters; a parameter of one element is a scalar. Legalize uses it to
decide whether a call stays, and the printer to emit it; `schedule.instruction` checks the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.loops import ir, visit

_FORM = re.compile(
    r"\s*(?P<printer>\w+)(\[(?P<features>[\w.,\s-]*)\])?\s*:"
    r"\s*(?P<result>\w+)\s*(?P<sign>\+?=)\s*(?P<name>[\w.]+)\((?P<operands>[^()]*)\)\s*"
)
_OPERAND = re.compile(r"\s*(\w+)\s*(?:\*\s*(\d+))?\s*")


@dataclass(frozen=True)
class Emit:
    """result = name(operands), or result += …; an operand is a parameter and a repeat count."""

    printer: str
    features: tuple[str, ...]
    result: str
    adds: bool
    name: str
    operands: tuple[tuple[str, int], ...]


@lru_cache(maxsize=256)
def parse(text: str) -> Emit | None:
    """The parsed template, or None if the text has the form of another printer."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    operands = [_OPERAND.fullmatch(operand) for operand in found["operands"].split(",")]
    if not all(operands):
        return None
    return Emit(
        printer=found["printer"],
        features=tuple(f.strip() for f in (found["features"] or "").split(",") if f.strip()),
        result=found["result"],
        adds=found["sign"] == "+=",
        name=found["name"],
        operands=tuple((m[1], int(m[2] or 1)) for m in operands if m),
    )


def fault(text: str, meaning: ir.Kernel) -> str:
    """The error in the text for an instruction of that meaning; empty if there is none."""
    emit = parse(text)
    if emit is None:
        return 'it is not of the form "llvm[feature]: C += intrinsic(A, B*4)"'
    params = {p.name: p for p in meaning.params}
    unknown = [name for name, _ in (*emit.operands, (emit.result, 1)) if name not in params]
    if unknown:
        return f"the meaning has no parameter {unknown[0]}"
    if visit.written(meaning.body) != {emit.result}:
        return f"the meaning does not write {emit.result} alone"
    unsized = [p.name for p in params.values() if count_of(p) is None]
    return f"the size of {unsized[0]} is not a number" if unsized else ""


def count_of(buffer: ir.Buffer) -> int | None:
    """The number of elements of the buffer; None for a dynamic shape."""
    return arith.as_int(arith.product(list(buffer.shape)))
