"""Structural identity of kernels. In: a kernel. Out: the same with canonical names, or a digest.

Two kernels that differ only in names (of the kernel, params, sizes, buffers, variables, lets,
blocks, tokens) and origins have one canonical form. `digest` is the key of the kernel cache: equal
in every process, whatever PYTHONHASHSEED is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ingot.loops import ir, visit
from ingot.loops.ir import Stmt
from ingot.loops.rename import Renamer
from ingot.loops.script_print import show


def canonical(kernel: ir.Kernel) -> ir.Kernel:
    """Names in order of appearance: sizes n0 …, params p0 …, buffers b0 …, loops i0 …, axes v0 …,
    lets t0 …; instructions keep their names, and their meanings become canonical too."""
    stmts = list(visit.walk_stmts(kernel.body))
    axes = (axis.var for s in stmts if isinstance(s, ir.Block) for axis in s.axes)
    allocs = (s.buffer.name for s in stmts if isinstance(s, ir.Alloc))
    tokens = (s.token for s in stmts if isinstance(s, ir.CopyAsync | ir.Wait))
    renamer = Renamer(
        variables=_numbered("n", (size.name for size in kernel.sizes))
        | _numbered("i", (s.var for s in stmts if isinstance(s, ir.For)))
        | _numbered("v", axes),
        lets=_numbered("t", (s.name for s in stmts if isinstance(s, ir.Let))),
        buffers=_numbered("p", (p.name for p in kernel.params)) | _numbered("b", allocs),
        blocks=_numbered("block", (s.name for s in stmts if isinstance(s, ir.Block))),
        tokens=_numbered("token", tokens),
    )
    renamed = renamer.kernel(kernel)
    body = visit.map_stmt(renamed.body, _canonical_call) if _has_calls(stmts) else renamed.body
    return ir.Kernel("kernel", renamed.params, renamed.sizes, body)


def digest(kernel: ir.Kernel) -> str:
    """A hash of the canonical text, in hexadecimal."""
    return hashlib.sha256(show(canonical(kernel)).encode()).hexdigest()


def _numbered(prefix: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{prefix}{number}" for number, name in enumerate(dict.fromkeys(names))}


def _has_calls(stmts: Iterable[Stmt]) -> bool:
    return any(isinstance(s, ir.Call) for s in stmts)


def _canonical_call(s: Stmt) -> Stmt:
    if not isinstance(s, ir.Call):
        return s
    meaning = canonical(s.instruction.meaning)
    return ir.replace(s, instruction=ir.replace(s.instruction, meaning=meaning))
