"""Kernels that several tests use."""

from __future__ import annotations

import numpy as np

import ingot
from ingot.script import *


@ingot.kernel
def mm_relu(n: size, m: size, k: size, A: f32[n, k], B: f32[k, m], C: f32[n, m]):
    Y = alloc(f32[n, m])
    for i, j, q in grid(n, m, k):
        with block("Y", spatial=(i, j), reduce=(q,)) as (vi, vj, vk):
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] += A[vi, vk] * B[vk, vj]
    for i, j in grid(n, m):
        with block("C", spatial=(i, j)) as (vi, vj):
            C[vi, vj] = max(Y[vi, vj], 0.0)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
