"""One scheduled kernel → one kernel for each top-level loop nest. Called right after scheduling.

    kernel f(A, C): alloc Y: (nest writing Y; nest reading Y, writing C)
    →  f_0(A, Y), f_1(Y, C), with Y a temporary that the program plans

An allocation that only one nest uses stays inside its kernel, unless its threads must share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith.interval import Interval
from ingot.legalize import terms
from ingot.legalize.context import FreshNames
from ingot.legalize.expand_calls import expand_body
from ingot.legalize.lower_blocks import lower_body
from ingot.legalize.place_allocs import is_private
from ingot.loops import ir, visit
from ingot.loops.dependences import accesses_are_disjoint
from ingot.loops.ir import Alloc, Buffer, For, Kernel, LoopKind, Stmt
from ingot.support.stack import segmented


@dataclass(frozen=True)
class SplitKernel:
    """Kernels in execution order, and the buffers that pass values between them."""

    kernels: tuple[Kernel, ...]
    temporaries: tuple[Buffer, ...]


def split_kernel(kernel: Kernel) -> SplitKernel:
    allocs: list[Buffer] = []
    nests: list[Stmt] = []
    _collect_nests(kernel.body, allocs, nests)
    uses = [terms.accessed(nest) for nest in nests]
    local: dict[int, list[Buffer]] = {}
    temporaries: list[Buffer] = []
    for buffer in allocs:
        users = [n for n, names in enumerate(uses) if buffer.name in names]
        if len(users) > 1 or (users and not _is_private(buffer, nests[users[0]], kernel)):
            temporaries.append(ir.replace(buffer, scope=ir.GLOBAL))
        elif users:
            local.setdefault(users[0], []).append(buffer)
    names = [kernel.name] if len(nests) == 1 else [f"{kernel.name}_{n}" for n in range(len(nests))]
    kernels = tuple(
        _kernel(kernel, names[n], nest, temporaries, local.get(n, []))
        for n, nest in enumerate(nests)
    )
    return SplitKernel(kernels, tuple(temporaries))


@segmented
def _collect_nests(s: Stmt, allocs: list[Buffer], nests: list[Stmt]) -> None:
    match s:
        case Alloc(buffer=buffer, body=body):
            allocs.append(buffer)
            _collect_nests(body, allocs, nests)
        case ir.Seq(stmts=stmts):
            for each in stmts:
                _collect_nests(each, allocs, nests)
        case _:
            nests.append(s)


def _is_private(buffer: Buffer, nest: Stmt, kernel: Kernel) -> bool:
    """May every iteration of the nest's parallel loop have its own copy of this buffer?"""
    if not isinstance(nest, For) or nest.kind is not LoopKind.PARALLEL:
        return True
    if buffer.scope != ir.GLOBAL:
        return True  # the schedule chose a private scope
    names = FreshNames.of(kernel)
    plain = ir.replace(kernel, body=lower_body(expand_body(nest, names), names))
    # iterations of a parallel loop are independent: where they access the same elements, each
    # writes its own values
    return is_private(buffer, plain) or not accesses_are_disjoint(
        nest, buffer.name, _ranges(kernel)
    )


def _ranges(kernel: Kernel) -> dict[str, Interval]:
    return {size.name: Interval(size.low, size.high) for size in kernel.sizes}


def _kernel(
    whole: Kernel, name: str, nest: Stmt, temporaries: list[Buffer], local: list[Buffer]
) -> Kernel:
    outer = (*whole.params, *temporaries)
    written, used = visit.written(nest), terms.accessed(nest)
    read_only = [b for b in outer if b.name in used and b.name not in written]
    changed = [b for b in outer if b.name in written]
    body = visit.replace_buffers(nest, {b.name: b for b in temporaries if b.name in used})
    for buffer in reversed(local):
        body = Alloc(buffer, body)
    params = (*read_only, *changed)
    mentioned = terms.stmt_vars(nest)
    for buffer in (*params, *local):
        mentioned.update(v for d in buffer.shape for v in terms.index_vars(d))
    sizes = tuple(s for s in whole.sizes if s.name in mentioned)
    blocks = {s.name for s in visit.walk_stmts(nest) if isinstance(s, ir.Block)}
    plans = tuple((block, plan) for block, plan in whole.plans if block in blocks)
    remarks = tuple(r for r in whole.remarks if not r.block or r.block in blocks)
    return Kernel(name, params, sizes, body, whole.origin, whole.family, plans, remarks)
