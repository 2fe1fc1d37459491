"""The schedule primitives, one file each: a function from a kernel and nodes to a new kernel.

    primitive(kernel, *nodes, **options) -> (new kernel, loops or blocks made)

It checks legality first and raises `bad-schedule` without changing anything. `Schedule` resolves
handles before the call and records the step after it.
"""

from ingot.schedule.primitives.annotate import annotate
from ingot.schedule.primitives.bind import bind
from ingot.schedule.primitives.blockize import blockize
from ingot.schedule.primitives.cache_read import cache_read
from ingot.schedule.primitives.cache_write import cache_write
from ingot.schedule.primitives.compute_at import compute_at
from ingot.schedule.primitives.compute_inline import compute_inline
from ingot.schedule.primitives.decompose_reduction import decompose_reduction
from ingot.schedule.primitives.fuse import fuse
from ingot.schedule.primitives.pad import pad
from ingot.schedule.primitives.parallel import parallel
from ingot.schedule.primitives.partition import partition
from ingot.schedule.primitives.peel import peel
from ingot.schedule.primitives.pipeline import pipeline
from ingot.schedule.primitives.prefetch import prefetch
from ingot.schedule.primitives.reindex import reindex
from ingot.schedule.primitives.reorder import reorder
from ingot.schedule.primitives.reverse_compute_at import reverse_compute_at
from ingot.schedule.primitives.reverse_compute_inline import reverse_compute_inline
from ingot.schedule.primitives.rfactor import rfactor
from ingot.schedule.primitives.set_scope import set_scope
from ingot.schedule.primitives.split import split
from ingot.schedule.primitives.storage_align import storage_align
from ingot.schedule.primitives.tensorize import tensorize
from ingot.schedule.primitives.transform_layout import transform_layout
from ingot.schedule.primitives.unroll import unroll
from ingot.schedule.primitives.vectorize import vectorize

__all__ = [
    "annotate", "bind", "blockize", "cache_read", "cache_write", "compute_at", "compute_inline",
    "decompose_reduction", "fuse", "pad", "parallel", "partition", "peel", "pipeline", "prefetch",
    "reindex", "reorder", "reverse_compute_at", "reverse_compute_inline", "rfactor",
    "set_scope", "split", "storage_align", "tensorize", "transform_layout", "unroll",
    "vectorize",
]  # fmt: skip
