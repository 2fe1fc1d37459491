"""A kernel for one value of a symbolic size. In: a Kernel, a size, a number. Out: the Kernel
without that size. Used where a kernel has variants (lower/variants.py) and where these are planned.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit


def with_size(kernel: ir.Kernel, name: str, value: int) -> ir.Kernel:
    """The kernel with the size `name` replaced by `value`; axes of one iteration stay."""
    env = {name: arith.Const(value)}
    allocated = (s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc))
    buffers = {
        b.name: ir.replace(b, shape=tuple(arith.substitute(d, env) for d in b.shape))
        for b in (*kernel.params, *allocated)
    }
    return ir.replace(
        kernel,
        params=tuple(buffers[p.name] for p in kernel.params),
        sizes=tuple(size for size in kernel.sizes if size.name != name),
        body=visit.replace_buffers(visit.substitute(kernel.body, env), buffers),
    )


def without_likely(kernel: ir.Kernel, name: str) -> ir.Kernel:
    """The kernel with no assumption about the size `name`."""
    sizes = (ir.replace(s, likely=None) if s.name == name else s for s in kernel.sizes)
    return ir.replace(kernel, sizes=tuple(sizes))
