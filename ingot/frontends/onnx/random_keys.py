"""Keys of random numbers: of a seed, and of one iteration of a loop. Called by graph_walk."""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value


def seed_key(seed: float | None) -> np.ndarray:
    """ONNX's seed is a float (an integer for Dropout): its bits, and position 0."""
    bits = np.array([0.0 if seed is None else seed], np.float64).view(np.uint64)
    return np.array([bits[0], 0], np.uint64)


def folded_key(g: GraphBuilder, key: Value, iteration: Value, stream: int) -> Value:
    """The key of an iteration: drawn from the key outside, with its number as the position."""
    drawn = g.add("random_bits", [key], shape=(1,), stream=stream)
    number = g.add("cast", [g.add("reshape", [iteration], shape=(1,))], to=dtypes.u64, mode="wrap")
    return g.add("concat", [drawn, number], axis=0)
