"""The schedule primitives, one file each: a function from a kernel and nodes to a new kernel.

    primitive(kernel, *nodes, **options) -> (new kernel, loops or blocks made)

It checks first and raises `bad-schedule` without having changed anything. `Schedule` resolves
handles before and records the step after.
"""

from ingot.schedule.primitives.annotate import annotate
from ingot.schedule.primitives.bind import bind
from ingot.schedule.primitives.blockize import blockize
from ingot.schedule.primitives.compute_at import compute_at
from ingot.schedule.primitives.compute_inline import compute_inline
from ingot.schedule.primitives.fuse import fuse
from ingot.schedule.primitives.parallel import parallel
from ingot.schedule.primitives.partition import partition
from ingot.schedule.primitives.peel import peel
from ingot.schedule.primitives.pipeline import pipeline
from ingot.schedule.primitives.reorder import reorder
from ingot.schedule.primitives.reverse_compute_at import reverse_compute_at
from ingot.schedule.primitives.set_scope import set_scope
from ingot.schedule.primitives.split import split
from ingot.schedule.primitives.unroll import unroll
from ingot.schedule.primitives.vectorize import vectorize

__all__ = [
    "annotate", "bind", "blockize", "compute_at", "compute_inline", "fuse", "parallel",
    "partition", "peel", "pipeline", "reorder", "reverse_compute_at", "set_scope", "split",
    "unroll", "vectorize",
]  # fmt: skip
