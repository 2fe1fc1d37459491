"""cache_read: a block reads a buffer through a copy in another memory scope.

    for i: Z[i] = f(X[i])   →   for i: X_thread[i] = X[i]
                                for i: Z[i] = f(X_thread[i])

The copy is a stage of its own: compute_at moves it to where a tile of it is needed, and
transform_layout (or `layout=`) packs it. It is inserted as early as is legal; inside a loop that
also writes the buffer, it covers what one iteration reads. Legal for any buffer that the block
reads and does not write.
"""

from __future__ import annotations

from ingot.loops import ir, visit
from ingot.loops.ir import Block, Buffer, Kernel
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, raise_if
from ingot.schedule.primitives.cache_stage import (
    FreshBlockNames,
    copy_block,
    find_block,
    insert_stage_before,
)
from ingot.schedule.primitives.set_scope import check_scopes
from ingot.schedule.primitives.transform_layout import transform_layout


def cache_read(
    kernel: Kernel, block: Block, buffer: str, scope: str = ir.GLOBAL, layout: str = ""
) -> Result:
    what = f"cache_read({block.name}, {buffer!r}, {scope!r})"
    source = read_buffer(kernel, block, buffer, what)
    names = FreshBlockNames(kernel)
    cache = ir.replace(source, name=names.fresh(f"{buffer}_{scope}"), scope=scope)
    stage = copy_block(names, cache, source, cache.name)
    new = insert_stage_before(kernel, block, redirected(block, source, cache), stage, cache, what)
    if layout:
        new, _ = transform_layout(new, cache.name, layout)
    check_scopes(new, what)
    return new, [find_block(new, stage.uid)]


def read_buffer(kernel: Kernel, block: Block, name: str, what: str) -> Buffer:
    """The buffer of that name, which the block reads and does not write."""
    read = {x.buffer.name: x.buffer for x in visit.loads(_init_and_body(block))}
    if name not in read:
        have = ", ".join(sorted(read)) or "nothing"
        problem = Problem(f"block {block.name} does not read {name}", f"it reads {have}")
        raise_if(kernel, block, what, problem)
    if name in visit.written(block):
        problem = Problem(f"block {block.name} writes {name} too", "cache_write caches an output")
        raise_if(kernel, block, what, problem)
    return read[name]


def redirected(block: Block, old: Buffer, new: Buffer) -> Block:
    """The block with its body on another buffer; bindings and guards are unchanged."""
    env = {old.name: new}
    init = None if block.init is None else visit.replace_buffers(block.init, env)
    return ir.replace(block, body=visit.replace_buffers(block.body, env), init=init)


def _init_and_body(block: Block) -> ir.Stmt:
    return ir.seq(block.init, block.body)
