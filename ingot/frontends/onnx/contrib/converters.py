"""Every converter module of com.microsoft: importing this one fills registry.TABLE with them."""

from __future__ import annotations

from ingot.frontends.onnx.contrib import (
    attention,
    fused,
    gates,
    group_query,
    nbits,
    norm,
    others,
    qlinear,
    qmatmul,
    rotary,
)

FAMILIES = (
    attention, fused, gates, group_query, nbits, norm, others, qlinear, qmatmul, rotary,
)  # fmt: skip
