"""`Schedule`: a kernel and the transformations applied to it, which preserve its semantics.

In: a kernel. Out: `sch.kernel`, `sch.trace`. Every primitive is check → rewrite → record, in its
own file under `primitives/`; a failed check raises `bad-schedule` and changes nothing. Rules, users
and tuners all work through these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ingot.cost.plan import ContractionPlan
from ingot.loops import dependences
from ingot.loops.ir import GLOBAL, STEP, Block, For, Instruction, Kernel, Remark, replace
from ingot.schedule import primitives, tree
from ingot.schedule.handles import BlockRef, LoopRef, Ref
from ingot.schedule.index_map import IndexMap, MapLike
from ingot.schedule.primitives import base
from ingot.schedule.trace import HandleVar, Trace
from ingot.support.errors import IngotError

UNSAFE = "unsafe_."  # prefix of a step whose checks were skipped
Saved = tuple[Kernel, Trace, dict[int, str], dict[str, ContractionPlan]]


class Schedule:
    """A kernel under schedule. A handle stays valid until a step consumes its node."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.trace = Trace()
        self.plans = dict(kernel.plans)  # by block
        self.remarks = list(kernel.remarks)
        self._consumed: dict[int, str] = {}

    # Queries

    def block(self, name: str) -> BlockRef:
        """The block of that name."""
        found = [b for b in dependences.top_blocks(self.kernel.body) if b.name == name]
        if len(found) != 1:
            have = ", ".join(b.name for b in dependences.top_blocks(self.kernel.body))
            what = f"block({name!r}): {len(found)} blocks have that name"
            raise IngotError("bad-schedule", what, where=self.kernel.name, hint=f"one of: {have}")
        return self._record_query("block", (name,), BlockRef(found[0].uid, name))

    def blocks(self) -> list[BlockRef]:
        """Every block, in program order."""
        refs = [BlockRef(b.uid, b.name) for b in dependences.top_blocks(self.kernel.body)]
        return self._record_query("blocks", (), refs)

    def loops(self, block: BlockRef) -> list[LoopRef]:
        """The loops around a block, outermost first."""
        above = tree.loops_above(self.kernel.body, self.at_block(block))
        return self._record_query("loops", (block,), [LoopRef(x.uid, x.var) for x in above])

    def at_loop(self, ref: LoopRef) -> For:
        """The loop itself, as it is now."""
        node = self._resolve(ref)
        assert isinstance(node, For), f"{ref} is not a loop"
        return node

    def at_block(self, ref: BlockRef) -> Block:
        """The block itself, as it is now."""
        node = self._resolve(ref)
        assert isinstance(node, Block), f"{ref} is not a block"
        return node

    # Loops

    def split(self, loop: LoopRef, *factors: int | None, tail: str = "guard") -> list[LoopRef]:
        """One loop → nested loops, outermost first; one factor may be None and is computed."""
        options = {} if tail == "guard" else {"tail": tail}
        return self._loops(primitives.split, (loop, *factors), options)

    def reorder(self, *loops: LoopRef) -> None:
        """Perfectly nested loops in the given order; other loops keep their positions."""
        self._apply(primitives.reorder, loops)

    def fuse(self, *loops: LoopRef) -> LoopRef:
        """Perfectly nested loops, outermost first → one loop over all their points."""
        return self._loops(primitives.fuse, loops, single=True)[0]

    def parallel(self, loop: LoopRef) -> None:
        """Run the iterations in parallel on threads."""
        self._apply(primitives.parallel, (loop,))

    def vectorize(self, loop: LoopRef) -> None:
        """Iterations become vector lanes."""
        self._apply(primitives.vectorize, (loop,))

    def unroll(self, loop: LoopRef) -> None:
        """Unroll the loop completely."""
        self._apply(primitives.unroll, (loop,))

    def bind(self, loop: LoopRef, tag: str) -> None:
        """Bind the loop to a GPU index: "blockIdx.x" … "threadIdx.z"."""
        self._apply(primitives.bind, (loop, tag))

    def peel(self, loop: LoopRef, count: int, side: str = "end") -> list[LoopRef]:
        """Peel the last (or, at side "start", first) iterations: the main loop, the peeled loop."""
        return self._loops(primitives.peel, (loop, count), {} if side == "end" else {"side": side})

    def partition(self, loop: LoopRef, at: int) -> list[LoopRef]:
        """Two loops, up to `at` and from there on."""
        return self._loops(primitives.partition, (loop, at))

    def pipeline(self, loop: LoopRef, stages: int) -> None:
        """Software pipelining, on targets with asynchronous copies."""
        self._apply(primitives.pipeline, (loop, stages))

    def prefetch(self, loop: LoopRef, buffer: str, over: LoopRef, ahead: int = 1) -> None:
        """Iterations of `loop` prefetch what `over` accesses of a parameter, `ahead` later."""
        self._apply(primitives.prefetch, (loop, buffer, over, ahead))

    # Blocks

    def blockize(self, loop: LoopRef) -> BlockRef:
        """The nest at the loop, around one block, becomes a block."""
        return self._block(primitives.blockize, (loop,))

    def tensorize(self, what: Ref, instruction: Instruction) -> BlockRef:
        """The nest at a loop, or in a block, becomes a call of an equivalent instruction."""
        return self._block(primitives.tensorize, (what, instruction))

    def compute_inline(self, block: BlockRef) -> None:
        """Inline the block's expression into its consumers; the block and its buffer disappear."""
        self._apply(primitives.compute_inline, (block,))

    def compute_at(self, block: BlockRef, loop: LoopRef) -> None:
        """Move a producer under a consumer's loop, to compute just what that iteration needs."""
        self._apply(primitives.compute_at, (block, loop))

    def reverse_compute_at(self, block: BlockRef, loop: LoopRef) -> None:
        """Move a consumer under a producer's loop, to consume just what that iteration computes."""
        self._apply(primitives.reverse_compute_at, (block, loop))

    def reverse_compute_inline(self, block: BlockRef) -> None:
        """Inline the block's expression into its producer."""
        self._apply(primitives.reverse_compute_inline, (block,))

    def decompose_reduction(self, block: BlockRef, loop: LoopRef) -> BlockRef:
        """Split off the init as a block before the loop."""
        return self._block(primitives.decompose_reduction, (block, loop))

    def rfactor(self, loop: LoopRef, axis: int = 0, within: bool = False) -> BlockRef:
        """Partial results along a loop of a reduction, at dimension `axis` of a new buffer."""
        return self._block(primitives.rfactor, (loop, axis, within))

    # Buffers

    def cache_read(
        self, block: BlockRef, buffer: str, scope: str = GLOBAL, layout: MapLike | None = None
    ) -> BlockRef:
        """The block reads the buffer through a copy; the copying block."""
        options = {} if layout is None else {"layout": IndexMap.of(layout).text()}
        return self._block(primitives.cache_read, (block, buffer, scope), options)

    def cache_write(
        self, block: BlockRef, scope: str = GLOBAL, buffer: str = "", layout: MapLike | None = None
    ) -> BlockRef:
        """The block writes a copy of its output; the block that copies it out."""
        options = {} if layout is None else {"layout": IndexMap.of(layout).text()}
        options |= {"buffer": buffer} if buffer else {}
        return self._block(primitives.cache_write, (block, scope), options)

    def reindex(self, block: BlockRef, buffer: str) -> BlockRef:
        """The block accesses the buffer through one indexed by its own axes; the copying block."""
        return self._block(primitives.reindex, (block, buffer))

    def transform_layout(self, what: BlockRef | str, index_map: MapLike) -> None:
        """An intermediate (by name, or the output of a block) in another layout: the map is text,
        "i, k -> i // 6, k, i % 6", or a function, lambda i, k: (i // 6, k, i % 6)."""
        self._apply(primitives.transform_layout, (what, IndexMap.of(index_map).text()))

    def pad(self, block: BlockRef, *multiples: int, beyond: str = "last") -> None:
        """The block's axes grow to multiples; its buffers with them. Parameters do not: beyond
        them their "last" element is read again, or "zero" taken for it."""
        options = {} if beyond == "last" else {"beyond": beyond}
        self._apply(primitives.pad, (block, *multiples), options)

    def storage_align(self, buffer: str, dim: int, factor: int, offset: int = 0) -> None:
        """The stride of a dimension is `offset` more than a multiple of `factor`."""
        self._apply(primitives.storage_align, (buffer, dim, factor, offset))

    def set_scope(self, what: BlockRef | str, scope: str) -> None:
        """Put a buffer (by name, or the output of a block) into a memory scope."""
        self._apply(primitives.set_scope, (what, scope))

    def annotate(self, what: Ref, key: str, value: Any) -> None:
        """Annotate a loop or block for later stages."""
        self._apply(primitives.annotate, (what, key, value))

    # Undo, unchecked steps, internals

    @property
    def unsafe_(self) -> Any:
        """The escape hatch: `sch.unsafe_.parallel(loop)` applies the step without its checks. The
        caller guarantees its legality; an illegal rewrite may fail in any way."""
        return _Unsafe(self)

    def save(self) -> Saved:
        """A snapshot of the schedule, for `restore`."""
        return self.kernel, self.trace.copy(), dict(self._consumed), dict(self.plans)

    def restore(self, saved: Saved) -> None:
        self.kernel, trace, consumed, plans = saved
        self.trace, self._consumed, self.plans = trace.copy(), dict(consumed), dict(plans)

    @contextmanager
    def attempt(self, block: BlockRef | None = None, about: str = STEP) -> Iterator[None]:
        """If a step inside is illegal, undo all steps made inside and continue after the block; why
        is a remark on the `block` of the kernel."""
        before = self.save()
        try:
            yield
        except IngotError as error:
            if error.code != "bad-schedule":
                raise
            self.restore(before)
            self.remark(block, about, error.what + (f": {error.why}" if error.why else ""))

    def remark(self, block: BlockRef | None, about: str, why: str) -> None:
        """Record why a block is serial or scalar, or a step was refused; undoing keeps it."""
        made = Remark("" if block is None else block.name, about, why)
        if made not in self.remarks:
            self.remarks.append(made)

    def finished(self) -> Kernel:
        """The kernel with the plans and remarks of its schedule."""
        plans, remarks = tuple(self.plans.items()), tuple(self.remarks)
        return replace(self.kernel, plans=plans, remarks=remarks)

    def _record_query(self, op: str, args: tuple, outs: Any) -> Any:
        self.trace.record_query(op, args, outs)
        return outs

    def _loops(
        self, primitive: Callable, args: tuple, options: dict | None = None, single: bool = False
    ) -> list[LoopRef]:
        made = self._apply(primitive, args, options or {}, single)
        return [x for x in made if isinstance(x, LoopRef)]

    def _block(self, primitive: Callable, args: tuple, options: dict | None = None) -> BlockRef:
        """Apply a primitive that makes one block."""
        (made,) = self._apply(primitive, args, options, single=True)
        assert isinstance(made, BlockRef)
        return made

    def _apply(
        self, primitive: Callable, args: tuple, options: dict | None = None, single: bool = False
    ) -> list[Ref]:
        """Check and rewrite on the nodes, then record; nothing changes if either raises."""
        nodes = [self._resolve(a) if isinstance(a, Ref) else a for a in args]
        kernel, made = primitive(self.kernel, *nodes, **(options or {}))
        gone = tree.uids(self.kernel.body) - tree.uids(kernel.body)
        refs = [_ref(x) for x in made]
        outs = (refs[0] if single else refs) if refs else None
        op = f"{UNSAFE}{primitive.__name__}" if base.is_unsafe() else primitive.__name__
        step = self.trace.record(op, args, options or {}, outs)
        self._consumed |= dict.fromkeys(gone, step.text())
        self.kernel = kernel
        return refs

    def _resolve(self, ref: Ref) -> For | Block:
        if ref.uid in self._consumed:
            step = self._consumed[ref.uid]
            raise IngotError(
                "bad-schedule",
                f"the {ref} was consumed",
                where=step,
                why="that step replaced it",
                hint="use the handles that step returned, or call loops() again",
            )
        path = tree.find(self.kernel.body, ref.uid)
        if path is None:
            what = f"the {ref} is not in kernel {self.kernel.name}"
            hint = "take handles from this schedule's block() and loops()"
            raise IngotError("bad-schedule", what, hint=hint)
        node = path[-1]
        assert isinstance(node, For | Block)
        return node


class _Unsafe:
    """A schedule's methods without legality checks."""

    def __init__(self, schedule: Schedule):
        self._schedule = schedule

    def __getattr__(self, op: str) -> Callable:
        method = getattr(self._schedule, op)

        def step(*args: Any, **options: Any) -> Any:
            with base.unsafe():
                return method(*args, **options)

        return step


def _ref(node: For | Block) -> Ref:
    return LoopRef(node.uid, node.var) if isinstance(node, For) else BlockRef(node.uid, node.name)


def replay(kernel: Kernel, trace: Trace) -> Schedule:
    """Apply the steps of a trace to an equal kernel, with an equal result."""
    sch = Schedule(kernel)
    env: dict[str, Ref] = {}
    for step in trace.live_steps():
        args = [env[a.name] if isinstance(a, HandleVar) else a for a in step.args]
        at = sch.unsafe_ if step.op.startswith(UNSAFE) else sch
        outs = getattr(at, step.op.removeprefix(UNSAFE))(*args, **dict(step.options))
        if step.outs:
            refs = outs if step.unpack else [outs]
            env.update(zip(step.outs, refs))
    return sch


__all__ = ["Schedule", "replay"]
