"""Handles: references to blocks and loops of a schedule. Created by `Schedule` only.

A handle holds the node's uid, which survives every rewrite that keeps the node; the IR inside the
schedule is immutable. `name` is for display only: the block's name, or the loop's variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class BlockRef:
    """One block of the kernel under schedule."""

    uid: int
    name: str = field(compare=False)

    def __repr__(self) -> str:
        return f"block {self.name}"


@dataclass(frozen=True)
class LoopRef:
    """One loop of the kernel under schedule."""

    uid: int
    name: str = field(compare=False)

    def __repr__(self) -> str:
        return f"loop {self.name}"


Ref = BlockRef | LoopRef
