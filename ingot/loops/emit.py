"""How a printer spells an instruction. In: the `emit` text of an `ir.Instruction`. Out: its parts.

    llvm[avx2]: C += llvm.x86.avx2.pmadd.wd(A*8, B)

reads: the LLVM printer, on targets with the feature avx2, calls that intrinsic on the elements of A
eight times over and on those of B, each as one vector, and adds the result to C (`=` stores it).
Operands are the meaning's parameters; a parameter of one element is a scalar. Asked by legalize
(may the call stay?) and by the printer; `schedule.instruction` checks the text when it is written.
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
    """result = name(operands), or result += …; an operand is a parameter, and how often."""

    printer: str
    features: tuple[str, ...]
    result: str
    adds: bool
    name: str
    operands: tuple[tuple[str, int], ...]


@lru_cache(maxsize=256)
def parse(text: str) -> Emit | None:
    """The parts of the text, or None if it has another form: some other printer's affair."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    operands = [_OPERAND.fullmatch(part) for part in found["operands"].split(",")]
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
    """What is wrong with the text for an instruction of that meaning; empty if nothing is."""
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
    """How many elements the buffer has, where that is known."""
    return arith.as_int(arith.product(list(buffer.shape)))
