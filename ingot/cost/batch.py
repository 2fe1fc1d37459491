"""The cost model of micro-batches: which layers gain, and how many images a micro-batch has.

A layer that runs on a whole batch reads and writes activations that may exceed the last-level
cache; they then go to main memory and come back. A loop over micro-batches keeps them in the cache,
but reads the weights of its layers once in each iteration:

    saved = activations of the batch · (time per byte from main memory - from the last-level cache)
    paid  = (iterations - 1) · (weights · time per byte from the last-level cache + a launch)

A convolutional network begins with large maps and few weights and ends with the reverse. So the
loop covers the layers up to the one where the sum of `saved - paid`, less the copies of what the
other layers read, is largest. Called by passes/split_batch.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ingot.target import Target

ASSUMED_BATCH = 8  # images of a dynamic batch; with one image the loop costs next to nothing
LLC_FRACTION = 1 / 2  # of the last-level cache, for one layer's activations; heuristic
LAUNCH_NS = 3000.0  # of a launch and its barrier; heuristic
MAX_IMAGES = 256  # of a micro-batch: a bound on the search, since a batch may have any size
BORDER_COPIES = 4  # reads and writes of a value that leaves the loop: collected, converted
MIN_SAVED_NS = 200_000.0  # below it the model's error is larger than the gain; heuristic


@dataclass(frozen=True)
class Layer:
    """Bytes of one kernel: activations of one image that it reads and writes, its weights, and
    activations of one image that would leave a loop that ends with this layer."""

    image_bytes: int
    weight_bytes: int
    border_bytes: int


@dataclass(frozen=True)
class Split:
    """A loop over the first `layers` layers, with `images` of the batch in each iteration."""

    layers: int
    images: int


def best_split(layers: Sequence[Layer], batch: int | None, target: Target) -> Split | None:
    """The loop that saves most, if any does. A dynamic batch (None) is taken image by image, since
    no other number divides every batch."""
    count = ASSUMED_BATCH if batch is None else batch
    sizes = [n for n in range(1, min(count, MAX_IMAGES + 1)) if batch and batch % n == 0] or [1]
    found: list[tuple[float, int, int]] = []
    for images in sizes:
        saved = accumulate(saved_ns(layer, images, count, target) for layer in layers)
        border = (border_ns(layer, count, target) for layer in layers)
        found += [(s - b, n, images) for n, (s, b) in enumerate(zip(saved, border), 1)]
    most, prefix, images = max(found, default=(0.0, 0, 0))
    return Split(prefix, images) if prefix and most >= MIN_SAVED_NS else None


def saved_ns(layer: Layer, images: int, batch: int, target: Target) -> float:
    """Time that a layer saves with so many images in each iteration; negative if it loses."""
    if not layer.image_bytes:
        return 0.0  # fused with the layer before it
    cached, missed = _ns_per_byte(target)

    def activations_ns(count: int) -> float:
        exceeds = layer.image_bytes * count > LLC_FRACTION * target.caches[-1]
        return layer.image_bytes * batch * (missed if exceeds else cached)

    paid = (batch // images - 1) * (layer.weight_bytes * cached + LAUNCH_NS)
    return activations_ns(batch) - activations_ns(images) - paid


def border_ns(layer: Layer, batch: int, target: Target) -> float:
    cached, _ = _ns_per_byte(target)
    return layer.border_bytes * batch * BORDER_COPIES * cached


def _ns_per_byte(target: Target) -> tuple[float, float]:
    """From the last-level cache and from main memory, all cores together."""
    machine, last = target.machine, len(target.caches) - 1
    cached = machine.cache_bytes_per_ns(last) * target.cores
    return 1 / cached, 1 / machine.memory_bytes_per_ns
